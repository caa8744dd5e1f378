//! Planted faults: places at which a guard can be taken away at run time, to prove that the tests notice.
//!
//! Every crate that has guards uses [`fault!`](crate::fault!). Without the feature `faults` the macro is the
//! constant `false`, and a release is never built with the feature. The binary and the tests read the name from
//! the environment variable `LONGHAUL_FAULT` and hand it to [`choose`]; this crate reads no environment.
//!
//! [`ALL`] lists the faults of this crate; `xtask/src/faults.rs` lists those of the other crates. These guards of
//! a task's transitions live elsewhere, and so do their faults:
//!
//! | row | guard | planted in |
//! |---|---|---|
//! | T0 | the cap, the idempotency key's digest | the gateway's limits and its dispatch |
//! | T3 | the heartbeat of a runner's row | the store |
//! | T5 | a form that may be shown | the gateway's outbound gate |
//! | T6 | an answer that fits its form | the gateway's check of answers |
//! | T10 | only the owner cancels | the gateway's owner check |

#[cfg(feature = "faults")]
use core::sync::atomic::{AtomicU64, Ordering};

/// A guard that can be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its name, as `LONGHAUL_FAULT` takes it.
    pub name: &'static str,
    /// The transition whose guard it removes (`T8`), or the two that mask each other (`T2+T14`).
    pub row: &'static str,
    /// What is no longer true while it is chosen.
    pub promise: &'static str,
}

/// The faults of this crate, by row.
pub const ALL: &[Fault] = &[
    fault(
        "birth-skips-approval",
        "T0",
        "a task that needs an approval waits for it",
    ),
    fault(
        "claim-of-held",
        "T1",
        "nobody claims a task whose approval is open",
    ),
    fault("claim-of-leased", "T1", "a task has one runner at a time"),
    fault("claim-too-early", "T1", "a rerun waits for its back-off"),
    fault("claim-keeps-fence", "T1", "every claim has a fence of its own"),
    fault(
        "start-after-approval",
        "T2",
        "work begins only while its approval holds",
    ),
    fault(
        "begins-again",
        "T2+T14",
        "work begins no more often than its rule allows",
    ),
    fault(
        "report-of-old-fence",
        "T2",
        "a report of an old claim changes nothing",
    ),
    fault(
        "report-after-the-end",
        "T8",
        "a report after the end changes nothing",
    ),
    fault("notes-unguarded", "T4", "only the holder notes progress"),
    fault(
        "asks-without-limit",
        "T5",
        "no more questions are open than the tool may have",
    ),
    fault(
        "asks-nobody",
        "T5",
        "a question that nobody can answer is settled at once",
    ),
    fault("reuses-keys", "T5", "a question's key is never used again"),
    fault("answers-twice", "T6", "a question is answered once"),
    fault(
        "answers-late",
        "T6",
        "an answer after the deadline changes nothing",
    ),
    fault("answers-for-another", "T6", "only its reader settles a question"),
    fault("misfits-for-ever", "T6", "the third misfit is a decline"),
    fault(
        "takes-back-what-is-settled",
        "T26",
        "the work takes back open questions only",
    ),
    fault(
        "phase-ignores-questions",
        "T6",
        "a task asks exactly while a client's question is open",
    ),
    fault(
        "next-leg-does-not-wait",
        "T7",
        "the next leg begins when every question is settled",
    ),
    fault(
        "parked-for-ever",
        "T7",
        "parked work goes on when every question is settled",
    ),
    fault("result-after-the-end", "T8", "a result is never replaced"),
    fault(
        "error-of-anybody",
        "T9",
        "only the holder ends a task with an error",
    ),
    fault(
        "cancel-forgets-the-work",
        "T10",
        "running work of a task that was ended is owed a stop",
    ),
    fault(
        "leaves-questions-open",
        "T10",
        "the end of a task takes back its questions",
    ),
    fault("cancels-again", "T11", "an ended task stays as it ended"),
    fault(
        "unconfirmed-is-stopped",
        "T12",
        "`stopped` is said only when it was confirmed",
    ),
    fault("stop-of-old-fence", "T12", "only the holder settles the stop"),
    fault(
        "lost-runner-is-rerun",
        "T14",
        "work that may begin once fails as interrupted when its runner is lost",
    ),
    fault(
        "upstream-is-rerun",
        "T17",
        "work that lives elsewhere is followed, not begun again",
    ),
    fault("waits-for-ever", "T18", "a question ends at its deadline"),
    fault("lives-for-ever", "T19", "a task ends with its time to live"),
    fault("purges-early", "T20", "a row is kept until its time has come"),
    fault(
        "purges-what-still-stops",
        "T20",
        "a row is kept while a stop is owed",
    ),
    fault(
        "lost-stop-is-forgotten",
        "T22",
        "a finished row of a dead runner is settled too",
    ),
    fault(
        "lost-upstream-stop-is-done",
        "T23",
        "a stop owed to work elsewhere survives its runner",
    ),
    fault(
        "unswept-is-stopped",
        "T23",
        "work that nobody looked for is `unknown`, not `stopped`",
    ),
    fault(
        "forgets-work-elsewhere",
        "T24",
        "work elsewhere is owed a stop even if nobody follows it",
    ),
    fault("approval-for-ever", "T25", "a task ends with its approval"),
    fault(
        "cancelled-by-an-old-claim",
        "T27",
        "only the holder says that its server cancelled the work",
    ),
];

const fn fault(name: &'static str, row: &'static str, promise: &'static str) -> Fault {
    Fault { name, row, promise }
}

/// Whether the named fault is chosen. Always `false` without the feature `faults`.
///
/// ```
/// if !longhaul_core::fault!("doc-example") {
///     // the guard
/// }
/// ```
#[macro_export]
macro_rules! fault {
    ($name:literal) => {
        $crate::fault::is_chosen($name)
    };
}

#[cfg(feature = "faults")]
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// Chooses the one fault of this process; an empty name chooses none.
#[cfg(feature = "faults")]
pub fn choose(name: &str) {
    let mark = if name.is_empty() { 0 } else { mark(name) };
    CHOSEN.store(mark, Ordering::SeqCst);
}

/// Chooses nothing: this build has no faults.
#[cfg(not(feature = "faults"))]
pub fn choose(_name: &str) {}

/// What [`fault!`](crate::fault!) asks.
#[cfg(feature = "faults")]
pub fn is_chosen(name: &str) -> bool {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    chosen != 0 && chosen == mark(name)
}

/// What [`fault!`](crate::fault!) asks: this build has no faults.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn is_chosen(_name: &str) -> bool {
    false
}

/// FNV-1a. A global `&str` would need a lock, which a crate without `std` does not have.
#[cfg(feature = "faults")]
fn mark(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(all(test, feature = "faults"))]
mod tests {
    use super::*;

    /// The name is one that no guard has, since the tests of a process share the choice.
    #[test]
    fn the_chosen_fault_is_the_only_one() {
        assert!(!fault!("chosen-by-a-test"));
        choose("chosen-by-a-test");
        assert!(fault!("chosen-by-a-test"));
        assert!(ALL.iter().all(|fault| !is_chosen(fault.name)));
        choose("");
        assert!(!fault!("chosen-by-a-test"));
        assert!(!fault!(""));
    }
}
