//! The one canonical form of a JSON value, `lh-canon-1`, and its digest (E-3).
//!
//! Idempotency keys and the binding of answers to their questions compare by this digest, and mirrored headers
//! by its form of numbers, so "the same call" means one thing. Numbers are compared by their decimal value, taken
//! from the text: no digit is lost to a float. The form is stable for ever; a change of it gets a new name.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::{
    frame::Raw,
    scan::{Refused, Rule},
    token::{Token, Tokens},
};

/// SHA-256 over `lh-canon-1`, a zero byte and the canonical form.
pub type Digest = [u8; 32];

/// The digest of a value: equal for equal values, whatever their spelling.
///
/// # Errors
/// The text holds what the scan refuses in strings; a scanned value never does.
pub fn digest(value: &Raw) -> Result<Digest, Refused> {
    let mut hash = Sha256::new();
    hash.update(b"lh-canon-1\0");
    hash.update(form(value)?.as_bytes());
    Ok(hash.finalize().into())
}

/// The canonical form: members sorted by the bytes of their unescaped names, strings with the shortest escapes,
/// numbers as `digits` or `digitse±exponent` without a trailing zero in `digits`, no space.
///
/// # Errors
/// The text holds what the scan refuses in strings; a scanned value never does.
pub fn form(value: &Raw) -> Result<String, Refused> {
    let mut tokens = Tokens::new(value.text());
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut done = String::new();
    while let Some(token) = next(&mut tokens)? {
        let finished = match token {
            Token::ObjectStart => {
                open.push(Open::Object { members: Vec::new() });
                continue;
            }
            Token::ArrayStart => {
                open.push(Open::Array { items: String::new() });
                continue;
            }
            Token::Name(name) => {
                if let Some(Open::Object { members }) = open.last_mut() {
                    members.push((name, String::new()));
                }
                continue;
            }
            Token::ObjectEnd | Token::ArrayEnd => open.pop().map_or_else(String::new, Open::close),
            Token::Text(text) => quoted(&text),
            Token::Number(text) => number(text),
            Token::True => "true".to_owned(),
            Token::False => "false".to_owned(),
            Token::Null => "null".to_owned(),
        };
        match open.last_mut() {
            Some(parent) => parent.add(&finished),
            None => done = finished,
        }
    }
    Ok(done)
}

/// A number that is no finite double, so no schema and no policy can read it (E-4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("number at `{path}` is too large")]
pub struct NotFinite {
    /// A JSON pointer to the number.
    pub path: String,
}

/// Checks that every number in `value` is a finite double.
///
/// # Errors
/// The first that is not.
pub fn check_finite(value: &Raw) -> Result<(), NotFinite> {
    let mut tokens = Tokens::new(value.text());
    let mut path: Vec<Step<'_>> = Vec::new();
    while let Ok(Some(token)) = tokens.next() {
        match token {
            Token::Name(name) => {
                path.pop();
                path.push(Step::Member(name));
                continue;
            }
            Token::ObjectStart => {
                path.push(Step::Member(Cow::Borrowed("")));
                continue;
            }
            Token::ArrayStart => {
                path.push(Step::Item(0));
                continue;
            }
            Token::ObjectEnd | Token::ArrayEnd => drop(path.pop()),
            Token::Number(text) => {
                if !text.parse::<f64>().is_ok_and(f64::is_finite) {
                    return Err(NotFinite { path: pointer(&path) });
                }
            }
            Token::Text(_) | Token::True | Token::False | Token::Null => {}
        }
        if let Some(Step::Item(index)) = path.last_mut() {
            *index += 1;
        }
    }
    Ok(())
}

/// The canonical form of a number's text, which must be a number of the JSON grammar.
pub(crate) fn number(text: &str) -> String {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = mantissa
        .strip_prefix('-')
        .map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    let shift = i64::try_from(zeros).unwrap_or(i64::MAX) - i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    match shifted(exponent, shift).as_str() {
        "0" => format!("{sign}{significant}"),
        exponent => format!("{sign}{significant}e{exponent}"),
    }
}

/// The exponent `text` plus `by`, in decimal.
fn shifted(text: &str, by: i64) -> String {
    if let Some(sum) = text
        .parse::<i128>()
        .ok()
        .and_then(|exponent| exponent.checked_add(by.into()))
    {
        return sum.to_string();
    }
    // More than 38 digits: far larger than `by` can be, so the sign stays.
    let (sign, magnitude) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.trim_start_matches('+')),
    };
    let mut carry = if sign == "-" { -by } else { by };
    let mut digits = magnitude.trim_start_matches('0').as_bytes().to_vec();
    for digit in digits.iter_mut().rev() {
        let sum = i64::from(*digit - b'0') + carry;
        *digit = b'0' + u8::try_from(sum.rem_euclid(10)).unwrap_or(0);
        carry = sum.div_euclid(10);
    }
    let front = if carry > 0 {
        carry.to_string()
    } else {
        String::new()
    };
    let grown: String = front.chars().chain(digits.into_iter().map(char::from)).collect();
    format!("{sign}{}", grown.trim_start_matches('0'))
}

enum Open<'a> {
    Object { members: Vec<(Cow<'a, str>, String)> },
    Array { items: String },
}

impl Open<'_> {
    fn add(&mut self, value: &str) {
        match self {
            Open::Object { members } => {
                if let Some((_, member)) = members.last_mut() {
                    member.push_str(value);
                }
            }
            Open::Array { items } => {
                if !items.is_empty() {
                    items.push(',');
                }
                items.push_str(value);
            }
        }
    }

    fn close(self) -> String {
        match self {
            Open::Array { items } => format!("[{items}]"),
            Open::Object { mut members } => {
                members.sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
                let members: Vec<String> = members
                    .iter()
                    .map(|(name, value)| format!("{}:{value}", quoted(name)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }
}

enum Step<'a> {
    Member(Cow<'a, str>),
    Item(usize),
}

fn pointer(path: &[Step<'_>]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Member(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Step::Item(index) => format!("/{index}"),
        })
        .collect()
}

fn next<'a>(tokens: &mut Tokens<'a>) -> Result<Option<Token<'a>>, Refused> {
    tokens.next().map_err(|(bad, offset)| Refused {
        rule: Rule::Text(bad),
        offset,
    })
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
