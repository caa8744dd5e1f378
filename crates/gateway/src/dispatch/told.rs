//! Which questions somebody was shown: of those that nobody was shown, the user of this machine is told apart.
//!
//! Marked where a question goes out to a client, or to the terminal that follows the task; read by `notices`. Memory
//! only, and a hint: who is told twice of a question loses nothing.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use longhaul_core::{QuestionKey, TaskId};

use super::Dispatch;

/// The questions that somebody was shown, or told of. At most [`SHOWN_MAX`].
#[derive(Default)]
pub(super) struct Shown(Mutex<BTreeSet<(TaskId, QuestionKey)>>);

impl Shown {
    /// Somebody has it now; whether nobody had it before.
    pub(super) fn mark(&self, task: TaskId, question: QuestionKey) -> bool {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() >= SHOWN_MAX {
            // Ids rise with time: the oldest task goes first.
            shown.pop_first();
        }
        shown.insert((task, question))
    }

    /// Whether somebody has it.
    pub(super) fn has(&self, task: TaskId, question: QuestionKey) -> bool {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.contains(&(task, question))
    }
}

impl Dispatch {
    /// These questions go out to somebody who reads them.
    pub(crate) fn shows(&self, task: TaskId, questions: impl IntoIterator<Item = QuestionKey>) {
        for question in questions {
            self.inner.shown.mark(task, question);
        }
    }
}

/// The most questions that are remembered.
const SHOWN_MAX: usize = 8_192;
