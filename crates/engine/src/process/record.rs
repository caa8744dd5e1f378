//! What is still known of an attempt when both the runner and its shim were killed.
//!
//! One small file for each attempt, in the runner's spool. The keeper makes it before the shim starts and removes
//! it when nothing of the attempt is left; the shim adds to it before it starts the command and when its tree is
//! empty; the sweep of a later process reads it. So an attempt without a file never began or is over, and one that
//! began and is not gone may still live.
//! Nothing is synced: after a loss of power no process is left to be told of.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// What the shim adds before it starts the command.
const BEGUN: &[u8] = b"begun\n";
/// What the shim adds when nothing is left.
const GONE: &[u8] = b"gone\n";
/// How the file's name ends.
const EXTENSION: &str = "run";
/// How the name of a dead runner's spool ends.
const DEAD: &str = "dead";

/// The file of one attempt, seen by the keeper.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
}

impl Record {
    /// Makes the file, and returns the shim's handle of it.
    pub(super) fn make(spool: &Path, mark: &str) -> io::Result<(Record, File)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = spool.join(format!("{}-{count}.{EXTENSION}", std::process::id()));
        let mut file = File::options()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let record = Record { path };
        let mut line = serde_json::to_vec(mark)?;
        line.push(b'\n');
        match file.write_all(&line) {
            Ok(()) => Ok((record, file)),
            Err(error) => {
                record.remove();
                Err(error)
            }
        }
    }

    /// Nothing of the attempt is left.
    pub(super) fn remove(&self) {
        // A spool that was closed keeps it, until it is forgotten with the rest.
        let _closed = fs::remove_file(&self.path);
    }

    /// The shim started the command, or was about to; also when the file cannot be read.
    pub(super) fn has_begun(&self) -> bool {
        fs::read(&self.path).map_or(true, |text| text.ends_with(BEGUN) || text.ends_with(GONE))
    }

    /// The shim found its tree empty.
    pub(super) fn is_gone(&self) -> bool {
        fs::read(&self.path).is_ok_and(|text| text.ends_with(GONE))
    }
}

/// The shim's word that it starts the command next.
///
/// # Errors
/// When it cannot be written, as on a full disk: then nothing may be started.
pub(super) fn set_begun(mut record: &File) -> io::Result<()> {
    record.write_all(BEGUN)
}

/// The shim's word that nothing is left.
pub(super) fn set_gone(mut record: &File) {
    // A full disk leaves the attempt unconfirmed, which is the safe side.
    let _full = record.write_all(GONE);
}

/// Closes a dead runner's spool, so that a runner that only seemed dead starts nothing more there. Returns where
/// it is now; `None` when there is no such spool on this machine.
pub(super) fn close(spool: &Path) -> Option<PathBuf> {
    let closed = spool.with_extension(DEAD);
    match fs::rename(spool, &closed) {
        Ok(()) => Some(closed),
        // It was closed before, perhaps by another.
        Err(_) => closed.is_dir().then_some(closed),
    }
}

/// Deletes the spool of a runner that is settled.
pub(super) fn forget(spool: &Path) -> io::Result<()> {
    for directory in [spool, &spool.with_extension(DEAD)] {
        match fs::remove_dir_all(directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The marks of the attempts that may still live.
///
/// # Errors
/// When a file cannot be read or makes no sense: then nothing is known of any attempt.
pub(super) fn unsure(closed: &Path) -> io::Result<BTreeSet<String>> {
    let mut unsure = BTreeSet::new();
    for entry in fs::read_dir(closed)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let text = match fs::read(&path) {
            Ok(text) => text,
            // A runner that only seemed dead removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if !text.ends_with(BEGUN) {
            continue;
        }
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        unsure.insert(serde_json::from_slice(line)?);
    }
    Ok(unsure)
}
