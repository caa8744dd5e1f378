//! The raw figures of a run, looked up by server, part and phase.
//!
//! Called by `page`. Reads only; never invents a figure that is not there.

use serde_json::Value;

use super::{ECHO, OURS};
use crate::workspace::{items, text};

/// What one run left.
pub(super) struct Figures<'a> {
    pub(super) raw: &'a Value,
}

/// The median of some rounds, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    pub(super) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            *values.get(middle)?
        } else {
            f64::midpoint(*values.get(middle.checked_sub(1)?)?, *values.get(middle)?)
        };
        Some(Spread {
            median,
            least: *values.first()?,
            most: *values.last()?,
        })
    }
}

impl<'a> Figures<'a> {
    /// The servers in the order in which they were measured.
    pub(super) fn servers(&self) -> impl Iterator<Item = &'a Value> {
        items(&self.raw["servers"])
    }

    /// The servers that are neither ours nor the echo.
    pub(super) fn peers(&self) -> impl Iterator<Item = &'a Value> {
        self.servers()
            .filter(|server| !matches!(text(&server["name"]), OURS | ECHO))
    }

    pub(super) fn runs(&self, server: &str, part: &str) -> impl Iterator<Item = &'a Value> {
        items(&self.raw["runs"])
            .filter(move |run| text(&run["server"]) == server && text(&run["part"]) == part)
    }

    /// What was measured in a phase, over all rounds.
    pub(super) fn rounds(&self, server: &str, part: &str, phase: &str) -> Vec<&'a Value> {
        self.runs(server, part)
            .flat_map(|run| items(&run["report"]["measurements"]))
            .filter(|measured| text(&measured["phase"]) == phase)
            .flat_map(|measured| items(&measured["rounds"]))
            .collect()
    }

    /// One figure of a phase, over all rounds.
    pub(super) fn spread(&self, server: &str, part: &str, phase: &str, field: &str) -> Option<Spread> {
        let rounds = self.rounds(server, part, phase);
        Spread::of(rounds.iter().filter_map(|round| round[field].as_f64()).collect())
    }

    pub(super) fn median(&self, server: &str, part: &str, phase: &str, field: &str) -> Option<f64> {
        Some(self.spread(server, part, phase, field)?.median)
    }

    /// How many replies of a phase were not what was asked for, of how many calls, and how many rounds got stuck.
    pub(super) fn errors(&self, server: &str, part: &str, phase: &str) -> (u64, u64) {
        let rounds = self.rounds(server, part, phase);
        let sum = |field: &str| {
            rounds
                .iter()
                .filter_map(|round| round[field].as_u64())
                .sum::<u64>()
        };
        (sum("errors") + sum("not_begun"), sum("calls") + sum("errors"))
    }

    /// Every error text of a server, each once.
    pub(super) fn why(&self, server: &str) -> Vec<&'a str> {
        let mut texts: Vec<&str> = items(&self.raw["runs"])
            .filter(|run| text(&run["server"]) == server)
            .flat_map(|run| items(&run["report"]["measurements"]))
            .flat_map(|measured| items(&measured["rounds"]))
            .filter(|round| round["errors"].as_u64() > Some(0))
            .flat_map(|round| round["why"].as_object().into_iter().flatten())
            .map(|(why, _)| why.as_str())
            .collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    }

    /// The highest median of a figure among some peers, and whose it is.
    pub(super) fn best<'s>(
        &self,
        servers: impl Iterator<Item = &'s Value>,
        phase: &str,
        field: &str,
    ) -> Option<(&'s str, f64)> {
        servers
            .filter_map(|server| {
                let figure = self.median(text(&server["name"]), "load", phase, field)?;
                Some((text(&server["title"]), figure))
            })
            .max_by(|one, other| one.1.total_cmp(&other.1))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Figures, Spread};

    #[test]
    fn a_spread_is_the_middle_the_least_and_the_most() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn rounds_of_all_runs_of_a_part_are_taken_together() {
        let run = |server: &str, calls: u64| {
            json!({"server": server, "part": "load", "report": {"measurements": [
                {"phase": "get@1", "rounds": [{"calls": calls, "errors": 1, "per_second": calls}]}]}})
        };
        let raw = json!({"runs": [run("longhaul", 10), run("echo", 90), run("longhaul", 30)]});
        let figures = Figures { raw: &raw };
        assert_eq!(
            figures.median("longhaul", "load", "get@1", "per_second"),
            Some(20.0)
        );
        assert_eq!(figures.errors("longhaul", "load", "get@1"), (2, 42));
    }
}
