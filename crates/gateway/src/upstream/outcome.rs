//! A request to a server, and how it can end.
//!
//! Callers of `server` and `connection` read these. Nothing here sends anything.

use std::{sync::Arc, time::Duration};

use longhaul_engine::process::View;
use longhaul_mcp::{
    RpcError, clean,
    client::result::{self, Bad, Came},
    frame::{Obj, Raw},
    header::Mirror,
    reply::{InputRequest, Progress},
    request::LogLevel,
    url_rule::{Link, Reach},
};

use tokio::sync::watch;

use super::{
    connection::Kept,
    link::{Lost, Over},
    question::Question,
    reason::{Asked, Reason},
    streamed::Streamed,
};

/// One request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// What is asked.
    pub method: &'a str,
    /// As the client wrote them; `None` when it wrote none.
    pub params: Option<&'a Obj>,
    /// The arguments that headers mirror.
    pub mirrors: &'a [Mirror],
    /// What can be asked of this caller: a stateless server is told so with each request. `None` for what is said to
    /// every server.
    pub capabilities: Option<&'a Obj>,
    /// The least grave log messages that are wanted, where a request says so.
    pub log_level: Option<LogLevel>,
    /// The longest that the reply is waited for.
    pub timeout: Option<Duration>,
    /// Says whether its caller is being asked: its time stands still then.
    pub asked: Option<&'a watch::Receiver<bool>>,
    /// Whoever hears of it wants no progress and no log messages.
    pub is_quiet: bool,
    /// For how long a server that makes a task of the call is to keep it, in milliseconds; `None` where it is not
    /// to make one. A stateless server decides by itself, and a server that makes no tasks is not told.
    pub task_ttl_ms: Option<u64>,
}

/// How many of them wait to be passed on for one request; of more, some are dropped.
pub(crate) const EVENTS_MAX: usize = 64;

/// What a server says of a request before its reply.
#[derive(Debug)]
pub enum Event {
    /// How far it is.
    Progress(Progress),
    /// A log message.
    Log {
        /// How grave.
        level: LogLevel,
        /// Who says it.
        logger: Option<String>,
        /// What.
        data: Raw,
    },
    /// It asks something before it goes on.
    Ask(Question),
    /// The stream of a call can be gone on with, by another process of ours, too.
    Placed(Streamed, Kept),
    /// How far the task is that it made of the call: the task, as the server wrote it.
    Task(Obj),
    /// The request has not begun: it waits for one of so many processes or sessions, all of which are in use. `None` when
    /// it waits no more.
    Waits(Option<usize>),
    /// The program that the request goes to.
    Runs(View),
}

/// How a request ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// With its result.
    Came(Came),
    /// With an error of what was asked, as it was written.
    Errored(Raw),
    /// With a reply that nobody can use; the server has done its work.
    Unusable(Bad),
    /// It never reached the server.
    Unsent(Unsent),
    /// It was sent and its reply will not come: what became of it is not known.
    Failed(Failed),
    /// Its time was over; the server was told.
    TimedOut,
    /// Its caller stopped it; the server was told.
    Stopped {
        /// Nothing of it is left at work.
        confirmed: bool,
    },
}

impl Outcome {
    /// The result, or the error that a client reads instead.
    ///
    /// # Errors
    /// Why there is no result, as whoever asked may know it.
    pub fn result(self, asked: Asked<'_>) -> Result<Raw, RpcError> {
        let refused = |reason: Reason, detail: &str| Err(reason.error(asked, detail));
        match self {
            Outcome::Came(Came::Complete(result)) => Ok(result),
            Outcome::Came(Came::InputRequired { .. }) => refused(Reason::Asked, ""),
            Outcome::Came(Came::Task { .. }) => refused(Reason::UnaskedTask, ""),
            Outcome::Errored(error) => match error.read() {
                Ok(error) => Err(RpcError::passed_on(error)),
                Err(_) => refused(Reason::Malformed, ""),
            },
            Outcome::Unusable(bad) => Err(bad.error(asked.declared)),
            Outcome::Unsent(unsent) => refused(Reason::Unavailable, unsent.shown()),
            Outcome::Failed(Failed::Lost(_) | Failed::Over(_)) | Outcome::Stopped { .. } => {
                refused(Reason::Lost, "")
            }
            Outcome::Failed(Failed::Status(status)) => {
                refused(Reason::Refused, &format!("HTTP status {status}"))
            }
            Outcome::Failed(Failed::Unreadable(_)) => refused(Reason::Malformed, ""),
            Outcome::Failed(Failed::TooLong) => refused(Reason::Malformed, "it is too long"),
            Outcome::TimedOut => refused(Reason::Silent, ""),
        }
    }

    /// The links that must be opened before the request is made again, as questions; none for any other outcome.
    pub(crate) fn links(&self) -> Vec<InputRequest> {
        match self {
            Outcome::Errored(error) => result::links(error),
            Outcome::Came(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut
            | Outcome::Stopped { .. } => Vec::new(),
        }
    }

    /// Without links that may not be shown to whoever is reached so far; those that remain are named by ours, after
    /// `name` (D-28).
    pub(crate) fn fit_to_show(self, reach: Reach, name: &str) -> Outcome {
        match self {
            Outcome::Errored(error) => Outcome::Errored(result::with_links(&error, |n, link| {
                let link = Link::parse(link, reach).ok()?;
                Some((format!("el-{name}-{n}"), link.as_str().to_owned()))
            })),
            outcome @ (Outcome::Came(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut
            | Outcome::Stopped { .. }) => outcome,
        }
    }

    /// In words, for whoever runs the server: why there is no result.
    pub fn why(&self) -> String {
        match self {
            Outcome::Came(Came::Complete(_)) => "there is one".to_owned(),
            Outcome::Came(Came::InputRequired { .. }) => "the server asks first".to_owned(),
            Outcome::Came(Came::Task { .. }) => "the server made a task of it".to_owned(),
            Outcome::Errored(error) => {
                let error: Obj = error.read().unwrap_or_default();
                let code: i64 = error.get("code").unwrap_or_default();
                let message: String = error.get("message").unwrap_or_default();
                format!("the server refuses: {} (code {code})", clean(&message, 500))
            }
            Outcome::Unusable(bad) => bad.to_string(),
            Outcome::Unsent(unsent) => unsent.to_string(),
            Outcome::Failed(failed) => failed.to_string(),
            Outcome::TimedOut => "the server did not answer in time".to_owned(),
            Outcome::Stopped { .. } => "it was given up".to_owned(),
        }
    }
}

/// Why a request never reached the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// [`PENDING_MAX`](super::connection::PENDING_MAX) is reached.
    #[error("the server has too many requests under way")]
    TooMany,
    /// It reads nothing.
    #[error("the server does not read what it is sent")]
    Deaf,
    /// It cannot be reached.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// There is no server to send it to.
    #[error("{why}")]
    Unopened {
        /// Why, as its caller may know it.
        shown: &'static str,
        /// Why, for whoever runs it.
        why: String,
    },
}

impl Unsent {
    /// As whoever asked may know it: nothing of paths, addresses and secrets.
    pub fn shown(&self) -> &'static str {
        match self {
            Unsent::TooMany => "it has too many requests under way",
            Unsent::Deaf => "it does not read what it is sent",
            Unsent::Unreachable(_) => "it cannot be reached",
            Unsent::Unopened { shown, .. } => shown,
        }
    }
}

/// Why the reply to a request that was sent will not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The connection is over.
    #[error("the server was lost: {0}")]
    Lost(Arc<Lost>),
    /// The exchange over HTTP is over.
    #[error("the server was lost: {0}")]
    Over(Over),
    /// The server refused it in terms of HTTP.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// The reply cannot be read.
    #[error("the server's reply cannot be read: {0}")]
    Unreadable(String),
    /// The reply is longer than a frame may be.
    #[error("the server's reply is too long")]
    TooLong,
}
