//! The two entry points. They only dispatch: each command has a file of its own.
//!
//! `longhaul-engine` calls them inside a store transaction; nobody else does. They never fail half-way: either
//! a whole [`Change`] comes back, or the task stays as it is.

use alloc::{vec, vec::Vec};

use crate::{
    ask, audit, cancel, claim,
    event::{Ask, Effect, Event, Refused},
    fault, finish,
    id::Fence,
    task::{CanAsk, Phase, Reader, Rules, Run, Stop, Task},
    tick,
    time::Millis,
};

/// What a task begins with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Birth {
    /// What the operator declared for the tool.
    pub rules: Rules,
    /// Who can be asked.
    pub can_ask: CanAsk,
    /// When its time to live is over.
    pub expires_at: Millis,
    /// The approval it waits for: a question to the operator, asked at birth.
    pub approval: Option<Ask>,
}

/// The next state of a task and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The next state.
    pub task: Task,
    /// What happened, for the audit; written in the same transaction.
    pub audit: Vec<audit::Event>,
    /// Hints for this process, after the commit.
    pub effects: Vec<Effect>,
}

/// Begins a task (T0): [`Run::Held`] when an approval is asked, else [`Run::Queued`].
///
/// An approval is always the operator's, whatever reader its question names (G-15), and whether or not
/// [`CanAsk::operator`] lets the tool itself ask operators.
pub fn open(birth: &Birth, now: Millis) -> Change {
    let task = Task {
        phase: Phase::Working,
        run: Run::Queued { reattach: false },
        stop: Stop::None,
        fence: Fence(0),
        starts: 0,
        legs: 0,
        strays: false,
        rules: birth.rules,
        can_ask: birth.can_ask,
        upstream: None,
        checkpoint: None,
        questions: Vec::new(),
        expires_at: birth.expires_at,
        not_before: now,
        approved_until: None,
    };
    let mut change = Change {
        task,
        audit: vec![audit::Event::Created],
        effects: Vec::new(),
    };
    if let Some(approval) = &birth.approval {
        if !fault!("birth-skips-approval") {
            change.task.run = Run::Held;
        }
        let ask = Ask {
            reader: Reader::Operator,
            ..approval.clone()
        };
        ask::put(&mut change, &[ask], now);
    } else {
        change.effects.push(Effect::Start);
    }
    change.tell();
    change
}

/// What the event does to the task.
///
/// # Errors
/// [`Refused`] says why the event changes nothing. A report that comes after the end is [`Refused::Finished`],
/// one of an old claim is [`Refused::Fenced`].
pub fn decide(task: &Task, event: Event, now: Millis) -> Result<Change, Refused> {
    let change = Change {
        task: task.clone(),
        audit: Vec::new(),
        effects: Vec::new(),
    };
    let mut change = match event {
        Event::Claimed { runner } => claim::claimed(change, runner, now),
        Event::Started { fence } => claim::started(change, fence, now),
        Event::Released { fence } => claim::released(change, fence, now),
        Event::RunnerLost { runner, swept } => claim::runner_lost(change, runner, swept, now),
        Event::Asked { fence, asks } => ask::asked(change, fence, asks, now),
        Event::TakenBack { fence, keys } => ask::taken_back(change, fence, &keys),
        Event::Answered { key, reader, answer } => ask::answered(change, key, reader, answer, now),
        Event::Misfit { key, reader } => ask::misfit(change, key, reader, now),
        Event::Parked { fence, checkpoint } => ask::parked(change, fence, checkpoint, now),
        Event::Noted { fence } => finish::noted(change, fence),
        Event::Attached { fence, upstream } => finish::attached(change, fence, upstream),
        Event::Returned {
            fence,
            body,
            is_error,
        } => finish::returned(change, fence, body, is_error),
        Event::Errored { fence, body } => finish::errored(change, fence, body),
        Event::Failed { fence, reason } => finish::failed(change, fence, reason),
        Event::CancelledElsewhere { fence } => finish::cancelled_elsewhere(change, fence),
        Event::Cancel { by } => cancel::cancel(change, by),
        Event::Stopped { fence, confirmed } => cancel::stopped(change, fence, confirmed),
        Event::Due => tick::due(change, now),
    }?;
    change.show(&task.phase);
    Ok(change)
}

impl Change {
    /// Records that something visible changed.
    pub(crate) fn tell(&mut self) {
        self.effects.push(Effect::Tell);
    }

    /// Brings the phase of a live task in line with its questions, and records a change of status.
    fn show(&mut self, before: &Phase) {
        if !self.task.is_finished() && !fault!("phase-ignores-questions") {
            let asking = self
                .task
                .open_questions()
                .any(|question| question.reader == Reader::Client);
            self.task.phase = if asking { Phase::Asking } else { Phase::Working };
        }
        let (from, to) = (audit::Status::of(before), audit::Status::of(&self.task.phase));
        if from != to {
            self.audit.push(audit::Event::StatusChanged { from, to });
        }
    }
}

/// What the tests of every command use: a task, and one way to say what an event makes of it.
#[cfg(test)]
pub(crate) mod check {
    use super::*;
    use crate::{Body, QuestionKey, RunnerId, Span, task::*};

    pub(crate) const NOW: Millis = Millis(100);
    pub(crate) const ME: RunnerId = RunnerId([1; 16]);
    pub(crate) const OTHER: RunnerId = RunnerId([2; 16]);
    pub(crate) const FENCE: Fence = Fence(7);
    pub(crate) const OLD: Fence = Fence(6);

    /// A live task in this state, claimed seven times, begun once if its work can have begun.
    pub(crate) fn task(run: Run) -> Task {
        let begun = !matches!(run, Run::Held | Run::Queued { reattach: false } | Run::Leased(_));
        Task {
            phase: Phase::Working,
            run,
            stop: Stop::None,
            fence: FENCE,
            starts: u32::from(begun),
            legs: 0,
            strays: false,
            rules: Rules {
                on_crash: OnCrash::Fail,
                on_silence: OnSilence::Decline,
                fail_when_nobody_can_answer: false,
                question_deadline: Span(50),
                approval_lasts: Span(200),
                questions_max: 2,
            },
            can_ask: CanAsk {
                client: true,
                operator: false,
            },
            upstream: None,
            checkpoint: None,
            questions: Vec::new(),
            expires_at: Millis(1000),
            not_before: Millis(0),
            approved_until: None,
        }
    }

    /// The task with an open question to this reader, due at 150.
    pub(crate) fn asking(run: Run, reader: Reader) -> Task {
        let mut task = task(run);
        task.questions.push(Question {
            key: QuestionKey(1),
            reader,
            ask: Body::Stored,
            bind: [0; 32],
            state: QuestionState::Open { until: Millis(150) },
            misfits: 0,
        });
        if reader == Reader::Client {
            task.phase = Phase::Asking;
        }
        task
    }

    /// The task as it is after the change, and nothing else changed.
    #[track_caller]
    pub(crate) fn check(task: &Task, event: Event, expect: impl FnOnce(&mut Task)) -> Change {
        let change = decide(task, event, NOW).expect("the event is taken");
        let mut expected = task.clone();
        expect(&mut expected);
        assert_eq!(change.task, expected);
        change
    }

    /// The event changes nothing.
    #[track_caller]
    pub(crate) fn refused(task: &Task, event: Event, why: Refused) {
        assert_eq!(decide(task, event, NOW), Err(why));
    }
}

#[cfg(test)]
mod tests {
    use super::{check::*, *};
    use crate::{Body, Span};

    fn birth(approval: Option<Ask>) -> Birth {
        let Task {
            rules,
            can_ask,
            expires_at,
            ..
        } = task(Run::Held);
        Birth {
            rules,
            can_ask,
            expires_at,
            approval,
        }
    }

    #[test]
    fn t0_a_task_is_queued_at_birth() {
        let change = open(&birth(None), NOW);
        assert_eq!(change.task.run, Run::Queued { reattach: false });
        assert_eq!(change.task.not_before, NOW);
        assert_eq!(change.audit, [audit::Event::Created]);
        assert_eq!(change.effects, [Effect::Start, Effect::Tell]);
    }

    #[test]
    fn g15_an_approval_is_the_operators_to_give_and_until_then_nothing_starts() {
        let ask = Ask {
            reader: Reader::Client,
            body: Body::Stored,
            bind: [3; 32],
        };
        let change = open(&birth(Some(ask)), NOW);
        assert_eq!(
            (change.task.run, &change.task.phase),
            (Run::Held, &Phase::Working)
        );
        let question = &change.task.questions[0];
        assert_eq!((question.reader, question.bind), (Reader::Operator, [3; 32]));
        assert_eq!(change.effects, [Effect::Tell]);
        refused(&change.task, Event::Claimed { runner: ME }, Refused::NotClaimable);
    }

    #[test]
    fn a_question_is_never_open_longer_than_the_task_lives() {
        let mut birth = birth(Some(Ask {
            reader: Reader::Operator,
            body: Body::Stored,
            bind: [0; 32],
        }));
        birth.rules.question_deadline = Span(u64::MAX);
        assert_eq!(open(&birth, NOW).task.due_at(), Some(birth.expires_at));
    }

    #[test]
    fn g39_a_change_of_status_is_told_once() {
        let event = Event::Cancel {
            by: crate::task::CancelledBy::Owner,
        };
        let change = decide(&asking(Run::Running(ME), Reader::Client), event, NOW).expect("taken");
        let (from, to) = (audit::Status::InputRequired, audit::Status::Cancelled);
        assert_eq!(
            change.audit.last(),
            Some(&audit::Event::StatusChanged { from, to })
        );
    }
}
