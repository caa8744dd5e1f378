//! What happens without anybody asking: deadlines, dead runners, deletion, and the pulse of this process.
//!
//! Started by `Engine::start`. It decides nothing: it tells the core that a moment came or that a runner is dead.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use longhaul_core::{Event, RunnerId, TaskId};
use longhaul_store::{Beat, Error, Query, Runner, Scope};
use tracing::{error, info, warn};

use crate::{
    clock,
    engine::Inner,
    transact::{Proposal, Verdict},
};

impl Inner {
    /// Settles what dead runners left behind (T13–T17, T22, T23) and forgets those that hold nothing any more.
    pub(crate) async fn recover(&self, dead: Vec<Runner>) -> Result<(), Error> {
        for runner in dead {
            self.recover_one(&runner).await?;
        }
        Ok(())
    }

    async fn recover_one(&self, runner: &Runner) -> Result<(), Error> {
        let mut settled = 0;
        loop {
            let query = Query::HeldBy {
                runner: runner.id,
                limit: self.options.recovery_batch,
            };
            let held: Vec<TaskId> = self
                .store
                .read(query)
                .await?
                .rows
                .into_iter()
                .map(|row| row.id)
                .collect();
            if held.is_empty() {
                break;
            }
            let swept = self.sweep(runner, &held).await;
            let lost = self.lose(runner.id, &held, &swept).await?;
            if lost == 0 {
                warn!(runner = %runner.id, "a dead runner's tasks could not be settled; trying again at the next beat");
                return Ok(());
            }
            settled += lost;
        }
        if settled > 0 {
            info!(runner = %runner.id, tasks = settled, "settled what a dead runner left behind");
        }
        self.sweep(runner, &[]).await;
        self.store.forget_runner(runner.id).await
    }

    async fn sweep(&self, runner: &Runner, tasks: &[TaskId]) -> BTreeSet<TaskId> {
        let (sweep, runner, tasks) = (Arc::clone(&self.options.sweep), runner.clone(), tasks.to_vec());
        tokio::task::spawn_blocking(move || sweep(&runner, &tasks))
            .await
            .unwrap_or_default()
    }

    /// Returns how many of the tasks the runner holds no longer.
    async fn lose(
        &self,
        runner: RunnerId,
        held: &[TaskId],
        swept: &BTreeSet<TaskId>,
    ) -> Result<usize, Error> {
        let mut settled = 0;
        for batch in held.chunks(self.options.recovery_parallel.max(1)) {
            let steps = batch.iter().map(|id| {
                let swept = swept.contains(id);
                self.happen(*id, Event::RunnerLost { runner, swept })
            });
            for committed in join_all(steps).await {
                settled += usize::from(committed?);
            }
        }
        Ok(settled)
    }

    /// Applies one event of the sweeper. Returns whether it was committed; the core may well refuse it, because
    /// another process was quicker.
    async fn happen(&self, id: TaskId, event: Event) -> Result<bool, Error> {
        let scope = Scope::task(id);
        let judge = move |_: &_| {
            let events = vec![event.clone()];
            Verdict::Apply(
                Proposal {
                    events,
                    actor: "sweeper",
                    ..Proposal::default()
                },
                (),
            )
        };
        Ok(self.transact(scope, Box::new(judge)).await?.is_committed())
    }

    /// Tells every task whose moment came (T18, T19, T25).
    async fn tick(&self) -> Result<(), Error> {
        let limit = self.options.claim_batch;
        loop {
            let due = self.store.read(Query::Due { limit }).await?.rows;
            let full = due.len() >= limit as usize;
            let mut settled = false;
            for batch in due.chunks(self.options.recovery_parallel.max(1)) {
                for committed in join_all(batch.iter().map(|row| self.happen(row.id, Event::Due))).await {
                    settled |= committed?;
                }
            }
            // Where another process was quicker with all of them, the next look comes soon enough.
            if !full || !settled {
                return Ok(());
            }
        }
    }
}

/// Looks for deadlines for as long as the process lives.
pub(crate) async fn watch_deadlines(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.options.sweep_interval).await;
        if let Err(error) = inner.tick().await {
            warn!(%error, "could not look for deadlines");
        }
    }
}

/// Says that this process lives, and hears who does not (T3).
pub(crate) async fn beat(inner: Arc<Inner>) {
    let mut last = clock::monotonic();
    loop {
        tokio::time::sleep(inner.options.beat_interval).await;
        let patience = inner
            .options
            .fence_after
            .map(|limit| limit.saturating_sub(last.elapsed()));
        match within(patience, inner.store.beat(inner.options.runner.clone())).await {
            Some(Ok(Beat { fenced: true, .. })) => {
                error!("this process was declared dead; it stops what it runs");
                inner.fence();
                return;
            }
            Some(Ok(Beat { dead, .. })) => {
                last = clock::monotonic();
                if let Err(error) = inner.recover(dead).await {
                    warn!(%error, "could not settle what dead runners left behind");
                }
            }
            Some(Err(error)) => warn!(%error, "could not say that this process lives"),
            None => {}
        }
        if inner
            .options
            .fence_after
            .is_some_and(|limit| last.elapsed() >= limit)
        {
            error!("the store was out of reach for too long; this process stops what it runs");
            inner.fence();
            return;
        }
    }
}

/// Deletes what nobody may read any more (T20).
pub(crate) async fn purge(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.options.purge_interval).await;
        loop {
            match inner.store.purge(inner.options.purge_batch).await {
                Ok(gone) if gone >= u64::from(inner.options.purge_batch) => {}
                Ok(_) => break,
                Err(error) => {
                    warn!(%error, "could not delete what is over");
                    break;
                }
            }
        }
    }
}

/// Finds changes by other processes of all tasks that anybody here waits for or works at.
pub(crate) async fn watch_others(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.options.watch_interval).await;
        if let Err(error) = inner.look_around().await {
            warn!(%error, "could not look for changes by other processes");
        }
    }
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}
