//! `tools/call`: from the arguments to a result, a question, or a task.
//!
//! A call becomes a durable row before anything runs and before anybody is told. It starts hidden: when it ends
//! within `promote_after` its caller gets the plain result, as if there were no tasks. Otherwise the row is
//! shown, and a client that takes tasks is handed the task; another one waits on.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use longhaul_core::{
    Body, Millis, Outcome, Phase, QuestionKey, Reason, TaskId,
    decide::Birth,
    event::{Answer, Event},
    task::{CanAsk, QuestionState, Reader},
};
use longhaul_engine::transact::{Done, Opening, Proposal, Trail, Verdict};
use longhaul_mcp::{
    Client, Push, Reply, RpcError, canon,
    frame::Raw,
    reply::{InputRequest, TaskSupport},
    request::{Answers, CallTool, Response},
};
use longhaul_store::{Query, Row, Scope, Slot, Snapshot};

use super::{Dispatch, scope, store_reply};
use crate::{
    catalog::Entry,
    gate::{self, Action, Permit, View},
    identity::Caller,
    outbound::Note,
    question::{self, Stored, still_open},
    request_state::State,
    view::{self, Context},
};

/// How many short names a birth may choose from; that all are taken has the chance of a lottery win.
const NAMES: usize = 4;
/// The longest idempotency key that is looked at is bounded by the edge; its digest is what is stored.
const IDEM_DOMAIN: &[u8] = b"longhaul idempotency key\0";

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
    stream: Stream,
    promote: Pin<Box<dyn Future<Output = ()> + Send>>,
    promote_due: bool,
    shown: bool,
    replied: bool,
}

/// What travels on the call's own stream beside its reply.
struct Stream {
    token: Option<longhaul_mcp::request::ProgressToken>,
    log_level: Option<longhaul_mcp::request::LogLevel>,
    notes: longhaul_engine::notes::Notes,
    progress: f64,
}

/// The next thing that a call has for its client.
pub enum Step {
    /// Something beside the reply; more follows.
    Push(Push),
    /// The reply; nothing follows.
    Reply(Box<Reply>),
}

/// A call that may be taken.
struct Checked {
    entry: Arc<Entry>,
    arguments: Raw,
    digest: [u8; 32],
}

/// How a birth went.
enum Born {
    New,
    Same(TaskId),
    KeyReused,
    Refused(gate::Refusal),
    NoName,
}

impl Dispatch {
    pub(super) async fn call(
        &self,
        caller: &Caller,
        client: Client,
        call: CallTool,
    ) -> Result<Held, Box<Reply>> {
        let checked = self.checked(&client, &call)?;
        let task = match &call.request_state {
            Some(state) => self.resume(caller, state, checked.digest, &call.responses).await,
            None => self
                .birth(caller, &client, &call, &checked)
                .await
                .map(|(task, _)| task),
        };
        let task = task.map_err(|error| Box::new(Reply::Error(error)))?;
        Ok(self.hold(caller.clone(), client, checked, call, task))
    }

    /// Makes a task at once, for a caller that waits elsewhere. Tells whether it was there before.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        client: Client,
        call: CallTool,
    ) -> Result<(TaskId, bool), Box<Reply>> {
        let checked = self.checked(&client, &call)?;
        let error = |error: RpcError| Box::new(Reply::Error(error));
        let born = self
            .birth(caller, &client, &call, &checked)
            .await
            .map_err(error)?;
        self.show(born.0).await.map_err(error)?;
        Ok(born)
    }

    /// All that is looked at before the store is: the tool, what the client declared, the arguments.
    fn checked(&self, client: &Client, call: &CallTool) -> Result<Checked, Box<Reply>> {
        let error = |error: RpcError| Box::new(Reply::Error(error));
        let entry = self.inner.catalog.entry(&call.name).cloned();
        let entry = entry.ok_or_else(|| error(RpcError::unknown_tool(&call.name)))?;
        declared(&entry, client).map_err(error)?;
        let arguments = call.arguments.clone().unwrap_or_else(|| empty_object().clone());
        let misfits = entry.arguments.misfits(&arguments);
        if !misfits.is_empty() {
            return Err(Box::new(Reply::Result(misfit_result(&call.name, &misfits))));
        }
        let digest = call_digest(&call.name, &arguments).ok_or_else(|| {
            error(RpcError::invalid_params(
                "The arguments have no canonical form: see the limits on numbers",
            ))
        })?;
        Ok(Checked {
            entry,
            arguments,
            digest,
        })
    }

    /// Waits on a task that exists, as one more caller of its call.
    fn hold(&self, caller: Caller, client: Client, checked: Checked, call: CallTool, task: TaskId) -> Held {
        let promote = Duration::from_millis(checked.entry.promote_after.0);
        let offered = if call.request_state.is_none() {
            call.responses
        } else {
            Vec::new()
        };
        Held {
            stream: Stream {
                token: call.progress_token,
                log_level: call.log_level,
                notes: self.inner.engine.notes(task),
                progress: f64::NEG_INFINITY,
            },
            dispatch: self.clone(),
            caller,
            client,
            task,
            digest: checked.digest,
            entry: checked.entry,
            offered,
            promote: Box::pin(tokio::time::sleep(promote)),
            promote_due: false,
            shown: false,
            replied: false,
        }
    }

    /// Makes the row (T0). Equal calls under one idempotency key are one task.
    async fn birth(
        &self,
        caller: &Caller,
        client: &Client,
        call: &CallTool,
        checked: &Checked,
    ) -> Result<(TaskId, bool), RpcError> {
        let inner = &self.inner;
        let (entry, digest) = (&checked.entry, checked.digest);
        let id = inner.engine.task_id();
        let idem = call
            .idempotency_key
            .as_deref()
            .map(|key| idem_digest(&caller.owner, key));
        let scope = Scope {
            task: Slot::Birth {
                owner: caller.owner.clone(),
                idem,
                names: (0..NAMES).map(|_| super::short_name()).collect(),
            },
            ..Scope::default()
        };
        let context = Context {
            metadata: call.metadata.clone(),
            answers: client.answers.into(),
            traceparent: client.traceparent.clone(),
        };
        let opening = Opening {
            id,
            owner: caller.owner.clone(),
            kid: inner.keys.kid(),
            name: String::new(),
            tool: entry.listing.name.clone(),
            session: client.session.clone().unwrap_or_default(),
            origin: client.name.as_deref().map_or_else(
                || caller.origin.word().to_owned(),
                |name| longhaul_mcp::clean(name, ORIGIN_MAX),
            ),
            idem,
            digest,
            hidden: true,
            args: Body::new(checked.arguments.text().as_bytes()),
            context: Body::new(&serde_json::to_vec(&context).expect("a context always serializes")),
            note: Vec::new(),
            purge_after: Millis(0),
            birth: Birth {
                rules: entry.rules,
                // A local user always has a place to answer: the page and the terminal.
                can_ask: CanAsk {
                    client: true,
                    operator: false,
                },
                expires_at: Millis(0),
                approval: None,
            },
            records: BTreeMap::new(),
            counters: BTreeMap::new(),
            trail: Trail {
                trace: client.traceparent.clone().unwrap_or_default(),
                bytes: Some(checked.arguments.text().len() as u64),
                ..Trail::default()
            },
        };
        let settings = inner.settings.clone();
        let (owner, ttl) = (caller.owner.clone(), entry.ttl);
        let draining = self.is_draining();
        let judge = move |snapshot: &Snapshot| {
            if let Some(existing) = &snapshot.task {
                let same = existing.digest == digest || longhaul_core::fault!("idempotency_digest_ignored");
                return Verdict::Refuse(if same {
                    Born::Same(existing.id)
                } else {
                    Born::KeyReused
                });
            }
            let view = View {
                action: Action::Call,
                caller: &owner,
                task_owner: None,
                open_tasks: snapshot.open_tasks,
                open_max: settings.open_max,
                draining,
            };
            let permit = match gate::judge(&view) {
                Ok(permit) => permit,
                Err(refusal) => return Verdict::Refuse(Born::Refused(refusal)),
            };
            let Some(name) = snapshot.free_names.first() else {
                return Verdict::Refuse(Born::NoName);
            };
            let mut opening = opening.clone();
            opening.name.clone_from(name);
            opening.birth.expires_at = snapshot.now + ttl;
            opening.purge_after = if opening.idem.is_some() {
                opening.birth.expires_at + settings.expired_kept
            } else {
                snapshot.now + settings.answered_kept
            };
            open(permit, opening)
        };
        match inner
            .engine
            .transact(scope, Box::new(judge))
            .await
            .map_err(|error| store_reply(&error))?
        {
            Done::Committed(_, _) => Ok((id, false)),
            Done::Refused(Born::Same(existing)) => Ok((existing, true)),
            Done::Refused(Born::KeyReused) => Err(RpcError::invalid_params_because(
                "idempotency_key_reused",
                "The idempotency key was used before with another tool or other arguments",
            )),
            Done::Refused(Born::Refused(refusal)) => Err(refusal.reply()),
            Done::Refused(Born::NoName | Born::New) | Done::NotNow(..) => Err(RpcError::internal(
                "no_free_name",
                "No free short name was found; try again",
            )),
        }
    }

    /// Goes on with a call that asked before it was a task (B-40). Answers settle open questions; a retry that
    /// was sent twice settles nothing twice and gets the same reply.
    async fn resume(
        &self,
        caller: &Caller,
        state: &str,
        digest: [u8; 32],
        responses: &[Response],
    ) -> Result<TaskId, RpcError> {
        let bad = || {
            RpcError::invalid_params_because(
                "bad_request_state",
                "The request state is not valid for this call: begin the call anew",
            )
        };
        let opened = self
            .inner
            .states
            .open(state, &caller.owner, self.inner.engine.now())
            .ok_or_else(bad)?;
        if opened.digest != digest {
            return Err(bad());
        }
        let row = self.row(opened.task).await?.ok_or_else(bad)?;
        let view = View {
            action: Action::Update,
            caller: &caller.owner,
            task_owner: Some(&row.owner),
            open_tasks: 0,
            open_max: self.inner.settings.open_max,
            draining: false,
        };
        gate::judge(&view).map_err(gate::Refusal::reply)?;
        self.answer_labelled(&row, responses).await?;
        Ok(opened.task)
    }

    /// Settles the open questions that these answers name, by the tool's own names or by ours.
    ///
    /// # Errors
    /// An answer that does not fit. Nothing was applied, except that the misfit was counted.
    async fn answer_labelled(&self, row: &Row, responses: &[Response]) -> Result<bool, RpcError> {
        let mut answers = Vec::new();
        for (asked, stored) in Stored::open(&row.task) {
            let key = shown_key(asked.key, &stored);
            if let Some(response) = responses.iter().find(|response| response.key == key) {
                answers.push((asked.key, stored, response.clone()));
            }
        }
        let any = !answers.is_empty();
        self.settle(row, answers).await?;
        Ok(any)
    }

    /// Applies answers to open questions, all or none.
    pub(super) async fn settle(
        &self,
        row: &Row,
        answers: Vec<(QuestionKey, Stored, Response)>,
    ) -> Result<(), RpcError> {
        let mut events = Vec::new();
        let mut misfits = Vec::new();
        for (key, stored, response) in answers {
            match question::check(&stored, &response.body) {
                Ok(answer) => events.push((key, answer)),
                Err(misfit) => misfits.push((key, response.key, misfit)),
            }
        }
        if misfits.is_empty() {
            return self.apply_answers(row.id, events).await;
        }
        let keys: Vec<QuestionKey> = misfits.iter().map(|(key, _, _)| *key).collect();
        self.apply_misfits(row.id, keys).await?;
        let (_, key, misfit) = &misfits[0];
        let last = row.task.questions.iter().any(|asked| {
            asked.misfits + 1 >= MISFITS_MAX && misfits.iter().any(|(key, _, _)| *key == asked.key)
        });
        Err(misfit_reply(key, misfit, last))
    }

    async fn apply_answers(&self, task: TaskId, answers: Vec<(QuestionKey, Answer)>) -> Result<(), RpcError> {
        if answers.is_empty() {
            return Ok(());
        }
        let judge = move |snapshot: &Snapshot| {
            let Some(row) = &snapshot.task else {
                return Verdict::Refuse(());
            };
            let events: Vec<Event> = answers
                .iter()
                .filter(|(key, _)| still_open(&row.task, *key))
                .map(|(key, answer)| Event::Answered {
                    key: *key,
                    reader: Reader::Client,
                    answer: answer.clone(),
                })
                .collect();
            if events.is_empty() {
                return Verdict::Refuse(());
            }
            Verdict::Apply(
                Proposal {
                    events,
                    actor: "owner",
                    ..Proposal::default()
                },
                (),
            )
        };
        self.inner
            .engine
            .transact(scope(task), Box::new(judge))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(())
    }

    async fn apply_misfits(&self, task: TaskId, keys: Vec<QuestionKey>) -> Result<(), RpcError> {
        let judge = move |snapshot: &Snapshot| {
            let Some(row) = &snapshot.task else {
                return Verdict::Refuse(());
            };
            let events: Vec<Event> = keys
                .iter()
                .filter(|key| still_open(&row.task, **key))
                .map(|key| Event::Misfit {
                    key: *key,
                    reader: Reader::Client,
                })
                .collect();
            if events.is_empty() {
                return Verdict::Refuse(());
            }
            Verdict::Apply(
                Proposal {
                    events,
                    actor: "owner",
                    ..Proposal::default()
                },
                (),
            )
        };
        self.inner
            .engine
            .transact(scope(task), Box::new(judge))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(())
    }

    /// Hands the row out: from now on it is in every list, and is kept until its time to live is over.
    pub(super) async fn show(&self, task: TaskId) -> Result<(), RpcError> {
        let kept = self.inner.settings.expired_kept;
        let judge = move |snapshot: &Snapshot| match &snapshot.task {
            Some(row) if row.hidden => Verdict::Apply(
                Proposal {
                    shown: Some(row.task.expires_at + kept),
                    actor: "owner",
                    ..Proposal::default()
                },
                (),
            ),
            Some(_) | None => Verdict::Refuse(()),
        };
        self.inner
            .engine
            .transact(scope(task), Box::new(judge))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(())
    }

    pub(super) async fn row(&self, task: TaskId) -> Result<Option<Row>, RpcError> {
        let found = self
            .inner
            .engine
            .read(Query::Task(task))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(found.rows.into_iter().next())
    }
}

impl Held {
    /// Whether the client asked for something that needs a stream beside the reply, or may have to wait long.
    pub fn wants_stream(&self) -> bool {
        self.stream.token.is_some() || self.stream.log_level.is_some() || !self.client.tasks
    }

    /// The next thing for the client. Safe to drop and call again.
    pub async fn next(&mut self) -> Step {
        loop {
            match self.look().await {
                Ok(Looked::Step(step)) => return step,
                Ok(Looked::Again) => {}
                Ok(Looked::Wait { version }) => {
                    if let Some(push) = self.wait(version).await {
                        return Step::Push(push);
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
        if let Some(push) = self.stream.next_push() {
            return Ok(Looked::Step(Step::Push(push)));
        }
        match &row.task.phase {
            Phase::Finished(outcome) => {
                if self.client.tasks && !row.hidden {
                    return self.hand_out(&row).await;
                }
                let reply = plain_reply(outcome);
                Ok(Looked::Step(self.reply(reply)))
            }
            Phase::Asking => self.asked(&row).await,
            Phase::Working if self.becomes_task(&row) => self.hand_out(&row).await,
            Phase::Working => {
                if self.promote_due && !self.shown {
                    self.dispatch.show(self.task).await?;
                    self.shown = true;
                }
                Ok(Looked::Wait { version: row.version })
            }
        }
    }

    /// Whether it is time to hand out the task to a client that takes tasks.
    fn becomes_task(&self, row: &Row) -> bool {
        if !self.client.tasks || self.entry.listing.task_support == TaskSupport::Forbidden {
            return false;
        }
        let required = self.entry.listing.task_support == TaskSupport::Required;
        let asked_already = !row.task.questions.is_empty();
        self.promote_due || !row.hidden || (required && (!self.entry.asks_first || asked_already))
    }

    async fn hand_out(&mut self, row: &Row) -> Result<Looked, RpcError> {
        if row.hidden {
            self.dispatch.show(self.task).await?;
        }
        self.shown = true;
        let view = self.dispatch.view(row, self.dispatch.inner.engine.now());
        Ok(Looked::Step(self.reply(Reply::TaskCreated(view))))
    }

    /// The work asks while its call is still open.
    async fn asked(&mut self, row: &Row) -> Result<Looked, RpcError> {
        // Answers that came with the call are used once, as soon as the tool asks for them.
        if !self.offered.is_empty() {
            let offered = std::mem::take(&mut self.offered);
            if self.dispatch.answer_labelled(row, &offered).await? {
                return Ok(Looked::Again);
            }
        }
        let nothing_answered = row
            .task
            .questions
            .iter()
            .all(|asked| matches!(asked.state, QuestionState::Open { .. }));
        let before_task = self.entry.asks_first && row.hidden && nothing_answered;
        let takes_task = self.client.tasks && self.entry.listing.task_support != TaskSupport::Forbidden;
        if takes_task && !before_task {
            return self.hand_out(row).await;
        }
        let requests: Vec<InputRequest> = Stored::open(&row.task)
            .filter(|(_, stored)| stored.kind.declared_by(self.client.answers))
            .map(|(asked, stored)| InputRequest {
                key: shown_key(asked.key, &stored),
                ask: stored.request,
            })
            .collect();
        if requests.is_empty() {
            // This client cannot be asked; the page and the terminal can.
            if !self.shown {
                self.dispatch.show(self.task).await?;
                self.shown = true;
            }
            return Ok(Looked::Wait { version: row.version });
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
            note = self.stream.notes.next(), if self.stream.wants_notes() => self.stream.push(&note),
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
        let (dispatch, task) = (self.dispatch.clone(), self.task);
        runtime.spawn(async move {
            if dispatch.show(task).await.is_err() {
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
    fn wants_notes(&self) -> bool {
        self.token.is_some()
    }

    /// Progress that was noted and not yet sent.
    fn next_push(&mut self) -> Option<Push> {
        if !self.wants_notes() {
            return None;
        }
        while let Some(note) = self.notes.try_next() {
            if let Some(push) = self.push(&note) {
                return Some(push);
            }
        }
        None
    }

    /// A note as progress, when it is further than all before it.
    fn push(&mut self, note: &[u8]) -> Option<Push> {
        let token = self.token.clone()?;
        let progress = view::progress(&Note::decode(note))?;
        if progress.progress <= self.progress {
            return None;
        }
        self.progress = progress.progress;
        Some(Push::Progress { token, progress })
    }
}

impl Dispatch {
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

/// What a client must have declared for this tool (B-6, C-5).
fn declared(entry: &Entry, client: &Client) -> Result<(), RpcError> {
    if entry.listing.task_support == TaskSupport::Required && !client.tasks {
        return Err(RpcError::needs_tasks(format!(
            "Tool {} runs as a task only: declare the tasks extension",
            entry.listing.name
        )));
    }
    let missing = undeclared(entry.needs, client.answers);
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Tool {} needs what the client did not declare",
        entry.listing.name
    );
    Err(RpcError::missing_capability(
        message,
        &serde_json::Value::Object(missing),
    ))
}

/// What is needed and not declared, as a ClientCapabilities object.
fn undeclared(needs: Answers, declared: Answers) -> serde_json::Map<String, serde_json::Value> {
    let mut missing = serde_json::Map::new();
    let mut elicitation = serde_json::Map::new();
    if needs.form && !declared.form {
        elicitation.insert("form".to_owned(), serde_json::json!({}));
    }
    if needs.url && !declared.url {
        elicitation.insert("url".to_owned(), serde_json::json!({}));
    }
    if !elicitation.is_empty() {
        missing.insert("elicitation".to_owned(), elicitation.into());
    }
    if needs.sampling && !declared.sampling {
        missing.insert("sampling".to_owned(), serde_json::json!({}));
    }
    if needs.roots && !declared.roots {
        missing.insert("roots".to_owned(), serde_json::json!({}));
    }
    missing
}

/// Names a call: equal for the same tool with equal arguments, however they are spelled (E-3).
fn call_digest(tool: &str, arguments: &Raw) -> Option<[u8; 32]> {
    let name = serde_json::to_string(tool).ok()?;
    let call = Raw::parse(&format!("[{name},{}]", arguments.text())).ok()?;
    canon::digest(&call).ok()
}

fn open(_permit: Permit, opening: Opening) -> Verdict<Born> {
    Verdict::Open(Box::new(opening), Born::New)
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

/// Bad argument values are a result that the model can act on, not a protocol error (B-54).
fn misfit_result(tool: &str, misfits: &[String]) -> Raw {
    let text = format!("{tool}: the arguments do not fit.\n{}", misfits.join("\n"));
    Raw::of(&serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
        .expect("a JSON value always serializes")
}

fn misfit_reply(key: &str, misfit: &question::Misfit, last: bool) -> RpcError {
    let key = longhaul_mcp::clean(key, KEY_MAX);
    let place = if misfit.field.is_empty() {
        String::new()
    } else {
        format!(", field `{}`", misfit.field)
    };
    let end = if last {
        "; this was the third misfit, and the question counts as declined"
    } else {
        ""
    };
    RpcError::invalid_params_because(
        "answer_misfit",
        format!("The answer to `{key}` does not fit{place}: {}{end}", misfit.why),
    )
}

/// The key under which a question is shown while there is no task.
fn shown_key(key: QuestionKey, stored: &Stored) -> String {
    stored.label.clone().unwrap_or_else(|| key.to_string())
}

fn idem_digest(owner: &longhaul_store::Owner, key: &str) -> [u8; 32] {
    use sha2::Digest as _;
    let mut hash = sha2::Sha256::new();
    hash.update(IDEM_DOMAIN);
    hash.update(crate::sealed_id::owner_digest(owner));
    hash.update(key.as_bytes());
    hash.finalize().into()
}

fn empty_object() -> &'static Raw {
    static EMPTY: std::sync::LazyLock<Raw> =
        std::sync::LazyLock::new(|| Raw::parse("{}").expect("an empty object is JSON"));
    &EMPTY
}

/// The third answer that does not fit is a decline.
const MISFITS_MAX: u8 = 3;
/// The longest name of a client that is kept beside a task, in characters.
const ORIGIN_MAX: usize = 60;
/// The longest key that an error repeats, in characters.
const KEY_MAX: usize = 80;
