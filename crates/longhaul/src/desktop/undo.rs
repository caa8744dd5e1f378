//! What `install` did, kept in the state directory until `uninstall` takes it back.
//!
//! A record holds the file's text of before, which may hold secrets: it is the user's alone. One lock lets one command
//! change files and records at a time.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::back::Entry;

/// The folder in the state directory.
const FOLDER: &str = "install";

/// What was done to one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The client, by its name on the command line.
    pub(crate) client: String,
    /// The file, past symbolic links.
    pub(crate) file: PathBuf,
    /// Its text of before; `None` when `install` made it.
    pub(crate) original: Option<String>,
    /// Its text as `install` left it.
    pub(crate) written: String,
    /// The entries that `install` changed.
    pub(crate) entries: Vec<Entry>,
}

/// The records of this user, and the right to change them.
#[derive(Debug)]
pub(crate) struct Records {
    folder: PathBuf,
    records: Vec<(PathBuf, Record)>,
    _lock: Option<fs::File>,
}

impl Records {
    /// Opens them to change them. Another command that does is waited for; `waits` is called then.
    ///
    /// # Errors
    /// The system's, or of a record that cannot be read.
    pub(crate) fn open(state: &Path, waits: impl FnOnce()) -> io::Result<Records> {
        let folder = state.join(FOLDER);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let lock = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(folder.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                waits();
                lock.lock()?;
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        Ok(Records {
            records: read(&folder)?,
            folder,
            _lock: Some(lock),
        })
    }

    /// Looks at them, and makes nothing.
    ///
    /// # Errors
    /// The system's, or of a record that cannot be read.
    pub(crate) fn look(state: &Path) -> io::Result<Records> {
        let folder = state.join(FOLDER);
        Ok(Records {
            records: read(&folder)?,
            folder,
            _lock: None,
        })
    }

    pub(crate) fn of(&self, file: &Path) -> Option<&Record> {
        self.records
            .iter()
            .map(|(_, record)| record)
            .find(|record| record.file == file)
    }

    /// Those of a client.
    pub(crate) fn of_client<'a>(&'a self, client: &'a str) -> impl Iterator<Item = &'a Record> {
        self.records
            .iter()
            .map(|(_, record)| record)
            .filter(move |record| record.client == client)
    }

    /// Keeps a record, in the place of the one of the same file.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn keep(&mut self, record: Record) -> io::Result<()> {
        let known = self
            .records
            .iter()
            .position(|(_, known)| known.file == record.file);
        let path = match known {
            Some(at) => self.records[at].0.clone(),
            None => self.free(&record.client),
        };
        // The folder is the user's alone; the file, too, because it may hold secrets.
        let mut new = tempfile::Builder::new()
            .prefix(".record-")
            .tempfile_in(&self.folder)?;
        new.write_all(&serde_json::to_vec_pretty(&record)?)?;
        new.as_file().sync_all()?;
        new.persist(&path).map_err(|error| error.error)?;
        fs::File::open(&self.folder)?.sync_all()?;
        match known {
            Some(at) => self.records[at].1 = record,
            None => self.records.push((path, record)),
        }
        Ok(())
    }

    /// Forgets what was done to a file.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn forget(&mut self, file: &Path) -> io::Result<()> {
        let Some(at) = self.records.iter().position(|(_, record)| record.file == file) else {
            return Ok(());
        };
        fs::remove_file(&self.records[at].0)?;
        self.records.remove(at);
        Ok(())
    }

    fn free(&self, client: &str) -> PathBuf {
        let mut number = 1_u32;
        loop {
            let path = self.folder.join(format!("{client}-{number}.json"));
            if !path.exists() {
                return path;
            }
            number += 1;
        }
    }
}

fn read(folder: &Path) -> io::Result<Vec<(PathBuf, Record)>> {
    let files = match fs::read_dir(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for file in files {
        paths.push(file?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut records = Vec::new();
    for path in paths {
        let record = serde_json::from_slice(&fs::read(&path)?);
        let record = record.map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("cannot read `{}`: {error}", path.display()),
            )
        })?;
        records.push((path, record));
    }
    Ok(records)
}
