//! The gate: the checks, in order, before anything happens for a caller.
//!
//! Called by `dispatch` inside the store transaction that would act, and once for each read. It is a pure
//! function of a [`View`]: plain data from one store read. What acts takes a [`Permit`], and only this module
//! can make one (G-6).

mod limits;
mod owner;

use longhaul_mcp::{
    RpcError,
    rpc_error::{Refusal as Data, RefusalCode, Who},
};
use longhaul_store::Owner;

/// Proof that the gate let one action through. It cannot be copied: one permit, one action.
#[derive(Debug)]
pub struct Permit {
    _private: (),
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Call a tool.
    Call,
    /// Look at a task, its questions or its result.
    Get,
    /// Answer a question of a task.
    Update,
    /// End a task. Never refused to its owner, whatever else holds (G-7).
    Cancel,
    /// List tasks.
    List,
    /// Follow a task on a stream; asked again at every tick.
    Listen,
    /// Read what a server behind this one offers besides tools.
    Relay,
    /// Start a server behind this one anew.
    Operate,
}

impl Action {
    /// Every action, for tests that must leave none out.
    pub const ALL: [Action; 8] = [
        Action::Call,
        Action::Get,
        Action::Update,
        Action::Cancel,
        Action::List,
        Action::Listen,
        Action::Relay,
        Action::Operate,
    ];
}

/// All that a check may see.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What is wanted.
    pub action: Action,
    /// Who wants it.
    pub caller: &'a Owner,
    /// Whose task it is about; `None` when it is about no task, or about one that does not exist.
    pub task_owner: Option<&'a Owner>,
    /// How many tasks of the caller are open.
    pub open_tasks: u64,
    /// How many may be.
    pub open_max: u64,
    /// The server takes no new work.
    pub draining: bool,
}

impl<'a> View<'a> {
    /// A view of something that is done with a task that exists, or seems to.
    pub fn of_task(action: Action, caller: &'a Owner, task_owner: Option<&'a Owner>) -> View<'a> {
        View {
            action,
            caller,
            task_owner,
            open_tasks: 0,
            open_max: 0,
            draining: false,
        }
    }
}

/// Why the gate says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such task, or it is another's: the two are not told apart (G-3).
    NotFound,
    /// The caller has as many open tasks as it may have (G-11).
    TaskLimit {
        /// The cap (`tasks.open_max`).
        open_max: u64,
    },
    /// The server shuts down and takes no new work.
    Draining,
}

/// Judges one action.
///
/// # Errors
/// The first check that says no.
pub fn judge(view: &View<'_>) -> Result<Permit, Refusal> {
    owner::check(view)?;
    limits::check(view)?;
    Ok(Permit { _private: () })
}

impl Refusal {
    /// What the caller is told.
    pub fn reply(self) -> RpcError {
        match self {
            Refusal::NotFound => RpcError::task_not_found(),
            Refusal::Draining => RpcError::draining(DRAIN_RETRY_MS),
            Refusal::TaskLimit { open_max } => RpcError::refused(
                RefusalCode::OverLimit,
                format!(
                    "{open_max} tasks of yours are open, which is the most (`tasks.open_max`): wait for one to end, or cancel one"
                ),
                Data {
                    reason: "task_limit".into(),
                    who: Who::Caller,
                    retry_after_ms: None,
                },
            ),
        }
    }
}

/// When a caller that met a draining server should try again, in milliseconds.
const DRAIN_RETRY_MS: u64 = 5_000;
