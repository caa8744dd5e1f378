//! The engine at its public entry: real stores, tools that do as the test says, time as it passes.
//!
//! With the feature `faults` the environment variable `LONGHAUL_FAULT` names a guard to take away; a test of this
//! binary must then fail.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ask;
mod crash;
mod drain;
mod failing;
mod process;
mod steps;
mod stop;
mod support;
mod watching;
mod work;
