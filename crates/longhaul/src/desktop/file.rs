//! Reads and writes a client's file: whole or not at all, in its place, with its mode and owner.

use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

/// The longest file that is read.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A file as it was read.
#[derive(Debug)]
pub(crate) struct Original {
    /// Where it is, past symbolic links.
    pub(crate) path: PathBuf,
    /// `None` when there is none yet.
    pub(crate) text: Option<String>,
    mode: u32,
    owner: Option<(u32, u32)>,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    #[error("it is a link to `{}`, which is not there", .0.display())]
    Dangling(PathBuf),
    #[error("it has {0} bytes, more than the {BYTES_MAX} that are read")]
    TooLong(u64),
    #[error("it is not UTF-8 after byte {0}")]
    NotText(usize),
    #[error("it is read-only")]
    ReadOnly,
    #[error("it has {0} names (hard links), and would keep its text under the others")]
    Names(u64),
    #[error("it was changed meanwhile; run the command again")]
    Changed,
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Original {
    /// Reads a file. One that is not there has no text.
    ///
    /// # Errors
    /// When it is something that is not read.
    pub(crate) fn read(path: &Path) -> Result<Original, Unusable> {
        let path = resolved(path)?;
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Original {
                    path,
                    text: None,
                    mode: 0o600,
                    owner: None,
                });
            }
            Err(error) => return Err(error.into()),
        };
        if !found.is_file() {
            let kind = if found.is_dir() {
                "a folder"
            } else {
                "a pipe or device"
            };
            return Err(Unusable::NotAFile(kind));
        }
        if found.len() > BYTES_MAX {
            return Err(Unusable::TooLong(found.len()));
        }
        let mut bytes = Vec::new();
        // Never waits, should it have become a pipe meanwhile.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path)?;
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| Unusable::NotText(error.utf8_error().valid_up_to()))?;
        Ok(Original {
            path,
            text: Some(text),
            mode: found.mode() & 0o7777,
            owner: Some((found.uid(), found.gid())),
        })
    }

    /// Puts another text in its place, unless somebody changed it since it was read.
    ///
    /// # Errors
    /// When that cannot be done; the file is then as it was.
    pub(crate) fn write(&self, text: &str) -> Result<(), Unusable> {
        if self.text.is_some() {
            let found = fs::metadata(&self.path)?;
            if found.mode() & 0o222 == 0 {
                return Err(Unusable::ReadOnly);
            }
            if nix::unistd::access(&self.path, nix::unistd::AccessFlags::W_OK).is_err() {
                return Err(Unusable::ReadOnly);
            }
            if found.nlink() > 1 {
                return Err(Unusable::Names(found.nlink()));
            }
        }
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let mut new = tempfile::Builder::new()
            .prefix(".longhaul-")
            .tempfile_in(folder)?;
        new.write_all(text.as_bytes())?;
        if let Some((uid, gid)) = self.owner {
            let made = new.as_file().metadata()?;
            if (made.uid(), made.gid()) != (uid, gid) {
                fchown(new.as_file(), Some(uid), Some(gid))?;
            }
        }
        new.as_file()
            .set_permissions(fs::Permissions::from_mode(self.mode))?;
        new.as_file().sync_all()?;
        if Original::read(&self.path)?.text != self.text {
            return Err(Unusable::Changed);
        }
        new.persist(&self.path).map_err(|error| error.error)?;
        // The rename is what must last.
        fs::File::open(folder)?.sync_all()?;
        Ok(())
    }

    /// Takes the file away, unless somebody changed it since it was read.
    ///
    /// # Errors
    /// When that cannot be done.
    pub(crate) fn remove(&self) -> Result<(), Unusable> {
        if Original::read(&self.path)?.text != self.text {
            return Err(Unusable::Changed);
        }
        Ok(fs::remove_file(&self.path)?)
    }
}

/// Where a file is, past symbolic links: so that a link stays one.
fn resolved(path: &Path) -> Result<PathBuf, Unusable> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Ok(target) = fs::read_link(path) {
                return Err(Unusable::Dangling(target));
            }
            let path = std::path::absolute(path)?;
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(Unusable::NotAFile("a folder"));
            };
            Ok(folder.canonicalize()?.join(name))
        }
        Err(error) => Err(error.into()),
    }
}
