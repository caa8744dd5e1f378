//! Many callers for a fixed time, in a closed loop or at a fixed rate of arrivals, and what they saw.
//!
//! At a fixed rate a call's time counts from the moment at which it was due, not from the one at which a caller was
//! free to send it: a server that stalls is charged for everybody who waited.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::LocalSet};

use crate::{
    http::beginning,
    machine::{self, Process},
    wire::{self, Begun, Caller, Era, Way},
};

/// A nap that nobody waits for.
pub const LONG: &str = r#"{"ms":3600000}"#;
/// Of so many errors of one measurement the texts are kept.
const TEXTS_MAX: usize = 5;
/// A longer hint is not followed.
const HINT_MAX_MS: f64 = 60_000.0;
const AFTER_ERROR: Duration = Duration::from_millis(1);
/// A fill that is refused so often ends.
const ERRORS_MAX: u64 = 100;
/// Calls that are open at the end of a window are waited for so long, then given up.
const STUCK: Duration = Duration::from_secs(2);

/// What a caller does again and again.
#[derive(Clone, PartialEq, Eq)]
pub enum Work {
    /// A tool call as a task, until its id is there.
    Create,
    /// `tasks/get`, spread evenly over all tasks of the run.
    Get,
    /// A tool call without a task.
    Echo,
    /// The same of any tool, each with a text of its own in the place of `%`.
    Relay { tool: String, arguments: String },
    /// From a call to the moment at which its task is seen completed.
    Finish { tool: String, ms: u64, pause: Pause },
}

/// How long a client waits between two polls.
#[derive(Clone, PartialEq, Eq)]
pub enum Pause {
    Fixed(Duration),
    /// As the server's last reply says.
    Hint,
}

/// When calls begin.
#[derive(Clone, Copy)]
pub enum Arrivals {
    /// Each caller begins its next call when the last one has ended.
    Closed,
    /// So many a second, whatever the server does.
    PerSecond(f64),
}

/// One measurement.
#[derive(Clone)]
pub struct Measure {
    pub work: Work,
    pub callers: usize,
    pub arrivals: Arrivals,
    pub warm: Duration,
    pub window: Duration,
    /// Ends earlier when so many calls are done; there is no warm-up then.
    pub calls_max: Option<u64>,
}

/// The server, and the tasks that this run began there.
pub struct Subject {
    pub era: Era,
    pub way: Way,
    pub process: Process,
    pub ids: RefCell<Vec<Box<str>>>,
    random: Cell<u64>,
    /// Texts that were sent to and fro.
    texts: Cell<u64>,
}

impl Subject {
    pub fn new(era: Era, way: Way, process: Process) -> Subject {
        Subject {
            era,
            way,
            process,
            ids: RefCell::default(),
            random: Cell::new(0x9e37_79b9_7f4a_7c15),
            texts: Cell::new(0),
        }
    }

    pub fn caller(&self) -> Caller {
        Caller::new(self.era, self.way.clone())
    }

    /// A caller with a session of its own, where the generation has sessions and each connection can have one. A
    /// gateway may open a session behind for it with its first call.
    async fn client(&self, purpose: &Work) -> Result<Caller, String> {
        let mut way = self.way.clone();
        if matches!(way, Way::Http(_)) {
            wire::open(self.era, &mut way).await?;
        }
        let mut caller = Caller::new(self.era, way);
        match purpose {
            Work::Relay { .. } => work(self, &mut caller, purpose).await?,
            Work::Create | Work::Get | Work::Echo | Work::Finish { .. } => {}
        }
        Ok(caller)
    }

    fn any_id(&self) -> Option<Box<str>> {
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let ids = self.ids.borrow();
        let at = usize::try_from(random % (ids.len().max(1) as u64)).unwrap_or(0);
        ids.get(at).cloned()
    }

    /// A text that no other call of this run has, nor as a part of its own.
    fn text(&self) -> String {
        self.texts.set(self.texts.get() + 1);
        format!("to and fro {}.", self.texts.get())
    }

    fn keep(&self, id: String) {
        self.ids.borrow_mut().push(id.into_boxed_str());
    }
}

#[derive(Default)]
struct Tally {
    nanos: Vec<u64>,
    errors: u64,
    texts: BTreeMap<String, u64>,
    reconnects: u64,
    /// Calls at a fixed rate that were due but never begun.
    not_begun: u64,
}

impl Tally {
    fn note(&mut self, text: String) {
        if self.texts.len() < TEXTS_MAX || self.texts.contains_key(&text) {
            *self.texts.entry(text).or_default() += 1;
        }
    }
}

/// What the callers of one measurement share.
struct Shared {
    tally: RefCell<Tally>,
    begun: Cell<u64>,
    warm_until: Cell<Instant>,
    until: Cell<Instant>,
    over: Cell<bool>,
    /// Callers that are not done.
    calling: Cell<usize>,
    due: Arc<Semaphore>,
    start: Instant,
}

/// Measures once.
pub async fn measure(subject: &Rc<Subject>, measure: &Measure) -> Value {
    let mut tally = Tally::default();
    let mut clients = Vec::with_capacity(measure.callers);
    for _ in 0..measure.callers {
        match subject.client(&measure.work).await {
            Ok(client) => clients.push(client),
            Err(text) => {
                tally.errors += 1;
                tally.note(format!("before the window: {text}"));
            }
        }
    }
    let start = Instant::now();
    let warm = if measure.calls_max.is_some() {
        Duration::ZERO
    } else {
        measure.warm
    };
    let shared = Rc::new(Shared {
        tally: RefCell::new(tally),
        begun: Cell::new(0),
        warm_until: Cell::new(start + warm),
        until: Cell::new(start + warm + measure.window),
        over: Cell::new(false),
        calling: Cell::new(clients.len()),
        due: Arc::new(Semaphore::new(0)),
        start,
    });
    let callers = LocalSet::new();
    for client in clients {
        callers.spawn_local(call_again(
            client,
            Rc::clone(subject),
            Rc::clone(&shared),
            measure.clone(),
        ));
    }
    let clock = arrivals(measure.arrivals, &shared, warm + measure.window);
    let (server, driver) = (Cell::new(0), Cell::new(0));
    let own = Process {
        pid: std::process::id(),
        behind: None,
    };
    let sample = |sign: i64| {
        let add = |cell: &Cell<i64>, process| {
            cell.set(cell.get() + sign * machine::cpu_micros(process).cast_signed());
        };
        add(&server, &subject.process);
        add(&driver, &own);
    };
    let ended = callers
        .run_until(async {
            tokio::time::sleep_until(shared.warm_until.get().into()).await;
            sample(-1);
            let from = Instant::now();
            shared.warm_until.set(from);
            shared.until.set(from + measure.window);
            while Instant::now() < shared.until.get() && !shared.over.get() && shared.calling.get() > 0 {
                tokio::time::sleep(Duration::from_millis(5).min(measure.window)).await;
            }
            // A measurement by count ended when its last call did, not when it was looked for.
            let ended = if shared.over.get() {
                shared.until.get()
            } else {
                Instant::now()
            };
            sample(1);
            ended - from
        })
        .await;
    // Calls that are still open belong to no window; their callers end with them.
    shared.over.set(true);
    shared.due.close();
    let patience = tokio::time::timeout(STUCK, callers).await;
    if let Some(clock) = clock
        && clock.join().is_err()
    {
        eprintln!("the clock of the arrivals panicked");
    }
    let stuck = patience.is_err();
    report(measure, &shared, ended, (server.get(), driver.get()), stuck)
}

/// A thread that says when each call is due: it wakes more exactly than the timers of the runtime.
fn arrivals(arrivals: Arrivals, shared: &Shared, long: Duration) -> Option<std::thread::JoinHandle<()>> {
    let Arrivals::PerSecond(rate) = arrivals else {
        return None;
    };
    let (due, start) = (Arc::clone(&shared.due), shared.start);
    Some(std::thread::spawn(move || {
        let mut count = 0_u32;
        loop {
            let at = Duration::from_secs_f64(f64::from(count) / rate);
            if at > long || due.is_closed() {
                return;
            }
            std::thread::sleep((start + at).saturating_duration_since(Instant::now()));
            due.add_permits(1);
            count += 1;
        }
    }))
}

async fn call_again(mut caller: Caller, subject: Rc<Subject>, shared: Rc<Shared>, measure: Measure) {
    while let Some(from) = begin(&shared, &measure).await {
        let outcome = work(&subject, &mut caller, &measure.work).await;
        let now = Instant::now();
        if outcome.is_err() {
            // An error may come at once, and a caller that only fails would never let others run.
            tokio::time::sleep(AFTER_ERROR).await;
        }
        // What ended in the window counts, as in any throughput.
        if now >= shared.warm_until.get() && now <= shared.until.get() && !shared.over.get() {
            let mut tally = shared.tally.borrow_mut();
            match outcome {
                Ok(()) => tally.nanos.push(nanos(now - from)),
                Err(text) => {
                    tally.errors += 1;
                    tally.note(text);
                }
            }
        } else if let Err(text) = outcome {
            shared
                .tally
                .borrow_mut()
                .note(format!("outside the window: {text}"));
        }
        let (done, errors) = {
            let tally = shared.tally.borrow();
            (tally.nanos.len() as u64, tally.errors)
        };
        if measure
            .calls_max
            .is_some_and(|most| done >= most || errors >= ERRORS_MAX)
        {
            shared.until.set(Instant::now());
            shared.over.set(true);
        }
    }
    shared.calling.set(shared.calling.get() - 1);
    shared.tally.borrow_mut().reconnects += caller.reconnects();
}

/// The moment from which the next call counts; none when no more are to begin.
async fn begin(shared: &Shared, measure: &Measure) -> Option<Instant> {
    let from = match measure.arrivals {
        Arrivals::Closed => Instant::now(),
        Arrivals::PerSecond(rate) => {
            shared.due.acquire().await.ok()?.forget();
            let at = shared.begun.get() as f64 / rate;
            shared.start + Duration::from_secs_f64(at)
        }
    };
    let full = measure
        .calls_max
        .is_some_and(|most| shared.begun.get() >= most + shared.tally.borrow().errors);
    if shared.over.get() || full {
        return None;
    }
    shared.begun.set(shared.begun.get() + 1);
    Some(from)
}

async fn work(subject: &Subject, caller: &mut Caller, work: &Work) -> Result<(), String> {
    match work {
        Work::Create => {
            let id = create(caller, LONG).await?;
            subject.keep(id);
        }
        Work::Get => {
            let id = subject.any_id().ok_or("no task to get")?;
            caller.get(&id).await?;
        }
        Work::Echo => {
            let text = caller.plain("echo", r#"{"text":"to and fro"}"#).await?;
            if text.trim() != "to and fro" {
                return Err(format!("echo said `{text}`"));
            }
        }
        Work::Relay { tool, arguments } => {
            let text = subject.text();
            let said = caller.plain(tool, &arguments.replace('%', &text)).await?;
            if !said.contains(&text) {
                return Err(another(&said));
            }
        }
        Work::Finish { tool, ms, pause } => finish(caller, tool, *ms, pause).await?,
    }
    Ok(())
}

/// What came back in place of the text: that of another call, or something else.
fn another(said: &str) -> String {
    if said.contains("to and fro") {
        "the text of another call came back".to_owned()
    } else {
        format!("no text but: {}", beginning(said.as_bytes()))
    }
}

async fn create(caller: &mut Caller, arguments: &str) -> Result<String, String> {
    match caller.begin("nap", arguments).await? {
        Begun::Task { id, .. } => Ok(id),
        Begun::Plain(text) => Err(format!("no task but a result: {text}")),
    }
}

async fn finish(caller: &mut Caller, tool: &str, ms: u64, pause: &Pause) -> Result<(), String> {
    let (id, mut hint_ms) = match caller.begin(tool, &format!(r#"{{"ms":{ms}}}"#)).await? {
        Begun::Plain(_) => return Ok(()),
        Begun::Task { id, hint_ms } => (id, hint_ms),
    };
    loop {
        tokio::time::sleep(match pause {
            Pause::Fixed(pause) => *pause,
            Pause::Hint => Duration::from_secs_f64(hint_ms.clamp(0.0, HINT_MAX_MS) / 1000.0),
        })
        .await;
        let seen = caller.get(&id).await?;
        match (seen.ended, seen.status.as_str()) {
            (true, "completed") => return Ok(()),
            (true, other) => return Err(format!("the task ended as {other}")),
            (false, _) => hint_ms = seen.hint_ms,
        }
    }
}

fn report(measure: &Measure, shared: &Shared, took: Duration, cpu: (i64, i64), stuck: bool) -> Value {
    let mut tally = shared.tally.borrow_mut();
    if let Arrivals::PerSecond(rate) = measure.arrivals {
        let due = (rate * (shared.until.get() - shared.start).as_secs_f64()).floor();
        let due = due as u64;
        tally.not_begun = due.saturating_sub(shared.begun.get());
    }
    let tally = &mut *tally;
    tally.nanos.sort_unstable();
    let seconds = took.as_secs_f64();
    let each = |total: f64| {
        let calls = tally.nanos.len() as u64 + tally.errors;
        (calls > 0).then(|| round(total / calls as f64))
    };
    let per_second = round(tally.nanos.len() as f64 / seconds);
    let (server, driver) = (each(cpu.0 as f64), each(cpu.1 as f64));
    json!({
        "seconds": round(seconds),
        "calls": tally.nanos.len(),
        "errors": tally.errors,
        "why": tally.texts,
        "not_begun": tally.not_begun,
        "stuck": stuck,
        "reconnects": tally.reconnects,
        "per_second": per_second,
        "p50_us": share(&tally.nanos, 0.5),
        "p90_us": share(&tally.nanos, 0.9),
        "p99_us": share(&tally.nanos, 0.99),
        "max_us": share(&tally.nanos, 1.0),
        "server_cpu_us_per_call": server,
        "driver_cpu_us_per_call": driver,
    })
}

/// The value below which this share of sorted times lies, in microseconds.
pub fn share(sorted: &[u64], part: f64) -> Option<f64> {
    let at = ((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1);
    sorted.get(at).map(|nanos| round(*nanos as f64 / 1000.0))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// To a tenth.
pub fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_share_is_a_time_that_was_seen() {
        let times: Vec<u64> = (1..=100).map(|count| count * 1000).collect();
        assert_eq!(share(&times, 0.5), Some(50.0));
        assert_eq!(share(&times, 0.99), Some(99.0));
        assert_eq!(share(&times, 1.0), Some(100.0));
        assert_eq!(share(&[], 0.5), None);
    }
}
