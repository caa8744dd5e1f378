//! Wakes whoever waits for a task to change.
//!
//! A commit of this process wakes at once; changes by other processes are found by one store query for all
//! tasks that anybody here waits for. A waiter that falls behind learns the newest version only: nothing queues.

use longhaul_core::TaskId;

/// Follows any number of tasks. Changes are coalesced: each task is named at most once, with its newest version.
#[derive(Debug)]
pub struct Watcher {}

impl Watcher {
    /// Follows a task from this version on; a newer one that is already known counts as a change.
    pub fn follow(&self, id: TaskId, after_version: u64) {
        unimplemented!("{id} {after_version}")
    }

    /// Follows the task no longer.
    pub fn unfollow(&self, id: TaskId) {
        unimplemented!("{id}")
    }

    /// Waits until at least one of the tasks has a newer version than last told, and tells which, in the order of
    /// their ids. A task that was deleted is told once, with `u64::MAX`.
    ///
    /// Safe to drop and call again: nothing is lost.
    pub async fn next(&self) -> Vec<(TaskId, u64)> {
        unimplemented!()
    }
}
