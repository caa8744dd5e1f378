//! MCP over standard streams: a client at a pipe, the server behind it, and what becomes of both.

mod framing;
mod life;
mod pipes;
mod toolsets;
mod wrap;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
};

use serde_json::{Value, json};

use crate::support::{PATIENCE, Rig};

/// A tool that waits until a file exists, one that says its process id, and one that echoes its argument.
fn config(gate: &std::path::Path) -> String {
    let rig_gate = gate.display();
    // What a test leaves behind ends by itself.
    let folder = gate.parent().unwrap().display();
    format!(
        r#"
[tools.waits]
description = "Waits for a file."
command = ["sh", "-c", "while test -d {folder} && ! test -e {rig_gate}; do sleep 0.02; done; echo over"]
[tools.counts]
description = "Adds a line to a file, then waits for another."
command = ["sh", "-c", "echo run >> {rig_gate}.runs; while test -d {folder} && ! test -e {rig_gate}; do sleep 0.02; done; echo over"]
[tools.steps]
description = "Waits for a file, says that it is half way, waits for another."
command = ["sh", "-c", "while ! test -e {rig_gate}; do sleep 0.02; done; echo 1/2; while ! test -e {rig_gate}.end; do sleep 0.02; done; echo over"]
[tools.says]
description = "Says hello."
command = ["echo", "hello"]
"#
    )
}

/// A user with those tools; [`Gate::open`] lets them end.
struct Place {
    rig: Rig,
    gate: std::path::PathBuf,
}

impl Place {
    fn new(settings: &str) -> Place {
        let home = tempfile::Builder::new().prefix("lhg").tempdir().unwrap().keep();
        let gate = home.join("gate");
        let idle_exit = match settings.contains("idle_exit") {
            true => "",
            false => "idle_exit = \"5s\"",
        };
        let rig = Rig::new(&format!("{idle_exit}\n{settings}\n{}", config(&gate)));
        Place { rig, gate }
    }

    fn open(&self) {
        std::fs::write(&self.gate, "").unwrap();
    }

    /// How often `counts` was begun.
    fn runs(&self) -> usize {
        std::fs::read_to_string(self.gate.with_extension("runs")).map_or(0, |text| text.lines().count())
    }

    fn pipe(&self) -> Client {
        Client::start(&self.rig, &["stdio"])
    }

    /// The state of the server, as the socket tells it; `None` where none answers.
    fn health(&self) -> Option<Value> {
        let ran = self.rig.run(&["--json", "doctor"]);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == "server").cloned()
    }

    /// The process id of the server that answers, when one does.
    fn serving(&self) -> Option<i32> {
        let found = self.health()?;
        let pid = found["found"].as_str()?.split("pid ").nth(1)?;
        pid.split(',').next()?.parse().ok()
    }

    /// The process id of the server, once one answers.
    fn server_pid(&self) -> i32 {
        self.server_but(0)
    }

    /// The process id of a server that is another one than this.
    fn server_but(&self, old: i32) -> i32 {
        let deadline = longhaul_engine::clock::monotonic() + PATIENCE;
        loop {
            if let Some(pid) = self.serving().filter(|pid| *pid != old) {
                return pid;
            }
            assert!(
                longhaul_engine::clock::monotonic() < deadline,
                "no other server than {old}"
            );
        }
    }

    /// Waits until a task of this tool runs; its name.
    fn until_runs(&self, tool: &str) -> String {
        self.until_is(tool, "running")
    }

    /// Waits until a task of this tool asks; its name.
    fn until_asks(&self, tool: &str) -> String {
        self.until_is(tool, "asking")
    }

    fn until_is(&self, tool: &str, status: &str) -> String {
        let deadline = longhaul_engine::clock::monotonic() + PATIENCE;
        loop {
            let ran = self
                .rig
                .run(&["--json", "tasks", "--status", status, "--tool", tool]);
            let tasks: Value = serde_json::from_str(&ran.out).unwrap_or_default();
            if let Some(name) = tasks["tasks"][0]["name"].as_str() {
                return name.to_owned();
            }
            assert!(
                longhaul_engine::clock::monotonic() < deadline,
                "no task of {tool} is {status}"
            );
        }
    }

    fn signal_server(&self, signal: nix::sys::signal::Signal) -> i32 {
        let pid = self.server_pid();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
        pid
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = self.serving() {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = std::fs::remove_dir_all(self.gate.parent().unwrap());
    }
}

/// A client of some generation at the standard streams of a process.
struct Client {
    child: Child,
    said: Option<ChildStdin>,
    heard: Receiver<String>,
    kept: Vec<Value>,
    next: i64,
}

impl Client {
    fn start(rig: &Rig, arguments: &[&str]) -> Client {
        Client::of(rig.command(arguments))
    }

    fn of(mut command: Command) -> Client {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let heard = lines(child.stdout.take().unwrap());
        Client {
            said: child.stdin.take(),
            child,
            heard,
            kept: Vec::new(),
            next: 1,
        }
    }

    fn raw(&mut self, line: &[u8]) {
        let said = self.said.as_mut().expect("the side is open");
        said.write_all(line).unwrap();
        said.write_all(b"\n").unwrap();
        said.flush().unwrap();
    }

    fn send(&mut self, frame: &Value) {
        self.raw(frame.to_string().as_bytes());
    }

    /// Sends a request that names its version; the id is returned.
    fn ask(&mut self, method: &str, mut params: Value) -> i64 {
        params["_meta"] = meta();
        self.ask_plainly(method, params)
    }

    /// Sends a request of a session.
    fn ask_plainly(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next frame; `None` at the end.
    fn hear(&mut self) -> Option<Value> {
        if !self.kept.is_empty() {
            return Some(self.kept.remove(0));
        }
        self.fresh()
    }

    /// The next frame, which must come.
    fn expect(&mut self) -> Value {
        match self.hear() {
            Some(frame) => frame,
            None => panic!("no frame before the end: {}", self.complaints()),
        }
    }

    fn fresh(&mut self) -> Option<Value> {
        match self.heard.recv_timeout(PATIENCE) {
            Ok(line) => Some(serde_json::from_str(&line).expect("standard output carries frames only")),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing was heard in time"),
        }
    }

    /// The reply to this request; what comes before is kept.
    fn reply(&mut self, id: i64) -> Value {
        let is_it = |frame: &Value| frame["id"] == id && frame.get("method").is_none();
        if let Some(at) = self.kept.iter().position(is_it) {
            return self.kept.remove(at);
        }
        loop {
            let Some(frame) = self.fresh() else {
                panic!("no reply before the end: {}", self.complaints());
            };
            if is_it(&frame) {
                return frame;
            }
            self.kept.push(frame);
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.reply(id)
    }

    /// Begins a task and gives its id.
    fn task(&mut self, tool: &str) -> String {
        let reply = self.call("tools/call", json!({ "name": tool, "arguments": {} }));
        reply["result"]["taskId"]
            .as_str()
            .unwrap_or_else(|| panic!("no task: {reply}"))
            .to_owned()
    }

    /// The task, once it has ended.
    fn ended(&mut self, task: &str) -> Value {
        let id = self.ask(
            "subscriptions/listen",
            json!({ "notifications": { "taskIds": [task] } }),
        );
        let mut last = Value::Null;
        loop {
            let frame = self.expect();
            if frame["id"] == id {
                return last;
            }
            if frame["method"] == "notifications/tasks" && frame["params"]["taskId"] == task {
                last = frame["params"].clone();
            }
        }
    }

    /// Closes the client's side.
    fn leave(&mut self) {
        self.said = None;
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn exit(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Reads nothing any more and asks on, until the process ends; its exit code.
    fn exit_unread(&mut self) -> i32 {
        // The reading thread closes its end when nobody takes what it read.
        self.heard = sync_channel(1).1;
        let deadline = longhaul_engine::clock::monotonic() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(longhaul_engine::clock::monotonic() < deadline, "it does not end");
            let ping = json!({ "jsonrpc": "2.0", "id": self.next, "method": "tools/list", "params": { "_meta": meta() } });
            self.next += 1;
            // It may end between the look and this.
            let _ = writeln!(self.said.as_mut().unwrap(), "{ping}");
        }
    }

    fn complaints(&mut self) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut text).unwrap();
        text
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads on a thread of its own, so that a wait for a line can end.
fn lines(out: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1_000);
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": { "io.modelcontextprotocol/tasks": {} }
        },
    })
}

/// Without the tasks extension.
fn plain_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}
