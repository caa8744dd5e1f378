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
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Outcome,
    packages::{self, Npm},
    program::Program,
    server::{Server, binary, empty_folder},
    workspace::{items, read, root, target, text},
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
/// The longest that one phase of one client may take.
const PHASE_MAX: Duration = Duration::from_secs(240);

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
    let mut server = Server::start(&binary, RIG, &results)?;
    let mut runs = Vec::new();
    for client in &wanted {
        for transport in &client.transports {
            let mut run = Run::new(client, *transport, &results);
            run.first(&installed, &binary, &server.url())?;
            runs.push(run);
        }
    }
    println!("the server is killed with -9 and started again");
    server.kill_and_start()?;
    for run in &mut runs {
        run.later(&installed, &binary, &server.url())?;
    }
    drop(server);
    report(&runs);
    println!("clients: {} s", start.elapsed().as_secs());
    compare(&runs, !arguments.is_empty())
}

/// How a client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Http,
    Stdio,
}

impl Transport {
    fn named(name: &str) -> Result<Transport, String> {
        match name {
            "http" => Ok(Transport::Http),
            "stdio" => Ok(Transport::Stdio),
            _ => Err(format!("`clients.json`: unknown transport `{name}`")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
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
        let file: Value = serde_json::from_str(&read(&format!("{RIG}/clients.json"))?)
            .map_err(|error| format!("`clients.json` is no JSON: {error}"))?;
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

    fn stem(&self) -> &str {
        self.script.split('.').next().unwrap_or(&self.script)
    }
}

/// What the wanted clients need.
struct Installed {
    npm: Option<Npm>,
    pythons: BTreeMap<String, PathBuf>,
    crates: BTreeMap<String, PathBuf>,
}

impl Installed {
    fn for_clients(clients: &[Client]) -> Result<Installed, String> {
        let mut installed = Installed {
            npm: None,
            pythons: BTreeMap::new(),
            crates: BTreeMap::new(),
        };
        for client in clients {
            println!("installing {}", client.name);
            let stem = client.stem();
            match client.script.rsplit('.').next() {
                Some("mjs") if installed.npm.is_none() => {
                    installed.npm = Some(Npm::install(RIG, "clients/npm")?);
                }
                Some("mjs") => {}
                Some("py") => {
                    let requirements = format!("{RIG}/requirements-{stem}.txt");
                    let interpreter = packages::python(&requirements, &format!("clients/{stem}"))?;
                    installed.pythons.insert(client.script.clone(), interpreter);
                }
                _ => {
                    installed.crates.insert(client.script.clone(), build(stem)?);
                }
            }
        }
        Ok(installed)
    }

    /// The program that runs a client's script.
    fn program(&self, script: &str) -> Result<Program, String> {
        let path = root().join(RIG).join(script);
        if let Some(program) = self.crates.get(script) {
            return Ok(Program::new(program));
        }
        if let Some(interpreter) = self.pythons.get(script) {
            return Ok(Program::new(interpreter).args(["-B"]).args([&path]));
        }
        let npm = self
            .npm
            .as_ref()
            .ok_or_else(|| format!("`{script}` needs packages that are not installed"))?;
        // Modules are looked for beside the script, so the scripts are put beside the modules.
        Ok(Program::new(npm.node()).args([scripts(npm)?.join(script)]))
    }
}

/// The TypeScript clients, copied to where their packages are.
fn scripts(npm: &Npm) -> Result<PathBuf, String> {
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
}

impl Run<'_> {
    fn new<'a>(client: &'a Client, transport: Transport, results: &Path) -> Run<'a> {
        Run {
            client,
            transport,
            folder: results.join(format!("{}-{}", client.name, transport.name())),
            steps: BTreeMap::new(),
            left: None,
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.client.name, self.transport.name())
    }

    /// Everything up to the tasks that are left. Over stdio the server is the client's own, and is killed here.
    fn first(&mut self, installed: &Installed, binary: &Path, url: &str) -> Outcome {
        fs::create_dir_all(&self.folder)
            .map_err(|error| format!("cannot make `{}`: {error}", self.folder.display()))?;
        let mut peer = self.start(installed, "first", binary, url)?;
        self.listen(&mut peer);
        if self.left.is_none() && !self.steps.contains_key("connect") {
            self.note("connect", "ended without leaving a task", Duration::ZERO);
        }
        self.kill_servers();
        peer.end();
        Ok(())
    }

    fn later(&mut self, installed: &Installed, binary: &Path, url: &str) -> Outcome {
        if self.left.is_none() {
            return Ok(());
        }
        let mut peer = self.start(installed, "later", binary, url)?;
        self.listen(&mut peer);
        peer.end();
        Ok(())
    }

    fn start(&self, installed: &Installed, phase: &str, binary: &Path, url: &str) -> Result<Peer, String> {
        let target = match self.transport {
            Transport::Http => url.to_owned(),
            Transport::Stdio => self.command(binary),
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

    /// The command of a server of the client's own, which writes its process id down first.
    fn command(&self, binary: &Path) -> String {
        let arguments = [
            Path::new("sh"),
            Path::new("-c"),
            Path::new("echo $$ >>\"$0\"; exec \"$@\""),
            &self.folder.join("servers"),
            binary,
            Path::new("serve"),
            Path::new("--stdio"),
            Path::new("--config"),
            &root().join(RIG).join("longhaul.toml"),
            Path::new("--state"),
            &self.folder.join("state"),
        ];
        let arguments: Vec<Value> = arguments
            .iter()
            .map(|argument| Value::from(argument.to_string_lossy()))
            .collect();
        Value::from(arguments).to_string()
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

    fn kill_servers(&self) {
        let written = fs::read_to_string(self.folder.join("servers")).unwrap_or_default();
        for process in written.lines() {
            // Those of connections that were closed are gone already.
            Program::new("kill").args(["-9", process]).works();
        }
    }

    /// The keys of all steps that it has or showed, and why each failed.
    fn verdicts(&self) -> BTreeMap<String, String> {
        let key = |step: &String| format!("{}/{step}", self.name());
        let missing = self
            .client
            .steps
            .iter()
            .map(|step| (key(step), "did not run".to_owned()));
        let shown = self.steps.iter().map(|(step, why)| (key(step), why.clone()));
        missing.chain(shown).collect()
    }
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
        print!(" {step:<14}");
    }
    println!();
    for run in runs {
        print!("{:<28}", run.name());
        for step in &steps {
            let known = run.client.steps.iter().any(|known| known == step);
            let cell = match run.steps.get(*step) {
                Some(why) if why.is_empty() => "ok",
                Some(_) => "FAILED",
                None if known => "MISSING",
                None => "-",
            };
            print!(" {cell:<14}");
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
