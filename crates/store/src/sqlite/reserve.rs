//! Space that is held back on the disk, so that a cancel can still be written when the disk is full.
//!
//! Made when the database is opened and again by each purge while it is missing; given up once, when asked for. It
//! never holds data.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::FallocateFlags;

/// How much is held back, in bytes.
const BYTES_MAX: u64 = 4 << 20;
/// On a small disk less is held back: this part of what is free.
const PART_OF_FREE: u64 = 8;
/// Less than this helps nobody, in bytes.
const BYTES_MIN: u64 = 64 << 10;

/// The file that holds the space.
pub(super) struct Reserve {
    path: PathBuf,
    // One at a time makes it or gives it up.
    turn: Mutex<()>,
}

impl Reserve {
    pub(super) fn new(directory: &Path) -> Reserve {
        Reserve {
            path: directory.join("reserve"),
            turn: Mutex::default(),
        }
    }

    /// Holds space back, when there is some and none is held yet. That there is none is no failure.
    pub(super) fn keep(&self) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if fs::metadata(&self.path).is_ok_and(|found| found.len() > 0) {
            return;
        }
        let bytes = self.free().map_or(0, |free| (free / PART_OF_FREE).min(BYTES_MAX));
        if bytes < BYTES_MIN {
            return;
        }
        if let Err(error) = self.fill(bytes) {
            let _ = fs::remove_file(&self.path);
            tracing::debug!(%error, "no space is held back for cancels");
        }
    }

    /// Gives the space up. Whether there was any.
    pub(super) fn give_up(&self) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let given = fs::remove_file(&self.path).is_ok();
        if given {
            tracing::warn!("the disk is full; the space that was held back for cancels is given up");
        }
        given
    }

    fn free(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(self.path.parent().unwrap_or(&self.path))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Takes the blocks without writing them; a file with holes would take none.
    fn fill(&self, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        Ok(())
    }
}
