//! `cargo xtask clients [CLIENT..]`: every real client against the binary, step by step.
//!
//! Installs the clients as `rigs/clients/` pins them, starts `longhaul serve` with the tools of
//! `rigs/clients/longhaul.toml`, and runs each client of `clients.json` over each transport it has. Then it kills
//! the server with -9, starts it again, and lets each client find what it left. A failing step that is not in
//! `exceptions.json` fails, and so does a line of it that passes; each line names a reproduction that does not
//! involve Longhaul. `LONGHAUL_BINARY` names another binary to judge.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Stdio},
    sync::{
        Mutex,
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Outcome,
    packages::{self, Npm},
    program::Program,
    server::{Server, binary, empty_folder},
    workspace::{items, json, make_folder, read, root, target, text},
};

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
/// How many clients run at once.
const WORKERS: usize = 3;
/// The names of the clients that are a page begin with this.
const PAGE: &str = "inspector-web";
/// The longest that one phase of one client may take.
const PHASE_MAX: Duration = Duration::from_secs(240);
/// The longest wait for the tools that are left running.
const TOOLS_MAX: Duration = Duration::from_secs(20);

/// All but those whose page is driven in a browser: a page of somebody else's, drawn on a busy machine, is no
/// measure of this project.
pub(crate) fn without_pages() -> Outcome {
    let clients = Client::all()?;
    let names: Vec<String> = clients
        .into_iter()
        .map(|client| client.name)
        .filter(|name| !name.starts_with(PAGE))
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

/// Does the work for each; several at once, since a client mostly waits.
fn side_by_side<T: Send>(all: &mut [T], work: impl Fn(&mut T) -> Outcome + Sync) -> Outcome {
    let open = Mutex::new(all.iter_mut());
    let next = || open.lock().ok().and_then(|mut open| open.next());
    let worker = || {
        while let Some(one) = next() {
            work(one)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err("a worker panicked".to_owned()))
        })
    })
}

/// How a client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// The one server of all.
    Http,
    /// A server that the client starts, for itself.
    Stdio,
    /// A pipe that the client starts, into a server in the background.
    Pipe,
}

impl Transport {
    fn named(name: &str) -> Result<Transport, String> {
        match name {
            "http" => Ok(Transport::Http),
            "stdio" => Ok(Transport::Stdio),
            "pipe" => Ok(Transport::Pipe),
            _ => Err(format!("`clients.json`: unknown transport `{name}`")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
            Transport::Pipe => "pipe",
        }
    }
}

/// One client of `clients.json`.
struct Client {
    name: String,
    script: String,
    generation: String,
    transports: Vec<Transport>,
    steps: Vec<String>,
}

impl Client {
    fn all() -> Result<Vec<Client>, String> {
        let file: Value = json(&format!("{RIG}/clients.json"))?;
        items(&file).map(Client::new).collect()
    }

    fn new(value: &Value) -> Result<Client, String> {
        let name = text(&value["name"]).to_owned();
        let steps: Vec<String> = items(&value["steps"]).map(|step| text(step).to_owned()).collect();
        let silent = EVERY
            .iter()
            .find(|step| !steps.iter().any(|known| known == *step) && value["without"].get(**step).is_none());
        if let Some(step) = silent {
            return Err(format!(
                "`clients.json`: `{name}` neither has the step `{step}` nor says why not"
            ));
        }
        Ok(Client {
            name,
            script: text(&value["script"]).to_owned(),
            generation: text(&value["generation"]).to_owned(),
            transports: items(&value["transports"])
                .map(|transport| Transport::named(text(transport)))
                .collect::<Result<_, _>>()?,
            steps,
        })
    }
}

/// What the wanted clients need.
struct Installed {
    node: Option<PathBuf>,
    /// The folder with the scripts in JavaScript, beside their packages.
    modules: Option<PathBuf>,
    /// The interpreter of each script in Python, and the program of each crate.
    programs: BTreeMap<String, PathBuf>,
}

/// A client that needs an interpreter or a build of its own.
struct Part<'a> {
    script: &'a str,
    program: Option<PathBuf>,
}

impl Part<'_> {
    fn install(&mut self) -> Outcome {
        println!("installing what {} needs", self.script);
        let program = match self.script.strip_suffix(".py") {
            Some(stem) => packages::python(
                &format!("{RIG}/requirements-{stem}.txt"),
                &format!("clients/{stem}"),
            )?,
            None => build(self.script)?,
        };
        self.program = Some(program);
        Ok(())
    }
}

impl Installed {
    fn for_clients(clients: &[Client]) -> Result<Installed, String> {
        let scripts: BTreeSet<&str> = clients.iter().map(|client| client.script.as_str()).collect();
        let is_module = |script: &&str| script.ends_with(".mjs");
        let mut parts: Vec<Part<'_>> = scripts
            .iter()
            .filter(|script| !is_module(script))
            .map(|script| Part {
                script,
                program: None,
            })
            .collect();
        let modules = scripts.iter().any(is_module);
        let npm = std::thread::scope(|scope| {
            let npm = scope.spawn(|| modules.then(|| Npm::install(RIG, "clients/npm")).transpose());
            side_by_side(&mut parts, Part::install)?;
            npm.join()
                .unwrap_or_else(|_| Err("installing the packages panicked".to_owned()))
        })?;
        let modules = npm.as_ref().map(scripts_beside_modules).transpose()?;
        Ok(Installed {
            node: npm.as_ref().map(Npm::node),
            modules,
            programs: parts
                .into_iter()
                .filter_map(|part| Some((part.script.to_owned(), part.program?)))
                .collect(),
        })
    }

    /// The program that runs a client's script.
    fn program(&self, script: &str) -> Result<Program, String> {
        match (self.programs.get(script), &self.node, &self.modules) {
            (Some(program), _, _) if script.ends_with(".py") => {
                let path = root().join(RIG).join(script);
                Ok(Program::new(program).args(["-B"]).args([path]))
            }
            (Some(program), _, _) => Ok(Program::new(program)),
            (None, Some(node), Some(modules)) => Ok(Program::new(node).args([modules.join(script)])),
            (None, _, _) => Err(format!("`{script}` needs what is not installed")),
        }
    }
}

/// The clients in JavaScript, copied to where their packages are: modules are looked for beside the script.
fn scripts_beside_modules(npm: &Npm) -> Result<PathBuf, String> {
    for entry in fs::read_dir(root().join(RIG)).map_err(|error| format!("cannot list `{RIG}`: {error}"))? {
        let path = entry
            .map_err(|error| format!("cannot list `{RIG}`: {error}"))?
            .path();
        let Some(name) = path.file_name() else { continue };
        if path.extension().is_some_and(|ending| ending == "mjs") {
            fs::copy(&path, npm.folder().join(name))
                .map_err(|error| format!("cannot copy `{}`: {error}", path.display()))?;
        }
    }
    Ok(npm.folder().to_path_buf())
}

/// Builds a client that is a crate of its own, outside of the workspace.
fn build(name: &str) -> Result<PathBuf, String> {
    let folder = root().join(RIG).join(name);
    let target = target()?.join("clients/cargo");
    Program::cargo()
        .args(["build", "--locked", "--quiet", "--manifest-path"])
        .args([folder.join("Cargo.toml")])
        .env("CARGO_TARGET_DIR", &target)
        .run()?;
    Ok(target.join("debug").join(name))
}

/// One client over one transport: what it did and what it left.
struct Run<'a> {
    client: &'a Client,
    transport: Transport,
    folder: PathBuf,
    /// Why each step failed; empty when it passed.
    steps: BTreeMap<String, String>,
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
            steps: BTreeMap::new(),
            left: None,
            peer: None,
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.client.name, self.transport.name())
    }

    /// Everything up to the tasks that are left.
    fn first(&mut self, installed: &Installed, binary: &Path, url: &str) -> Outcome {
        make_folder(&self.folder)?;
        let mut peer = self.start(installed, "first", binary, url)?;
        self.listen(&mut peer);
        if self.left.is_none() && !self.steps.contains_key("connect") {
            self.note("connect", "ended without leaving a task", Duration::ZERO);
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
        self.listen(&mut peer);
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
            .program(&self.client.script)?
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

    /// Takes the lines of a client until it leaves, ends or takes too long.
    fn listen(&mut self, peer: &mut Peer) {
        let start = Instant::now();
        let mut last = start;
        while let Some(line) = peer.line(PHASE_MAX.saturating_sub(start.elapsed())) {
            let Ok(line) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if let Some(left) = line.get("left") {
                self.left = Some(left.clone());
                return;
            }
            let why = match line["ok"].as_bool() {
                Some(true) => "",
                Some(false) | None => text(&line["why"]),
            };
            self.note(text(&line["step"]), why, last.elapsed());
            last = Instant::now();
        }
    }

    fn note(&mut self, step: &str, why: &str, took: Duration) {
        let verdict = if why.is_empty() { "ok" } else { "FAILED" };
        println!(
            "{:<28} {step:<16} {verdict:<6} {:>5.1} s  {why}",
            self.name(),
            took.as_secs_f32()
        );
        self.steps.insert(step.to_owned(), why.to_owned());
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
        let key = |step: &String| format!("{}/{step}", self.name());
        let connected = !self.steps.contains_key("connect");
        let missing = self
            .client
            .steps
            .iter()
            .filter(|_| connected)
            .map(|step| (key(step), "did not run".to_owned()));
        let shown = self.steps.iter().map(|(step, why)| (key(step), why.clone()));
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

/// The ids of the processes whose command line is as wanted.
fn processes(wanted: impl Fn(&[&[u8]]) -> bool) -> Vec<String> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.flatten()
        .filter(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            wanted(&arguments)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// A running client.
struct Peer {
    child: Child,
    lines: Receiver<String>,
}

impl Peer {
    fn start(program: Program, log: &Path) -> Result<Peer, String> {
        let log = fs::File::create(log).map_err(|error| format!("cannot make a log: {error}"))?;
        let mut child = program
            .into_command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start a client: {error}"))?;
        let output = child
            .stdout
            .take()
            .ok_or_else(|| "a client has no output".to_owned())?;
        Ok(Peer {
            child,
            lines: read_lines(output),
        })
    }

    /// Its next line; none when it ended or took too long.
    fn line(&mut self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// Ends it as a crash would: it closes and cancels nothing.
    fn end(&mut self) {
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            println!("a client could not be waited for");
        }
    }
}

fn read_lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
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
        print!("{:<28}", run.name());
        for step in &steps {
            let known = run.client.steps.iter().any(|known| known == step);
            let cell = match run.steps.get(*step) {
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
fn unexpected(
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
