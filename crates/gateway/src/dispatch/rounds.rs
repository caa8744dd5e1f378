//! Calls that asked before they were a task and wait for their next round.
//!
//! The client may never come back, and the work holds a process meanwhile (B-43). So each owner has a few, and
//! one more ends the wait of the oldest: its questions count as dismissed, and its tool decides what to do.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use longhaul_core::TaskId;
use longhaul_store::Owner;

#[derive(Default)]
pub(super) struct Rounds {
    waiting: Mutex<BTreeMap<Owner, VecDeque<TaskId>>>,
}

impl Rounds {
    /// The calls of this owner that wait for their next round, the oldest first.
    pub(super) fn of(&self, owner: &Owner) -> Vec<TaskId> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get(owner).into_iter().flatten().copied().collect()
    }

    /// The call waits for its client. Returns the one that waits no longer, when it is one too many.
    pub(super) fn begin(&self, owner: &Owner, task: TaskId, max: usize) -> Option<TaskId> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let line = waiting.entry(owner.clone()).or_default();
        if !line.contains(&task) {
            line.push_back(task);
        }
        if line.len() > max { line.pop_front() } else { None }
    }

    /// The client came back, or the call ended.
    pub(super) fn end(&self, owner: &Owner, task: TaskId) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = waiting.get_mut(owner) {
            line.retain(|waits| *waits != task);
            if line.is_empty() {
                waiting.remove(owner);
            }
        }
    }
}
