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
    outcome::{Outcome, Request},
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
    standing: Mutex<HashMap<Key, BTreeMap<String, Standing>>>,
}

/// A resource on one connection.
struct Standing {
    hearers: BTreeMap<u64, Arc<Due>>,
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

    fn leave(&self, key: &Key, uri: &str, number: u64) {
        let mut all = self.lock();
        if let Some(standing) = all.get_mut(key).and_then(|of| of.get_mut(uri)) {
            standing.hearers.remove(&number);
            standing.count.send_replace(standing.hearers.len());
        }
    }

    fn remove(all: &mut HashMap<Key, BTreeMap<String, Standing>>, key: &Key, uri: &str) -> Option<Standing> {
        let of = all.get_mut(key)?;
        let standing = of.remove(uri);
        if of.is_empty() {
            all.remove(key);
        }
        standing
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<String, Standing>>> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn tell(&self, resource: &str, changed: &str) {
        for due in self.hearers.values() {
            due.add(resource, changed);
        }
    }
}

/// One subscriber's part in a subscription to a resource. Dropping it ends it; the last one ends the subscription.
pub struct Subscription {
    pool: Arc<Pool>,
    key: Key,
    uri: String,
    number: u64,
}

impl Subscription {
    /// Subscribes, by the means of the server's generation, or joins those who have. Changes go to `due`.
    pub(super) async fn begin(
        pool: &Arc<Pool>,
        key: Key,
        uri: &str,
        due: &Arc<Due>,
    ) -> Result<Subscription, Arc<Outcome>> {
        let (subscription, mut said) = Subscription::enter(pool, key, uri, due);
        let said = said.wait_for(Option::is_some).await;
        match said.as_deref() {
            Ok(Some(Err(outcome))) => Err(Arc::clone(outcome)),
            Ok(Some(Ok(()))) => Ok(subscription),
            // It was given up, and that is said before.
            Ok(None) | Err(_) => Err(Arc::new(Outcome::Unsent(Untaken::Closed.unsent()))),
        }
    }

    fn enter(pool: &Arc<Pool>, key: Key, uri: &str, due: &Arc<Due>) -> (Subscription, watch::Receiver<Said>) {
        let number = pool.next_subscriber();
        let mut all = pool.subscriptions().lock();
        let of = all.entry(key.clone()).or_default();
        let is_new = !of.contains_key(uri);
        let standing = of.entry(uri.to_owned()).or_insert_with(|| Standing {
            hearers: BTreeMap::new(),
            count: watch::Sender::new(0),
            said: watch::Sender::new(None),
        });
        standing.hearers.insert(number, Arc::clone(due));
        standing.count.send_replace(standing.hearers.len());
        let (count, said) = (standing.count.subscribe(), standing.said.subscribe());
        drop(all);
        if is_new {
            let keeper = Keeper {
                pool: Arc::clone(pool),
                key: key.clone(),
                uri: uri.to_owned(),
                count,
                stood: false,
            };
            tokio::spawn(keeper.run());
        }
        let subscription = Subscription {
            pool: Arc::clone(pool),
            key,
            uri: uri.to_owned(),
            number,
        };
        (subscription, said)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.pool.subscriptions().leave(&self.key, &self.uri, self.number);
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
}

/// How a subscription ended.
enum Ended {
    /// Nobody hears of it any more.
    Left,
    /// With its connection, or because the server ended it.
    Lost,
    /// It did not begin.
    Failed(Outcome),
}

impl Keeper {
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
        match lease {
            Ok(lease) => match lease.connection.spoken().era.kind() {
                Kind::Sessions => self.in_session(lease).await,
                Kind::Stateless => self.on_stream(lease).await,
            },
            Err(untaken) => Ended::Failed(Outcome::Unsent(untaken.unsent())),
        }
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
