//! How what is stored, and who runs it, comes to an end.

use std::{collections::BTreeMap, slice};

use longhaul_core::{Millis, Outcome, Phase, Run, Span, task::CancelledBy};
use longhaul_store::{Query, Record, RecordKey, RecordKind, Row, Scope, Step, Write};

use crate::support::{Rig, birth, change, owner, row, runner, step};

fn finish(row: &mut Row) {
    row.task.phase = Phase::Finished(Outcome::Cancelled {
        by: CancelledBy::Owner,
    });
    row.task.run = Run::Idle;
}

pub(super) async fn a_purge_takes_what_is_over_and_keeps_the_rest(rig: Rig) {
    let now = rig.now().await;
    let mut tasks = ["aaaaaa", "bbbbbb", "cccccc", "dddddd"].map(|name| row(&owner("uid:1"), name, now));
    tasks
        .iter_mut()
        .for_each(|row| row.purge_after = Millis(now.0 - 1));
    tasks[3].purge_after = now + Span::seconds(300);
    finish(&mut tasks[0]);
    finish(&mut tasks[1]);
    // Finished for its client, but its work still lives.
    finish(&mut tasks[2]);
    tasks[2].task.run = Run::StopOwed;
    finish(&mut tasks[3]);
    for task in &tasks {
        birth(&*rig.store, task).await.unwrap();
    }
    let open = row(&owner("uid:1"), "eeeeee", Millis(now.0 - 7_200_000));
    birth(&*rig.store, &open).await.unwrap();

    assert_eq!(rig.store.purge(1).await.unwrap(), 1);
    assert_eq!(rig.store.purge(10).await.unwrap(), 1);
    assert_eq!(rig.store.purge(10).await.unwrap(), 0);
    for gone in &tasks[..2] {
        assert_eq!(rig.task(gone.id).await, None);
        assert!(rig.store.watch(vec![gone.id]).await.unwrap().is_empty());
    }
    for kept in [&tasks[2], &tasks[3], &open] {
        assert_eq!(rig.task(kept.id).await.unwrap().args, kept.args);
    }
    assert_eq!(rig.store.audit(0, 10).await.unwrap().len(), 5, "the audit stays");
}

pub(super) async fn a_purged_name_is_free_again(rig: Rig) {
    let now = rig.now().await;
    let mut first = row(&owner("uid:1"), "aaaaaa", now);
    first.idem = Some([1; 32]);
    birth(&*rig.store, &first).await.unwrap();
    change(&*rig.store, first.id, |row| {
        finish(row);
        row.purge_after = Millis(1);
    })
    .await
    .unwrap();
    let mut second = row(&owner("uid:1"), "aaaaaa", now);
    second.idem = first.idem;
    assert!(!birth(&*rig.store, &second).await.unwrap().wrote);
    assert_eq!(rig.store.purge(10).await.unwrap(), 1);
    assert!(birth(&*rig.store, &second).await.unwrap().wrote);
}

pub(super) async fn expired_records_are_gone(rig: Rig) {
    let now = rig.now().await;
    let expiries = [Some(Millis(now.0 - 1)), Some(now + Span::seconds(300)), None];
    let keys = ["r1", "r2", "r3"].map(|id| RecordKey {
        kind: RecordKind::Spent,
        tenant: "default".to_owned(),
        id: id.to_owned(),
    });
    let records: BTreeMap<_, _> = keys
        .iter()
        .zip(expiries)
        .map(|(key, expires_at)| {
            (
                key.clone(),
                Some(Record {
                    key: key.clone(),
                    version: 0,
                    expires_at,
                    body: vec![1],
                }),
            )
        })
        .collect();
    let scope = Scope {
        records: keys.to_vec(),
        ..Scope::default()
    };
    step(&*rig.store, scope.clone(), move |_| {
        Step::Write(Box::new(Write {
            records: records.clone(),
            ..Write::default()
        }))
    })
    .await
    .unwrap();
    for purged in [false, true] {
        let listed = rig
            .store
            .records(RecordKind::Spent, "default".to_owned())
            .await
            .unwrap();
        let seen: Vec<_> = listed.iter().map(|record| record.key.id.as_str()).collect();
        assert_eq!(seen, ["r2", "r3"], "purged: {purged}");
        let expected = keys[1..].to_vec();
        step(&*rig.store, scope.clone(), move |snapshot| {
            assert_eq!(snapshot.records.keys().cloned().collect::<Vec<_>>(), expected);
            Step::Nothing
        })
        .await
        .unwrap();
        rig.store.purge(10).await.unwrap();
    }
}

pub(super) async fn a_live_runner_is_not_dead(rig: Rig) {
    let (here, there) = (runner(), runner());
    let other = rig.another().await;
    for _ in 0..2 {
        for (store, runner) in [(&rig.store, &here), (&other, &there)] {
            let beat = store.beat(runner.clone()).await.unwrap();
            assert!(!beat.fenced);
            assert_eq!(beat.dead, []);
        }
    }
}

pub(super) async fn a_dead_runner_is_found(rig: Rig) {
    let (here, there) = (runner(), runner());
    let other = rig.another().await;
    other.beat(there.clone()).await.unwrap();
    rig.store.beat(here.clone()).await.unwrap();
    rig.lose(other, there.id).await;
    for _ in 0..2 {
        let beat = rig.store.beat(here.clone()).await.unwrap();
        assert!(!beat.fenced);
        assert_eq!(beat.dead, slice::from_ref(&there));
    }
    let back = rig.another().await;
    let beat = back.beat(there.clone()).await.unwrap();
    assert!(beat.fenced, "a runner that was declared dead stays dead");
    assert_eq!(rig.store.beat(here).await.unwrap().dead, [there]);
}

pub(super) async fn a_runner_is_forgotten_once_it_holds_nothing(rig: Rig) {
    let (here, there) = (runner(), runner());
    let other = rig.another().await;
    other.beat(there.clone()).await.unwrap();
    rig.store.beat(here.clone()).await.unwrap();
    rig.store.forget_runner(there.id).await.unwrap();
    assert!(
        !other.beat(there.clone()).await.unwrap().fenced,
        "a live runner is not forgotten"
    );
    let mut held = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    held.task.run = Run::Running(there.id);
    birth(&*rig.store, &held).await.unwrap();
    rig.lose(other, there.id).await;
    let beat = rig.store.beat(here.clone()).await.unwrap();
    assert_eq!(beat.dead, slice::from_ref(&there));

    rig.store.forget_runner(there.id).await.unwrap();
    let beat = rig.store.beat(here.clone()).await.unwrap();
    assert_eq!(beat.dead, slice::from_ref(&there), "it still holds a task");
    change(&*rig.store, held.id, |row| {
        row.task.run = Run::Queued { reattach: false }
    })
    .await
    .unwrap();
    rig.store.forget_runner(there.id).await.unwrap();
    assert_eq!(rig.store.beat(here).await.unwrap().dead, []);
    let nothing = rig
        .store
        .read(Query::HeldBy {
            runner: there.id,
            limit: 10,
        })
        .await
        .unwrap();
    assert_eq!(nothing.rows, []);
}
