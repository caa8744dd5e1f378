//! The scenarios of the suite that judge a client: Longhaul, as the client of the suite's own servers.
//!
//! What Longhaul asks of them is asked of it by the Python SDK's client. What does not apply is in
//! `behind/client-not-applicable.json`: whole scenarios by what their names begin with, and single checks, with reasons.

use std::{collections::BTreeMap, path::Path, time::Instant};

use crate::workspace::root;

use super::{
    RIG, Reasons, Verdicts, judged, listed, note,
    suite::{Revision, Suite},
    wanted,
};

/// The SDK's client for the suite, in its source package.
const CLIENT: &str = ".github/actions/conformance/client.py";

const LIST: &str = "behind/client-not-applicable.json";

/// # Errors
/// When the suite cannot be run.
pub(super) fn run(
    suite: &Suite,
    binary: &Path,
    interpreter: &Path,
    source: &Path,
    results: &Path,
    arguments: &[String],
) -> Result<Verdicts, String> {
    let script = root().join(RIG).join("behind/client.py");
    let command = format!("{} {}", interpreter.display(), script.display());
    let client = source.join(CLIENT);
    let env = [("LONGHAUL_BINARY", binary), ("CLIENT", client.as_path())];
    let (scenarios, checks_apart) = (apart("scenarios")?, apart("checks")?);
    let mut verdicts = Verdicts::new();
    for revision in Revision::ALL {
        let mut names = suite.client_scenarios(revision)?;
        names.retain(|name| !scenarios.keys().any(|begin| name.starts_with(begin)));
        let place = format!("client-{}", revision.name());
        for scenario in wanted(names, &place, arguments) {
            let start = Instant::now();
            let checks = suite.client(revision, &scenario, &command, &env, &results.join("client"))?;
            let verdict = judged(checks.as_deref(), &checks_apart)?;
            note(&mut verdicts, &place, &scenario, verdict, start);
        }
    }
    Ok(verdicts)
}

/// Lines of what does not apply that a whole run did not meet.
///
/// # Errors
/// When the suite does not say what it has.
pub(super) fn stale(suite: &Suite, verdicts: &Verdicts) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for revision in Revision::ALL {
        names.extend(suite.client_scenarios(revision)?);
    }
    let mut stale = super::stale("client-", verdicts, &apart("checks")?);
    stale.extend(begins_none(&apart("scenarios")?, &names));
    Ok(stale)
}

fn begins_none(scenarios: &Reasons, names: &[String]) -> Vec<String> {
    scenarios
        .keys()
        .filter(|begin| !names.iter().any(|name| name.starts_with(*begin)))
        .map(|begin| format!("no scenario of a client begins with `{begin}`: take it out of `{LIST}`"))
        .collect()
}

fn apart(part: &str) -> Result<Reasons, String> {
    let mut apart: BTreeMap<String, Reasons> = listed(LIST)?;
    Ok(apart.remove(part).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{Reasons, begins_none};

    #[test]
    fn a_line_that_no_scenario_begins_with_is_stale() {
        let lines = ["auth/", "gone"].map(|line| (line.to_owned(), "a reason".to_owned()));
        let stale = begins_none(&Reasons::from(lines), &["auth/basic".to_owned()]);
        assert!(stale.len() == 1 && stale[0].contains("`gone`"), "{stale:?}");
    }
}
