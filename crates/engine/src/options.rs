//! Every limit and interval of the engine, and what it is handed from above.
//!
//! Made by the binary from the defaults below; what has no setting stays at its default. Never changed while an
//! engine runs.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use longhaul_core::TaskId;
use longhaul_store::Runner;

/// Names a task for people and logs: a keyed hash of its row id, in hexadecimal (G-36).
pub type Reference = Arc<dyn Fn(TaskId) -> String + Send + Sync>;

/// Looks for the local processes that a dead runner left behind for these tasks and ends them. Returns the tasks
/// of which it is certain that nothing is left. Called with no task when the runner's are all settled: then what
/// is kept about it can go. May block: it is called on a thread that may.
pub type Sweep = Arc<dyn Fn(&Runner, &[TaskId]) -> BTreeSet<TaskId> + Send + Sync>;

/// What an engine is told at its making.
#[derive(Clone)]
pub struct Options {
    /// This process, under an id that no process had before ([`crate::clock::runner_id`]).
    pub runner: Runner,
    /// How audit records name a task.
    pub reference: Reference,
    /// Ends what a dead runner left behind.
    pub sweep: Sweep,
    /// The most attempts that this process runs at once, over all tools.
    pub running_max: usize,
    /// The most attempts of one tool that wait for an answer without taking one of the tool's slots.
    /// Further ones keep their slot.
    pub waiting_max: usize,
    /// How many tasks one look reads: of those that may be claimed, so many of each tool; of those whose moment came,
    /// so many in all.
    pub claim_batch: u32,
    /// How long a worker waits before it looks for work that another process queued, or whose back-off is over.
    pub claim_interval: Duration,
    /// How often deadlines are looked for.
    pub sweep_interval: Duration,
    /// How many rows of a dead runner are read at once.
    pub recovery_batch: u32,
    /// How many of them are settled at the same time.
    pub recovery_parallel: usize,
    /// How often changes by other processes are looked for.
    pub watch_interval: Duration,
    /// How often this process says that it lives (T3).
    pub beat_interval: Duration,
    /// After how long without a successful beat this process stops everything it runs. `None` where death needs
    /// no clock (SQLite, memory).
    pub fence_after: Option<Duration>,
    /// How often tasks and records whose time is over are deleted (T20).
    pub purge_interval: Duration,
    /// How many of them one deletion takes.
    pub purge_batch: u32,
    /// The shortest time between two stored notes of one task (T4).
    pub note_interval: Duration,
    /// The longest note, in bytes; a longer one is dropped.
    pub note_bytes_max: usize,
    /// How often a report is tried while the store fails, before this process fences itself.
    pub report_tries_max: u32,
    /// The wait after the first failed report; it doubles after each further one.
    pub report_backoff_min: Duration,
    /// The longest wait between two tries of a report.
    pub report_backoff_max: Duration,
    /// How long a tool may take to end after it was told to stop. After that its future is dropped, and the stop
    /// is reported as unconfirmed.
    pub stop_wait_max: Duration,
    /// How long a fenced process waits for what it runs to end.
    pub fence_wait_max: Duration,
    /// How long the end of a drain waits for what it stopped.
    pub shutdown_wait_max: Duration,
}

impl Options {
    /// The defaults, for this runner.
    pub fn new(runner: Runner, reference: Reference, sweep: Sweep) -> Options {
        Options {
            runner,
            reference,
            sweep,
            running_max: 256,
            waiting_max: 20,
            claim_batch: 64,
            claim_interval: Duration::from_millis(500),
            sweep_interval: Duration::from_secs(1),
            recovery_batch: 1_000,
            recovery_parallel: 64,
            watch_interval: Duration::from_millis(500),
            beat_interval: Duration::from_secs(5),
            fence_after: None,
            purge_interval: Duration::from_secs(60),
            purge_batch: 1_000,
            note_interval: Duration::from_secs(1),
            note_bytes_max: 8 * 1024,
            report_tries_max: 60,
            report_backoff_min: Duration::from_millis(50),
            report_backoff_max: Duration::from_secs(5),
            stop_wait_max: Duration::from_secs(60),
            fence_wait_max: Duration::from_secs(3),
            shutdown_wait_max: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for Options {
    /// The runner only; the rest are settings and functions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("runner", &self.runner)
            .finish_non_exhaustive()
    }
}
