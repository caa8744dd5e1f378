//! Whether a call becomes a row: judged on one snapshot, beside what its key and equal calls have begun before.
//!
//! Made by `call`, and asked in its transaction. Pure.

use longhaul_core::{RunnerId, Span, TaskId};
use longhaul_engine::transact::Opening;
use longhaul_mcp::RpcError;
use longhaul_store::Snapshot;

use super::{
    gated::Allowed,
    join::{self, Join, Name},
};
use crate::gate::{self, Action, View};

/// How a birth went.
pub(super) enum Born {
    New,
    Same(TaskId),
    Joinable(Join),
    KeyReused,
    Refused(gate::Refusal),
    NoName,
}

impl Born {
    /// Why there is no task.
    pub(super) fn error(self) -> RpcError {
        match self {
            Born::KeyReused => RpcError::invalid_params_because(
                "idempotency_key_reused",
                "The idempotency key was used before with another tool or other arguments",
            ),
            Born::Refused(refusal) => refusal.reply(),
            Born::NoName => RpcError::internal("no_free_name", "No free short name was found; try again"),
            Born::New | Born::Same(_) | Born::Joinable(_) => {
                RpcError::internal("not_begun", "The task could not begin; try again")
            }
        }
    }
}

/// A call that is to become a row.
pub(super) struct Bearing {
    /// The row, but for its name and its times.
    pub(super) opening: Opening,
    /// The record under which equal calls find it.
    pub(super) name: Option<Name>,
    /// The task that was found there before, and that this caller may not join.
    pub(super) passed_over: Option<TaskId>,
    /// It is a task from the start.
    pub(super) at_once: bool,
    /// This process.
    pub(super) here: RunnerId,
    /// This process takes no new work.
    pub(super) draining: bool,
    /// The most open tasks of one owner.
    pub(super) open_max: u64,
    /// How long the task is kept, from its birth.
    pub(super) ttl: Span,
    /// How long it may stay hidden.
    pub(super) promote_after: Span,
    /// How long a task stays readable as expired.
    pub(super) expired_kept: Span,
    /// How long a hidden row stays.
    pub(super) answered_kept: Span,
}

impl Bearing {
    pub(super) fn judge(&self, snapshot: &Snapshot) -> Allowed<Born> {
        if let Some(existing) = &snapshot.task {
            let same =
                existing.digest == self.opening.digest || longhaul_core::fault!("one-key-for-any-call");
            return Allowed::nothing(if same {
                Born::Same(existing.id)
            } else {
                Born::KeyReused
            });
        }
        let joinable = |name| join::candidate(snapshot, name, self.here, self.passed_over);
        if let Some(join) = self.name.as_ref().and_then(joinable) {
            return Allowed::nothing(Born::Joinable(join));
        }
        let view = View {
            open_tasks: snapshot.open_tasks,
            open_max: self.open_max,
            draining: self.draining,
            ..View::of_task(Action::Call, &self.opening.owner, None)
        };
        let permit = match gate::judge(&view) {
            Ok(permit) => permit,
            Err(refusal) => return Allowed::nothing(Born::Refused(refusal)),
        };
        match snapshot.free_names.first() {
            Some(name) => Allowed::open(permit, self.opening(snapshot, name), Born::New),
            None => Allowed::nothing(Born::NoName),
        }
    }

    /// The whole row.
    fn opening(&self, snapshot: &Snapshot, name: &str) -> Opening {
        let mut opening = self.opening.clone();
        name.clone_into(&mut opening.name);
        opening.birth.expires_at = snapshot.now + self.ttl;
        opening.purge_after = if self.at_once || opening.idem.is_some() {
            opening.birth.expires_at + self.expired_kept
        } else {
            snapshot.now + self.answered_kept
        };
        // A caller that has its task at once never leaves it behind without knowing of it; unless its client ends, and
        // another pipe comes in its place.
        let is_left_behind = |name: &&Name| !self.at_once || name.whose.is_some();
        if let Some(name) = self.name.as_ref().filter(is_left_behind) {
            let join = Join {
                task: opening.id,
                holder: self.here,
                left: false,
                handed: self.at_once,
                whose: name.whose.clone(),
            };
            let record = join.record(&name.key, opening.purge_after + self.promote_after);
            opening.records.insert(name.key.clone(), Some(record));
        }
        opening
    }
}
