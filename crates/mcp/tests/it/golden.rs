//! Golden frames: every shape that is sent, held against the official schemas.

use longhaul_core::{Body, Outcome, Phase, QuestionKey, Reason, task::CancelledBy};
use longhaul_mcp::{
    Push, Reply, RequestId, RpcError, TaskView, Tool,
    frame::Raw,
    reply::{
        Annotations, Cache, CacheScope, Discovery, InputRequest, OpenQuestion, Progress, Relays, TaskSupport,
        ToolPage,
    },
    request::{Filter, LogLevel, ProgressToken},
    rpc_error::{Refusal, RefusalCode, Who},
    v2026_07_28::{push, render, render_error, status},
};
use serde_json::{Value, json};

use crate::support::{EVERYTHING, Official, assert_is, raw, task};

const PRIVATE: Cache = Cache {
    ttl_ms: 60_000,
    scope: CacheScope::Private,
};

fn server_info() -> Value {
    json!({ "name": "longhaul", "version": env!("CARGO_PKG_VERSION") })
}

fn reply(reply: &Reply) -> Value {
    let frame = render(reply, &RequestId::Integer(7));
    assert!(!frame.contains(&b'\n'), "one line");
    let frame: Value = serde_json::from_slice(&frame).expect("JSON");
    assert_eq!((&frame["jsonrpc"], &frame["id"]), (&json!("2.0"), &json!(7)));
    frame
}

/// The result, which must be what the official schema calls `definition`.
#[track_caller]
fn result(official: Official, definition: &str, shown: &Reply) -> Value {
    let frame = reply(shown);
    assert_is(Official::Core, "JSONRPCResultResponse", &frame);
    assert_is(official, definition, &frame["result"]);
    let info = &frame["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info, &server_info(), "B-7");
    assert_eq!(status(shown), 200);
    frame["result"].clone()
}

fn get(view: TaskView) -> Value {
    result(Official::Tasks, "GetTaskResult", &Reply::Task(view))
}

fn notification(pushed: &Push) -> Value {
    let frame = push(pushed, &RequestId::Integer(41));
    let frame: Value = serde_json::from_slice(&frame).expect("JSON");
    assert_is(Official::Core, "JSONRPCNotification", &frame);
    frame
}

fn returned(body: &str, is_error: bool) -> Phase {
    Phase::Finished(Outcome::Returned {
        body: Body::new(body.as_bytes()),
        is_error,
    })
}

#[test]
fn discovery_names_versions_and_capabilities() {
    let discovery = Discovery {
        tasks: true,
        tasks_list: true,
        tools_change: true,
        logging: true,
        relays: EVERYTHING,
        instructions: Some("Hi.".to_owned()),
        title: None,
        cache: PRIVATE,
    };
    let shown = result(
        Official::Core,
        "DiscoverResult",
        &Reply::Discover(discovery.clone()),
    );
    assert_eq!(
        shown,
        json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {
                "tools": { "listChanged": true },
                "prompts": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true },
                "completions": {},
                "logging": {},
                "extensions": { "io.modelcontextprotocol/tasks": {} },
            },
            "instructions": "Hi.",
            "ttlMs": 60_000,
            "cacheScope": "private",
            "_meta": { "io.modelcontextprotocol/serverInfo": server_info() },
        })
    );
    let plain = Discovery {
        tasks: false,
        tasks_list: false,
        tools_change: false,
        logging: false,
        relays: Relays::default(),
        instructions: None,
        ..discovery
    };
    let shown = result(Official::Core, "DiscoverResult", &Reply::Discover(plain));
    assert_eq!(shown["capabilities"], json!({ "tools": {} }));
}

#[test]
fn a_listed_tool_says_nothing_of_tasks() {
    let tool = Tool {
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
    };
    let bare = Tool {
        name: "b".to_owned(),
        title: None,
        description: None,
        output_schema: None,
        annotations: Annotations::default(),
        ..tool.clone()
    };
    let page = ToolPage {
        tools: vec![tool, bare],
        next_cursor: Some(String::new()),
        cache: PRIVATE,
    };
    let shown = result(Official::Core, "ListToolsResult", &Reply::Tools(page));
    assert_eq!(
        shown["tools"][0],
        json!({
            "name": "index_repo", "title": "Index", "description": "Index a repository",
            "inputSchema": { "type": "object", "properties": { "z": {}, "a": {} } },
            "outputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        })
    );
    assert_eq!(shown["tools"][1].as_object().map(|tool| tool.len()), Some(2));
    assert_eq!(
        (&shown["nextCursor"], &shown["cacheScope"]),
        (&json!(""), &json!("private"))
    );
}

#[test]
fn a_result_is_relayed_as_it_is() {
    let body = r#"{"content":[{"type":"text","text":"\u00e9"}],"isError":false,"structuredContent":{"n":1.50},"_meta":{"x/y":1,"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#;
    let body = longhaul_mcp::frame::Raw::parse(body).expect("JSON");
    let frame = String::from_utf8(render(
        &Reply::Result(body.clone()),
        &RequestId::Text("a".to_owned()),
    ));
    let frame = frame.expect("UTF-8");
    assert!(
        frame.contains(r#""text":"\u00e9""#) && frame.contains(r#"{"n":1.50}"#),
        "{frame}"
    );
    let shown = result(Official::Core, "CallToolResult", &Reply::Result(body));
    assert_eq!(shown["resultType"], "complete");
    assert_eq!(shown["_meta"]["x/y"], 1);
    assert!(
        shown["_meta"]
            .get("io.modelcontextprotocol/related-task")
            .is_none(),
        "K-3"
    );
}

#[test]
fn questions_before_a_task_carry_a_state() {
    let ask = raw(
        &json!({ "method": "elicitation/create", "params": { "mode": "form", "message": "Go?",
        "requestedSchema": { "type": "object", "properties": { "ok": { "type": "boolean" } } } } }),
    );
    let requests = vec![InputRequest {
        key: "go".to_owned(),
        ask,
    }];
    let asked = Reply::InputRequired {
        requests,
        state: Some("v1.x".to_owned()),
    };
    let shown = result(Official::Core, "InputRequiredResult", &asked);
    assert_eq!(
        (&shown["resultType"], &shown["requestState"]),
        (&json!("input_required"), &json!("v1.x"))
    );
    assert_eq!(shown["inputRequests"]["go"]["method"], "elicitation/create");
    assert!(shown.get("ttlMs").is_none(), "B-51");
    let state = Reply::InputRequired {
        requests: Vec::new(),
        state: Some("v1.x".to_owned()),
    };
    let shown = result(Official::Core, "InputRequiredResult", &state);
    assert!(shown.get("inputRequests").is_none(), "{shown}");
}

/// C-8, K-1, K-2.
#[test]
fn a_created_task_is_flat_and_bare() {
    let mut view = task(Phase::Asking);
    view.questions = vec![question(1, "Which?")];
    view.status_message = Some("queued".to_owned());
    let shown = result(Official::Tasks, "CreateTaskResult", &Reply::TaskCreated(view));
    assert_eq!(
        shown,
        json!({
            "resultType": "task",
            "taskId": "lh1.k1.Zq81vS0cYl3nR7",
            "status": "input_required",
            "statusMessage": "queued",
            "createdAt": "2026-11-29T09:00:00.000Z",
            "lastUpdatedAt": "2026-11-29T09:00:12.345Z",
            "ttlMs": 1_800_000,
            "pollIntervalMs": 4_000,
            "_meta": { "dev.longhaul/taskName": "k7f2m9", "io.modelcontextprotocol/serverInfo": server_info() },
        })
    );
    let ended = task(Phase::Finished(Outcome::Returned {
        body: Body::Stored,
        is_error: false,
    }));
    let shown = result(Official::Tasks, "CreateTaskResult", &Reply::TaskCreated(ended));
    assert_eq!(shown["status"], "completed");
    for never in [
        "task",
        "result",
        "error",
        "inputRequests",
        "requestState",
        "ttl",
        "pollInterval",
    ] {
        assert!(shown.get(never).is_none(), "{never}");
    }
}

fn question(key: u32, message: &str) -> OpenQuestion {
    let ask = json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message,
        "requestedSchema": { "type": "object", "properties": {} } } });
    OpenQuestion {
        key: QuestionKey(key),
        ask: raw(&ask),
    }
}

#[test]
fn a_working_task_shows_its_progress() {
    let mut view = task(Phase::Working);
    view.status_message = Some("214/900\u{1b}[2J files".to_owned());
    view.progress = Some(Progress {
        progress: 214.0,
        total: Some(900.0),
        message: Some("lexing".to_owned()),
    });
    view.metadata = Some(raw(&json!({ "ticket": 12 })));
    view.ttl_ms = None;
    let shown = get(view);
    assert_eq!(
        (&shown["resultType"], &shown["status"]),
        (&json!("complete"), &json!("working"))
    );
    assert_eq!(
        (&shown["statusMessage"], &shown["ttlMs"]),
        (&json!("214/900[2J files"), &Value::Null)
    );
    assert_eq!(shown["_meta"]["dev.longhaul/metadata"], json!({ "ticket": 12 }));
    let progress = json!({ "progress": 214, "total": 900, "message": "lexing" });
    assert_eq!(shown["_meta"]["dev.longhaul/progress"], progress);
}

/// C-20.
#[test]
fn an_asking_task_shows_every_open_question() {
    let mut view = task(Phase::Asking);
    view.questions = vec![question(2, "Which branch?"), question(10, "Which region?")];
    let shown = get(view);
    assert_eq!(shown["status"], "input_required");
    let keys: Vec<&String> = shown["inputRequests"]
        .as_object()
        .expect("a map")
        .keys()
        .collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(
        shown["inputRequests"]["q10"]["params"]["message"],
        "Which region?"
    );
    assert!(shown.get("requestState").is_none(), "K-4");
}

/// C-15, Q-3, K-3.
#[test]
fn a_result_completes_a_task_even_when_it_is_an_error() {
    for is_error in [false, true] {
        let body = json!({ "content": [{ "type": "text", "text": "crashed" }], "isError": is_error,
            "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "t" } } });
        let shown = get(task(returned(&body.to_string(), is_error)));
        assert_eq!(shown["status"], "completed");
        assert_eq!(shown["result"]["isError"], is_error);
        assert_eq!(shown["result"]["resultType"], "complete");
        assert_eq!(shown["result"]["_meta"], json!({}));
        assert!(shown.get("error").is_none());
        assert_is(Official::Core, "CallToolResult", &shown["result"]);
    }
}

#[test]
fn a_stored_result_is_the_same_bytes_at_every_read() {
    let view = task(returned(
        r#"{"content":[],"structuredContent":{"z":1.0,"a":1e2}}"#,
        false,
    ));
    let read = || render(&Reply::Task(view.clone()), &RequestId::Integer(1));
    assert_eq!(read(), read());
    let text = String::from_utf8(read()).expect("UTF-8");
    assert!(
        text.contains(r#""structuredContent":{"z":1.0,"a":1e2}"#),
        "{text}"
    );
}

#[test]
fn a_tools_own_error_fails_the_task_verbatim() {
    let error = json!({ "code": -32000, "message": "worker\u{1b} lost", "data": { "n": 1 } });
    let shown = get(task(Phase::Finished(Outcome::Errored {
        body: Body::new(error.to_string().as_bytes()),
    })));
    assert_eq!((&shown["status"], &shown["error"]), (&json!("failed"), &error));
    assert_eq!(shown["statusMessage"], "worker lost");
    assert!(shown.get("result").is_none(), "K-4");
}

#[test]
fn a_cancelled_task_says_who_ended_it() {
    for (by, text) in [
        (CancelledBy::Owner, "The task was cancelled by request."),
        (
            CancelledBy::Operator,
            "Cancelled by the gateway: an administrator cancelled this task.",
        ),
        (
            CancelledBy::Session,
            "Cancelled by the gateway: its session was ended.",
        ),
        (
            CancelledBy::Loop,
            "Cancelled by the gateway: a loop was detected.",
        ),
        (
            CancelledBy::Approval,
            "Cancelled by the gateway: its approval ended.",
        ),
        (CancelledBy::Server, "Cancelled by the server behind Longhaul."),
    ] {
        let mut view = task(Phase::Finished(Outcome::Cancelled { by }));
        view.status_message = Some("61 %".to_owned());
        let shown = get(view);
        assert_eq!(
            (&shown["status"], &shown["statusMessage"]),
            (&json!("cancelled"), &json!(text))
        );
        assert!(shown.get("result").is_none() && shown.get("error").is_none());
    }
}

#[test]
fn a_task_that_longhaul_failed_says_why() {
    for (reason, word, text) in [
        (
            Reason::Interrupted,
            "interrupted",
            "Interrupted: the process that ran it ended; it was not run again.",
        ),
        (
            Reason::Expired,
            "expired",
            "Expired: the task was still open when its time to live was over.",
        ),
        (
            Reason::NoAnswer,
            "no_answer",
            "Failed: a question was not answered in time.",
        ),
        (
            Reason::NobodyToAnswer,
            "no_one_to_answer",
            "Failed: a question was asked that nobody can answer.",
        ),
        (
            Reason::Shutdown,
            "shutdown",
            "Failed: the server shut down and could not wait any longer.",
        ),
        (
            Reason::UpstreamLost,
            "upstream_tasks_lost",
            "Failed: the server behind Longhaul no longer knows the task.",
        ),
    ] {
        let shown = get(task(Phase::Finished(Outcome::Failed(reason))));
        assert_eq!(
            (&shown["status"], &shown["statusMessage"]),
            (&json!("failed"), &json!(text))
        );
        assert_eq!(
            shown["error"],
            json!({ "code": -32603, "message": text, "data": { "reason": word } })
        );
    }
}

#[test]
fn an_outcome_that_cannot_be_read_is_our_fault_and_says_so() {
    for phase in [
        Phase::Finished(Outcome::Returned {
            body: Body::Stored,
            is_error: false,
        }),
        returned("[]", false),
        returned("{", false),
        Phase::Finished(Outcome::Errored {
            body: Body::new(br#"{"message":"no code"}"#),
        }),
    ] {
        let shown = reply(&Reply::Task(task(phase)));
        assert_is(Official::Core, "JSONRPCErrorResponse", &shown);
        assert_eq!(shown["error"]["code"], -32603);
        assert_eq!(shown["error"]["data"]["reason"], "outcome_unreadable");
    }
}

/// K-6, C-24.
#[test]
fn an_acknowledgement_says_nothing_else() {
    for definition in ["UpdateTaskResult", "CancelTaskResult"] {
        let shown = result(Official::Tasks, definition, &Reply::Ack);
        let expect = json!({ "resultType": "complete",
            "_meta": { "io.modelcontextprotocol/serverInfo": server_info() } });
        assert_eq!(shown, expect);
    }
}

#[test]
fn a_subscription_is_acknowledged_tagged_and_ended() {
    let tag = json!({ "io.modelcontextprotocol/subscriptionId": 41 });
    let filter = Filter {
        tools_list_changed: true,
        tasks: Some(Vec::new()),
        ..Filter::default()
    };
    let shown = notification(&Push::Acknowledged(filter));
    assert_is(Official::Core, "SubscriptionsAcknowledgedNotification", &shown);
    assert_is(
        Official::Tasks,
        "TaskSubscriptionAcknowledgedNotifications",
        &shown["params"]["notifications"],
    );
    assert_eq!(
        shown["params"],
        json!({ "notifications": { "toolsListChanged": true, "taskIds": [] }, "_meta": tag })
    );
    let none = notification(&Push::Acknowledged(Filter::default()));
    assert_eq!(none["params"]["notifications"], json!({}));

    let shown = notification(&Push::ToolsChanged);
    assert_is(Official::Core, "ToolListChangedNotification", &shown);
    assert_eq!(shown["params"]["_meta"], tag);

    let text = push(&Push::ToolsChanged, &RequestId::Text("41".to_owned()));
    let text: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(
        text["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "41",
        "B-48: same type"
    );

    let shown = result(Official::Core, "SubscriptionsListenResult", &Reply::ListenEnded);
    assert_eq!(shown["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
}

/// C-33, C-34.
#[test]
fn a_pushed_task_is_what_a_get_would_show() {
    let mut asking = task(Phase::Asking);
    asking.questions = vec![question(1, "Which?")];
    let error = Body::new(br#"{"code":1,"message":"m"}"#);
    for view in [
        task(Phase::Working),
        asking,
        task(returned(r#"{"content":[]}"#, true)),
        task(Phase::Finished(Outcome::Errored { body: error })),
        task(Phase::Finished(Outcome::Cancelled {
            by: CancelledBy::Owner,
        })),
        task(Phase::Finished(Outcome::Failed(Reason::Expired))),
    ] {
        let pushed = notification(&Push::Task(view.clone()));
        assert_is(Official::Tasks, "TaskStatusNotification", &pushed);
        let mut params = pushed["params"].clone();
        assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], 41);
        let mut got = get(view);
        assert_eq!(
            got.as_object_mut().and_then(|got| got.remove("resultType")),
            Some(json!("complete"))
        );
        for shown in [&mut params, &mut got] {
            let meta = shown["_meta"].as_object_mut().expect("_meta");
            meta.retain(|key, _| key.starts_with("dev.longhaul/"));
        }
        assert_eq!(params, got);
    }
}

#[test]
fn progress_and_log_messages_belong_to_their_own_call() {
    let progress = Progress {
        progress: 2.0,
        total: None,
        message: Some("page 2".to_owned()),
    };
    let token = ProgressToken(RequestId::Integer(30));
    let shown = notification(&Push::Progress {
        token,
        progress,
        task: None,
    });
    assert_is(Official::Core, "ProgressNotification", &shown);
    assert_eq!(
        shown["params"],
        json!({ "progressToken": 30, "progress": 2, "message": "page 2" })
    );
    let data = raw(&json!("cache cold"));
    let shown = notification(&Push::Log {
        level: LogLevel::Info,
        logger: Some("worker".to_owned()),
        data,
    });
    assert_is(Official::Core, "LoggingMessageNotification", &shown);
    assert_eq!(
        shown["params"],
        json!({ "level": "info", "logger": "worker", "data": "cache cold" })
    );
}

#[test]
fn the_texts_about_ids_are_fixed() {
    for (error, text) in [
        (
            RpcError::task_not_found(),
            "Failed to retrieve task: Task not found",
        ),
        (RpcError::task_expired(), "Task has expired"),
        (RpcError::task_cancelled(), "Task has been cancelled"),
    ] {
        let shown = reply(&Reply::Error(error.clone()));
        assert_eq!(shown["error"], json!({ "code": -32602, "message": text }));
        assert_eq!(status(&Reply::Error(error)), 200);
    }
}

#[test]
fn refusals_say_why_who_and_when() {
    for (code, number, http) in [
        (RefusalCode::NotAllowed, 7401, 200),
        (RefusalCode::OverLimit, 7402, 429),
        (RefusalCode::Approval, 7403, 200),
        (RefusalCode::Stopped, 7404, 200),
        (RefusalCode::Loop, 7405, 429),
        (RefusalCode::Screened, 7406, 200),
        (RefusalCode::StoreUnavailable, 7407, 503),
        (RefusalCode::Draining, 7408, 503),
    ] {
        let refusal = Refusal {
            reason: "a_reason".into(),
            who: Who::Operator,
            retry_after_ms: Some(1_500),
        };
        let error = RpcError::refused(code, "No", refusal);
        let data = json!({ "reason": "a_reason", "who": "operator", "retry_after_ms": 1_500 });
        let shown = reply(&Reply::Error(error.clone()));
        assert_eq!(
            shown["error"],
            json!({ "code": number, "message": "No", "data": data })
        );
        assert_eq!(status(&Reply::Error(error)), http, "{number}");
    }
    assert_eq!(
        RefusalCode::ALL.map(RefusalCode::number),
        [7401, 7402, 7403, 7404, 7405, 7406, 7407, 7408]
    );
}

#[test]
fn spec_codes_have_their_http_status() {
    for (error, http) in [
        (RpcError::invalid_request("x"), 400),
        (RpcError::method_not_found("x"), 404),
        (RpcError::needs_tasks("x"), 400),
        (RpcError::invalid_params("x"), 200),
        (RpcError::unknown_tool("x"), 200),
        (RpcError::internal("x", "x"), 200),
        (RpcError::internal("upstream_unasked_task", "x"), 502),
        (RpcError::relayed(-32001, "x".to_owned(), None), 200),
        (RpcError::store_unavailable(1), 503),
        (RpcError::draining(1), 503),
    ] {
        assert_eq!(status(&Reply::Error(error.clone())), http, "{error:?}");
    }
}

#[test]
fn a_missing_capability_is_named_as_an_object() {
    let shown = reply(&Reply::Error(RpcError::needs_tasks(
        "Tool migrate_db runs as a task",
    )));
    assert_is(Official::Core, "MissingRequiredClientCapabilityError", &shown);
    let required = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!(
        shown["error"]["data"],
        json!({ "requiredCapabilities": required })
    );
}

#[test]
fn an_error_without_a_readable_id_has_none() {
    let shown = render_error(&RpcError::plain(-32700, "x"), None);
    assert_eq!(
        shown,
        br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#
    );
}

// A-29a
#[test]
fn a_frame_is_one_line_however_what_it_relays_was_written() {
    let result = Raw::parse("{\"content\":\n[{\"type\":\r\n\"text\",\"text\":\"a\\nb\"}]}").expect("JSON");
    let frame = render(&Reply::Result(result), &RequestId::Integer(7));
    assert!(
        !frame.iter().any(|byte| matches!(byte, b'\n' | b'\r')),
        "one line"
    );
    let frame: Value = serde_json::from_slice(&frame).expect("JSON");
    assert_eq!(frame["result"]["content"][0]["text"], "a\nb");
}
