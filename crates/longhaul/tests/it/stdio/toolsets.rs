//! Pipes that are shown one toolset.

use serde_json::{Value, json};

use super::{Client, Place};

const SHORT: &str = "[toolsets.short]\ntools = [\"says\"]\ndescription = \"What is quick.\"\n";

fn listed(client: &mut Client) -> Vec<Value> {
    let reply = client.call("tools/list", json!({}));
    let tools = reply["result"]["tools"].as_array().expect("a list").clone();
    tools.into_iter().map(|tool| tool["name"].clone()).collect()
}

#[test]
fn a_pipe_of_a_toolset_shows_its_tools_and_no_others() {
    let place = Place::new(SHORT);
    let own: [&[&str]; 2] = [
        &["stdio", "--toolset", "short"],
        &["serve", "--stdio", "--toolset", "short"],
    ];
    for arguments in own {
        let mut client = Client::start(&place.rig, arguments);
        assert_eq!(listed(&mut client), ["says", "longhaul_wait"], "{arguments:?}");
        let refused = client.call("tools/call", json!({ "name": "counts", "arguments": {} }));
        assert_eq!(refused["error"]["message"], "Unknown tool: counts", "{refused}");
        let opening = client.ask_plainly(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } }),
        );
        assert_eq!(client.reply(opening)["result"]["protocolVersion"], "2025-11-25");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let id = client.ask_plainly("tools/list", json!({}));
        let in_session = client.reply(id);
        assert_eq!(in_session["result"]["tools"][0]["name"], "says", "{in_session}");
        let id = client.ask_plainly("tools/call", json!({ "name": "counts", "arguments": {} }));
        let refused = client.reply(id);
        assert_eq!(refused["error"]["message"], "Unknown tool: counts", "{refused}");
        let id = client.ask_plainly("tools/call", json!({ "name": "says", "arguments": {} }));
        assert_eq!(client.reply(id)["result"]["content"][0]["text"], "hello");
    }
    assert_eq!(place.runs(), 0);
}

#[test]
fn a_pipe_of_a_toolset_that_is_none_ends_and_says_so() {
    let place = Place::new(SHORT);
    for arguments in [
        ["stdio", "--toolset", "long"].as_slice(),
        &["stdio", "--toolset", "../x"],
    ] {
        let mut client = Client::start(&place.rig, arguments);
        let said = client.complaints();
        assert!(said.contains("toolset"), "{said}");
        assert_ne!(client.exit(), 0);
        // Also where the client has already closed its side, and said nothing.
        let ran = place.rig.run(arguments);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.err.contains("toolset"), "{ran:?}");
    }
    let mut client = Client::start(&place.rig, &["serve", "--stdio", "--toolset", "long"]);
    let said = client.complaints();
    assert!(said.contains("no toolset is named `long`"), "{said}");
    assert_eq!(client.exit(), 2);
}

#[test]
fn doctor_and_servers_name_the_toolsets() {
    let place =
        Place::new("[toolsets.short]\ntools = [\"says\", \"x*\"]\ndescription = \"What is quick.\"\n");
    let checked = place.rig.run(&["config", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.out.contains("1 toolset"), "{checked:?}");
    assert!(
        checked.err.contains("`x*` of toolset `short` fits no tool"),
        "{checked:?}"
    );
    let mut client = place.pipe();
    listed(&mut client);
    let doctor = place.rig.run(&["doctor"]);
    let row = doctor.out.lines().find(|line| line.contains("at /mcp/"));
    let row = row.unwrap_or_else(|| panic!("{doctor:?}"));
    assert!(
        row.contains("short: 1 tool at /mcp/short; What is quick; these fit"),
        "{row}"
    );
    assert!(
        row.starts_with("odd") && row.contains("these fit no tool: x*"),
        "{row}"
    );
}
