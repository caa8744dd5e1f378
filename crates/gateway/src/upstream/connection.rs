//! One process or session of a server: requests go out, replies go to whoever waits for them.
//!
//! Opened by `dial`, kept by the pool. One task reads what comes, in its order, and never waits for anybody. A
//! request is sent once. It ends with its reply, with its time, with its caller, or with the connection.

use std::{
    borrow::Cow,
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use longhaul_mcp::{
    client::{
        self, Carrier, Era, Incoming, Kind, Outgoing, Sent, Spoken,
        incoming::{Ask, AskKind, Notice},
        result,
    },
    frame::{Obj, Raw},
    request::RequestId,
    scan,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    dial::{Ours, number},
    link::{Heard, Inlet, Lost, Noise, Outlet, Over, Via, Why, reply_to},
    outcome::{Event, Failed, Outcome, Request, Unsent},
    question::Questions,
};

/// The most requests that wait for their replies on one connection.
pub const PENDING_MAX: usize = 1_000;
/// How long a cancelled request is still waited for: its reply says that its work is over.
pub const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// What is read of a frame: its length is bounded before.
pub const LIMITS: scan::Limits = scan::Limits {
    depth_max: 64,
    values_max: 1_000_000,
    number_chars_max: 1_000,
};

/// Where a connection's notices go: changed lists and resources. It must not block.
pub type Notices = Arc<dyn Fn(Notice) + Send + Sync>;

/// A connection. Cheap to clone; the last clone that is dropped ends it.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
    _held: Arc<Held>,
}

struct Held(watch::Sender<Option<Why>>);

impl Drop for Held {
    fn drop(&mut self) {
        let _unread = self.0.send(Some(Why::Closed));
    }
}

/// A server that was found out.
pub(super) struct Greeted {
    pub(super) spoken: Spoken,
    pub(super) outlet: Outlet,
    pub(super) inlet: Inlet,
    /// The first id that is free.
    pub(super) ids_from: u64,
}

struct Inner {
    spoken: Spoken,
    ours: Ours,
    outlet: Outlet,
    notices: Notices,
    next_id: AtomicU64,
    waiting: Mutex<Waiting>,
    questions: Arc<Questions>,
    closing: watch::Sender<Option<Why>>,
    lost: watch::Sender<Option<Arc<Lost>>>,
}

#[derive(Default)]
struct Waiting {
    by_id: HashMap<u64, Waiter>,
    lost: Option<Arc<Lost>>,
}

struct Waiter {
    told: oneshot::Sender<Told>,
    events: Option<mpsc::Sender<Event>>,
}

/// What became of a request.
enum Told {
    Reply(Result<Raw, Raw>),
    Failed(Failed),
    Unsent(Unsent),
}

impl Connection {
    pub(super) async fn begin(
        greeted: Greeted,
        then: Option<Sent>,
        ours: Ours,
        notices: Notices,
    ) -> Connection {
        let (closing, closed) = watch::channel(None);
        let (lost, _) = watch::channel(None);
        let inner = Arc::new(Inner {
            spoken: greeted.spoken,
            ours,
            outlet: greeted.outlet,
            notices,
            next_id: AtomicU64::new(greeted.ids_from),
            waiting: Mutex::default(),
            questions: Questions::new(),
            closing: closing.clone(),
            lost,
        });
        inner.greet(then).await;
        tokio::spawn(Arc::clone(&inner).read(greeted.inlet, closed));
        Connection {
            inner,
            _held: Arc::new(Held(closing)),
        }
    }

    /// How the server speaks and what it offers.
    pub fn spoken(&self) -> &Spoken {
        &self.inner.spoken
    }

    /// Sends a request and waits for what comes of it. `stop` is the caller's order to give it up. Progress and log
    /// messages go to `events`; those that do not fit are dropped.
    ///
    /// When the future is dropped, the server is told that nobody waits.
    pub async fn request(
        &self,
        request: Request<'_>,
        events: Option<mpsc::Sender<Event>>,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        let inner = &self.inner;
        let wants_progress = events.is_some();
        let (mut ticket, sent) = match inner.enter(events) {
            Ok(ticket) => {
                let id = RequestId::Integer(ticket.id.into());
                let outgoing = Outgoing {
                    method: request.method,
                    params: request.params,
                    progress_token: wants_progress.then_some(&id),
                    log_level: request.log_level,
                    mirrors: request.mirrors,
                };
                let mut hello = Cow::Borrowed(&inner.ours.hello);
                if let Some(capabilities) = request.capabilities {
                    hello.to_mut().capabilities = capabilities.clone();
                }
                let sent = outgoing.write(&id, &hello, inner.spoken.era, inner.outlet.carrier());
                (ticket, sent)
            }
            Err(unsent) => return Outcome::Unsent(unsent),
        };
        let until = request.timeout.map(|timeout| Instant::now() + timeout);
        tokio::pin!(stop);
        tokio::select! {
            biased;
            told = inner.outlet.request(ticket.id, sent, false) => if told.is_err() {
                return Outcome::Unsent(inner.gone());
            },
            () = &mut stop => return Outcome::Stopped { confirmed: true },
            () = at(until) => return Outcome::Unsent(Unsent::Deaf),
        }
        ticket.is_sent = true;
        tokio::select! {
            biased;
            told = ticket.told() => inner.outcome(told),
            () = &mut stop => ticket.stop("the caller gave it up").await,
            () = at(until) => {
                ticket.cancel("it took too long").await;
                Outcome::TimedOut
            }
        }
    }

    /// How it ended, if it has.
    pub fn lost(&self) -> Option<Arc<Lost>> {
        self.inner.lost.borrow().clone()
    }

    /// Waits for the end.
    pub async fn ended(&self) -> Arc<Lost> {
        self.inner.ended().await
    }

    /// Ends it; requests that wait are told. Returns when nothing of the server is left, or when that cannot be
    /// confirmed.
    pub async fn close(&self) -> Arc<Lost> {
        self.inner.close(Why::Closed);
        self.inner.ended().await
    }

    /// Begins to end it, without waiting for that.
    pub fn shut(&self) {
        self.inner.close(Why::Closed);
    }

    /// The end of the server's standard error so far.
    pub fn stderr(&self) -> String {
        self.inner.outlet.stderr()
    }

    /// The process id of a program.
    pub fn pid(&self) -> Option<i32> {
        self.inner.outlet.pid()
    }

    /// How many requests wait for their replies.
    pub fn pending(&self) -> usize {
        self.inner.waiting().by_id.len()
    }
}

/// A request that waits. Dropping it gives the request up.
struct Ticket {
    inner: Arc<Inner>,
    id: u64,
    told: oneshot::Receiver<Told>,
    /// It was sent, and the server was not told that nobody waits.
    is_sent: bool,
}

impl Ticket {
    async fn told(&mut self) -> Told {
        match (&mut self.told).await {
            Ok(told) => told,
            // Never: a waiter is told before it is dropped, and only its ticket removes it otherwise.
            Err(_dropped) => std::future::pending().await,
        }
    }

    /// Tells the server, and waits a little for the reply that says that the work is over.
    async fn stop(mut self, reason: &'static str) -> Outcome {
        if !self.inner.can_tell() {
            return Outcome::Stopped { confirmed: false };
        }
        let id = self.id;
        let inner = Arc::clone(&self.inner);
        self.is_sent = false;
        let over = async {
            inner.tell_cancelled(id, reason).await;
            self.told().await
        };
        let confirmed = match timeout(CANCEL_WAIT, over).await {
            Ok(Told::Reply(_) | Told::Unsent(_)) => true,
            Ok(Told::Failed(Failed::Lost(lost))) => lost.confirmed,
            Ok(Told::Failed(
                Failed::Over(_) | Failed::Status(_) | Failed::Unreadable(_) | Failed::TooLong,
            ))
            | Err(_) => false,
        };
        Outcome::Stopped { confirmed }
    }

    async fn cancel(mut self, reason: &'static str) {
        if self.inner.can_tell() {
            self.is_sent = false;
            self.inner.tell_cancelled(self.id, reason).await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let waited = self.inner.waiting().by_id.remove(&self.id).is_some();
        if !waited {
            return;
        }
        let (inner, id) = (Arc::clone(&self.inner), self.id);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.is_sent && inner.can_tell() => {
                runtime.spawn(async move {
                    inner.tell_cancelled(id, "nobody waits for it").await;
                    inner.outlet.abandon(id);
                });
            }
            Ok(_) | Err(_) => inner.outlet.abandon(id),
        }
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A-7, and the session's own stream.
    async fn greet(&self, then: Option<Sent>) {
        if let Outlet::Http(outlet) = &self.outlet
            && let Some(then) = &then
        {
            outlet.in_session(then.headers.clone());
        }
        if let Some(then) = then {
            // A server that did not take it shows that with the next request.
            let _untaken = self.outlet.tell(then).await;
        }
        if let (Outlet::Http(outlet), Kind::Sessions) = (&self.outlet, self.spoken.era.kind()) {
            outlet.listen();
        }
    }

    fn enter(self: &Arc<Self>, events: Option<mpsc::Sender<Event>>) -> Result<Ticket, Unsent> {
        let mut waiting = self.waiting();
        if waiting.lost.is_some() {
            drop(waiting);
            return Err(self.gone());
        }
        if waiting.by_id.len() >= PENDING_MAX {
            return Err(Unsent::TooMany);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (told, waits) = oneshot::channel();
        waiting.by_id.insert(id, Waiter { told, events });
        drop(waiting);
        Ok(Ticket {
            inner: Arc::clone(self),
            id,
            told: waits,
            is_sent: false,
        })
    }

    fn gone(&self) -> Unsent {
        let lost = self.waiting().lost.clone();
        Unsent::Unreachable(lost.map_or_else(|| "it has ended".to_owned(), |lost| lost.to_string()))
    }

    fn outcome(&self, told: Told) -> Outcome {
        match told {
            Told::Reply(Ok(raw)) => {
                result::read(raw, self.spoken.era).map_or_else(Outcome::Unusable, Outcome::Came)
            }
            Told::Reply(Err(raw)) => match result::error(&raw) {
                Ok(_) => Outcome::Errored(raw),
                Err(bad) => Outcome::Unusable(bad),
            },
            Told::Failed(failed) => Outcome::Failed(failed),
            Told::Unsent(unsent) => Outcome::Unsent(unsent),
        }
    }

    /// A stateless request over HTTP is cancelled by closing its stream, and by nothing else (B-29, A-32).
    fn can_tell(&self) -> bool {
        self.outlet.carrier() == Carrier::Pipe || self.spoken.era.kind() == Kind::Sessions
    }

    async fn tell_cancelled(&self, id: u64, reason: &str) {
        let id = RequestId::Integer(id.into());
        // Whoever is gone works on nothing.
        let _gone = self
            .outlet
            .tell(client::cancelled(&id, reason, self.spoken.era))
            .await;
    }

    fn close(&self, why: Why) {
        self.closing.send_if_modified(|closing| {
            let is_first = closing.is_none();
            closing.get_or_insert(why);
            is_first
        });
    }

    async fn ended(&self) -> Arc<Lost> {
        let mut lost = self.lost.subscribe();
        loop {
            if let Some(lost) = lost.borrow_and_update().clone() {
                return lost;
            }
            if lost.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The one reader.
    async fn read(self: Arc<Self>, mut inlet: Inlet, mut closing: watch::Receiver<Option<Why>>) {
        let mut noise = Noise::new();
        let lost = loop {
            let heard = tokio::select! {
                biased;
                why = closed(&mut closing) => break inlet.close(why).await,
                heard = inlet.next() => heard,
            };
            match self.hear(heard) {
                Use::Some => noise.reset(),
                Use::None { bytes } => {
                    if noise.add(bytes) {
                        self.close(Why::Noise);
                    }
                }
                Use::Last(lost) => {
                    // A session that was forgotten has streams to close.
                    drop(inlet);
                    break lost;
                }
            }
        };
        self.end(Arc::new(lost));
    }

    fn end(&self, lost: Arc<Lost>) {
        let waiters = {
            let mut waiting = self.waiting();
            waiting.lost = Some(Arc::clone(&lost));
            std::mem::take(&mut waiting.by_id)
        };
        for waiter in waiters.into_values() {
            let _left = waiter.told.send(Told::Failed(Failed::Lost(Arc::clone(&lost))));
        }
        self.questions.withdraw_all();
        self.lost.send_replace(Some(lost));
    }

    fn hear(self: &Arc<Self>, heard: Heard) -> Use {
        match heard {
            Heard::Frame { bytes, via } => self.frame(&bytes, via),
            Heard::TooLong { reply_to } => {
                let failed = reply_to.is_some_and(|id| self.settle(id, Told::Failed(Failed::TooLong)));
                if !failed && !self.waiting().by_id.is_empty() {
                    // Somebody waits for it, and who cannot be told.
                    self.close(Why::TooLong);
                }
                Use::None { bytes: 0 }
            }
            Heard::Refused {
                request,
                status,
                body,
            } => {
                let told = match client::read(&body, &LIMITS) {
                    Ok(
                        Incoming::Reply {
                            outcome: Err(error), ..
                        }
                        | Incoming::Unread(error),
                    ) => Told::Reply(Err(error)),
                    Ok(
                        Incoming::Reply { outcome: Ok(_), .. } | Incoming::Notice { .. } | Incoming::Ask(_),
                    )
                    | Err(_) => Told::Failed(Failed::Status(status)),
                };
                self.used(self.settle(request, told), 0)
            }
            Heard::Over { request, over } => {
                let told = match over {
                    Over::Unsent(why) => Told::Unsent(Unsent::Unreachable(why)),
                    Over::TooLong => Told::Failed(Failed::TooLong),
                    Over::Broken(_) | Over::Cut | Over::NoReply | Over::NotJson | Over::SessionEnded => {
                        Told::Failed(Failed::Over(over))
                    }
                };
                self.used(self.settle(request, told), 0)
            }
            Heard::Lost(lost) => Use::Last(lost),
        }
    }

    fn used(&self, used: bool, bytes: usize) -> Use {
        if used { Use::Some } else { Use::None { bytes } }
    }

    /// Whether somebody waited for it.
    fn settle(&self, id: u64, told: Told) -> bool {
        let waiter = self.waiting().by_id.remove(&id);
        waiter.is_some_and(|waiter| waiter.told.send(told).is_ok())
    }

    fn frame(self: &Arc<Self>, bytes: &[u8], via: Via) -> Use {
        let used = match client::read(bytes, &LIMITS) {
            Ok(Incoming::Reply { id, outcome }) => {
                let id = number(&id);
                self.may_answer(id, via) && self.settle(id, Told::Reply(outcome))
            }
            Ok(Incoming::Unread(error)) => {
                let id = self.only(via);
                id.is_some_and(|id| self.settle(id, Told::Reply(Err(error))))
            }
            Ok(Incoming::Notice { notice, .. }) => self.notice(notice, via),
            Ok(Incoming::Ask(ask)) => self.asked(ask, via),
            Err(malformed) => {
                let id = match via {
                    Via::Request(id) => Some(id),
                    Via::Shared => reply_to(bytes),
                };
                let failed = Failed::Unreadable(malformed.rule.to_string());
                id.is_some_and(|id| self.settle(id, Told::Failed(failed)))
            }
        };
        self.used(used, bytes.len())
    }

    /// Over HTTP a reply comes on its request's own stream and on no other.
    fn may_answer(&self, id: u64, via: Via) -> bool {
        match via {
            Via::Request(request) => request == id || longhaul_core::fault!("any-stream-replies"),
            Via::Shared => self.outlet.carrier() == Carrier::Pipe,
        }
    }

    /// The request that something without an id belongs to, if it can be no other.
    fn only(&self, via: Via) -> Option<u64> {
        match via {
            Via::Request(request) => Some(request),
            Via::Shared => {
                let waiting = self.waiting();
                let mut ids = waiting.by_id.keys();
                ids.next().copied().filter(|_| ids.next().is_none())
            }
        }
    }

    fn notice(&self, notice: Notice, via: Via) -> bool {
        match notice {
            Notice::Progress { token, progress } => {
                let id = number(&token);
                let belongs = matches!(via, Via::Shared) || via == Via::Request(id);
                belongs && self.event(Some(id), Event::Progress(progress))
            }
            Notice::Log { level, logger, data } => {
                let id = match via {
                    Via::Request(id) => Some(id),
                    Via::Shared => self.only_call(),
                };
                self.event(id, Event::Log { level, logger, data });
                true
            }
            Notice::ToolsChanged
            | Notice::PromptsChanged
            | Notice::ResourcesChanged
            | Notice::ResourceUpdated { .. }
            | Notice::LinkDone { .. }
            | Notice::Task { .. } => {
                (self.notices)(notice);
                true
            }
            Notice::Cancelled { request, .. } => {
                self.questions.withdraw(&request);
                true
            }
            Notice::Acknowledged { .. } => true,
            Notice::Other { .. } => false,
        }
    }

    /// The one request that listens to events, if there is just one.
    fn only_call(&self) -> Option<u64> {
        let waiting = self.waiting();
        let mut calls = waiting.by_id.iter().filter(|(_, waiter)| waiter.events.is_some());
        calls.next().map(|(id, _)| *id).filter(|_| calls.next().is_none())
    }

    fn event(&self, id: Option<u64>, event: Event) -> bool {
        let waiting = self.waiting();
        let waiter = id.and_then(|id| waiting.by_id.get(&id));
        let Some(events) = waiter.and_then(|waiter| waiter.events.as_ref()) else {
            return false;
        };
        // Progress is told again; whoever does not keep up misses some of it.
        let _full = events.try_send(event);
        true
    }

    /// B-33: a stateless server asks nothing.
    fn asked(&self, ask: Ask, via: Via) -> bool {
        let Era::Session(version) = self.spoken.era else {
            return false;
        };
        let Some(question) = self.questions.take(ask, version, &self.outlet) else {
            return false;
        };
        match (question.kind, &self.ours.roots) {
            (AskKind::Ping, _) => question.answer(&Obj::default()),
            (AskKind::Roots, Some(roots)) => question.answer(roots),
            (AskKind::Other, _) => drop(question),
            (AskKind::Roots, None) | (AskKind::Sampling | AskKind::Elicitation, _) => {
                // One that no call takes is dropped, and so refused.
                self.event(self.asking_call(via), Event::Ask(question));
            }
        }
        true
    }

    /// The call whose question it is: the one whose stream carried it, or the only one that is open. Where all calls
    /// are of one owner, it is the last of several.
    fn asking_call(&self, via: Via) -> Option<u64> {
        match via {
            Via::Request(id) => Some(id),
            Via::Shared if self.ours.one_owner => {
                let waiting = self.waiting();
                let calls = waiting.by_id.iter().filter(|(_, waiter)| waiter.events.is_some());
                calls.map(|(id, _)| *id).max()
            }
            Via::Shared => self.only_call(),
        }
    }
}

/// Whether what was heard was of use.
enum Use {
    Some,
    None { bytes: usize },
    Last(Lost),
}

async fn closed(closing: &mut watch::Receiver<Option<Why>>) -> Why {
    match closing.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or(Why::Closed),
        Err(_dropped) => Why::Closed,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
