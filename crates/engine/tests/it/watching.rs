//! Waking who waits.

use futures_util::FutureExt as _;
use longhaul_core::{Millis, TaskId};
use longhaul_engine::watch::GONE;

use crate::support::*;

on_each_store!(
    a_commit_between_the_read_and_the_wait_is_not_missed,
    a_watcher_that_falls_behind_learns_the_newest_version_once,
    changes_by_another_engine_are_seen,
    a_waiter_for_a_task_that_is_deleted_is_told,
);

async fn a_commit_between_the_read_and_the_wait_is_not_missed(rig: Rig) {
    let engine = rig.idle(Toolbox::default(), |_| {});
    let id = call(&engine, "work").await;
    let seen = row(&engine, id).await.version;
    cancel(&engine, id).await;
    // No poll runs here: the engine was not started.
    assert_eq!(engine.changed(id, seen).now_or_never(), Some(2));
    assert_eq!(engine.changed(id, 2).now_or_never(), None);
}

async fn a_watcher_that_falls_behind_learns_the_newest_version_once(rig: Rig) {
    let engine = rig.idle(Toolbox::default(), |_| {});
    let (a, b) = (call(&engine, "work").await, call(&engine, "work").await);
    let watcher = engine.watcher();
    watcher.follow(a, 1);
    watcher.follow(b, 1);
    assert_eq!(watcher.next().now_or_never(), None);

    let fence = |n| longhaul_core::Fence(n);
    happen(
        &engine,
        a,
        longhaul_core::Event::Claimed {
            runner: engine.runner(),
        },
    )
    .await;
    happen(&engine, a, longhaul_core::Event::Started { fence: fence(1) }).await;
    cancel(&engine, b).await;
    let mut told = watcher.next().now_or_never().unwrap();
    told.sort_by_key(|(_, version)| *version);
    assert_eq!(told, [(b, 2), (a, 3)]);
    assert_eq!(watcher.next().now_or_never(), None);

    watcher.unfollow(a);
    cancel(&engine, a).await;
    assert_eq!(watcher.next().now_or_never(), None);
}

async fn changes_by_another_engine_are_seen(rig: Rig) {
    let (here, there) = (
        rig.engine(Toolbox::default()).await,
        rig.idle(Toolbox::default(), |_| {}),
    );
    let id = call(&here, "work").await;
    let changed = here.changed(id, 1);
    cancel(&there, id).await;
    assert_eq!(within(changed).await, 2);
}

async fn a_waiter_for_a_task_that_is_deleted_is_told(rig: Rig) {
    let engine = rig
        .engine_with(Toolbox::default(), |options| {
            options.purge_interval = std::time::Duration::from_millis(5);
        })
        .await;
    let id = call_with(&engine, "work", rerun(1), |opening| {
        opening.purge_after = Millis(0)
    })
    .await;
    cancel(&engine, id).await;
    assert_eq!(within(engine.changed(id, 2)).await, GONE);
    let unknown = TaskId([7; 16]);
    assert_eq!(within(engine.changed(unknown, 0)).await, GONE);
}
