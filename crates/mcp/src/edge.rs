//! Both generations behind one door: which one a frame belongs to, and how its client is answered.
//!
//! The gateway's transports call this module and no edge of a year. It keeps nothing between two frames: what a
//! session agreed is handed in as its [`Peer`].

pub use crate::v2025_11_25::{Opening, Peer, Version};
use crate::{
    frame::Frame,
    header::{self, Headers},
    malformed::{Malformed, Rule},
    meta,
    reply::{Discovery, Push, Relays, Reply},
    request::{Message, RequestId, ToolRule},
    rpc_error::RpcError,
    scan::Limits,
    shape, v2025_11_25 as sessions, v2026_07_28 as stateless,
};

/// What is offered, as far as the form of a frame depends on it.
#[derive(Clone, Copy)]
pub struct Offer<'a> {
    /// Calls may become tasks, and without a session the methods of tasks are served. A session's open tasks
    /// stay readable without.
    pub tasks: bool,
    /// A session's client may list its own tasks: its caller is identified.
    pub tasks_list: bool,
    /// What there is beside tools.
    pub relays: Relays,
    /// Refuse a request about a task that lacks its `Mcp-Name`, instead of serving it.
    pub strict_headers: bool,
    /// For the scan.
    pub limits: Limits,
    /// The rules of the tool of this name; `None` when there is no such tool, which is not judged here.
    pub tool: &'a dyn Fn(&str) -> Option<&'a ToolRule>,
}

/// The shapes in which a client is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Every request stands for itself.
    Stateless,
    /// The request belongs to a session that agreed on this version.
    Session(Version),
}

impl Edge {
    /// The frame of a reply to the request `id`.
    pub fn render(self, reply: &Reply, id: &RequestId) -> Vec<u8> {
        match self {
            Edge::Stateless => stateless::render(reply, id),
            Edge::Session(version) => sessions::render(reply, id, version),
        }
    }

    /// The frame of a message beside replies, on the stream of the request `stream`; empty for what this client
    /// is never told, which is not sent.
    pub fn push(self, push: &Push, stream: &RequestId) -> Vec<u8> {
        match self {
            Edge::Stateless => stateless::push(push, stream),
            Edge::Session(version) => sessions::push(push, version),
        }
    }

    /// The HTTP status of a reply.
    pub fn status(self, reply: &Reply) -> u16 {
        match self {
            Edge::Stateless => stateless::status(reply),
            Edge::Session(_) => sessions::status(reply),
        }
    }

    /// The frame that answers a malformed one.
    pub fn malformed(self, malformed: &Malformed) -> Vec<u8> {
        error(&malformed.rule.error(), malformed.id.as_ref())
    }

    /// The HTTP status of that answer.
    pub fn malformed_status(self, malformed: &Malformed) -> u16 {
        match self {
            Edge::Stateless => malformed.rule.status(),
            Edge::Session(_) => malformed.rule.session_status(),
        }
    }
}

/// The frame of an error, the same for every client; without an id when the request's could not be read, or
/// where there was no request.
pub fn error(error: &RpcError, id: Option<&RequestId>) -> Vec<u8> {
    shape::error_frame(error, id)
}

/// Which edge a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// Every request stands for itself. Also what does not say: it is refused for what it lacks (K-15).
    Stateless,
    /// It opens a session.
    Opens,
    /// It belongs to the session that its header names, or to that of its pipe.
    Session,
    /// It speaks a version that has sessions, and names none.
    SessionMissing,
}

impl Belongs {
    /// The shapes in which the frame is answered; `peer` is that of its session, if there is one.
    pub fn edge(self, peer: Option<&Peer>) -> Edge {
        match self {
            Belongs::Stateless => Edge::Stateless,
            Belongs::Opens | Belongs::Session | Belongs::SessionMissing => {
                Edge::Session(peer.map_or(Version::LATEST, |peer| peer.version))
            }
        }
    }
}

/// What came in.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// A session begins; the reply is [`opened`].
    Open(Opening),
    /// All else.
    Message(Message),
}

/// Which edge a frame belongs to, in the order of wire B.2: `_meta` and the version header first, even for
/// `initialize` (K-14, Q-28, Q-29). `headers` are those of the HTTP request, `None` on a pipe; `peer` is that of
/// a pipe's session, once it has one. Versions are dates and compare as text.
pub fn of(headers: Option<&Headers>, frame: &Frame, peer: Option<&Peer>) -> Belongs {
    let version = headers.and_then(|headers| headers.one(header::VERSION).ok().flatten());
    if names_a_version(frame) || version.is_some_and(|version| version >= stateless::VERSION) {
        return Belongs::Stateless;
    }
    if headers.is_none() && peer.is_some() {
        return Belongs::Session;
    }
    if matches!(frame, Frame::Request { method, .. } if method == "initialize") {
        return Belongs::Opens;
    }
    if headers.is_some_and(|headers| headers.has("mcp-session-id")) {
        return Belongs::Session;
    }
    if version.and_then(Version::parse).is_some() {
        return Belongs::SessionMissing;
    }
    Belongs::Stateless
}

fn names_a_version(frame: &Frame) -> bool {
    match frame {
        Frame::Request { params, .. } | Frame::Notification { params, .. } => params
            .as_ref()
            .and_then(|params| params.obj("_meta"))
            .is_some_and(|meta| meta.raw(meta::PROTOCOL_VERSION).is_some()),
        Frame::Response { .. } => false,
    }
}

/// Reads a frame on the edge that it belongs to. `peer` is that of its session.
///
/// # Errors
/// The first rule that the frame breaks; for [`Belongs::SessionMissing`], and for a session without a `peer`,
/// that it names none.
pub fn receive(
    headers: Option<&Headers>,
    frame: Frame,
    belongs: Belongs,
    peer: Option<&Peer>,
    offer: &Offer<'_>,
) -> Result<Received, Malformed> {
    match (belongs, peer, frame) {
        (Belongs::Stateless, _, frame) => stateless::parse(headers, frame, offer).map(Received::Message),
        (Belongs::Opens, _, Frame::Request { id, params, .. }) => {
            sessions::open(id, params.as_ref()).map(Received::Open)
        }
        (Belongs::Session, Some(peer), frame) => {
            if let Some(Err(rule)) = headers.map(check_version_header) {
                let id = frame.id().cloned();
                return Err(Malformed { id, rule });
            }
            sessions::parse(frame, peer, offer).map(Received::Message)
        }
        (Belongs::Opens | Belongs::Session | Belongs::SessionMissing, _, frame) => Err(Malformed {
            id: frame.id().cloned(),
            rule: Rule::SessionMissing,
        }),
    }
}

/// Checks the version header of a request of a session. It may be absent.
///
/// # Errors
/// It is malformed, or names no version that sessions have: HTTP status 400.
pub fn check_version_header(headers: &Headers) -> Result<(), Rule> {
    match headers.one(header::VERSION) {
        Ok(None) => Ok(()),
        Ok(Some(version)) if Version::parse(version).is_some() => Ok(()),
        Ok(Some(_)) | Err(_) => Err(Rule::SessionVersion),
    }
}

/// The frame of the reply to `initialize`.
pub fn opened(discovery: &Discovery, opening: &Opening) -> Vec<u8> {
    sessions::opened(discovery, opening)
}
