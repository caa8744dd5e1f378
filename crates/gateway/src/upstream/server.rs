//! One configured server: its state, what it defines, and the way to it for every caller.
//!
//! The fleet holds a [`Server`] for each, which one task keeps true (`supervisor`). What was defined last stays known,
//! and a server that is down disturbs no other.

mod line;
mod supervisor;

use std::{
    future::{Future, pending},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use longhaul_core::{Millis, hex};
use longhaul_mcp::{
    client::{
        Kind,
        dial::Choice,
        result::{Bad, Came},
    },
    frame::{Obj, Raw},
    request::{Answers, LogLevel},
    rpc_error,
    url_rule::Reach,
};
use longhaul_store::Owner;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

pub(super) use self::line::Line;
use self::supervisor::Supervisor;
pub use self::supervisor::{REFRESH_MIN, SETTLE, STALE_AFTER};
use super::{
    definitions::{Ages, Asked, Cut, Definitions, Versions},
    dial::{Ours, Place},
    level::{self, Wish, Wishes},
    outcome::{Event, Failed, Outcome, Request, Unsent},
    pool::{Key, Lease, LinksDone, Live, Plan, Pool, Taker, Untaken},
    subscription::{Due, Subscription},
    times::Times,
};
use crate::{config::Isolation, identity, sealed_id::owner_digest};

/// How many things wait for the supervisor.
const TOLD_MAX: usize = 256;

/// A configured server.
pub struct Spec {
    /// Its name in the configuration.
    pub name: String,
    /// How it is reached.
    pub place: Place,
    /// Which generation it speaks, or that this is to be detected.
    pub choice: Choice,
    /// Who shares a process or session with whom. A stateless server behind a URL keeps nothing of its callers, so all
    /// share one connection to it.
    pub isolation: Isolation,
    /// The most processes or sessions at once; at least 1.
    pub processes_max: usize,
    /// How long things may take.
    pub times: Times,
    /// What is said to it, but for what it may ask: that is its caller's to say.
    pub ours: Ours,
    /// The most that it may ask of anybody.
    pub may_ask: Answers,
    /// It is told with each call what its caller can be asked, and not only what the caller's client declared
    /// (`ask_undeclared`).
    pub asks_undeclared: bool,
    /// What it defined when it was last seen.
    pub known: Option<Definitions>,
    /// It is not reached before somebody needs it, where it is known what it defines.
    pub sleeps: bool,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The session of the client, if it has one. Unique over all owners.
    pub session: Option<String>,
    /// The owner.
    pub principal: String,
    /// What its client declared that it can be asked.
    pub declared: Answers,
    /// A person is there besides the client: at the local page and in the terminal.
    pub is_local: bool,
}

impl Caller {
    /// One of this owner; of this session, if the client has one. A client may name its run as another owner's client
    /// does, so the owner is part of the session's name here.
    pub fn of(owner: &Owner, session: Option<String>, declared: Answers) -> Caller {
        let principal = hex(&owner_digest(owner));
        Caller {
            session: session.map(|session| format!("{principal}/{session}")),
            principal,
            declared,
            is_local: identity::is_local(owner),
        }
    }

    /// What it can really be asked, wherever the answer comes from (D-29).
    pub fn answers(&self) -> Answers {
        self.declared.or(self.elsewhere())
    }

    /// How far a link may lead it.
    pub(crate) fn reach(&self) -> Reach {
        match self.is_local {
            true => Reach::ThisMachine,
            false => Reach::Public,
        }
    }

    /// What is answered without its client.
    fn elsewhere(&self) -> Answers {
        match self.is_local {
            true => Answers::PERSONAL,
            false => Answers::default(),
        }
    }
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It was not reached yet.
    Starting,
    /// It answers, or did when it was last needed.
    Ready,
    /// It does not answer; it is tried again for ever.
    Degraded {
        /// Since when.
        since: Millis,
        /// Why, in words.
        why: String,
        /// The end of its standard error. For whoever runs it; never for a client.
        stderr: String,
    },
    /// It was closed.
    Closed,
}

/// How a server failed. For whoever runs it; never for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Millis,
    /// Why, in words.
    pub why: String,
    /// The end of its standard error.
    pub stderr: String,
}

/// A server. Cheap to clone; the last clone that is dropped ends its processes.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
    _held: Arc<Held>,
}

struct Held(Arc<Pool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.shut();
    }
}

struct Inner {
    pool: Arc<Pool>,
    isolation: Isolation,
    is_remote: bool,
    may_ask: Answers,
    asks_undeclared: bool,
    times: Times,
    calls: AtomicU64,
    definitions: watch::Sender<Option<Arc<Definitions>>>,
    said: watch::Sender<Versions>,
    ages: Mutex<Ages>,
    cut: Mutex<Vec<Cut>>,
    wishes: Arc<Wishes>,
    state: watch::Sender<State>,
    last_failure: Mutex<Option<Failure>>,
    orders: mpsc::Sender<Order>,
}

enum Order {
    Refresh,
    Restart,
}

impl Server {
    /// Begins to reach the server and returns at once. It must be called inside a runtime with IO and time.
    pub fn open(spec: Spec) -> Server {
        let (told, tells) = mpsc::channel(TOLD_MAX);
        let (orders, ordered) = mpsc::channel(1);
        let is_remote = spec.place.is_remote();
        let choice = match (&spec.known, spec.choice) {
            (Some(known), Choice::Find { .. }) => Choice::Find {
                first: known.spoken.era.kind(),
            },
            (None | Some(_), choice) => choice,
        };
        let plan = Plan {
            name: spec.name,
            place: spec.place,
            ours: spec.ours,
            choice,
            processes_max: spec.processes_max.max(1),
            is_shared: spec.isolation == Isolation::Shared,
            times: spec.times,
        };
        let pool = Pool::new(plan, told);
        let sleeps = spec.sleeps && spec.known.is_some();
        let inner = Arc::new(Inner {
            pool: Arc::clone(&pool),
            isolation: spec.isolation,
            is_remote,
            may_ask: spec.may_ask,
            asks_undeclared: spec.asks_undeclared,
            times: spec.times,
            calls: AtomicU64::new(0),
            definitions: watch::Sender::new(spec.known.map(Arc::new)),
            said: watch::Sender::new(Versions::default()),
            ages: Mutex::default(),
            cut: Mutex::default(),
            wishes: Arc::default(),
            state: watch::Sender::new(match sleeps {
                true => State::Ready,
                false => State::Starting,
            }),
            last_failure: Mutex::default(),
            orders,
        });
        tokio::spawn(Supervisor::of(&inner, tells, ordered).run(sleeps));
        Server {
            inner,
            _held: Arc::new(Held(pool)),
        }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        self.inner.pool.name()
    }

    /// What it defined when it was last seen; `None` when it never was.
    pub fn definitions(&self) -> Option<Arc<Definitions>> {
        self.inner.definitions.borrow().clone()
    }

    /// [`Server::definitions`], to be watched: it changes only when their digest does.
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Definitions>>> {
        self.inner.definitions.subscribe()
    }

    /// How often the server has said that a list of its changed, to be watched. It is told after the list was fetched.
    pub fn watch_said(&self) -> watch::Receiver<Versions> {
        self.inner.said.subscribe()
    }

    /// For how long the server says that its lists may be kept, as far as that is known.
    pub fn ages(&self) -> Ages {
        *self.inner.ages()
    }

    /// The lists that could not be fetched whole the last time. For whoever runs it; never for a client.
    pub fn cut(&self) -> Vec<Cut> {
        self.inner.cut().clone()
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.inner.state.borrow().clone()
    }

    /// [`Server::state`], to be watched.
    pub fn watch_state(&self) -> watch::Receiver<State> {
        self.inner.state.subscribe()
    }

    /// Its processes or sessions, the oldest first.
    pub fn live(&self) -> Vec<Live> {
        self.inner.pool.live()
    }

    /// How many callers wait for one because all are in use.
    pub fn waiting(&self) -> usize {
        self.inner.pool.waiting()
    }

    /// How it failed last in this run of Longhaul, whether or not it is well again.
    pub fn last_failure(&self) -> Option<Failure> {
        self.inner.last_failure().clone()
    }

    /// How many processes or sessions it has, those that begin and end included.
    pub fn count(&self) -> usize {
        self.inner.pool.count()
    }

    /// Waits until it has no more processes or sessions than this, those that begin and end included.
    pub async fn at_most(&self, count: usize) {
        self.inner.pool.at_most(count).await;
    }

    /// Whether this caller has a process or session of its own already, or shares one that is there.
    pub fn is_live(&self, caller: &Caller) -> bool {
        // Each call begins its own.
        self.inner.isolation != Isolation::Call && self.inner.pool.has(&self.inner.key(caller))
    }

    /// The session of this caller has ended: what it had to itself is ended as soon as nothing uses it.
    pub fn leave(&self, caller: &Caller) {
        if self.inner.isolation == Isolation::Session && caller.session.is_some() {
            self.inner.pool.leave(&self.inner.key(caller));
        }
    }

    /// What it may ask of somebody who can be asked this much; its own settings may say the roots.
    pub fn may_be_asked(&self, answers: Answers) -> Answers {
        self.inner.may_be_asked(answers)
    }

    /// What it is told with a call that this caller can be asked (D-29).
    pub fn told_of(&self, caller: &Caller) -> Answers {
        match self.inner.asks_undeclared {
            true => self.may_be_asked(caller.answers()),
            false => self.may_be_asked(caller.declared),
        }
    }

    /// What a client has declared, and what it would declare in vain.
    pub fn declared(&self, declared: Answers) -> Answers {
        declared.or(Answers::ALL.without(self.inner.may_ask))
    }

    /// The links that it says are done with, from now on.
    pub(crate) fn links_done(&self) -> LinksDone {
        self.inner.pool.links_done()
    }

    /// The roots, where its settings say them.
    pub fn roots(&self) -> Option<&Obj> {
        self.inner.pool.roots()
    }

    /// Whether what serves this caller outlives a call: a process of one call does not.
    pub fn lasts(&self, caller: &Caller) -> bool {
        !matches!(self.inner.key(caller), Key::Call(_))
    }

    /// Sends a request of this caller and waits for what comes of it. It is sent at most once.
    ///
    /// `stop` is the caller's order to give it up: the server is told by the means of its generation. Progress and
    /// log messages go to `events`; those that do not fit are dropped. When the future is dropped, the server is told
    /// too.
    pub async fn call(
        &self,
        caller: &Caller,
        request: Request<'_>,
        events: Option<mpsc::Sender<Event>>,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        self.begin(caller, request, events, stop).await.0
    }

    /// As [`Server::call`]. Where the server made a task of the call, what carried it stays in use, for whoever follows the
    /// task there.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        request: Request<'_>,
        events: Option<mpsc::Sender<Event>>,
        stop: impl Future<Output = ()>,
    ) -> (Outcome, Option<Line>) {
        tokio::pin!(stop);
        let mut is_again = false;
        loop {
            let tell = |processes| {
                if let Some(events) = &events {
                    // Whoever does not keep up misses it.
                    let _full = events.try_send(Event::Waits(processes));
                }
            };
            let mut has_waited = false;
            let mut busy = |processes| {
                has_waited = true;
                tell(Some(processes));
            };
            let taken = tokio::select! {
                biased;
                () = &mut stop => return (Outcome::Stopped { confirmed: true }, None),
                taken = self.inner.take(caller, &mut busy) => taken,
            };
            if has_waited {
                tell(None);
            }
            let (key, lease) = match taken {
                Ok(taken) => taken,
                Err(untaken) => return (Outcome::Unsent(untaken.unsent()), None),
            };
            if let (Some(events), Some(program)) = (&events, lease.connection.view()) {
                let _full = events.try_send(Event::Runs(program));
            }
            let begun = Instant::now();
            if let Some(wanted) = request.log_level {
                tokio::select! {
                    biased;
                    () = &mut stop => return (Outcome::Stopped { confirmed: true }, None),
                    () = level::tell(&lease.connection, wanted, Wish::OneOfSeveral) => {}
                }
            }
            let request = Request {
                timeout: request
                    .timeout
                    .map(|timeout| timeout.saturating_sub(begun.elapsed())),
                ..request
            };
            let credentials = lease.connection.credentials();
            let outcome = lease.connection.request(request, events.clone(), &mut stop).await;
            self.inner.heed(&request, &outcome);
            if let Outcome::Failed(Failed::Status(status @ (401 | 403))) = outcome {
                let renewed = tokio::select! {
                    biased;
                    () = &mut stop => return (Outcome::Stopped { confirmed: true }, None),
                    renewed = self.inner.pool.renew(&lease.connection, &credentials) => renewed,
                };
                // Whoever wants other credentials has done nothing.
                if status == 401 && renewed && !is_again {
                    is_again = true;
                    continue;
                }
            }
            let is_lost = lease.connection.lost().is_some();
            // It ended between two requests, and got nothing of this one.
            let is_unsent = matches!(outcome, Outcome::Unsent(Unsent::Unreachable(_))) && is_lost;
            let is_faulty =
                matches!(outcome, Outcome::Failed(_)) && longhaul_core::fault!("a-lost-call-is-sent-again");
            if !is_again && (is_unsent || is_faulty) {
                is_again = true;
                continue;
            }
            if matches!(outcome, Outcome::Stopped { confirmed: false }) && matches!(key, Key::Call(_)) {
                let confirmed = lease.connection.close().await.confirmed;
                return (Outcome::Stopped { confirmed }, None);
            }
            let is_task = matches!(outcome, Outcome::Came(Came::Task { .. }));
            return (outcome, is_task.then(|| Line::new(key, lease)));
        }
    }

    /// The client of this session wants log messages of this level from now on: the process that serves it is told, if
    /// there is one.
    pub fn level(&self, caller: &Caller, wanted: LogLevel) {
        if !self.is_live(caller) {
            return;
        }
        let key = self.inner.key(caller);
        let wish = match &key {
            Key::Session(_) => Wish::Own,
            Key::Spare | Key::Shared | Key::Principal(_) | Key::Call(_) | Key::Resumed(_) => {
                Wish::OneOfSeveral
            }
        };
        let taker = self.inner.taker(caller, key);
        self.inner.wishes.add(&self.inner.pool, taker, wanted, wish);
    }

    /// Log messages that belong to no call go to `hears`, where this caller's session has a process of its own: what one
    /// says that serves several is nobody's.
    pub fn hear(&self, caller: &Caller, hears: mpsc::Sender<Event>) {
        if self.inner.isolation == Isolation::Session
            && let key @ Key::Session(_) = self.inner.key(caller)
        {
            self.inner.pool.hear(key, hears);
        }
    }

    /// Subscribes this caller to a resource, or lets it share the subscription that its connection has. What changes
    /// is told to `due`, until the subscription is dropped; it is made again whenever the server was lost.
    ///
    /// # Errors
    /// What came of the request that failed.
    pub async fn subscribe(
        &self,
        caller: &Caller,
        uri: &str,
        due: &Arc<Due>,
    ) -> Result<Subscription, Arc<Outcome>> {
        let (inner, caller) = (Arc::clone(&self.inner), caller.clone());
        let whose = Arc::new(move || inner.taker(&caller, inner.key(&caller)));
        Subscription::begin(&self.inner.pool, whose, uri, due).await
    }

    /// Fetches the definitions again, soon.
    pub fn refresh(&self) {
        self.inner.refresh();
    }

    /// Somebody is about to need it: it is reached, and looked at, where nothing of it runs.
    pub fn wake(&self) {
        if self.count() == 0 {
            self.inner.refresh();
        }
    }

    /// Ends all its processes and sessions, calls in flight with them, and dials again.
    pub async fn restart(&self) {
        // A supervisor that is gone was closed.
        let _closed = self.inner.orders.send(Order::Restart).await;
    }

    /// Ends it. Returns when nothing of it is left, or when that cannot be confirmed.
    pub async fn close(&self) {
        self.inner.pool.shut();
        self.at_most(0).await;
    }
}

/// Whether a server refuses what every server of its generation takes.
fn is_of_another_kind(request: &Request<'_>, error: &Raw) -> bool {
    let error: Obj = error.read().unwrap_or_default();
    match error.get::<i64>("code") {
        Some(rpc_error::UNSUPPORTED_VERSION) => true,
        Some(rpc_error::METHOD_NOT_FOUND) => request.method == "tools/call",
        Some(_) | None => false,
    }
}

/// A server, in the name of one caller.
impl Asked for (&Server, &Caller) {
    fn ask(&self, request: Request<'_>) -> impl Future<Output = Outcome> + Send {
        self.0.call(self.1, request, None, pending())
    }
}

impl Inner {
    /// A connection for this caller. Where a server is of another generation than it was, it may be another's.
    async fn take(
        &self,
        caller: &Caller,
        busy: &mut (dyn FnMut(usize) + Send),
    ) -> Result<(Key, Lease), Untaken> {
        let mut taker = self.taker(caller, self.key(caller));
        let mut taken = self.pool.take_telling(&taker, busy).await;
        if matches!(taken, Err(Untaken::Unshared)) {
            taker = self.taker(caller, self.key(caller));
            taken = self.pool.take_telling(&taker, busy).await;
        }
        taken.map(|lease| (taker.key, lease))
    }

    /// Who takes the connection of this key. What is asked on one that serves several clients must be answered without
    /// any of them.
    fn taker(&self, caller: &Caller, key: Key) -> Taker {
        let is_of_several = self.isolation == Isolation::Principal || key == Key::Shared;
        let answers = match is_of_several {
            true => caller.elsewhere(),
            false => caller.answers(),
        };
        Taker {
            key,
            answers: self.may_be_asked(answers),
        }
    }

    /// What of this the server may ask; its own settings may say the roots.
    fn may_be_asked(&self, answers: Answers) -> Answers {
        let may_ask = self.may_ask;
        Answers {
            roots: may_ask.roots && (answers.roots || self.pool.roots().is_some()),
            ..answers.within(may_ask)
        }
    }

    fn key(&self, caller: &Caller) -> Key {
        let principal = || Key::Principal(caller.principal.clone());
        let known = || Some(self.definitions.borrow().as_ref()?.spoken.era.kind());
        if self.is_remote && self.pool.kind().or_else(known) == Some(Kind::Stateless) {
            return Key::Shared;
        }
        match self.isolation {
            Isolation::Session if longhaul_core::fault!("sessions-share-a-server") => Key::Shared,
            Isolation::Session => match &caller.session {
                Some(session) => Key::Session(session.clone()),
                None => principal(),
            },
            Isolation::Principal => principal(),
            Isolation::Shared => Key::Shared,
            Isolation::Call => Key::Call(self.calls.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Whose connection the supervisor opens when there is none: mostly, a local user's comes first, and takes it.
    fn own_taker(&self) -> Taker {
        let key = match self.isolation {
            Isolation::Shared => Key::Shared,
            Isolation::Session | Isolation::Principal | Isolation::Call => Key::Spare,
        };
        Taker {
            key,
            answers: self.may_be_asked(Answers::PERSONAL),
        }
    }

    fn refresh(&self) {
        // One that waits already does the same.
        let _waits = self.orders.try_send(Order::Refresh);
    }

    /// An outcome may say that the server is not as it was: it is looked at then.
    fn heed(&self, request: &Request<'_>, outcome: &Outcome) {
        match outcome {
            // It may be of another generation by now.
            Outcome::Errored(error) if is_of_another_kind(request, error) => self.refresh(),
            // B-26: it may define its tools otherwise by now.
            Outcome::Unusable(Bad::Hop { .. })
            | Outcome::Unsent(Unsent::Unreachable(_))
            | Outcome::Failed(Failed::Over(_) | Failed::Status(_)) => self.refresh(),
            Outcome::Came(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(Unsent::TooMany | Unsent::Deaf | Unsent::Unopened { .. })
            | Outcome::Failed(Failed::Lost(_) | Failed::Unreadable(_) | Failed::TooLong)
            | Outcome::TimedOut
            | Outcome::Stopped { .. } => {}
        }
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ages(&self) -> MutexGuard<'_, Ages> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) -> MutexGuard<'_, Vec<Cut>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
