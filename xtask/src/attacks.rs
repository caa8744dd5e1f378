//! `cargo xtask attacks [--peers] [--write] [ROW..]`: hostile clients against the listener, and an honest one beside them.
//!
//! Builds Longhaul (`LONGHAUL_BINARY` names another binary; figures want a release build) and runs `rigs/attacks/run.py`
//! on it: each row against a fresh server, judged by its goals. `--peers` runs the rows on other servers as well, for the
//! table, and judges nothing of theirs. `--write` needs all of that and writes the page of the reference.

use crate::{
    Outcome,
    program::Program,
    server::binary,
    workspace::{root, target},
};

const RIG: &str = "rigs/attacks/run.py";
/// The page of the reference.
pub(crate) const PAGE: &str = "docs/reference/attacks.md";

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (flags, rows): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| argument.starts_with("--"));
    if let Some(stranger) = flags
        .iter()
        .find(|flag| !["--peers", "--write"].contains(&flag.as_str()))
    {
        return Err(format!("`attacks` takes no `{stranger}`"));
    }
    let target = target()?;
    let mut rig = rig()
        .args(["--binary"])
        .args([binary()?])
        .args(["--results"])
        .args([target.join("attacks")]);
    if flags.iter().any(|flag| *flag == "--peers") {
        let peers = target.join("bench/peers");
        Program::new(root().join("rigs/bench/peers/install"))
            .args([&peers])
            .run()?;
        rig = rig.args(["--peers"]).args([&peers]);
    }
    if flags.iter().any(|flag| *flag == "--write") {
        rig = rig.args(["--write"]);
    }
    rig.args(rows).run()
}

/// The page of the reference, from the numbers beside it.
///
/// # Errors
/// When there are none, or Python is missing.
pub(crate) fn rendered() -> Result<String, String> {
    rig().args(["--render"]).output()
}

fn rig() -> Program {
    Program::new("python3").args(["-B"]).args([root().join(RIG)])
}
