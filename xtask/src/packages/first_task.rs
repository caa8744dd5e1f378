//! The first minutes of somebody who has just installed Longhaul: the quickstart, a client, a result, and a `kill -9`.
//!
//! Called for each package that a user installs for themselves. The environment is empty but for `PATH`.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    Outcome,
    program::Program,
    workspace::{make_empty, root},
};

/// The longest that anything is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How often something is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So large is the one file of a tree that nobody reads to its end. It is sparse, and takes no space.
pub(super) const ENDLESS: u64 = 1 << 38;

/// An installed Longhaul of a user who has nothing else.
pub(super) struct Installed {
    words: Vec<OsString>,
    folder: PathBuf,
    home: PathBuf,
}

impl Installed {
    /// The program, and the words that come before every argument.
    ///
    /// # Errors
    /// When its user's home cannot be made.
    pub(super) fn new(program: &Path, words: &[&str], folder: &Path) -> Result<Installed, String> {
        static HOMES: AtomicU32 = AtomicU32::new(0);
        // Not in the target directory: the path of a socket is short.
        let number = HOMES.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("longhaul-home-{}-{number}", std::process::id()));
        make_empty(&home)?;
        let words = words.iter().map(OsString::from);
        Ok(Installed {
            words: std::iter::once(program.into()).chain(words).collect(),
            folder: folder.to_path_buf(),
            home,
        })
    }

    fn program(&self, arguments: &[&str]) -> Program {
        Program::new(&self.words[0])
            .args(&self.words[1..])
            .args(arguments)
            .folder(&self.folder)
            .clean()
            .env("HOME", &self.home)
            // Root has a place of the whole machine.
            .env("LONGHAUL_STATE_DIR", self.home.join("state"))
            .env("npm_config_offline", "true")
            .env("npm_config_update_notifier", "false")
            // A server in the background is not waited for.
            .env("LONGHAUL_SERVER__IDLE_EXIT", "1s")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.program(arguments).into_command()
    }

    /// What it prints.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn says(&self, arguments: &[&str]) -> Result<String, String> {
        self.program(arguments).output()
    }

    /// What it complains of.
    ///
    /// # Errors
    /// When it does not fail.
    pub(super) fn fails(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot start it: {error}"))?;
        match output.status.success() {
            true => Err("it works where it cannot".to_owned()),
            false => Ok(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Connects a client to it over `longhaul stdio`, and returns what the tools are called.
    ///
    /// # Errors
    /// When it is not answered.
    pub(super) fn speaks_mcp(&self) -> Result<Vec<String>, String> {
        tools(self.command(&["stdio"]))
    }

    fn serve(&self) -> Result<Serving, String> {
        let config = root().join("examples/quickstart/longhaul.toml");
        let log =
            fs::File::create(self.home.join("server.log")).map_err(|error| format!("no log: {error}"))?;
        let mut child = self
            .command(&["--json", "serve", "--bind", "127.0.0.1:0", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start the server: {error}"))?;
        let mut ready = String::new();
        let output = child.stdout.take().ok_or("the server has no output")?;
        let read = BufReader::new(output).read_line(&mut ready);
        let mut serving = Serving { child, pid: 0 };
        read.map_err(|error| format!("the server says nothing: {error}"))?;
        let ready: Value = serde_json::from_str(&ready).unwrap_or_default();
        let pid = ready["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        serving.pid = pid.ok_or_else(|| {
            let said = fs::read_to_string(self.home.join("server.log")).unwrap_or_default();
            format!("the server is not ready: {said}")
        })?;
        Ok(serving)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // What it leaves is small, and a server that still ends may write there.
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A server, and the launcher that started it where there is one; both end with this.
struct Serving {
    child: Child,
    pid: u32,
}

impl Serving {
    fn signal(pid: u32, signal: &str) -> Outcome {
        Program::new("kill").args([signal, &pid.to_string()]).run()
    }

    fn kill(mut self) -> Outcome {
        Serving::signal(self.pid, "-9")?;
        self.pid = 0;
        self.child.wait().map(|_| ()).map_err(|error| error.to_string())
    }

    /// Tells what was started to end; it must end well.
    fn end(mut self) -> Outcome {
        Serving::signal(self.child.id(), "-TERM")?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => {
                    self.pid = 0;
                    return Ok(());
                }
                Ok(Some(status)) => return Err(format!("the server ended with {status}")),
                Ok(None) => std::thread::sleep(LOOK_EVERY),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the server does not end".to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.pid != 0 {
            let server = Program::new("kill").args(["-9", &self.pid.to_string()]);
            // One that has ended is none.
            let _ = server.works();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a client at the standard streams of this command is offered.
///
/// # Errors
/// When it is not answered.
pub(super) fn tools(mut command: Command) -> Result<Vec<String>, String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `longhaul stdio`: {error}"))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (mut input, output) = input.zip(output).ok_or("`longhaul stdio` has no streams")?;
    let frames = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "first-task", "version": "1" },
        }}),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ];
    for frame in frames {
        writeln!(input, "{frame}").map_err(|error| format!("`longhaul stdio` reads nothing: {error}"))?;
    }
    let mut answered = None;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("`longhaul stdio` says nothing: {error}"))?;
        let frame: Value =
            serde_json::from_str(&line).map_err(|_| format!("`longhaul stdio` says `{line}`"))?;
        if frame["id"] == 2 {
            answered = Some(frame);
            break;
        }
    }
    drop(input);
    let status = child.wait().map_err(|error| error.to_string())?;
    let tools = answered
        .map(|frame| frame["result"]["tools"].clone())
        .unwrap_or_default();
    match tools.as_array() {
        Some(tools) if status.success() => Ok(tools
            .iter()
            .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
            .collect()),
        Some(_) | None => Err(format!(
            "a client got no list of tools; `longhaul stdio` ended with {status}"
        )),
    }
}

/// Makes a folder with one file that is as long as this.
///
/// # Errors
/// When it cannot be written.
pub(super) fn tree(folder: &Path, length: u64) -> Outcome {
    fs::create_dir_all(folder)
        .and_then(|()| {
            fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.join("file"))
        })
        .and_then(|file| file.set_len(length))
        .map_err(|error| format!("cannot make `{}`: {error}", folder.display()))
}

/// Waits until a task is as it should be: its state, and the number of its attempts.
///
/// # Errors
/// When it does not come so far.
pub(super) fn until(
    name: &str,
    state: &str,
    attempts: u64,
    look: impl Fn() -> Result<String, String>,
) -> Outcome {
    let start = Instant::now();
    let mut found = Value::Null;
    while start.elapsed() < PATIENCE {
        found = serde_json::from_str(&look()?).unwrap_or_default();
        // A program that runs has said how far it is; one that is only about to begin has not.
        let said = state != "running" || found["progress"].is_object();
        if found["state"] == state && found["attempts"] == attempts && said {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(format!(
        "the task {name} is not {state} in attempt {attempts}: {found}"
    ))
}

/// Uses it: serves, connects a client, runs a tool, kills the server in the middle of a call, and finds the task again.
///
/// # Errors
/// The first thing that is not as it should be.
pub(super) fn first_task(longhaul: &Installed) -> Result<&'static str, String> {
    let server = longhaul.serve()?;
    longhaul.says(&["doctor"])?;
    let tools = longhaul.speaks_mcp()?;
    if !tools.iter().any(|tool| tool == "checksum_tree") {
        return Err(format!("a client sees no tool of the quickstart: {tools:?}"));
    }
    let folder = longhaul.home.join("tree");
    tree(&folder, 1 << 20)?;
    let path = format!("path={}", folder.display());
    counted(&longhaul.says(&["run", "checksum_tree", &path])?)?;

    tree(&folder, ENDLESS)?;
    let name = longhaul.says(&["run", "--no-wait", "checksum_tree", &path])?;
    let name = name.trim();
    let look = || longhaul.says(&["--json", "tasks", "get", name]);
    until(name, "running", 1, look)?;
    server.kill()?;
    tree(&folder, 1 << 20)?;
    let server = longhaul.serve()?;
    until(name, "done", 2, look)?;
    counted(&longhaul.says(&["tasks", "result", name])?)?;
    server.end()?;
    Ok("a tool run, the server killed with -9, its task found and finished")
}

/// The result of the quickstart's tool for a folder with one file.
///
/// # Errors
/// When it is something else.
pub(super) fn counted(result: &str) -> Outcome {
    match result
        .split_whitespace()
        .collect::<String>()
        .contains("\"files\":1")
    {
        true => Ok(()),
        false => Err(format!("the tool returned `{}`", result.trim())),
    }
}
