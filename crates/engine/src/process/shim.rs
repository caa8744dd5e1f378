//! The shim: a process of our own that stands between the runner and a command, and outlives neither.
//!
//! Called by the binary for `longhaul __shim`, before any thread is started. It is single-threaded, knows no
//! runtime and never touches the command's data: it receives the command's pipes over its socket and hands them
//! on. What it is told and tells is in `order.rs`.
//!
//! # Memory
//! `memory_max` is kept in two ways. Every 200 ms the shim adds up what the whole tree holds (anonymous and
//! shared memory, swapped out or not) and kills the tree when it is more; this is the limit that is told as
//! `OutOfMemory`. A process that grows faster meets `RLIMIT_DATA` at twice the limit (at least 64 MiB): its
//! allocation fails, and it ends as it does when it runs out of memory. `RLIMIT_AS` is not used, because runtimes
//! such as V8, Go and the JVM reserve far more addresses than they use.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, FdFlags, fcntl_setfd},
    process::{Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, setrlimit, setsid, wait},
};

use super::{
    DESCRIPTOR, LEFT_NAMED_MAX, Left, Process,
    order::{self, Exit, Order, Report, Streams, Why},
    record,
    tree::{self, Entry},
};

/// The longest grace for what a command leaves behind when it exits by itself.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// How long KILL is tried before the runner is told that something is left. It is tried for ever after that.
const KILL_MAX: Duration = Duration::from_secs(5);
/// How often the tree's memory is added up; less often where that takes more than a twentieth of the time.
const MEMORY_TICK: Duration = Duration::from_millis(200);
/// How often the tree is looked at while it ends: first, and at the end of the grace.
const END_TICK: Duration = Duration::from_millis(20);
/// How often the tree is looked at in a long grace. A child's end is seen at once in any case.
const GRACE_TICK: Duration = Duration::from_millis(250);
/// How often a tree that will not end is looked at.
const STUCK_TICK: Duration = Duration::from_secs(1);
/// How long it is silent between two reports of what is left.
const LEFT_EVERY: Duration = Duration::from_millis(250);
/// `RLIMIT_DATA` is never set lower than this, in bytes: the shim itself lives under it.
const DATA_LIMIT_MIN: u64 = 64 << 20;

/// Runs the shim on standard input, which must be its end of the socket. Returns when nothing of the command is
/// left. The exit code says nothing that the socket does not say.
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_gateway_gone_or_broken) => ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    // Refused only to a group's leader, which is in a group of its own already.
    let leads = setsid().is_ok();
    become_subreaper()?;
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )?;
    let streams = order::receive_streams(io::stdin().as_fd())?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let record = File::from(streams.record.try_clone()?);
    let order = order::receive(&socket).inspect_err(|_| record::set_gone(&record))?;
    let grace = Duration::from_millis(order.grace_ms);
    let memory_max = order.memory_max;
    give_way(order.nice, leads);
    let main = match record::set_begun(&record).and_then(|()| spawn(order, streams)) {
        Ok(pid) => pid,
        Err(error) => {
            record::set_gone(&record);
            return tell(
                &mut socket,
                &Report::Refused {
                    errno: error.raw_os_error().unwrap_or(0),
                },
            );
        }
    };
    // Not before: the command would inherit the mask, and TERM would not end it.
    let signals = signals::Signals::open()?;
    // A runner that is gone by now shows itself by its socket's end.
    let _gone = tell(&mut socket, &Report::Started { pid: main });
    let mut shim = Shim {
        socket,
        signals,
        record,
        main,
        exit: None,
    };
    // A shim that cannot wait any more must not leave its tree behind.
    let (why, grace) = shim.watch(memory_max, grace).unwrap_or((Why::Ordered, grace));
    shim.end(why, grace);
    Ok(())
}

#[cfg(target_os = "linux")]
fn become_subreaper() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// Lets other processes go first. A kernel that shares the processors among sessions is told for the session too, when
/// it is this shim's own. What is refused costs order, not correctness.
fn give_way(nice: u8, leads: bool) {
    if nice == 0 {
        return;
    }
    let _ = rustix::process::nice(i32::from(nice));
    if leads && cfg!(target_os = "linux") {
        let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
    }
}

fn tell(socket: &mut UnixStream, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    socket.write_all(&line)
}

fn spawn(order: Order, streams: Streams) -> io::Result<i32> {
    if let Some(max) = order.memory_max {
        let limit = Some(max.saturating_mul(2).max(DATA_LIMIT_MIN));
        setrlimit(
            Resource::Data,
            Rlimit {
                current: limit,
                maximum: limit,
            },
        )?;
    }
    fcntl_setfd(&streams.descriptor, FdFlags::empty())?;
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where a tool's process begins"
    )]
    let mut command = Command::new(OsString::from(order.program));
    let mut argv = order.argv.into_iter().map(OsString::from);
    if let Some(name) = argv.next() {
        command.arg0(name);
    }
    command
        .args(argv)
        .current_dir(OsString::from(order.cwd))
        .env_clear()
        .envs(
            order
                .env
                .into_iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value))),
        )
        .env(DESCRIPTOR, streams.descriptor.as_raw_fd().to_string())
        .stdin(Stdio::from(streams.input))
        .stdout(Stdio::from(streams.output))
        .stderr(Stdio::from(streams.errors))
        .process_group(0);
    let child = command.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

struct Shim {
    socket: UnixStream,
    signals: signals::Signals,
    record: File,
    main: i32,
    exit: Option<Exit>,
}

impl Shim {
    /// Waits for a reason to end the tree; returns it with the grace.
    fn watch(&mut self, memory_max: Option<u64>, grace: Duration) -> io::Result<(Why, Duration)> {
        loop {
            // Before the wait: the command may have ended before its signal could be seen.
            self.reap();
            if self.exit.is_some() {
                return Ok((Why::Exited, grace.min(LEFTOVER_GRACE)));
            }
            let looked = now();
            if memory_max.is_some_and(|max| tree::memory(&find()) > max) {
                return Ok((Why::OutOfMemory, Duration::ZERO));
            }
            let tick = MEMORY_TICK.max(looked.elapsed() * 20);
            let ordered = self.wait(memory_max.map(|_| tick), true)?;
            if self.signals.stop_asked() {
                return Ok((Why::Ordered, Duration::ZERO));
            }
            // Whatever comes is the order: one byte, or the end of a socket whose runner is gone.
            if ordered {
                return Ok((Why::Ordered, grace));
            }
        }
    }

    /// Ends the tree. Returns when nothing is left, however long that takes.
    fn end(&mut self, why: Why, grace: Duration) {
        let left = self.is_left();
        let leaked = if left && why == Why::Exited {
            count(&find())
        } else {
            0
        };
        let mut kill_at = now() + grace;
        let mut told = BTreeSet::new();
        let mut seen = Seen::default();
        let mut reported = false;
        let mut tick = END_TICK;
        while self.is_left() {
            let late = now().saturating_duration_since(kill_at);
            if late.is_zero() {
                let alive = terminate(&mut told);
                self.tell_left(&mut seen, &alive);
                tick = (tick * 2)
                    .min(GRACE_TICK)
                    .min(kill_at.saturating_duration_since(now()));
            } else {
                let alive = tree::kill(find);
                self.tell_left(&mut seen, &alive);
                tick = if reported { STUCK_TICK } else { END_TICK };
            }
            if late > KILL_MAX && !reported {
                self.report(why, leaked, false);
                reported = true;
            }
            // Without a poll there is no pause, and the loop still ends the tree.
            let _unpaused = self.wait(Some(tick), false);
            if self.signals.stop_asked() {
                kill_at = kill_at.min(now());
            }
        }
        if cfg!(target_os = "linux") {
            record::set_gone(&self.record);
        }
        if !reported {
            self.report(why, leaked, cfg!(target_os = "linux"));
        }
    }

    /// Tells the runner what is left, if that is new to it. A runner that does not read is told nothing: the end of the
    /// tree waits for nobody.
    fn tell_left(&mut self, seen: &mut Seen, alive: &[Entry]) {
        let Some(left) = seen.look(alive, now()) else {
            return;
        };
        let mut ready = [PollFd::new(&self.socket, PollFlags::OUT)];
        let at_once = Timespec::default();
        // The kernel calls it writable while most of its buffer is free, and a report is small.
        if poll(&mut ready, Some(&at_once)).is_ok_and(|ready| ready > 0) {
            let _gone = tell(&mut self.socket, &Report::Left(left));
        }
    }

    fn report(&mut self, why: Why, leaked: u32, confirmed: bool) {
        let report = Report::Ended {
            why,
            exit: self.exit,
            leaked,
            confirmed,
        };
        // A runner that is gone is told nothing.
        let _gone = tell(&mut self.socket, &report);
    }

    /// Waits for a signal, the time, or (when `listen`) the socket; says whether the socket has something.
    fn wait(&self, time: Option<Duration>, listen: bool) -> io::Result<bool> {
        let time = time
            .map(Timespec::try_from)
            .transpose()
            .map_err(io::Error::other)?;
        let mut ready = self.signals.polled();
        if listen {
            ready.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        match poll(&mut ready, signals::time(time).as_ref()) {
            Ok(_) => Ok(listen && ready.last().is_some_and(|socket| !socket.revents().is_empty())),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether anything of the command is left. Where the shim is a subreaper, whatever lives descends from a child of
    /// its own.
    fn is_left(&mut self) -> bool {
        self.reap() || (!cfg!(target_os = "linux") && count(&find()) > 0)
    }

    /// Reaps every child that has ended; says whether a child is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.main => {
                    self.exit = exit(status)
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_no_child) => return false,
            }
        }
    }
}

fn exit(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// Everything of the command.
#[cfg(target_os = "linux")]
fn find() -> Vec<Entry> {
    tree::below(getpid().as_raw_nonzero().get())
}

/// Everything of the command: what descends from the shim, and what is in its session.
#[cfg(not(target_os = "linux"))]
fn find() -> Vec<Entry> {
    let entries = tree::all();
    let own = getpid().as_raw_nonzero().get();
    let mut found = tree::descendants(&entries, [own]);
    let known: BTreeSet<i32> = found.iter().map(|entry| entry.pid).chain([own]).collect();
    found.extend(
        entries
            .iter()
            .filter(|entry| entry.session == own && !known.contains(&entry.pid)),
    );
    found
}

fn count(entries: &[Entry]) -> u32 {
    u32::try_from(entries.iter().filter(|entry| !entry.ended).count()).unwrap_or(u32::MAX)
}

/// TERM to everyone who has not had it. CONT after it, so that a stopped process can still end in order. Returns those that
/// were alive.
fn terminate(told: &mut BTreeSet<(i32, u64)>) -> Vec<Entry> {
    let alive: Vec<Entry> = find().into_iter().filter(|entry| !entry.ended).collect();
    for entry in &alive {
        if told.insert((entry.pid, entry.started)) {
            tree::send(*entry, Signal::TERM);
            tree::send(*entry, Signal::CONT);
        }
    }
    alive
}

/// What of a tree was seen since its end began, and what the runner knows of it.
#[derive(Default)]
struct Seen {
    processes: BTreeSet<(i32, u64)>,
    told: Option<(Instant, Vec<(i32, u64)>)>,
}

impl Seen {
    /// What the runner is to be told now; nothing while that is what it knows, or was told a moment ago.
    fn look(&mut self, alive: &[Entry], now: Instant) -> Option<Left> {
        let mut ids: Vec<(i32, u64)> = alive.iter().map(|entry| (entry.pid, entry.started)).collect();
        ids.sort_unstable_by_key(|(pid, started)| (*started, *pid));
        self.processes.extend(&ids);
        if let Some((at, known)) = &self.told
            && (now.saturating_duration_since(*at) < LEFT_EVERY || *known == ids)
        {
            return None;
        }
        let named = ids.iter().take(LEFT_NAMED_MAX).map(|(pid, _)| Process {
            pid: *pid,
            name: tree::name(*pid),
        });
        let left = Left {
            seen: u32::try_from(self.processes.len()).unwrap_or(u32::MAX),
            alive: u32::try_from(ids.len()).unwrap_or(u32::MAX),
            named: named.collect(),
        };
        self.told = Some((now, ids));
        Some(left)
    }
}

fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the shim is a process of its own and measures only its grace"
    )]
    Instant::now()
}

/// SIGCHLD wakes the shim; SIGTERM, SIGINT and SIGHUP are an order to kill without grace, so that a signal that
/// means the shim does not leave its tree behind.
#[cfg(target_os = "linux")]
mod signals {
    use std::{io, os::fd::AsFd};

    use nix::sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    };
    use rustix::event::{PollFd, PollFlags, Timespec};

    fn mask() -> SigSet {
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
            .into_iter()
            .collect()
    }

    pub(super) struct Signals {
        pending: SignalFd,
    }

    impl Signals {
        pub(super) fn open() -> io::Result<Signals> {
            mask().thread_block()?;
            let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
            Ok(Signals {
                pending: SignalFd::with_flags(&mask(), flags)?,
            })
        }

        /// Takes what is pending; says whether an order to stop was among it.
        pub(super) fn stop_asked(&self) -> bool {
            let mut asked = false;
            while let Ok(Some(signal)) = self.pending.read_signal() {
                asked |= signal.ssi_signo != Signal::SIGCHLD as u32;
            }
            asked
        }

        pub(super) fn polled(&self) -> Vec<PollFd<'_>> {
            vec![PollFd::from_borrowed_fd(self.pending.as_fd(), PollFlags::IN)]
        }
    }

    pub(super) fn time(time: Option<Timespec>) -> Option<Timespec> {
        time
    }
}

/// Without signalfd the shim looks every 50 ms, and a TERM that means it ends it alone.
#[cfg(not(target_os = "linux"))]
mod signals {
    use std::io;

    use rustix::event::{PollFd, Timespec};

    pub(super) struct Signals;

    impl Signals {
        pub(super) fn open() -> io::Result<Signals> {
            Ok(Signals)
        }

        pub(super) fn stop_asked(&self) -> bool {
            false
        }

        pub(super) fn polled(&self) -> Vec<PollFd<'_>> {
            Vec::new()
        }
    }

    pub(super) fn time(time: Option<Timespec>) -> Option<Timespec> {
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        Some(time.map_or(tick, |time| time.min(tick)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_when_it_changed_and_not_too_often() {
        let tree = |pids: &[i32]| -> Vec<Entry> {
            let entry = |pid: &i32| Entry {
                pid: *pid,
                started: 7,
                parent: 1,
                session: 1,
                ended: false,
            };
            pids.iter().map(entry).collect()
        };
        let begun = now();
        let mut seen = Seen::default();
        let mut look = |after_ms: u64, pids: &[i32]| {
            let left = seen.look(&tree(pids), begun + Duration::from_millis(after_ms));
            left.map(|left| (left.seen, left.alive))
        };
        assert_eq!(look(0, &[2, 3, 4]), Some((3, 3)));
        assert_eq!(look(300, &[2, 3, 4]), None, "nothing changed");
        assert_eq!(look(400, &[2, 3]), Some((3, 2)));
        assert_eq!(look(500, &[2]), None, "too soon");
        // One that was born meanwhile counts, too.
        assert_eq!(look(700, &[2, 5]), Some((4, 2)));
    }
}
