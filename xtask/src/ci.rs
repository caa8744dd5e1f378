//! `cargo xtask ci`: everything that CI runs, in order, with times.
//!
//! Called by `.ci/run` and by whoever wants to know before a push. A tool that is not installed is named and
//! its step left out on a developer's machine; with `CI=true` that is a failure.

use std::{env, time::Instant};

use crate::{
    Outcome, clients, conformance, desktop, docs, fuzz, layers, no_arguments, packages, pairings,
    program::Program, rules, servers, weight,
};

/// One step: its name and what it does.
type Step = (&'static str, fn() -> Outcome);

/// The quick ones first.
const STEPS: &[Step] = &[
    ("format", format),
    ("layers", || layers::run(&[])),
    ("rules", || rules::run(&[])),
    ("deny", deny),
    ("clippy", clippy),
    ("tests", tests),
    ("doc tests", doc_tests),
    ("build", build),
    ("weight", || weight::run(&[])),
    ("docs", || docs::run(&["--check".to_owned()])),
    ("fuzz", fuzz::in_ci),
    ("conformance", || conformance::run(&[])),
    ("conformance, servers behind", || {
        conformance::run(&["--through".to_owned()])
    }),
    ("clients", clients::without_pages),
    ("servers", || servers::run(&[])),
    ("desktop", || desktop::run(&[])),
    ("pairings", || pairings::run(&[])),
    ("packages", || packages::run(&[])),
];

pub(crate) fn run(arguments: &[String]) -> Outcome {
    no_arguments("ci", arguments)?;
    let mut times = Vec::new();
    let mut outcome = Ok(());
    for (name, step) in STEPS {
        println!("\n== {name}");
        let start = Instant::now();
        outcome = step().map_err(|error| format!("{name}: {error}"));
        times.push((name, start.elapsed().as_secs(), outcome.is_ok()));
        if outcome.is_err() {
            break;
        }
    }
    println!("\n== times");
    for (name, seconds, well) in &times {
        println!("{seconds:>6} s  {name}{}", if *well { "" } else { "  FAILED" });
    }
    let failed = times.iter().filter(|(_, _, well)| !well).count();
    println!("\nsteps: {} passed, {failed} failed", times.len() - failed);
    outcome
}

fn format() -> Outcome {
    Program::cargo().args(["fmt", "--all", "--check"]).run()
}

fn clippy() -> Outcome {
    Program::cargo()
        .args([
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
        .run()
}

/// The advisories check is left out: it needs a database from the network.
fn deny() -> Outcome {
    if !Program::cargo().args(["deny", "--version"]).works() {
        return missing("cargo-deny");
    }
    Program::cargo()
        .args(["deny", "check", "bans", "licenses", "sources"])
        .run()
}

/// What a machine may be unable to give, as `.ci/run` names it in `LONGHAUL_CI_WITHOUT`, and the tests that need it.
const LEFT_OUT: &[(&str, &str)] = &[
    ("small-disk", "a_full_disk_fails_writes_until_there_is_space"),
    (
        "small-disk",
        "on_a_full_disk_calls_are_refused_and_cancels_are_taken",
    ),
];

/// A test that cannot run is shown as ignored, and in CI refused.
fn tests() -> Outcome {
    if !Program::cargo().args(["nextest", "--version"]).works() {
        missing("cargo-nextest")?;
        return Program::cargo()
            .args(["test", "--locked", "--workspace", "--bins", "--lib", "--tests"])
            .run();
    }
    if env::var_os("CI").is_some() {
        no_ignored_tests()?;
    }
    Program::cargo()
        .args(["nextest", "run", "--locked", "--workspace", "--no-fail-fast"])
        .run()
}

fn no_ignored_tests() -> Outcome {
    let list = Program::cargo()
        .args([
            "nextest",
            "list",
            "--locked",
            "--workspace",
            "--run-ignored",
            "only",
            "--message-format",
            "oneline",
        ])
        .output()?;
    let without = env::var("LONGHAUL_CI_WITHOUT").unwrap_or_default();
    let excused = |line: &str| {
        LEFT_OUT
            .iter()
            .any(|(what, test)| *what == without && line.ends_with(test))
    };
    let (left_out, ignored): (Vec<&str>, Vec<&str>) = list
        .lines()
        .filter(|line| !line.trim().is_empty())
        .partition(|line| excused(line));
    for line in left_out {
        println!("LEFT OUT, this machine has no {without}: {line}");
    }
    if ignored.is_empty() {
        Ok(())
    } else {
        Err(format!("ignored tests:\n  {}", ignored.join("\n  ")))
    }
}

fn doc_tests() -> Outcome {
    Program::cargo()
        .args(["test", "--locked", "--workspace", "--doc"])
        .run()
}

fn build() -> Outcome {
    Program::cargo()
        .args(["build", "--locked", "-p", "longhaul"])
        .run()
}

/// A tool is not there: a failure in CI, a line elsewhere.
fn missing(tool: &str) -> Outcome {
    let line = format!("`{tool}` is not installed: `cargo install --locked {tool}`");
    if env::var_os("CI").is_some() {
        return Err(line);
    }
    println!("{line}");
    Ok(())
}
