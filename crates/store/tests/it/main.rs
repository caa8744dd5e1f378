//! One integration binary: the contract list on every backend, then what only one backend promises.

mod contract;
mod support;
