//! Who works on a task: claim, start, release, and what becomes of it when its runner is lost.
//!
//! Called by `decide` only. A claim is the one place where the fence rises.

use crate::{
    ask, audit,
    cancel::{self, what_is_left},
    decide::Change,
    event::{Effect, Refused},
    fault,
    id::{Fence, RunnerId},
    task::{OnCrash, Outcome, Phase, Reason, Run, Task},
    time::Millis,
};

/// T1, and T24 for a stop that is owed.
pub(crate) fn claimed(mut change: Change, runner: RunnerId, now: Millis) -> Result<Change, Refused> {
    let task = &mut change.task;
    match task.run {
        Run::Queued { .. } if now < task.not_before && !fault!("claim-too-early") => {
            return Err(Refused::TooEarly);
        }
        Run::Queued { .. } => task.run = Run::Leased(runner),
        Run::StopOwed => task.run = Run::Stopping(runner),
        Run::Leased(_) if fault!("claim-of-leased") => task.run = Run::Leased(runner),
        Run::Held if fault!("claim-of-held") => task.run = Run::Leased(runner),
        Run::Held | Run::Leased(_) | Run::Running(_) | Run::Parked => return Err(Refused::NotClaimable),
        Run::Stopping(_) | Run::Idle => return Err(Refused::Finished),
    }
    if !fault!("claim-keeps-fence") {
        task.fence = task.fence.next();
    }
    Ok(change)
}

/// T2. Committed before the first side effect.
pub(crate) fn started(mut change: Change, fence: Fence, now: Millis) -> Result<Change, Refused> {
    let runner = holder(&change.task, fence)?;
    let task = &mut change.task;
    if task.run != Run::Leased(runner) {
        return Err(Refused::OutOfPlace);
    }
    let approval_over = task.approved_until.is_some_and(|until| until <= now);
    if approval_over && !fault!("start-after-approval") {
        return Err(Refused::MayNotStart);
    }
    // Work that lives elsewhere is followed, not begun.
    if task.upstream.is_none() {
        // The rule stands here and not only where a lost runner is handled: a claim that reached a task by a way
        // that skipped that place would begin the work twice.
        if !may_start(task) && !fault!("begins-again") {
            return Err(Refused::MayNotStart);
        }
        task.starts = task.starts.saturating_add(1);
    }
    task.run = Run::Running(runner);
    change.audit.push(audit::Event::Started {
        attempt: change.task.starts,
    });
    change.tell();
    Ok(change)
}

/// T21.
pub(crate) fn released(mut change: Change, fence: Fence, now: Millis) -> Result<Change, Refused> {
    let runner = holder(&change.task, fence)?;
    let begun = change.task.run == Run::Running(runner);
    if begun && !can_go_on(&change.task) {
        return Err(Refused::MayNotStart);
    }
    requeue(&mut change, begun, now);
    Ok(change)
}

/// T13–T17, T22, T23.
pub(crate) fn runner_lost(
    mut change: Change,
    runner: RunnerId,
    swept: bool,
    now: Millis,
) -> Result<Change, Refused> {
    if change.task.runner() != Some(runner) {
        return Err(Refused::Fenced);
    }
    if fault!("lost-stop-is-forgotten") && change.task.is_finished() {
        return Err(Refused::Finished);
    }
    let begun = match change.task.run {
        Run::Stopping(_) => return Ok(stop_lost(change, swept)),
        Run::Running(_) => true,
        Run::Leased(_) | Run::Held | Run::Queued { .. } | Run::Parked | Run::StopOwed | Run::Idle => false,
    };
    change.audit.push(audit::Event::Reclaimed);
    // T13: what was never begun is simply queued again.
    if !begun {
        requeue(&mut change, false, now);
        return Ok(change);
    }
    if change.task.upstream.is_none() && !swept {
        change.task.strays = true;
    }
    if can_go_on(&change.task) || fault!("begins-again") || fault!("lost-runner-is-rerun") {
        let backoff = match change.task.rules.on_crash {
            OnCrash::Rerun { backoff, .. } if change.task.upstream.is_none() => backoff,
            OnCrash::Rerun { .. } | OnCrash::Fail | OnCrash::Resume => crate::Span(0),
        };
        requeue(&mut change, true, now + backoff);
        return Ok(change);
    }
    // T14
    cancel::withdraw(&mut change);
    change.task.phase = Phase::Finished(Outcome::Failed(Reason::Interrupted));
    change.task.stop = what_is_left(&change.task);
    change.task.run = Run::Idle;
    change.audit.push(audit::Event::Failed {
        reason: Some(Reason::Interrupted),
    });
    change.tell();
    Ok(change)
}

/// The common guard F: the fence is that of the present claim, and the task is not finished.
pub(crate) fn holder(task: &Task, fence: Fence) -> Result<RunnerId, Refused> {
    if task.is_finished() && !fault!("report-after-the-end") {
        return Err(Refused::Finished);
    }
    let present = fence == task.fence || fault!("report-of-old-fence");
    match task.run {
        Run::Leased(runner) | Run::Running(runner) | Run::Stopping(runner) if present => Ok(runner),
        Run::Leased(_)
        | Run::Running(_)
        | Run::Stopping(_)
        | Run::Held
        | Run::Queued { .. }
        | Run::Parked
        | Run::StopOwed
        | Run::Idle => Err(Refused::Fenced),
    }
}

/// Whether the work may begin now. Each leg that parked allows one start more.
fn may_start(task: &Task) -> bool {
    match task.rules.on_crash {
        OnCrash::Fail => task.starts <= task.legs,
        OnCrash::Rerun { starts_max, .. } => task.starts < starts_max.max(1).saturating_add(task.legs),
        OnCrash::Resume => task.starts <= task.legs || task.checkpoint.is_some(),
    }
}

/// Whether work that had begun goes on after it lost its runner, or was given back.
fn can_go_on(task: &Task) -> bool {
    if task.upstream.is_some() && !fault!("upstream-is-rerun") {
        return true; // T17
    }
    match task.rules.on_crash {
        OnCrash::Fail => false,                       // T14
        OnCrash::Rerun { .. } => may_start(task),     // T15
        OnCrash::Resume => task.checkpoint.is_some(), // T16
    }
}

/// Back to the queue. The questions of a leg that had begun are withdrawn with it, unless the work goes on from
/// a checkpoint: then they stay open, and the next leg waits for their answers.
fn requeue(change: &mut Change, begun: bool, not_before: Millis) {
    let resumes = change.task.upstream.is_none() && change.task.rules.on_crash == OnCrash::Resume;
    if begun && !resumes {
        cancel::withdraw(change);
    }
    change.task.not_before = not_before;
    change.task.run = Run::Parked;
    ask::go_on_when_settled(change);
    change.tell();
}

/// T23.
fn stop_lost(mut change: Change, swept: bool) -> Change {
    let task = &mut change.task;
    if task.upstream.is_some() && !fault!("lost-upstream-stop-is-done") {
        task.run = Run::StopOwed;
        change.effects.push(Effect::Stop);
    } else {
        task.strays |= !swept && !fault!("unswept-is-stopped");
        task.run = Run::Idle;
        task.stop = what_is_left(task);
        change.audit.push(audit::Event::Stopped {
            stop: change.task.stop,
        });
    }
    change.audit.push(audit::Event::Reclaimed);
    change.tell();
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Body, Event, Span, Stop,
        decide::check::{FENCE, ME, NOW, OLD, OTHER, asking, check, refused, task},
        task::{QuestionState, Reader},
    };

    const LOST: Event = Event::RunnerLost {
        runner: ME,
        swept: true,
    };
    const RERUN: OnCrash = OnCrash::Rerun {
        starts_max: 2,
        backoff: Span(30),
    };

    #[test]
    fn t1_a_claim_raises_the_fence() {
        check(
            &task(Run::Queued { reattach: false }),
            Event::Claimed { runner: ME },
            |task| {
                task.run = Run::Leased(ME);
                task.fence = Fence(8);
            },
        );
    }

    #[test]
    fn t1_nobody_claims_what_is_held_leased_running_or_over() {
        let claim = || Event::Claimed { runner: ME };
        for run in [Run::Held, Run::Leased(OTHER), Run::Running(OTHER), Run::Parked] {
            refused(&task(run), claim(), Refused::NotClaimable);
        }
        for run in [Run::Idle, Run::Stopping(OTHER)] {
            refused(&task(run), claim(), Refused::Finished);
        }
    }

    #[test]
    fn t1_a_rerun_is_claimed_at_its_moment_and_not_before() {
        let mut task = task(Run::Queued { reattach: false });
        task.not_before = crate::Millis(NOW.0 + 1);
        refused(&task, Event::Claimed { runner: ME }, Refused::TooEarly);
        task.not_before = NOW;
        assert!(crate::decide(&task, Event::Claimed { runner: ME }, NOW).is_ok());
    }

    #[test]
    fn t24_an_owed_stop_is_claimed() {
        check(&task(Run::StopOwed), Event::Claimed { runner: ME }, |task| {
            task.run = Run::Stopping(ME);
            task.fence = Fence(8);
        });
    }

    #[test]
    fn t2_a_start_counts_an_attempt() {
        let change = check(&task(Run::Leased(ME)), Event::Started { fence: FENCE }, |task| {
            task.run = Run::Running(ME);
            task.starts = 1;
        });
        assert_eq!(change.audit, [audit::Event::Started { attempt: 1 }]);
    }

    #[test]
    fn t2_work_that_may_begin_once_does_not_begin_twice() {
        let mut task = task(Run::Leased(ME));
        task.starts = 1;
        refused(&task, Event::Started { fence: FENCE }, Refused::MayNotStart);
        task.rules.on_crash = OnCrash::Resume;
        refused(&task, Event::Started { fence: FENCE }, Refused::MayNotStart);
        task.rules.on_crash = RERUN;
        check(&task, Event::Started { fence: FENCE }, |task| {
            task.run = Run::Running(ME);
            task.starts = 2;
        });
        task.starts = 2;
        refused(&task, Event::Started { fence: FENCE }, Refused::MayNotStart);
    }

    #[test]
    fn t2_a_leg_that_parked_lets_the_next_leg_begin_once() {
        let mut task = task(Run::Leased(ME));
        (task.starts, task.legs, task.checkpoint) = (1, 1, Some(Body::Stored));
        assert!(crate::decide(&task, Event::Started { fence: FENCE }, NOW).is_ok());
        task.starts = 2;
        refused(&task, Event::Started { fence: FENCE }, Refused::MayNotStart);
        task.rules.on_crash = OnCrash::Resume;
        assert!(crate::decide(&task, Event::Started { fence: FENCE }, NOW).is_ok());
    }

    #[test]
    fn t2_work_elsewhere_is_followed_and_no_attempt_is_counted() {
        let mut task = task(Run::Leased(ME));
        (task.starts, task.upstream) = (1, Some(Body::Stored));
        check(&task, Event::Started { fence: FENCE }, |task| {
            task.run = Run::Running(ME)
        });
    }

    #[test]
    fn t2_nothing_begins_when_its_approval_is_over() {
        let mut task = task(Run::Leased(ME));
        task.approved_until = Some(NOW);
        refused(&task, Event::Started { fence: FENCE }, Refused::MayNotStart);
        task.approved_until = Some(crate::Millis(NOW.0 + 1));
        assert!(crate::decide(&task, Event::Started { fence: FENCE }, NOW).is_ok());
    }

    #[test]
    fn a_report_of_an_old_claim_is_fenced() {
        refused(
            &task(Run::Leased(ME)),
            Event::Started { fence: OLD },
            Refused::Fenced,
        );
        refused(
            &task(Run::Queued { reattach: false }),
            Event::Started { fence: FENCE },
            Refused::Fenced,
        );
        refused(
            &task(Run::Running(ME)),
            Event::Started { fence: FENCE },
            Refused::OutOfPlace,
        );
    }

    #[test]
    fn t13_what_never_began_is_queued_again() {
        let change = check(&task(Run::Leased(ME)), LOST, |task| {
            task.run = Run::Queued { reattach: false };
            task.not_before = NOW;
        });
        assert_eq!(change.effects, [Effect::Start, Effect::Tell]);
        refused(&task(Run::Leased(OTHER)), LOST, Refused::Fenced);
        refused(&task(Run::Parked), LOST, Refused::Fenced);
    }

    #[test]
    fn t14_work_that_may_begin_once_is_interrupted() {
        let asking = asking(Run::Running(ME), Reader::Client);
        let interrupted = |task: &mut Task| {
            task.phase = Phase::Finished(Outcome::Failed(Reason::Interrupted));
            task.run = Run::Idle;
            task.stop = Stop::Stopped;
            task.questions[0].state = QuestionState::Withdrawn;
        };
        check(&asking, LOST, interrupted);
        check(
            &asking,
            Event::RunnerLost {
                runner: ME,
                swept: false,
            },
            |task| {
                interrupted(task);
                (task.stop, task.strays) = (Stop::Unknown, true);
            },
        );
    }

    #[test]
    fn t15_a_rerun_waits_for_its_back_off_and_has_a_limit() {
        let mut task = task(Run::Running(ME));
        task.rules.on_crash = RERUN;
        check(&task, LOST, |task| {
            task.run = Run::Queued { reattach: false };
            task.not_before = crate::Millis(NOW.0 + 30);
        });
        task.starts = 2;
        let change = crate::decide(&task, LOST, NOW).expect("taken");
        assert_eq!(
            change.task.phase,
            Phase::Finished(Outcome::Failed(Reason::Interrupted))
        );
    }

    #[test]
    fn t16_work_with_a_checkpoint_keeps_its_questions_and_waits_for_them() {
        let mut asking = asking(Run::Running(ME), Reader::Client);
        (asking.rules.on_crash, asking.checkpoint) = (OnCrash::Resume, Some(Body::Stored));
        check(&asking, LOST, |task| {
            task.run = Run::Parked;
            task.not_before = NOW;
        });
    }

    #[test]
    fn t17_work_elsewhere_is_followed_again_whatever_the_rule() {
        let mut asking = asking(Run::Running(ME), Reader::Client);
        asking.upstream = Some(Body::Stored);
        for on_crash in [OnCrash::Fail, RERUN, OnCrash::Resume] {
            asking.rules.on_crash = on_crash;
            check(
                &asking,
                Event::RunnerLost {
                    runner: ME,
                    swept: false,
                },
                |task| {
                    task.phase = Phase::Working;
                    task.run = Run::Queued { reattach: true };
                    task.not_before = NOW;
                    task.questions[0].state = QuestionState::Withdrawn;
                },
            );
        }
    }

    #[test]
    fn t21_a_draining_runner_gives_back_what_may_go_on() {
        let release = || Event::Released { fence: FENCE };
        refused(&task(Run::Running(ME)), release(), Refused::MayNotStart);
        let mut rerun = task(Run::Running(ME));
        rerun.rules.on_crash = RERUN;
        for task in [task(Run::Leased(ME)), rerun] {
            check(&task, release(), |task| {
                task.run = Run::Queued { reattach: false };
                task.not_before = NOW;
            });
        }
    }

    #[test]
    fn t23_a_stop_survives_its_runner() {
        let mut stopping = task(Run::Stopping(ME));
        stopping.phase = Phase::Finished(Outcome::Failed(Reason::Expired));
        stopping.stop = Stop::Stopping;
        check(&stopping, LOST, |task| {
            (task.run, task.stop) = (Run::Idle, Stop::Stopped)
        });
        check(
            &stopping,
            Event::RunnerLost {
                runner: ME,
                swept: false,
            },
            |task| {
                (task.run, task.stop, task.strays) = (Run::Idle, Stop::Unknown, true);
            },
        );
        stopping.upstream = Some(Body::Stored);
        check(&stopping, LOST, |task| task.run = Run::StopOwed);
    }
}
