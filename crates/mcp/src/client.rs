//! The client half: how Longhaul speaks to a server behind it, in either generation.
//!
//! [`Dial`] finds out how a server speaks, [`Outgoing`] writes requests to it, [`incoming`] and [`sse`] read what
//! it sends, [`tools`] and [`list`] read its lists, [`result`] says what came of a call, and [`task`] what became of
//! one that the server made a task. The gateway moves the bytes and measures the time. Nothing here opens anything or
//! remembers one request for the next.

pub mod dial;
pub mod incoming;
pub mod list;
pub mod outgoing;
pub mod result;
pub mod sse;
pub mod task;
pub mod tools;

pub use dial::{Dial, Spoken};
pub use incoming::{Incoming, read};
pub use outgoing::{Outgoing, Sent};

pub use crate::v2025_11_25::Version;
use crate::{
    frame::Obj,
    meta,
    request::{Answers, LogLevel, RequestId},
    rpc_error::RpcError,
    shape, v2026_07_28 as stateless,
};

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Every request stands for itself.
    Stateless,
    /// In a session, or over a pipe for as long as it lives, in this version.
    Session(Version),
}

impl Era {
    /// The version of the protocol, as it is written.
    pub fn version(self) -> &'static str {
        match self {
            Era::Stateless => stateless::VERSION,
            Era::Session(version) => version.as_str(),
        }
    }

    /// The generation.
    pub fn kind(self) -> Kind {
        match self {
            Era::Stateless => Kind::Stateless,
            Era::Session(_) => Kind::Sessions,
        }
    }
}

/// A generation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every request stands for itself.
    Stateless,
    /// A session begins with `initialize`.
    Sessions,
}

impl Kind {
    /// How an operator and a store name it: the year of its newest version.
    pub fn year(self) -> &'static str {
        let version = match self {
            Kind::Stateless => stateless::VERSION,
            Kind::Sessions => Version::LATEST.as_str(),
        };
        version.split_once('-').map_or(version, |(year, _)| year)
    }

    /// The one that is named so.
    pub fn of_year(year: &str) -> Option<Kind> {
        [Kind::Stateless, Kind::Sessions]
            .into_iter()
            .find(|kind| kind.year() == year)
    }
}

/// What carries frames to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Lines on a pipe.
    Pipe,
    /// HTTP requests.
    Http,
}

/// What Longhaul says about itself to a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// The name of the program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What can be asked of it: a ClientCapabilities object. It never offers to run tasks (D-33).
    pub capabilities: Obj,
}

impl Hello {
    /// Longhaul itself, with these capabilities; a wish to be sent tasks is not among them (D-33).
    pub fn own(mut capabilities: Obj) -> Hello {
        drop(capabilities.take("tasks"));
        Hello {
            name: "longhaul".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities,
        }
    }

    fn info(&self) -> Obj {
        let mut info = Obj::default();
        info.set("name", &self.name);
        info.set("version", &self.version);
        info
    }

    /// The three members of `_meta` that stand on every stateless request (B-4).
    fn introduce(&self, members: &mut Obj) {
        members.set(meta::PROTOCOL_VERSION, stateless::VERSION);
        members.set(meta::CLIENT_INFO, &self.info().to_raw());
        members.set(meta::CLIENT_CAPABILITIES, &self.capabilities.to_raw());
    }
}

/// The capabilities of a client that can be asked this much (A-70, D-29), for [`Hello::own`].
pub fn capabilities(answers: Answers) -> Obj {
    let mut capabilities = Obj::default();
    if answers.form || answers.url {
        capabilities.edit("elicitation", |modes| {
            if answers.form {
                modes.edit("form", |_| {});
            }
            if answers.url {
                modes.edit("url", |_| {});
            }
        });
    }
    if answers.sampling {
        capabilities.edit("sampling", |_| {});
    }
    if answers.roots {
        capabilities.edit("roots", |_| {});
    }
    capabilities
}

/// What a server that was told these capabilities may ask: the other way of [`capabilities`].
pub fn answers(capabilities: &Obj) -> Answers {
    meta::answers(capabilities)
}

/// Adds to a client's capabilities that it takes tasks, which a stateless server is told with each request (C-1).
pub fn take_tasks(capabilities: &mut Obj) {
    capabilities.edit("extensions", |extensions| {
        extensions.edit(meta::TASKS_EXTENSION, |_| {});
    });
}

/// The headers of what is sent in a session without a frame, such as the request for its stream.
pub fn session_headers(version: Version) -> Vec<(String, String)> {
    outgoing::version_header(Era::Session(version))
}

/// The notification that a request's reply is no longer waited for (A-32, B-34). Over HTTP a stateless request is
/// cancelled by closing its stream, and `initialize` never is.
pub fn cancelled(request: &RequestId, reason: &str, era: Era) -> Sent {
    let mut params = Obj::default();
    params.set("requestId", request);
    params.set("reason", reason);
    Sent {
        frame: shape::notification("notifications/cancelled", &params),
        headers: outgoing::headers(era, "notifications/cancelled"),
    }
}

/// The answer to a request of a session's server; to a ping it is empty.
pub fn answer(id: &RequestId, result: &Obj, version: Version) -> Sent {
    Sent {
        frame: shape::result_frame(id, result),
        headers: outgoing::version_header(Era::Session(version)),
    }
}

/// The refusal of a request of a session's server.
pub fn refuse(id: &RequestId, error: &RpcError, version: Version) -> Sent {
    Sent {
        frame: shape::error_frame(error, Some(id)),
        headers: outgoing::version_header(Era::Session(version)),
    }
}

/// Makes the parameters of a request those of its next round (B-40): with these answers, and the state that came with the
/// questions, if one did.
pub fn answer_round(params: &mut Obj, answers: &Obj, state: Option<&str>) {
    params.set("inputResponses", &answers.to_raw());
    drop(params.take("requestState"));
    if let Some(state) = state {
        params.set("requestState", state);
    }
}

/// The parameters of `subscriptions/listen` (B-45), for [`Outgoing`].
pub fn listen(tools: bool, prompts: bool, resources: bool, uris: &[String]) -> Obj {
    let mut wanted = Obj::default();
    for (member, is_wanted) in [
        ("toolsListChanged", tools),
        ("promptsListChanged", prompts),
        ("resourcesListChanged", resources),
    ] {
        if is_wanted {
            wanted.set(member, &true);
        }
    }
    if !uris.is_empty() {
        wanted.set("resourceSubscriptions", uris);
    }
    listen_to(&wanted)
}

/// The parameters of `subscriptions/listen` for these tasks of the server (C-38), for [`Outgoing`].
pub fn listen_to_tasks(tasks: &[String]) -> Obj {
    let mut wanted = Obj::default();
    wanted.set("taskIds", tasks);
    listen_to(&wanted)
}

fn listen_to(wanted: &Obj) -> Obj {
    let mut params = Obj::default();
    params.set("notifications", &wanted.to_raw());
    params
}

/// The parameters of a request about one resource, for [`Outgoing`].
pub fn about_resource(uri: &str) -> Obj {
    let mut params = Obj::default();
    params.set("uri", uri);
    params
}

/// The parameters of `logging/setLevel`, for [`Outgoing`].
pub fn set_level(level: LogLevel) -> Obj {
    let mut params = Obj::default();
    params.set("level", &level);
    params
}
