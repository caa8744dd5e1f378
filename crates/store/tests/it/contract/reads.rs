//! What a reader finds.

use longhaul_core::{Body, Millis, Phase, Run, RunnerId, Span, TaskId, task::CancelledBy};
use longhaul_store::{List, Query, Row, Wanted};

use crate::support::{Rig, birth, change, owner, row, unique};

pub(super) async fn a_list_is_read_page_by_page(rig: Rig) {
    let now = rig.now().await;
    let mut born = Vec::new();
    for n in 0..7_u64 {
        // Two tasks of each moment, so that the id decides.
        let mut task = row(&owner("uid:1"), &format!("name{n}"), now);
        task.created_at = Millis(now.0 + n / 2);
        birth(&*rig.store, &task).await.unwrap();
        born.push((task.created_at, task.id));
    }
    born.sort_unstable_by(|left, right| right.cmp(left));
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let list = List {
            owner: Some(owner("uid:1")),
            before,
            limit: 3,
            ..List::default()
        };
        let rows = rig.store.read(Query::List(list)).await.unwrap().rows;
        assert!(rows.len() <= 3);
        assert!(
            rows.iter()
                .all(|row| row.args == Body::Stored && row.note == b"queued")
        );
        seen.extend(rows.iter().map(|row| (row.created_at, row.id)));
        before = rows.last().map(|row| (row.created_at, row.id));
        if rows.len() < 3 {
            break;
        }
    }
    assert_eq!(seen, born);
}

pub(super) async fn a_list_is_narrowed(rig: Rig) {
    let now = rig.now().await;
    let mut tasks = ["aaaaaa", "bbbbbb", "cccccc", "dddddd"].map(|name| row(&owner("uid:1"), name, now));
    tasks[1].tool = "deploy".to_owned();
    tasks[2].session = "s1".to_owned();
    tasks[3].hidden = true;
    for task in &tasks {
        birth(&*rig.store, task).await.unwrap();
    }
    change(&*rig.store, tasks[0].id, |row| {
        row.task.phase = Phase::Finished(longhaul_core::Outcome::Cancelled {
            by: CancelledBy::Owner,
        });
        row.task.run = Run::Idle;
    })
    .await
    .unwrap();
    birth(&*rig.store, &row(&owner("uid:2"), "eeeeee", now))
        .await
        .unwrap();

    let mine = || List {
        owner: Some(owner("uid:1")),
        limit: 1000,
        ..List::default()
    };
    let cases = [
        (mine(), vec!["aaaaaa", "bbbbbb", "cccccc"]),
        (
            List {
                open: Some(true),
                ..mine()
            },
            vec!["bbbbbb", "cccccc"],
        ),
        (
            List {
                open: Some(false),
                ..mine()
            },
            vec!["aaaaaa"],
        ),
        (
            List {
                tool: Some("deploy".to_owned()),
                ..mine()
            },
            vec!["bbbbbb"],
        ),
        (
            List {
                session: Some("s1".to_owned()),
                ..mine()
            },
            vec!["cccccc"],
        ),
        (
            List {
                hidden: true,
                ..mine()
            },
            vec!["aaaaaa", "bbbbbb", "cccccc", "dddddd"],
        ),
        (
            List {
                owner: None,
                ..mine()
            },
            vec!["aaaaaa", "bbbbbb", "cccccc", "eeeeee"],
        ),
        (
            List {
                owner: Some(owner("uid:3")),
                ..mine()
            },
            vec![],
        ),
    ];
    for (list, expected) in cases {
        let mut names = names(&rig.store.read(Query::List(list.clone())).await.unwrap().rows);
        names.sort_unstable();
        assert_eq!(names, expected, "{list:?}");
    }
}

pub(super) async fn a_foreign_owner_sees_nothing(rig: Rig) {
    let born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    birth(&*rig.store, &born).await.unwrap();
    let mut foreign = vec![owner("uid:2"), owner(""), owner("uid:1 ")];
    foreign.extend([owner("uid:1"), owner("uid:1"), owner("uid:1")]);
    foreign[3].tenant = "other".to_owned();
    foreign[4].issuer = "other".to_owned();
    foreign[5].app = "other".to_owned();
    for owner in foreign {
        let list = List {
            owner: Some(owner.clone()),
            hidden: true,
            limit: 10,
            ..List::default()
        };
        assert_eq!(rig.store.read(Query::List(list)).await.unwrap().rows, []);
        let named = Query::Named {
            owner,
            name: "aaaaaa".to_owned(),
        };
        assert_eq!(rig.store.read(named).await.unwrap().rows, []);
    }
    let named = Query::Named {
        owner: owner("uid:1"),
        name: "AAAAAA".to_owned(),
    };
    assert_eq!(rig.store.read(named).await.unwrap().rows, []);
}

pub(super) async fn due_tasks_are_found_earliest_first(rig: Rig) {
    let now = rig.now().await;
    let mut tasks = ["aaaaaa", "bbbbbb", "cccccc", "dddddd"].map(|name| row(&owner("uid:1"), name, now));
    tasks[0].task.expires_at = Millis(now.0 - 10);
    tasks[1].task.expires_at = Millis(now.0 - 20);
    tasks[2].task.expires_at = now + Span::seconds(300);
    tasks[3].task.run = Run::Running(RunnerId(unique()));
    for task in &tasks {
        birth(&*rig.store, task).await.unwrap();
    }
    let due = |limit| {
        let store = rig.store.clone();
        async move { names(&store.read(Query::Due { limit }).await.unwrap().rows) }
    };
    assert_eq!(due(10).await, ["bbbbbb", "aaaaaa"]);
    assert_eq!(due(1).await, ["bbbbbb"]);
    change(&*rig.store, tasks[1].id, |row| {
        row.task.phase = Phase::Finished(longhaul_core::Outcome::Cancelled {
            by: CancelledBy::Owner,
        });
        row.task.run = Run::Idle;
    })
    .await
    .unwrap();
    change(&*rig.store, tasks[3].id, |row| row.task.expires_at = Millis(1))
        .await
        .unwrap();
    assert_eq!(due(10).await, ["dddddd", "aaaaaa"]);
}

pub(super) async fn claimable_tasks_are_found_tool_by_tool(rig: Rig) {
    let now = rig.now().await;
    let ago = |milliseconds| Millis(now.0 - milliseconds);
    let queued = |name, tool: &str, not_before| {
        let mut task = row(&owner("uid:1"), name, now);
        tool.clone_into(&mut task.tool);
        task.task.not_before = not_before;
        task
    };
    let mut tasks = [
        queued("aaaaaa", "one", ago(10)),
        queued("bbbbbb", "one", ago(20)),
        queued("cccccc", "one", now + Span::seconds(300)),
        queued("dddddd", "two", ago(15)),
        queued("eeeeee", "two", ago(30)),
        queued("ffffff", "two", ago(40)),
        queued("gggggg", "three", ago(50)),
    ];
    tasks[4].task.run = Run::Running(RunnerId(unique()));
    tasks[5].task.run = Run::StopOwed;
    for task in &tasks {
        birth(&*rig.store, task).await.unwrap();
    }
    let claimable = |wanted: &[(&str, bool, u32)]| {
        let store = rig.store.clone();
        let wanted = wanted.iter().map(|(tool, starts, limit)| Wanted {
            tool: (*tool).to_owned(),
            starts: *starts,
            limit: *limit,
        });
        let query = Query::Claimable(wanted.collect());
        async move { names(&store.read(query).await.unwrap().rows) }
    };
    let both = claimable(&[("one", true, 9), ("two", true, 9)]).await;
    assert_eq!(both, ["ffffff", "bbbbbb", "dddddd", "aaaaaa"]);
    assert_eq!(claimable(&[("one", true, 1)]).await, ["bbbbbb"]);
    assert_eq!(
        claimable(&[("one", false, 9), ("two", false, 9)]).await,
        ["ffffff"]
    );
    assert_eq!(claimable(&[]).await, [""; 0]);
}

pub(super) async fn held_tasks_are_found(rig: Rig) {
    let now = rig.now().await;
    let (mine, other) = (RunnerId(unique()), RunnerId(unique()));
    let runs = [
        Run::Leased(mine),
        Run::Running(mine),
        Run::Stopping(mine),
        Run::Running(other),
        Run::Parked,
    ];
    for (n, run) in runs.into_iter().enumerate() {
        let mut task = row(&owner("uid:1"), &format!("name{n}"), now);
        task.task.run = run;
        birth(&*rig.store, &task).await.unwrap();
    }
    let held = |runner, limit| {
        let store = rig.store.clone();
        async move {
            let mut names = names(&store.read(Query::HeldBy { runner, limit }).await.unwrap().rows);
            names.sort_unstable();
            names
        }
    };
    assert_eq!(held(mine, 10).await, ["name0", "name1", "name2"]);
    assert_eq!(held(mine, 2).await.len(), 2);
    assert_eq!(held(other, 10).await, ["name3"]);
    assert_eq!(held(RunnerId(unique()), 10).await, [""; 0]);
}

pub(super) async fn what_is_watched_shows_each_change(rig: Rig) {
    let now = rig.now().await;
    let born = row(&owner("uid:1"), "aaaaaa", now);
    let absent = TaskId(unique());
    birth(&*rig.store, &born).await.unwrap();
    let other = rig.another().await;
    for version in 1..4 {
        for store in [&rig.store, &other] {
            for _ in 0..2 {
                let seen = store.watch(vec![born.id, absent]).await.unwrap();
                assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(born.id, version)]);
            }
        }
        let writer = if version % 2 == 0 { &rig.store } else { &other };
        change(&**writer, born.id, |_| ()).await.unwrap();
    }
    assert!(rig.store.watch(Vec::new()).await.unwrap().is_empty());
}

pub(super) async fn the_store_counts_what_it_holds(rig: Rig) {
    let now = rig.now().await;
    let born = row(&owner("uid:1"), "aaaaaa", now);
    birth(&*rig.store, &born).await.unwrap();
    let mut stopping = row(&owner("uid:1"), "bbbbbb", now);
    stopping.task.phase = Phase::Finished(longhaul_core::Outcome::Cancelled {
        by: CancelledBy::Owner,
    });
    stopping.task.run = Run::StopOwed;
    birth(&*rig.store, &stopping).await.unwrap();
    change(&*rig.store, born.id, |row| {
        row.task.phase = Phase::Finished(longhaul_core::Outcome::Cancelled {
            by: CancelledBy::Owner,
        });
        row.task.run = Run::Idle;
    })
    .await
    .unwrap();
    let stats = rig.store.stats().await.unwrap();
    assert_eq!((stats.tasks, stats.open, stats.audit), (2, 1, 3));
}

fn names(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.name.clone()).collect()
}
