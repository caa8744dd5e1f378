//! The real binary, from outside.
#![expect(
    clippy::unwrap_used,
    reason = "a test that meets what it does not expect has failed"
)]

mod behind;
mod browser;
mod cli;
mod connections;
mod disk;
mod gone_on_with;
mod hostile;
mod install;
mod page;
mod postgres;
mod questions;
mod questions_restart;
mod rebinding;
mod serve;
mod service;
mod speak;
mod stdio;
mod stop;
mod stored;
mod support;
mod upgraded;
mod wrong_input;
