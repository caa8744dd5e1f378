//! A call that was taken: what its client gets, and when.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use longhaul_core::{Outcome, Phase, Reason, TaskId, task::QuestionState};
use longhaul_engine::notes::{Heard, Notes};
use longhaul_mcp::{
    Client, Push, Reply, RpcError,
    frame::{Obj, Raw},
    reply::{InputRequest, Progress, TaskSupport},
    request::{Asked, LogLevel, ProgressToken, Response, Takes},
};
use longhaul_store::Row;
use tokio::time::{Instant, Sleep};

use super::{
    Conversation, Dispatch,
    answers::{fits, shown},
    hold::{Stay, Terms, Told, Waits},
    join::{Counted, Mark},
    returning::Awaited,
};
use crate::{
    identity::Caller,
    outbound::{Log, Note},
    question::Asker,
    quota::Place,
    request_state::State,
    session::{
        Carriage,
        feed::{Feed, Seen},
    },
    view,
};

/// A call that was taken and whose reply is to come. Whoever has handed the reply on says so by
/// [`Held::delivered`]; a call that is dropped without it is one whose caller left, as by [`Held::leave`].
pub struct Held {
    pub(super) dispatch: Dispatch,
    pub(super) caller: Caller,
    pub(super) client: Client,
    pub(super) task: TaskId,
    digest: [u8; 32],
    pub(super) terms: Terms,
    pub(super) stay: Stay,
    offered: Vec<Response>,
    stream: Option<Stream>,
    session: Option<Conversation>,
    /// The call's own stream, on which a session's client is asked.
    feed: Option<(Feed, Carriage)>,
    ready: VecDeque<Push>,
    _place: Place,
    _waiting: Counted,
    pub(super) awaited: Option<Awaited>,
    promote: Pin<Box<Sleep>>,
    promote_due: bool,
    shown: bool,
}

/// What travels on the call's own stream beside its reply: progress, for a client that gave a token, and log
/// messages, for one that wants some (B-55, A-11).
struct Stream {
    token: Option<ProgressToken>,
    level: Option<LogLevel>,
    notes: Notes,
    sent: Option<Progress>,
    sent_at: Instant,
}

/// What a caller waits with.
pub(super) struct Arrival {
    pub(super) caller: Caller,
    pub(super) session: Option<Conversation>,
    pub(super) client: Client,
    pub(super) task: TaskId,
    /// What the work says, where it was followed from its beginning.
    pub(super) notes: Option<Notes>,
    pub(super) digest: [u8; 32],
    pub(super) terms: Terms,
    pub(super) stay: Stay,
    /// Answers that came with the call.
    pub(super) offered: Vec<Response>,
    pub(super) progress_token: Option<ProgressToken>,
    /// The least grave log messages that the call itself asked for.
    pub(super) log_level: Option<LogLevel>,
    pub(super) place: Place,
}

/// The next thing that a call has for its client.
pub enum Step {
    /// Something beside the reply; more follows.
    Push(Box<Push>),
    /// The reply; nothing follows.
    Reply(Box<Reply>),
}

impl Dispatch {
    /// Waits on a task that exists, as one more caller of its call.
    pub(super) fn hold(&self, arrival: Arrival) -> Held {
        let feed = arrival.session.as_ref().and_then(Conversation::line).map(|line| {
            let feed = Feed::new(line.send, None, arrival.client.answers, line.seen);
            (feed, line.session.own_stream(arrival.task))
        });
        if let (Some(Conversation { session, .. }), None) = (&arrival.session, &feed) {
            session.follow(arrival.task, false);
        }
        // A client with a session that never said which log messages it wants gets those that matter.
        let level = match &arrival.session {
            Some(Conversation { session, .. }) => Some(session.level().unwrap_or(LogLevel::Warning)),
            None => arrival.log_level,
        };
        let listens = arrival.progress_token.is_some() || level.is_some();
        let awaited = self.inner.returning.held(
            arrival.session.as_ref(),
            arrival.stay.join.as_ref(),
            arrival.task,
            arrival.progress_token.is_some(),
        );
        Held {
            session: arrival.session,
            feed,
            ready: VecDeque::new(),
            stream: listens.then(|| Stream {
                token: arrival.progress_token,
                level,
                notes: arrival
                    .notes
                    .unwrap_or_else(|| self.inner.engine.notes(arrival.task)),
                sent: None,
                sent_at: Instant::now(),
            }),
            dispatch: self.clone(),
            caller: arrival.caller,
            client: arrival.client,
            task: arrival.task,
            digest: arrival.digest,
            promote: Box::pin(tokio::time::sleep(arrival.terms.promote_after)),
            promote_due: false,
            terms: arrival.terms,
            stay: arrival.stay,
            offered: arrival.offered,
            _place: arrival.place,
            _waiting: self.inner.waiting.count(arrival.task),
            awaited,
            shown: false,
        }
    }
}

impl Held {
    /// Whether the client asked for something that needs a stream beside the reply, or may have to wait long.
    pub fn wants_stream(&self) -> bool {
        // A client that asked for a task has its reply at once.
        self.client.takes != Takes::AtOnce && (self.stream.is_some() || self.client.takes == Takes::Never)
    }

    /// Whether a server behind this one runs it.
    pub(crate) fn is_relayed(&self) -> bool {
        self.terms.is_relayed
    }

    /// What the call's stream is called, and what tells its questions from others; `None` without a stream, or when
    /// the row is gone.
    pub(crate) async fn stream_name(&mut self) -> Option<(String, String)> {
        let (feed, _) = self.feed.as_ref()?;
        let row = self.dispatch.row(self.task).await.ok()??;
        Some((row.name, feed.send().to_owned()))
    }

    /// How far the client will have come once it has read the last thing that [`Held::next`] gave.
    pub(crate) fn seen(&self) -> Seen {
        self.feed
            .as_ref()
            .map(|(feed, _)| feed.seen())
            .unwrap_or_default()
    }

    /// The next thing for the client. Safe to drop and call again.
    pub async fn next(&mut self) -> Step {
        loop {
            if let Some(push) = self.ready.pop_front() {
                return Step::Push(Box::new(push));
            }
            match self.look().await {
                Ok(Looked::Step(step)) => return step,
                Ok(Looked::Again) => {}
                Ok(Looked::Wait { version }) => {
                    if let Some(push) = self.wait(version).await {
                        return Step::Push(Box::new(push));
                    }
                }
                // The call was not settled by this: its caller leaves it as it is.
                Err(error) => return self.reply(Reply::Error(error), Told::Nothing),
            }
        }
    }

    /// The last reply of the call, whatever it takes; pushes are dropped. The reply counts as delivered.
    pub async fn finish(mut self) -> Reply {
        loop {
            if let Step::Reply(reply) = self.next().await {
                self.delivered().await;
                return *reply;
            }
        }
    }

    async fn look(&mut self) -> Result<Looked, RpcError> {
        let Some(row) = self.dispatch.row(self.task).await? else {
            return Err(RpcError::task_expired());
        };
        if let Some((feed, carriage)) = &mut self.feed {
            self.ready.extend(feed.look(carriage, &row));
            self.dispatch.shows(row.id, feed.asked());
            if !self.ready.is_empty() {
                return Ok(Looked::Again);
            }
        }
        if let Some(push) = self.stream.as_mut().and_then(Stream::noted) {
            return Ok(Looked::Step(Step::Push(Box::new(push))));
        }
        let looked = match &row.task.phase {
            Phase::Finished(outcome) => {
                if self.takes_task() && !row.hidden {
                    return self.hand_out(&row).await;
                }
                let reply = plain_reply(outcome);
                Looked::Step(self.reply(reply, Told::Result))
            }
            Phase::Asking => self.asked(&row).await?,
            Phase::Working if self.becomes_task(&row) => self.hand_out(&row).await?,
            Phase::Working => {
                if self.promote_due && !self.shown {
                    self.show(Mark::Kept).await?;
                }
                Looked::Wait { version: row.version }
            }
        };
        self.within_limit(&row, looked).await
    }

    /// Whether the call may end as a task.
    fn takes_task(&self) -> bool {
        self.client.takes != Takes::Never && self.terms.task_support != TaskSupport::Forbidden
    }

    /// Whether it is time to hand out the task to a client that takes tasks.
    fn becomes_task(&self, row: &Row) -> bool {
        if !self.takes_task() {
            return false;
        }
        let required = self.terms.task_support == TaskSupport::Required;
        let asked_already = !row.task.questions.is_empty();
        self.promote_due || !row.hidden || (required && (!self.terms.asks_first || asked_already))
    }

    async fn hand_out(&mut self, row: &Row) -> Result<Looked, RpcError> {
        // With its handle the caller has the task; an equal call is then meant to begin another one.
        let is_shared = self.stay.join.as_ref().is_some_and(|name| name.whose.is_some());
        if row.hidden || self.stay.waits == Waits::Joined {
            // Another pipe comes back for it when this one has ended.
            let mark = if is_shared { Mark::Handed } else { Mark::Spent };
            self.show(mark).await?;
        }
        if let Some(Conversation { session, .. }) = &self.session {
            session.follow(row.id, true);
        }
        let view = self.dispatch.view(row, self.dispatch.inner.engine.now());
        Ok(Looked::Step(self.reply(Reply::TaskCreated(view), Told::Result)))
    }

    /// Hands the row out, and says in the record of its call what that means for an equal one.
    pub(super) async fn show(&mut self, mark: Mark) -> Result<(), RpcError> {
        let key = match self.stay.waits {
            Waits::Own | Waits::Joined => self.stay.join.clone(),
            // Whoever names a task is no caller of its call.
            Waits::ByName { .. } => None,
        };
        let owner = &self.caller.owner;
        self.dispatch.show_marked(owner, self.task, key, mark).await?;
        self.shown = true;
        Ok(())
    }

    /// The work asks while its call is still open.
    async fn asked(&mut self, row: &Row) -> Result<Looked, RpcError> {
        // Answers that came with the call are used once, as soon as the tool asks for them. One that does not fit
        // is asked for again (B-42).
        if !self.offered.is_empty() {
            let mut offered = std::mem::take(&mut self.offered);
            offered.retain(|response| fits(&row.task, response));
            if self.dispatch.answer_labelled(&self.caller, row, &offered).await? {
                return Ok(Looked::Again);
            }
        }
        let nothing_answered = row
            .task
            .questions
            .iter()
            .all(|asked| matches!(asked.state, QuestionState::Open { .. }));
        let before_task = self.terms.asks_first && row.hidden && nothing_answered;
        let takes_task = self.takes_task();
        if takes_task && !before_task {
            return self.hand_out(row).await;
        }
        // The question is on a stream of the session already, or goes there as soon as one opens.
        let asked_on_stream = self.client.asked == Asked::OnStream
            && shown(&row.task)
                .iter()
                .any(|(_, _, stored)| stored.kind.declared_by(self.client.answers));
        if asked_on_stream {
            return Ok(Looked::Wait { version: row.version });
        }
        let asker = Asker::of(row);
        let requests: Vec<InputRequest> = shown(&row.task)
            .into_iter()
            .filter(|(_, _, stored)| stored.kind.declared_by(self.client.answers))
            .map(|(key, _, stored)| InputRequest {
                key,
                ask: stored.told(&asker),
            })
            .collect();
        if requests.is_empty() && takes_task {
            return self.hand_out(row).await;
        }
        if requests.is_empty() {
            return self.asked_elsewhere(row).await;
        }
        let keys = row.task.open_questions().map(|question| question.key);
        self.dispatch.shows(row.id, keys);
        if row.hidden {
            self.dispatch.begin_round(&self.caller, row.id).await?;
        }
        let state = self.dispatch.seal_round(&self.caller, row, self.digest);
        let reply = Reply::InputRequired {
            requests,
            state: Some(state),
        };
        Ok(Looked::Step(self.reply(reply, Told::Round)))
    }

    /// Waits until the row is newer than `version`, the call is due to become a task, its caller has waited long
    /// enough, or there is something for its stream.
    async fn wait(&mut self, version: u64) -> Option<Push> {
        let changed = self.dispatch.inner.engine.changed(self.task, version);
        let quiet = (self.client.takes == Takes::Never).then_some(self.dispatch.inner.settings.hold.quiet);
        tokio::select! {
            _ = changed => None,
            () = &mut self.promote, if !self.promote_due => {
                self.promote_due = true;
                None
            }
            () = self.stay.limit() => None,
            push = Stream::next(self.stream.as_mut(), quiet) => Some(push),
            () = changed_on(self.feed.as_mut()) => None,
        }
    }

    /// Whether the client wants progress.
    pub(super) fn with_progress(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.token.is_some())
    }

    pub(super) fn reply(&mut self, reply: Reply, told: Told) -> Step {
        self.stay.told = told;
        if told == Told::Result && self.stay.waits != Waits::Own {
            self.stay.on_its_way = Some(self.dispatch.inner.handing.count(self.task));
        }
        Step::Reply(Box::new(reply))
    }
}

/// Resolves when the call's own stream should look again.
async fn changed_on(feed: Option<&mut (Feed, Carriage)>) {
    match feed {
        Some((_, carriage)) => carriage.changed().await,
        None => std::future::pending().await,
    }
}

/// What a look at the row led to.
pub(super) enum Looked {
    Step(Step),
    Again,
    Wait { version: u64 },
}

impl Stream {
    /// The next progress. Waits for ever when there is no stream; safe to drop and call again.
    async fn next(stream: Option<&mut Stream>, quiet: Option<Duration>) -> Push {
        let Some(stream) = stream else {
            return std::future::pending().await;
        };
        loop {
            let silent = async {
                match quiet.filter(|_| stream.token.is_some()) {
                    Some(quiet) => tokio::time::sleep_until(stream.sent_at + quiet).await,
                    None => std::future::pending().await,
                }
            };
            let heard = tokio::select! {
                heard = stream.notes.next() => heard,
                () = silent => match stream.still() {
                    Some(push) => return push,
                    None => continue,
                },
            };
            if let Some(push) = stream.push(&heard) {
                return push;
            }
        }
    }

    /// Progress that was noted and not yet sent.
    fn noted(&mut self) -> Option<Push> {
        while let Some(heard) = self.notes.try_next() {
            if let Some(push) = self.push(&heard) {
                return Some(push);
            }
        }
        None
    }

    fn push(&mut self, heard: &Heard) -> Option<Push> {
        match heard {
            Heard::Note(note) => self.noticed(note),
            Heard::Line(line) => self.log(line),
        }
    }

    /// A log message that is grave enough.
    fn log(&self, line: &[u8]) -> Option<Push> {
        Log::decode(line)?.push(self.level?)
    }

    /// A note as progress, when it is further than all before it.
    fn noticed(&mut self, note: &[u8]) -> Option<Push> {
        let progress = view::progress(&Note::decode(note))?;
        let further = |sent: &Progress| progress.progress > sent.progress;
        self.sent
            .as_ref()
            .is_none_or(further)
            .then(|| self.send(progress))
            .flatten()
    }

    /// Progress that says no more than that the work goes on, so that a client that waits for some does not give
    /// up: further than all before it, and by so little that the next real one is further still.
    fn still(&mut self) -> Option<Push> {
        let progress = match &self.sent {
            Some(sent) => Progress {
                progress: (sent.progress + STILL).max(sent.progress.next_up()),
                ..sent.clone()
            },
            None => Progress {
                progress: 0.0,
                total: None,
                message: None,
            },
        };
        self.send(progress)
    }

    /// `None` for a client that wants no progress.
    fn send(&mut self, progress: Progress) -> Option<Push> {
        let token = self.token.clone()?;
        self.sent = Some(progress.clone());
        self.sent_at = Instant::now();
        Some(Push::Progress {
            token,
            progress,
            task: None,
        })
    }
}

/// What a step of progress is that says no more than that the work goes on.
const STILL: f64 = 1e-6;

impl Dispatch {
    /// The call waits for its client's next round; the oldest of too many waits no longer.
    async fn begin_round(&self, caller: &Caller, task: TaskId) -> Result<(), RpcError> {
        let inner = &self.inner;
        // Those that were answered elsewhere or have ended take no place.
        for waiting in inner.rounds.of(&caller.owner) {
            if self
                .row(waiting)
                .await?
                .is_none_or(|row| row.task.phase != Phase::Asking)
            {
                inner.rounds.end(&caller.owner, waiting);
            }
        }
        match inner.rounds.begin(&caller.owner, task, inner.settings.rounds_max) {
            Some(oldest) => self.dismiss(caller, oldest).await,
            None => Ok(()),
        }
    }

    fn seal_round(&self, caller: &Caller, row: &Row, digest: [u8; 32]) -> String {
        let inner = &self.inner;
        let state = State {
            task: row.id,
            digest,
            expires_at: inner.engine.now() + inner.settings.round_max,
            round: u32::try_from(row.task.questions.len()).unwrap_or(u32::MAX),
        };
        inner.states.seal(&state, &caller.owner, super::random())
    }
}

/// The reply to a call that ended while its caller waited.
pub(super) fn plain_reply(outcome: &Outcome) -> Reply {
    match outcome {
        Outcome::Returned { body, .. } => match body.bytes().map(Raw::parse_bytes) {
            Some(Ok(result)) => Reply::Result(result),
            Some(Err(_)) | None => Reply::Error(unreadable()),
        },
        Outcome::Errored { body } => Reply::Error(body.bytes().and_then(errored).unwrap_or_else(unreadable)),
        Outcome::Cancelled { by } => Reply::Error(RpcError::internal(
            "cancelled",
            longhaul_mcp::rpc_error::cancelled_text(*by),
        )),
        Outcome::Failed(
            reason @ (Reason::Interrupted
            | Reason::Expired
            | Reason::NoAnswer
            | Reason::NobodyToAnswer
            | Reason::Shutdown
            | Reason::UpstreamLost),
        ) => Reply::Error(RpcError::failed(*reason)),
    }
}

/// A JSON-RPC error as the tool gave it.
pub(super) fn errored(body: &[u8]) -> Option<RpcError> {
    let given: Obj = serde_json::from_slice(body).ok()?;
    let is_error = given.get::<i64>("code").is_some() && given.get::<String>("message").is_some();
    is_error.then(|| RpcError::passed_on(given))
}

fn unreadable() -> RpcError {
    RpcError::internal(
        "unreadable_result",
        "The stored result cannot be read; the server's log has the cause",
    )
}
