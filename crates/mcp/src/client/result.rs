//! What came of a request to a server, in terms of no generation (D-8, D-9).
//!
//! The gateway hands in the outcome of a reply and stores or passes on what it gets. What the server's hop says
//! about itself is taken out; all else stays as it was written.

use thiserror::Error;

use super::{Era, Kind};
use crate::{
    clean,
    frame::{Obj, Raw},
    meta,
    reply::InputRequest,
    request::Answers,
    rpc_error::{self, RpcError},
};

/// The most questions of one reply.
pub const QUESTIONS_MAX: usize = 100;

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Came {
    /// The result: an object without `resultType`, all else as it was written.
    Complete(Raw),
    /// The server asks first; the request is repeated with the answers (B-40). At least one of the two is there.
    InputRequired {
        /// What it asks, by its own keys.
        requests: Vec<InputRequest>,
        /// Goes back as it came.
        state: Option<String>,
    },
    /// The server made a task of it, asked or not. The whole result, in the shape of its generation.
    Task {
        /// Its id, as the server says it.
        task: String,
        /// As it was written.
        result: Raw,
    },
}

/// A reply that no client could use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Bad {
    /// The result is no object.
    #[error("the result is no object")]
    NotAnObject,
    /// The result is of a kind that was not agreed (B-8).
    #[error("the result is of the unknown type `{kind}`")]
    UnknownType {
        /// Its kind, fit to be shown.
        kind: String,
    },
    /// The questions are none, too many, or have not the shape of questions (B-38, B-39).
    #[error("the server asks in a way that nobody can answer")]
    BadQuestions,
    /// A task without an id, in no state that there is, or without the outcome that its state promises.
    #[error(
        "the server made a task that nobody can follow: it has no id, no state that there is, or no outcome"
    )]
    BadTask,
    /// The error object has no code or no message.
    #[error("the error has no code or no message")]
    BadError,
    /// The server needs what its caller did not say that it can do (B-6).
    #[error(
        "the server does not take the request: {message} (code {})",
        rpc_error::MISSING_CAPABILITY
    )]
    Lacks {
        /// Its message, fit to be shown.
        message: String,
        /// What it needs, of what a caller of Longhaul can declare to it.
        needs: Answers,
        /// It needs more than that, or does not say what.
        needs_more: bool,
    },
    /// The server does not take what it was sent: a matter between it and Longhaul (D-9).
    #[error("the server does not take the request: {message} (code {code})")]
    Hop {
        /// Its code.
        code: i64,
        /// Its message, fit to be shown.
        message: String,
    },
}

/// Reads the result of a request.
///
/// # Errors
/// The reason for which no client could use it.
pub fn read(result: Raw, era: Era) -> Result<Came, Bad> {
    let mut object: Obj = result.read().map_err(|_| Bad::NotAnObject)?;
    match era.kind() {
        Kind::Sessions => {
            // A result with content is a result, whatever else it holds.
            if object.obj("task").is_some() && object.raw("content").is_none() {
                let task = object.obj("task").and_then(|task| task.get("taskId"));
                let task = task.ok_or(Bad::BadTask)?;
                return Ok(Came::Task { task, result });
            }
        }
        Kind::Stateless => match object.raw("resultType").map(Raw::read::<String>) {
            None => {}
            Some(Ok(kind)) => match kind.as_str() {
                "complete" => {}
                "input_required" => return questions(&object),
                "task" => {
                    let task = object.get("taskId").ok_or(Bad::BadTask)?;
                    return Ok(Came::Task { task, result });
                }
                other => {
                    return Err(Bad::UnknownType {
                        kind: clean(other, 100),
                    });
                }
            },
            Some(Err(_)) => {
                return Err(Bad::UnknownType {
                    kind: "not a string".to_owned(),
                });
            }
        },
    }
    Ok(match object.take("resultType") {
        None => Came::Complete(result),
        Some(_) => Came::Complete(object.to_raw()),
    })
}

fn questions(result: &Obj) -> Result<Came, Bad> {
    let state = result.raw("requestState").map(Raw::read::<String>).transpose();
    let state = state.map_err(|_| Bad::BadQuestions)?;
    let map = result.raw("inputRequests").map(Raw::read::<Obj>).transpose();
    let map = map.map_err(|_| Bad::BadQuestions)?.unwrap_or_default();
    if map.0.is_empty() && state.is_none() {
        return Err(Bad::BadQuestions);
    }
    Ok(Came::InputRequired {
        requests: requests(map)?,
        state,
    })
}

/// The questions in an `inputRequests` (B-39, C-29).
pub(super) fn requests(map: Obj) -> Result<Vec<InputRequest>, Bad> {
    if map.0.len() > QUESTIONS_MAX {
        return Err(Bad::BadQuestions);
    }
    let requests = map.0.into_iter().map(|(name, ask)| {
        let method = ask.read::<Obj>().ok().and_then(|ask| ask.get::<String>("method"));
        let is_known = matches!(
            method.as_deref(),
            Some("elicitation/create" | "sampling/createMessage" | "roots/list")
        );
        is_known.then(|| InputRequest {
            key: name.unescaped().into_owned(),
            ask,
        })
    });
    let requests: Option<Vec<InputRequest>> = requests.collect();
    requests.ok_or(Bad::BadQuestions)
}

/// Reads the error object of a reply: the error of what was asked, as it was written.
///
/// # Errors
/// It is no error object, or speaks of the hop and not of what was asked.
pub fn error(error: &Raw) -> Result<Obj, Bad> {
    let object: Obj = error.read().map_err(|_| Bad::BadError)?;
    let (code, message) = object
        .get::<i64>("code")
        .zip(object.get::<String>("message"))
        .ok_or(Bad::BadError)?;
    match code {
        rpc_error::MISSING_CAPABILITY => Err(lacks(&object, &message)),
        rpc_error::HEADER_MISMATCH | rpc_error::UNSUPPORTED_VERSION => Err(Bad::Hop {
            code,
            message: clean(&message, 500),
        }),
        _ => Ok(object),
    }
}

/// The links that must be opened before the request is made again, as questions; none for any other error. Each
/// key is the server's own name of the link.
pub fn links(error: &Raw) -> Vec<InputRequest> {
    let error: Obj = error.read().unwrap_or_default();
    if error.get::<i64>("code") != Some(rpc_error::LINK_REQUIRED) {
        return Vec::new();
    }
    let listed = error.obj("data").unwrap_or_default();
    let listed: Vec<Obj> = listed.get("elicitations").unwrap_or_default();
    if listed.len() > QUESTIONS_MAX {
        return Vec::new();
    }
    let links = listed.into_iter().map(|mut link| {
        let key = link.get::<String>("elicitationId")?;
        drop(link.take("elicitationId"));
        link.set("mode", "url");
        let mut ask = Obj::default();
        ask.set("method", "elicitation/create");
        ask.set("params", &link.to_raw());
        let ask = ask.to_raw();
        Some(InputRequest { key, ask })
    });
    links.collect::<Option<_>>().unwrap_or_default()
}

/// The same error with other links: `shown` gives each, by its place and its text, a name and a text, or takes it out.
/// Any other error is as it was.
pub fn with_links(error: &Raw, shown: impl Fn(usize, &str) -> Option<(String, String)>) -> Raw {
    let mut read: Obj = error.read().unwrap_or_default();
    if read.get::<i64>("code") != Some(rpc_error::LINK_REQUIRED) {
        return error.clone();
    }
    read.edit("data", |data| {
        let listed: Vec<Obj> = data.get("elicitations").unwrap_or_default();
        let listed = listed.into_iter().enumerate().filter_map(|(n, mut link)| {
            let (name, text) = shown(n, &link.get::<String>("url")?)?;
            link.set("url", &text);
            link.set("elicitationId", &name);
            Some(link.to_raw())
        });
        data.set("elicitations", &listed.collect::<Vec<Raw>>());
    });
    read.to_raw()
}

fn lacks(error: &Obj, message: &str) -> Bad {
    let data = error.obj("data").unwrap_or_default();
    let required = data.obj("requiredCapabilities").unwrap_or_default();
    let is_declared = |name: &str| matches!(name, "elicitation" | "sampling" | "roots");
    let mut names = required.0.iter().map(|(name, _)| name.unescaped());
    Bad::Lacks {
        message: clean(message, 500),
        needs: meta::answers(&required),
        needs_more: required.0.is_empty() || !names.all(|name| is_declared(&name)),
    }
}

impl Bad {
    /// What the client reads that declared so much. It is told what it must declare where that is all that is missing
    /// (B-6); else the fault is behind Longhaul (D-9).
    pub fn error(&self, declared: Answers) -> RpcError {
        if let Bad::Lacks {
            message,
            needs,
            needs_more: false,
        } = self
            && needs.without(declared) != Answers::default()
        {
            let mut data = Obj::default();
            let missing = super::capabilities(needs.without(declared));
            data.set("requiredCapabilities", &missing.to_raw());
            return RpcError::relayed(
                rpc_error::MISSING_CAPABILITY,
                message.clone(),
                Some(data.to_raw()),
            );
        }
        let reason = match self {
            Bad::NotAnObject | Bad::BadError | Bad::BadQuestions | Bad::BadTask => "upstream_malformed",
            Bad::UnknownType { .. } => "upstream_unknown_result",
            Bad::Lacks { .. } | Bad::Hop { .. } => "upstream_refused",
        };
        let shown = self.to_string();
        let (first, rest) = shown.split_at(1);
        RpcError::internal(reason, format!("{}{rest}", first.to_uppercase()))
    }
}
