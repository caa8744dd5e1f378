//! Reading committed state, on connections that cannot write.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures_core::future::BoxFuture;
use longhaul_core::{Millis, StepId, TaskId, fault};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::connection::{all, execute, failed, open_reader};
use crate::{
    AuditRow, Error, Found, List, Query, Record, RecordKey, RecordKind, Row, Stats,
    crypt::{self, Vault},
    layout::{self, Cell, Cells, QUESTION_COLUMNS, TASK_COLUMNS},
    migrate,
};

/// The most long reads at once; the others wait.
const LONG_MAX: usize = 4;

/// Readers are opened when they are needed and kept.
pub(super) struct Readers {
    path: PathBuf,
    turn: Semaphore,
    idle: Mutex<Vec<Connection>>,
    watcher: Mutex<Option<Watcher>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Readers {
        Readers {
            path,
            turn: Semaphore::new(LONG_MAX),
            idle: Mutex::default(),
            watcher: Mutex::default(),
        }
    }

    /// Runs `work` on a reader, in one transaction, on a thread that may block: for what reads many rows.
    pub(super) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let readers = self.clone();
        self.blocking(move || readers.here(work))
    }

    /// Runs `work` on a reader, in one transaction, on this thread: for what reads a row or two, which takes less
    /// time than to wake another thread. A reader never waits for the writer.
    pub(super) fn here<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = idle.map_or_else(|| open_reader(&self.path), Ok)?;
        execute(&connection, "BEGIN", &[])?;
        let found = work(&connection);
        execute(&connection, "ROLLBACK", &[])?;
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        found
    }

    /// The versions of the tasks that exist.
    pub(super) fn watch(
        self: &Arc<Self>,
        ids: Vec<TaskId>,
    ) -> BoxFuture<'static, Result<BTreeMap<TaskId, u64>, Error>> {
        let readers = self.clone();
        self.blocking(move || {
            let mut watcher = readers.watcher.lock().unwrap_or_else(PoisonError::into_inner);
            let mut current = match watcher.take() {
                Some(current) => current,
                None => Watcher::new(open_reader(&readers.path)?),
            };
            let seen = current.watch(&ids);
            *watcher = Some(current);
            seen
        })
    }

    fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let readers = self.clone();
        Box::pin(async move {
            let gone = || Error::broken("read the database: the runtime is shutting down");
            let turn = readers.turn.acquire().await.map_err(|_| gone())?;
            let done = tokio::task::spawn_blocking(work)
                .await
                .map_err(|cause| gone().caused_by(cause));
            drop(turn);
            done?
        })
    }
}

/// Answers from memory while nobody has written to the file.
struct Watcher {
    connection: Connection,
    changes: Option<i64>,
    seen: BTreeMap<TaskId, Option<u64>>,
}

impl Watcher {
    fn new(connection: Connection) -> Watcher {
        Watcher {
            connection,
            changes: None,
            seen: BTreeMap::new(),
        }
    }

    fn watch(&mut self, ids: &[TaskId]) -> Result<BTreeMap<TaskId, u64>, Error> {
        // Read before the rows: what is written in between shows as a change next time.
        let changes = self
            .connection
            .query_row("PRAGMA data_version", [], |row| row.get(0))
            .map_err(|cause| failed("watch the database", cause))?;
        if self.changes != Some(changes) {
            self.seen.clear();
            self.changes = Some(changes);
        }
        let wanted: BTreeSet<TaskId> = ids.iter().copied().collect();
        self.seen.retain(|id, _| wanted.contains(id));
        let mut versions = BTreeMap::new();
        for id in wanted {
            let version = match self.seen.get(&id) {
                Some(version) => *version,
                None => version(&self.connection, id)?,
            };
            self.seen.insert(id, version);
            versions.extend(version.map(|version| (id, version)));
        }
        Ok(versions)
    }
}

fn version(connection: &Connection, id: TaskId) -> Result<Option<u64>, Error> {
    let rows = all(
        connection,
        "SELECT version FROM tasks WHERE id = ?1",
        &[Cell::Blob(id.0.to_vec())],
    )?;
    rows.into_iter()
        .next()
        .map(|row| Cells(row.into_iter()).unsigned())
        .transpose()
}

/// The data keys, read from the table when they are not in memory.
pub(super) struct Keys<'a> {
    pub(super) connection: &'a Connection,
    pub(super) vault: &'a Vault,
}

impl Keys<'_> {
    /// Makes the data key of this name unless there is one. Not inside a transaction: a key that is rolled back
    /// would stay in memory.
    pub(super) fn make(&self, name: crypt::Name) -> Result<(), Error> {
        if self.vault.id(&name).is_some() || self.find(&name)?.is_some() {
            return Ok(());
        }
        let values = [
            Cell::Text(name.tenant.clone()),
            Cell::Blob(name.principal.to_vec()),
            Cell::Blob(self.vault.make(&name)?),
        ];
        let sql =
            "INSERT INTO data_keys (tenant, principal, wrapped) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        execute(self.connection, sql, &values)?;
        self.id(&name).map(|_| ())
    }

    /// The id of the data key of this name, with the key in memory.
    pub(super) fn id(&self, name: &crypt::Name) -> Result<u32, Error> {
        match self.vault.id(name) {
            Some(id) => Ok(id),
            None => self
                .find(name)?
                .ok_or_else(|| Error::broken("find a data key: it is not there")),
        }
    }

    fn find(&self, name: &crypt::Name) -> Result<Option<u32>, Error> {
        let values = [
            Cell::Text(name.tenant.clone()),
            Cell::Blob(name.principal.to_vec()),
        ];
        let sql = "SELECT id, wrapped FROM data_keys WHERE tenant = ?1 AND principal = ?2";
        let Some(row) = all(self.connection, sql, &values)?.pop() else {
            return Ok(None);
        };
        let mut cells = Cells(row.into_iter());
        let id = cells.small()?;
        self.vault.learn(id, name.clone(), &cells.blob()?)?;
        Ok(Some(id))
    }

    /// Sees to it that the key of a sealed value is in memory.
    pub(super) fn need(&self, sealed: &[u8]) -> Result<(), Error> {
        let Err(id) = self.vault.knows(sealed)? else {
            return Ok(());
        };
        let sql = "SELECT tenant, principal, wrapped FROM data_keys WHERE id = ?1";
        let row = all(self.connection, sql, &[Cell::Int(id.into())])?.pop();
        let row = row.ok_or_else(|| Error::broken(format!("find the data key {id}: it is not there")))?;
        let mut cells = Cells(row.into_iter());
        let name = crypt::Name {
            tenant: cells.text()?,
            principal: cells.array()?,
        };
        self.vault.learn(id, name, &cells.blob()?)
    }
}

/// The one row of a unique condition, without its bodies.
pub(super) fn one(keys: &Keys<'_>, condition: &str, values: &[Cell]) -> Result<Option<Row>, Error> {
    rows(keys, &format!("WHERE {condition}"), values).map(|mut rows| rows.pop())
}

fn rows(keys: &Keys<'_>, rest: &str, values: &[Cell]) -> Result<Vec<Row>, Error> {
    let sql = format!("SELECT {} FROM tasks {rest}", TASK_COLUMNS.join(", "));
    let mut rows = Vec::new();
    for cells in all(keys.connection, &sql, values)? {
        let mut row = layout::row(cells)?;
        keys.need(&row.note)?;
        layout::open_note(keys.vault, &mut row)?;
        let sql = format!(
            "SELECT {} FROM questions WHERE task = ?1 ORDER BY key",
            QUESTION_COLUMNS.join(", ")
        );
        for cells in all(keys.connection, &sql, &[Cell::Blob(row.id.0.to_vec())])? {
            row.task.questions.push(layout::question(cells)?.1);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Answers a query.
pub(super) fn find(
    connection: &Connection,
    vault: &Vault,
    query: &Query,
    now: Millis,
) -> Result<Found, Error> {
    let keys = Keys { connection, vault };
    let rows = match query {
        Query::Task(id) => whole(&keys, "WHERE id = ?1", &[Cell::Blob(id.0.to_vec())])?,
        Query::Named { owner, name } => {
            let mut rest = "WHERE owner = ?1 AND name = ?2";
            if fault!("store-wrong-owner") {
                rest = "WHERE ?1 IS NOT NULL AND name = ?2";
            }
            whole(
                &keys,
                rest,
                &[
                    Cell::Blob(layout::owner_hash(owner).to_vec()),
                    Cell::Text(name.clone()),
                ],
            )?
        }
        Query::List(list) => {
            let (rest, values) = list_query(list);
            rows(&keys, &rest, &values)?
        }
        Query::Claimable(wanted) => {
            let mut found = Vec::new();
            for wanted in wanted {
                found.extend(rows(
                    &keys,
                    "WHERE tool = ?1 AND claim_at <= ?2 ORDER BY claim_at, id LIMIT ?3",
                    &[
                        Cell::Text(wanted.tool.clone()),
                        layout::moment(wanted.until(now)),
                        Cell::Int(wanted.limit.into()),
                    ],
                )?);
            }
            found.sort_by_key(|row| (row.task.claim_at(), row.id));
            found
        }
        Query::Due { limit } => rows(
            &keys,
            "WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2",
            &[layout::moment(now), Cell::Int((*limit).into())],
        )?,
        Query::HeldBy { runner, limit } => rows(
            &keys,
            "WHERE runner = ?1 ORDER BY id LIMIT ?2",
            &[Cell::Blob(runner.0.to_vec()), Cell::Int((*limit).into())],
        )?,
    };
    Ok(Found { now, rows })
}

/// The rows with all their bodies.
fn whole(keys: &Keys<'_>, rest: &str, values: &[Cell]) -> Result<Vec<Row>, Error> {
    let mut rows = rows(keys, rest, values)?;
    for row in &mut rows {
        let mut sealed = BTreeMap::new();
        let sql = "SELECT name, body FROM bodies WHERE task = ?1";
        for cells in all(keys.connection, sql, &[Cell::Blob(row.id.0.to_vec())])? {
            let mut cells = Cells(cells.into_iter());
            let (name, body) = (cells.text()?, cells.blob()?);
            keys.need(&body)?;
            sealed.insert(name, body);
        }
        layout::open_bodies(keys.vault, row, &sealed)?;
    }
    Ok(rows)
}

fn list_query(list: &List) -> (String, Vec<Cell>) {
    let (conditions, values) = layout::list_conditions(list);
    (conditions.replace('$', "?"), values)
}

/// One record, expired or not.
pub(super) fn record(keys: &Keys<'_>, key: &RecordKey) -> Result<Option<Record>, Error> {
    let kind = Cell::Text(layout::kind_word(key.kind).to_owned());
    let values = [kind, Cell::Text(key.tenant.clone()), Cell::Text(key.id.clone())];
    let sql = "SELECT id, version, expires_at, body FROM records WHERE kind = ?1 AND tenant = ?2 AND id = ?3";
    let row = all(keys.connection, sql, &values)?.pop();
    row.map(|row| open_record(keys, key.kind, &key.tenant, row))
        .transpose()
}

/// The records of one kind in one tenant.
pub(super) fn records(
    connection: &Connection,
    vault: &Vault,
    kind: RecordKind,
    tenant: &str,
    now: Millis,
) -> Result<Vec<Record>, Error> {
    let keys = Keys { connection, vault };
    let values = [
        Cell::Text(layout::kind_word(kind).to_owned()),
        Cell::Text(tenant.to_owned()),
        layout::moment(now),
    ];
    let sql = "SELECT id, version, expires_at, body FROM records \
               WHERE kind = ?1 AND tenant = ?2 AND (expires_at IS NULL OR expires_at > ?3) ORDER BY id";
    all(connection, sql, &values)?
        .into_iter()
        .map(|row| open_record(&keys, kind, tenant, row))
        .collect()
}

fn open_record(keys: &Keys<'_>, kind: RecordKind, tenant: &str, row: Vec<Cell>) -> Result<Record, Error> {
    let stored = layout::record(kind, tenant, row)?;
    keys.need(&stored.body)?;
    layout::open_record(keys.vault, stored)
}

/// Audit records in the order in which they were committed.
pub(super) fn audit(connection: &Connection, after: u64, limit: u32) -> Result<Vec<AuditRow>, Error> {
    let values = [Cell::Int(layout::signed(after)), Cell::Int(limit.into())];
    let rows = all(
        connection,
        "SELECT seq, step_id, body FROM audit WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        &values,
    )?;
    rows.into_iter()
        .map(|row| {
            let mut cells = Cells(row.into_iter());
            Ok(AuditRow {
                position: cells.unsigned()?,
                step: StepId(cells.array()?),
                body: cells.blob()?,
            })
        })
        .collect()
}

pub(super) fn stats(connection: &Connection) -> Result<Stats, Error> {
    let number = |sql| count(connection, sql, &[]);
    Ok(Stats {
        backend: "sqlite",
        schema: migrate::newest(migrate::SQLITE),
        tasks: number("SELECT count(*) FROM tasks")?,
        open: number("SELECT count(*) FROM tasks WHERE open = 1")?,
        audit: number("SELECT count(*) FROM audit")?,
        bytes: number("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")?,
    })
}

pub(super) fn count(connection: &Connection, sql: &str, values: &[Cell]) -> Result<u64, Error> {
    let row = all(connection, sql, values)?.pop().unwrap_or_default();
    Cells(row.into_iter()).unsigned()
}
