//! The files of a configuration: read, trusted or not, and joined into one table.
//!
//! Called by `config`. Whether the file system is read is for the caller to say: files are opened through a function.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{
    FILE_BYTES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, Writable, client_file,
    node::{self, Data, Node, Table},
    problem::{At, Problems},
    setting::Value as _,
    writable,
};

/// A file's text and Unix mode.
#[derive(Clone, Debug)]
pub struct Source {
    /// The text.
    pub text: String,
    /// The mode.
    pub mode: u32,
}

/// Reads a regular file. A FIFO or a device is never opened for long: it could make the reader wait for ever.
pub(super) fn open(path: &Path) -> io::Result<Source> {
    use std::{
        io::Read,
        os::unix::fs::{OpenOptionsExt, PermissionsExt},
    };
    let regular = |metadata: &std::fs::Metadata| {
        if metadata.is_dir() {
            Err(io::Error::from(io::ErrorKind::IsADirectory))
        } else if metadata.is_file() {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    };
    regular(&std::fs::metadata(path)?)?;
    // Another file may stand there by now.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    let mut text = String::new();
    if file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)? as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 MiB"));
    }
    Ok(Source {
        text,
        mode: metadata.permissions().mode(),
    })
}

/// What reading the files brought besides their tables.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) problems: Problems,
    pub(super) warnings: Problems,
    pub(super) files: Vec<PathBuf>,
}

impl Gathered {
    /// The table of one file joined with what it includes.
    pub(super) fn file(
        &mut self,
        path: &Path,
        named: &At,
        depth: usize,
        open: &dyn Fn(&Path) -> io::Result<Source>,
    ) -> Table {
        let shown = path.display().to_string();
        if self.files.iter().any(|file| file == path) {
            self.problems.add(named, format!("`{shown}` is included twice"));
            return Table::new();
        }
        if depth > INCLUDE_DEPTH_MAX || self.files.len() >= FILES_MAX {
            self.problems.add(
                named,
                format!("too many files: at most {FILES_MAX}, nested {INCLUDE_DEPTH_MAX} deep"),
            );
            return Table::new();
        }
        let source = match open(path) {
            Ok(source) => source,
            Err(error) => {
                self.problems
                    .add(named, format!("cannot read `{shown}`: {error}"));
                return Table::new();
            }
        };
        self.files.push(path.to_owned());
        self.mode(path, source.mode);
        let mut table = match client_file::is_one(path) {
            true => client_file::parse(&shown, &source.text, &mut self.problems, &mut self.warnings),
            false => node::parse(&shown, &source.text, &mut self.problems),
        };
        if let Some((_, includes)) = table.remove("include") {
            self.include(&includes, &mut table, depth, open);
        }
        table
    }

    /// S6
    fn mode(&mut self, path: &Path, mode: u32) {
        let at = At::whole(&path.display().to_string());
        let fix = |who| format!("`chmod {who}-w {}`", path.display());
        match writable(mode) {
            Writable::Owner => {}
            Writable::Group => {
                self.warnings.add(
                    &at,
                    format!(
                        "its group can write this file, and so start any program; {}",
                        fix("g")
                    ),
                );
            }
            Writable::World => self.problems.add(
                &at,
                format!(
                    "everybody can write this file, and so start any program as you; {}",
                    fix("o")
                ),
            ),
        }
    }

    fn include(
        &mut self,
        includes: &Node,
        table: &mut Table,
        depth: usize,
        open: &dyn Fn(&Path) -> io::Result<Source>,
    ) {
        let names = match Vec::<PathBuf>::read(includes, &mut self.problems) {
            Ok(names) => names,
            Err(_) => {
                self.problems.add(
                    &includes.at,
                    format!("`include` must be a list of paths, not {}", includes.what()),
                );
                return;
            }
        };
        for name in names {
            let included = self.file(&name, &includes.at, depth + 1, open);
            join(table, included, "", &mut self.problems);
        }
    }
}

/// Adds the keys of `more`. A key that both have is a problem, unless both are tables.
fn join(table: &mut Table, more: Table, section: &str, problems: &mut Problems) {
    for (key, (at, node)) in more {
        let name = if section.is_empty() {
            key.clone()
        } else {
            format!("{section}.{key}")
        };
        match (table.get_mut(&key), node.data) {
            // A tool or a server is declared in one place.
            (
                Some((
                    _,
                    Node {
                        data: Data::Table(first),
                        ..
                    },
                )),
                Data::Table(more),
            ) if section.is_empty() => {
                join(first, more, &name, problems);
            }
            (Some((first, _)), _) => problems.add(&at, format!("`{name}` is set before at {first}")),
            (None, data) => {
                table.insert(key, (at, Node { at: node.at, data }));
            }
        }
    }
}
