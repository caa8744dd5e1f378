//! `cargo xtask conformance [SCENARIO..]`: the official MCP suite and our own listen suite, against the binary.
//!
//! Installs the suite as `rigs/conformance/package.json` pins it, starts `longhaul serve` on a free port with the
//! fixture tools of `rigs/conformance/longhaul.toml`, runs every scenario by itself, and compares with
//! `rigs/conformance/baseline.json`. A failure that is not in the baseline fails; so does a line of the baseline
//! that passes. `LONGHAUL_BINARY` names another binary to judge. What does not apply to a tools server is in `not-applicable.json`, each with its reason.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    Outcome,
    packages::Npm,
    program::Program,
    server::{Server, binary, empty_folder},
    workspace::{files, items, read, root, text},
};

const RIG: &str = "rigs/conformance";
const REVISION: &str = "2026-07-28";

/// One scenario's checks, by how they ended.
#[derive(Default)]
struct Verdict {
    passed: u32,
    skipped: u32,
    wrong: Vec<String>,
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let suite = Suite::install()?;
    let binary = binary()?;
    let results = empty_folder("conformance/results")?;
    let apart = NotApplicable::read()?;
    let server = Server::start(&binary, RIG, &results)?;
    let official = suite.scenarios()?;
    if let Some(gone) = apart.scenarios.keys().find(|name| !official.contains(name)) {
        return Err(format!(
            "`not-applicable.json` names `{gone}`, which the suite does not have"
        ));
    }
    let mut verdicts = BTreeMap::new();
    for scenario in official.iter().filter(|name| wanted(arguments, name)) {
        if apart.reason(scenario).is_some() {
            continue;
        }
        verdicts.insert(
            scenario.clone(),
            suite.official(scenario, &server.url(), &results, &apart)?,
        );
    }
    for scenario in suite.ours()?.iter().filter(|name| wanted(arguments, name)) {
        verdicts.insert(scenario.clone(), suite.our(scenario, &server.url())?);
    }
    drop(server);
    report(&verdicts, &apart);
    compare(&verdicts, !arguments.is_empty())
}

fn wanted(arguments: &[String], name: &str) -> bool {
    arguments.is_empty() || arguments.iter().any(|argument| argument == name)
}

fn report(verdicts: &BTreeMap<String, Verdict>, apart: &NotApplicable) {
    println!(
        "\n{:<48} {:>6} {:>7} {:>6}",
        "scenario", "passed", "skipped", "failed"
    );
    for (name, verdict) in verdicts {
        println!(
            "{name:<48} {:>6} {:>7} {:>6}",
            verdict.passed,
            verdict.skipped,
            verdict.wrong.len()
        );
        for line in &verdict.wrong {
            println!("    {line}");
        }
    }
    for (name, reason) in &apart.scenarios {
        println!("{name:<48} not applicable: {reason}");
    }
    let well = verdicts
        .values()
        .filter(|verdict| verdict.wrong.is_empty())
        .count();
    println!("conformance: {well} of {} scenarios pass", verdicts.len());
}

/// The baseline names failing scenarios, each with its reason; it may only shrink.
fn compare(verdicts: &BTreeMap<String, Verdict>, partial: bool) -> Outcome {
    let baseline: BTreeMap<String, String> = serde_json::from_str(&read(&format!("{RIG}/baseline.json"))?)
        .map_err(|error| format!("`baseline.json` is not a map of scenario to reason: {error}"))?;
    let wrong = unexpected(verdicts, &baseline, partial);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("conformance:\n  {}", wrong.join("\n  ")))
    }
}

/// What differs from the baseline; `partial` when only some scenarios ran.
fn unexpected(
    verdicts: &BTreeMap<String, Verdict>,
    baseline: &BTreeMap<String, String>,
    partial: bool,
) -> Vec<String> {
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

/// What does not apply, and why: whole scenarios, and single checks of scenarios that do apply.
struct NotApplicable {
    scenarios: BTreeMap<String, String>,
    checks: BTreeMap<String, String>,
}

impl NotApplicable {
    fn read() -> Result<NotApplicable, String> {
        let file: BTreeMap<String, BTreeMap<String, String>> =
            serde_json::from_str(&read(&format!("{RIG}/not-applicable.json"))?)
                .map_err(|error| format!("`not-applicable.json` is not as expected: {error}"))?;
        let part = |name: &str| file.get(name).cloned().unwrap_or_default();
        Ok(NotApplicable {
            scenarios: part("scenarios"),
            checks: part("checks"),
        })
    }

    fn reason(&self, scenario: &str) -> Option<&str> {
        self.scenarios.get(scenario).map(String::as_str)
    }
}

/// The installed suite.
struct Suite {
    node: PathBuf,
    cli: PathBuf,
}

impl Suite {
    /// Installs the pinned packages.
    fn install() -> Result<Suite, String> {
        let npm = Npm::install(RIG, "conformance/suite")?;
        Ok(Suite {
            node: npm.node(),
            cli: npm
                .modules()
                .join("@modelcontextprotocol/conformance/dist/index.js"),
        })
    }

    /// Every server scenario of the revision and of the tasks extension, by the suite's own list.
    fn scenarios(&self) -> Result<Vec<String>, String> {
        let list = Program::new(&self.node)
            .args([self.cli.as_path(), Path::new("list")])
            .output()?;
        let servers = list.split("Client scenarios").next().unwrap_or_default();
        let names: Vec<String> = servers
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- "))
            .filter_map(|line| line.split_once(" ["))
            .filter(|(name, versions)| versions.contains(REVISION) || name.starts_with("tasks-"))
            .map(|(name, _)| name.to_owned())
            .collect();
        if names.len() < 40 {
            Err(format!("the suite lists only {} scenarios", names.len()))
        } else {
            Ok(names)
        }
    }

    /// Runs one scenario of the official suite. The suite's own exit code is not asked: its checks are.
    fn official(
        &self,
        scenario: &str,
        url: &str,
        results: &Path,
        apart: &NotApplicable,
    ) -> Result<Verdict, String> {
        let folder = results.join(scenario);
        let mut arguments = vec!["server", "--url", url, "--scenario", scenario];
        if !scenario.starts_with("tasks-") {
            arguments.extend(["--spec-version", REVISION]);
        }
        Program::new(&self.node)
            .args([&self.cli])
            .args(arguments)
            .args(["-o"])
            .args([&folder])
            .silent()
            .status()?;
        let Some(file) = files(&folder, "checks.json")
            .ok()
            .and_then(|found| found.into_iter().next())
        else {
            return Ok(Verdict {
                wrong: vec!["the suite wrote no checks".to_owned()],
                ..Verdict::default()
            });
        };
        let checks = fs::read_to_string(&file)
            .map_err(|error| format!("cannot read `{}`: {error}", file.display()))?;
        judge(&checks, apart)
    }

    /// The scenarios of our own, one module each.
    fn ours(&self) -> Result<Vec<String>, String> {
        let modules = files(&root().join(RIG).join("upstream"), ".scenario.mjs")?;
        let name = |path: &PathBuf| {
            path.file_name()?
                .to_str()?
                .strip_suffix(".scenario.mjs")
                .map(str::to_owned)
        };
        Ok(modules.iter().filter_map(name).collect())
    }

    fn our(&self, scenario: &str, url: &str) -> Result<Verdict, String> {
        let runner = root().join(RIG).join("upstream/run.mjs");
        let checks = Program::new(&self.node)
            .args([&runner])
            .args([scenario, url])
            .output()?;
        judge(
            &checks,
            &NotApplicable {
                scenarios: BTreeMap::new(),
                checks: BTreeMap::new(),
            },
        )
    }
}

/// A warning counts as wrong: what the suite only recommends, we promise. So does a check that the suite skipped
/// and that has no reason here: a check that is not run proves nothing.
fn judge(checks: &str, apart: &NotApplicable) -> Result<Verdict, String> {
    let checks: Value =
        serde_json::from_str(checks).map_err(|error| format!("the checks are no JSON: {error}"))?;
    let mut verdict = Verdict::default();
    for check in items(&checks) {
        let id = text(&check["id"]);
        match text(&check["status"]) {
            "SUCCESS" | "INFO" => verdict.passed += 1,
            _ if apart.checks.contains_key(id) => verdict.skipped += 1,
            status => verdict
                .wrong
                .push(format!("{status} {id}: {}", text(&check["errorMessage"]))),
        }
    }
    if verdict.passed == 0 && verdict.skipped == 0 && verdict.wrong.is_empty() {
        verdict.wrong.push("no check ran".to_owned());
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{NotApplicable, Verdict, judge, unexpected};

    fn apart(check: &str) -> NotApplicable {
        let checks = BTreeMap::from([(check.to_owned(), "a reason".to_owned())]);
        NotApplicable {
            scenarios: BTreeMap::new(),
            checks,
        }
    }

    #[test]
    fn a_warning_is_wrong_and_a_check_that_does_not_apply_is_skipped() {
        let checks =
            r#"[{"id":"a","status":"SUCCESS"},{"id":"b","status":"WARNING"},{"id":"c","status":"FAILURE"}]"#;
        let verdict = judge(checks, &apart("c")).unwrap();
        assert_eq!((verdict.passed, verdict.skipped, verdict.wrong.len()), (1, 1, 1));
        let skipped = r#"[{"id":"a","status":"SKIPPED"},{"id":"c","status":"SKIPPED"}]"#;
        let verdict = judge(skipped, &apart("c")).unwrap();
        assert_eq!((verdict.skipped, verdict.wrong.len()), (1, 1));
    }

    #[test]
    fn a_scenario_without_a_single_check_is_wrong() {
        assert_eq!(judge("[]", &apart("c")).unwrap().wrong.len(), 1);
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
        let reason = |name: &str| (name.to_owned(), "a reason".to_owned());
        let baseline = BTreeMap::from([reason("known"), reason("mended"), reason("gone")]);
        assert_eq!(unexpected(&verdicts, &baseline, false).len(), 3);
        assert_eq!(unexpected(&verdicts, &baseline, true).len(), 2);
    }
}
