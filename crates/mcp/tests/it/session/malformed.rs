//! Every rule that a frame of a session can break: its code, its HTTP status, its reason word.

use std::collections::BTreeSet;

use longhaul_mcp::{Message, RequestId, edge::Version, malformed::Rule, v2025_11_25::render_malformed};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Sent, rule};
use crate::{
    canon::any_json,
    support::{Official, assert_is, frame},
};

/// A frame that breaks one rule, and what its sender is told.
struct Case {
    sent: Sent,
    reason: &'static str,
    code: i64,
    status: u16,
}

fn cases() -> Vec<Case> {
    let case = |sent, reason, code, status| Case {
        sent,
        reason,
        code,
        status,
    };
    let shape = |body: &str, reason| case(Sent::raw(body), reason, -32600, 400);
    let params = |method: &str, params: Value, reason| case(Sent::new(method, params), reason, -32602, 200);
    let in_meta = |key: &str, value: Value| {
        params(
            "tools/call",
            json!({ "name": "t", "_meta": { key: value } }),
            "meta_invalid",
        )
    };
    let deep = "[".repeat(1_000);
    vec![
        case(Sent::raw("{"), "not_json", -32700, 400),
        case(Sent::raw(&deep), "too_deep", -32700, 400),
        shape(
            r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"ping"}"#,
            "duplicate_member",
        ),
        // A-14
        shape(r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#, "batch"),
        shape(r#""ping""#, "not_an_object"),
        shape(r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, "not_json_rpc_2"),
        // A-1
        shape(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "bad_id"),
        shape(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "bad_id"),
        shape(r#"{"jsonrpc":"2.0","id":7,"method":7}"#, "bad_method"),
        shape(r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#, "bad_method"),
        shape(
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","error":{}}"#,
            "request_and_response",
        ),
        shape(
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}"#,
            "params_not_an_object",
        ),
        shape(
            &frame("initialize", json!({ "protocolVersion": "2025-11-25" })).to_string(),
            "already_open",
        ),
        case(
            Sent::new("resources/list", json!({})),
            "method_not_found",
            -32601,
            200,
        ),
        case(
            Sent {
                tool: rule(false, true),
                ..Sent::new("tools/call", json!({ "name": "t", "task": {} }))
            },
            "task_forbidden",
            -32601,
            200,
        ),
        case(
            Sent {
                tool: rule(true, false),
                ..Sent::new("tools/call", json!({ "name": "t" }))
            },
            "task_required",
            -32601,
            200,
        ),
        // A-11
        params("logging/setLevel", json!({}), "param_invalid"),
        params("logging/setLevel", json!({ "level": "loud" }), "param_invalid"),
        params("logging/setLevel", json!({ "level": "WARNING" }), "param_invalid"),
        params("tools/list", json!({ "cursor": 7 }), "param_invalid"),
        params("tools/list", json!({ "_meta": [] }), "param_invalid"),
        // A-87
        params("tools/call", json!({}), "param_invalid"),
        params("tools/call", json!({ "name": 7 }), "param_invalid"),
        params(
            "tools/call",
            json!({ "name": "t", "arguments": [] }),
            "param_invalid",
        ),
        params("tools/call", json!({ "name": "t", "task": 7 }), "param_invalid"),
        // E-4
        case(
            Sent::raw(
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"a":1e999}}}"#,
            ),
            "not_finite",
            -32602,
            200,
        ),
        // A-33
        in_meta("progressToken", json!(1.5)),
        in_meta("dev.longhaul/session", json!("x".repeat(201))),
        in_meta("dev.longhaul/idempotencyKey", json!("")),
        in_meta("dev.longhaul/metadata", json!([])),
        in_meta("dev.longhaul/metadata", json!({ "x": "y".repeat(4_096) })),
        // A-64
        params("tasks/get", json!({}), "param_invalid"),
        params("tasks/get", json!({ "taskId": 7 }), "param_invalid"),
        params("tasks/result", json!({ "taskId": null }), "param_invalid"),
        params("tasks/cancel", json!({ "taskId": {} }), "param_invalid"),
        params("tasks/list", json!({ "cursor": {} }), "param_invalid"),
    ]
}

#[test]
fn every_broken_rule_has_its_code_and_its_status() {
    for Case {
        sent,
        reason,
        code,
        status,
    } in cases()
    {
        let malformed = sent.read().expect_err(reason);
        let rule = &malformed.rule;
        assert_eq!(
            (rule.reason(), rule.code(), rule.session_status()),
            (reason, code, status),
            "{}",
            sent.body
        );
        let reply: Value = serde_json::from_slice(&render_malformed(&malformed)).expect("JSON");
        assert_is(Official::Sessions, "JSONRPCErrorResponse", &reply);
        assert_eq!(reply["error"]["code"], code);
        assert_eq!(reply["error"]["data"]["reason"], reason);
        match malformed.id {
            Some(_) => assert_eq!(reply["id"], 7),
            None => assert!(reply.get("id").is_none(), "{reply}"),
        }
    }
}

/// A new rule does not compile here until it is said whether a session's frame can break it, and does not pass
/// until it has a case.
#[test]
fn no_rule_is_without_a_case() {
    let number = |rule: &Rule| match rule {
        Rule::Scan(_) => 0,
        Rule::Batch => 1,
        Rule::NotAnObject => 2,
        Rule::NotJsonRpc2 => 3,
        Rule::BadId => 4,
        Rule::BadMethod => 5,
        Rule::ParamsNotAnObject => 6,
        Rule::AlreadyOpen => 7,
        Rule::MethodNotFound { .. } => 8,
        Rule::TaskForbidden { .. } => 9,
        Rule::TaskRequired { .. } => 10,
        Rule::MetaInvalid { .. } => 11,
        Rule::ParamInvalid { .. } => 12,
        Rule::NotFinite { .. } => 13,
        Rule::RequestAndResponse => 14,
        // The tests of `edge` have these two.
        Rule::SessionMissing | Rule::SessionVersion => panic!("no rule of an open session: {rule}"),
        Rule::UnexpectedResponse
        | Rule::MetaMissing { .. }
        | Rule::HeaderMissing { .. }
        | Rule::HeaderMalformed { .. }
        | Rule::HeaderMismatch { .. }
        | Rule::UnsupportedVersion { .. }
        | Rule::NeedsTasks => panic!("a rule of the other generation: {rule}"),
    };
    let seen: BTreeSet<i32> = cases().iter().map(|case| number(&case.sent.rule())).collect();
    assert!(seen.into_iter().eq(0..=14));
}

proptest! {
    /// A-1: whatever a request says, it is taken or refused under its own id.
    #[test]
    fn any_request_is_answered_under_its_own_id(
        method in prop::sample::select(vec![
            "initialize", "ping", "logging/setLevel", "tools/list", "tools/call", "tasks/get", "tasks/result",
            "tasks/list", "tasks/cancel", "tasks/update", "x",
        ]),
        name in any_json(),
        arguments in any_json(),
        task in any_json(),
        cursor in any_json(),
        meta in any_json(),
        version in prop::sample::select(Version::ALL.to_vec()),
    ) {
        let params = json!({
            "name": name, "arguments": arguments, "task": task, "taskId": task, "level": name, "cursor": cursor,
            "_meta": meta,
        });
        let sent = Sent { version, ..Sent::new(method, params) };
        let id = match sent.read() {
            Ok(Message::Request(incoming)) => Some(incoming.id),
            Ok(Message::Notice(_) | Message::Answer(_)) => None,
            Err(malformed) => malformed.id,
        };
        prop_assert_eq!(id, Some(RequestId::Integer(7)));
    }
}
