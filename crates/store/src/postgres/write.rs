//! One step: lock and read, judge, write and commit; and what happens when a connection is lost on the way.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use deadpool_postgres::Pool;
use longhaul_core::{Millis, StepId, fault};
use tokio_postgres::error::SqlState;

use super::{
    connection::{Call, Failure, Lease, NOW},
    read::{self, AUDIT},
};
use crate::{
    Committed, Error, Judge, Owner, Record, RecordKey, Row, Scope, Slot, Snapshot, Step, Write,
    crypt::{self, Place, Vault, digest},
    layout::{self, Cell, Cells, QUESTION_COLUMNS, TASK_COLUMNS},
    step,
};

/// The most tries of one step.
const TRIES_MAX: u32 = 5;

const DOING: &str = "write to PostgreSQL";

/// How one try ended without an outcome.
enum Failed {
    /// Nothing was written, and the database says that another try may help.
    Again(Error),
    /// The commit was sent and its answer is lost. If it was done, this is what it did.
    Lost(Error, Committed),
    /// For good.
    Stopped(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Stopped(error)
    }
}

/// What is unknown of an earlier try: what it did if its commit was done.
type Pending = Option<Committed>;

pub(super) async fn transact(
    pool: &Pool,
    vault: &Vault,
    id: StepId,
    scope: Scope,
    mut judge: Judge,
) -> Result<Committed, Error> {
    make_keys(pool, vault, &scope).await?;
    let mut pending: Pending = None;
    let mut last = Error::broken(DOING);
    for _ in 0..TRIES_MAX {
        let error = match attempt(pool, vault, id, &scope, &mut judge, pending).await {
            Ok(committed) => return Ok(committed),
            Err(Failed::Again(error)) => error,
            Err(Failed::Lost(error, committed)) => {
                pending = Some(committed);
                error
            }
            Err(Failed::Stopped(error)) if pending.is_some() => return Err(error.ambiguous()),
            Err(Failed::Stopped(error)) => return Err(error),
        };
        last = error;
    }
    Err(if pending.is_some() { last.ambiguous() } else { last })
}

async fn attempt(
    pool: &Pool,
    vault: &Vault,
    id: StepId,
    scope: &Scope,
    judge: &mut Judge,
    pending: Pending,
) -> Result<Committed, Failed> {
    let lease = Lease::take(pool).await?;
    let (snapshot, found) = snapshot(&lease, vault, id, scope).await?;
    if let (true, Some(committed)) = (found, pending) {
        return Ok(committed);
    }
    let judged = catch_unwind(AssertUnwindSafe(|| judge(&snapshot)));
    let write = match judged {
        Ok(Step::Write(write)) => *write,
        Ok(Step::Nothing) => {
            if lease.batch("ROLLBACK").await.is_ok() {
                lease.give_back();
            }
            return Ok(Committed {
                wrote: false,
                version: None,
            });
        }
        Err(_) => return Err(Error::broken("judge a step: the judge panicked").into()),
    };
    let (calls, version) = calls(&lease, vault, id, scope, &snapshot, write).await?;
    let committed = Committed { wrote: true, version };
    match lease.all(None, &calls, Some("COMMIT")).await {
        Ok(_) => {
            lease.give_back();
            Ok(committed)
        }
        Err(failure) if failure.is_lost() => Err(Failed::Lost(failure.error(DOING), committed)),
        Err(failure) => Err(refused(failure, pending)),
    }
}

/// What a failure means that the server told, so that nothing was written.
fn refused(failure: Failure, pending: Pending) -> Failed {
    // A step that is found a second time may be the one whose answer was lost.
    let again = failure.is_conflict() || (pending.is_some() && failure.has(&SqlState::UNIQUE_VIOLATION));
    let error = failure.error(DOING);
    if again {
        Failed::Again(error)
    } else {
        Failed::Stopped(error)
    }
}

/// Begins, locks and reads. The locks wait for whoever holds them, an earlier try of this step included, so the
/// step is looked for after them.
async fn snapshot(
    lease: &Lease,
    vault: &Vault,
    id: StepId,
    scope: &Scope,
) -> Result<(Snapshot, bool), Failed> {
    let mut calls: Vec<Call> = locks(scope).into_iter().map(lock).collect();
    let locks = calls.len();
    let (place, values) = place(&scope.task);
    calls.push(Call::new(
        read::select(&format!("WHERE {place} FOR UPDATE")),
        values.clone(),
    ));
    calls.push(read::questions(
        &format!("task IN (SELECT id FROM tasks WHERE {place})"),
        values,
    ));
    calls.push(Call::new(
        "SELECT step_id FROM audit WHERE step_id = $1",
        vec![Cell::Blob(id.0.to_vec())],
    ));
    calls.push(Call::new(format!("SELECT {NOW}"), Vec::new()));
    calls.extend(scope.counters.iter().map(|name| {
        Call::new(
            "SELECT body FROM counters WHERE key = $1",
            vec![Cell::Text(name.clone())],
        )
    }));
    calls.extend(scope.records.iter().map(|key| {
        let sql =
            "SELECT id, version, expires_at, body FROM records WHERE kind = $1 AND tenant = $2 AND id = $3";
        Call::new(sql, record_place(key))
    }));
    if let Slot::Birth { owner, names, .. } = &scope.task {
        calls.extend(birth_calls(owner, names));
    }
    let answers = lease.all(Some("BEGIN"), &calls, None).await.map_err(|failure| {
        let again = failure.is_conflict() || failure.is_lost();
        let error = failure.error("read from PostgreSQL");
        if again {
            Failed::Again(error)
        } else {
            Failed::Stopped(error)
        }
    })?;
    let mut answers = answers.into_iter().skip(locks);
    let mut next = || answers.next().unwrap_or_default();
    let task = read::rows(lease, vault, next(), next()).await?.pop();
    let found = !next().is_empty();
    let mut snapshot = Snapshot {
        now: Millis(read::number(next())?),
        task,
        ..Snapshot::default()
    };
    for name in &scope.counters {
        for row in next() {
            snapshot
                .counters
                .insert(name.clone(), Cells(row.into_iter()).blob()?);
        }
    }
    for key in &scope.records {
        for row in next() {
            let stored = layout::record(key.kind, &key.tenant, row)?;
            read::need(lease, vault, &stored.body).await?;
            let record = layout::open_record(vault, stored)?;
            if record.is_live(snapshot.now) {
                snapshot.records.insert(key.clone(), record);
            }
        }
    }
    if let Slot::Birth { names, .. } = &scope.task {
        snapshot.open_tasks = read::number(next())?;
        snapshot.free_names = names.iter().filter(|_| next().is_empty()).cloned().collect();
    }
    Ok((snapshot, found))
}

/// The advisory locks of a scope, each once and in ascending order: what is not there yet has no row to lock.
fn locks(scope: &Scope) -> Vec<i64> {
    let key = |parts: &[&[u8]]| {
        let hash = digest(parts);
        i64::from_be_bytes([
            hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7],
        ])
    };
    let mut locks: Vec<i64> = scope
        .counters
        .iter()
        .map(|name| key(&[b"counter", name.as_bytes()]))
        .collect();
    locks.extend(scope.records.iter().map(|record| {
        let kind = layout::kind_word(record.kind).as_bytes();
        key(&[b"record", kind, record.tenant.as_bytes(), record.id.as_bytes()])
    }));
    if let Slot::Birth { owner, .. } = &scope.task {
        locks.push(key(&[b"birth", &layout::owner_hash(owner)]));
    }
    locks.sort_unstable();
    locks.dedup();
    locks
}

fn lock(key: i64) -> Call {
    Call::new("SELECT pg_advisory_xact_lock($1)::text", vec![Cell::Int(key)])
}

/// The condition that finds the task of a slot.
fn place(slot: &Slot) -> (&'static str, Vec<Cell>) {
    match slot {
        Slot::Task(id) => ("id = $1", vec![Cell::Blob(id.0.to_vec())]),
        Slot::Birth {
            owner,
            idem: Some(idem),
            ..
        } => {
            let hash = Cell::Blob(layout::owner_hash(owner).to_vec());
            ("owner = $1 AND idem = $2", vec![hash, Cell::Blob(idem.to_vec())])
        }
        Slot::None | Slot::Birth { idem: None, .. } => ("1 = 0", Vec::new()),
    }
}

/// How many tasks are open, then for each name whether it is taken.
fn birth_calls(owner: &Owner, names: &[String]) -> Vec<Call> {
    let hash = Cell::Blob(layout::owner_hash(owner).to_vec());
    let open = "SELECT count(*) FROM tasks WHERE owner = $1 AND open = 1";
    let taken = "SELECT id FROM tasks WHERE owner = $1 AND name = $2";
    let mut calls = vec![Call::new(open, vec![hash.clone()])];
    calls.extend(
        names
            .iter()
            .map(|name| Call::new(taken, vec![hash.clone(), Cell::Text(name.clone())])),
    );
    calls
}

/// All writing statements of a step.
async fn calls(
    lease: &Lease,
    vault: &Vault,
    id: StepId,
    scope: &Scope,
    snapshot: &Snapshot,
    write: Write,
) -> Result<(Vec<Call>, Option<u64>), Error> {
    step::check(scope, snapshot, &write)?;
    let mut calls = vec![Call::new(
        "SELECT pg_advisory_xact_lock_shared($1)::text",
        vec![Cell::Int(AUDIT)],
    )];
    let mut version = None;
    if let Some(row) = &write.task {
        let key = key_id(lease, vault, &crypt::Name::of(&row.owner)).await?;
        version = Some(task_calls(vault, key, snapshot.task.as_ref(), row, &mut calls)?);
    }
    for (name, body) in write.counters {
        let sql = "INSERT INTO counters (key, body) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET body = excluded.body";
        calls.push(Call::new(sql, vec![Cell::Text(name), Cell::Blob(body)]));
    }
    for (key, record) in &write.records {
        calls.push(record_call(lease, vault, key, record.as_ref()).await?);
    }
    if !fault!("store-audit-gap") {
        let values = vec![Cell::Blob(id.0.to_vec()), Cell::Blob(write.audit)];
        calls.push(Call::new(
            "INSERT INTO audit (step_id, body) VALUES ($1, $2)",
            values,
        ));
    }
    Ok((calls, version))
}

fn task_calls(
    vault: &Vault,
    key: u32,
    old: Option<&Row>,
    row: &Row,
    calls: &mut Vec<Call>,
) -> Result<u64, Error> {
    let plan = layout::plan(vault, key, old, row)?;
    let task = Cell::Blob(plan.id.0.to_vec());
    let sql = if plan.born {
        format!(
            "INSERT INTO tasks ({}) VALUES ({})",
            TASK_COLUMNS.join(", "),
            places(TASK_COLUMNS.len())
        )
    } else {
        // The id is the first column and so the first value.
        let set: Vec<_> = (2..)
            .zip(&TASK_COLUMNS[1..])
            .map(|(n, column)| format!("{column} = ${n}"))
            .collect();
        format!("UPDATE tasks SET {} WHERE id = $1", set.join(", "))
    };
    calls.push(Call::new(sql, plan.cells));
    for name in plan.dropped {
        let sql = "DELETE FROM bodies WHERE task = $1 AND name = $2";
        calls.push(Call::new(sql, vec![task.clone(), Cell::Text(name)]));
    }
    for (name, body) in plan.bodies {
        let mut sql = "INSERT INTO bodies (task, name, body) VALUES ($1, $2, $3)".to_owned();
        if step::is_replaceable(&name) {
            sql += " ON CONFLICT (task, name) DO UPDATE SET body = excluded.body";
        }
        calls.push(Call::new(
            sql,
            vec![task.clone(), Cell::Text(name), Cell::Blob(body)],
        ));
    }
    for question in plan.questions {
        let sql = format!(
            "INSERT INTO questions ({}) VALUES ({}) ON CONFLICT (task, key) DO UPDATE SET \
             state = excluded.state, until = excluded.until, misfits = excluded.misfits",
            QUESTION_COLUMNS.join(", "),
            places(QUESTION_COLUMNS.len())
        );
        calls.push(Call::new(sql, question));
    }
    Ok(plan.version)
}

async fn record_call(
    lease: &Lease,
    vault: &Vault,
    key: &RecordKey,
    record: Option<&Record>,
) -> Result<Call, Error> {
    let mut values = record_place(key);
    let Some(record) = record else {
        return Ok(Call::new(
            "DELETE FROM records WHERE kind = $1 AND tenant = $2 AND id = $3",
            values,
        ));
    };
    let data_key = key_id(lease, vault, &crypt::Name::tenant(&key.tenant)).await?;
    let row = layout::record_row(key);
    let bound = Place {
        tenant: &key.tenant,
        row: &row,
        column: "records.body",
    };
    values.push(record.expires_at.map_or(Cell::Null, layout::moment));
    values.push(Cell::Blob(vault.seal(data_key, bound, &record.body)?));
    let sql = "INSERT INTO records (kind, tenant, id, version, expires_at, body) VALUES ($1, $2, $3, 1, $4, $5) \
               ON CONFLICT (kind, tenant, id) DO UPDATE SET \
               version = records.version + 1, expires_at = excluded.expires_at, body = excluded.body";
    Ok(Call::new(sql, values))
}

fn record_place(key: &RecordKey) -> Vec<Cell> {
    let kind = Cell::Text(layout::kind_word(key.kind).to_owned());
    vec![kind, Cell::Text(key.tenant.clone()), Cell::Text(key.id.clone())]
}

fn places(count: usize) -> String {
    (1..=count)
        .map(|n| format!("${n}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Makes the data keys that a scope may need, in transactions of their own: a key that is rolled back would stay in
/// memory.
async fn make_keys(pool: &Pool, vault: &Vault, scope: &Scope) -> Result<(), Error> {
    let mut names: Vec<_> = scope
        .records
        .iter()
        .map(|key| crypt::Name::tenant(&key.tenant))
        .collect();
    if let Slot::Birth { owner, .. } = &scope.task {
        names.push(crypt::Name::of(owner));
    }
    names.retain(|name| vault.id(name).is_none());
    let wanted: BTreeMap<_, ()> = names.into_iter().map(|name| (name, ())).collect();
    for name in wanted.into_keys() {
        let lease = Lease::take(pool).await?;
        if find_key(&lease, vault, &name).await?.is_none() {
            let values = vec![
                Cell::Text(name.tenant.clone()),
                Cell::Blob(name.principal.to_vec()),
                Cell::Blob(vault.make(&name)?),
            ];
            let sql = "INSERT INTO data_keys (tenant, principal, wrapped) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            lease
                .one(Call::new(sql, values))
                .await
                .map_err(|failure| failure.error(DOING))?;
            key_id(&lease, vault, &name).await?;
        }
        lease.give_back();
    }
    Ok(())
}

/// The id of a data key, with the key in memory.
async fn key_id(lease: &Lease, vault: &Vault, name: &crypt::Name) -> Result<u32, Error> {
    match vault.id(name) {
        Some(id) => Ok(id),
        None => find_key(lease, vault, name)
            .await?
            .ok_or_else(|| Error::broken("find a data key: it is not there")),
    }
}

async fn find_key(lease: &Lease, vault: &Vault, name: &crypt::Name) -> Result<Option<u32>, Error> {
    let values = vec![
        Cell::Text(name.tenant.clone()),
        Cell::Blob(name.principal.to_vec()),
    ];
    let sql = "SELECT id, wrapped FROM data_keys WHERE tenant = $1 AND principal = $2";
    let rows = lease
        .one(Call::new(sql, values))
        .await
        .map_err(|failure| failure.error("read from PostgreSQL"))?;
    let Some(row) = rows.into_iter().next() else {
        return Ok(None);
    };
    let mut cells = Cells(row.into_iter());
    let id = cells.small()?;
    vault.learn(id, name.clone(), &cells.blob()?)?;
    Ok(Some(id))
}

/// Deletes what is over; bodies and questions go with their task.
pub(super) async fn purge(pool: &Pool, limit: u32) -> Result<u64, Error> {
    let lease = Lease::take(pool).await?;
    let limit = vec![Cell::Int(limit.into())];
    let tasks = format!(
        "WITH gone AS (DELETE FROM tasks WHERE id IN \
         (SELECT id FROM tasks WHERE open = 0 AND purge_after <= {NOW} ORDER BY purge_after LIMIT $1 \
          FOR UPDATE SKIP LOCKED) RETURNING 1) SELECT count(*) FROM gone"
    );
    let records = format!(
        "DELETE FROM records WHERE (kind, tenant, id) IN \
         (SELECT kind, tenant, id FROM records WHERE expires_at <= {NOW} ORDER BY expires_at LIMIT $1 \
          FOR UPDATE SKIP LOCKED)"
    );
    let calls = [Call::new(tasks, limit.clone()), Call::new(records, limit)];
    let answers = lease
        .all(Some("BEGIN"), &calls, Some("COMMIT"))
        .await
        .map_err(|failure| failure.error(DOING))?;
    lease.give_back();
    read::number(answers.into_iter().next().unwrap_or_default())
}
