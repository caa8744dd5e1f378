//! `cargo xtask conformance [--write] [SCENARIO..]`: the official MCP suite at both revisions, and our own scenarios.
//!
//! Starts the binary with the fixture tools of `rigs/conformance/longhaul.toml` and runs every scenario by itself.
//! Our own 2025 scenarios also run against a reference on the Python SDK, to show that they judge fairly: what fails
//! there stands in `reference-exceptions.json` with its reason. A scenario that fails and is not in `baseline.json` fails
//! the run; so does a line of either list that passes. `LONGHAUL_BINARY` names another binary to judge. What does not
//! apply to a tools server is in `not-applicable.json`, each with its reason.
//!
//! `mcpcheck` judges the same tools. With `--through` it judges Longhaul in front of other servers:
//! `conformance/through.rs`. A whole run also fails when a score is not the committed one; `--write` commits what it saw.

mod behind;
mod client_half;
mod mcpcheck;
mod scores;
mod suite;
mod through;

pub(crate) use scores::{PAGE, rendered};

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Mutex,
    time::Instant,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Outcome, pinned,
    server::{Server, binary, empty_folder},
    workspace::{items, json, root, text},
};

use scores::Half;
use suite::{Revision, Suite};

const RIG: &str = "rigs/conformance";
/// How many of our own scenarios run at once: they mostly wait. The official ones have short limits and run alone.
const ABREAST: usize = 4;

/// One scenario's checks, by how they ended.
#[derive(Default)]
struct Verdict {
    passed: u32,
    /// The checks that failed and that a list excepts.
    excepted: Vec<String>,
    wrong: Vec<String>,
}

/// Verdicts by place and scenario: `2025-11-25/ping`, `longhaul/tasks-2025-get`, `reference/tasks-2025-get`.
type Verdicts = BTreeMap<String, Verdict>;

/// Names, each with its reason.
type Reasons = BTreeMap<String, String>;

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (flags, scenarios): (Vec<&str>, Vec<&str>) = arguments
        .iter()
        .map(String::as_str)
        .partition(|argument| argument.starts_with("--"));
    if let Some(stranger) = flags
        .iter()
        .find(|flag| !["--through", "--write"].contains(*flag))
    {
        return Err(format!("`conformance` takes no `{stranger}`"));
    }
    let scenarios: Vec<String> = scenarios.into_iter().map(str::to_owned).collect();
    let write = flags.contains(&"--write");
    match flags.contains(&"--through") {
        true => through::run(write, &scenarios),
        false => own(write, &scenarios),
    }
}

/// Longhaul's own tools.
fn own(write: bool, arguments: &[String]) -> Outcome {
    let suite = Suite::install()?;
    let binary = binary()?;
    let results = empty_folder("conformance/results")?;
    let apart = not_applicable()?;
    let mut verdicts = Verdicts::new();
    let server = Server::start(&binary, &root().join(RIG), &results)?;
    for (revision, apart) in &apart {
        let wanted = applicable(&suite, *revision, apart, arguments)?;
        verdicts.extend(official(
            &suite,
            revision.name(),
            *revision,
            &wanted,
            &server.url(),
            &results,
            &apart.checks,
        )?);
    }
    verdicts.extend(mcpcheck::run("mcpcheck", &server.url(), &results, arguments)?);
    for revision in Revision::ALL {
        let wanted = wanted(suite.ours(revision)?, "longhaul", arguments);
        verdicts.extend(ours(&suite, "longhaul", &wanted, &server.url(), &Reasons::new())?);
    }
    drop(server);
    let excepted = exceptions()?;
    let wanted = wanted(suite.ours(Revision::V2025_11_25)?, "reference", arguments);
    if !wanted.is_empty() {
        let server = reference(&results)?;
        verdicts.extend(ours(&suite, "reference", &wanted, &server.url(), &excepted)?);
    }
    report(&verdicts, &apart);
    let partial = !arguments.is_empty();
    let mut wrong = unexpected(&verdicts, &listed("baseline.json")?, partial);
    if !partial {
        wrong.extend(stale("reference/", &verdicts, &excepted));
        wrong.extend(scores::settle(Half::Own, &verdicts, write)?);
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("conformance:\n  {}", wrong.join("\n  ")))
    }
}

/// The fixture tools on the Python SDK.
fn reference(results: &Path) -> Result<Server, String> {
    let python = pinned::python(
        &format!("{RIG}/reference/requirements.txt"),
        "conformance/reference",
    )?;
    Server::script(
        &python,
        &format!("{RIG}/reference/server.py"),
        results.join("reference.log"),
    )
}

/// The scenarios of the official suite at one revision that apply and are wanted.
fn applicable(
    suite: &Suite,
    revision: Revision,
    apart: &Apart,
    arguments: &[String],
) -> Result<Vec<String>, String> {
    let mut all = suite.scenarios(revision)?;
    if let Some(gone) = apart.scenarios.keys().find(|name| !all.contains(name)) {
        return Err(format!(
            "`not-applicable.json` names `{gone}`, which the suite does not have at {}",
            revision.name()
        ));
    }
    all.retain(|name| !apart.scenarios.contains_key(name));
    Ok(wanted(all, revision.name(), arguments))
}

/// Scenarios of the official suite, one after the other.
fn official(
    suite: &Suite,
    place: &str,
    revision: Revision,
    wanted: &[String],
    url: &str,
    results: &Path,
    excepted: &Reasons,
) -> Result<Verdicts, String> {
    let mut verdicts = Verdicts::new();
    for scenario in wanted {
        let start = Instant::now();
        let checks = suite.official(revision, scenario, url, results)?;
        note(
            &mut verdicts,
            place,
            scenario,
            judged(checks.as_deref(), excepted)?,
            start,
        );
    }
    Ok(verdicts)
}

/// Scenarios of our own against one server, a few at a time.
fn ours(
    suite: &Suite,
    place: &str,
    wanted: &[String],
    url: &str,
    excepted: &Reasons,
) -> Result<Verdicts, String> {
    let waiting = Mutex::new(wanted.iter());
    let work = || -> Result<Verdicts, String> {
        let mut verdicts = Verdicts::new();
        while let Some(scenario) = waiting.lock().ok().and_then(|mut waiting| waiting.next()) {
            let start = Instant::now();
            let verdict = judge(&suite.our(scenario, url)?, excepted)?;
            note(&mut verdicts, place, scenario, verdict, start);
        }
        Ok(verdicts)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..ABREAST).map(|_| scope.spawn(work)).collect();
        let mut verdicts = Verdicts::new();
        for worker in workers {
            verdicts.extend(worker.join().map_err(|_| "a scenario's thread panicked")??);
        }
        Ok(verdicts)
    })
}

/// Those that were asked for, by their name alone or with the place in front; all when nothing was asked for.
fn wanted(mut names: Vec<String>, place: &str, arguments: &[String]) -> Vec<String> {
    names.retain(|name| {
        let whole = format!("{place}/{name}");
        arguments.is_empty()
            || arguments
                .iter()
                .any(|argument| argument == name || *argument == whole)
    });
    names
}

/// Keeps a verdict, and prints one line as soon as the scenario has ended.
fn note(verdicts: &mut Verdicts, place: &str, scenario: &str, verdict: Verdict, start: Instant) {
    let name = format!("{place}/{scenario}");
    let word = if verdict.wrong.is_empty() { "ok" } else { "FAILS" };
    println!("{word:<5} {name} ({} ms)", start.elapsed().as_millis());
    verdicts.insert(name, verdict);
}

fn report(verdicts: &Verdicts, apart: &[(Revision, Apart)]) {
    println!(
        "\n{:<64} {:>6} {:>8} {:>6}",
        "scenario", "passed", "excepted", "failed"
    );
    for (name, verdict) in verdicts {
        println!(
            "{name:<64} {:>6} {:>8} {:>6}",
            verdict.passed,
            verdict.excepted.len(),
            verdict.wrong.len()
        );
        for line in &verdict.wrong {
            println!("    {line}");
        }
    }
    for (revision, apart) in apart {
        for (name, reason) in &apart.scenarios {
            println!("{}/{name} does not apply: {reason}", revision.name());
        }
    }
    for (place, [well, all]) in scores::of(verdicts) {
        println!("conformance: {place}: {well} of {all} scenarios pass");
    }
}

/// What differs from the baseline, which names failing scenarios and may only shrink; `partial` when only some ran.
fn unexpected(verdicts: &Verdicts, baseline: &Reasons, partial: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, verdict) in verdicts {
        match (verdict.wrong.is_empty(), baseline.contains_key(name)) {
            (false, false) => wrong.push(format!("{name} fails")),
            (true, true) => wrong.push(format!("{name} passes: take it out of the baseline")),
            (true, false) | (false, true) => {}
        }
    }
    if !partial {
        let gone = baseline.keys().filter(|name| !verdicts.contains_key(*name));
        wrong.extend(gone.map(|name| format!("{name} is in the baseline but does not run")));
    }
    wrong
}

/// Exceptions that no check at these places met: it passes by now, or no check has that name.
fn stale(places: &str, verdicts: &Verdicts, excepted: &Reasons) -> Vec<String> {
    let met: BTreeSet<&String> = verdicts
        .iter()
        .filter(|(name, _)| name.starts_with(places))
        .flat_map(|(_, verdict)| &verdict.excepted)
        .collect();
    excepted
        .keys()
        .filter(|name| !met.contains(name))
        .map(|name| format!("{name} does not fail at `{places}`: take it out of the exceptions"))
        .collect()
}

/// What of the official suite does not apply at a revision.
struct Apart {
    /// Whole scenarios.
    scenarios: Reasons,
    /// Single checks of scenarios that do apply.
    checks: Reasons,
}

fn not_applicable() -> Result<Vec<(Revision, Apart)>, String> {
    let file: BTreeMap<String, BTreeMap<String, Reasons>> = listed("not-applicable.json")?;
    let of = |revision: Revision| {
        let part = |name: &str| {
            let parts = file.get(revision.name());
            parts
                .and_then(|parts| parts.get(name))
                .cloned()
                .unwrap_or_default()
        };
        let apart = Apart {
            scenarios: part("scenarios"),
            checks: part("checks"),
        };
        (revision, apart)
    };
    Ok(Revision::ALL.map(of).into())
}

/// The checks that the reference does not pass: its own faults, and what only Longhaul promises.
fn exceptions() -> Result<Reasons, String> {
    let parts: BTreeMap<String, Reasons> = listed("reference-exceptions.json")?;
    Ok(parts.into_values().flatten().collect())
}

fn listed<T: DeserializeOwned>(file: &str) -> Result<T, String> {
    json(&format!("{RIG}/{file}"))
}

/// As [`judge`]; a scenario that wrote no checks is wrong.
fn judged(checks: Option<&str>, excepted: &Reasons) -> Result<Verdict, String> {
    match checks {
        Some(checks) => judge(checks, excepted),
        None => Ok(Verdict {
            wrong: vec!["the suite wrote no checks".to_owned()],
            ..Verdict::default()
        }),
    }
}

/// A warning counts as wrong: what the suite only recommends, we promise. So does a check that the suite skipped
/// and that has no reason here: a check that is not run proves nothing.
fn judge(checks: &str, excepted: &Reasons) -> Result<Verdict, String> {
    let checks: Value =
        serde_json::from_str(checks).map_err(|error| format!("the checks are no JSON: {error}"))?;
    let mut verdict = Verdict::default();
    for check in items(&checks) {
        let id = text(&check["id"]);
        match text(&check["status"]) {
            "SUCCESS" | "INFO" => verdict.passed += 1,
            _ if excepted.contains_key(id) => verdict.excepted.push(id.to_owned()),
            _ if excepted.contains_key(text(&check["name"])) => {
                verdict.excepted.push(text(&check["name"]).to_owned());
            }
            status => verdict
                .wrong
                .push(format!("{status} {id}: {}", text(&check["errorMessage"]))),
        }
    }
    if verdict.passed == 0 && verdict.excepted.is_empty() && verdict.wrong.is_empty() {
        verdict.wrong.push("no check ran".to_owned());
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Reasons, Verdict, Verdicts, judge, stale, unexpected, wanted};

    fn reason(name: &str) -> (String, String) {
        (name.to_owned(), "a reason".to_owned())
    }

    #[test]
    fn a_warning_is_wrong_and_an_excepted_check_is_counted_apart() {
        let excepted = Reasons::from([reason("c")]);
        let checks =
            r#"[{"id":"a","status":"SUCCESS"},{"id":"b","status":"WARNING"},{"id":"c","status":"FAILURE"}]"#;
        let verdict = judge(checks, &excepted).unwrap();
        assert_eq!(
            (verdict.passed, verdict.excepted.len(), verdict.wrong.len()),
            (1, 1, 1)
        );
        let skipped = r#"[{"id":"a","status":"SKIPPED"},{"id":"c","status":"SKIPPED"}]"#;
        let verdict = judge(skipped, &excepted).unwrap();
        assert_eq!((verdict.excepted.len(), verdict.wrong.len()), (1, 1));
        // An exception that names a check by its name is met under that name.
        let named = r#"[{"id":"x","name":"c","status":"SKIPPED"}]"#;
        assert_eq!(judge(named, &excepted).unwrap().excepted, ["c"]);
    }

    #[test]
    fn a_scenario_without_a_single_check_is_wrong() {
        assert_eq!(judge("[]", &Reasons::new()).unwrap().wrong.len(), 1);
    }

    #[test]
    fn a_new_failure_and_a_stale_line_are_both_unexpected() {
        let failing = || Verdict {
            wrong: vec!["x".to_owned()],
            ..Verdict::default()
        };
        let verdicts = BTreeMap::from([
            ("fails".to_owned(), failing()),
            ("known".to_owned(), failing()),
            ("mended".to_owned(), Verdict::default()),
        ]);
        let baseline = Reasons::from([reason("known"), reason("mended"), reason("gone")]);
        assert_eq!(unexpected(&verdicts, &baseline, false).len(), 3);
        assert_eq!(unexpected(&verdicts, &baseline, true).len(), 2);
    }

    #[test]
    fn an_exception_that_passes_on_the_reference_is_stale() {
        let met = |name: &str| Verdict {
            excepted: vec![name.to_owned()],
            ..Verdict::default()
        };
        let verdicts = Verdicts::from([
            ("reference/a".to_owned(), met("still-wrong")),
            ("2026-07-28/b".to_owned(), met("elsewhere")),
        ]);
        let excepted = Reasons::from([reason("still-wrong"), reason("elsewhere")]);
        let stale = stale("reference/", &verdicts, &excepted);
        assert_eq!(stale.len(), 1);
        assert!(stale[0].starts_with("elsewhere "));
    }

    #[test]
    fn a_scenario_is_asked_for_by_name_or_with_its_place() {
        let names = || vec!["ping".to_owned(), "caching".to_owned()];
        let ask = |argument: &str| wanted(names(), "2025-11-25", &[argument.to_owned()]).len();
        assert_eq!(
            (ask("ping"), ask("2025-11-25/ping"), ask("2026-07-28/ping")),
            (1, 1, 0)
        );
        assert_eq!(wanted(names(), "2025-11-25", &[]).len(), 2);
    }
}
