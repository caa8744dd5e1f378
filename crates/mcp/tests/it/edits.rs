//! What Longhaul changes in what it passes on: each edit, shown by the code that makes it. `page` writes them down.

mod page;

use longhaul_mcp::{
    Message, Push, Reply, Request, RequestId, RpcError, Tool, ToolRule,
    client::{
        self, Carrier, Era, Hello, Incoming, Outgoing,
        incoming::Notice,
        list::{Items, Of},
        result::{self, Came},
        tools::{Definition, listable},
    },
    edge::{Belongs, Edge, Received, Version, receive},
    frame::{Frame, Obj, Raw},
    reply::{Cache, CacheScope, TaskSupport, ToolPage},
    request::{Answers, ProgressToken},
    scan::Limits,
};

use crate::support::{offer, peer};

const LATEST: Version = Version::LATEST;
const SESSION: Edge = Edge::Session(LATEST);

/// Where something is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The parameters of a request, to a server of this era.
    Request(Era),
    /// The parameters of a tool's call, to a server with sessions.
    Call,
    /// The result of a call, to a client of this edge.
    Result(Edge),
    /// The result of any other request.
    Relayed(Edge),
    /// An error.
    Error(Edge),
    /// A page of a list, in the list of all servers.
    Page,
    /// The definition of a tool.
    Definition(Edge),
    /// The parameters of a notification.
    Notice(Edge),
}

impl Place {
    const ALL: [Place; 14] = [
        Place::Request(Era::Session(LATEST)),
        Place::Request(Era::Stateless),
        Place::Call,
        Place::Result(SESSION),
        Place::Result(Edge::Stateless),
        Place::Relayed(SESSION),
        Place::Relayed(Edge::Stateless),
        Place::Error(SESSION),
        Place::Error(Edge::Stateless),
        Place::Page,
        Place::Definition(SESSION),
        Place::Definition(Edge::Stateless),
        Place::Notice(SESSION),
        Place::Notice(Edge::Stateless),
    ];

    /// What arrives when `text` is sent; `by` is the method, where it matters.
    fn pass(self, by: &str, text: &str) -> String {
        match self {
            Place::Request(era) => request(by, text, era),
            Place::Call => call(by, text),
            Place::Result(edge) => rendered(edge, &Reply::Result(complete(text, era_like(edge))), "result"),
            Place::Relayed(edge) => {
                let reply = Reply::Relayed {
                    result: complete(text, era_like(edge)),
                    cache: Some(CACHE),
                };
                rendered(edge, &reply, "result")
            }
            Place::Error(edge) => rendered(edge, &Reply::Error(error(text)), "error"),
            Place::Page => page_of_prompts(text),
            Place::Definition(edge) => definition(edge, by, text),
            Place::Notice(edge) => notice(edge, by, text),
        }
    }
}

/// An edit, and an example of it.
struct Edit {
    place: Place,
    what: &'static str,
    why: &'static str,
    /// The method of a request or notification; what is offered of a tool.
    by: &'static str,
    sent: &'static str,
    arrives: &'static str,
}

const CACHE: Cache = Cache {
    ttl_ms: 0,
    scope: CacheScope::Private,
};

fn raw(text: &str) -> Raw {
    Raw::parse(text).expect("JSON")
}

fn obj(text: &str) -> Obj {
    Obj::parse(text).expect("an object")
}

/// A server of the client's own generation; one of the other is no different but for `resultType`.
fn era_like(edge: Edge) -> Era {
    match edge {
        Edge::Stateless => Era::Stateless,
        Edge::Session(version) => Era::Session(version),
    }
}

fn hello() -> Hello {
    Hello {
        name: "longhaul".to_owned(),
        version: "1".to_owned(),
        capabilities: Obj::default(),
    }
}

fn request(method: &str, text: &str, era: Era) -> String {
    written(method, text, era, None)
}

fn written(method: &str, text: &str, era: Era, task_ttl_ms: Option<u64>) -> String {
    let params = obj(text);
    let token = RequestId::Integer(7);
    let wants_progress = params
        .obj("_meta")
        .is_some_and(|members| members.raw("progressToken").is_some());
    let outgoing = Outgoing {
        method,
        params: Some(&params),
        progress_token: wants_progress.then_some(&token),
        log_level: None,
        mirrors: &[],
        task_ttl_ms,
    };
    let sent = outgoing.write(&RequestId::Integer(1), &hello(), era, Carrier::Pipe);
    let Ok(Frame::Request { params, .. }) = Frame::parse(&sent.frame, &Limits::default()) else {
        panic!("no request")
    };
    params.expect("parameters").to_raw().text().to_owned()
}

/// Through the edge of a session, and on to the tool's server, which is to make a task of it where `by` says so.
fn call(by: &str, text: &str) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{text}}}"#);
    let frame = Frame::parse(body.as_bytes(), &Limits::default()).expect("a frame");
    let offer = offer(&|_| None::<&ToolRule>);
    let received = receive(None, frame, Belongs::Session, Some(&peer(LATEST)), &offer);
    let Ok(Received::Message(Message::Request(incoming))) = received else {
        panic!("{received:?}")
    };
    let Request::CallTool(call) = incoming.request else {
        panic!("no call")
    };
    let own = call.name.strip_prefix("git__").unwrap_or(&call.name);
    written(
        "tools/call",
        call.params(own).to_raw().text(),
        Era::Session(LATEST),
        (by == "task").then_some(60_000),
    )
}

/// What is stored of a result.
fn complete(text: &str, era: Era) -> Raw {
    match result::read(raw(text), era) {
        Ok(Came::Complete(result)) => result,
        other => panic!("{other:?}"),
    }
}

fn error(text: &str) -> RpcError {
    match result::error(&raw(text)) {
        Ok(error) => RpcError::passed_on(error),
        Err(bad) => bad.error(Answers {
            form: true,
            ..Answers::default()
        }),
    }
}

fn rendered(edge: Edge, reply: &Reply, member: &str) -> String {
    let frame = edge.render(reply, &RequestId::Integer(1));
    let frame = obj(std::str::from_utf8(&frame).expect("text"));
    let mut result: Obj = frame.raw(member).expect(member).read().expect("an object");
    // Of the server's name, the rows below tell; its version changes with every release.
    let key = "io.modelcontextprotocol/serverInfo";
    let is_ours = result
        .obj("_meta")
        .is_some_and(|members| members.raw(key).is_some());
    if is_ours && edge == Edge::Stateless {
        result.edit("_meta", |members| {
            members.edit(key, |info| info.set("version", "1"));
        });
    }
    result.to_raw().text().to_owned()
}

/// A server's page, in the one page of all servers.
fn page_of_prompts(text: &str) -> String {
    let mut items = Items::new(Of::Prompts);
    items.add(&raw(text)).expect("a page");
    let page = Of::Prompts.page(items.items.iter().map(|item| &item.raw), None);
    page.text().to_owned()
}

fn definition(edge: Edge, offered: &str, text: &str) -> String {
    let definition = Definition::read(&raw(text)).expect("a tool");
    let (support, shows_output, name) = match offered {
        "as tasks" => (TaskSupport::Optional, true, definition.name.clone()),
        "held" => (TaskSupport::Forbidden, false, definition.name.clone()),
        "prefixed" => (TaskSupport::Forbidden, true, format!("git__{}", definition.name)),
        "renamed" => (
            TaskSupport::Forbidden,
            true,
            listable(&definition.name).into_owned(),
        ),
        _ => (TaskSupport::Forbidden, true, definition.name.clone()),
    };
    let tool: Tool = definition.listing(&name, support, shows_output);
    let page = ToolPage {
        tools: vec![tool],
        next_cursor: None,
        cache: CACHE,
    };
    let frame = edge.render(&Reply::Tools(page), &RequestId::Integer(1));
    let frame = obj(std::str::from_utf8(&frame).expect("text"));
    let tools: Vec<Raw> = frame
        .obj("result")
        .and_then(|result| result.get("tools"))
        .expect("tools");
    tools[0].text().to_owned()
}

fn notice(edge: Edge, method: &str, text: &str) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{text}}}"#);
    let read = client::read(body.as_bytes(), &Limits::default());
    let Ok(Incoming::Notice { notice, .. }) = read else {
        panic!("{read:?}")
    };
    let push = match notice {
        Notice::Progress { token: _, progress } => Push::Progress {
            token: ProgressToken(RequestId::Text("theirs".to_owned())),
            progress,
            task: None,
        },
        Notice::Log { level, logger, data } => Push::Log { level, logger, data },
        Notice::ResourceUpdated { uri } => Push::ResourceUpdated { uri },
        Notice::ToolsChanged => Push::ToolsChanged,
        other @ (Notice::PromptsChanged
        | Notice::ResourcesChanged
        | Notice::Cancelled { .. }
        | Notice::Task { .. }
        | Notice::LinkDone { .. }
        | Notice::Acknowledged { .. }
        | Notice::Other { .. }) => panic!("not passed on: {other:?}"),
    };
    let frame = edge.push(&push, &RequestId::Integer(41));
    let frame = obj(std::str::from_utf8(&frame).expect("text"));
    frame.raw("params").expect("parameters").text().to_owned()
}

const OLD: Place = Place::Request(Era::Session(LATEST));
const NEW: Place = Place::Request(Era::Stateless);

const EDITS: &[Edit] = &[
    Edit {
        place: OLD,
        what: "`task` goes: whether a request becomes a task is between the client and Longhaul",
        why: "D-33",
        by: "prompts/get",
        sent: r#"{"name":"p","task":{"ttl":5}}"#,
        arrives: r#"{"name":"p"}"#,
    },
    Edit {
        place: OLD,
        what: "`inputResponses` and `requestState` go: they are of the newer generation",
        why: "A-8",
        by: "prompts/get",
        sent: r#"{"name":"p","inputResponses":{},"requestState":"s"}"#,
        arrives: r#"{"name":"p"}"#,
    },
    Edit {
        place: OLD,
        what: "the protocol's own members of `_meta` go, those with the prefix `io.modelcontextprotocol/`; members of others stay, and `traceparent`, `tracestate` and `baggage`",
        why: "D-39, D-42",
        by: "prompts/get",
        sent: r#"{"name":"p","_meta":{"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"com.example/k":1.50,"traceparent":"00-1f-a1-01"}}"#,
        arrives: r#"{"name":"p","_meta":{"com.example/k":1.50,"traceparent":"00-1f-a1-01"}}"#,
    },
    Edit {
        place: OLD,
        what: "what a client says to Longhaul in `_meta` goes; if nothing else was in it, `_meta` goes, too",
        why: "D-39",
        by: "prompts/get",
        sent: r#"{"name":"p","_meta":{"dev.longhaul/session":"s","dev.longhaul/idempotencyKey":"k","dev.longhaul/metadata":{}}}"#,
        arrives: r#"{"name":"p"}"#,
    },
    Edit {
        place: OLD,
        what: "`progressToken` is one of Longhaul's; progress comes back under the client's",
        why: "A-33",
        by: "prompts/get",
        sent: r#"{"_meta":{"progressToken":"theirs","com.example/k":1},"name":"p"}"#,
        arrives: r#"{"_meta":{"com.example/k":1,"progressToken":7},"name":"p"}"#,
    },
    Edit {
        place: NEW,
        what: "`_meta` says who asks: Longhaul, with what can be asked of it, which log messages it wants and, with a call, that it takes tasks; the rest as above",
        why: "B-4, D-39",
        by: "prompts/get",
        sent: r#"{"name":"p","task":{},"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"c","version":"2"},"com.example/k":1.50}}"#,
        arrives: r#"{"name":"p","_meta":{"com.example/k":1.50,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"longhaul","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}"#,
    },
    Edit {
        place: Place::Call,
        what: "`name` and `arguments` come first, and `name` is the server's own",
        why: "B-60",
        by: "",
        sent: r#"{"vendor":[1e2],"arguments":{"b":1.50,"a":null},"name":"git__log"}"#,
        arrives: r#"{"name":"log","arguments":{"b":1.50,"a":null},"vendor":[1e2]}"#,
    },
    Edit {
        place: Place::Call,
        what: "`arguments` of null go: clients of sessions write an absent member so",
        why: "–",
        by: "",
        sent: r#"{"name":"log","arguments":null}"#,
        arrives: r#"{"name":"log"}"#,
    },
    Edit {
        place: Place::Call,
        what: "where a server with sessions can run the tool as a task, `task` asks it to, and says for how long to keep it",
        why: "A-42, D-33",
        by: "task",
        sent: r#"{"name":"log","task":{"ttl":5,"vendor":1}}"#,
        arrives: r#"{"name":"log","task":{"ttl":60000}}"#,
    },
    Edit {
        place: Place::Result(SESSION),
        what: "`resultType` goes",
        why: "D-8",
        by: "",
        sent: r#"{"resultType":"complete","content":[],"vendor":1.50}"#,
        arrives: r#"{"content":[],"vendor":1.50}"#,
    },
    Edit {
        place: Place::Result(SESSION),
        what: "`structuredContent` that is no object goes; where nothing else is in the result, it stands there as text",
        why: "A-88, D-8",
        by: "",
        sent: r#"{"structuredContent":[1.50],"content":[]}"#,
        arrives: r#"{"content":[{"type":"text","text":"[1.50]"}]}"#,
    },
    Edit {
        place: Place::Result(SESSION),
        what: "`content` is added where it is missing",
        why: "D-8",
        by: "",
        sent: r#"{"structuredContent":{"n":1}}"#,
        arrives: r#"{"structuredContent":{"n":1},"content":[{"type":"text","text":"{\"n\":1}"}]}"#,
    },
    Edit {
        place: Place::Result(SESSION),
        what: "the server's reference to a task of its own goes",
        why: "A-62",
        by: "",
        sent: r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"},"com.example/k":1}}"#,
        arrives: r#"{"content":[],"_meta":{"com.example/k":1}}"#,
    },
    Edit {
        place: Place::Result(Edge::Stateless),
        what: "`resultType` is added where it is missing, and stands last; `_meta` names Longhaul as the server",
        why: "B-7, B-8",
        by: "",
        sent: r#"{"content":[],"vendor":1.50,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"9"}}}"#,
        arrives: r#"{"content":[],"vendor":1.50,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"longhaul","version":"1"}},"resultType":"complete"}"#,
    },
    Edit {
        place: Place::Result(Edge::Stateless),
        what: "the server's reference to a task of its own goes",
        why: "K-3",
        by: "",
        sent: r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"}}}"#,
        arrives: r#"{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"longhaul","version":"1"}},"resultType":"complete"}"#,
    },
    Edit {
        place: Place::Relayed(SESSION),
        what: "`resultType`, `ttlMs` and `cacheScope` go",
        why: "D-8",
        by: "",
        sent: r#"{"resultType":"complete","ttlMs":5,"cacheScope":"public","prompts":[{"name":"p","vendor":1.50}]}"#,
        arrives: r#"{"prompts":[{"name":"p","vendor":1.50}]}"#,
    },
    Edit {
        place: Place::Relayed(Edge::Stateless),
        what: "`resultType` is added and stands first; in lists and resources, `ttlMs` and `cacheScope` are added where they are missing; `_meta` names Longhaul as the server, and no task of the server's",
        why: "B-7, B-8, B-51, K-3",
        by: "",
        sent: r#"{"prompts":[{"name":"p","vendor":1.50}],"cacheScope":"public"}"#,
        arrives: r#"{"resultType":"complete","prompts":[{"name":"p","vendor":1.50}],"cacheScope":"public","ttlMs":0,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"longhaul","version":"1"}}}"#,
    },
    Edit {
        place: Place::Error(SESSION),
        what: "what a server and Longhaul cannot agree on (-32020, -32021, -32022) becomes a fault of the server",
        why: "D-9",
        by: "",
        sent: r#"{"code":-32021,"message":"Forms needed","data":{"requiredCapabilities":{"elicitation":{}}}}"#,
        arrives: r#"{"code":-32603,"message":"The server does not take the request: Forms needed (code -32021)","data":{"reason":"upstream_refused","who":"operator"}}"#,
    },
    Edit {
        place: Place::Error(Edge::Stateless),
        what: "-32021, a capability is missing, passes where the client can declare what is missing, and names only that; where the client did declare it, or Longhaul does not pass it on, it becomes a fault of the server",
        why: "B-6, D-9",
        by: "",
        sent: r#"{"code":-32021,"message":"More needed","data":{"requiredCapabilities":{"elicitation":{},"roots":{}}}}"#,
        arrives: r#"{"code":-32021,"message":"More needed","data":{"requiredCapabilities":{"roots":{}}}}"#,
    },
    Edit {
        place: Place::Error(Edge::Stateless),
        what: "-32002, no such resource, becomes -32602; -32042, a link must be opened first, becomes -32603; the rest as above",
        why: "B-11",
        by: "",
        sent: r#"{"vendor":1.50,"code":-32002,"message":"No such resource","data":{"uri":"file:///a"}}"#,
        arrives: r#"{"vendor":1.50,"code":-32602,"message":"No such resource","data":{"uri":"file:///a"}}"#,
    },
    Edit {
        place: Place::Page,
        what: "the lists of all servers are one page: the items pass, and what stood about them goes",
        why: "D-8",
        by: "",
        sent: r#"{"nextCursor":"2","vendor":1,"prompts":[{"name":"p","vendor":1.50}]}"#,
        arrives: r#"{"prompts":[{"name":"p","vendor":1.50}]}"#,
    },
    Edit {
        place: Place::Definition(SESSION),
        what: "`name` gets the server's name before it, where two servers have a tool of one name or the operator says so",
        why: "B-60",
        by: "prefixed",
        sent: r#"{"vendor":1.50,"name":"log","inputSchema":{"type":"object","maxProperties":1e2}}"#,
        arrives: r#"{"vendor":1.50,"name":"git__log","inputSchema":{"type":"object","maxProperties":1e2}}"#,
    },
    Edit {
        place: Place::Definition(SESSION),
        what: "what no name of a tool may have becomes `_`, and what is longer than 128 characters is cut; a number follows where another tool of the server has that name",
        why: "B-60",
        by: "renamed",
        sent: r#"{"name":"get item","inputSchema":{"type":"object"}}"#,
        arrives: r#"{"name":"get_item","inputSchema":{"type":"object"}}"#,
    },
    Edit {
        place: Place::Definition(SESSION),
        what: "`execution.taskSupport` says what Longhaul does with a call, and goes where it never makes a task of one",
        why: "D-12",
        by: "as tasks",
        sent: r#"{"name":"log","inputSchema":{"type":"object"}}"#,
        arrives: r#"{"name":"log","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}"#,
    },
    Edit {
        place: Place::Definition(SESSION),
        what: "`outputSchema` goes where a call may end with the reply that the work goes on",
        why: "D-44",
        by: "held",
        sent: r#"{"name":"log","outputSchema":{"type":"object"},"inputSchema":{"type":"object"}}"#,
        arrives: r#"{"name":"log","inputSchema":{"type":"object"}}"#,
    },
    Edit {
        place: Place::Definition(SESSION),
        what: "`outputSchema` of something else than an object goes, and every one in versions before 2025-06-18",
        why: "A-88",
        by: "",
        sent: r#"{"name":"log","outputSchema":{"type":"array"},"inputSchema":{"type":"object"}}"#,
        arrives: r#"{"name":"log","inputSchema":{"type":"object"}}"#,
    },
    Edit {
        place: Place::Definition(Edge::Stateless),
        what: "`execution` goes; `name` as above, and `outputSchema` where a call may end with the reply that the work goes on",
        why: "B-54, D-44",
        by: "",
        sent: r#"{"name":"log","execution":{"taskSupport":"required"},"inputSchema":{"type":"object"},"icons":[]}"#,
        arrives: r#"{"name":"log","inputSchema":{"type":"object"},"icons":[]}"#,
    },
    Edit {
        place: Place::Notice(SESSION),
        what: "progress has the client's token, its numbers in their shortest spelling, its message made fit to be shown, and nothing else",
        why: "A-33, C-16",
        by: "notifications/progress",
        sent: r#"{"progressToken":7,"progress":3,"total":1.50,"message":"a\tb","vendor":1}"#,
        arrives: r#"{"progressToken":"theirs","progress":3,"total":1.5,"message":"a b"}"#,
    },
    Edit {
        place: Place::Notice(SESSION),
        what: "a log message has its level, logger and data, and nothing else",
        why: "A-11",
        by: "notifications/message",
        sent: r#"{"vendor":1,"data":{"n":1.50},"level":"info","logger":"l"}"#,
        arrives: r#"{"level":"info","logger":"l","data":{"n":1.50}}"#,
    },
    Edit {
        place: Place::Notice(SESSION),
        what: "that a resource changed has its URI and nothing else, and that a list changed nothing at all",
        why: "A-90",
        by: "notifications/resources/updated",
        sent: r#"{"uri":"file:///a","vendor":1}"#,
        arrives: r#"{"uri":"file:///a"}"#,
    },
    Edit {
        place: Place::Notice(Edge::Stateless),
        what: "as above; what belongs to a subscription names the client's own",
        why: "B-48",
        by: "notifications/resources/updated",
        sent: r#"{"uri":"file:///a","_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#,
        arrives: r#"{"uri":"file:///a","_meta":{"io.modelcontextprotocol/subscriptionId":41}}"#,
    },
];

#[test]
fn every_edit_is_made_as_the_page_says() {
    for edit in EDITS {
        let arrived = edit.place.pass(edit.by, edit.sent);
        assert_eq!(arrived, edit.arrives, "{:?}: {}", edit.place, edit.what);
    }
    for place in Place::ALL {
        assert!(EDITS.iter().any(|edit| edit.place == place), "{place:?}");
    }
}

/// What every reader but a careless one keeps: order, escapes, digits, nulls, names that nobody knows.
const VENDOR: &str =
    r#""z":1.50,"\u0061":[12345678901234567890123,-0,1e2,1E400],"k":{"b":null,"a":"\u00e9\/é"},"task_":true"#;

/// E-2.
#[test]
fn nothing_else_is_changed_on_the_way() {
    let mut checked = 0;
    for place in Place::ALL {
        let (by, sent) = match place {
            Place::Request(_) => (
                "prompts/get",
                format!(r#"{{{VENDOR},"name":"p","_meta":{{{VENDOR}}}}}"#),
            ),
            Place::Call => {
                let finite = VENDOR.replace(",1E400", "");
                (
                    "",
                    format!(r#"{{"name":"t","arguments":{{{finite}}},{VENDOR},"_meta":{{{VENDOR}}}}}"#),
                )
            }
            Place::Result(_) => (
                "",
                format!(
                    r#"{{{VENDOR},"content":[{{{VENDOR},"type":"new"}}],"structuredContent":{{{VENDOR}}},"isError":false,"_meta":{{{VENDOR}}}}}"#
                ),
            ),
            Place::Relayed(_) => (
                "",
                format!(r#"{{{VENDOR},"contents":[{{{VENDOR}}}],"nextCursor":"","_meta":{{{VENDOR}}}}}"#),
            ),
            Place::Error(_) => (
                "",
                format!(r#"{{{VENDOR},"code":-32602,"message":"\u0061","data":{{{VENDOR}}}}}"#),
            ),
            Place::Definition(_) => {
                let finite = VENDOR.replace(",1E400", "");
                (
                    "",
                    format!(
                        r#"{{{finite},"name":"\u0074","inputSchema":{{{finite},"type":"object"}},"outputSchema":{{"type":"object",{finite}}},"annotations":{{{finite}}},"_meta":{{{finite}}}}}"#
                    ),
                )
            }
            // Of these only what is known passes on.
            Place::Notice(_) => continue,
            Place::Page => (
                "",
                format!(
                    r#"{{"prompts":[{{{VENDOR},"name":"\u0070","arguments":[{{{VENDOR}}}],"_meta":{{{VENDOR}}}}}]}}"#
                ),
            ),
        };
        let arrived = place.pass(by, &sent);
        assert_eq!(without_additions(place, &arrived), sent, "{place:?}");
        checked += 1;
    }
    assert_eq!(checked, 12);
}

/// What arrived, without what every message of the newer generation has.
fn without_additions(place: Place, arrived: &str) -> String {
    let mut object = obj(arrived);
    let take = |object: &mut Obj, names: &[&str]| names.iter().for_each(|name| drop(object.take(name)));
    match place {
        Place::Request(Era::Stateless) => object.edit("_meta", |members| {
            let added = ["protocolVersion", "clientInfo", "clientCapabilities"];
            for name in added {
                drop(members.take(&format!("io.modelcontextprotocol/{name}")));
            }
        }),
        Place::Result(Edge::Stateless) | Place::Relayed(Edge::Stateless) => {
            take(&mut object, &["resultType", "ttlMs", "cacheScope"]);
            object.edit("_meta", |members| {
                drop(members.take("io.modelcontextprotocol/serverInfo"));
            });
        }
        Place::Request(Era::Session(_))
        | Place::Call
        | Place::Result(Edge::Session(_))
        | Place::Relayed(Edge::Session(_))
        | Place::Error(_)
        | Place::Page
        | Place::Definition(_)
        | Place::Notice(_) => {}
    }
    object.to_raw().text().to_owned()
}

/// A-29.
#[test]
fn a_line_end_between_tokens_arrives_as_a_space() {
    let text = "{\r\n\"a\":\n[1,\n2],\"b\":\"\\n\",\"content\":[]}";
    let arrived = Place::Result(SESSION).pass("", text);
    assert_eq!(arrived, r#"{"a":[1, 2],"b":"\n","content":[]}"#);
}
