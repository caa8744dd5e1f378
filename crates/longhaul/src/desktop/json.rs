//! Reads JSON with comments and trailing commas, as editors write it, with positions.
//!
//! What is laxer than that (names without quotes, missing commas, single quotes) is refused: no client reads it.

use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{ObjectPropName, Value},
    common::{Range, Ranged as _},
    parse_to_ast,
};

use super::{
    document::Unreadable,
    tree::{Layout, Member, Node, Span, Table},
};

const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The object of a text. A text without any value has an empty one.
pub(super) fn read(text: &str) -> Result<Table, Unreadable> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS);
    let parsed = parsed.map_err(|error| {
        // The kind alone: the error's own text ends in the position, too, which is counted otherwise.
        Unreadable::at(text, error.range().start, lower(&error.kind().to_string()))
    })?;
    match parsed.value {
        None => Ok(Table::default()),
        Some(value) => match node(text, &value) {
            Node::Table(table) => Ok(table),
            Node::Text { .. } | Node::List { .. } | Node::Other { .. } => Err(Unreadable::at(
                text,
                value.range().start,
                "it is no object".to_owned(),
            )),
        },
    }
}

fn node(text: &str, value: &Value<'_>) -> Node {
    let at = span(value.range());
    match value {
        Value::StringLit(string) => Node::Text {
            text: string.value.clone().into_owned(),
            at,
        },
        Value::Array(array) => Node::List {
            items: array.elements.iter().map(|item| node(text, item)).collect(),
            at,
        },
        Value::Object(object) => Node::Table(Table {
            layout: Layout::Braces(at),
            members: object
                .properties
                .iter()
                .map(|property| Member {
                    key: property.name.as_str().to_owned(),
                    key_at: match &property.name {
                        ObjectPropName::String(name) => span(name.range()),
                        ObjectPropName::Word(name) => span(name.range()),
                    },
                    node: node(text, &property.value),
                })
                .collect(),
        }),
        Value::NumberLit(_) | Value::BooleanLit(_) | Value::NullKeyword(_) => Node::Other {
            written: text.get(at.clone()).unwrap_or_default().to_owned(),
            at,
        },
    }
}

fn span(range: Range) -> Span {
    range.start..range.end
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}
