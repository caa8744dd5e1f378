//! What may be a secret in a client's file, so that it is neither shown nor put where others can read it.
//!
//! It errs on the side of hiding.

use super::{
    document::{Document, Edits},
    tree::{Node, Table},
};

/// Words in the names of secrets.
const WORDS: [&str; 13] = [
    "apikey",
    "api_key",
    "api-key",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "passwd",
    "password",
    "private",
    "secret",
    "signature",
    "token",
];
/// Members whose texts are secrets unless they are known not to be.
const HOLDERS: [&str; 3] = ["env", "headers", "http_headers"];
/// Variables that are none.
const PLAIN: [&str; 5] = ["HOME", "LANG", "NODE_ENV", "PATH", "TZ"];
/// From how many characters on a text of letters and digits is taken for a key.
const LONG: usize = 20;

/// Whether something of this name is a secret.
pub(super) fn is_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("key") || WORDS.iter().any(|word| name.contains(word))
}

/// Whether a text looks like a key: long, of letters and digits.
pub(super) fn looks_like(text: &str) -> bool {
    let is_of_one = |c: char| c.is_ascii_alphanumeric() || "_-.=%+~".contains(c);
    text.len() >= LONG
        && text.chars().all(is_of_one)
        && text.contains(|c: char| c.is_ascii_digit())
        && text.contains(|c: char| c.is_ascii_alphabetic())
}

/// Whether an address has a name and password, or something in its path or parameters that may be a key.
pub(super) fn holds(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let rest = &rest[authority.len()..];
    let parts = rest.split(['/', '?', '#', '&', ';']);
    let parts = parts.map(|part| part.split_once('=').unwrap_or(("", part)));
    authority.contains('@')
        || parts.into_iter().any(|(name, value)| {
            let is_variable = value.starts_with('$') && is_name(value);
            is_name(name) || is_variable || looks_like(value)
        })
}

/// The text of a document, with `…` in the place of what may be a secret.
pub(super) fn masked(document: &Document) -> String {
    let mut edits = Edits::default();
    table(&document.root, false, &mut edits);
    document.spliced(&edits)
}

/// Whether a text names a variable in the place of a secret, which is worth seeing: `$KEY`, `Bearer ${input:key}`.
fn is_reference(text: &str) -> bool {
    let scheme = match text.split_once('$') {
        Some((scheme, name)) => {
            let name = name.trim_start_matches('{').trim_end_matches('}');
            let is_name = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_:.-".contains(c));
            (!name.is_empty() && is_name).then_some(scheme)
        }
        None => text.starts_with("env:").then_some(""),
    };
    scheme.is_some_and(|scheme| ["", "Bearer ", "Basic ", "token "].contains(&scheme))
}

fn table(table: &Table, holds: bool, edits: &mut Edits) {
    for member in &table.members {
        let secret = match holds {
            true => !PLAIN.contains(&member.key.as_str()),
            false => is_name(&member.key),
        };
        match &member.node {
            Node::Table(inner) => {
                self::table(inner, holds || HOLDERS.contains(&member.key.as_str()), edits);
            }
            Node::Text { .. } | Node::List { .. } | Node::Other { .. } => value(&member.node, secret, edits),
        }
    }
}

fn value(node: &Node, secret: bool, edits: &mut Edits) {
    match node {
        Node::Text { text, at } => {
            let is_address = text.contains("://") && holds(text);
            if (secret || is_address || looks_like(text)) && !is_reference(text) && !text.is_empty() {
                edits.replace(at.clone(), "\"…\"".to_owned());
            }
        }
        Node::List { items, .. } => {
            let mut after_name = false;
            for item in items {
                let text = item.text().unwrap_or_default();
                let (name, joined) = match text.split_once(['=', ':']) {
                    Some((name, _)) => (name, true),
                    None => (text, false),
                };
                // `X=env:NAME` is how a header is passed on without its value.
                let is_reference = text.contains("=env:");
                let named = joined && is_name(name) && !is_reference;
                value(item, secret || after_name || named, edits);
                after_name = name.starts_with('-') && !joined && is_name(name);
            }
        }
        Node::Table(inner) => table(inner, secret, edits),
        Node::Other { .. } => {}
    }
}
