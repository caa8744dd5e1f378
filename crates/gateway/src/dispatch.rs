//! One request from start to end. This module alone holds the engine.
//!
//! Called by the transports with a [`Caller`] and a request of no generation, and by the local API. Every path
//! opens the sealed id, reads what the checks need, passes the gate, and acts through `Engine::transact`, where
//! the gate is asked once more on the locked snapshot. A reply is made after the commit.

mod answers;
mod backend;
mod birth;
mod call;
mod defined;
mod discovery;
mod gated;
mod held;
mod hold;
mod join;
mod leave;
mod listed;
mod logins;
mod notices;
mod patience;
mod polls;
mod relay;
mod relaying;
mod returning;
mod rounds;
mod servers;
mod sessions;
mod shown;
mod steps;
mod subscriptions;
mod suspended;
mod tasks;
mod told;
mod wait;
mod waiting;
mod wrapping;

use std::sync::Arc;

use longhaul_core::{Millis, Span, TaskId};
use longhaul_engine::{Engine, transact::Proposal};
use longhaul_mcp::{
    Incoming, Reply, Request, RpcError,
    request::Takes,
    rpc_error::{Refusal, RefusalCode, Who},
};
use longhaul_store::{Error as StoreError, Fault, Owner, Query, Row, Scope, Snapshot};

pub use defined::known;
use gated::{Allowed, Gated};
pub use held::{Held, Step};
pub use hold::Limits as HoldLimits;
pub use leave::Left;
pub use logins::logins;
pub use relaying::Relaying;
pub use sessions::Limits as SessionLimits;
pub(crate) use steps::Steps;
pub use waiting::Waiting;
pub(crate) use waiting::{As, Line};
pub use wrapping::{Kept, wrapped};

use crate::{
    catalog::Catalog,
    gate::{self, Action, View},
    identity::Caller,
    listen::{self, Listener},
    quota::{Place, Quota},
    replies::Room,
    request_state::Sealer,
    sealed_id::{Keys, Opened, owner_digest},
    session::{Session, feed::Seen, seal, shared::Shared},
    updates,
    upstream::{fleet::Fleet, login::Logins},
    view,
};

/// Everything that requests need; cheap to clone.
#[derive(Clone)]
pub struct Dispatch {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Gated,
    catalog: Arc<Catalog>,
    fleet: Fleet,
    keys: Keys,
    states: Sealer,
    sessions: sessions::Sessions,
    session_ids: seal::Sealer,
    settings: Settings,
    started_at: Millis,
    held: Quota,
    streams: Quota,
    subscriptions: Quota,
    rounds: rounds::Rounds,
    suspended: Arc<suspended::Suspended>,
    patience: patience::Patience,
    known: hold::Known,
    /// The callers that wait for each task.
    waiting: join::Tally,
    returning: returning::Calls,
    replies: Room,
    polls: polls::Polls,
    /// The questions that somebody was shown.
    shown: told::Shown,
    /// The results on their way to a caller that came back for them: nobody else is given one of these.
    handing: join::Tally,
    wrapping: wrapping::Wrapping,
}

/// The limits that dispatch keeps.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tasks are offered (`tasks.enabled`). When not, those that exist are still read and cancelled.
    pub tasks_enabled: bool,
    /// The most open tasks of one owner (`tasks.open_max`).
    pub open_max: u64,
    /// The most calls of one owner that wait for their reply (`tasks.held_max`).
    pub held_max: usize,
    /// The most calls of all owners that wait for their reply (`tasks.held_total_max`).
    pub held_total_max: usize,
    /// The most bytes that the waiting calls of one owner keep of what came with them; of all owners, four times as
    /// many (`tasks.held_bytes_max`).
    pub held_bytes_max: usize,
    /// The most bytes of large replies that wait for their readers (`server.replies_max`).
    pub replies_max: usize,
    /// How long callers without a task are held.
    pub hold: HoldLimits,
    /// For how long the result of a call whose caller left is given to an equal call (`tasks.kept_for_join`).
    pub kept_for_join: Span,
    /// `longhaul_wait` is offered (`tasks.wait_tool`).
    pub wait_tool: bool,
    /// The most calls of one owner that asked before they were a task, and the most requests that are no calls and wait
    /// for their client to come back with answers (`tasks.questions_before_max`).
    pub rounds_max: usize,
    /// The files of the configuration, for people.
    pub config_files: Vec<String>,
    /// The program that tells the user of questions that no client shows, or why there is none; for people.
    pub notices: Result<String, String>,
    /// Where MCP clients reach this server, for people; `None` when it serves none.
    pub mcp_url: Option<String>,
    /// For how long the tool list may be cached by a client, in milliseconds.
    pub list_cache_ms: u64,
    /// What one owner's streams are limited to.
    pub listen: listen::Limits,
    /// What may be subscribed to of servers behind.
    pub subscriptions: updates::Limits,
    /// What poll intervals are hinted.
    pub poll: view::Poll,
    /// How often in a row a task may be looked at (`tasks.poll_burst`).
    pub poll_burst: u32,
    /// The most sessions that are remembered, and for how long without a request (`server.sessions_max`,
    /// `server.session_idle`).
    pub sessions: sessions::Limits,
    /// How long a call that asks before it is a task waits for its next round.
    pub round_max: Span,
    /// How long a finished call that never was handed out as a task is kept.
    pub answered_kept: Span,
    /// The longest time to live that a caller may wish for (`tasks.ttl_max`).
    pub ttl_max: Span,
    /// How long a task is kept after its time to live, so that its owner can read how it ended.
    pub expired_kept: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tasks_enabled: true,
            open_max: 200,
            held_max: 200,
            held_total_max: 2_000,
            held_bytes_max: 16 * 1024 * 1024,
            replies_max: 64 * 1024 * 1024,
            hold: HoldLimits::default(),
            kept_for_join: Span::seconds(60 * 60),
            wait_tool: true,
            rounds_max: 5,
            config_files: Vec::new(),
            notices: Err("none".to_owned()),
            mcp_url: None,
            list_cache_ms: 60_000,
            listen: listen::Limits::default(),
            subscriptions: updates::Limits::default(),
            poll: view::Poll::default(),
            poll_burst: 200,
            sessions: sessions::Limits::default(),
            round_max: Span::seconds(60 * 60),
            answered_kept: Span::seconds(5 * 60),
            ttl_max: Span::seconds(30 * 24 * 60 * 60),
            expired_kept: Span::seconds(60 * 60),
        }
    }
}

/// What a request leads to.
pub enum Handled {
    /// One reply, now.
    Reply(Box<Reply>),
    /// A call that was taken: its row is durable, its reply is to be waited for.
    Call(Box<Held>),
    /// A wait for the end of a task.
    Wait(Box<Waiting>),
    /// A request that is passed on, whose client hears of it meanwhile.
    Relay(Box<Relaying>),
    /// A stream.
    Listen(Box<Listener>),
}

/// A request's place in its session.
#[derive(Clone)]
pub struct Conversation {
    /// The session.
    pub session: Arc<Session>,
    /// The request has a stream of its own, on which its client can be told and asked things.
    pub has_stream: bool,
}

impl Conversation {
    fn line(&self) -> Option<Line<'_>> {
        self.has_stream.then(|| Line {
            session: &self.session,
            send: send(),
            seen: Seen::default(),
        })
    }
}

impl Dispatch {
    /// A dispatch over a started engine.
    pub fn new(engine: Engine, catalog: Arc<Catalog>, keys: Keys, settings: Settings) -> Dispatch {
        let fleet = Fleet::empty(logins(&engine));
        Dispatch::before(engine, catalog, fleet, keys, settings)
    }

    /// A dispatch over a started engine, with servers behind it.
    pub fn before(
        engine: Engine,
        catalog: Arc<Catalog>,
        fleet: Fleet,
        keys: Keys,
        settings: Settings,
    ) -> Dispatch {
        let states = Sealer::new(&keys);
        let session_ids = seal::Sealer::new(&keys);
        let started_at = engine.now();
        let replies = Room::new(settings.replies_max);
        let wrapping = wrapping::Wrapping::new(&keys);
        let inner = Inner {
            engine: Gated::new(engine),
            catalog,
            fleet,
            keys,
            states,
            sessions: sessions::Sessions::new(settings.sessions),
            session_ids,
            settings,
            started_at,
            held: Quota::default(),
            streams: Quota::default(),
            subscriptions: Quota::default(),
            rounds: rounds::Rounds::default(),
            suspended: Arc::default(),
            patience: patience::Patience::default(),
            known: hold::Known::default(),
            waiting: join::Tally::default(),
            returning: returning::Calls::default(),
            handing: join::Tally::default(),
            wrapping,
            replies,
            polls: polls::Polls::new(),
            shown: told::Shown::default(),
        };
        Dispatch {
            inner: Arc::new(inner),
        }
    }

    /// Who is logged in at the servers behind this one.
    pub(crate) fn logins(&self) -> &Logins {
        self.inner.fleet.logins()
    }

    /// Serves one request; of a session, when it belongs to one.
    pub async fn handle(
        &self,
        caller: &Caller,
        session: Option<&Conversation>,
        mut incoming: Incoming,
    ) -> Handled {
        if !self.inner.settings.tasks_enabled {
            incoming.client.takes = Takes::Never;
        }
        let needs_server = matches!(
            incoming.request,
            Request::Discover | Request::ListTools { .. } | Request::CallTool(_) | Request::Relay(_)
        );
        if needs_server && let Some(error) = self.unreached(&caller.selection) {
            return Handled::Reply(Box::new(Reply::Error(error)));
        }
        let reply = match incoming.request {
            Request::Discover => Ok(Reply::Discover(self.discovery(&caller.selection))),
            Request::Ping => Ok(Reply::Ack),
            Request::SetLogLevel(level) => match session {
                Some(Conversation { session, .. }) => {
                    self.set_level(caller, session, level).await.map(|()| Reply::Ack)
                }
                None => Err(RpcError::method_not_found("logging/setLevel")),
            },
            Request::TaskResult { task } => {
                let line = session.and_then(Conversation::line);
                return match self.wait(caller, &task, line).await {
                    Ok(waiting) => Handled::Wait(Box::new(waiting)),
                    Err(error) => Handled::Reply(Box::new(Reply::Error(error))),
                };
            }
            Request::ListTasks { cursor } => self.list_tasks(caller, cursor.as_deref()).await,
            Request::ListTools { cursor } => {
                self.list_tools(&caller.selection, incoming.client.takes, cursor.as_deref())
            }
            Request::CallTool(call) => {
                return match self.call(caller, session, incoming.client, call).await {
                    Ok(held) => Handled::Call(Box::new(held)),
                    Err(reply) => Handled::Reply(reply),
                };
            }
            Request::GetTask { task } => self.get(caller, session, &task).await,
            Request::UpdateTask { task, responses } => self.update(caller, &task, responses).await,
            Request::CancelTask { task } => self.cancel(caller, &task).await,
            Request::Relay(relay) => {
                return match self.relaying(caller, session, &incoming.client, relay) {
                    Ok(relaying) => Handled::Relay(Box::new(relaying)),
                    Err(error) => Handled::Reply(Box::new(Reply::Error(error))),
                };
            }
            Request::Listen(filter) => {
                let limits = &self.inner.settings.listen;
                return match self.inner.streams.take(&caller.owner, 0, limits.caps()) {
                    Some(place) => {
                        let listener =
                            Listener::new(self.clone(), caller.clone(), &incoming.client, filter, place)
                                .await;
                        Handled::Listen(Box::new(listener))
                    }
                    None => Handled::Reply(Box::new(Reply::Error(limits.refusal()))),
                };
            }
        };
        Handled::Reply(Box::new(reply.unwrap_or_else(Reply::Error)))
    }

    /// Whether this process takes no new work any more.
    pub fn is_draining(&self) -> bool {
        self.inner.engine.is_draining()
    }

    /// Resolves when this process takes no new work any more.
    pub(crate) async fn draining(&self) {
        self.inner.engine.draining().await;
    }

    /// The room for replies, one for all transports.
    pub(crate) fn replies(&self) -> &Room {
        &self.inner.replies
    }

    /// The tools.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// What listeners are limited to.
    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// A watcher for a stream.
    pub(crate) fn watcher(&self) -> longhaul_engine::watch::Watcher {
        self.inner.engine.watcher()
    }

    /// The caller's own task behind a sealed id, with its bodies, for an action that the gate allows.
    ///
    /// A forged id is refused before the store is touched (G-35). A genuine one of another owner takes the same
    /// path as one whose row is gone, and gives the same bytes (G-3).
    pub(crate) async fn own(
        &self,
        caller: &Caller,
        action: Action,
        sealed: &str,
    ) -> Result<(Row, Millis), RpcError> {
        self.own_opened(caller, action, &self.opened(sealed)?).await
    }

    /// What a sealed id says, when it is no forgery.
    fn opened(&self, sealed: &str) -> Result<Opened, RpcError> {
        self.inner.keys.open(sealed).ok_or_else(RpcError::task_not_found)
    }

    /// As [`Dispatch::own`], of an id that was opened.
    async fn own_opened(
        &self,
        caller: &Caller,
        action: Action,
        opened: &Opened,
    ) -> Result<(Row, Millis), RpcError> {
        match self.own_found(caller, action, Query::Task(opened.task)).await? {
            Some(found) => Ok(found),
            // A row goes only when its time is over; its owner may know that.
            None if opened.owner == owner_digest(&caller.owner) => Err(RpcError::task_expired()),
            None => Err(RpcError::task_not_found()),
        }
    }

    /// The caller's own task of this row id, as [`Dispatch::own`].
    pub(crate) async fn own_row(
        &self,
        caller: &Caller,
        action: Action,
        task: TaskId,
    ) -> Result<(Row, Millis), RpcError> {
        let found = self.own_found(caller, action, Query::Task(task)).await?;
        found.ok_or_else(RpcError::task_not_found)
    }

    /// The caller's own task of this short name.
    pub(crate) async fn own_named(
        &self,
        caller: &Caller,
        action: Action,
        name: &str,
    ) -> Result<(Row, Millis), RpcError> {
        let query = Query::Named {
            owner: caller.owner.clone(),
            name: name.to_ascii_lowercase(),
        };
        let found = self.own_found(caller, action, query).await?;
        found.ok_or_else(RpcError::task_not_found)
    }

    /// The task that a query finds, if it is there, when the gate allows the caller to act on it.
    async fn own_found(
        &self,
        caller: &Caller,
        action: Action,
        query: Query,
    ) -> Result<Option<(Row, Millis)>, RpcError> {
        let found = self.inner.engine.read(query).await;
        let found = found.map_err(|error| store_reply(&error))?;
        let Some(row) = found.rows.into_iter().next() else {
            return Ok(None);
        };
        let view = View::of_task(action, &caller.owner, Some(&row.owner));
        gate::judge(&view).map_err(gate::Refusal::reply)?;
        if view::has_expired(&row, found.now) {
            return Err(RpcError::task_expired());
        }
        Ok(Some((row, found.now)))
    }

    /// What a session is told on its pipe besides replies.
    pub(crate) fn shared_pipe(&self, caller: &Caller, session: &Arc<Session>) -> Shared {
        self.shared(caller, session, None)
    }

    /// The stream of a session for what belongs to no single request.
    pub(crate) fn shared_stream(&self, caller: &Caller, session: &Arc<Session>) -> Result<Shared, RpcError> {
        let limits = &self.inner.settings.listen;
        let place = self.inner.streams.take(&caller.owner, 0, limits.caps());
        let place = place.ok_or_else(|| limits.refusal())?;
        Ok(self.shared(caller, session, Some(place)))
    }

    fn shared(&self, caller: &Caller, session: &Arc<Session>, place: Option<Place>) -> Shared {
        let shared = Shared::new(self.clone(), caller.clone(), session, send(), place);
        if session.owes() {
            self.tend(caller, session);
        }
        shared
    }

    /// Changes a task for `owner` as `make` proposes, when the gate allows it on the locked snapshot. `make` looks
    /// at that snapshot and its time too: what its caller saw before may have changed.
    async fn change(
        &self,
        owner: &Owner,
        action: Action,
        task: TaskId,
        make: impl Fn(&Row, Millis) -> Option<Proposal> + Send + 'static,
    ) -> Result<(), RpcError> {
        let changed = self.try_change(owner, action, task, make).await;
        changed.map(|_| ()).map_err(|error| store_reply(&error))
    }

    /// As [`Dispatch::change`]; tells whether anything changed.
    async fn try_change(
        &self,
        owner: &Owner,
        action: Action,
        task: TaskId,
        make: impl Fn(&Row, Millis) -> Option<Proposal> + Send + 'static,
    ) -> Result<bool, StoreError> {
        let owner = owner.clone();
        let judge = move |snapshot: &Snapshot| {
            let Some(row) = &snapshot.task else {
                return Allowed::nothing(());
            };
            let permit = gate::judge(&View::of_task(action, &owner, Some(&row.owner)));
            match (permit, make(row, snapshot.now)) {
                (Ok(permit), Some(proposal)) => Allowed::apply(permit, proposal, ()),
                (Ok(_), None) | (Err(_), Some(_) | None) => Allowed::nothing(()),
            }
        };
        let scope = Scope::task(task);
        Ok(self.inner.engine.transact(scope, judge).await?.is_committed())
    }

    /// One task with its bodies, whoever it belongs to.
    async fn row(&self, task: TaskId) -> Result<Option<Row>, RpcError> {
        let found = self
            .inner
            .engine
            .read(Query::Task(task))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(found.rows.into_iter().next())
    }

    /// A task as its owner sees it.
    pub(crate) fn view(&self, row: &Row, now: Millis) -> longhaul_mcp::TaskView {
        view::task(row, now, &self.inner.keys, self.inner.settings.poll)
    }
}

/// What a caller is told when the store fails. The log has the cause; the caller never reads it.
pub(crate) fn store_reply(error: &StoreError) -> RpcError {
    tracing::error!(error = error as &dyn std::error::Error, "the store failed");
    match error.fault {
        Fault::Unavailable => RpcError::store_unavailable(STORE_RETRY_MS),
        Fault::Full => RpcError::refused(
            RefusalCode::StoreUnavailable,
            "The server's disk is full: nothing new is taken until there is space",
            Refusal {
                reason: "store_full".into(),
                who: Who::Operator,
                retry_after_ms: Some(STORE_FULL_RETRY_MS),
            },
        ),
        Fault::Newer { .. } | Fault::Refused(_) | Fault::Broken => {
            RpcError::internal("store_failed", "The store failed; the server's log has the cause")
        }
    }
}

/// When a caller should try again after the store was out of reach, in milliseconds.
const STORE_RETRY_MS: u64 = 1_000;
/// When a caller should try again after the disk was full, in milliseconds.
const STORE_FULL_RETRY_MS: u64 = 30_000;

/// Six Crockford characters: no look-alikes, easy to say and to type.
fn short_name() -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    random::<6>()
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect()
}

/// What tells the questions of one stream from those of another.
fn send() -> String {
    short_name()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
