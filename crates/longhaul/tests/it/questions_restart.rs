//! A question of a server is open when Longhaul dies: what becomes of it depends on whether the server lives on.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{Rig, Site};

const TASK_SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gateway/tests/it/fixtures/task_server.py"
);

/// How often a frame of this method came in.
fn came(log: &Path, method: &str) -> usize {
    let frames = fs::read_to_string(log).unwrap();
    let frames = frames
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    frames.filter(|line| line["frame"]["method"] == method).count()
}

// T17, D-38
#[test]
fn a_question_of_a_server_that_lives_on_is_answered_after_a_restart() {
    for era in ["--era=2025", "--era=2026"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let site = Site::start(TASK_SERVER, &[era, &format!("--log={}", log.display())]);
        let rig = site.rig("");
        let mut server = rig.serve();
        let name = rig.start(&["ask_form", "mark=Ada"]);
        let asking = rig.until_state(&name, "asking");
        assert_eq!(asking["questions"][0]["message"], "Who are you, Ada?");
        server.kill();
        let _server = rig.serve();
        // The one before the restart was withdrawn; the server is asked anew, and not called anew.
        let again = rig.until(&name, |task| {
            task["questions"][0]["key"] == "q2" || task["state"] == "lost"
        });
        assert_eq!(
            (&again["state"], &again["attempts"]),
            (&"asking".into(), &1.into()),
            "{again:#}"
        );
        let ran = rig.run(&["answer", &name, "name=Grace"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        rig.until_state(&name, "done");
        let returned = rig.result(&name);
        assert_eq!(returned["answers"]["who"]["content"]["name"], "Grace", "{era}");
        assert_eq!(came(&log, "tools/call"), 1, "{era}");
    }
}

// D-38
#[test]
fn a_question_of_a_server_that_died_too_is_withdrawn_and_its_task_was_interrupted() {
    for era in ["--era=2025", "--era=2026"] {
        let command = ["python3", TASK_SERVER, "stdio", era];
        let rig = Rig::new(&format!(
            "[servers.near]\nrequired = true\ncommand = {command:?}\nenv.PYTHONDONTWRITEBYTECODE = \"1\"\n"
        ));
        let mut server = rig.serve();
        let name = rig.start(&["ask_form", "mark=Ada"]);
        rig.until_state(&name, "asking");
        server.kill();
        let _server = rig.serve();
        let task = rig.until(&name, |task| task["state"] == "lost" || task["state"] == "failed");
        assert!(task["questions"].is_null(), "{task:#}");
        let ran = rig.run(&["answer", &name, "name=Grace"]);
        assert_ne!(ran.code, 0, "{ran:?}");
        // A pipe took the server's tasks with it; a task of its own that is known to be lost says so.
        assert!(
            task["state"] == "lost" || task["reason"] == "upstream_tasks_lost",
            "{task:#}"
        );
    }
}
