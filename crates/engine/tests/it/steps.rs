//! What a step writes: births, versions, the time of the last update, the audit record.

use longhaul_core::{Millis, Refused, Run, StepId, TaskId, audit};
use longhaul_engine::transact::{Done, Proposal, Trail, Verdict};
use longhaul_store::{Scope, Slot, Snapshot};

use crate::support::*;

on_each_store!(
    equal_calls_at_once_are_one_task,
    a_birth_where_a_task_already_is_writes_nothing,
    a_step_and_its_audit_record_are_one,
    a_task_that_is_handed_out_is_no_longer_hidden,
);

async fn equal_calls_at_once_are_one_task(rig: Rig) {
    let engine = rig.idle(Toolbox::default(), |_| {});
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let engine = engine.clone();
        calls.spawn(async move {
            let keyed = |opening: &mut longhaul_engine::transact::Opening| opening.idem = Some([9; 32]);
            call_with(&engine, "work", rerun(1), keyed).await
        });
    }
    let ids = within(calls.join_all()).await;
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(rig.store().stats().await.unwrap().tasks, 1);
}

async fn a_birth_where_a_task_already_is_writes_nothing(rig: Rig) {
    let engine = rig.idle(Toolbox::default(), |_| {});
    let id = call(&engine, "work").await;
    let missing = TaskId([9; 16]);
    assert!(matches!(
        cancel(&engine, missing).await,
        Done::NotNow(Refused::OutOfPlace, ())
    ));
    assert_eq!(row(&engine, id).await.version, 1);
    assert_eq!(rig.store().stats().await.unwrap().audit, 1);
}

#[tokio::test]
async fn the_time_of_the_last_update_moves_only_with_what_a_client_can_see() {
    let rig = Rig::memory();
    let hand = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1_000));
    let time = hand.clone();
    let clock = move || Millis(time.load(std::sync::atomic::Ordering::SeqCst));
    let memory = std::sync::Arc::new(longhaul_store::memory::Memory::new(std::sync::Arc::new(clock)));
    let engine = rig.idle_on(memory, Toolbox::default(), |_| {});
    let at = |now: u64| hand.store(now, std::sync::atomic::Ordering::SeqCst);
    let id = call(&engine, "work").await;
    assert_eq!(row(&engine, id).await.updated_at, Millis(1_000));

    at(2_000);
    happen(
        &engine,
        id,
        longhaul_core::Event::Claimed {
            runner: engine.runner(),
        },
    )
    .await;
    assert_eq!(
        row(&engine, id).await.updated_at,
        Millis(1_000),
        "a claim is not seen"
    );

    at(3_000);
    let fence = row(&engine, id).await.task.fence;
    happen(&engine, id, longhaul_core::Event::Started { fence }).await;
    assert_eq!(row(&engine, id).await.updated_at, Millis(3_000));

    at(2_500);
    note(&engine, id, b"backwards").await;
    let noted = row(&engine, id).await;
    assert_eq!(
        (noted.updated_at, noted.note.as_slice()),
        (Millis(3_000), &b"backwards"[..])
    );

    at(4_000);
    note(&engine, id, b"on").await;
    assert_eq!(row(&engine, id).await.updated_at, Millis(4_000));

    at(5_000);
    cancel(&engine, id).await;
    at(6_000);
    happen(
        &engine,
        id,
        longhaul_core::Event::Stopped {
            fence,
            confirmed: true,
        },
    )
    .await;
    let row = row(&engine, id).await;
    assert_eq!((row.updated_at, row.task.run), (Millis(5_000), Run::Idle));
    assert!(matches!(
        note(&engine, id, b"after the end").await,
        Done::NotNow(Refused::Finished, ())
    ));
}

async fn a_step_and_its_audit_record_are_one(rig: Rig) {
    let engine = rig.idle(Toolbox::default(), |_| {});
    let id = call(&engine, "work").await;
    let scope = Scope {
        task: Slot::Task(id),
        ..Scope::default()
    };
    let judge = |_: &Snapshot| {
        let entries = vec![audit::Entry {
            name: "mcp.call".into(),
            detail: "tasks/cancel".into(),
        }];
        let trail = Trail {
            entries,
            trace: "trace".into(),
            ..Trail::default()
        };
        let events = vec![longhaul_core::Event::Cancel {
            by: longhaul_core::task::CancelledBy::Operator,
        }];
        Verdict::Apply(
            Proposal {
                events,
                actor: "operator",
                trail,
                ..Proposal::default()
            },
            5,
        )
    };
    let done = engine.transact(scope, Box::new(judge)).await.unwrap();
    let Done::Committed(row, 5) = done else {
        panic!("{done:?}")
    };
    assert_eq!(row.version, 2);

    let records = rig.store().audit(0, 10).await.unwrap();
    let record = audit::Record::decode(&records[1].body).unwrap();
    assert_eq!(
        (record.step, &record.step),
        (records[1].step, &StepId(records[1].step.0))
    );
    assert_eq!(
        (record.actor.as_str(), record.trace.as_str()),
        ("operator", "trace")
    );
    assert_eq!(
        (record.status.as_str(), record.principal.as_str()),
        ("cancelled", "local uid:1000")
    );
    assert_eq!(record.task, format!("ref-{id}"));
    let names: Vec<&str> = record.events.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "mcp.call",
            "mcp.task.cancel_requested",
            "mcp.task.cancelled",
            "mcp.task.status_changed"
        ]
    );
}

async fn a_task_that_is_handed_out_is_no_longer_hidden(rig: Rig) {
    let engine = rig.idle(Toolbox::default(), |_| {});
    let id = call_with(&engine, "work", rerun(1), |opening| opening.hidden = true).await;
    let scope = Scope {
        task: Slot::Task(id),
        ..Scope::default()
    };
    let judge = |_: &Snapshot| {
        Verdict::Apply(
            Proposal {
                shown: Some(Millis(77)),
                actor: "owner",
                ..Proposal::default()
            },
            (),
        )
    };
    engine.transact(scope, Box::new(judge)).await.unwrap();
    let row = row(&engine, id).await;
    assert_eq!(
        (row.hidden, row.purge_after, row.updated_at),
        (false, Millis(77), row.created_at)
    );
}

async fn note(engine: &longhaul_engine::Engine, id: TaskId, note: &'static [u8]) -> Done<()> {
    let scope = Scope {
        task: Slot::Task(id),
        ..Scope::default()
    };
    let judge = move |_: &Snapshot| {
        Verdict::Apply(
            Proposal {
                note: Some(note.to_vec()),
                actor: "runner",
                ..Proposal::default()
            },
            (),
        )
    };
    engine.transact(scope, Box::new(judge)).await.unwrap()
}
