//! Which process or session of a server serves which caller, and how many there are.
//!
//! Owned by `server`. Connections are opened when they are needed, one at a time for each [`Key`], in a task of
//! their own: a caller that leaves does not take the connection from the next. It never holds its lock while
//! anything is waited for.

mod hearing;
mod opening;
mod renewing;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use longhaul_core::Millis;
use longhaul_engine::clock;
use longhaul_mcp::{
    client::{Kind, dial::Choice},
    frame::Obj,
    request::Answers,
};
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::{Instant, interval, timeout},
};

pub(crate) use self::hearing::LinksDone;
use self::opening::Opening;
pub use self::renewing::RENEW_MIN;
use super::{
    back_off::BackOff,
    connection::Connection,
    definitions::Versions,
    dial::{Ours, Place, Resumed, Unopened},
    link::Lost,
    outcome::{Event, Unsent},
    subscription::Subscriptions,
    times::Times,
};
use crate::command::causes;

/// How long a caller waits for the next try to open a connection, rather than being told that the last one failed.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A connection that was lost sooner than this after it was opened counts as a failure.
pub const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// The most links that are done with and that those who wait for some have not looked at.
const LINKS_MAX: usize = 256;
/// How often a caller looks whether one may be ended for its sake.
const AGAIN: Duration = Duration::from_secs(1);
/// How often idle connections are looked for, at most.
const LOOK: Duration = Duration::from_secs(30);

/// Whom a connection serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Nobody yet: the next new caller.
    Spare,
    /// Everybody.
    Shared,
    /// One session of a client.
    Session(String),
    /// One owner.
    Principal(String),
    /// One call.
    Call(u64),
    /// The tasks of a session that was begun on another connection.
    Resumed(Resumed),
}

impl Key {
    /// It serves what asked for it, and nothing else.
    pub(super) fn is_own(&self) -> bool {
        match self {
            Key::Call(_) | Key::Resumed(_) => true,
            Key::Spare | Key::Shared | Key::Session(_) | Key::Principal(_) => false,
        }
    }
}

/// Whom a connection is taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taker {
    pub(super) key: Key,
    /// What can be asked of them. A server with sessions is told so once, when the connection is opened (D-29).
    pub(super) answers: Answers,
}

/// What a pool opens, and how many.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) ours: Ours,
    pub(super) choice: Choice,
    pub(super) processes_max: usize,
    /// Everybody may share a connection, whatever the server keeps of them.
    pub(super) is_shared: bool,
    pub(super) times: Times,
}

/// What the server is told.
pub(super) enum Told {
    /// A connection could not be opened.
    Unopened(Arc<Unopened>),
    /// A connection ended that we did not close.
    Lost { lost: Arc<Lost>, soon: bool },
    /// A list of the server changed, or may have.
    Changed,
    /// A connection was opened: what the server defines may have changed since the last.
    Opened,
}

/// Why there is no connection for a caller.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Untaken {
    #[error("the server was closed")]
    Closed,
    #[error("the server could not be started: {}", causes(&**.0))]
    Unopened(Arc<Unopened>),
    #[error("the server is down: {0}")]
    Later(String),
    #[error("none of the server's {0} processes became free in time")]
    Late(usize),
    #[error("the server keeps sessions, which it did not before")]
    Unshared,
}

impl Untaken {
    /// Of a request that was to be sent.
    pub(super) fn unsent(&self) -> Unsent {
        Unsent::Unopened {
            shown: self.shown(),
            why: self.to_string(),
        }
    }

    /// As whoever asked may know it: nothing of paths, addresses, secrets and what others do.
    pub(super) fn shown(&self) -> &'static str {
        match self {
            Untaken::Closed => "it was closed",
            Untaken::Unopened(_) => "it cannot be started or reached",
            Untaken::Later(_) => "it is down, and is tried again",
            Untaken::Late(_) => "it has no process to spare; try again",
            Untaken::Unshared => "it keeps sessions, which it did not before; try again",
        }
    }
}

/// A live connection, for `longhaul servers`.
#[derive(Clone, Debug)]
pub struct Live {
    /// Whom it serves.
    pub key: Key,
    /// The process id of a program.
    pub pid: Option<i32>,
    /// How many calls it serves now.
    pub calls: usize,
    /// Since when it is open.
    pub since: Millis,
}

pub(super) struct Pool {
    plan: Plan,
    slots: Mutex<Slots>,
    changed: watch::Sender<u64>,
    closing: watch::Sender<bool>,
    told: mpsc::Sender<Told>,
    said: Mutex<Versions>,
    /// Who hears what the server says to nobody in particular, on the connection of one session.
    hearers: Mutex<HashMap<Key, Vec<mpsc::Sender<Event>>>>,
    subscriptions: Subscriptions,
    /// The links that the server says are done with.
    links: broadcast::Sender<String>,
    /// How many callers wait for a connection because all are in use.
    waiting: AtomicUsize,
    /// When credentials were looked up again.
    renewed: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Slots {
    live: HashMap<Key, Slot>,
    opening: HashMap<Key, Opening>,
    /// Connections that were taken out and have not ended yet.
    ending: usize,
    next_id: u64,
    /// The generation that answered last (B-17).
    kind: Option<Kind>,
    back_off: BackOff,
}

struct Slot {
    id: u64,
    connection: Connection,
    leases: usize,
    idle_since: Instant,
    since: Millis,
    /// What the server was told that it may ask.
    answers: Answers,
    /// Nobody comes back for it.
    is_left: bool,
}

/// A connection in use. Dropping it gives it back.
pub(super) struct Lease {
    pool: Arc<Pool>,
    id: u64,
    pub(super) connection: Connection,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.give_back(self.id);
    }
}

/// A caller that waits, counted until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl Waits<'_> {
    fn begin(waiting: &AtomicUsize) -> Waits<'_> {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What there is for a caller.
enum Found {
    Lease(Lease),
    Opening(watch::Receiver<Option<Arc<Unopened>>>),
    Busy,
}

impl Pool {
    pub(super) fn new(plan: Plan, told: mpsc::Sender<Told>) -> Arc<Pool> {
        let idle_stop = plan.times.idle_stop;
        let pool = Arc::new(Pool {
            plan,
            slots: Mutex::default(),
            changed: watch::Sender::new(0),
            closing: watch::Sender::new(false),
            told,
            said: Mutex::default(),
            hearers: Mutex::default(),
            subscriptions: Subscriptions::default(),
            links: broadcast::Sender::new(LINKS_MAX),
            waiting: AtomicUsize::new(0),
            renewed: tokio::sync::Mutex::default(),
        });
        tokio::spawn(stop_idle(Arc::downgrade(&pool), idle_stop));
        pool
    }

    /// A connection for this caller: its own, a spare one, or a new one. It waits for `wait_timeout` at most.
    pub(super) async fn take(self: &Arc<Self>, taker: &Taker) -> Result<Lease, Untaken> {
        self.take_telling(taker, &mut |_| ()).await
    }

    /// As [`Pool::take`]; where all are in use, `busy` is told how many there are, once.
    pub(super) async fn take_telling(
        self: &Arc<Self>,
        taker: &Taker,
        busy: &mut (dyn FnMut(usize) + Send),
    ) -> Result<Lease, Untaken> {
        let taken = timeout(self.plan.times.wait, self.take_at_last(taker, busy)).await;
        taken.unwrap_or(Err(Untaken::Late(self.plan.processes_max)))
    }

    /// Whether this caller has a connection of its own.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.slots().live.contains_key(key)
    }

    /// A caller is gone for good: its connection ends with the last request that uses it.
    pub(super) fn leave(self: &Arc<Self>, key: &Key) {
        let mut slots = self.slots();
        let Some(slot) = slots.live.get_mut(key) else {
            return;
        };
        slot.is_left = true;
        if slot.leases == 0
            && let Some(slot) = slots.live.remove(key)
        {
            self.end(&mut slots, slot);
        }
    }

    /// Any connection that is there, or a new one for `taker`.
    pub(super) async fn take_any(self: &Arc<Self>, taker: &Taker) -> Result<Lease, Untaken> {
        let any = {
            let mut slots = self.slots();
            let live = slots
                .live
                .iter()
                .filter(|(key, slot)| !key.is_own() && slot.connection.lost().is_none());
            // One that works may answer late; the youngest is the least likely to be stopped soon.
            let youngest = live
                .max_by_key(|(_, slot)| (slot.leases == 0, slot.id))
                .map(|(key, _)| key.clone());
            youngest.and_then(|key| self.lease(&mut slots, &key))
        };
        match any {
            Some(lease) => Ok(lease),
            None => self.take(taker).await,
        }
    }

    /// Whether nothing else uses the connection.
    pub(super) fn is_alone(&self, lease: &Lease) -> bool {
        let slots = self.slots();
        slots
            .live
            .values()
            .any(|slot| slot.id == lease.id && slot.leases == 1)
    }

    /// How many callers wait for a connection because all are in use.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    async fn take_at_last(
        self: &Arc<Self>,
        taker: &Taker,
        busy: &mut (dyn FnMut(usize) + Send),
    ) -> Result<Lease, Untaken> {
        let mut waits = None;
        loop {
            let mut changed = self.changed.subscribe();
            match self.find(taker)? {
                Found::Lease(lease) => return Ok(lease),
                Found::Opening(mut opening) => {
                    if let Ok(failed) = opening.wait_for(Option::is_some).await
                        && let Some(unopened) = failed.clone()
                    {
                        return Err(Untaken::Unopened(unopened));
                    }
                }
                // One may have been idle for long enough by then.
                Found::Busy => {
                    if waits.is_none() {
                        waits = Some(Waits::begin(&self.waiting));
                        busy(self.plan.processes_max);
                    }
                    drop(timeout(AGAIN, changed.changed()).await);
                }
            }
        }
    }

    fn find(self: &Arc<Self>, taker: &Taker) -> Result<Found, Untaken> {
        let key = &taker.key;
        let mut slots = self.slots();
        if self.is_shut() {
            return Err(Untaken::Closed);
        }
        if let Some(lease) = self.lease(&mut slots, key) {
            return Ok(Found::Lease(lease));
        }
        let is_resumed = matches!(key, Key::Resumed(_));
        let spare = slots.opening.get(&Key::Spare);
        let spare = spare.filter(|spare| !is_resumed && is_for(slots.kind, spare.answers, taker));
        if let Some(opening) = slots.opening.get(key).or(spare) {
            return Ok(Found::Opening(opening.failed.clone()));
        }
        if *key == Key::Shared && !self.may_share(slots.kind) {
            return Err(Untaken::Unshared);
        }
        let fits = |spare: &Slot| is_for(Some(spare.connection.spoken().era.kind()), spare.answers, taker);
        if !is_resumed
            && slots.live.get(&Key::Spare).is_some_and(fits)
            && let Some(slot) = slots.live.remove(&Key::Spare)
        {
            slots.live.insert(key.clone(), slot);
            if let Some(lease) = self.lease(&mut slots, key) {
                return Ok(Found::Lease(lease));
            }
        }
        let soon = Instant::now() + PATIENCE;
        if *key != Key::Spare && slots.back_off.until().is_some_and(|until| until > soon) {
            return Err(Untaken::Later(slots.back_off.why().to_owned()));
        }
        if slots.count() < self.plan.processes_max {
            return Ok(Found::Opening(self.open(&mut slots, taker.clone())));
        }
        let kept = self.plan.times.idle_stop.min(self.plan.times.keep_idle);
        let idle = slots
            .live
            .iter()
            // One that was told something else than can be asked of this caller waits for nobody who is known.
            .filter(|(key, slot)| {
                slot.leases == 0 && (**key == Key::Spare || slot.idle_since.elapsed() >= kept)
            });
        let longest = idle
            .min_by_key(|(key, slot)| (**key != Key::Spare, slot.idle_since))
            .map(|(key, _)| key.clone());
        if let Some(slot) = longest.and_then(|key| slots.live.remove(&key)) {
            self.end(&mut slots, slot);
        }
        Ok(Found::Busy)
    }

    /// The generation that answered last.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.slots().kind
    }

    /// A lease of the live connection of this key.
    fn lease(self: &Arc<Self>, slots: &mut Slots, key: &Key) -> Option<Lease> {
        if slots.live.get(key)?.connection.lost().is_some() {
            slots.live.remove(key);
            return None;
        }
        let slot = slots.live.get_mut(key)?;
        slot.leases += 1;
        Some(Lease {
            pool: Arc::clone(self),
            id: slot.id,
            connection: slot.connection.clone(),
        })
    }

    /// What is missed because too much waits is made good by the next fetch, which is of everything.
    fn tell(&self, told: Told) {
        let _full = self.told.try_send(told);
    }

    fn give_back(self: &Arc<Self>, id: u64) {
        let mut slots = self.slots();
        let Some(key) = slots.key(id) else {
            return;
        };
        let mut is_left = key.is_own();
        let is_idle = slots.live.get_mut(&key).is_some_and(|slot| {
            slot.leases -= 1;
            slot.idle_since = Instant::now();
            is_left |= slot.is_left;
            slot.leases == 0
        });
        if is_idle
            && is_left
            && let Some(slot) = slots.live.remove(&key)
        {
            self.end(&mut slots, slot);
        }
        drop(slots);
        if is_idle {
            self.change();
        }
    }

    /// Ends a connection that was taken out; it counts until it is over.
    fn end(self: &Arc<Self>, slots: &mut Slots, slot: Slot) {
        slots.ending += 1;
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            slot.connection.close().await;
            pool.slots().ending -= 1;
            pool.change();
        });
    }

    fn stop_idle(self: &Arc<Self>) {
        // One that belongs to nobody alone costs little behind a URL, and changes are heard on it.
        let is_kept = |key: &Key| self.plan.place.is_remote() && matches!(key, Key::Spare | Key::Shared);
        let mut slots = self.slots();
        let idle: Vec<Key> = slots
            .live
            .iter()
            .filter(|(key, slot)| {
                !is_kept(key) && slot.leases == 0 && slot.idle_since.elapsed() >= self.plan.times.idle_stop
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in idle {
            if let Some(slot) = slots.live.remove(&key) {
                self.end(&mut slots, slot);
            }
        }
    }

    /// It answers.
    pub(super) fn succeeded(&self) {
        self.slots().back_off.succeeded();
    }

    /// The next try is made later than the last.
    pub(super) fn failed(&self, why: &str) {
        self.slots().back_off.failed(why, Instant::now());
    }

    /// When the next try may be made.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.slots().back_off.until()
    }

    pub(super) fn live(&self) -> Vec<Live> {
        let slots = self.slots();
        let mut live: Vec<_> = slots.live.iter().collect();
        live.sort_by_key(|(_, slot)| slot.id);
        live.into_iter()
            .map(|(key, slot)| Live {
                key: key.clone(),
                pid: slot.connection.pid(),
                calls: slot.leases,
                since: slot.since,
            })
            .collect()
    }

    /// How many processes or sessions there are, those that begin and end included.
    pub(super) fn count(&self) -> usize {
        self.slots().count()
    }

    pub(super) fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Nothing is opened any more. It is said under the lock of the slots.
    pub(super) fn is_shut(&self) -> bool {
        *self.closing.borrow()
    }

    pub(super) fn times(&self) -> &Times {
        &self.plan.times
    }

    /// What is answered to `roots/list` in everybody's place.
    pub(super) fn roots(&self) -> Option<&Obj> {
        self.plan.ours.roots.as_ref()
    }

    pub(super) fn name(&self) -> &str {
        &self.plan.name
    }

    /// Begins to end everything; nothing is opened any more.
    pub(super) fn shut(&self) {
        let slots = self.slots();
        self.closing.send_replace(true);
        for slot in slots.live.values() {
            slot.connection.shut();
        }
        drop(slots);
        self.change();
    }

    /// Ends every connection, and those that are being opened; new ones may be opened after that.
    pub(super) async fn end_all(self: &Arc<Self>) {
        let (connections, mut opening) = {
            let mut slots = self.slots();
            slots.back_off = BackOff::default();
            let live = std::mem::take(&mut slots.live);
            slots.ending += live.len();
            let connections: Vec<Connection> = live.into_values().map(|slot| slot.connection).collect();
            // Each keeps its place until it is over, so nothing is opened beside it.
            let opening = slots.opening.values().map(|opening| {
                opening.stopped.send_replace(true);
                opening.failed.clone()
            });
            (connections, opening.collect::<Vec<_>>())
        };
        join_all(connections.iter().map(Connection::close)).await;
        self.slots().ending -= connections.len();
        self.change();
        // The other end of each is dropped with the task that opens it.
        for over in &mut opening {
            let _dropped = over.wait_for(|_| false).await;
        }
    }

    pub(super) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // A pool that is gone is closed too.
        let _gone = closing.wait_for(|closing| *closing).await;
    }

    /// Waits until there are no more processes or sessions than this.
    pub(super) async fn at_most(&self, count: usize) {
        let mut changed = self.changed.subscribe();
        while self.count() > count {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn change(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a spare connection is for this caller: a server with sessions was told what it may ask, and keeps to it.
/// Before it has answered, it is waited for.
fn is_for(kind: Option<Kind>, told: Answers, taker: &Taker) -> bool {
    kind != Some(Kind::Sessions) || told == taker.answers || longhaul_core::fault!("any-spare-serves")
}

impl Slot {
    fn new(id: u64, answers: Answers, connection: &Connection, now: Instant) -> Slot {
        Slot {
            id,
            connection: connection.clone(),
            leases: 0,
            idle_since: now,
            since: clock::now(),
            answers,
            is_left: false,
        }
    }
}

impl Slots {
    fn count(&self) -> usize {
        self.live.len() + self.opening.len() + self.ending
    }

    fn key(&self, id: u64) -> Option<Key> {
        self.live
            .iter()
            .find(|(_, slot)| slot.id == id)
            .map(|(key, _)| key.clone())
    }

    fn remove(&mut self, id: u64) {
        self.live.retain(|_, slot| slot.id != id);
    }
}

async fn stop_idle(pool: Weak<Pool>, idle_stop: Duration) {
    let mut look = interval((idle_stop / 4).clamp(Duration::from_millis(10), LOOK));
    loop {
        look.tick().await;
        let Some(pool) = pool.upgrade().filter(|pool| !pool.is_shut()) else {
            return;
        };
        pool.stop_idle();
    }
}
