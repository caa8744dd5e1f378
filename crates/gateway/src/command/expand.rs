//! A command's template with a call's values in it.
//!
//! Called when arguments are checked and when the program starts. No value is ever split, joined or read by a
//! shell, and none becomes an option unless its argument says so (S6).

use std::{collections::BTreeMap, ffi::OsString};

use longhaul_mcp::frame::Raw;

use super::arguments::Values;
use crate::config::{Item, Part, Stdin, Tool};

/// The largest single argument that Linux passes to a program, in bytes.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;
/// The most arguments of one program.
pub const ARGUMENTS_MAX: usize = 10_000;

/// Why a value cannot be put into the command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The program would read it as an option.
    #[error("`{name}`: a value that begins with `-` would be read as an option; `{value}` is refused")]
    Dash {
        /// The argument.
        name: String,
        /// The value, cut.
        value: String,
    },
    /// No program can be given it.
    #[error("`{name}`: a NUL character cannot be passed to a program")]
    Nul {
        /// The argument.
        name: String,
    },
    /// Longer than [`ARGUMENT_BYTES_MAX`].
    #[error(
        "`{name}`: {bytes} bytes, and {ARGUMENT_BYTES_MAX} is the most that a program can be passed as one argument"
    )]
    TooLong {
        /// The argument.
        name: String,
        /// Its size.
        bytes: usize,
    },
    /// More than [`ARGUMENTS_MAX`].
    #[error("`{name}`: too many values; a program is passed at most {ARGUMENTS_MAX} arguments")]
    TooMany {
        /// The argument.
        name: String,
    },
    /// Absent, or of a type that has no text.
    #[error("`{name}`: needs a value that can be written as text")]
    NoText {
        /// The argument.
        name: String,
    },
}

/// The program's arguments, the program itself first.
///
/// # Errors
/// [`Unfit`]: nothing may be started.
pub fn argv(tool: &Tool, values: &Values) -> Result<Vec<OsString>, Unfit> {
    let mut expansion = Expansion {
        tool,
        values,
        argv: Vec::new(),
        after_dashes: false,
    };
    for (_, item) in &tool.command.items {
        expansion.item(item)?;
    }
    Ok(expansion.argv)
}

struct Expansion<'a> {
    tool: &'a Tool,
    values: &'a Values,
    argv: Vec<OsString>,
    after_dashes: bool,
}

impl Expansion<'_> {
    fn item(&mut self, item: &Item) -> Result<(), Unfit> {
        match item {
            Item::One(parts) => self.one(parts),
            Item::Each(name) => {
                let items = self
                    .values
                    .get(name)
                    .and_then(|value| value.read::<Vec<Raw>>().ok());
                for value in items.iter().flatten() {
                    let text = text_of(value).ok_or_else(|| Unfit::NoText { name: name.clone() })?;
                    self.push(name, text, true)?;
                }
                Ok(())
            }
            Item::When { name, text } => {
                if self.values.get(name).is_some_and(|value| value.text() == "true") {
                    self.argv.push(text.into());
                }
                Ok(())
            }
            Item::Group(items) => {
                let present = |name: &str| self.values.get(name).is_some_and(|value| value.text() != "null");
                if items.iter().flat_map(Item::names).all(present) {
                    for item in items {
                        self.item(item)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn one(&mut self, parts: &[Part]) -> Result<(), Unfit> {
        let mut text = String::new();
        let mut last = None;
        for part in parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Value(name) => {
                    let value = self.values.get(name).and_then(text_of);
                    text.push_str(&value.ok_or_else(|| Unfit::NoText { name: name.clone() })?);
                    last = Some(name);
                }
            }
        }
        let Some(name) = last else {
            self.after_dashes |= text == "--";
            self.argv.push(text.into());
            return Ok(());
        };
        // Literal text at the front decides by itself whether the item is an option.
        let leads = match parts.first() {
            Some(Part::Value(first)) => Some(first),
            Some(Part::Text(_)) | None => None,
        };
        self.push(leads.unwrap_or(name), text, leads.is_some())
    }

    fn push(&mut self, name: &str, text: String, leads: bool) -> Result<(), Unfit> {
        let param = self.tool.args.params.get(name);
        let free = self.after_dashes || param.is_some_and(|param| param.dash);
        if leads && text.starts_with('-') && !free {
            return Err(Unfit::Dash {
                name: name.to_owned(),
                value: text.chars().take(40).collect(),
            });
        }
        if text.contains('\0') {
            return Err(Unfit::Nul {
                name: name.to_owned(),
            });
        }
        if text.len() > ARGUMENT_BYTES_MAX {
            return Err(Unfit::TooLong {
                name: name.to_owned(),
                bytes: text.len(),
            });
        }
        if self.argv.len() >= ARGUMENTS_MAX {
            return Err(Unfit::TooMany {
                name: name.to_owned(),
            });
        }
        self.argv.push(text.into());
        Ok(())
    }
}

/// What the program reads on standard input.
///
/// # Errors
/// [`Unfit::NoText`].
pub fn stdin(tool: &Tool, values: &Values) -> Result<Option<Vec<u8>>, Unfit> {
    let json = |kept: &dyn Fn(&str) -> bool| {
        let object: BTreeMap<&String, &Raw> = values.iter().filter(|(name, _)| kept(name)).collect();
        Raw::of(&object)
            .ok()
            .map(|object| format!("{}\n", object.text()).into_bytes())
    };
    match tool.stdin() {
        Stdin::Nothing => Ok(None),
        Stdin::Arguments => Ok(json(&|_| true)),
        Stdin::Secrets => {
            let secret = |name: &str| tool.args.params.get(name).is_some_and(|param| param.secret);
            Ok(json(&secret))
        }
        Stdin::Text(parts) => {
            let mut text = String::new();
            for part in &parts {
                match part {
                    Part::Text(literal) => text.push_str(literal),
                    Part::Value(name) => {
                        let value = values.get(name).and_then(text_of);
                        text.push_str(&value.ok_or_else(|| Unfit::NoText { name: name.clone() })?);
                    }
                }
            }
            Ok(Some(text.into_bytes()))
        }
    }
}

/// Text without its quotes, and a number or boolean as it is written; nothing else has a text.
fn text_of(value: &Raw) -> Option<String> {
    match value.text() {
        text if text.starts_with('"') => value.read().ok(),
        text if text.starts_with(['[', '{', 'n']) => None,
        text => Some(text.to_owned()),
    }
}
