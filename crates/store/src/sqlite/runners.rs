//! Who runs work on this file, and who is dead.
//!
//! Each process holds a lock on a file of its own in `runners/`; the kernel lets go of it when the process ends,
//! however it ends. A runner is dead when another can take its lock, at once and without a clock.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use longhaul_core::{RunnerId, fault};
use rusqlite::Connection;

use super::{
    connection::{all, execute},
    read,
    writer::{Closure, Work},
};
use crate::{
    Beat, Clock, Error, Runner,
    layout::{self, Cell},
};

/// The lock files that this process holds.
pub(super) struct Locks {
    directory: PathBuf,
    held: BTreeMap<RunnerId, File>,
}

impl Locks {
    pub(super) fn new(directory: PathBuf) -> Locks {
        Locks {
            directory,
            held: BTreeMap::new(),
        }
    }

    fn path(&self, runner: RunnerId) -> PathBuf {
        self.directory.join(format!("{runner}.lock"))
    }

    /// Takes the lock of a runner of this process. `false`: somebody else holds it.
    fn hold(&mut self, runner: RunnerId) -> Result<bool, Error> {
        let failed = |cause| Error::broken("lock a runner's file").caused_by(cause);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.path(runner))
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => drop(self.held.insert(runner, file)),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(cause)) => return Err(failed(cause)),
        }
        Ok(true)
    }

    /// Whether the lock of another process's runner can be taken.
    fn is_dead(&self, runner: RunnerId) -> Result<bool, Error> {
        let failed = |cause| Error::broken("look at a runner's lock").caused_by(cause);
        if self.held.contains_key(&runner) {
            return Ok(false);
        }
        let file = match File::open(self.path(runner)) {
            Ok(file) => file,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(cause) => return Err(failed(cause)),
        };
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }
}

/// Registers or renews `runner`, and declares dead whoever is.
pub(super) fn beat(runner: Runner, locks: Arc<Mutex<Locks>>, clock: Clock) -> impl Work<Reply = Beat> {
    Closure(move |connection: &Connection| {
        let mut locks = locks.lock().unwrap_or_else(PoisonError::into_inner);
        let (wrote, fenced) = register(connection, &mut locks, &runner)?;
        let mut wrote = wrote;
        let mut dead = Vec::new();
        let sql = "SELECT id, host, boot, pid, pid_start, fenced FROM runners WHERE id <> ?1 ORDER BY id";
        for row in all(connection, sql, &[id(runner.id)])? {
            let (other, already) = layout::runner(row)?;
            if already {
                dead.push(other);
            } else if locks.is_dead(other.id)? {
                execute(
                    connection,
                    "UPDATE runners SET fenced = 1 WHERE id = ?1",
                    &[id(other.id)],
                )?;
                wrote = true;
                dead.push(other);
            }
        }
        Ok((
            wrote,
            Beat {
                now: clock(),
                fenced,
                dead,
            },
        ))
    })
}

/// Returns whether something was written and whether the runner is fenced.
fn register(connection: &Connection, locks: &mut Locks, runner: &Runner) -> Result<(bool, bool), Error> {
    let known = all(
        connection,
        "SELECT fenced FROM runners WHERE id = ?1",
        &[id(runner.id)],
    )?
    .pop();
    let known = known
        .map(|row| layout::Cells(row.into_iter()).int())
        .transpose()?;
    let held = locks.held.contains_key(&runner.id);
    match (known, held) {
        (Some(fenced), true) => Ok((false, fenced != 0 && !fault!("store-beat-ignores-fence"))),
        // It was registered by this process and is gone, or it belongs to another process.
        (None, true) | (Some(_), false) => Ok((false, true)),
        (None, false) => {
            // The lock comes first: a row without a lock is a dead runner.
            if !locks.hold(runner.id)? {
                return Ok((false, true));
            }
            let sql =
                "INSERT INTO runners (id, host, boot, pid, pid_start, fenced) VALUES (?1, ?2, ?3, ?4, ?5, 0)";
            execute(connection, sql, &layout::runner_cells(runner))?;
            Ok((true, false))
        }
    }
}

/// Removes a dead runner that holds nothing, with its file.
pub(super) fn forget(runner: RunnerId, locks: Arc<Mutex<Locks>>) -> impl Work<Reply = ()> {
    Closure(move |connection: &Connection| {
        let held = read::count(
            connection,
            "SELECT count(*) FROM tasks WHERE runner = ?1",
            &[id(runner)],
        )?;
        if held > 0 {
            return Ok((false, ()));
        }
        let gone = execute(
            connection,
            "DELETE FROM runners WHERE id = ?1 AND fenced = 1",
            &[id(runner)],
        )?;
        if gone > 0 {
            // A file that stays behind does no harm.
            let path = locks.lock().unwrap_or_else(PoisonError::into_inner).path(runner);
            let _ = fs::remove_file(path);
        }
        Ok((gone > 0, ()))
    })
}

fn id(runner: RunnerId) -> Cell {
    Cell::Blob(runner.0.to_vec())
}
