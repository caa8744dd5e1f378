//! The two entry points. They only dispatch: each command has a file of its own.

use alloc::vec::Vec;

use crate::{
    audit,
    event::{Effect, Event, Refused},
    task::{CanAsk, Rules, Task},
    time::Millis,
};

/// What a task begins with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Birth {
    /// What the operator declared for the tool.
    pub rules: Rules,
    /// Who can be asked.
    pub can_ask: CanAsk,
    /// When its time to live is over.
    pub expires_at: Millis,
    /// The approval it waits for: a question to the operator, asked at birth.
    pub approval: Option<crate::event::Ask>,
}

/// The next state of a task and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The next state.
    pub task: Task,
    /// What happened, for the audit; written in the same transaction.
    pub audit: Vec<audit::Event>,
    /// Hints for this process, after the commit.
    pub effects: Vec<Effect>,
}
