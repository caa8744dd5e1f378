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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Body, Event,
        decide::check::{FENCE, ME, OLD, asking, check, refused, task},
        task::Reader,
    };

    fn by(by: CancelledBy) -> Event {
        Event::Cancel { by }
    }

    fn ended(task: &mut Task, run: Run, stop: Stop) {
        task.phase = Phase::Finished(Outcome::Cancelled {
            by: CancelledBy::Owner,
        });
        (task.run, task.stop) = (run, stop);
    }

    #[test]
    fn t10_what_did_not_begin_will_not_begin() {
        for run in [Run::Held, Run::Queued { reattach: false }, Run::Leased(ME)] {
            let change = check(&task(run), by(CancelledBy::Owner), |task| {
                ended(task, Run::Idle, Stop::NotStarted)
            });
            assert_eq!(change.effects, [Effect::Tell]);
            refused(&change.task, Event::Started { fence: FENCE }, Refused::Finished);
        }
    }

    #[test]
    fn t10_running_work_is_owed_a_stop_and_its_questions_are_taken_back() {
        let change = check(
            &asking(Run::Running(ME), Reader::Client),
            by(CancelledBy::Owner),
            |task| {
                ended(task, Run::Stopping(ME), Stop::Stopping);
                task.questions[0].state = QuestionState::Withdrawn;
            },
        );
        assert_eq!(change.effects, [Effect::Stop, Effect::Tell]);
    }

    #[test]
    fn t10_parked_work_is_gone_unless_an_earlier_attempt_is_out_of_sight() {
        let mut parked = asking(Run::Parked, Reader::Operator);
        check(&parked, by(CancelledBy::Owner), |task| {
            ended(task, Run::Idle, Stop::Stopped);
            task.questions[0].state = QuestionState::Withdrawn;
        });
        parked.strays = true;
        check(&parked, by(CancelledBy::Owner), |task| {
            ended(task, Run::Idle, Stop::Unknown);
            task.questions[0].state = QuestionState::Withdrawn;
        });
    }

    #[test]
    fn t24_work_elsewhere_is_owed_a_stop_though_nobody_follows_it() {
        for run in [Run::Queued { reattach: true }, Run::Leased(ME), Run::Parked] {
            let mut task = task(run);
            task.upstream = Some(Body::Stored);
            let change = check(&task, by(CancelledBy::Owner), |task| {
                ended(task, Run::StopOwed, Stop::Stopping)
            });
            assert_eq!(change.effects, [Effect::Stop, Effect::Tell]);
        }
    }

    #[test]
    fn t11_an_ended_task_is_not_ended_again() {
        let mut idle = task(Run::Idle);
        idle.phase = Phase::Finished(Outcome::Failed(Reason::Expired));
        for who in [CancelledBy::Owner, CancelledBy::Operator, CancelledBy::Loop] {
            refused(&idle, by(who), Refused::Finished);
        }
    }

    #[test]
    fn t12_only_the_holder_settles_the_stop_and_only_once() {
        let mut stopping = task(Run::Stopping(ME));
        ended(&mut stopping, Run::Stopping(ME), Stop::Stopping);
        let stopped = |fence, confirmed| Event::Stopped { fence, confirmed };
        refused(&stopping, stopped(OLD, true), Refused::Fenced);
        check(&stopping, stopped(FENCE, false), |task| {
            (task.run, task.stop, task.strays) = (Run::Idle, Stop::Unknown, true);
        });
        let change = check(&stopping, stopped(FENCE, true), |task| {
            (task.run, task.stop) = (Run::Idle, Stop::Stopped);
        });
        assert_eq!(change.audit, [audit::Event::Stopped { stop: Stop::Stopped }]);
        refused(&change.task, stopped(FENCE, true), Refused::Fenced);
    }

    #[test]
    fn t12_a_live_task_has_no_stop_to_settle() {
        let stopped = |fence| Event::Stopped {
            fence,
            confirmed: true,
        };
        refused(&task(Run::Running(ME)), stopped(FENCE), Refused::OutOfPlace);
        refused(&task(Run::Running(ME)), stopped(OLD), Refused::Fenced);
    }
}
