//! A Debian machine of its own: a fresh root with systemd as its process 1, in namespaces, without a network.
//!
//! Called by `debian`, as root. The machine ends when it is dropped, with all that runs in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Instant,
};

use super::first_task::{LOOK_EVERY, PATIENCE};
use crate::{
    Outcome,
    program::Program,
    workspace::{self, make_empty, target},
};

/// What is in the root besides what every Debian has: the service manager, and what the package and the quickstart need.
const INSTALLED: &str = "systemd,systemd-sysv,adduser,python3";

/// A machine that runs.
pub(super) struct Machine {
    unshare: Child,
    /// The process 1 of the machine, as this machine calls it.
    init: u32,
    group: PathBuf,
    root: PathBuf,
}

/// Why there can be no machine here; `None` when there can.
pub(super) fn lacks() -> Option<String> {
    let namespaces = [
        "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "true",
    ];
    if !Program::new("unshare").args(namespaces).works() {
        return Some("the Debian package is tried as root, with namespaces".to_owned());
    }
    if !Program::new("mmdebstrap").args(["--version"]).works() {
        return Some("`mmdebstrap` is not installed".to_owned());
    }
    cgroups().err()
}

impl Machine {
    /// Unpacks a root into a folder and boots it.
    ///
    /// # Errors
    /// When it cannot be made, or does not come up.
    pub(super) fn boot(folder: &Path) -> Result<Machine, String> {
        let root = folder.join("root");
        make_empty(&root)?;
        Program::new("tar")
            .args(["-xf"])
            .args([archive()?])
            .args(["-C"])
            .args([&root])
            .run()?;
        let group = cgroups()?.join(format!("longhaul-packages-{}", std::process::id()));
        let log = fs::File::create(folder.join("boot.log")).map_err(|error| format!("no log: {error}"))?;
        let errors = log.try_clone().map_err(|error| format!("no log: {error}"))?;
        let unshare = Program::new("sh")
            .args([workspace::root().join("packaging/machine/boot.sh")])
            .args([&root, &group])
            .into_command()
            .stdin(std::process::Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("cannot start the machine: {error}"))?;
        let mut machine = Machine {
            unshare,
            init: 0,
            group,
            root,
        };
        machine.until("the machine has not come up", |machine| {
            let children = format!("/proc/{0}/task/{0}/children", machine.unshare.id());
            let children = fs::read_to_string(children).unwrap_or_default();
            machine.init = children
                .split_whitespace()
                .next()
                .and_then(|pid| pid.parse().ok())
                .unwrap_or(0);
            machine.init != 0 && machine.program(&["systemctl", "is-system-running"]).works()
        })?;
        Ok(machine)
    }

    /// A command on the machine, as root, in an environment without anything of this one.
    pub(super) fn program(&self, words: &[&str]) -> Program {
        let inside = ["-m", "-p", "-n", "-i", "-u", "-C", "-r", "-w", "env", "-i"];
        Program::new("nsenter")
            .args(["-t", &self.init.to_string()])
            .args(inside)
            .args([
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root",
                "DEBIAN_FRONTEND=noninteractive",
            ])
            .args(words)
    }

    /// The same, to be started in another way.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        self.program(words).into_command()
    }

    /// What a command prints.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn says(&self, words: &[&str]) -> Result<String, String> {
        self.program(words).output().map(|said| said.trim().to_owned())
    }

    /// Runs a command.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn run(&self, words: &[&str]) -> Outcome {
        self.says(words).map(|_| ())
    }

    /// The end of the machine's journal.
    fn told(&self) -> String {
        let told = self.says(&["journalctl", "--no-pager", "--lines=25", "--output=cat"]);
        told.unwrap_or_else(|error| error)
    }

    /// A file of the machine, as this one names it.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Waits until it is so.
    ///
    /// # Errors
    /// In these words, when it never is.
    pub(super) fn until(&mut self, not: &str, mut is: impl FnMut(&mut Machine) -> bool) -> Outcome {
        let start = Instant::now();
        while !is(self) {
            if start.elapsed() > PATIENCE {
                return Err(format!("{not}:\n{}", self.told()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Process 1 dies with its parent, and with it everything in its namespace.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        let start = Instant::now();
        while remove_group(&self.group).is_err() && start.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Removes a control group and those below it, which must be empty of processes.
fn remove_group(group: &Path) -> std::io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)?.flatten() {
        if entry.path().is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// Where the control groups of version 2 are.
fn cgroups() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut mounts = mounts.lines().map(|line| line.split_whitespace());
    let found = mounts.find_map(|mut words| match (words.next(), words.next(), words.next()) {
        (_, Some(place), Some("cgroup2")) => Some(PathBuf::from(place)),
        _ => None,
    });
    found.ok_or_else(|| "no control groups of version 2 here".to_owned())
}

/// A root of this machine's own release; made once.
fn archive() -> Result<PathBuf, String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let release = release.ok_or("this is no Debian")?;
    let archive = target()?.join(format!("packages/{release}.tar"));
    let pins = archive.with_extension("pins");
    if fs::read_to_string(&pins).is_ok_and(|made| made == INSTALLED) {
        return Ok(archive);
    }
    let sources = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    let sources = sources.iter().find(|path| Path::new(path).exists());
    let sources = sources.ok_or("this machine names no source of Debian's packages")?;
    Program::new("mmdebstrap")
        .args([
            "--quiet",
            "--variant=minbase",
            &format!("--include={INSTALLED}"),
            release,
        ])
        .args([&archive])
        .args([sources])
        .run()?;
    workspace::write(&pins, INSTALLED)?;
    Ok(archive)
}
