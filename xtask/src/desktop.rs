//! `cargo xtask desktop`: a client that has servers already, from `install` to `uninstall`.
//!
//! Installs three servers as `rigs/servers/` pins them and two clients as `rigs/clients/` does, and runs
//! `rigs/desktop/first-day.py`, which says what is shown. `LONGHAUL_BINARY` names another binary to judge.

use crate::{
    Outcome, no_arguments,
    pinned::{self, Npm},
    program::Program,
    server::{binary, empty_folder},
    workspace::root,
};

pub(crate) fn run(arguments: &[String]) -> Outcome {
    no_arguments("desktop", arguments)?;
    let servers = Npm::install("rigs/servers", "servers/npm")?;
    let python = pinned::python("rigs/servers/requirements.txt", "servers/python")?;
    let clients = Npm::install("rigs/clients", "clients/npm")?;
    let fastmcp = pinned::python("rigs/clients/requirements-fastmcp-3.txt", "clients/fastmcp-3")?;
    let work = empty_folder("desktop/work")?;
    let script = root().join("rigs/desktop/first-day.py");
    Program::new("python3")
        .args(["-B"])
        .args([script])
        .args(["--binary".into(), binary()?])
        .args(["--node".into(), clients.node()])
        .args(["--servers".into(), servers.folder().to_owned()])
        .args(["--python".into(), python])
        .args(["--clients".into(), clients.folder().to_owned()])
        .args(["--fastmcp".into(), fastmcp])
        .args(["--work".into(), work])
        .run()
}
