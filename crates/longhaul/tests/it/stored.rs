//! What becomes of tasks whose server is gone, and of a database that is not this program's.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::support::Rig;

const TOOLS: &str = r#"
[tools.echo]
description = "Prints its text"
command = ["echo", "{text}"]
args.text = "string"

[tools.sleeps]
description = "Sleeps"
command = ["sleep", "600"]

[tools.slow]
description = "Takes longer than it may"
command = ["sleep", "600"]
timeout = "1s"

[tools.unheard]
description = "Asks, and nobody answers in time"
command = ["sh", "-c", "longhaul ask --text 'Which region?'"]
on_silence = "fail"
question_deadline = "1s"
"#;

#[test]
fn without_a_server_tasks_are_read_from_the_database_and_stay_as_they_are() {
    let rig = Rig::new(TOOLS);
    let mut server = rig.serve();
    let done = rig.start(&["echo", "text=kept"]);
    rig.until_state(&done, "done");
    let listed = rig.run(&["--json", "tasks", "list", "--status", "done"]).out;
    let open = rig.start(&["sleeps"]);
    rig.until_state(&open, "running");
    server.kill();
    for _ in 0..2 {
        let ran = rig.run(&["tasks"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains(&done) && ran.out.contains(&open), "{ran:?}");
        assert!(ran.err.contains("no server answers"), "{ran:?}");
        let ran = rig.run(&["--json", "tasks", "get", &open]);
        let task: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(
            (&task["state"], &task["attempts"]),
            (&"running".into(), &1.into()),
            "nothing is settled, and nothing is run: {task:#}"
        );
        let ran = rig.run(&["tasks", "result", &done]);
        assert_eq!((ran.code, ran.out.trim()), (0, "kept"), "{ran:?}");
        assert_eq!(rig.run(&["tasks", "result", &open]).code, 4);
        assert_eq!(rig.run(&["tasks", "zzzzzz"]).code, 3);
        // What acts needs a server.
        assert_eq!(rig.run(&["cancel", &open]).code, 5);
    }
    let again = rig.run(&["--json", "tasks", "list", "--status", "done"]).out;
    let tasks = |text: &str| serde_json::from_str::<Value>(text).unwrap()["tasks"][0].clone();
    for member in ["name", "tool", "state", "origin", "created_at_ms", "version"] {
        assert_eq!(tasks(&listed)[member], tasks(&again)[member], "{member}");
    }
    let _server = rig.serve();
    rig.until_state(&open, "lost");
}

#[test]
fn without_a_database_reading_tasks_makes_none() {
    let rig = Rig::new(TOOLS);
    assert_eq!(rig.run(&["tasks"]).code, 5);
    assert!(!rig.path("state").exists());
}

#[test]
fn a_database_of_a_newer_program_is_left_as_it_is() {
    let rig = Rig::new(TOOLS);
    drop(rig.serve());
    let database = rig.path("state").join("longhaul.db");
    let newer = include_bytes!("samples/newer.db");
    for file in ["longhaul.db-wal", "longhaul.db-shm"] {
        let _ = fs::remove_file(rig.path("state").join(file));
    }
    fs::write(&database, newer).unwrap();
    for arguments in [&["serve"][..], &["tasks"]] {
        let ran = rig.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        for part in ["schema 9999", "schemas up to 2", "newer longhaul"] {
            assert!(ran.err.contains(part), "{part} is missing: {ran:?}");
        }
        assert_eq!(fs::read(&database).unwrap(), newer, "{arguments:?} changed it");
    }
}

#[test]
fn a_lost_key_file_is_never_replaced() {
    let rig = Rig::new(TOOLS);
    drop(rig.serve());
    let key = rig.path("state").join("keys").join("master");
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    for arguments in [&["serve"][..], &["tasks"]] {
        let ran = rig.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.err.contains("put the key file back"), "{ran:?}");
        assert!(!key.exists(), "{arguments:?} made a new key");
    }
    fs::write(&key, kept).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    drop(rig.serve());
}

#[test]
fn a_task_that_nobody_answered_in_time_ends_as_timed_out() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    let ran = rig.run(&["run", "unheard"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    // A program that is too slow has failed as a tool, and its result says how.
    let ran = rig.run(&["run", "slow"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("did not end within 1s"), "{ran:?}");
}
