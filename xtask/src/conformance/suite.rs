//! The official suite as `rigs/conformance/package.json` pins it, and our own scenarios, which run beside it.
//!
//! Called by `conformance` to run one scenario at a time. It only runs them: what their checks mean is judged by the caller.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    pinned::Npm,
    program::Program,
    workspace::{files, root},
};

use super::RIG;

/// What the extension's scenarios begin with. The suite lists them under no revision.
pub(super) const EXTENSION: &str = "tasks-";

/// Where the suite's list comes to the scenarios that judge a client.
const CLIENTS: &str = "Client scenarios";

/// A published version of the protocol.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Revision {
    V2025_11_25,
    V2026_07_28,
}

impl Revision {
    pub(super) const ALL: [Revision; 2] = [Revision::V2025_11_25, Revision::V2026_07_28];

    pub(super) fn name(self) -> &'static str {
        match self {
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    /// That of the other generation.
    pub(super) fn other(self) -> Revision {
        match self {
            Revision::V2025_11_25 => Revision::V2026_07_28,
            Revision::V2026_07_28 => Revision::V2025_11_25,
        }
    }

    /// How many scenarios the pinned suite has at least.
    fn least(self) -> usize {
        match self {
            Revision::V2025_11_25 => 30,
            Revision::V2026_07_28 => 40,
        }
    }
}

/// The installed suite.
pub(super) struct Suite {
    npm: Npm,
}

impl Suite {
    /// Installs the pinned packages.
    pub(super) fn install() -> Result<Suite, String> {
        Ok(Suite {
            npm: Npm::install(RIG, "conformance/suite")?,
        })
    }

    fn cli(&self) -> PathBuf {
        self.npm
            .modules()
            .join("@modelcontextprotocol/conformance/dist/index.js")
    }

    /// Every server scenario of the revision, by the suite's own list; those of the tasks extension belong to 2026-07-28.
    pub(super) fn scenarios(&self, revision: Revision) -> Result<Vec<String>, String> {
        let list = self.list()?;
        let servers = list.split(CLIENTS).next().unwrap_or_default();
        let extends = |name: &str| revision == Revision::V2026_07_28 && name.starts_with(EXTENSION);
        let names = named(servers, |name, versions| {
            extends(name) || versions.contains(revision.name())
        });
        if names.len() < revision.least() {
            Err(format!(
                "the suite lists only {} scenarios of {}",
                names.len(),
                revision.name()
            ))
        } else {
            Ok(names)
        }
    }

    /// Every client scenario of the revision, by the suite's own list.
    pub(super) fn client_scenarios(&self, revision: Revision) -> Result<Vec<String>, String> {
        let list = self.list()?;
        let clients = list.split(CLIENTS).nth(1).unwrap_or_default();
        let clients = clients.split("Authorization server scenarios").next();
        let names = named(clients.unwrap_or_default(), |_, versions| {
            versions.contains(revision.name())
        });
        match names.is_empty() {
            true => Err("the suite lists no client scenarios".to_owned()),
            false => Ok(names),
        }
    }

    fn list(&self) -> Result<String, String> {
        Program::new(self.npm.node())
            .args([self.cli().as_path(), Path::new("list")])
            .output()
    }

    /// Runs all server scenarios of a revision in one go, and returns the checks of each as JSON.
    pub(super) fn required(
        &self,
        revision: Revision,
        url: &str,
        results: &Path,
    ) -> Result<BTreeMap<String, String>, String> {
        let folder = results.join(revision.name());
        Program::new(self.npm.node())
            .args([self.cli()])
            .args(["server", "--url", url, "--requirements", revision.name(), "-o"])
            .args([&folder])
            .silent()
            .status()?;
        let mut all = BTreeMap::new();
        for scenario in self.scenarios(revision)? {
            if let Some(checks) = checks(&folder, &format!("/server-{scenario}-20"))? {
                all.insert(scenario, checks);
            }
        }
        Ok(all)
    }

    /// Runs one scenario of the official suite and returns its checks as JSON, or nothing when it wrote none.
    /// The suite's own exit code is not asked: its checks are.
    pub(super) fn official(
        &self,
        revision: Revision,
        scenario: &str,
        url: &str,
        results: &Path,
    ) -> Result<Option<String>, String> {
        let folder = results.join(revision.name()).join(scenario);
        let mut arguments = vec!["server", "--url", url, "--scenario", scenario];
        if !scenario.starts_with(EXTENSION) {
            arguments.extend(["--spec-version", revision.name()]);
        }
        Program::new(self.npm.node())
            .args([self.cli()])
            .args(arguments)
            .args(["-o"])
            .args([&folder])
            .silent()
            .status()?;
        checks(&folder, "")
    }

    /// Runs one scenario that judges a client, and returns its checks as JSON, or nothing when it wrote none. The command
    /// is one text; `env` is its environment besides ours.
    pub(super) fn client(
        &self,
        revision: Revision,
        scenario: &str,
        command: &str,
        env: &[(&str, &Path)],
        results: &Path,
    ) -> Result<Option<String>, String> {
        let folder = results.join(revision.name()).join(scenario);
        let mut program = Program::new(self.npm.node())
            .args([self.cli()])
            .args(["client", "--command", command, "--scenario", scenario])
            .args(["--spec-version", revision.name(), "-o"])
            .args([&folder])
            .silent();
        for (name, value) in env {
            program = program.env(name, value);
        }
        program.status()?;
        checks(&folder, "")
    }

    /// The scenarios of our own for that revision, one module each.
    pub(super) fn ours(&self, revision: Revision) -> Result<Vec<String>, String> {
        let modules = files(&root().join(RIG).join("upstream"), ".scenario.mjs")?;
        let name = |path: &PathBuf| {
            path.file_name()?
                .to_str()?
                .strip_suffix(".scenario.mjs")
                .map(str::to_owned)
        };
        let sessions = |name: &String| name.starts_with("tasks-2025-") == (revision == Revision::V2025_11_25);
        Ok(modules.iter().filter_map(name).filter(sessions).collect())
    }

    /// Runs one scenario of our own and returns its checks as JSON.
    pub(super) fn our(&self, scenario: &str, url: &str) -> Result<String, String> {
        Program::new(self.npm.node())
            .args([root().join(RIG).join("upstream/run.mjs")])
            .args([scenario, url])
            .env("CONFORMANCE_SUITE", self.npm.folder())
            .output()
    }
}

/// The names in a part of the suite's list, each with the versions that it applies to.
fn named(list: &str, wanted: impl Fn(&str, &str) -> bool) -> Vec<String> {
    list.lines()
        .filter_map(|line| line.trim().strip_prefix("- ")?.split_once(" ["))
        .filter(|(name, versions)| wanted(name, versions))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The checks that a scenario wrote, in a folder whose name has this in it.
fn checks(folder: &Path, within: &str) -> Result<Option<String>, String> {
    let written = files(folder, "checks.json").unwrap_or_default();
    let found = written
        .iter()
        .find(|file| file.to_string_lossy().contains(within));
    let Some(file) = found else {
        return Ok(None);
    };
    fs::read_to_string(file)
        .map(Some)
        .map_err(|error| format!("cannot read `{}`: {error}", file.display()))
}
