//! Pipes that die, and servers that die behind them.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Client, Place, plain_meta};

#[test]
fn a_task_outlives_the_client_that_began_it_and_another_finds_it() {
    let place = Place::new("");
    let mut first = place.pipe();
    let task = first.task("counts");
    first.kill();
    place.open();
    let mut second = place.pipe();
    assert_eq!(second.ended(&task)["result"]["content"][0]["text"], "over");
    assert_eq!(place.runs(), 1);
}

#[test]
fn a_call_whose_client_was_killed_is_a_task_that_its_owner_finds() {
    let place = Place::new("");
    let mut first = place.pipe();
    first.ask(
        "tools/call",
        json!({ "name": "counts", "arguments": {}, "_meta": {} }),
    );
    let name = place.until_runs("counts");
    first.kill();
    place.open();
    let done = place.rig.until_state(&name, "done");
    assert_eq!(done["tool"], "counts");
}

#[test]
fn a_pipe_outlives_its_server_and_its_client_notices_nothing() {
    let place = Place::new("");
    let mut client = place.pipe();
    let opened = client.ask_plainly(
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } }),
    );
    assert_eq!(client.reply(opened)["result"]["protocolVersion"], "2025-11-25");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for _ in 0..3 {
        let id = client.ask_plainly("tools/list", json!({}));
        assert_eq!(client.reply(id)["result"]["tools"][0]["name"], "waits");
        place.signal_server(Signal::SIGKILL);
    }
    let id = client.ask_plainly("ping", json!({}));
    assert_eq!(client.reply(id)["result"], json!({}));
    assert!(
        client.kept.is_empty(),
        "a replayed opening has no reply: {:?}",
        client.kept
    );
}

#[test]
fn a_call_for_a_task_that_lost_its_server_happens_once() {
    let place = Place::new("");
    let mut client = session(&place, json!({}));
    let call = json!({ "name": "says", "arguments": {}, "task": {} });
    // The server may be killed before, between and after: however often the call is sent, it is one task.
    for _ in 0..5 {
        let id = client.ask_plainly("tools/call", call.clone());
        place.signal_server(Signal::SIGKILL);
        assert!(client.reply(id)["result"]["task"]["taskId"].is_string());
    }
    let ran = place.rig.run(&["--json", "tasks"]);
    let tasks: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 5, "{tasks:#}");
}

#[test]
fn a_plain_call_that_lost_its_server_is_answered() {
    let place = Place::new("");
    let mut client = place.pipe();
    let params = json!({ "name": "counts", "arguments": {}, "_meta": plain_meta() });
    let id = client.ask_plainly("tools/call", params);
    let name = place.until_runs("counts");
    place.rig.until(&name, |_| place.runs() == 1);
    place.signal_server(Signal::SIGKILL);
    place.open();
    // Its work ended with the server that ran it, and was not run again.
    let reply = client.reply(id);
    assert_eq!(reply["error"]["data"]["reason"], "interrupted", "{reply}");
    assert_eq!(place.runs(), 1);
}

/// The steps at which a pipe is killed.
const STEPS: usize = 5;

fn live_until(client: &mut Client, step: usize) {
    if step == 0 {
        return;
    }
    let opened = client.ask_plainly(
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } }),
    );
    if step == 1 {
        return;
    }
    client.reply(opened);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    if step == 2 {
        return;
    }
    let task = client.ask_plainly(
        "tools/call",
        json!({ "name": "waits", "arguments": {}, "task": {} }),
    );
    if step == 3 {
        return;
    }
    let task = client.reply(task)["result"]["task"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    client.ask_plainly("tasks/result", json!({ "taskId": task }));
}

#[test]
fn ten_pipes_killed_at_every_step_lose_nothing_and_leave_nothing() {
    let place = Place::new("");
    let mut begun = 0;
    for step in 0..STEPS {
        let mut clients: Vec<Client> = (0..10).map(|_| place.pipe()).collect();
        for client in &mut clients {
            live_until(client, step);
        }
        if step == STEPS - 1 {
            begun += clients.len();
        }
        for client in &mut clients {
            client.kill();
        }
    }
    // Every call that was told to be a task is there. One that was killed with its request on the way may be.
    let tasks = || -> Vec<Value> {
        let ran = place.rig.run(&["--json", "tasks", "--limit", "1000"]);
        serde_json::from_str::<Value>(&ran.out).unwrap()["tasks"]
            .as_array()
            .unwrap()
            .clone()
    };
    let open = tasks();
    assert!(open.len() >= begun, "{} of {begun}", open.len());
    place.open();
    for task in &open {
        place.rig.until_state(task["name"].as_str().unwrap(), "done");
    }
    let log = place.rig.run(&["logs", "-n", "100000"]).out;
    for word in ["locked", "panicked", "ERROR"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
    // The socket's connections are those of the commands only.
    let pid = place.server_pid();
    let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let sockets = sockets.filter(|entry| {
        let target = entry
            .as_ref()
            .ok()
            .and_then(|entry| std::fs::read_link(entry.path()).ok());
        target.is_some_and(|target| target.to_string_lossy().starts_with("socket:"))
    });
    assert!(sockets.count() <= 8, "connections of dead pipes are open");
}

/// A client of the older generation, at a pipe, with its session open.
fn session(place: &Place, capabilities: Value) -> Client {
    let mut client = place.pipe();
    let opened = client.ask_plainly(
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": { "name": "test", "version": "1" } }),
    );
    client.reply(opened);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    client
}

#[test]
fn a_task_of_one_generation_is_found_by_a_client_of_the_other() {
    let place = Place::new("");
    let mut old = session(&place, json!({}));
    let began = old.ask_plainly(
        "tools/call",
        json!({ "name": "counts", "arguments": {}, "task": {} }),
    );
    let task = old.reply(began)["result"]["task"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    old.kill();
    let mut new = place.pipe();
    assert_eq!(
        new.call("tasks/get", json!({ "taskId": task }))["result"]["status"],
        "working"
    );
    let second = new.task("waits");
    new.kill();
    let mut old = session(&place, json!({}));
    let waits = old.ask_plainly("tasks/result", json!({ "taskId": second }));
    place.open();
    assert_eq!(old.reply(waits)["result"]["content"][0]["text"], "over");
    let listed = old.ask_plainly("tasks/list", json!({}));
    let listed = old.reply(listed);
    let ids: Vec<&str> = listed["result"]["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|task| task["taskId"].as_str())
        .collect();
    assert!(ids.contains(&&*task) && ids.contains(&&*second), "{listed}");
    assert_eq!(place.runs(), 1);
}

#[test]
fn a_wait_for_a_result_outlives_its_server() {
    let place = Place::new("");
    let mut client = session(&place, json!({}));
    let began = client.ask_plainly(
        "tools/call",
        json!({ "name": "waits", "arguments": {}, "task": {} }),
    );
    let task = client.reply(began)["result"]["task"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    place.until_runs("waits");
    let waits = client.ask_plainly("tasks/result", json!({ "taskId": task }));
    let ping = client.ask_plainly("ping", json!({}));
    client.reply(ping);
    place.signal_server(Signal::SIGKILL);
    // The work ended with its server; the wait is told so by the next one.
    let reply = client.reply(waits);
    assert_eq!(reply["error"]["data"]["reason"], "interrupted", "{reply}");
}

#[test]
fn a_question_comes_over_the_pipe_and_its_answer_goes_back() {
    let place = Place::new(ASKS);
    let mut client = session(&place, json!({ "elicitation": {} }));
    let began = client.ask_plainly(
        "tools/call",
        json!({ "name": "asks", "arguments": {}, "task": {} }),
    );
    let task = client.reply(began)["result"]["task"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    let waits = client.ask_plainly("tasks/result", json!({ "taskId": task }));
    let question = loop {
        let frame = client.expect();
        if frame["method"] == "elicitation/create" {
            break frame;
        }
    };
    let message = question["params"]["message"].as_str().unwrap();
    assert!(
        message.ends_with(", called by test:\n\nWhich colour?"),
        "{message}"
    );
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": { "answer": "red" } } }));
    let reply = client.reply(waits);
    assert!(
        reply["result"]["content"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("red")),
        "{reply}"
    );
}

const ASKS: &str = r#"
[tools.asks]
description = "Asks for a colour."
command = ["sh", "-c", "longhaul ask --text 'Which colour?' --choices red,green"]
"#;
