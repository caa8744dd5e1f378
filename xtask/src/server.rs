//! The server that a rig judges, on a free port: `longhaul serve` with a configuration of the rig's own, or a script in its place.
//!
//! Called by `conformance`, `clients` and `bench`. The server is ended when it is dropped.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Outcome,
    program::Program,
    workspace::{make_empty, root, target},
};

const START_MAX: Duration = Duration::from_secs(20);
const END_MAX: Duration = Duration::from_secs(10);

/// The binary under test: the one in `LONGHAUL_BINARY`, else the one of this workspace, built now.
///
/// # Errors
/// When it does not build.
pub(crate) fn binary() -> Result<PathBuf, String> {
    if let Some(binary) = std::env::var_os("LONGHAUL_BINARY") {
        return Ok(PathBuf::from(binary));
    }
    Program::cargo()
        .args(["build", "--locked", "-p", "longhaul"])
        .run()?;
    Ok(target()?.join("debug/longhaul"))
}

/// A folder under the target directory, empty now.
///
/// # Errors
/// When it cannot be cleared or made.
pub(crate) fn empty_folder(name: &str) -> Result<PathBuf, String> {
    let folder = target()?.join(name);
    make_empty(&folder)?;
    Ok(folder)
}

/// A server that was started here; ended when dropped.
pub(crate) struct Server {
    child: Child,
    program: Box<dyn Fn(u16) -> Program>,
    log: PathBuf,
    port: u16,
}

impl Server {
    /// Starts Longhaul with the `longhaul.toml` of a folder, its state and log in the folder of the run's results, and
    /// waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started or does not answer in time; its log is in the message.
    pub(crate) fn start(binary: &Path, folder: &Path, results: &Path) -> Result<Server, String> {
        Server::on(binary, folder, &results.join("state"), results.join("server.log"))
    }

    /// The same with its state and log elsewhere.
    ///
    /// # Errors
    /// As for `start`.
    pub(crate) fn on(binary: &Path, folder: &Path, state: &Path, log: PathBuf) -> Result<Server, String> {
        let (binary, folder, state) = (binary.to_path_buf(), folder.to_path_buf(), state.to_path_buf());
        let program = move |port: u16| {
            Program::new(&binary)
                .args(["serve", "--config", "longhaul.toml", "--state"])
                .args([&state])
                .args(["--bind", &format!("127.0.0.1:{port}")])
                .folder(&folder)
        };
        Server::of(Box::new(program), log)
    }

    /// Starts a script that takes its port as argument, and waits until it answers.
    ///
    /// # Errors
    /// As for `start`.
    pub(crate) fn script(interpreter: &Path, script: &str, log: PathBuf) -> Result<Server, String> {
        let (interpreter, script) = (interpreter.to_path_buf(), root().join(script));
        let program = move |port: u16| {
            Program::new(&interpreter)
                .args([&script])
                .args([port.to_string()])
        };
        Server::of(Box::new(program), log)
    }

    /// Starts what the function makes of a port, and waits until it answers there.
    ///
    /// # Errors
    /// As for `start`.
    pub(crate) fn of(program: Box<dyn Fn(u16) -> Program>, log: PathBuf) -> Result<Server, String> {
        Server::within(START_MAX, program, log)
    }

    /// The same of a server that takes longer to start.
    ///
    /// # Errors
    /// As for `start`.
    pub(crate) fn within(
        limit: Duration,
        program: Box<dyn Fn(u16) -> Program>,
        log: PathBuf,
    ) -> Result<Server, String> {
        let port = free_port()?;
        let child = spawn(program(port), &log)?;
        let mut server = Server {
            child,
            program,
            log,
            port,
        };
        server.wait(limit)?;
        Ok(server)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it serves MCP.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Kills it with -9, and starts it again on the same state and port.
    ///
    /// # Errors
    /// As for `start`.
    pub(crate) fn kill_and_start(&mut self) -> Outcome {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map_err(|error| format!("cannot kill the server: {error}"))?;
        self.child = spawn((self.program)(self.port), &self.log)?;
        self.wait(START_MAX)
    }

    /// Waits until the server answers HTTP.
    fn wait(&mut self, limit: Duration) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Ok(Some(status)) = self.child.try_wait() {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("the server ended with {status}:\n{said}"));
            }
            if answers(self.port) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!(
            "the server does not answer after {} s; see `{}`",
            limit.as_secs(),
            self.log.display()
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = Program::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .run()
            .is_ok();
        let start = Instant::now();
        while ended && start.elapsed() < END_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            println!("the server could not be waited for");
        }
    }
}

fn spawn(program: Program, log: &Path) -> Result<Child, String> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|error| format!("cannot make a log: {error}"))?;
    let output = log
        .try_clone()
        .map_err(|error| format!("cannot use the log twice: {error}"))?;
    program
        .into_command()
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start the server: {error}"))
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
    listener
        .local_addr()
        .map(|address| address.port())
        .map_err(|error| format!("no free port: {error}"))
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let request = format!("GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    let mut first = [0; 5];
    stream.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
        && stream.write_all(request.as_bytes()).is_ok()
        && stream.read_exact(&mut first).is_ok()
        && &first == b"HTTP/"
}
