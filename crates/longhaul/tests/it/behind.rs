//! Servers behind Longhaul on the command line: what is checked before it runs, and what is said of them while it does.

use std::time::{Duration, UNIX_EPOCH};

use longhaul_engine::clock;
use serde_json::Value;

use crate::support::{Rig, longhaul};

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gateway/tests/it/fixtures/mcp_server.py"
);

fn fixture() -> String {
    format!(
        "[servers.fixture]\nrequired = true\ncommand = [\"python3\", \"{FIXTURE}\", \"stdio\", \"--era=2025\"]\n\
         env.PYTHONDONTWRITEBYTECODE = \"1\"\n"
    )
}

/// The rows of a check as `verdict found fix`.
fn rows(rig: &Rig, check: &str) -> Vec<String> {
    rows_in(&rig.run(&["--json", "doctor"]).out, check)
}

fn rows_in(printed: &str, check: &str) -> Vec<String> {
    let report: Value = serde_json::from_str(printed).expect("JSON");
    let checks = report["checks"].as_array().expect("rows").iter();
    let found = checks.filter(|row| row["check"] == check);
    found
        .map(|row| {
            let word = |key: &str| row[key].as_str().unwrap_or_default();
            format!("{} {} {}", word("verdict"), word("found"), word("fix"))
        })
        .collect()
}

#[test]
fn what_leads_nowhere_is_warned_of_before_anything_is_started() {
    let rig = Rig::new(
        "[servers.a]\ncommand = [\"true\"]\ncwd = \"/no/such/folder\"\nenv.KEY = \"env:LONGHAUL_NOT_SET\"\n\
         env.MORE = \"file:/no/such/file\"\nenv.LAST = \"cmd:/no/such/program\"\n\
         [servers.b]\ncommand = [\"/no/such/program\"]\n",
    );
    let ran = rig.run(&["config", "check"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for expected in [
        "server `a`: cannot start it in `/no/such/folder`",
        "server `a`: `KEY`: the variable `LONGHAUL_NOT_SET` is not set",
        "server `a`: `MORE`: there is no file `/no/such/file`",
        "server `a`: `LAST`: cannot start `/no/such/program`",
        "server `b`: cannot start `/no/such/program`",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {ran:?}");
    }
    let rows = rows(&rig, "behind");
    assert!(rows.iter().all(|row| row.starts_with("broken")), "{rows:?}");
    assert_eq!(rows.len(), 2, "{rows:?}");
}

#[test]
fn the_doctor_says_of_each_server_what_the_running_longhaul_knows() {
    let rig = Rig::new(&format!(
        "{}[servers.far]\nurl = \"http://127.0.0.1:1/mcp\"\n[servers.off]\ncommand = [\"true\"]\ndisabled = true\n",
        fixture()
    ));
    let _server = rig.serve();
    // Its order is settled once it was tried.
    assert_eq!(rig.run(&["servers", "restart", "far"]).code, 1);
    let rows = rows(&rig, "behind");
    assert!(rows[0].starts_with("fine fixture: ready; "), "{rows:?}");
    assert!(rows[1].starts_with("broken far: "), "{rows:?}");
    assert!(rows[1].ends_with("longhaul servers show far"), "{rows:?}");
    assert_eq!(rows[2], "fine off: disabled ");
    let ran = rig.run(&["doctor"]);
    assert_eq!(ran.out.matches("\nok      server ").count(), 1, "{ran:?}");
}

#[test]
fn the_doctor_says_which_configuration_the_running_longhaul_reads() {
    let rig = Rig::new("");
    let _server = rig.serve();
    let file = rig.path("longhaul.toml");
    let shown = file.display().to_string();
    assert!(
        rows(&rig, "config").contains(&format!("fine the running server reads {shown} ")),
        "{:?}",
        rows(&rig, "config")
    );
    let elsewhere = rig.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let output = longhaul()
        .args(["--json", "doctor", "--state"])
        .arg(rig.path("state"))
        .env("HOME", &elsewhere)
        .env("XDG_RUNTIME_DIR", rig.home.path())
        .current_dir(&elsewhere)
        .output()
        .unwrap();
    let rows = rows_in(&String::from_utf8(output.stdout).unwrap(), "config");
    assert!(
        rows[0].contains(&shown) && rows[0].ends_with(&format!("longhaul --config {shown} doctor")),
        "{rows:?}"
    );
}

#[test]
fn a_changed_configuration_is_said_with_how_it_is_read() {
    let rig = Rig::new(&fixture());
    let _server = rig.serve();
    let ran = rig.run(&["servers", "restart", "fixture"]);
    assert!(ran.code == 0 && !ran.err.contains("note:"), "{ran:?}");
    let file = std::fs::File::options()
        .append(true)
        .open(rig.path("longhaul.toml"))
        .unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_millis(clock::now().0 + 60_000))
        .unwrap();
    for command in [&["servers", "restart", "fixture"][..], &["doctor"]] {
        let ran = rig.run(command);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(
            said.contains("was changed after") && said.contains("longhaul serve --replace"),
            "{said}"
        );
    }
}

#[test]
fn a_tool_of_a_server_is_shown_and_run_by_its_names() {
    let rig = Rig::new(&fixture());
    let _server = rig.serve();
    let shown = rig.run(&["servers", "show", "fixture"]);
    assert!(shown.out.lines().any(|line| line.trim() == "seen"), "{shown:?}");
    for name in ["seen", "fixture__seen"] {
        let ran = rig.run(&["run", name]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}
