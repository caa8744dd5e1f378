//! Where things are: the state directory, the socket, the configuration.
//!
//! `longhaul doctor` prints what is decided here. Nothing here creates anything.

use std::{
    env,
    path::{Path, PathBuf},
};

use longhaul_gateway::{config, local::socket};

use crate::{
    exit::{Exit, Failure},
    flags::Common,
};

/// The state directory and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The directory.
    pub dir: PathBuf,
    /// It was named by a flag or a variable, and is not the user's usual one.
    pub chosen: bool,
}

impl State {
    /// `--state`, `$LONGHAUL_STATE_DIR`, `$STATE_DIRECTORY`, then the usual place of this user.
    ///
    /// # Errors
    /// When none of them names a place.
    pub(crate) fn find(common: &Common) -> Result<State, Failure> {
        let named = common
            .state
            .clone()
            .or_else(|| path("LONGHAUL_STATE_DIR"))
            .or_else(|| path("STATE_DIRECTORY"));
        if let Some(dir) = named {
            // Absolute, because the server that is started may stand elsewhere.
            let dir = std::path::absolute(&dir).map_err(|error| {
                Failure::usage(format!(
                    "cannot use the state directory `{}`: {error}",
                    dir.display()
                ))
            })?;
            return Ok(State { dir, chosen: true });
        }
        if nix::unistd::geteuid().is_root() {
            return Ok(State {
                dir: PathBuf::from("/var/lib/longhaul"),
                chosen: false,
            });
        }
        let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        match base {
            Some(base) => Ok(State {
                dir: base.join("longhaul"),
                chosen: false,
            }),
            None => Err(
                Failure::usage("no place to keep tasks: neither HOME nor XDG_STATE_HOME is set")
                    .fix("pass --state DIR, or set LONGHAUL_STATE_DIR"),
            ),
        }
    }

    /// The socket of the server that keeps its tasks here.
    pub(crate) fn socket(&self) -> PathBuf {
        socket::path(absolute("XDG_RUNTIME_DIR").as_deref(), &self.dir, self.chosen)
    }

    /// The directory of the server's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

/// The configuration file in use; `None` when there is none and the defaults hold.
///
/// `here` looks into the working directory too: only `serve` and `config` do.
///
/// # Errors
/// When a file that was named is not there.
pub(crate) fn config(common: &Common, here: bool) -> Result<Option<PathBuf>, Failure> {
    for place in config::places(common.config.as_deref(), &|name| env::var(name).ok(), here) {
        if place.path.exists() {
            return Ok(Some(place.path));
        }
        if place.named {
            return Err(Failure::new(
                Exit::Usage,
                "no_config",
                format!(
                    "cannot read the configuration `{}`: no such file",
                    place.path.display()
                ),
            )
            .fix("longhaul config init"));
        }
    }
    Ok(None)
}

/// Loads the configuration.
///
/// # Errors
/// Everything that is wrong with it, one line each.
pub(crate) fn load(common: &Common, here: bool) -> Result<config::Loaded, Failure> {
    let variables: Vec<(String, String)> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let loaded = match config(common, here)? {
        Some(path) => config::load(&path, &variables),
        None => config::defaults(&variables),
    };
    loaded.map_err(|problems| {
        let lines: Vec<String> = problems.0.iter().map(|problem| format!("  {problem}")).collect();
        Failure::new(
            Exit::Usage,
            "config",
            format!("cannot use the configuration:\n{}", lines.join("\n")),
        )
    })
}

/// A configuration in the working directory that the daily commands do not read.
pub(crate) fn unread_config() -> Option<&'static Path> {
    let here = Path::new("longhaul.toml");
    here.exists().then_some(here)
}

fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn absolute(name: &str) -> Option<PathBuf> {
    path(name).filter(|path| path.is_absolute())
}
