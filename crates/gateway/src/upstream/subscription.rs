//! Hears of a server's changes where it must be asked for them: of its lists in the stateless generation, and of
//! single resources in both.
//!
//! Called by the pool for each connection, for the changes of lists, and by `server` for a resource. Here is who hears
//! of what. However many subscribe to a resource on one connection, the server is asked once (`keeper`), and once more
//! whenever the connection was lost.

mod keeper;
mod lists;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use self::keeper::Keeper;
pub(super) use self::lists::to_lists;
use super::{
    outcome::Outcome,
    pool::{Key, Pool, Taker, Untaken},
};

/// The pause before a subscription that ended is made again: the first, and the longest.
pub const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a stateless server may take to say what it honours of a subscription.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);
/// How long the end of a subscription is waited for.
pub const UNSUBSCRIBED_WITHIN: Duration = Duration::from_secs(5);
/// The most parts of resources that wait to be told of; of more, the resource itself is told of.
pub const DUE_MAX: usize = 256;
/// The longest URI of a part that is told of, in bytes; of a longer one, the resource itself is told of.
pub const URI_BYTES_MAX: usize = 2_048;

/// The resources that changed and that a subscriber was not told of yet, each once.
#[derive(Default)]
pub struct Due {
    uris: Mutex<VecDeque<String>>,
    added: Notify,
}

impl Due {
    /// The next one; waits until there is one. Safe to drop and call again.
    pub async fn next(&self) -> String {
        loop {
            let next = self.uris().pop_front();
            match next {
                Some(uri) => return uri,
                None => self.added.notified().await,
            }
        }
    }

    /// A resource changed, or a part of it.
    pub(crate) fn add(&self, resource: &str, changed: &str) {
        let mut uris = self.uris();
        let fits = uris.len() < DUE_MAX && changed.len() <= URI_BYTES_MAX;
        let uri = if fits { changed } else { resource };
        if !uris.iter().any(|due| due == uri) {
            uris.push_back(uri.to_owned());
        }
        drop(uris);
        self.added.notify_one();
    }

    /// Nobody wants to know of this resource any more, but of what `others` cover.
    pub(crate) fn forget<'a>(&self, resource: &str, others: impl Iterator<Item = &'a String> + Clone) {
        let is_wanted = |due: &str| others.clone().any(|other| covers(other, due));
        self.uris().retain(|due| !covers(resource, due) || is_wanted(due));
    }

    fn uris(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.uris.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether something is the resource, or a part of it: a server may tell of a part.
pub(crate) fn covers(resource: &str, changed: &str) -> bool {
    let Some(rest) = changed.strip_prefix(resource) else {
        return false;
    };
    rest.is_empty() || resource.ends_with('/') || rest.starts_with(['/', '?', '#'])
}

/// What callers have subscribed to at one server.
#[derive(Default)]
pub(super) struct Subscriptions {
    standing: Mutex<All>,
    /// Names a subscriber among all of this server.
    next: AtomicU64,
}

/// What stands on each connection.
type All = HashMap<Key, BTreeMap<String, Standing>>;

/// Whose connection serves a subscriber: another one, once the server is of another generation.
pub(super) type Whose = Arc<dyn Fn() -> Taker + Send + Sync>;

/// One subscriber.
#[derive(Clone)]
struct Hearer {
    due: Arc<Due>,
    whose: Whose,
}

/// A resource on one connection.
struct Standing {
    hearers: BTreeMap<u64, Hearer>,
    /// How many they are.
    count: watch::Sender<usize>,
    /// Whether the server tells of it.
    said: watch::Sender<Said>,
}

/// What the server says of a subscription; `None` while it is asked.
type Said = Option<Result<(), Arc<Outcome>>>;

impl Subscriptions {
    /// The server says that a resource changed.
    pub(super) fn tell(&self, key: &Key, changed: &str) {
        let standing = self.lock();
        for (resource, standing) in standing.get(key).into_iter().flatten() {
            if covers(resource, changed) {
                standing.tell(resource, changed);
            }
        }
    }

    /// Takes the resource out when nobody hears of it.
    fn is_over(&self, key: &Key, uri: &str) -> bool {
        let mut all = self.lock();
        let is_heard = |standing: &Standing| !standing.hearers.is_empty();
        if all.get(key).and_then(|of| of.get(uri)).is_some_and(is_heard) {
            return false;
        }
        Self::remove(&mut all, key, uri);
        true
    }

    /// The server tells of the resource from now on. Where it did before, something may have been missed.
    fn stands(&self, key: &Key, uri: &str, is_again: bool) {
        let all = self.lock();
        if let Some(standing) = all.get(key).and_then(|of| of.get(uri)) {
            if is_again {
                standing.tell(uri, uri);
            }
            standing.said.send_replace(Some(Ok(())));
        }
    }

    /// The server does not tell of the resource: whoever comes is told so; who was there keeps waiting.
    fn fails(&self, key: &Key, uri: &str, outcome: Outcome) {
        let all = self.lock();
        if let Some(standing) = all.get(key).and_then(|of| of.get(uri)) {
            standing.said.send_replace(Some(Err(Arc::new(outcome))));
        }
    }

    /// The server refuses: all who wait are told.
    fn refused(&self, key: &Key, uri: &str, outcome: Outcome) {
        let mut all = self.lock();
        if let Some(standing) = Self::remove(&mut all, key, uri) {
            standing.said.send_replace(Some(Err(Arc::new(outcome))));
        }
    }

    /// It may have been moved to another connection than it began on.
    fn leave(&self, uri: &str, number: u64) {
        let mut all = self.lock();
        let standing = all.values_mut().filter_map(|of| of.get_mut(uri));
        for standing in standing {
            if standing.hearers.remove(&number).is_some() {
                standing.count.send_replace(standing.hearers.len());
            }
        }
    }

    /// What the server says to a subscriber, wherever it was moved to.
    fn said(&self, uri: &str, number: u64) -> Option<watch::Receiver<Said>> {
        let all = self.lock();
        let mut standing = all.values().filter_map(|of| of.get(uri));
        let standing = standing.find(|standing| standing.hearers.contains_key(&number))?;
        Some(standing.said.subscribe())
    }

    /// Moves those who are served by another connection now. Returns what is to be kept there; what stood before is
    /// kept as before.
    fn move_on(&self, pool: &Arc<Pool>, key: &Key, uri: &str, stood: bool) -> Vec<Keeper> {
        let hearers = self.lock().get(key).and_then(|of| of.get(uri)).map(|standing| {
            let hearers = standing.hearers.iter();
            hearers
                .map(|(number, hearer)| (*number, hearer.clone()))
                .collect::<Vec<_>>()
        });
        // Asked without the lock: the pool tells of changes under its own.
        let moved: Vec<_> = hearers
            .into_iter()
            .flatten()
            .map(|(number, hearer)| ((hearer.whose)(), number, hearer))
            // A process of one call ends with it: nobody is moved there.
            .filter(|(to, ..)| to.key != *key && !to.key.is_own())
            .collect();
        let mut all = self.lock();
        let mut keepers = Vec::new();
        for (to, number, hearer) in moved {
            let Some(standing) = all.get_mut(key).and_then(|of| of.get_mut(uri)) else {
                break;
            };
            // It may have left meanwhile.
            if standing.hearers.remove(&number).is_none() {
                continue;
            }
            standing.count.send_replace(standing.hearers.len());
            if stood {
                hearer.due.add(uri, uri);
            }
            let keeper = Self::add(&mut all, pool, to, uri, number, hearer);
            keepers.extend(keeper.map(|keeper| Keeper { stood, ..keeper }));
        }
        if all
            .get(key)
            .and_then(|of| of.get(uri))
            .is_some_and(|standing| standing.hearers.is_empty())
        {
            Self::remove(&mut all, key, uri);
        }
        keepers
    }

    /// Adds one who hears of a resource. Returns who is to keep it, where it is the first.
    fn add(
        all: &mut All,
        pool: &Arc<Pool>,
        taker: Taker,
        uri: &str,
        number: u64,
        hearer: Hearer,
    ) -> Option<Keeper> {
        let of = all.entry(taker.key.clone()).or_default();
        let is_new = !of.contains_key(uri);
        let standing = of.entry(uri.to_owned()).or_insert_with(|| Standing {
            hearers: BTreeMap::new(),
            count: watch::Sender::new(0),
            said: watch::Sender::new(None),
        });
        standing.hearers.insert(number, hearer);
        standing.count.send_replace(standing.hearers.len());
        is_new.then(|| Keeper {
            pool: Arc::clone(pool),
            key: taker.key,
            answers: taker.answers,
            uri: uri.to_owned(),
            count: standing.count.subscribe(),
            stood: false,
            is_renewed: false,
        })
    }

    fn remove(all: &mut All, key: &Key, uri: &str) -> Option<Standing> {
        let of = all.get_mut(key)?;
        let standing = of.remove(uri);
        if of.is_empty() {
            all.remove(key);
        }
        standing
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn tell(&self, resource: &str, changed: &str) {
        for hearer in self.hearers.values() {
            hearer.due.add(resource, changed);
        }
    }
}

/// One subscriber's part in a subscription to a resource. Dropping it ends it; the last one ends the subscription.
pub struct Subscription {
    pool: Arc<Pool>,
    uri: String,
    number: u64,
}

impl Subscription {
    /// Subscribes, by the means of the server's generation, or joins those who have. Changes go to `due`.
    pub(super) async fn begin(
        pool: &Arc<Pool>,
        whose: Whose,
        uri: &str,
        due: &Arc<Due>,
    ) -> Result<Subscription, Arc<Outcome>> {
        let subscription = Subscription::enter(pool, whose, uri, due);
        while let Some(mut said) = pool.subscriptions().said(uri, subscription.number) {
            let said = said.wait_for(Option::is_some).await;
            match said.as_deref() {
                Ok(Some(Err(outcome))) => return Err(Arc::clone(outcome)),
                Ok(Some(Ok(()))) => return Ok(subscription),
                // It is asked for on another connection.
                Ok(None) | Err(_) => {}
            }
        }
        // It was given up, and that is said before.
        Err(Arc::new(Outcome::Unsent(Untaken::Closed.unsent())))
    }

    fn enter(pool: &Arc<Pool>, whose: Whose, uri: &str, due: &Arc<Due>) -> Subscription {
        let number = pool.subscriptions().next.fetch_add(1, Ordering::Relaxed);
        let taker = whose();
        let hearer = Hearer {
            due: Arc::clone(due),
            whose,
        };
        let keeper = Subscriptions::add(&mut pool.subscriptions().lock(), pool, taker, uri, number, hearer);
        if let Some(keeper) = keeper {
            keeper.begin();
        }
        Subscription {
            pool: Arc::clone(pool),
            uri: uri.to_owned(),
            number,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.pool.subscriptions().leave(&self.uri, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_due_of_another_subscription_stays() {
        let due = Due::default();
        let others = ["file:///d/x".to_owned()];
        due.add("file:///d", "file:///d/y");
        due.add("file:///d", "file:///d/x");
        due.forget("file:///d", others.iter());
        assert_eq!(due.next().await, "file:///d/x");
        due.add("file:///d/x", "file:///d/x/last");
        assert_eq!(due.next().await, "file:///d/x/last");
    }
}
