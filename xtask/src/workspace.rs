//! Where things are in this workspace, and what `cargo metadata` says about it.
//!
//! Called by every command.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Outcome, program::Program};

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_path_buf)
}

/// The folder that cargo builds into.
///
/// # Errors
/// When `cargo metadata` fails.
pub(crate) fn target() -> Result<PathBuf, String> {
    let metadata = metadata(false)?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata names no target directory".to_owned())
}

/// What `cargo metadata` prints; `deep` with the resolved tree of all dependencies.
///
/// # Errors
/// When it fails or prints no JSON.
pub(crate) fn metadata(deep: bool) -> Result<Value, String> {
    let mut program = Program::cargo().args(["metadata", "--format-version", "1", "--locked"]);
    if !deep {
        program = program.args(["--no-deps"]);
    }
    let text = program.output()?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata printed no JSON: {error}"))
}

/// The members of a JSON array; none for anything else.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The text of a JSON string; empty for anything else.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A file of the workspace.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(root().join(path)).map_err(|error| format!("cannot read `{path}`: {error}"))
}

/// A file of the workspace that holds JSON.
///
/// # Errors
/// When it cannot be read, or holds something else.
pub(crate) fn json<T: DeserializeOwned>(path: &str) -> Result<T, String> {
    serde_json::from_str(&read(path)?).map_err(|error| format!("`{path}` is not as expected: {error}"))
}

/// Writes a file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(path: &Path, content: &str) -> Outcome {
    fs::write(path, content).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}

/// Makes a folder with those above it, unless it is there.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_folder(path: &Path) -> Outcome {
    fs::create_dir_all(path).map_err(|error| format!("cannot make `{}`: {error}", path.display()))
}

/// Makes a folder that is empty now.
///
/// # Errors
/// When it cannot be cleared or made.
pub(crate) fn make_empty(path: &Path) -> Outcome {
    if path.exists() {
        fs::remove_dir_all(path).map_err(|error| format!("cannot clear `{}`: {error}", path.display()))?;
    }
    make_folder(path)
}

/// Every file under a folder of the workspace whose name ends so, in order.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
