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

/// Creates of one point are at least so many, and at most.
const CREATES: std::ops::RangeInclusive<u64> = 100..=20_000;
const FILL_MAX: Duration = Duration::from_secs(1800);
const FILL_CALLERS: usize = 64;

/// Begins tasks until so many are there, or until `limit` is over.
pub async fn fill(subject: &Rc<Subject>, tasks: u64, callers: usize, limit: Duration) -> Value {
    let begun = Instant::now();
    let missing = tasks.saturating_sub(subject.ids.borrow().len() as u64);
    let seen = if missing > 0 {
        load::measure(subject, &creates(callers, missing, limit)).await
    } else {
        Value::Null
    };
    json!({"tasks": subject.ids.borrow().len(), "seconds": load::round(begun.elapsed().as_secs_f64()), "fill": seen})
}

fn creates(callers: usize, calls: u64, window: Duration) -> Measure {
    Measure {
        work: Work::Create,
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
    let mut stored = 100;
    while stored <= most {
        eprintln!("  {stored} tasks");
        let filled = fill(subject, stored, FILL_CALLERS, FILL_MAX).await;
        let get = Measure {
            work: Work::Get,
            callers,
            arrivals: Arrivals::Closed,
            warm: Duration::from_millis(300),
            window,
            calls_max: None,
        };
        let gets = load::measure(subject, &get).await;
        let creates = stored.clamp(*CREATES.start(), *CREATES.end());
        let creates = load::measure(subject, &self::creates(callers, creates, FILL_MAX)).await;
        points.push(json!({
            "stored": stored, "fill": filled, "get": gets, "create": creates,
            "memory": machine::memory(&subject.process),
        }));
        stored *= 10;
    }
    json!({"points": points})
}
