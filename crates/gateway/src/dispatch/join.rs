//! Equal calls that are no tasks: one that comes back waits for the work of the one that was left (D-40, D-45).
//!
//! A record names the task of the last call of its kind: same owner, same session as the caller declares it, same
//! tool, equal arguments. It is written with the birth of the task, changed with the row, and deleted when a result
//! that somebody came back for has reached them. `call` looks for it, `held` and `leave` keep it true.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::{Millis, Outcome, Phase, RunnerId, TaskId, audit::Entry, hex};
use longhaul_engine::transact::{Proposal, Trail};
use longhaul_mcp::RpcError;
use longhaul_store::{Owner, Query, Record, RecordKey, RecordKind, Row, Scope, Slot, Snapshot};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Dispatch, gated::Allowed, store_reply};
use crate::{
    gate::{self, Action, View},
    identity::Caller,
    sealed_id::owner_digest,
};

const DOMAIN: &[u8] = b"longhaul equal call\0";

/// What the record of a call says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join {
    /// The task of the call.
    pub(super) task: TaskId,
    /// The process at which its caller waits, or waited.
    pub(super) holder: RunnerId,
    /// The caller left, or was told that the work goes on.
    pub(super) left: bool,
}

/// What becomes of the record of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It is kept as long as the row is.
    Kept,
    /// The caller left, or was told that the work goes on: an equal call waits for this task.
    Left,
    /// The caller has what it came for: an equal call begins new work.
    Spent,
}

impl Mark {
    /// What the audit says of it beside the change of the row.
    fn trail(self) -> Trail {
        let name = match self {
            Mark::Kept => return Trail::default(),
            Mark::Left => "call_left",
            Mark::Spent => "call_delivered",
        };
        Trail {
            entries: vec![Entry {
                name: name.to_owned(),
                detail: String::new(),
            }],
            ..Trail::default()
        }
    }
}

/// The name of the record under which equal calls find each other. `digest` is that of the tool and its arguments.
pub(super) fn key(owner: &Owner, session: &str, digest: &[u8; 32]) -> RecordKey {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update(owner_digest(owner));
    hash.update((session.len() as u64).to_be_bytes());
    hash.update(session.as_bytes());
    hash.update(digest);
    RecordKey {
        kind: RecordKind::Join,
        tenant: owner.tenant.clone(),
        id: hex(&hash.finalize()),
    }
}

/// The task for which a call that is about to be born could wait instead, as far as the record tells: its caller
/// left, or waited at a process other than `here`. A caller that waits here gets its own result, and a second one
/// beside it its own work.
pub(super) fn candidate(
    snapshot: &Snapshot,
    key: &RecordKey,
    here: RunnerId,
    passed_over: Option<TaskId>,
) -> Option<Join> {
    let join = Join::decode(snapshot.records.get(key)?)?;
    let left = join.left || join.holder != here;
    let wanted = left && !longhaul_core::fault!("equal-calls-run-twice");
    (wanted && passed_over != Some(join.task)).then_some(join)
}

#[derive(Serialize, Deserialize)]
struct Stored {
    task: String,
    holder: String,
    left: bool,
}

impl Join {
    fn decode(record: &Record) -> Option<Join> {
        let stored: Stored = serde_json::from_slice(&record.body).ok()?;
        Some(Join {
            task: TaskId(bytes(&stored.task)?),
            holder: RunnerId(bytes(&stored.holder)?),
            left: stored.left,
        })
    }

    pub(super) fn record(self, key: &RecordKey, expires_at: Millis) -> Record {
        let stored = Stored {
            task: self.task.to_string(),
            holder: self.holder.to_string(),
            left: self.left,
        };
        Record {
            key: key.clone(),
            version: 0,
            expires_at: Some(expires_at),
            body: serde_json::to_vec(&stored).expect("two texts and a flag always serialize"),
        }
    }
}

/// Sixteen bytes from thirty-two hexadecimal digits.
fn bytes(hex: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if hex.len() != 32 {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl Dispatch {
    /// Whether an equal call may wait for this task: it is open, or its result has not yet reached anybody and is
    /// young enough. The end of a task whose process died with the call open counts when it came after that.
    pub(super) async fn may_join(&self, caller: &Caller, join: &Join) -> Result<bool, RpcError> {
        let inner = &self.inner;
        let found = inner
            .engine
            .read(Query::Task(join.task))
            .await
            .map_err(|error| store_reply(&error))?;
        let Some(row) = found.rows.first() else {
            return Ok(false);
        };
        let view = View::of_task(Action::Get, &caller.owner, Some(&row.owner));
        if gate::judge(&view).is_err() {
            return Ok(false);
        }
        Ok(match &row.task.phase {
            Phase::Working | Phase::Asking => true,
            // Who cancels, and calls again, wants the work anew.
            Phase::Finished(Outcome::Cancelled { .. }) => false,
            Phase::Finished(_) if inner.handing.of(join.task) > 0 => false,
            Phase::Finished(_) if join.left => found.now.since(row.updated_at) < inner.settings.kept_for_join,
            Phase::Finished(_) => row.updated_at >= inner.engine.began_at(),
        })
    }

    /// Hands the row out, so that it is kept until its time to live is over, and says so in the record of its call.
    /// One transaction; none where nothing changes.
    pub(super) async fn show_marked(
        &self,
        owner: &Owner,
        task: TaskId,
        key: Option<RecordKey>,
        mark: Mark,
    ) -> Result<(), RpcError> {
        let (kept, here) = (self.inner.settings.expired_kept, self.inner.engine.runner());
        let scope = Scope {
            task: Slot::Task(task),
            records: key.clone().into_iter().collect(),
            ..Scope::default()
        };
        let owner = owner.clone();
        let judge = move |snapshot: &Snapshot| {
            let Some(row) = &snapshot.task else {
                return Allowed::nothing(());
            };
            let Ok(permit) = gate::judge(&View::of_task(Action::Get, &owner, Some(&row.owner))) else {
                return Allowed::nothing(());
            };
            let kept_until = row.task.expires_at + kept;
            let proposal = Proposal {
                shown: row.hidden.then_some(kept_until),
                records: key
                    .iter()
                    .filter_map(|key| marked(snapshot, row, key, mark, here, kept_until))
                    .collect(),
                actor: "owner",
                trail: mark.trail(),
                ..Proposal::default()
            };
            if proposal.shown.is_none() && proposal.records.is_empty() {
                return Allowed::nothing(());
            }
            Allowed::apply(permit, proposal, ())
        };
        self.inner
            .engine
            .transact(scope, judge)
            .await
            .map(drop)
            .map_err(|error| store_reply(&error))
    }
}

/// The record as it is to be; `None` when it is so already.
fn marked(
    snapshot: &Snapshot,
    row: &Row,
    key: &RecordKey,
    mark: Mark,
    here: RunnerId,
    kept_until: Millis,
) -> Option<(RecordKey, Option<Record>)> {
    let there = snapshot.records.get(key);
    let own = there.and_then(Join::decode).filter(|join| join.task == row.id);
    let wanted = match mark {
        Mark::Kept => Some(own?),
        Mark::Left => Some(Join {
            task: row.id,
            holder: here,
            left: true,
        }),
        Mark::Spent if longhaul_core::fault!("a-result-is-given-again") => Some(own?),
        Mark::Spent => {
            own?;
            None
        }
    };
    let record = wanted.map(|join| join.record(key, kept_until));
    let as_it_is = match (there, &record) {
        (Some(there), Some(record)) => there.body == record.body && there.expires_at == record.expires_at,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    (!as_it_is).then(|| (key.clone(), record))
}

/// How many of something each task has at the moment in this process: callers that wait, results on their way.
#[derive(Clone, Default)]
pub(super) struct Tally {
    tasks: Arc<Mutex<BTreeMap<TaskId, usize>>>,
}

/// One that is counted, until it is dropped.
pub(super) struct Counted {
    tally: Tally,
    task: TaskId,
}

impl Tally {
    pub(super) fn count(&self, task: TaskId) -> Counted {
        *self.lock().entry(task).or_insert(0) += 1;
        Counted {
            tally: self.clone(),
            task,
        }
    }

    /// How many there are.
    pub(super) fn of(&self, task: TaskId) -> usize {
        self.lock().get(&task).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, usize>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut tasks = self.tally.lock();
        if let Some(count) = tasks.get_mut(&self.task) {
            *count -= 1;
            if *count == 0 {
                tasks.remove(&self.task);
            }
        }
    }
}
