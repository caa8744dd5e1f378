//! Claims due tasks and works at them: claim, start, run, report.
//!
//! Started by `Engine::start`. Every step goes through `transact`; what a tool reports counts only under the
//! fence of its claim, and only the core says whether it does.

use std::{pin::Pin, sync::Arc, time::Duration};

use longhaul_core::{Event, Reason, Refused, Run, event::Ask};
use longhaul_store::{Query, Row, Scope, Snapshot};
use tokio::{
    task::{AbortHandle, JoinHandle, JoinSet},
    time::{Sleep, sleep},
};
use tracing::{debug, error, warn};

use crate::{
    attempts::{Entry, Order},
    clock,
    context::{Live, settlement},
    engine::{Inner, Stage},
    report::{Persisted, Report, happened},
    tool::{Call, Context, Earlier, Finish, Slots, Tool},
    transact::{Done, OnRefusal, Proposal, Verdict, is_releasable},
};

/// Claims for as long as the process works, then waits for what it runs.
pub(crate) async fn claim_work(inner: Arc<Inner>) {
    let mut drivers = JoinSet::new();
    let mut stage = inner.stage.subscribe();
    while *stage.borrow_and_update() == Stage::Working {
        if let Err(error) = inner.claim_round(&mut drivers).await {
            warn!(%error, "could not look for work");
        }
        tokio::select! {
            () = inner.work.notified() => {}
            () = sleep(inner.options.claim_interval) => {}
            _ = stage.changed() => {}
            Some(ended) = drivers.join_next() => inner.ended(ended),
        }
    }
    while let Some(ended) = drivers.join_next().await {
        inner.ended(ended);
    }
}

impl Inner {
    /// Begins an attempt at every task that may be claimed and that this process has a tool and a free slot for.
    async fn claim_round(self: &Arc<Inner>, drivers: &mut JoinSet<()>) -> Result<(), longhaul_store::Error> {
        while let Some(ended) = drivers.try_join_next() {
            self.ended(ended);
        }
        let found = self.store.read(Query::Claimable(self.wanted())).await?;
        for row in &found.rows {
            if let Some(slots) = self.slots_of(row).await? {
                self.begin(drivers, row, slots);
            }
        }
        Ok(())
    }

    fn begin(self: &Arc<Inner>, drivers: &mut JoinSet<()>, row: &Row, slots: Slots) {
        if *self.stage.borrow() != Stage::Working {
            return;
        }
        let Some(tool) = self.tools.find(&row.tool) else {
            return;
        };
        let full = !self.is_free(&slots);
        // A stop that is owed waits for no slot.
        if full && row.task.run != Run::StopOwed && !longhaul_core::fault!("claims-without-a-slot") {
            return;
        }
        let Some(entry) = self.attempts.add(row.id, &row.tool, slots.of) else {
            return;
        };
        let driver = Driver {
            inner: Arc::clone(self),
            entry,
            tool,
        };
        drivers.spawn(driver.drive());
    }

    fn ended(&self, driver: Result<(), tokio::task::JoinError>) {
        if driver.is_err_and(|error| error.is_panic()) {
            error!("a worker panicked; this process stops what it runs, and another settles it");
            self.fence();
        }
    }
}

/// One attempt, from its claim to its report.
struct Driver {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    tool: Arc<dyn Tool>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.inner.attempts.remove(self.entry.id);
    }
}

impl Driver {
    async fn drive(self) {
        let Some(Claim { mut call, owes }) = self.claim().await else {
            return;
        };
        match owes {
            Owes::Start if longhaul_core::fault!("begins-before-the-start-is-committed") => {
                let worked = self.work(call.clone()).await;
                self.start(&mut call).await;
                self.report(worked).await;
            }
            Owes::Work => {
                let worked = self.work(call).await;
                self.report(worked).await;
            }
            Owes::Start => {
                if self.start(&mut call).await {
                    let worked = self.work(call).await;
                    self.report(worked).await;
                }
            }
            Owes::Stop => {
                self.entry.order(Order::End);
                let worked = self.work(call).await;
                self.report(worked).await;
            }
        }
    }

    /// T1 together with T2 where the work may begin at once; T24. `None` when another runner was quicker, or the task
    /// ended meanwhile.
    async fn claim(&self) -> Option<Claim> {
        let me = self.inner.options.runner.id;
        let begins = *self.inner.stage.borrow() < Stage::Draining
            && !longhaul_core::fault!("begins-before-the-start-is-committed");
        let mut claimed = self.try_claim(begins).await;
        // It is claimed all the same, to say how it ends.
        if matches!(claimed, Ok(Some(Done::NotNow(Refused::MayNotStart, ())))) {
            claimed = self.try_claim(false).await;
        }
        match claimed {
            Ok(Some(Done::Committed(row, ()))) => self.entry.claimed(row.task.fence),
            Ok(Some(Done::NotNow(..) | Done::Refused(()))) => return None,
            // The row says whether it is ours.
            Err(error) if error.ambiguous => {}
            Ok(None) => {}
            Err(error) => {
                warn!(%error, "could not claim a task");
                sleep(self.inner.options.claim_interval).await;
                return None;
            }
        }
        let row = self.inner.row(self.entry.id).await?;
        let owes = match row.task.run {
            Run::Leased(runner) if runner == me => Owes::Start,
            Run::Running(runner) if runner == me => Owes::Work,
            Run::Stopping(runner) if runner == me => Owes::Stop,
            Run::Leased(_)
            | Run::Stopping(_)
            | Run::Running(_)
            | Run::Held
            | Run::Queued { .. }
            | Run::Parked
            | Run::StopOwed
            | Run::Idle => return None,
        };
        self.entry.claimed(row.task.fence);
        Some(Claim {
            call: call(row),
            owes,
        })
    }

    async fn try_claim(&self, begins: bool) -> Result<Option<Done<()>>, longhaul_store::Error> {
        let me = self.inner.options.runner.id;
        let judge = move |snapshot: &Snapshot| {
            let mut events = vec![Event::Claimed { runner: me }];
            if let Some(row) = &snapshot.task
                && begins
                && matches!(row.task.run, Run::Queued { .. })
            {
                let fence = row.task.fence.next();
                events.push(Event::Started { fence });
            }
            Verdict::Apply(
                Proposal {
                    events,
                    actor: "runner",
                    ..Proposal::default()
                },
                (),
            )
        };
        let (id, scope) = (clock::step_id(), Scope::task(self.entry.id));
        self.inner
            .step(id, scope, Box::new(judge), OnRefusal::Leave)
            .await
    }

    /// T2, of a task that could not begin with its claim. Whether the work may begin.
    async fn start(&self, call: &mut Call) -> bool {
        if *self.inner.stage.borrow() >= Stage::Draining {
            self.give_back().await;
            return false;
        }
        let fence = self.entry.fence();
        let started = || happened(Event::Started { fence });
        match self.inner.persist(self.entry.id, OnRefusal::Leave, started).await {
            Persisted::Done(Done::Committed(row, ())) => {
                call.attempt = row.task.starts;
                true
            }
            Persisted::Done(Done::NotNow(Refused::MayNotStart, ())) => {
                self.end_unstarted().await;
                false
            }
            Persisted::Done(Done::NotNow(..) | Done::Refused(())) | Persisted::Fenced => false,
            Persisted::InDoubt => match self.inner.row(self.entry.id).await {
                Some(row) => {
                    call.attempt = row.task.starts;
                    row.task.run == Run::Running(self.inner.options.runner.id) && row.task.fence == fence
                }
                None => false,
            },
        }
    }

    /// The start was refused for good: its approval is over, which is due now, or its starts are spent.
    async fn end_unstarted(&self) {
        if let Persisted::Done(Done::NotNow(Refused::NotDue, ())) = self.say(Event::Due).await {
            self.say(Event::Failed {
                fence: self.entry.fence(),
                reason: Reason::Interrupted,
            })
            .await;
        }
    }

    async fn give_back(&self) {
        self.say(Event::Released {
            fence: self.entry.fence(),
        })
        .await;
    }

    async fn say(&self, event: Event) -> Persisted {
        self.inner
            .persist(self.entry.id, OnRefusal::Leave, || happened(event.clone()))
            .await
    }

    /// Runs the tool and follows it to its end.
    async fn work(&self, call: Call) -> Worked {
        let context = Context {
            inner: Arc::new(Live {
                inner: Arc::clone(&self.inner),
                entry: Arc::clone(&self.entry),
            }),
        };
        let mut work = Work::begin(&self.tool, call, context);
        let mut orders = self.entry.orders();
        let mut patience: Option<Pin<Box<Sleep>>> = None;
        let mut quiet = Box::pin(sleep(Duration::ZERO));
        let (mut noted, mut releasing) = (false, false);
        if *self.inner.stage.borrow() >= Stage::Draining {
            self.entry.order(Order::Release);
        }
        orders.mark_changed();
        loop {
            if longhaul_core::fault!("confirms-a-stop-too-early") && *orders.borrow() == Order::End {
                return Worked::Ended {
                    finish: Finish::Stopped { confirmed: true },
                    releasing,
                };
            }
            tokio::select! {
                biased;
                ended = &mut work.running => return self.ended(ended, releasing),
                Ok(()) = orders.changed() => {
                    let order = *orders.borrow_and_update();
                    match self.obey(order, &mut releasing).await {
                        Next::GoOn => {}
                        Next::LetGo => return Worked::LetGo,
                        Next::Stop => {
                            let limit = if self.inner.is_fenced() {
                                self.inner.options.fence_wait_max
                            } else {
                                self.inner.options.stop_wait_max
                            };
                            patience = Some(Box::pin(sleep(limit)));
                            self.entry.tell_stop();
                        }
                    }
                }
                () = overdue(&mut patience) => {
                    warn!(tool = self.entry.tool, "a tool did not end in time after it was told to stop");
                    return Worked::Ended { finish: Finish::Stopped { confirmed: false }, releasing };
                }
                () = self.entry.noted.notified(), if !noted => noted = true,
                () = &mut quiet, if noted => {
                    noted = false;
                    self.write_note().await;
                    quiet = Box::pin(sleep(self.inner.options.note_interval));
                }
            }
        }
    }

    fn ended(&self, ended: Result<Finish, tokio::task::JoinError>, releasing: bool) -> Worked {
        match ended {
            Ok(finish) => Worked::Ended { finish, releasing },
            Err(error) if error.is_panic() => {
                error!(tool = self.entry.tool, "a tool panicked");
                Worked::Panicked
            }
            Err(_) => Worked::LetGo,
        }
    }

    async fn obey(&self, order: Order, releasing: &mut bool) -> Next {
        match order {
            Order::Run => Next::GoOn,
            Order::End => Next::Stop,
            Order::Release | Order::Shutdown => match self.can_give_back().await {
                // Work that lives elsewhere goes on without us: it is let go, not stopped.
                Some(GiveBack::LetGo) => {
                    self.give_back().await;
                    Next::LetGo
                }
                Some(GiveBack::AfterStop) => {
                    *releasing = true;
                    Next::Stop
                }
                Some(GiveBack::No) if order == Order::Shutdown => {
                    // The commit tells the attempt to stop, as every end from outside does.
                    self.say(Event::Failed {
                        fence: self.entry.fence(),
                        reason: Reason::Shutdown,
                    })
                    .await;
                    Next::GoOn
                }
                Some(GiveBack::No) | None => Next::GoOn,
            },
        }
    }

    async fn can_give_back(&self) -> Option<GiveBack> {
        let row = self.inner.row(self.entry.id).await?;
        let releasable = is_releasable(&row.task, self.entry.fence());
        Some(match (releasable, &row.task.upstream) {
            (true, Some(_)) if self.tool.outlives_us() => GiveBack::LetGo,
            (true, Some(_)) => GiveBack::No,
            (true, None) => GiveBack::AfterStop,
            (false, _) => GiveBack::No,
        })
    }

    async fn write_note(&self) {
        let Some(note) = self.entry.take_note() else {
            return;
        };
        let fence = self.entry.fence();
        let scope = Scope::task(self.entry.id);
        let judge = move |_: &Snapshot| {
            let events = vec![Event::Noted { fence }];
            Verdict::Apply(
                Proposal {
                    events,
                    note: Some(note.clone()),
                    actor: "runner",
                    ..Proposal::default()
                },
                (),
            )
        };
        // A lost note is replaced by the next one.
        if let Err(error) = self.inner.transact(scope, Box::new(judge)).await {
            debug!(%error, "could not store a note");
        }
    }

    async fn report(&self, worked: Worked) {
        let fence = self.entry.fence();
        let interrupted = Event::Failed {
            fence,
            reason: Reason::Interrupted,
        };
        let (event, confirmed) = match worked {
            Worked::LetGo => return,
            Worked::Panicked => (interrupted.clone(), false),
            Worked::Ended { finish, releasing } => match finish {
                Finish::Returned { body, is_error } => (
                    Event::Returned {
                        fence,
                        body,
                        is_error,
                    },
                    true,
                ),
                Finish::Errored { body } => (Event::Errored { fence, body }, true),
                Finish::Failed(reason) => (Event::Failed { fence, reason }, true),
                Finish::Cancelled => (Event::CancelledElsewhere { fence }, true),
                Finish::Parked { checkpoint } => (Event::Parked { fence, checkpoint }, true),
                Finish::Lost { confirmed } => (
                    Event::RunnerLost {
                        runner: self.inner.options.runner.id,
                        swept: confirmed,
                    },
                    confirmed,
                ),
                Finish::Stopped { confirmed: true } if releasing => (Event::Released { fence }, true),
                // Something of it may live: only a sweep may let it begin again.
                Finish::Stopped { confirmed: false } if releasing => return,
                Finish::Stopped { confirmed } => (interrupted.clone(), confirmed),
            },
        };
        let has_result = matches!(event, Event::Returned { .. } | Event::Errored { .. });
        let runner = self.inner.options.runner.id;
        let report = Report {
            runner,
            fence,
            event,
            confirmed,
            has_result,
            note: self.entry.take_note(),
        };
        let late = if has_result {
            OnRefusal::Record
        } else {
            OnRefusal::Leave
        };
        let mut reported = self.inner.persist(self.entry.id, late, || report.judge()).await;
        if matches!(reported, Persisted::InDoubt) && self.holds().await {
            reported = self.inner.persist(self.entry.id, late, || report.judge()).await;
        }
        match reported {
            Persisted::InDoubt
            | Persisted::Fenced
            | Persisted::Done(
                Done::Committed(..)
                | Done::Refused(())
                | Done::NotNow(Refused::Finished | Refused::Fenced, ()),
            ) => {}
            Persisted::Done(Done::NotNow(why, ())) => {
                warn!(
                    ?why,
                    tool = self.entry.tool,
                    "a report made no sense; the task ends as interrupted"
                );
                self.say(interrupted).await;
            }
        }
    }

    /// Whether the task is still held under this claim.
    async fn holds(&self) -> bool {
        let row = self.inner.row(self.entry.id).await;
        row.is_some_and(|row| {
            row.task.runner() == Some(self.inner.options.runner.id) && row.task.fence == self.entry.fence()
        })
    }
}

/// Whether a task can be given back (T21).
enum GiveBack {
    /// It lives elsewhere and goes on without us.
    LetGo,
    /// Once its work has stopped here.
    AfterStop,
    /// It may run only once, or would end with this process.
    No,
}

/// A task that this runner holds now.
struct Claim {
    call: Call,
    owes: Owes,
}

/// What a claim is for.
enum Owes {
    /// Its start is committed.
    Work,
    Start,
    Stop,
}

/// What came of the work.
enum Worked {
    /// The tool ended, or was dropped because it did not.
    Ended { finish: Finish, releasing: bool },
    /// The tool panicked: what it did is unknown.
    Panicked,
    /// The task is not ours any more, and nothing is owed.
    LetGo,
}

/// What follows from an order.
enum Next {
    GoOn,
    Stop,
    LetGo,
}

fn call(row: Row) -> Call {
    // An approval is asked at birth, before any leg.
    let approvals = usize::from(row.task.approved_until.is_some());
    let questions = row.task.questions.iter().skip(approvals);
    let asked = questions.map(|question| Earlier {
        ask: Ask {
            reader: question.reader,
            body: question.ask.clone(),
            bind: question.bind,
        },
        settled: settlement(question),
    });
    let asked = asked.collect();
    Call {
        task: row.id,
        name: row.name,
        owner: row.owner,
        tool: row.tool,
        attempt: row.task.starts,
        args: row.args,
        context: row.context,
        checkpoint: row.task.checkpoint,
        upstream: row.task.upstream,
        asked,
    }
}

async fn overdue(patience: &mut Option<Pin<Box<Sleep>>>) {
    match patience {
        Some(patience) => patience.await,
        None => std::future::pending().await,
    }
}

/// A tool at work, in a task of its own so that a panic is caught. Dropped, the tool is dropped with it.
struct Work {
    running: JoinHandle<Finish>,
    abort: AbortHandle,
}

impl Work {
    fn begin(tool: &Arc<dyn Tool>, call: Call, context: Context) -> Work {
        let tool = Arc::clone(tool);
        let running = tokio::spawn(async move { tool.run(call, context).await });
        Work {
            abort: running.abort_handle(),
            running,
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.abort.abort();
    }
}
