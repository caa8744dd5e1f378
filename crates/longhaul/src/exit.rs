//! Every exit code, and what a command says when it does not do what it was asked.
//!
//! The one table of exit codes: `main` turns an [`Exit`] into the process's code, and the reference page is
//! printed from [`Exit::ALL`].

use std::fmt;

use longhaul_gateway::{
    admin::{Error, Who},
    command,
};

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done; for `run`, the tool's own success.
    Done = 0,
    /// The task failed, or something was found broken.
    Failed = 1,
    /// A wrong flag, a wrong argument, or a wrong configuration.
    Usage = 2,
    /// No such task or tool, or not yours.
    NotFound = 3,
    /// The server refused.
    Refused = 4,
    /// The server cannot be reached.
    Unreachable = 5,
    /// The task was cancelled.
    Cancelled = 6,
    /// The task's time to live or a question's deadline went by. A program that took longer than its tool's
    /// `timeout` has failed.
    TimedOut = 7,
    /// `ask`: the person said no.
    Declined = 10,
    /// `ask`: the person closed the question without choosing.
    Dismissed = 11,
    /// `ask`: there is nobody who can answer.
    Unanswerable = 12,
    /// Longhaul's own fault.
    Fault = 70,
    /// Stopped at the keyboard; the work of a task goes on.
    Interrupted = 130,
}

impl Exit {
    /// Every code with its meaning.
    pub(crate) const ALL: [(Exit, &'static str); 13] = [
        (
            Exit::Done,
            "done; for `run` and `tasks result`, the tool's own success",
        ),
        (Exit::Failed, "the task failed, or something was found broken"),
        (Exit::Usage, "a wrong flag, argument or configuration"),
        (Exit::NotFound, "no such task or tool, or not yours"),
        (Exit::Refused, "the server refused"),
        (Exit::Unreachable, "the server cannot be reached"),
        (Exit::Cancelled, "the task was cancelled"),
        (
            Exit::TimedOut,
            "the task expired, or its question was not answered in time",
        ),
        (Exit::Declined, "`ask`: the person declined"),
        (Exit::Dismissed, "`ask`: the person dismissed the question"),
        (Exit::Unanswerable, "`ask`: nobody can answer"),
        (Exit::Fault, "a fault of Longhaul itself"),
        (
            Exit::Interrupted,
            "stopped at the keyboard; a task's work goes on",
        ),
    ];

    /// The process's code.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

/// The exit codes as `--help` shows them.
pub(crate) fn table() -> String {
    let mut text = String::from("Exit codes:");
    for (exit, meaning) in Exit::ALL {
        text.push_str(&format!("\n  {:>3}  {meaning}", exit.code()));
    }
    text
}

/// Why a command did not do what it was asked: what, with what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// How the command ends.
    pub exit: Exit,
    /// One word for programs.
    pub reason: String,
    /// What failed, with what; may have several lines.
    pub message: String,
    /// What to do about it: a command to run, or a sentence.
    pub fix: Option<String>,
}

/// What every command returns.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    /// A failure without advice.
    pub(crate) fn new(exit: Exit, reason: &str, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            reason: reason.to_owned(),
            message: message.into(),
            fix: None,
        }
    }

    /// A wrong argument or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, "usage", message)
    }

    /// A fault of Longhaul or of the system below it.
    pub(crate) fn fault(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Fault, "fault", message)
    }

    /// The same with advice.
    pub(crate) fn fix(self, fix: impl Into<String>) -> Failure {
        Failure {
            fix: Some(fix.into()),
            ..self
        }
    }

    /// The message and its causes, each after a colon.
    pub(crate) fn caused(exit: Exit, reason: &str, error: &dyn std::error::Error) -> Failure {
        Failure::new(exit, reason, command::causes(error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match (error.status, error.reason.as_str()) {
            (404, _) | (_, "unknown_tool") => Exit::NotFound,
            (400 | 413 | 422, _) => Exit::Usage,
            (401 | 403 | 409 | 429, _) | (_, "store_full") => Exit::Refused,
            (502..=504, _) => Exit::Unreachable,
            (500.., "internal") => Exit::Fault,
            (_, _) => Exit::Refused,
        };
        let fix = match (error.who, error.retry_after_ms) {
            (_, _) if error.reason == "store_full" => {
                Some("free some space where the state directory is".to_owned())
            }
            (Who::Caller, _) => None,
            (Who::Wait, Some(ms)) => Some(format!("try again in {} s", ms.div_ceil(1_000))),
            (Who::Wait, None) => Some("try again in a moment".to_owned()),
            (Who::Operator, _) => Some("longhaul doctor".to_owned()),
        };
        Failure {
            exit,
            reason: error.reason,
            message: error.message,
            fix,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "longhaul: {}", self.message)?;
        match &self.fix {
            // Nothing is wrong after ctrl-c; what is said is how to go on.
            Some(next) if self.exit == Exit::Interrupted => write!(f, "\n  next  {next}"),
            Some(fix) => write!(f, "\n  fix   {fix}"),
            None => Ok(()),
        }
    }
}
