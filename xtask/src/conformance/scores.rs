//! How many scenarios pass, place by place: as committed, and the page that shows it.
//!
//! A place is a server and a revision, such as `rmcp-2026-07-28`. A whole run is held against the committed scores, so
//! the page stays true.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use crate::workspace::{self, json, read, root, text};

use super::{RIG, Reasons, Verdicts, behind::sdk_version, listed, not_applicable, suite::Revision};

const FIGURES: &str = "docs/reference/conformance.json";
/// The page of the reference.
pub(crate) const PAGE: &str = "docs/reference/conformance.md";
/// What the servers behind are called on the page.
const SERVERS: [(&str, &str); 2] = [
    ("python", "the everything-server of the Python SDK"),
    ("rmcp", "a server of ours on rmcp"),
];

/// How many pass, of how many.
type Scores = BTreeMap<String, [u32; 2]>;

/// Which of the two commands judged.
#[derive(Clone, Copy)]
pub(super) enum Half {
    /// Longhaul's own tools.
    Own,
    /// Longhaul in front of a server, and as a client.
    Through,
}

impl Half {
    /// The places of Longhaul's own tools; all others are of the other half.
    const OWN: [&str; 5] = ["2025-11-25", "2026-07-28", "mcpcheck", "longhaul", "reference"];

    fn has(self, place: &str) -> bool {
        let own = Half::OWN.contains(&place);
        match self {
            Half::Own => own,
            Half::Through => !own,
        }
    }
}

/// The scores of a run, by place.
pub(super) fn of(verdicts: &Verdicts) -> Scores {
    let mut scores = Scores::new();
    for (name, verdict) in verdicts {
        let place = name.split('/').next().unwrap_or_default();
        let [well, all] = scores.entry(place.to_owned()).or_default();
        *well += u32::from(verdict.wrong.is_empty());
        *all += 1;
    }
    scores
}

/// What of a whole run's scores is not as committed; with `write` they are committed now.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn settle(half: Half, verdicts: &Verdicts, write: bool) -> Result<Vec<String>, String> {
    let mut committed = committed()?;
    let scores = of(verdicts);
    if !write {
        return Ok(differences(half, &committed, &scores));
    }
    committed.retain(|place, _| !half.has(place));
    committed.extend(scores);
    let figures = serde_json::to_string(&committed).map_err(|error| format!("no JSON of scores: {error}"))?;
    let figures = figures
        .replace("],", "],\n  ")
        .replace('{', "{\n  ")
        .replace('}', "\n}\n");
    workspace::write(&root().join(FIGURES), &figures)?;
    workspace::write(&root().join(PAGE), &rendered()?)?;
    Ok(Vec::new())
}

fn committed() -> Result<Scores, String> {
    json(FIGURES)
}

fn differences(half: Half, committed: &Scores, scores: &Scores) -> Vec<String> {
    let anew = format!("and `{FIGURES}` says otherwise; `--write` writes it anew");
    let other = scores
        .iter()
        .filter(|(place, score)| committed.get(*place) != Some(score))
        .map(|(place, [well, all])| format!("{place}: {well} of {all} pass, {anew}"));
    let gone = committed
        .keys()
        .filter(|place| half.has(place) && !scores.contains_key(*place))
        .map(|place| format!("{place}: nothing of it runs, {anew}"));
    other.chain(gone).collect()
}

/// The page of the reference, from the committed scores, the pins and the lists of what does not apply.
///
/// # Errors
/// When a file is not there or not as expected.
pub(crate) fn rendered() -> Result<String, String> {
    let scores = committed()?;
    let mut page = format!(
        "# Conformance\n\n\
         Generated from [conformance.json](conformance.json); do not edit.\n\
         `cargo xtask ci` runs both commands below, which fail when a scenario fails that is not listed here, or a score changes.\n\n\
         The suite is `@modelcontextprotocol/conformance` {}: all its scenarios of a revision, those that it does not score, too.\n\
         Its scenarios of extensions belong to no revision: those of tasks are run at 2026-07-28, those of skills (`sep-2640-*`) are not.\n\
         A warning of the suite counts as a failure. `mcpcheck` is `jbt-mcpcheck` {}: eight checks of 2026-07-28.\n",
        suite_version()?,
        pinned("mcpcheck/requirements.txt", "jbt-mcpcheck==")?,
    );
    own_tools(&mut page, &scores);
    behind(&mut page, &scores)?;
    as_client(&mut page, &scores);
    reasons(&mut page)?;
    Ok(page)
}

fn score(scores: &Scores, place: &str) -> String {
    let known = scores.get(place).filter(|[_, all]| *all > 0);
    known.map_or_else(|| "–".to_owned(), |[well, all]| format!("{well} of {all}"))
}

fn own_tools(page: &mut String, scores: &Scores) {
    page.push_str("\n## Longhaul's own tools\n\n`cargo xtask conformance`\n\n| what | passes |\n|---|---|\n");
    for (place, what) in [
        (
            "2025-11-25",
            "the suite at 2025-11-25, what applies to a server of tools",
        ),
        (
            "2026-07-28",
            "the suite at 2026-07-28, what applies to a server of tools, with the tasks extension",
        ),
        ("mcpcheck", "`mcpcheck`"),
        (
            "longhaul",
            "our own scenarios: tasks in sessions, and subscriptions",
        ),
        (
            "reference",
            "our own scenarios of sessions at the Python SDK's tasks, but for listed checks",
        ),
    ] {
        let _ = writeln!(page, "| {what} | {} |", score(scores, place));
    }
}

/// The servers behind Longhaul.
fn behind(page: &mut String, scores: &Scores) -> Result<(), String> {
    page.push_str(
        "\n## Servers behind Longhaul\n\n`cargo xtask conformance --through`\n\n\
         Each server is judged directly, and then through a Longhaul that speaks the revision's generation to it;\n\
         one also through a Longhaul that speaks the other generation to it (`across`).\n\
         *Through* counts what passes directly.\n\n| server | what | directly | through Longhaul |\n|---|---|---|---|\n",
    );
    for (server, title) in SERVERS {
        let version = match server {
            "rmcp" => pinned("behind/rmcp/Cargo.toml", "rmcp = { version = \"=")?,
            _ => sdk_version()?,
        };
        for (what, place) in [
            ("the suite at 2025-11-25", format!("{server}-2025-11-25")),
            ("the suite at 2026-07-28", format!("{server}-2026-07-28")),
            ("`mcpcheck`", format!("{server}-mcpcheck")),
        ] {
            let (direct, through) = (score(scores, &format!("direct-{place}")), score(scores, &place));
            let _ = writeln!(page, "| {title} {version} | {what} | {direct} | {through} |");
        }
    }
    for (what, place) in [
        (
            "a client of 2025-11-25, the server spoken to in 2026-07-28",
            "2025-11-25",
        ),
        (
            "a client of 2026-07-28, the server spoken to in 2025-11-25",
            "2026-07-28",
        ),
        ("`mcpcheck`, the server spoken to in 2025-11-25", "mcpcheck"),
    ] {
        let (direct, through) = (
            score(scores, &format!("direct-rmcp-{place}")),
            score(scores, &format!("across-{place}")),
        );
        let _ = writeln!(page, "| the same on rmcp | {what} | {direct} | {through} |");
    }
    let _ = writeln!(
        page,
        "| a plain server without tasks | the tasks extension | – | {} |",
        score(scores, "plain")
    );
    Ok(())
}

fn as_client(page: &mut String, scores: &Scores) {
    page.push_str(
        "\nLonghaul as the client of the suite's own servers, asked by the Python SDK's client:\n\n\
         | what | passes |\n|---|---|\n",
    );
    for year in Revision::ALL.map(Revision::name) {
        let passes = score(scores, &format!("client-{year}"));
        let _ = writeln!(page, "| the suite at {year} | {passes} |");
    }
}

/// What is not in the scores, and what fails.
fn reasons(page: &mut String) -> Result<(), String> {
    let mut section = |title: &str, reasons: &[(String, String)]| {
        let _ = writeln!(page, "\n## {title}\n");
        for (name, reason) in reasons {
            let _ = writeln!(page, "- `{name}`: {reason}");
        }
        if reasons.is_empty() {
            page.push_str("Nothing.\n");
        }
    };
    let failing: [Reasons; 2] = [listed("baseline.json")?, listed("behind/baseline.json")?];
    section(
        "What fails through Longhaul",
        &failing.into_iter().flatten().collect::<Vec<_>>(),
    );
    let mut apart = Vec::new();
    for (revision, parts) in not_applicable()? {
        let named = |(name, reason)| (format!("{}/{name}", revision.name()), reason);
        apart.extend(parts.scenarios.into_iter().chain(parts.checks).map(named));
    }
    section("What does not apply to Longhaul's own tools", &apart);
    let client: BTreeMap<String, Reasons> = listed("behind/client-not-applicable.json")?;
    section(
        "What does not apply to Longhaul as a client",
        &client.into_values().flatten().collect::<Vec<_>>(),
    );
    Ok(())
}

fn suite_version() -> Result<String, String> {
    let package: Value = listed("package.json")?;
    Ok(text(&package["dependencies"]["@modelcontextprotocol/conformance"]).to_owned())
}

/// The version that follows these words in a file of the rig.
pub(super) fn pinned(file: &str, words: &str) -> Result<String, String> {
    let lines = read(&format!("{RIG}/{file}"))?;
    let version = lines.lines().find_map(|line| line.strip_prefix(words));
    let version = version.and_then(|rest| rest.split(['"', ' ']).next());
    version
        .map(str::to_owned)
        .ok_or_else(|| format!("`{file}` has no `{words}`"))
}

#[cfg(test)]
mod tests {
    use super::{Half, Scores, differences};

    #[test]
    fn a_score_that_is_not_the_committed_one_is_a_difference() {
        let scores = |score| Scores::from([("rmcp".to_owned(), score)]);
        let of = |committed: &Scores, scores: &Scores| differences(Half::Through, committed, scores).len();
        assert_eq!(of(&scores([3, 3]), &scores([3, 3])), 0);
        assert_eq!(of(&scores([3, 3]), &scores([4, 4])), 1);
        assert_eq!(of(&Scores::new(), &scores([3, 3])), 1);
    }

    #[test]
    fn a_committed_score_of_what_does_not_run_any_more_is_a_difference() {
        let committed = ["rmcp", "longhaul"].map(|place| (place.to_owned(), [3, 3]));
        let (committed, none) = (Scores::from(committed), Scores::new());
        for (half, place) in [(Half::Through, "rmcp: "), (Half::Own, "longhaul: ")] {
            let gone = differences(half, &committed, &none);
            assert!(gone.len() == 1 && gone[0].starts_with(place), "{gone:?}");
        }
    }
}
