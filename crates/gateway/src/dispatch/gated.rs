//! The engine as dispatch may use it: whoever writes holds a permit of the gate (G-6).
//!
//! Dispatch has no other way to the engine, and nobody else in the gateway has any.

use longhaul_core::{Millis, RunnerId, TaskId};
use longhaul_engine::{
    Engine, Load,
    notes::Notes,
    process::View,
    transact::{Done, Keeping, Opening, Proposal, Verdict},
    watch::Watcher,
};
use longhaul_store::{Error, Found, Query, Scope, Snapshot, Stats};

use crate::gate::Permit;

/// The engine behind the gate.
pub(super) struct Gated(Engine);

/// What a judge may want. Only a [`Permit`] makes one that writes.
pub(super) struct Allowed<R>(Verdict<R>);

impl<R> Allowed<R> {
    /// Nothing happens.
    pub(super) fn nothing(reply: R) -> Allowed<R> {
        Allowed(Verdict::Refuse(reply))
    }

    /// A task is born.
    pub(super) fn open(_permit: Permit, opening: Opening, reply: R) -> Allowed<R> {
        Allowed(Verdict::Open(Box::new(opening), reply))
    }

    /// A task changes.
    pub(super) fn apply(_permit: Permit, proposal: Proposal, reply: R) -> Allowed<R> {
        Allowed(Verdict::Apply(proposal, reply))
    }
}

impl Gated {
    pub(super) fn new(engine: Engine) -> Gated {
        Gated(engine)
    }

    /// See [`Engine::transact`].
    pub(super) async fn transact<R: Send + 'static>(
        &self,
        scope: Scope,
        mut judge: impl FnMut(&Snapshot) -> Allowed<R> + Send + 'static,
    ) -> Result<Done<R>, Error> {
        self.0
            .transact(scope, Box::new(move |snapshot| judge(snapshot).0))
            .await
    }

    /// See [`Engine::keep`]. A change of records needs a permit too.
    pub(super) async fn keep<R: Send + 'static>(
        &self,
        scope: Scope,
        mut judge: impl FnMut(&Snapshot) -> (Option<(Permit, Keeping)>, R) + Send + 'static,
    ) -> Result<R, Error> {
        let judge = move |snapshot: &Snapshot| {
            let (kept, reply) = judge(snapshot);
            (kept.map(|(_permit, keeping)| keeping), reply)
        };
        self.0.keep(scope, Box::new(judge)).await
    }

    pub(super) async fn read(&self, query: Query) -> Result<Found, Error> {
        self.0.read(query).await
    }

    /// See [`Engine::program`].
    pub(super) fn program(&self, task: TaskId) -> Option<View> {
        self.0.program(task)
    }

    pub(super) fn changed(
        &self,
        task: TaskId,
        after_version: u64,
    ) -> impl Future<Output = u64> + Send + 'static {
        self.0.changed(task, after_version)
    }

    pub(super) fn watcher(&self) -> Watcher {
        self.0.watcher()
    }

    pub(super) fn asking(&self) -> tokio::sync::broadcast::Receiver<TaskId> {
        self.0.asking()
    }

    pub(super) fn notes(&self, task: TaskId) -> Notes {
        self.0.notes(task)
    }

    pub(super) fn load(&self) -> Load {
        self.0.load()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    pub(super) async fn draining(&self) {
        self.0.draining().await;
    }

    pub(super) fn now(&self) -> Millis {
        self.0.now()
    }

    /// This process, as a runner.
    pub(super) fn runner(&self) -> RunnerId {
        self.0.runner()
    }

    /// When this process began, before it settled what others left: the time in its runner's id (UUID version 7).
    pub(super) fn began_at(&self) -> Millis {
        let [a, b, c, d, e, f, ..] = self.0.runner().0;
        Millis(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    pub(super) fn task_id(&self) -> TaskId {
        self.0.task_id()
    }

    pub(super) async fn stats(&self) -> Result<Stats, Error> {
        self.0.store().stats().await
    }

    /// Gives the space up that is held back for cancels; whether there was some.
    pub(super) fn give_up_reserve(&self) -> bool {
        self.0.store().give_up_reserve()
    }
}
