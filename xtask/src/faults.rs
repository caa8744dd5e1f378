//! `cargo xtask faults [NAME..]`: each planted fault must fail a test.
//!
//! The feature `faults` compiles every `fault!("name")` point in; `LONGHAUL_FAULT` chooses one at run time, so one
//! build of a crate's tests serves all its faults. A fault that no test notices is a guard that nobody checks.
//! Prints the transitions of a task beside the faults that take their guards away.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Instant,
};

use crate::{
    Outcome,
    program::Program,
    workspace::{files, read, root},
};

/// The crates that may hold faults, in the order in which they are tried.
const CRATES: &[&str] = &["core", "store", "engine", "gateway"];

/// The faults of the core, with their rows and promises.
const CORE_LIST: &str = "crates/core/src/fault.rs";

/// The faults of the other crates: name, row (empty for a promise that is no transition), promise.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("store-wrong-owner", "", "a listing holds one owner's tasks alone"),
    (
        "store-beat-ignores-fence",
        "T3",
        "a runner that was declared lost does not come back",
    ),
    ("store-audit-gap", "", "every step leaves its audit record"),
    (
        "store-ack-before-commit",
        "T0",
        "what was acknowledged survives the process",
    ),
    (
        "serves-before-recovery",
        "T22",
        "what a dead runner left is settled before the first claim",
    ),
    (
        "every-write-is-an-update",
        "",
        "watchers are woken by what a client can see",
    ),
    (
        "half-a-proposal-counts",
        "",
        "a step is written whole or not at all",
    ),
    (
        "claims-without-a-slot",
        "T1",
        "no more work runs than there are slots",
    ),
    (
        "begins-before-the-start-is-committed",
        "T2",
        "work begins after its start was committed",
    ),
    (
        "confirms-a-stop-too-early",
        "T12",
        "a stop is confirmed when the work has ended",
    ),
    (
        "reports-under-the-present-fence",
        "T8",
        "a report carries the fence of its own claim",
    ),
    (
        "open-tasks-without-limit",
        "T0",
        "an owner has no more open tasks than the cap",
    ),
    (
        "one-key-for-any-call",
        "T0",
        "an idempotency key stands for one call",
    ),
    (
        "asks-for-secrets",
        "T5",
        "a question that asks for a secret is never shown",
    ),
    ("shows-any-link", "T5", "a link leads to a public name"),
    (
        "links-lead-anybody-here",
        "T5",
        "only a user of this machine is led to it by a link",
    ),
    ("any-answer-fits", "T6", "an accepted answer fits its form"),
    (
        "equal-calls-run-twice",
        "",
        "a call that comes back waits for the work of the one that was left",
    ),
    (
        "a-result-is-given-again",
        "",
        "once a result arrived, an equal call is new work",
    ),
    ("passes-another-owner", "T10", "only the owner acts on a task"),
    (
        "sessions-share-a-server",
        "",
        "a session's process of a server serves no other session",
    ),
    (
        "sessions-share-a-call",
        "",
        "a call of one session is not answered by another session's process of a server",
    ),
    (
        "a-wrapped-server-is-shown-to-all",
        "",
        "a wrapped server is shown to nobody but the pipes that brought it",
    ),
    (
        "living-windows-share-a-call",
        "",
        "a call of a wrapped server is joined from another pipe only once its own has ended",
    ),
    (
        "a-task-runs-another-server-s-tool",
        "",
        "a task of a server's tool is run by that tool or by none",
    ),
    (
        "any-stream-replies",
        "",
        "over HTTP a request is answered on its own stream alone",
    ),
    (
        "asks-undeclared",
        "",
        "a server asks nothing that it was not told that it may ask",
    ),
    (
        "any-spare-serves",
        "",
        "a spare process goes to a caller who can be asked what it was told",
    ),
    (
        "any-request-goes-on",
        "",
        "what a prompt asked is answered by the same request alone",
    ),
    (
        "a-lost-call-is-sent-again",
        "",
        "a call is sent to its server once",
    ),
    (
        "a-followed-task-has-no-handle",
        "T17",
        "a server's task is found again after a restart",
    ),
    (
        "a-task-is-heard-late",
        "",
        "nothing is missed between a call and the following of the task that it became",
    ),
    (
        "ends-a-session-that-works",
        "",
        "a session is not ended before the tasks in it",
    ),
    (
        "lets-go-of-questions-with-an-answer",
        "",
        "what a server's task asks stays open for whoever follows it next",
    ),
];

/// The transitions whose guards must have a fault. T21 has no guard of its own, T13 to T17 are told apart by the
/// rule for a lost runner, which has two.
const ROWS: &[&str] = &[
    "T0", "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10", "T11", "T12", "T14", "T17", "T18",
    "T19", "T20", "T22", "T23", "T24", "T25", "T26", "T27",
];

/// A fault that is planted.
struct Fault {
    name: String,
    /// The transition, or several with `+` between them; empty for none.
    row: String,
    promise: String,
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let plan = plan()?;
    table(&plan)?;
    let wanted = |fault: &&Fault| arguments.is_empty() || arguments.contains(&fault.name);
    if plan.values().flatten().filter(wanted).count() < arguments.len().max(1) {
        return Err("no such fault".to_owned());
    }
    let mut missed = Vec::new();
    let mut caught = 0;
    for part in CRATES {
        let faults: Vec<&Fault> = plan[part].iter().filter(wanted).collect();
        if faults.is_empty() {
            continue;
        }
        let package = format!("longhaul-{part}");
        println!("\nfaults: {package}, without a fault");
        if !test(&package, None)? {
            return Err(format!("the tests of `{package}` fail without any fault"));
        }
        for fault in faults {
            let start = Instant::now();
            let noticed = !test(&package, Some(&fault.name))?;
            println!(
                "  {}  {:>3} s  {}",
                if noticed { "caught" } else { "MISSED" },
                start.elapsed().as_secs(),
                fault.name
            );
            if noticed {
                caught += 1;
            } else {
                missed.push(fault.name.as_str());
            }
        }
    }
    println!("\nfaults: {caught} caught, {} missed", missed.len());
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("missed: {}", missed.join(", ")))
    }
}

/// Every planted fault by crate, with what the lists say of it. Guards that mask each other share one fault.
fn plan() -> Result<BTreeMap<&'static str, Vec<Fault>>, String> {
    let core_list = read(CORE_LIST)?;
    let mut listed: BTreeMap<&str, (&str, &str)> = ELSEWHERE
        .iter()
        .copied()
        .chain(core_rows(&core_list))
        .map(|(name, row, promise)| (name, (row, promise)))
        .collect();
    let mut plan = BTreeMap::new();
    for part in CRATES {
        let mut faults = Vec::new();
        for name in planted(part)? {
            let Some((row, promise)) = listed.remove(name.as_str()) else {
                return Err(format!("`{name}` of `{part}` is in no list of faults"));
            };
            faults.push(Fault {
                name,
                row: row.to_owned(),
                promise: promise.to_owned(),
            });
        }
        plan.insert(*part, faults);
    }
    match listed.first_key_value() {
        Some((gone, _)) => Err(format!("`{gone}` is listed and planted nowhere")),
        None => Ok(plan),
    }
}

/// Prints the faults row by row; a row without one fails.
fn table(plan: &BTreeMap<&'static str, Vec<Fault>>) -> Outcome {
    let all: Vec<&Fault> = plan.values().flatten().collect();
    let mut bare = Vec::new();
    for row in ROWS {
        let of_row: Vec<&&Fault> = all
            .iter()
            .filter(|fault| fault.row.split('+').any(|part| part == *row))
            .collect();
        for fault in &of_row {
            println!("{row:<4} {:<38} {}", fault.name, fault.promise);
        }
        if of_row.is_empty() {
            bare.push(*row);
        }
    }
    for fault in all.iter().filter(|fault| fault.row.is_empty()) {
        println!("–    {:<38} {}", fault.name, fault.promise);
    }
    if bare.is_empty() {
        Ok(())
    } else {
        Err(format!("no fault takes a guard of {} away", bare.join(", ")))
    }
}

/// The names that a crate's source plants.
fn planted(part: &str) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for path in files(&root().join("crates").join(part).join("src"), ".rs")? {
        if path.ends_with("src/fault.rs") {
            continue;
        }
        let source = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        names.extend(points(&source));
    }
    Ok(names)
}

/// The rows of the core's own list: three texts each.
fn core_rows(source: &str) -> Vec<(&str, &str, &str)> {
    let list = source
        .split_once("ALL: &[Fault] = &[")
        .and_then(|(_, rest)| rest.split_once("];"))
        .map_or("", |(list, _)| list);
    let texts: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    texts
        .chunks_exact(3)
        .map(|texts| (texts[0], texts[1], texts[2]))
        .collect()
}

/// The names in `fault!("name")`, outside comments.
fn points(source: &str) -> Vec<String> {
    let code = source
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.flat_map(|code| code.split("fault!(\"").skip(1))
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

/// Whether the tests of a package pass with this fault. The first failure ends the others too.
fn test(package: &str, fault: Option<&str>) -> Result<bool, String> {
    let mut program = Program::cargo().args([
        "nextest",
        "run",
        "--locked",
        "-p",
        package,
        "--features",
        "faults",
        "--max-fail",
        "1:immediate",
    ]);
    if let Some(fault) = fault {
        program = program.env("LONGHAUL_FAULT", fault).silent();
    }
    Ok(program.status()?.success())
}

#[cfg(test)]
mod tests {
    use super::{core_rows, points};

    #[test]
    fn points_in_code_are_found_and_in_comments_are_not() {
        let source = "if fault!(\"claim-twice\") || fault!(\"no-fence\") { } // fault!(\"not-this\")\n";
        assert_eq!(points(source), ["claim-twice", "no-fence"]);
    }

    #[test]
    fn the_rows_of_a_list_are_read() {
        let source = "pub const ALL: &[Fault] = &[\n fault(\"a\", \"T1\", \"one\"),\n fault(\n\"b\",\n\"T2\",\n\"two\"\n),\n];\n\"c\"";
        assert_eq!(core_rows(source), [("a", "T1", "one"), ("b", "T2", "two")]);
    }
}
