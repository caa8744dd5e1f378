//! What the cases need: a store with a way to lose its runners, and rows to put into it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use longhaul_core::{
    Body, Fence, Millis, Phase, Run, RunnerId, Span, StepId, Stop, Task, TaskId,
    task::{CanAsk, OnCrash, OnSilence, Rules},
};
use longhaul_store::{
    Clock, Committed, Error, Owner, Query, Row, Runner, Scope, Shared, Slot, Snapshot, Step, Store, Write,
    crypt::KeyRing,
    memory::Memory,
    postgres::{self, Postgres},
    sqlite::{self, Sqlite},
};
use tempfile::TempDir;

/// A store under test.
pub(crate) struct Rig {
    pub(crate) store: Shared,
    backend: Backend,
}

enum Backend {
    Memory(Arc<Memory>),
    Sqlite(TempDir),
    Postgres(Database),
}

impl Rig {
    pub(crate) fn memory() -> Rig {
        choose_fault();
        let memory = Arc::new(Memory::new(clock()));
        Rig {
            store: memory.clone(),
            backend: Backend::Memory(memory),
        }
    }

    pub(crate) fn sqlite() -> Rig {
        let directory = TempDir::new().unwrap();
        Rig {
            store: Arc::new(sqlite(directory.path())),
            backend: Backend::Sqlite(directory),
        }
    }

    pub(crate) async fn postgres() -> Rig {
        let database = Database::create().await;
        Rig {
            store: Arc::new(database.connect().await),
            backend: Backend::Postgres(database),
        }
    }

    /// A handle of another process on the same data.
    pub(crate) async fn another(&self) -> Shared {
        match &self.backend {
            Backend::Memory(memory) => memory.clone(),
            Backend::Sqlite(directory) => Arc::new(sqlite(directory.path())),
            Backend::Postgres(database) => Arc::new(database.connect().await),
        }
    }

    /// Loses the process behind `store`, whose runner is `runner`.
    pub(crate) async fn lose(&self, store: Shared, runner: RunnerId) {
        drop(store);
        match &self.backend {
            Backend::Memory(memory) => memory.kill(runner),
            // The lock went with the store.
            Backend::Sqlite(_) => {}
            Backend::Postgres(database) => {
                let lapse = format!("UPDATE runners SET lease_until = 1 WHERE id = '\\x{runner}'");
                database.run(&lapse).await;
            }
        }
    }

    pub(crate) async fn now(&self) -> Millis {
        self.store.read(Query::Due { limit: 1 }).await.unwrap().now
    }

    /// The one row with all its bodies.
    pub(crate) async fn task(&self, id: TaskId) -> Option<Row> {
        self.store.read(Query::Task(id)).await.unwrap().rows.pop()
    }
}

/// A store in this directory, under a key that every test knows.
pub(crate) fn sqlite(directory: &Path) -> Sqlite {
    choose_fault();
    let keys = KeyRing::new([42; 32], &[]);
    Sqlite::open(sqlite::Options {
        directory: directory.to_owned(),
        keys,
        clock: clock(),
        allow_network_file_system: false,
    })
    .unwrap()
}

/// A database of its own on the test server, dropped with its test.
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Database {
    pub(crate) async fn create() -> Database {
        choose_fault();
        let server = std::env::var("LONGHAUL_TEST_POSTGRES").expect("LONGHAUL_TEST_POSTGRES names a server");
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let name = format!("longhaul_{:016x}", u64::from_be_bytes(random));
        run(&server, &format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        Database { server, name }
    }

    /// The connection string; a later setting of one name wins.
    pub(crate) fn url(&self) -> String {
        format!("{} dbname={}", self.server, self.name)
    }

    pub(crate) async fn connect(&self) -> Postgres {
        let keys = KeyRing::new([42; 32], &[]);
        let options = postgres::Options {
            url: self.url(),
            keys,
            connections_max: 8,
            allow_unsafe_settings: false,
        };
        Postgres::connect(options).await.unwrap()
    }

    /// Runs one statement beside the store and returns the first column of its rows as text.
    pub(crate) async fn run(&self, sql: &str) -> Vec<Option<String>> {
        run(&self.url(), sql).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let drop = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(run(&server, &format!("DROP DATABASE {name} WITH (FORCE)")));
        });
        drop.join().unwrap();
    }
}

async fn run(url: &str, sql: &str) -> Vec<Option<String>> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let messages = client.simple_query(sql).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    let rows = messages.iter().filter_map(|message| {
        let tokio_postgres::SimpleQueryMessage::Row(row) = message else {
            return None;
        };
        Some(row.get(0).map(str::to_owned))
    });
    rows.collect()
}

#[expect(clippy::disallowed_methods, reason = "the engine's clock is above this crate")]
pub(crate) fn clock() -> Clock {
    Arc::new(|| Millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64))
}

/// Takes away the guard that `LONGHAUL_FAULT` names. It does nothing without the feature `faults`.
fn choose_fault() {
    longhaul_core::fault::choose(&std::env::var("LONGHAUL_FAULT").unwrap_or_default());
}

/// Sixteen bytes that no other call returns, rising within this process.
pub(crate) fn unique() -> [u8; 16] {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    bytes
}

pub(crate) fn owner(subject: &str) -> Owner {
    Owner {
        tenant: "default".to_owned(),
        issuer: "local".to_owned(),
        subject: subject.to_owned(),
        app: String::new(),
    }
}

/// A task that was born at `now` and waits for a runner.
pub(crate) fn row(owner: &Owner, name: &str, now: Millis) -> Row {
    Row {
        id: TaskId(unique()),
        owner: owner.clone(),
        kid: 7,
        name: name.to_owned(),
        tool: "run_tests".to_owned(),
        session: String::new(),
        origin: "cli".to_owned(),
        version: 0,
        created_at: now,
        updated_at: now,
        purge_after: now + Span::seconds(3600),
        idem: None,
        digest: [9; 32],
        hidden: false,
        task: Task {
            phase: Phase::Working,
            run: Run::Queued { reattach: false },
            stop: Stop::None,
            fence: Fence(0),
            starts: 0,
            legs: 0,
            strays: false,
            rules: Rules {
                on_crash: OnCrash::Rerun {
                    starts_max: 3,
                    backoff: Span(1500),
                },
                on_silence: OnSilence::Decline,
                fail_when_nobody_can_answer: true,
                question_deadline: Span::seconds(600),
                approval_lasts: Span::seconds(86_400),
                questions_max: 8,
            },
            can_ask: CanAsk {
                client: true,
                operator: false,
            },
            upstream: None,
            checkpoint: None,
            questions: Vec::new(),
            expires_at: now + Span::seconds(600),
            not_before: now,
            approved_until: None,
        },
        args: Body::new(b"{\"crate\":\"core\"}"),
        context: Body::new(b""),
        note: b"queued".to_vec(),
    }
}

pub(crate) fn runner() -> Runner {
    Runner {
        id: RunnerId(unique()),
        host: "host".to_owned(),
        boot: "boot".to_owned(),
        pid: std::process::id(),
        pid_start: u64::MAX,
    }
}

/// A step with a judge that sees the snapshot.
pub(crate) async fn step(
    store: &dyn Store,
    scope: Scope,
    judge: impl FnMut(&Snapshot) -> Step + Send + 'static,
) -> Result<Committed, Error> {
    store.transact(StepId(unique()), scope, Box::new(judge)).await
}

/// Gives birth to `row`, unless the snapshot shows one born under the same key or the name is taken.
pub(crate) async fn birth(store: &dyn Store, row: &Row) -> Result<Committed, Error> {
    let slot = Slot::Birth {
        owner: row.owner.clone(),
        idem: row.idem,
        names: vec![row.name.clone()],
    };
    let row = row.clone();
    step(
        store,
        Scope {
            task: slot,
            ..Scope::default()
        },
        move |snapshot| {
            if snapshot.task.is_some() || snapshot.free_names.is_empty() {
                return Step::Nothing;
            }
            write(Some(row.clone()))
        },
    )
    .await
}

/// Changes a task that exists.
pub(crate) async fn change(
    store: &dyn Store,
    id: TaskId,
    mut change: impl FnMut(&mut Row) + Send + 'static,
) -> Result<Committed, Error> {
    let scope = Scope {
        task: Slot::Task(id),
        ..Scope::default()
    };
    step(store, scope, move |snapshot| {
        let mut row = snapshot.task.clone().unwrap();
        change(&mut row);
        write(Some(row))
    })
    .await
}

pub(crate) fn write(task: Option<Row>) -> Step {
    Step::Write(Box::new(Write {
        task,
        audit: b"audit".to_vec(),
        ..Write::default()
    }))
}
