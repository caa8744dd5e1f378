//! The data of the local API, `/admin/v1`, as its JSON shows it.
//!
//! The command line and the local page read and write these; [`super::Backend`] makes them. Tasks are named by
//! their short names; neither row ids nor sealed ids appear. Members are only ever added: a reader ignores what
//! it does not know.

use longhaul_core::{
    Millis, Outcome as Ended, Phase, Reason, Run, Stop as Stopping, Task as Machine,
    task::{QuestionState, Reader},
};
use longhaul_store::Row;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::question::caller;

mod login;
mod servers;

pub use self::login::{At, LoggedOut, Login, LoginProgress};
pub use self::servers::{Server, ServerFailure, ServerState, Servers, Toolset};

/// The most tasks on one page of a list.
pub const LIST_MAX: u32 = 1_000;
/// The most questions of one task that are over and are told of.
pub const SETTLED_MAX: usize = 16;
/// Tasks on a page of a list when the caller names no number.
pub const LIST_DEFAULT: u32 = 50;

/// Which tasks `GET tasks` returns: the query string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// Only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<State>,
    /// Only those of this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Only those older than the task of this name (keyset paging).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// At most so many, 1 to [`LIST_MAX`]; [`LIST_DEFAULT`] when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// One page of tasks, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Pass as [`Filter::before`] for the next page, which may turn out empty; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One task as a person reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The short name.
    pub name: String,
    /// The tool.
    pub tool: String,
    /// The server behind that has the tool. Known while the task asks, and where one task is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The state.
    pub state: State,
    /// How the call came in: the client's own name, cleaned, when it gave one; else `client`, `cli` or `page`.
    pub origin: String,
    /// The session; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Rises with each change.
    pub version: u64,
    /// How often the work was begun.
    pub attempts: u32,
    /// When the task was born (milliseconds since the Unix epoch).
    pub created_at_ms: u64,
    /// When something that its client can see last changed.
    pub updated_at_ms: u64,
    /// When its time to live is over.
    pub expires_at_ms: u64,
    /// The server's time at this reading: ages are computed against it.
    pub now_ms: u64,
    /// The latest progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What it is doing, or how it ended, in one line; from the tool, so shown escaped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// What is known of the work after the task was ended from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// What is left of its program, while it is being ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// The last lines of what its program wrote on its standard output so far; text from outside. Known while it runs, where
    /// one task is read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// The same of its standard error. A server behind writes there for all its calls.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Why Longhaul itself ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The open questions that its owner may answer, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// How the questions before these ended, oldest first; of many, the newest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Settled>,
}

/// What is left of a program that is being ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// How many of its processes were seen since its end began.
    pub seen: u32,
    /// How many of them still live.
    pub alive: u32,
    /// Those that still live, the oldest first; of many, some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<Process>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// The name that it gives itself; text from outside.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl Left {
    /// How far the end is, in words: `2 of 3 processes gone`.
    pub fn words(&self) -> String {
        let gone = self.seen.saturating_sub(self.alive);
        let processes = if self.seen == 1 { "process" } else { "processes" };
        format!("{gone} of {} {processes} gone", self.seen)
    }
}

/// A question that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Its key within the task.
    pub key: String,
    /// How it ended.
    pub how: How,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It was answered.
    Given,
    /// Somebody said no, its time was over, or three answers did not fit.
    Declined,
    /// Somebody closed it, or its time was over.
    Dismissed,
    /// Nobody waits for an answer any more.
    Withdrawn,
}

impl How {
    /// What somebody reads whose answer comes too late.
    pub const fn words(self) -> &'static str {
        match self {
            How::Given => "the question was answered already: the first answer counts",
            How::Declined => "the question was declined already, by somebody or because its time was over",
            How::Dismissed => "the question was closed already, by somebody or because its time was over",
            How::Withdrawn => "the question was taken back: nobody waits for an answer any more",
        }
    }

    fn of(state: &QuestionState) -> Option<How> {
        match state {
            QuestionState::Open { .. } => None,
            QuestionState::Given { .. } => Some(How::Given),
            QuestionState::Declined => Some(How::Declined),
            QuestionState::Dismissed => Some(How::Dismissed),
            QuestionState::Withdrawn => Some(How::Withdrawn),
        }
    }
}

/// What the bodies of a row say of its task.
#[derive(Debug)]
pub struct Read {
    /// The server behind that has the tool.
    pub server: Option<String>,
    /// The latest progress.
    pub progress: Option<Progress>,
    /// What it is doing, or how it ended.
    pub status: String,
    /// The open questions that its owner may answer.
    pub questions: Vec<Question>,
}

/// The state of a task in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for an operator's approval.
    Held,
    /// Waits for its turn.
    Queued,
    /// At work.
    Running,
    /// Has an open question.
    Asking,
    /// Ended from outside; its work is being stopped.
    Stopping,
    /// Returned a result.
    Done,
    /// Ended in an error, or returned a result that the tool calls an error.
    Failed,
    /// Ended from outside; nothing more is owed.
    Cancelled,
    /// The process that ran the work ended, and it was not run again: the outcome is unknown.
    Lost,
}

/// What is known of the work after the task was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It never began.
    NotStarted,
    /// It was told to stop; that it did is not confirmed.
    Stopping,
    /// Nothing of it is left.
    Stopped,
    /// It may still live.
    Unknown,
}

/// How far the work is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// So far.
    pub done: f64,
    /// In all, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// A line from the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One open question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Question {
    /// Its key within the task: `q1`, `q2`, ….
    pub key: String,
    /// What is asked; from the tool, so shown escaped.
    pub message: String,
    /// The form to fill in: a flat JSON Schema object. Absent when only consent is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Box<RawValue>>,
    /// An address to open, for a question in URL mode; shown in full, never fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The part of the address that somebody registered: who has it decides what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// What a person should know before the address is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Its deadline (milliseconds since the Unix epoch).
    pub until_ms: u64,
    /// Answers so far that did not fit, 0 to 2; the third is a decline.
    pub misfits: u8,
}

/// `POST tasks/{name}/answer`: one answer to one question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Which question; may be absent when exactly one is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What the person chose to do.
    pub action: Action,
    /// The filled-in form, for [`Action::Accept`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Box<RawValue>>,
}

/// What a person does with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Answers it.
    Accept,
    /// Says no.
    Decline,
    /// Closes it without choosing (`action: cancel` on the wire).
    Dismiss,
}

/// `POST run`: a call of a tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The tool.
    pub tool: String,
    /// Its arguments: a JSON object.
    pub arguments: Box<RawValue>,
    /// Equal calls under one key are one task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The session that the call belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The reply to [`Call`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// The task.
    pub task: Task,
    /// No new task began: this one was already there under the same key.
    #[serde(default)]
    pub joined: bool,
}

/// `GET tasks/{name}/result`: how a finished task ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The short name.
    pub name: String,
    /// The state.
    pub state: State,
    /// A `CallToolResult`, byte for byte as it is stored, when the tool returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// A JSON-RPC error object, when the call ended in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
    /// Why Longhaul itself ended it: `interrupted`, `expired`, `no_answer`, `no_one_to_answer`, `shutdown`,
    /// `upstream_tasks_lost`; or who cancelled it: `owner`, `operator`, `session`, `loop`, `approval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET tools`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tools {
    /// The tools, by name.
    pub tools: Vec<Tool>,
}

/// One tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The name that always means it: of a tool of a server, `server__tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_name: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Box<RawValue>,
    /// `fail`, `rerun` or `resume`.
    pub on_crash: String,
}

/// `GET health`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Health {
    /// Longhaul's version.
    pub version: String,
    /// The server's process id.
    pub pid: u32,
    /// When it started (milliseconds since the Unix epoch).
    pub started_at_ms: u64,
    /// The server's time.
    pub now_ms: u64,
    /// It takes no new work and will end.
    pub draining: bool,
    /// The files of the configuration that it read when it started, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<String>,
    /// The program that tells the user of questions that no client shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notices: Option<String>,
    /// Why nothing tells the user of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_notices: Option<String>,
    /// The address of the MCP endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
    /// `memory`, `sqlite` or `postgres`.
    pub store: String,
    /// The store's schema.
    pub schema: u32,
    /// Task rows in the store.
    pub tasks: u64,
    /// Open tasks.
    pub open: u64,
    /// Audit records.
    pub audit: u64,
    /// The store's bytes on disk; 0 when it cannot tell.
    pub bytes: u64,
    /// What is wrong, in words for a person; empty when all is well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// `POST page`: a link to the local page that works once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Open {
    /// The task whose question to show; absent for the overview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// The reply to [`Open`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The address.
    pub url: String,
    /// For how long it works.
    pub valid_ms: u64,
}

/// The body of every reply that is not a success.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The error.
    pub error: super::Error,
}

impl State {
    /// The word that people read.
    pub const fn word(self) -> &'static str {
        match self {
            State::Held => "held",
            State::Queued => "queued",
            State::Running => "running",
            State::Asking => "asking",
            State::Stopping => "stopping",
            State::Done => "done",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Lost => "lost",
        }
    }

    /// Every state, in the order in which a task goes through them.
    pub const ALL: [State; 9] = [
        State::Held,
        State::Queued,
        State::Running,
        State::Asking,
        State::Stopping,
        State::Done,
        State::Failed,
        State::Cancelled,
        State::Lost,
    ];

    /// The state of a task in the core's terms.
    pub fn of(machine: &Machine) -> State {
        match &machine.phase {
            Phase::Asking => State::Asking,
            Phase::Working => match machine.run {
                Run::Held => State::Held,
                Run::Queued { .. } | Run::Leased(_) => State::Queued,
                Run::Running(_) | Run::Parked | Run::Stopping(_) | Run::StopOwed | Run::Idle => {
                    State::Running
                }
            },
            Phase::Finished(outcome) => match outcome {
                Ended::Returned { is_error: false, .. } => State::Done,
                Ended::Returned { is_error: true, .. } | Ended::Errored { .. } => State::Failed,
                Ended::Cancelled { .. } if machine.run != Run::Idle => State::Stopping,
                Ended::Cancelled { .. } => State::Cancelled,
                Ended::Failed(Reason::Interrupted) => State::Lost,
                Ended::Failed(
                    Reason::Expired
                    | Reason::NoAnswer
                    | Reason::NobodyToAnswer
                    | Reason::Shutdown
                    | Reason::UpstreamLost,
                ) => State::Failed,
            },
        }
    }

    /// Whether the task has ended for its client; its work may still be stopping.
    pub const fn is_finished(self) -> bool {
        match self {
            State::Held | State::Queued | State::Running | State::Asking => false,
            State::Stopping | State::Done | State::Failed | State::Cancelled | State::Lost => true,
        }
    }

    /// Whether nothing about the task will change any more.
    pub const fn is_settled(self) -> bool {
        self.is_finished() && !matches!(self, State::Stopping)
    }
}

impl Task {
    /// Who called, for the person whose tasks these are: `you`, or what the MCP client calls itself. Text from
    /// outside.
    pub fn caller(&self) -> &str {
        caller(&self.origin)
    }

    /// The row as a person reads it. `read` is what the gateway reads out of the row's bodies; nothing else here is
    /// opaque.
    pub fn of(row: &Row, now: Millis, read: Read) -> Task {
        let machine = &row.task;
        Task {
            name: row.name.clone(),
            tool: row.tool.clone(),
            server: read.server,
            state: State::of(machine),
            origin: row.origin.clone(),
            session: row.session.clone(),
            version: row.version,
            attempts: machine.starts,
            created_at_ms: row.created_at.0,
            updated_at_ms: row.updated_at.0,
            expires_at_ms: machine.expires_at.0,
            now_ms: now.0,
            progress: read.progress,
            status: read.status,
            stop: match machine.stop {
                Stopping::None => None,
                Stopping::NotStarted => Some(Stop::NotStarted),
                Stopping::Stopping => Some(Stop::Stopping),
                Stopping::Stopped => Some(Stop::Stopped),
                Stopping::Unknown => Some(Stop::Unknown),
            },
            left: None,
            stdout: String::new(),
            stderr: String::new(),
            reason: reason(&machine.phase).map(str::to_owned),
            questions: read.questions,
            settled: settled(machine),
        }
    }
}

fn settled(machine: &Machine) -> Vec<Settled> {
    let own = machine
        .questions
        .iter()
        .filter(|question| question.reader == Reader::Client);
    let settled = own.filter_map(|question| {
        Some(Settled {
            key: question.key.to_string(),
            how: How::of(&question.state)?,
        })
    });
    let settled: Vec<Settled> = settled.collect();
    settled[settled.len().saturating_sub(SETTLED_MAX)..].to_vec()
}

/// The word for why Longhaul, or somebody else than the tool, ended a task.
pub fn reason(phase: &Phase) -> Option<&'static str> {
    match phase {
        Phase::Working | Phase::Asking => None,
        Phase::Finished(Ended::Returned { .. } | Ended::Errored { .. }) => None,
        Phase::Finished(Ended::Cancelled { by }) => Some(by.name()),
        Phase::Finished(Ended::Failed(reason)) => Some(reason.name()),
    }
}
