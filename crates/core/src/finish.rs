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
    task::{Body, CancelledBy, Outcome, Phase, Reason, Run},
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

/// T27.
pub(crate) fn cancelled_elsewhere(change: Change, fence: Fence) -> Result<Change, Refused> {
    let unguarded = fault!("cancelled-by-an-old-claim") && !change.task.is_finished();
    if !unguarded {
        begun(&change, fence)?;
    }
    let by = CancelledBy::Server;
    Ok(end(
        change,
        Outcome::Cancelled { by },
        audit::Event::Cancelled { by },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Event,
        decide::check::{FENCE, ME, OLD, asking, check, refused, task},
        task::{QuestionState, Reader},
    };

    fn returned(fence: Fence, is_error: bool) -> Event {
        Event::Returned {
            fence,
            body: Body::new(b"result"),
            is_error,
        }
    }

    #[test]
    fn t4_only_the_holder_notes_progress() {
        for run in [Run::Leased(ME), Run::Running(ME)] {
            check(&task(run), Event::Noted { fence: FENCE }, |_| ());
        }
        refused(
            &task(Run::Running(ME)),
            Event::Noted { fence: OLD },
            Refused::Fenced,
        );
        refused(
            &task(Run::Queued { reattach: false }),
            Event::Noted { fence: FENCE },
            Refused::Fenced,
        );
    }

    #[test]
    fn a_handle_is_told_once_and_only_by_running_work() {
        let attached = || Event::Attached {
            fence: FENCE,
            upstream: Body::new(b"handle"),
        };
        let change = check(&task(Run::Running(ME)), attached(), |task| {
            task.upstream = Some(Body::new(b"handle"))
        });
        refused(&change.task, attached(), Refused::OutOfPlace);
        refused(&task(Run::Leased(ME)), attached(), Refused::OutOfPlace);
    }

    #[test]
    fn t8_a_result_ends_the_task_and_its_questions() {
        for is_error in [false, true] {
            check(
                &asking(Run::Running(ME), Reader::Client),
                returned(FENCE, is_error),
                |task| {
                    task.phase = Phase::Finished(Outcome::Returned {
                        body: Body::new(b"result"),
                        is_error,
                    });
                    task.run = Run::Idle;
                    task.questions[0].state = QuestionState::Withdrawn;
                },
            );
        }
    }

    #[test]
    fn t8_a_result_of_an_old_claim_or_after_the_end_changes_nothing() {
        refused(&task(Run::Running(ME)), returned(OLD, false), Refused::Fenced);
        refused(
            &task(Run::Leased(ME)),
            returned(FENCE, false),
            Refused::OutOfPlace,
        );
        let mut stopping = task(Run::Stopping(ME));
        stopping.phase = Phase::Finished(Outcome::Failed(Reason::Expired));
        refused(&stopping, returned(FENCE, false), Refused::Finished);
    }

    #[test]
    fn t9_an_error_ends_the_task() {
        let errored = || Event::Errored {
            fence: FENCE,
            body: Body::new(b"error"),
        };
        check(&task(Run::Running(ME)), errored(), |task| {
            task.phase = Phase::Finished(Outcome::Errored {
                body: Body::new(b"error"),
            });
            task.run = Run::Idle;
        });
        refused(&task(Run::Leased(ME)), errored(), Refused::OutOfPlace);
    }

    #[test]
    fn t27_the_server_of_the_work_cancels_it_and_nothing_is_owed() {
        let cancelled = |fence| Event::CancelledElsewhere { fence };
        check(
            &asking(Run::Running(ME), Reader::Client),
            cancelled(FENCE),
            |task| {
                task.phase = Phase::Finished(Outcome::Cancelled {
                    by: CancelledBy::Server,
                });
                task.run = Run::Idle;
                task.questions[0].state = QuestionState::Withdrawn;
            },
        );
        refused(&task(Run::Leased(ME)), cancelled(FENCE), Refused::OutOfPlace);
        refused(&task(Run::Running(ME)), cancelled(OLD), Refused::Fenced);
    }

    #[test]
    fn t9_a_runner_says_why_it_failed_even_before_the_start() {
        for run in [Run::Leased(ME), Run::Running(ME)] {
            check(
                &task(run),
                Event::Failed {
                    fence: FENCE,
                    reason: Reason::UpstreamLost,
                },
                |task| {
                    task.phase = Phase::Finished(Outcome::Failed(Reason::UpstreamLost));
                    task.run = Run::Idle;
                },
            );
        }
    }
}
