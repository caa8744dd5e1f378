//! Claims, starts, results, notes and slots.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use longhaul_core::{Body, Outcome, Phase, Reason, Run, Stop, task::OnCrash};
use longhaul_engine::{
    notes::Heard,
    tool::{Finish, Slots},
    transact::Opening,
};
use longhaul_store::Query;

use crate::support::*;

on_each_store!(
    a_call_is_run_once_and_its_result_kept,
    an_error_of_the_tool_is_kept_as_it_is,
    the_start_is_committed_before_the_tool_begins,
    a_claim_and_its_start_are_one_step,
    a_tool_that_panics_ends_its_task_and_no_other,
    a_tool_gets_no_more_attempts_at_once_than_it_may_have,
    tools_that_share_a_name_are_counted_apart,
    a_task_whose_tool_is_not_here_is_left_for_another_process,
    of_many_notes_the_newest_is_stored_and_not_each,
    whoever_follows_a_call_sees_each_note,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_calls_at_once_all_return_from_memory() {
    many_calls_at_once_all_return(Rig::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_calls_at_once_all_return_from_sqlite() {
    many_calls_at_once_all_return(Rig::sqlite()).await;
}

/// A commit is told after it is done. What is told late says nothing about a claim that came since: with many
/// calls on several threads some births are told after their claims.
async fn many_calls_at_once_all_return(rig: Rig) {
    let tools = Toolbox::one("echo", |call, context| async move {
        let work = async {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = work => returned(&call.name),
            () = context.stop() => Finish::Stopped { confirmed: true },
        }
    });
    let engine = rig.engine(tools).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let engine = engine.clone();
        calls.spawn(async move { finished(&engine, call(&engine, "echo").await).await });
    }
    for row in calls.join_all().await {
        assert!(
            matches!(row.task.phase, Phase::Finished(Outcome::Returned { .. })),
            "{:?}",
            row.task.phase
        );
    }
}

async fn a_call_is_run_once_and_its_result_kept(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("echo", move |call, _| {
        seen.enter(&call);
        async move {
            Finish::Returned {
                body: call.args,
                is_error: true,
            }
        }
    });
    let engine = rig.engine(tools).await;
    let id = call_with(&engine, "echo", rules(OnCrash::Fail), |opening| {
        opening.args = Body::new(b"[1]");
        opening.context = Body::new(b"[2]");
    })
    .await;

    let row = finished(&engine, id).await;

    let body = Body::new(b"[1]");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned { body, is_error: true })
    );
    assert_eq!(
        (row.task.run, row.task.stop, row.task.starts),
        (Run::Idle, Stop::None, 1)
    );
    let calls = stage.began(1).await;
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (calls[0].attempt, &calls[0].context, &calls[0].owner),
        (1, &Body::new(b"[2]"), &owner())
    );
    let audit: Vec<String> = rig.audit(id).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        audit,
        [
            "mcp.task.created",
            "mcp.task.started",
            "mcp.task.completed",
            "mcp.task.status_changed"
        ]
    );
}

async fn an_error_of_the_tool_is_kept_as_it_is(rig: Rig) {
    let tools = Toolbox::one("bad", |_, _| async {
        Finish::Errored {
            body: Body::new(b"{\"code\":1}"),
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "bad").await;
    let row = finished(&engine, id).await;
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Errored {
            body: Body::new(b"{\"code\":1}")
        })
    );
}

async fn the_start_is_committed_before_the_tool_begins(rig: Rig) {
    let store = rig.store();
    let tools = Toolbox::one("look", move |call, _| {
        let store = store.clone();
        async move {
            let row = store.read(Query::Task(call.task)).await.unwrap().rows.remove(0);
            let begun = matches!(row.task.run, Run::Running(_)) && row.task.starts == call.attempt;
            returned(if begun { "after" } else { "before" })
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "look").await;
    let row = finished(&engine, id).await;
    let body = Body::new(b"after");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
}

async fn a_claim_and_its_start_are_one_step(rig: Rig) {
    let store = rig.store();
    let tools = Toolbox::one("look", move |call, _| {
        let store = store.clone();
        async move {
            let row = store.read(Query::Task(call.task)).await.unwrap().rows.remove(0);
            returned(&row.version.to_string())
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "look").await;
    let row = finished(&engine, id).await;
    // The first version is the birth.
    let body = Body::new(b"2");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
}

async fn a_tool_that_panics_ends_its_task_and_no_other(rig: Rig) {
    let tools = Toolbox::one("panic", |_, _| async { panic!("on purpose") })
        .with("fine", 1, |_, _| async { returned("ok") });
    let engine = rig.engine(tools).await;
    let bad = call_with(&engine, "panic", rerun(5), |_| {}).await;
    let row = finished(&engine, bad).await;
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Failed(Reason::Interrupted))
    );
    let good = call(&engine, "fine").await;
    finished(&engine, good).await;
    assert!(!engine.load().fenced);
}

async fn tools_that_share_a_name_are_counted_apart(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let (narrow, wide) = (Body::new(b"[1]"), Body::new(b"[2]"));
    let slots = |of: &str, max| Slots {
        of: of.to_owned(),
        max,
    };
    let shared = vec![
        (narrow.clone(), slots("narrow", 1)),
        (wide.clone(), slots("wide", 2)),
    ];
    let tools = Toolbox::default()
        .with("deploy", 3, move |call, _| {
            let seen = seen.clone();
            async move {
                seen.enter(&call);
                seen.door().await;
                returned("ok")
            }
        })
        .sharing("deploy", shared);
    let engine = rig.engine(tools).await;
    let mut ids = Vec::new();
    for context in [&narrow, &narrow, &narrow, &wide, &wide, &wide] {
        let context = context.clone();
        let opening = |opening: &mut Opening| opening.context = context;
        ids.push(call_with(&engine, "deploy", rules(OnCrash::Fail), opening).await);
    }
    let began = stage.began(3).await;
    let of = |context: &Body| began.iter().filter(|call| call.context == *context).count();
    assert_eq!((of(&narrow), of(&wide)), (1, 2));
    assert_eq!(stage.count(), 3);
    stage.open();
    for id in ids {
        finished(&engine, id).await;
    }
}

async fn a_tool_gets_no_more_attempts_at_once_than_it_may_have(rig: Rig) {
    let (stage, at_once) = (Stage::new(), Arc::new(AtomicUsize::new(0)));
    let peak = Arc::new(AtomicUsize::new(0));
    let (seen, now, most) = (stage.clone(), at_once.clone(), peak.clone());
    let tools = Toolbox::default()
        .with("narrow", 2, move |call, _| {
            let (seen, now, most) = (seen.clone(), now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                seen.enter(&call);
                seen.door().await;
                now.fetch_sub(1, Ordering::SeqCst);
                returned("ok")
            }
        })
        .with("other", 1, |_, _| async { returned("ok") });
    let engine = rig.engine_with(tools, |options| options.claim_batch = 2).await;
    let mut narrow = Vec::new();
    for _ in 0..6 {
        narrow.push(call(&engine, "narrow").await);
    }
    stage.began(2).await;

    // Another tool is served, though the queue before it is full of what has no slot.
    let other = call(&engine, "other").await;
    finished(&engine, other).await;
    assert_eq!(engine.load().running.get("narrow"), Some(&2));

    stage.open();
    for id in narrow {
        finished(&engine, id).await;
    }
    assert_eq!((peak.load(Ordering::SeqCst), stage.count()), (2, 6));
}

async fn a_task_whose_tool_is_not_here_is_left_for_another_process(rig: Rig) {
    let here = rig
        .engine(Toolbox::one("mine", |_, _| async { returned("ok") }))
        .await;
    let foreign = call(&here, "theirs").await;
    let mine = call(&here, "mine").await;
    finished(&here, mine).await;
    assert_eq!(
        row(&here, foreign).await.task.run,
        Run::Queued { reattach: false }
    );

    let there = rig
        .engine(Toolbox::one("theirs", |_, _| async { returned("ok") }))
        .await;
    // The change of the other process reaches a waiter of this one.
    let row = finished(&here, foreign).await;
    assert!(row.task.is_finished());
    assert_ne!(there.runner(), here.runner());
}

async fn of_many_notes_the_newest_is_stored_and_not_each(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("talk", move |call, context| {
        let seen = seen.clone();
        async move {
            for n in 0..500 {
                context.note(format!("{n}").into_bytes());
                tokio::task::yield_now().await;
            }
            context.note(vec![b'x'; 9 * 1024]);
            seen.enter(&call);
            seen.door().await;
            context.note(b"last".to_vec());
            returned("ok")
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "talk").await;
    stage.began(1).await;

    // The trailing edge is written, though the tool says nothing more; what is too long is dropped.
    let noted = until(&engine, id, |row| row.note == b"499").await;
    assert!(noted.version < 20, "version {}", noted.version);
    assert!(!noted.task.is_finished());

    stage.open();
    let row = finished(&engine, id).await;
    assert_eq!(row.note, b"last");
    assert!(row.updated_at >= noted.updated_at);
}

async fn whoever_follows_a_call_sees_each_note(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("talk", move |_, context| {
        let seen = seen.clone();
        async move {
            seen.door().await;
            for n in 0..5 {
                context.note(vec![n]);
            }
            returned("ok")
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "talk").await;
    let mut notes = engine.notes(id);
    stage.open();
    for n in 0..5 {
        assert_eq!(within(notes.next()).await, Heard::Note(vec![n]));
    }
    finished(&engine, id).await;
}
