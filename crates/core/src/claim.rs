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
        task.fence = Fence(task.fence.0.saturating_add(1));
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
