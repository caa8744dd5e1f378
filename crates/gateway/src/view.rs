//! A row as its owner sees it.
//!
//! Used by `dispatch`, `listen` and the local API, so that a get, a notification and the page never disagree
//! (C-33). Pure.

use longhaul_core::{Body, Millis, Outcome, Phase, Reason, Span};
use longhaul_mcp::{
    RequestId, TaskView,
    frame::Raw,
    reply::{OpenQuestion, Progress},
    request::{Answers, LogLevel},
};
use longhaul_store::Row;
use serde::{Deserialize, Serialize};

use crate::{
    outbound::Note,
    question::{Asker, Stored},
    sealed_id::Keys,
};

/// What the gateway stores beside a task's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// What the caller wants echoed (D-47).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Raw>,
    /// What the caller declared that it can be asked, at the call.
    #[serde(default)]
    pub answers: Declared,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What came beside the name and the arguments of a call that a server behind this one runs, as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Raw>,
    /// The tool of a server behind this one that the call is of. Its name in the row may be another's later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_tool: Option<ServerTool>,
    /// The call had no arguments at all, which is not the same as none in them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_arguments: bool,
    /// The session that the call came from, for servers behind this one that keep a process for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The least grave log messages that the caller said it wants, of a call that a server behind this one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevel>,
    /// Who is shown the task's progress, for as long as it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Wanted>,
}

/// A tool of a server behind this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServerTool {
    /// The server's name in the configuration.
    pub server: String,
    /// The tool's name at the server, as that writes it.
    pub tool: String,
}

/// The session that asked for progress, and the token under which it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The session's key.
    pub session: String,
    /// The client's token.
    pub token: RequestId,
}

impl Context {
    /// What is stored in this body; the default when it was not loaded.
    pub fn decode(body: &Body) -> Context {
        let stored = body.bytes().and_then(|bytes| serde_json::from_slice(bytes).ok());
        stored.unwrap_or_default()
    }
}

/// The kinds of question that a caller declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Forms.
    pub form: bool,
    /// Links.
    pub url: bool,
    /// Completions.
    pub sampling: bool,
    /// Workspace folders.
    pub roots: bool,
}

impl From<Answers> for Declared {
    fn from(answers: Answers) -> Declared {
        Declared {
            form: answers.form,
            url: answers.url,
            sampling: answers.sampling,
            roots: answers.roots,
        }
    }
}

impl From<Declared> for Answers {
    fn from(declared: Declared) -> Answers {
        Answers {
            form: declared.form,
            url: declared.url,
            sampling: declared.sampling,
            roots: declared.roots,
        }
    }
}

/// What poll intervals are hinted: often while a task is young, seldom when it is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The shortest.
    pub min: Span,
    /// The longest while a task is younger than 15 minutes.
    pub max: Span,
    /// From 15 minutes on.
    pub slow: Span,
}

impl Default for Poll {
    fn default() -> Poll {
        Poll {
            min: Span(500),
            max: Span::seconds(5),
            slow: Span::seconds(15),
        }
    }
}

impl Poll {
    /// When to ask again: after a tenth of the task's age, within the limits.
    fn hint(self, row: &Row, now: Millis) -> Span {
        let age = now.since(row.created_at);
        if age > Span::seconds(15 * 60) {
            return self.slow;
        }
        Span(age.0 / 10).min(self.max).max(self.min)
    }
}

/// A row with its bodies, as its owner sees it at `now`.
pub fn task(row: &Row, now: Millis, keys: &Keys, poll: Poll) -> TaskView {
    let note = Note::decode(&row.note);
    let context = Context::decode(&row.context);
    let asker = Asker::of(row);
    // C-29: what the call did not declare is asked elsewhere, on the page and the terminal.
    let questions: Vec<OpenQuestion> = Stored::open(&row.task)
        .filter(|(_, stored)| stored.kind.declared_by(context.answers.into()))
        .map(|(question, stored)| OpenQuestion {
            key: question.key,
            ask: stored.told(&asker),
        })
        .collect();
    let asks_elsewhere = row.task.phase == Phase::Asking && questions.is_empty();
    let waits = || format!("Waits for a person: longhaul answer {}", row.name);
    TaskView {
        id: keys.seal(row.id, &row.owner, row.created_at),
        name: row.name.clone(),
        phase: if asks_elsewhere {
            Phase::Working
        } else {
            row.task.phase.clone()
        },
        questions,
        created_at: row.created_at,
        updated_at: row.updated_at,
        ttl_ms: Some(row.task.expires_at.since(row.created_at).0.max(1)),
        poll_ms: Some(poll.hint(row, now).0),
        status_message: if asks_elsewhere {
            Some(waits())
        } else {
            note.message.clone()
        },
        progress: progress(&note),
        metadata: context.metadata,
    }
}

/// How far the work says it is.
pub fn progress(note: &Note) -> Option<Progress> {
    note.progress.map(|progress| Progress {
        progress,
        total: note.total,
        message: note.message.clone(),
    })
}

/// Whether the time to live of a task that had ended before is over: its owner reads that it has expired.
/// A task that was ended *by* its expiry stays readable until it is purged.
pub fn has_expired(row: &Row, now: Millis) -> bool {
    match &row.task.phase {
        Phase::Working | Phase::Asking | Phase::Finished(Outcome::Failed(Reason::Expired)) => false,
        Phase::Finished(
            Outcome::Returned { .. }
            | Outcome::Errored { .. }
            | Outcome::Cancelled { .. }
            | Outcome::Failed(
                Reason::Interrupted
                | Reason::NoAnswer
                | Reason::NobodyToAnswer
                | Reason::Shutdown
                | Reason::UpstreamLost,
            ),
        ) => now >= row.task.expires_at,
    }
}
