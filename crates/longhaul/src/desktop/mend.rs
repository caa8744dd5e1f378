//! An entry that starts Longhaul already: it is kept, and mended where a program is no longer where it was, or is
//! named without the full path that a client needs.

use std::path::Path;

use serde_json::Value;

use super::{
    clients::Client,
    document::{Document, Edits},
    entry::{Change, Own, Verdict, object},
    program,
    tree::{self, Node, Span, Table},
};

impl Own {
    /// What is to be done with an entry whose member `at` names Longhaul.
    pub(super) fn mend(
        &self,
        client: Client,
        document: &Document,
        entry: &Table,
        at: usize,
        arguments: Option<(&Vec<Node>, &Span)>,
    ) -> Change {
        let mut edits = Edits::default();
        let mut after = object(entry);
        let mut mended = Vec::new();
        let command = &entry.members[at].node;
        if let (Some(text), Some(span)) = (command.text(), command.span())
            && is_lost(text)
        {
            edits.replace(span, tree::quoted(&self.longhaul));
            after.insert("command".to_owned(), self.longhaul.clone().into());
            mended.push(self.longhaul.clone());
        }
        let items = arguments.map_or(&[][..], |(items, _)| items);
        let wraps = items.first().and_then(Node::text) == Some("wrap");
        let behind = items
            .iter()
            .position(|item| item.text() == Some("--"))
            .map(|at| at + 1);
        if let Some(at) = behind.filter(|at| wraps && *at < items.len())
            && let (Some(program), Some(span)) = (items[at].text(), items[at].span())
            && is_lost(program)
            && let Some(found) = self.found_anew(program)
        {
            edits.replace(span, tree::quoted(&found));
            if let Some(Value::Array(words)) = after.get_mut("args") {
                words[at] = found.clone().into();
            }
            let path = entry
                .get("env")
                .and_then(Node::table)
                .and_then(|env| env.get("PATH"));
            match (path.and_then(Node::span), self.shell.path_for(Path::new(&found))) {
                // One that was written for the old place does not lead to the new one.
                (Some(span), Some(new)) => {
                    edits.replace(span, tree::quoted(&new));
                    after["env"]["PATH"] = new.into();
                }
                (_, _) => match self.with_path(client, document, entry, &found, &mut edits, &mut after) {
                    Ok(new) => {
                        let anchor = entry.position("args").unwrap_or(at);
                        document.add_after(&mut edits, entry, anchor, new.as_slice());
                    }
                    Err(why) => return Change::left(why),
                },
            }
            mended.push(found);
        }
        match mended.is_empty() {
            true => Change::none(Verdict::Kept(match wraps {
                true => "runs through Longhaul already",
                false => "is Longhaul itself",
            })),
            false => Change {
                verdict: Verdict::Mended(mended.join(", ")),
                edits,
                after: Some(Value::Object(after)),
            },
        }
    }

    /// Where the shell has a program of the same name.
    pub(super) fn found_anew(&self, program: &str) -> Option<String> {
        let name = Path::new(program).file_name()?.to_str()?;
        self.shell.find(name)?.into_os_string().into_string().ok()
    }
}

/// Whether a client would not find a program: its full path leads nowhere, or it has none.
fn is_lost(program: &str) -> bool {
    match program.starts_with('/') {
        true => !program::is_program(Path::new(program)),
        false => !program.contains(['/', '$', '~']),
    }
}
