//! A plain call is at work at a server behind a URL when Longhaul ends: where its stream can be read again, it is gone on
//! with, and called once.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Rig, Server, Site};

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gateway/tests/it/fixtures/mcp_server.py"
);

/// A server whose streams can be read again.
fn resumable() -> Site {
    Site::start(FIXTURE, &["--era=2025", "--resumable"])
}

/// What it has seen.
fn seen(site: &Site) -> Value {
    serde_json::from_str(&site.get("/seen").body).expect("JSON")
}

fn form(message: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "message": message,
            "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } }
        }
    })
}

/// Begins a call that asks these, one after the other.
fn inquire(rig: &Rig, messages: &[&str]) -> String {
    let asks: serde_json::Map<String, Value> = messages
        .iter()
        .map(|message| ((*message).to_owned(), form(message)))
        .collect();
    rig.start(&[
        "inquire",
        "in_turn:=true",
        &format!("asks:={}", Value::Object(asks)),
    ])
}

fn asks(task: &Value, message: &str) -> bool {
    task["state"] == "asking" && task["questions"][0]["message"] == message
}

fn answer(rig: &Rig, task: &str, name: &str) {
    let ran = rig.run(&["answer", task, &format!("name={name}")]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// A call of a tool with these settings that asks who somebody is.
fn asking(settings: &str) -> (Site, Rig, Server, String) {
    let site = resumable();
    let rig = site.rig(settings);
    let server = rig.serve();
    let name = inquire(&rig, &["Who?"]);
    rig.until(&name, |task| asks(task, "Who?"));
    (site, rig, server, name)
}

// T17, A-23
#[test]
fn what_was_answered_before_a_crash_is_not_asked_again_and_what_was_open_is() {
    let site = resumable();
    let rig = site.rig("");
    let mut server = rig.serve();
    let name = inquire(&rig, &["First?", "Second?"]);
    rig.until(&name, |task| asks(task, "First?"));
    answer(&rig, &name, "Ada");
    rig.until(&name, |task| asks(task, "Second?"));
    server.kill();
    let _server = rig.serve();
    let task = rig.until(&name, |task| asks(task, "Second?") || task["state"] == "lost");
    assert_eq!(task["questions"].as_array().map(Vec::len), Some(1), "{task:#}");
    answer(&rig, &name, "Grace");
    rig.until_state(&name, "done");
    let answers = rig.result(&name);
    assert_eq!(answers["First?"]["content"]["name"], "Ada");
    assert_eq!(answers["Second?"]["content"]["name"], "Grace");
    let seen = seen(&site);
    assert_eq!(seen["calls"], json!({ "inquire": 1 }));
    assert_eq!(seen["cancelled"], json!([]));
}

// T21
#[test]
fn a_restart_in_order_leaves_a_call_at_work() {
    let (site, rig, mut server, name) = asking("");
    server.signal(Signal::SIGTERM);
    assert!(server.ended().success());
    let _server = rig.serve();
    rig.until(&name, |task| asks(task, "Who?") || task["state"] == "lost");
    answer(&rig, &name, "Ada");
    rig.until_state(&name, "done");
    assert_eq!(rig.result(&name)["Who?"]["content"]["name"], "Ada");
    let seen = seen(&site);
    assert_eq!(seen["calls"], json!({ "inquire": 1 }));
    assert_eq!(seen["cancelled"], json!([]));
}

// D-38
#[test]
fn a_call_of_a_session_that_its_server_forgot_was_interrupted_and_is_not_made_again() {
    let (site, rig, mut server, name) = asking("");
    server.kill();
    assert_eq!(site.get("/forget").status, 200);
    let _server = rig.serve();
    let task = rig.until_state(&name, "lost");
    assert!(task["questions"].is_null(), "{task:#}");
    assert_eq!(seen(&site)["calls"]["inquire"], 1);
}

// T24
#[test]
fn a_call_that_is_cancelled_after_a_crash_is_cancelled_at_its_server() {
    let (site, rig, mut server, name) = asking("");
    server.kill();
    let _server = rig.serve();
    rig.until(&name, |task| asks(task, "Who?"));
    assert_eq!(rig.run(&["cancel", &name]).code, 0);
    rig.until(&name, |task| {
        task["state"] == "cancelled" && task["stop"] != "stopping"
    });
    assert_eq!(seen(&site)["cancelled"].as_array().map(Vec::len), Some(1));
}

// T15
#[test]
fn a_tool_that_may_be_called_again_is_called_again() {
    let (site, rig, mut server, name) = asking("on_crash = \"rerun\"\n");
    server.kill();
    let _server = rig.serve();
    rig.until(&name, |task| asks(task, "Who?") && task["attempts"] == 2);
    answer(&rig, &name, "Ada");
    rig.until_state(&name, "done");
    assert_eq!(seen(&site)["calls"], json!({ "inquire": 2 }));
}
