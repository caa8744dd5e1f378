//! Progress in what a program prints anyway: `3/10 message`, `30% message`, or the tool's own pattern.
//!
//! Called for each line while the program runs. Pure.

use std::sync::LazyLock;

use regex::Regex;

use crate::{
    config::{PROGRESS_REGEX_BYTES_MAX, Tool},
    outbound::Note,
};

/// What finds progress in a line.
#[derive(Clone)]
pub(super) enum Patterns {
    /// Nothing.
    Off,
    /// The tool's own pattern.
    Own(Regex),
    /// [`USUAL`].
    Usual,
}

/// What most programs print, with what the total is where the line does not say it. Compiled once, and not before a
/// program prints: the two take some 100 KiB.
static USUAL: LazyLock<[(Regex, Option<f64>); 2]> = LazyLock::new(|| {
    let usual = |pattern| Regex::new(pattern).expect("our own patterns compile");
    [(usual(FRACTION), None), (usual(PERCENT), Some(100.0))]
});
const FRACTION: &str =
    r"^\s*\[?\s*(?<n>[0-9]{1,15})\s*/\s*(?<total>[0-9]{1,15})\s*\]?(?:\s+(?<message>.*))?$";
const PERCENT: &str = r"^\s*(?<n>[0-9]{1,3}(?:\.[0-9]{1,6})?)\s?%(?:\s+(?<message>.*))?$";

impl Patterns {
    pub(super) fn of(tool: &Tool) -> Result<Patterns, String> {
        match tool.progress.as_deref() {
            Some("off") => Ok(Patterns::Off),
            Some(own) => {
                let regex = regex::RegexBuilder::new(own)
                    .size_limit(PROGRESS_REGEX_BYTES_MAX)
                    .build();
                regex.map(Patterns::Own).map_err(|error| error.to_string())
            }
            None => Ok(Patterns::Usual),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Patterns::Off => true,
            Patterns::Own(_) | Patterns::Usual => false,
        }
    }

    /// The note in a line, if it holds progress.
    pub(super) fn note(&self, line: &[u8]) -> Option<Note> {
        let text = String::from_utf8_lossy(line);
        // A progress bar writes over its line; the last state counts.
        let text = text.rsplit('\r').find(|part| !part.is_empty())?;
        let (captures, total) = match self {
            Patterns::Off => return None,
            Patterns::Own(regex) => (regex.captures(text)?, None),
            Patterns::Usual => USUAL
                .iter()
                .find_map(|(regex, total)| Some((regex.captures(text)?, *total)))?,
        };
        let number = |name: &str| captures.name(name).and_then(|found| found.as_str().parse().ok());
        let note = Note::new(
            number("n"),
            number("total").or(total),
            captures.name("message").map(|m| m.as_str()),
        );
        (!note.is_empty()).then_some(note)
    }
}
