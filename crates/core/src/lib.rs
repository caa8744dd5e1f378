//! The task state machine: what an event does to a task.
//!
//! This crate is deterministic. It has no clock, no randomness, no IO and no async: the caller hands in the
//! time and every identifier, and gets back the next state, the audit events and hints for the process it
//! runs in. Bodies (arguments, questions, answers, results) are opaque bytes here.
//!
//! The two entry points are [`open`], which begins a task, and [`decide`], which applies one [`Event`] to a
//! [`Task`]. Only `longhaul-engine` calls them, inside one store transaction.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod audit;
pub mod decide;
pub mod event;
pub mod fault;
pub mod id;
pub mod task;
pub mod time;

mod ask;
mod cancel;
mod claim;
mod finish;
mod tick;

pub use decide::{Birth, Change, decide, open};
pub use event::{Effect, Event, Refused};
pub use id::{Fence, QuestionKey, RunnerId, StepId, TaskId, hex};
pub use task::{Body, Outcome, Phase, Question, Reason, Run, Stop, Task};
pub use time::{Millis, Span};
