//! Finding the program, and saying why it cannot be started.
//!
//! Called by whoever builds a [`Spec`](super::Spec). It never starts anything and never reads this process's own
//! environment, except `HOME` for the hint.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{Access, access};

/// Why a program was not started. Nothing runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unstartable {
    /// The command has no words.
    #[error("start a command without words")]
    Empty,
    /// No such file, here or in the path.
    #[error("start `{}`: {}", program.display(), missing(program, path, elsewhere.as_deref()))]
    NotFound {
        /// What the user wrote, with the folder that it starts at when it was written with a slash.
        program: OsString,
        /// The PATH that was searched; empty when the program was written with a slash.
        path: OsString,
        /// Where a program of that name is, outside that PATH.
        elsewhere: Option<PathBuf>,
    },
    /// The file is there and may not be executed.
    #[error("start `{}`: the file is not executable; run `chmod +x` on it or name its interpreter", program.display())]
    NotExecutable {
        /// The file.
        program: PathBuf,
    },
    /// A directory is there.
    #[error("start `{}`: it is a directory, not a program", program.display())]
    Directory {
        /// The directory.
        program: PathBuf,
    },
    /// The directory to run in is not there.
    #[error("start `{}`: the directory `{}` does not exist", program.display(), cwd.display())]
    NoDirectory {
        /// The program.
        program: PathBuf,
        /// The directory.
        cwd: PathBuf,
    },
    /// An argument, a variable or a name holds a NUL byte, which no process can be given.
    #[error("start `{}`: {what} holds a NUL byte", program.display())]
    Nul {
        /// The program.
        program: PathBuf,
        /// Which: `an argument`, `a variable`, `a path`.
        what: &'static str,
    },
    /// Arguments and environment are too large together.
    #[error("start `{}`: arguments and environment have {bytes} bytes, and {max} is the most", program.display())]
    TooLarge {
        /// The program.
        program: PathBuf,
        /// How large they are.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The kernel refused to execute it: a missing interpreter, a wrong architecture, no more processes.
    #[error("start `{}`: refused by the system; check its first line and its architecture", program.display())]
    Refused {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The attempt's record could not be written, as on a full disk.
    #[error("start `{}`: cannot write to `{}`", program.display(), spool.display())]
    Spool {
        /// The program.
        program: PathBuf,
        /// The directory.
        spool: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The shim could not be started or fed.
    #[error("start the shim `{}`", program.display())]
    Shim {
        /// The shim's program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The shim did not answer.
    #[error("start the shim `{}`: no answer within {} s", program.display(), after.as_secs())]
    ShimSilent {
        /// The shim's program.
        program: PathBuf,
        /// How long it had.
        after: Duration,
    },
}

fn missing(program: &OsStr, path: &OsStr, elsewhere: Option<&Path>) -> String {
    if program.as_bytes().contains(&b'/') {
        return "there is no such file".to_owned();
    }
    let hint = match elsewhere {
        Some(found) => format!(
            "there is `{}`: write the full path, or add its directory to PATH",
            found.display()
        ),
        None => "install it, write the full path, or add its directory to PATH".to_owned(),
    };
    format!("not found in PATH `{}`; {hint}", path.display())
}

/// Finds the program: as it is when it holds a slash (relative to `cwd`), else the first executable file of that
/// name in `path`, a list as in `PATH`. An empty element of the list is skipped: it would mean the current
/// directory.
///
/// # Errors
/// [`Unstartable::Empty`], [`Unstartable::NotFound`], [`Unstartable::Directory`] or
/// [`Unstartable::NotExecutable`].
pub fn resolve(program: &OsStr, path: &OsStr, cwd: &Path) -> Result<PathBuf, Unstartable> {
    if program.is_empty() {
        return Err(Unstartable::Empty);
    }
    if program.as_bytes().contains(&b'/') {
        // `./x` reads better without its dot.
        let file: PathBuf = cwd.join(program).components().collect();
        return check(&file).unwrap_or_else(|| {
            Err(Unstartable::NotFound {
                program: file.into(),
                path: OsString::new(),
                elsewhere: None,
            })
        });
    }
    let mut refused = None;
    for directory in std::env::split_paths(path).filter(|directory| !directory.as_os_str().is_empty()) {
        match check(&cwd.join(directory).join(program)) {
            Some(Ok(found)) => return Ok(found),
            Some(Err(error)) => refused = refused.or(Some(error)),
            None => {}
        }
    }
    Err(refused.unwrap_or_else(|| Unstartable::NotFound {
        program: program.into(),
        path: path.into(),
        elsewhere: elsewhere(program),
    }))
}

/// `None`: no such file.
pub(super) fn check(file: &Path) -> Option<Result<PathBuf, Unstartable>> {
    let metadata = file.metadata().ok()?;
    if metadata.is_file() && access(file, Access::EXEC_OK).is_ok() {
        Some(Ok(file.to_owned()))
    } else if metadata.is_dir() {
        Some(Err(Unstartable::Directory {
            program: file.to_owned(),
        }))
    } else {
        Some(Err(Unstartable::NotExecutable {
            program: file.to_owned(),
        }))
    }
}

/// Clients that are started from a desktop often pass a bare PATH; these are where package managers put things.
fn elsewhere(program: &OsStr) -> Option<PathBuf> {
    const IN_HOME: [&str; 7] = [
        ".local/bin",
        ".cargo/bin",
        ".volta/bin",
        ".bun/bin",
        ".deno/bin",
        ".asdf/shims",
        ".local/share/mise/shims",
    ];
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let fixed = [
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/opt/homebrew/bin",
        "/snap/bin",
    ]
    .map(PathBuf::from);
    let in_home = home
        .iter()
        .flat_map(|home| IN_HOME.map(|directory| home.join(directory)));
    let in_nvm = home.iter().flat_map(|home| {
        let versions = home
            .join(".nvm/versions/node")
            .read_dir()
            .into_iter()
            .flatten()
            .take(100);
        versions.flatten().map(|version| version.path().join("bin"))
    });
    fixed
        .into_iter()
        .chain(in_home)
        .chain(in_nvm)
        .map(|directory| directory.join(program))
        .find(|file| matches!(check(file), Some(Ok(_))))
}
