//! Every rule that a frame can break: its code, its HTTP status, its reason word, in the order of the checks.

use std::collections::BTreeSet;

use longhaul_mcp::{
    Malformed, RequestId, ToolRule,
    malformed::Rule,
    scan::{self, BadText},
    v2026_07_28::render_malformed,
};
use serde_json::{Value, json};

use crate::support::{Official, Post, VERSION, assert_is, bare_meta, frame, meta};

/// A frame that breaks one rule, and what its sender is told.
struct Case {
    post: Post,
    reason: &'static str,
    code: i64,
    status: u16,
    id: Option<i128>,
}

fn case(post: Post, reason: &'static str, code: i64, status: u16, id: Option<i128>) -> Case {
    Case {
        post,
        reason,
        code,
        status,
        id,
    }
}

fn cases() -> Vec<Case> {
    let with_meta = |mut params: Value| {
        params["_meta"] = meta();
        params
    };
    let call = |extra: Value| {
        let mut params = with_meta(json!({ "name": "t" }));
        params
            .as_object_mut()
            .expect("params")
            .extend(extra.as_object().expect("extra").clone());
        Post::new("tools/call", params)
    };
    let in_meta = |key: &str, value: Value| {
        let mut params = with_meta(json!({ "name": "t" }));
        params["_meta"][key] = value;
        Post::new("tools/call", params)
    };
    let raw = Post::raw;
    let needs = Some(ToolRule {
        mirrors: Vec::new(),
        requires_task: true,
        forbids_task: false,
    });
    let bare_call = Post::new("tools/call", json!({ "name": "t", "_meta": bare_meta() }));
    let deep = "[".repeat(100_000);
    let wide = format!("[{}1]", "1,".repeat(100_000));
    let long = "1".repeat(1_001);
    let huge = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"n":[1e999]},"_meta":META}}"#;
    let mut not_utf8 = raw("");
    not_utf8.body = vec![b'"', 0xff, b'"'];
    vec![
        case(not_utf8, "not_utf8", -32700, 400, None),
        case(raw("{"), "not_json", -32700, 400, None),
        case(raw(r#""\ud800""#), "lone_surrogate", -32700, 400, None),
        case(raw(r#""\u0000""#), "nul", -32700, 400, None),
        case(raw(&deep), "too_deep", -32700, 400, None),
        case(raw(&wide), "too_many_values", -32700, 400, None),
        case(raw(&long), "number_too_long", -32700, 400, None),
        case(raw(r#"{"id":1,"id":2}"#), "duplicate_member", -32600, 400, None),
        case(raw(r#"{"Method":"x"}"#), "wrong_case", -32600, 400, None),
        case(
            raw(&json!([frame("tools/list", json!({}))]).to_string()),
            "batch",
            -32600,
            400,
            None,
        ),
        case(raw("[]"), "batch", -32600, 400, None),
        case(raw("3"), "not_an_object", -32600, 400, None),
        case(
            raw(r#"{"id":7,"method":"m"}"#),
            "not_json_rpc_2",
            -32600,
            400,
            Some(7),
        ),
        case(
            raw(r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#),
            "not_json_rpc_2",
            -32600,
            400,
            Some(7),
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#),
            "bad_id",
            -32600,
            400,
            None,
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":7,"method":5}"#),
            "bad_method",
            -32600,
            400,
            Some(7),
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":7}"#),
            "bad_method",
            -32600,
            400,
            Some(7),
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":7,"method":"m","result":{}}"#),
            "request_and_response",
            -32600,
            400,
            Some(7),
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":null,"method":"m","error":null}"#),
            "request_and_response",
            -32600,
            400,
            None,
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[1]}"#),
            "params_not_an_object",
            -32600,
            400,
            Some(7),
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
            "unexpected_response",
            -32600,
            400,
            None,
        ),
        case(
            Post::new("tools/list", json!({})),
            "meta_missing",
            -32602,
            400,
            Some(7),
        ),
        case(
            raw(&frame("tools/list", json!({})).to_string()),
            "meta_missing",
            -32602,
            400,
            Some(7),
        ),
        case(
            raw(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#),
            "meta_missing",
            -32602,
            400,
            Some(7),
        ),
        case(
            raw(&frame("initialize", json!({ "protocolVersion": "2025-11-25" })).to_string()),
            "meta_missing",
            -32602,
            400,
            Some(7),
        ),
        case(
            call(json!({})).header("Mcp-Name", None),
            "header_missing",
            -32020,
            400,
            Some(7),
        ),
        case(
            call(json!({})).header("Mcp-Name", Some("=?base64?!?=")),
            "header_malformed",
            -32020,
            400,
            Some(7),
        ),
        case(
            call(json!({})).header("Mcp-Name", Some("u")),
            "header_mismatch",
            -32020,
            400,
            Some(7),
        ),
        case(
            in_meta("io.modelcontextprotocol/protocolVersion", json!("2027-01-01"))
                .header("MCP-Protocol-Version", Some("2027-01-01")),
            "unsupported_version",
            -32022,
            400,
            Some(7),
        ),
        case(
            Post::new("tasks/list", json!({ "_meta": meta() })),
            "method_not_found",
            -32601,
            404,
            Some(7),
        ),
        case(
            Post {
                tool: needs,
                ..bare_call
            },
            "needs_tasks",
            -32021,
            400,
            Some(7),
        ),
        case(
            in_meta("progressToken", json!(1.5)),
            "meta_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            in_meta("io.modelcontextprotocol/logLevel", json!("loud")),
            "meta_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            in_meta("dev.longhaul/idempotencyKey", json!("")),
            "meta_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            in_meta("dev.longhaul/session", json!("x".repeat(201))),
            "meta_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            in_meta("dev.longhaul/metadata", json!([1])),
            "meta_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            in_meta("dev.longhaul/metadata", json!({ "x": "y".repeat(4096) })),
            "meta_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            Post::new("tools/call", json!({ "_meta": meta() })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            call(json!({ "arguments": [1] })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            call(json!({ "arguments": null })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            call(json!({ "requestState": 1 })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            call(json!({ "inputResponses": { "q1": 1 } })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            Post::new("tasks/update", json!({ "taskId": "x", "_meta": meta() })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            Post::new("tasks/get", json!({ "taskId": 1, "_meta": meta() })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            Post::new("tools/list", json!({ "cursor": 1, "_meta": meta() })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            Post::new("subscriptions/listen", json!({ "_meta": meta() })),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            Post::new(
                "subscriptions/listen",
                json!({ "notifications": { "taskIds": [1] }, "_meta": meta() }),
            ),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            Post::new(
                "subscriptions/listen",
                json!({ "notifications": { "toolsListChanged": 1 }, "_meta": meta() }),
            ),
            "param_invalid",
            -32602,
            200,
            Some(7),
        ),
        case(
            raw(&huge.replace("META", &meta().to_string())),
            "not_finite",
            -32602,
            200,
            Some(7),
        ),
    ]
}

#[test]
fn every_rule_has_its_code_and_its_status() {
    for Case {
        post,
        reason,
        code,
        status,
        id,
    } in cases()
    {
        let Malformed { id: found, rule } = post.malformed();
        assert_eq!(
            (rule.reason(), rule.code(), rule.status()),
            (reason, code, status),
            "{rule:?}"
        );
        assert_eq!(found, id.map(RequestId::Integer), "{rule:?}");
    }
}

#[test]
fn every_refusal_is_an_error_of_the_official_schema() {
    for Case {
        post,
        reason,
        code,
        id,
        ..
    } in cases()
    {
        let reply: Value = serde_json::from_slice(&render_malformed(&post.malformed())).expect("JSON");
        assert_is(Official::Core, "JSONRPCErrorResponse", &reply);
        assert_eq!(reply["error"]["code"], code);
        match id {
            Some(id) => assert_eq!(reply["id"].as_i64().map(i128::from), Some(id)),
            None => assert!(reply.get("id").is_none(), "{reply}"),
        }
        let definition = match code {
            -32700 => "ParseError",
            -32600 => "InvalidRequestError",
            -32601 => "MethodNotFoundError",
            -32602 => "InvalidParamsError",
            -32020 => "HeaderMismatchError",
            -32021 => "MissingRequiredClientCapabilityError",
            -32022 => "UnsupportedProtocolVersionError",
            other => panic!("{reason}: {other}"),
        };
        let is_whole = (-32022..=-32020).contains(&code);
        assert_is(
            Official::Core,
            definition,
            if is_whole { &reply } else { &reply["error"] },
        );
        if !matches!(code, -32021 | -32022) {
            assert_eq!(reply["error"]["data"]["reason"], reason);
            assert_eq!(reply["error"]["data"]["who"], "caller");
        }
    }
}

/// A new rule does not compile here until it has a number, and does not pass until it has a case. Those without a
/// number are broken in sessions only, and have their cases there.
#[test]
fn no_rule_is_without_a_case() {
    let number = |rule: &Rule| match rule {
        Rule::SessionMissing
        | Rule::SessionVersion
        | Rule::AlreadyOpen
        | Rule::TaskForbidden { .. }
        | Rule::TaskRequired { .. } => panic!("a rule of sessions"),
        Rule::Scan(refused) => match refused.rule {
            scan::Rule::NotUtf8 => 0,
            scan::Rule::Text(BadText::Syntax) => 1,
            scan::Rule::Text(BadText::LoneSurrogate) => 2,
            scan::Rule::Text(BadText::Nul) => 3,
            scan::Rule::TooDeep => 4,
            scan::Rule::TooManyValues => 5,
            scan::Rule::NumberTooLong => 6,
            scan::Rule::DuplicateMember => 7,
            scan::Rule::WrongCase => 8,
        },
        Rule::Batch => 9,
        Rule::NotAnObject => 10,
        Rule::NotJsonRpc2 => 11,
        Rule::BadId => 12,
        Rule::BadMethod => 13,
        Rule::ParamsNotAnObject => 14,
        Rule::UnexpectedResponse => 15,
        Rule::MetaMissing { .. } => 16,
        Rule::HeaderMissing { .. } => 17,
        Rule::HeaderMalformed { .. } => 18,
        Rule::HeaderMismatch { .. } => 19,
        Rule::UnsupportedVersion { .. } => 20,
        Rule::MethodNotFound { .. } => 21,
        Rule::NeedsTasks => 22,
        Rule::MetaInvalid { .. } => 23,
        Rule::ParamInvalid { .. } => 24,
        Rule::NotFinite { .. } => 25,
        Rule::RequestAndResponse => 26,
    };
    let seen: BTreeSet<i32> = cases()
        .iter()
        .map(|case| number(&case.post.malformed().rule))
        .collect();
    assert!(seen.into_iter().eq(0..=26));
}

/// B.3: a frame that breaks several rules is refused for the first of them.
#[test]
fn the_order_of_the_checks_is_fixed() {
    let meta = |version: &str| {
        json!({ "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {} })
    };
    let old = "2027-01-01";
    let refusal = |method: &str, params: Value, headers: &[(&str, Option<&str>)]| {
        let post = Post {
            strict: true,
            ..Post::new(method, params)
        };
        headers
            .iter()
            .fold(post, |post, (name, value)| post.header(name, *value))
            .malformed()
            .rule
            .code()
    };
    let bad_everything = [
        ("MCP-Protocol-Version", None),
        ("Mcp-Method", None),
        ("Mcp-Name", Some("z")),
    ];
    let method_header = [
        ("MCP-Protocol-Version", Some(old)),
        ("Mcp-Method", None),
        ("Mcp-Name", Some("z")),
    ];
    let version_header = [("MCP-Protocol-Version", Some(old)), ("Mcp-Name", Some("z"))];
    let name_header = [("Mcp-Name", Some("z"))];
    assert_eq!(
        refusal("tasks/nope", json!({}), &[]),
        -32602,
        "_meta before the method"
    );
    assert_eq!(
        refusal("tasks/nope", json!({ "_meta": meta(old) }), &bad_everything),
        -32020
    );
    assert_eq!(
        refusal("tasks/nope", json!({ "_meta": meta(old) }), &method_header),
        -32020
    );
    assert_eq!(
        refusal("tasks/nope", json!({ "_meta": meta(old) }), &version_header),
        -32022
    );
    assert_eq!(
        refusal("tasks/nope", json!({ "_meta": meta(VERSION) }), &name_header),
        -32601
    );
    assert_eq!(
        refusal(
            "tasks/get",
            json!({ "taskId": "a", "_meta": meta(VERSION) }),
            &name_header
        ),
        -32020
    );
    assert_eq!(
        refusal("tasks/get", json!({ "taskId": 1, "_meta": meta(VERSION) }), &[]),
        -32021
    );
    assert_eq!(
        refusal(
            "tasks/update",
            json!({ "taskId": "a", "_meta": meta(VERSION) }),
            &[]
        ),
        -32021
    );
}

/// K-15.
#[test]
fn a_version_that_header_and_meta_disagree_on_is_a_mismatch() {
    let post = |version: &str| {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {} });
        Post::new("server/discover", json!({ "_meta": meta }))
    };
    assert_eq!(post("1999-01-01").refusal(), (-32020, 400));
    let both = post("1999-01-01").header("MCP-Protocol-Version", Some("1999-01-01"));
    let expect = Rule::UnsupportedVersion {
        supported: &[VERSION],
        requested: "1999-01-01".to_owned(),
    };
    assert_eq!(both.malformed().rule, expect);
}

/// K-14, K-5, C-41.
#[test]
fn methods_that_are_not_offered_are_unknown() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "prompts/list",
        "resources/list",
        "Tools/List",
        "",
        "nope",
    ] {
        assert_eq!(
            Post::new(method, json!({ "_meta": meta() })).refusal(),
            (-32601, 404),
            "{method}"
        );
    }
}

/// C-42.
#[test]
fn without_the_extension_the_methods_of_tasks_are_unknown() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": "x", "inputResponses": {}, "_meta": meta() });
        let post = Post {
            tasks: false,
            ..Post::new(method, params)
        };
        assert_eq!(post.refusal(), (-32601, 404), "{method}");
    }
}

/// C-40, C-35, K-9: before any look-up.
#[test]
fn who_does_not_declare_the_extension_cannot_touch_tasks() {
    let legacy = json!({ "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": { "tasks": { "list": {}, "cancel": {} } } });
    for meta in [bare_meta(), legacy] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({ "taskId": "unknown", "inputResponses": {}, "_meta": meta });
            assert_eq!(Post::new(method, params).refusal(), (-32021, 400), "{method}");
        }
        let listen = json!({ "notifications": { "taskIds": [] }, "_meta": meta });
        assert_eq!(Post::new("subscriptions/listen", listen).refusal(), (-32021, 400));
    }
}
