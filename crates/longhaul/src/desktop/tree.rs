//! A client's configuration as it was read: what it says, and where in the text each part of it stands.
//!
//! [`json`](super::json) and [`toml`](super::toml) read into it. Nothing here changes a text; that is `document`'s.

use std::ops::Range;

use serde_json::{Map, Value};

/// Where something stands, in bytes of the text.
pub(super) type Span = Range<usize>;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, with comments and trailing commas where somebody put them.
    Json,
    /// TOML.
    Toml,
}

/// The member that stands for what is no text, list or table in [`Node::meaning`]: its text as it is written.
const WRITTEN: &str = "\u{0}written";

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Text {
        text: String,
        at: Span,
    },
    List {
        items: Vec<Node>,
        at: Span,
    },
    Table(Table),
    /// A number, a date, a truth value or nothing: of no matter here but for its text.
    Other {
        written: String,
        at: Span,
    },
}

/// Keys and their values, in the order of the text.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) members: Vec<Member>,
    pub(super) layout: Layout,
}

/// How a table is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Layout {
    /// Between braces, which the span includes.
    Braces(Span),
    /// In lines of its own below a header, which the span is of.
    Headed(Span),
    /// By keys with dots, by the headers of its members, or as the whole file.
    #[default]
    Spread,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) key_at: Span,
    pub(super) node: Node,
}

impl Node {
    /// Where it stands; `None` when it is in several places.
    pub(super) fn span(&self) -> Option<Span> {
        match self {
            Node::Text { at, .. } | Node::List { at, .. } | Node::Other { at, .. } => Some(at.clone()),
            Node::Table(table) => match &table.layout {
                Layout::Braces(at) => Some(at.clone()),
                Layout::Headed(_) | Layout::Spread => None,
            },
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Node::Text { text, .. } => Some(text),
            Node::List { .. } | Node::Table(_) | Node::Other { .. } => None,
        }
    }

    pub(super) fn table(&self) -> Option<&Table> {
        match self {
            Node::Table(table) => Some(table),
            Node::Text { .. } | Node::List { .. } | Node::Other { .. } => None,
        }
    }

    /// A number, as it is written.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Node::Other { written, .. } => written.replace('_', "").parse().ok(),
            Node::Text { .. } | Node::List { .. } | Node::Table(_) => None,
        }
    }

    /// What it says, without how it is written: equal for two texts that say the same.
    pub(super) fn meaning(&self) -> Value {
        match self {
            Node::Text { text, .. } => Value::String(text.clone()),
            Node::List { items, .. } => Value::Array(items.iter().map(Node::meaning).collect()),
            Node::Table(table) => table.meaning(),
            Node::Other { written, .. } => {
                Value::Object(Map::from_iter([(WRITTEN.to_owned(), written.clone().into())]))
            }
        }
    }

    /// The last byte of it that stands in the text.
    pub(super) fn end(&self) -> usize {
        match self {
            Node::Table(table) => table.end(),
            Node::Text { at, .. } | Node::List { at, .. } | Node::Other { at, .. } => at.end,
        }
    }
}

impl Table {
    /// The value of a key. Of a key that is there twice, the last: so do the clients read it.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.position(key).map(|at| &self.members[at].node)
    }

    pub(super) fn position(&self, key: &str) -> Option<usize> {
        self.members.iter().rposition(|member| member.key == key)
    }

    /// A key that is there twice, and where it stands for the second time.
    pub(super) fn twice(&self) -> Option<&Member> {
        let mut members = self.members.iter().enumerate();
        members.find_map(|(at, member)| {
            let earlier = &self.members[..at];
            earlier
                .iter()
                .any(|known| known.key == member.key)
                .then_some(member)
        })
    }

    pub(super) fn meaning(&self) -> Value {
        let members = self.members.iter();
        Value::Object(
            members
                .map(|member| (member.key.clone(), member.node.meaning()))
                .collect(),
        )
    }

    /// What stands at a path of keys.
    pub(super) fn find(&self, path: &[String]) -> Option<&Node> {
        let (first, rest) = path.split_first()?;
        let found = self.get(first)?;
        match rest {
            [] => Some(found),
            rest => found.table()?.find(rest),
        }
    }

    fn end(&self) -> usize {
        match &self.layout {
            Layout::Braces(at) => at.end,
            Layout::Headed(at) => self.members_end().max(at.end),
            Layout::Spread => self.members_end(),
        }
    }

    fn members_end(&self) -> usize {
        self.members
            .iter()
            .map(|member| member.node.end())
            .max()
            .unwrap_or_default()
    }
}

/// The text of a meaning as a value in one line.
pub(super) fn written(meaning: &Value, format: Format) -> String {
    match meaning {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| written(item, format)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => match members.get(WRITTEN) {
            Some(Value::String(text)) if members.len() == 1 => text.clone(),
            Some(_) | None if members.is_empty() => "{}".to_owned(),
            Some(_) | None => {
                let members = members.iter();
                let members: Vec<String> = members
                    .map(|(name, value)| pair(name, &written(value, format), format))
                    .collect();
                format!("{{ {} }}", members.join(", "))
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => meaning.to_string(),
    }
}

/// A text in quotes, the same in JSON and TOML.
pub(super) fn quoted(text: &str) -> String {
    Value::String(text.to_owned())
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// A key as it is written before its value.
pub(super) fn key(name: &str, format: Format) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match format {
        Format::Toml if !name.is_empty() && name.chars().all(is_bare) => name.to_owned(),
        Format::Toml | Format::Json => quoted(name),
    }
}

/// A key and its value.
pub(super) fn pair(name: &str, value: &str, format: Format) -> String {
    let between = match format {
        Format::Json => ": ",
        Format::Toml => " = ",
    };
    format!("{}{between}{value}", key(name, format))
}
