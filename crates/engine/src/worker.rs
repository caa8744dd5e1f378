//! Claims due tasks and works at them: claim, start, run, report.
//!
//! Started by `Engine::start`. Every step goes through `transact`; what a tool reports counts only under the
//! fence of its claim, and only the core says whether it does.

use std::{pin::Pin, sync::Arc, time::Duration};

use longhaul_core::{
    Body, Event, Fence, Question, QuestionKey, Reason, Refused, Run, audit, event::Ask, task::QuestionState,
};
use longhaul_store::{Query, Row, Scope, Slot, Snapshot};
use tokio::{
    task::{AbortHandle, JoinHandle, JoinSet},
    time::{Sleep, sleep},
};
use tracing::{debug, error, warn};

use crate::{
    attempts::{Entry, Order},
    clock,
    engine::{Inner, Stage},
    tool::{Attempt, Call, Context, Ended, Finish, Settled, Tool},
    transact::{Done, Judge, OnRefusal, Proposal, Trail, Verdict, is_releasable},
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
    /// Begins an attempt at every due task that this process has a tool and a free slot for.
    async fn claim_round(self: &Arc<Inner>, drivers: &mut JoinSet<()>) -> Result<(), longhaul_store::Error> {
        let mut limit = self.options.claim_batch;
        loop {
            while let Some(ended) = drivers.try_join_next() {
                self.ended(ended);
            }
            if self.running() >= self.options.running_max {
                return Ok(());
            }
            let found = self.store.read(Query::Due { limit }).await?;
            let full = found.rows.len() >= limit as usize;
            let mut begun = false;
            for row in &found.rows {
                let claimable = match row.task.run {
                    Run::Queued { .. } => row.task.not_before <= found.now && !row.task.is_finished(),
                    Run::StopOwed => true,
                    Run::Held
                    | Run::Leased(_)
                    | Run::Running(_)
                    | Run::Parked
                    | Run::Stopping(_)
                    | Run::Idle => false,
                };
                begun |= claimable && self.begin(drivers, row);
            }
            // Tasks that nobody here can work at fill the page: look past them.
            if begun || !full || limit >= self.options.claim_batch_max {
                return Ok(());
            }
            limit = limit.saturating_mul(4).min(self.options.claim_batch_max);
        }
    }

    fn begin(self: &Arc<Inner>, drivers: &mut JoinSet<()>, row: &Row) -> bool {
        if *self.stage.borrow() != Stage::Working || self.attempts.has(row.id) {
            return false;
        }
        let Some(tool) = self.tools.find(&row.tool) else {
            return false;
        };
        let (running, _) = self.attempts.count(self.options.waiting_max);
        let busy = running.get(&row.tool).copied().unwrap_or(0);
        let full =
            busy >= tool.concurrency_max() || running.values().sum::<usize>() >= self.options.running_max;
        // A stop that is owed waits for no slot.
        if full && row.task.run != Run::StopOwed && !longhaul_core::fault!("claims-without-a-slot") {
            return false;
        }
        let Some(entry) = self.attempts.add(row.id, &row.tool) else {
            return false;
        };
        let driver = Driver {
            inner: Arc::clone(self),
            entry,
            tool,
        };
        drivers.spawn(driver.drive());
        true
    }

    fn running(&self) -> usize {
        self.attempts.count(self.options.waiting_max).0.values().sum()
    }

    fn ended(&self, driver: Result<(), tokio::task::JoinError>) {
        if driver.is_err_and(|error| error.is_panic()) {
            error!("a worker panicked; this process stops what it runs, and another settles it");
            self.fence();
        }
    }

    /// Commits one step of a runner, trying again while the store fails: always under the same step id, so that a
    /// commit whose reply was lost is not written twice. `None` when this process is fenced, by others or because
    /// the store failed for too long; or when an earlier try had been committed all the same.
    async fn persist(
        &self,
        entry: &Entry,
        on_refusal: OnRefusal,
        judge: impl Fn() -> Judge<()>,
    ) -> Option<Done<()>> {
        let id = clock::step_id();
        let mut on_refusal = on_refusal;
        let mut backoff = self.options.report_backoff_min;
        for _ in 0..self.options.report_tries_max {
            if self.is_fenced() {
                return None;
            }
            let scope = Scope {
                task: Slot::Task(entry.id),
                ..Scope::default()
            };
            match self.step(id, scope, judge(), on_refusal).await {
                Ok(done) => return done,
                Err(error) => {
                    // After a commit in doubt a refusal may be the echo of our own success.
                    if error.ambiguous {
                        on_refusal = OnRefusal::Leave;
                    }
                    warn!(%error, "could not report; trying again");
                }
            }
            sleep(backoff).await;
            backoff = backoff.saturating_mul(2).min(self.options.report_backoff_max);
        }
        error!("the store failed for too long; this process stops what it runs");
        self.fence();
        None
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

    /// T1, T24. `None` when another runner was quicker, or the task ended meanwhile.
    async fn claim(&self) -> Option<Claim> {
        let runner = self.inner.options.runner.id;
        let scope = Scope {
            task: Slot::Task(self.entry.id),
            ..Scope::default()
        };
        let judge: Judge<()> = Box::new(move |_| runner_says(vec![Event::Claimed { runner }]));
        let row = match self.inner.transact(scope, judge).await {
            Ok(Done::Committed(row, ())) => row,
            Ok(Done::NotNow(..) | Done::Refused(())) => return None,
            Err(error) => {
                warn!(%error, "could not claim a task");
                sleep(self.inner.options.claim_interval).await;
                return None;
            }
        };
        self.entry.claimed(row.task.fence);
        let owes = if matches!(row.task.run, Run::Stopping(_)) {
            Owes::Stop
        } else {
            Owes::Start
        };
        let found = self.inner.store.read(Query::Task(self.entry.id)).await;
        match found.map(|found| found.rows.into_iter().next()) {
            Ok(Some(row)) => Some(Claim {
                call: call(row),
                owes,
            }),
            Ok(None) => None,
            Err(error) => {
                warn!(%error, "could not read a claimed task; giving it back");
                self.give_back().await;
                None
            }
        }
    }

    /// T2. Whether the work may begin.
    async fn start(&self, call: &mut Call) -> bool {
        if *self.inner.stage.borrow() >= Stage::Draining {
            self.give_back().await;
            return false;
        }
        let fence = self.entry.fence();
        let judge = || -> Judge<()> { Box::new(move |_| runner_says(vec![Event::Started { fence }])) };
        match self.inner.persist(&self.entry, OnRefusal::Leave, judge).await {
            Some(Done::Committed(row, ())) => {
                call.attempt = row.task.starts;
                true
            }
            Some(Done::NotNow(Refused::MayNotStart, ())) => {
                self.end_unstarted().await;
                false
            }
            Some(Done::NotNow(..) | Done::Refused(())) => false,
            None => self.was_started(call).await,
        }
    }

    /// An earlier try of the start was committed, or this process is fenced: the row says which.
    async fn was_started(&self, call: &mut Call) -> bool {
        let runner = self.inner.options.runner.id;
        let Ok(found) = self.inner.store.read(Query::Task(self.entry.id)).await else {
            return false;
        };
        let Some(row) = found.rows.first() else {
            return false;
        };
        call.attempt = row.task.starts;
        !self.inner.is_fenced()
            && row.task.run == Run::Running(runner)
            && row.task.fence == self.entry.fence()
    }

    /// The start was refused for good: its approval is over, which is due now, or its starts are spent.
    async fn end_unstarted(&self) {
        let fence = self.entry.fence();
        let due = || -> Judge<()> { Box::new(|_| runner_says(vec![Event::Due])) };
        if let Some(Done::NotNow(Refused::NotDue, ())) =
            self.inner.persist(&self.entry, OnRefusal::Leave, due).await
        {
            let failed = Event::Failed {
                fence,
                reason: Reason::Interrupted,
            };
            let judge = || -> Judge<()> { happened(failed.clone()) };
            self.inner.persist(&self.entry, OnRefusal::Leave, judge).await;
        }
    }

    async fn give_back(&self) {
        let released = Event::Released {
            fence: self.entry.fence(),
        };
        self.inner
            .persist(&self.entry, OnRefusal::Leave, || happened(released.clone()))
            .await;
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
                Some(true) => {
                    self.give_back().await;
                    Next::LetGo
                }
                Some(false) => {
                    *releasing = true;
                    Next::Stop
                }
                None if order == Order::Release => Next::GoOn,
                None => {
                    // The commit tells the attempt to stop, as every end from outside does.
                    let failed = Event::Failed {
                        fence: self.entry.fence(),
                        reason: Reason::Shutdown,
                    };
                    self.inner
                        .persist(&self.entry, OnRefusal::Leave, || happened(failed.clone()))
                        .await;
                    Next::GoOn
                }
            },
        }
    }

    /// Whether the task can be given back (T21), and whether its work lives elsewhere.
    async fn can_give_back(&self) -> Option<bool> {
        let found = self.inner.store.read(Query::Task(self.entry.id)).await.ok()?;
        let row = found.rows.first()?;
        is_releasable(&row.task, self.entry.fence(), found.now).then(|| row.task.upstream.is_some())
    }

    async fn write_note(&self) {
        let Some(note) = self.entry.take_note() else {
            return;
        };
        let fence = self.entry.fence();
        let scope = Scope {
            task: Slot::Task(self.entry.id),
            ..Scope::default()
        };
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
        let failed = Event::Failed {
            fence,
            reason: Reason::Interrupted,
        };
        let (event, confirmed, late) = match worked {
            Worked::LetGo => return,
            Worked::Panicked => (failed.clone(), false, OnRefusal::Leave),
            Worked::Ended { finish, releasing } => match finish {
                Finish::Returned { body, is_error } => (
                    Event::Returned {
                        fence,
                        body,
                        is_error,
                    },
                    true,
                    OnRefusal::Record,
                ),
                Finish::Errored { body } => (Event::Errored { fence, body }, true, OnRefusal::Record),
                Finish::Failed(reason) => (Event::Failed { fence, reason }, true, OnRefusal::Leave),
                Finish::Parked { checkpoint } => {
                    (Event::Parked { fence, checkpoint }, true, OnRefusal::Leave)
                }
                Finish::Stopped { confirmed: true } if releasing => {
                    (Event::Released { fence }, true, OnRefusal::Leave)
                }
                // Something of it may live: only a sweep may let it begin again.
                Finish::Stopped { confirmed: false } if releasing => return,
                Finish::Stopped { confirmed } => (failed.clone(), confirmed, OnRefusal::Leave),
            },
        };
        let report = Report {
            runner: self.inner.options.runner.id,
            fence,
            event,
            confirmed,
            late,
        };
        let note = self.entry.take_note();
        let judge = || report.judge(note.clone());
        match self.inner.persist(&self.entry, late, judge).await {
            None
            | Some(
                Done::Committed(..)
                | Done::Refused(())
                | Done::NotNow(Refused::Finished | Refused::Fenced, ()),
            ) => {}
            Some(Done::NotNow(why, ())) => {
                warn!(
                    ?why,
                    tool = self.entry.tool,
                    "a report made no sense; the task ends as interrupted"
                );
                self.inner
                    .persist(&self.entry, OnRefusal::Leave, || happened(failed.clone()))
                    .await;
            }
        }
    }
}

/// A task that this runner holds now.
struct Claim {
    call: Call,
    owes: Owes,
}

/// What a claim is for.
enum Owes {
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

/// How an attempt ended, for the store.
struct Report {
    runner: longhaul_core::RunnerId,
    fence: Fence,
    event: Event,
    confirmed: bool,
    late: OnRefusal,
}

impl Report {
    /// The end as the tool reports it; or, when the task was ended from outside meanwhile, that the work stopped.
    fn judge(&self, note: Option<Vec<u8>>) -> Judge<()> {
        let Report {
            runner,
            fence,
            confirmed,
            late,
            ..
        } = *self;
        let event = self.event.clone();
        Box::new(move |snapshot| {
            let Some(row) = &snapshot.task else {
                return Verdict::Refuse(());
            };
            let event = if longhaul_core::fault!("reports-under-the-present-fence") {
                refenced(event.clone(), row.task.fence)
            } else {
                event.clone()
            };
            let mut proposal = Proposal {
                actor: "runner",
                ..Proposal::default()
            };
            if row.task.run == Run::Stopping(runner) && row.task.fence == fence {
                proposal.events = vec![Event::Stopped { fence, confirmed }];
                if late == OnRefusal::Record {
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
            } else {
                proposal.events = vec![event];
                proposal.note = note.clone();
            }
            Verdict::Apply(proposal, ())
        })
    }
}

/// The planted fault: the report of whoever holds the task.
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

fn runner_says(events: Vec<Event>) -> Verdict<()> {
    Verdict::Apply(
        Proposal {
            events,
            actor: "runner",
            ..Proposal::default()
        },
        (),
    )
}

fn happened(event: Event) -> Judge<()> {
    Box::new(move |_| runner_says(vec![event.clone()]))
}

fn call(row: Row) -> Call {
    // An approval is asked at birth, before any leg.
    let approvals = usize::from(row.task.approved_until.is_some());
    let settled = row
        .task
        .questions
        .iter()
        .skip(approvals)
        .filter_map(settled)
        .collect();
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
        settled,
    }
}

/// How the question was settled for the work; `None` while it is open, and when it was taken back.
fn settled(question: &Question) -> Option<Settled> {
    match &question.state {
        QuestionState::Given { answer } => Some(Settled::Accepted(answer.clone())),
        QuestionState::Declined => Some(Settled::Declined),
        QuestionState::Dismissed => Some(Settled::Dismissed),
        QuestionState::Open { .. } | QuestionState::Withdrawn => None,
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

/// The worker's side of a tool's [`Context`].
struct Live {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
}

impl Live {
    async fn ask(&self, asks: Vec<Ask>) -> Result<Vec<Settled>, Ended> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let (fence, count) = (self.entry.fence(), asks.len());
        let asked = Event::Asked { fence, asks };
        let keys: Vec<QuestionKey> = match self
            .inner
            .persist(&self.entry, OnRefusal::Leave, || happened(asked.clone()))
            .await
        {
            Some(Done::Committed(row, ())) => newest_keys(&row, count),
            Some(Done::NotNow(Refused::TooManyQuestions, ())) => {
                warn!(
                    tool = self.entry.tool,
                    "a tool asked more than it may at once; nobody was asked"
                );
                return Ok(vec![Settled::Dismissed; count]);
            }
            Some(Done::NotNow(..) | Done::Refused(())) => return Err(Ended),
            None => newest_keys(&self.row().await.ok_or(Ended)?, count),
        };
        let waiting = self.entry.asking();
        // The slot is free for others while this one waits.
        self.inner.work.notify_one();
        let answers = tokio::select! {
            () = self.entry.stopped() => Err(Ended),
            answers = self.answers(&keys) => answers,
        };
        drop(waiting);
        answers
    }

    async fn answers(&self, keys: &[QuestionKey]) -> Result<Vec<Settled>, Ended> {
        let mut backoff = self.inner.options.report_backoff_min;
        loop {
            let Some(row) = self.row().await else {
                sleep(backoff).await;
                backoff = backoff
                    .saturating_mul(2)
                    .min(self.inner.options.report_backoff_max);
                continue;
            };
            if row.task.is_finished() || row.task.fence != self.entry.fence() {
                return Err(Ended);
            }
            let asked = row
                .task
                .questions
                .iter()
                .filter(|question| keys.contains(&question.key));
            let answers: Vec<Settled> = asked.filter_map(settled).collect();
            if answers.len() == keys.len() {
                return Ok(answers);
            }
            self.inner.changed(self.entry.id, row.version).await;
        }
    }

    async fn attach(&self, upstream: Body) -> Result<(), Ended> {
        let attached = Event::Attached {
            fence: self.entry.fence(),
            upstream,
        };
        match self
            .inner
            .persist(&self.entry, OnRefusal::Leave, || happened(attached.clone()))
            .await
        {
            Some(Done::Committed(..)) => Ok(()),
            Some(Done::NotNow(..) | Done::Refused(())) => Err(Ended),
            None => match self.row().await {
                Some(row) if row.task.upstream.is_some() => Ok(()),
                Some(_) | None => Err(Ended),
            },
        }
    }

    async fn row(&self) -> Option<Row> {
        let found = self.inner.store.read(Query::Task(self.entry.id)).await;
        found
            .inspect_err(|error| warn!(%error, "could not read a task at work"))
            .ok()?
            .rows
            .into_iter()
            .next()
    }
}

fn newest_keys(row: &Row, count: usize) -> Vec<QuestionKey> {
    row.task
        .questions
        .iter()
        .rev()
        .take(count)
        .map(|question| question.key)
        .collect()
}

impl Attempt for Live {
    fn ask(&self, asks: Vec<Ask>) -> Pin<Box<dyn Future<Output = Result<Vec<Settled>, Ended>> + Send + '_>> {
        Box::pin(Live::ask(self, asks))
    }

    fn attach(&self, upstream: Body) -> Pin<Box<dyn Future<Output = Result<(), Ended>> + Send + '_>> {
        Box::pin(Live::attach(self, upstream))
    }

    fn note(&self, note: Vec<u8>) {
        if note.len() > self.inner.options.note_bytes_max {
            debug!(
                tool = self.entry.tool,
                bytes = note.len(),
                "a note is too long; it is dropped"
            );
            return;
        }
        self.inner.notes.tell(self.entry.id, &note);
        self.entry.note(note);
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.entry.stopped())
    }
}
