//! A call that was taken: what its client gets, and when.

use std::{pin::Pin, sync::Arc, time::Duration};

use longhaul_core::{Outcome, Phase, Reason, TaskId, task::QuestionState};
use longhaul_mcp::{
    Client, Push, Reply, RpcError,
    frame::Raw,
    reply::{InputRequest, TaskSupport},
    request::{CallTool, Response, Takes},
};
use longhaul_store::Row;

use super::{
    Dispatch,
    answers::{fits, shown},
    call::Checked,
};
use crate::{catalog::Entry, identity::Caller, outbound::Note, quota::Place, request_state::State, view};

/// A call that was taken and whose reply is to come. Dropping it leaves the work going on, as a task that its
/// owner finds in every list.
pub struct Held {
    dispatch: Dispatch,
    caller: Caller,
    client: Client,
    task: TaskId,
    digest: [u8; 32],
    entry: Arc<Entry>,
    offered: Vec<Response>,
    stream: Option<Stream>,
    _place: Place,
    promote: Pin<Box<dyn Future<Output = ()> + Send>>,
    promote_due: bool,
    shown: bool,
    replied: bool,
}

/// What travels on the call's own stream beside its reply: progress, for a client that gave a token (B-55).
struct Stream {
    token: longhaul_mcp::request::ProgressToken,
    notes: longhaul_engine::notes::Notes,
    progress: f64,
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
    pub(super) fn hold(
        &self,
        caller: Caller,
        client: Client,
        checked: Checked,
        call: CallTool,
        task: TaskId,
        place: Place,
    ) -> Held {
        let promote = Duration::from_millis(checked.entry.promote_after.0);
        let offered = if call.request_state.is_none() {
            call.responses
        } else {
            Vec::new()
        };
        Held {
            stream: call.progress_token.map(|token| Stream {
                token,
                notes: self.inner.engine.notes(task),
                progress: f64::NEG_INFINITY,
            }),
            dispatch: self.clone(),
            caller,
            client,
            task,
            digest: checked.digest,
            entry: checked.entry,
            offered,
            _place: place,
            promote: Box::pin(tokio::time::sleep(promote)),
            promote_due: false,
            shown: false,
            replied: false,
        }
    }
}

impl Held {
    /// Whether the client asked for something that needs a stream beside the reply, or may have to wait long.
    pub fn wants_stream(&self) -> bool {
        self.stream.is_some() || self.client.takes == Takes::Never
    }

    /// The next thing for the client. Safe to drop and call again.
    pub async fn next(&mut self) -> Step {
        loop {
            match self.look().await {
                Ok(Looked::Step(step)) => return step,
                Ok(Looked::Again) => {}
                Ok(Looked::Wait { version }) => {
                    if let Some(push) = self.wait(version).await {
                        return Step::Push(Box::new(push));
                    }
                }
                Err(error) => return self.reply(Reply::Error(error)),
            }
        }
    }

    /// The last reply of the call, whatever it takes; pushes are dropped.
    pub async fn finish(mut self) -> Reply {
        loop {
            if let Step::Reply(reply) = self.next().await {
                return *reply;
            }
        }
    }

    async fn look(&mut self) -> Result<Looked, RpcError> {
        let Some(row) = self.dispatch.row(self.task).await? else {
            return Err(RpcError::task_expired());
        };
        if let Some(push) = self.stream.as_mut().and_then(Stream::noted) {
            return Ok(Looked::Step(Step::Push(Box::new(push))));
        }
        match &row.task.phase {
            Phase::Finished(outcome) => {
                if self.client.takes != Takes::Never && !row.hidden {
                    return self.hand_out(&row).await;
                }
                let reply = plain_reply(outcome);
                Ok(Looked::Step(self.reply(reply)))
            }
            Phase::Asking => self.asked(&row).await,
            Phase::Working if self.becomes_task(&row) => self.hand_out(&row).await,
            Phase::Working => {
                if self.promote_due && !self.shown {
                    self.dispatch.show(&self.caller, self.task).await?;
                    self.shown = true;
                }
                Ok(Looked::Wait { version: row.version })
            }
        }
    }

    /// Whether it is time to hand out the task to a client that takes tasks.
    fn becomes_task(&self, row: &Row) -> bool {
        if self.client.takes == Takes::Never || self.entry.listing.task_support == TaskSupport::Forbidden {
            return false;
        }
        let required = self.entry.listing.task_support == TaskSupport::Required;
        let asked_already = !row.task.questions.is_empty();
        self.promote_due || !row.hidden || (required && (!self.entry.asks_first || asked_already))
    }

    async fn hand_out(&mut self, row: &Row) -> Result<Looked, RpcError> {
        if row.hidden {
            self.dispatch.show(&self.caller, self.task).await?;
        }
        self.shown = true;
        let view = self.dispatch.view(row, self.dispatch.inner.engine.now());
        Ok(Looked::Step(self.reply(Reply::TaskCreated(view))))
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
        let before_task = self.entry.asks_first && row.hidden && nothing_answered;
        let takes_task =
            self.client.takes != Takes::Never && self.entry.listing.task_support != TaskSupport::Forbidden;
        if takes_task && !before_task {
            return self.hand_out(row).await;
        }
        let requests: Vec<InputRequest> = shown(&row.task)
            .into_iter()
            .filter(|(_, _, stored)| stored.kind.declared_by(self.client.answers))
            .map(|(key, _, stored)| InputRequest {
                key,
                ask: stored.request,
            })
            .collect();
        if requests.is_empty() && takes_task {
            return self.hand_out(row).await;
        }
        if requests.is_empty() {
            // This client cannot be asked; the page and the terminal can.
            if !self.shown {
                self.dispatch.show(&self.caller, self.task).await?;
                self.shown = true;
            }
            return Ok(Looked::Wait { version: row.version });
        }
        if row.hidden {
            self.dispatch.begin_round(&self.caller, row.id).await?;
        }
        let state = self.dispatch.seal_round(&self.caller, row, self.digest);
        Ok(Looked::Step(self.reply(Reply::InputRequired {
            requests,
            state: Some(state),
        })))
    }

    /// Waits until the row is newer than `version`, the call is due to become a task, or there is something for
    /// its stream.
    async fn wait(&mut self, version: u64) -> Option<Push> {
        let changed = self.dispatch.inner.engine.changed(self.task, version);
        tokio::select! {
            _ = changed => None,
            () = &mut self.promote, if !self.promote_due => {
                self.promote_due = true;
                None
            }
            push = Stream::next(self.stream.as_mut()) => Some(push),
        }
    }

    fn reply(&mut self, reply: Reply) -> Step {
        self.replied = true;
        Step::Reply(Box::new(reply))
    }
}

impl Drop for Held {
    /// The client went away before its reply: the work goes on, and its owner finds it in every list (D-40).
    fn drop(&mut self) {
        if self.replied || self.shown {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (dispatch, caller, task) = (self.dispatch.clone(), self.caller.clone(), self.task);
        runtime.spawn(async move {
            if dispatch.show(&caller, task).await.is_err() {
                tracing::warn!(
                    "a call whose client left could not be shown as a task; it is kept for a shorter time"
                );
            }
        });
    }
}

/// What a look at the row led to.
enum Looked {
    Step(Step),
    Again,
    Wait { version: u64 },
}

impl Stream {
    /// The next progress. Waits for ever when there is none, or no stream; safe to drop and call again.
    async fn next(stream: Option<&mut Stream>) -> Push {
        let Some(stream) = stream else {
            return std::future::pending().await;
        };
        loop {
            let note = stream.notes.next().await;
            if let Some(push) = stream.push(&note) {
                return push;
            }
        }
    }

    /// Progress that was noted and not yet sent.
    fn noted(&mut self) -> Option<Push> {
        while let Some(note) = self.notes.try_next() {
            if let Some(push) = self.push(&note) {
                return Some(push);
            }
        }
        None
    }

    /// A note as progress, when it is further than all before it.
    fn push(&mut self, note: &[u8]) -> Option<Push> {
        let progress = view::progress(&Note::decode(note))?;
        if progress.progress <= self.progress {
            return None;
        }
        self.progress = progress.progress;
        Some(Push::Progress {
            token: self.token.clone(),
            progress,
            task: None,
        })
    }
}

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
fn plain_reply(outcome: &Outcome) -> Reply {
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
fn errored(body: &[u8]) -> Option<RpcError> {
    #[derive(serde::Deserialize)]
    struct Given {
        code: i64,
        message: String,
        data: Option<Raw>,
    }
    let given: Given = serde_json::from_slice(body).ok()?;
    Some(RpcError::relayed(given.code, given.message, given.data))
}

fn unreadable() -> RpcError {
    RpcError::internal(
        "unreadable_result",
        "The stored result cannot be read; the server's log has the cause",
    )
}
