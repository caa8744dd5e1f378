//! The model: a store in memory, one lock around ordered maps.
//!
//! The other backends are compared with it, and the engine's tests run on it, several
//! engines on one [`Memory`]. It keeps nothing across the process and encrypts nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_core::future::BoxFuture;
use longhaul_core::{Body, Millis, RunnerId, StepId, TaskId};

use crate::{
    AuditRow, Beat, Clock, Committed, Error, Found, Judge, List, Owner, Query, Record, RecordKind, Row,
    Runner, Scope, Slot, Snapshot, Stats, Step, Store, Wanted, Write, step,
};

/// A store in memory.
pub struct Memory {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<TaskId, Row>,
    counters: BTreeMap<String, Vec<u8>>,
    records: BTreeMap<crate::RecordKey, Record>,
    audit: Vec<AuditRow>,
    steps: BTreeSet<StepId>,
    runners: BTreeMap<RunnerId, Runner>,
    dead: BTreeSet<RunnerId>,
}

impl Memory {
    /// An empty store whose time is what `clock` says.
    pub fn new(clock: Clock) -> Memory {
        Memory {
            clock,
            state: Mutex::default(),
        }
    }

    /// Declares a runner dead, as the loss of its process would. There are no processes in memory, so nothing
    /// else does.
    pub fn kill(&self, runner: RunnerId) {
        self.lock().dead.insert(runner);
    }

    /// A judge that panics leaves the state as it was, so a poisoned lock is still sound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn transact(
        &self,
        id: StepId,
        scope: Scope,
        mut judge: Judge,
    ) -> BoxFuture<'_, Result<Committed, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let snapshot = state.snapshot(&scope, (self.clock)());
            let judged = catch_unwind(AssertUnwindSafe(|| judge(&snapshot)));
            match judged.map_err(|_| Error::broken("judge a step: the judge panicked"))? {
                Step::Nothing => Ok(Committed {
                    wrote: false,
                    version: None,
                }),
                Step::Write(write) => state.write(id, &scope, &snapshot, *write),
            }
        })
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Found, Error>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(Found {
                now,
                rows: self.lock().find(&query, now),
            })
        })
    }

    fn records(&self, kind: RecordKind, tenant: String) -> BoxFuture<'_, Result<Vec<Record>, Error>> {
        Box::pin(async move {
            let now = (self.clock)();
            let state = self.lock();
            let wanted = state.records.values().filter(|record| {
                record.key.kind == kind && record.key.tenant == tenant && record.is_live(now)
            });
            Ok(wanted.cloned().collect())
        })
    }

    fn watch(&self, ids: Vec<TaskId>) -> BoxFuture<'_, Result<BTreeMap<TaskId, u64>, Error>> {
        Box::pin(async move {
            let state = self.lock();
            Ok(ids
                .into_iter()
                .filter_map(|id| Some((id, state.tasks.get(&id)?.version)))
                .collect())
        })
    }

    fn beat(&self, runner: Runner) -> BoxFuture<'_, Result<Beat, Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let fenced = state.dead.contains(&runner.id);
            let id = runner.id;
            if !fenced {
                state.runners.insert(id, runner);
            }
            let dead = state
                .runners
                .values()
                .filter(|other| other.id != id && state.dead.contains(&other.id));
            Ok(Beat {
                now: (self.clock)(),
                fenced,
                dead: dead.cloned().collect(),
            })
        })
    }

    fn forget_runner(&self, runner: RunnerId) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.lock();
            let holds = state.tasks.values().any(|row| row.task.runner() == Some(runner));
            if state.dead.contains(&runner) && !holds {
                state.runners.remove(&runner);
            }
            Ok(())
        })
    }

    fn purge(&self, limit: u32) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.lock().purge(now, limit as usize))
        })
    }

    fn audit(&self, after: u64, limit: u32) -> BoxFuture<'_, Result<Vec<AuditRow>, Error>> {
        Box::pin(async move {
            let state = self.lock();
            let later = state.audit.iter().filter(|row| row.position > after);
            Ok(later.take(limit as usize).cloned().collect())
        })
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, Error>> {
        Box::pin(async move {
            let state = self.lock();
            Ok(Stats {
                backend: "memory",
                schema: 0,
                tasks: state.tasks.len() as u64,
                open: state.tasks.values().filter(|row| row.task.is_open()).count() as u64,
                audit: state.audit.len() as u64,
                bytes: 0,
            })
        })
    }
}

impl State {
    fn snapshot(&self, scope: &Scope, now: Millis) -> Snapshot {
        let mut snapshot = Snapshot {
            now,
            ..Snapshot::default()
        };
        match &scope.task {
            Slot::None => {}
            Slot::Task(id) => snapshot.task = self.tasks.get(id).map(without_bodies),
            Slot::Birth { owner, idem, names } => {
                let born = |row: &&Row| idem.is_some() && row.idem == *idem;
                snapshot.task = self.owned(owner).find(born).map(without_bodies);
                snapshot.open_tasks = self.owned(owner).filter(|row| row.task.is_open()).count() as u64;
                let free = names
                    .iter()
                    .filter(|name| self.owned(owner).all(|row| row.name != **name));
                snapshot.free_names = free.cloned().collect();
            }
        }
        let counter = |name: &String| Some((name.clone(), self.counters.get(name)?.clone()));
        snapshot.counters = scope.counters.iter().filter_map(counter).collect();
        let live = |key: &crate::RecordKey| self.records.get(key).filter(|record| record.is_live(now));
        let record = |key: &crate::RecordKey| Some((key.clone(), live(key)?.clone()));
        snapshot.records = scope.records.iter().filter_map(record).collect();
        snapshot
    }

    fn owned<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = &'a Row> {
        self.tasks.values().filter(move |row| row.owner == *owner)
    }

    fn write(
        &mut self,
        id: StepId,
        scope: &Scope,
        snapshot: &Snapshot,
        write: Write,
    ) -> Result<Committed, Error> {
        let born = step::check(scope, snapshot, &write)?;
        if self.steps.contains(&id) {
            return Err(Error::broken(format!("write step {id} a second time")));
        }
        let mut version = None;
        if let Some(row) = write.task {
            let taken = self
                .owned(&row.owner)
                .any(|other| other.name == row.name || other.id == row.id);
            if born && (taken || self.tasks.contains_key(&row.id)) {
                return Err(Error::broken(format!(
                    "give birth to task {} in a place that is taken",
                    row.id
                )));
            }
            version = Some(self.put(row));
        }
        self.counters.extend(write.counters);
        for (key, record) in write.records {
            match record {
                Some(mut record) => {
                    record.version = self.records.get(&key).map_or(0, |old| old.version) + 1;
                    self.records.insert(key, record);
                }
                None => drop(self.records.remove(&key)),
            }
        }
        self.steps.insert(id);
        let position = self.audit.len() as u64 + 1;
        self.audit.push(AuditRow {
            position,
            step: id,
            body: write.audit,
        });
        Ok(Committed { wrote: true, version })
    }

    fn put(&mut self, mut row: Row) -> u64 {
        let old = self.tasks.get(&row.id);
        row.version = old.map_or(0, |old| old.version) + 1;
        let kept: BTreeMap<String, Body> = old
            .map(|old| {
                step::bodies(old)
                    .into_iter()
                    .map(|(name, body)| (name, body.clone()))
                    .collect()
            })
            .unwrap_or_default();
        step::change_bodies(&mut row, |name, body| {
            if let (Body::Stored, Some(bytes)) = (&*body, kept.get(name)) {
                *body = bytes.clone();
            }
        });
        let version = row.version;
        self.tasks.insert(row.id, row);
        version
    }

    fn find(&self, query: &Query, now: Millis) -> Vec<Row> {
        match query {
            Query::Task(id) => self.tasks.get(id).cloned().into_iter().collect(),
            Query::Named { owner, name } => self
                .owned(owner)
                .filter(|row| row.name == *name)
                .cloned()
                .collect(),
            Query::List(list) => {
                let mut rows: Vec<&Row> = self.tasks.values().filter(|row| is_listed(row, list)).collect();
                rows.sort_by_key(|row| std::cmp::Reverse((row.created_at, row.id)));
                rows.into_iter()
                    .take(list.limit as usize)
                    .map(without_bodies)
                    .collect()
            }
            Query::Claimable(wanted) => {
                let mut rows: Vec<&Row> = wanted
                    .iter()
                    .flat_map(|wanted| self.claimable(wanted, now))
                    .collect();
                rows.sort_by_key(|row| (row.task.claim_at(), row.id));
                rows.into_iter().map(without_bodies).collect()
            }
            Query::Due { limit } => {
                let due = |row: &&Row| row.task.due_at().is_some_and(|due| due <= now);
                let mut rows: Vec<&Row> = self.tasks.values().filter(due).collect();
                rows.sort_by_key(|row| (row.task.due_at(), row.id));
                rows.into_iter()
                    .take(*limit as usize)
                    .map(without_bodies)
                    .collect()
            }
            Query::HeldBy { runner, limit } => {
                let held = self
                    .tasks
                    .values()
                    .filter(|row| row.task.runner() == Some(*runner));
                held.take(*limit as usize).map(without_bodies).collect()
            }
        }
    }

    fn claimable(&self, wanted: &Wanted, now: Millis) -> Vec<&Row> {
        let until = wanted.until(now);
        let may = |row: &&Row| row.tool == wanted.tool && row.task.claim_at().is_some_and(|at| at <= until);
        let mut rows: Vec<&Row> = self.tasks.values().filter(may).collect();
        rows.sort_by_key(|row| (row.task.claim_at(), row.id));
        rows.truncate(wanted.limit as usize);
        rows
    }

    fn purge(&mut self, now: Millis, limit: usize) -> u64 {
        let over = self
            .tasks
            .values()
            .filter(|row| row.purge_after <= now && !row.task.is_open());
        let tasks: Vec<TaskId> = over.take(limit).map(|row| row.id).collect();
        for id in &tasks {
            self.tasks.remove(id);
        }
        let expired = self.records.values().filter(|record| !record.is_live(now));
        let records: Vec<_> = expired.take(limit).map(|record| record.key.clone()).collect();
        for key in &records {
            self.records.remove(key);
        }
        tasks.len() as u64
    }
}

fn is_listed(row: &Row, list: &List) -> bool {
    list.owner.as_ref().is_none_or(|owner| row.owner == *owner)
        && list.open.is_none_or(|open| row.task.is_open() == open)
        && list.tool.as_ref().is_none_or(|tool| row.tool == *tool)
        && list
            .session
            .as_ref()
            .is_none_or(|session| row.session == *session)
        && (list.hidden || !row.hidden)
        && list.before.is_none_or(|before| (row.created_at, row.id) < before)
}

fn without_bodies(row: &Row) -> Row {
    let mut row = row.clone();
    step::change_bodies(&mut row, |_, body| *body = Body::Stored);
    row
}
