//! Where things are: the state directory, the socket, the configuration.
//!
//! `longhaul doctor` prints what is decided here. Nothing here creates anything.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use longhaul_gateway::{config, local::socket};

use crate::{
    exit::{Exit, Failure},
    flags::Common,
};

/// The file in the state directory in which a server notes where its socket is.
const NOTED: &str = "socket";

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

    /// Whether a program without any of this one's variables but `HOME` would find it, too.
    pub(crate) fn is_usual(&self) -> bool {
        let usual = match nix::unistd::geteuid().is_root() {
            true => Some(PathBuf::from("/var/lib/longhaul")),
            false => absolute("HOME").map(|home| home.join(".local/state/longhaul")),
        };
        usual.as_deref() == Some(&self.dir)
    }

    /// The socket of the server that keeps its tasks here: the one that a living server has noted, else the usual
    /// place. Programs of one user may have different environments, and share the state directory.
    pub(crate) fn socket(&self) -> PathBuf {
        let noted = fs::read(self.dir.join(NOTED)).ok();
        let noted = noted.map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
        if let Some(noted) = noted.filter(|path| path.is_absolute() && socket::is_held(path)) {
            return noted;
        }
        socket::path(absolute("XDG_RUNTIME_DIR").as_deref(), &self.dir, self.chosen)
    }

    /// Notes where this server's socket is, for programs that would look for it elsewhere.
    ///
    /// # Errors
    /// The system's, when the note cannot be written.
    pub(crate) fn note_socket(&self, path: &Path) -> io::Result<()> {
        fs::write(self.dir.join(NOTED), path.as_os_str().as_bytes())
    }

    /// The directory of the server's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

/// This program's file, by the name that it had when it was first asked for: at the start. An upgrade may have put
/// another version in its place since, which is then what is to be started.
///
/// # Errors
/// The system's, when it does not know.
pub(crate) fn program() -> io::Result<PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    match PROGRAM.get() {
        Some(program) => Ok(program.clone()),
        None => env::current_exe().map(|found| PROGRAM.get_or_init(|| found).clone()),
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

/// Whether a program without any of this one's variables but `HOME` would find this configuration, too.
pub(crate) fn is_usual_config(file: &Path) -> bool {
    let usual = absolute("HOME").map(|home| home.join(".config/longhaul/longhaul.toml"));
    usual.as_deref() == Some(file) || file == Path::new("/etc/longhaul/longhaul.toml")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_servers_socket_is_found_from_any_environment() {
        let home = tempfile::tempdir().expect("a folder");
        let state = State {
            dir: home.path().to_owned(),
            chosen: true,
        };
        let usual = state.socket();
        let elsewhere = home.path().join("elsewhere.sock");
        state.note_socket(&elsewhere).expect("a note");
        assert_eq!(state.socket(), usual, "nobody serves there");
        let lock = fs::File::create(elsewhere.with_extension("lock")).expect("a lock");
        lock.lock().expect("held");
        assert_eq!(state.socket(), elsewhere);
    }
}
