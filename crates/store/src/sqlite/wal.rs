//! Keeps commits from making the write-ahead log's file longer.
//!
//! To sync a file that has become longer costs a commit of the file system's own journal: 4 ms where writing over
//! what is there takes 0.1 ms. So the file is made longer in steps, ahead of what is written, and is written over
//! from its start after each checkpoint. Checkpoints are made here, after the callers have their replies.
//!
//! Called by the writer thread, between transactions. It changes nothing that SQLite reads: past the last frame
//! there may be anything.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::connection::{execute, failed};
use crate::Error;

/// How many frames the log has when it is written back to the database: about 16 MiB.
const CHECKPOINT_FRAMES: u64 = 4_000;
/// How many frames later it is tried again where a reader was in the way.
const AGAIN_FRAMES: u64 = 1_000;
/// How many frames make a transaction that is larger than the page cache (2 MB).
const LARGE_FRAMES: u64 = 512;
/// How much longer the file is made at a time, in bytes.
const STEP: u64 = 4 * 1024 * 1024;
/// How much room there is to be past the last frame, in bytes: more than a transaction is likely to need.
const ROOM: u64 = 1024 * 1024;
/// The longest that the file is made ahead of what is written, in bytes.
const AHEAD_MAX: u64 = 64 * 1024 * 1024;
/// Where less of the disk is free, in bytes, the file is not made longer: commits, and what is held back for cancels,
/// come first.
const FREE_MIN: u64 = 256 * 1024 * 1024;
/// The file's header and the header of a frame, in bytes.
const HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// The log of one database.
pub(super) struct Wal {
    path: PathBuf,
    frame: u64,
    /// At how many frames the next checkpoint is due.
    due: u64,
    /// How many frames there were after the last transaction.
    seen: u64,
}

impl Wal {
    /// The log of the database at `path`, whose checkpoints are made by [`Wal::committed`] from now on.
    pub(super) fn new(connection: &Connection, path: &Path) -> Result<Wal, Error> {
        let doing = |cause| failed("set up the write-ahead log", cause);
        let page: i64 = connection
            .query_row("PRAGMA page_size", [], |row| row.get(0))
            .map_err(doing)?;
        connection
            .execute_batch("PRAGMA wal_autocheckpoint = 0")
            .map_err(doing)?;
        let mut path = path.as_os_str().to_owned();
        path.push("-wal");
        let mut wal = Wal {
            path: path.into(),
            frame: FRAME_HEADER + u64::try_from(page).unwrap_or(4096),
            due: CHECKPOINT_FRAMES,
            seen: 0,
        };
        wal.committed(connection);
        Ok(wal)
    }

    /// Makes room for the next transactions. What fails here is tried again after a later one, and costs time only.
    pub(super) fn committed(&mut self, connection: &Connection) {
        if let Err(error) = self.try_committed(connection) {
            tracing::debug!(%error, "could not look after the write-ahead log");
        }
    }

    fn try_committed(&mut self, connection: &Connection) -> Result<(), Error> {
        let mut frames = checkpoint(connection, "PRAGMA wal_checkpoint(NOOP)")?;
        let written = frames.checked_sub(self.seen).unwrap_or(frames);
        self.seen = frames;
        if written >= LARGE_FRAMES {
            // Nothing else is in the page cache any more, and a large body is not written again.
            let released = connection.release_memory();
            released.map_err(|cause| failed("empty the page cache", cause))?;
        }
        if frames < self.due && self.due > CHECKPOINT_FRAMES {
            // The log began anew.
            self.due = CHECKPOINT_FRAMES;
        }
        if frames >= self.due {
            frames = checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
            self.due = frames + AGAIN_FRAMES;
        }
        let needed = HEADER + frames * self.frame + ROOM;
        if needed > AHEAD_MAX || needed <= self.length() || self.free() < FREE_MIN {
            return Ok(());
        }
        // Nobody else writes to the log under this lock.
        execute(connection, "BEGIN IMMEDIATE", &[])?;
        let lengthened = self.lengthen();
        execute(connection, "ROLLBACK", &[])?;
        lengthened.map_err(|cause| Error::broken("make the write-ahead log longer").caused_by(cause))
    }

    fn free(&self) -> u64 {
        rustix::fs::statvfs(&self.path).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(u64::MAX, |metadata| metadata.len())
    }

    fn lengthen(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        let length = file.metadata()?.len();
        let zeros = vec![0; 64 * 1024];
        let mut at = length;
        while at < length + STEP {
            file.write_all_at(&zeros, at)?;
            at += zeros.len() as u64;
        }
        file.sync_all()
    }
}

/// How many frames the log has after this.
fn checkpoint(connection: &Connection, sql: &str) -> Result<u64, Error> {
    let doing = |cause| failed("check the write-ahead log", cause);
    let mut statement = connection.prepare_cached(sql).map_err(doing)?;
    let frames: i64 = statement.query_row([], |row| row.get(1)).map_err(doing)?;
    Ok(u64::try_from(frames).unwrap_or(0))
}
