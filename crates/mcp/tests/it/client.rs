//! The client half: what a server is sent, and how what it sends is read.

mod dial;
mod incoming;
mod list;
mod outgoing;
mod result;
mod sse;
mod task;
mod tools;

use longhaul_mcp::{
    client::{self, Era, Hello, Sent, Version},
    frame::Obj,
    request::Answers,
};
use serde_json::{Value, json};

use crate::support::{Official, assert_is};

const SESSION: Era = Era::Session(Version::LATEST);

/// A-70, D-29.
#[test]
fn what_can_be_asked_is_declared_by_kind_and_mode() {
    let declared = |answers: Answers| {
        let text = client::capabilities(answers).to_raw();
        let value: Value = text.read().expect("JSON");
        assert_is(Official::Sessions, "ClientCapabilities", &value);
        assert_is(Official::Core, "ClientCapabilities", &value);
        value
    };
    assert_eq!(declared(Answers::default()), json!({}));
    let url = Answers {
        url: true,
        ..Answers::default()
    };
    assert_eq!(declared(url), json!({ "elicitation": { "url": {} } }));
    let all = Answers {
        form: true,
        url: true,
        sampling: true,
        roots: true,
    };
    let expect = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    assert_eq!(declared(all), expect);
}

fn hello() -> Hello {
    // D-33: tasks are never offered.
    let capabilities = r#"{"tasks":{"requests":{"elicitation":{"create":{}}}},"elicitation":{"form":{}}}"#;
    Hello::own(Obj::parse(capabilities).expect("an object"))
}

/// The frame as JSON; it is one line.
fn shown(sent: &Sent) -> Value {
    assert!(
        !sent.frame.iter().any(|byte| matches!(byte, b'\n' | b'\r')),
        "more than a line"
    );
    serde_json::from_slice(&sent.frame).expect("JSON")
}

fn header<'a>(sent: &'a Sent, name: &str) -> Option<&'a str> {
    let mut found = sent.headers.iter().filter(|(other, _)| other == name);
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "{name} twice");
    value
}
