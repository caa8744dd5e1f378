//! What time does to a task: its time to live, its approval, the deadlines of its questions.
//!
//! Called by `decide` only. Whether the clock can be trusted is the caller's business.

use alloc::vec::Vec;

use crate::{
    ask, audit,
    cancel::{self, Ended},
    decide::Change,
    event::Refused,
    fault,
    task::{CancelledBy, OnSilence, QuestionState, Reason, Run, Task},
    time::Millis,
};

/// T18, T19, T25. What ends the task goes first; of two ends, the time to live.
pub(crate) fn due(mut change: Change, now: Millis) -> Result<Change, Refused> {
    let task = &change.task;
    if task.is_finished() {
        return Err(Refused::Finished);
    }
    // T19
    if task.expires_at <= now && !fault!("lives-for-ever") {
        cancel::end(&mut change, Ended::Failed(Reason::Expired));
        return Ok(change);
    }
    // T25
    if task.approved_until.is_some_and(|until| until <= now) && !fault!("approval-for-ever") {
        cancel::end(&mut change, Ended::Cancelled(CancelledBy::Approval));
        return Ok(change);
    }
    silence(change, now)
}

/// T18. Several questions may be due at once.
fn silence(mut change: Change, now: Millis) -> Result<Change, Refused> {
    let on_silence = change.task.rules.on_silence;
    let held = change.task.run == Run::Held;
    let mut keys = Vec::new();
    for question in &mut change.task.questions {
        let QuestionState::Open { until } = question.state else {
            continue;
        };
        if now < until || fault!("waits-for-ever") {
            continue;
        }
        question.state = match on_silence {
            OnSilence::Dismiss => QuestionState::Dismissed,
            OnSilence::Decline | OnSilence::Fail => QuestionState::Declined,
        };
        keys.push(question.key);
    }
    if keys.is_empty() {
        return Err(Refused::NotDue);
    }
    change.audit.push(audit::Event::InputClosed { keys });
    if on_silence == OnSilence::Fail && !held {
        cancel::end(&mut change, Ended::Failed(Reason::NoAnswer));
    } else {
        ask::settled(&mut change, false, now);
    }
    Ok(change)
}

impl Task {
    /// Whether the row may be deleted (T20): finished, nothing owed, and its time has come. `purge_after` is
    /// the row's; whether the clock can be trusted is the caller's business.
    pub fn may_purge(&self, purge_after: Millis, now: Millis) -> bool {
        let over = purge_after <= now || fault!("purges-early");
        let idle = self.run == Run::Idle || fault!("purges-what-still-stops");
        self.is_finished() && idle && over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Event, Outcome, Phase, QuestionKey, Stop,
        decide::check::{ME, NOW, asking, check, refused, task},
        task::Reader,
    };

    fn silent(run: Run) -> Task {
        let mut task = asking(run, Reader::Client);
        task.questions[0].state = QuestionState::Open { until: NOW };
        task
    }

    fn ends(task: &mut Task, outcome: Outcome) {
        task.phase = Phase::Finished(outcome);
        (task.run, task.stop) = (Run::Stopping(ME), Stop::Stopping);
    }

    #[test]
    fn nothing_is_due_before_its_moment() {
        refused(
            &asking(Run::Running(ME), Reader::Client),
            Event::Due,
            Refused::NotDue,
        );
        let mut task = task(Run::Running(ME));
        (task.expires_at, task.approved_until) = (Millis(NOW.0 + 1), Some(Millis(NOW.0 + 1)));
        refused(&task, Event::Due, Refused::NotDue);
    }

    #[test]
    fn t18_silence_declines_or_dismisses_every_question_that_is_due() {
        let mut task = silent(Run::Running(ME));
        let mut second = task.questions[0].clone();
        second.key = QuestionKey(2);
        task.questions.push(second);
        for (rule, state) in [
            (OnSilence::Decline, QuestionState::Declined),
            (OnSilence::Dismiss, QuestionState::Dismissed),
        ] {
            task.rules.on_silence = rule;
            check(&task, Event::Due, |task| {
                task.questions
                    .iter_mut()
                    .for_each(|question| question.state = state.clone());
                task.phase = Phase::Working;
            });
        }
    }

    #[test]
    fn t18_a_question_that_is_not_due_stays_open() {
        let mut task = silent(Run::Running(ME));
        let mut later = task.questions[0].clone();
        (later.key, later.state) = (QuestionKey(2), QuestionState::Open { until: Millis(101) });
        task.questions.push(later);
        check(&task, Event::Due, |task| {
            task.questions[0].state = QuestionState::Declined
        });
    }

    #[test]
    fn t18_silence_fails_the_task_where_that_is_the_rule() {
        let mut task = silent(Run::Running(ME));
        task.rules.on_silence = OnSilence::Fail;
        check(&task, Event::Due, |task| {
            task.questions[0].state = QuestionState::Declined;
            ends(task, Outcome::Failed(Reason::NoAnswer));
        });
    }

    #[test]
    fn silence_about_an_approval_is_a_no_whatever_the_rule() {
        let mut held = silent(Run::Held);
        held.questions[0].reader = Reader::Operator;
        held.rules.on_silence = OnSilence::Fail;
        check(&held, Event::Due, |task| {
            task.questions[0].state = QuestionState::Declined;
            task.phase = Phase::Finished(Outcome::Cancelled {
                by: CancelledBy::Approval,
            });
            (task.run, task.stop) = (Run::Idle, Stop::NotStarted);
        });
    }

    #[test]
    fn t19_a_task_ends_with_its_time_to_live() {
        let mut task = silent(Run::Running(ME));
        (task.expires_at, task.approved_until) = (NOW, Some(NOW));
        check(&task, Event::Due, |task| {
            task.questions[0].state = QuestionState::Withdrawn;
            ends(task, Outcome::Failed(Reason::Expired));
        });
    }

    #[test]
    fn t25_a_task_ends_with_its_approval() {
        let mut task = task(Run::Running(ME));
        task.approved_until = Some(NOW);
        check(&task, Event::Due, |task| {
            ends(
                task,
                Outcome::Cancelled {
                    by: CancelledBy::Approval,
                },
            )
        });
    }

    #[test]
    fn t20_a_row_goes_when_nothing_is_owed_and_its_time_has_come() {
        let mut task = task(Run::Idle);
        assert!(!task.may_purge(NOW, NOW));
        task.phase = Phase::Finished(Outcome::Failed(Reason::Expired));
        assert!(task.may_purge(NOW, NOW));
        assert!(!task.may_purge(Millis(NOW.0 + 1), NOW));
        task.run = Run::StopOwed;
        assert!(!task.may_purge(NOW, NOW));
    }
}
