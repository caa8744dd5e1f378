//! What a client is told, in terms of no generation.
//!
//! The gateway's dispatch makes these values after its commit; each edge shows them in its own shapes. Nothing
//! here is read from a client.

use longhaul_core::{Millis, Phase, QuestionKey};

use crate::{
    frame::{Obj, Raw},
    request::{Filter, LogLevel, ProgressToken, RequestId},
    rpc_error::RpcError,
};

/// The one reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`crate::Request::Discover`].
    Discover(Discovery),
    /// To [`crate::Request::ListTools`].
    Tools(ToolPage),
    /// The result of a call, as the tool gave it: a JSON object.
    Result(Raw),
    /// Questions before there is a task; the client repeats the call with the answers (B-37).
    InputRequired {
        /// What is asked.
        requests: Vec<InputRequest>,
        /// Comes back with the answers; sealed by the caller (B-41). At least one of the two is there (B-38).
        state: Option<String>,
    },
    /// The call became a task. Only for clients that take tasks (C-2).
    TaskCreated(TaskView),
    /// To [`crate::Request::GetTask`].
    Task(TaskView),
    /// To [`crate::Request::TaskResult`]: a task that has ended, with the bodies of its outcome.
    Outcome(TaskView),
    /// To [`crate::Request::ListTasks`].
    Tasks(TaskPage),
    /// To [`crate::Request::CancelTask`]: taken, or the task had ended before.
    Cancelled {
        /// The task as it is now.
        task: TaskView,
        /// It was live when the request came (A-56, K-6).
        was_open: bool,
    },
    /// To [`crate::Request::UpdateTask`], [`crate::Request::Ping`] and [`crate::Request::SetLogLevel`]: taken, and
    /// nothing more (C-24).
    Ack,
    /// The orderly end of a [`crate::Request::Listen`] (B-49).
    ListenEnded,
    /// To [`crate::Request::Relay`]: the result that a server behind gave.
    Relayed {
        /// A JSON object as it was written.
        result: Raw,
        /// How the reply may be cached where the server does not say; `None` for methods whose replies are not
        /// cached ([`crate::request::RelayMethod::is_cacheable`]).
        cache: Option<Cache>,
    },
    /// No.
    Error(RpcError),
}

impl Reply {
    /// The error that this is, if it is one.
    pub fn error(&self) -> Option<&RpcError> {
        match self {
            Reply::Error(error) => Some(error),
            Reply::Discover(_)
            | Reply::Tools(_)
            | Reply::Result(_)
            | Reply::InputRequired { .. }
            | Reply::TaskCreated(_)
            | Reply::Task(_)
            | Reply::Outcome(_)
            | Reply::Tasks(_)
            | Reply::Cancelled { .. }
            | Reply::Ack
            | Reply::ListenEnded
            | Reply::Relayed { .. } => None,
        }
    }
}

/// Something that travels to a client beside replies.
#[derive(Clone, Debug, PartialEq)]
pub enum Push {
    /// The first message of a subscription: the part of its filter that is honoured (B-46).
    Acknowledged(Filter),
    /// A task that the client follows, exactly as a get would show it now (C-33, A-59).
    Task(TaskView),
    /// The list of tools changed, for a subscription that asked.
    ToolsChanged,
    /// The list of prompts changed.
    PromptsChanged,
    /// The list of resources changed.
    ResourcesChanged,
    /// A resource changed that the client subscribed to.
    ResourceUpdated {
        /// Which.
        uri: String,
    },
    /// Progress of a call, for a client that gave a token (B-55, A-34).
    Progress {
        /// The client's token.
        token: ProgressToken,
        /// How far the work is.
        progress: Progress,
        /// The sealed id of the task that the call became.
        task: Option<String>,
    },
    /// A question to a session's client, as a request of ours.
    Question {
        /// The id of our request.
        id: RequestId,
        /// `{"method": …, "params": …}`.
        ask: Raw,
        /// The sealed id of the task that asks, when the client was handed one.
        task: Option<String>,
    },
    /// A question that was sent needs no answer any more (D-22).
    Withdrawn {
        /// The id of our request.
        id: RequestId,
    },
    /// A log message of a call on its own stream, for a client that set a level (B-55).
    Log {
        /// How grave.
        level: LogLevel,
        /// Who says it.
        logger: Option<String>,
        /// What.
        data: Raw,
    },
}

/// What the server is and offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The tasks extension is offered.
    pub tasks: bool,
    /// A session's client may list its own tasks.
    pub tasks_list: bool,
    /// Listeners are told when the list of tools changes.
    pub tools_change: bool,
    /// Log messages of a call are sent to clients that set a level.
    pub logging: bool,
    /// What there is beside tools.
    pub relays: Relays,
    /// For the model: how to use the server.
    pub instructions: Option<String>,
    /// For people: what one server behind is called, where clients see no other.
    pub title: Option<String>,
    /// How the reply may be cached.
    pub cache: Cache,
}

/// What servers behind offer beside tools. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relays {
    /// There are prompts.
    pub prompts: bool,
    /// Listeners are told when their list changes.
    pub prompts_change: bool,
    /// There are resources.
    pub resources: bool,
    /// Listeners are told when their list changes.
    pub resources_change: bool,
    /// Clients are told when a resource changes that they subscribed to.
    pub subscribe: bool,
    /// Arguments of prompts and templates can be completed.
    pub completions: bool,
}

impl Relays {
    /// What is in either.
    #[must_use]
    pub fn or(self, other: Relays) -> Relays {
        Relays {
            prompts: self.prompts || other.prompts,
            prompts_change: self.prompts_change || other.prompts_change,
            resources: self.resources || other.resources,
            resources_change: self.resources_change || other.resources_change,
            subscribe: self.subscribe || other.subscribe,
            completions: self.completions || other.completions,
        }
    }
}

/// How a reply may be cached (B-51).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// For how long, in milliseconds; 0 for not at all.
    pub ttl_ms: u64,
    /// For whom.
    pub scope: CacheScope,
}

/// Who may share a cached reply (B-52).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// Only the same caller: the reply depends on who asks.
    Private,
    /// Everybody.
    Public,
}

/// One page of the list of tools.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolPage {
    /// The tools, in an order that does not change by itself (B-53).
    pub tools: Vec<Tool>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How the page may be cached; all pages of one list share the scope.
    pub cache: Cache,
}

/// One page of a caller's tasks, the newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskPage {
    /// The tasks, without what they ask and how they ended.
    pub tasks: Vec<TaskView>,
    /// Where the next page begins, if there is one; opaque to the client.
    pub next_cursor: Option<String>,
}

/// A tool as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// 1–128 of `A–Z a–z 0–9 _ - .` (B-60).
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// For the model.
    pub description: Option<String>,
    /// A JSON Schema whose root is `type: object`.
    pub input_schema: Raw,
    /// A JSON Schema of the structured result.
    pub output_schema: Option<Raw>,
    /// What the operator says of its effects.
    pub annotations: Annotations,
    /// Whether a call becomes a task.
    pub task_support: TaskSupport,
    /// The definition of the server behind, as it wrote it. It is listed whole, but for the name, the output schema
    /// and the support of tasks, which are as said above; the other members above are then not shown.
    pub relayed: Option<Obj>,
}

/// Hints about a tool's effects. `None`: nothing is said, and the client assumes the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Calling it twice with the same arguments changes nothing more.
    pub idempotent: Option<bool>,
    /// It reaches the outside world.
    pub open_world: Option<bool>,
}

/// Whether a call of a tool becomes a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskSupport {
    /// Never.
    Forbidden,
    /// When the call takes long and the client takes tasks.
    #[default]
    Optional,
    /// Always; a client that takes none is refused (C-5).
    Required,
}

/// One question as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// Unique within the call (B-39).
    pub key: String,
    /// `{"method": …, "params": …}`: an elicitation, a sampling or a roots request.
    pub ask: Raw,
}

/// A task as its owner sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// The sealed id.
    pub id: String,
    /// The short name (`dev.longhaul/taskName`).
    pub name: String,
    /// The phase, with the bodies of its outcome loaded. [`Reply::TaskCreated`] needs no bodies.
    pub phase: Phase,
    /// Every open question to the client, oldest first (C-20); what they ask is loaded.
    pub questions: Vec<OpenQuestion>,
    /// When the call was taken.
    pub created_at: Millis,
    /// When something visible last changed (D-11).
    pub updated_at: Millis,
    /// How long the task is kept, counted from `created_at`; at least 1. `None`: without end.
    pub ttl_ms: Option<u64>,
    /// How long to wait before asking again; at least 1.
    pub poll_ms: Option<u64>,
    /// What to show while the task is open, or what it said at its end. Without one, a task that Longhaul
    /// ended still tells why.
    pub status_message: Option<String>,
    /// How far the work is (`dev.longhaul/progress`, D-47).
    pub progress: Option<Progress>,
    /// What the caller asked to keep (`dev.longhaul/metadata`, D-47).
    pub metadata: Option<Raw>,
}

/// An open question of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    /// Its number within the task, shown as `q1`, `q2`, ….
    pub key: QuestionKey,
    /// `{"method": …, "params": …}`: an elicitation, a sampling or a roots request.
    pub ask: Raw,
}

/// How far some work is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Grows with every report; finite.
    pub progress: f64,
    /// What `progress` will be at the end, if that is known; finite.
    pub total: Option<f64>,
    /// In words.
    pub message: Option<String>,
}
