//! One database that many replicas share.
//!
//! A step takes two round trips: one that begins, locks and reads, and one that writes and commits. Locks come in
//! one order: advisory locks ascending (counters, records, the owner's births), then the task's row. Time is the
//! database's, so replicas with different clocks agree.
//!
//! Called by the engine through [`Store`]. It judges again only when the database says so, or when a connection
//! was lost and the step is not found in the audit. Connections are not encrypted yet: a socket, or a network
//! that is trusted.

mod connection;
mod read;
mod runners;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use deadpool_postgres::Pool;
use futures_core::future::BoxFuture;
use longhaul_core::{RunnerId, StepId, TaskId};
use tokio::sync::Semaphore;

use crate::{
    AuditRow, Beat, Committed, Error, Found, Judge, Query, Record, RecordKind, Runner, Scope, Slot, Stats,
    Store,
    crypt::{KeyRing, Vault},
};

/// Where the database is and how it is used.
pub struct Options {
    /// A connection string, `postgresql://…` or `host=… dbname=…`.
    pub url: String,
    /// The master keys.
    pub keys: KeyRing,
    /// The most connections, at least 2.
    pub connections_max: usize,
    /// Work even with `fsync`, `full_page_writes` or `synchronous_commit` off, where the loss of power loses
    /// acknowledged tasks.
    pub allow_unsafe_settings: bool,
}

/// A store in PostgreSQL.
pub struct Postgres {
    pool: Pool,
    vault: Arc<Vault>,
    registered: Mutex<BTreeSet<RunnerId>>,
    /// Turns of births. Those of one owner wait for each other inside the database, each on a connection; half of the
    /// connections stay for cancels, answers, reports and reads (S21).
    births: Semaphore,
}

impl Postgres {
    /// Connects and brings the schema up to date.
    ///
    /// # Errors
    /// [`crate::Fault::Newer`] for a database of a newer program, [`crate::Fault::Refused`] for an unsafe setting
    /// or a connection string that cannot be read, [`crate::Fault::Unavailable`] when the server does not answer,
    /// and [`crate::Fault::Broken`] for anything else.
    pub async fn connect(options: Options) -> Result<Postgres, Error> {
        let pool = connection::pool(&options)?;
        let births = Semaphore::new((options.connections_max / 2).max(1));
        connection::check(&pool, options.allow_unsafe_settings).await?;
        connection::migrate(&pool).await?;
        Ok(Postgres {
            pool,
            vault: Arc::new(Vault::new(options.keys)),
            registered: Mutex::default(),
            births,
        })
    }
}

impl Store for Postgres {
    fn transact(&self, id: StepId, scope: Scope, judge: Judge) -> BoxFuture<'_, Result<Committed, Error>> {
        Box::pin(async move {
            let _turn = match &scope.task {
                Slot::Birth { .. } => Some(self.births.acquire().await.expect("it is never closed")),
                Slot::None | Slot::Task(_) => None,
            };
            write::transact(&self.pool, &self.vault, id, scope, judge).await
        })
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Found, Error>> {
        Box::pin(async move { read::find(&self.pool, &self.vault, &query).await })
    }

    fn records(&self, kind: RecordKind, tenant: String) -> BoxFuture<'_, Result<Vec<Record>, Error>> {
        Box::pin(async move { read::records(&self.pool, &self.vault, kind, &tenant).await })
    }

    fn watch(&self, ids: Vec<TaskId>) -> BoxFuture<'_, Result<BTreeMap<TaskId, u64>, Error>> {
        Box::pin(read::watch(&self.pool, ids))
    }

    fn beat(&self, runner: Runner) -> BoxFuture<'_, Result<Beat, Error>> {
        Box::pin(runners::beat(&self.pool, &self.registered, runner))
    }

    fn forget_runner(&self, runner: RunnerId) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(runners::forget(&self.pool, runner))
    }

    fn purge(&self, limit: u32) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(write::purge(&self.pool, limit))
    }

    fn audit(&self, after: u64, limit: u32) -> BoxFuture<'_, Result<Vec<AuditRow>, Error>> {
        Box::pin(read::audit(&self.pool, after, limit))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats, Error>> {
        Box::pin(read::stats(&self.pool))
    }
}
