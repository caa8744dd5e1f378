//! What the binary says without a server: usage, configuration, exit codes.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::support::{Rig, plain};

#[test]
fn a_wrong_flag_or_command_is_usage() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["--nonsense"][..],
        &["run"],
        &["answer"],
        &["nonsense"],
        &["tasks", "--status", "odd"],
    ] {
        let ran = plain(arguments, home.path());
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.out.is_empty(), "{ran:?}");
    }
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"]] {
        assert_eq!(plain(arguments, home.path()).code, 0);
    }
}

#[test]
fn without_a_server_a_command_says_how_to_start_one() {
    let rig = Rig::new("");
    for arguments in [
        &["tasks"][..],
        &["cancel", "k7f2m9"],
        &["answer", "k7f2m9", "x=1"],
        &["page"],
        &["top"],
    ] {
        let ran = rig.run(arguments);
        assert_eq!(ran.code, 5, "{arguments:?}: {ran:?}");
        assert!(
            ran.err.contains("cannot reach the server") && ran.err.contains("longhaul serve"),
            "{ran:?}"
        );
    }
    let ran = rig.run(&["--json", "tasks"]);
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(error["error"]["exit"], 5);
    assert_eq!(error["error"]["reason"], "unreachable");
}

#[test]
fn a_misspelt_setting_is_named_with_its_place_and_the_nearest_one() {
    let rig = Rig::new("[tools.t]\ncommand = [\"true\"]\ndescription = \"x\"\ntimout = \"3s\"\n");
    for command in ["check", "show"] {
        let ran = rig.run(&["config", command]);
        assert_eq!(ran.code, 2, "{ran:?}");
        for part in ["longhaul.toml:6:", "`timout`", "did you mean `timeout`"] {
            assert!(ran.err.contains(part), "{part} is missing: {}", ran.err);
        }
    }
    let ran = rig.run(&["serve"]);
    assert_eq!(ran.code, 2, "a server does not start with it: {ran:?}");
}

#[test]
fn a_configuration_that_everybody_can_write_is_refused() {
    let rig = Rig::new("");
    fs::set_permissions(rig.path("longhaul.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    let ran = rig.run(&["config", "check"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("chmod o-w"), "{ran:?}");
}

#[test]
fn a_named_configuration_that_is_missing_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let ran = plain(&["--config", "nowhere.toml", "config", "check"], home.path());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("nowhere.toml"), "{ran:?}");
}

#[test]
fn init_writes_a_configuration_that_is_fine_and_never_writes_over_one() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(plain(&["config", "init"], home.path()).code, 0);
    let check = plain(&["config", "check"], home.path());
    assert_eq!(check.code, 0, "{check:?}");
    let again = plain(&["config", "init"], home.path());
    assert_eq!(again.code, 2, "{again:?}");
}

#[test]
fn show_names_where_each_value_comes_from_and_hides_passwords() {
    let rig = Rig::new("[tasks]\nttl = \"3d\"\n[store]\nurl = \"postgres://me:hunter2@db/x\"\n");
    let output = rig
        .command(&["config", "show"])
        .env("LONGHAUL_TASKS__OPEN_MAX", "7")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(
        line("tasks.ttl ").contains("3d") && line("tasks.ttl ").contains("longhaul.toml"),
        "{text}"
    );
    assert!(
        line("tasks.open_max").contains('7') && line("tasks.open_max").contains("LONGHAUL_TASKS__OPEN_MAX")
    );
    assert!(line("tasks.grace").contains("default"));
    assert!(!text.contains("hunter2"));
}

#[test]
fn the_schema_is_a_json_schema() {
    let rig = Rig::new("");
    let schema: Value = serde_json::from_str(&rig.run(&["config", "schema"]).out).unwrap();
    assert!(schema["properties"]["tasks"].is_object(), "{schema:#}");
}

#[test]
fn completions_name_every_command() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let ran = plain(&["completions", shell], home.path());
        assert_eq!(ran.code, 0);
        for command in ["run", "tasks", "answer", "cancel", "serve", "doctor", "demo"] {
            assert!(ran.out.contains(command), "{shell} lacks {command}");
        }
        assert!(!ran.out.contains("__shim"), "{shell} offers the shim");
    }
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let home = tempfile::tempdir().unwrap();
    let ran = plain(&["man"], home.path());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains(".TH longhaul 1"), "{ran:?}");
    let ran = plain(&["man", "--to", "pages"], home.path());
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    let has = |page: &str| home.path().join("pages").join(page).exists();
    assert!(has("longhaul.1") && has("longhaul-serve.1") && has("longhaul-tasks-result.1"));
    assert!(!has("longhaul-__shim.1"));
}

#[test]
fn doctor_finds_a_missing_program_and_an_open_state_directory() {
    let rig = Rig::new("[tools.t]\ncommand = [\"no-such-program-here\"]\ndescription = \"x\"\n");
    fs::create_dir(rig.path("state")).unwrap();
    fs::set_permissions(rig.path("state"), fs::Permissions::from_mode(0o755)).unwrap();
    let ran = rig.run(&["doctor"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.out.contains("no-such-program-here") && ran.out.contains("chmod 700"),
        "{}",
        ran.out
    );
    let checks: Value = serde_json::from_str(&rig.run(&["--json", "doctor"]).out).unwrap();
    let broken = checks["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["verdict"] == "broken")
        .count();
    assert_eq!(broken, 2, "{checks:#}");
}

#[test]
fn a_name_that_is_none_is_not_sent_anywhere() {
    let rig = Rig::new("");
    let ran = rig.run(&["tasks", "../health"]);
    assert_eq!(ran.code, 3, "{ran:?}");
}
