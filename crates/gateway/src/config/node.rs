//! TOML as a tree in which every key and value knows its place, so that files can be joined and every problem
//! can name its line.
//!
//! Built once for each file; read by `setting::Reader`. It never interprets a value.

use std::{collections::BTreeMap, sync::Arc};

use toml::de::{DeTable, DeValue};

use super::problem::{At, Problems};

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) data: Data,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Text(String),
    Whole(i64),
    Number(f64),
    Flag(bool),
    Moment,
    List(Vec<Node>),
    Table(Table),
}

/// A table: each key with the place of the key and the value.
pub(super) type Table = BTreeMap<String, (At, Node)>;

impl Node {
    /// What the value is, as an error names it.
    pub(super) fn what(&self) -> String {
        match &self.data {
            Data::Text(text) => format!("the text `{text}`"),
            Data::Whole(number) => format!("the integer `{number}`"),
            Data::Number(number) => format!("the number `{number}`"),
            Data::Flag(flag) => format!("the boolean `{flag}`"),
            Data::Moment => "a date".to_owned(),
            Data::List(_) => "a list".to_owned(),
            Data::Table(_) => "a table".to_owned(),
        }
    }

    /// The table that a section must be; another value is reported.
    pub(super) fn table(&self, section: &str, problems: &mut Problems) -> Option<&Table> {
        if let Data::Table(table) = &self.data {
            return Some(table);
        }
        problems.add(
            &self.at,
            format!("`{section}` must be a table, not {}", self.what()),
        );
        None
    }

    /// The value as JSON; `None` for a date.
    pub(super) fn json(&self) -> Option<serde_json::Value> {
        Some(match &self.data {
            Data::Text(text) => text.as_str().into(),
            Data::Whole(number) => (*number).into(),
            Data::Number(number) => (*number).into(),
            Data::Flag(flag) => (*flag).into(),
            Data::Moment => return None,
            Data::List(items) => items.iter().map(Node::json).collect::<Option<Vec<_>>>()?.into(),
            Data::Table(table) => {
                let members = table
                    .iter()
                    .map(|(key, (_, node))| Some((key.clone(), node.json()?)));
                serde_json::Value::Object(members.collect::<Option<_>>()?)
            }
        })
    }
}

/// Parses one file. What cannot be parsed is left out and reported.
pub(super) fn parse(file: &str, text: &str, problems: &mut Problems) -> Table {
    if text.trim_start().starts_with('{') {
        problems.add(
            &At::whole(file),
            "not TOML: this looks like JSON; the name of a client's file must end in `.json`",
        );
        return Table::new();
    }
    let file: Arc<str> = file.into();
    let (table, errors) = DeTable::parse_recoverable(text);
    let place = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
    let broken = errors.iter().map(place).min();
    for error in errors {
        let at = At::offset(&file, text, place(&error));
        problems.add(&at, format!("not valid TOML: {}", error.message()));
    }
    let mut table = convert(&file, text, table.into_inner(), problems);
    if let Some(broken) = broken {
        // The keys below a broken head belong to a section that was not understood; the name of a section stands
        // behind a bracket.
        let broken = At::offset(&file, text, broken);
        table.retain(|_, (at, node)| *at < broken || (at.column > 1 && matches!(node.data, Data::Table(_))));
    }
    table
}

fn convert(file: &Arc<str>, text: &str, table: DeTable<'_>, problems: &mut Problems) -> Table {
    let mut converted = Table::new();
    for (key, value) in table {
        let at = At::offset(file, text, key.span().start);
        let span = value.span().start;
        let node = node(file, text, span, value.into_inner(), problems);
        converted.insert(key.into_inner().into_owned(), (at, node));
    }
    converted
}

fn node(file: &Arc<str>, text: &str, offset: usize, value: DeValue<'_>, problems: &mut Problems) -> Node {
    let at = At::offset(file, text, offset);
    let data = match value {
        DeValue::String(value) => Data::Text(value.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Data::Whole(number),
            Err(_) => {
                problems.add(&at, format!("the integer `{number}` does not fit 64 bits"));
                Data::Whole(0)
            }
        },
        DeValue::Float(number) => Data::Number(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Data::Flag(flag),
        DeValue::Datetime(_) => Data::Moment,
        DeValue::Array(items) => {
            let items = items.into_iter();
            Data::List(
                items
                    .map(|item| node(file, text, item.span().start, item.into_inner(), problems))
                    .collect(),
            )
        }
        DeValue::Table(table) => Data::Table(convert(file, text, table, problems)),
    };
    Node { at, data }
}
