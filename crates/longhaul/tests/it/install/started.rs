//! What was written, started as a client starts it: with the entry's variables and hardly any others.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{Desktop, parsed};
use crate::support::Site;

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gateway/tests/it/fixtures/mcp_server.py"
);

/// The names of the tools that a client of an entry finds.
#[expect(
    clippy::disallowed_methods,
    reason = "the entry is started as its client would"
)]
fn tools(desktop: &Desktop, entry: &Value) -> Vec<String> {
    let words = entry["args"].as_array().unwrap().iter().filter_map(Value::as_str);
    let env = entry["env"].as_object().into_iter().flatten();
    let mut child = Command::new(entry["command"].as_str().unwrap())
        .args(words)
        .env_clear()
        .env("HOME", desktop.rig.home.path())
        .env("XDG_RUNTIME_DIR", desktop.rig.home.path())
        .envs(env.map(|(name, value)| (name, value.as_str().unwrap())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut send = |message: Value| writeln!(input, "{message}").unwrap();
    send(json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } },
    }));
    send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }));
    let listed = loop {
        let line = output.next().expect("a reply").unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == 2 {
            break message;
        }
    };
    drop(input);
    child.wait().unwrap();
    let tools = listed["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{listed}"));
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// A user whose server ends soon after the last client.
fn desktop() -> Desktop {
    let desktop = Desktop::new();
    let settings = "[server]\nbind = \"127.0.0.1:0\"\nidle_exit = \"1s\"\n";
    desktop.write(".config/longhaul/longhaul.toml", settings);
    desktop
}

#[test]
fn a_program_is_reached() {
    let desktop = desktop();
    let text = json!({ "mcpServers": { "here": { "command": "python3", "args": [FIXTURE, "stdio", "--era=2025"] } } });
    desktop.write(".cursor/mcp.json", &text.to_string());
    desktop.done(&["install", "cursor", "--yes"]);
    let servers = &parsed("x.json", &desktop.read(".cursor/mcp.json"))["mcpServers"];
    let found = tools(&desktop, &servers["here"]);
    assert!(
        found.contains(&"longhaul_wait".to_owned()) && found.len() > 2,
        "{found:?}"
    );
}

#[test]
fn an_address_and_a_header_that_are_secret_are_reached_by_variables() {
    let desktop = desktop();
    let token = desktop.write("token", "canary-of-a-header");
    let site = Site::start(FIXTURE, &["--era=2025", &format!("--token={}", token.display())]);
    let url = format!("{}?key=canary-of-an-address", site.url());
    let text = json!({ "mcpServers": { "far": {
        "type": "http", "url": url, "headers": { "Authorization": "Bearer canary-of-a-header" },
    } } });
    desktop.write(".cursor/mcp.json", &text.to_string());
    desktop.done(&["install", "cursor", "--yes"]);
    let servers = &parsed("x.json", &desktop.read(".cursor/mcp.json"))["mcpServers"];
    assert!(
        !servers["far"]["args"].to_string().contains("canary"),
        "{servers}"
    );
    let found = tools(&desktop, &servers["far"]);
    assert!(
        found.contains(&"longhaul_wait".to_owned()) && found.len() > 2,
        "{found:?}"
    );
    let log = fs::read_dir(desktop.rig.path("state/log")).unwrap();
    for file in log {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("canary"), "{text}");
    }
}
