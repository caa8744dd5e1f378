//! A real server that keeps its tasks in PostgreSQL.

use std::process::{Command, Stdio};

use crate::{serve::TOOLS, support::Rig};

#[test]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
fn calls_answers_cancels_and_a_crash_on_postgresql() {
    let database = Database::create();
    let rig = Rig::new(&format!("[store]\nurl = \"{}\"\n{TOOLS}", database.url()));
    let mut server = rig.serve();
    let ran = rig.run(&["run", "echo", "text=hello"]);
    assert_eq!((ran.code, ran.out.trim()), (0, "hello"), "{ran:?}");

    let asks = rig.start(&["asks"]);
    rig.until_state(&asks, "asking");
    assert_eq!(rig.run(&["answer", &asks, "us"]).code, 0);
    rig.until_state(&asks, "done");

    let cancelled = rig.start(&["sleeps"]);
    rig.until_state(&cancelled, "running");
    let ran = rig.run(&["cancel", &cancelled]);
    assert!(ran.out.contains("nothing of it is left"), "{ran:?}");

    let (lost, again) = (rig.start(&["sleeps"]), rig.start(&["again"]));
    for name in [&lost, &again] {
        rig.until(name, |task| task["state"] == "running" && task["attempts"] == 1);
    }
    server.kill();
    assert_eq!(
        rig.run(&["tasks"]).code,
        5,
        "only a file is read without a server"
    );
    let _server = rig.serve();
    // The dead server's lease has to run out first.
    rig.until_state(&lost, "lost");
    rig.until_state(&again, "done");
    for (name, result) in [(&again, "attempt 2"), (&asks, "us\ncode 0")] {
        assert_eq!(rig.run(&["tasks", "result", name]).out.trim(), result);
    }
}

/// A database of its own on the test server, dropped with its test.
struct Database {
    server: String,
    name: String,
}

impl Database {
    fn create() -> Database {
        let server = std::env::var("LONGHAUL_TEST_POSTGRES").expect("LONGHAUL_TEST_POSTGRES names a server");
        let name = format!("longhaul_served_{}", std::process::id());
        let database = Database { server, name };
        database.run(&format!("CREATE DATABASE {} TEMPLATE template0", database.name));
        database
    }

    /// As the configuration wants it; the rig prints words such as `host=/run/somewhere port=5432`.
    fn url(&self) -> String {
        let word = |wanted: &str| {
            let mut words = self
                .server
                .split_whitespace()
                .filter_map(|word| word.split_once('='));
            words
                .find(|(name, _)| *name == wanted)
                .map_or("", |(_, value)| value)
        };
        let host: String = form_urlencoded::byte_serialize(word("host").as_bytes()).collect();
        format!(
            "postgres://{}@{host}:{}/{}",
            word("user"),
            word("port"),
            self.name
        )
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the client of the test's database is no task's work"
    )]
    fn run(&self, sql: &str) {
        let ran = Command::new("psql")
            .args([
                "--quiet",
                "--no-psqlrc",
                "--dbname",
                &self.server,
                "--command",
                sql,
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}
