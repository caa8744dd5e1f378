//! `cargo xtask faults [NAME..]`: each planted fault must fail a test.
//!
//! The feature `faults` compiles every `fault!(name)` point in; `LONGHAUL_FAULT` chooses one at run time, so one
//! build serves all. A fault that no test notices is a guard that nobody checks.

use std::{collections::BTreeMap, fs};

use crate::{
    Outcome,
    program::Program,
    workspace::{files, root},
};

/// The crates that may hold faults, in the order in which their tests are tried.
const CRATES: &[&str] = &["core", "store", "engine", "gateway"];

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let mut missed = Vec::new();
    let mut caught = 0;
    for (package, faults) in planned(arguments)? {
        println!("faults: {package}, without a fault");
        test(&package, None)?
            .then_some(())
            .ok_or_else(|| format!("the tests of `{package}` fail without any fault"))?;
        for fault in faults {
            let noticed = !test(&package, Some(&fault))?;
            println!("  {}  {fault}", if noticed { "caught" } else { "MISSED" });
            if noticed {
                caught += 1;
            } else {
                missed.push(fault);
            }
        }
    }
    println!("faults: {caught} caught, {} missed", missed.len());
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("missed: {}", missed.join(", ")))
    }
}

/// Which faults are tried with the tests of which package. Guards that mask each other share one fault.
fn planned(wanted: &[String]) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut plan: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in CRATES {
        let package = format!("longhaul-{part}");
        let mut names = Vec::new();
        for path in files(&root().join("crates").join(part).join("src"), ".rs")? {
            let source = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            names.extend(points(&source));
        }
        names.sort();
        names.dedup();
        names.retain(|fault| wanted.is_empty() || wanted.contains(fault));
        if !names.is_empty() {
            plan.insert(package, names);
        }
    }
    if plan.is_empty() {
        Err("no such fault".to_owned())
    } else {
        Ok(plan)
    }
}

/// The names in `fault!(name)`, outside comments and the macro's own definition.
fn points(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in source.lines() {
        let code = line.split_once("//").map_or(line, |(code, _)| code);
        for (_, after) in code
            .match_indices("fault!(")
            .map(|(at, found)| (at, &code[at + found.len()..]))
        {
            let name: String = after
                .trim_start_matches('"')
                .chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
                .collect();
            if !name.is_empty() {
                names.push(name);
            }
        }
    }
    names
}

/// Whether the tests of a package pass with this fault.
fn test(package: &str, fault: Option<&str>) -> Result<bool, String> {
    let mut program = Program::cargo().args([
        "nextest",
        "run",
        "--locked",
        "-p",
        package,
        "--features",
        "faults",
        "--fail-fast",
    ]);
    if let Some(fault) = fault {
        program = program.env("LONGHAUL_FAULT", fault).silent();
    }
    Ok(program.status()?.success())
}

#[cfg(test)]
mod tests {
    use super::points;

    #[test]
    fn points_in_code_are_found_and_in_comments_are_not() {
        let source = "if fault!(claim_twice) || fault!(\"no_fence\") { } // fault!(not_this)\n";
        assert_eq!(points(source), ["claim_twice", "no_fence"]);
    }
}
