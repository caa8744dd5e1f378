//! What the pairs showed, as committed, and the page that shows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde::{Deserialize, Serialize};

use crate::{
    clients::Client,
    program::Program,
    workspace::{self, json, root},
};

use super::{
    Cell, RIG, exceptions, excused,
    rows::{After, Row, Rows, STEPS},
};

const FIGURES: &str = "docs/reference/pairings.json";
/// The page of the reference.
pub(crate) const PAGE: &str = "docs/reference/pairings.md";
/// What a step is called in a cell.
const LETTERS: [(&str, char, &str); 6] = [
    ("call", 'c', "a call that is answered with its result"),
    (
        "result",
        'r',
        "a call that becomes a task, where the client has tasks, and its result",
    ),
    (
        "question",
        'q',
        "a question in the middle of a call, answered by the client, and the result",
    ),
    (
        "cancel",
        'x',
        "a cancel: the task is cancelled, and the work ends where that can be seen",
    ),
    (
        "restart",
        's',
        "`kill -9` of Longhaul: finished work is found by a new process of the client, and so is running work, which went on or failed, as its server lets it, and never began twice",
    ),
    (
        "asked",
        'a',
        "the same with a question that is open: it is answered afterwards, or its task failed",
    ),
];

/// One pair as it was last run.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// The commit that it was run at.
    commit: String,
    /// Whether each step that it has passed.
    steps: BTreeMap<String, bool>,
}

type Figures = BTreeMap<String, Seen>;

/// The commit that is checked out.
///
/// # Errors
/// When `git` fails.
pub(super) fn commit() -> Result<String, String> {
    let commit = Program::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .folder(&root())
        .output()?;
    Ok(commit.trim().to_owned())
}

/// What is not as committed; with `write` it is committed now.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn settle(cells: &[Cell<'_>], commit: &str, write: bool) -> Result<Vec<String>, String> {
    let mut figures: Figures = json(FIGURES)?;
    let mut other = Vec::new();
    for cell in cells {
        let steps = cell
            .verdicts()
            .into_iter()
            .map(|(step, why)| (step, why.is_empty()));
        let seen = Seen {
            commit: commit.to_owned(),
            steps: steps.collect(),
        };
        let known = figures.get(cell.name());
        if known.is_none_or(|known| known.steps != seen.steps) {
            other.push(format!(
                "{}: `{FIGURES}` says otherwise; `--write` writes it anew",
                cell.name()
            ));
        }
        figures.insert(cell.name().to_owned(), seen);
    }
    if !write {
        return Ok(other);
    }
    let (rows, clients) = (Rows::read()?, Client::all()?);
    figures.retain(|pair, _| {
        pairs(&rows, &clients).any(|(client, row)| *pair == format!("{}/{}", client.name, row.name))
    });
    let lines = serde_json::to_string(&figures).map_err(|error| format!("no JSON of pairs: {error}"))?;
    let lines = lines.replace("}},", "}},\n  ").replacen('{', "{\n  ", 1) + "\n";
    workspace::write(&root().join(FIGURES), &lines)?;
    workspace::write(&root().join(PAGE), &rendered()?)?;
    Ok(Vec::new())
}

fn pairs<'a>(rows: &'a Rows, clients: &'a [Client]) -> impl Iterator<Item = (&'a Client, &'a Row)> {
    rows.servers
        .iter()
        .flat_map(move |row| clients.iter().map(move |client| (client, row)))
}

/// The page of the reference, from the committed figures, the rows and the exceptions.
///
/// # Errors
/// When a file is not there or not as expected.
pub(crate) fn rendered() -> Result<String, String> {
    let (figures, rows, clients): (Figures, Rows, Vec<Client>) =
        (json(FIGURES)?, Rows::read()?, Client::all()?);
    let mut page = String::from(
        "# Pairings\n\n\
         Generated from [pairings.json](pairings.json); do not edit.\n\
         Each client in front of Longhaul, over HTTP, with each server behind it: `cargo xtask pairings --all`.\n\
         Every server stands behind the same Longhaul, at a toolset of its own.\n",
    );
    commits(&mut page, &figures, rows.servers.len() * clients.len());
    page.push_str(
        "\nA letter is a step that passed, `–` one that the pair cannot have, `!` one that fails; a pair without letters was not run:\n\n",
    );
    for (_, letter, what) in LETTERS {
        let _ = writeln!(page, "- `{letter}`: {what}");
    }
    for generation in ["2025-11-25", "2026-07-28"] {
        let of: Vec<&Client> = clients
            .iter()
            .filter(|client| client.generation == generation)
            .collect();
        let _ = write!(page, "\n## Clients of {generation}\n\n| server |");
        of.iter().for_each(|client| {
            let _ = write!(
                page,
                " {} |",
                client.name.trim_end_matches("-2025").trim_end_matches("-2026")
            );
        });
        let _ = write!(page, "\n|---|{}\n", "---|".repeat(of.len()));
        for row in &rows.servers {
            let _ = write!(page, "| {} |", row.name);
            for client in &of {
                let _ = write!(page, " {} |", shown(client, row, &figures));
            }
            page.push('\n');
        }
    }
    servers(&mut page, &rows);
    cannot(&mut page, &rows, &clients);
    fails(&mut page, &figures)?;
    Ok(page)
}

fn commits(page: &mut String, figures: &Figures, all: usize) {
    let mut at: BTreeMap<&str, usize> = BTreeMap::new();
    for seen in figures.values() {
        *at.entry(&seen.commit).or_default() += 1;
    }
    let counts: Vec<String> = at
        .iter()
        .map(|(commit, count)| format!("{count} at {commit}"))
        .collect();
    let steps: Vec<bool> = figures
        .values()
        .flat_map(|seen| seen.steps.values().copied())
        .collect();
    let well = steps.iter().filter(|well| **well).count();
    let _ = writeln!(
        page,
        "Of {all} pairs {} were run ({}): of their {} steps {well} pass.",
        figures.len(),
        counts.join(", "),
        steps.len()
    );
}

/// A cell: a letter for each step.
fn shown(client: &Client, row: &Row, figures: &Figures) -> String {
    let Some(seen) = figures.get(&format!("{}/{}", client.name, row.name)) else {
        return String::new();
    };
    let letter = |(step, letter, _): (&str, char, &str)| match seen.steps.get(step) {
        Some(true) => letter,
        Some(false) => '!',
        None => '–',
    };
    format!("`{}`", LETTERS.map(letter).iter().collect::<String>())
}

fn servers(page: &mut String, rows: &Rows) {
    page.push_str("\n## Servers\n\n| server | what it is | work that runs when Longhaul is killed | a question that is open then |\n|---|---|---|---|\n");
    for row in &rows.servers {
        let after = |step| match (rows.step(row, step), row.after(step)) {
            (None, _) => "–",
            (Some(_), After::GoesOn) => "goes on",
            (Some(_), After::Interrupted) => "fails as interrupted",
            (Some(_), After::Lost) => "fails as lost",
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            row.name,
            row.title,
            after("restart"),
            after("asked")
        );
    }
}

fn cannot(page: &mut String, rows: &Rows, clients: &[Client]) {
    page.push_str("\n## What cannot be\n\n| who | steps | why |\n|---|---|---|\n");
    let mut reasons: BTreeMap<(String, &str), BTreeSet<usize>> = BTreeMap::new();
    for (client, row) in pairs(rows, clients) {
        for (at, step) in STEPS.iter().enumerate() {
            if let Some(why) = rows.why_not(client, row, step) {
                let who = if row.without.contains_key(*step) {
                    &row.name
                } else {
                    &client.name
                };
                reasons.entry((who.clone(), why)).or_default().insert(at);
            }
        }
    }
    for ((who, why), steps) in &reasons {
        let letters: String = steps.iter().map(|at| LETTERS[*at].1).collect();
        let _ = writeln!(page, "| {who} | `{letters}` | {why} |");
    }
}

fn fails(page: &mut String, figures: &Figures) -> Result<(), String> {
    let exceptions = exceptions()?;
    page.push_str("\n## What fails\n\n");
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (pair, seen) in figures {
        let (client, server) = pair.split_once('/').unwrap_or_default();
        for (step, _) in seen.steps.iter().filter(|(_, well)| !**well) {
            let name = format!("{pair}/{step}");
            let (line, _) = excused(&exceptions, client, server, step)
                .ok_or_else(|| format!("{name} fails and is not in the exceptions"))?;
            reasons.entry(line).or_default().push(name);
        }
    }
    for (line, steps) in &reasons {
        let Some(exception) = exceptions.get(*line) else {
            continue;
        };
        let shown = match &exception.reproduction {
            Some(file) => format!(" Without Longhaul: `{RIG}/repro/{file}`."),
            None => " The fault is Longhaul's.".to_owned(),
        };
        let count = if line.contains('*') {
            format!(" ({})", steps.len())
        } else {
            String::new()
        };
        let _ = writeln!(page, "- `{line}`{count}: {}.{shown}", exception.why);
    }
    if reasons.is_empty() {
        page.push_str("Nothing.\n");
    }
    Ok(())
}
