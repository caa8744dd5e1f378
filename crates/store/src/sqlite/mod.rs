//! One file on one machine: a writer thread that owns the only writing connection, and a few readers.
//!
//! Judges run on the writer thread, up to [`BATCH_MAX`] in one transaction, a savepoint each, and all are
//! answered after its one commit. Several processes may share the file: they take turns at
//! `BEGIN IMMEDIATE`.
//!
//! Called by the engine through [`Store`]. It never answers a write before its commit is on the disk.

mod connection;
mod read;
mod reserve;
mod runners;
mod wal;
mod write;
mod writer;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use futures_core::future::BoxFuture;
use longhaul_core::{RunnerId, StepId, TaskId};

use crate::{
    AuditRow, Beat, Clock, Committed, Error, Found, Judge, Query, Record, RecordKind, Runner, Scope, Stats,
    Store,
    crypt::{KeyRing, Vault},
};

pub use writer::BATCH_MAX;

/// Where the database is and how it is opened.
pub struct Options {
    /// The state directory: `longhaul.db` and `runners/` are in it. Made with mode 0700 when it is not there.
    pub directory: PathBuf,
    /// The master keys, from [`KeyRing::open`] on `keys/`.
    pub keys: KeyRing,
    /// The store's time.
    pub clock: Clock,
    /// Open the database even on a network file system, where locks may not hold.
    pub allow_network_file_system: bool,
}

/// A store in an SQLite file.
pub struct Sqlite {
    writer: writer::Writer,
    readers: Arc<read::Readers>,
    runners: Arc<Mutex<runners::Locks>>,
    vault: Arc<Vault>,
    clock: Clock,
    reserve: reserve::Reserve,
}

impl Sqlite {
    /// Opens the database, or makes it, and brings its schema up to date.
    ///
    /// # Errors
    /// [`crate::Fault::Newer`] for a database of a newer program, [`crate::Fault::Refused`] on a network file
    /// system, [`crate::Fault::Full`], [`crate::Fault::Unavailable`] when another process holds it for too
    /// long, and [`crate::Fault::Broken`] for anything else.
    pub fn open(options: Options) -> Result<Sqlite, Error> {
        let path = connection::prepare(&options)?;
        let writing = connection::open(&path)?;
        connection::migrate(&writing)?;
        let wal = wal::Wal::new(&writing, &path)?;
        let vault = Arc::new(Vault::new(options.keys));
        let reserve = reserve::Reserve::new(&options.directory);
        reserve.keep();
        Ok(Sqlite {
            writer: writer::Writer::start(writing, wal)?,
            readers: Arc::new(read::Readers::new(path)),
            runners: Arc::new(Mutex::new(runners::Locks::new(options.directory.join("runners")))),
            vault,
            clock: options.clock,
            reserve,
        })
    }
}

impl Store for Sqlite {
    fn transact(&self, id: StepId, scope: Scope, judge: Judge) -> BoxFuture<'_, Result<Committed, Error>> {
        let step = write::StepWork::new(id, scope, judge, self.vault.clone(), self.clock.clone());
        Box::pin(self.writer.run(step))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Found, Error>> {
        let (vault, clock) = (self.vault.clone(), self.clock.clone());
        match query {
            Query::Task(_) | Query::Named { .. } => {
                let readers = self.readers.clone();
                Box::pin(
                    async move { readers.here(|connection| read::find(connection, &vault, &query, clock())) },
                )
            }
            Query::List(_) | Query::Claimable(_) | Query::Due { .. } | Query::HeldBy { .. } => self
                .readers
                .run(move |connection| read::find(connection, &vault, &query, clock())),
        }
    }

    fn records(&self, kind: RecordKind, tenant: String) -> BoxFuture<'_, Result<Vec<Record>, Error>> {
        let (vault, now) = (self.vault.clone(), (self.clock)());
        self.readers
            .run(move |connection| read::records(connection, &vault, kind, &tenant, now))
    }

    fn watch(&self, ids: Vec<TaskId>) -> BoxFuture<'_, Result<BTreeMap<TaskId, u64>, Error>> {
        self.readers.watch(ids)
    }

    fn beat(&self, runner: Runner) -> BoxFuture<'_, Result<Beat, Error>> {
        let beat = runners::beat(runner, self.runners.clone(), self.clock.clone());
        Box::pin(self.writer.run(beat))
    }

    fn forget_runner(&self, runner: RunnerId) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.writer.run(runners::forget(runner, self.runners.clone())))
    }

    fn purge(&self, limit: u32) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            let purged = self.writer.run(write::purge(limit, self.clock.clone())).await;
            self.reserve.keep();
            purged
        })
    }

    fn give_up_reserve(&self) -> bool {
        self.reserve.give_up()
    }

    fn audit(&self, after: u64, limit: u32) -> BoxFuture<'_, Result<Vec<AuditRow>, Error>> {
        self.readers
            .run(move |connection| read::audit(connection, after, limit))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, Error>> {
        self.readers.run(read::stats)
    }
}
