//! Reading committed state, each query from one snapshot.

use std::collections::BTreeMap;

use deadpool_postgres::Pool;
use longhaul_core::{Millis, StepId, Task, TaskId, fault};
use tokio_postgres::error::SqlState;

use super::connection::{Call, Lease, NOW};
use crate::{
    AuditRow, Error, Found, Query, Record, RecordKind, Row, Stats, Wanted,
    crypt::{self, Vault},
    layout::{self, Cell, Cells, QUESTION_COLUMNS, TASK_COLUMNS},
    migrate,
};

/// The advisory lock between writers of audit records, who share it, and whoever gives them their positions.
pub(super) const AUDIT: i64 = 0x6c6f_6e67_6175_6469;

/// The most audit records that get their positions at once.
const SEALED_MAX: i64 = 10_000;

const DOING: &str = "read from PostgreSQL";

/// Answers a query.
pub(super) async fn find(pool: &Pool, vault: &Vault, query: &Query) -> Result<Found, Error> {
    let lease = Lease::take(pool).await?;
    let (rest, values) = conditions(query);
    let mut calls = vec![
        Call::new(format!("SELECT {NOW}"), Vec::new()),
        Call::new(select(&rest), values.clone()),
        questions(&format!("task IN (SELECT id FROM tasks {rest})"), values.clone()),
    ];
    if is_whole(query) {
        let sql = format!("SELECT task, name, body FROM bodies WHERE task IN (SELECT id FROM tasks {rest})");
        calls.push(Call::new(sql, values));
    }
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    let answers = lease
        .all(Some(begin), &calls, Some("COMMIT"))
        .await
        .map_err(|failure| failure.error(DOING))?;
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or_default();
    let now = number(next())?;
    let mut rows = rows(&lease, vault, next(), next()).await?;
    if is_whole(query) {
        let mut sealed: BTreeMap<TaskId, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for cells in next() {
            let mut cells = Cells(cells.into_iter());
            let (task, name, body) = (TaskId(cells.array()?), cells.text()?, cells.blob()?);
            need(&lease, vault, &body).await?;
            sealed.entry(task).or_default().insert(name, body);
        }
        for row in &mut rows {
            layout::open_bodies(vault, row, &sealed.remove(&row.id).unwrap_or_default())?;
        }
    }
    lease.give_back();
    Ok(Found {
        now: Millis(now),
        rows,
    })
}

fn is_whole(query: &Query) -> bool {
    match query {
        Query::Task(_) | Query::Named { .. } => true,
        Query::List(_) | Query::Claimable(_) | Query::Due { .. } | Query::HeldBy { .. } => false,
    }
}

/// What follows `FROM tasks`, with its values.
fn conditions(query: &Query) -> (String, Vec<Cell>) {
    match query {
        Query::Task(id) => ("WHERE id = $1".to_owned(), vec![Cell::Blob(id.0.to_vec())]),
        Query::Named { owner, name } => {
            let wrong = fault!("store-wrong-owner");
            let rest = if wrong {
                "WHERE $1::bytea IS NOT NULL AND name = $2"
            } else {
                "WHERE owner = $1 AND name = $2"
            };
            let hash = Cell::Blob(layout::owner_hash(owner).to_vec());
            (rest.to_owned(), vec![hash, Cell::Text(name.clone())])
        }
        Query::List(list) => layout::list_conditions(list),
        Query::Claimable(wanted) => claimable(wanted),
        Query::Due { limit } => {
            let rest = format!("WHERE due_at <= {NOW} ORDER BY due_at, id LIMIT $1");
            (rest, vec![Cell::Int((*limit).into())])
        }
        Query::HeldBy { runner, limit } => {
            let rest = "WHERE runner = $1 ORDER BY id LIMIT $2";
            (
                rest.to_owned(),
                vec![Cell::Blob(runner.0.to_vec()), Cell::Int((*limit).into())],
            )
        }
    }
}

/// A page of each tool.
fn claimable(wanted: &[Wanted]) -> (String, Vec<Cell>) {
    let mut values = Vec::new();
    let mut pages = Vec::new();
    for wanted in wanted {
        values.extend([Cell::Text(wanted.tool.clone()), Cell::Int(wanted.limit.into())]);
        let (tool, limit) = (values.len() - 1, values.len());
        let until = if wanted.starts {
            NOW.to_owned()
        } else {
            Task::STOP_OWED.0.to_string()
        };
        pages.push(format!(
            "(SELECT id FROM tasks WHERE tool = ${tool} AND claim_at <= {until} ORDER BY claim_at, id LIMIT ${limit})"
        ));
    }
    if pages.is_empty() {
        pages.push("(SELECT id FROM tasks WHERE false)".to_owned());
    }
    let rest = format!(
        "WHERE id IN ({}) ORDER BY claim_at, id",
        pages.join(" UNION ALL ")
    );
    (rest, values)
}

/// Selects task rows; `rest` follows `FROM tasks`.
pub(super) fn select(rest: &str) -> String {
    format!("SELECT {} FROM tasks {rest}", TASK_COLUMNS.join(", "))
}

/// Selects questions.
pub(super) fn questions(condition: &str, values: Vec<Cell>) -> Call {
    let columns = QUESTION_COLUMNS.join(", ");
    Call::new(
        format!("SELECT {columns} FROM questions WHERE {condition} ORDER BY task, key"),
        values,
    )
}

/// Puts rows together, without their bodies.
pub(super) async fn rows(
    lease: &Lease,
    vault: &Vault,
    tasks: Vec<Vec<Cell>>,
    questions: Vec<Vec<Cell>>,
) -> Result<Vec<Row>, Error> {
    let mut asked: BTreeMap<TaskId, Vec<_>> = BTreeMap::new();
    for cells in questions {
        let (task, question) = layout::question(cells)?;
        asked.entry(task).or_default().push(question);
    }
    let mut rows = Vec::new();
    for cells in tasks {
        let mut row = layout::row(cells)?;
        need(lease, vault, &row.note).await?;
        layout::open_note(vault, &mut row)?;
        row.task.questions = asked.remove(&row.id).unwrap_or_default();
        rows.push(row);
    }
    Ok(rows)
}

/// The records of one kind in one tenant.
pub(super) async fn records(
    pool: &Pool,
    vault: &Vault,
    kind: RecordKind,
    tenant: &str,
) -> Result<Vec<Record>, Error> {
    let lease = Lease::take(pool).await?;
    let sql = format!(
        "SELECT id, version, expires_at, body FROM records \
         WHERE kind = $1 AND tenant = $2 AND (expires_at IS NULL OR expires_at > {NOW}) ORDER BY id"
    );
    let values = vec![
        Cell::Text(layout::kind_word(kind).to_owned()),
        Cell::Text(tenant.to_owned()),
    ];
    let mut records = Vec::new();
    for cells in lease
        .one(Call::new(sql, values))
        .await
        .map_err(|failure| failure.error(DOING))?
    {
        let stored = layout::record(kind, tenant, cells)?;
        need(&lease, vault, &stored.body).await?;
        records.push(layout::open_record(vault, stored)?);
    }
    lease.give_back();
    Ok(records)
}

/// The versions of the tasks that exist.
pub(super) async fn watch(pool: &Pool, ids: Vec<TaskId>) -> Result<BTreeMap<TaskId, u64>, Error> {
    let lease = Lease::take(pool).await?;
    let bytes: Vec<&[u8]> = ids.iter().map(|id| &id.0[..]).collect();
    let rows = lease
        .versions(&bytes)
        .await
        .map_err(|failure| failure.error("watch PostgreSQL"))?;
    lease.give_back();
    rows.into_iter()
        .map(|row| {
            let mut cells = Cells(row.into_iter());
            Ok((TaskId(cells.array()?), cells.unsigned()?))
        })
        .collect()
}

/// Audit records in the order of their positions, after giving positions to those that have none.
pub(super) async fn audit(pool: &Pool, after: u64, limit: u32) -> Result<Vec<AuditRow>, Error> {
    seal(pool).await?;
    let lease = Lease::take(pool).await?;
    let values = vec![Cell::Int(layout::signed(after)), Cell::Int(limit.into())];
    let sql = "SELECT seq, step_id, body FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2";
    let rows = lease
        .one(Call::new(sql, values))
        .await
        .map_err(|failure| failure.error(DOING))?;
    lease.give_back();
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

/// Gives positions to records that have none. The lock waits for the writers before it, so that none of them can
/// commit a record behind a position that was read. When they take too long, the next call does it.
async fn seal(pool: &Pool) -> Result<(), Error> {
    let failed = |failure: super::connection::Failure| failure.error("give audit records their positions");
    let lease = Lease::take(pool).await?;
    let unsealed = Call::new("SELECT id FROM audit WHERE seq IS NULL LIMIT 1", Vec::new());
    if lease.one(unsealed).await.map_err(failed)?.is_empty() {
        lease.give_back();
        return Ok(());
    }
    let calls = [
        Call::new("SELECT pg_advisory_xact_lock($1)::text", vec![Cell::Int(AUDIT)]),
        Call::new(
            "UPDATE audit SET seq = place.seq FROM \
             (SELECT id, (SELECT coalesce(max(seq), 0) FROM audit) + row_number() OVER (ORDER BY id) AS seq \
              FROM audit WHERE seq IS NULL ORDER BY id LIMIT $1) AS place WHERE audit.id = place.id",
            vec![Cell::Int(SEALED_MAX)],
        ),
    ];
    match lease
        .all(
            Some("BEGIN; SET LOCAL lock_timeout = 500"),
            &calls,
            Some("COMMIT"),
        )
        .await
    {
        Ok(_) => lease.give_back(),
        Err(failure) if failure.has(&SqlState::LOCK_NOT_AVAILABLE) => {}
        Err(failure) => return Err(failed(failure)),
    }
    Ok(())
}

pub(super) async fn stats(pool: &Pool) -> Result<Stats, Error> {
    let lease = Lease::take(pool).await?;
    let call = |sql: &str| Call::new(sql, Vec::new());
    let calls = [
        call("SELECT count(*) FROM tasks"),
        call("SELECT count(*) FROM tasks WHERE open = 1"),
        call("SELECT count(*) FROM audit"),
        call("SELECT pg_database_size(current_database())"),
    ];
    let answers = lease
        .all(None, &calls, None)
        .await
        .map_err(|failure| failure.error(DOING))?;
    lease.give_back();
    let mut numbers = answers.into_iter().map(number);
    let mut next = || numbers.next().unwrap_or(Ok(0));
    Ok(Stats {
        backend: "postgres",
        schema: migrate::newest(migrate::POSTGRES),
        tasks: next()?,
        open: next()?,
        audit: next()?,
        bytes: next()?,
    })
}

/// The one number of an answer.
pub(super) fn number(rows: Vec<Vec<Cell>>) -> Result<u64, Error> {
    Cells(rows.into_iter().next().unwrap_or_default().into_iter()).unsigned()
}

/// Sees to it that the key of a sealed value is in memory.
pub(super) async fn need(lease: &Lease, vault: &Vault, sealed: &[u8]) -> Result<(), Error> {
    let Err(id) = vault.knows(sealed)? else {
        return Ok(());
    };
    let call = Call::new(
        "SELECT tenant, principal, wrapped FROM data_keys WHERE id = $1",
        vec![Cell::Int(id.into())],
    );
    let rows = lease.one(call).await.map_err(|failure| failure.error(DOING))?;
    let row = rows.into_iter().next();
    let row = row.ok_or_else(|| Error::broken(format!("find the data key {id}: it is not there")))?;
    let mut cells = Cells(row.into_iter());
    let name = crypt::Name {
        tenant: cells.text()?,
        principal: cells.array()?,
    };
    vault.learn(id, name, &cells.blob()?)
}
