//! A plain call is at work at a server behind a URL when Longhaul ends: where its stream can be read again, it is gone on
//! with, and called once.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Http, Rig};

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gateway/tests/it/fixtures/mcp_server.py"
);

/// A server behind a URL, killed when the test ends.
struct Site {
    child: Child,
    port: u16,
}

impl Site {
    #[expect(
        clippy::disallowed_methods,
        reason = "a server behind a URL is nobody's child in production"
    )]
    fn start() -> Site {
        let mut child = Command::new("python3")
            .args([FIXTURE, "http", "--era=2025", "--resumable"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().strip_prefix("listening ").expect("its port");
        Site {
            port: port.parse().unwrap(),
            child,
        }
    }

    fn rig(&self, settings: &str) -> Rig {
        Rig::new(&format!(
            "[servers.far]\nrequired = true\nurl = \"http://127.0.0.1:{}/mcp\"\n{settings}",
            self.port
        ))
    }

    fn get(&self, path: &str) -> Http {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Http::parse(&text)
    }

    /// What it has seen.
    fn seen(&self) -> Value {
        serde_json::from_str(&self.get("/seen").body).expect("JSON")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

/// The text of a finished task's result.
fn result(rig: &Rig, name: &str) -> Value {
    let ran = rig.run(&["--json", "tasks", "result", name]);
    let outcome: Value = serde_json::from_str(&ran.out).expect("JSON");
    let text = outcome["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("no text: {outcome}"))).expect("JSON")
}

// T17, A-23
#[test]
fn what_was_answered_before_a_crash_is_not_asked_again_and_what_was_open_is() {
    let site = Site::start();
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
    let answers = result(&rig, &name);
    assert_eq!(answers["First?"]["content"]["name"], "Ada");
    assert_eq!(answers["Second?"]["content"]["name"], "Grace");
    let seen = site.seen();
    assert_eq!(seen["calls"], json!({ "inquire": 1 }));
    assert_eq!(seen["cancelled"], json!([]));
}

// T21
#[test]
fn a_restart_in_order_leaves_a_call_at_work() {
    let site = Site::start();
    let rig = site.rig("");
    let mut server = rig.serve();
    let name = inquire(&rig, &["Who?"]);
    rig.until(&name, |task| asks(task, "Who?"));
    server.signal(Signal::SIGTERM);
    assert!(server.ended().success());
    let _server = rig.serve();
    rig.until(&name, |task| asks(task, "Who?") || task["state"] == "lost");
    answer(&rig, &name, "Ada");
    rig.until_state(&name, "done");
    assert_eq!(result(&rig, &name)["Who?"]["content"]["name"], "Ada");
    let seen = site.seen();
    assert_eq!(seen["calls"], json!({ "inquire": 1 }));
    assert_eq!(seen["cancelled"], json!([]));
}

// D-38
#[test]
fn a_call_of_a_session_that_its_server_forgot_was_interrupted_and_is_not_made_again() {
    let site = Site::start();
    let rig = site.rig("");
    let mut server = rig.serve();
    let name = inquire(&rig, &["Who?"]);
    rig.until(&name, |task| asks(task, "Who?"));
    server.kill();
    assert_eq!(site.get("/forget").status, 200);
    let _server = rig.serve();
    let task = rig.until_state(&name, "lost");
    assert!(task["questions"].is_null(), "{task:#}");
    assert_eq!(site.seen()["calls"]["inquire"], 1);
}

// T24
#[test]
fn a_call_that_is_cancelled_after_a_crash_is_cancelled_at_its_server() {
    let site = Site::start();
    let rig = site.rig("");
    let mut server = rig.serve();
    let name = inquire(&rig, &["Who?"]);
    rig.until(&name, |task| asks(task, "Who?"));
    server.kill();
    let _server = rig.serve();
    rig.until(&name, |task| asks(task, "Who?"));
    assert_eq!(rig.run(&["cancel", &name]).code, 0);
    rig.until(&name, |task| {
        task["state"] == "cancelled" && task["stop"] != "stopping"
    });
    assert_eq!(site.seen()["cancelled"].as_array().map(Vec::len), Some(1));
}

// T15
#[test]
fn a_tool_that_may_be_called_again_is_called_again() {
    let site = Site::start();
    let rig = site.rig("on_crash = \"rerun\"\n");
    let mut server = rig.serve();
    let name = inquire(&rig, &["Who?"]);
    rig.until(&name, |task| asks(task, "Who?"));
    server.kill();
    let _server = rig.serve();
    rig.until(&name, |task| asks(task, "Who?") && task["attempts"] == 2);
    answer(&rig, &name, "Ada");
    rig.until_state(&name, "done");
    assert_eq!(site.seen()["calls"], json!({ "inquire": 2 }));
}
