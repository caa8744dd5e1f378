//! What only the SQLite store promises: its files, its locks, its disk.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use longhaul_core::{Body, RunnerId, TaskId};
use longhaul_store::{
    Fault, Query, Record, RecordKey, RecordKind, Runner, Scope, Step, Store, Wanted, Write,
    crypt::KeyRing,
    sqlite::{Options, Sqlite},
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{birth, change, clock, owner, row, runner, sqlite, step};

async fn now(store: &dyn Store) -> longhaul_core::Millis {
    store.read(Query::Due { limit: 1 }).await.unwrap().now
}

fn raw(directory: &Path) -> Connection {
    Connection::open(directory.join("longhaul.db")).unwrap()
}

#[tokio::test]
async fn an_acknowledged_write_is_read_after_the_store_is_opened_again() {
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let mut born = row(&owner("uid:1"), "aaaaaa", now(&store).await);
    birth(&store, &born).await.unwrap();
    drop(store);
    born.version = 1;
    let store = sqlite(directory.path());
    assert_eq!(store.read(Query::Task(born.id)).await.unwrap().rows, [born]);
    assert_eq!(store.audit(0, 10).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_write_is_on_the_disk() {
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let reader = raw(directory.path());
    let now = now(&store).await;
    for n in 0..200 {
        birth(&store, &row(&owner("uid:1"), &format!("name{n}"), now))
            .await
            .unwrap();
        let seen: u32 = reader
            .query_row("SELECT count(*) FROM tasks", [], |row| row.get(0))
            .unwrap();
        assert_eq!(seen, n + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_made_longer_ahead_of_commits_and_then_written_over() {
    let directory = TempDir::new().unwrap();
    let store: Arc<dyn Store> = Arc::new(sqlite(directory.path()));
    let length = || {
        fs::metadata(directory.path().join("longhaul.db-wal"))
            .unwrap()
            .len()
    };
    let mib = 1024 * 1024;
    assert!(length() >= 4 * mib);
    let now = now(&*store).await;
    for round in 0..100 {
        let mut births = tokio::task::JoinSet::new();
        for n in 0..64 {
            let (store, row) = (
                Arc::clone(&store),
                row(&owner("uid:1"), &format!("{round}-{n}"), now),
            );
            births.spawn(async move { birth(&*store, &row).await.unwrap() });
        }
        births.join_all().await;
    }
    // The log was written back, and so written over: what it holds now is a part of what was written.
    let pages: i64 = raw(directory.path())
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    let in_file = fs::metadata(directory.path().join("longhaul.db")).unwrap().len();
    assert!(
        pages > 1_000 && in_file > 2 * mib,
        "{pages} pages, {in_file} bytes"
    );
    assert!((16 * mib..=32 * mib).contains(&length()), "{}", length());
    drop(store);
    let check: String = raw(directory.path())
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

const CHILD: &str = "LONGHAUL_STORE_TEST_CHILD";

/// The same test is the child that is killed: it says what was acknowledged, one line each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_what_it_acknowledged_and_its_lock() {
    if let Some(directory) = std::env::var_os(CHILD) {
        return child(Path::new(&directory)).await;
    }
    let directory = TempDir::new().unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "the child that is killed is this test itself"
    )]
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "sqlite::a_killed_process_leaves_what_it_acknowledged_and_its_lock",
            "--nocapture",
        ])
        .env(CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let said = |line: String| line.strip_prefix("acknowledged ").map(str::to_owned);
    let mut acknowledged: Vec<String> = lines.by_ref().filter_map(said).take(40).collect();

    let store = sqlite(directory.path());
    let here = runner();
    let living = store.beat(here.clone()).await.unwrap();
    child.kill().unwrap();
    acknowledged.extend(lines.filter_map(said));
    child.wait().unwrap();
    let after = store.beat(here).await.unwrap();
    assert_eq!(living.dead, []);
    assert_eq!(
        after.dead.iter().map(|dead| dead.id).collect::<Vec<_>>(),
        [CHILD_RUNNER]
    );

    assert!(acknowledged.len() >= 40);
    for id in acknowledged {
        let id = TaskId(u128::from_str_radix(&id, 16).unwrap().to_be_bytes());
        assert_eq!(
            store.read(Query::Task(id)).await.unwrap().rows.len(),
            1,
            "{id} is lost"
        );
    }
}

const CHILD_RUNNER: RunnerId = RunnerId([7; 16]);

async fn child(directory: &Path) {
    let store = sqlite(directory);
    store
        .beat(Runner {
            id: CHILD_RUNNER,
            ..runner()
        })
        .await
        .unwrap();
    let now = now(&store).await;
    for n in 0_u64.. {
        let born = row(&owner("uid:1"), &format!("name{n}"), now);
        birth(&store, &born).await.unwrap();
        #[expect(clippy::print_stdout, reason = "the parent reads it")]
        {
            println!("acknowledged {}", born.id);
        }
    }
}

#[tokio::test]
async fn a_runner_that_was_fenced_while_it_lives_is_told() {
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let here = runner();
    assert!(!store.beat(here.clone()).await.unwrap().fenced);
    raw(directory.path())
        .execute("UPDATE runners SET fenced = 1", [])
        .unwrap();
    assert!(store.beat(here.clone()).await.unwrap().fenced);
    raw(directory.path()).execute("DELETE FROM runners", []).unwrap();
    assert!(
        store.beat(here).await.unwrap().fenced,
        "a runner that was forgotten stays fenced"
    );
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let directory = TempDir::new().unwrap();
    drop(sqlite(directory.path()));
    raw(directory.path())
        .execute("INSERT INTO meta VALUES (99, x'00')", [])
        .unwrap();
    assert_eq!(
        open(directory.path(), [42; 32]).err(),
        Some(Fault::Newer { found: 99, known: 2 })
    );
}

#[tokio::test]
async fn the_second_schema_step_keeps_what_is_due() {
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let now = now(&store).await;
    let mut expired = row(&owner("uid:1"), "aaaaaa", now);
    expired.task.expires_at = longhaul_core::Millis(1);
    let queued = row(&owner("uid:1"), "bbbbbb", now);
    for row in [&expired, &queued] {
        birth(&store, row).await.unwrap();
    }
    drop(store);
    raw(directory.path())
        .execute_batch(
            "DROP INDEX tasks_claim; UPDATE tasks SET due_at = NULL; ALTER TABLE tasks DROP COLUMN claim_at;
             DROP TABLE open_tasks; CREATE INDEX tasks_open ON tasks (owner) WHERE open = 1;
             DELETE FROM meta WHERE version = 2;",
        )
        .unwrap();
    let store = sqlite(directory.path());
    let names = |rows: Vec<longhaul_store::Row>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
    let due = store.read(Query::Due { limit: 9 }).await.unwrap();
    assert_eq!(names(due.rows), ["aaaaaa"]);
    let tool = queued.tool.clone();
    let wanted = Wanted {
        tool,
        starts: true,
        limit: 9,
    };
    let claimable = store.read(Query::Claimable(vec![wanted])).await.unwrap();
    assert_eq!(names(claimable.rows).len(), 2);
    let open = raw(directory.path()).query_row("SELECT number FROM open_tasks", [], |row| row.get(0));
    assert_eq!(open, Ok(2));
}

#[tokio::test]
async fn a_schema_step_that_is_not_ours_is_refused() {
    let directory = TempDir::new().unwrap();
    drop(sqlite(directory.path()));
    raw(directory.path())
        .execute("UPDATE meta SET checksum = x'00'", [])
        .unwrap();
    assert_eq!(open(directory.path(), [42; 32]).err(), Some(Fault::Broken));
}

fn open(directory: &Path, key: [u8; 32]) -> Result<Sqlite, Fault> {
    let keys = KeyRing::new(key, &[]);
    let options = Options {
        directory: directory.to_owned(),
        keys,
        clock: clock(),
        allow_network_file_system: false,
    };
    Sqlite::open(options).map_err(|error| error.fault)
}

#[tokio::test]
async fn another_master_key_opens_nothing() {
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let born = row(&owner("uid:1"), "aaaaaa", now(&store).await);
    birth(&store, &born).await.unwrap();
    drop(store);
    let store = open(directory.path(), [1; 32]).unwrap();
    let refused = store.read(Query::Task(born.id)).await.unwrap_err();
    assert!(matches!(refused.fault, Fault::Refused(_)));
}

#[tokio::test]
async fn only_its_owner_may_read_the_files() {
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    let store = sqlite(&state);
    store.beat(runner()).await.unwrap();
    birth(&store, &row(&owner("uid:1"), "aaaaaa", now(&store).await))
        .await
        .unwrap();
    let mut seen = 0;
    for folder in [state.clone(), state.join("runners")] {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let file = entry.metadata().unwrap();
            if file.is_file() {
                assert_eq!(
                    file.permissions().mode() & 0o777,
                    0o600,
                    "{:?}",
                    entry.file_name()
                );
                seen += 1;
            }
        }
    }
    assert_eq!(
        seen, 5,
        "the database, its log and shared memory, the space held back for cancels, and the runner's lock"
    );
}

// S13
#[tokio::test]
async fn no_body_is_readable_in_the_files() {
    const CANARY: &[u8] = b"canary-3f1c9a";
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let mut born = row(&owner("uid:1"), "aaaaaa", now(&store).await);
    born.args = Body::new(CANARY);
    born.context = Body::new(CANARY);
    born.note = CANARY.to_vec();
    born.task.upstream = Some(Body::new(CANARY));
    birth(&store, &born).await.unwrap();
    change(&store, born.id, |row| {
        row.task.checkpoint = Some(Body::new(CANARY))
    })
    .await
    .unwrap();
    let key = RecordKey {
        kind: RecordKind::Spent,
        tenant: "default".to_owned(),
        id: "r1".to_owned(),
    };
    let record = Record {
        key: key.clone(),
        version: 0,
        expires_at: None,
        body: CANARY.to_vec(),
    };
    step(
        &store,
        Scope {
            records: vec![key.clone()],
            ..Scope::default()
        },
        move |_| {
            let records = [(key.clone(), Some(record.clone()))].into();
            Step::Write(Box::new(Write {
                records,
                ..Write::default()
            }))
        },
    )
    .await
    .unwrap();
    let holds = |needle: &[u8]| {
        let mut files = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        files.any(|path| {
            path.is_file()
                && fs::read(path)
                    .unwrap()
                    .windows(needle.len())
                    .any(|bytes| bytes == needle)
        })
    };
    assert!(holds(b"run_tests"), "the search itself works");
    assert!(!holds(CANARY));
}

// S13
#[tokio::test]
async fn a_swapped_body_is_rejected() {
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let now = now(&store).await;
    let tasks = ["aaaaaa", "bbbbbb"].map(|name| row(&owner("uid:1"), name, now));
    for task in &tasks {
        birth(&store, task).await.unwrap();
    }
    let swaps = [
        "UPDATE bodies SET body = (SELECT body FROM bodies AS other WHERE other.task <> bodies.task AND other.name = 'args') WHERE name = 'args' AND task = ?1",
        "UPDATE tasks SET status = (SELECT status FROM tasks AS other WHERE other.id <> tasks.id) WHERE id = ?1",
    ];
    for (task, swap) in tasks.iter().zip(swaps) {
        assert_eq!(store.read(Query::Task(task.id)).await.unwrap().rows.len(), 1);
        assert_eq!(raw(directory.path()).execute(swap, [&task.id.0[..]]).unwrap(), 1);
        assert_eq!(
            store.read(Query::Task(task.id)).await.unwrap_err().fault,
            Fault::Broken
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_another_process_holds_too_long_is_unavailable() {
    let directory = TempDir::new().unwrap();
    let store = sqlite(directory.path());
    let born = row(&owner("uid:1"), "aaaaaa", now(&store).await);
    let other = raw(directory.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = birth(&store, &born).await.unwrap_err();
    assert_eq!((busy.fault, busy.ambiguous), (Fault::Unavailable, false));
    other.execute_batch("ROLLBACK").unwrap();
    birth(&store, &born).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    not(small_disk_at_hand),
    ignore = "set LONGHAUL_TEST_SMALL_DISK (rigs/small-disk.sh)"
)]
async fn a_full_disk_fails_writes_until_there_is_space() {
    const TASKS_MAX: usize = 10_000;
    let disk = std::env::var("LONGHAUL_TEST_SMALL_DISK").expect("LONGHAUL_TEST_SMALL_DISK names a folder");
    let alone = fs::File::open(&disk).unwrap();
    alone.lock().unwrap();
    let directory = TempDir::new_in(disk).unwrap();
    let ballast = directory.path().join("ballast");
    fs::write(&ballast, [0; 300_000]).unwrap();
    let store = sqlite(&directory.path().join("state"));
    let now = now(&store).await;
    let large = |n| {
        let mut task = row(&owner("uid:1"), &format!("name{n}"), now);
        task.args = Body::new(&[7; 20_000]);
        task
    };
    let mut born = Vec::new();
    let failed = loop {
        assert!(born.len() < TASKS_MAX, "the disk is not small");
        let task = large(born.len());
        match birth(&store, &task).await {
            Ok(_) => born.push(task.id),
            Err(failed) => break failed,
        }
    };
    assert_eq!((failed.fault, failed.ambiguous), (Fault::Full, false));
    for id in &born {
        assert_eq!(store.read(Query::Task(*id)).await.unwrap().rows.len(), 1);
    }
    assert_eq!(store.audit(0, 20_000).await.unwrap().len(), born.len());

    fs::remove_file(ballast).unwrap();
    assert!(birth(&store, &large(born.len())).await.unwrap().wrote);
    assert_eq!(store.audit(0, 20_000).await.unwrap().len(), born.len() + 1);
}
