//! One integration binary: the contract list on every backend, then what only one backend promises.
//!
//! With the feature `faults` the environment variable `LONGHAUL_FAULT` names a guard to take away; a test of this
//! binary must then fail.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod contract;
mod crypt;
mod postgres;
mod sqlite;
mod support;
