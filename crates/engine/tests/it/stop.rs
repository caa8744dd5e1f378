//! Cancel, expiry and what is known of the work afterwards.

use std::time::Duration;

use longhaul_core::{
    Body, Outcome, Phase, Reason, Refused, Run, Span, Stop,
    task::{CancelledBy, OnCrash},
};
use longhaul_engine::{tool::Finish, transact::Done};

use crate::support::*;

on_each_store!(
    a_cancel_stops_the_work_and_says_so_only_when_it_has_stopped,
    a_cancel_by_another_process_reaches_the_work,
    a_task_cancelled_in_the_queue_never_begins,
    a_result_after_a_cancel_changes_nothing_and_is_audited,
    work_that_does_not_stop_is_dropped_and_reported_as_unknown,
    the_end_of_its_time_to_live_ends_running_work,
    a_deadline_is_seen_behind_a_queue_of_what_nobody_here_can_run,
    a_stop_that_is_owed_upstream_is_claimed_and_done,
);

const CANCELLED: Phase = Phase::Finished(Outcome::Cancelled {
    by: CancelledBy::Owner,
});

async fn a_cancel_stops_the_work_and_says_so_only_when_it_has_stopped(rig: Rig) {
    let (stage, told) = (Stage::new(), Stage::new());
    let (seen, hears) = (stage.clone(), told.clone());
    let tools = Toolbox::one("sleep", move |call, context| {
        let (seen, hears) = (seen.clone(), hears.clone());
        async move {
            seen.enter(&call);
            context.stop().await;
            hears.enter(&call);
            hears.door().await;
            Finish::Stopped { confirmed: true }
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "sleep").await;
    stage.began(1).await;

    assert!(cancel(&engine, id).await.is_committed());
    told.began(1).await;
    let stopping = row(&engine, id).await;
    assert_eq!(
        (&stopping.task.phase, stopping.task.stop),
        (&CANCELLED, Stop::Stopping)
    );

    told.open();
    let row = finished(&engine, id).await;
    assert_eq!(
        (&row.task.phase, row.task.run, row.task.stop),
        (&CANCELLED, Run::Idle, Stop::Stopped)
    );
    assert_eq!(
        row.updated_at, stopping.updated_at,
        "the client sees nothing of the stop"
    );
    assert!(matches!(
        cancel(&engine, id).await,
        Done::NotNow(Refused::Finished, ())
    ));
}

async fn a_cancel_by_another_process_reaches_the_work(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("sleep", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            context.stop().await;
            Finish::Stopped { confirmed: true }
        }
    });
    let engine = rig.engine(tools).await;
    let other = rig.engine(Toolbox::default()).await;
    let id = call(&engine, "sleep").await;
    stage.began(1).await;
    cancel(&other, id).await;
    assert_eq!(finished(&other, id).await.task.stop, Stop::Stopped);
}

async fn a_task_cancelled_in_the_queue_never_begins(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::default().with("one", 1, move |call, _| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            seen.door().await;
            returned("ok")
        }
    });
    let engine = rig.engine(tools).await;
    let first = call(&engine, "one").await;
    stage.began(1).await;
    let second = call(&engine, "one").await;
    cancel(&engine, second).await;
    let row = finished(&engine, second).await;
    assert_eq!((&row.task.phase, row.task.stop), (&CANCELLED, Stop::NotStarted));

    stage.open();
    finished(&engine, first).await;
    let third = call(&engine, "one").await;
    finished(&engine, third).await;
    let began: Vec<_> = stage.began(2).await.into_iter().map(|call| call.task).collect();
    assert_eq!(began, [first, third]);
}

async fn a_result_after_a_cancel_changes_nothing_and_is_audited(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("deaf", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            context.note(b"too late".to_vec());
            context.stop().await;
            returned("late")
        }
    });
    let engine = rig
        .engine_with(tools, |options| {
            options.note_interval = Duration::from_secs(3_600)
        })
        .await;
    let id = call(&engine, "deaf").await;
    stage.began(1).await;
    cancel(&engine, id).await;
    let row = finished(&engine, id).await;
    assert_eq!((&row.task.phase, row.task.stop), (&CANCELLED, Stop::Stopped));
    let audit = rig.audit(id).await;
    assert!(
        audit.contains(&("mcp.task.refused".into(), "finished".into())),
        "{audit:?}"
    );
}

async fn work_that_does_not_stop_is_dropped_and_reported_as_unknown(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("stuck", move |call, _| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            std::future::pending().await
        }
    });
    let engine = rig
        .engine_with(tools, |options| options.stop_wait_max = Duration::from_millis(20))
        .await;
    let id = call(&engine, "stuck").await;
    stage.began(1).await;
    cancel(&engine, id).await;
    assert_eq!(finished(&engine, id).await.task.stop, Stop::Unknown);
    within(async {
        while !engine.load().running.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn the_end_of_its_time_to_live_ends_running_work(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("sleep", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            context.stop().await;
            Finish::Stopped { confirmed: true }
        }
    });
    let engine = rig.engine(tools).await;
    let expires_at = engine.now() + Span(200);
    let id = call_with(&engine, "sleep", rules(OnCrash::Fail), |opening| {
        opening.birth.expires_at = expires_at
    })
    .await;
    let row = finished(&engine, id).await;
    assert_eq!(row.task.phase, Phase::Finished(Outcome::Failed(Reason::Expired)));
    assert_eq!((row.task.stop, stage.count()), (Stop::Stopped, 1));
}

async fn a_deadline_is_seen_behind_a_queue_of_what_nobody_here_can_run(rig: Rig) {
    let engine = rig
        .engine_with(Toolbox::default(), |options| options.claim_batch = 2)
        .await;
    for _ in 0..9 {
        call(&engine, "elsewhere").await;
    }
    let expires_at = engine.now() + Span(30);
    let id = call_with(&engine, "elsewhere", rules(OnCrash::Fail), |opening| {
        opening.birth.expires_at = expires_at
    })
    .await;
    let row = finished(&engine, id).await;
    assert_eq!(row.task.phase, Phase::Finished(Outcome::Failed(Reason::Expired)));
    assert_eq!(row.task.stop, Stop::NotStarted);
}

async fn a_stop_that_is_owed_upstream_is_claimed_and_done(rig: Rig) {
    let (stage, stops) = (Stage::new(), Stage::new());
    let (seen, ends) = (stage.clone(), stops.clone());
    let tools = move || {
        let (seen, ends) = (seen.clone(), ends.clone());
        Toolbox::one("relay", move |call, context| {
            let (seen, ends) = (seen.clone(), ends.clone());
            async move {
                if call.upstream.is_none() {
                    context.attach(Body::new(b"their-id")).await.unwrap();
                    seen.enter(&call);
                }
                context.stop().await;
                ends.enter(&call);
                Finish::Stopped { confirmed: true }
            }
        })
    };
    let engine = rig.engine(tools()).await;
    let id = call(&engine, "relay").await;
    stage.began(1).await;
    rig.crash(engine).await;

    // The task ends while nobody holds it, though its work lives elsewhere.
    let judge = rig.idle(Toolbox::default(), |_| {});
    let watcher = rig.engine(Toolbox::default()).await;
    until(&watcher, id, |row| row.task.run == Run::Queued { reattach: true }).await;
    cancel(&judge, id).await;
    assert_eq!(row(&judge, id).await.task.run, Run::StopOwed);

    let engine = rig.engine(tools()).await;
    assert_eq!(finished(&engine, id).await.task.stop, Stop::Stopped);
    let ended = stops.began(1).await;
    assert_eq!(
        (ended[0].upstream.clone(), stage.count()),
        (Some(Body::new(b"their-id")), 1)
    );
}
