//! The only clock, and the identifiers that are made from it.
//!
//! Every other module takes the time as an argument. What is judged is judged by the store's time, never by
//! this one: this clock is for identifiers, logs and waiting.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::{Millis, RunnerId, StepId, TaskId};

/// The wall clock of this machine. Zero when it stands before 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the wall clock"
)]
pub fn now() -> Millis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A moment on a clock that never jumps, for measuring how long something took.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the monotonic clock"
)]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// A new id for a task.
pub fn task_id() -> TaskId {
    TaskId(mint())
}

/// A new id for a process that runs work.
pub fn runner_id() -> RunnerId {
    RunnerId(mint())
}

/// A new id for an attempt to write.
pub fn step_id() -> StepId {
    StepId(mint())
}

fn mint() -> [u8; 16] {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the operating system gives random bytes");
    *uuid::Builder::from_unix_timestamp_millis(now().0, &random)
        .into_uuid()
        .as_bytes()
}
