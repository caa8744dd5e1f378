//! `longhaul demo`: two tasks, a server that is killed with -9 in the middle, and what became of them.
//!
//! It has its own server in a directory of its own, and leaves nothing behind. About 10 seconds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use longhaul_gateway::admin::api::{Call, State, Task};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use crate::{
    client::Client,
    exit::{Exit, Failure, Outcome},
    flags::Common,
    places::{self, State as Place},
    screen::{self, say},
};

/// The longest part of the demonstration.
const PART_MAX: Duration = Duration::from_secs(20);
/// How often something is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Both tools count to five, one second each. One may be run again after a crash; for the other nobody said so.
const CONFIG: &str = r#"
[server]
bind = "127.0.0.1:0"

[tools.backup]
description = "Counts to five; may be run again"
command = ["sh", "-c", "for n in 1 2 3 4 5; do longhaul progress $n 5; sleep 1; done; echo \"done in attempt $LONGHAUL_ATTEMPT\""]
on_crash = "rerun"

[tools.payment]
description = "Counts to five; nobody said that it may be run again"
command = ["sh", "-c", "for n in 1 2 3 4 5; do longhaul progress $n 5; sleep 1; done; echo paid"]
on_crash = "fail"
"#;

/// Runs the command.
pub(crate) async fn demo(common: &Common) -> Outcome {
    let home = tempfile::Builder::new()
        .prefix("longhaul-demo-")
        .tempdir()
        .map_err(|error| Failure::fault(format!("cannot make a directory: {error}")))?;
    let config = home.path().join("longhaul.toml");
    fs::write(&config, CONFIG)
        .map_err(|error| Failure::fault(format!("cannot write the demo's tools: {error}")))?;
    let state = Place {
        dir: home.path().join("state"),
        chosen: true,
    };
    let client = Client::new(state.socket());

    say("Two tools, each takes five seconds:");
    say("  backup    on_crash = \"rerun\"   it is safe to run it again");
    say("  payment   on_crash = \"fail\"    it must never run twice unasked\n");
    let mut server = Server::start(&config, &state.dir)?;
    ready(&client, &mut server).await?;
    say(format!(
        "1. A server starts (pid {}), and both tools are called.",
        server.pid()
    ));
    let mut tasks = Vec::new();
    for tool in ["backup", "payment"] {
        let arguments =
            RawValue::from_string("{}".to_owned()).map_err(|error| Failure::fault(error.to_string()))?;
        let call = Call {
            tool: tool.to_owned(),
            arguments,
            key: None,
            session: None,
        };
        tasks.push(client.run(&call).await?.task.name);
    }
    let begun = until(&client, &tasks, |task| {
        task.state == State::Running
            && task
                .progress
                .as_ref()
                .is_some_and(|progress| progress.done >= 2.0)
    })
    .await?;
    show(&begun);

    say(format!(
        "\n2. kill -9 {}. Nobody is told; nothing is tidied up.",
        server.pid()
    ));
    server.kill()?;
    let mut server = Server::start(&config, &state.dir)?;
    ready(&client, &mut server).await?;
    say(format!(
        "\n3. A new server starts (pid {}) on the same directory. At once:",
        server.pid()
    ));
    let found = look(&client, &tasks).await?;
    show(&found);

    say("\n4. A few seconds later:");
    let ended = until(&client, &tasks, |task| task.state.is_settled()).await?;
    show(&ended);
    for task in &ended {
        if let Some(text) = text(&client, task).await {
            say(format!(
                "   {} returned: {}",
                task.tool,
                screen::line(text.trim())
            ));
        }
    }
    server.end().await?;

    let lost = ended
        .iter()
        .any(|task| task.tool == "payment" && task.state == State::Lost);
    let rerun = ended
        .iter()
        .any(|task| task.tool == "backup" && task.state == State::Done && task.attempts == 2);
    match lost && rerun {
        true => {
            say("\nThe backup ran again and its result is there. The payment was not run twice: it says so.");
            Ok(Exit::Done)
        }
        false => Err(
            Failure::new(Exit::Failed, "demo", "the demonstration did not end as it should").fix(
                if common.json {
                    "longhaul doctor --json"
                } else {
                    "longhaul doctor"
                },
            ),
        ),
    }
}

struct Server {
    child: Child,
    complaints: PathBuf,
}

impl Server {
    #[expect(
        clippy::disallowed_methods,
        reason = "a server of its own, to be killed: no task's work"
    )]
    fn start(config: &Path, state: &Path) -> Result<Server, Failure> {
        let broken = |error: std::io::Error| Failure::fault(format!("cannot start a server: {error}"));
        let own = places::program().map_err(broken)?;
        let complaints = config.with_extension("log");
        let child = std::process::Command::new(own)
            .args(["serve", "--config"])
            .arg(config)
            .arg("--state")
            .arg(state)
            .env_remove("LONGHAUL_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&complaints).map_err(broken)?)
            .spawn()
            .map_err(broken)?;
        Ok(Server { child, complaints })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and the wait for the process to be gone.
    fn kill(&mut self) -> Result<(), Failure> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed
            .map(|_| ())
            .map_err(|error| Failure::fault(format!("cannot kill the server: {error}")))
    }

    /// Asks the server to end, and waits for it.
    async fn end(&mut self) -> Result<(), Failure> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX));
        kill(pid, Signal::SIGTERM).map_err(|error| Failure::fault(error.to_string()))?;
        let deadline = Instant::now() + PART_MAX;
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
        self.kill()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // However the demonstration ends, no server is left behind; one that ended before cannot be killed.
        let _ = self.kill();
    }
}

async fn ready(client: &Client, server: &mut Server) -> Result<(), Failure> {
    let deadline = Instant::now() + PART_MAX;
    while client.health().await.is_err() {
        let ended = server
            .child
            .try_wait()
            .map_err(|error| Failure::fault(error.to_string()))?;
        if ended.is_some() || Instant::now() > deadline {
            let said = fs::read_to_string(&server.complaints).unwrap_or_default();
            let message = format!("the demo's server did not start: {}", screen::block(said.trim()));
            return Err(Failure::new(Exit::Failed, "demo", message).fix("longhaul doctor"));
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn look(client: &Client, names: &[String]) -> Result<Vec<Task>, Failure> {
    let mut tasks = Vec::new();
    for name in names {
        tasks.push(client.task(name).await?);
    }
    Ok(tasks)
}

async fn until(
    client: &Client,
    names: &[String],
    done: impl Fn(&Task) -> bool,
) -> Result<Vec<Task>, Failure> {
    let deadline = Instant::now() + PART_MAX;
    loop {
        let tasks = look(client, names).await?;
        if tasks.iter().all(&done) {
            return Ok(tasks);
        }
        if Instant::now() > deadline {
            show(&tasks);
            return Err(
                Failure::new(Exit::Failed, "demo", "the demonstration took too long").fix("longhaul doctor"),
            );
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn text(client: &Client, task: &Task) -> Option<String> {
    let outcome = client.result(&task.name).await.ok()?;
    let result = serde_json::from_str::<serde_json::Value>(outcome.result?.get()).ok()?;
    Some(result["content"][0]["text"].as_str()?.to_owned())
}

fn show(tasks: &[Task]) {
    for line in screen::tasks(tasks, screen::width().saturating_sub(3)) {
        say(format!("   {line}"));
    }
}
