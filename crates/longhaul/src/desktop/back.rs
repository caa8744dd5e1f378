//! Takes back what `install` wrote in a file that was changed since: entry by entry, and member by member where an
//! entry was changed, too. What somebody else wrote stays.
//!
//! Called by `uninstall`, and by an `install` that finds the file changed. Pure, as the plan is.

use serde_json::Value;

use super::{
    document::{Document, Edits, Unreadable},
    tree::{Layout, Node, written},
};

/// An entry as it was before, and as `install` left it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Entry {
    pub(crate) path: Vec<String>,
    /// `None` when `install` made it.
    pub(crate) before: Option<Value>,
    /// How it was written, where that was in one place.
    pub(crate) written: Option<String>,
    pub(crate) after: Value,
}

/// What came of turning entries back.
#[derive(Debug)]
pub(crate) struct Turned {
    pub(crate) document: Document,
    /// The names of those that somebody changed since, in what `install` had written: they stay.
    pub(crate) kept: Vec<String>,
}

/// Turns back what `install` wrote, where it still stands, and keeps everything else.
///
/// # Errors
/// When the changed text could not be read.
pub(crate) fn turn_back(document: &Document, entries: &[Entry]) -> Result<Turned, Unreadable> {
    let mut turned = Turned {
        document: document.clone(),
        kept: Vec::new(),
    };
    for entry in entries {
        let Some(now) = turned.document.root.find(&entry.path).map(Node::meaning) else {
            continue;
        };
        let name = entry.path.last().cloned().unwrap_or_default();
        if Some(&now) == entry.before.as_ref() {
            continue;
        }
        let done = match &entry.before {
            None if now == entry.after => removed(&mut turned.document, &entry.path)?,
            None => false,
            Some(before) => {
                let whole = entry.written.as_ref().filter(|_| now == entry.after);
                match whole.zip(turned.document.root.find(&entry.path).and_then(Node::span)) {
                    Some((written, at)) => {
                        let mut edits = Edits::default();
                        edits.replace(at, written.clone());
                        turned.document = turned.document.with(&edits)?;
                        true
                    }
                    None => by_members(&mut turned.document, &entry.path, before, &entry.after)?,
                }
            }
        };
        if !done {
            turned.kept.push(name);
        }
    }
    Ok(turned)
}

/// Turns back, member by member, what was written and not changed since. Whether all of it was.
fn by_members(
    document: &mut Document,
    path: &[String],
    before: &Value,
    after: &Value,
) -> Result<bool, Unreadable> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return Ok(false);
    };
    let mut whole = true;
    // What was taken away comes back first, so that a table is never empty meanwhile.
    let keys = before
        .keys()
        .chain(after.keys().filter(|key| !before.contains_key(*key)));
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old == new {
            continue;
        }
        let at = [path, std::slice::from_ref(key)].concat();
        let now = document.root.find(&at).map(Node::meaning);
        whole &= match (old, new, now) {
            (Some(old), _, Some(now)) if *old == now => true,
            (Some(old), Some(new), Some(now)) if *new == now => replaced(document, &at, old, new)?,
            (Some(old), None, None) => put_back(document, path, key, old)?,
            (None, Some(new), Some(now)) if *new == now => removed(document, &at)?,
            (None, _, None) => true,
            (old, Some(new @ Value::Object(_)), Some(Value::Object(_))) => {
                let empty = Value::Object(serde_json::Map::new());
                by_members(document, &at, old.unwrap_or(&empty), new)?
            }
            (_, _, _) => false,
        };
    }
    Ok(whole)
}

fn replaced(document: &mut Document, path: &[String], old: &Value, new: &Value) -> Result<bool, Unreadable> {
    let at = document.root.find(path).and_then(Node::span);
    let Some(at) = at else {
        return by_members(document, path, old, new);
    };
    let mut edits = Edits::default();
    edits.replace(at, written(old, document.format));
    *document = document.with(&edits)?;
    Ok(true)
}

fn put_back(document: &mut Document, path: &[String], key: &str, old: &Value) -> Result<bool, Unreadable> {
    let Some(table) = document.root.find(path).and_then(Node::table) else {
        return Ok(false);
    };
    let mut edits = Edits::default();
    let added = document.add(&mut edits, table, key, &written(old, document.format));
    *document = document.with(&edits)?;
    Ok(added)
}

fn removed(document: &mut Document, path: &[String]) -> Result<bool, Unreadable> {
    let Some((last, above)) = path.split_last() else {
        return Ok(false);
    };
    let table = match above {
        [] => Some(&document.root),
        above => document.root.find(above).and_then(Node::table),
    };
    let Some((table, index)) = table.and_then(|table| Some((table, table.position(last)?))) else {
        return Ok(false);
    };
    // A table whose members stand in several places has no lines of its own.
    let is_spread = |node: &Node| node.table().is_some_and(|table| table.layout == Layout::Spread);
    if is_spread(&table.members[index].node) {
        return Ok(false);
    }
    let mut edits = Edits::default();
    document.remove(&mut edits, table, index);
    *document = document.with(&edits)?;
    Ok(true)
}
