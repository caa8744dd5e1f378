//! `cargo xtask clients [CLIENT..]`: every real client against the binary, step by step.
//!
//! Installs the clients as `rigs/clients/` pins them, starts `longhaul serve` with the tools of
//! `rigs/clients/longhaul.toml`, and runs each client of `clients.json` over each transport it has. Then it kills
//! the server with -9, starts it again, and lets each client find what it left. A failing step that is not in
//! `exceptions.json` fails, and so does a line of it that passes; each line names a reproduction that does not
//! involve Longhaul. `LONGHAUL_BINARY` names another binary to judge.

mod installed;
mod peer;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Outcome,
    program::Program,
    server::{Server, binary, empty_folder},
    workspace::{make_folder, read, root, text},
};

use installed::Transport;
pub(crate) use installed::{Client, Installed};
use peer::processes;
pub(crate) use peer::{Peer, Steps, side_by_side};

const RIG: &str = "rigs/clients";
/// What every client shows, or says why it cannot.
const EVERY: &[&str] = &[
    "call",
    "poll",
    "result",
    "question",
    "list",
    "cancel",
    "unknown id",
    "new connection",
    "restart",
];
/// The longest wait for the tools that are left running.
const TOOLS_MAX: Duration = Duration::from_secs(20);

/// All but those whose page is driven in a browser: a page of somebody else's, drawn on a busy machine, is no
/// measure of this project.
pub(crate) fn without_pages() -> Outcome {
    let clients = Client::all()?;
    let names: Vec<String> = clients
        .into_iter()
        .filter(|client| !client.is_page())
        .map(|client| client.name)
        .collect();
    run(&names)
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let clients = Client::all()?;
    if let Some(stranger) = arguments
        .iter()
        .find(|name| clients.iter().all(|client| &client.name != *name))
    {
        return Err(format!("`clients.json` names no client `{stranger}`"));
    }
    let wanted: Vec<Client> = clients
        .into_iter()
        .filter(|client| arguments.is_empty() || arguments.contains(&client.name))
        .collect();
    let start = Instant::now();
    let installed = Installed::for_clients(&wanted)?;
    let binary = binary()?;
    println!("installed in {} s", start.elapsed().as_secs());
    let results = empty_folder("clients/results")?;
    let mut server = Server::start(&binary, &root().join(RIG), &results)?;
    let mut runs: Vec<Run<'_>> = wanted
        .iter()
        .flat_map(|client| {
            client
                .transports
                .iter()
                .map(move |transport| (client, *transport))
        })
        .map(|(client, transport)| Run::new(client, transport, &results))
        .collect();
    let url = server.url();
    side_by_side(&mut runs, |run| run.first(&installed, &binary, &url))?;
    wait_for_running_tools(&runs)?;
    println!("every server is killed with -9");
    for run in &mut runs {
        run.crash();
    }
    server.kill_and_start()?;
    side_by_side(&mut runs, |run| run.later(&installed, &binary, &url))?;
    drop(server);
    report(&runs);
    println!("clients: {} s", start.elapsed().as_secs());
    compare(&runs, !arguments.is_empty())
}

/// Waits until each task that was left running has a process: only then a kill interrupts it.
fn wait_for_running_tools(runs: &[Run<'_>]) -> Outcome {
    let left = runs
        .iter()
        .filter(|run| {
            run.left
                .as_ref()
                .is_some_and(|left| left.get("running").is_some())
        })
        .count();
    let start = Instant::now();
    let is_tool = |line: &[&[u8]]| {
        line.first().is_some_and(|program| program.ends_with(b"python3")) && line.contains(&&b"outlives"[..])
    };
    while processes(is_tool).len() < left {
        if start.elapsed() > TOOLS_MAX {
            return Err("the tools that were left running do not run".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// One client over one transport: what it did and what it left.
struct Run<'a> {
    client: &'a Client,
    transport: Transport,
    folder: PathBuf,
    steps: Steps,
    left: Option<Value>,
    /// The client that left them, still connected.
    peer: Option<Peer>,
}

impl Run<'_> {
    fn new<'a>(client: &'a Client, transport: Transport, results: &Path) -> Run<'a> {
        Run {
            client,
            transport,
            folder: results.join(format!("{}-{}", client.name, transport.name())),
            steps: Steps::of(format!("{}/{}", client.name, transport.name())),
            left: None,
            peer: None,
        }
    }

    /// Everything up to the tasks that are left.
    fn first(&mut self, installed: &Installed, binary: &Path, url: &str) -> Outcome {
        make_folder(&self.folder)?;
        let mut peer = self.start(installed, "first", binary, url)?;
        self.left = self.steps.listen(&mut peer, "left");
        if self.left.is_none() && !self.steps.why.contains_key("connect") {
            self.steps
                .note("connect", "ended without leaving a task", Duration::ZERO);
        }
        self.peer = Some(peer);
        Ok(())
    }

    /// Kills the servers of this run's own, then the client, as a crash of the machine would.
    fn crash(&mut self) {
        self.kill_servers();
        if let Some(mut peer) = self.peer.take() {
            peer.end();
        }
    }

    fn later(&mut self, installed: &Installed, binary: &Path, url: &str) -> Outcome {
        let returns = self.client.steps.iter().any(|step| step == "restart");
        if self.left.is_none() || !returns {
            return Ok(());
        }
        let mut peer = self.start(installed, "later", binary, url)?;
        self.steps.listen(&mut peer, "left");
        peer.end();
        self.kill_servers();
        Ok(())
    }

    fn start(&self, installed: &Installed, phase: &str, binary: &Path, url: &str) -> Result<Peer, String> {
        let target = match self.transport {
            Transport::Http => url.to_owned(),
            Transport::Stdio | Transport::Pipe => self.command(binary),
        };
        let mut program = installed
            .program(self.client)?
            .args([phase, &target])
            .env("LONGHAUL_CLIENT_FOLDER", &self.folder)
            .env("LONGHAUL_CLIENT_GENERATION", &self.client.generation);
        if let Some(left) = &self.left {
            program = program.args([left.to_string()]);
        }
        Peer::start(program, &self.folder.join(format!("{phase}.log")))
    }

    /// What the client starts.
    fn command(&self, binary: &Path) -> String {
        let (config, state) = (root().join(RIG).join("longhaul.toml"), self.state());
        let verbs: &[&str] = match self.transport {
            Transport::Pipe => &["stdio"],
            Transport::Http | Transport::Stdio => &["serve", "--stdio"],
        };
        let mut arguments = vec![binary.to_string_lossy()];
        arguments.extend(verbs.iter().map(|verb| (*verb).into()));
        arguments.extend(["--config".into(), config.to_string_lossy()]);
        arguments.extend(["--state".into(), state.to_string_lossy()]);
        let arguments: Vec<Value> = arguments.into_iter().map(Value::from).collect();
        Value::from(arguments).to_string()
    }

    /// The state directory of a server of this run's own.
    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Kills the servers of this run's own with -9.
    fn kill_servers(&self) {
        let state = self.state();
        let is_server = |line: &[&[u8]]| {
            line.contains(&&b"serve"[..]) && line.contains(&state.as_os_str().as_encoded_bytes())
        };
        for process in processes(is_server) {
            // It may have ended in between.
            Program::new("kill").args(["-9", &process]).works();
        }
    }

    /// The keys of all steps that it has or showed, and why each failed. A client that could not connect showed none.
    fn verdicts(&self) -> BTreeMap<String, String> {
        let key = |step: &String| format!("{}/{step}", self.steps.name);
        let connected = !self.steps.why.contains_key("connect");
        let missing = self
            .client
            .steps
            .iter()
            .filter(|_| connected)
            .map(|step| (key(step), "did not run".to_owned()));
        let shown = self.steps.why.iter().map(|(step, why)| (key(step), why.clone()));
        missing.chain(shown).collect()
    }
}

/// Nothing of a run is left behind, however the command ends.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.peer.take().iter_mut().for_each(Peer::end);
        self.kill_servers();
    }
}

fn report(runs: &[Run<'_>]) {
    let all: BTreeSet<&String> = runs.iter().flat_map(|run| &run.client.steps).collect();
    let others = all
        .into_iter()
        .map(String::as_str)
        .filter(|step| !EVERY.contains(step));
    let steps: Vec<&str> = EVERY.iter().copied().chain(others).collect();
    print!("\n{:<28}", "client");
    for step in &steps {
        print!(" {step:<width$}", width = step.len().max(6));
    }
    println!();
    for run in runs {
        print!("{:<28}", run.steps.name);
        for step in &steps {
            let known = run.client.steps.iter().any(|known| known == step);
            let cell = match run.steps.why.get(*step) {
                Some(why) if why.is_empty() => "ok",
                Some(_) => "FAILED",
                None if known => "absent",
                None => "-",
            };
            print!(" {cell:<width$}", width = step.len().max(6));
        }
        println!();
    }
}

/// `exceptions.json` maps CLIENT/TRANSPORT/STEP to why it fails and to a reproduction; it may only shrink.
fn compare(runs: &[Run<'_>], partial: bool) -> Outcome {
    let exceptions: BTreeMap<String, Value> = serde_json::from_str(&read(&format!("{RIG}/exceptions.json"))?)
        .map_err(|error| format!("`exceptions.json` is no map: {error}"))?;
    let mut verdicts = BTreeMap::new();
    for run in runs {
        verdicts.extend(run.verdicts());
    }
    let known: BTreeSet<String> = exceptions.keys().cloned().collect();
    let mut wrong = unexpected(&verdicts, &known, partial);
    for (step, exception) in &exceptions {
        let reproduction = text(&exception["reproduction"]);
        if text(&exception["why"]).is_empty() || !root().join(RIG).join("repro").join(reproduction).is_file()
        {
            wrong.push(format!("{step} is excused without a reason and a reproduction"));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("clients:\n  {}", wrong.join("\n  ")))
    }
}

/// What differs from the exceptions; `partial` when only some clients ran.
pub(crate) fn unexpected(
    verdicts: &BTreeMap<String, String>,
    exceptions: &BTreeSet<String>,
    partial: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (step, why) in verdicts {
        match (why.is_empty(), exceptions.contains(step)) {
            (false, false) => wrong.push(format!("{step} fails: {why}")),
            (true, true) => wrong.push(format!("{step} passes: take it out of the exceptions")),
            (true, false) | (false, true) => {}
        }
    }
    if !partial {
        let gone = exceptions.iter().filter(|step| !verdicts.contains_key(*step));
        wrong.extend(gone.map(|step| format!("{step} is in the exceptions but does not run")));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Client, unexpected};

    #[test]
    fn a_new_failure_and_a_stale_exception_are_both_unexpected() {
        let verdict = |step: &str, why: &str| (step.to_owned(), why.to_owned());
        let verdicts = BTreeMap::from([
            verdict("a/http/call", "broken"),
            verdict("a/http/list", "known"),
            verdict("a/http/poll", ""),
            verdict("a/http/result", ""),
        ]);
        let exceptions = BTreeSet::from(["a/http/list", "a/http/poll", "b/http/call"].map(str::to_owned));
        assert_eq!(unexpected(&verdicts, &exceptions, false).len(), 3);
        assert_eq!(unexpected(&verdicts, &exceptions, true).len(), 2);
    }

    #[test]
    fn every_client_has_each_step_or_says_why_not() {
        for client in Client::all().unwrap() {
            assert!(!client.transports.is_empty(), "{}", client.name);
        }
        let silent =
            serde_json::json!({"name": "a", "script": "a.py", "transports": ["http"], "steps": ["call"]});
        assert!(Client::new(&silent).is_err());
    }
}
