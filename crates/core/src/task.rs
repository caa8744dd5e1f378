//! A task: two small machines in one row, because clients and runners see different things.
//!
//! [`Phase`] is what a client sees. [`Run`] is what a runner owes. [`Stop`] is what is known of the work after
//! the task was ended from outside. The picture of the states in `docs/reference/states.md` is drawn by a test,
//! `tests/it/states.rs`, from the walk of `tests/it/explore.rs`.

use alloc::{sync::Arc, vec::Vec};

use crate::{
    id::{Fence, QuestionKey, RunnerId},
    time::{Millis, Span},
};

/// The state of one task, as far as the rules need it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// What a client sees.
    pub phase: Phase,
    /// What a runner owes.
    pub run: Run,
    /// What is known of the work after the task was ended from outside.
    pub stop: Stop,
    /// Rises at each claim and nowhere else.
    pub fence: Fence,
    /// How often the work was begun: the attempt number that a tool sees.
    pub starts: u32,
    /// How many legs ended with a checkpoint. Each allows one more start, so that work which may begin only once
    /// can still ask, wait for days and go on.
    pub legs: u32,
    /// A runner was lost and nobody looked for its processes: an earlier attempt may still live.
    pub strays: bool,
    /// What the tool's operator declared.
    pub rules: Rules,
    /// Who can be asked.
    pub can_ask: CanAsk,
    /// The handle of the work outside this process: an upstream's task, or a detached child. Work that has one
    /// can be followed again after its runner is lost.
    pub upstream: Option<Body>,
    /// What the work saved when it parked, to go on from.
    pub checkpoint: Option<Body>,
    /// Every question ever asked, oldest first; at most [`Rules::questions_max`] are open at once.
    pub questions: Vec<Question>,
    /// When the task's time to live is over.
    pub expires_at: Millis,
    /// Not to be claimed before this moment (the back-off of a rerun).
    pub not_before: Millis,
    /// Until when the approval that let this task begin holds; `None` when it needed none.
    pub approved_until: Option<Millis>,
}

/// What a client sees. `Finished` is for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The work is queued, running or waiting for an operator.
    Working,
    /// At least one question to the client is open.
    Asking,
    /// Ended. Neither the outcome nor its bytes change again.
    Finished(Outcome),
}

/// What a runner owes. Only the lease's holder may report, and only with the task's present [`Fence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// An approval is open; nobody may claim.
    Held,
    /// A start is owed. `reattach`: the work already lives elsewhere and is followed, not begun.
    Queued {
        /// The work already lives elsewhere and is followed, not begun.
        reattach: bool,
    },
    /// Claimed; the work has not begun.
    Leased(RunnerId),
    /// The work has begun: its start was committed before the first side effect.
    Running(RunnerId),
    /// A leg ended with a checkpoint; questions may be open; nothing is held.
    Parked,
    /// The task was ended from outside; the lease's holder owes the stop.
    Stopping(RunnerId),
    /// The task was ended from outside while nobody held it, but its work lives elsewhere: a stop is owed and
    /// may be claimed.
    StopOwed,
    /// Nothing is owed.
    Idle,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The tool returned a result.
    Returned {
        /// The result as the tool gave it.
        body: Body,
        /// The tool itself calls the result an error.
        is_error: bool,
    },
    /// The call ended in a JSON-RPC error.
    Errored {
        /// The error object as the tool gave it.
        body: Body,
    },
    /// Ended from outside.
    Cancelled {
        /// Who ended it.
        by: CancelledBy,
    },
    /// Longhaul ended it and says why.
    Failed(Reason),
}

/// Why Longhaul itself ended a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The process that ran the work ended; what the work did is unknown, and it was not run again.
    Interrupted,
    /// The time to live was over while the task was open.
    Expired,
    /// A question was not answered in time, and the tool's rule is to fail.
    NoAnswer,
    /// A question was asked that nobody can answer, and the tool's rule is to fail.
    NobodyToAnswer,
    /// The server shut down and could not wait any longer.
    Shutdown,
    /// The upstream no longer knows the task that it owned.
    UpstreamLost,
}

/// Who ended a task from outside. The exact texts that clients read are in `longhaul-mcp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelledBy {
    /// Its owner.
    Owner,
    /// An operator, or the kill switch.
    Operator,
    /// The end of its session.
    Session,
    /// A loop rule.
    Loop,
    /// The end of the approval that let it begin (T25).
    Approval,
    /// The server that ran it, without an order of ours (T27).
    Server,
}

/// What is known of the work after the task ended other than by the work's own report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stop {
    /// The task is live, or ended by the work's own report.
    #[default]
    None,
    /// The work never began.
    NotStarted,
    /// The work was told to stop; that it did is not confirmed.
    Stopping,
    /// Nothing of the work is left.
    Stopped,
    /// The work may still live: nobody is left who could tell.
    Unknown,
}

/// One question to a client or an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// Unique within the task for its whole life (C-26).
    pub key: QuestionKey,
    /// Who may answer.
    pub reader: Reader,
    /// The question as it is shown.
    pub ask: Body,
    /// What the answer is bound to: a digest over the question's form, made by the caller.
    pub bind: [u8; 32],
    /// Open, or how it was settled.
    pub state: QuestionState,
    /// Answers that did not fit, 0..=3; the third is a decline.
    pub misfits: u8,
}

/// Who may answer a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reader {
    /// The task's owner, through any client, the local page or the command line.
    Client,
    /// An operator (an approval, or a question routed to the team).
    Operator,
}

/// The state of a question. Everything but `Open` is for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QuestionState {
    /// Waiting for its one answer.
    Open {
        /// The deadline.
        until: Millis,
    },
    /// Answered.
    Given {
        /// The answer as it was given.
        answer: Body,
    },
    /// Declined by its reader, by the deadline or by the third misfit.
    Declined,
    /// Dismissed without choosing (`action: cancel`), or nobody could answer.
    Dismissed,
    /// Taken back: the task ended, or the leg that asked is gone.
    Withdrawn,
}

/// What the operator declared for the tool; copied into the task at its birth, so that a changed setting never
/// changes the rules of a running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// What happens when the runner is lost after the work began.
    pub on_crash: OnCrash,
    /// What happens to a question that is not answered in time.
    pub on_silence: OnSilence,
    /// The outcome of a question that nobody can answer fails the task instead of dismissing the question.
    pub fail_when_nobody_can_answer: bool,
    /// How long a question stays open, unless the time to live ends first.
    pub question_deadline: Span,
    /// How long an approval holds once it is given, unless the time to live ends first (G-18).
    pub approval_lasts: Span,
    /// The most questions open at once.
    pub questions_max: u32,
}

/// What happens when the runner is lost after the work began (`on_crash`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnCrash {
    /// The task fails as interrupted: the work begins at most once.
    Fail,
    /// The work begins again, at most `starts_max` times in all, each time after `backoff`.
    Rerun {
        /// The most starts in all, at least 1.
        starts_max: u32,
        /// The wait before each further start.
        backoff: Span,
    },
    /// The work goes on from its last checkpoint; without one the task fails as interrupted.
    Resume,
}

/// What a question that is not answered in time turns into (`on_silence`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnSilence {
    /// The tool is told that the question was declined.
    Decline,
    /// The tool is told that the question was dismissed.
    Dismiss,
    /// The task fails.
    Fail,
}

/// Who can be asked. Decided at birth, from what the caller of `tools/call` declared (wire Q-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CanAsk {
    /// The owner has a place to answer.
    pub client: bool,
    /// An operator may be asked.
    pub operator: bool,
}

/// Bytes that the core never reads.
///
/// A body is written once. A task that was read without its bodies holds [`Body::Stored`], and writing that
/// back leaves the stored bytes as they are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// The bytes.
    Bytes(Arc<[u8]>),
    /// In the store, not read.
    Stored,
}

impl Reason {
    /// The stable word.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Interrupted => "interrupted",
            Reason::Expired => "expired",
            Reason::NoAnswer => "no_answer",
            Reason::NobodyToAnswer => "no_one_to_answer",
            Reason::Shutdown => "shutdown",
            Reason::UpstreamLost => "upstream_tasks_lost",
        }
    }
}

impl CancelledBy {
    /// The stable word.
    pub fn name(self) -> &'static str {
        match self {
            CancelledBy::Owner => "owner",
            CancelledBy::Operator => "operator",
            CancelledBy::Session => "session",
            CancelledBy::Loop => "loop",
            CancelledBy::Approval => "approval",
            CancelledBy::Server => "server",
        }
    }
}

impl Stop {
    /// The stable word.
    pub fn name(self) -> &'static str {
        match self {
            Stop::None => "none",
            Stop::NotStarted => "not_started",
            Stop::Stopping => "stopping",
            Stop::Stopped => "stopped",
            Stop::Unknown => "unknown",
        }
    }
}

impl Body {
    /// A body of these bytes.
    pub fn new(bytes: &[u8]) -> Body {
        Body::Bytes(bytes.into())
    }

    /// The bytes, unless they were left in the store.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Body::Bytes(bytes) => Some(bytes),
            Body::Stored => None,
        }
    }
}

impl core::fmt::Debug for Body {
    /// The length only: arguments, answers and results never reach a log.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Body::Bytes(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Body::Stored => f.write_str("Body(stored)"),
        }
    }
}

impl Task {
    /// Whether the task has ended for its client.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished(_))
    }

    /// Whether the task still counts against the cap of open tasks: until it is finished and its work is known
    /// to be gone, so that cancelling and calling again cannot pile up processes.
    pub fn is_open(&self) -> bool {
        !self.is_finished() || self.run != Run::Idle
    }

    /// The questions that wait for an answer, oldest first.
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.questions
            .iter()
            .filter(|question| matches!(question.state, QuestionState::Open { .. }))
    }

    /// The runner that holds the lease, if any.
    pub fn runner(&self) -> Option<RunnerId> {
        match self.run {
            Run::Leased(runner) | Run::Running(runner) | Run::Stopping(runner) => Some(runner),
            Run::Held | Run::Queued { .. } | Run::Parked | Run::StopOwed | Run::Idle => None,
        }
    }

    /// From when on a runner may take this task: at [`Task::STOP_OWED`] for a stop that is owed, later for a start.
    /// `None` when nothing is owed.
    pub fn claim_at(&self) -> Option<Millis> {
        match self.run {
            Run::Queued { .. } => Some(self.not_before.max(Millis(Self::STOP_OWED.0 + 1))),
            Run::StopOwed => Some(Self::STOP_OWED),
            Run::Held | Run::Leased(_) | Run::Running(_) | Run::Parked | Run::Stopping(_) | Run::Idle => None,
        }
    }

    /// The moment from which on a stop may be claimed. No start is due so early, so the two can be told apart.
    pub const STOP_OWED: Millis = Millis(0);

    /// The next moment that changes this task by itself: a deadline, or the end of its time to live. `None` when it
    /// is finished.
    pub fn due_at(&self) -> Option<Millis> {
        if self.is_finished() {
            return None;
        }
        let deadlines = self.open_questions().filter_map(|question| match question.state {
            QuestionState::Open { until } => Some(until),
            QuestionState::Given { .. }
            | QuestionState::Declined
            | QuestionState::Dismissed
            | QuestionState::Withdrawn => None,
        });
        deadlines
            .chain(self.approved_until)
            .chain([self.expires_at])
            .min()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::decide::check;

    #[test]
    fn a_task_counts_as_open_until_its_work_is_gone() {
        let mut task = check::task(Run::Running(check::ME));
        assert!(task.is_open());
        task.phase = Phase::Finished(Outcome::Cancelled {
            by: CancelledBy::Owner,
        });
        task.run = Run::Stopping(check::ME);
        assert!(task.is_open());
        task.run = Run::Idle;
        assert!(!task.is_open());
    }

    #[test]
    fn a_body_never_reaches_a_log() {
        let body = Body::new(b"secret");
        assert_eq!(format!("{body:?}"), "Body(6 bytes)");
        assert_eq!(format!("{:?}", Body::Stored), "Body(stored)");
        assert_eq!(body.bytes(), Some(&b"secret"[..]));
        assert_eq!(Body::Stored.bytes(), None);
    }
}
