//! What a server sends is taken for what it is, and refused where two readers could disagree.

use longhaul_mcp::{
    client::{
        Incoming,
        incoming::{Ask, AskKind, Notice},
        read,
    },
    frame::Raw,
    malformed::Rule,
    reply::Progress,
    request::{LogLevel, RequestId},
    scan::Limits,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Official, assert_is, raw};

fn take(value: &Value) -> Incoming {
    read(value.to_string().as_bytes(), &Limits::default()).expect("a frame")
}

fn notice(value: &Value) -> Notice {
    match take(value) {
        Incoming::Notice { notice, .. } => notice,
        other @ (Incoming::Reply { .. } | Incoming::Unread(_) | Incoming::Ask(_)) => panic!("{other:?}"),
    }
}

fn told(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[test]
fn a_reply_names_its_request_and_keeps_its_text() {
    let text = r#"{"jsonrpc":"2.0","id":"c-1","result":{"z":1.50,"a":[12345678901234567890123]},"x":1}"#;
    let Ok(Incoming::Reply { id, outcome }) = read(text.as_bytes(), &Limits::default()) else {
        panic!("no reply")
    };
    assert_eq!(id, RequestId::Text("c-1".to_owned()));
    let expect = r#"{"z":1.50,"a":[12345678901234567890123]}"#;
    assert_eq!(outcome.as_ref().map(Raw::text), Ok(expect));
    let error = json!({ "code": -32602, "message": "no", "data": 1, "more": 2 });
    let reply = take(&json!({ "jsonrpc": "2.0", "id": 7, "error": error }));
    let outcome = Err(raw(&error));
    assert_eq!(
        reply,
        Incoming::Reply {
            id: RequestId::Integer(7),
            outcome
        }
    );
    // A-1
    for unread in [
        json!({ "jsonrpc": "2.0", "id": null, "error": error }),
        json!({ "jsonrpc": "2.0", "error": error }),
    ] {
        assert_eq!(take(&unread), Incoming::Unread(raw(&error)));
    }
}

#[test]
fn each_notification_is_known_in_both_generations() {
    let level = json!({ "level": "error", "logger": "worker", "data": { "what": "disk full" } });
    for (definition, value, expect) in [
        (
            "ProgressNotification",
            told(
                "notifications/progress",
                json!({ "progressToken": 5, "progress": 2, "total": 5.5, "message": "page" }),
            ),
            Notice::Progress {
                token: RequestId::Integer(5),
                progress: Progress {
                    progress: 2.0,
                    total: Some(5.5),
                    message: Some("page".to_owned()),
                },
            },
        ),
        (
            "LoggingMessageNotification",
            told("notifications/message", level.clone()),
            Notice::Log {
                level: LogLevel::Error,
                logger: Some("worker".to_owned()),
                data: raw(&level["data"]),
            },
        ),
        (
            "ToolListChangedNotification",
            told("notifications/tools/list_changed", json!({})),
            Notice::ToolsChanged,
        ),
        (
            "PromptListChangedNotification",
            told("notifications/prompts/list_changed", json!({})),
            Notice::PromptsChanged,
        ),
        (
            "ResourceListChangedNotification",
            told("notifications/resources/list_changed", json!({})),
            Notice::ResourcesChanged,
        ),
        (
            "ResourceUpdatedNotification",
            told("notifications/resources/updated", json!({ "uri": "file:///a" })),
            Notice::ResourceUpdated {
                uri: "file:///a".to_owned(),
            },
        ),
        (
            "CancelledNotification",
            told(
                "notifications/cancelled",
                json!({ "requestId": "q", "reason": "done" }),
            ),
            Notice::Cancelled {
                request: RequestId::Text("q".to_owned()),
                reason: Some("done".to_owned()),
            },
        ),
    ] {
        assert_is(Official::Sessions, definition, &value);
        assert_is(Official::Core, definition, &value);
        assert_eq!(notice(&value), expect, "{definition}");
    }
    let bare = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    assert_eq!(notice(&bare), Notice::ToolsChanged);
}

#[test]
fn a_notification_of_one_generation_is_known() {
    let done = told(
        "notifications/elicitation/complete",
        json!({ "elicitationId": "el_1" }),
    );
    assert_is(Official::Sessions, "ElicitationCompleteNotification", &done);
    let elicitation = "el_1".to_owned();
    assert_eq!(notice(&done), Notice::LinkDone { elicitation });
    let acknowledged = told(
        "notifications/subscriptions/acknowledged",
        json!({ "notifications": { "toolsListChanged": true }, "_meta": { "io.modelcontextprotocol/subscriptionId": 41 } }),
    );
    assert_is(
        Official::Core,
        "SubscriptionsAcknowledgedNotification",
        &acknowledged,
    );
    let Incoming::Notice {
        notice: Notice::Acknowledged { notifications },
        subscription,
        task: None,
    } = take(&acknowledged)
    else {
        panic!("not acknowledged")
    };
    assert_eq!(notifications.get::<bool>("toolsListChanged"), Some(true));
    assert_eq!(subscription, Some(RequestId::Integer(41)));
    // Q-15
    for method in ["notifications/tasks", "notifications/tasks/status"] {
        let Notice::Task { task, params } =
            notice(&told(method, json!({ "taskId": "t", "status": "working" })))
        else {
            panic!("{method}")
        };
        assert_eq!(
            (task.as_str(), params.get::<String>("status").as_deref()),
            ("t", Some("working"))
        );
    }
}

#[test]
fn what_has_not_the_shape_of_its_method_is_kept_as_it_was_written() {
    for (method, params) in [
        ("notifications/vendor", json!({ "x": 1 })),
        (
            "notifications/progress",
            json!({ "progressToken": null, "progress": 1 }),
        ),
        (
            "notifications/progress",
            json!({ "progressToken": 1.5, "progress": 1 }),
        ),
        (
            "notifications/progress",
            json!({ "progressToken": 1, "progress": "1" }),
        ),
        ("notifications/message", json!({ "level": "loud", "data": 1 })),
        ("notifications/message", json!({ "level": "info" })),
        ("notifications/resources/updated", json!({ "uri": 1 })),
        ("notifications/cancelled", json!({})),
        ("notifications/tasks", json!({ "status": "working" })),
    ] {
        let Notice::Other {
            method: kept,
            params: Some(as_written),
        } = notice(&told(method, params.clone()))
        else {
            panic!("{method} {params}")
        };
        assert_eq!((kept.as_str(), as_written.to_raw()), (method, raw(&params)));
    }
    let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1e999}}"#;
    let read = read(text.as_bytes(), &Limits::default()).expect("a frame");
    assert!(
        matches!(
            read,
            Incoming::Notice {
                notice: Notice::Other { .. },
                ..
            }
        ),
        "{read:?}"
    );
}

#[test]
fn a_request_of_a_server_says_what_kind_it_is() {
    for (method, kind) in [
        ("ping", AskKind::Ping),
        ("roots/list", AskKind::Roots),
        ("sampling/createMessage", AskKind::Sampling),
        ("elicitation/create", AskKind::Elicitation),
        ("tools/call", AskKind::Other),
    ] {
        let ask = take(&json!({ "jsonrpc": "2.0", "id": 1, "method": method }));
        let expect = Ask {
            id: RequestId::Integer(1),
            kind,
            method: method.to_owned(),
            params: None,
        };
        assert_eq!(ask, Incoming::Ask(expect));
    }
}

/// E-1.
#[test]
fn hostile_frames_are_refused_by_name() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{}{}}}"#,
        "[".repeat(64),
        "]".repeat(64)
    );
    for (bytes, reason) in [
        (&b""[..], "not_json"),
        (b"noise", "not_json"),
        (b"[]", "batch"),
        (b"1", "not_an_object"),
        (b"{}", "not_json_rpc_2"),
        (b"{\"jsonrpc\":\"2.0\"", "not_json"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}", "not_utf8"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\\u0000\"}", "nul"),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\\ud800\"}",
            "lone_surrogate",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"result\":{}}",
            "duplicate_member",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1,\"\\u0061\":2}}",
            "duplicate_member",
        ),
        (b"{\"jsonrpc\":\"2.0\",\"Id\":1,\"result\":{}}", "wrong_case"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}", "bad_id"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"result\":{}}", "bad_id"),
        (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}", "not_json_rpc_2"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1}", "bad_method"),
        (b"{\"jsonrpc\":\"2.0\",\"result\":{}}", "bad_method"),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{}}",
            "bad_method",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"result\":{}}",
            "request_and_response",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":[]}",
            "params_not_an_object",
        ),
        (deep.as_bytes(), "too_deep"),
    ] {
        let shown = String::from_utf8_lossy(bytes);
        let malformed = read(bytes, &Limits::default()).expect_err(&shown);
        assert_eq!(malformed.rule.reason(), reason, "{shown}");
    }
    let malformed = read(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":7}", &Limits::default());
    let malformed = malformed.expect_err("no method");
    assert_eq!(
        (malformed.id, malformed.rule),
        (Some(RequestId::Integer(3)), Rule::BadMethod)
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&bytes, &Limits::default()));
    }
}
