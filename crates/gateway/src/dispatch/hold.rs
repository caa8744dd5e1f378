//! How long a caller without a task is held, and what it is told in place of the result (D-44).
//!
//! `held` asks at each look whether the time is over. The texts are read by a model: the first line says what is
//! so, the second what to do.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use longhaul_core::{Millis, Phase, QuestionKey, Span, Task, TaskId};
use longhaul_mcp::{Reply, RpcError, clean, frame::Raw, reply::TaskSupport, request::Takes};
use longhaul_store::Row;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, Sleep};

use super::{
    Dispatch, Held,
    held::Looked,
    join::{Counted, Mark, Name},
    leave::Left,
};
use crate::{
    catalog::{Entry, Holding},
    config::{Hold, OnAbandon, ShowSchema, WAIT_TOOL},
    identity::Caller,
    outbound::Note,
    question::Stored,
};

/// How long callers without a task are held.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Where the client wants no progress (`tasks.hold`).
    pub plain: Span,
    /// Where it does (`tasks.hold_with_progress`).
    pub with_progress: Span,
    /// In place of the two and of what is learned (`tasks.hold_max`).
    pub fixed: Option<Span>,
    /// After how long without progress the client is sent some that says that the work goes on
    /// (`server.keep_alive`).
    pub quiet: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            plain: Span::seconds(25),
            with_progress: Span::seconds(4 * 60),
            fixed: None,
            quiet: Duration::from_secs(15),
        }
    }
}

/// What a held call goes by: its tool's rules, or those of a wait by name.
pub(super) struct Terms {
    pub(super) task_support: TaskSupport,
    pub(super) asks_first: bool,
    pub(super) promote_after: Duration,
    pub(super) holding: Holding,
    /// The caller saw an output schema that the still-running reply does not fit.
    schema_seen: bool,
    /// Equal calls find this one.
    joins: bool,
    /// A server behind this one runs it.
    pub(super) is_relayed: bool,
}

impl Terms {
    pub(super) fn of_call(entry: &Entry, takes: Takes, joins: bool) -> Terms {
        Terms {
            task_support: entry.listing.task_support,
            asks_first: entry.asks_first,
            promote_after: Duration::from_millis(entry.promote_after.0),
            holding: entry.holding,
            schema_seen: entry.listed(takes).output_schema.is_some(),
            joins,
            is_relayed: entry.server_tool.is_some(),
        }
    }

    pub(super) fn of_wait(joins: bool) -> Terms {
        Terms {
            task_support: TaskSupport::Forbidden,
            asks_first: false,
            promote_after: Duration::MAX,
            holding: Holding {
                hold: Hold::Auto,
                join: joins,
                on_abandon: OnAbandon::Finish,
                show_schema: ShowSchema::Never,
            },
            schema_seen: false,
            joins,
            is_relayed: false,
        }
    }
}

/// How a caller came to wait for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Its own call began it.
    Own,
    /// An equal call began it.
    Joined,
    /// It named the task to `longhaul_wait`, and was told of it so often before.
    ByName { since: u64 },
}

/// What a held caller was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// No reply, or none that settles anything.
    Nothing,
    /// Questions: it comes back with the answers.
    Round,
    /// That the work goes on.
    StillRunning,
    /// The result, the error that the call ended in, or the task.
    Result,
    /// The same, and it arrived.
    Delivered,
}

/// One caller's stay with a call.
pub(super) struct Stay {
    pub(super) waits: Waits,
    pub(super) told: Told,
    /// How the caller leaves, if it does.
    pub(super) left: Left,
    /// The record under which equal calls find this one.
    pub(super) join: Option<Name>,
    /// The result is on its way to a caller that came back for it.
    pub(super) on_its_way: Option<Counted>,
    began: Instant,
    limit: Option<Pin<Box<Sleep>>>,
    is_over: bool,
    /// The newest question that this caller need not be told of.
    pub(super) knows: QuestionKey,
}

impl Stay {
    /// A caller that has waited since `began`, for `limit` at the most.
    pub(super) fn new(waits: Waits, began: Instant, limit: Option<Span>) -> Stay {
        let sleep = |limit: Span| Box::pin(tokio::time::sleep_until(began + Duration::from_millis(limit.0)));
        Stay {
            waits,
            told: Told::Nothing,
            left: Left::Gone,
            join: None,
            on_its_way: None,
            began,
            limit: limit.map(sleep),
            is_over: false,
            knows: QuestionKey(0),
        }
    }

    pub(super) fn lasted(&self) -> Duration {
        self.began.elapsed()
    }

    /// Resolves once, when the limit is reached; never without one. Safe to drop and call again.
    pub(super) async fn limit(&mut self) {
        match &mut self.limit {
            Some(limit) if !self.is_over => {
                limit.await;
                self.is_over = true;
            }
            Some(_) | None => std::future::pending().await,
        }
    }
}

/// The newest question of each task that a caller without a task was told of, so that a wait for the answer is not
/// told of it again. Forgotten with the process: then one caller is told twice.
#[derive(Default)]
pub(super) struct Known(Mutex<BTreeMap<TaskId, QuestionKey>>);

/// The most tasks of which the newest question is remembered; the oldest are forgotten first.
const KNOWN_MAX: usize = 10_000;

impl Known {
    fn get(&self, task: TaskId) -> QuestionKey {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&task).copied().unwrap_or(QuestionKey(0))
    }

    fn set(&self, task: TaskId, newest: QuestionKey) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(task, newest);
        while known.len() > KNOWN_MAX {
            known.pop_first();
        }
    }
}

impl Dispatch {
    /// How long this caller is held under these terms; `None` for as long as it takes. What is written counts before
    /// what is learned, and what is written for this client first.
    pub(super) async fn hold_limit(
        &self,
        caller: &Caller,
        terms: &Terms,
        takes: Takes,
        with_progress: bool,
    ) -> Option<Span> {
        match (takes, terms.holding.hold) {
            (Takes::WhenSlow | Takes::AtOnce, Hold::Auto | Hold::Exact) | (Takes::Never, Hold::Exact) => None,
            (Takes::Never, Hold::Auto) => {
                let limits = self.inner.settings.hold;
                if let Some(written) = caller.hold.or(limits.fixed) {
                    return Some(written);
                }
                let unknown = if with_progress {
                    limits.with_progress
                } else {
                    limits.plain
                };
                Some(
                    self.learned(&caller.owner, with_progress)
                        .await
                        .unwrap_or(unknown),
                )
            }
        }
    }

    /// The newest question of a task that a caller of this kind need not be told of.
    pub(super) fn known_question(&self, task: TaskId, waits: Waits) -> QuestionKey {
        match waits {
            Waits::Own | Waits::ByName { since: 0 } => QuestionKey(0),
            Waits::Joined | Waits::ByName { .. } => self.inner.known.get(task),
        }
    }
}

impl Held {
    /// Whatever the caller waits for may last longer than its client does: at the limit it is told so.
    pub(super) async fn within_limit(&mut self, row: &Row, looked: Looked) -> Result<Looked, RpcError> {
        match looked {
            Looked::Wait { .. } if self.stay.is_over => self.still_running(row).await,
            Looked::Wait { .. } | Looked::Again | Looked::Step(_) => Ok(looked),
        }
    }

    /// The work asks what this client cannot be asked; the page and the terminal can. The caller is told of each
    /// question once, and then waits for what comes of it.
    pub(super) async fn asked_elsewhere(&mut self, row: &Row) -> Result<Looked, RpcError> {
        let may_tell = self.client.takes == Takes::Never && self.terms.holding.hold == Hold::Auto;
        if may_tell && newest(&row.task) > self.stay.knows {
            return self.still_running(row).await;
        }
        if row.hidden {
            self.show(Mark::Kept).await?;
        }
        Ok(Looked::Wait { version: row.version })
    }

    async fn still_running(&mut self, row: &Row) -> Result<Looked, RpcError> {
        self.show(Mark::Left).await?;
        let inner = &self.dispatch.inner;
        inner.known.set(row.id, newest(&row.task));
        let since = match self.stay.waits {
            Waits::Own | Waits::Joined => 1,
            Waits::ByName { since } => since.saturating_add(1),
        };
        let told = Telling {
            row,
            now: inner.engine.now(),
            since,
            wait_tool: inner.settings.wait_tool,
            joins: self.terms.joins,
        };
        let reply = told.reply(self.terms.schema_seen);
        Ok(Looked::Step(self.reply(reply, Told::StillRunning)))
    }
}

/// The newest question of a task.
fn newest(task: &Task) -> QuestionKey {
    let keys = task.questions.iter().map(|question| question.key);
    keys.max().unwrap_or(QuestionKey(0))
}

/// What is told of a task whose result is not there yet.
pub(super) struct Telling<'a> {
    pub(super) row: &'a Row,
    pub(super) now: Millis,
    /// How often its caller has been told, this time included.
    pub(super) since: u64,
    pub(super) wait_tool: bool,
    /// An equal call waits for this task.
    pub(super) joins: bool,
}

impl Telling<'_> {
    /// A caller that saw an output schema gets an error, since both official clients refuse every other result
    /// that does not fit the schema (D-44).
    fn reply(&self, schema_seen: bool) -> Reply {
        let content = json!([{ "type": "text", "text": self.text() }]);
        let result = if schema_seen {
            json!({ "content": content, "isError": true })
        } else {
            json!({ "content": content, "structuredContent": self.structured(), "isError": false })
        };
        Reply::Result(Raw::of(&result).expect("a JSON value always serializes"))
    }

    fn text(&self) -> String {
        let Row { name, tool, .. } = self.row;
        let wait = format!(r#"{{"task":"{name}","since":{}}}"#, self.since);
        let again =
            format!("Calling {tool} again with the same arguments also waits; it starts nothing new.");
        if self.row.task.phase == Phase::Asking {
            let then = match (self.wait_tool, self.joins) {
                (true, _) => format!("Then {WAIT_TOOL} {wait}."),
                (false, true) => again,
                (false, false) => String::new(),
            };
            let asked = asked(&self.row.task);
            return format!(
                "WAITING FOR AN ANSWER (not an error). {tool} asks{asked}\n\
                 Tell the user: longhaul answer {name}, or the local page. {then}"
            )
            .trim_end()
            .to_owned();
        }
        let how = match (self.wait_tool, self.joins) {
            (true, true) => format!("Wait for it: {WAIT_TOOL} {wait}. {again}"),
            (true, false) => {
                format!("Wait for it: {WAIT_TOOL} {wait}. Calling {tool} again would start it a second time.")
            }
            (false, true) => again,
            (false, false) => format!(
                "Its result: longhaul tasks result {name}. Calling {tool} again would start it a second time."
            ),
        };
        format!(
            "STILL RUNNING (not an error). {tool}: {}. It goes on if this chat closes.\n{how}",
            standing(self.row, self.now)
        )
    }

    fn structured(&self) -> Value {
        let mut told = Map::new();
        told.insert("task".to_owned(), self.row.name.as_str().into());
        let state = if self.row.task.phase == Phase::Asking {
            "asking"
        } else {
            "running"
        };
        told.insert("state".to_owned(), state.into());
        told.insert("since".to_owned(), self.since.into());
        told.insert("tool".to_owned(), self.row.tool.as_str().into());
        told.insert("ageMs".to_owned(), self.now.since(self.row.created_at).0.into());
        let note = Note::decode(&self.row.note);
        for (name, value) in [("progress", note.progress), ("total", note.total)] {
            if let Some(value) = value {
                told.insert(name.to_owned(), value.into());
            }
        }
        if let Some(message) = note.message {
            told.insert("message".to_owned(), message.into());
        }
        Value::Object(told)
    }
}

/// What a person is asked, as a part of a sentence.
fn asked(task: &Task) -> String {
    #[derive(serde::Deserialize)]
    struct Request {
        params: Params,
    }
    #[derive(serde::Deserialize)]
    struct Params {
        message: String,
    }
    let asked = Stored::open(task)
        .filter(|(_, stored)| stored.kind.answered_by_people())
        .find_map(|(_, stored)| stored.request.read::<Request>().ok());
    match asked {
        Some(request) => format!(": {}", clean(&request.params.message, ASKED_MAX)),
        None => " for something.".to_owned(),
    }
}

/// How far the work is: `4 min 12 s, 61 %, 214 of 350, linking`.
pub(super) fn standing(row: &Row, now: Millis) -> String {
    let mut text = age(now.since(row.created_at));
    let note = Note::decode(&row.note);
    if let Some(progress) = note.progress {
        match note.total {
            Some(total) => {
                let percent = (progress / total * 100.0).clamp(0.0, 100.0).floor();
                let _ = write!(text, ", {percent} %, {progress} of {total}");
            }
            None => {
                let _ = write!(text, ", {progress} so far");
            }
        }
    }
    if let Some(message) = &note.message {
        let _ = write!(text, ", {}", clean(message, MESSAGE_MAX));
    }
    text
}

/// `8 s`, `4 min 12 s`, `2 h 5 min`, `3 d 4 h`.
pub(super) fn age(span: Span) -> String {
    let seconds = span.0 / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (_, _, _) => format!("{days} d {} h", hours % 24),
    }
}

/// The most of a question that a model is shown, in characters.
const ASKED_MAX: usize = 500;
/// The most of a tool's own message that is shown in one line, in characters.
const MESSAGE_MAX: usize = 200;
