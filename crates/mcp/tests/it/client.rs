//! The client half: what a server is sent, and how what it sends is read.

mod dial;
mod incoming;
mod outgoing;
mod result;
mod sse;
mod tools;

use longhaul_mcp::{
    client::{Era, Hello, Sent, Version},
    frame::Obj,
};
use serde_json::Value;

const SESSION: Era = Era::Session(Version::LATEST);

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
