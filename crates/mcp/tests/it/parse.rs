//! What well-formed frames say.

use longhaul_core::QuestionKey;
use longhaul_mcp::{
    Message, Notice, Request, RequestId,
    frame::Raw,
    request::{Answers, Filter, LogLevel, ProgressToken, Response, Takes},
};
use serde_json::{Value, json};

use crate::support::{Official, Post, VERSION, assert_is, frame, meta, raw};

#[test]
fn the_frames_of_these_tests_are_official_requests() {
    for (definition, method, params) in [
        ("DiscoverRequest", "server/discover", json!({ "_meta": meta() })),
        (
            "ListToolsRequest",
            "tools/list",
            json!({ "cursor": "", "_meta": meta() }),
        ),
        (
            "CallToolRequest",
            "tools/call",
            json!({ "name": "t", "arguments": {}, "_meta": meta() }),
        ),
        (
            "SubscriptionsListenRequest",
            "subscriptions/listen",
            json!({ "notifications": {}, "_meta": meta() }),
        ),
    ] {
        assert_is(Official::Core, definition, &frame(method, params.clone()));
        Post::new(method, params).request();
    }
    for (definition, method) in [
        ("GetTaskRequest", "tasks/get"),
        ("UpdateTaskRequest", "tasks/update"),
        ("CancelTaskRequest", "tasks/cancel"),
    ] {
        let params = json!({ "taskId": "x", "inputResponses": {}, "_meta": meta() });
        assert_is(Official::Tasks, definition, &frame(method, params.clone()));
        Post::new(method, params).request();
    }
}

#[test]
fn a_call_carries_its_arguments_as_they_were_written() {
    let arguments = r#"{"z":1.50,"a":"\u00e9","n":12345678901234567890123}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"c-1","method":"tools/call","params":{{"name":"t","arguments":{arguments},"_meta":{}}}}}"#,
        meta()
    );
    let incoming = Post::raw(&body).incoming();
    assert_eq!(incoming.id, RequestId::Text("c-1".to_owned()));
    let Request::CallTool(call) = incoming.request else {
        panic!("a call")
    };
    assert_eq!(call.arguments.as_ref().map(Raw::text), Some(arguments));
}

#[test]
fn a_call_without_arguments_is_not_one_with_empty_ones() {
    let arguments = |params: Value| {
        let Request::CallTool(call) = Post::new("tools/call", params).request() else {
            panic!("a call")
        };
        call.arguments
    };
    assert_eq!(arguments(json!({ "name": "t", "_meta": meta() })), None);
    assert_eq!(
        arguments(json!({ "name": "t", "arguments": {}, "_meta": meta() })),
        Some(raw(&json!({})))
    );
}

#[test]
fn a_call_says_all_it_can_say() {
    let mut meta = meta();
    for (key, value) in [
        ("progressToken", json!("p-9")),
        (
            "traceparent",
            json!("00-1f2e3d4c5b6a79880917263544352617-a1b2c3d4e5f60718-01"),
        ),
        ("io.modelcontextprotocol/logLevel", json!("warning")),
        (
            "io.modelcontextprotocol/clientInfo",
            json!({ "name": "desk-agent", "version": "5.0.1" }),
        ),
        ("io.modelcontextprotocol/relatedTaskIds", json!(["a", "b"])),
        ("dev.longhaul/session", json!("s-1")),
        ("dev.longhaul/idempotencyKey", json!("k-1")),
        ("dev.longhaul/metadata", json!({ "ticket": 12 })),
    ] {
        meta[key] = value;
    }
    let params = json!({
        "name": "publish",
        "arguments": {},
        "inputResponses": { "go": { "action": "accept" }, "q2": { "roots": [] } },
        "requestState": "v1.x",
        "task": { "ttl": 5 },
        "unknown": true,
        "_meta": meta,
    });
    let incoming = Post::new("tools/call", params).incoming();
    let client = incoming.client;
    assert_eq!(client.takes, Takes::WhenSlow);
    assert_eq!(
        client.answers,
        Answers {
            form: true,
            url: true,
            sampling: false,
            roots: false
        }
    );
    assert_eq!(
        (client.session.as_deref(), client.name.as_deref()),
        (Some("s-1"), Some("desk-agent"))
    );
    assert_eq!(client.version.as_deref(), Some("5.0.1"));
    assert!(client.traceparent.is_some());
    let Request::CallTool(call) = incoming.request else {
        panic!("a call")
    };
    assert_eq!(call.name, "publish");
    assert_eq!(
        call.responses,
        [
            Response {
                key: "go".to_owned(),
                body: raw(&json!({ "action": "accept" }))
            },
            Response {
                key: "q2".to_owned(),
                body: raw(&json!({ "roots": [] }))
            },
        ]
    );
    assert_eq!(call.request_state.as_deref(), Some("v1.x"));
    assert_eq!(
        call.progress_token,
        Some(ProgressToken(RequestId::Text("p-9".to_owned())))
    );
    assert_eq!(call.log_level, Some(LogLevel::Warning));
    assert_eq!(call.idempotency_key.as_deref(), Some("k-1"));
    assert_eq!(call.metadata, Some(raw(&json!({ "ticket": 12 }))));
    assert_eq!(call.related_tasks, ["a", "b"]);
}

/// A-70.
#[test]
fn an_elicitation_capability_without_modes_means_forms() {
    let answers = |capabilities: Value| {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": capabilities });
        Post::new("tools/list", json!({ "_meta": meta }))
            .incoming()
            .client
            .answers
    };
    let none = Answers::default();
    assert_eq!(answers(json!({})), none);
    assert_eq!(
        answers(json!({ "elicitation": {} })),
        Answers { form: true, ..none }
    );
    assert_eq!(
        answers(json!({ "elicitation": { "url": {} } })),
        Answers { url: true, ..none }
    );
    assert_eq!(answers(json!({ "elicitation": true })), none);
    let old = json!({ "sampling": {}, "roots": {} });
    assert_eq!(
        answers(old),
        Answers {
            sampling: true,
            roots: true,
            ..none
        }
    );
}

/// C-51.
#[test]
fn too_many_related_tasks_are_skipped_and_odd_ones_absent() {
    let related = |value: Value| {
        let mut meta = meta();
        meta["io.modelcontextprotocol/relatedTaskIds"] = value;
        let Request::CallTool(call) =
            Post::new("tools/call", json!({ "name": "t", "_meta": meta })).request()
        else {
            panic!("a call")
        };
        call.related_tasks.len()
    };
    assert_eq!(related(json!(vec!["x"; 40])), 16);
    assert_eq!(related(json!([1])), 0);
    assert_eq!(related(json!("x")), 0);
}

#[test]
fn a_listener_hears_only_what_it_asks_for_and_what_is_offered() {
    let filter = |notifications: Value, tasks: bool| {
        let params = json!({ "notifications": notifications, "_meta": meta() });
        let post = Post {
            tasks,
            ..Post::new("subscriptions/listen", params)
        };
        let Request::Listen(filter) = post.request() else {
            panic!("a subscription")
        };
        filter
    };
    assert_eq!(filter(json!({}), true), Filter::default());
    let all = json!({ "toolsListChanged": true, "promptsListChanged": true, "taskIds": ["a", "b"] });
    let tasks = Some(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(
        filter(all.clone(), true),
        Filter {
            tools_list_changed: true,
            tasks,
            ..Filter::default()
        }
    );
    assert_eq!(
        filter(all, false),
        Filter {
            tools_list_changed: true,
            ..Filter::default()
        }
    );
    assert_eq!(filter(json!({ "taskIds": [] }), true).tasks, Some(Vec::new()));
}

#[test]
fn notifications_want_no_reply() {
    let notice = |text: &str| match Post::raw(text).read().expect("taken") {
        Message::Notice(notice) => notice,
        other @ (Message::Request(_) | Message::Answer(_)) => panic!("{other:?}"),
    };
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":41,"reason":"closed"}}"#;
    let expect = Notice::Cancelled {
        request: RequestId::Integer(41),
        reason: Some("closed".to_owned()),
    };
    assert_eq!(notice(cancelled), expect);
    for ignored in [
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    ] {
        assert_eq!(notice(ignored), Notice::Ignored, "{ignored}");
    }
}

#[test]
fn a_response_key_names_a_question_only_in_its_one_spelling() {
    let question = |key: &str| {
        Response {
            key: key.to_owned(),
            body: raw(&json!({})),
        }
        .question()
    };
    assert_eq!(question("q12"), Some(QuestionKey(12)));
    for other in ["q", "q01", "q+1", "Q1", "1", "q-1", "q99999999999", "q1 ", "go"] {
        assert_eq!(question(other), None, "{other}");
    }
}
