//! What `install` makes of one file: every entry, and the text that comes out.
//!
//! Pure: it reads and writes no file. What comes out is read again and must say what was meant, and nothing else may
//! have changed, or there is no plan.

use serde_json::Value;

use super::{
    clients::{Client, Place},
    document::{Document, Edits, Unreadable},
    entry::{Change, Own, Verdict},
    tree::{Node, Table},
};

/// The name of Longhaul's own entry.
const NAME: &str = "longhaul";

/// What becomes of one file.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Every entry, in the order of the file, and what becomes of it.
    pub(crate) entries: Vec<Planned>,
    /// The new text; `None` when the file is as it should be.
    pub(crate) document: Option<Document>,
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// The keys that lead to it; the last is its name.
    pub(crate) path: Vec<String>,
    pub(crate) verdict: Verdict,
    /// What it said, how that was written where that is in one place, and what it says now.
    pub(crate) before: Option<Value>,
    pub(crate) written: Option<String>,
    pub(crate) after: Option<Value>,
}

impl Planned {
    pub(crate) fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }
}

/// Plans one file. `offers` says that Longhaul has tools of its own to offer.
///
/// # Errors
/// Where the file cannot be changed safely, and why.
pub(crate) fn plan(
    own: &Own,
    client: Client,
    place: &Place,
    document: &Document,
    offers: bool,
) -> Result<Plan, Unreadable> {
    let mut entries = Vec::new();
    let mut edits = Edits::default();
    let mut meant = document.root.meaning();
    for list in place.lists {
        for (path, table) in lists(document, &document.root, list, Vec::new())? {
            for member in &table.members {
                let path = [path.as_slice(), std::slice::from_ref(&member.key)].concat();
                let Change {
                    verdict,
                    edits: more,
                    after,
                } = own.change(client, document, &member.node);
                edits.append(more);
                if let Some(after) = &after {
                    set(&mut meant, &path, after.clone());
                }
                entries.push(Planned {
                    path,
                    verdict,
                    before: Some(member.node.meaning()),
                    written: member.node.span().map(|at| document.written(&at).to_owned()),
                    after,
                });
            }
        }
    }
    let is_here = |entry: &Planned| {
        document
            .root
            .find(&entry.path)
            .is_some_and(|node| own.is_own_entry(node))
    };
    if (offers || entries.is_empty()) && place.is_made && !entries.iter().any(is_here) {
        entries.push(added(own, client, place, document, &mut edits, &mut meant)?);
    }
    let document = match edits.is_empty() {
        true => None,
        false => Some(document.with(&edits)?),
    };
    if let Some(new) = &document
        && new.root.meaning() != meant
    {
        return Err(new.place(
            &(0..0),
            "the changed file would not say what was meant".to_owned(),
        ));
    }
    Ok(Plan { entries, document })
}

/// The servers of a file: their names and entries.
///
/// # Errors
/// Where the file does not hold them as it should.
pub(super) fn servers<'a>(
    place: &Place,
    document: &'a Document,
) -> Result<Vec<(&'a str, &'a Table)>, Unreadable> {
    let mut servers = Vec::new();
    for list in place.lists {
        for (_, table) in lists(document, &document.root, list, Vec::new())? {
            let members = table.members.iter();
            servers.extend(members.filter_map(|member| Some((member.key.as_str(), member.node.table()?))));
        }
    }
    Ok(servers)
}

/// The tables of servers at a path of keys, of which `*` is every key.
fn lists<'a>(
    document: &Document,
    table: &'a Table,
    keys: &[&str],
    path: Vec<String>,
) -> Result<Vec<(Vec<String>, &'a Table)>, Unreadable> {
    if let Some(twice) = table
        .twice()
        .filter(|twice| keys.first().is_none_or(|key| *key == twice.key))
    {
        return Err(document.place(&twice.key_at, format!("`{}` is there twice", twice.key)));
    }
    let Some((first, rest)) = keys.split_first() else {
        return Ok(vec![(path, table)]);
    };
    let mut found = Vec::new();
    for member in table
        .members
        .iter()
        .filter(|member| *first == "*" || member.key == *first)
    {
        let path = [path.as_slice(), std::slice::from_ref(&member.key)].concat();
        match &member.node {
            Node::Table(inner) => found.extend(lists(document, inner, rest, path)?),
            Node::Text { .. } | Node::List { .. } | Node::Other { .. } if *first == "*" => {}
            Node::Text { at, .. } | Node::List { at, .. } | Node::Other { at, .. } => {
                return Err(document.place(at, format!("`{}` does not hold servers", member.key)));
            }
        }
    }
    Ok(found)
}

/// Longhaul's own entry, in the first place for servers.
fn added(
    own: &Own,
    client: Client,
    place: &Place,
    document: &Document,
    edits: &mut Edits,
    meant: &mut Value,
) -> Result<Planned, Unreadable> {
    let list = place.lists.first().copied().unwrap_or_default();
    let mut path: Vec<String> = list.iter().map(|key| (*key).to_owned()).collect();
    path.push(NAME.to_owned());
    let planned = |verdict, after| Planned {
        path: path.clone(),
        verdict,
        before: None,
        written: None,
        after,
    };
    if document.root.find(&path).is_some() {
        let why = format!("another server has the name `{NAME}`");
        return Ok(planned(Verdict::Left(why), None));
    }
    let (members, after) = own.entry(client);
    document.put(edits, list, NAME, &members)?;
    set(meant, &path, after.clone());
    Ok(planned(Verdict::Added, Some(after)))
}

/// Sets what stands at a path of keys.
fn set(meaning: &mut Value, path: &[String], value: Value) {
    let mut at = meaning;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(serde_json::Map::new());
        }
        at = &mut at[key.as_str()];
    }
    *at = value;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::desktop::{
        back::{Entry, turn_back},
        program::Shell,
        tree::Format,
    };

    fn own() -> Own {
        Own {
            // Any program that is there.
            longhaul: "/bin/cat".to_owned(),
            flags: Vec::new(),
            shell: Shell::knowing("/bin"),
        }
    }

    fn place(client: Client) -> Place {
        let (format, lists) = client.reads();
        Place {
            file: "file".into(),
            format,
            lists,
            is_made: false,
        }
    }

    /// Plans a text, and turns what came out back: it must be the same text again, and a second plan must be empty.
    fn check(client: Client, text: &str) {
        let place = place(client);
        let old = Document::read(text, place.format).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        assert_eq!(old.text(), text);
        let plan = super::plan(&own(), client, &place, &old, false)
            .unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let Some(new) = plan.document else {
            return;
        };
        let again = super::plan(&own(), client, &place, &new, false).expect("planned again");
        assert!(again.document.is_none(), "{}", new.text());
        let entries = entries(&plan.entries);
        let turned = turn_back(&new, &entries).expect("turned back");
        assert!(turned.kept.is_empty(), "{:?}", turned.kept);
        assert_eq!(
            turned.document.root.meaning(),
            old.root.meaning(),
            "{text}\n{}",
            turned.document.text()
        );
        if place.format == Format::Json {
            assert_eq!(turned.document.text(), text);
        }
        // Member by member, too, as in a file that was written anew by its client.
        let apart: Vec<Entry> = entries
            .into_iter()
            .map(|entry| Entry {
                written: None,
                ..entry
            })
            .collect();
        let turned = turn_back(&new, &apart).expect("turned back");
        assert!(turned.kept.is_empty(), "{:?}", turned.kept);
        assert_eq!(
            turned.document.root.meaning(),
            old.root.meaning(),
            "{text}\n{}",
            turned.document.text()
        );
    }

    fn entries(planned: &[Planned]) -> Vec<Entry> {
        let changed = planned.iter().filter_map(|planned| {
            Some(Entry {
                path: planned.path.clone(),
                before: planned.before.clone(),
                written: planned.written.clone(),
                after: planned.after.clone()?,
            })
        });
        changed.collect()
    }

    /// What may stand between two tokens of JSON.
    fn gap() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => Just(String::new()),
            2 => Just(" ".to_owned()),
            2 => Just("\n".to_owned()),
            1 => Just("\r\n\t".to_owned()),
            1 => Just("\n\n    ".to_owned()),
            1 => Just(" /* , } \" */ ".to_owned()),
            1 => Just(" // ,{ ] é\n".to_owned()),
        ]
    }

    fn string() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z]{1,8}".prop_map(|text| format!("\"{text}\"")),
            "[ -~é\u{202e}🚚]{0,12}".prop_map(|text| Value::String(text).to_string()),
            Just("\"\\u001b[31m\\/\\\"\"".to_owned()),
        ]
    }

    fn scalar() -> impl Strategy<Value = String> {
        prop_oneof![
            string(),
            "-?[1-9][0-9]{0,3}(\\.[0-9]{1,3})?([eE][+-]?[0-9])?",
            Just("true".to_owned()),
            Just("null".to_owned())
        ]
    }

    /// A list or object of these parts, with gaps everywhere and a comma at the end or not.
    fn joined(
        open: char,
        parts: Vec<(String, String, String)>,
        end: &str,
        comma: bool,
        close: char,
    ) -> String {
        let mut text = String::from(open);
        let last = parts.len();
        for (at, (before, part, after)) in parts.into_iter().enumerate() {
            text.push_str(&before);
            text.push_str(&part);
            text.push_str(&after);
            if at + 1 < last || comma {
                text.push(',');
            }
        }
        text.push_str(end);
        text.push(close);
        text
    }

    fn parts(
        part: impl Strategy<Value = String>,
        most: usize,
    ) -> impl Strategy<Value = Vec<(String, String, String)>> {
        prop::collection::vec((gap(), part, gap()), 0..=most)
    }

    fn array(part: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        (parts(part, 4), gap(), any::<bool>()).prop_map(|(parts, end, comma)| {
            let comma = comma && !parts.is_empty();
            joined('[', parts, &end, comma, ']')
        })
    }

    /// An object of members whose names are numbered, so that none is there twice.
    fn object(member: impl Strategy<Value = (String, String)>, most: usize) -> impl Strategy<Value = String> {
        let member =
            (member, gap(), gap()).prop_map(|((key, value), before, after)| (key, before, after, value));
        let members = prop::collection::vec((gap(), member, gap()), 0..=most);
        (members, gap(), any::<bool>()).prop_map(|(members, end, comma)| {
            let comma = comma && !members.is_empty();
            let members = members.into_iter().enumerate();
            let parts = members.map(|(at, (left, (key, before, after, value), right))| {
                let key = key.replace('#', &at.to_string());
                (left, format!("\"{key}\"{before}:{after}{value}"), right)
            });
            joined('{', parts.collect(), &end, comma, '}')
        })
    }

    fn entry() -> impl Strategy<Value = String> {
        let text = |key: &'static str| string().prop_map(move |value| (key.to_owned(), value));
        let unknown = scalar().prop_map(|value| ("x#".to_owned(), value));
        let env = object(string().prop_map(|value| ("V#".to_owned(), value)), 3);
        let known = prop_oneof![
            Just(("command".to_owned(), "\"/bin/sh\"".to_owned())),
            Just(("url".to_owned(), "\"https://host.example/mcp\"".to_owned())),
            text("command"),
            text("url"),
        ];
        let more = prop_oneof![
            array(string()).prop_map(|value| ("args".to_owned(), value)),
            env.prop_map(|value| ("env".to_owned(), value)),
            object(string().prop_map(|value| ("H-#".to_owned(), value)), 3)
                .prop_map(|value| ("headers".to_owned(), value)),
            Just(("type".to_owned(), "\"http\"".to_owned())),
            unknown,
        ];
        object(prop_oneof![2 => known, 3 => more], 5)
    }

    fn json() -> impl Strategy<Value = String> {
        let servers = object(
            prop_oneof![4 => entry(), 1 => scalar()].prop_map(|value| ("s#".to_owned(), value)),
            4,
        );
        let other = prop_oneof![scalar(), array(scalar())].prop_map(|value| ("o#".to_owned(), value));
        let around = (object(other, 2), any::<bool>());
        (gap(), servers, around, gap()).prop_map(|(before, servers, (other, mark), after)| {
            let mark = if mark { "\u{feff}" } else { "" };
            format!("{mark}{before}{{\"other\":{other}, \"mcpServers\" :{servers}}}{after}")
        })
    }

    fn toml() -> impl Strategy<Value = String> {
        let ending = prop_oneof![
            Just("\n"),
            Just("\r\n"),
            Just("  # why, [not] = \"\n"),
            Just("\n\n")
        ];
        let entry = (0..8_usize, any::<bool>(), any::<bool>(), ending, "[a-z]{1,6}");
        prop::collection::vec(entry, 0..4).prop_map(|entries| {
            let mut text = String::from("# of Codex\nmodel='x'\n");
            for (at, (kind, args, env, end, word)) in entries.into_iter().enumerate() {
                let args = if args { format!("args=[ \"{word}\", 'b',]{end}") } else { String::new() };
                let name = format!("mcp_servers.s{at}");
                text.push_str(&match (kind, env) {
                    (0 | 1, true) => format!("[{name}]{end}command = \"/bin/sh\"{end}{args}x = 2024-01-01{end}[{name}.env]{end}A=\"1\"{end}"),
                    (0, false) => format!("[{name}]{end}  command='/bin/sh'{end}  {args}"),
                    (1, false) => format!("[{name}]{end}{args}command = \"\"\"/bin/sh\"\"\"{end}env = {{ A = \"1\" }}{end}"),
                    (2, _) => format!("[{name}]{end}url = \"https://host.example/{word}\"{end}tool_timeout_sec=9.5{end}"),
                    (3, true) => format!("[{name}]{end}url = 'https://host.example/'{end}http_headers = {{ \"X-A\"='{word}', B=\"2\" }}{end}"),
                    (3, false) => format!("[{name}]{end}url = 'https://host.example/'{end}[{name}.http_headers]{end}X-A = '{word}'{end}"),
                    (4, _) => format!("[mcp_servers]{end}s{at} = {{ command = \"/bin/sh\", enabled=false }}{end}"),
                    (5, _) => format!("[mcp_servers]{end}s{at}.command = \"/bin/sh\"{end}s{at}.env.A = \"{word}\"{end}"),
                    (6, _) => format!("[[hooks]]{end}a = 1{end}"),
                    (_, _) => format!("[{name}]{end}command = 7{end}"),
                });
            }
            text
        })
    }

    /// A real file of each client.
    const SAMPLES: [(Client, &str); 7] = [
        (
            Client::ClaudeDesktop,
            include_str!("../../tests/it/samples/clients/claude-desktop.json"),
        ),
        (
            Client::ClaudeCode,
            include_str!("../../tests/it/samples/clients/claude-code.json"),
        ),
        (
            Client::Cursor,
            include_str!("../../tests/it/samples/clients/cursor.json"),
        ),
        (
            Client::Vscode,
            include_str!("../../tests/it/samples/clients/vscode.json"),
        ),
        (
            Client::Codex,
            include_str!("../../tests/it/samples/clients/codex.toml"),
        ),
        (
            Client::Gemini,
            include_str!("../../tests/it/samples/clients/gemini.json"),
        ),
        (
            Client::Windsurf,
            include_str!("../../tests/it/samples/clients/windsurf.json"),
        ),
    ];

    /// A real file, parts of which somebody doubled, lost or wrote over.
    fn damaged() -> impl Strategy<Value = (Client, String)> {
        let bit = prop_oneof![
            prop::sample::select(vec![
                "{", "}", "[", "]", "\"", "\\", ",", ":", "=", "#", "//", "/*", "\n", "\r\n", "\t", "é", "\0"
            ]),
            prop::sample::select(vec![
                "\"args\": [],",
                "\"env\": {},",
                "env.X = \"y\"\n",
                "[mcp_servers.docs]\n",
                "\"command\": 1,",
                "null"
            ]),
        ];
        let blow = (any::<prop::sample::Index>(), 0..12_usize, bit, any::<bool>());
        (
            prop::sample::select(SAMPLES.to_vec()),
            prop::collection::vec(blow, 1..4),
        )
            .prop_map(|((client, text), blows)| {
                // Programs that every machine has.
                let text = text.replace("lh-npx", "sh").replace("lh-server", "ls");
                let mut letters: Vec<char> = text.chars().collect();
                for (at, length, bit, doubles) in blows {
                    let at = at.index(letters.len() + 1);
                    let end = (at + length).min(letters.len());
                    let lost: Vec<char> = letters.splice(at..end, bit.chars()).collect();
                    if doubles {
                        letters.splice(at..at, lost.repeat(2));
                    }
                }
                (client, letters.into_iter().collect())
            })
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_refused_or_kept((client, text) in damaged()) {
            let place = place(client);
            if let Ok(old) = Document::read(&text, place.format)
                && super::plan(&own(), client, &place, &old, false).is_ok()
            {
                check(client, &text);
            }
        }

        #[test]
        fn any_json_that_is_changed_and_turned_back_is_the_same_text(text in json()) {
            check(Client::Cursor, &text);
        }

        #[test]
        fn any_toml_that_is_changed_and_turned_back_says_the_same(text in toml()) {
            // Two headers of one name are no TOML.
            if Document::read(&text, Format::Toml).is_ok() {
                check(Client::Codex, &text);
            }
        }
    }
}
