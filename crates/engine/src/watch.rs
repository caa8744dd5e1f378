//! Wakes whoever waits for a task to change.
//!
//! A commit of this process wakes at once; changes by other processes are found by one store query for all
//! tasks that anybody here waits for. A waiter that falls behind learns the newest version only: nothing queues.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::TaskId;
use tokio::sync::Notify;

/// Follows any number of tasks. Changes are coalesced: each task is named at most once, with its newest version.
pub struct Watcher {
    hub: Arc<Hub>,
    number: u64,
    waiter: Arc<Waiter>,
}

impl Watcher {
    /// Follows a task from this version on; a newer one that is already known counts as a change.
    pub fn follow(&self, id: TaskId, after_version: u64) {
        self.hub.follow(self.number, &self.waiter, id, after_version);
    }

    /// Follows the task no longer.
    pub fn unfollow(&self, id: TaskId) {
        locked(&self.waiter.follows).remove(&id);
        self.hub.unfollow(self.number, &[id]);
    }

    /// Waits until at least one of the tasks has a newer version than last told, and tells which, in the order of
    /// their ids. A task that was deleted is told once, with [`GONE`].
    ///
    /// Safe to drop and call again: nothing is lost.
    pub async fn next(&self) -> Vec<(TaskId, u64)> {
        loop {
            let changes = self.waiter.take();
            if !changes.is_empty() {
                return changes;
            }
            self.waiter.wake.notified().await;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let ids: Vec<TaskId> = locked(&self.waiter.follows).keys().copied().collect();
        self.hub.unfollow(self.number, &ids);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// The version of a task that is no longer there.
pub const GONE: u64 = u64::MAX;

/// Who waits for what in this process.
#[derive(Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watchers: u64,
    followed: BTreeMap<TaskId, BTreeMap<u64, Arc<Waiter>>>,
    /// The last versions that were published, so that a change between a caller's read and its wait is not missed
    /// until the next poll. What falls out is found by the poll.
    recent: BTreeMap<TaskId, u64>,
    order: VecDeque<TaskId>,
}

/// How many published versions are remembered.
const RECENT_MAX: usize = 4_096;

#[derive(Default)]
struct Waiter {
    follows: Mutex<BTreeMap<TaskId, Follow>>,
    wake: Notify,
}

struct Follow {
    told: u64,
    newest: u64,
}

impl Hub {
    pub(crate) fn watcher(self: &Arc<Hub>) -> Watcher {
        let mut state = locked(&self.state);
        state.watchers += 1;
        Watcher {
            hub: Arc::clone(self),
            number: state.watchers,
            waiter: Arc::default(),
        }
    }

    /// Tells everyone who waits for the task.
    pub(crate) fn publish(&self, id: TaskId, version: u64) {
        let mut state = locked(&self.state);
        state.remember(id, version);
        for waiter in state.followed.get(&id).into_iter().flat_map(BTreeMap::values) {
            waiter.changed(id, version);
        }
    }

    /// The tasks that somebody waits for.
    pub(crate) fn followed(&self) -> Vec<TaskId> {
        locked(&self.state).followed.keys().copied().collect()
    }

    fn follow(&self, number: u64, waiter: &Arc<Waiter>, id: TaskId, after_version: u64) {
        let mut state = locked(&self.state);
        let newest = state.recent.get(&id).copied().unwrap_or(0);
        locked(&waiter.follows).insert(
            id,
            Follow {
                told: after_version,
                newest,
            },
        );
        state
            .followed
            .entry(id)
            .or_default()
            .insert(number, Arc::clone(waiter));
        waiter.wake.notify_one();
    }

    fn unfollow(&self, number: u64, ids: &[TaskId]) {
        let mut state = locked(&self.state);
        for id in ids {
            let Some(waiters) = state.followed.get_mut(id) else {
                continue;
            };
            waiters.remove(&number);
            if waiters.is_empty() {
                state.followed.remove(id);
            }
        }
    }
}

impl State {
    fn remember(&mut self, id: TaskId, version: u64) {
        match self.recent.get_mut(&id) {
            Some(known) => *known = (*known).max(version),
            None => {
                self.recent.insert(id, version);
                self.order.push_back(id);
            }
        }
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.recent.remove(&oldest);
        }
    }
}

impl Waiter {
    fn changed(&self, id: TaskId, version: u64) {
        if let Some(follow) = locked(&self.follows).get_mut(&id) {
            follow.newest = follow.newest.max(version);
        }
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<(TaskId, u64)> {
        let mut follows = locked(&self.follows);
        let changed = follows
            .iter_mut()
            .filter(|(_, follow)| follow.newest > follow.told);
        changed
            .map(|(id, follow)| {
                follow.told = follow.newest;
                (*id, follow.newest)
            })
            .collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Invariant: no code that can panic runs under these locks, so a poisoned one still holds whole data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
