//! Equal calls that are no tasks: one that comes back waits for the work of the one that was left (D-40, D-45).
//!
//! A record names the task of the last call of its kind: same owner, same session as the caller declares it, same
//! tool, equal arguments. It is written with the birth of the task, changed with the row, and deleted when a result
//! that somebody came back for has reached them. `call` looks for it, `held` and `leave` keep it true.
//!
//! Calls of a wrapped server have one record for all pipes: whoever closes one client and opens another comes back by
//! another pipe. There the record says whose call it is, and it is joined from another pipe only once that one has ended.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::{Millis, Outcome, Phase, RunnerId, Span, TaskId, audit::Entry, hex};
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
    view,
};

/// How long a pipe that outlived its server may take to come to the next one.
const PIPES_COME_BACK: Span = Span::seconds(5);
const DOMAIN: &[u8] = b"longhaul equal call\0";

/// How equal calls find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The record.
    pub(super) key: RecordKey,
    /// Whose the call is, where several pipes share the record.
    pub(super) whose: Option<Whose>,
}

/// The caller of a wrapped server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whose {
    /// Its session.
    pub(super) session: String,
    /// The pipe that it came on.
    pub(super) pipe: String,
}

/// What the record of a call says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Join {
    /// The task of the call.
    pub(super) task: TaskId,
    /// The process at which its caller waits, or waited.
    pub(super) holder: RunnerId,
    /// The caller left, or was told that the work goes on.
    pub(super) left: bool,
    /// The caller was handed the task, and has not fetched its result.
    pub(super) handed: bool,
    /// Whose the call is, where several pipes share the record.
    pub(super) whose: Option<Whose>,
}

/// What becomes of the record of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It is kept as long as the row is.
    Kept,
    /// The caller left, or was told that the work goes on: an equal call waits for this task.
    Left,
    /// The caller has the task: an equal call from the same pipe begins new work.
    Handed,
    /// The caller has what it came for: an equal call begins new work.
    Spent,
}

impl Mark {
    /// What the audit says of it beside the change of the row.
    fn trail(self) -> Trail {
        let name = match self {
            Mark::Kept | Mark::Handed => return Trail::default(),
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
/// beside it its own work. Whether another pipe has ended, no record tells.
pub(super) fn candidate(
    snapshot: &Snapshot,
    name: &Name,
    here: RunnerId,
    passed_over: Option<TaskId>,
) -> Option<Join> {
    let join = Join::decode(snapshot.records.get(&name.key)?)?;
    let left = join.is_of_another(name) || (!join.handed && (join.left || join.holder != here));
    let wanted = left && !longhaul_core::fault!("equal-calls-run-twice");
    (wanted && passed_over != Some(join.task)).then_some(join)
}

#[derive(Serialize, Deserialize)]
struct Stored {
    task: String,
    holder: String,
    left: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    handed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whose: Option<Whose>,
}

impl Join {
    /// Whether the call came on another pipe, or in another session of it, than the one that this is asked for.
    fn is_of_another(&self, name: &Name) -> bool {
        match (&self.whose, &name.whose) {
            (Some(own), Some(other)) => own != other,
            (None | Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn decode(record: &Record) -> Option<Join> {
        let stored: Stored = serde_json::from_slice(&record.body).ok()?;
        Some(Join {
            task: TaskId(bytes(&stored.task)?),
            holder: RunnerId(bytes(&stored.holder)?),
            left: stored.left,
            handed: stored.handed,
            whose: stored.whose,
        })
    }

    pub(super) fn record(self, key: &RecordKey, expires_at: Millis) -> Record {
        let stored = Stored {
            task: self.task.to_string(),
            holder: self.holder.to_string(),
            left: self.left,
            handed: self.handed,
            whose: self.whose,
        };
        Record {
            key: key.clone(),
            version: 0,
            expires_at: Some(expires_at),
            body: serde_json::to_vec(&stored).expect("texts and flags always serialize"),
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
    pub(super) async fn may_join(
        &self,
        caller: &Caller,
        name: Option<&Name>,
        join: &Join,
    ) -> Result<bool, RpcError> {
        let is_anothers = name.is_some_and(|name| join.is_of_another(name));
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
        let is_there = match &row.task.phase {
            Phase::Working | Phase::Asking => true,
            // Who cancels, and calls again, wants the work anew.
            Phase::Finished(Outcome::Cancelled { .. }) => false,
            Phase::Finished(_) if inner.handing.of(join.task) > 0 => false,
            Phase::Finished(_) if join.left || (is_anothers && join.handed) => {
                found.now.since(row.updated_at) < inner.settings.kept_for_join
            }
            // Its caller waited here, and has it.
            Phase::Finished(_) if join.holder == inner.engine.runner() => false,
            Phase::Finished(_) => row.updated_at >= inner.engine.began_at(),
        };
        Ok(is_there && (!is_anothers || self.has_ended(join).await))
    }

    /// Whether the pipe of this call has ended. Just after a start that is not known yet: a pipe that outlived the last
    /// server comes to this one within moments.
    async fn has_ended(&self, join: &Join) -> bool {
        let Some(Whose { pipe, .. }) = &join.whose else {
            return false;
        };
        if self.is_open(pipe) {
            return longhaul_core::fault!("living-windows-share-a-call");
        }
        let engine = &self.inner.engine;
        let until = engine.began_at() + PIPES_COME_BACK;
        let left = until.since(engine.now());
        if left.0 > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(left.0)).await;
        }
        !self.is_open(pipe)
    }

    /// How calls equal to that of this row find each other.
    pub(super) fn join_name(&self, row: &Row) -> Name {
        let session = match self.is_of_wrapped(row) {
            true => "",
            false => &row.session,
        };
        Name {
            key: key(&row.owner, session, &row.digest),
            whose: None,
        }
    }

    fn is_of_wrapped(&self, row: &Row) -> bool {
        let tool = view::Context::decode(&row.context).server_tool;
        tool.is_some_and(|tool| self.is_wrapped(&tool.server))
    }

    /// The owner was given the end of this task: a call of a wrapped server that is equal to the one that began it begins
    /// new work from now on.
    pub(crate) async fn was_fetched(&self, row: &Row) {
        if !row.task.is_finished() || !self.is_of_wrapped(row) {
            return;
        }
        let name = Some(self.join_name(row));
        let marked = self.show_marked(&row.owner, row.id, name, Mark::Spent).await;
        if marked.is_err() {
            tracing::warn!(
                "a fetched result could not be marked as such; an equal call may get it once more"
            );
        }
    }

    /// Hands the row out, so that it is kept until its time to live is over, and says so in the record of its call.
    /// One transaction; none where nothing changes.
    pub(super) async fn show_marked(
        &self,
        owner: &Owner,
        task: TaskId,
        name: Option<Name>,
        mark: Mark,
    ) -> Result<(), RpcError> {
        let (kept, here) = (self.inner.settings.expired_kept, self.inner.engine.runner());
        let scope = Scope {
            task: Slot::Task(task),
            records: name.iter().map(|name| name.key.clone()).collect(),
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
                records: name
                    .iter()
                    .filter_map(|name| marked(snapshot, row, name, mark, here, kept_until))
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
    name: &Name,
    mark: Mark,
    here: RunnerId,
    kept_until: Millis,
) -> Option<(RecordKey, Option<Record>)> {
    let key = &name.key;
    let there = snapshot.records.get(key);
    let own = there.and_then(Join::decode).filter(|join| join.task == row.id);
    let wanted = match mark {
        Mark::Kept => Some(own?),
        Mark::Left | Mark::Handed => Some(Join {
            task: row.id,
            holder: here,
            left: mark == Mark::Left,
            handed: mark == Mark::Handed,
            whose: name.whose.clone(),
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
