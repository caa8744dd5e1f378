//! Another reader's view of JSON: `serde_json`'s tree. The targets compare ours with it.

use longhaul_mcp::{RequestId, scan};
use serde_json::Value;

/// Whether two trees hold the same values. Numbers are compared as doubles: `10` and `1e1` are the same.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Checks that `frame` is one line with a JSON-RPC error that answers `id`, and that our own scan takes it.
pub(crate) fn check_error(frame: &[u8], id: Option<&RequestId>) {
    let value = check_reply(frame, id);
    let error = &value["error"];
    assert!(error["code"].is_i64(), "the code is no integer: {value}");
    assert!(
        error["message"].as_str().is_some_and(|text| !text.is_empty()),
        "no message: {value}"
    );
}

/// Checks that `frame` is one line with a JSON-RPC message for `id`, and that our own scan takes it.
pub(crate) fn check_reply(frame: &[u8], id: Option<&RequestId>) -> Value {
    assert!(
        !frame.contains(&b'\n') && !frame.contains(&b'\r'),
        "more than one line"
    );
    scan::frame(frame, &scan::Limits::default()).expect("our own frames pass the scan");
    let value: Value = serde_json::from_slice(frame).expect("our own frames are JSON");
    assert_eq!(value["jsonrpc"], "2.0");
    match id {
        None => assert!(value.get("id").is_none(), "an id from nowhere: {value}"),
        Some(RequestId::Text(text)) => assert_eq!(value["id"].as_str(), Some(&**text)),
        Some(RequestId::Integer(number)) => {
            // A tree has no place for more than 64 bits: the text is looked at.
            let text = std::str::from_utf8(frame).expect("JSON is text");
            assert!(text.contains(&format!("\"id\":{number}")), "another id: {text}");
        }
    }
    value
}
