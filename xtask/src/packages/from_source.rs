//! The crate, installed with cargo from its folder.
//!
//! Called by `packages`. Built as the tests are, into the same target directory, so that little is compiled again.

use std::path::Path;

use super::{
    Tried,
    contents::Contents,
    first_task::{Installed, first_task},
};
use crate::{program::Program, workspace::target};

pub(super) fn tried(_: &Contents, _: &Path, folder: &Path) -> Result<Tried, String> {
    let tools = folder.join("tools");
    Program::cargo()
        .args([
            "install",
            "--quiet",
            "--path",
            "crates/longhaul",
            "--debug",
            "--locked",
            "--offline",
            "--no-track",
        ])
        .args(["--root"])
        .args([&tools])
        .args(["--target-dir"])
        .args([target()?])
        .run()?;
    let installed = Installed::new(&tools.join("bin/longhaul"), &[], folder)?;
    let done = first_task(&installed)?;
    Ok(Tried::Well(format!("cargo install --path; {done}")))
}
