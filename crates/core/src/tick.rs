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
