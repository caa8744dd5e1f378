//! Where the configuration is looked for, and which files are trusted.
//!
//! Called by the binary. The search is a function of what it is given: it reads neither files nor the environment.

use std::path::{Path, PathBuf};

/// A place where a configuration may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Named by the user: that it is missing is an error, and nothing else is looked at.
    pub named: bool,
}

/// The places, first to last. The first file that exists is the whole configuration, with what it includes.
///
/// `flag` is `--config`; `env` reads a variable of the environment; `here` is set only for `serve` and `config`,
/// because other commands start inside folders that they do not trust.
pub fn places(flag: Option<&Path>, env: &dyn Fn(&str) -> Option<String>, here: bool) -> Vec<Place> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    if let Some(path) = flag {
        return vec![Place {
            path: path.to_owned(),
            named: true,
        }];
    }
    if let Some(path) = env("LONGHAUL_CONFIG") {
        return vec![Place {
            path: path.into(),
            named: true,
        }];
    }
    let mut places = Vec::new();
    if here {
        places.push(PathBuf::from("longhaul.toml"));
    }
    let home = env("XDG_CONFIG_HOME")
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from);
    let home = home.or_else(|| env("HOME").map(|home| PathBuf::from(home).join(".config")));
    places.extend(home.map(|home| home.join("longhaul/longhaul.toml")));
    places.push(PathBuf::from("/etc/longhaul/longhaul.toml"));
    places
        .into_iter()
        .map(|path| Place { path, named: false })
        .collect()
}

/// What is wrong with a file's mode: whoever can write the file can start any program (S6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writable {
    /// By its owner only.
    Owner,
    /// By its group too: worth a warning.
    Group,
    /// By everybody: refused.
    World,
}

/// Who can write a file of this Unix mode.
pub fn writable(mode: u32) -> Writable {
    match (mode & 0o002 != 0, mode & 0o020 != 0) {
        (true, _) => Writable::World,
        (false, true) => Writable::Group,
        (false, false) => Writable::Owner,
    }
}
