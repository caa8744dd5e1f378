//! How many of something each owner has at once in this process, and all owners together: held calls, streams.
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
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    owners: BTreeMap<Owner, Amount>,
    all: Amount,
}

/// How many places, and how many bytes they keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) places: usize,
    pub(crate) bytes: usize,
}

/// The most of an owner, and of all owners together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) owner: Amount,
    pub(crate) all: Amount,
}

/// One of an owner's places; given back when it is dropped.
pub(crate) struct Place {
    quota: Quota,
    owner: Owner,
    bytes: usize,
}

impl Caps {
    /// Caps on places that keep nothing.
    pub(crate) fn places(owner: usize, all: usize) -> Caps {
        let of = |places| Amount {
            places,
            bytes: usize::MAX,
        };
        Caps {
            owner: of(owner),
            all: of(all),
        }
    }
}

impl Amount {
    /// With one place of so many bytes more, when that is within `most`.
    fn and(self, bytes: usize, most: Amount) -> Option<Amount> {
        let more = Amount {
            places: self.places + 1,
            bytes: self.bytes.checked_add(bytes)?,
        };
        (more.places <= most.places && more.bytes <= most.bytes).then_some(more)
    }

    fn less(&mut self, bytes: usize) {
        self.places -= 1;
        self.bytes -= bytes;
    }
}

impl Quota {
    /// A place that keeps so many bytes, when the owner and all may have one more.
    pub(crate) fn take(&self, owner: &Owner, bytes: usize, caps: Caps) -> Option<Place> {
        let mut taken = self.lock();
        let own = taken.owners.get(owner).copied().unwrap_or_default();
        let own = own.and(bytes, caps.owner)?;
        let all = taken.all.and(bytes, caps.all)?;
        taken.all = all;
        match taken.owners.get_mut(owner) {
            Some(known) => *known = own,
            None => {
                taken.owners.insert(owner.clone(), own);
            }
        }
        Some(Place {
            quota: self.clone(),
            owner: owner.clone(),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Invariant: what runs under this lock changes whole counts, so a poisoned one still holds whole data.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.quota.lock();
        taken.all.less(self.bytes);
        if let Some(own) = taken.owners.get_mut(&self.owner) {
            own.less(self.bytes);
            if own.places == 0 {
                taken.owners.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(subject: &str) -> Owner {
        Owner {
            tenant: "default".to_owned(),
            issuer: "local".to_owned(),
            subject: subject.to_owned(),
            app: String::new(),
        }
    }

    #[test]
    fn an_owner_has_its_places_and_all_have_theirs() {
        let quota = Quota::default();
        let caps = Caps::places(2, 3);
        let take = |subject| quota.take(&owner(subject), 0, caps);
        let first = [take("one"), take("one"), take("two")];
        assert!(first.iter().all(Option::is_some));
        assert!(take("one").is_none());
        assert!(take("two").is_none());
        drop(first);
        assert!(take("one").is_some());
    }

    #[test]
    fn bytes_are_given_back_with_their_place() {
        let quota = Quota::default();
        let most = |bytes| Amount { places: 10, bytes };
        let caps = Caps {
            owner: most(100),
            all: most(150),
        };
        let take = |subject, bytes| quota.take(&owner(subject), bytes, caps);
        let kept = take("one", 80);
        assert!(kept.is_some());
        assert!(take("one", 21).is_none());
        assert!(take("two", 71).is_none());
        drop(kept);
        assert!(take("two", 100).is_some());
    }
}
