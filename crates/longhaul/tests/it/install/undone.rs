//! What `uninstall` makes of a file: the bytes of before, or what somebody else made of it since.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Stdio,
};

use serde_json::json;

use super::{CLIENTS, Desktop, parsed};

#[test]
fn uninstall_restores_every_file_byte_for_byte() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "all", "--yes"]);
    for (client, file, text) in CLIENTS {
        assert_ne!(desktop.read(file), text, "{client}");
    }
    let ran = desktop.done(&["uninstall", "all"]);
    assert!(ran.out.contains("byte for byte"), "{ran:?}");
    for (client, file, text) in CLIENTS {
        assert_eq!(desktop.read(file), text, "{client}");
    }
    assert_eq!(desktop.done(&["uninstall", "all"]).out.trim(), "nothing to undo");
    assert_eq!(desktop.run(&["uninstall", "cursor"]).code, 3);
}

#[test]
fn a_second_install_changes_nothing_and_one_uninstall_undoes_both() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "all", "--yes"]);
    let once: Vec<String> = CLIENTS.iter().map(|(_, file, _)| desktop.read(file)).collect();
    let ran = desktop.done(&["install", "all"]);
    assert_eq!(ran.out.matches("nothing to do").count(), CLIENTS.len(), "{ran:?}");
    let twice: Vec<String> = CLIENTS.iter().map(|(_, file, _)| desktop.read(file)).collect();
    assert_eq!(once, twice);
    // A server that came later is put behind Longhaul, too; undoing takes it back with the others.
    let later = once[0].replace(
        "\"git\":",
        "\"later\": { \"command\": \"lh-server\" },\n        \"git\":",
    );
    desktop.write(CLIENTS[0].1, &later);
    desktop.done(&["install", "claude-desktop", "--yes"]);
    desktop.done(&["uninstall", "claude-desktop"]);
    let meant = CLIENTS[0].2.replace(
        "\"git\":",
        "\"later\": { \"command\": \"lh-server\" },\n        \"git\":",
    );
    assert_eq!(desktop.read(CLIENTS[0].1), meant);
}

#[test]
fn what_somebody_changed_since_stays_when_the_rest_is_undone() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "all", "--yes"]);
    // Claude Code writes its file anew all the time, in its own manner.
    let mut code = parsed(".claude.json", &desktop.read(".claude.json"));
    code["numStartups"] = json!(213);
    code["mcpServers"]["slow"]["disabled"] = json!(true);
    desktop.write(".claude.json", &serde_json::to_string_pretty(&code).unwrap());
    desktop.done(&["uninstall", "claude-code"]);
    let mut meant = parsed(".claude.json", CLIENTS[1].2);
    meant["numStartups"] = json!(213);
    meant["mcpServers"]["slow"]["disabled"] = json!(true);
    assert_eq!(parsed(".claude.json", &desktop.read(".claude.json")), meant);
    // An entry that somebody made another one is theirs.
    let codex = desktop.read(".codex/config.toml");
    let codex = codex
        .replace("\"-y\", \"docs-mcp\"", "\"-y\", \"other-mcp\"")
        .replace("gpt-5-mini", "gpt-6");
    desktop.write(".codex/config.toml", &codex);
    let ran = desktop.done(&["uninstall", "codex"]);
    assert!(ran.out.contains("left in part: docs"), "{ran:?}");
    let now = parsed("config.toml", &desktop.read(".codex/config.toml"));
    let was = parsed("config.toml", CLIENTS[4].2);
    assert_eq!(now["mcp_servers"]["remote one"], was["mcp_servers"]["remote one"]);
    assert_eq!(now["mcp_servers"]["inline"], was["mcp_servers"]["inline"]);
    assert_eq!(now["mcp_servers"]["docs"]["command"], "lh-npx");
    assert_eq!(
        now["mcp_servers"]["docs"]["env"],
        was["mcp_servers"]["docs"]["env"]
    );
    assert_eq!(now["profiles"]["fast"]["model"], "gpt-6");
}

#[test]
fn a_link_stays_a_link_and_a_file_keeps_its_mode() {
    let desktop = Desktop::new();
    let kept = desktop.write("dotfiles/mcp.json", CLIENTS[2].2);
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir_all(desktop.rig.path(".cursor")).unwrap();
    let link = desktop.rig.path(".cursor/mcp.json");
    symlink("../dotfiles/mcp.json", &link).unwrap();
    desktop.done(&["install", "cursor", "--yes"]);
    assert_ne!(fs::read_to_string(&kept).unwrap(), CLIENTS[2].2);
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o640);
    desktop.done(&["uninstall", "cursor"]);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../dotfiles/mcp.json"));
    assert_eq!(fs::read_to_string(&kept).unwrap(), CLIENTS[2].2);
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn installs_at_once_lose_nothing() {
    let desktop = Desktop::with_clients();
    let mut running: Vec<_> = CLIENTS
        .iter()
        .chain(&CLIENTS)
        .map(|(client, _, _)| {
            desktop
                .command(&["install", client, "--yes"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in &mut running {
        assert!(child.wait().unwrap().success());
    }
    desktop.done(&["uninstall", "all"]);
    for (client, file, text) in CLIENTS {
        assert_eq!(desktop.read(file), text, "{client}");
    }
}

#[test]
fn an_entry_that_somebody_made_another_one_and_that_is_wrapped_again_comes_back_as_they_made_it() {
    let desktop = Desktop::new();
    let text = |program: &str| json!({ "mcpServers": { "x": { "command": program } } }).to_string();
    desktop.write(".cursor/mcp.json", &text("lh-server"));
    desktop.done(&["install", "cursor", "--yes"]);
    desktop.write(".cursor/mcp.json", &text("lh-npx"));
    desktop.done(&["install", "cursor", "--yes"]);
    let mut now = parsed("x.json", &desktop.read(".cursor/mcp.json"));
    now["other"] = json!(1);
    desktop.write(".cursor/mcp.json", &now.to_string());
    desktop.done(&["uninstall", "cursor"]);
    let now = parsed("x.json", &desktop.read(".cursor/mcp.json"));
    assert_eq!(
        now,
        json!({ "mcpServers": { "x": { "command": "lh-npx" } }, "other": 1 })
    );
}

#[test]
fn where_nothing_is_known_of_what_was_there_before_that_is_said() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "cursor", "--yes"]);
    fs::rename(desktop.rig.path("state"), desktop.rig.path("elsewhere")).unwrap();
    let installed = desktop.read(".cursor/mcp.json");
    let ran = desktop.run(&["uninstall", "cursor"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("2 servers run through Longhaul, but"), "{ran:?}");
    assert_eq!(desktop.read(".cursor/mcp.json"), installed);
}
