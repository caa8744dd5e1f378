//! The headers that mirror a body: what passes really says the same, read with other eyes, and whoever mirrors a body
//! by the rules is never refused for it.
//!
//! An input is headers, a line each, an empty line, and a body.

use std::sync::LazyLock;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use longhaul_mcp::{
    Message, ToolRule,
    edge::{self, Belongs, Edge, Offer, Received},
    frame::{Frame, Obj, Raw},
    header::{Headers, mirrors},
    malformed::{Malformed, Rule},
    reply::Relays,
    scan::Limits,
};
use serde_json::Value;

use crate::json;

/// The arguments of the tool `mirrored` that have a header: each with its path and the header's name.
const MIRRORED: &[(&[&str], &str)] = &[
    (&["text"], "Mcp-Param-Text"),
    (&["count"], "Mcp-Param-Count"),
    (&["flag"], "Mcp-Param-Flag"),
    (&["place", "city"], "Mcp-Param-City"),
];

static RULE: LazyLock<ToolRule> = LazyLock::new(|| {
    let schema = r#"{"type":"object","properties":{
        "text":{"type":"string","x-mcp-header":"Text"},
        "count":{"type":"integer","x-mcp-header":"Count"},
        "flag":{"type":"boolean","x-mcp-header":"Flag"},
        "place":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"}}},
        "free":{"type":"string"}}}"#;
    let schema = Raw::parse(schema).expect("the schema is JSON");
    ToolRule {
        mirrors: mirrors(&schema).expect("the schema follows B-25"),
        ..ToolRule::default()
    }
});

type Pairs = Vec<(String, Vec<u8>)>;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (pairs, body) = split(bytes);
    let limits = Limits::default();
    let Ok(frame) = Frame::parse(body, &limits) else {
        return;
    };
    // A frame that passes the scan is a tree for another reader, unless a number in it is none.
    let Ok(tree) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    match receive(&pairs, &frame) {
        Some(Ok(received)) => check_mirrored(&received, &pairs, &tree),
        Some(Err(malformed)) => {
            json::check_error(&Edge::Stateless.malformed(&malformed), malformed.id.as_ref());
        }
        None => {}
    }
    if let Some(right) = mirror(&frame, &tree)
        && let Some(Err(malformed)) = receive(&right, &frame)
    {
        let blames_headers = matches!(
            malformed.rule,
            Rule::HeaderMissing { .. } | Rule::HeaderMalformed { .. } | Rule::HeaderMismatch { .. }
        );
        assert!(
            !blames_headers,
            "the right headers are refused: {malformed:?} {right:?}"
        );
    }
}

fn split(bytes: &[u8]) -> (Pairs, &[u8]) {
    let mut pairs = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.is_empty() {
            break;
        }
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            // Names are what an HTTP library lets through: ASCII.
            let name = String::from_utf8_lossy(&line[..colon]).into_owned();
            pairs.push((name, line[colon + 1..].to_vec()));
        }
    }
    (pairs, rest)
}

/// `None` for a frame that no stateless edge reads.
fn receive(pairs: &Pairs, frame: &Frame) -> Option<Result<Received, Malformed>> {
    let headers = Headers::new(pairs.iter().map(|(name, value)| (&**name, &**value)));
    let offer = Offer {
        tasks: true,
        tasks_list: true,
        relays: Relays::default(),
        strict_headers: true,
        limits: Limits::default(),
        tool: &|name| (name == "mirrored").then_some(&*RULE),
    };
    let belongs = edge::of(Some(&headers), frame, None);
    (belongs == Belongs::Stateless)
        .then(|| edge::receive(Some(&headers), frame.clone(), belongs, None, &offer))
}

/// What was accepted has one header for each thing that is mirrored, and it says what the body says.
fn check_mirrored(received: &Received, pairs: &Pairs, tree: &Value) {
    let Received::Message(Message::Request(_)) = received else {
        return;
    };
    let params = &tree["params"];
    let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
    assert_eq!(said(pairs, "MCP-Protocol-Version").as_deref(), version.as_str());
    let method = tree["method"].as_str();
    assert_eq!(said(pairs, "Mcp-Method").as_deref(), method);
    match method {
        Some("tools/call") => {
            assert_eq!(said(pairs, "Mcp-Name").as_deref(), params["name"].as_str());
            if params["name"] == "mirrored" {
                check_arguments(pairs, &params["arguments"]);
            }
        }
        Some("tasks/get" | "tasks/update" | "tasks/cancel") => {
            assert_eq!(said(pairs, "Mcp-Name").as_deref(), params["taskId"].as_str());
        }
        _ => {}
    }
}

fn check_arguments(pairs: &Pairs, arguments: &Value) {
    for (path, header) in MIRRORED {
        let said = said(pairs, header);
        match argument(arguments, path) {
            Value::Null => assert_eq!(said, None, "{header}"),
            Value::String(text) => assert_eq!(said.as_ref(), Some(text), "{header}"),
            Value::Bool(flag) => assert_eq!(said, Some(flag.to_string()), "{header}"),
            Value::Number(number) => {
                let said = said.and_then(|text| text.parse::<f64>().ok());
                assert_eq!(said, number.as_f64(), "{header}");
            }
            // The check of the arguments refuses it.
            Value::Array(_) | Value::Object(_) => assert!(said.is_some(), "{header}"),
        }
    }
}

fn argument<'a>(arguments: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(arguments, |value, name| match value {
        Value::Object(_) => &value[*name],
        _ => &Value::Null,
    })
}

/// The value of the one header of this name, decoded (B-24); `None` when there is none.
fn said(pairs: &Pairs, name: &str) -> Option<String> {
    let mut all = pairs.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let (_, value) = all.next()?;
    assert!(all.next().is_none(), "`{name}` is there twice and was accepted");
    let text = std::str::from_utf8(value)
        .expect("what was accepted is ASCII")
        .trim_matches([' ', '\t']);
    let inner = text
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    Some(match inner {
        None => text.to_owned(),
        Some(inner) => {
            let bytes = BASE64_STANDARD
                .decode(inner)
                .expect("what was accepted is base64");
            String::from_utf8(bytes).expect("what was accepted is UTF-8")
        }
    })
}

/// The headers of a client that follows B-21 to B-26; `None` where the body lacks what they say.
fn mirror(frame: &Frame, tree: &Value) -> Option<Pairs> {
    let params = &tree["params"];
    let method = tree["method"].as_str()?;
    let version = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str()?;
    let mut pairs = vec![pair("MCP-Protocol-Version", version), pair("mcp-method", method)];
    let name = match method {
        "tools/call" => params["name"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => None,
    };
    pairs.extend(name.map(|name| pair("Mcp-Name", name)));
    if method == "tools/call" && name == Some("mirrored") {
        for (path, header) in MIRRORED {
            match argument(&params["arguments"], path) {
                Value::Null => {}
                Value::String(text) => pairs.push(pair(header, text)),
                Value::Bool(_) | Value::Number(_) => pairs.push(pair(header, &written(frame, path)?)),
                Value::Array(_) | Value::Object(_) => pairs.push(pair(header, "x")),
            }
        }
    }
    Some(pairs)
}

/// An argument as it was written: a tree would round a long number.
fn written(frame: &Frame, path: &[&str]) -> Option<String> {
    let Frame::Request {
        params: Some(params), ..
    } = frame
    else {
        return None;
    };
    let (last, before) = path.split_last()?;
    let arguments = before
        .iter()
        .try_fold(params.obj("arguments")?, |value: Obj, name| value.obj(name));
    Some(arguments?.raw(last)?.text().to_owned())
}

/// B-24: as it is where it is plain, else in base64.
fn pair(name: &str, value: &str) -> (String, Vec<u8>) {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && value.trim_matches(' ') == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    let value = if is_plain {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
    };
    (name.to_owned(), value.into_bytes())
}
