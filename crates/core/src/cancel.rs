//! The end of a task from outside, and the stop of its work that is then owed.
//!
//! Called by `decide`, and by the other commands when a deadline or a rule ends the task. The task is closed to
//! its client at once; the work is followed in `run` and `stop`. A live task never refuses a cancel.

use alloc::vec::Vec;

use crate::{
    audit,
    decide::Change,
    event::{Effect, Refused},
    fault,
    id::Fence,
    task::{CancelledBy, Outcome, Phase, QuestionState, Reason, Run, Stop, Task},
};

/// How a task ends from outside.
#[derive(Clone, Copy)]
pub(crate) enum Ended {
    Cancelled(CancelledBy),
    Failed(Reason),
}

/// T10, T11. No fence: the caller is not a runner.
pub(crate) fn cancel(mut change: Change, by: CancelledBy) -> Result<Change, Refused> {
    if change.task.is_finished() && !(fault!("cancels-again") && by != CancelledBy::Owner) {
        return Err(Refused::Finished);
    }
    change.audit.push(audit::Event::CancelRequested);
    end(&mut change, Ended::Cancelled(by));
    Ok(change)
}

/// T12.
pub(crate) fn stopped(mut change: Change, fence: Fence, confirmed: bool) -> Result<Change, Refused> {
    let task = &mut change.task;
    if !task.is_finished() {
        return Err(if fence == task.fence {
            Refused::OutOfPlace
        } else {
            Refused::Fenced
        });
    }
    let stopping = matches!(task.run, Run::Stopping(_));
    if !stopping || (fence != task.fence && !fault!("stop-of-old-fence")) {
        return Err(Refused::Fenced);
    }
    task.strays |= !confirmed && !fault!("unconfirmed-is-stopped");
    task.run = Run::Idle;
    task.stop = what_is_left(task);
    change.audit.push(audit::Event::Stopped {
        stop: change.task.stop,
    });
    change.tell();
    Ok(change)
}

/// Ends the task at once and says in `run` who owes the stop.
pub(crate) fn end(change: &mut Change, ended: Ended) {
    withdraw(change);
    let task = &mut change.task;
    (task.run, task.stop) = stop_owed(task);
    let (outcome, event) = match ended {
        Ended::Cancelled(by) => (Outcome::Cancelled { by }, audit::Event::Cancelled { by }),
        Ended::Failed(Reason::Expired) => (Outcome::Failed(Reason::Expired), audit::Event::Expired),
        Ended::Failed(reason) => (
            Outcome::Failed(reason),
            audit::Event::Failed { reason: Some(reason) },
        ),
    };
    task.phase = Phase::Finished(outcome);
    if task.stop == Stop::Stopping {
        change.effects.push(Effect::Stop);
    }
    change.audit.push(event);
    change.tell();
}

/// Takes back every open question.
pub(crate) fn withdraw(change: &mut Change) {
    let mut keys = Vec::new();
    for question in &mut change.task.questions {
        if matches!(question.state, QuestionState::Open { .. }) && !fault!("leaves-questions-open") {
            question.state = QuestionState::Withdrawn;
            keys.push(question.key);
        }
    }
    if !keys.is_empty() {
        change.audit.push(audit::Event::InputClosed { keys });
    }
}

/// What is known of work that nobody runs any more. An attempt whose runner was lost, and whose processes nobody
/// looked for, may still live: that is said, whatever became of later attempts.
pub(crate) fn what_is_left(task: &Task) -> Stop {
    match (task.strays, task.starts) {
        (true, _) => Stop::Unknown,
        (false, 0) => Stop::NotStarted,
        (false, _) => Stop::Stopped,
    }
}

/// Who owes the stop of a live task that ends now.
///
/// A lease on work that lives elsewhere is taken away (T24): its holder follows nothing yet, its start will be
/// refused, and any runner may claim the stop.
fn stop_owed(task: &Task) -> (Run, Stop) {
    match task.run {
        Run::Running(_) if fault!("cancel-forgets-the-work") => (Run::Idle, Stop::Stopped),
        Run::Running(runner) => (Run::Stopping(runner), Stop::Stopping),
        Run::Queued { .. } | Run::Leased(_) | Run::Parked
            if task.upstream.is_some() && !fault!("forgets-work-elsewhere") =>
        {
            (Run::StopOwed, Stop::Stopping)
        }
        Run::Held | Run::Queued { .. } | Run::Leased(_) | Run::Parked => (Run::Idle, what_is_left(task)),
        Run::Stopping(_) | Run::StopOwed | Run::Idle => (task.run, task.stop),
    }
}
