//! What is wrong with a configuration, all of it at once, each with its place.
//!
//! Filled by every reader in `config`; printed by `serve`, `config check` and `doctor`. It never stops at the
//! first problem.

use std::{fmt, sync::Arc};

/// A place in a file, or the name of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The file as it was named, or the variable's name.
    pub file: Arc<str>,
    /// The line, from 1; 0 when the place is not a line of a file.
    pub line: usize,
    /// The column in characters, from 1; 0 when the place is not a line of a file.
    pub column: usize,
}

impl At {
    /// A whole file, or an environment variable.
    pub fn whole(file: &str) -> At {
        At {
            file: file.into(),
            line: 0,
            column: 0,
        }
    }

    /// The place of the byte `offset` of `text`.
    pub(super) fn offset(file: &Arc<str>, text: &str, offset: usize) -> At {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(start..).map_or(0, |line| line.chars().count()) + 1;
        At {
            file: file.clone(),
            line,
            column,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub at: At,
    /// What, and what to do about it.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.text)
    }
}

/// Everything that is wrong, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, at: &At, text: impl Into<String>) {
        self.0.push(Problem {
            at: at.clone(),
            text: text.into(),
        });
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// ``; did you mean `x`?`` for the known name that is nearest to `given`, or a list of the known names.
pub(crate) fn suggestion<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let limit = (given.chars().count() / 3).max(2);
    let nearest = known.iter().map(|name| (distance(given, name), *name)).min();
    match nearest {
        Some((away, name)) if away <= limit => format!("; did you mean `{name}`?"),
        Some(_) if known.len() <= 12 => format!("; known here: {}", ticked(&known)),
        Some(_) | None => "; see `longhaul config schema` for every setting".to_owned(),
    }
}

/// `` `a`, `b`, `c` ``.
pub(super) fn ticked(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The edit distance in which swapping two neighbours counts as one edit.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(row[j - 1] + 1)
                .min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
