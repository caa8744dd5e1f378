//! How many of something each owner has at once in this process: held calls, streams.
//!
//! Caps that must hold over several processes are rows in the store; these bound this process's memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_store::Owner;

/// A count for each owner.
#[derive(Clone, Default)]
pub(crate) struct Quota {
    counts: Arc<Mutex<BTreeMap<Owner, usize>>>,
}

/// One of an owner's places; given back when it is dropped.
pub(crate) struct Place {
    quota: Quota,
    owner: Owner,
}

impl Quota {
    /// A place, unless the owner has `max` already.
    pub(crate) fn take(&self, owner: &Owner, max: usize) -> Option<Place> {
        let mut counts = self.lock();
        let count = counts.entry(owner.clone()).or_insert(0);
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Place {
            quota: self.clone(),
            owner: owner.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.quota.lock();
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.owner);
            }
        }
    }
}
