//! The server in the background: when it begins, when it ends, and how it makes way.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Client, Place, plain_meta};
use crate::support::PATIENCE;

/// Waits for the end of a process that is no child of this one.
fn until_gone(pid: i32) {
    let deadline = longhaul_engine::clock::monotonic() + PATIENCE;
    let process = rustix::process::Pid::from_raw(pid).unwrap();
    // A process descriptor is readable when its process has ended.
    let Ok(descriptor) = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()) else {
        return;
    };
    let left = deadline.saturating_duration_since(longhaul_engine::clock::monotonic());
    let mut polled = [rustix::event::PollFd::new(
        &descriptor,
        rustix::event::PollFlags::IN,
    )];
    let time = rustix::event::Timespec::try_from(left).unwrap();
    let ready = rustix::event::poll(&mut polled, Some(&time)).unwrap();
    assert_eq!(ready, 1, "process {pid} has not ended");
}

#[test]
fn a_server_that_nobody_needs_ends_and_the_next_client_starts_one() {
    let place = Place::new("idle_exit = \"200ms\"");
    let mut client = place.pipe();
    let task = client.task("waits");
    client.leave();
    assert_eq!(client.exit(), 0);
    // The open task keeps it: only when it has ended is there nothing left to do.
    let pid = place.server_pid();
    place.open();
    until_gone(pid);
    let mut next = place.pipe();
    assert_eq!(next.ended(&task)["result"]["content"][0]["text"], "over");
    assert_ne!(place.server_pid(), pid);
}

#[test]
fn a_client_keeps_its_server() {
    let place = Place::new("idle_exit = \"100ms\"");
    let mut client = place.pipe();
    client.call("tools/list", json!({}));
    let pid = place.server_pid();
    // Far longer than the idle time, measured by work rather than by a clock.
    for _ in 0..20 {
        place.rig.run(&["tasks"]);
    }
    assert_eq!(place.server_pid(), pid);
}

#[test]
fn the_server_that_is_replaced_finishes_its_work_and_its_clients_notice_nothing() {
    let place = Place::new("");
    let mut client = place.pipe();
    let task = client.task("counts");
    place.until_runs("counts");
    let plain = json!({ "name": "waits", "arguments": {}, "_meta": plain_meta() });
    let held = client.ask_plainly("tools/call", plain);
    place.until_runs("waits");
    let listens = client.ask(
        "subscriptions/listen",
        json!({ "notifications": { "taskIds": [task] } }),
    );
    client.call("tools/list", json!({}));
    let old = place.server_pid();
    let server = Client::start(&place.rig, &["serve", "--replace"]);
    assert_eq!(place.server_but(old), i32::try_from(server.child.id()).unwrap());
    let found = client.call("tasks/get", json!({ "taskId": task }));
    assert_eq!(found["result"]["status"], "working", "{found}");
    place.open();
    assert_eq!(client.reply(held)["result"]["content"][0]["text"], "over");
    client.reply(listens);
    until_gone(old);
    let ended = client.ended(&task);
    assert_eq!(ended["result"]["content"][0]["text"], "over", "{ended}");
    assert_eq!(place.runs(), 1);
}

// the token of the call stays good, whatever becomes of the server.
#[test]
fn progress_goes_on_at_the_next_server() {
    let place = Place::new("");
    let mut client = place.pipe();
    let opened = client.ask_plainly(
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } }),
    );
    client.reply(opened);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let called = client.ask_plainly(
        "tools/call",
        json!({ "name": "steps", "arguments": {}, "task": {}, "_meta": { "progressToken": "p" } }),
    );
    let task = client.reply(called)["result"]["task"]["taskId"].clone();
    place.until_runs("steps");
    let old = place.server_pid();
    let _server = Client::start(&place.rig, &["serve", "--replace"]);
    place.server_but(old);
    let waits = client.ask_plainly("tasks/result", json!({ "taskId": task }));
    let got = client.ask_plainly("tasks/get", json!({ "taskId": task }));
    assert_eq!(client.reply(got)["result"]["status"], "working");
    place.open();
    loop {
        let frame = client.expect();
        if frame["method"] == "notifications/progress" {
            assert_eq!(frame["params"]["progressToken"], "p");
            break;
        }
    }
    std::fs::write(place.gate.with_extension("end"), "").unwrap();
    assert_eq!(client.reply(waits)["result"]["content"][0]["text"], "1/2\nover");
}

#[test]
fn a_client_that_reads_no_more_ends_its_pipe() {
    let place = Place::new("");
    let mut client = place.pipe();
    client.call("tools/list", json!({}));
    assert_eq!(client.exit_unread(), 0);
}

#[test]
fn a_task_of_the_server_that_made_way_can_be_cancelled_at_the_next() {
    let place = Place::new("");
    let mut client = place.pipe();
    let task = client.task("waits");
    let old = place.server_pid();
    let _server = Client::start(&place.rig, &["serve", "--replace"]);
    place.server_but(old);
    client.call("tasks/cancel", json!({ "taskId": task }));
    // Its work was the last that the old server had.
    until_gone(old);
    assert_eq!(
        client.call("tasks/get", json!({ "taskId": task }))["result"]["status"],
        "cancelled"
    );
}

#[test]
fn ten_clients_that_find_no_server_start_one() {
    let place = Place::new("");
    let mut clients: Vec<Client> = (0..10).map(|_| place.pipe()).collect();
    for client in &mut clients {
        assert!(client.call("tools/list", json!({}))["result"].is_object());
    }
    let log = place.rig.run(&["logs", "-n", "1000"]).out;
    assert_eq!(
        log.matches("\"ready\"").count().max(log.matches("ready").count()),
        1,
        "{log}"
    );
}

#[test]
fn an_address_that_is_taken_keeps_no_background_server_from_starting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new("");
    let config = std::fs::read_to_string(place.rig.path("longhaul.toml")).unwrap();
    let config = config.replacen("127.0.0.1:0", &taken.local_addr().unwrap().to_string(), 1);
    std::fs::write(place.rig.path("longhaul.toml"), config).unwrap();
    let mut client = place.pipe();
    assert!(client.call("tools/list", json!({}))["result"].is_object());
    let link = place.rig.run(&["page"]);
    assert_eq!(link.code, 0, "{link:?}");
    assert!(
        !link
            .out
            .contains(&format!(":{}/", taken.local_addr().unwrap().port())),
        "{link:?}"
    );
}

#[test]
fn a_server_that_cannot_start_is_told_in_one_line_and_an_exit_code() {
    let place = Place::new("");
    std::fs::write(place.rig.path("longhaul.toml"), "[server]\nbind = 5\n").unwrap();
    let mut client = place.pipe();
    assert_eq!(client.hear(), None);
    assert_eq!(client.exit(), 5);
    let complaints = client.complaints();
    assert!(
        complaints.starts_with("longhaul: the server did not start"),
        "{complaints}"
    );
}

#[test]
fn a_drained_server_ends_a_direct_clients_calls_with_their_replies() {
    let place = Place::new("drain = \"30s\"");
    let mut client = Client::start(&place.rig, &["serve", "--stdio"]);
    let plain = json!({ "name": "waits", "arguments": {}, "_meta": plain_meta() });
    let held = client.ask_plainly("tools/call", plain);
    place.until_runs("waits");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(client.child.id()).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    place.open();
    assert_eq!(client.reply(held)["result"]["content"][0]["text"], "over");
    assert_eq!(client.exit(), 0);
}
