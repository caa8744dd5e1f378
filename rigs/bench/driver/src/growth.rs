//! Fills a server with tasks, and measures creates and gets on the way.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    load::{self, Arrivals, Measure, Subject, Work},
    machine,
};

/// From here on tasks are cancelled once they are stored: the limit of one owner's open tasks is 100,000.
const OPEN_MAX: u64 = 60_000;
/// Creates of one point are at least so many, and at most.
const CREATES: std::ops::RangeInclusive<u64> = 100..=20_000;
const FILL_MAX: Duration = Duration::from_secs(1800);
const FILL_CALLERS: usize = 64;

/// Begins tasks until so many are there; every one but the first `OPEN_MAX` is cancelled at once.
/// Ends after `limit` at the latest.
pub async fn fill(
    subject: &Rc<Subject>,
    tasks: u64,
    callers: usize,
    measured: u64,
    limit: Duration,
) -> Value {
    let begun = Instant::now();
    let mut seen = Vec::new();
    for (work, most) in [
        (Work::Create, tasks.min(OPEN_MAX + measured)),
        (Work::CreateAndCancel, tasks),
    ] {
        let missing = most.saturating_sub(subject.ids.borrow().len() as u64);
        if missing > 0 {
            let window = limit.saturating_sub(begun.elapsed());
            seen.push(load::measure(subject, &once(work, callers, missing, window)).await);
        }
    }
    json!({"tasks": subject.ids.borrow().len(), "seconds": load::round(begun.elapsed().as_secs_f64()), "fills": seen})
}

fn once(work: Work, callers: usize, calls: u64, window: Duration) -> Measure {
    Measure {
        work,
        callers,
        arrivals: Arrivals::Closed,
        warm: Duration::ZERO,
        window,
        calls_max: Some(calls),
    }
}

/// Creates and gets at 100, 1,000, 10,000 stored tasks and so on.
pub async fn measure(subject: &Rc<Subject>, most: u64, callers: usize, window: Duration) -> Value {
    let mut points = Vec::new();
    let (mut stored, mut measured) = (100, 0);
    while stored <= most {
        eprintln!("  {stored} tasks");
        let filled = fill(subject, stored, FILL_CALLERS, measured, FILL_MAX).await;
        let get = Measure {
            work: Work::Get,
            callers,
            arrivals: Arrivals::Closed,
            warm: Duration::from_millis(300),
            window,
            calls_max: None,
        };
        let gets = load::measure(subject, &get).await;
        let one = Measure { callers: 1, ..get };
        let gets_of_one = load::measure(subject, &one).await;
        let creates = stored.clamp(*CREATES.start(), *CREATES.end());
        let creates = load::measure(subject, &once(Work::Create, callers, creates, FILL_MAX)).await;
        measured += creates["calls"].as_u64().unwrap_or(0);
        points.push(json!({
            "stored": stored, "fill": filled, "get": gets, "get_of_one": gets_of_one, "create": creates,
            "memory": machine::memory(subject.pid),
        }));
        stored *= 10;
    }
    json!({"points": points})
}
