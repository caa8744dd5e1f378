//! What is fuzzed, one module a target: each takes the bytes of one input and panics where a promise is broken.
//!
//! The programs in `targets/` hand these functions to libFuzzer, and `cargo xtask fuzz` runs them. They look at
//! public entries only, and hold what they say against another reader of the same bytes where there is one.
#![forbid(unsafe_code)]

pub mod config;
pub mod differential;
pub mod events;
pub mod form;
pub mod frame;
pub mod headers;
pub mod lines;
pub mod scan;
pub mod sealed;
pub mod server;
pub mod url;

mod json;
