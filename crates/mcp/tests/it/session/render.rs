//! Golden frames of lists, results, questions and notifications, and what older versions are not sent.

use longhaul_mcp::{
    Push, Reply, RequestId, RpcError, Tool,
    edge::Version,
    frame::Raw,
    reply::{Annotations, InputRequest, Progress, TaskSupport, ToolPage},
    request::{Filter, LogLevel, ProgressToken},
    v2025_11_25::{push, render, render_error},
};
use serde_json::{Value, json};

use super::{ID, LATEST, RELATED, error, initialize::everything, parsed, pushed, reply, result};
use crate::support::{Official, assert_is, check, raw};

fn tool() -> Tool {
    Tool {
        name: "index_repo".to_owned(),
        title: Some("Index".to_owned()),
        description: Some("Index a repository".to_owned()),
        input_schema: raw(&json!({ "type": "object", "properties": { "z": {}, "a": {} } })),
        output_schema: Some(raw(&json!({ "type": "object" }))),
        annotations: Annotations {
            read_only: Some(true),
            open_world: Some(false),
            ..Annotations::default()
        },
        task_support: TaskSupport::Required,
        relayed: None,
    }
}

fn page(tools: Vec<Tool>) -> Reply {
    Reply::Tools(ToolPage {
        tools,
        next_cursor: Some(String::new()),
        cache: everything().cache,
    })
}

/// A-40, D-12, A-88.
#[test]
fn a_listed_tool_says_whether_it_is_called_as_a_task() {
    let with = |task_support, output_schema: Option<Value>| Tool {
        task_support,
        output_schema: output_schema.as_ref().map(raw),
        ..tool()
    };
    let shown = result(
        "ListToolsResult",
        &page(vec![
            tool(),
            with(TaskSupport::Optional, None),
            with(TaskSupport::Forbidden, Some(json!({ "type": "array" }))),
            Tool {
                title: None,
                description: None,
                annotations: Annotations::default(),
                ..with(TaskSupport::Forbidden, None)
            },
        ]),
    );
    assert_eq!(
        shown["tools"][0],
        json!({
            "name": "index_repo", "title": "Index", "description": "Index a repository",
            "inputSchema": { "type": "object", "properties": { "z": {}, "a": {} } },
            "outputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
            "execution": { "taskSupport": "required" },
        })
    );
    assert_eq!(
        shown["tools"][1]["execution"],
        json!({ "taskSupport": "optional" })
    );
    for absent in ["execution", "outputSchema"] {
        assert_eq!(shown["tools"][2].get(absent), None, "{absent}");
    }
    assert_eq!(shown["tools"][3].as_object().map(|tool| tool.len()), Some(2));
    assert_eq!(shown["nextCursor"], "");
    for of_the_other in ["ttlMs", "cacheScope", "_meta"] {
        assert_eq!(shown.get(of_the_other), None, "{of_the_other}");
    }
}

/// A-8.
#[test]
fn an_older_session_lists_tools_without_what_came_later() {
    for (version, members) in [
        (Version::V2024_11_05, vec!["name", "description", "inputSchema"]),
        (
            Version::V2025_03_26,
            vec!["name", "description", "inputSchema", "annotations"],
        ),
        (
            Version::V2025_06_18,
            vec![
                "name",
                "title",
                "description",
                "inputSchema",
                "outputSchema",
                "annotations",
            ],
        ),
    ] {
        let shown = reply(&page(vec![tool()]), version);
        let tool = shown["result"]["tools"][0].as_object().expect("a tool");
        let mut found: Vec<&str> = tool.keys().map(String::as_str).collect();
        let mut members = members;
        found.sort_unstable();
        members.sort_unstable();
        assert_eq!(found, members, "{version:?}");
    }
}

fn called(body: &str, version: Version) -> Value {
    let body = Raw::parse(body).expect("JSON");
    reply(&Reply::Result(body), version)["result"].clone()
}

#[test]
fn a_result_is_relayed_as_it_is() {
    let body = r#"{"content":[{"type":"text","text":"\u00e9"}],"isError":true,"structuredContent":{"n":1.50},"_meta":{"x/y":1}}"#;
    let shown = render(
        &Reply::Result(Raw::parse(body).expect("JSON")),
        &RequestId::Text("a".to_owned()),
        LATEST,
    );
    let expect = format!(r#"{{"jsonrpc":"2.0","id":"a","result":{body}}}"#);
    assert_eq!(String::from_utf8(shown).expect("UTF-8"), expect);
    assert_is(Official::Sessions, "CallToolResult", &called(body, LATEST));
}

/// D-8.
#[test]
fn a_result_of_the_other_generation_takes_the_shape_of_this_one() {
    let related = r#"{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"forged"}}}"#;
    assert_eq!(called(related, LATEST), json!({ "content": [], "_meta": {} }));
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let old = Version::V2025_03_26;
    for (body, version, expect) in [
        ("{}", LATEST, json!({ "content": [] })),
        (r#"{"content":"x"}"#, LATEST, json!({ "content": [] })),
        (
            r#"{"structuredContent":{"n":1}}"#,
            LATEST,
            json!({ "structuredContent": { "n": 1 }, "content": text(r#"{"n":1}"#) }),
        ),
        (
            r#"{"content":[],"structuredContent":{"n":1}}"#,
            LATEST,
            json!({ "content": [], "structuredContent": { "n": 1 } }),
        ),
        (
            r#"{"content":[],"structuredContent":[1.50]}"#,
            LATEST,
            json!({ "content": text("[1.50]") }),
        ),
        (
            r#"{"structuredContent":5}"#,
            LATEST,
            json!({ "content": text("5") }),
        ),
        (
            r#"{"content":[{"type":"text","text":"five"}],"structuredContent":5}"#,
            LATEST,
            json!({ "content": text("five") }),
        ),
        (
            r#"{"content":[],"structuredContent":{"n":1}}"#,
            old,
            json!({ "content": text(r#"{"n":1}"#) }),
        ),
        (
            r#"{"content":[{"type":"text","text":"one"}],"structuredContent":{"n":1}}"#,
            old,
            json!({ "content": text("one") }),
        ),
    ] {
        let shown = called(body, version);
        assert_is(Official::Sessions, "CallToolResult", &shown);
        assert_eq!(shown, expect, "{body}");
    }
}

/// A-10.
#[test]
fn an_acknowledgement_is_empty() {
    assert_eq!(result("EmptyResult", &Reply::Ack), json!({}));
}

#[test]
fn what_sessions_do_not_have_is_a_fault_of_ours() {
    let asking = Reply::InputRequired {
        requests: vec![InputRequest {
            key: "q1".to_owned(),
            ask: raw(&json!({ "method": "roots/list" })),
        }],
        state: None,
    };
    for odd in [asking, Reply::Discover(everything()), Reply::ListenEnded] {
        let shown = error(&odd);
        assert_eq!(
            (&shown["code"], &shown["data"]["reason"]),
            (&json!(-32603), &json!("out_of_place"))
        );
    }
    assert_eq!(push(&Push::Acknowledged(Filter::default()), LATEST), b"");
}

/// A-33, A-34, A-62.
#[test]
fn progress_keeps_its_token_and_names_its_task() {
    let progress = |task: Option<&str>| Push::Progress {
        token: ProgressToken(RequestId::Text("p-9".to_owned())),
        progress: Progress {
            progress: 41.5,
            total: Some(100.0),
            message: Some("type-checking".to_owned()),
        },
        task: task.map(str::to_owned),
    };
    let shown = pushed("ProgressNotification", &progress(Some(ID)), LATEST);
    let said = json!({ "progressToken": "p-9", "progress": 41.5, "total": 100, "message": "type-checking" });
    let mut expect = said.clone();
    expect["_meta"] = json!({ RELATED: { "taskId": ID } });
    assert_eq!(shown["params"], expect);
    let plain = pushed("ProgressNotification", &progress(None), LATEST);
    assert_eq!(plain["params"], said);
    let old = pushed("ProgressNotification", &progress(None), Version::V2024_11_05);
    assert_eq!(
        old["params"],
        json!({ "progressToken": "p-9", "progress": 41.5, "total": 100 })
    );
}

fn asked(ask: &Value, task: Option<&str>) -> Push {
    Push::Question {
        id: RequestId::Text("tiq-k7f2m9-q1-1".to_owned()),
        ask: raw(ask),
        task: task.map(str::to_owned),
    }
}

/// A-60, A-62, A-71.
#[test]
fn a_question_is_a_request_of_ours_that_names_its_task() {
    let schema = json!({ "type": "object", "properties": { "branch": { "type": "string" } } });
    let params = json!({ "mode": "form", "message": "Which branch?", "requestedSchema": schema });
    let ask = json!({ "method": "elicitation/create", "params": params });
    let shown = pushed("ElicitRequest", &asked(&ask, Some(ID)), LATEST);
    let mut expect = params.clone();
    expect["_meta"] = json!({ RELATED: { "taskId": ID } });
    assert_eq!(
        shown,
        json!({ "jsonrpc": "2.0", "id": "tiq-k7f2m9-q1-1", "method": "elicitation/create", "params": expect })
    );
    // A plain call's question belongs to no task that its client knows.
    let plain = pushed("ElicitRequest", &asked(&ask, None), LATEST);
    assert_eq!(plain["params"], params);
    let old = pushed("ElicitRequest", &asked(&ask, None), Version::V2025_06_18);
    assert_eq!(
        old["params"],
        json!({ "message": "Which branch?", "requestedSchema": schema })
    );

    let ask = json!({ "method": "sampling/createMessage", "params": { "messages": [
        { "role": "user", "content": { "type": "text", "text": "Name this module" } }], "maxTokens": 60 } });
    pushed("CreateMessageRequest", &asked(&ask, Some(ID)), LATEST);
    let shown = pushed(
        "ListRootsRequest",
        &asked(&json!({ "method": "roots/list" }), Some(ID)),
        LATEST,
    );
    assert_eq!(shown["params"], json!({ "_meta": { RELATED: { "taskId": ID } } }));
}

/// A-75.
#[test]
fn a_link_to_open_has_an_id_of_its_own() {
    let ask = |params: Value| json!({ "method": "elicitation/create", "params": params });
    let params =
        json!({ "mode": "url", "message": "Connect", "url": "https://gate.example.org/connect/3f9d" });
    let shown = pushed("ElicitRequest", &asked(&ask(params.clone()), Some(ID)), LATEST);
    assert_is(Official::Sessions, "ElicitRequestURLParams", &shown["params"]);
    assert_eq!(shown["params"]["elicitationId"], "el-tiq-k7f2m9-q1-1");
    assert!(check(Official::Sessions, "ElicitRequestURLParams", &params).is_err());
    let mut own = params;
    own["elicitationId"] = json!("el_3f9d");
    let shown = pushed("ElicitRequest", &asked(&ask(own), None), LATEST);
    assert_eq!(shown["params"]["elicitationId"], "el_3f9d");
}

/// D-22.
#[test]
fn a_question_that_needs_no_answer_any_more_is_withdrawn() {
    let withdrawn = Push::Withdrawn {
        id: RequestId::Integer(3),
    };
    let shown = pushed("CancelledNotification", &withdrawn, LATEST);
    assert_eq!(shown["params"]["requestId"], 3);
    assert!(shown["params"]["reason"].is_string());
}

/// A-90, A-11.
#[test]
fn changes_and_log_messages_are_told() {
    let shown = pushed("ToolListChangedNotification", &Push::ToolsChanged, LATEST);
    assert_eq!(shown["params"], json!({}));
    let log = Push::Log {
        level: LogLevel::Error,
        logger: Some("worker".to_owned()),
        data: raw(&json!({ "what": "disk full" })),
    };
    let shown = pushed("LoggingMessageNotification", &log, LATEST);
    let expect = json!({ "level": "error", "logger": "worker", "data": { "what": "disk full" } });
    assert_eq!(shown["params"], expect);
}

/// A-1, A-64.
#[test]
fn an_error_answers_the_id_that_was_asked_with() {
    let error = RpcError::task_not_found();
    for (id, expect) in [
        (Some(RequestId::Text("26".to_owned())), json!("26")),
        (Some(RequestId::Integer(26)), json!(26)),
    ] {
        let shown = parsed(&render_error(&error, id.as_ref()));
        assert_is(Official::Sessions, "JSONRPCErrorResponse", &shown);
        assert_eq!((&shown["id"], &shown["error"]["code"]), (&expect, &json!(-32602)));
        assert_eq!(shown["error"].get("data"), None);
    }
    assert_eq!(parsed(&render_error(&error, None)).get("id"), None);
}
