//! What is passed on: requests for a server behind, its replies, and its definitions of tools, on both edges.

use longhaul_mcp::{
    Message, Push, Relay, Reply, Request, RequestId, RpcError, Tool, ToolRule,
    edge::{Belongs, Edge, Offer, Received, Version, receive},
    frame::{Frame, Obj, Raw},
    malformed::{Malformed, Rule},
    reply::{Annotations, Cache, CacheScope, Relays, TaskSupport, ToolPage},
    request::{Filter, LogLevel, ProgressToken, RelayMethod, Subject},
    scan::Limits,
};
use serde_json::{Value, json};

use crate::support::{EVERYTHING, Official, Post, assert_is, frame, meta, offer, peer, raw};

const SESSION: Edge = Edge::Session(Version::LATEST);

const CACHE: Cache = Cache {
    ttl_ms: 0,
    scope: CacheScope::Private,
};

/// One request of each method that is passed on: its parameters, what it is about, and its official name.
fn all() -> Vec<(RelayMethod, Value, Subject, &'static str)> {
    let list = |cursor: &str| Subject::List {
        cursor: Some(cursor.to_owned()),
    };
    let resource = |uri: &str| Subject::Resource { uri: uri.to_owned() };
    let prompt = Subject::Prompt { name: "p".to_owned() };
    let uri = json!({ "uri": "file:///a" });
    let complete =
        json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "a", "value": "v" } });
    vec![
        (
            RelayMethod::ListResources,
            json!({ "cursor": "" }),
            list(""),
            "ListResourcesRequest",
        ),
        (
            RelayMethod::ListTemplates,
            json!({ "cursor": "c" }),
            list("c"),
            "ListResourceTemplatesRequest",
        ),
        (
            RelayMethod::ReadResource,
            uri.clone(),
            resource("file:///a"),
            "ReadResourceRequest",
        ),
        (
            RelayMethod::Subscribe,
            uri.clone(),
            resource("file:///a"),
            "SubscribeRequest",
        ),
        (
            RelayMethod::Unsubscribe,
            uri,
            resource("file:///a"),
            "UnsubscribeRequest",
        ),
        (
            RelayMethod::ListPrompts,
            json!({ "cursor": "c" }),
            list("c"),
            "ListPromptsRequest",
        ),
        (
            RelayMethod::GetPrompt,
            json!({ "name": "p", "arguments": { "k": "v" } }),
            prompt.clone(),
            "GetPromptRequest",
        ),
        (RelayMethod::Complete, complete, prompt, "CompleteRequest"),
    ]
}

fn is_of_sessions(method: RelayMethod) -> bool {
    matches!(method, RelayMethod::Subscribe | RelayMethod::Unsubscribe)
}

fn stateless(method: &str, params: &Value, relays: Relays) -> Post {
    let mut params = params.clone();
    params["_meta"] = meta();
    Post {
        relays,
        ..Post::new(method, params)
    }
}

fn in_session(body: &Value, relays: Relays) -> Result<Message, Malformed> {
    let frame = Frame::parse(body.to_string().as_bytes(), &Limits::default())?;
    let offer = Offer {
        relays,
        ..offer(&|_| None::<&ToolRule>)
    };
    let received = receive(
        None,
        frame,
        Belongs::Session,
        Some(&peer(Version::LATEST)),
        &offer,
    )?;
    match received {
        Received::Message(message) => Ok(message),
        Received::Open(opening) => panic!("opened: {opening:?}"),
    }
}

fn relay(message: Result<Message, Malformed>) -> Relay {
    let Ok(Message::Request(incoming)) = message else {
        panic!("{message:?}")
    };
    let Request::Relay(relay) = incoming.request else {
        panic!("not passed on: {:?}", incoming.request)
    };
    relay
}

#[test]
fn each_method_is_read_on_both_edges_with_its_parameters_whole() {
    for (method, params, subject, definition) in all() {
        let body = frame(method.as_str(), params.clone());
        assert_is(Official::Sessions, definition, &body);
        let found = relay(in_session(&body, EVERYTHING));
        let expect = Relay {
            method,
            subject: subject.clone(),
            params: Some(raw(&params).read().expect("an object")),
            progress_token: None,
            log_level: None,
        };
        assert_eq!(found, expect);

        let post = stateless(method.as_str(), &params, EVERYTHING);
        if is_of_sessions(method) {
            // K-14
            assert_eq!(post.refusal(), (-32601, 404), "{method:?}");
            continue;
        }
        let body: Value = serde_json::from_slice(&post.body).expect("JSON");
        assert_is(Official::Core, definition, &body);
        let found = relay(post.read());
        assert_eq!((found.method, &found.subject), (method, &subject));
        let written = raw(&body["params"]).read::<Obj>().expect("an object");
        assert_eq!(found.params, Some(written));
    }
    let bare = json!({ "jsonrpc": "2.0", "id": 1, "method": "prompts/list" });
    assert_eq!(relay(in_session(&bare, EVERYTHING)).params, None);
    let null = frame("prompts/list", json!({ "cursor": null, "vendor": null }));
    let written = relay(in_session(&null, EVERYTHING)).params.expect("parameters");
    assert_eq!(written.to_raw().text(), r#"{"cursor":null,"vendor":null}"#);
}

#[test]
fn what_is_not_offered_is_not_there() {
    for (method, params, ..) in all() {
        let without = Relays {
            prompts: EVERYTHING.prompts
                && !matches!(method, RelayMethod::ListPrompts | RelayMethod::GetPrompt),
            resources: EVERYTHING.resources
                && !matches!(
                    method,
                    RelayMethod::ListResources | RelayMethod::ListTemplates | RelayMethod::ReadResource
                ),
            subscribe: EVERYTHING.subscribe && !is_of_sessions(method),
            completions: EVERYTHING.completions && method != RelayMethod::Complete,
            ..EVERYTHING
        };
        for relays in [without, Relays::default()] {
            let refused =
                in_session(&frame(method.as_str(), params.clone()), relays).expect_err("not offered");
            assert_eq!(refused.rule, Rule::method_not_found(method.as_str()));
            let post = stateless(method.as_str(), &params, relays);
            assert_eq!(post.refusal(), (-32601, 404), "{method:?}");
        }
    }
}

/// B-21.
#[test]
fn a_resource_and_a_prompt_must_be_named_in_the_header() {
    for (method, params) in [
        ("resources/read", json!({ "uri": "file:///a" })),
        ("prompts/get", json!({ "name": "p" })),
    ] {
        for name in [None, Some("other")] {
            let post = Post {
                strict: false,
                ..stateless(method, &params, EVERYTHING)
            };
            assert_eq!(
                post.header("Mcp-Name", name).refusal(),
                (-32020, 400),
                "{method} {name:?}"
            );
        }
    }
    let list = stateless("resources/list", &json!({}), EVERYTHING);
    assert!(!list.headers.iter().flatten().any(|(name, _)| name == "Mcp-Name"));
    list.request();
}

#[test]
fn a_request_that_names_nothing_is_refused() {
    for (method, params, member) in [
        ("resources/read", json!({}), "uri"),
        ("resources/read", json!({ "uri": 1 }), "uri"),
        ("prompts/get", json!({ "name": ["p"] }), "name"),
        ("prompts/list", json!({ "cursor": 1 }), "cursor"),
        ("completion/complete", json!({}), "ref"),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/tool", "name": "t" } }),
            "ref",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "uri": "x" } }),
            "ref",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "name": "x" } }),
            "ref",
        ),
    ] {
        let here = in_session(&frame(method, params.clone()), EVERYTHING).expect_err("refused");
        let there = stateless(method, &params, EVERYTHING).malformed();
        for rule in [here.rule, there.rule] {
            assert!(
                matches!(&rule, Rule::ParamInvalid { member: own, .. } if *own == member),
                "{method} {rule:?}"
            );
        }
    }
    let template = json!({ "ref": { "type": "ref/resource", "uri": "file:///{x}" }, "argument": {} });
    let subject = relay(in_session(&frame("completion/complete", template), EVERYTHING)).subject;
    let uri = "file:///{x}".to_owned();
    assert_eq!(subject, Subject::Resource { uri });
}

/// B-55.
#[test]
fn progress_and_log_messages_can_be_wished_for() {
    let mut params = json!({ "uri": "file:///a", "_meta": meta() });
    params["_meta"]["progressToken"] = json!(5);
    params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("notice");
    let post = Post {
        relays: EVERYTHING,
        ..Post::new("resources/read", params)
    };
    let found = relay(post.read());
    let token = ProgressToken(RequestId::Integer(5));
    assert_eq!(
        (found.progress_token, found.log_level),
        (Some(token.clone()), Some(LogLevel::Notice))
    );
    let body = frame(
        "resources/read",
        json!({ "uri": "file:///a", "_meta": { "progressToken": 5 } }),
    );
    assert_eq!(relay(in_session(&body, EVERYTHING)).progress_token, Some(token));
}

#[test]
fn a_call_carries_what_only_a_server_behind_reads() {
    let text = |meta: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"vendor":1.50,"name":"t","arguments":{{}},"task":{{}},"x":null,"_meta":{meta}}}}}"#
        )
    };
    let rest = |message: Result<Message, Malformed>| {
        let Ok(Message::Request(incoming)) = message else {
            panic!("{message:?}")
        };
        let Request::CallTool(call) = incoming.request else {
            panic!("no call: {:?}", incoming.request)
        };
        call.rest.to_raw().text().to_owned()
    };
    let expect = |meta: &str| format!(r#"{{"vendor":1.50,"x":null,"_meta":{meta}}}"#);
    let meta = meta().to_string();
    assert_eq!(rest(Post::raw(&text(&meta)).read()), expect(&meta));
    let plain = r#"{"com.example/k":1e2}"#;
    let body = text(plain);
    let frame = Frame::parse(body.as_bytes(), &Limits::default()).expect("a frame");
    let offer = offer(&|_| None::<&ToolRule>);
    let received = receive(
        None,
        frame,
        Belongs::Session,
        Some(&peer(Version::LATEST)),
        &offer,
    );
    let Ok(Received::Message(message)) = received else {
        panic!("{received:?}")
    };
    assert_eq!(rest(Ok(message)), expect(plain));
}

fn rendered(edge: Edge, reply: &Reply) -> Value {
    serde_json::from_slice(&edge.render(reply, &RequestId::Integer(7))).expect("JSON")
}

fn text(edge: Edge, reply: &Reply) -> String {
    String::from_utf8(edge.render(reply, &RequestId::Integer(7))).expect("text")
}

/// B-8, B-51, D-8.
#[test]
fn a_relayed_result_gets_what_its_generation_demands_and_keeps_all_else() {
    let contents = json!([{ "uri": "file:///a", "text": "x" }]);
    let messages = json!([]);
    let rows = [
        ("ReadResourceResult", json!({ "contents": contents }), Some(CACHE)),
        (
            "ListResourcesResult",
            json!({ "resources": [], "nextCursor": "n" }),
            Some(CACHE),
        ),
        (
            "ListResourceTemplatesResult",
            json!({ "resourceTemplates": [] }),
            Some(CACHE),
        ),
        ("ListPromptsResult", json!({ "prompts": [] }), Some(CACHE)),
        ("GetPromptResult", json!({ "messages": messages }), None),
        (
            "CompleteResult",
            json!({ "completion": { "values": ["a"] } }),
            None,
        ),
    ];
    for (definition, result, cache) in rows {
        let reply = Reply::Relayed {
            result: raw(&result),
            cache,
        };
        let shown = rendered(Edge::Stateless, &reply);
        assert_is(Official::Core, definition, &shown["result"]);
        assert_eq!(
            shown["result"]["ttlMs"],
            cache.map_or(json!(null), |cache| json!(cache.ttl_ms))
        );
        let shown = rendered(SESSION, &reply);
        assert_is(Official::Sessions, definition, &shown["result"]);
        assert_eq!(shown["result"], result);
    }
    let theirs = Reply::Relayed {
        result: Raw::parse(
            r#"{"z":1.50,"resultType":"complete","contents":[],"ttlMs":9,"cacheScope":"public","a":[12345678901234567890123]}"#,
        )
        .expect("JSON"),
        cache: Some(CACHE),
    };
    let kept = r#""result":{"z":1.50,"resultType":"complete","contents":[],"ttlMs":9,"cacheScope":"public","a":[12345678901234567890123],"_meta":{"#;
    assert!(text(Edge::Stateless, &theirs).contains(kept));
    let kept = r#""result":{"z":1.50,"contents":[],"a":[12345678901234567890123]}}"#;
    assert!(text(SESSION, &theirs).contains(kept));
}

/// B-11.
#[test]
fn a_code_of_the_older_generation_is_never_sent_to_the_newer() {
    for (code, expect) in [
        (-32002, -32602),
        (-32042, -32603),
        (-32602, -32602),
        (4711, 4711),
        (-1, -1),
    ] {
        let reply = Reply::Error(RpcError::relayed(code, "no".to_owned(), None));
        assert_eq!(rendered(Edge::Stateless, &reply)["error"]["code"], expect);
        assert_eq!(rendered(SESSION, &reply)["error"]["code"], code);
    }
}

fn listed(edge: Edge, tool: &Tool) -> String {
    let page = ToolPage {
        tools: vec![tool.clone()],
        next_cursor: None,
        cache: CACHE,
    };
    let shown = text(edge, &Reply::Tools(page));
    let from = shown.find("[").expect("a list") + 1;
    let to = shown.rfind("]").expect("a list");
    shown[from..to].to_owned()
}

fn relayed(definition: &str) -> Tool {
    let definition = Obj::parse(definition).expect("an object");
    Tool {
        name: definition.get("name").expect("a name"),
        title: None,
        description: None,
        input_schema: definition.raw("inputSchema").expect("a schema").clone(),
        output_schema: definition.raw("outputSchema").cloned(),
        annotations: Annotations::default(),
        task_support: TaskSupport::Forbidden,
        relayed: Some(definition),
    }
}

/// D-12, B-54, E-2.
#[test]
fn a_definition_is_listed_as_its_server_wrote_it_but_for_the_documented_edits() {
    let plain = r#"{"vendor":1.50,"name":"\u0074","inputSchema":{"type":"object","maxProperties":1e2},"title":"T","annotations":{"new":null},"icons":[]}"#;
    let tool = relayed(plain);
    for edge in [Edge::Stateless, SESSION, Edge::Session(Version::V2024_11_05)] {
        assert_eq!(listed(edge, &tool), plain, "{edge:?}");
    }
    let renamed = Tool {
        name: "s__t".to_owned(),
        ..tool
    };
    assert_eq!(
        listed(SESSION, &renamed),
        plain.replace(r#""\u0074""#, r#""s__t""#)
    );

    let own =
        r#"{"name":"t","execution":{"taskSupport":"required","more":1},"inputSchema":{"type":"object"}}"#;
    let with = |task_support| Tool {
        task_support,
        ..relayed(own)
    };
    let optional = with(TaskSupport::Optional);
    assert_eq!(listed(SESSION, &optional), own.replace("required", "optional"));
    let none = own.replace(r#""taskSupport":"required","#, "");
    assert_eq!(listed(SESSION, &with(TaskSupport::Forbidden)), none);
    assert_eq!(listed(Edge::Session(Version::V2025_06_18), &optional), none);
    let bare = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
    assert_eq!(listed(Edge::Stateless, &optional), bare);
    let required = Tool {
        task_support: TaskSupport::Required,
        ..relayed(bare)
    };
    let expect = r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}"#;
    assert_eq!(listed(SESSION, &required), expect);
    assert_is(
        Official::Sessions,
        "Tool",
        &serde_json::from_str(expect).expect("JSON"),
    );
    let only = r#"{"name":"t","execution":{"taskSupport":"required"},"inputSchema":{"type":"object"}}"#;
    assert_eq!(listed(SESSION, &relayed(only)), bare);
}

/// A-88, B-54.
#[test]
fn an_output_schema_is_listed_where_its_results_can_be_sent() {
    let of =
        |schema: &str| format!(r#"{{"name":"t","outputSchema":{schema},"inputSchema":{{"type":"object"}}}}"#);
    let bare = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
    let object = of(r#"{"type":"object"}"#);
    let array = of(r#"{"type":"array"}"#);
    assert_eq!(listed(SESSION, &relayed(&object)), object);
    assert_eq!(listed(Edge::Stateless, &relayed(&array)), array);
    assert_eq!(listed(SESSION, &relayed(&array)), bare);
    assert_eq!(
        listed(Edge::Session(Version::V2025_03_26), &relayed(&object)),
        bare
    );
    let hidden = Tool {
        output_schema: None,
        ..relayed(&object)
    };
    for edge in [Edge::Stateless, SESSION] {
        assert_eq!(listed(edge, &hidden), bare);
    }
}

/// A-90, B-45 to B-48.
#[test]
fn changes_are_told_on_both_edges() {
    let uri = "file:///a".to_owned();
    for (push, definition) in [
        (Push::PromptsChanged, "PromptListChangedNotification"),
        (Push::ResourcesChanged, "ResourceListChangedNotification"),
        (
            Push::ResourceUpdated { uri: uri.clone() },
            "ResourceUpdatedNotification",
        ),
    ] {
        let shown = |edge: Edge| -> Value {
            serde_json::from_slice(&edge.push(&push, &RequestId::Integer(41))).expect("JSON")
        };
        let stateless = shown(Edge::Stateless);
        assert_is(Official::Core, definition, &stateless);
        assert_eq!(
            stateless["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
            41
        );
        assert_is(Official::Sessions, definition, &shown(SESSION));
    }

    let all = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": [uri] });
    let filter = |asked: &Value, relays| {
        let post = stateless("subscriptions/listen", &json!({ "notifications": asked }), relays);
        let Request::Listen(filter) = post.request() else {
            panic!("no subscription")
        };
        filter
    };
    let honoured = filter(&all, EVERYTHING);
    let expect = Filter {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        resources: vec![uri],
        tasks: None,
    };
    assert_eq!(honoured, expect);
    let acknowledged = Push::Acknowledged(honoured);
    let shown = Edge::Stateless.push(&acknowledged, &RequestId::Integer(41));
    let shown: Value = serde_json::from_slice(&shown).expect("JSON");
    assert_is(Official::Core, "SubscriptionsAcknowledgedNotification", &shown);
    assert_eq!(shown["params"]["notifications"], all);

    let tools = Filter {
        tools_list_changed: true,
        ..Filter::default()
    };
    assert_eq!(filter(&all, Relays::default()), tools);
    for (member, bad) in [
        ("promptsListChanged", json!("yes")),
        ("resourcesListChanged", json!(1)),
        ("resourceSubscriptions", json!("file:///a")),
        ("resourceSubscriptions", json!([1])),
    ] {
        let post = stateless(
            "subscriptions/listen",
            &json!({ "notifications": { member: bad } }),
            EVERYTHING,
        );
        assert_eq!(post.refusal(), (-32602, 200), "{member}");
    }
}
