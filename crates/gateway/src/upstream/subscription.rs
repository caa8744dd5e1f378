//! Hears of a server's changes where it must be asked for them: of its lists in the stateless generation, and of
//! single resources in both.
//!
//! Called by the pool for each connection, for the changes of lists, and by `server` for a resource. However many
//! subscribe to a resource on one connection, the server is asked once, and once more whenever the connection was
//! lost. A subscription keeps its connection from being ended for being idle.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longhaul_mcp::{
    RpcError,
    client::{self, Kind},
    frame::Obj,
};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    connection::Connection,
    outcome::{Failed, Outcome, Request},
    pool::{Key, Lease, Pool, SETTLED_AFTER, Untaken},
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

/// Stays subscribed to the lists of a server for as long as the connection lives. After each gap, when it is subscribed
/// again, `missed` is called: something may have changed meanwhile.
pub(super) async fn to_lists(connection: Connection, missed: impl Fn()) {
    let offers = connection.spoken().offers();
    let (tools, prompts, resources) = (
        offers.tools_change,
        offers.prompts_change,
        offers.resources_change,
    );
    if connection.spoken().era.kind() == Kind::Stateless && (tools || prompts || resources) {
        let params = client::listen(tools, prompts, resources, &[]);
        listen(&connection, &params, missed).await;
    }
}

/// Subscribes again and again, until the connection is over or the server does not do it.
async fn listen(connection: &Connection, params: &Obj, missed: impl Fn()) {
    let (first, longest) = AGAIN;
    let mut pause = first;
    let mut is_again = false;
    loop {
        let request = Request {
            method: "subscriptions/listen",
            params: Some(params),
            ..Request::default()
        };
        let ended = async { drop(connection.ended().await) };
        let (acknowledges, acknowledged) = oneshot::channel();
        let begun = Instant::now();
        let listening = connection.subscribe(request, acknowledges, ended);
        tokio::pin!(listening);
        let early = tokio::select! {
            biased;
            outcome = &mut listening => Some(outcome),
            // Of one that does not say that the subscription stands, it is taken to stand.
            _ = timeout(ACKNOWLEDGED_WITHIN, acknowledged), if is_again => None,
        };
        let outcome = match early {
            Some(outcome) => outcome,
            None => {
                missed();
                listening.await
            }
        };
        match outcome {
            // B-49: it ended it.
            Outcome::Came(_) => pause = first,
            Outcome::Failed(_) | Outcome::Unsent(_) if connection.lost().is_none() => {
                let has_lived = begun.elapsed() >= SETTLED_AFTER;
                pause = if has_lived {
                    first
                } else {
                    (pause * 2).min(longest)
                };
            }
            Outcome::Failed(_)
            | Outcome::Unsent(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::TimedOut
            | Outcome::Stopped { .. } => return,
        }
        is_again = true;
        sleep(pause).await;
    }
}

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
}

/// What stands on each connection.
type All = HashMap<Key, BTreeMap<String, Standing>>;

/// Whose connection serves a subscriber: another one, once the server is of another generation.
pub(super) type Whose = Arc<dyn Fn() -> Key + Send + Sync>;

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
            .filter(|(to, ..)| to != key && !matches!(to, Key::Call(_)))
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
        key: Key,
        uri: &str,
        number: u64,
        hearer: Hearer,
    ) -> Option<Keeper> {
        let of = all.entry(key.clone()).or_default();
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
            key,
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
        let (number, key) = (pool.next_subscriber(), whose());
        let hearer = Hearer {
            due: Arc::clone(due),
            whose,
        };
        let keeper = Subscriptions::add(&mut pool.subscriptions().lock(), pool, key, uri, number, hearer);
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

/// Keeps one resource subscribed to for as long as somebody hears of it. There is one for each, so that the server
/// is asked to begin and to end in that order.
struct Keeper {
    pool: Arc<Pool>,
    key: Key,
    uri: String,
    count: watch::Receiver<usize>,
    /// The server told of it once.
    stood: bool,
    /// Credentials were looked up again, since the server told of it.
    is_renewed: bool,
}

/// How a subscription ended.
enum Ended {
    /// Nobody hears of it any more.
    Left,
    /// With its connection, or because the server ended it.
    Lost,
    /// It did not begin.
    Failed(Outcome),
    /// Everybody's connection is nobody's any more.
    Unshared,
    /// It is to be tried again, with other credentials.
    Renewed,
}

impl Keeper {
    fn begin(self) {
        tokio::spawn(self.run());
    }

    async fn run(mut self) {
        let (first, longest) = AGAIN;
        let mut pause = first;
        loop {
            let ended = self.stand().await;
            let subscriptions = self.pool.subscriptions();
            match ended {
                Ended::Left if subscriptions.is_over(&self.key, &self.uri) => return,
                Ended::Left => continue,
                Ended::Lost => pause = first,
                Ended::Renewed => continue,
                Ended::Unshared => {
                    let keepers = subscriptions.move_on(&self.pool, &self.key, &self.uri, self.stood);
                    for keeper in keepers {
                        keeper.begin();
                    }
                    if subscriptions.is_over(&self.key, &self.uri) {
                        return;
                    }
                    if !self.stood {
                        let unshared = Outcome::Unsent(Untaken::Unshared.unsent());
                        return subscriptions.refused(&self.key, &self.uri, unshared);
                    }
                    pause = (pause * 2).min(longest);
                }
                Ended::Failed(outcome) if !self.stood || self.pool.is_shut() => {
                    return subscriptions.refused(&self.key, &self.uri, outcome);
                }
                Ended::Failed(outcome) => {
                    subscriptions.fails(&self.key, &self.uri, outcome);
                    pause = (pause * 2).min(longest);
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = left(self.count.clone()) => {}
                () = self.pool.closed() => {}
            }
        }
    }

    /// Once: from its beginning to its end.
    async fn stand(&mut self) -> Ended {
        let lease = tokio::select! {
            lease = self.pool.take(&self.key) => lease,
            () = left(self.count.clone()) => return Ended::Left,
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(Untaken::Unshared) => return Ended::Unshared,
            Err(untaken) => return Ended::Failed(Outcome::Unsent(untaken.unsent())),
        };
        let connection = lease.connection.clone();
        let credentials = connection.credentials();
        let ended = match connection.spoken().era.kind() {
            Kind::Sessions => self.in_session(lease).await,
            Kind::Stateless => self.on_stream(lease).await,
        };
        let is_refused = matches!(ended, Ended::Failed(Outcome::Failed(Failed::Status(401 | 403))));
        if is_refused && !self.is_renewed && self.pool.renew(&connection, &credentials).await {
            self.is_renewed = true;
            return Ended::Renewed;
        }
        ended
    }

    async fn in_session(&mut self, lease: Lease) -> Ended {
        let connection = &lease.connection;
        let wait = self.pool.times().request;
        let left_meanwhile = left(self.count.clone());
        let outcome = request(connection, "resources/subscribe", &self.uri, wait, left_meanwhile).await;
        match outcome {
            Outcome::Came(_) => self.stands(),
            // It may have begun all the same.
            Outcome::Stopped { .. } => {
                self.unsubscribe(connection).await;
                return Ended::Left;
            }
            outcome @ (Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut) => return Ended::Failed(outcome),
        }
        tokio::select! {
            _ = connection.ended() => Ended::Lost,
            () = left(self.count.clone()) => {
                self.unsubscribe(connection).await;
                Ended::Left
            }
        }
    }

    async fn unsubscribe(&self, connection: &Connection) {
        let (wait, never) = (UNSUBSCRIBED_WITHIN, std::future::pending());
        request(connection, "resources/unsubscribe", &self.uri, wait, never).await;
    }

    async fn on_stream(&mut self, lease: Lease) -> Ended {
        let params = client::listen(false, false, false, std::slice::from_ref(&self.uri));
        let (acknowledge, acknowledged) = oneshot::channel();
        let request = Request {
            method: "subscriptions/listen",
            params: Some(&params),
            ..Request::default()
        };
        let listening = lease
            .connection
            .subscribe(request, acknowledge, left(self.count.clone()));
        tokio::pin!(listening);
        let wait = ACKNOWLEDGED_WITHIN.min(self.pool.times().request);
        let acknowledged = tokio::select! {
            biased;
            outcome = &mut listening => return not_begun(outcome),
            acknowledged = timeout(wait, acknowledged) => acknowledged,
        };
        match acknowledged {
            Ok(Ok(honoured)) if is_honoured(&honoured, &self.uri) => self.stands(),
            // It is over: how, the server has said.
            Ok(Err(_)) => return not_begun(listening.await),
            Ok(Ok(_)) => {
                let refused =
                    RpcError::invalid_params("The server does not tell of changes of this resource");
                return Ended::Failed(Outcome::Errored(refused.object().to_raw()));
            }
            Err(_) => return Ended::Failed(Outcome::TimedOut),
        }
        match listening.await {
            Outcome::Stopped { .. } => Ended::Left,
            Outcome::Came(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut => Ended::Lost,
        }
    }

    fn stands(&mut self) {
        self.pool.subscriptions().stands(&self.key, &self.uri, self.stood);
        self.stood = true;
        self.is_renewed = false;
    }
}

fn not_begun(outcome: Outcome) -> Ended {
    match outcome {
        Outcome::Stopped { .. } => Ended::Left,
        outcome @ (Outcome::Came(_)
        | Outcome::Errored(_)
        | Outcome::Unusable(_)
        | Outcome::Unsent(_)
        | Outcome::Failed(_)
        | Outcome::TimedOut) => Ended::Failed(outcome),
    }
}

/// Resolves when nobody hears of it.
async fn left(mut count: watch::Receiver<usize>) {
    // What was taken out is heard by nobody.
    let _gone = count.wait_for(|count| *count == 0).await;
}

/// Whether an acknowledgement names the resource (B-46).
fn is_honoured(honoured: &Obj, uri: &str) -> bool {
    let uris = honoured.get::<Vec<String>>("resourceSubscriptions");
    uris.is_some_and(|uris| uris.iter().any(|honoured| honoured == uri))
}

async fn request(
    connection: &Connection,
    method: &str,
    uri: &str,
    wait: Duration,
    stop: impl Future<Output = ()>,
) -> Outcome {
    let mut params = Obj::default();
    params.set("uri", uri);
    let request = Request {
        method,
        params: Some(&params),
        timeout: Some(wait),
        ..Request::default()
    };
    connection.request(request, None, stop).await
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
