//! One configuration of a client: its text, read, and the changes that keep everything else as it is.
//!
//! A change is a splice of the text: what no change names stays byte for byte. Nothing here knows what an entry means.

use std::fmt;

use super::{
    json, toml,
    tree::{self, Format, Layout, Member, Node, Span, Table},
};

/// What some editors put before the text.
const MARK: &str = "\u{feff}";

/// A text that was read.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// Without the byte order mark.
    text: String,
    mark: bool,
    pub(super) format: Format,
    pub(super) root: Table,
}

/// Why a text is no configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    line: usize,
    column: usize,
    why: String,
}

impl Unreadable {
    /// At a place in the text, in bytes.
    pub(super) fn at(text: &str, at: usize, why: String) -> Unreadable {
        let before = text.get(..at).unwrap_or(text);
        Unreadable {
            line: before.matches('\n').count() + 1,
            column: before.rsplit('\n').next().unwrap_or_default().chars().count() + 1,
            why,
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.why)
    }
}

impl Document {
    /// Reads a text.
    ///
    /// # Errors
    /// Where it is no JSON or TOML, and why.
    pub(crate) fn read(text: &str, format: Format) -> Result<Document, Unreadable> {
        let (text, mark) = match text.strip_prefix(MARK) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        if let Some(at) = text.find('\0') {
            return Err(Unreadable::at(text, at, "it holds a NUL".to_owned()));
        }
        let root = match format {
            Format::Json => json::read(text)?,
            Format::Toml => toml::read(text)?,
        };
        Ok(Document {
            text: text.to_owned(),
            mark,
            format,
            root,
        })
    }

    /// The whole text, as it was read.
    pub(crate) fn text(&self) -> String {
        match self.mark {
            true => format!("{MARK}{}", self.text),
            false => self.text.clone(),
        }
    }

    /// A place in the text, for messages.
    pub(super) fn place(&self, at: &Span, why: String) -> Unreadable {
        Unreadable::at(&self.text, at.start, why)
    }

    pub(super) fn written(&self, at: &Span) -> &str {
        self.text.get(at.clone()).unwrap_or_default()
    }

    /// Whether anything stands in it.
    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The same text with the splices.
    ///
    /// # Errors
    /// When what comes out could not be read, or two of them are about the same text: a fault of ours.
    pub(super) fn with(&self, edits: &Edits) -> Result<Document, Unreadable> {
        let mut places: Vec<&Span> = edits.0.iter().map(|(at, _)| at).collect();
        places.sort_by_key(|at| (at.start, at.end));
        let meet = places.windows(2).find(|pair| pair[1].start < pair[0].end);
        if let Some(pair) = meet {
            return Err(self.place(pair[1], "two changes are about one text".to_owned()));
        }
        let mark = if self.mark { MARK } else { "" };
        let text = format!("{mark}{}", self.spliced(edits));
        Document::read(&text, self.format)
    }

    /// The text with the splices, without the byte order mark and unread.
    pub(super) fn spliced(&self, edits: &Edits) -> String {
        let mut edits: Vec<&(Span, String)> = edits.0.iter().collect();
        edits.sort_by_key(|(at, _)| at.start);
        let mut text = String::with_capacity(self.text.len());
        let mut done = 0;
        for (at, new) in edits {
            text.push_str(self.text.get(done..at.start).unwrap_or_default());
            text.push_str(new);
            done = done.max(at.end);
        }
        text.push_str(self.text.get(done..).unwrap_or_default());
        text
    }

    /// How the text ends its lines.
    pub(super) fn newline(&self) -> &'static str {
        match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            Some(_) | None => "\n",
        }
    }

    /// One step of indentation.
    fn step(&self) -> String {
        let first = self.root.members.first();
        let blank = first.map(|first| self.blank_before(first.key_at.start));
        match blank.and_then(|blank| blank.rsplit_once('\n')) {
            Some((_, step)) if !step.is_empty() => step.to_owned(),
            Some(_) | None => "  ".to_owned(),
        }
    }

    /// The spaces and line ends that stand right before a place.
    fn blank_before(&self, at: usize) -> &str {
        let before = &self.text[..at];
        &before[before.trim_end_matches([' ', '\t', '\r', '\n']).len()..]
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    /// Where the line ends that a place stands in, before its line end.
    fn line_end(&self, at: usize) -> usize {
        let end = self.text[at..].find('\n').map_or(self.text.len(), |end| at + end);
        match self.text[at..end].ends_with('\r') {
            true => end - 1,
            false => end,
        }
    }

    /// What separates a member from the one before it.
    fn separator(&self, table: &Table, index: usize) -> String {
        let blank = |at: usize| {
            let blank = self.blank_before(table.members[at].key_at.start);
            match blank.rsplit_once('\n') {
                Some((_, indent)) => format!("{}{indent}", self.newline()),
                None => blank.to_owned(),
            }
        };
        match (index, table.members.len()) {
            (0, 1) => match blank(0) {
                own if own.contains('\n') => own,
                _ if self.between(&table.members[0]) == ":" => String::new(),
                _ => " ".to_owned(),
            },
            (0, _) => match blank(0) {
                own if own.contains('\n') => own,
                _ => blank(1),
            },
            (index, _) => blank(index),
        }
    }

    /// Adds members after another of the same table, in its manner.
    pub(super) fn add_after(&self, edits: &mut Edits, table: &Table, index: usize, new: &[(&str, String)]) {
        let member = &table.members[index];
        match &table.layout {
            Layout::Braces(_) => {
                let separator = self.separator(table, index);
                let between = self.between(member);
                for (name, value) in new {
                    let name = tree::key(name, self.format);
                    edits.insert(member.node.end(), format!(",{separator}{name}{between}{value}"));
                }
            }
            Layout::Headed(_) | Layout::Spread => {
                // Indentation, and the keys that stand before the last one of a key with dots.
                let start = self.line_start(member.key_at.start);
                let prefix = self.text[start..member.key_at.start].to_owned();
                let between = self.between(member);
                let at = self.line_end(member.node.end());
                for (name, value) in new {
                    let name = tree::key(name, self.format);
                    edits.insert(at, format!("{}{prefix}{name}{between}{value}", self.newline()));
                }
            }
        }
    }

    /// What stands between a key and its value, where that is a plain sign.
    fn between(&self, member: &Member) -> String {
        let usual = match self.format {
            Format::Json => ": ",
            Format::Toml => " = ",
        };
        let value = member.node.span().map(|span| span.start);
        let between = value.and_then(|value| self.text.get(member.key_at.end..value));
        match between {
            Some(between) if between.trim_matches([' ', '\t']) == usual.trim() => between.to_owned(),
            Some(_) | None => usual.to_owned(),
        }
    }

    /// Adds a member at the end of a table between braces.
    fn add_last(&self, edits: &mut Edits, table: &Table, at: &Span, name: &str, value: &str) {
        match table.members.len().checked_sub(1) {
            Some(last) => self.add_after(edits, table, last, &[(name, value.to_owned())]),
            // One line, where its own object stands in one, and always in TOML.
            None if self.format == Format::Toml || self.is_in_line(at) => {
                edits.insert(
                    at.start + 1,
                    format!(" {} ", tree::pair(name, value, self.format)),
                );
            }
            None => {
                let (inner, outer) = self.indents(at);
                let pair = tree::pair(name, value, self.format);
                let tail = match self.text[at.start + 1..at.end - 1].contains('\n') {
                    true => String::new(),
                    false => outer,
                };
                edits.insert(at.start + 1, format!("{inner}{pair}{tail}"));
            }
        }
    }

    /// Whether an empty object stands in the same line as the one that it is in.
    fn is_in_line(&self, at: &Span) -> bool {
        self.text[at.start..at.end].len() == 2 && self.text[self.line_start(at.start)..at.start].contains('{')
    }

    /// The line end and indentation of the members of an object, and of its closing brace.
    fn indents(&self, at: &Span) -> (String, String) {
        let line = &self.text[self.line_start(at.start)..at.start];
        let outer = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        let newline = self.newline();
        (
            format!("{newline}{outer}{}", self.step()),
            format!("{newline}{outer}"),
        )
    }

    /// Adds texts before the items of a list, in its manner.
    pub(super) fn prepend(&self, edits: &mut Edits, items: &[Node], at: &Span, new: &[String]) {
        let first = items.first().and_then(Node::span).map(|first| first.start);
        let second = items.get(1).and_then(Node::span);
        let is_tight = second.is_some_and(|second| self.blank_before(second.start).is_empty());
        let separator = first.map(|first| {
            let blank = self.blank_before(first);
            match blank.rsplit_once('\n') {
                Some((_, indent)) => format!("{}{indent}", self.newline()),
                None if is_tight => String::new(),
                None => " ".to_owned(),
            }
        });
        let quoted: Vec<String> = new.iter().map(|text| tree::quoted(text)).collect();
        match (first, separator) {
            (Some(first), Some(separator)) => {
                let mut text = quoted.join(&format!(",{separator}"));
                text.push_str(&format!(",{separator}"));
                edits.insert(first, text);
            }
            (_, _) => edits.insert(at.start + 1, quoted.join(", ")),
        }
    }

    /// Puts a new table into the one at a path of keys, making those that are not there.
    ///
    /// # Errors
    /// When something else stands there.
    pub(super) fn put(
        &self,
        edits: &mut Edits,
        path: &[&str],
        name: &str,
        members: &[(&str, String)],
    ) -> Result<(), Unreadable> {
        let keys: Vec<&str> = path.iter().copied().chain([name]).collect();
        let (mut table, mut depth) = (&self.root, 0);
        while let Some(found) = path.get(depth).and_then(|key| table.get(key)) {
            table = found.table().ok_or_else(|| {
                let at = found.span().unwrap_or_default();
                self.place(&at, format!("`{}` does not hold servers", path[depth]))
            })?;
            depth += 1;
        }
        match (&table.layout, self.format) {
            (Layout::Braces(at), _) => {
                let indent = self.inner_indent(table, at);
                let value = self.object(&keys[depth + 1..], members, indent.as_deref());
                self.add_last(edits, table, at, keys[depth], &value);
            }
            // No value at all, only space or comments.
            (Layout::Headed(_) | Layout::Spread, Format::Json) => {
                let value = self.object(&keys, members, Some(""));
                let before = if self.is_blank() { "" } else { self.newline() };
                edits.insert(self.text.len(), format!("{before}{value}{}", self.newline()));
            }
            (Layout::Headed(_) | Layout::Spread, Format::Toml) => self.append(edits, &keys, members),
        }
        Ok(())
    }

    /// The indentation of an object's members; `None` when they stand in one line.
    fn inner_indent(&self, table: &Table, at: &Span) -> Option<String> {
        if self.format == Format::Toml {
            return None;
        }
        match table.members.last() {
            Some(last) => {
                let blank = self.blank_before(last.key_at.start);
                blank.rsplit_once('\n').map(|(_, indent)| indent.to_owned())
            }
            None => {
                let (inner, _) = self.indents(at);
                inner.rsplit_once('\n').map(|(_, indent)| indent.to_owned())
            }
        }
    }

    /// The text of a new object of these members, inside of objects of one key each.
    fn object(&self, keys: &[&str], members: &[(&str, String)], indent: Option<&str>) -> String {
        let pair = |name: &str, value: &str| tree::pair(name, value, self.format);
        let braced = |pairs: &[String], depth: usize| match indent {
            None => format!("{{ {} }}", pairs.join(", ")),
            Some(indent) => {
                let line = |depth: usize| format!("{}{indent}{}", self.newline(), self.step().repeat(depth));
                let inner = line(depth + 1);
                format!("{{{inner}{}{}}}", pairs.join(&format!(",{inner}")), line(depth))
            }
        };
        let pairs: Vec<String> = members.iter().map(|(name, value)| pair(name, value)).collect();
        let mut text = braced(&pairs, keys.len());
        for (depth, key) in keys.iter().enumerate().rev() {
            text = braced(&[pair(key, &text)], depth);
        }
        text
    }

    /// A table of its own at the end of a TOML text.
    fn append(&self, edits: &mut Edits, keys: &[&str], members: &[(&str, String)]) {
        let newline = self.newline();
        let mut text = String::new();
        if !self.is_blank() {
            if !self.text.ends_with('\n') {
                text.push_str(newline);
            }
            text.push_str(newline);
        }
        let keys: Vec<String> = keys.iter().map(|key| tree::key(key, self.format)).collect();
        text.push_str(&format!("[{}]{newline}", keys.join(".")));
        for (name, value) in members {
            text.push_str(&format!("{}{newline}", tree::pair(name, value, self.format)));
        }
        edits.insert(self.text.len(), text);
    }

    /// Adds a member to a table of any layout; `false` when there is no place that is surely right.
    pub(super) fn add(&self, edits: &mut Edits, table: &Table, name: &str, value: &str) -> bool {
        // A member with a header of its own would take what comes after it.
        let anchor = table.members.iter().rposition(|member| match &member.node {
            Node::Table(inner) => matches!(inner.layout, Layout::Braces(_)),
            Node::Text { .. } | Node::List { .. } | Node::Other { .. } => true,
        });
        match (&table.layout, anchor) {
            (Layout::Braces(at), _) => self.add_last(edits, table, at, name, value),
            (Layout::Headed(_) | Layout::Spread, Some(anchor)) => {
                self.add_after(edits, table, anchor, &[(name, value.to_owned())]);
            }
            (Layout::Headed(at), None) => {
                let at = self.line_end(at.start);
                edits.insert(
                    at,
                    format!("{}{}", self.newline(), tree::pair(name, value, self.format)),
                );
            }
            (Layout::Spread, None) => return false,
        }
        true
    }

    /// Takes a member away, with its line where it has one of its own.
    pub(super) fn remove(&self, edits: &mut Edits, table: &Table, index: usize) {
        let member = &table.members[index];
        let end = member.node.end();
        match &table.layout {
            Layout::Headed(_) | Layout::Spread => {
                let start = match &member.node {
                    // The bracket of the header.
                    Node::Table(inner) => match &inner.layout {
                        Layout::Headed(at) => self.blank_line_before(self.line_start(at.start)),
                        Layout::Braces(_) | Layout::Spread => self.line_start(member.key_at.start),
                    },
                    Node::Text { .. } | Node::List { .. } | Node::Other { .. } => {
                        self.line_start(member.key_at.start)
                    }
                };
                edits.remove(start..self.after_line_end(self.line_end(end)));
            }
            Layout::Braces(whole) => {
                let comma = self.comma(end, whole.end);
                match (comma, index.checked_sub(1)) {
                    (Some(comma), _) => {
                        let rest = &self.text[comma + 1..];
                        let rest = rest.len() - rest.trim_start_matches([' ', '\t']).len();
                        let after = comma + 1 + rest;
                        let ends_line = self.text[after..].starts_with(['\r', '\n']);
                        let start = self.line_start(member.key_at.start);
                        let begins_line = self.text[start..member.key_at.start].trim().is_empty();
                        match ends_line && begins_line {
                            true => edits.remove(start..self.after_line_end(after)),
                            false => edits.remove(member.key_at.start..after),
                        }
                    }
                    // The last one takes the comma before it along.
                    (None, Some(before)) => {
                        let before = table.members[before].node.end();
                        let comma = self.comma(before, member.key_at.start).unwrap_or(before);
                        edits.remove(comma..comma + 1);
                        let blank = self.blank_before(member.key_at.start).len();
                        let start = (member.key_at.start - blank).max(comma + 1);
                        edits.remove(start..end);
                    }
                    (None, None) => edits.remove(member.key_at.start..end),
                }
            }
        }
    }

    fn after_line_end(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        match (rest.starts_with("\r\n"), rest.starts_with('\n')) {
            (true, _) => at + 2,
            (false, true) => at + 1,
            (false, false) => at,
        }
    }

    /// Where an empty line before this one begins, if there is one.
    fn blank_line_before(&self, start: usize) -> usize {
        let before = &self.text[..start];
        let line = before
            .strip_suffix('\n')
            .map(|before| before.strip_suffix('\r').unwrap_or(before));
        match line {
            Some(line) if line.ends_with('\n') => line.len(),
            Some(_) | None => start,
        }
    }

    /// The comma after a value, past comments.
    fn comma(&self, from: usize, to: usize) -> Option<usize> {
        let mut at = from;
        while at < to {
            let rest = &self.text[at..to];
            let line = |rest: &str| rest.find('\n').unwrap_or(rest.len());
            at += match rest.chars().next()? {
                ',' => return Some(at),
                '#' => line(rest),
                '/' if rest.starts_with("//") => line(rest),
                '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
                blank if blank.is_whitespace() => blank.len_utf8(),
                _ => return None,
            };
        }
        None
    }
}

/// Splices of a text, in any order.
#[derive(Clone, Debug, Default)]
pub(super) struct Edits(Vec<(Span, String)>);

impl Edits {
    pub(super) fn replace(&mut self, at: Span, text: String) {
        self.0.push((at, text));
    }

    pub(super) fn insert(&mut self, at: usize, text: String) {
        self.0.push((at..at, text));
    }

    pub(super) fn remove(&mut self, at: Span) {
        self.0.push((at, String::new()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn append(&mut self, mut more: Edits) {
        self.0.append(&mut more.0);
    }
}
