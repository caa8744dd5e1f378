//! A question of a server is open when Longhaul dies: what becomes of it depends on whether the server lives on.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::support::Rig;

const TASK_SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gateway/tests/it/fixtures/task_server.py"
);

/// A server with tasks over HTTP, nobody's child; killed when the test ends.
struct Site {
    child: Child,
    port: String,
}

impl Site {
    #[expect(
        clippy::disallowed_methods,
        reason = "a server behind a URL is nobody's child in production"
    )]
    fn start(options: &[&str]) -> Site {
        let mut child = Command::new("python3")
            .args([TASK_SERVER, "http"])
            .args(options)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().strip_prefix("listening ").expect("its port");
        Site {
            port: port.to_owned(),
            child,
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a finished task's result.
fn result(rig: &Rig, name: &str) -> String {
    let ran = rig.run(&["--json", "tasks", "result", name]);
    let outcome: Value = serde_json::from_str(&ran.out).expect("JSON");
    outcome["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {outcome}"))
        .to_owned()
}

/// How often a frame of this method came in.
fn came(log: &str, method: &str) -> usize {
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
        let rig = Rig::new("");
        let log = rig.file("log", "");
        let site = Site::start(&[era, &format!("--log={log}")]);
        fs::write(
            rig.path("longhaul.toml"),
            format!(
                "[server]\nbind = \"127.0.0.1:0\"\n[servers.far]\nrequired = true\nurl = \"http://127.0.0.1:{}/mcp\"\n",
                site.port
            ),
        )
        .unwrap();
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
        let returned: Value = serde_json::from_str(&result(&rig, &name)).expect("JSON");
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
