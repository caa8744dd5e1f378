//! A server that is a program of ours: frames are lines on its standard input and output.
//!
//! Called by `dial`. The program runs under the shim of `engine::process`; lines that are no
//! frames are skipped and counted, and nothing but a frame's own bytes and the end of standard error is kept.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use longhaul_engine::process::{
    self, Ended, Exit, Fact, Facts, Input, Limits, Lines, Orders, Reason, Shim, Spec, Stream, Unstartable,
};
use tokio::time::{Instant, timeout};

use super::link::{FRAME_MAX, Heard, Lost, Noise, STDERR_MAX, Via, Why, at, reply_to, reply_to_at_end};

/// How long a program may take to end after the end of its input, before it is told to with TERM.
pub const EOF_WAIT: Duration = Duration::from_secs(2);
/// How long a program that closed its output may live on.
const OUTPUT_CLOSED_MAX: Duration = Duration::from_secs(1);
/// The longest piece of a line, in bytes. Many wait for a slow reader, so it is much shorter than a frame.
const PIECE_MAX: usize = 64 << 10;
/// How much of the start and of the end of a frame that is too long is looked at for its id, in bytes.
const LOOKED_AT: usize = 4 << 10;

/// What runs the programs of servers.
#[derive(Clone, Debug)]
pub struct Host {
    /// How the shim is started.
    pub shim: Shim,
    /// This runner, as text.
    pub runner: String,
    /// The runner's folder, mode 0700.
    pub spool: PathBuf,
    /// The time between TERM and KILL.
    pub grace: Duration,
}

/// A program that is a server.
#[derive(Clone)]
pub struct Program {
    /// The server's name in the configuration: letters, digits, `-` and `_`.
    pub server: String,
    /// The command, its own name included. No shell sees it. The program is looked for at each start.
    pub command: Vec<OsString>,
    /// The folder at which a program starts that is written with a slash. Absolute.
    pub folder: PathBuf,
    /// The folder to run in. Absolute.
    pub cwd: PathBuf,
    /// The whole environment. It may hold secrets.
    pub env: Vec<(OsString, OsString)>,
    /// The most memory of it and all that it starts, in bytes.
    pub memory_max: Option<u64>,
    /// How much it gives way to others when the processors are busy, 0 to 19.
    pub nice: u8,
}

/// Starts the program and returns both ends.
///
/// # Errors
/// [`Unstartable`], each variant with what the user can do about it; nothing runs then.
pub async fn open(program: &Program, host: &Host) -> Result<(Outlet, Inlet), Unstartable> {
    let (facts, orders) = process::start(spec(program, host)?).await?;
    let outlet = Outlet {
        orders: orders.clone(),
    };
    Ok((outlet, Inlet::new(facts, orders)))
}

fn spec(program: &Program, host: &Host) -> Result<Spec, Unstartable> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let first = program.command.first().ok_or(Unstartable::Empty)?;
    let path = program
        .env
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map_or(OsStr::new(""), |(_, path)| path);
    Ok(Spec {
        program: process::resolve(first, path, &program.folder)?,
        argv: program.command.clone(),
        cwd: program.cwd.clone(),
        env: program.env.clone(),
        input: Input::Open,
        timeout: None,
        idle_timeout: None,
        memory_max: program.memory_max,
        nice: program.nice,
        grace: host.grace,
        limits: Limits {
            output_max: 0,
            spill_max: 0,
            error_tail_max: STDERR_MAX,
            // It is the protocol, and no text for people.
            output_tail_max: 0,
            line_max: PIECE_MAX,
            // A server says nothing there.
            message_max: 1,
        },
        lines: Lines::Output,
        mark: format!(
            "server-{}-{}",
            program.server,
            COUNT.fetch_add(1, Ordering::Relaxed)
        ),
        runner: host.runner.clone(),
        attempt: 1,
        idempotency_key: None,
        spool: host.spool.clone(),
        shim: host.shim.clone(),
    })
}

/// The way to the server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outlet {
    orders: Orders,
}

impl Outlet {
    /// Hands one frame over. It waits while the server does not read; when the future is dropped, the frame is sent
    /// whole or not at all.
    ///
    /// # Errors
    /// [`process::Gone`] when nobody will read it.
    pub async fn send(&self, mut frame: Vec<u8>) -> Result<(), process::Gone> {
        // JSON has line breaks only between its tokens, where a space means the same.
        for byte in frame.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        frame.push(b'\n');
        self.orders.write(frame).await
    }

    /// The program's process id.
    pub fn pid(&self) -> i32 {
        self.orders.pid()
    }

    /// What can be seen of the program.
    pub fn view(&self) -> process::View {
        self.orders.view()
    }

    /// The end of its standard error so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.orders.error_tail()).into_owned()
    }
}

/// What comes from the server. Dropping it ends the program.
#[derive(Debug)]
pub struct Inlet {
    facts: Facts,
    orders: Orders,
    line: Line,
    skipped: u64,
    noise: Noise,
    /// Why it is being ended.
    ending: Option<Why>,
    closing: bool,
    /// When a program that closed its output is stopped.
    stop_at: Option<Instant>,
    /// The end was told.
    lost: Option<Lost>,
}

impl Inlet {
    fn new(facts: Facts, orders: Orders) -> Inlet {
        Inlet {
            facts,
            orders,
            line: Line::default(),
            skipped: 0,
            noise: Noise::new(),
            ending: None,
            closing: false,
            stop_at: None,
            lost: None,
        }
    }

    /// How many lines were skipped because they are no frames.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// What comes next; after [`Heard::Lost`] it never returns. Cancel-safe.
    pub async fn next(&mut self) -> Heard {
        loop {
            let fact = tokio::select! {
                fact = self.facts.next() => fact,
                () = at(self.stop_at) => {
                    self.stop_at = None;
                    self.orders.stop();
                    continue;
                }
            };
            match fact {
                Some(Fact::Line { bytes, more, cut, .. }) => {
                    if let Some(heard) = self.hear(bytes, more, cut) {
                        return heard;
                    }
                }
                Some(Fact::Closed(Stream::Output)) => {
                    self.ending.get_or_insert(Why::OutputClosed);
                    self.stop_at = Some(Instant::now() + OUTPUT_CLOSED_MAX);
                }
                Some(
                    Fact::Closed(Stream::Errors) | Fact::Message(_) | Fact::TooLong { .. } | Fact::Garbled,
                ) => {}
                Some(Fact::Ended(ended)) => {
                    let lost = self.lost(&ended);
                    self.lost = Some(lost.clone());
                    return Heard::Lost(lost);
                }
                None => std::future::pending().await,
            }
        }
    }

    fn hear(&mut self, bytes: Vec<u8>, more: bool, cut: bool) -> Option<Heard> {
        let read = bytes.len();
        let (heard, of_no_use) = match self.line.push(bytes, more) {
            // It is no frame any more, and may never end.
            None => (None, Some(read).filter(|_| self.line.is_too_long())),
            Some(Whole::TooLong { reply_to }) => (Some(Heard::TooLong { reply_to }), None),
            // Half a frame, written by a program that then ended, is no reply: the end is told instead.
            Some(Whole::Line(bytes)) if is_object(&bytes) && (!cut || is_json(&bytes)) => {
                let via = Via::Shared;
                (Some(Heard::Frame { bytes, via }), None)
            }
            Some(Whole::Line(bytes)) => {
                self.skipped += u64::from(!bytes.trim_ascii().is_empty());
                (None, Some(bytes.len()))
            }
        };
        // What is no frame is counted here, and frames of no use by the connection, which alone can tell.
        let is_too_much = of_no_use.is_some_and(|bytes| self.noise.add(bytes));
        if is_too_much && self.ending.is_none() {
            self.ending = Some(Why::Noise);
            self.orders.stop();
        }
        heard
    }

    /// A request got its reply: what was of no use before it counts no more.
    pub(super) fn replied(&mut self) {
        self.noise.reset();
    }

    /// Ends the server: the end of its input, then TERM, then KILL, each to the whole tree. Returns when nothing of
    /// it is left, or when that cannot be confirmed; frames that still come are dropped.
    pub async fn close(mut self, why: Why) -> Lost {
        if let Some(lost) = self.lost {
            return lost;
        }
        self.closing = true;
        self.ending.get_or_insert(why);
        let politely = async {
            // What was written before it comes first, and a server that does not read holds that up.
            self.orders.clone().close_input().await;
            self.end().await
        };
        match timeout(EOF_WAIT, politely).await {
            Ok(lost) => lost,
            Err(_late) => {
                self.orders.stop();
                self.end().await
            }
        }
    }

    async fn end(&mut self) -> Lost {
        loop {
            match self.next().await {
                Heard::Lost(lost) => return lost,
                Heard::Frame { .. }
                | Heard::TooLong { .. }
                | Heard::Refused { .. }
                | Heard::Placed { .. }
                | Heard::Over { .. } => {}
            }
        }
    }

    fn lost(&mut self, ended: &Ended) -> Lost {
        let why = match (ended.reason, ended.exit) {
            (Reason::ShimLost, _) => Why::ShimLost,
            (Reason::Exited, Some(Exit::Code(code))) if !self.closing => Why::Exited(code),
            (Reason::Exited, Some(Exit::Signal(signal))) if !self.closing => Why::Signalled(signal),
            (
                Reason::Exited | Reason::TimedOut | Reason::Idle | Reason::Stopped | Reason::OutOfMemory,
                Some(_) | None,
            ) => self.ending.clone().unwrap_or(Why::Closed),
        };
        Lost {
            why,
            stderr: String::from_utf8_lossy(&ended.error_tail).into_owned(),
            confirmed: ended.confirmed,
        }
    }
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{")
}

/// A line that comes in pieces.
#[derive(Debug, Default)]
struct Line {
    held: Vec<u8>,
    /// Of a line that is too long: what is known of its id, and its last bytes.
    long: Option<Long>,
}

#[derive(Debug)]
struct Long {
    reply_to: Option<u64>,
    end: Vec<u8>,
}

enum Whole {
    Line(Vec<u8>),
    TooLong { reply_to: Option<u64> },
}

impl Line {
    /// What came of it so far is no frame.
    fn is_too_long(&self) -> bool {
        self.long.is_some()
    }

    fn push(&mut self, bytes: Vec<u8>, more: bool) -> Option<Whole> {
        if let Some(long) = &mut self.long {
            long.end.extend_from_slice(&bytes);
            let excess = long.end.len().saturating_sub(LOOKED_AT);
            long.end.drain(..excess);
        } else if self.held.len() + bytes.len() > FRAME_MAX {
            let mut end = bytes;
            let excess = end.len().saturating_sub(LOOKED_AT);
            end.drain(..excess);
            let held = std::mem::take(&mut self.held);
            self.long = Some(Long {
                reply_to: reply_to(&held[..held.len().min(LOOKED_AT)]),
                end,
            });
        } else if self.held.is_empty() && !more {
            return Some(Whole::Line(bytes));
        } else {
            self.held.extend_from_slice(&bytes);
        }
        if more {
            return None;
        }
        Some(match self.long.take() {
            Some(long) => Whole::TooLong {
                reply_to: long.reply_to.or_else(|| reply_to_at_end(&long.end)),
            },
            None => Whole::Line(std::mem::take(&mut self.held)),
        })
    }
}
