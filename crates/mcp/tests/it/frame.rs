//! Frames keep their members, and tell their three shapes apart.

use longhaul_mcp::{
    Malformed, RequestId,
    frame::{Frame, Obj, Raw},
    malformed::Rule,
    scan::{self, Limits},
};

fn read(text: &str) -> Result<Frame, Malformed> {
    Frame::read(scan::frame(text.as_bytes(), &Limits::default()).expect("passes the scan"))
}

#[test]
fn members_keep_order_spelling_and_digits() {
    let text = r#"{"b":1.50,"\u0061":12345678901234567890123,"c":"\u00e9","d":{"z":1,"y":2}}"#;
    let mut object = Obj::parse(text).expect("an object");
    assert_eq!(object.to_raw().text(), text);
    object.set("c", "x");
    object.set("e", &true);
    assert_eq!(object.raw("a").map(Raw::text), Some("12345678901234567890123"));
    assert_eq!(object.take("b").as_ref().map(Raw::text), Some("1.50"));
    object.edit("d", |inner| drop(inner.take("z")));
    assert_eq!(
        object.to_raw().text(),
        r#"{"\u0061":12345678901234567890123,"c":"x","d":{"y":2},"e":true}"#
    );
}

#[test]
fn no_params_is_not_empty_params() {
    let params = |text: &str| {
        let Ok(Frame::Request { params, .. }) = read(text) else {
            panic!("no request: {text}")
        };
        params
    };
    assert_eq!(params(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#), None);
    assert_eq!(
        params(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#),
        Some(Obj::default())
    );
}

#[test]
fn an_id_is_a_string_or_an_integer_and_never_null() {
    let id = |id: &str| read(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#));
    for (text, expect) in [
        ("\"a\\u0062\"", RequestId::Text("ab".to_owned())),
        ("\"\"", RequestId::Text(String::new())),
        ("-3", RequestId::Integer(-3)),
        (
            "18446744073709551616",
            RequestId::Integer(18_446_744_073_709_551_616),
        ),
    ] {
        assert!(
            matches!(id(text), Ok(Frame::Request { id, .. }) if id == expect),
            "{text}"
        );
    }
    for text in ["null", "1.5", "1e3", "true", "[]", "{}"] {
        assert_eq!(
            id(text),
            Err(Malformed {
                id: None,
                rule: Rule::BadId
            }),
            "{text}"
        );
    }
}

#[test]
fn a_notification_has_no_id() {
    let frame = read(r#"{"jsonrpc":"2.0","method":"m"}"#).expect("a frame");
    assert_eq!(
        frame,
        Frame::Notification {
            method: "m".to_owned(),
            params: None
        }
    );
}

#[test]
fn a_response_has_a_result_or_an_error() {
    let outcome = |text: &str| {
        let Ok(Frame::Response { id, outcome }) = read(text) else {
            panic!("no response: {text}")
        };
        (id, outcome.is_ok())
    };
    assert_eq!(
        outcome(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        (Some(RequestId::Integer(1)), true)
    );
    assert_eq!(
        outcome(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#),
        (None, false)
    );
    for id in ["1.5", "{}", "true"] {
        let bad = read(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{}}}}"#));
        assert_eq!(bad.map_err(|bad| bad.rule), Err(Rule::BadId), "{id}");
    }
    for bad in [
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"error":2}"#,
    ] {
        assert_eq!(
            read(bad),
            Err(Malformed {
                id: Some(RequestId::Integer(1)),
                rule: Rule::BadMethod
            })
        );
    }
}

/// One reader takes such a frame for a request, another for a response.
#[test]
fn a_frame_is_a_request_or_a_response_and_never_both() {
    for bad in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","error":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":null,"error":{}}"#,
    ] {
        assert_eq!(
            read(bad),
            Err(Malformed {
                id: Some(RequestId::Integer(1)),
                rule: Rule::RequestAndResponse
            })
        );
    }
    let notice = read(r#"{"jsonrpc":"2.0","method":"notifications/initialized","result":{}}"#);
    assert_eq!(notice.map_err(|bad| bad.rule), Err(Rule::RequestAndResponse));
}

#[test]
fn payloads_never_show_in_debug_output() {
    let frame = read(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"x":"hunter2"}}}"#);
    assert!(!format!("{frame:?}").contains("hunter2"));
}
