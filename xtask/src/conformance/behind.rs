//! The servers that stand behind Longhaul while the suite judges it, and Longhaul in front of one.
//!
//! Two have all that the official suite calls: the Python SDK's own, from its source package, and one of ours on rmcp.
//! A third is plain: it knows nothing of tasks.

use std::{fs, path::Path};

use crate::{
    packages,
    program::Program,
    server::Server,
    workspace::{root, target},
};

use super::{RIG, suite::Revision};

/// Where the server is that the Python SDK's makers run the suite on, in the SDK's source package.
const EVERYTHING: &str = "examples/servers/everything-server";

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
    let folder = target()?.join("conformance/rmcp");
    let manifest = root().join(RIG).join("behind/rmcp/Cargo.toml");
    Program::cargo()
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .args([&manifest])
        .args(["--target-dir"])
        .args([&folder])
        .run()?;
    let binary = folder.join("debug/rmcp-behind");
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
pub(super) fn interpreter() -> Result<std::path::PathBuf, String> {
    packages::python(&format!("{RIG}/behind/requirements.txt"), "conformance/behind")
}

/// Longhaul in front of a server, which it speaks to in the generation of the suite; `more` is said of that server.
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
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make `{}`: {error}", folder.display()))?;
    let toml = format!(
        "[server]\nstrict_headers = true\npage = false\n\n[servers.behind]\nurl = \"{}\"\nprotocol = \"{year}\"\n\
         required = true\n{more}",
        server.url()
    );
    fs::write(folder.join("longhaul.toml"), toml)
        .map_err(|error| format!("cannot write a configuration: {error}"))?;
    let rig = folder
        .to_str()
        .ok_or("the target directory has no name in UTF-8")?;
    Server::start(binary, rig, &folder)
}
