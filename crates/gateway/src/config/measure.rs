//! Sizes and durations as settings write them, and the schema of each for editors.
//!
//! The readers of `setting` use them. A test compares what they read with what the schema lets pass.

use std::fmt;

use longhaul_core::Span;
use serde_json::json;

use super::{
    node::{Data, Node},
    problem::Problems,
    setting::Value,
};

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    /// In the largest unit that leaves no remainder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, bytes) in SIZES {
            if self.0 >= *bytes && self.0.is_multiple_of(*bytes) {
                return write!(f, "{}{unit}", self.0 / bytes);
            }
        }
        write!(f, "{}", self.0)
    }
}

const SIZES: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];
const SPANS: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// A span as a setting writes it: the largest unit that leaves no remainder.
pub fn written(span: Span) -> String {
    let unit = SPANS
        .iter()
        .find(|(_, ms)| span.0 >= *ms && span.0.is_multiple_of(*ms));
    unit.map_or_else(|| "0s".to_owned(), |(unit, ms)| format!("{}{unit}", span.0 / ms))
}

impl Value for Span {
    const KIND: &'static str = "a duration such as `90s`, `15m`, `30d` or `PT12H`";

    fn read(node: &Node, _: &mut Problems) -> Result<Span, Option<String>> {
        match &node.data {
            Data::Text(text) => Span::from_text(text).map_err(Some),
            Data::Whole(_)
            | Data::Number(_)
            | Data::Flag(_)
            | Data::Moment
            | Data::List(_)
            | Data::Table(_) => Err(Some(Span::KIND.to_owned())),
        }
    }

    fn from_text(text: &str) -> Result<Span, String> {
        duration(text).ok_or_else(|| Span::KIND.to_owned())
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "string", "pattern": DURATION })
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0)
    }

    fn written(magnitude: u64) -> String {
        written(Span(magnitude))
    }
}

/// What [`duration`] reads, for editors.
const DURATION: &str = concat!(
    "^([0-9]+(ms|s|m|h|d|w))+$",
    "|^P(?=[0-9T])([0-9]+W)?([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\\.[0-9]{1,9})?S)?)?$",
);

/// `1h30m`, `90s`, `500ms`, `2w`, or ISO 8601 with weeks at most (`P1DT12H`). Months and years have no length.
fn duration(text: &str) -> Option<Span> {
    if let Some(iso) = text.strip_prefix('P') {
        return iso_duration(iso);
    }
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let ms = match unit {
            "w" => 7 * 86_400_000,
            _ => SPANS.iter().find(|(name, _)| *name == unit)?.1,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(ms)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(Span(total))
}

/// What stands after `P`. Less than a millisecond is cut off.
fn iso_duration(text: &str) -> Option<Span> {
    let (date, time) = match text.split_once('T') {
        Some((_, "")) => return None,
        Some(halves) => halves,
        None if text.is_empty() => return None,
        None => (text, ""),
    };
    let mut total = 0u64;
    for (half, units) in [
        (date, &[('W', 7 * 86_400_000), ('D', 86_400_000)][..]),
        (time, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)][..]),
    ] {
        let (mut rest, mut units) = (half, units.iter());
        while !rest.is_empty() {
            let end = rest.find(|c: char| c.is_ascii_uppercase())?;
            let (number, after) = rest.split_at(end);
            let (_, ms) = units.find(|(unit, _)| after.starts_with(*unit))?;
            let (whole, fraction) = match number.split_once('.') {
                Some((whole, fraction)) if *ms == 1000 && (1..=9).contains(&fraction.len()) => {
                    (whole, fraction)
                }
                Some(_) => return None,
                None => (number, ""),
            };
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            if !digits(whole) || !digits(fraction) {
                return None;
            }
            let thousandths: u64 = format!("{fraction}000")[..3].parse().ok()?;
            let whole = whole.parse::<u64>().ok()?.checked_mul(*ms)?;
            total = total.checked_add(whole)?.checked_add(thousandths)?;
            rest = &after[1..];
        }
    }
    Some(Span(total))
}

impl Value for Bytes {
    const KIND: &'static str = "a size such as `512KiB`, `4MiB` or `2GiB`";

    fn read(node: &Node, _: &mut Problems) -> Result<Bytes, Option<String>> {
        match &node.data {
            Data::Text(text) => Bytes::from_text(text).map_err(Some),
            Data::Whole(_)
            | Data::Number(_)
            | Data::Flag(_)
            | Data::Moment
            | Data::List(_)
            | Data::Table(_) => Err(Some(Bytes::KIND.to_owned())),
        }
    }

    fn from_text(text: &str) -> Result<Bytes, String> {
        size(text).ok_or_else(|| Bytes::KIND.to_owned())
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "string", "pattern": "^[0-9]+ ?(B|[KMGT]i?B)$" })
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0)
    }

    fn written(magnitude: u64) -> String {
        Bytes(magnitude).to_string()
    }
}

/// `KiB` counts in 1024, `KB` in 1000.
fn size(text: &str) -> Option<Bytes> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let bytes = match unit {
        "B" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => SIZES.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(bytes).map(Bytes)
}
