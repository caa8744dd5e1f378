//! One process or session of a server: requests go out, replies go to whoever waits for them.
//!
//! Opened by `dial`, kept by the pool. One task reads what comes, in its order, and never waits for anybody. A
//! request is sent once. It ends with its reply, with its time, with its caller, or with the connection.

mod owed;
mod pace;
mod reader;
mod ticket;
mod waiting;

use std::{
    borrow::Cow,
    future::{Future, pending},
    sync::Arc,
    time::Duration,
};

use longhaul_engine::process::View;
use longhaul_mcp::{
    client::{
        self, Carrier, Era, Kind, Outgoing, Sent, Spoken,
        incoming::{Ask, Notice},
        result,
    },
    frame::Obj,
    request::{Answers, LogLevel, RequestId},
    scan,
};
use tokio::sync::{mpsc, oneshot, watch};

pub use self::pace::{BURST, FLOOD_TIME, PER_SECOND};
pub use self::ticket::Kept;
use self::{
    ticket::Ticket,
    waiting::{Hears, Told, Waiting},
};
use super::{
    dial::Ours,
    http::{Credentials, Remote},
    link::{Inlet, Lost, Outlet, Why},
    outcome::{Event, Outcome, Request, Unsent},
    question::{Question, Questions},
    times::over,
};
use crate::question::Stored;

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

/// Where a connection's notices go: changed lists and resources, and log messages of no call. It must not block.
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

/// A server that has answered, and how it speaks.
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
    /// What the server may ask; what it asks beside that is refused unseen.
    may_ask: Answers,
    outlet: Outlet,
    notices: Notices,
    waiting: Waiting,
    questions: Arc<Questions>,
    level: tokio::sync::Mutex<Option<LogLevel>>,
    closing: watch::Sender<Option<Why>>,
    lost: watch::Sender<Option<Arc<Lost>>>,
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
            may_ask: may_ask(&ours),
            ours,
            outlet: greeted.outlet,
            notices,
            waiting: Waiting::new(greeted.ids_from),
            questions: Questions::new(),
            level: tokio::sync::Mutex::default(),
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

    /// The log messages that the server was told to send.
    pub(super) fn level(&self) -> &tokio::sync::Mutex<Option<LogLevel>> {
        &self.inner.level
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
        let hears = Hears {
            // B-37. What is said on the stream of `tasks/result` belongs to the task.
            may_ask: matches!(
                request.method,
                "tools/call" | "prompts/get" | "resources/read" | "tasks/result"
            ),
            events,
            ..Hears::default()
        };
        self.exchange(request, hears, stop).await
    }

    /// Goes on with a call that was sent before, perhaps by another process of ours, behind the event of this id on its
    /// stream. Nothing is sent again.
    pub(super) async fn go_on(
        &self,
        request: u64,
        after: &str,
        events: mpsc::Sender<Event>,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        let hears = Hears {
            may_ask: true,
            events: Some(events),
            ..Hears::default()
        };
        let ticket = match Ticket::again(&self.inner, request, hears) {
            Ok(ticket) => ticket,
            Err(unsent) => return Outcome::Unsent(unsent),
        };
        self.inner.outlet.go_on(request, after.to_owned());
        self.inner.wait(ticket, false, pending(), stop).await
    }

    /// As [`Connection::request`], for a subscription: what is honoured of it is told as soon as it stands.
    pub(super) async fn subscribe(
        &self,
        request: Request<'_>,
        acknowledged: oneshot::Sender<Obj>,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        let hears = Hears {
            acknowledged: Some(acknowledged),
            ..Hears::default()
        };
        self.exchange(request, hears, stop).await
    }

    async fn exchange(&self, request: Request<'_>, hears: Hears, stop: impl Future<Output = ()>) -> Outcome {
        let inner = &self.inner;
        let wants_progress = hears.events.is_some() && !request.is_quiet;
        let (mut ticket, sent) = match Ticket::of(inner, hears) {
            Ok(ticket) => {
                let id = RequestId::Integer(ticket.id.into());
                let outgoing = Outgoing {
                    method: request.method,
                    params: request.params,
                    progress_token: wants_progress.then_some(&id),
                    // Who hears of a request hears what matters.
                    log_level: request.log_level.or(wants_progress.then_some(LogLevel::Warning)),
                    mirrors: request.mirrors,
                    //
                    task_ttl_ms: request.task_ttl_ms.filter(|_| inner.spoken.offers().tasks),
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
        let over = over(request.timeout, request.asked);
        tokio::pin!(stop, over);
        tokio::select! {
            biased;
            told = inner.outlet.request(ticket.id, sent, false) => if told.is_err() {
                return Outcome::Unsent(inner.waiting.gone());
            },
            () = &mut stop => return Outcome::Stopped { confirmed: true },
            () = &mut over => return Outcome::Unsent(Unsent::Deaf),
        }
        ticket.is_sent = true;
        let is_for_task = request.task_ttl_ms.is_some() && inner.spoken.offers().tasks;
        inner.wait(ticket, is_for_task, over, stop).await
    }

    /// What the server says of this task of its own goes to `events`, until the other end is dropped. `call` is the id of
    /// the call that it was made of, where that is known.
    pub(super) fn follow(&self, task: &str, call: Option<u64>, events: mpsc::Sender<Event>) {
        self.inner.waiting.follow(task, call, events);
    }

    /// The id of the call that the server made this task of, if that was on this connection.
    pub(super) fn call_of(&self, task: &str) -> Option<u64> {
        self.inner.waiting.call_of(task)
    }

    /// A question of a task of the server, which it asked on another connection of this session and waits for; `None` of
    /// one that is no request of its own.
    pub(super) fn asked_before(&self, stored: &Stored, task: &str) -> Option<Question> {
        let Era::Session(version) = self.inner.spoken.era else {
            return None;
        };
        let asked = stored.request.read::<Obj>().ok()?;
        let ask = Ask {
            id: stored.server_id.clone()?,
            kind: stored.kind.of_request(),
            method: asked.get("method")?,
            params: asked.obj("params"),
        };
        let question = self.inner.questions.take(ask, version, &self.inner.outlet)?;
        Some(question.of_task(task))
    }

    /// The id of a session behind a URL.
    pub(super) fn session_id(&self) -> Option<String> {
        self.inner.outlet.session_id()
    }

    /// A session behind a URL is not to be ended with the connection, until [`Connection::let_go`]: something in it is
    /// gone on with later.
    pub(super) fn keep(&self) {
        self.inner.outlet.keep();
    }

    /// One reason less not to end the session.
    pub(super) fn let_go(&self) {
        self.inner.outlet.let_go();
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

    /// What it shows to a URL with each request.
    pub(super) fn credentials(&self) -> Credentials {
        self.inner.outlet.credentials()
    }

    /// From here on it shows what stands in `remote`.
    pub(super) fn renew(&self, remote: &Remote) {
        self.inner.outlet.renew(remote);
    }

    /// The end of the server's standard error so far.
    pub fn stderr(&self) -> String {
        self.inner.outlet.stderr()
    }

    /// What can be seen of a program.
    pub(super) fn view(&self) -> Option<View> {
        self.inner.outlet.view()
    }

    /// The process id of a program.
    pub fn pid(&self) -> Option<i32> {
        self.inner.outlet.pid()
    }

    /// How many requests wait for their replies.
    pub fn pending(&self) -> usize {
        self.inner.waiting.count()
    }
}

/// What the server may ask: what it was told. Many ask for a model or folders whatever they were told; where all calls
/// are of one owner, the client of the call itself says whether it has them.
fn may_ask(ours: &Ours) -> Answers {
    let told = client::answers(&ours.hello.capabilities);
    Answers {
        sampling: told.sampling || ours.one_owner,
        roots: told.roots || ours.one_owner,
        ..told
    }
}

impl Inner {
    /// Waits for what comes of a request that was sent, until its time is `over`.
    async fn wait(
        &self,
        mut ticket: Ticket,
        is_for_task: bool,
        over: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        tokio::pin!(over, stop);
        tokio::select! {
            biased;
            told = ticket.told() => self.outcome(told),
            () = &mut stop => ticket.stop("the caller gave it up", is_for_task).await,
            () = &mut over => {
                ticket.cancel("it took too long").await;
                Outcome::TimedOut
            }
        }
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
            outlet.listen().await;
        }
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
        let lost = lost
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|lost| lost.clone());
        // Never without one: this holds the sender.
        lost.expect("it is waited for until there is one")
    }
}
