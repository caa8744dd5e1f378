//! `jbt-mcpcheck`: eight checks of 2026-07-28, by a server's URL. A warning passes here, an inconclusive check does not.

use std::{fs, path::Path, time::Instant};

use serde_json::Value;

use crate::{
    pinned,
    program::Program,
    workspace::{items, text},
};

use super::{RIG, Verdict, Verdicts, note, wanted};

const CHECKS: [&str; 8] = [
    "handshake",
    "session",
    "discover",
    "protocol",
    "schemas",
    "errors",
    "cache",
    "origin",
];

/// Runs the checks that are wanted; their names have the place in front.
///
/// # Errors
/// When it cannot be installed or reports nothing.
pub(super) fn run(place: &str, url: &str, results: &Path, arguments: &[String]) -> Result<Verdicts, String> {
    let wanted = wanted(CHECKS.map(str::to_owned).into(), place, arguments);
    if wanted.is_empty() {
        return Ok(Verdicts::new());
    }
    let start = Instant::now();
    let python = pinned::python(
        &format!("{RIG}/mcpcheck/requirements.txt"),
        "conformance/mcpcheck",
    )?;
    let file = results.join(format!("{place}.json"));
    Program::new(python)
        .args(["-m", "mcpcheck", url, "--json", "--output"])
        .args([&file])
        .silent()
        .status()?;
    let report = fs::read_to_string(&file).map_err(|error| format!("mcpcheck wrote no report: {error}"))?;
    let report: Value =
        serde_json::from_str(&report).map_err(|error| format!("mcpcheck's report is no JSON: {error}"))?;
    let mut verdicts = Verdicts::new();
    for name in wanted {
        let check = items(&report["checks"]).find(|check| check["name"] == name);
        note(
            &mut verdicts,
            place,
            &name,
            check.map_or_else(missing, verdict),
            start,
        );
    }
    Ok(verdicts)
}

fn missing() -> Verdict {
    Verdict {
        wrong: vec!["mcpcheck did not report it".to_owned()],
        ..Verdict::default()
    }
}

fn verdict(check: &Value) -> Verdict {
    let status = text(&check["status"]);
    if ["pass", "warn"].contains(&status) {
        return Verdict {
            passed: 1,
            ..Verdict::default()
        };
    }
    let findings = items(&check["failures"]).chain(items(&check["warnings"]));
    let found = findings.map(|finding| format!("; {}", text(&finding["message"])));
    Verdict {
        wrong: vec![format!(
            "{status}: {}{}",
            text(&check["summary"]),
            found.collect::<String>()
        )],
        ..Verdict::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::verdict;

    #[test]
    fn a_warning_passes_and_an_inconclusive_check_does_not() {
        let wrong = |status: &str| verdict(&json!({"status": status})).wrong.len();
        assert_eq!((wrong("pass"), wrong("warn")), (0, 0));
        assert_eq!((wrong("fail"), wrong("inconclusive"), wrong("error")), (1, 1, 1));
    }
}
