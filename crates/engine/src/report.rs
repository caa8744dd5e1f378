//! What a runner says to the store, and how often it says it when the store fails.
//!
//! Used by the worker and by the context of its tools. Every try of one step goes under the same step id, so that a
//! commit whose reply was lost is never written twice.

use longhaul_core::{Event, Fence, Refused, Run, RunnerId, TaskId, audit};
use longhaul_store::{Fault, Query, Row, Scope};
use tokio::time::sleep;
use tracing::{error, warn};

use crate::{
    clock,
    engine::Inner,
    transact::{Done, Judge, OnRefusal, Proposal, Trail, Verdict},
};

/// What became of a step that was tried until it was done.
pub(crate) enum Persisted {
    /// As the last try says.
    Done(Done<()>),
    /// An earlier try may have been committed, its reply lost: the row says what is so.
    InDoubt,
    /// This process is fenced: declared dead by others, or the store failed for too long.
    Fenced,
}

impl Inner {
    /// Commits one step of a runner, trying again while the store fails; then this process fences itself.
    pub(crate) async fn persist(
        &self,
        task: TaskId,
        on_refusal: OnRefusal,
        judge: impl Fn() -> Judge<()>,
    ) -> Persisted {
        let id = clock::step_id();
        let mut in_doubt = false;
        let mut backoff = self.options.report_backoff_min;
        for _ in 0..self.options.report_tries_max {
            if self.is_fenced() {
                return Persisted::Fenced;
            }
            let scope = Scope::task(task);
            // After a commit in doubt a refusal may be the echo of our own success.
            let on_refusal = if in_doubt { OnRefusal::Leave } else { on_refusal };
            match self.step(id, scope, judge(), on_refusal).await {
                Ok(Some(done)) if done.is_committed() || !in_doubt => return Persisted::Done(done),
                Ok(Some(_) | None) => return Persisted::InDoubt,
                // A step that was committed is not written a second time: the store refuses its id.
                Err(error) if in_doubt && error.fault == Fault::Broken => return Persisted::InDoubt,
                Err(error) => {
                    in_doubt |= error.ambiguous;
                    warn!(%error, "could not report; trying again");
                }
            }
            sleep(backoff).await;
            backoff = backoff.saturating_mul(2).min(self.options.report_backoff_max);
        }
        error!("the store failed for too long; this process stops what it runs");
        self.fence();
        Persisted::Fenced
    }

    /// The row of a task at work, tried until it can be read. `None` when it is gone, or this process is fenced.
    pub(crate) async fn row(&self, task: TaskId) -> Option<Row> {
        let mut backoff = self.options.report_backoff_min;
        while !self.is_fenced() {
            match self.store.read(Query::Task(task)).await {
                Ok(found) => return found.rows.into_iter().next(),
                Err(error) => warn!(%error, "could not read a task at work; trying again"),
            }
            sleep(backoff).await;
            backoff = backoff.saturating_mul(2).min(self.options.report_backoff_max);
        }
        None
    }
}

/// A judge that lets this happen to the task, as its runner says.
pub(crate) fn happened(event: Event) -> Judge<()> {
    Box::new(move |_| {
        Verdict::Apply(
            Proposal {
                events: vec![event.clone()],
                actor: "runner",
                ..Proposal::default()
            },
            (),
        )
    })
}

/// How an attempt ended.
pub(crate) struct Report {
    pub(crate) runner: RunnerId,
    pub(crate) fence: Fence,
    /// The end as the tool gave it.
    pub(crate) event: Event,
    /// Nothing of the work is left.
    pub(crate) confirmed: bool,
    /// It carries a result, whose loss the audit keeps.
    pub(crate) has_result: bool,
    /// The last note, if it was not stored yet.
    pub(crate) note: Option<Vec<u8>>,
}

impl Report {
    /// The end as the tool gave it; or, when the task was ended from outside meanwhile, that the work stopped.
    pub(crate) fn judge(&self) -> Judge<()> {
        let Report {
            runner,
            fence,
            confirmed,
            has_result,
            ..
        } = *self;
        let (event, note) = (self.event.clone(), self.note.clone());
        Box::new(move |snapshot| {
            let Some(row) = &snapshot.task else {
                return Verdict::Refuse(());
            };
            let mut proposal = Proposal {
                actor: "runner",
                ..Proposal::default()
            };
            if row.task.run == Run::Stopping(runner) && row.task.fence == fence {
                proposal.events = vec![Event::Stopped { fence, confirmed }];
                if has_result {
                    let entries = vec![
                        audit::Event::Refused {
                            why: Refused::Finished,
                        }
                        .entry(),
                    ];
                    proposal.trail = Trail {
                        entries,
                        ..Trail::default()
                    };
                }
            } else if matches!(event, Event::RunnerLost { .. }) && row.task.fence != fence {
                // The event carries no fence of its own.
                return Verdict::Refuse(());
            } else {
                let event = event.clone();
                let unfenced = longhaul_core::fault!("reports-under-the-present-fence");
                proposal.events = vec![if unfenced {
                    refenced(event, row.task.fence)
                } else {
                    event
                }];
                proposal.note = note.clone();
            }
            Verdict::Apply(proposal, ())
        })
    }
}

/// The planted fault: a result counts whoever holds the task.
fn refenced(event: Event, fence: Fence) -> Event {
    if let Event::Returned { body, is_error, .. } = event {
        Event::Returned {
            fence,
            body,
            is_error,
        }
    } else {
        event
    }
}
