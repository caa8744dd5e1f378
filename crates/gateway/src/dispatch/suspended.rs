//! Requests of clients without sessions that wait at a server for an answer of theirs (B-43).
//!
//! A server with sessions asks in the middle of a prompt or a resource. Its client is asked in the reply and comes back
//! with another request, so the first one stays open at the server meanwhile. It is kept in memory only: whoever comes
//! back too late, or after a restart, begins anew. Each owner has a few; one more ends the oldest.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use longhaul_core::TaskId;
use longhaul_store::Owner;
use tokio::time::{Instant, sleep_until};

use super::relaying::Work;

#[derive(Default)]
pub(super) struct Suspended {
    works: Mutex<BTreeMap<Owner, VecDeque<Waits>>>,
}

/// One request that waits, under a name that was made for it.
struct Waits {
    name: TaskId,
    until: Instant,
    work: Work,
}

impl Suspended {
    /// Keeps a request, until its client comes back or its time is over.
    pub(super) fn keep(
        self: &Arc<Self>,
        owner: &Owner,
        name: TaskId,
        work: Work,
        until: Instant,
        max: usize,
    ) {
        let oldest = {
            let mut works = self.lock();
            let line = works.entry(owner.clone()).or_default();
            line.push_back(Waits { name, until, work });
            if line.len() > max { line.pop_front() } else { None }
        };
        // What ends is told to its server, which needs no lock here.
        drop(oldest);
        let (suspended, owner) = (Arc::downgrade(self), owner.clone());
        tokio::spawn(end_late(suspended, owner, name, until));
    }

    /// The request of this name, whose client came back.
    pub(super) fn take(&self, owner: &Owner, name: TaskId) -> Option<Work> {
        self.remove(owner, |waits| waits.name == name)
            .map(|waits| waits.work)
    }

    fn remove(&self, owner: &Owner, is_it: impl Fn(&Waits) -> bool) -> Option<Waits> {
        let mut works = self.lock();
        let line = works.get_mut(owner)?;
        let at = line.iter().position(is_it)?;
        let found = line.remove(at);
        if line.is_empty() {
            works.remove(owner);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, VecDeque<Waits>>> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn end_late(suspended: Weak<Suspended>, owner: Owner, name: TaskId, until: Instant) {
    sleep_until(until).await;
    if let Some(suspended) = suspended.upgrade() {
        // It may wait again since, for another answer.
        drop(suspended.remove(&owner, |waits| waits.name == name && waits.until <= until));
    }
}
