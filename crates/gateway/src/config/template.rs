//! The `command` of a tool: items in which names stand for argument values.
//!
//! Read by `tool`, expanded by `command::expand`. Each value stays inside the item it was put in; no shell reads
//! any of it (S6).

use std::collections::BTreeSet;

use super::{
    node::{Data, Node},
    problem::{At, Problems},
    setting::Value,
};

/// The items of a command, the program first.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The items, each with its place.
    pub items: Vec<(At, Item)>,
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// One argument, made of literal text and values.
    One(Vec<Part>),
    /// `{name...}`: each value of a list is an argument of its own.
    Each(String),
    /// `{name?--flag}`: the text when the boolean is true, nothing when it is false or absent.
    When {
        /// The boolean.
        name: String,
        /// The argument.
        text: String,
    },
    /// A nested list: left out whole when a name in it is absent.
    Group(Vec<Item>),
}

/// A piece of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text as it stands.
    Text(String),
    /// `{name}`: the value.
    Value(String),
}

impl Item {
    /// The item's text when nothing in it is a placeholder.
    pub fn literal(&self) -> Option<String> {
        let Item::One(parts) = self else { return None };
        let texts = parts.iter().map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Value(_) => None,
        });
        texts.collect()
    }

    /// The literal text in it.
    pub(super) fn texts(&self) -> Vec<&str> {
        match self {
            Item::One(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    Part::Text(text) => Some(text.as_str()),
                    Part::Value(_) => None,
                })
                .collect(),
            Item::When { text, .. } => vec![text],
            Item::Each(_) => Vec::new(),
            Item::Group(items) => items.iter().flat_map(Item::texts).collect(),
        }
    }

    /// Every name that the item needs.
    pub fn names(&self) -> BTreeSet<&str> {
        match self {
            Item::One(parts) => part_names(parts),
            Item::Each(name) | Item::When { name, .. } => [name.as_str()].into(),
            Item::Group(items) => items.iter().flat_map(Item::names).collect(),
        }
    }
}

/// Every name in these parts.
pub(super) fn part_names(parts: &[Part]) -> BTreeSet<&str> {
    let names = parts.iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Value(name) => Some(name.as_str()),
    });
    names.collect()
}

impl Value for Template {
    const KIND: &'static str =
        "a list: the program, then its arguments; an argument is text or a list of texts";

    fn read(node: &Node, problems: &mut Problems) -> Result<Template, Option<String>> {
        let Data::List(nodes) = &node.data else {
            return Err(Some(
                "a list such as [\"cargo\", \"test\", \"{filter}\"]".to_owned(),
            ));
        };
        let mut items = Vec::new();
        for node in nodes {
            if let Some(item) = item(node, true, problems) {
                items.push((node.at.clone(), item));
            }
        }
        Ok(Template { items })
    }

    fn from_text(text: &str) -> Result<Template, String> {
        if text.is_empty() {
            Ok(Template::default())
        } else {
            Err("a list".to_owned())
        }
    }

    fn schema() -> serde_json::Value {
        let text = serde_json::json!({ "type": "string" });
        let items = serde_json::json!({ "anyOf": [text, { "type": "array", "items": text }] });
        serde_json::json!({ "type": "array", "minItems": 1, "items": items })
    }
}

fn item(node: &Node, groups: bool, problems: &mut Problems) -> Option<Item> {
    match &node.data {
        Data::Text(text) => match parse(text) {
            Ok(item) => Some(item),
            Err(problem) => {
                problems.add(&node.at, problem);
                None
            }
        },
        Data::List(nodes) if groups => Some(Item::Group(
            nodes
                .iter()
                .filter_map(|node| item(node, false, problems))
                .collect(),
        )),
        Data::List(_) => {
            problems.add(
                &node.at,
                "a list inside a list of `command` cannot hold a further list",
            );
            None
        }
        Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Moment | Data::Table(_) => {
            problems.add(
                &node.at,
                format!("an item of `command` must be text, not {}", node.what()),
            );
            None
        }
    }
}

/// One item's text. `{{` and `}}` stand for braces.
fn parse(text: &str) -> Result<Item, String> {
    if let Some(inner) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        if let Some(name) = inner.strip_suffix("...") {
            return Ok(Item::Each(checked(name, text)?));
        }
        if let Some((name, flag)) = inner.split_once('?').filter(|(name, _)| is_name(name)) {
            if flag.is_empty() || flag.contains(['{', '}']) {
                return Err(format!(
                    "`{text}` needs the argument after `?`, such as `{{{name}?--verbose}}`"
                ));
            }
            return Ok(Item::When {
                name: name.to_owned(),
                text: flag.to_owned(),
            });
        }
    }
    parts(text).map(Item::One)
}

/// Text with names in it.
pub(super) fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(brace) = rest.find(['{', '}']) {
        literal.push_str(&rest[..brace]);
        rest = &rest[brace..];
        if let Some(after) = rest.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else {
            let end = rest.find('}').filter(|end| *end > 0);
            let end = end
                .ok_or_else(|| format!("`{text}` has a single brace; write `{{{{` or `}}}}` for a brace"))?;
            let name = checked(&rest[1..end], text)?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Value(name));
            rest = &rest[end + 1..];
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() || parts.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

fn checked(name: &str, text: &str) -> Result<String, String> {
    if is_name(name) {
        return Ok(name.to_owned());
    }
    if name.ends_with("...") || name.contains('?') {
        return Err(format!(
            "`{{{name}}}` must be an item of its own, not a part of `{text}`"
        ));
    }
    Err(format!(
        "`{{{name}}}` in `{text}` is not an argument's name; write `{{{{` and `}}}}` for braces"
    ))
}

/// A letter or `_`, then letters, digits, `_` and `-`.
pub(super) fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
