//! What stands elsewhere than in the configuration: `env:NAME`, `file:PATH` and `cmd:PROGRAM ARGUMENTS`; in the files of
//! MCP clients, their variables and nothing else.
//!
//! Looked up each time that a server is started or reached, so a token that was renewed is found. What was found is
//! handed on and not kept, and an error never holds it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use longhaul_engine::process::{self, Exit, Input, Limits, Lines, Reason, Spec};

use super::stdio::Host;
use crate::config;

/// The longest value that is read from elsewhere, in bytes.
const VALUE_MAX: u64 = 64 << 10;
/// How long a file may take to be read.
const FILE_TIME: Duration = Duration::from_secs(10);
/// How long a program may take to print a value.
const PROGRAM_TIME: Duration = Duration::from_secs(30);

/// Where values are looked up.
pub struct Elsewhere<'a> {
    /// The server's own environment.
    pub env: &'a [(OsString, OsString)],
    /// The folder at which relative paths start. Absolute.
    pub folder: &'a Path,
    /// What runs programs.
    pub host: &'a Host,
    /// The values are of a client's file, in which only variables stand for something.
    pub is_of_client: bool,
}

/// Why a value cannot be read. The message names where, and never what.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The variable is not there.
    #[error("the variable `{0}` is not set")]
    Unset(String),
    /// What an address is once its variables are replaced; it may hold a secret, so it is not repeated.
    #[error("its address is none, or has a name or a password in it, once its variables are replaced")]
    NoAddress,
    /// The file cannot be read.
    #[error("cannot read `{}`: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The program cannot be started.
    #[error("cannot start `{program}`: {cause}")]
    Unstartable {
        /// The program.
        program: String,
        /// Why.
        cause: process::Unstartable,
    },
    /// The program ended without a value.
    #[error("`{program}` {how}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        how: String,
    },
    /// It is larger than [`VALUE_MAX`], empty, or holds what no value may.
    #[error("what `{0}` holds is no value: one line of text, of at most 64 KiB")]
    NoValue(String),
}

impl Elsewhere<'_> {
    /// The value itself, or what it refers to.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub async fn value(&self, written: &str) -> Result<String, Unreadable> {
        if self.is_of_client {
            return self.text(written);
        }
        if let Some(name) = written.strip_prefix("env:") {
            return self.variable(name);
        }
        if let Some(path) = written.strip_prefix("file:") {
            return self.file(path).await;
        }
        match written.strip_prefix("cmd:") {
            Some(command) => self.printed(command).await,
            None => Ok(written.to_owned()),
        }
    }

    /// A text that is no secret: as it is written, but for the variables of a client's file.
    ///
    /// # Errors
    /// [`Unreadable::Unset`].
    pub fn text(&self, written: &str) -> Result<String, Unreadable> {
        if !self.is_of_client {
            return Ok(written.to_owned());
        }
        with_variables(written, self.folder, self.env).map_err(Unreadable::Unset)
    }

    fn variable(&self, name: &str) -> Result<String, Unreadable> {
        let value = variable(self.env, name).ok_or_else(|| Unreadable::Unset(name.to_owned()))?;
        one_line(value.as_encoded_bytes(), name)
    }

    async fn file(&self, path: &str) -> Result<String, Unreadable> {
        let path = self.folder.join(path);
        let file = path.clone();
        // A file system may hang: it holds up this server alone, and one thread.
        let read = tokio::time::timeout(FILE_TIME, tokio::task::spawn_blocking(move || contents(&file)));
        let bytes = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(io::ErrorKind::Interrupted.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let bytes = bytes.map_err(|cause| Unreadable::File {
            path: path.clone(),
            cause,
        })?;
        one_line(&bytes, &path.display().to_string())
    }

    async fn printed(&self, command: &str) -> Result<String, Unreadable> {
        let argv: Vec<OsString> = command.split_whitespace().map(OsString::from).collect();
        let program = command.split_whitespace().next().unwrap_or_default().to_owned();
        let unstartable = |cause| Unreadable::Unstartable {
            program: program.clone(),
            cause,
        };
        let path = variable(self.env, "PATH").unwrap_or_default();
        let spec = Spec {
            program: process::resolve(OsStr::new(&program), path, self.folder).map_err(unstartable)?,
            argv,
            cwd: self.folder.to_owned(),
            env: self.env.to_vec(),
            input: Input::Nothing,
            timeout: Some(PROGRAM_TIME),
            idle_timeout: None,
            memory_max: None,
            nice: 0,
            grace: self.host.grace,
            limits: Limits {
                output_max: usize::try_from(VALUE_MAX).unwrap_or(usize::MAX) + 1,
                spill_max: 0,
                ..Limits::default()
            },
            lines: Lines::Neither,
            mark: "credential".to_owned(),
            runner: self.host.runner.clone(),
            attempt: 1,
            idempotency_key: None,
            spool: self.host.spool.clone(),
            shim: self.host.shim.clone(),
        };
        let (facts, _orders) = process::start(spec).await.map_err(unstartable)?;
        let failed = |how: &str| Unreadable::Failed {
            program: program.clone(),
            how: how.to_owned(),
        };
        let ended = facts.ended().await.ok_or_else(|| failed("was lost"))?;
        match (ended.reason, ended.exit) {
            (Reason::Exited, Some(Exit::Code(0))) => one_line(&ended.output.bytes, &program),
            (Reason::Exited, Some(Exit::Code(code))) => Err(failed(&format!("exited with code {code}"))),
            (Reason::TimedOut, _) => Err(failed("printed nothing for 30 s")),
            (Reason::Exited | Reason::Idle | Reason::Stopped | Reason::OutOfMemory | Reason::ShimLost, _) => {
                Err(failed("was ended"))
            }
        }
    }
}

/// A text of a client's file, with its variables replaced.
///
/// # Errors
/// The name of one that is not set.
pub(super) fn with_variables(
    written: &str,
    folder: &Path,
    env: &[(OsString, OsString)],
) -> Result<String, String> {
    let look_up = |name: &str| variable(env, name)?.to_str().map(str::to_owned);
    config::with_variables(written, folder, &look_up)
}

/// A variable of an environment.
pub(super) fn variable<'a>(env: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    let found = env.iter().find(|(own, _)| own == name);
    found.map(|(_, value)| value.as_os_str())
}

/// What a regular file holds. A FIFO would make its reader wait for ever.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(VALUE_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The value without the line feed at its end.
fn one_line(bytes: &[u8], place: &str) -> Result<String, Unreadable> {
    let bad = || Unreadable::NoValue(place.to_owned());
    let text = std::str::from_utf8(bytes).map_err(|_| bad())?.trim_end();
    let fits = !text.is_empty() && text.len() as u64 <= VALUE_MAX && !text.contains(|c: char| c.is_control());
    fits.then(|| text.to_owned()).ok_or_else(bad)
}
