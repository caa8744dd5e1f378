//! What a runner reports of work that goes on or has ended: notes, a handle, results, errors.
//!
//! Called by `decide` only. A runner reports an end only when nothing of the work is left, so the task owes
//! nothing afterwards.

use crate::{
    audit, cancel,
    claim::holder,
    decide::Change,
    event::Refused,
    fault,
    id::Fence,
    task::{Body, Outcome, Phase, Reason, Run},
};

/// T4. What is noted is the caller's to store.
pub(crate) fn noted(mut change: Change, fence: Fence) -> Result<Change, Refused> {
    if !fault!("notes-unguarded") {
        holder(&change.task, fence)?;
    }
    change.tell();
    Ok(change)
}

/// The work can be followed from outside; once said, for ever.
pub(crate) fn attached(mut change: Change, fence: Fence, upstream: Body) -> Result<Change, Refused> {
    let runner = holder(&change.task, fence)?;
    if change.task.run != Run::Running(runner) || change.task.upstream.is_some() {
        return Err(Refused::OutOfPlace);
    }
    change.task.upstream = Some(upstream);
    change.audit.push(audit::Event::Attached);
    Ok(change)
}

/// T8.
pub(crate) fn returned(change: Change, fence: Fence, body: Body, is_error: bool) -> Result<Change, Refused> {
    let late = change.task.is_finished() && fault!("result-after-the-end");
    if !late {
        begun(&change, fence)?;
    }
    let event = audit::Event::Completed { is_error };
    Ok(end(change, Outcome::Returned { body, is_error }, event))
}

/// T9.
pub(crate) fn errored(change: Change, fence: Fence, body: Body) -> Result<Change, Refused> {
    let unguarded = fault!("error-of-anybody") && !change.task.is_finished();
    if !unguarded {
        begun(&change, fence)?;
    }
    Ok(end(
        change,
        Outcome::Errored { body },
        audit::Event::Failed { reason: None },
    ))
}

/// The work ended, or could not begin, and Longhaul says why. Unlike a result it may come before the start.
pub(crate) fn failed(change: Change, fence: Fence, reason: Reason) -> Result<Change, Refused> {
    holder(&change.task, fence)?;
    Ok(end(
        change,
        Outcome::Failed(reason),
        audit::Event::Failed { reason: Some(reason) },
    ))
}

fn begun(change: &Change, fence: Fence) -> Result<(), Refused> {
    let runner = holder(&change.task, fence)?;
    if change.task.run == Run::Running(runner) {
        Ok(())
    } else {
        Err(Refused::OutOfPlace)
    }
}

fn end(mut change: Change, outcome: Outcome, event: audit::Event) -> Change {
    cancel::withdraw(&mut change);
    change.task.phase = Phase::Finished(outcome);
    change.task.run = Run::Idle;
    change.audit.push(event);
    change.tell();
    change
}
