//! A link to a name that is public at the first look-up and loopback at the next: Longhaul looks up no name of a
//! question and connects to none, whoever is shown it.

use std::process::Command;

use serde_json::Value;

use crate::support::{LONGHAUL, Rig};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/rebinding.py");

// S7, S11, G-30
#[test]
#[cfg_attr(
    not(namespaces_at_hand),
    ignore = "needs a network of its own: unshare -rmn python3"
)]
#[expect(clippy::disallowed_methods, reason = "the network is no task's work")]
fn g_30_a_question_for_a_name_that_changes_its_address_connects_to_nothing() {
    let rig = Rig::new("");
    let script = rig.file(
        "ask.sh",
        "echo '{\"ask\":{\"id\":1,\"message\":\"Sign in\",\"url\":\"https://7f000001.rebind.example.com/login\"}}' \
         >&$LONGHAUL_FD\nread -r answer <&$LONGHAUL_FD\n",
    );
    rig.file(
        "longhaul.toml",
        &format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[tools.asks]\ndescription = \"Asks\"\ncommand = [\"sh\", \"{script}\"]\n"
        ),
    );
    let output = Command::new("unshare")
        .args(["-rmn", "python3", FIXTURE, LONGHAUL])
        .arg(rig.home.path())
        .env("HOME", rig.home.path())
        .env("XDG_RUNTIME_DIR", rig.home.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let found: Value = serde_json::from_str(&printed)
        .unwrap_or_else(|_| panic!("{printed} {}", String::from_utf8_lossy(&output.stderr)));
    // The trap works: a look-up, and one that leads to the listener.
    assert_eq!(found["trial"]["connections"], 1, "{found}");
    assert_eq!(found["longhaul"]["connections"], 0, "{found}");
    assert_eq!(found["longhaul"]["names"], serde_json::json!([]), "{found}");
}
