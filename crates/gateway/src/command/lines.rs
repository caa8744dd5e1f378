//! Progress in what a program prints anyway: `3/10 message`, `30% message`, or the tool's own pattern.
//!
//! Called for each line while the program runs. Pure.

use regex::Regex;

use crate::{
    config::{PROGRESS_REGEX_BYTES_MAX, Tool},
    outbound::Note,
};

/// What finds progress in a line.
#[derive(Clone)]
pub(super) struct Patterns(Vec<(Regex, Option<f64>)>);

const FRACTION: &str = r"^\s*\[?\s*(?<n>\d{1,15})\s*/\s*(?<total>\d{1,15})\s*\]?(?:\s+(?<message>.*))?$";
const PERCENT: &str = r"^\s*(?<n>\d{1,3}(?:\.\d{1,6})?)\s?%(?:\s+(?<message>.*))?$";

impl Patterns {
    pub(super) fn of(tool: &Tool) -> Result<Patterns, String> {
        let patterns = match tool.progress.as_deref() {
            Some("off") => Vec::new(),
            Some(own) => vec![(own, None)],
            None => vec![(FRACTION, None), (PERCENT, Some(100.0))],
        };
        let compiled = patterns.into_iter().map(|(pattern, total)| {
            let regex = regex::RegexBuilder::new(pattern)
                .size_limit(PROGRESS_REGEX_BYTES_MAX)
                .build();
            regex
                .map(|regex| (regex, total))
                .map_err(|error| error.to_string())
        });
        compiled.collect::<Result<_, _>>().map(Patterns)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The note in a line, if it holds progress.
    pub(super) fn note(&self, line: &[u8]) -> Option<Note> {
        let text = String::from_utf8_lossy(line);
        // A progress bar writes over its line; the last state counts.
        let text = text.rsplit('\r').find(|part| !part.is_empty())?;
        let (captures, total) = self
            .0
            .iter()
            .find_map(|(regex, total)| regex.captures(text).map(|captures| (captures, *total)))?;
        let number = |name: &str| captures.name(name).and_then(|found| found.as_str().parse().ok());
        let note = Note::new(
            number("n"),
            number("total").or(total),
            captures.name("message").map(|m| m.as_str()),
        );
        (!note.is_empty()).then_some(note)
    }
}
