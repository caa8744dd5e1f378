//! How a task comes into the store.

use std::sync::Arc;

use longhaul_core::Body;
use longhaul_store::{Fault, Query, Scope, Slot, Step};

use crate::support::{Rig, birth, owner, row, step, write};

pub(super) async fn a_task_is_read_back_as_it_was_written(rig: Rig) {
    let mut born = row(&owner("uid:1"), "k7f2m9", rig.now().await);
    born.session = "s1".to_owned();
    born.idem = Some([3; 32]);
    born.hidden = true;
    born.context = Body::new(b"context");
    let committed = birth(&*rig.store, &born).await.unwrap();
    assert!(committed.wrote);
    assert_eq!(committed.version, Some(1));
    born.version = 1;
    assert_eq!(rig.task(born.id).await, Some(born.clone()));
    let named = Query::Named {
        owner: born.owner.clone(),
        name: born.name.clone(),
    };
    assert_eq!(rig.store.read(named).await.unwrap().rows, [born.clone()]);
    assert_eq!(
        rig.another().await.read(Query::Task(born.id)).await.unwrap().rows,
        [born]
    );
}

pub(super) async fn an_equal_key_finds_the_first_task(rig: Rig) {
    let now = rig.now().await;
    let mut first = row(&owner("uid:1"), "aaaaaa", now);
    first.idem = Some([1; 32]);
    birth(&*rig.store, &first).await.unwrap();
    let mut again = row(&owner("uid:1"), "bbbbbb", now);
    again.idem = Some([1; 32]);

    let slot = Slot::Birth {
        owner: again.owner.clone(),
        idem: again.idem,
        names: vec![again.name.clone()],
    };
    let found = first.id;
    let committed = step(
        &*rig.store,
        Scope {
            task: slot,
            ..Scope::default()
        },
        move |snapshot| {
            let task = snapshot.task.as_ref().expect("the first task is in the snapshot");
            assert_eq!(task.id, found);
            assert_eq!(task.args, Body::Stored);
            assert_eq!(task.note, b"queued");
            Step::Nothing
        },
    )
    .await
    .unwrap();
    assert!(!committed.wrote);
    assert_eq!(rig.task(again.id).await, None);

    let mut other = row(&owner("uid:1"), "cccccc", now);
    other.idem = Some([2; 32]);
    assert!(birth(&*rig.store, &other).await.unwrap().wrote);
}

pub(super) async fn an_owner_and_its_namesake_elsewhere_do_not_meet(rig: Rig) {
    let now = rig.now().await;
    let here = owner("uid:1");
    let mut elsewhere = [here.clone(), here.clone(), here.clone(), here.clone()];
    elsewhere[0].tenant = "other".to_owned();
    elsewhere[1].issuer = "https://issuer.example".to_owned();
    elsewhere[2].app = "app".to_owned();
    // The same letters in a row, cut elsewhere.
    elsewhere[3].issuer = "localuid:".to_owned();
    elsewhere[3].subject = "1".to_owned();
    let mut first = row(&here, "aaaaaa", now);
    first.idem = Some([1; 32]);
    birth(&*rig.store, &first).await.unwrap();
    for owner in elsewhere {
        let mut namesake = row(&owner, "aaaaaa", now);
        namesake.idem = Some([1; 32]);
        assert!(birth(&*rig.store, &namesake).await.unwrap().wrote, "{owner:?}");
    }
}

pub(super) async fn names_are_free_or_taken(rig: Rig) {
    let now = rig.now().await;
    birth(&*rig.store, &row(&owner("uid:1"), "bbbbbb", now))
        .await
        .unwrap();
    birth(&*rig.store, &row(&owner("uid:2"), "cccccc", now))
        .await
        .unwrap();
    let names = ["aaaaaa", "bbbbbb", "cccccc"].map(str::to_owned).to_vec();
    let slot = Slot::Birth {
        owner: owner("uid:1"),
        idem: None,
        names,
    };
    step(
        &*rig.store,
        Scope {
            task: slot,
            ..Scope::default()
        },
        |snapshot| {
            assert_eq!(snapshot.free_names, ["aaaaaa", "cccccc"]);
            assert_eq!(snapshot.task, None);
            Step::Nothing
        },
    )
    .await
    .unwrap();
}

pub(super) async fn the_count_of_open_tasks_is_exact_under_concurrent_births(rig: Rig) {
    const CAP: u64 = 10;
    let now = rig.now().await;
    let other = rig.another().await;
    let births = (0..32).map(|n| {
        let store = if n % 2 == 0 {
            rig.store.clone()
        } else {
            Arc::clone(&other)
        };
        let row = row(&owner("uid:1"), &format!("name{n:02}"), now);
        tokio::spawn(async move {
            let slot = Slot::Birth {
                owner: row.owner.clone(),
                idem: None,
                names: vec![row.name.clone()],
            };
            step(
                &*store,
                Scope {
                    task: slot,
                    ..Scope::default()
                },
                move |snapshot| {
                    if snapshot.open_tasks >= CAP {
                        Step::Nothing
                    } else {
                        write(Some(row.clone()))
                    }
                },
            )
            .await
        })
    });
    let mut born = 0;
    for birth in births.collect::<Vec<_>>() {
        born += u64::from(birth.await.unwrap().unwrap().wrote);
    }
    assert_eq!(born, CAP);
    assert_eq!(rig.store.stats().await.unwrap().open, CAP);
}

pub(super) async fn a_birth_outside_its_slot_fails(rig: Rig) {
    let now = rig.now().await;
    let wanted = row(&owner("uid:1"), "aaaaaa", now);
    let mut wrong = [wanted.clone(), wanted.clone(), wanted.clone(), wanted.clone()];
    wrong[0].owner = owner("uid:2");
    wrong[1].name = "bbbbbb".to_owned();
    wrong[2].idem = Some([1; 32]);
    wrong[3].args = Body::Stored;
    for row in wrong {
        let slot = Slot::Birth {
            owner: owner("uid:1"),
            idem: None,
            names: vec!["aaaaaa".to_owned()],
        };
        let scope = Scope {
            task: slot,
            ..Scope::default()
        };
        let failed = step(&*rig.store, scope, move |_| write(Some(row.clone())))
            .await
            .unwrap_err();
        assert_eq!(failed.fault, Fault::Broken);
        assert!(!failed.ambiguous);
    }
    birth(&*rig.store, &wanted).await.unwrap();
    let mut same_id = row(&owner("uid:1"), "cccccc", now);
    same_id.id = wanted.id;
    assert_eq!(
        birth(&*rig.store, &same_id).await.unwrap_err().fault,
        Fault::Broken
    );
    assert_eq!(rig.store.audit(0, 10).await.unwrap().len(), 1);
}
