//! A place of its own for each test: a configuration, a state directory, a server, and the commands that reach it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use longhaul_engine::clock;
use serde_json::Value;
use tempfile::TempDir;

mod chrome;
mod site;

pub(crate) use self::{
    chrome::{CHROMIUM, Chrome},
    site::Site,
};

/// The longest that anything is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The binary under test.
pub(crate) const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// One user with one state directory.
pub(crate) struct Rig {
    pub(crate) home: TempDir,
}

/// A running server; killed when the test ends.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Rig {
    /// A user with this configuration.
    pub(crate) fn new(config: &str) -> Rig {
        let home = tempfile::Builder::new().prefix("lh").tempdir().unwrap();
        fs::write(
            home.path().join("longhaul.toml"),
            format!("[server]\nbind = \"127.0.0.1:0\"\n{config}"),
        )
        .unwrap();
        Rig { home }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file and gives its path as TOML text.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// A command of this user, in a clean environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(LONGHAUL), arguments)
    }

    /// As [`Rig::command`], of the binary installed at another place.
    pub(crate) fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = clean(program);
        command
            .env("HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.path())
            .arg("--state")
            .arg(self.path("state"))
            .arg("--config")
            .arg(self.path("longhaul.toml"))
            .args(arguments)
            .current_dir(self.home.path());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    /// Starts a server and waits until it says that it is ready.
    pub(crate) fn serve(&self) -> Server {
        let mut child = self
            .command(&["serve", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).expect("a ready server says where it is");
        Server {
            child,
            address: ready["address"].as_str().unwrap().to_owned(),
        }
    }

    /// Calls a tool without waiting: the task's name.
    pub(crate) fn start(&self, arguments: &[&str]) -> String {
        let ran = self.run(&[&["run", "--no-wait"], arguments].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.trim().to_owned()
    }

    /// Waits until the task is as the test says.
    pub(crate) fn until(&self, name: &str, done: impl Fn(&Value) -> bool) -> Value {
        let deadline = clock::monotonic() + PATIENCE;
        let mut watch = None;
        loop {
            let ran = self.run(&["--json", "tasks", "get", name]);
            let task: Value = serde_json::from_str(&ran.out).unwrap_or_default();
            if done(&task) {
                return task;
            }
            assert!(
                clock::monotonic() < deadline,
                "{name} never came so far: {task:#}"
            );
            // The next version of the task is the signal; a settled task has none.
            let next = watch.get_or_insert_with(|| Watch::begin(self, name)).next();
            if next.is_none() {
                watch = None;
            }
        }
    }

    /// The JSON in the text of a finished task's result.
    pub(crate) fn result(&self, name: &str) -> Value {
        let ran = self.run(&["--json", "tasks", "result", name]);
        let outcome: Value = serde_json::from_str(&ran.out).expect("JSON");
        let text = outcome["result"]["content"][0]["text"].as_str();
        serde_json::from_str(text.unwrap_or_else(|| panic!("no text: {outcome}"))).expect("JSON")
    }

    /// Waits until the task is in this state.
    pub(crate) fn until_state(&self, name: &str, state: &str) -> Value {
        self.until(name, |task| task["state"] == state)
    }
}

/// The versions of a task, as `tasks watch --json` prints them.
struct Watch {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Watch {
    fn begin(rig: &Rig, name: &str) -> Watch {
        let mut child = rig
            .command(&["--json", "tasks", "watch", name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watch { child, lines }
    }

    fn next(&mut self) -> Option<String> {
        self.lines.next()?.ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Server {
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// `kill -9`, and the wait for the process to be gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// One HTTP request over TCP, and the whole reply as text.
    pub(crate) fn http(&self, request: &str) -> Http {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Http::parse(&text)
    }

    /// A GET of the local page.
    pub(crate) fn get(&self, path: &str, cookie: &str) -> Http {
        let host = &self.address;
        self.http(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        ))
    }

    /// A form of the local page, sent.
    pub(crate) fn post(&self, path: &str, cookie: &str, origin: &str, form: &[(&str, &str)]) -> Http {
        let host = &self.address;
        let mut body = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form {
            body.append_pair(name, value);
        }
        let body = body.finish();
        let length = body.len();
        self.http(&format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    /// Opens the page with a link of the command line: the session's cookie.
    pub(crate) fn enter(&self, rig: &Rig) -> String {
        let link = rig.run(&["page"]).out;
        let path = link
            .trim()
            .split_once(&self.address)
            .expect("a link to this server")
            .1
            .to_owned();
        let opened = self.get(&path, "");
        assert_eq!(opened.status, 303, "{}", opened.head);
        opened.cookie()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reply.
pub(crate) struct Http {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Http {
    /// A whole reply.
    pub(crate) fn parse(text: &str) -> Http {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        Http {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }

    fn cookie(&self) -> String {
        self.header("set-cookie")
            .split(';')
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// The value of a hidden field.
    pub(crate) fn hidden(&self, name: &str) -> String {
        let marked = format!("name=\"{name}\" value=\"");
        let found = self
            .body
            .split_once(&marked)
            .unwrap_or_else(|| panic!("no field {name}"))
            .1;
        found.split('"').next().unwrap().to_owned()
    }
}

/// The binary in an environment without anything of the machine.
pub(crate) fn longhaul() -> Command {
    clean(Path::new(LONGHAUL))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the binary under test is no task's work"
)]
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Runs the binary as it is.
pub(crate) fn plain(arguments: &[&str], directory: &Path) -> Ran {
    let output = longhaul()
        .args(arguments)
        .env("HOME", directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output();
    Ran::of(output.unwrap())
}
