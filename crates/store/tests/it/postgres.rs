//! What only the PostgreSQL store promises: lost connections, and a server that must be safe.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use longhaul_core::{Body, StepId};
use longhaul_store::{
    Fault, Query, Scope, Slot, Store,
    crypt::KeyRing,
    postgres::{Options, Postgres},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use crate::support::{Database, birth, owner, row, unique, write};

async fn now(store: &dyn Store) -> longhaul_core::Millis {
    store.read(Query::Due { limit: 1 }).await.unwrap().now
}

async fn connect(url: String, allow_unsafe_settings: bool) -> Result<Postgres, Fault> {
    let keys = KeyRing::new([42; 32], &[]);
    let options = Options {
        url,
        keys,
        connections_max: 2,
        allow_unsafe_settings,
    };
    Postgres::connect(options).await.map_err(|error| error.fault)
}

#[tokio::test]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
async fn an_acknowledged_write_is_read_after_the_store_is_opened_again() {
    let database = Database::create().await;
    let store = database.connect().await;
    let mut born = row(&owner("uid:1"), "aaaaaa", now(&store).await);
    birth(&store, &born).await.unwrap();
    drop(store);
    born.version = 1;
    let store = database.connect().await;
    assert_eq!(store.read(Query::Task(born.id)).await.unwrap().rows, [born]);
}

#[tokio::test]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
async fn a_server_that_acknowledges_before_its_disk_is_refused() {
    let database = Database::create().await;
    database.run("DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET synchronous_commit = off'; END $$").await;
    let Err(Fault::Refused(why)) = connect(database.url(), false).await else {
        panic!("it was not refused")
    };
    assert!(why.contains("synchronous_commit"));
    assert!(connect(database.url(), true).await.is_ok());
}

#[tokio::test]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
async fn a_newer_schema_is_refused() {
    let database = Database::create().await;
    drop(database.connect().await);
    database.run("INSERT INTO meta VALUES (99, '')").await;
    let refused = connect(database.url(), false).await.err();
    assert_eq!(refused, Some(Fault::Newer { found: 99, known: 2 }));
}

#[tokio::test]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
async fn a_server_that_is_not_there_is_unavailable() {
    let directory = TempDir::new().unwrap();
    let url = format!(
        "host={} user=longhaul dbname=postgres",
        directory.path().display()
    );
    assert_eq!(connect(url, false).await.err(), Some(Fault::Unavailable));
}

// S13
#[tokio::test]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
async fn no_body_is_readable_in_the_tables() {
    let database = Database::create().await;
    let store = database.connect().await;
    let mut born = row(&owner("uid:1"), "aaaaaa", now(&store).await);
    born.args = Body::new(b"canary-3f1c9a");
    born.note = b"canary-3f1c9a".to_vec();
    birth(&store, &born).await.unwrap();
    for (table, column, found) in [
        ("bodies", "body", "0"),
        ("tasks", "status", "0"),
        ("tasks", "tool::bytea", "1"),
    ] {
        let needle = if found == "1" { "run_tests" } else { "canary" };
        let sql = format!("SELECT count(*) FROM {table} WHERE position('{needle}'::bytea IN {column}) > 0");
        assert_eq!(database.run(&sql).await, [Some(found.to_owned())], "{table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
async fn a_commit_whose_answer_was_lost_is_found_and_judged_once() {
    let (judged, written) = step_through_a_proxy(Cut::AfterTheCommit).await;
    assert_eq!((judged, written), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    not(postgres_at_hand),
    ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)"
)]
async fn a_commit_that_never_arrived_is_judged_again() {
    let (judged, written) = step_through_a_proxy(Cut::BeforeTheCommit).await;
    assert_eq!((judged, written), (2, 1));
}

/// Where the proxy closes the first connection that commits a step.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    BeforeTheCommit,
    AfterTheCommit,
}

/// Commits one birth through a proxy that cuts. Returns how often it was judged and how often it was written.
async fn step_through_a_proxy(cut: Cut) -> (u32, usize) {
    let database = Database::create().await;
    let direct = database.connect().await;
    let proxy = TempDir::new().unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let listener = UnixListener::bind(proxy.path().join(".s.PGSQL.5432")).unwrap();
    tokio::spawn(serve(listener, socket(&database.url()), armed.clone(), cut));
    let through = through(&database.url(), proxy.path());
    let store = connect(through, false).await.unwrap();

    let born = row(&owner("uid:1"), "aaaaaa", now(&store).await);
    // The first birth makes the data key and prepares the statements.
    birth(&store, &row(&born.owner, "bbbbbb", born.created_at))
        .await
        .unwrap();
    let slot = Slot::Birth {
        owner: born.owner.clone(),
        idem: None,
        names: vec![born.name.clone()],
    };
    let judged = Arc::new(AtomicU32::new(0));
    let (counted, wanted) = (judged.clone(), born.clone());
    armed.store(true, Ordering::SeqCst);
    let judge = move |_: &_| {
        counted.fetch_add(1, Ordering::SeqCst);
        write(Some(wanted.clone()))
    };
    let scope = Scope {
        task: slot,
        ..Scope::default()
    };
    let step = StepId(unique());
    let committed = store.transact(step, scope, Box::new(judge)).await.unwrap();
    assert!(!armed.load(Ordering::SeqCst), "the proxy saw the commit");
    assert!(committed.wrote);
    assert_eq!(committed.version, Some(1));
    assert_eq!(direct.read(Query::Task(born.id)).await.unwrap().rows.len(), 1);
    let audit = direct.audit(0, 10).await.unwrap();
    (
        judged.load(Ordering::SeqCst),
        audit.iter().filter(|row| row.step == step).count(),
    )
}

/// The same database by the proxy's socket. A second `host` would be one more server, not another.
fn through(url: &str, proxy: &Path) -> String {
    let config: tokio_postgres::Config = url.parse().unwrap();
    let (user, database) = (config.get_user().unwrap(), config.get_dbname().unwrap());
    format!("host={} user={user} dbname={database}", proxy.display())
}

fn socket(url: &str) -> PathBuf {
    let config: tokio_postgres::Config = url.parse().unwrap();
    match config.get_hosts().last() {
        Some(tokio_postgres::config::Host::Unix(directory)) => {
            let port = config.get_ports().last().copied().unwrap_or(5432);
            directory.join(format!(".s.PGSQL.{port}"))
        }
        other => panic!("LONGHAUL_TEST_POSTGRES names {other:?}, and this test needs a socket"),
    }
}

async fn serve(listener: UnixListener, server: PathBuf, armed: Arc<AtomicBool>, cut: Cut) {
    while let Ok((client, _)) = listener.accept().await {
        let server = UnixStream::connect(&server).await.unwrap();
        tokio::spawn(relay(client, server, armed.clone(), cut));
    }
}

/// Copies both ways until one side ends or the cut comes.
async fn relay(
    mut client: UnixStream,
    mut server: UnixStream,
    armed: Arc<AtomicBool>,
    cut: Cut,
) -> Option<()> {
    let (mut asked, mut answered) = ([0; 65_536], [0; 65_536]);
    let mut cutting = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let bytes = some(&asked, read)?;
                if holds(bytes, b"COMMIT\0") && armed.swap(false, Ordering::SeqCst) {
                    cutting = true;
                    if cut == Cut::BeforeTheCommit {
                        return None;
                    }
                }
                server.write_all(bytes).await.ok()?;
            }
            read = server.read(&mut answered) => {
                let bytes = some(&answered, read)?;
                if cutting && holds(bytes, b"COMMIT\0") {
                    return None;
                }
                if !cutting {
                    client.write_all(bytes).await.ok()?;
                }
            }
        }
    }
}

fn some(buffer: &[u8], read: std::io::Result<usize>) -> Option<&[u8]> {
    match read {
        Ok(0) => None,
        Ok(length) => Some(&buffer[..length]),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
        Err(error) => panic!("the proxy failed: {error}"),
    }
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
