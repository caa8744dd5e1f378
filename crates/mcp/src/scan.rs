//! The strict pass over raw bytes, before anything parses them (E-1).
//!
//! Two readers of one text must never see two things. So whatever they could disagree about is refused here:
//! duplicate members, members that differ from ours in case only, lone surrogates, U+0000, invalid UTF-8, and
//! sizes at which one of them gives up. Every frame and every payload from a tool passes here first. The pass
//! is linear in the input and does not recurse.

use std::{borrow::Cow, collections::HashSet};

use thiserror::Error;

pub use crate::token::BadText;
use crate::token::{Token, Tokens};

/// How much one text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects and arrays inside each other, at least 1 and at most 120 (what the parsers behind can take).
    pub depth_max: usize,
    /// Values of every kind.
    pub values_max: usize,
    /// Characters of one number.
    pub number_chars_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            depth_max: 64,
            values_max: 100_000,
            number_chars_max: 1_000,
        }
    }
}

/// A text that passed. Only this module makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned<'a>(&'a str);

impl<'a> Scanned<'a> {
    /// The text.
    pub fn text(self) -> &'a str {
        self.0
    }
}

/// A broken rule, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{rule} (byte {offset})")]
pub struct Refused {
    /// The rule.
    pub rule: Rule,
    /// The offset of the byte at which it broke, from 0.
    pub offset: usize,
}

/// The rules of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rule {
    /// The bytes are no UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// No JSON text that we read.
    #[error(transparent)]
    Text(BadText),
    /// More levels than [`Limits::depth_max`].
    #[error("nested too deeply")]
    TooDeep,
    /// More values than [`Limits::values_max`].
    #[error("too many values")]
    TooManyValues,
    /// A number longer than [`Limits::number_chars_max`].
    #[error("number too long")]
    NumberTooLong,
    /// Two members of one object have the same name.
    #[error("duplicate member")]
    DuplicateMember,
    /// A member of the envelope is one of ours but for case.
    #[error("member name in the wrong case")]
    WrongCase,
}

/// Scans a JSON-RPC frame; its envelope may hold no member that equals one of ours but for case.
///
/// # Errors
/// The first rule that is broken.
pub fn frame<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Scanned<'a>, Refused> {
    Scan::new(limits, Place::Top).run(bytes)
}

/// Scans any other JSON text: a result, arguments from a terminal, an answer.
///
/// # Errors
/// The first rule that is broken.
pub fn payload<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Scanned<'a>, Refused> {
    Scan::new(limits, Place::Inside).run(bytes)
}

const ENVELOPE: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];
const PARAMS: &[&str] = &[
    "name",
    "arguments",
    "_meta",
    "task",
    "taskId",
    "inputResponses",
    "requestState",
    "uri",
    "cursor",
];

/// Where in a frame the next value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    Params,
    Inside,
}

/// An open object or array.
struct Open<'a> {
    place: Place,
    names: HashSet<Cow<'a, str>>,
}

struct Scan<'a, 'l> {
    limits: &'l Limits,
    next_place: Place,
    values: usize,
    open: Vec<Open<'a>>,
}

impl<'a, 'l> Scan<'a, 'l> {
    fn new(limits: &'l Limits, first: Place) -> Scan<'a, 'l> {
        Scan {
            limits,
            next_place: first,
            values: 0,
            open: Vec::new(),
        }
    }

    fn run(mut self, bytes: &'a [u8]) -> Result<Scanned<'a>, Refused> {
        let text = std::str::from_utf8(bytes).map_err(|error| Refused {
            rule: Rule::NotUtf8,
            offset: error.valid_up_to(),
        })?;
        let mut tokens = Tokens::new(text);
        loop {
            match tokens.next() {
                Ok(Some(token)) => {
                    let depth = tokens.depth();
                    self.take(token, depth).map_err(|rule| Refused {
                        rule,
                        offset: tokens.offset(),
                    })?;
                }
                Ok(None) => return Ok(Scanned(text)),
                Err((bad, offset)) => {
                    return Err(Refused {
                        rule: Rule::Text(bad),
                        offset,
                    });
                }
            }
        }
    }

    fn take(&mut self, token: Token<'a>, depth: usize) -> Result<(), Rule> {
        match token {
            Token::ObjectStart | Token::ArrayStart => {
                if depth > self.limits.depth_max {
                    return Err(Rule::TooDeep);
                }
                self.count()?;
                let is_object = token == Token::ObjectStart;
                let place = if is_object { self.next_place } else { Place::Inside };
                self.next_place = Place::Inside;
                self.open.push(Open {
                    place,
                    names: HashSet::new(),
                });
                Ok(())
            }
            Token::ObjectEnd | Token::ArrayEnd => {
                self.open.pop();
                Ok(())
            }
            Token::Name(name) => self.name(name),
            Token::Number(digits) if digits.len() > self.limits.number_chars_max => Err(Rule::NumberTooLong),
            Token::Text(_) | Token::Number(_) | Token::True | Token::False | Token::Null => self.count(),
        }
    }

    fn count(&mut self) -> Result<(), Rule> {
        self.values += 1;
        if self.values > self.limits.values_max {
            Err(Rule::TooManyValues)
        } else {
            Ok(())
        }
    }

    fn name(&mut self, name: Cow<'a, str>) -> Result<(), Rule> {
        // Invariant: the tokens give names inside objects only.
        let Some(object) = self.open.last_mut() else {
            return Ok(());
        };
        let ours = match object.place {
            Place::Top => ENVELOPE,
            Place::Params => PARAMS,
            Place::Inside => &[],
        };
        if ours
            .iter()
            .any(|own| *own != name && is_same_but_for_case(own, &name))
        {
            return Err(Rule::WrongCase);
        }
        self.next_place = if object.place == Place::Top && name == "params" {
            Place::Params
        } else {
            Place::Inside
        };
        if object.names.insert(name) {
            Ok(())
        } else {
            Err(Rule::DuplicateMember)
        }
    }
}

/// Whether some reader that ignores case would take `name` for `own`. Folds more than ASCII: to such a reader
/// `ſ` is an `s` and the Kelvin sign is a `k`.
fn is_same_but_for_case(own: &str, name: &str) -> bool {
    let folded = name
        .chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase);
    own.chars().flat_map(char::to_lowercase).eq(folded)
}
