//! The local API: what the command line and the local page may do, over HTTP and JSON under `/admin/v1`.
//!
//! Dispatch implements [`Backend`], so these callers pass the same gate as every client. The router and the page
//! only translate: they hold neither the engine nor the store, and decide nothing.

use futures_util::{future::BoxFuture, stream::BoxStream};
use serde::{Deserialize, Serialize};

pub mod api;
pub mod http;

/// A reply of [`Backend`], some time from now.
pub type Reply<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// Who stands at the local entrance. The entrance has checked it: the kernel's word for a socket's peer, a
/// spent one-time link for the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user.
    pub uid: u32,
    /// Which entrance.
    pub entrance: Entrance,
}

/// The ways in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// The user's socket: the command line.
    Socket,
    /// The local page.
    Page,
}

impl Entrance {
    /// The word stored as a task's origin.
    pub const fn origin(self) -> &'static str {
        match self {
            Entrance::Socket => "cli",
            Entrance::Page => "page",
        }
    }
}

/// What the local entrances ask of dispatch.
///
/// Promises:
/// - A task that is not the peer's and one that does not exist give the same error, [`Error::not_found`].
/// - What `run`, `cancel` and `answer` return is durable before they return.
/// - Dropping a future or a stream ends no task.
pub trait Backend: Send + Sync {
    /// The peer's tasks, newest first.
    fn list(&self, peer: Peer, filter: api::Filter) -> Reply<'_, api::Tasks>;

    /// One task.
    fn get(&self, peer: Peer, name: String) -> Reply<'_, api::Task>;

    /// How a task ended; `still_running` (409) while it has not.
    fn result(&self, peer: Peer, name: String) -> Reply<'_, api::Outcome>;

    /// Ends a task. One that has ended stays as it is and is returned.
    fn cancel(&self, peer: Peer, name: String) -> Reply<'_, api::Task>;

    /// Answers a question. An answer that does not fit: `misfit` (422) with the field; nothing was applied.
    fn answer(&self, peer: Peer, name: String, answer: api::Answer) -> Reply<'_, api::Task>;

    /// Calls a tool; always as a task.
    fn run(&self, peer: Peer, call: api::Call) -> Reply<'_, api::Started>;

    /// The task as it is, unless its version is at most `since`, then each newer version. A slow reader may miss
    /// versions in between, never the last one. The stream ends when the task is settled
    /// ([`api::State::is_settled`]), or when the server drains.
    fn watch(&self, peer: Peer, name: String, since: u64) -> Reply<'_, BoxStream<'static, api::Task>>;

    /// The tools that the peer may call.
    fn tools(&self, peer: Peer) -> Reply<'_, api::Tools>;

    /// The servers behind this one.
    fn servers(&self, peer: Peer) -> Reply<'_, api::Servers>;

    /// Ends every process of a server behind this one, and starts it anew. Returns when it was reached or could not
    /// be. Its calls that run are lost.
    fn restart_server(&self, peer: Peer, name: String) -> Reply<'_, api::Server>;

    /// Begins a login at a server behind this one, by its name or its address.
    fn begin_login(&self, peer: Peer, server: String) -> Reply<'_, api::Login>;

    /// How far a login is.
    fn login_progress(&self, peer: Peer, id: String) -> Reply<'_, api::LoginProgress>;

    /// Forgets the tokens for a server behind this one. What it is asked from then on carries none.
    fn log_out(&self, peer: Peer, server: String) -> Reply<'_, api::LoggedOut>;

    /// The state of the server.
    fn health(&self, peer: Peer) -> Reply<'_, api::Health>;
}

/// Why the answer is no. Everything in it may be shown to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The HTTP status, 400 to 599.
    pub status: u16,
    /// The same code that MCP clients read: 7401 to 7408, or one of JSON-RPC.
    pub code: i32,
    /// One word, fit for programs.
    pub reason: String,
    /// One line, fit for people: lower case, no full stop.
    pub message: String,
    /// Who can do something about it.
    pub who: Who,
    /// When trying again may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The field of an argument or answer that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// Who can do something about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Whoever asked.
    Caller,
    /// Whoever runs the server.
    Operator,
    /// Nobody: wait and try again.
    Wait,
}

impl Error {
    /// An error without a moment to try again and without a field.
    pub fn new(status: u16, code: i32, reason: &str, message: impl Into<String>, who: Who) -> Error {
        Error {
            status,
            code,
            reason: reason.to_owned(),
            message: message.into(),
            who,
            retry_after_ms: None,
            field: None,
        }
    }

    /// No such task, or not the peer's: the two are not told apart (G-3).
    pub fn not_found() -> Error {
        Error::new(404, -32602, "not_found", "task not found", Who::Caller)
    }

    /// The task has not ended yet.
    pub fn still_running() -> Error {
        Error::new(
            409,
            -32603,
            "still_running",
            "the task has not ended yet",
            Who::Wait,
        )
    }

    /// What was sent cannot be read, or asks for something that does not exist.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(400, -32602, "invalid", message, Who::Caller)
    }

    /// An answer or argument that does not fit its form.
    pub fn misfit(field: impl Into<String>, message: impl Into<String>) -> Error {
        Error {
            field: Some(field.into()),
            ..Error::new(422, -32602, "misfit", message, Who::Caller)
        }
    }

    /// A fault of Longhaul itself; the log has the cause.
    pub fn internal() -> Error {
        Error::new(
            500,
            -32603,
            "internal",
            "internal error; the server's log has the cause",
            Who::Operator,
        )
    }
}
