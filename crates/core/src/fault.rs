//! Planted faults: places at which a guard can be taken away at run time, to prove that the tests notice.
//!
//! Every crate that has guards uses [`fault!`](crate::fault!). Without the feature `faults` the macro is the
//! constant `false`, and a release is never built with the feature. The binary and the tests read the name from
//! the environment variable `LONGHAUL_FAULT` and hand it to [`choose`]; this crate reads no environment.
//!
//! [`ALL`] lists the faults of this crate. The other guards live elsewhere, and so do their faults:
//!
//! | row | guard | planted in |
//! |---|---|---|
//! | T0 | caps, idempotency key, digest | the gateway's limits and the store's unique index |
//! | T3 | the heartbeat of a runner's row | the store |
//! | T5 | forms and links that may be shown | the gateway's outbound gate |
//! | T6 | an answer that fits its form | `longhaul-mcp` |
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
    CHOSEN.load(Ordering::Relaxed) == mark(name)
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
