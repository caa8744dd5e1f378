//! `cargo xtask weight`: crates in the tree and size of the binary, against `xtask/weight.json`.
//!
//! The budget is raised by hand, in a change that says what the weight buys.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{
    Outcome, no_arguments,
    program::Program,
    workspace::{json, target},
};

pub(crate) fn run(arguments: &[String]) -> Outcome {
    no_arguments("weight", arguments)?;
    let budget: Value = json("xtask/weight.json")?;
    let crates = crates()?;
    let binary = target()?.join("debug/longhaul");
    let bytes = fs::metadata(&binary)
        .map_err(|error| format!("cannot look at `{}`: {error}; build it first", binary.display()))?
        .len();
    let mut over = Vec::new();
    for (name, value) in [("crates_max", crates), ("dev_binary_bytes_max", bytes)] {
        let max = budget[name]
            .as_u64()
            .ok_or_else(|| format!("`xtask/weight.json` has no `{name}`"))?;
        println!("weight: {name} {value} of {max}");
        if value > max {
            over.push(format!("{name}: {value} is over the budget of {max}"));
        }
    }
    if over.is_empty() {
        Ok(())
    } else {
        Err(over.join("; "))
    }
}

/// How many crates the binary is built from.
fn crates() -> Result<u64, String> {
    let tree = Program::cargo()
        .args([
            "tree", "--locked", "-p", "longhaul", "-e", "normal", "--prefix", "none", "--format", "{p}",
        ])
        .output()?;
    let names: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    Ok(names.len() as u64)
}
