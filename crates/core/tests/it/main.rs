//! The core, walked: every reachable state, and every event in each of them.
//!
//! With the feature `faults` the environment variable `LONGHAUL_FAULT` names a guard to take away; this binary
//! must then fail.

mod audit;
mod explore;
mod faults;
mod invariants;
mod states;
mod table;

/// Takes away the guard that the environment names.
fn choose_fault() {
    longhaul_core::fault::choose(&std::env::var("LONGHAUL_FAULT").unwrap_or_default());
}
