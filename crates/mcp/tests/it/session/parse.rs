//! What well-formed frames of a session say.

use longhaul_mcp::{
    Client, Message, Notice, Request, RequestId,
    edge::{Offer, Version},
    frame::{Frame, Obj, Raw},
    malformed::Rule,
    reply::Relays,
    request::{Asked, CallTool, LogLevel, ProgressToken, Takes},
    scan::Limits,
    v2025_11_25::parse,
};
use serde_json::{Value, json};

use super::{Sent, initialize::opened, rule};
use crate::support::{Official, assert_is, frame, raw};

#[test]
fn the_requests_of_a_session_are_official() {
    let task = json!({ "taskId": "lh1.k.x" });
    let id = || "lh1.k.x".to_owned();
    for (definition, method, params, expect) in [
        ("PingRequest", "ping", json!({}), Request::Ping),
        (
            "SetLevelRequest",
            "logging/setLevel",
            json!({ "level": "warning" }),
            Request::SetLogLevel(LogLevel::Warning),
        ),
        (
            "ListToolsRequest",
            "tools/list",
            json!({ "cursor": "" }),
            Request::ListTools {
                cursor: Some(String::new()),
            },
        ),
        (
            "ListToolsRequest",
            "tools/list",
            json!({}),
            Request::ListTools { cursor: None },
        ),
        (
            "GetTaskRequest",
            "tasks/get",
            task.clone(),
            Request::GetTask { task: id() },
        ),
        (
            "GetTaskPayloadRequest",
            "tasks/result",
            task.clone(),
            Request::TaskResult { task: id() },
        ),
        (
            "ListTasksRequest",
            "tasks/list",
            json!({ "cursor": "b2Zm" }),
            Request::ListTasks {
                cursor: Some("b2Zm".to_owned()),
            },
        ),
        (
            "CancelTaskRequest",
            "tasks/cancel",
            task,
            Request::CancelTask { task: id() },
        ),
    ] {
        assert_is(Official::Sessions, definition, &frame(method, params.clone()));
        let incoming = Sent::new(method, params).incoming();
        assert_eq!(incoming.request, expect);
        assert_eq!(incoming.id, RequestId::Integer(7));
        assert_eq!(
            (incoming.client.takes, incoming.client.asked),
            (Takes::Never, Asked::OnStream)
        );
        assert!(!incoming.name_header_missing);
    }
}

#[test]
fn a_call_says_all_it_can_say() {
    let params = json!({
        "name": "index_repo",
        "arguments": { "z": 1, "a": 2 },
        "task": { "ttl": 1_800_000, "pollInterval": 5 },
        "_meta": {
            "progressToken": "p-9",
            "traceparent": "00-1f-a1-01",
            "dev.longhaul/session": "run-1",
            "dev.longhaul/idempotencyKey": "k-1",
            "dev.longhaul/metadata": { "ticket": 7 },
            "io.modelcontextprotocol/logLevel": "debug",
        },
    });
    assert_is(
        Official::Sessions,
        "CallToolRequest",
        &frame("tools/call", params.clone()),
    );
    let members = raw(&params["_meta"]);
    let sent = Sent::new("tools/call", params);
    let incoming = sent.incoming();
    let client = &incoming.client;
    assert_eq!(client.session.as_deref(), Some("run-1"));
    assert_eq!(client.traceparent.as_deref(), Some("00-1f-a1-01"));
    let expect = CallTool {
        name: "index_repo".to_owned(),
        arguments: Some(raw(&json!({ "z": 1, "a": 2 }))),
        responses: Vec::new(),
        request_state: None,
        ttl_ms: Some(1_800_000),
        idempotency_key: Some("k-1".to_owned()),
        metadata: Some(raw(&json!({ "ticket": 7 }))),
        progress_token: Some(ProgressToken(RequestId::Text("p-9".to_owned()))),
        // The session has a level of its own (A-11).
        log_level: None,
        related_tasks: Vec::new(),
        rest: Obj::parse(&format!(r#"{{"_meta":{}}}"#, members.text())).expect("an object"),
    };
    assert_eq!(sent.call(), expect);
}

#[test]
fn a_call_carries_its_arguments_as_they_were_written() {
    let arguments = r#"{"z":1.50,"a":"\u00e9","n":12345678901234567890123}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
    );
    let call = Sent::raw(&body).call();
    assert_eq!(call.arguments.as_ref().map(Raw::text), Some(arguments));
    assert_eq!(
        Sent::new("tools/call", json!({ "name": "t" })).call().arguments,
        None
    );
}

#[test]
fn what_the_peer_said_is_known_on_every_request() {
    let capabilities = json!({ "elicitation": {} });
    let mut peer = opened("2025-11-25", capabilities);
    // However the peer was made, a session's client is asked on its streams.
    peer.client.asked = Asked::InReply;
    let offer = Offer {
        tasks: true,
        tasks_list: true,
        relays: Relays::default(),
        strict_headers: false,
        limits: Limits::default(),
        tool: &|_| None,
    };
    let body = frame("tools/call", json!({ "name": "t", "task": {} })).to_string();
    let frame = Frame::parse(body.as_bytes(), &offer.limits).expect("a frame");
    let Ok(Message::Request(incoming)) = parse(frame, &peer, &offer) else {
        panic!("a request")
    };
    let expect = Client {
        takes: Takes::AtOnce,
        asked: Asked::OnStream,
        ..peer.client
    };
    assert_eq!(incoming.client, expect);
}

/// A-42, Q-26.
#[test]
fn a_call_asks_for_a_task_by_a_member_of_its_own() {
    let sent = |task: Value| Sent::new("tools/call", json!({ "name": "t", "task": task }));
    for (task, ttl_ms) in [
        (json!({}), None),
        (json!({ "ttl": 1 }), Some(1)),
        (json!({ "ttl": 60_000.75 }), Some(60_000)),
        (json!({ "ttl": 1e300 }), Some(u64::MAX)),
        (json!({ "ttl": 0 }), None),
        (json!({ "ttl": -5 }), None),
        (json!({ "ttl": 0.5 }), None),
        (json!({ "ttl": null }), None),
        (json!({ "pollInterval": 500, "x": [] }), None),
    ] {
        assert_eq!(
            sent(task.clone()).incoming().client.takes,
            Takes::AtOnce,
            "{task}"
        );
        assert_eq!(sent(task.clone()).call().ttl_ms, ttl_ms, "{task}");
    }
    let plain = Sent::new("tools/call", json!({ "name": "t" }));
    assert_eq!(plain.incoming().client.takes, Takes::Never);
    for bad in [
        json!(true),
        json!([]),
        json!({ "ttl": "1" }),
        json!({ "ttl": {} }),
    ] {
        let Rule::ParamInvalid { member, .. } = sent(bad.clone()).rule() else {
            panic!("{bad}")
        };
        assert_eq!(member, "task");
    }
}

/// A-37: where no call can become a task, the member is not even read.
#[test]
fn where_no_tasks_are_given_a_call_is_plain() {
    for task in [json!({ "ttl": 5 }), json!("odd")] {
        for tool in [None, rule(false, true), rule(true, false)] {
            let sent = Sent {
                tool,
                ..Sent::new("tools/call", json!({ "name": "t", "task": task }))
            };
            let mut plain = vec![Sent {
                tasks: false,
                ..sent.clone()
            }];
            plain.extend(
                Version::ALL
                    .into_iter()
                    .filter(|version| !version.has_tasks())
                    .map(|version| Sent {
                        version,
                        ..sent.clone()
                    }),
            );
            assert_eq!(plain.len(), 4);
            for sent in plain {
                assert_eq!(sent.incoming().client.takes, Takes::Never);
                assert_eq!(sent.call().ttl_ms, None);
            }
        }
    }
}

/// A-40, A-41a, A-41b.
#[test]
fn a_tool_is_called_as_its_listing_says() {
    let sent = |tool, task: bool| Sent {
        tool,
        ..Sent::new(
            "tools/call",
            if task {
                json!({ "name": "migrate_db", "task": {} })
            } else {
                json!({ "name": "migrate_db" })
            },
        )
    };
    let tool = || "migrate_db".to_owned();
    let forbidden = sent(rule(false, true), true).rule();
    assert_eq!(forbidden, Rule::TaskForbidden { tool: tool() });
    assert_eq!(
        forbidden.to_string(),
        "Tool migrate_db cannot be called as a task"
    );
    let required = sent(rule(true, false), false).rule();
    assert_eq!(required, Rule::TaskRequired { tool: tool() });
    assert_eq!(required.to_string(), "Tool migrate_db must be called as a task");
    for (tool, task) in [
        (rule(false, true), false),
        (rule(true, false), true),
        (rule(false, false), true),
        (rule(false, false), false),
        (None, true),
        (None, false),
    ] {
        sent(tool, task).incoming();
    }
    let hidden = Sent {
        tool: rule(true, false),
        ..Sent::new("tools/call", json!({ "name": "a\u{202e}b" }))
    };
    assert_eq!(
        hidden.rule(),
        Rule::TaskRequired {
            tool: "ab".to_owned()
        }
    );
}

/// A-35, Q-21.
#[test]
fn the_methods_of_tasks_are_those_that_were_declared() {
    let methods = ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"];
    let sent = |method: &str| Sent::new(method, json!({ "taskId": "x" }));
    let unknown = |method: &str| Rule::method_not_found(method);
    for version in Version::ALL {
        for method in methods {
            let sent = Sent {
                version,
                ..sent(method)
            };
            match version.has_tasks() {
                true => drop(sent.incoming()),
                false => assert_eq!(sent.rule(), unknown(method), "{version:?}"),
            }
        }
    }
    for method in methods {
        let unlisted = Sent {
            tasks_list: false,
            ..sent(method)
        };
        match method {
            "tasks/list" => assert_eq!(unlisted.rule(), unknown(method)),
            _ => drop(unlisted.incoming()),
        }
        // Open tasks stay readable, and can be cancelled, while no new ones are given out.
        let closed = Sent {
            tasks: false,
            ..sent(method)
        };
        closed.incoming();
    }
}

#[test]
fn methods_of_the_other_generation_are_unknown() {
    for method in [
        "server/discover",
        "subscriptions/listen",
        "tasks/update",
        "resources/list",
        "prompts/list",
        "completion/complete",
        "",
    ] {
        let refused = Sent::new(method, json!({ "taskId": "x", "notifications": {} })).rule();
        assert_eq!(refused, Rule::method_not_found(method));
    }
}

/// A-63.
#[test]
fn the_parameter_alone_says_which_task_is_meant() {
    let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": "other" } });
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let request = Sent::new(method, json!({ "taskId": "mine", "_meta": related }))
            .incoming()
            .request;
        let mine = || "mine".to_owned();
        let expect = match method {
            "tasks/get" => Request::GetTask { task: mine() },
            "tasks/result" => Request::TaskResult { task: mine() },
            _ => Request::CancelTask { task: mine() },
        };
        assert_eq!(request, expect);
        let only = Sent::new(method, json!({ "_meta": related })).rule();
        assert!(
            matches!(only, Rule::ParamInvalid { member: "taskId", .. }),
            "{only:?}"
        );
    }
}

/// A-15, A-1.
#[test]
fn a_response_is_an_answer_to_a_request_of_ours() {
    let answer = |text: &str| match Sent::raw(text).read().expect("taken") {
        Message::Answer(answer) => answer,
        other @ (Message::Request(_) | Message::Notice(_)) => panic!("{other:?}"),
    };
    let given = answer(
        r#"{"jsonrpc":"2.0","id":"tiq-k7f2m9-q1-1","result":{"action":"accept","content":{"n":1.50}}}"#,
    );
    assert_eq!(given.id, RequestId::Text("tiq-k7f2m9-q1-1".to_owned()));
    let body = given.outcome.expect("a result");
    assert_eq!(body.text(), r#"{"action":"accept","content":{"n":1.50}}"#);
    let refused = answer(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}"#);
    assert_eq!(refused.id, RequestId::Integer(3));
    assert!(refused.outcome.is_err());
    let unread = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#;
    assert_eq!(Sent::raw(unread).read(), Ok(Message::Notice(Notice::Ignored)));
}

/// A-7, A-32, A-58.
#[test]
fn notifications_want_no_reply() {
    let notice = |value: Value| Sent::raw(&value.to_string()).read();
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 14, "reason": "user closed the panel" } });
    assert_is(Official::Sessions, "CancelledNotification", &cancelled);
    let expect = Notice::Cancelled {
        request: RequestId::Integer(14),
        reason: Some("user closed the panel".to_owned()),
    };
    assert_eq!(notice(cancelled), Ok(Message::Notice(expect)));
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_is(Official::Sessions, "InitializedNotification", &initialized);
    for ignored in [
        initialized,
        json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/unknown", "params": { "x": 1 } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": null } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {} }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" }),
        json!({ "jsonrpc": "2.0", "method": "initialize", "params": {} }),
        json!({ "jsonrpc": "2.0", "method": "tools/call", "params": { "name": "t" } }),
    ] {
        assert_eq!(
            notice(ignored.clone()),
            Ok(Message::Notice(Notice::Ignored)),
            "{ignored}"
        );
    }
}

#[test]
fn a_member_that_is_null_is_absent() {
    let nulls = json!({ "name": "t", "arguments": null, "task": null, "_meta": null });
    let call = Sent::new("tools/call", nulls);
    let mut absent = Sent::new("tools/call", json!({ "name": "t" })).call();
    // A server behind reads what was written.
    absent.rest.set("_meta", &());
    assert_eq!(call.call(), absent);
    assert_eq!(call.incoming().client.takes, Takes::Never);
    let meta = json!({ "name": "t", "_meta": { "progressToken": null, "dev.longhaul/session": null } });
    assert_eq!(Sent::new("tools/call", meta).call().progress_token, None);
    let list = Sent::new("tools/list", json!({ "cursor": null })).incoming();
    assert_eq!(list.request, Request::ListTools { cursor: None });
    // A null inside the arguments is the tool's.
    let call = Sent::new("tools/call", json!({ "name": "t", "arguments": { "a": null } })).call();
    assert_eq!(call.arguments, Some(raw(&json!({ "a": null }))));
    let nothing = Sent::new("tasks/get", json!({ "taskId": null })).rule();
    assert!(
        matches!(nothing, Rule::ParamInvalid { member: "taskId", .. }),
        "{nothing:?}"
    );
}

/// A-10: the parameters of a ping say nothing.
#[test]
fn a_ping_needs_no_parameters() {
    let ping = Sent::raw(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#).incoming();
    assert_eq!(
        (ping.id, ping.request),
        (RequestId::Text("a".to_owned()), Request::Ping)
    );
}
