//! The servers that stand behind Longhaul while the suite judges it, and Longhaul in front of one.
//!
//! Two have all that the official suite calls: the Python SDK's own, from its source package, and one of ours on rmcp.
//! A third is plain: it knows nothing of tasks.

use std::path::{Path, PathBuf};

use crate::{
    pinned,
    program::Program,
    server::Server,
    workspace::{make_folder, write},
};

use super::{RIG, scores::pinned, suite::Revision};

/// Where the server is that the Python SDK's makers run the suite on, in the SDK's source package.
const EVERYTHING: &str = "examples/servers/everything-server";
/// What the Python servers need, in the rig.
const PINS: &str = "behind/requirements.txt";

/// The server on the Python SDK.
///
/// # Errors
/// When it does not start.
pub(super) fn python(interpreter: &Path, source: &Path, results: &Path) -> Result<Server, String> {
    let (interpreter, folder) = (interpreter.to_path_buf(), source.join(EVERYTHING));
    let program = move |port: u16| {
        Program::new(&interpreter)
            .args(["-m", "mcp_everything_server.server", "--port"])
            .args([port.to_string()])
            .env("PYTHONPATH", &folder)
    };
    Server::of(Box::new(program), results.join("python.log"))
}

/// The server on rmcp, built now.
///
/// # Errors
/// When it does not build or start.
pub(super) fn rmcp(results: &Path) -> Result<Server, String> {
    let binary = pinned::built(&format!("{RIG}/behind/rmcp"), "conformance/rmcp")?;
    let program = move |port: u16| Program::new(&binary).args([port.to_string()]);
    Server::of(Box::new(program), results.join("rmcp.log"))
}

/// The server without tasks.
///
/// # Errors
/// When it does not start.
pub(super) fn plain(interpreter: &Path, results: &Path) -> Result<Server, String> {
    let log = results.join("plain.log");
    Server::script(interpreter, &format!("{RIG}/behind/plain.py"), log)
}

/// The interpreter that has the Python SDK.
///
/// # Errors
/// When it cannot be installed.
pub(super) fn interpreter() -> Result<PathBuf, String> {
    pinned::python(&format!("{RIG}/{PINS}"), "conformance/behind")
}

/// The source package of that SDK.
///
/// # Errors
/// When it cannot be fetched.
pub(super) fn source() -> Result<PathBuf, String> {
    pinned::python_source("mcp", &sdk_version()?, "conformance/behind-source")
}

/// The version of the Python SDK.
///
/// # Errors
/// When the pins do not say it.
pub(super) fn sdk_version() -> Result<String, String> {
    pinned(PINS, "mcp==")
}

/// Longhaul in front of a server, which it speaks to in the generation of the suite, and which may ask whatever the
/// suite can answer, and no more than it declares; `more` is said of that server.
///
/// # Errors
/// When it does not start.
pub(super) fn gateway(
    binary: &Path,
    results: &Path,
    revision: Revision,
    server: &Server,
    more: &str,
) -> Result<Server, String> {
    let year = revision.name().split('-').next().unwrap_or_default();
    let folder = results.join(format!("gateway-{year}-{}", server.pid()));
    make_folder(&folder)?;
    let toml = format!(
        "[server]\nstrict_headers = true\npage = false\n\n[servers.behind]\nurl = \"{}\"\nprotocol = \"{year}\"\n\
         required = true\nask_undeclared = false\nquestions = [\"form\", \"url\", \"sampling\", \"roots\"]\n{more}",
        server.url()
    );
    write(&folder.join("longhaul.toml"), &toml)?;
    Server::start(binary, &folder, &folder)
}
