//! The engine: one handle on the store, the workers, the sweeper and the watchers of a process.
//!
//! Made once by the binary; the gateway's `dispatch` holds a clone.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use longhaul_core::{RunnerId, TaskId};
use longhaul_store::{Error, Found, Query, Scope, Shared};

use crate::{
    options::Options,
    tool::Tools,
    transact::{Done, Judge},
    watch::Watcher,
};

/// One process's engine; cheap to clone. When the last clone is dropped without [`Engine::drain`], everything it
/// runs is dropped at once, as in a crash: another runner settles what is left.
#[derive(Clone)]
pub struct Engine {}

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
    /// An engine that does nothing yet. Works as a gateway without workers until [`Engine::start`].
    pub fn new(store: Shared, options: Options, tools: Arc<dyn Tools>) -> Engine {
        let _ = (store, options, tools);
        unimplemented!()
    }

    /// Registers this process as a runner, settles what dead runners left behind (T22, T23), and begins to work.
    /// When it returns, what clients read is honest again: nothing shows as working that nobody works at.
    ///
    /// # Errors
    /// The store's. Nothing was begun; it may be called again.
    pub async fn start(&self) -> Result<(), Error> {
        unimplemented!()
    }

    /// The one way to change a task: locks what `scope` names, calls `judge` on the snapshot, asks the core, and
    /// commits the task with its audit record. Wakes watchers and workers after the commit, then returns.
    ///
    /// `judge` may be called more than once; only its last reply is returned.
    ///
    /// # Errors
    /// The store's. Nothing was written, except when `Error::ambiguous` says so.
    pub async fn transact<R: Send + 'static>(&self, scope: Scope, judge: Judge<R>) -> Result<Done<R>, Error> {
        let _ = (scope, judge);
        unimplemented!()
    }

    /// Reads committed state.
    ///
    /// # Errors
    /// The store's.
    pub async fn read(&self, query: Query) -> Result<Found, Error> {
        let _ = query;
        unimplemented!()
    }

    /// Resolves with the task's version when it is greater than `after_version`; with `u64::MAX` when the task
    /// is no longer there. Listens from the moment of the call, not of the first poll.
    pub fn changed(&self, id: TaskId, after_version: u64) -> impl Future<Output = u64> + Send + 'static {
        let _ = (id, after_version);
        async { unimplemented!() }
    }

    /// A watcher that follows nothing yet.
    pub fn watcher(&self) -> Watcher {
        unimplemented!()
    }

    /// The store, for what is not a task: settings, audit, statistics.
    pub fn store(&self) -> &Shared {
        unimplemented!()
    }

    /// Ends this process's work in good order: claims nothing more, gives back what another runner may begin again
    /// (T21), waits up to `wait` for the rest, ends what is left as `Failed(Shutdown)` and its processes with it.
    /// Reads, answers and cancels keep working meanwhile. A second call, from anywhere, ends the waiting at once.
    pub async fn drain(&self, wait: Duration) {
        let _ = wait;
        unimplemented!()
    }

    /// What this process runs at the moment.
    pub fn load(&self) -> Load {
        unimplemented!()
    }

    /// This process, as a runner.
    pub fn runner(&self) -> RunnerId {
        unimplemented!()
    }

    /// The wall clock of this machine, for identifiers and logs. What is judged is judged by `Snapshot::now`.
    pub fn now(&self) -> longhaul_core::Millis {
        crate::clock::now()
    }

    /// A new id for a task, for [`crate::transact::Opening`].
    pub fn task_id(&self) -> TaskId {
        crate::clock::task_id()
    }
}
