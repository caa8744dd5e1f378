//! What can happen to a task, and what follows.

use alloc::vec::Vec;

use crate::{
    id::{Fence, QuestionKey, RunnerId},
    task::{Body, CancelledBy, Reader, Reason},
};

/// Something that happened. Whatever carries a [`Fence`] is a runner's report: it counts only while that runner
/// holds the task with that fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A runner wants the task (T1), or the stop that it owes (T24).
    Claimed {
        /// The runner.
        runner: RunnerId,
    },
    /// The runner is about to begin the work (T2). Committed before the first side effect.
    Started {
        /// The fence given at the claim.
        fence: Fence,
    },
    /// Something to show: progress or a status text, which the caller stores (T4).
    Noted {
        /// The fence given at the claim.
        fence: Fence,
    },
    /// The work has a handle outside this process by which it can be followed again.
    Attached {
        /// The fence given at the claim.
        fence: Fence,
        /// The handle.
        upstream: Body,
    },
    /// The work asks (T5). A question to a client that cannot be asked goes to an operator, where one may be
    /// asked; what nobody can answer is settled at once, as dismissed (G-34).
    Asked {
        /// The fence given at the claim.
        fence: Fence,
        /// What is asked, in order; at least one.
        asks: Vec<Ask>,
    },
    /// The work does not wait for these questions any more (T26): those of them that are open are withdrawn.
    TakenBack {
        /// The fence given at the claim.
        fence: Fence,
        /// The questions' keys.
        keys: Vec<QuestionKey>,
    },
    /// The leg ended with a checkpoint; nothing is held any more. The next leg begins when every question is
    /// settled, whatever `on_crash` says: it is a leg that was never begun (T7).
    Parked {
        /// The fence given at the claim.
        fence: Fence,
        /// What to go on from.
        checkpoint: Body,
    },
    /// A reader settled a question (T6).
    Answered {
        /// Which question.
        key: QuestionKey,
        /// Who answered.
        reader: Reader,
        /// What they said.
        answer: Answer,
    },
    /// An answer did not fit its form; the third is a decline.
    Misfit {
        /// Which question.
        key: QuestionKey,
        /// Who answered.
        reader: Reader,
    },
    /// The tool returned (T8).
    Returned {
        /// The fence given at the claim.
        fence: Fence,
        /// The result.
        body: Body,
        /// The tool itself calls the result an error.
        is_error: bool,
    },
    /// The call ended in a JSON-RPC error (T9).
    Errored {
        /// The fence given at the claim.
        fence: Fence,
        /// The error object.
        body: Body,
    },
    /// The work ended, or could not begin, and Longhaul says why: the upstream lost it, or the drain could not
    /// wait. Told only when nothing of the work is left.
    Failed {
        /// The fence given at the claim.
        fence: Fence,
        /// Why.
        reason: Reason,
    },
    /// The work was cancelled where it lives, and not by us (T27).
    CancelledElsewhere {
        /// The fence given at the claim.
        fence: Fence,
    },
    /// Somebody ends the task (T10, T11).
    Cancel {
        /// Who.
        by: CancelledBy,
    },
    /// The runner that owed the stop is done (T12).
    Stopped {
        /// The fence given at the claim.
        fence: Fence,
        /// Nothing of the work is left.
        confirmed: bool,
    },
    /// A draining runner gives the task back (T21), after it ended what it ran itself. Refused for work that had
    /// begun and may not go on: the runner sees it through, or reports a failure.
    Released {
        /// The fence given at the claim.
        fence: Fence,
    },
    /// A runner is dead: its lock could be taken, or its lease is over (T13–T17, T22, T23). Also for finished
    /// tasks whose stop the runner owed.
    RunnerLost {
        /// The dead runner.
        runner: RunnerId,
        /// Its local processes were looked for and none is left.
        swept: bool,
    },
    /// A moment came at which something of the task is due: a deadline, the end of its approval or of its time
    /// to live (T18, T19, T25).
    Due,
}

/// One thing to ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Who may answer.
    pub reader: Reader,
    /// The question as it is shown.
    pub body: Body,
    /// A digest over the question's form.
    pub bind: [u8; 32],
}

/// What a reader said to a question. That it fits the form was checked before (`longhaul-mcp`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Accepted, with the answer.
    Accept(Body),
    /// Declined.
    Decline,
    /// Dismissed without choosing.
    Dismiss,
}

/// A hint for this process. Nothing depends on it: what must survive a crash is [`crate::Run`] itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// A start is owed: wake a worker.
    Start,
    /// A stop is owed: tell the runner that holds the task, or wake a worker to claim it.
    Stop,
    /// Questions were settled: wake the work that waits for them.
    Resume,
    /// Something visible changed: wake whoever watches the task.
    Tell,
}

/// Why an event changes nothing. Not a fault: a value that the caller turns into its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// The task has ended.
    Finished,
    /// The report is not from the present holder of the task.
    Fenced,
    /// The task is not in a state in which it can be claimed.
    NotClaimable,
    /// The task may not be claimed yet.
    TooEarly,
    /// The work may not begin (again): its starts are spent, or its approval is over.
    MayNotStart,
    /// No such question was ever asked.
    NoSuchQuestion,
    /// The question is settled, or another reader's.
    QuestionClosed,
    /// More questions would be open at once than the tool may have.
    TooManyQuestions,
    /// Nothing is due.
    NotDue,
    /// The event makes no sense in this state: an empty question list, a park without a claim, ….
    OutOfPlace,
}

impl Refused {
    /// The stable word.
    pub fn name(self) -> &'static str {
        match self {
            Refused::Finished => "finished",
            Refused::Fenced => "fenced",
            Refused::NotClaimable => "not_claimable",
            Refused::TooEarly => "too_early",
            Refused::MayNotStart => "may_not_start",
            Refused::NoSuchQuestion => "no_such_question",
            Refused::QuestionClosed => "question_closed",
            Refused::TooManyQuestions => "too_many_questions",
            Refused::NotDue => "not_due",
            Refused::OutOfPlace => "out_of_place",
        }
    }
}
