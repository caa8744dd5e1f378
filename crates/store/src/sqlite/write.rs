//! One step: the snapshot, the judge, and the writing, all inside the writer thread's transaction.

use std::sync::Arc;

use longhaul_core::{Millis, StepId, fault};
use rusqlite::Connection;

use super::{
    connection::{all, execute},
    read::{self, Keys},
    writer::{Closure, Lane, Work},
};
use crate::{
    Clock, Committed, Error, Judge, Record, RecordKey, Row, Scope, Slot, Snapshot, Step, Write,
    crypt::{self, Place, Vault},
    layout::{self, Cell, QUESTION_COLUMNS, TASK_COLUMNS},
    step,
};

/// A step on its way to the writer thread.
pub(super) struct StepWork {
    id: StepId,
    scope: Scope,
    judge: Judge,
    vault: Arc<Vault>,
    clock: Clock,
}

impl StepWork {
    pub(super) fn new(id: StepId, scope: Scope, judge: Judge, vault: Arc<Vault>, clock: Clock) -> StepWork {
        StepWork {
            id,
            scope,
            judge,
            vault,
            clock,
        }
    }
}

impl Work for StepWork {
    type Reply = Committed;

    fn lane(&self) -> Lane {
        match &self.scope.task {
            Slot::Birth { owner, .. } => Lane::Birth(layout::owner_hash(owner)),
            Slot::None | Slot::Task(_) => Lane::Other,
        }
    }

    fn prepare(&mut self, connection: &Connection) -> Result<(), Error> {
        let keys = Keys {
            connection,
            vault: &self.vault,
        };
        if let Slot::Birth { owner, .. } = &self.scope.task {
            keys.make(crypt::Name::of(owner))?;
        }
        self.scope
            .records
            .iter()
            .try_for_each(|key| keys.make(crypt::Name::tenant(&key.tenant)))
    }

    fn run(&mut self, connection: &Connection) -> Result<(bool, Committed), Error> {
        let keys = Keys {
            connection,
            vault: &self.vault,
        };
        let snapshot = snapshot(&keys, &self.scope, (self.clock)())?;
        match (self.judge)(&snapshot) {
            Step::Nothing => Ok((
                false,
                Committed {
                    wrote: false,
                    version: None,
                },
            )),
            Step::Write(write) => {
                let version = apply(&keys, self.id, &self.scope, &snapshot, *write)?;
                Ok((true, Committed { wrote: true, version }))
            }
        }
    }
}

fn snapshot(keys: &Keys<'_>, scope: &Scope, now: Millis) -> Result<Snapshot, Error> {
    let mut snapshot = Snapshot {
        now,
        ..Snapshot::default()
    };
    match &scope.task {
        Slot::None => {}
        Slot::Task(id) => snapshot.task = read::one(keys, "id = ?1", &[Cell::Blob(id.0.to_vec())])?,
        Slot::Birth { owner, idem, names } => {
            let hash = Cell::Blob(layout::owner_hash(owner).to_vec());
            if let Some(idem) = idem {
                let place = [hash.clone(), Cell::Blob(idem.to_vec())];
                snapshot.task = read::one(keys, "owner = ?1 AND idem = ?2", &place)?;
            }
            let open = "SELECT coalesce(max(number), 0) FROM open_tasks WHERE owner = ?1";
            snapshot.open_tasks = read::count(keys.connection, open, std::slice::from_ref(&hash))?;
            for name in names {
                let taken = "SELECT count(*) FROM tasks WHERE owner = ?1 AND name = ?2";
                if read::count(keys.connection, taken, &[hash.clone(), Cell::Text(name.clone())])? == 0 {
                    snapshot.free_names.push(name.clone());
                }
            }
        }
    }
    for name in &scope.counters {
        let rows = all(
            keys.connection,
            "SELECT body FROM counters WHERE key = ?1",
            &[Cell::Text(name.clone())],
        )?;
        for row in rows {
            snapshot
                .counters
                .insert(name.clone(), layout::Cells(row.into_iter()).blob()?);
        }
    }
    for key in &scope.records {
        if let Some(record) = read::record(keys, key)?.filter(|record| record.is_live(now)) {
            snapshot.records.insert(key.clone(), record);
        }
    }
    Ok(snapshot)
}

fn apply(
    keys: &Keys<'_>,
    id: StepId,
    scope: &Scope,
    snapshot: &Snapshot,
    write: Write,
) -> Result<Option<u64>, Error> {
    step::check(scope, snapshot, &write)?;
    let version = write
        .task
        .as_ref()
        .map(|row| put_task(keys, snapshot.task.as_ref(), row))
        .transpose()?;
    for (name, body) in write.counters {
        let sql = "INSERT INTO counters (key, body) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET body = excluded.body";
        execute(keys.connection, sql, &[Cell::Text(name), Cell::Blob(body)])?;
    }
    for (key, record) in &write.records {
        put_record(keys, key, record.as_ref())?;
    }
    if !fault!("store-audit-gap") {
        let sql = "INSERT INTO audit (step_id, body) VALUES (?1, ?2)";
        execute(
            keys.connection,
            sql,
            &[Cell::Blob(id.0.to_vec()), Cell::Blob(write.audit)],
        )?;
    }
    Ok(version)
}

fn put_task(keys: &Keys<'_>, old: Option<&Row>, row: &Row) -> Result<u64, Error> {
    let key = keys.id(&crypt::Name::of(&row.owner))?;
    let plan = layout::plan(keys.vault, key, old, row)?;
    let task = Cell::Blob(plan.id.0.to_vec());
    let columns = TASK_COLUMNS.join(", ");
    let places = places(TASK_COLUMNS.len());
    if plan.born {
        execute(
            keys.connection,
            &format!("INSERT INTO tasks ({columns}) VALUES ({places})"),
            &plan.cells,
        )?;
    } else {
        // The id is the first column and so the first value.
        let sql = format!("UPDATE tasks SET ({columns}) = ({places}) WHERE id = ?1");
        if execute(keys.connection, &sql, &plan.cells)? != 1 {
            return Err(Error::broken(format!("update task {}, which is gone", plan.id)));
        }
    }
    count_open(keys.connection, old, row)?;
    for name in plan.dropped {
        let place = [task.clone(), Cell::Text(name)];
        execute(
            keys.connection,
            "DELETE FROM bodies WHERE task = ?1 AND name = ?2",
            &place,
        )?;
    }
    for (name, body) in plan.bodies {
        let mut sql = "INSERT INTO bodies (task, name, body) VALUES (?1, ?2, ?3)".to_owned();
        if step::is_replaceable(&name) {
            sql += " ON CONFLICT (task, name) DO UPDATE SET body = excluded.body";
        }
        execute(
            keys.connection,
            &sql,
            &[task.clone(), Cell::Text(name), Cell::Blob(body)],
        )?;
    }
    for question in plan.questions {
        let sql = format!(
            "INSERT OR REPLACE INTO questions ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            QUESTION_COLUMNS.join(", ")
        );
        execute(keys.connection, &sql, &question)?;
    }
    Ok(plan.version)
}

/// Keeps the number of the owner's open tasks, so that a birth need not count them.
fn count_open(connection: &Connection, old: Option<&Row>, row: &Row) -> Result<(), Error> {
    let was_open = old.is_some_and(|old| old.task.is_open());
    let change = i64::from(row.task.is_open()) - i64::from(was_open);
    if change == 0 {
        return Ok(());
    }
    let sql = "INSERT INTO open_tasks (owner, number) VALUES (?1, ?2) \
               ON CONFLICT (owner) DO UPDATE SET number = number + excluded.number";
    let hash = Cell::Blob(layout::owner_hash(&row.owner).to_vec());
    execute(connection, sql, &[hash, Cell::Int(change)]).map(|_| ())
}

fn put_record(keys: &Keys<'_>, key: &RecordKey, record: Option<&Record>) -> Result<(), Error> {
    let kind = Cell::Text(layout::kind_word(key.kind).to_owned());
    let place = [kind, Cell::Text(key.tenant.clone()), Cell::Text(key.id.clone())];
    let Some(record) = record else {
        let sql = "DELETE FROM records WHERE kind = ?1 AND tenant = ?2 AND id = ?3";
        return execute(keys.connection, sql, &place).map(|_| ());
    };
    let data_key = keys.id(&crypt::Name::tenant(&key.tenant))?;
    let row = layout::record_row(key);
    let bound = Place {
        tenant: &key.tenant,
        row: &row,
        column: "records.body",
    };
    let mut values = place.to_vec();
    values.push(record.expires_at.map_or(Cell::Null, layout::moment));
    values.push(Cell::Blob(keys.vault.seal(data_key, bound, &record.body)?));
    let sql = "INSERT INTO records (kind, tenant, id, version, expires_at, body) VALUES (?1, ?2, ?3, 1, ?4, ?5) \
               ON CONFLICT (kind, tenant, id) DO UPDATE SET \
               version = records.version + 1, expires_at = excluded.expires_at, body = excluded.body";
    execute(keys.connection, sql, &values).map(|_| ())
}

fn places(count: usize) -> String {
    (1..=count)
        .map(|n| format!("?{n}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Deletes what is over; bodies and questions go with their task.
pub(super) fn purge(limit: u32, clock: Clock) -> impl Work<Reply = u64> {
    Closure(move |connection: &Connection| {
        let values = [layout::moment(clock()), Cell::Int(limit.into())];
        let tasks = "DELETE FROM tasks WHERE id IN \
                     (SELECT id FROM tasks WHERE open = 0 AND purge_after <= ?1 ORDER BY purge_after LIMIT ?2)";
        let purged = execute(connection, tasks, &values)?;
        let records = "DELETE FROM records WHERE rowid IN \
                       (SELECT rowid FROM records WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
        let expired = execute(connection, records, &values)?;
        Ok((purged + expired > 0, purged as u64))
    })
}
