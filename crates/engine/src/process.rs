//! A program that is a child process: started, followed, bounded, and ended with everything that it started.
//!
//! Called by the gateway's command tools, and for the servers that it relays to; nothing else in Longhaul starts
//! a tool's process. It
//! knows nothing of MCP, of tools or of configuration: it reports facts (bytes, lines, messages, how it ended)
//! and takes orders (stop, answer, write).
//!
//! Every command runs under a **shim**, a small process of our own binary ([`shim::main`]). The shim is a
//! subreaper in a session of its own and holds one end of a socket. When that socket closes, however the runner
//! died, or when a stop order arrives, the shim ends the whole tree: TERM, the grace, then KILL again and again
//! until no descendant is left. It never copies data: the pipes go from the command straight to the runner.
//! A command that exits and leaves children behind has them ended too, before its exit is reported.
//!
//! If the shim itself is killed, its tree falls to the runner ([`become_subreaper`]), which ends it. If both are
//! killed, the next runner finds what is left by the mark in the environment ([`sweep`]); a process may have
//! cleared that, so the attempt is not confirmed ended unless its shim had recorded it.
//!
//! Parent-death signals are not used: they follow the *thread* that spawned, and runtime threads end (P2).
//!
//! What escapes: work handed to another service (`docker run`, `systemd-run`, `at`), and a child that runs as
//! another user, which only root can end; the latter is reported as `confirmed: false`.
//!
//! **macOS** is kept compiling and is weaker: there is no subreaper, so a grandchild that leaves its parent *and*
//! its session can survive; there is no `/proc`, so the tree is read with `ps`, [`sweep`] finds nothing and
//! confirms nothing, and `memory_max` is not watched. [`Ended::confirmed`] is never true there.

mod descriptor;
mod identity;
mod keeper;
mod order;
mod output;
mod record;
mod resolve;
pub mod shim;
mod streams;
mod sweep;
mod tree;

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

pub use self::{
    descriptor::{DESCRIPTOR, descriptor},
    identity::{Identity, become_subreaper, identity},
    output::{Output, Spill},
    resolve::{Unstartable, resolve},
    sweep::{Swept, forget, sweep},
};

/// The environment variable that holds [`Spec::mark`].
pub const TASK: &str = "LONGHAUL_TASK";
/// The environment variable that holds [`Spec::runner`].
pub const RUNNER: &str = "LONGHAUL_RUNNER";
/// The environment variable that holds [`Spec::attempt`].
pub const ATTEMPT: &str = "LONGHAUL_ATTEMPT";
/// The environment variable that holds [`Spec::idempotency_key`].
pub const IDEMPOTENCY_KEY: &str = "LONGHAUL_IDEMPOTENCY_KEY";

/// What to run, where, and within which limits.
///
/// `Debug` shows the program and the directory only: arguments, environment and input may hold secrets (S23).
#[derive(Clone)]
pub struct Spec {
    /// The file to execute, as [`resolve`] found it.
    pub program: PathBuf,
    /// The arguments, the first one (the name by which the program is called) included. No shell sees them.
    pub argv: Vec<OsString>,
    /// The directory to run in.
    pub cwd: PathBuf,
    /// The whole environment; nothing is inherited. The `LONGHAUL_…` variables are added and win.
    pub env: Vec<(OsString, OsString)>,
    /// What the program reads on its standard input. Secrets go here, never into `argv` or `env` (S23).
    pub input: Input,
    /// The longest that it may run; it is stopped then.
    pub timeout: Option<Duration>,
    /// The longest that it may be silent on every stream; it is stopped then.
    pub idle_timeout: Option<Duration>,
    /// The most memory of the whole tree, in bytes; it is killed at once when it uses more. See [`shim`].
    pub memory_max: Option<u64>,
    /// How much the tree gives way to other processes when the processors are busy, 0 to 19.
    pub nice: u8,
    /// The time between TERM and KILL.
    pub grace: Duration,
    /// What is kept of its output.
    pub limits: Limits,
    /// Whether each line of standard output and standard error is a [`Fact`] of its own.
    pub lines: Lines,
    /// What the program runs for, as text, in [`TASK`]: the task, or another name that no two live programs of a
    /// runner share. Without NUL.
    pub mark: String,
    /// The runner process that owns it, as text, in [`RUNNER`]; by it [`sweep`] finds what is left.
    pub runner: String,
    /// The attempt, from 1, in [`ATTEMPT`].
    pub attempt: u32,
    /// What is the same at every attempt of the task, in [`IDEMPOTENCY_KEY`]: the task's id. Not the key that a
    /// client may send.
    pub idempotency_key: Option<String>,
    /// The directory for output that does not fit in memory, and for the records by which [`sweep`] knows what
    /// ended. One for each runner. Must exist, mode 0700.
    pub spool: PathBuf,
    /// How the shim is started.
    pub shim: Shim,
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec")
            .field("program", &self.program)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// The program that calls [`shim::main`], and the arguments that make it do so (`longhaul`, `__shim`).
#[derive(Clone, Debug)]
pub struct Shim {
    /// The file to execute.
    pub program: PathBuf,
    /// Its arguments, without the program's own name.
    pub args: Vec<OsString>,
}

/// What a program reads on its standard input.
#[derive(Clone)]
pub enum Input {
    /// Nothing: end of file at once.
    Nothing,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
    /// What [`Orders::write`] sends, until [`Orders::close_input`].
    Open,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Input::Nothing => "Nothing",
            Input::Bytes(_) => "Bytes",
            Input::Open => "Open",
        })
    }
}

/// What is kept of a program's output. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Standard output kept in memory. More of it goes to a file without a name, in the spool.
    pub output_max: usize,
    /// Standard output kept at all. The rest is counted, and dropped; the pipe is still drained.
    pub spill_max: u64,
    /// The last bytes of standard error kept.
    pub error_tail_max: usize,
    /// The last bytes of standard output that [`View::output_tail`] shows while the program runs.
    pub output_tail_max: usize,
    /// The longest line reported in one piece as [`Fact::Line`].
    pub line_max: usize,
    /// The longest message on the descriptor; a longer one is dropped and told as [`Fact::TooLong`].
    pub message_max: usize,
}

impl Default for Limits {
    /// 8 MiB in memory, 64 MiB in all, 64 KiB of standard error, 8 KiB of output shown, lines of 64 KiB, messages of
    /// 1 MiB.
    fn default() -> Limits {
        Limits {
            output_max: 8 << 20,
            spill_max: 64 << 20,
            error_tail_max: 64 << 10,
            output_tail_max: 8 << 10,
            line_max: 64 << 10,
            message_max: 1 << 20,
        }
    }
}

/// Which streams are told line by line while the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Neither.
    #[default]
    Neither,
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
    /// Both.
    Both,
}

/// A stream of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
}

/// What is left of a program while it is being ended. The shim tells it at most four times a second, and only when it
/// changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// How many of its processes were seen since its end began.
    pub seen: u32,
    /// How many of them still live.
    pub alive: u32,
    /// Those that still live, at most [`LEFT_NAMED_MAX`], the oldest first.
    pub named: Vec<Process>,
}

/// The most processes that [`Left`] names.
pub const LEFT_NAMED_MAX: usize = 16;

/// One process of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its short name as the kernel has it, at most 15 bytes; each process can give itself any. Empty where the platform
    /// does not tell.
    pub name: String,
}

/// Something that happened to the program, in the order in which it was seen. [`Fact::Ended`] is the last.
#[derive(Debug)]
pub enum Fact {
    /// Bytes of one line, without the line feed. Bytes, because nothing makes a program write UTF-8.
    Line {
        /// Where it was written.
        stream: Stream,
        /// The bytes, at most [`Limits::line_max`].
        bytes: Vec<u8>,
        /// The line goes on in the next fact of this stream.
        more: bool,
        /// The stream ended before the line did.
        cut: bool,
    },
    /// A stream that is told line by line ended, and the program may live on.
    Closed(Stream),
    /// One JSON value on the descriptor named in [`DESCRIPTOR`], as it was written.
    Message(Vec<u8>),
    /// A line on that descriptor that is longer than [`Limits::message_max`]; all but its start was dropped.
    TooLong {
        /// The first [`Limits::message_max`] bytes.
        start: Vec<u8>,
    },
    /// A line on that descriptor that was not one JSON value; it was dropped.
    Garbled,
    /// It ended. Nothing comes after.
    Ended(Box<Ended>),
}

/// How a program ended, and what is left of it.
#[derive(Debug)]
pub struct Ended {
    /// How the program itself ended; `None` when that could not be seen, because the shim was killed.
    pub exit: Option<Exit>,
    /// Why.
    pub reason: Reason,
    /// Standard output.
    pub output: Output,
    /// The last bytes of standard error.
    pub error_tail: Vec<u8>,
    /// How many bytes standard error had in all.
    pub error_total: u64,
    /// How many processes the program left behind when it exited by itself; they were ended.
    pub leaked: u32,
    /// Nothing of it is left alive. Only then may the task be called stopped.
    pub confirmed: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Why a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// By itself.
    Exited,
    /// It ran longer than [`Spec::timeout`].
    TimedOut,
    /// It was silent for longer than [`Spec::idle_timeout`].
    Idle,
    /// By order: [`Orders::stop`], or the facts were dropped.
    Stopped,
    /// It used more than [`Spec::memory_max`].
    OutOfMemory,
    /// Its shim was killed, or broke; the tree was ended by the runner.
    ShimLost,
}

/// What happens to a program, while it happens. Dropping it is an order to stop.
#[derive(Debug)]
pub struct Facts {
    facts: mpsc::Receiver<Fact>,
}

impl Facts {
    /// The next fact; `None` after [`Fact::Ended`]. Cancel-safe.
    ///
    /// A caller that does not read holds the program up: its streams are read only as fast as its facts are
    /// taken. Stopping does not wait for the reader.
    pub async fn next(&mut self) -> Option<Fact> {
        self.facts.recv().await
    }

    /// Reads and drops every fact until the last.
    ///
    /// Returns `None` when [`Fact::Ended`] was already taken, or the runtime is going down.
    pub async fn ended(mut self) -> Option<Box<Ended>> {
        while let Some(fact) = self.next().await {
            match fact {
                Fact::Ended(ended) => return Some(ended),
                Fact::Line { .. }
                | Fact::Closed(_)
                | Fact::Message(_)
                | Fact::TooLong { .. }
                | Fact::Garbled => {}
            }
        }
        None
    }
}

/// What a program can be told. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Orders {
    pid: i32,
    stop: watch::Sender<bool>,
    waiting: watch::Sender<bool>,
    answers: mpsc::Sender<Vec<u8>>,
    input: mpsc::Sender<Option<Vec<u8>>>,
    view: View,
}

/// What can be seen of a program while it runs. Holding it keeps nothing of the program alive. Cheap to clone.
#[derive(Clone)]
pub struct View {
    error_tail: Arc<Mutex<output::Tail>>,
    output_tail: Arc<Mutex<output::Tail>>,
    left: watch::Receiver<Option<Left>>,
    secrets: Arc<[String]>,
}

/// What the program wrote stays out of logs.
impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    /// The last bytes of its standard error so far, at most [`Limits::error_tail_max`].
    pub fn error_tail(&self) -> Vec<u8> {
        output::lock(&self.error_tail).bytes()
    }

    /// The last bytes of its standard output so far, at most [`Limits::output_tail_max`].
    pub fn output_tail(&self) -> Vec<u8> {
        output::lock(&self.output_tail).bytes()
    }

    /// The same view, of a program that was given these secrets (S23).
    pub fn with_secrets(self, secrets: Vec<String>) -> View {
        View {
            secrets: secrets.into(),
            ..self
        }
    }

    /// What must be taken out of what the program wrote before it is shown.
    pub fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// What is left of it; `None` before its end began.
    pub fn left(&self) -> Option<Left> {
        self.left.borrow().clone()
    }
}

/// The program has ended, or has closed that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reach the program: it has ended or closed that stream")]
pub struct Gone;

impl Orders {
    /// The program's process id; 0 when its shim was killed before it could tell.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The last bytes of its standard error so far, at most [`Limits::error_tail_max`]; after the end, all that
    /// [`Ended::error_tail`] has.
    pub fn error_tail(&self) -> Vec<u8> {
        self.view.error_tail()
    }

    /// What can be seen of it.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Ends the tree: TERM, the grace, KILL. Returns at once; [`Fact::Ended`] says when nothing is left.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Says that the program waits for a person: both time-outs stand still until this is taken back.
    pub fn waiting(&self, waiting: bool) {
        self.waiting.send_replace(waiting);
    }

    /// Sends one line on the descriptor. `json` is one JSON value without a line feed.
    ///
    /// # Errors
    /// [`Gone`] when nobody will read it.
    pub async fn answer(&self, json: Vec<u8>) -> Result<(), Gone> {
        self.answers.send(json).await.map_err(|_| Gone)
    }

    /// Writes to the standard input of a program that was started with [`Input::Open`].
    ///
    /// # Errors
    /// [`Gone`] when nobody will read it, or the input is not open.
    pub async fn write(&self, bytes: Vec<u8>) -> Result<(), Gone> {
        self.input.send(Some(bytes)).await.map_err(|_| Gone)
    }

    /// Closes the standard input after everything that was written. Closing twice changes nothing.
    pub async fn close_input(&self) {
        // A program that is gone has no input left to close.
        let _gone = self.input.send(None).await;
    }
}

/// Starts a program and returns when it runs. Safe from any thread of the runtime, which must have IO and time.
///
/// Everything that can be checked is checked before: an error means that nothing was started.
///
/// # Errors
/// [`Unstartable`], each variant with what the user can do about it.
pub async fn start(spec: Spec) -> Result<(Facts, Orders), Unstartable> {
    keeper::start(spec).await
}

fn is_directory(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_dir())
}
