//! The one loop: scope, judge, step.
//!
//! A caller says what it wants to happen ([`Verdict`]) after seeing a snapshot; this module asks the core,
//! writes the task and its audit record in one store transaction, and wakes whoever waits.

use std::collections::BTreeMap;

use longhaul_core::{Body, Event, Millis, Refused, decide::Birth};
use longhaul_store::{Owner, Record, RecordKey, Row, Snapshot};

/// What the caller wants after seeing the snapshot. `R` is its own reply.
#[derive(Debug)]
pub enum Verdict<R> {
    /// Nothing happens.
    Refuse(R),
    /// A task is born.
    Open(Box<Opening>, R),
    /// These events happen to the task, in order, all or none.
    Apply(Proposal, R),
}

/// A birth: the parts of the row that the caller knows.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The row's id, minted before.
    pub id: longhaul_core::TaskId,
    /// Who it belongs to.
    pub owner: Owner,
    /// The key id under which its sealed id is made.
    pub kid: u32,
    /// One of the snapshot's free names.
    pub name: String,
    /// The tool.
    pub tool: String,
    /// The session, or empty.
    pub session: String,
    /// How the call came in.
    pub origin: String,
    /// The digest of the caller's idempotency key.
    pub idem: Option<[u8; 32]>,
    /// The digest of tool and canonical arguments.
    pub digest: [u8; 32],
    /// Not yet shown as a task.
    pub hidden: bool,
    /// The arguments as they were sent.
    pub args: Body,
    /// What the caller declared and wants echoed.
    pub context: Body,
    /// The first note.
    pub note: Vec<u8>,
    /// When the row may be deleted.
    pub purge_after: Millis,
    /// What the machine begins with.
    pub birth: Birth,
}

/// A change to a task that exists.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    /// What happened, in order; may be empty when only the row's own fields change.
    pub events: Vec<Event>,
    /// Replaces progress and status text.
    pub note: Option<Vec<u8>>,
    /// Hands the task out: it is no longer hidden, and is kept until then.
    pub shown: Option<Millis>,
    /// Records to set or delete beside it.
    pub records: BTreeMap<RecordKey, Option<Record>>,
    /// Who did it, for the audit: `owner`, `operator`, `runner`, `sweeper`.
    pub actor: &'static str,
}

/// How a transaction ended.
#[derive(Debug)]
pub enum Done<R> {
    /// The caller's own judge refused; nothing was written.
    Refused(R),
    /// The core refused; nothing was written.
    NotNow(Refused, R),
    /// Committed: the row as it is now, without its bodies where they were not at hand.
    Committed(Box<Row>, R),
}

/// A judge of the engine's callers.
pub type Judge<R> = Box<dyn FnMut(&Snapshot) -> Verdict<R> + Send + 'static>;
