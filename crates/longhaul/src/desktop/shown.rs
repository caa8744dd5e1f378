//! What a change is shown as: a unified diff without secrets, and without anything that steers a terminal.

use std::time::Duration;

use similar::TextDiff;

use super::{document::Document, secret};
use crate::screen::{self, line};

/// How many lines stand around a change.
const AROUND: usize = 3;
/// The longest line that is shown whole, in columns: a terminal breaks it, and nothing that is written is hidden. A file
/// without line ends may be longer.
const COLUMNS_MAX: usize = 2_000;
/// How long the shortest difference is looked for; after that, a longer one will do.
const TIME_MAX: Duration = Duration::from_secs(2);

/// The difference between two documents, line by line.
pub(crate) fn diff(file: &str, old: Option<&Document>, new: Option<&Document>) -> Vec<String> {
    let text = |document: Option<&Document>| document.map(secret::masked).unwrap_or_default();
    let (before, after) = (text(old), text(new));
    let name = |there: bool, prefix: &str| match there {
        true => format!("{prefix}{file}"),
        false => "/dev/null".to_owned(),
    };
    let diff = TextDiff::configure()
        .timeout(TIME_MAX)
        .diff_lines(&before, &after);
    let mut unified = diff.unified_diff();
    let unified = unified
        .context_radius(AROUND)
        .header(&name(old.is_some(), "a"), &name(new.is_some(), "b"))
        .to_string();
    // Line ends of another kind are kept, and are of no use on a terminal.
    let lines = unified
        .lines()
        .map(|text| text.trim_end_matches('\r').replace('\t', "    "));
    lines.map(|text| screen::cut(&line(&text), COLUMNS_MAX)).collect()
}
