//! What a server sends: replies to requests of ours, notifications, and requests of its own.
//!
//! The gateway's one reader of a server calls [`read`], in the order of arrival. What is not known is kept as it
//! was written; whether an id is one of ours is the caller's to say.

use super::task;
use crate::{
    Malformed,
    frame::{Frame, Obj, Raw, request_id},
    meta,
    reply::Progress,
    request::{LogLevel, RequestId},
    scan::Limits,
};

/// One frame from a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// The reply to a request of ours.
    Reply {
        /// The id of our request, as the server says it.
        id: RequestId,
        /// The result, or the error object.
        outcome: Result<Raw, Raw>,
    },
    /// An error that names no request of ours: the server could not read one.
    Unread(Raw),
    /// It tells something.
    Notice {
        /// What.
        notice: Notice,
        /// The subscription that it belongs to (B-48).
        subscription: Option<RequestId>,
        /// The server's task that it belongs to.
        task: Option<String>,
    },
    /// It asks something, and waits. Of sessions only: a stateless server never does (B-1).
    Ask(Ask),
}

/// A notification of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A request is under way.
    Progress {
        /// The token that we gave.
        token: RequestId,
        /// How far it is.
        progress: Progress,
    },
    /// A log message.
    Log {
        /// How grave.
        level: LogLevel,
        /// Who says it.
        logger: Option<String>,
        /// What.
        data: Raw,
    },
    /// The list of tools changed.
    ToolsChanged,
    /// The list of prompts changed.
    PromptsChanged,
    /// The list of resources changed.
    ResourcesChanged,
    /// A resource changed that we subscribed to.
    ResourceUpdated {
        /// Which.
        uri: String,
    },
    /// The server gave up a request of its own, or ended a subscription of ours.
    Cancelled {
        /// The request.
        request: RequestId,
        /// Why, as it says.
        reason: Option<String>,
    },
    /// A task of the server, in the shape of its generation (A-59, C-33, Q-15).
    Task {
        /// Its id, as the server says it.
        task: String,
        /// The whole task.
        params: Obj,
    },
    /// A link that somebody was asked to open is done with.
    LinkDone {
        /// The elicitation's id.
        elicitation: String,
    },
    /// The subscription stands, for the kinds that are named (B-46).
    Acknowledged {
        /// What is honoured.
        notifications: Obj,
    },
    /// Anything else, and what has not the shape of its method.
    Other {
        /// The method.
        method: String,
        /// As they were written.
        params: Option<Obj>,
    },
}

/// A request of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Echoed in the answer.
    pub id: RequestId,
    /// What kind of request.
    pub kind: AskKind,
    /// The method, as it was written.
    pub method: String,
    /// As they were written; `None` when there are none.
    pub params: Option<Obj>,
}

/// The kinds of request that servers make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskKind {
    /// Are you there?
    Ping,
    /// Which folders may you use?
    Roots,
    /// What does your model say?
    Sampling,
    /// What does your user say?
    Elicitation,
    /// Anything else; refused as unknown.
    Other,
}

/// How a server asks its caller's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By a form.
    Form,
    /// By a link.
    Url,
}

impl Mode {
    /// That of these parameters of `elicitation/create`; an absent one means a form, and any other is unknown.
    pub fn of(params: Option<&Obj>) -> Option<Mode> {
        let Some(mode) = params.and_then(|params| params.raw("mode")) else {
            return Some(Mode::Form);
        };
        match mode.read::<String>().as_deref() {
            Ok("form") => Some(Mode::Form),
            Ok("url") => Some(Mode::Url),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Scans and reads one frame of a server.
///
/// # Errors
/// The bytes do not pass the scan (E-1), or are no frame.
pub fn read(bytes: &[u8], limits: &Limits) -> Result<Incoming, Malformed> {
    Ok(match Frame::parse(bytes, limits)? {
        Frame::Response {
            id: Some(id),
            outcome,
        } => Incoming::Reply { id, outcome },
        Frame::Response {
            id: None,
            outcome: Ok(raw) | Err(raw),
        } => Incoming::Unread(raw),
        Frame::Notification { method, params } => Incoming::Notice {
            subscription: subscription(params.as_ref()),
            task: params.as_ref().and_then(task::related),
            notice: notice(method, params),
        },
        Frame::Request { id, method, params } => Incoming::Ask(Ask {
            id,
            kind: kind(&method),
            method,
            params,
        }),
    })
}

fn kind(method: &str) -> AskKind {
    match method {
        "ping" => AskKind::Ping,
        "roots/list" => AskKind::Roots,
        "sampling/createMessage" => AskKind::Sampling,
        "elicitation/create" => AskKind::Elicitation,
        _ => AskKind::Other,
    }
}

fn subscription(params: Option<&Obj>) -> Option<RequestId> {
    request_id(params?.obj("_meta")?.raw(meta::SUBSCRIPTION_ID)?)
}

fn notice(method: String, params: Option<Obj>) -> Notice {
    let known = match method.as_str() {
        "notifications/tools/list_changed" => Some(Notice::ToolsChanged),
        "notifications/prompts/list_changed" => Some(Notice::PromptsChanged),
        "notifications/resources/list_changed" => Some(Notice::ResourcesChanged),
        other => params.as_ref().and_then(|params| with_params(other, params)),
    };
    known.unwrap_or(Notice::Other { method, params })
}

fn with_params(method: &str, params: &Obj) -> Option<Notice> {
    let id = |member| params.raw(member).and_then(request_id);
    match method {
        "notifications/progress" => Some(Notice::Progress {
            token: id("progressToken")?,
            progress: progress(params)?,
        }),
        "notifications/message" => Some(Notice::Log {
            level: params.get("level")?,
            logger: params.get("logger"),
            data: params.raw("data")?.clone(),
        }),
        "notifications/resources/updated" => Some(Notice::ResourceUpdated {
            uri: params.get("uri")?,
        }),
        "notifications/cancelled" => Some(Notice::Cancelled {
            request: id("requestId")?,
            reason: params.get("reason"),
        }),
        //
        "notifications/tasks" | "notifications/tasks/status" => Some(Notice::Task {
            task: params.get("taskId")?,
            params: params.clone(),
        }),
        "notifications/elicitation/complete" => Some(Notice::LinkDone {
            elicitation: params.get("elicitationId")?,
        }),
        "notifications/subscriptions/acknowledged" => Some(Notice::Acknowledged {
            notifications: params.obj("notifications")?,
        }),
        _ => None,
    }
}

/// A total that is no number is none.
fn progress(params: &Obj) -> Option<Progress> {
    let finite = |member| params.get::<f64>(member).filter(|number| number.is_finite());
    Some(Progress {
        progress: finite("progress")?,
        total: finite("total"),
        message: params.get("message"),
    })
}
