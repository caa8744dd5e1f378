//! One integration binary: the contract list on every backend, then what only one backend promises.
//!
//! With the feature `faults` the environment variable `LONGHAUL_FAULT` names a guard to take away; a test of this
//! binary must then fail.

mod contract;
mod crypt;
mod postgres;
mod sqlite;
mod support;
