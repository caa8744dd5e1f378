//! Reads TOML with positions.

use toml_edit::{Document, InlineTable, Item, Key, Value};

use super::{
    document::Unreadable,
    tree::{Layout, Member, Node, Span, Table},
};

/// The table that the whole text is.
pub(super) fn read(text: &str) -> Result<Table, Unreadable> {
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Unreadable::at(text, at, error.message().lines().collect::<Vec<_>>().join("; "))
    })?;
    let mut root = table(text, document.as_table());
    root.layout = Layout::Spread;
    Ok(root)
}

fn table(text: &str, table: &toml_edit::Table) -> Table {
    let layout = match table.span() {
        Some(span) if !table.is_dotted() && !table.is_implicit() => Layout::Headed(span),
        Some(_) | None => Layout::Spread,
    };
    let mut members: Vec<Member> = table
        .iter()
        .filter_map(|(name, item)| Some(member(name, table.key(name)?, node(text, item)?)))
        .collect();
    members.sort_by_key(|member| member.key_at.start);
    Table { members, layout }
}

fn inline(text: &str, table: &InlineTable) -> Table {
    let layout = match table.span() {
        Some(span) if !table.is_dotted() => Layout::Braces(span),
        Some(_) | None => Layout::Spread,
    };
    let members = table.iter().filter_map(|(name, value)| {
        let key = table.key(name)?;
        Some(member(name, key, self::value(text, value)))
    });
    Table {
        members: members.collect(),
        layout,
    }
}

fn member(name: &str, key: &Key, node: Node) -> Member {
    Member {
        key: name.to_owned(),
        key_at: key.span().unwrap_or_default(),
        node,
    }
}

fn node(text: &str, item: &Item) -> Option<Node> {
    match item {
        Item::None => None,
        Item::Value(value) => Some(self::value(text, value)),
        Item::Table(table) => Some(Node::Table(self::table(text, table))),
        Item::ArrayOfTables(tables) => Some(Node::List {
            items: tables
                .iter()
                .map(|table| Node::Table(self::table(text, table)))
                .collect(),
            at: tables.span().unwrap_or_default(),
        }),
    }
}

fn value(text: &str, value: &Value) -> Node {
    let at: Span = value.span().unwrap_or_default();
    match value {
        Value::String(string) => Node::Text {
            text: string.value().clone(),
            at,
        },
        Value::Array(array) => Node::List {
            items: array.iter().map(|item| self::value(text, item)).collect(),
            at,
        },
        Value::InlineTable(table) => Node::Table(inline(text, table)),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => Node::Other {
            written: text.get(at.clone()).unwrap_or_default().to_owned(),
            at,
        },
    }
}
