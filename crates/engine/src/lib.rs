//! Runs work that outlives a process: claims, workers, timers, watchers and child processes.
//!
//! The gateway asks for changes through [`Engine::transact`]; workers and the sweeper go through the same loop.
//! It is the only caller of the core's `open` and `decide`.

pub mod clock;
pub mod process;
pub mod tool;
pub mod transact;
pub mod watch;
pub mod worker;

mod sweeper;
