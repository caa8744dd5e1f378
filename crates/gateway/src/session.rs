//! What a client with a session was told, and on which of its streams.
//!
//! Made by `dispatch` from a sealed session id or by a pipe; read by the streams of the session. It is memory
//! only: the id says what was agreed, what a stream says of tasks is derived from rows, and what the client set is in
//! the session's record, where it has one.
//! A question goes to one stream of a session at a time: one that waits for its task, else the shared one,
//! else to the first that opens.

pub(crate) mod feed;
pub mod seal;
pub(crate) mod shared;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use longhaul_core::{QuestionKey, TaskId};
use longhaul_mcp::{RequestId, edge::Peer, frame::Raw, request::LogLevel};
use longhaul_store::Owner;
use tokio::sync::{oneshot, watch};

use crate::updates::Updates;

/// The most tasks that the shared stream of a session follows; past it, the one that was followed first goes.
pub const FOLLOWED_MAX: usize = 1_000;
/// The most questions of a session that wait for an answer on its streams; others wait until one is settled.
const ASKED_MAX: usize = 4_096;
/// The most answers that are remembered until their streams have seen them.
const ANSWERED_MAX: usize = 256;

/// One session.
pub struct Session {
    key: String,
    owner: Owner,
    peer: Peer,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    over: AtomicBool,
    /// It has a record: what its client set outlives this process.
    is_kept: bool,
    /// The resources that its client is told of.
    updates: Updates,
    subscribing: tokio::sync::Mutex<()>,
}

struct State {
    level: Option<LogLevel>,
    /// The resources that its client subscribed to and is not told of: they are subscribed to again once there is a
    /// stream that tells of them.
    owed: BTreeSet<String>,
    /// The resources that its client is about to subscribe to.
    beginning: Vec<String>,
    /// Somebody looks after the resources.
    is_tended: bool,
    /// What the shared stream follows, and whether the client was handed the task.
    followed: BTreeMap<TaskId, bool>,
    order: VecDeque<TaskId>,
    /// The streams that wait for one task, the oldest first. Each has one of its owner's places for held calls, so
    /// they are no more than those (`tasks.held_max`).
    own: BTreeMap<TaskId, Vec<u64>>,
    shared: Option<u64>,
    /// The session has one stream, a pipe, and it carries everything.
    is_pipe: bool,
    /// Where a question was sent; at most [`ASKED_MAX`].
    asked: BTreeMap<(TaskId, QuestionKey), Asked>,
    /// The ids of questions that the client answered itself, until their stream has seen that they are settled.
    answered: BTreeSet<String>,
    streams: u64,
    /// The questions of requests that are no tasks, by the ids under which they were asked.
    inquired: BTreeMap<String, oneshot::Sender<Result<Raw, Raw>>>,
    /// The requests that wait for their reply, and how to tell that their client does not any more.
    waits: BTreeMap<RequestId, (u64, oneshot::Sender<Option<String>>)>,
}

impl State {
    fn carrier(&self, task: TaskId) -> Option<u64> {
        let first = self.own.get(&task).and_then(|own| own.first().copied());
        match first {
            Some(own) if !self.is_pipe => Some(own),
            Some(_) | None => self.shared,
        }
    }
}

/// A request that waits for its reply.
pub(crate) struct Wait {
    session: Arc<Session>,
    request: RequestId,
    number: u64,
    receiver: oneshot::Receiver<Option<String>>,
}

impl Wait {
    /// Resolves when the client waits no longer, with the reason that it gave.
    pub(crate) async fn given_up(&mut self) -> Option<String> {
        match (&mut self.receiver).await {
            Ok(reason) => reason,
            // Another request took the id; this one is waited for all the same.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        if state
            .waits
            .get(&self.request)
            .is_some_and(|(number, _)| *number == self.number)
        {
            state.waits.remove(&self.request);
        }
    }
}

/// A resource that counts as subscribed to until this is dropped.
pub(crate) struct Beginning {
    session: Arc<Session>,
    resource: String,
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let beginning = &mut self.session.lock().beginning;
        if let Some(at) = beginning.iter().position(|resource| *resource == self.resource) {
            beginning.swap_remove(at);
        }
    }
}

/// A stream's place in its session. Dropping it makes its questions free for another stream.
pub(crate) struct Carriage {
    session: Arc<Session>,
    /// The task that the stream waits for; `None` for the shared stream.
    task: Option<TaskId>,
    number: u64,
    changed: watch::Receiver<u64>,
}

/// A question that the session's client was sent.
struct Asked {
    /// The open stream.
    stream: u64,
    /// The client answered with an error.
    is_refused: bool,
}

impl Session {
    /// A session as it was agreed. `key` names it among the sessions of its owner and is no secret. A pipe's
    /// only stream carries everything.
    pub(crate) fn new(key: String, owner: Owner, peer: Peer, is_pipe: bool, is_kept: bool) -> Arc<Session> {
        Arc::new(Session {
            key,
            owner,
            peer,
            state: Mutex::new(State {
                level: None,
                owed: BTreeSet::new(),
                beginning: Vec::new(),
                is_tended: false,
                followed: BTreeMap::new(),
                order: VecDeque::new(),
                own: BTreeMap::new(),
                shared: None,
                is_pipe,
                asked: BTreeMap::new(),
                answered: BTreeSet::new(),
                streams: 0,
                inquired: BTreeMap::new(),
                waits: BTreeMap::new(),
            }),
            changed: watch::Sender::new(0),
            over: AtomicBool::new(false),
            is_kept,
            updates: Updates::default(),
            subscribing: tokio::sync::Mutex::default(),
        })
    }

    /// Names the session among those of its owner; no secret.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whose session it is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// What the client and the server agreed on.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The least grave log messages that the client wants; `None` when it said nothing.
    pub(crate) fn level(&self) -> Option<LogLevel> {
        self.lock().level
    }

    pub(crate) fn set_level(&self, level: LogLevel) {
        self.lock().level = Some(level);
    }

    /// Whether what its client sets is in a record.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The resources that its client is told of.
    pub(crate) fn updates(&self) -> &Updates {
        &self.updates
    }

    /// Held by whoever changes what its client is subscribed to, here and in its record.
    pub(crate) fn subscribing(&self) -> &tokio::sync::Mutex<()> {
        &self.subscribing
    }

    /// Counts a resource among those that its client subscribed to, if they are fewer than `most`.
    pub(crate) fn begin_subscribing(self: &Arc<Session>, resource: &str, most: usize) -> Option<Beginning> {
        let mut state = self.lock();
        let mut all: BTreeSet<String> = self.updates.uris().into_iter().collect();
        all.extend(state.owed.iter().chain(&state.beginning).cloned());
        if all.len() >= most && !all.contains(resource) {
            return None;
        }
        state.beginning.push(resource.to_owned());
        Some(Beginning {
            session: Arc::clone(self),
            resource: resource.to_owned(),
        })
    }

    /// An earlier process had these.
    pub(crate) fn owe(&self, resources: impl IntoIterator<Item = String>) {
        self.lock().owed.extend(resources);
    }

    pub(crate) fn owed(&self) -> BTreeSet<String> {
        self.lock().owed.clone()
    }

    pub(crate) fn owes(&self) -> bool {
        !self.lock().owed.is_empty()
    }

    /// The resource is told of again. Whether it was owed.
    pub(crate) fn made_again(&self, resource: &str) -> bool {
        self.lock().owed.remove(resource)
    }

    pub(crate) fn unsubscribed(&self, resource: &str) {
        self.lock().owed.remove(resource);
        self.updates.end(resource);
    }

    /// Nobody reads what the session is told: its subscriptions rest.
    pub(crate) fn rest(&self) {
        let resting = self.updates.end_all();
        self.owe(resting);
    }

    /// Whether the caller is to look after the resources from now on: nobody else does.
    pub(crate) fn begins_tending(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_tended, true)
    }

    /// Whether there is nothing to look after any more.
    pub(crate) fn ends_tending(&self) -> bool {
        let mut state = self.lock();
        let is_over = self.over.load(Ordering::Acquire);
        // What is owed waits for a stream, which begins to look after it anew.
        let rests = self.updates.count() == 0 && (state.owed.is_empty() || state.shared.is_none());
        if is_over || rests {
            state.is_tended = false;
        }
        is_over || rests
    }

    /// Tells when its streams should look again, and when the session is gone.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether its client reads what belongs to no single request.
    pub(crate) fn has_shared_stream(&self) -> bool {
        self.lock().shared.is_some()
    }

    /// The shared stream tells of this task from now on; of its status too when it was handed out.
    pub(crate) fn follow(&self, task: TaskId, handed_out: bool) {
        let mut state = self.lock();
        match state.followed.get_mut(&task) {
            Some(known) => {
                if *known || !handed_out {
                    return;
                }
                *known = true;
            }
            None => {
                state.followed.insert(task, handed_out);
                state.order.push_back(task);
                if state.order.len() > FOLLOWED_MAX
                    && let Some(oldest) = state.order.pop_front()
                {
                    state.followed.remove(&oldest);
                }
            }
        }
        drop(state);
        self.tell();
    }

    pub(crate) fn unfollow(&self, task: TaskId) {
        let mut state = self.lock();
        state.followed.remove(&task);
        state.order.retain(|followed| *followed != task);
    }

    /// What the shared stream follows.
    pub(crate) fn followed(&self) -> BTreeMap<TaskId, bool> {
        self.lock().followed.clone()
    }

    /// Whether a session that is made anew from its id would be the same.
    pub(crate) fn is_blank(&self) -> bool {
        let state = self.lock();
        state.level.is_none()
            && self.updates.count() == 0
            && state.followed.is_empty()
            && state.own.is_empty()
            && state.shared.is_none()
            && state.asked.is_empty()
            && state.answered.is_empty()
            && state.inquired.is_empty()
            && state.waits.is_empty()
    }

    /// The session is over: its streams end.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.updates.end_all();
        self.tell();
    }

    /// Resolves when the session is over.
    pub(crate) async fn ended(&self) {
        let mut changed = self.changed.subscribe();
        while !self.over.load(Ordering::Acquire) {
            if changed.changed().await.is_err() {
                // The sender lives as long as the session.
                return;
            }
        }
    }

    /// Whether the session's only stream is a pipe.
    pub(crate) fn is_pipe(&self) -> bool {
        self.lock().is_pipe
    }

    /// The client answered this question of ours itself, so it needs no word that the question is settled.
    pub(crate) fn answered(&self, id: &str) {
        let mut state = self.lock();
        if state.answered.len() == ANSWERED_MAX {
            state.answered.pop_first();
        }
        state.answered.insert(id.to_owned());
    }

    /// The client is asked under this id by a request of its own that is no task; what it answers.
    pub(crate) fn inquire(&self, id: &str) -> oneshot::Receiver<Result<Raw, Raw>> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.lock();
        // Nobody waits for the answer of a request that ended.
        state.inquired.retain(|_, answer| !answer.is_closed());
        state.inquired.insert(id.to_owned(), answer);
        answered
    }

    /// The client's answer to such a question. Whether it is one.
    pub(crate) fn answer_inquiry(&self, id: &str, outcome: &Result<Raw, Raw>) -> bool {
        let Some(answer) = self.lock().inquired.remove(id) else {
            return false;
        };
        let _over = answer.send(outcome.clone());
        true
    }

    /// The client answered this with an error. True when that settles nothing: it was asked on the shared stream, perhaps
    /// before it knew of the task, and is asked again on the stream on which it waits for it.
    pub(crate) fn refused(&self, task: TaskId, key: QuestionKey) -> bool {
        let mut state = self.lock();
        let shared = state.shared.filter(|_| !state.is_pipe);
        let asked = state.asked.get_mut(&(task, key));
        let Some(asked) = asked.filter(|asked| shared == Some(asked.stream)) else {
            return false;
        };
        asked.is_refused = true;
        drop(state);
        self.tell();
        true
    }

    /// The question is to be asked again, under a new id.
    pub(crate) fn ask_again(&self, task: TaskId, key: QuestionKey) {
        self.lock().asked.remove(&(task, key));
        self.tell();
    }

    /// A request of this session waits for its reply from now on.
    pub(crate) fn waiting(self: &Arc<Session>, request: &RequestId) -> Wait {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        state.streams += 1;
        let number = state.streams;
        state.waits.insert(request.clone(), (number, sender));
        drop(state);
        Wait {
            session: Arc::clone(self),
            request: request.clone(),
            number,
            receiver,
        }
    }

    /// The client waits no longer for the reply to this request. One that is not known is ignored.
    pub(crate) fn give_up(&self, request: &RequestId, reason: Option<String>) {
        if let Some((_, sender)) = self.lock().waits.remove(request) {
            // A wait that has just ended needs no word.
            let _ = sender.send(reason);
        }
    }

    /// A stream that waits for one task.
    pub(crate) fn own_stream(self: &Arc<Session>, task: TaskId) -> Carriage {
        let mut state = self.lock();
        state.streams += 1;
        let number = state.streams;
        state.own.entry(task).or_default().push(number);
        drop(state);
        self.carriage(Some(task), number)
    }

    /// The stream for everything that belongs to no other. A newer one takes the place of the one before.
    pub(crate) fn shared_stream(self: &Arc<Session>) -> Carriage {
        let mut state = self.lock();
        state.streams += 1;
        let number = state.streams;
        if let Some(before) = state.shared.replace(number) {
            state.asked.retain(|_, asked| asked.stream != before);
        }
        drop(state);
        self.tell();
        self.carriage(None, number)
    }

    fn carriage(self: &Arc<Session>, task: Option<TaskId>, number: u64) -> Carriage {
        Carriage {
            session: Arc::clone(self),
            task,
            number,
            changed: self.changed.subscribe(),
        }
    }

    /// Streams look again.
    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carriage {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether this is the stream on which the session is told of the task.
    pub(crate) fn carries(&self, task: TaskId) -> bool {
        self.session.lock().carrier(task) == Some(self.number)
    }

    /// Takes the question for this stream: true when it is to be sent here, now.
    pub(crate) fn claim(&self, task: TaskId, key: QuestionKey) -> bool {
        let mut state = self.session.lock();
        let is_full = state.asked.len() >= ASKED_MAX;
        let is_to_be_asked = match state.asked.get(&(task, key)) {
            Some(asked) => asked.is_refused && asked.stream != self.number,
            None => !is_full,
        };
        if state.carrier(task) != Some(self.number) || !is_to_be_asked {
            return false;
        }
        let asked = Asked {
            stream: self.number,
            is_refused: false,
        };
        state.asked.insert((task, key), asked);
        true
    }

    /// Whether the question was sent on this stream and still is to be answered there.
    pub(crate) fn holds(&self, task: TaskId, key: QuestionKey) -> bool {
        let state = self.session.lock();
        let asked = state.asked.get(&(task, key));
        asked.is_some_and(|asked| asked.stream == self.number)
    }

    /// The question is settled. True when the client did not answer it itself and should know.
    pub(crate) fn settle(&self, task: TaskId, key: QuestionKey, id: &str) -> bool {
        let mut state = self.session.lock();
        state.asked.remove(&(task, key));
        !state.answered.remove(id)
    }

    /// Whether a newer stream has taken the place of this shared one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.task.is_none() && self.session.lock().shared != Some(self.number)
    }

    /// Resolves when the session's streams should look again. Safe to drop and call again.
    pub(crate) async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // The session holds the sender, and this holds the session.
            std::future::pending().await
        }
    }
}

impl Drop for Carriage {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        let number = self.number;
        state.asked.retain(|_, asked| asked.stream != number);
        match self.task {
            Some(task) => {
                if let Some(own) = state.own.get_mut(&task) {
                    own.retain(|stream| *stream != number);
                    if own.is_empty() {
                        state.own.remove(&task);
                    }
                }
            }
            None if state.shared == Some(number) => state.shared = None,
            None => {}
        }
        drop(state);
        self.session.tell();
    }
}
