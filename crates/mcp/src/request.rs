//! What a client asks, in terms of no generation.
//!
//! The edge of a generation makes these values from frames; the gateway's dispatch acts on them. Nothing here
//! knows a protocol year, a header or a status code.

use std::fmt;

use longhaul_core::QuestionKey;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    frame::{Obj, Raw},
    header::Mirror,
    reply::Relays,
};

/// One frame from a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// It wants a reply.
    Request(Box<Incoming>),
    /// It wants none and never gets one.
    Notice(Notice),
    /// It replies to a request of ours: an answer to a question. Of sessions only.
    Answer(Answer),
}

/// A client's reply to a request of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The id of our request, as the client says it.
    pub id: RequestId,
    /// The result, or the error object.
    pub outcome: Result<Raw, Raw>,
}

/// A request and who sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// Echoed in the reply with the same JSON type.
    pub id: RequestId,
    /// What the client said about itself on this very request (B-2: nothing is remembered).
    pub client: Client,
    /// What it asks.
    pub request: Request,
    /// A header that clients must send was absent and the request is served all the same; the caller
    /// counts these and warns once.
    pub name_header_missing: bool,
}

/// A notification from a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The sender gave up waiting for one of its own requests (B-34). Never ends a task (C-31).
    Cancelled {
        /// The request.
        request: RequestId,
        /// Why, as the client says it.
        reason: Option<String>,
    },
    /// Anything else: taken and ignored.
    Ignored,
}

/// A JSON-RPC request id: a string or an integer, never null.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestId {
    /// A string.
    Text(String),
    /// An integer.
    Integer(i128),
}

impl Serialize for RequestId {
    /// The same JSON type as it came with.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RequestId::Text(text) => serializer.serialize_str(text),
            RequestId::Integer(number) => serializer.serialize_i128(*number),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestId, D::Error> {
        let value = Raw::deserialize(deserializer)?;
        crate::frame::request_id(&value).ok_or_else(|| D::Error::custom("neither a string nor an integer"))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Text(text) => f.write_str(text),
            RequestId::Integer(number) => write!(f, "{number}"),
        }
    }
}

/// Names a request in its progress notifications; chosen by the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct ProgressToken(pub RequestId);

/// What the client said about itself on one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// When it is handed a task in place of a result.
    pub takes: Takes,
    /// What it can be asked.
    pub answers: Answers,
    /// How it is asked while its call is no task.
    pub asked: Asked,
    /// The agent's run that the request belongs to (`dev.longhaul/session`).
    pub session: Option<String>,
    /// W3C trace context, passed on unread.
    pub traceparent: Option<String>,
    /// The program's own name. For people only: nothing is ever decided by it (B-7).
    pub name: Option<String>,
    /// The program's own version. For people only.
    pub version: Option<String>,
}

/// When a client is handed a task in place of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Takes {
    /// Never: it waits for the result, or for the reply that the work goes on (D-44).
    #[default]
    Never,
    /// When the call takes long; the server decides (C-1, C-3).
    WhenSlow,
    /// At once: this very call asked for a task.
    AtOnce,
}

/// How a client is asked while its call is no task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asked {
    /// In the reply; the client repeats the call with the answers (B-37).
    #[default]
    InReply,
    /// By a request of ours on an open stream.
    OnStream,
}

/// The kinds of question that a client can answer. None by default: nobody is asked what they did not offer
/// (B-39).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Forms.
    pub form: bool,
    /// Links to open.
    pub url: bool,
    /// Completions by the client's model.
    pub sampling: bool,
    /// Its workspace folders.
    pub roots: bool,
}

impl Answers {
    /// What a person can answer wherever a page can be shown: forms and links.
    pub const PERSONAL: Answers = Answers {
        form: true,
        url: true,
        sampling: false,
        roots: false,
    };
    /// Everything.
    pub const ALL: Answers = Answers {
        form: true,
        url: true,
        sampling: true,
        roots: true,
    };

    /// What is in both.
    #[must_use]
    pub fn within(self, other: Answers) -> Answers {
        Answers {
            form: self.form && other.form,
            url: self.url && other.url,
            sampling: self.sampling && other.sampling,
            roots: self.roots && other.roots,
        }
    }

    /// What is in either.
    #[must_use]
    pub fn or(self, other: Answers) -> Answers {
        Answers {
            form: self.form || other.form,
            url: self.url || other.url,
            sampling: self.sampling || other.sampling,
            roots: self.roots || other.roots,
        }
    }

    /// What is here and not there.
    #[must_use]
    pub fn without(self, other: Answers) -> Answers {
        Answers {
            form: self.form && !other.form,
            url: self.url && !other.url,
            sampling: self.sampling && !other.sampling,
            roots: self.roots && !other.roots,
        }
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Who are you, and what can you do?
    Discover,
    /// Are you there?
    Ping,
    /// Send this session's log messages from this level on.
    SetLogLevel(LogLevel),
    /// Which tools are there?
    ListTools {
        /// Where the page before ended. An empty one is a cursor too (B-53).
        cursor: Option<String>,
    },
    /// Call a tool.
    CallTool(CallTool),
    /// How is this task?
    GetTask {
        /// The sealed id, as it was sent: perhaps malformed, foreign or nobody's.
        task: String,
    },
    /// What came of this task? Waits until it has ended.
    TaskResult {
        /// The sealed id, as it was sent.
        task: String,
    },
    /// Which tasks do I have?
    ListTasks {
        /// Where the page before ended.
        cursor: Option<String>,
    },
    /// Answers to a task's questions.
    UpdateTask {
        /// The sealed id, as it was sent.
        task: String,
        /// The answers, in the order sent; keys that name no open question are ignored (C-25).
        responses: Vec<Response>,
    },
    /// End this task.
    CancelTask {
        /// The sealed id, as it was sent.
        task: String,
    },
    /// Tell me when something changes.
    Listen(Filter),
    /// Something that a server behind answers, and Longhaul only passes on.
    Relay(Relay),
}

impl Request {
    /// The task that it looks at, without waiting for anything.
    pub fn looks_at(&self) -> Option<&str> {
        match self {
            Request::GetTask { task } => Some(task),
            Request::Discover
            | Request::Ping
            | Request::ListTools { .. }
            | Request::ListTasks { .. }
            | Request::TaskResult { .. }
            | Request::Listen(_)
            | Request::Relay(_)
            | Request::SetLogLevel(_)
            | Request::CallTool(_)
            | Request::UpdateTask { .. }
            | Request::CancelTask { .. } => None,
        }
    }

    /// Whether it only reads, so that serving it twice is the same as serving it once.
    pub fn repeats(&self) -> bool {
        match self {
            Request::Discover
            | Request::Ping
            | Request::ListTools { .. }
            | Request::ListTasks { .. }
            | Request::GetTask { .. }
            | Request::TaskResult { .. }
            | Request::Listen(_)
            | Request::Relay(_) => true,
            Request::SetLogLevel(_)
            | Request::CallTool(_)
            | Request::UpdateTask { .. }
            | Request::CancelTask { .. } => false,
        }
    }
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CallTool {
    /// The tool.
    pub name: String,
    /// A JSON object as it was written; `None` when the client sent no arguments. Every number in it is a
    /// finite double (E-4).
    pub arguments: Option<Raw>,
    /// Answers to the questions of an earlier round of this call (B-40).
    pub responses: Vec<Response>,
    /// What the earlier round said must come back. The client can have forged it (B-41).
    pub request_state: Option<String>,
    /// How long the caller wishes the task to be kept, from its creation, in milliseconds; at least 1.
    pub ttl_ms: Option<u64>,
    /// Makes the call happen once (`dev.longhaul/idempotencyKey`); 1 to 200 characters.
    pub idempotency_key: Option<String>,
    /// The caller's own JSON object, kept and echoed to the task's owner (`dev.longhaul/metadata`, D-47); at
    /// most 4 KiB.
    pub metadata: Option<Raw>,
    /// The client wants progress on this call's own stream.
    pub progress_token: Option<ProgressToken>,
    /// The client wants log messages of at least this level on this call's own stream.
    pub log_level: Option<LogLevel>,
    /// Tasks that the call says it relates to, unchecked: foreign and unknown ones are treated as absent
    /// (C-51). At most 16.
    pub related_tasks: Vec<String>,
    /// The other members of the parameters as they were written, `_meta` whole: what a server behind is sent
    /// besides.
    pub rest: Obj,
}

impl CallTool {
    /// The parameters for the server that has the tool under `name`. Answers and state of an earlier round are
    /// Longhaul's own and not among them.
    pub fn params(&self, name: &str) -> Obj {
        call_params(name, self.arguments.as_ref(), self.rest.clone())
    }
}

/// As [`CallTool::params`], of a call that was stored in its parts.
pub fn call_params(name: &str, arguments: Option<&Raw>, rest: Obj) -> Obj {
    let mut params = Obj::default();
    params.set("name", name);
    params.set_some("arguments", arguments);
    params.0.extend(rest.0);
    params
}

/// A request that a server behind answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Relay {
    /// What is asked.
    pub method: RelayMethod,
    /// What it is asked of: this finds the server.
    pub subject: Subject,
    /// The parameters as they were written; `None` when there were none.
    pub params: Option<Obj>,
    /// The client wants progress on this request's own stream.
    pub progress_token: Option<ProgressToken>,
    /// The client wants log messages of at least this level on this request's own stream.
    pub log_level: Option<LogLevel>,
}

/// What a relayed request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A list, from this place on.
    List {
        /// Where the page before ended. An empty one is a cursor too (B-53).
        cursor: Option<String>,
    },
    /// A resource, or a template of some.
    Resource {
        /// Its URI.
        uri: String,
    },
    /// A prompt.
    Prompt {
        /// Its name.
        name: String,
    },
}

/// The methods that are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RelayMethod {
    /// Which resources are there?
    ListResources,
    /// Which kinds of resources are there?
    ListTemplates,
    /// What is in this resource?
    ReadResource,
    /// Tell me when this resource changes. Of sessions only.
    Subscribe,
    /// Do not tell me any more. Of sessions only.
    Unsubscribe,
    /// Which prompts are there?
    ListPrompts,
    /// What does this prompt say?
    GetPrompt,
    /// How could this argument go on?
    Complete,
}

impl RelayMethod {
    /// All of them.
    pub const ALL: [RelayMethod; 8] = [
        RelayMethod::ListResources,
        RelayMethod::ListTemplates,
        RelayMethod::ReadResource,
        RelayMethod::Subscribe,
        RelayMethod::Unsubscribe,
        RelayMethod::ListPrompts,
        RelayMethod::GetPrompt,
        RelayMethod::Complete,
    ];

    /// The method as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            RelayMethod::ListResources => "resources/list",
            RelayMethod::ListTemplates => "resources/templates/list",
            RelayMethod::ReadResource => "resources/read",
            RelayMethod::Subscribe => "resources/subscribe",
            RelayMethod::Unsubscribe => "resources/unsubscribe",
            RelayMethod::ListPrompts => "prompts/list",
            RelayMethod::GetPrompt => "prompts/get",
            RelayMethod::Complete => "completion/complete",
        }
    }

    /// Whether the reply says for how long it may be kept (B-51).
    pub fn is_cacheable(self) -> bool {
        match self {
            RelayMethod::ListResources
            | RelayMethod::ListTemplates
            | RelayMethod::ReadResource
            | RelayMethod::ListPrompts => true,
            RelayMethod::Subscribe
            | RelayMethod::Unsubscribe
            | RelayMethod::GetPrompt
            | RelayMethod::Complete => false,
        }
    }

    /// The method that is written so, where it is offered.
    pub(crate) fn offered(name: &str, relays: &Relays) -> Option<RelayMethod> {
        let method = RelayMethod::ALL
            .into_iter()
            .find(|method| method.as_str() == name)?;
        let is_offered = match method {
            RelayMethod::ListResources | RelayMethod::ListTemplates | RelayMethod::ReadResource => {
                relays.resources
            }
            RelayMethod::Subscribe | RelayMethod::Unsubscribe => relays.subscribe,
            RelayMethod::ListPrompts | RelayMethod::GetPrompt => relays.prompts,
            RelayMethod::Complete => relays.completions,
        };
        is_offered.then_some(method)
    }
}

/// What a tool demands of the frame that calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRule {
    /// The arguments that headers mirror.
    pub mirrors: Vec<Mirror>,
    /// A call always becomes a task, so the client must take tasks (C-5, A-41).
    pub requires_task: bool,
    /// A call never becomes a task, so a client that asks for one is refused.
    pub forbids_task: bool,
}

/// One answer: the key of a question, and a bare result object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// As it was sent.
    pub key: String,
    /// As it was sent; which kind of result it must be depends on the question.
    pub body: Raw,
}

impl Response {
    /// The question that the key names, if it is one of ours.
    pub fn question(&self) -> Option<QuestionKey> {
        let digits = self.key.strip_prefix('q')?;
        let key = QuestionKey(digits.parse().ok()?);
        (key.to_string() == self.key).then_some(key)
    }
}

/// What a listener wants to hear. Nothing is on unless it is asked for (B-45).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Changes of the list of tools.
    pub tools_list_changed: bool,
    /// Changes of the list of prompts.
    pub prompts_list_changed: bool,
    /// Changes of the list of resources.
    pub resources_list_changed: bool,
    /// Changes of these resources, by their URIs.
    pub resources: Vec<String>,
    /// Tasks by their sealed ids, as they were sent. `None`: tasks were not asked for, which is not the same as
    /// an empty list (C-36).
    pub tasks: Option<Vec<String>>,
}

/// How grave a log message is, by RFC 5424; the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Details for developers.
    Debug,
    /// What goes on.
    Info,
    /// Unusual but fine.
    Notice,
    /// May become a fault.
    Warning,
    /// A fault.
    Error,
    /// A part is down.
    Critical,
    /// Act now.
    Alert,
    /// Unusable.
    Emergency,
}
