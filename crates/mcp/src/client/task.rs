//! A task of a server, in terms of no generation: what it is made into, how far it is, and what is sent about it.
//!
//! The gateway, which follows such tasks, reads `tasks/get`, notifications and the result of a call through this
//! module. What a server adds is passed over; numbers that make no sense count as absent.

use std::time::Duration;

use super::{
    Era, Kind,
    result::{self, Bad, Came},
};
use crate::{
    frame::{Obj, Raw},
    meta,
    reply::InputRequest,
};

/// How far a task of a server is.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// In the server's words, for people and models; not to be trusted (C-16).
    pub message: Option<String>,
    /// After how long to ask again; more than nothing.
    pub poll: Option<Duration>,
    /// What there is to know.
    pub state: State,
}

/// The states of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It is at work.
    Working,
    /// It waits for answers: to these questions, all that are open (C-20). A server with sessions sends them as requests,
    /// and names none here.
    Asking(Vec<InputRequest>),
    /// It has ended, and `tasks/result` says how.
    Settled {
        /// It says that it failed.
        is_failure: bool,
    },
    /// It ended with this result of the call, without `resultType`.
    Came(Raw),
    /// It ended with this error of the call.
    Errored(Raw),
    /// It was cancelled.
    Cancelled,
}

impl State {
    /// Nothing more happens to it.
    pub fn is_over(&self) -> bool {
        match self {
            State::Working | State::Asking(_) => false,
            State::Settled { .. } | State::Came(_) | State::Errored(_) | State::Cancelled => true,
        }
    }
}

/// Reads the result of a call that the server made a task of: nested in one generation, flat in the other (C-8).
/// That it is one was found by [`result::read`].
///
/// # Errors
/// It has not the shape of a task.
pub fn created(result: &Raw, era: Era) -> Result<Task, Bad> {
    let result: Obj = result.read().map_err(|_| Bad::BadTask)?;
    match era.kind() {
        Kind::Sessions => read(&result.obj("task").ok_or(Bad::BadTask)?, era),
        Kind::Stateless => {
            // K-1: whatever it says beside, the outcome comes with `tasks/get`.
            let mut task = read_fields(&result);
            task.state = match status(&result)? {
                Status::InputRequired => State::Asking(Vec::new()),
                Status::Working | Status::Completed | Status::Failed | Status::Cancelled => State::Working,
            };
            Ok(task)
        }
    }
}

/// Reads a task as `tasks/get`, `tasks/cancel` of a session, and notifications have it.
///
/// # Errors
/// It has not the shape of a task, or its outcome is none that a client could use.
pub fn read(task: &Obj, era: Era) -> Result<Task, Bad> {
    let mut read = read_fields(task);
    read.state = match (status(task)?, era.kind()) {
        (Status::Working, _) => State::Working,
        (Status::InputRequired, Kind::Sessions) => State::Asking(Vec::new()),
        (Status::InputRequired, Kind::Stateless) => {
            let requests = task.obj("inputRequests").unwrap_or_default();
            State::Asking(result::requests(requests)?)
        }
        (Status::Completed, Kind::Sessions) => State::Settled { is_failure: false },
        (Status::Failed, Kind::Sessions) => State::Settled { is_failure: true },
        (Status::Completed, Kind::Stateless) => {
            let outcome = task.raw("result").ok_or(Bad::BadTask)?.clone();
            match result::read(outcome, era)? {
                Came::Complete(result) => State::Came(result),
                Came::InputRequired { .. } | Came::Task { .. } => return Err(Bad::BadTask),
            }
        }
        (Status::Failed, Kind::Stateless) => {
            let error = task.raw("error").ok_or(Bad::BadTask)?;
            result::error(error)?;
            State::Errored(error.clone())
        }
        (Status::Cancelled, _) => State::Cancelled,
    };
    Ok(read)
}

/// The members that a task has in every state; their names differ.
fn read_fields(task: &Obj) -> Task {
    let hint: Option<f64> = task.get("pollIntervalMs").or_else(|| task.get("pollInterval"));
    let poll = hint.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
    Task {
        message: task.get("statusMessage"),
        // what is not positive is no hint.
        poll: poll.filter(|poll| !poll.is_zero()),
        state: State::Working,
    }
}

enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

/// there are five.
fn status(task: &Obj) -> Result<Status, Bad> {
    let status: String = task.get("status").ok_or(Bad::BadTask)?;
    match status.as_str() {
        "working" => Ok(Status::Working),
        "input_required" => Ok(Status::InputRequired),
        "completed" => Ok(Status::Completed),
        "failed" => Ok(Status::Failed),
        "cancelled" => Ok(Status::Cancelled),
        _ => Err(Bad::BadTask),
    }
}

/// The task of the server that a message belongs to.
pub fn related(params: &Obj) -> Option<String> {
    params.obj("_meta")?.obj(meta::RELATED_TASK)?.get("taskId")
}

/// Says in an answer to a session's server which of its tasks the question was of.
pub fn relate(answer: &mut Obj, task: &str) {
    answer.edit("_meta", |members| {
        members.edit(meta::RELATED_TASK, |related| related.set("taskId", task));
    });
}

/// The parameters of `tasks/get`, `tasks/result` and `tasks/cancel`, for [`Outgoing`](super::Outgoing).
pub fn about(task: &str) -> Obj {
    let mut params = Obj::default();
    params.set("taskId", task);
    params
}

/// The parameters of `tasks/update` (C-23), for [`Outgoing`](super::Outgoing).
pub fn update(task: &str, answers: &Obj) -> Obj {
    let mut params = about(task);
    params.set("inputResponses", &answers.to_raw());
    params
}
