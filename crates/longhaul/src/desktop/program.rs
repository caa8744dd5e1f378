//! Where programs are: in the `PATH` of the user's login shell, which a program started from the desktop lacks.
//!
//! The shell is started once, and only when a program is looked for.

use std::{
    cell::OnceCell,
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read, Write},
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::mpsc,
    time::Duration,
};

use crate::places;

/// The command that prints the `PATH` it was given: what the shell is told to run.
pub(crate) const PRINT_PATH: &str = "__path";
/// What stands before and after it, since a shell's own files may print, too.
const MARK: &str = "longhaul-path:";
/// How long the shell may take to read its files.
const SHELL_MAX: Duration = Duration::from_secs(5);
/// The most that is read of what it prints.
const PRINTED_MAX: u64 = 256 * 1024;
/// How much of a program shows what runs it.
const HEAD: usize = 256;
/// Programs that start other programs by their names.
const RUNNERS: &[&str] = &[
    "bun", "bunx", "deno", "docker", "npm", "npx", "pipx", "pnpm", "pnpx", "podman", "uv", "uvx", "yarn",
];
/// What runs scripts that call programs by their names.
const SHELLS: &[&str] = &["env", "sh", "bash", "zsh", "dash", "ksh", "fish"];

/// What the user's shell knows.
#[derive(Debug, Default)]
pub(crate) struct Shell {
    login: OnceCell<Option<OsString>>,
}

impl Shell {
    /// One that is not asked.
    #[cfg(test)]
    pub(super) fn knowing(path: &str) -> Shell {
        Shell {
            login: OnceCell::from(Some(path.into())),
        }
    }

    /// Finds a program by its name: where the login shell would, else where this command would.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let own = std::env::var_os("PATH");
        let login = self.login().and_then(|path| in_path(name, path));
        login.or_else(|| in_path(name, &own?))
    }

    /// The `PATH` for a program: the shell's, of the folders that are there, with the program's own.
    pub(crate) fn path_for(&self, program: &Path) -> Option<String> {
        let own = std::env::var_os("PATH");
        let path = self.login().cloned().or(own)?;
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in std::env::split_paths(&path) {
            if folder.is_absolute() && folder.is_dir() && !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        if let Some(folder) = program.parent().map(Path::to_owned)
            && !folders.contains(&folder)
        {
            folders.insert(0, folder);
        }
        std::env::join_paths(folders).ok()?.into_string().ok()
    }

    fn login(&self) -> Option<&OsString> {
        self.login.get_or_init(ask).as_ref()
    }
}

/// The first program of a name in the folders of a `PATH`.
pub(crate) fn in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| is_program(file))
}

/// Whether it can be started.
pub(crate) fn is_program(file: &Path) -> bool {
    file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// Whether a program starts others by their names, or is run by one that is found by its name.
pub(crate) fn needs_path(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if RUNNERS.contains(&name) {
        return true;
    }
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
    if read.is_err() {
        return false;
    }
    let Some(line) = head
        .strip_prefix(b"#!")
        .and_then(|rest| rest.split(|byte| *byte == b'\n').next())
    else {
        return false;
    };
    let line = String::from_utf8_lossy(line);
    let interpreter = line.split_whitespace().next().unwrap_or_default();
    let interpreter = interpreter.rsplit('/').next().unwrap_or_default();
    SHELLS.contains(&interpreter)
}

/// Asks the login shell, as a terminal would start it: many a `PATH` is set in files that only such a shell reads.
fn ask() -> Option<OsString> {
    let shell = std::env::var_os("SHELL")
        .filter(|shell| !shell.is_empty())
        .map(PathBuf::from);
    let shell = shell.or_else(|| {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok()??;
        Some(user.shell)
    })?;
    let own = places::program().ok()?;
    let own = own.to_str()?.replace('\'', "'\\''");
    // Without `exec`: not every shell has it, and one that waits for its child is as good.
    let asked = format!("'{own}' {PRINT_PATH}");
    let is_csh = shell
        .file_name()
        .is_some_and(|name| name == "tcsh" || name == "csh");
    let flags: &[&str] = if is_csh {
        &["-i", "-c"]
    } else {
        &["-l", "-i", "-c"]
    };
    let mut words: Vec<OsString> = vec![shell.into_os_string()];
    words.extend(flags.iter().map(OsString::from));
    words.push(asked.into());
    let printed = run(&words)?;
    let printed = String::from_utf8(printed).ok()?;
    let (_, rest) = printed.split_once(MARK)?;
    let (path, _) = rest.split_once(MARK)?;
    (!path.is_empty()).then(|| OsString::from(path))
}

/// Runs the shell in a session of its own: an interactive one would take the terminal away from this command.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's shell is no task's work: it is asked once, by a person's command, and ended after its time"
)]
fn run(words: &[OsString]) -> Option<Vec<u8>> {
    let own = places::program().ok()?;
    let mut child = Command::new(own)
        .arg(PRINT_PATH)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = child.stdout.take()?;
    let (sender, printed) = mpsc::sync_channel(1);
    // A thread, since reading ends only when everything that the shell started has closed its output.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(PRINTED_MAX).read_to_end(&mut bytes);
        let _ = sender.send(read.map(|_| bytes));
    });
    let bytes = printed.recv_timeout(SHELL_MAX);
    // It leads a group of its own, and has nothing to do any more.
    if let Ok(leader) = i32::try_from(child.id()) {
        let _ = nix::sys::signal::killpg(
            nix::unistd::Pid::from_raw(leader),
            nix::sys::signal::Signal::SIGKILL,
        );
    }
    let _ = child.kill();
    let _ = child.wait();
    bytes.ok()?.ok()
}

/// The hidden command: prints its `PATH`, or becomes the leader of a session and then the shell.
pub(crate) fn main(words: &[OsString]) -> ExitCode {
    let Some((shell, arguments)) = words.split_first() else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let printed = [MARK.as_bytes(), path.as_bytes(), MARK.as_bytes(), b"\n"].concat();
        let written = std::io::stdout().write_all(&printed);
        return ExitCode::from(u8::from(written.is_err()));
    };
    let _ = nix::unistd::setsid();
    #[expect(
        clippy::disallowed_methods,
        reason = "this process becomes the shell, and starts nothing"
    )]
    let _ = Command::new(shell).args(arguments).exec();
    ExitCode::FAILURE
}
