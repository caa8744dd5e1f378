//! The runner's side of one running program: its pipes, its time-outs, its shim.
//!
//! Called by [`start`](super::start). It is a task of the runtime that ends with the program; when the runtime
//! goes down first, the shim sees its socket close and ends the program. It never blocks a thread.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt, unix::net::UnixStream as Socket},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    process::{Child, Command},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    ATTEMPT, Ended, Exit, Fact, Facts, IDEMPOTENCY_KEY, Left, Orders, RUNNER, Reason, Spec, TASK,
    Unstartable, View,
    identity::is_subreaper,
    order::{self, Order, Report, Streams, Text, Why},
    output,
    record::Record,
    resolve,
    streams::{self, Followed},
    sweep::{self, Registered},
};

/// How long a shim has to start its command.
const START_MAX: Duration = Duration::from_secs(10);
/// How much longer than the grace a shim may need to end its tree before it is taken for broken.
const STUCK_MAX: Duration = Duration::from_secs(2);
/// How long the shim's own exit is awaited.
const EXIT_MAX: Duration = Duration::from_secs(1);
/// How long it takes until what could not be ended is tried again: first, and in the end.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The most bytes of arguments and environment; the kernel's own limit is somewhat above.
const ARGUMENTS_MAX: usize = 1 << 20;
/// How many facts wait for a slow reader.
const FACTS_MAX: usize = 64;
/// How many answers or writes wait for a slow program.
const ORDERS_MAX: usize = 16;

pub(super) async fn start(spec: Spec) -> Result<(Facts, Orders), Unstartable> {
    check(&spec)?;
    let program = spec.shim.program.clone();
    let broken = |source: io::Error| Unstartable::Shim {
        program: program.clone(),
        source,
    };
    let (record, handle) = Record::make(&spec.spool, &spec.mark).map_err(|source| Unstartable::Spool {
        program: spec.program.clone(),
        spool: spec.spool.clone(),
        source,
    })?;
    let started = Pipes::open(handle).and_then(|Pipes { ours, theirs }| {
        let (registered, child, control) = start_shim(&spec, &theirs)?;
        Ok((ours, registered, child, control))
    });
    let (ours, registered, child, control) = started.map_err(|error| {
        record.remove();
        broken(error)
    })?;
    let mut shim = Shim {
        pid: registered.pid,
        since: registered.since,
        registered: Some(registered),
        child,
        control,
        record,
    };
    let unstarted = match timeout(START_MAX, shim.begin(&spec)).await {
        Ok(Ok(Ok(pid))) => return follow(spec, shim, ours, pid).map_err(broken),
        Ok(Ok(Err(source))) => Unstartable::Refused {
            program: spec.program.clone(),
            source,
        },
        Ok(Err(source)) => broken(source),
        Err(_late) => Unstartable::ShimSilent {
            program: spec.shim.program.clone(),
            after: START_MAX,
        },
    };
    let _gone = shim.child.start_kill();
    let _status = shim.child.wait().await;
    if shim.record.has_begun() && !shim.record.is_gone() {
        // It was lost before it could say so: an attempt like another, whose end is told next.
        return follow(spec, shim, ours, 0).map_err(broken);
    }
    shim.record.remove();
    Err(unstarted)
}

fn follow(spec: Spec, shim: Shim, ours: Ends, pid: i32) -> io::Result<(Facts, Orders)> {
    let (facts, taken) = mpsc::channel(FACTS_MAX);
    let (stop, stopped) = watch::channel(false);
    let (waiting, waits) = watch::channel(false);
    let (answers, answered) = mpsc::channel(ORDERS_MAX);
    let (input, written) = mpsc::channel(ORDERS_MAX);
    let followed = streams::follow(&spec, ours, facts.clone(), answered, written)?;
    let (left, told) = watch::channel(None);
    let view = View {
        error_tail: Arc::clone(&followed.error_tail),
        output_tail: Arc::clone(&followed.output_tail),
        left: told,
        secrets: Arc::default(),
    };
    let keeper = Keeper {
        spec,
        shim,
        facts,
        followed,
        stopped,
        waits,
        left,
        reason: None,
    };
    tokio::spawn(keeper.run());
    Ok((
        Facts { facts: taken },
        Orders {
            pid,
            stop,
            waiting,
            answers,
            input,
            view,
        },
    ))
}

fn check(spec: &Spec) -> Result<(), Unstartable> {
    if spec.argv.is_empty() {
        return Err(Unstartable::Empty);
    }
    match resolve::check(&spec.program) {
        Some(found) => found?,
        None => {
            let program = spec.program.clone().into();
            return Err(Unstartable::NotFound {
                program,
                path: OsString::new(),
                elsewhere: None,
            });
        }
    };
    if !super::is_directory(&spec.cwd) {
        return Err(Unstartable::NoDirectory {
            program: spec.program.clone(),
            cwd: spec.cwd.clone(),
        });
    }
    let variables = || spec.env.iter().flat_map(|(name, value)| [name, value]);
    let nul = |what| {
        Err(Unstartable::Nul {
            program: spec.program.clone(),
            what,
        })
    };
    if spec.argv.iter().any(has_nul) {
        return nul("an argument");
    }
    if variables().any(has_nul) || has_nul(spec.own_variables()) {
        return nul("a variable");
    }
    if has_nul(spec.program.as_os_str()) || has_nul(spec.cwd.as_os_str()) {
        return nul("a path");
    }
    let bytes = spec
        .argv
        .iter()
        .chain(variables())
        .map(|text| text.len() + 1)
        .sum();
    if bytes > ARGUMENTS_MAX {
        return Err(Unstartable::TooLarge {
            program: spec.program.clone(),
            bytes,
            max: ARGUMENTS_MAX,
        });
    }
    Ok(())
}

fn has_nul(text: impl AsRef<OsStr>) -> bool {
    text.as_ref().as_bytes().contains(&0)
}

impl Spec {
    fn own_variables(&self) -> String {
        format!(
            "{}{}{}",
            self.mark,
            self.runner,
            self.idempotency_key.as_deref().unwrap_or_default()
        )
    }

    fn order(&self) -> Order {
        let text = |text: &OsStr| Text::from(text);
        let given = self.env.iter().filter(|(name, _)| name != sweep::SHIM);
        let own = [
            (TASK, Some(self.mark.clone())),
            (RUNNER, Some(self.runner.clone())),
            (ATTEMPT, Some(self.attempt.to_string())),
            (IDEMPOTENCY_KEY, self.idempotency_key.clone()),
        ];
        let own = own
            .into_iter()
            .filter_map(|(name, value)| Some((Text::Utf8(name.into()), Text::Utf8(value?))));
        Order {
            program: text(self.program.as_os_str()),
            argv: self.argv.iter().map(|argument| text(argument)).collect(),
            cwd: text(self.cwd.as_os_str()),
            // The later of two equal names wins.
            env: given
                .map(|(name, value)| (text(name), text(value)))
                .chain(own)
                .collect(),
            grace_ms: u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX),
            memory_max: self.memory_max,
            nice: self.nice,
        }
    }
}

/// The runner's ends of the command's pipes.
pub(super) struct Ends {
    pub(super) descriptor: UnixStream,
    pub(super) input: pipe::Sender,
    pub(super) output: pipe::Receiver,
    pub(super) errors: pipe::Receiver,
}

struct Pipes {
    ours: Ends,
    theirs: Streams,
}

impl Pipes {
    fn open(record: File) -> io::Result<Pipes> {
        let (input_read, input) = io::pipe()?;
        let (output, output_write) = io::pipe()?;
        let (errors, errors_write) = io::pipe()?;
        let (descriptor, their_descriptor) = Socket::pair()?;
        let ours = Ends {
            descriptor: stream(descriptor)?,
            input: pipe::Sender::from_owned_fd(input.into())?,
            output: pipe::Receiver::from_owned_fd(output.into())?,
            errors: pipe::Receiver::from_owned_fd(errors.into())?,
        };
        let theirs = Streams {
            descriptor: their_descriptor.into(),
            input: input_read.into(),
            output: output_write.into(),
            errors: errors_write.into(),
            record: record.into(),
        };
        Ok(Pipes { ours, theirs })
    }
}

fn stream(socket: Socket) -> io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// What is executed for the shim's file. An upgrade of our package puts another version in its place, which may not
/// understand our orders: then what we were started from is executed, which lives as long as we do.
#[cfg(target_os = "linux")]
fn executed(program: &Path) -> &Path {
    const OWN: &str = "/proc/self/exe";
    // So the system names a file that is gone.
    const GONE: &[u8] = b" (deleted)";
    let own = std::fs::read_link(OWN);
    match own.is_ok_and(|own| own.as_os_str().as_bytes().ends_with(GONE)) {
        true => Path::new(OWN),
        false => program,
    }
}

#[cfg(not(target_os = "linux"))]
fn executed(program: &Path) -> &Path {
    program
}

fn start_shim(spec: &Spec, streams: &Streams) -> io::Result<(Registered, Child, Control)> {
    let (ours, theirs) = Socket::pair()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the shim is the one process that the gateway starts"
    )]
    let mut command = Command::new(executed(&spec.shim.program));
    command
        .arg0(&spec.shim.program)
        .args(&spec.shim.args)
        .env_clear()
        .envs([
            (TASK, spec.mark.as_str()),
            (RUNNER, spec.runner.as_str()),
            (ATTEMPT, spec.attempt.to_string().as_str()),
            (sweep::SHIM, "1"),
        ])
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (registered, child) = Registered::start(|| {
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        Ok::<_, io::Error>((pid.ok_or(io::Error::from(io::ErrorKind::NotFound))?, child))
    })?;
    // The command still holds the shim's end; without this a dead shim's socket would stay open.
    drop(command);
    order::send_streams(&ours, streams)?;
    let (reports, orders) = stream(ours)?.into_split();
    Ok((
        registered,
        child,
        Control {
            reports: BufReader::new(reports).lines(),
            orders,
        },
    ))
}

struct Control {
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

struct Shim {
    /// Until it is reaped.
    registered: Option<Registered>,
    pid: i32,
    /// When it started, in clock ticks since the boot.
    since: u64,
    child: Child,
    control: Control,
    record: Record,
}

impl Shim {
    /// Gives the order and waits for the first report. The inner error is the system's, about the command.
    async fn begin(&mut self, spec: &Spec) -> io::Result<Result<i32, io::Error>> {
        self.control
            .orders
            .write_all(&order::encode(&spec.order())?)
            .await?;
        match self.report().await {
            Some(Report::Started { pid }) => Ok(Ok(pid)),
            Some(Report::Refused { errno }) => Ok(Err(io::Error::from_raw_os_error(errno))),
            Some(Report::Left(_) | Report::Ended { .. }) | None => {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
        }
    }

    /// `None`: the shim is gone, or not a shim. Cancel-safe.
    async fn report(&mut self) -> Option<Report> {
        let line = self.control.reports.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    async fn stop(&mut self) {
        // A shim that is gone shows itself by its socket's end.
        let _gone = self.control.orders.write_all(&[order::STOP]).await;
        // A frozen one could not obey.
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _gone = kill_process(pid, Signal::CONT);
        }
    }

    /// Ends the shim, if it lives, and then its tree. True when nothing is left.
    async fn end_orphans(&mut self, spec: &Spec) -> bool {
        let _gone = self.child.start_kill();
        let _status = self.child.wait().await;
        self.registered = None;
        sweep::orphans(self.pid, self.since, &spec.mark, spec.attempt).await
    }

    /// Sees to what could not be ended yet, for as long as it takes.
    async fn clear(&mut self, spec: &Spec) {
        // A shim that could not confirm goes on trying.
        let _status = self.child.wait().await;
        let (mut pause, longest) = AGAIN;
        while !self.record.is_gone() && !self.end_orphans(spec).await {
            if !is_subreaper() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
        self.record.remove();
    }
}

struct Keeper {
    spec: Spec,
    shim: Shim,
    facts: mpsc::Sender<Fact>,
    followed: Followed,
    stopped: watch::Receiver<bool>,
    waits: watch::Receiver<bool>,
    left: watch::Sender<Option<Left>>,
    /// Why the order to stop was given.
    reason: Option<Reason>,
}

/// What the keeper waits for.
enum Next {
    Report(Option<Report>),
    Stop(Reason),
    Stuck,
    Waiting,
}

impl Keeper {
    async fn run(mut self) {
        let report = self.watch().await;
        let (exit, reason, leaked, confirmed) = match report {
            Some((why, exit, leaked, confirmed)) => (exit, self.reason_of(why), leaked, confirmed),
            None => (
                None,
                self.reason.unwrap_or(Reason::ShimLost),
                0,
                self.lost().await,
            ),
        };
        let Followed {
            end,
            output,
            errors,
            error_tail,
            others,
            ..
        } = self.followed;
        end.send_replace(true);
        let output = joined(output).await;
        joined(errors).await;
        let (error_tail, error_total) = {
            let tail = output::lock(&error_tail);
            (tail.bytes(), tail.total)
        };
        for other in others {
            joined(other).await;
        }
        if confirmed {
            // It exits as soon as it has reported; the end is told after that, so that it is not seen either.
            let _late = timeout(EXIT_MAX, self.shim.child.wait()).await;
            self.shim.record.remove();
        }
        let ended = Ended {
            exit,
            reason,
            output,
            error_tail,
            error_total,
            leaked,
            confirmed,
        };
        // Nobody reads the end of a program whose facts were dropped.
        let _dropped = self.facts.send(Fact::Ended(Box::new(ended))).await;
        drop(self.facts);
        if confirmed {
            let _status = self.shim.child.wait().await;
        } else {
            self.shim.clear(&self.spec).await;
        }
    }

    /// Until the shim reports the end; `None` when it is lost.
    async fn watch(&mut self) -> Option<(Why, Option<Exit>, u32, bool)> {
        let mut clock = Clock::start(&self.spec);
        let mut stuck_at = None;
        loop {
            match self.next(&clock, stuck_at).await {
                Next::Report(Some(Report::Ended {
                    why,
                    exit,
                    leaked,
                    confirmed,
                })) => {
                    return Some((why, exit.map(Exit::from), leaked, confirmed));
                }
                Next::Report(Some(Report::Left(left))) => drop(self.left.send_replace(Some(left))),
                Next::Report(Some(Report::Started { .. } | Report::Refused { .. })) => {}
                Next::Report(None) | Next::Stuck => return None,
                Next::Stop(reason) => {
                    self.reason = Some(reason);
                    self.followed.hurry.send_replace(true);
                    self.shim.stop().await;
                    stuck_at = Some(Instant::now() + self.spec.grace + STUCK_MAX);
                }
                Next::Waiting => clock.wait(*self.waits.borrow_and_update()),
            }
        }
    }

    async fn next(&mut self, clock: &Clock, stuck_at: Option<Instant>) -> Next {
        let live = self.reason.is_none();
        let activity = self.followed.activity.clone();
        tokio::select! {
            report = self.shim.report() => Next::Report(report),
            // When every `Orders` is dropped, nobody can give this order; the program runs on.
            Ok(()) = async { self.stopped.wait_for(|stop| *stop).await.map(drop) }, if live => Next::Stop(Reason::Stopped),
            () = self.facts.closed(), if live => Next::Stop(Reason::Stopped),
            reason = clock.over(&activity), if live => Next::Stop(reason),
            () = at(stuck_at) => Next::Stuck,
            Ok(()) = self.waits.changed(), if live => Next::Waiting,
        }
    }

    fn reason_of(&self, why: Why) -> Reason {
        match why {
            Why::Exited => Reason::Exited,
            Why::OutOfMemory => Reason::OutOfMemory,
            Why::Ordered => self.reason.unwrap_or(Reason::Stopped),
        }
    }

    async fn lost(&mut self) -> bool {
        tracing::warn!("a shim was lost; its processes are ended by this one");
        self.shim.end_orphans(&self.spec).await
    }
}

/// A task that only reads and writes has no way to fail but a defect, and then its part of the facts is empty.
async fn joined<T: Default>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_default()
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Both time-outs, which stand still while the program waits for a person.
struct Clock {
    timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    started: Instant,
    /// Idleness counts from here, or from the last activity if that is later.
    resumed: Instant,
    waiting_since: Option<Instant>,
}

impl Clock {
    fn start(spec: &Spec) -> Clock {
        let now = Instant::now();
        Clock {
            timeout: spec.timeout,
            idle_timeout: spec.idle_timeout,
            started: now,
            resumed: now,
            waiting_since: None,
        }
    }

    fn wait(&mut self, waiting: bool) {
        let now = Instant::now();
        match (waiting, self.waiting_since) {
            (true, None) => self.waiting_since = Some(now),
            (false, Some(since)) => {
                self.started += now - since;
                self.resumed = now;
                self.waiting_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Resolves when one of them is over.
    async fn over(&self, activity: &watch::Receiver<Instant>) -> Reason {
        if self.waiting_since.is_some() {
            return std::future::pending().await;
        }
        tokio::select! {
            () = at(self.timeout.map(|timeout| self.started + timeout)) => Reason::TimedOut,
            () = self.idle(activity) => Reason::Idle,
        }
    }

    async fn idle(&self, activity: &watch::Receiver<Instant>) {
        let Some(idle_timeout) = self.idle_timeout else {
            return std::future::pending().await;
        };
        loop {
            let last = *activity.borrow();
            let over = last.max(self.resumed) + idle_timeout;
            if over <= Instant::now() {
                return;
            }
            sleep_until(over).await;
        }
    }
}
