//! The engine: one handle on the store, the workers, the sweeper and the watchers of a process.
//!
//! Made once by the binary; the gateway's `dispatch` holds a clone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::FutureExt as _;
use longhaul_core::{Millis, RunnerId, TaskId};
use longhaul_store::{Error, Found, Query, Scope, Shared};
use tokio::{
    sync::{Notify, broadcast, watch},
    task::JoinHandle,
};
use tracing::{error, warn};

use crate::{
    attempts::{Attempts, Order},
    clock,
    notes::{Board, Notes},
    options::Options,
    process::View,
    sweeper,
    tool::Tools,
    transact::{Done, Judge, Keeper},
    watch::{GONE, Hub, Watcher},
    worker,
};

/// One process's engine; cheap to clone. When the last clone is dropped without [`Engine::drain`], everything it
/// runs is dropped at once, as in a crash: another runner settles what is left.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    crew: Arc<Crew>,
}

/// An engine that may be gone: for what the engine's own tools hold on to, which must not keep it alive.
#[derive(Clone)]
pub struct WeakEngine {
    inner: Weak<Inner>,
    crew: Weak<Crew>,
}

impl WeakEngine {
    /// The engine; `None` once its last clone was dropped.
    pub fn upgrade(&self) -> Option<Engine> {
        Some(Engine {
            inner: self.inner.upgrade()?,
            crew: self.crew.upgrade()?,
        })
    }
}

/// What this process runs at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Attempts that take a slot, by tool.
    pub running: BTreeMap<String, usize>,
    /// Attempts that wait for an answer and take no slot, by tool.
    pub waiting: BTreeMap<String, usize>,
    /// [`Engine::drain`] was called: no new work is begun here, and none should be accepted.
    pub draining: bool,
    /// This runner was declared dead, or could not reach the store for too long. It begins nothing more and its
    /// reports no longer count; the process should end and be started anew.
    pub fenced: bool,
}

impl Engine {
    /// An engine without workers: it takes transactions and reads, and runs nothing until [`Engine::start`].
    pub fn new(store: Shared, options: Options, tools: Arc<dyn Tools>) -> Engine {
        let inner = Inner {
            store,
            options,
            tools,
            hub: Arc::default(),
            asking: broadcast::Sender::new(ASKING_MAX),
            notes: Board::default(),
            attempts: Attempts::default(),
            work: Notify::new(),
            stage: watch::Sender::new(Stage::Working),
        };
        Engine {
            inner: Arc::new(inner),
            crew: Arc::default(),
        }
    }

    /// The engine as what does not keep it alive.
    pub fn downgrade(&self) -> WeakEngine {
        WeakEngine {
            inner: Arc::downgrade(&self.inner),
            crew: Arc::downgrade(&self.crew),
        }
    }

    /// Registers this process as a runner, settles what dead runners left behind (T22, T23), and begins to work.
    /// When it returns, what clients read is honest again: nothing shows as working that nobody works at.
    /// Called once.
    ///
    /// # Errors
    /// The store's. Nothing was begun; it may be called again.
    pub async fn start(&self) -> Result<(), Error> {
        let beat = self.inner.store.beat(self.inner.options.runner.clone()).await?;
        if !longhaul_core::fault!("serves-before-recovery") {
            self.inner.recover(beat.dead).await?;
        }
        let inner = || Arc::clone(&self.inner);
        self.crew
            .begin(&self.inner, "worker", worker::claim_work(inner()));
        self.crew
            .begin(&self.inner, "deadlines", sweeper::watch_deadlines(inner()));
        self.crew.begin(&self.inner, "beat", sweeper::beat(inner()));
        self.crew.begin(&self.inner, "purge", sweeper::purge(inner()));
        self.crew
            .begin(&self.inner, "watch", sweeper::watch_others(inner()));
        Ok(())
    }

    /// Hears of each task that asks, at every commit of this process that leaves it asking. A hint: who falls behind
    /// misses some, and what other processes commit is not heard of.
    pub fn asking(&self) -> broadcast::Receiver<TaskId> {
        self.inner.asking.subscribe()
    }

    /// The one way to change a task: locks what `scope` names, calls `judge` on the snapshot, asks the core, and
    /// commits the task with its audit record. Wakes watchers and workers after the commit, then returns.
    ///
    /// `judge` may be called more than once; only its last reply is returned. [`crate::transact::Verdict::Open`] where
    /// the snapshot shows a task, `Apply` where it shows none, and a note for a finished task are refused.
    ///
    /// # Errors
    /// The store's. Nothing was written, except when `Error::ambiguous` says so.
    pub async fn transact<R: Send + 'static>(&self, scope: Scope, judge: Judge<R>) -> Result<Done<R>, Error> {
        self.inner.transact(scope, judge).await
    }

    /// Changes records and counters, and no task; the reply is given after the commit. A judge that changes nothing
    /// only reads.
    ///
    /// # Errors
    /// The store's. Nothing was written, except when `Error::ambiguous` says so.
    pub async fn keep<R: Send + 'static>(&self, scope: Scope, judge: Keeper<R>) -> Result<R, Error> {
        self.inner.keep(scope, judge).await
    }

    /// Reads committed state.
    ///
    /// # Errors
    /// The store's.
    pub async fn read(&self, query: Query) -> Result<Found, Error> {
        self.inner.store.read(query).await
    }

    /// Resolves with the task's version when it is greater than `after_version`; with [`GONE`] when the task is no
    /// longer there. Listens from the moment of the call, not of the first poll.
    pub fn changed(&self, id: TaskId, after_version: u64) -> impl Future<Output = u64> + Send + 'static {
        self.inner.changed(id, after_version)
    }

    /// The notes of a task from now on, as its work makes them in this process.
    pub fn notes(&self, id: TaskId) -> Notes {
        self.inner.notes.follow(id)
    }

    /// A watcher that follows nothing yet.
    pub fn watcher(&self) -> Watcher {
        self.inner.hub.watcher()
    }

    /// The store, for what is not a task: settings, audit, statistics.
    pub fn store(&self) -> &Shared {
        &self.inner.store
    }

    /// Ends this process's work in good order: claims nothing more, gives back what another runner may begin again
    /// (T21), waits up to `wait` for the rest, ends what is left as `Failed(Shutdown)` and its processes with it.
    /// Reads, answers and cancels keep working meanwhile. A second call, from anywhere, ends the waiting at once.
    pub async fn drain(&self, wait: Duration) {
        let inner = &self.inner;
        let first = inner.advance(Stage::Draining);
        if !first {
            inner.advance(Stage::Ending);
        }
        inner.attempts.order(Order::Release);
        let mut stage = inner.stage.subscribe();
        tokio::select! {
            () = inner.attempts.idle() => {}
            () = tokio::time::sleep(wait) => {}
            _ = stage.wait_for(|stage| *stage >= Stage::Ending) => {}
        }
        inner.attempts.order(Order::Shutdown);
        if tokio::time::timeout(inner.options.shutdown_wait_max, inner.attempts.idle())
            .await
            .is_err()
        {
            warn!("some work did not end in time; what it leaves behind is swept at the next start");
        }
        self.crew.end().await;
        if let Err(error) = inner.leave().await {
            warn!(%error, "could not sign off; the next start will notice");
        }
    }

    /// Leaves new work to other runners, and waits until what runs here has ended by itself, however long that takes.
    /// Then ends as [`Engine::drain`] does; a call of that, from anywhere, ends the waiting at once. Nothing is
    /// given back that has begun.
    pub async fn hand_over(&self) {
        let inner = &self.inner;
        inner.advance(Stage::Draining);
        let mut stage = inner.stage.subscribe();
        tokio::select! {
            () = inner.attempts.idle() => {}
            _ = stage.wait_for(|stage| *stage >= Stage::Ending) => {}
        }
        self.drain(Duration::ZERO).await;
    }

    /// Whether this process takes no new work any more: it drains, or was fenced.
    pub fn is_draining(&self) -> bool {
        *self.inner.stage.borrow() >= Stage::Draining
    }

    /// Resolves when this process takes no new work any more: it drains, or was fenced.
    pub async fn draining(&self) {
        // The sender lives as long as this borrow, so the wait cannot fail.
        let _ = self
            .inner
            .stage
            .subscribe()
            .wait_for(|stage| *stage >= Stage::Draining)
            .await;
    }

    /// What can be seen of the program that does a task's work; `None` when this process runs none for it.
    pub fn program(&self, id: TaskId) -> Option<View> {
        self.inner.attempts.program(id)
    }

    /// What this process runs at the moment.
    pub fn load(&self) -> Load {
        let (running, waiting) = self.inner.attempts.count(self.inner.options.waiting_max);
        let stage = *self.inner.stage.borrow();
        Load {
            running,
            waiting,
            draining: stage >= Stage::Draining,
            fenced: stage == Stage::Fenced,
        }
    }

    /// This process, as a runner.
    pub fn runner(&self) -> RunnerId {
        self.inner.options.runner.id
    }

    /// The wall clock of this machine, for identifiers and logs. What is judged is judged by `Snapshot::now`.
    pub fn now(&self) -> Millis {
        clock::now()
    }

    /// A new id for a task, for [`crate::transact::Opening`].
    pub fn task_id(&self) -> TaskId {
        clock::task_id()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("runner", &self.inner.options.runner.id)
            .finish_non_exhaustive()
    }
}

/// What the workers, the sweeper and the handles share.
pub(crate) struct Inner {
    pub(crate) store: Shared,
    pub(crate) options: Options,
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) hub: Arc<Hub>,
    /// The tasks that ask.
    pub(crate) asking: broadcast::Sender<TaskId>,
    pub(crate) notes: Board,
    pub(crate) attempts: Attempts,
    /// There may be something to claim.
    pub(crate) work: Notify,
    pub(crate) stage: watch::Sender<Stage>,
}

/// The most tasks that ask and whose listener has not heard of it yet.
const ASKING_MAX: usize = 256;

/// How far this process is from its end. It only moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Working,
    Draining,
    Ending,
    Fenced,
}

impl Inner {
    pub(crate) fn changed(
        &self,
        id: TaskId,
        after_version: u64,
    ) -> impl Future<Output = u64> + Send + 'static {
        let watcher = self.hub.watcher();
        watcher.follow(id, after_version);
        async move { watcher.next().await.first().map_or(GONE, |(_, version)| *version) }
    }

    /// This runner is dead to the others: it begins nothing more, and what it still runs ends unreported.
    pub(crate) fn fence(&self) {
        self.advance(Stage::Fenced);
        self.attempts.order(Order::End);
    }

    pub(crate) fn is_fenced(&self) -> bool {
        *self.stage.borrow() == Stage::Fenced
    }

    /// Whether the stage moved.
    fn advance(&self, to: Stage) -> bool {
        self.stage.send_if_modified(|stage| {
            let moves = *stage < to;
            *stage = (*stage).max(to);
            moves
        })
    }

    /// Looks once for changes by other processes.
    pub(crate) async fn look_around(&self) -> Result<(), Error> {
        let followed = self.hub.followed();
        let attempts = self.attempts.versions();
        let ids: BTreeSet<TaskId> = followed.iter().chain(attempts.keys()).copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let versions = self.store.watch(ids.into_iter().collect()).await?;
        for id in followed {
            self.hub.publish(id, versions.get(&id).copied().unwrap_or(GONE));
        }
        for (id, seen) in attempts {
            if versions.get(&id).is_some_and(|version| *version > seen) {
                let rows = self.store.read(Query::Task(id)).await?.rows;
                rows.iter()
                    .for_each(|row| self.attempts.observe(self.options.runner.id, row));
            }
        }
        Ok(())
    }

    async fn leave(&self) -> Result<(), Error> {
        let runner = self.options.runner.id;
        let held = self.store.read(Query::HeldBy { runner, limit: 1 }).await?;
        if held.rows.is_empty() {
            self.store.forget_runner(runner).await
        } else {
            Ok(())
        }
    }
}

/// The background tasks of an engine, each with its name. They end with the last handle.
#[derive(Default)]
struct Crew {
    tasks: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
}

impl Crew {
    fn begin(&self, inner: &Arc<Inner>, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let inner = Arc::clone(inner);
        let guarded = async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                error!(
                    name,
                    "a background task of the engine panicked; this process stops what it runs"
                );
                inner.fence();
            }
        };
        self.lock().push((name, tokio::spawn(guarded)));
    }

    async fn end(&self) {
        let tasks = std::mem::take(&mut *self.lock());
        for (_, task) in &tasks {
            task.abort();
        }
        for (name, task) in tasks {
            if let Err(error) = task.await
                && error.is_panic()
            {
                error!(name, "a background task of the engine panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(&'static str, JoinHandle<()>)>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (_, task) in self.lock().drain(..) {
            task.abort();
        }
    }
}
