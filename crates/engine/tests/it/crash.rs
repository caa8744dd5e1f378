//! What becomes of work whose process is gone, or is held for gone.

use std::sync::{Arc, Mutex};

use longhaul_core::{Body, Event, Outcome, Phase, Reason, Run, Stop, task::OnCrash};
use longhaul_engine::tool::Finish;

use crate::support::*;

on_each_store!(
    after_a_crash_the_first_read_is_honest_and_nothing_ran_twice,
    a_crash_reruns_what_may_run_again,
    an_end_that_nobody_saw_follows_the_rules_of_a_crash,
    what_waited_in_the_queue_is_run_by_the_next_process,
    relayed_work_is_followed_again_and_not_begun_again,
    a_cancel_whose_runner_died_is_settled_by_the_next,
    no_event_of_a_proposal_counts_when_one_is_refused,
);

const INTERRUPTED: Phase = Phase::Finished(Outcome::Failed(Reason::Interrupted));

/// A tool that enters the stage and works until the door opens.
fn long_work(stage: &Stage) -> Toolbox {
    let seen = stage.clone();
    Toolbox::one("work", move |call, _| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            seen.door().await;
            returned("done")
        }
    })
}

async fn after_a_crash_the_first_read_is_honest_and_nothing_ran_twice(rig: Rig) {
    let stage = Stage::new();
    let engine = rig.engine(long_work(&stage)).await;
    let id = call(&engine, "work").await;
    stage.began(1).await;
    rig.crash(engine).await;

    let next = rig.idle(long_work(&stage), |options| {
        options.beat_interval = std::time::Duration::from_secs(3_600)
    });
    next.start().await.unwrap();
    let row = row(&next, id).await;

    assert_eq!(
        (&row.task.phase, row.task.run, row.task.stop),
        (&INTERRUPTED, Run::Idle, Stop::Stopped)
    );
    assert_eq!(stage.count(), 1);
}

#[tokio::test]
async fn work_that_nobody_could_look_for_is_unknown() {
    let rig = Rig::unswept();
    let stage = Stage::new();
    let engine = rig.engine(long_work(&stage)).await;
    let id = call(&engine, "work").await;
    stage.began(1).await;
    rig.crash(engine).await;
    let next = rig.engine(Toolbox::default()).await;
    assert_eq!(row(&next, id).await.task.stop, Stop::Unknown);
}

#[tokio::test]
async fn only_the_work_that_a_sweep_confirms_is_stopped() {
    let rig = Rig::memory();
    let stage = Stage::new();
    let engine = rig.engine(long_work(&stage)).await;
    let gone = call(&engine, "work").await;
    stage.began(1).await;
    let unsure = call(&engine, "work").await;
    stage.began(2).await;
    rig.crash(engine).await;
    let next = rig.idle(Toolbox::default(), |options| {
        options.sweep =
            Arc::new(move |_, tasks| tasks.iter().copied().filter(|task| *task == gone).collect());
    });
    next.start().await.unwrap();
    assert_eq!(row(&next, gone).await.task.stop, Stop::Stopped);
    assert_eq!(row(&next, unsure).await.task.stop, Stop::Unknown);
}

#[tokio::test]
async fn a_runner_that_is_settled_is_swept_a_last_time_without_tasks() {
    let rig = Rig::memory();
    let engine = rig.engine(Toolbox::default()).await;
    let dead = engine.runner();
    rig.crash(engine).await;
    let last = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&last);
    let next = rig.idle(Toolbox::default(), |options| {
        options.sweep = Arc::new(move |runner, tasks| {
            *seen.lock().unwrap() = Some((runner.id, tasks.len()));
            Default::default()
        });
    });
    next.start().await.unwrap();
    assert_eq!(*last.lock().unwrap(), Some((dead, 0)));
}

async fn an_end_that_nobody_saw_follows_the_rules_of_a_crash(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let engine = rig
        .engine(Toolbox::one("work", move |call, _| {
            let seen = seen.clone();
            async move {
                seen.enter(&call);
                Finish::Lost {
                    confirmed: call.attempt == 1,
                }
            }
        }))
        .await;
    let once = call(&engine, "work").await;
    let row = finished(&engine, once).await;
    assert_eq!((&row.task.phase, row.task.stop), (&INTERRUPTED, Stop::Stopped));
    assert_eq!(stage.count(), 1);

    // The second attempt is not confirmed, and its starts are spent.
    let again = call_with(&engine, "work", rerun(2), |_| {}).await;
    let row = finished(&engine, again).await;
    assert_eq!((&row.task.phase, row.task.stop), (&INTERRUPTED, Stop::Unknown));
    assert_eq!(stage.count(), 3);
}

async fn a_crash_reruns_what_may_run_again(rig: Rig) {
    let stage = Stage::new();
    let engine = rig.engine(long_work(&stage)).await;
    let id = call_with(&engine, "work", rerun(2), |_| {}).await;
    stage.began(1).await;
    rig.crash(engine).await;

    let next = rig.engine(long_work(&stage)).await;
    let calls = stage.began(2).await;
    assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2]);
    rig.crash(next).await;

    // Its starts are spent.
    let last = rig.engine(long_work(&stage)).await;
    assert_eq!(finished(&last, id).await.task.phase, INTERRUPTED);
    assert_eq!(stage.count(), 2);
}

async fn what_waited_in_the_queue_is_run_by_the_next_process(rig: Rig) {
    let stage = Stage::new();
    stage.open();
    let gateway = rig.idle(Toolbox::default(), |_| {});
    let id = call(&gateway, "work").await;
    rig.crash(gateway).await;
    let next = rig.engine(long_work(&stage)).await;
    let row = finished(&next, id).await;
    assert!(matches!(
        row.task.phase,
        Phase::Finished(Outcome::Returned { .. })
    ));
}

async fn relayed_work_is_followed_again_and_not_begun_again(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = move || {
        let seen = seen.clone();
        Toolbox::one("relay", move |call, context| {
            let seen = seen.clone();
            async move {
                if call.upstream.is_none() {
                    context.attach(Body::new(b"their-id")).await.unwrap();
                }
                seen.enter(&call);
                seen.door().await;
                Finish::Returned {
                    body: call.upstream.unwrap(),
                    is_error: false,
                }
            }
        })
    };
    let engine = rig.engine(tools()).await;
    let id = call(&engine, "relay").await;
    stage.began(1).await;
    rig.crash(engine).await;
    let next = rig.engine(tools()).await;
    stage.began(2).await;
    stage.open();
    let row = finished(&next, id).await;
    let body = Body::new(b"their-id");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
    assert_eq!(row.task.starts, 1);
}

async fn a_cancel_whose_runner_died_is_settled_by_the_next(rig: Rig) {
    let stage = Stage::new();
    let engine = rig.engine(long_work(&stage)).await;
    let id = call(&engine, "work").await;
    stage.began(1).await;
    cancel(&engine, id).await;
    assert_eq!(row(&engine, id).await.task.stop, Stop::Stopping);
    rig.crash(engine).await;
    let next = rig.engine(Toolbox::default()).await;
    assert_eq!(row(&next, id).await.task.stop, Stop::Stopped);
}

#[tokio::test]
async fn the_report_of_a_runner_that_lost_its_task_changes_nothing() {
    let rig = Rig::memory();
    let (zombie_stage, stage) = (Stage::new(), Stage::new());
    let never = std::time::Duration::from_secs(3_600);
    let deaf = |seen: &Stage| {
        let seen = seen.clone();
        Toolbox::one("work", move |call, _| {
            let seen = seen.clone();
            async move {
                seen.enter(&call);
                seen.door().await;
                returned("zombie")
            }
        })
    };
    let zombie = rig.idle(deaf(&zombie_stage), |options| {
        // It hears nothing of its own death.
        (options.beat_interval, options.watch_interval) = (never, never);
    });
    zombie.start().await.unwrap();
    let id = call_with(&zombie, "work", rerun(5), |_| {}).await;
    zombie_stage.began(1).await;
    rig.declare_dead(zombie.runner());

    let heir = rig.engine(long_work(&stage)).await;
    stage.began(1).await;
    zombie_stage.open();
    within(async {
        while !zombie.load().running.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let held = row(&heir, id).await;
    assert_eq!(held.task.run, Run::Running(heir.runner()));
    let audit = rig.audit(id).await;
    assert!(
        audit.contains(&("mcp.task.refused".into(), "fenced".into())),
        "{audit:?}"
    );

    stage.open();
    let row = finished(&heir, id).await;
    let body = Body::new(b"done");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
}

#[tokio::test]
async fn a_runner_that_was_declared_dead_stops_what_it_runs() {
    let rig = Rig::memory();
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("work", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            context.stop().await;
            seen.enter(&call);
            returned("late")
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "work").await;
    stage.began(1).await;
    rig.declare_dead(engine.runner());
    stage.began(2).await;
    assert!(engine.load().fenced);
    let next = rig.engine(Toolbox::default()).await;
    assert_eq!(finished(&next, id).await.task.phase, INTERRUPTED);
}

async fn no_event_of_a_proposal_counts_when_one_is_refused(rig: Rig) {
    let engine = rig.idle(Toolbox::default(), |_| {});
    let id = call_with(&engine, "work", rules(OnCrash::Fail), |_| {}).await;
    let runner = engine.runner();
    let scope = longhaul_store::Scope {
        task: longhaul_store::Slot::Task(id),
        ..Default::default()
    };
    let judge = move |_: &longhaul_store::Snapshot| {
        let events = vec![Event::Claimed { runner }, Event::Claimed { runner }];
        let proposal = longhaul_engine::transact::Proposal {
            events,
            actor: "runner",
            ..Default::default()
        };
        longhaul_engine::transact::Verdict::Apply(proposal, ())
    };
    let done = engine.transact(scope, Box::new(judge)).await.unwrap();
    assert!(!done.is_committed());
    let row = row(&engine, id).await;
    assert_eq!((row.version, row.task.run), (1, Run::Queued { reattach: false }));
}
