//! Tells a stream which resources have changed, of those that were subscribed to.
//!
//! A session has one of these for all its streams, and a `subscriptions/listen` has its own. `dispatch` fills it. Many
//! changes of a resource at once are told as one: what a client does then is to read it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_mcp::{
    Push, RpcError,
    rpc_error::{Refusal, RefusalCode, Who},
};

use crate::{
    quota::{Caps, Place},
    upstream::subscription::{Due, Subscription, covers},
};

/// How much may be subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most resources of one session, or of one stream (`server.subscriptions_max`).
    pub each_max: usize,
    /// The most of all sessions and streams of one owner (`server.subscriptions_owner_max`).
    pub owner_max: usize,
    /// The most of all sessions and streams (`server.subscriptions_total_max`).
    pub total_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            each_max: 64,
            owner_max: 512,
            total_max: 1_024,
        }
    }
}

impl Limits {
    pub(crate) fn caps(self) -> Caps {
        Caps::places(self.owner_max, self.total_max)
    }

    /// What a client is told who subscribed to too many.
    pub(crate) fn refusal(self) -> RpcError {
        let most = self.each_max;
        RpcError::refused(
            RefusalCode::OverLimit,
            format!(
                "{most} resources are subscribed to, or as many as you may have, or the server, which is the most \
                 (`server.subscriptions_max`, `server.subscriptions_owner_max`, `server.subscriptions_total_max`): \
                 unsubscribe from one"
            ),
            Refusal {
                reason: "subscription_limit".into(),
                who: Who::Caller,
                retry_after_ms: None,
            },
        )
    }
}

/// What one session, or one stream, has subscribed to. Dropping it ends all of it.
#[derive(Default)]
pub(crate) struct Updates {
    due: Arc<Due>,
    held: Mutex<BTreeMap<String, Held>>,
}

/// A subscription to one resource, at the server that has it.
pub(crate) struct Held {
    pub(crate) _subscription: Subscription,
    pub(crate) _place: Place,
}

impl Updates {
    /// The next change; waits until there is one. Safe to drop and call again.
    pub(crate) async fn next(&self) -> Push {
        Push::ResourceUpdated {
            uri: self.due.next().await,
        }
    }

    /// Where servers tell of changes.
    pub(crate) fn due(&self) -> &Arc<Due> {
        &self.due
    }

    /// The resource is subscribed to from now on.
    pub(crate) fn hold(&self, uri: &str, held: Held) {
        // The one before, if there was one, ends after this one began.
        let _before = self.lock().insert(uri.to_owned(), held);
    }

    /// A stream that was to tell of a change is gone, and nobody knows whether its client read it: the next one tells
    /// of it.
    pub(crate) fn again(&self, uri: &str) {
        if self.lock().keys().any(|resource| covers(resource, uri)) {
            self.due.add(uri, uri);
        }
    }

    /// The resource is not told of any more.
    pub(crate) fn end(&self, uri: &str) {
        let mut held = self.lock();
        let ended = held.remove(uri);
        self.due.forget(uri, held.keys());
        drop(held);
        drop(ended);
    }

    /// Nothing is told of any more. Returns what was subscribed to.
    pub(crate) fn end_all(&self) -> Vec<String> {
        let ended = std::mem::take(&mut *self.lock());
        for uri in ended.keys() {
            self.due.forget(uri, [].iter());
        }
        ended.into_keys().collect()
    }

    /// What is subscribed to.
    pub(crate) fn uris(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn has(&self, uri: &str) -> bool {
        self.lock().contains_key(uri)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
