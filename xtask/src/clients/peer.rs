//! A client that runs: its lines, and the steps that it tells of.
//!
//! Called by `clients` and `pairings`.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    sync::{
        Mutex,
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{Outcome, program::Program, workspace::text};

/// How many clients run at once.
const WORKERS: usize = 3;
/// The longest that one phase of one client may take.
const PHASE_MAX: Duration = Duration::from_secs(240);

/// Does the work for each; several at once, since a client mostly waits.
///
/// # Errors
/// The first of the work.
pub(crate) fn side_by_side<T: Send>(all: &mut [T], work: impl Fn(&mut T) -> Outcome + Sync) -> Outcome {
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

/// The steps of one client that ran.
pub(crate) struct Steps {
    pub(crate) name: String,
    /// Why each step failed; empty when it passed.
    pub(crate) why: BTreeMap<String, String>,
}

impl Steps {
    /// None yet, of a client by this name.
    pub(crate) fn of(name: String) -> Steps {
        Steps {
            name,
            why: BTreeMap::new(),
        }
    }

    /// Takes the lines of a client until one has this member, whose value it returns; none when the client ends or
    /// takes too long.
    pub(crate) fn listen(&mut self, peer: &mut Peer, last: &str) -> Option<Value> {
        let start = Instant::now();
        let mut before = start;
        while let Some(line) = peer.line(PHASE_MAX.saturating_sub(start.elapsed())) {
            let Ok(line) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if let Some(value) = line.get(last) {
                return Some(value.clone());
            }
            let why = match line["ok"].as_bool() {
                Some(true) => "",
                Some(false) | None => text(&line["why"]),
            };
            self.note(text(&line["step"]), why, before.elapsed());
            before = Instant::now();
        }
        None
    }

    /// Says how a step went: why it failed, or nothing.
    pub(crate) fn note(&mut self, step: &str, why: &str, took: Duration) {
        let verdict = if why.is_empty() { "ok" } else { "FAILED" };
        println!(
            "{:<34} {step:<16} {verdict:<6} {:>5.1} s  {why}",
            self.name,
            took.as_secs_f32()
        );
        self.why.insert(step.to_owned(), why.to_owned());
    }
}

/// The ids of the processes whose command line is as wanted.
pub(super) fn processes(wanted: impl Fn(&[&[u8]]) -> bool) -> Vec<String> {
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
pub(crate) struct Peer {
    child: Child,
    lines: Receiver<String>,
}

impl Peer {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(program: Program, log: &Path) -> Result<Peer, String> {
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

    /// Tells it to go on.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn go(&mut self) -> Outcome {
        let input = self.child.stdin.as_mut();
        input
            .map_or(Ok(()), |input| input.write_all(b"\n"))
            .map_err(|error| format!("cannot tell a client to go on: {error}"))
    }

    /// Its next line; none when it ended or took too long.
    fn line(&mut self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// Ends it as a crash would: it closes and cancels nothing.
    pub(crate) fn end(&mut self) {
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
