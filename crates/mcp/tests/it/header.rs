//! B-21 to B-26: headers say what the body says, or the request is refused.

use longhaul_mcp::{
    ToolRule,
    header::{BadMirror, mirrors},
    malformed::Rule,
};
use serde_json::{Value, json};

use crate::support::{Post, meta, raw};

const MISMATCH: (i64, u16) = (-32020, 400);

fn call(name: &str, arguments: Value) -> Post {
    Post::new(
        "tools/call",
        json!({ "name": name, "arguments": arguments, "_meta": meta() }),
    )
}

#[test]
fn the_version_header_must_say_what_meta_says() {
    let list = || Post::new("tools/list", json!({ "_meta": meta() }));
    list().request();
    for version in [None, Some("2025-11-25"), Some("2026-07-29"), Some("")] {
        assert_eq!(
            list().header("MCP-Protocol-Version", version).refusal(),
            MISMATCH,
            "{version:?}"
        );
    }
}

#[test]
fn the_method_header_must_say_what_the_body_says() {
    let list = || Post::new("tools/list", json!({ "_meta": meta() }));
    for method in [None, Some("tools/call"), Some("Tools/List")] {
        assert_eq!(
            list().header("mcp-method", method).refusal(),
            MISMATCH,
            "{method:?}"
        );
    }
}

#[test]
fn header_names_ignore_case_and_values_lose_outer_space() {
    let call = call("index_repo", json!({}));
    let call = call
        .header("MCP-NAME", Some(" \tindex_repo "))
        .header("mCP-mETHOD", Some("tools/call"));
    call.request();
}

#[test]
fn a_call_must_name_its_tool_in_the_header() {
    for name in [None, Some("other"), Some("Index_repo"), Some("")] {
        assert_eq!(
            call("index_repo", json!({})).header("Mcp-Name", name).refusal(),
            MISMATCH,
            "{name:?}"
        );
    }
}

#[test]
fn a_header_sent_twice_is_refused() {
    let mut post = call("index_repo", json!({}));
    post.headers
        .get_or_insert_default()
        .push(("mcp-name".to_owned(), b"index_repo".to_vec()));
    assert_eq!(
        post.malformed().rule,
        Rule::HeaderMalformed {
            header: "mcp-name".to_owned()
        }
    );
}

#[test]
fn a_missing_name_of_a_task_is_let_pass_unless_strict_and_a_wrong_one_never() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": "lh1.k.x", "inputResponses": {}, "_meta": meta() });
        let post = Post::new(method, params);
        assert!(!post.incoming().name_header_missing);
        let missing = post.clone().header("Mcp-Name", None);
        assert!(missing.incoming().name_header_missing, "{method}");
        assert_eq!(
            Post {
                strict: true,
                ..missing
            }
            .refusal(),
            MISMATCH,
            "{method}"
        );
        assert_eq!(
            post.header("Mcp-Name", Some("lh1.k.y")).refusal(),
            MISMATCH,
            "{method}"
        );
    }
}

#[test]
fn values_beyond_plain_ascii_come_in_base64() {
    let named = |value: &str| call("größe", json!({})).header("Mcp-Name", Some(value));
    named("=?base64?Z3LDtsOfZQ==?=").request();
    for bad in [
        "größe",
        "=?base64?Z3LDtsOfZQ?=",
        "=?base64?!!?=",
        "=?base64?/w==?=",
        "=?BASE64?Z3LDtsOfZQ==?=",
        "Z3LDtsOfZQ==",
    ] {
        assert_eq!(named(bad).refusal(), MISMATCH, "{bad}");
    }
}

#[test]
fn there_are_no_headers_on_stdio() {
    let post = Post {
        headers: None,
        strict: true,
        ..call("x", json!({ "region": "eu" }))
    };
    Post {
        tool: Some(rule()),
        ..post
    }
    .request();
}

fn rule() -> ToolRule {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "count": { "type": "integer", "x-mcp-header": "count" },
        "dry": { "type": "boolean", "x-mcp-header": "Dry" },
        "at": { "type": "object", "properties": { "zone": { "type": "string", "x-mcp-header": "Zone" } } },
    } });
    ToolRule {
        mirrors: mirrors(&raw(&schema)).expect("good annotations"),
        requires_task: false,
        forbids_task: false,
    }
}

fn mirrored(arguments: Value, header: &str, value: Option<&str>) -> Post {
    Post {
        tool: Some(rule()),
        ..call("deploy", arguments).header(header, value)
    }
}

#[test]
fn a_mirrored_argument_needs_its_header() {
    mirrored(json!({ "region": "eu" }), "Mcp-Param-Region", Some("eu")).request();
    mirrored(json!({ "at": { "zone": "a b" } }), "mcp-param-zone", Some("a b")).request();
    mirrored(
        json!({ "region": "é" }),
        "Mcp-Param-Region",
        Some("=?base64?w6k=?="),
    )
    .request();
    mirrored(json!({ "dry": false }), "Mcp-Param-Dry", Some("false")).request();
    for (arguments, header, value) in [
        (json!({ "region": "eu" }), "Mcp-Param-Region", None),
        (json!({ "region": "eu" }), "Mcp-Param-Region", Some("us")),
        (json!({ "region": "eu" }), "Mcp-Param-Region", Some("EU")),
        (json!({ "dry": true }), "Mcp-Param-Dry", Some("True")),
        (json!({ "at": { "zone": "a" } }), "Mcp-Param-Zone", Some("b")),
    ] {
        assert_eq!(
            mirrored(arguments, header, value).refusal(),
            MISMATCH,
            "{header} {value:?}"
        );
    }
}

#[test]
fn an_absent_or_null_argument_expects_no_header() {
    mirrored(json!({}), "x", None).request();
    mirrored(json!({ "region": null, "at": null }), "x", None).request();
    assert_eq!(
        mirrored(json!({ "region": null }), "Mcp-Param-Region", Some("eu")).refusal(),
        MISMATCH
    );
    assert_eq!(
        mirrored(json!({}), "Mcp-Param-Zone", Some("eu")).refusal(),
        MISMATCH
    );
}

#[test]
fn mirrored_numbers_compare_by_value() {
    for same in ["42", "42.0", "4.2e1"] {
        mirrored(json!({ "count": 42 }), "Mcp-Param-Count", Some(same)).request();
    }
    for other in ["43", "042", "42x", "", "\"42\"", "0x2a"] {
        let post = mirrored(json!({ "count": 42 }), "Mcp-Param-Count", Some(other));
        assert_eq!(post.refusal(), MISMATCH, "{other}");
    }
    let large = json!({ "count": 9_007_199_254_740_993_u64 });
    let post = mirrored(large, "Mcp-Param-Count", Some("9007199254740992"));
    assert_eq!(post.refusal(), MISMATCH);
}

#[test]
fn unknown_mirrored_headers_are_ignored() {
    mirrored(json!({}), "Mcp-Param-Other", Some("anything")).request();
}

#[test]
fn annotations_must_name_a_header_once_and_on_a_primitive() {
    let check = |properties: Value| mirrors(&raw(&json!({ "type": "object", "properties": properties })));
    let a = || "a".to_owned();
    for bad in [json!(""), json!("a b"), json!("a:b"), json!(1), json!("é")] {
        let property = json!({ "a": { "type": "string", "x-mcp-header": bad } });
        assert_eq!(check(property), Err(BadMirror::NotAToken { property: a() }));
    }
    for kind in ["number", "object", "array", "null"] {
        let property = json!({ "a": { "type": kind, "x-mcp-header": "A" } });
        assert_eq!(check(property), Err(BadMirror::NotPrimitive { property: a() }));
    }
    let twice = json!({
        "a": { "type": "string", "x-mcp-header": "Same" },
        "b": { "type": "object", "properties": { "c": { "type": "string", "x-mcp-header": "SAME" } } },
    });
    assert!(matches!(check(twice), Err(BadMirror::Duplicate { .. })));
    let elsewhere = json!({ "a": { "type": "array", "items": { "type": "string", "x-mcp-header": "" } } });
    assert_eq!(check(elsewhere), Ok(Vec::new()));
}
