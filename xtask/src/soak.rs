//! `cargo xtask soak [--minutes N] [--seed N]`: a mixed load with kills for a long time, and the page about it.
//!
//! Runs `rigs/soak/run.py` on the binary of `LONGHAUL_BINARY`, else on the one of this workspace. Memory is worth
//! judging on a release build only. A run of 30 minutes or more writes `docs/reference/soak.md`.

use crate::{
    Outcome,
    program::Program,
    server::binary,
    workspace::{root, target},
};

pub(crate) fn run(arguments: &[String]) -> Outcome {
    Program::new("python3")
        .args(["-B", "rigs/soak/run.py", "--binary"])
        .args([binary()?])
        .args(["--results".into(), target()?.join("soak")])
        .args(arguments)
        .folder(&root())
        .run()
}
