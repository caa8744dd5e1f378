//! The end of a process in good order.

use std::time::Duration;

use longhaul_core::{Body, Outcome, Phase, Reason, Run, Stop};
use longhaul_engine::{Engine, tool::Finish};
use tokio::task::JoinHandle;

use crate::support::*;

on_each_store!(
    a_drain_waits_for_work_that_may_run_only_once,
    a_drain_that_cannot_wait_says_shutdown_and_ends_the_work,
    a_second_drain_ends_the_waiting,
    what_may_run_again_is_stopped_and_given_back_at_once,
    a_result_that_comes_while_it_is_given_back_is_kept,
    relayed_work_is_let_go_and_not_stopped,
    relayed_work_that_would_end_with_us_is_seen_through,
);

const LONG: Duration = Duration::from_secs(3_600);

/// A tool that works until the door opens or it is told to stop.
fn work(stage: &Stage) -> Toolbox {
    let seen = stage.clone();
    Toolbox::one("work", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            tokio::select! {
                () = seen.door() => returned("done"),
                () = context.stop() => Finish::Stopped { confirmed: true },
            }
        }
    })
}

/// A drain that has begun, and ends in its own time.
async fn begin_to_drain(engine: &Engine) -> JoinHandle<()> {
    let draining = tokio::spawn({
        let engine = engine.clone();
        async move { engine.drain(LONG).await }
    });
    within(async {
        while !engine.load().draining {
            tokio::task::yield_now().await;
        }
    })
    .await;
    draining
}

async fn a_drain_waits_for_work_that_may_run_only_once(rig: Rig) {
    let stage = Stage::new();
    let engine = rig.engine(work(&stage)).await;
    let id = call(&engine, "work").await;
    stage.began(1).await;
    let draining = begin_to_drain(&engine).await;

    // Births, reads and cancels go on; claims do not.
    let queued = call(&engine, "work").await;
    stage.open();
    within(draining).await.unwrap();
    let done = row(&engine, id).await;
    let body = Body::new(b"done");
    assert_eq!(
        done.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
    assert_eq!(
        row(&engine, queued).await.task.run,
        Run::Queued { reattach: false }
    );
    assert!(cancel(&engine, queued).await.is_committed());
}

async fn a_drain_that_cannot_wait_says_shutdown_and_ends_the_work(rig: Rig) {
    let (stage, ends) = (Stage::new(), Stage::new());
    let (seen, ended) = (stage.clone(), ends.clone());
    let tools = Toolbox::one("work", move |call, context| {
        let (seen, ended) = (seen.clone(), ended.clone());
        async move {
            seen.enter(&call);
            context.stop().await;
            ended.enter(&call);
            Finish::Stopped { confirmed: true }
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "work").await;
    stage.began(1).await;
    within(engine.drain(Duration::ZERO)).await;
    let row = row(&engine, id).await;
    assert_eq!(row.task.phase, Phase::Finished(Outcome::Failed(Reason::Shutdown)));
    assert_eq!((row.task.run, ends.count()), (Run::Idle, 1));
}

async fn a_second_drain_ends_the_waiting(rig: Rig) {
    let stage = Stage::new();
    let engine = rig.engine(work(&stage)).await;
    let id = call(&engine, "work").await;
    stage.began(1).await;
    let first = tokio::spawn({
        let engine = engine.clone();
        async move { engine.drain(LONG).await }
    });
    within(async {
        while !engine.load().draining {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within(engine.drain(LONG)).await;
    within(first).await.unwrap();
    assert_eq!(
        row(&engine, id).await.task.phase,
        Phase::Finished(Outcome::Failed(Reason::Shutdown))
    );
}

async fn what_may_run_again_is_stopped_and_given_back_at_once(rig: Rig) {
    let stage = Stage::new();
    let engine = rig.engine(work(&stage)).await;
    let id = call_with(&engine, "work", rerun(5), |_| {}).await;
    stage.began(1).await;
    within(engine.drain(LONG)).await;
    let released = row(&engine, id).await;
    assert_eq!(
        (&released.task.phase, released.task.run),
        (&Phase::Working, Run::Queued { reattach: false })
    );
    assert_eq!(released.task.stop, Stop::None);

    let next = rig.engine(work(&stage)).await;
    assert_eq!(stage.began(2).await[1].attempt, 2);
    stage.open();
    finished(&next, id).await;
}

async fn a_result_that_comes_while_it_is_given_back_is_kept(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("work", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            context.stop().await;
            returned("just in time")
        }
    });
    let engine = rig.engine(tools).await;
    let id = call_with(&engine, "work", rerun(5), |_| {}).await;
    stage.began(1).await;
    within(engine.drain(LONG)).await;
    assert!(matches!(
        row(&engine, id).await.task.phase,
        Phase::Finished(Outcome::Returned { .. })
    ));
}

async fn relayed_work_is_let_go_and_not_stopped(rig: Rig) {
    let (stage, stops) = (Stage::new(), Stage::new());
    let (seen, stopped) = (stage.clone(), stops.clone());
    let tools = Toolbox::one("relay", move |call, context| {
        let (seen, stopped) = (seen.clone(), stopped.clone());
        async move {
            context.attach(Body::new(b"their-id")).await.unwrap();
            seen.enter(&call);
            context.stop().await;
            stopped.enter(&call);
            Finish::Stopped { confirmed: true }
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "relay").await;
    stage.began(1).await;
    within(engine.drain(LONG)).await;
    assert_eq!(row(&engine, id).await.task.run, Run::Queued { reattach: true });
    assert_eq!(stops.count(), 0);
}

async fn relayed_work_that_would_end_with_us_is_seen_through(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::ends_with_us("relay", move |call, context| {
        let seen = seen.clone();
        async move {
            context.attach(Body::new(b"their-id")).await.unwrap();
            seen.enter(&call);
            seen.door().await;
            returned("in the end")
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "relay").await;
    stage.began(1).await;
    let drained = begin_to_drain(&engine).await;
    stage.open();
    within(drained).await.unwrap();
    assert!(matches!(
        row(&engine, id).await.task.phase,
        Phase::Finished(Outcome::Returned { .. })
    ));
}
