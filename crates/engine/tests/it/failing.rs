//! A store that fails: what it says is not believed until it is known.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use longhaul_core::{Body, Outcome, Phase, Run, RunnerId, StepId, TaskId};
use longhaul_engine::tool::{Finish, Settled};
use longhaul_store::{
    AuditRow, Beat, Committed, Error, Fault, Found, Judge, Query, Record, RecordKind, Runner, Scope, Shared,
    Stats, Store,
};

use crate::support::*;

/// A store whose steps fail as told, over one that works.
struct Failing {
    store: Shared,
    /// So many steps are committed and their reply is lost.
    lost_replies: AtomicU32,
    /// So many steps and beats fail with nothing written.
    failures: AtomicU32,
}

impl Failing {
    fn over(rig: &Rig) -> Arc<Failing> {
        Arc::new(Failing {
            store: rig.store(),
            lost_replies: AtomicU32::new(0),
            failures: AtomicU32::new(0),
        })
    }

    fn spend(budget: &AtomicU32) -> bool {
        budget
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
    }
}

fn unavailable() -> Error {
    Error::new(Fault::Unavailable, "do as it was told")
}

impl Store for Failing {
    fn transact(&self, id: StepId, scope: Scope, judge: Judge) -> BoxFuture<'_, Result<Committed, Error>> {
        Box::pin(async move {
            if Failing::spend(&self.failures) {
                return Err(unavailable());
            }
            let committed = self.store.transact(id, scope, judge).await?;
            if committed.wrote && Failing::spend(&self.lost_replies) {
                return Err(unavailable().ambiguous());
            }
            Ok(committed)
        })
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Found, Error>> {
        self.store.read(query)
    }

    fn records(&self, kind: RecordKind, tenant: String) -> BoxFuture<'_, Result<Vec<Record>, Error>> {
        self.store.records(kind, tenant)
    }

    fn watch(&self, ids: Vec<TaskId>) -> BoxFuture<'_, Result<BTreeMap<TaskId, u64>, Error>> {
        self.store.watch(ids)
    }

    fn beat(&self, runner: Runner) -> BoxFuture<'_, Result<Beat, Error>> {
        Box::pin(async move {
            if Failing::spend(&self.failures) {
                return Err(unavailable());
            }
            self.store.beat(runner).await
        })
    }

    fn forget_runner(&self, runner: RunnerId) -> BoxFuture<'_, Result<(), Error>> {
        self.store.forget_runner(runner)
    }

    fn purge(&self, limit: u32) -> BoxFuture<'_, Result<u64, Error>> {
        self.store.purge(limit)
    }

    fn audit(&self, after: u64, limit: u32) -> BoxFuture<'_, Result<Vec<AuditRow>, Error>> {
        self.store.audit(after, limit)
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, Error>> {
        self.store.stats()
    }
}

#[tokio::test]
async fn a_step_whose_reply_was_lost_is_written_once() {
    let rig = Rig::memory();
    let store = Failing::over(&rig);
    let tools = Toolbox::one("ask", |_, context| async move {
        let settled = context.ask(vec![question("well?")]).await.unwrap();
        let [Settled::Accepted(body)] = &settled[..] else {
            panic!("{settled:?}")
        };
        Finish::Returned {
            body: body.clone(),
            is_error: false,
        }
    });
    let engine = rig.idle_on(store.clone(), tools, |_| {});
    let id = call(&engine, "ask").await;
    // The replies of the claim, which is the start as well, and of the question.
    store.lost_replies.store(2, Ordering::SeqCst);
    engine.start().await.unwrap();
    until(&engine, id, |row| row.task.phase == Phase::Asking).await;
    within(async {
        while store.lost_replies.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    answer(
        &engine,
        id,
        1,
        longhaul_core::event::Answer::Accept(Body::new(b"yes")),
    )
    .await;

    let row = finished(&engine, id).await;
    let body = Body::new(b"yes");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
    assert_eq!((row.task.starts, row.task.questions.len()), (1, 1));
}

#[tokio::test]
async fn the_echo_of_our_own_report_is_not_audited_as_a_late_result() {
    let rig = Rig::memory();
    let store = Failing::over(&rig);
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("work", move |call, _| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            seen.door().await;
            returned("done")
        }
    });
    let engine = rig.idle_on(store.clone(), tools, |_| {});
    engine.start().await.unwrap();
    let id = call(&engine, "work").await;
    stage.began(1).await;
    store.lost_replies.store(1, Ordering::SeqCst);
    stage.open();
    finished(&engine, id).await;
    within(async {
        while !engine.load().running.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let audit = rig.audit(id).await;
    assert!(
        !audit.iter().any(|(name, _)| name == "mcp.task.refused"),
        "{audit:?}"
    );
    assert_eq!(store.lost_replies.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_report_is_tried_until_the_store_is_back() {
    let rig = Rig::memory();
    let store = Failing::over(&rig);
    let (stage, failing) = (Stage::new(), store.clone());
    let seen = stage.clone();
    let tools = Toolbox::one("work", move |call, _| {
        failing.failures.store(5, Ordering::SeqCst);
        seen.enter(&call);
        async { returned("done") }
    });
    let engine = rig.idle_on(store, tools, |options| {
        options.report_backoff_max = Duration::from_millis(2)
    });
    engine.start().await.unwrap();
    let id = call(&engine, "work").await;
    let row = finished(&engine, id).await;
    assert!(matches!(
        row.task.phase,
        Phase::Finished(Outcome::Returned { .. })
    ));
    assert!(!engine.load().fenced);
}

#[tokio::test]
async fn a_process_without_its_store_for_too_long_stops_what_it_runs() {
    let rig = Rig::memory();
    let store = Failing::over(&rig);
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("work", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            context.stop().await;
            seen.enter(&call);
            Finish::Stopped { confirmed: true }
        }
    });
    let fence_after = Duration::from_millis(60);
    let engine = rig.idle_on(store.clone(), tools, |options| {
        options.fence_after = Some(fence_after)
    });
    engine.start().await.unwrap();
    let id = call(&engine, "work").await;
    stage.began(1).await;
    store.failures.store(u32::MAX, Ordering::SeqCst);
    stage.began(2).await;
    assert!(engine.load().fenced);
    assert!(
        matches!(row(&engine, id).await.task.run, Run::Running(_)),
        "another runner settles it"
    );
}
