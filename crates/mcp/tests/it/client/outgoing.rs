//! What a server is sent: the client's own parameters, and what the hop needs.

use longhaul_mcp::{
    client::{self, Carrier, Era, Outgoing, Sent, Version},
    frame::{Frame, Obj, Raw},
    header::{Headers, Mirror, mirrors},
    request::{LogLevel, Message, Request, RequestId},
    rpc_error::RpcError,
    scan::Limits,
    v2026_07_28,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{SESSION, header, hello, shown};
use crate::support::{Official, assert_is, raw};

fn params(value: &Value) -> Obj {
    Obj::parse(&value.to_string()).expect("an object")
}

fn write(method: &str, params: Option<&Obj>, era: Era) -> Sent {
    plain(method, params).write(&RequestId::Integer(9), &hello(), era, Carrier::Http)
}

fn plain<'a>(method: &'a str, params: Option<&'a Obj>) -> Outgoing<'a> {
    Outgoing {
        method,
        params,
        progress_token: None,
        log_level: None,
        mirrors: &[],
        task_ttl_ms: None,
    }
}

/// A call as a client of the newer generation writes it, with all that belongs to its own hop.
fn call() -> Obj {
    params(&json!({
        "name": "t",
        "arguments": { "a": 1 },
        "task": { "ttl": 5 },
        "vendor": [null],
        "inputResponses": { "go": { "action": "decline" } },
        "requestState": "s",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "com.example/trace": { "x": 1 },
            "io.modelcontextprotocol/clientCapabilities": { "roots": {} },
            "io.modelcontextprotocol/clientInfo": { "name": "c", "version": "1" },
            "io.modelcontextprotocol/logLevel": "debug",
            "io.modelcontextprotocol/relatedTaskIds": ["ours"],
            "io.modelcontextprotocol/related-task": { "taskId": "ours" },
            "dev.longhaul/session": "s",
            "dev.longhaul/idempotencyKey": "k",
            "dev.longhaul/metadata": {},
            "progressToken": "theirs",
            "traceparent": "00-1f2e3d4c5b6a79880917263544352617-a1b2c3d4e5f60718-01",
        },
    }))
}

/// B-4, D-33, D-39, D-42.
#[test]
fn a_stateless_server_reads_who_asks_on_every_request() {
    let call = call();
    let sent = write("tools/call", Some(&call), Era::Stateless);
    let value = shown(&sent);
    assert_is(Official::Core, "CallToolRequest", &value);
    let trace = "00-1f2e3d4c5b6a79880917263544352617-a1b2c3d4e5f60718-01";
    let expect = json!({
        "name": "t",
        "arguments": { "a": 1 },
        "vendor": [null],
        "inputResponses": { "go": { "action": "decline" } },
        "requestState": "s",
        "_meta": {
            "com.example/trace": { "x": 1 },
            "traceparent": trace,
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "longhaul", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        },
    });
    assert_eq!(value["params"], expect);
}

#[test]
fn the_server_of_a_session_reads_nothing_of_the_other_generation() {
    let call = call();
    let sent = write("tools/call", Some(&call), SESSION);
    let value = shown(&sent);
    assert_is(Official::Sessions, "CallToolRequest", &value);
    let trace = "00-1f2e3d4c5b6a79880917263544352617-a1b2c3d4e5f60718-01";
    let expect = json!({
        "name": "t",
        "arguments": { "a": 1 },
        "vendor": [null],
        "_meta": { "com.example/trace": { "x": 1 }, "traceparent": trace },
    });
    assert_eq!(value["params"], expect);
    assert_eq!(
        sent.headers,
        [("mcp-protocol-version".to_owned(), "2025-11-25".to_owned())]
    );
}

#[test]
fn what_was_absent_stays_absent() {
    let text = |params: Option<&str>, era| {
        let params = params.map(|text| Obj::parse(text).expect("an object"));
        String::from_utf8(write("prompts/list", params.as_ref(), era).frame).expect("text")
    };
    let frame = |rest: &str| format!(r#"{{"jsonrpc":"2.0","id":9,"method":"prompts/list"{rest}}}"#);
    assert_eq!(text(None, SESSION), frame(""));
    assert_eq!(text(Some("{}"), SESSION), frame(r#","params":{}"#));
    let empty = r#","params":{"_meta":{}}"#;
    assert_eq!(text(Some(r#"{"_meta":{}}"#), SESSION), frame(empty));
    // Of what was for the client's hop alone nothing is left.
    assert_eq!(
        text(Some(r#"{"_meta":{"progressToken":1}}"#), SESSION),
        frame(r#","params":{}"#)
    );
    assert_eq!(
        text(Some(r#"{"cursor":null}"#), SESSION),
        frame(r#","params":{"cursor":null}"#)
    );
    assert!(text(None, Era::Stateless).contains(r#""params":{"_meta":{"io.model"#));
}

#[test]
fn progress_goes_to_a_token_of_our_own() {
    let token = RequestId::Integer(77);
    let asked = params(&json!({ "name": "t", "_meta": { "progressToken": "theirs", "a": 1 } }));
    for (asked, era) in [
        (Some(&asked), SESSION),
        (None, SESSION),
        (Some(&asked), Era::Stateless),
    ] {
        let outgoing = Outgoing {
            progress_token: Some(&token),
            ..plain("tools/call", asked)
        };
        let sent = outgoing.write(&RequestId::Integer(1), &hello(), era, Carrier::Pipe);
        assert_eq!(shown(&sent)["params"]["_meta"]["progressToken"], 77);
        assert_eq!(sent.headers, []);
    }
}

/// A-42, D-33: the wish for a task is Longhaul's own, and a stateless server decides by itself (C-3).
#[test]
fn a_wish_for_a_task_is_longhaul_s_own() {
    let asked = call();
    for (wish, era, expect) in [
        (Some(60_000), SESSION, json!({ "ttl": 60_000 })),
        (None, SESSION, json!(null)),
        (Some(60_000), Era::Stateless, json!(null)),
    ] {
        let outgoing = Outgoing {
            task_ttl_ms: wish,
            ..plain("tools/call", Some(&asked))
        };
        let sent = outgoing.write(&RequestId::Integer(1), &hello(), era, Carrier::Pipe);
        assert_eq!(shown(&sent)["params"]["task"], expect, "{era:?}");
    }
}

/// B-55, A-11.
#[test]
fn a_wish_for_log_messages_is_told_in_the_way_of_the_generation() {
    let level = |era| {
        let outgoing = Outgoing {
            log_level: Some(LogLevel::Warning),
            ..plain("tools/list", None)
        };
        let sent = outgoing.write(&RequestId::Integer(1), &hello(), era, Carrier::Pipe);
        shown(&sent)
            .pointer("/params/_meta/io.modelcontextprotocol~1logLevel")
            .cloned()
    };
    assert_eq!(level(Era::Stateless), Some(json!("warning")));
    assert_eq!(level(SESSION), None);
    let set = client::set_level(LogLevel::Error);
    let value = shown(&write("logging/setLevel", Some(&set), SESSION));
    assert_is(Official::Sessions, "SetLevelRequest", &value);
}

/// B-21, B-24, C-46.
#[test]
fn headers_say_what_the_body_says() {
    let name = |method: &str, value: Value| {
        let params = params(&value);
        let sent = write(method, Some(&params), Era::Stateless);
        assert_eq!(header(&sent, "mcp-method"), Some(method));
        assert_eq!(header(&sent, "mcp-protocol-version"), Some("2026-07-28"));
        header(&sent, "mcp-name").map(str::to_owned)
    };
    for (method, value, expect) in [
        ("tools/call", json!({ "name": "index_repo" }), Some("index_repo")),
        ("prompts/get", json!({ "name": "two words" }), Some("two words")),
        ("resources/read", json!({ "uri": "file:///a" }), Some("file:///a")),
        ("tasks/get", json!({ "taskId": "x" }), Some("x")),
        (
            "tools/call",
            json!({ "name": "größe" }),
            Some("=?base64?Z3LDtsOfZQ==?="),
        ),
        ("tools/call", json!({ "name": " a" }), Some("=?base64?IGE=?=")),
        (
            "tools/call",
            json!({ "name": "a\r\nx: y" }),
            Some("=?base64?YQ0KeDogeQ==?="),
        ),
        (
            "tools/call",
            json!({ "name": "=?base64?YQ==?=" }),
            Some("=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ),
        ("resources/list", json!({ "cursor": "c" }), None),
        ("tools/call", json!({ "name": 1 }), None),
    ] {
        assert_eq!(name(method, value).as_deref(), expect, "{method}");
    }
}

fn rule() -> Vec<Mirror> {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "count": { "type": "integer", "x-mcp-header": "count" },
        "dry": { "type": "boolean", "x-mcp-header": "Dry" },
        "at": { "type": "object", "properties": { "zone": { "type": "string", "x-mcp-header": "Zone" } } },
    } });
    mirrors(&raw(&schema)).expect("good annotations")
}

/// B-25, B-26, D-39: and the server half takes what the client half writes.
#[test]
fn mirrored_arguments_stand_in_headers_that_our_own_edge_accepts() {
    let rule = rule();
    for (arguments, expect) in [
        (json!({ "region": "eu" }), vec![("mcp-param-region", "eu")]),
        (
            json!({ "region": "é" }),
            vec![("mcp-param-region", "=?base64?w6k=?=")],
        ),
        (json!({ "region": "" }), vec![("mcp-param-region", "")]),
        (
            json!({ "count": 42, "dry": true }),
            vec![("mcp-param-count", "42"), ("mcp-param-dry", "true")],
        ),
        (
            json!({ "at": { "zone": "a b" } }),
            vec![("mcp-param-zone", "a b")],
        ),
        (
            json!({ "region": null, "at": null, "dry": false }),
            vec![("mcp-param-dry", "false")],
        ),
        (json!({}), vec![]),
    ] {
        let params = params(&json!({ "name": "deploy", "arguments": arguments }));
        let outgoing = Outgoing {
            mirrors: &rule,
            ..plain("tools/call", Some(&params))
        };
        let sent = outgoing.write(&RequestId::Integer(1), &hello(), Era::Stateless, Carrier::Http);
        let mut said: Vec<(&str, &str)> = sent
            .headers
            .iter()
            .filter(|(name, _)| name.starts_with("mcp-param-"))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        said.sort_unstable();
        assert_eq!(said, expect, "{arguments}");
        let tool = longhaul_mcp::ToolRule {
            mirrors: rule.clone(),
            ..longhaul_mcp::ToolRule::default()
        };
        let call = received(&sent, Some(&tool));
        assert!(matches!(call, Request::CallTool(_)), "{call:?}");
    }
}

/// What our own stateless edge reads of a request that was sent.
fn received(sent: &Sent, tool: Option<&longhaul_mcp::ToolRule>) -> Request {
    let headers = Headers::new(
        sent.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes())),
    );
    let find = |_: &str| tool;
    let offer = crate::support::offer(&find);
    let frame = Frame::parse(&sent.frame, &Limits::default()).expect("a frame");
    match v2026_07_28::parse(Some(&headers), frame, &offer) {
        Ok(Message::Request(incoming)) => incoming.request,
        other => panic!("refused: {other:?}"),
    }
}

#[test]
fn small_messages_have_the_official_shapes() {
    let id = RequestId::Text("q-1".to_owned());
    // A-32, B-34
    let cancelled = client::cancelled(&id, "the call was cancelled", SESSION);
    assert_is(Official::Sessions, "CancelledNotification", &shown(&cancelled));
    let stateless = client::cancelled(&RequestId::Integer(3), "no more", Era::Stateless);
    assert_is(Official::Core, "CancelledNotification", &shown(&stateless));
    // A-10
    let pong = client::answer(&id, &Obj::default(), Version::LATEST);
    assert_eq!(
        shown(&pong),
        json!({ "jsonrpc": "2.0", "id": "q-1", "result": {} })
    );
    // A-81
    let refused = client::refuse(&id, &RpcError::method_not_found("roots/list"), Version::LATEST);
    assert_is(Official::Sessions, "JSONRPCErrorResponse", &shown(&refused));
    assert_eq!(header(&refused, "mcp-protocol-version"), Some("2025-11-25"));
    // B-45
    let uris = ["file:///a".to_owned()];
    let listen = client::listen(true, false, true, &uris);
    let value = shown(&write("subscriptions/listen", Some(&listen), Era::Stateless));
    assert_is(Official::Core, "SubscriptionsListenRequest", &value);
    let expect =
        json!({ "toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": uris });
    assert_eq!(value["params"]["notifications"], expect);
}

/// JSON as people write it: spellings that a parser would fold.
fn written() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1.50".to_owned()),
        Just("-0".to_owned()),
        Just("1e2".to_owned()),
        Just("12345678901234567890123".to_owned()),
        Just("0.1e-7".to_owned()),
        Just(r#""\u00e9\/""#.to_owned()),
        Just(r#""é""#.to_owned()),
        Just(r#""\ud83d\ude00""#.to_owned()),
        "\"[a-z \\t]{0,5}\"".prop_map(|text| text.replace('\t', "\\t")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let item = (any::<bool>(), inner.clone());
        let items = proptest::collection::vec(item, 0..4).prop_map(|items| {
            let items: Vec<String> = items
                .into_iter()
                .map(|(wide, item)| if wide { format!(" {item} ") } else { item })
                .collect();
            format!("[{}]", items.join(","))
        });
        let members = proptest::collection::vec(inner, 0..4).prop_map(|values| object(&values));
        prop_oneof![items, members]
    })
}

/// An object of these values, its names out of order and one of them escaped.
fn object(values: &[String]) -> String {
    const NAMES: [&str; 4] = [r#""zz""#, r#""\u0061""#, r#""task""#, r#""_meta""#];
    let members: Vec<String> = NAMES
        .iter()
        .zip(values)
        .map(|(name, value)| format!("{name} : {value}"))
        .collect();
    format!("{{{}}}", members.join(", "))
}

proptest! {
    /// B-24.
    #[test]
    fn any_name_survives_its_header(name in any::<String>()) {
        let name = name.replace('\0', "");
        let params = params(&json!({ "name": name }));
        let sent = write("tools/call", Some(&params), Era::Stateless);
        let Request::CallTool(call) = received(&sent, None) else {
            return Err(TestCaseError::fail("no call"));
        };
        prop_assert_eq!(call.name, name);
    }

    /// E-2: through the client half and back through the server half.
    #[test]
    fn arguments_and_results_keep_order_spelling_and_digits(
        arguments in proptest::collection::vec(written(), 0..4),
        vendor in written(),
        is_stateless in any::<bool>(),
    ) {
        let arguments = object(&arguments);
        let text = format!(
            r#"{{"vendor":{vendor},"arguments":{arguments},"name":"t","_meta":{{"b":{vendor},"progressToken":1,"a":{vendor}}}}}"#
        );
        let era = if is_stateless { Era::Stateless } else { SESSION };
        let params = Obj::parse(&text).expect("an object");
        let sent = write("tools/call", Some(&params), era);
        let Ok(Frame::Request { params: Some(read), .. }) = Frame::parse(&sent.frame, &Limits::default()) else {
            return Err(TestCaseError::fail("no request"));
        };
        prop_assert_eq!(read.raw("arguments").map(Raw::text), Some(arguments.as_str()));
        prop_assert_eq!(read.raw("vendor").map(Raw::text), Some(vendor.as_str()));
        let names: Vec<String> = read.0.iter().map(|(name, _)| name.unescaped().into_owned()).collect();
        prop_assert_eq!(names, ["vendor", "arguments", "name", "_meta"]);
        let members = read.obj("_meta").expect("an object");
        let kept: Vec<(String, &str)> = members.0.iter().take(2)
            .map(|(name, value)| (name.unescaped().into_owned(), value.text())).collect();
        prop_assert_eq!(kept, [("b".to_owned(), vendor.as_str()), ("a".to_owned(), vendor.as_str())]);
        if is_stateless {
            let Request::CallTool(call) = received(&sent, None) else {
                return Err(TestCaseError::fail("no call"));
            };
            prop_assert_eq!(call.arguments.as_ref().map(Raw::text), Some(arguments.as_str()));
        }

        let reply = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{arguments}}}"#);
        let read = client::read(reply.as_bytes(), &Limits::default());
        let Ok(client::Incoming::Reply { outcome: Ok(result), .. }) = read else {
            return Err(TestCaseError::fail("no reply"));
        };
        prop_assert_eq!(result.text(), arguments.as_str());
    }
}
