//! Keeps tasks safe: one seam over memory, SQLite and PostgreSQL.
//!
//! The function goes to the data. A caller hands [`Store::transact`] a [`Scope`] and a judge; the store locks
//! what the scope names, builds one [`Snapshot`] with its own time, calls the judge, writes the [`Step`] that
//! the judge returns, commits, and only then replies. The store decides nothing: guards, caps and transitions
//! are the judge's, and no rule of a task is written in SQL.
//!
//! The seam is internal and may be reshaped at will. Every backend passes the same contract list
//! (`tests/it/contract/`).

use std::{collections::BTreeMap, sync::Arc};

use futures_core::future::BoxFuture;
use longhaul_core::{Body, Millis, RunnerId, StepId, Task, TaskId};

pub mod crypt;
mod error;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod layout;
pub mod memory;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod migrate;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod step;

pub use error::{Error, Fault};
pub use step::NOTE_BYTES_MAX;

/// A durable store of tasks.
///
/// Promises, in the order in which they matter:
/// - When `transact` returns `Ok`, what the judge returned is durable, audit record included: it survives
///   `kill -9` and, on SQLite and PostgreSQL, the loss of power. A store that replies earlier loses
///   acknowledged tasks.
/// - The judge sees a snapshot that nothing else changes between the read and the commit.
/// - A body is written once. A store that overwrites one breaks "a finished task never changes".
/// - `read` shows committed state and has no side effect.
pub trait Store: Send + Sync {
    /// Locks what `scope` names, judges, writes and commits.
    ///
    /// `id` is minted before the first try; the audit record is stored under it. When a commit's reply is lost
    /// the store looks for that record: found means done. The judge is called again only when the database
    /// says so.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] when the store cannot be reached or is busy, [`Fault::Full`] when the disk is
    /// full, [`Fault::Broken`] for anything else. Nothing was written, except when [`Error::ambiguous`] says so.
    fn transact(&self, id: StepId, scope: Scope, judge: Judge) -> BoxFuture<'_, Result<Committed, Error>>;

    /// Reads task rows from one committed snapshot.
    fn read(&self, query: Query) -> BoxFuture<'_, Result<Found, Error>>;

    /// Reads records of one kind in one tenant, in the order of their ids.
    fn records(&self, kind: RecordKind, tenant: String) -> BoxFuture<'_, Result<Vec<Record>, Error>>;

    /// The versions of these tasks, for those that exist. One cheap query, asked for all that anybody in this
    /// process waits for.
    fn watch(&self, ids: Vec<TaskId>) -> BoxFuture<'_, Result<BTreeMap<TaskId, u64>, Error>>;

    /// Registers this process as a runner, or renews its registration, and names the runners that are dead.
    ///
    /// On one machine a runner is dead when the lock on its file can be taken; where runners are on several
    /// machines, when its lease is over by the database's clock.
    fn beat(&self, runner: Runner) -> BoxFuture<'_, Result<Beat, Error>>;

    /// Removes a dead runner's registration, once nothing is held by it. Does nothing before. A runner that was
    /// forgotten stays fenced.
    fn forget_runner(&self, runner: RunnerId) -> BoxFuture<'_, Result<(), Error>>;

    /// Deletes the bodies and rows of tasks whose time is over, and expired records. At most `limit` of each.
    /// Returns how many tasks went.
    fn purge(&self, limit: u32) -> BoxFuture<'_, Result<u64, Error>>;

    /// Gives up the space that is held back for cancels, for a cancel that met [`Fault::Full`] and is tried once
    /// more. Whether there was any; a store without a disk of its own holds none.
    fn give_up_reserve(&self) -> bool {
        false
    }

    /// Audit records in the order in which they were committed, after position `after` (0: from the start).
    fn audit(&self, after: u64, limit: u32) -> BoxFuture<'_, Result<Vec<AuditRow>, Error>>;

    /// What the store holds, for `doctor` and metrics.
    fn stats(&self) -> BoxFuture<'_, Result<Stats, Error>>;
}

/// Turns one snapshot into one step. Pure and synchronous, and quick (under 100 µs): whatever costs more is
/// computed before and captured.
pub type Judge = Box<dyn FnMut(&Snapshot) -> Step + Send + 'static>;

/// What a transaction locks, and so what its snapshot shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The task, or the place where one is to be born.
    pub task: Slot,
    /// Counters, locked in ascending order.
    pub counters: Vec<String>,
    /// Records, locked in ascending order.
    pub records: Vec<RecordKey>,
}

impl Scope {
    /// One task and nothing else.
    pub fn task(id: TaskId) -> Scope {
        Scope {
            task: Slot::Task(id),
            ..Scope::default()
        }
    }

    /// One record and nothing else.
    pub fn record(key: RecordKey) -> Scope {
        Scope {
            records: vec![key],
            ..Scope::default()
        }
    }
}

/// Which task a transaction is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Slot {
    /// None.
    #[default]
    None,
    /// The task with this id.
    Task(TaskId),
    /// A place for a new task of this owner.
    Birth {
        /// The owner.
        owner: Owner,
        /// Equal calls under one key are one task: the key's digest.
        idem: Option<[u8; 32]>,
        /// Short names to choose from; the snapshot tells which are free.
        names: Vec<String>,
    },
}

/// All that a judge may see: plain data from one read.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The store's time.
    pub now: Millis,
    /// The task of [`Slot::Task`], or for [`Slot::Birth`] the task already born under the same key. Bodies are
    /// [`Body::Stored`], except [`Row::note`].
    pub task: Option<Row>,
    /// For [`Slot::Birth`]: how many tasks of this owner are open (`Task::is_open`).
    pub open_tasks: u64,
    /// For [`Slot::Birth`]: the names of the scope that no unpurged task of this owner has.
    pub free_names: Vec<String>,
    /// The counters of the scope; absent ones were never written.
    pub counters: BTreeMap<String, Vec<u8>>,
    /// The records of the scope; absent ones do not exist.
    pub records: BTreeMap<RecordKey, Record>,
}

/// What the judge wants written.
#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing: a refusal, or nothing to do.
    Nothing,
    /// This, all of it or nothing.
    Write(Box<Write>),
}

/// One write.
#[derive(Clone, Debug, Default)]
pub struct Write {
    /// The task as it is to be: inserted for [`Slot::Birth`] unless the snapshot shows the task already born, else
    /// updated. The store raises its version. What is fixed at birth (owner, name, tool, rules, …) stays, and so
    /// does an outcome; a write that changes it fails as [`Fault::Broken`].
    pub task: Option<Row>,
    /// Counters to set.
    pub counters: BTreeMap<String, Vec<u8>>,
    /// Records to set, or with `None` to delete.
    pub records: BTreeMap<RecordKey, Option<Record>>,
    /// The audit record, in its canonical form.
    pub audit: Vec<u8>,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Whether something was written.
    pub wrote: bool,
    /// The task's version afterwards, when a task was written.
    pub version: Option<u64>,
}

/// Who a task belongs to: the caller that began it. Hashed for the indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The workspace; `default` for a local user.
    pub tenant: String,
    /// Who vouches for the subject; `local` for a local user.
    pub issuer: String,
    /// The person or program, as the issuer names it; `uid:N` for a local user.
    pub subject: String,
    /// The app behind which they act; empty when there is none.
    pub app: String,
}

/// One task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The row's id.
    pub id: TaskId,
    /// Who it belongs to.
    pub owner: Owner,
    /// The key id under which its sealed id was made.
    pub kid: u32,
    /// Six characters, unique among the owner's unpurged tasks.
    pub name: String,
    /// The tool that was called.
    pub tool: String,
    /// The session in which it was called; empty without one.
    pub session: String,
    /// How the call came in, for people: the client's own name, cleaned, or `client`, `cli` or `page`.
    pub origin: String,
    /// Rises by one at each write.
    pub version: u64,
    /// When it was born.
    pub created_at: Millis,
    /// When something that its client can see last changed; never moves backwards.
    pub updated_at: Millis,
    /// When the row may be deleted.
    pub purge_after: Millis,
    /// The digest of the caller's idempotency key, when one was sent.
    pub idem: Option<[u8; 32]>,
    /// The digest of tool and canonical arguments.
    pub digest: [u8; 32],
    /// Not handed out as a task: a call that may still end as a plain result, and is deleted soon after it ends.
    /// Lists leave it out unless they ask for it; those of its owner do.
    pub hidden: bool,
    /// The state machine.
    pub task: Task,
    /// The arguments, as they were sent.
    pub args: Body,
    /// What the caller declared and wants echoed, in the gateway's own form.
    pub context: Body,
    /// Progress and status text, in the gateway's own form; replaced at will, at most 8 KiB.
    pub note: Vec<u8>,
}

/// Which task rows to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One task with all its bodies, by row id.
    Task(TaskId),
    /// One task with all its bodies, by its owner and short name.
    Named {
        /// The owner.
        owner: Owner,
        /// The short name.
        name: String,
    },
    /// Tasks without bodies, newest first.
    List(List),
    /// Tasks without bodies that a runner may take now ([`Task::claim_at`]), those that have waited longest first.
    Claimable(Vec<Wanted>),
    /// Tasks without bodies whose moment came ([`Task::due_at`]), the earliest first.
    Due {
        /// At most so many.
        limit: u32,
    },
    /// Tasks without bodies that a runner holds.
    HeldBy {
        /// The runner.
        runner: RunnerId,
        /// At most so many.
        limit: u32,
    },
}

/// Which tasks of one tool a runner would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The tool.
    pub tool: String,
    /// Starts too, and not only stops that are owed: the tool has a free slot.
    pub starts: bool,
    /// At most so many.
    pub limit: u32,
}

impl Wanted {
    /// Up to which moment of [`Task::claim_at`].
    pub(crate) fn until(&self, now: Millis) -> Millis {
        if self.starts { now } else { Task::STOP_OWED }
    }
}

/// A page of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Only this owner's; `None` for all owners of all tenants (an operator's list).
    pub owner: Option<Owner>,
    /// Only those that are open, or only those that are not.
    pub open: Option<bool>,
    /// Only those of this tool.
    pub tool: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Hidden ones too.
    pub hidden: bool,
    /// Those older than this task (keyset paging).
    pub before: Option<(Millis, TaskId)>,
    /// At most so many, 1 to 1,000.
    pub limit: u32,
}

/// The rows that a query found, with the store's time.
#[derive(Clone, Debug)]
pub struct Found {
    /// The store's time.
    pub now: Millis,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The kinds of small things that are kept as records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// A spent `requestState`, with the reply that it led to. Nothing writes one today.
    Spent,
    /// A setting that this database remembers. Nothing writes one today.
    Setting,
    /// What a session's id does not say: that the session has ended, and which log messages its client wants.
    Session,
    /// A call without a task whose caller may come back: names the task that an equal call waits for.
    Join,
    /// How long an owner's clients have waited before they gave up.
    Patience,
    /// What a server behind this one defined when it was last seen.
    Definitions,
    /// A server that `longhaul wrap` brought: its command, folder and environment, or its address and headers.
    Wrapped,
    /// A login at a server behind this one: the client that it was made as, and its tokens.
    Login,
}

/// Names one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// Its kind.
    pub kind: RecordKind,
    /// Its tenant.
    pub tenant: String,
    /// Its id within kind and tenant.
    pub id: String,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub key: RecordKey,
    /// Rises by one at each write; the store sets it.
    pub version: u64,
    /// When it may be deleted.
    pub expires_at: Option<Millis>,
    /// Its body, encrypted at rest.
    pub body: Vec<u8>,
}

impl Record {
    /// Whether the record still exists for its readers: a snapshot and a listing leave out what has expired.
    pub fn is_live(&self, now: Millis) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

/// A process that runs work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Its id, new for each process.
    pub id: RunnerId,
    /// The machine's name.
    pub host: String,
    /// The boot id of the machine.
    pub boot: String,
    /// Its process id.
    pub pid: u32,
    /// When its process began, in the kernel's ticks: with pid and boot it names one process for ever.
    pub pid_start: u64,
}

/// What a beat learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The store's time.
    pub now: Millis,
    /// This runner was declared dead: it must stop what it runs and report nothing more.
    pub fenced: bool,
    /// Runners that are dead.
    pub dead: Vec<Runner>,
}

/// One audit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its position, from 1, without gaps once the writers before it have committed.
    pub position: u64,
    /// The step that wrote it.
    pub step: StepId,
    /// The record, in its canonical form.
    pub body: Vec<u8>,
}

/// What the store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `memory`, `sqlite` or `postgres`.
    pub backend: &'static str,
    /// The schema's version.
    pub schema: u32,
    /// Task rows.
    pub tasks: u64,
    /// Open tasks.
    pub open: u64,
    /// Audit records.
    pub audit: u64,
    /// Bytes on disk; 0 when the backend cannot tell.
    pub bytes: u64,
}

/// A store behind a shared pointer, as every caller holds it.
pub type Shared = Arc<dyn Store>;

/// The time of a store that has none of its own: the engine's clock, or a test's hand.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;
