//! Runs work that outlives a process: claims, workers, timers, watchers and child processes.
//!
//! The gateway asks for changes through [`Engine::transact`]; workers and the sweeper go through the same loop.
//! It is the only caller of the core's `open` and `decide`. It never looks into a body, and it never says who
//! may do what.

pub mod clock;
pub mod notes;
pub mod process;
pub mod tool;
pub mod transact;
pub mod watch;

mod attempts;
mod context;
mod engine;
mod options;
mod report;
mod slots;
mod sweeper;
mod worker;

pub use engine::{Engine, Load, WeakEngine};
pub use options::{Options, Reference, Sweep};
