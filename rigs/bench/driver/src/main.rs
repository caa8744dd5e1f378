//! The load driver of the bench: `driver [OPTIONS] PHASE..` prints what it measured as JSON.
//!
//! Called by `cargo xtask bench`, and by hand. It shares no code with the servers that it measures. It starts a server
//! only with `--stdio`, and otherwise only reads `/proc`.

mod growth;
mod http;
mod listen;
mod load;
mod machine;
mod pipe;
mod stop;
mod wire;

use std::{path::PathBuf, process::ExitCode, rc::Rc, time::Duration};

use serde_json::{Value, json};

use load::{Arrivals, Measure, Pause, Subject, Work};
use machine::Process;
use wire::{Era, Way};

const HELP: &str = "\
driver --url http://127.0.0.1:PORT/mcp --pid PID [OPTIONS] PHASE..
driver --stdio 'COMMAND ..' [OPTIONS] PHASE..

  --era 2026-07-28 | 2025-11-25   the generation that it speaks (2026-07-28)
  --pid PID          the server's process, for its processor time and memory
  --seconds S        the length of a window (3)
  --warm S           the time before each window (0.5)
  --rounds N         windows a phase (1)
  --data DIR         the server's folder, for its size
  --header LINE      one more header of every request, NAME: VALUE
  --tool NAME        what `relay` calls (echo)
  --arguments JSON   its arguments, in which % stands for the text that is to come back (those of `echo`)
  --behind NAME      processes of this name are not the server's: it stands in front of them

A phase is NAME[=NUMBER][@CALLERS][/PER_SECOND]: with a rate, calls arrive at that rate whatever the server does.

  create@32          a call of `nap` as a task, until its id is there
  get@32             tasks/get, spread over all tasks that this run began (and 100 at least)
  get@32/500         the same, 500 a second
  echo@32            a call of `echo`, without a task
  relay@32           a call of `--tool`, each with a text of its own, which has to come back
  finish@1           a nap of 0 ms, until it is seen completed; a poll every 2 ms
  finish-hint@4      the same twice a caller, with the pause that the server hints
  nap=500@4          naps of 500 ms, two a caller, with the pause that the server hints; = milliseconds
  nap-held=500@4     the same of the tool `nap_held`
  cancel=20          from cancel to the end of the child process of `child`; = samples
  open=10000@32      creates until so many tasks are there, for half a minute at most; = tasks
  mixed=50@200/400   200 callers that get 400 a second, and beside them 50 creates a second; = creates a second
  listen=1000/100    so many streams, each on a task of its own, which are cancelled at 100 a second
  sync               a write of 4 KiB and its sync in the folder of `--data`, 200 times
  memory             memory of the server and of its tree
  grow=1000000@32    creates up to so many stored tasks; measured at 100, 1,000, 10,000 and so on
";

/// Tasks that a phase of `get` has at least.
const TASKS_MIN: usize = 100;
/// The longest that the naps of one round may take.
const NAPS_MAX: Duration = Duration::from_secs(30);
/// The longest that tasks are begun for a phase of `open`.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// Callers that create beside those that get.
const CREATORS: usize = 8;
const POLL: Duration = Duration::from_millis(2);

struct Options {
    era: Era,
    url: Option<String>,
    stdio: Option<Vec<String>>,
    pid: u32,
    window: Duration,
    warm: Duration,
    rounds: usize,
    data: Option<PathBuf>,
    headers: Vec<String>,
    tool: String,
    arguments: String,
    behind: Option<String>,
    phases: Vec<Phase>,
}

/// `NAME[=NUMBER][@CALLERS][/PER_SECOND]`
#[derive(Debug, PartialEq)]
struct Phase {
    text: String,
    name: String,
    number: Option<u64>,
    callers: usize,
    rate: Option<f64>,
}

fn main() -> ExitCode {
    let outcome = options(std::env::args().skip(1)).and_then(|options| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start: {error}"))?;
        tokio::task::LocalSet::new().block_on(&runtime, run(options))
    });
    match outcome {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("driver: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        era: Era::Stateless2026,
        url: None,
        stdio: None,
        pid: 0,
        window: Duration::from_secs(3),
        warm: Duration::from_millis(500),
        rounds: 1,
        data: None,
        headers: Vec::new(),
        tool: "echo".to_owned(),
        arguments: r#"{"text":"%"}"#.to_owned(),
        behind: None,
        phases: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{argument}` has no value"));
        match argument.as_str() {
            "--era" => options.era = Era::of(&value()?)?,
            "--url" => options.url = Some(value()?),
            "--stdio" => options.stdio = Some(value()?.split_whitespace().map(str::to_owned).collect()),
            "--pid" => options.pid = number(&value()?)?,
            "--seconds" => options.window = Duration::from_secs_f64(number(&value()?)?),
            "--warm" => options.warm = Duration::from_secs_f64(number(&value()?)?),
            "--rounds" => options.rounds = number(&value()?)?,
            "--data" => options.data = Some(PathBuf::from(value()?)),
            "--header" => options.headers.push(value()?),
            "--tool" => options.tool = value()?,
            "--arguments" => options.arguments = value()?,
            "--behind" => options.behind = Some(value()?),
            "--help" | "-h" => return Err(format!("\n{HELP}")),
            phase => options.phases.push(Phase::of(phase)?),
        }
    }
    if options.phases.is_empty() {
        return Err(format!("no phase\n\n{HELP}"));
    }
    Ok(options)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

impl Phase {
    fn of(text: &str) -> Result<Phase, String> {
        let (rest, rate) = split(text, '/');
        let (rest, callers) = split(rest, '@');
        let (name, count) = split(rest, '=');
        Ok(Phase {
            text: text.to_owned(),
            name: name.to_owned(),
            number: count.map(number).transpose()?,
            callers: callers.map(number).transpose()?.unwrap_or(1),
            rate: rate.map(number).transpose()?,
        })
    }

    /// What its callers do; none where it is no load.
    fn work(&self, options: &Options) -> Option<Work> {
        let finish = |tool: &str, pause| Work::Finish {
            tool: tool.to_owned(),
            ms: self.number.unwrap_or(0),
            pause,
        };
        match self.name.as_str() {
            "create" => Some(Work::Create),
            "get" => Some(Work::Get),
            "echo" => Some(Work::Echo),
            "relay" => Some(Work::Relay {
                tool: options.tool.clone(),
                arguments: options.arguments.clone(),
            }),
            "finish" => Some(finish("nap", Pause::Fixed(POLL))),
            "finish-hint" | "nap" => Some(finish("nap", Pause::Hint)),
            "nap-held" => Some(finish("nap_held", Pause::Hint)),
            _ => None,
        }
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

async fn run(options: Options) -> Result<Value, String> {
    let (mut way, pid) = match (&options.url, &options.stdio) {
        (Some(url), None) => {
            let mirrors = options.era == Era::Stateless2026;
            let target = http::Target::new(url, options.era.version(), mirrors, &options.headers)?;
            (Way::Http(target), options.pid)
        }
        (None, Some(command)) => {
            let pipe = pipe::Pipe::start(command)?;
            let own = pipe.pid().unwrap_or(0);
            let pid = if options.pid == 0 { own } else { options.pid };
            (Way::Pipe(pipe), pid)
        }
        (None, None) | (Some(_), Some(_)) => return Err("say either `--url` or `--stdio`".to_owned()),
    };
    wire::open(options.era, &mut way).await?;
    let behind = options.behind.clone();
    let subject = Rc::new(Subject::new(options.era, way, Process { pid, behind }));
    let mut measurements = Vec::new();
    for phase in &options.phases {
        eprintln!("{}", phase.text);
        let seen = run_phase(&options, phase, &subject).await?;
        measurements.push(json!({
            "phase": phase.text, "name": phase.name, "callers": phase.callers, "rate": phase.rate, "rounds": seen,
        }));
    }
    Ok(json!({
        "era": options.era.version(),
        "way": if options.url.is_some() { "http" } else { "stdio" },
        "tasks": subject.ids.borrow().len(),
        "data_bytes": options.data.as_deref().map(machine::bytes),
        "measurements": measurements,
    }))
}

async fn run_phase(options: &Options, phase: &Phase, subject: &Rc<Subject>) -> Result<Vec<Value>, String> {
    let Some(work) = phase.work(options) else {
        return Ok(vec![run_other(options, phase, subject).await?]);
    };
    if work == Work::Get && subject.ids.borrow().len() < TASKS_MIN {
        growth::fill(subject, TASKS_MIN as u64, phase.callers, OPEN_MAX).await;
    }
    // A window of time would cut off those whose server hints a long pause.
    let counted = matches!(phase.name.as_str(), "finish-hint" | "nap" | "nap-held");
    let mut measure = options.measure(work, phase.callers, phase.rate);
    if counted {
        (measure.window, measure.calls_max) = (NAPS_MAX, Some(2 * phase.callers as u64));
    }
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        rounds.push(load::measure(subject, &measure).await);
    }
    Ok(rounds)
}

impl Options {
    fn measure(&self, work: Work, callers: usize, rate: Option<f64>) -> Measure {
        Measure {
            work,
            callers,
            arrivals: rate.map_or(Arrivals::Closed, Arrivals::PerSecond),
            warm: self.warm,
            window: self.window,
            calls_max: None,
        }
    }
}

/// Gets and creates side by side, each at its own rate.
async fn mixed(options: &Options, phase: &Phase, subject: &Rc<Subject>) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "a rate that somebody typed")]
    let creates = phase.number.unwrap_or(50) as f64;
    let gets = options.measure(Work::Get, phase.callers, phase.rate);
    let creates = options.measure(Work::Create, CREATORS, Some(creates));
    let beside = Rc::clone(subject);
    let creates = tokio::task::spawn_local(async move { load::measure(&beside, &creates).await });
    let gets = load::measure(subject, &gets).await;
    json!({"get": gets, "create": creates.await.unwrap_or_default()})
}

async fn run_other(options: &Options, phase: &Phase, subject: &Rc<Subject>) -> Result<Value, String> {
    let number = |default| phase.number.unwrap_or(default);
    Ok(match phase.name.as_str() {
        "cancel" => stop::measure(subject, number(20)).await,
        "memory" => machine::memory(&subject.process),
        "open" => growth::fill(subject, number(10_000), phase.callers, OPEN_MAX).await,
        "mixed" => mixed(options, phase, subject).await,
        "listen" => {
            let streams = usize::try_from(number(1000)).map_err(|error| error.to_string())?;
            listen::measure(subject, streams, phase.rate.unwrap_or(100.0)).await?
        }
        "sync" => machine::sync(options.data.as_deref().ok_or("`sync` needs `--data`")?)?,
        "grow" => {
            let window = options.window;
            growth::measure(subject, number(1_000_000), phase.callers, window).await
        }
        other => return Err(format!("no phase `{other}`\n\n{HELP}")),
    })
}

#[cfg(test)]
mod tests {
    use super::Phase;

    #[test]
    fn a_phase_is_a_name_a_number_callers_and_a_rate() {
        let phase = Phase::of("get=7@32/500").unwrap();
        assert_eq!((phase.name.as_str(), phase.number), ("get", Some(7)));
        assert_eq!((phase.callers, phase.rate), (32, Some(500.0)));
        assert_eq!(Phase::of("memory").unwrap().callers, 1);
        assert!(Phase::of("get@many").is_err());
    }
}
