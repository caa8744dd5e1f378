//! The JSON files in which MCP clients keep their servers, read as those clients read them.
//!
//! `config` calls it for files that end in `.json`. What our own files would refuse as unknown is only warned about
//! here: such a file is another program's, and has that program's keys. Values are literal but for the clients'
//! variables (`${NAME}`), which [`super::variables`] replaces when a server is started; until then no value that may
//! be secret is looked at, and no message repeats one.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::{Value as Json, value::RawValue};

use super::{
    node::{Data, Node, Table},
    problem::{At, Problems},
    upstream::Upstream,
    variables::{self, Piece},
};

/// The members under which clients list their servers.
const LISTS: &[&str] = &["mcpServers", "servers"];
/// The keys that mean here what they mean there.
const KEPT: &[&str] = &["command", "args", "env", "cwd", "url", "headers", "disabled"];
/// The folders in a workspace in which clients keep this file.
const FOLDERS: &[&str] = &[".vscode", ".cursor"];
/// What a value may begin with that stands for the workspace.
const WORKSPACE: &str = "${workspaceFolder}";

/// Whether a file is a client's: it lists servers, and has no settings.
pub fn is_one(file: &Path) -> bool {
    let extension = file.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// The folder that the file is about: its own, or the one that holds the client's folder.
pub(super) fn workspace(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    match is_clients_folder(folder) {
        true => folder.parent().unwrap_or(Path::new("")).to_owned(),
        false => folder.to_owned(),
    }
}

fn is_clients_folder(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| FOLDERS.contains(&name))
}

/// The servers of one file, in its order. What cannot be read is left out and reported.
pub(super) fn parse(file: &str, text: &str, problems: &mut Problems, warnings: &mut Problems) -> Table {
    let text = without_comments(text);
    let mut reading = Reading {
        file: file.into(),
        text: &text,
        problems,
        warnings,
    };
    let servers = reading.servers().unwrap_or_default();
    let at = At::whole(file);
    let servers = Node {
        at: at.clone(),
        data: Data::Table(servers),
    };
    Table::from([("servers".to_owned(), (at, servers))])
}

/// Whether a server of such a file is Longhaul itself, as clients start or reach it.
pub(super) fn is_longhaul(server: &Upstream, bind: SocketAddr) -> bool {
    if let Some(url) = &server.url {
        let Ok(url) = url::Url::parse(url) else {
            return false;
        };
        let is_here = match url.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let path = url.path();
        let is_ours = path == "/mcp" || path.starts_with("/mcp/");
        return is_here && is_ours && url.port_or_known_default() == Some(bind.port());
    }
    let Some(program) = server.command.0.first() else {
        return false;
    };
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::file_name);
    let named = Path::new(program).file_name();
    named.is_some_and(|named| named == "longhaul" || Some(named) == own)
}

/// Whether a server of our own file is the Longhaul that reads it. Another one, with a state of its own, may be behind.
pub(super) fn is_this_longhaul(server: &Upstream, bind: SocketAddr) -> bool {
    let mut words = server.command.0.iter().skip(1).chain(&server.args);
    let is_apart = server.env.0.contains_key("LONGHAUL_STATE_DIR")
        || words
            .clone()
            .any(|word| word == "--state" || word.starts_with("--state="));
    let speaks = words.any(|word| word == "stdio" || word == "--stdio");
    is_longhaul(server, bind) && (server.url.is_some() || (speaks && !is_apart))
}

/// The variables of a server that are not set and have no default.
pub(super) fn unset(server: &Upstream, env: &[(String, String)]) -> Vec<String> {
    let texts = server
        .command
        .0
        .iter()
        .chain(&server.args)
        .chain(&server.url)
        .chain(server.env.0.values())
        .chain(server.headers.0.values());
    let mut unset = Vec::new();
    for piece in texts.flat_map(|text| variables::pieces(text)) {
        if let Piece::Variable { name, default: None } = piece
            && !env.iter().any(|(own, _)| own == name)
            && !unset.iter().any(|known| known == name)
        {
            unset.push(name.to_owned());
        }
    }
    unset
}

/// The members of an object in their order, each value as it is written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn of(text: &'a str) -> Result<Members<'a>, serde_json::Error> {
        serde_json::from_str(text)
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let mut members = self.0.iter();
        members.find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object).map(Members)
    }
}

struct Reading<'a> {
    file: Arc<str>,
    text: &'a str,
    problems: &'a mut Problems,
    warnings: &'a mut Problems,
}

impl<'a> Reading<'a> {
    fn servers(&mut self) -> Option<Table> {
        let whole = match Members::of(self.text) {
            Ok(whole) => whole,
            Err(error) => {
                let at = At {
                    file: Arc::clone(&self.file),
                    line: error.line(),
                    // One that ends after a line end has none.
                    column: error.column().max(1),
                };
                // The whole text of an error may repeat what it is about.
                let what = match error.classify() {
                    serde_json::error::Category::Data => "not a JSON object",
                    serde_json::error::Category::Eof => "not valid JSON: it ends too early",
                    serde_json::error::Category::Io | serde_json::error::Category::Syntax => "not valid JSON",
                };
                self.problems.add(&at, what);
                return None;
            }
        };
        let list = LISTS.iter().find_map(|list| Some((*list, whole.get(list)?)));
        let Some((list, raw)) = list else {
            self.problems
                .add(&At::whole(&self.file), "no `mcpServers` and no `servers` in it");
            return None;
        };
        let Ok(listed) = Members::of(raw.get()) else {
            let at = self.at(raw);
            self.problems.add(&at, format!("`{list}` must be an object"));
            return None;
        };
        let mut servers = Table::new();
        let mut named: BTreeMap<String, String> = BTreeMap::new();
        for (name, raw) in listed.0 {
            let at = self.at(raw);
            let plain = server_name(&name);
            if let Some(other) = named.insert(plain.clone(), name.clone()) {
                let text = match other == name {
                    true => format!("two servers are named `{name}`"),
                    false => format!(
                        "the servers `{other}` and `{name}` would both be `{plain}` here: give one another name"
                    ),
                };
                self.problems.add(&at, text);
                continue;
            }
            match Members::of(raw.get()) {
                Ok(declared) => {
                    let data = Data::Table(self.server(&name, &declared));
                    servers.insert(plain, (at.clone(), Node { at, data }));
                }
                Err(_) => self
                    .problems
                    .add(&at, format!("server `{name}` must be an object")),
            }
        }
        Some(servers)
    }

    fn server(&mut self, name: &str, declared: &Members<'a>) -> Table {
        let mut table = Table::new();
        for (key, raw) in &declared.0 {
            let at = self.at(raw);
            let Ok(value) = serde_json::from_str::<Json>(raw.get()) else {
                let text = format!(
                    "`{key}` of server `{name}` is nested too deeply, or holds what no text or number is"
                );
                self.problems.add(&at, text);
                continue;
            };
            match (key.as_str(), &value) {
                (_, Json::Null) => {}
                ("type" | "transport", Json::String(kind)) if kind == "sse" => self.warnings.add(
                    &at,
                    format!(
                        "server `{name}` is of the type `sse`, a transport of 2024 that is not spoken here; its \
                         address is tried with Streamable HTTP"
                    ),
                ),
                ("type" | "transport", _) => {}
                ("env" | "headers", value) if !is_table_of_texts(value) => self.problems.add(
                    &at,
                    format!("`{key}` of server `{name}` must be an object whose members are texts"),
                ),
                ("cwd", Json::String(cwd)) => {
                    if let Some(cwd) = self.cwd(name, &at, cwd) {
                        let data = Data::Text(cwd);
                        table.insert("cwd".to_owned(), (at.clone(), Node { at, data }));
                    }
                }
                (key, value) if KEPT.contains(&key) => {
                    self.check(name, key, &at, value);
                    let data = data(&at, value);
                    table.insert(key.to_owned(), (at.clone(), Node { at, data }));
                }
                (key, _) => self.warnings.add(
                    &at,
                    format!("`{key}` of server `{name}` means nothing here and is passed over"),
                ),
            }
        }
        table
    }

    /// Reports variables that only the client itself can replace.
    fn check(&mut self, server: &str, key: &str, at: &At, value: &Json) {
        match value {
            Json::String(text) => {
                for piece in variables::pieces(text) {
                    if let Piece::OfClient { written, whose } = piece {
                        self.problems.add(
                            at,
                            format!(
                                "`{written}` in `{key}` of server `{server}`: {whose}, and Longhaul cannot; write \
                                 `${{NAME}}` there, and set that variable where Longhaul runs"
                            ),
                        );
                    }
                }
            }
            Json::Array(items) => items.iter().for_each(|item| self.check(server, key, at, item)),
            Json::Object(members) => members
                .values()
                .for_each(|member| self.check(server, key, at, member)),
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    /// The folder of a program as our own files would name it: from the folder that holds the file.
    fn cwd(&mut self, server: &str, at: &At, cwd: &str) -> Option<String> {
        let below = match cwd.strip_prefix(WORKSPACE) {
            Some(below) => below.trim_start_matches('/'),
            None => cwd,
        };
        if variables::pieces(below).any(|piece| !matches!(piece, Piece::Text(_))) {
            self.problems.add(
                at,
                format!(
                    "`cwd` of server `{server}` may begin with `{WORKSPACE}` and have no other variable here"
                ),
            );
            return None;
        }
        let folder = Path::new(&*self.file).parent().unwrap_or(Path::new(""));
        Some(
            match is_clients_folder(folder) && !Path::new(below).is_absolute() {
                true => format!("../{below}"),
                false => below.to_owned(),
            },
        )
    }

    /// Where a value stands.
    fn at(&self, raw: &RawValue) -> At {
        let offset = (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        At::offset(&self.file, self.text, offset)
    }
}

fn is_table_of_texts(value: &Json) -> bool {
    let members = value.as_object();
    members.is_some_and(|members| {
        members
            .values()
            .all(|member| member.is_string() || member.is_null())
    })
}

/// A name that a server can have here: clients allow any text.
fn server_name(name: &str) -> String {
    let allowed = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => c,
        _ => '-',
    };
    let mut plain: String = name.chars().map(allowed).take(32).collect();
    while plain.contains("__") {
        plain = plain.replace("__", "_");
    }
    plain
}

fn data(at: &At, value: &Json) -> Data {
    let node = |value: &Json| Node {
        at: at.clone(),
        data: data(at, value),
    };
    match value {
        Json::Null => Data::Text(String::new()),
        Json::Bool(flag) => Data::Flag(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Data::Whole(whole),
            None => Data::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Data::Text(text.clone()),
        Json::Array(items) => Data::List(items.iter().map(node).collect()),
        Json::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Data::Table(
                members
                    .map(|(key, value)| (key.clone(), (at.clone(), node(value))))
                    .collect(),
            )
        }
    }
}

/// The text with spaces in place of comments and of commas before a closing bracket, which editors allow in these
/// files. Every other byte stays at its place.
fn without_comments(text: &str) -> Cow<'_, str> {
    let mut bytes = text.as_bytes().to_vec();
    if bytes.starts_with("\u{feff}".as_bytes()) {
        bytes[..3].fill(b' ');
    }
    let mut at = 0;
    let mut comma = None;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'"' => at + string(&bytes[at..]),
            b'/' => match comment(&bytes[at..]) {
                Some(length) => {
                    let blank = bytes[at..at + length].iter_mut().filter(|byte| **byte != b'\n');
                    blank.for_each(|byte| *byte = b' ');
                    at += length;
                    continue;
                }
                None => at + 1,
            },
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b',' => {
                comma = Some(at);
                at += 1;
                continue;
            }
            b'}' | b']' => {
                if let Some(comma) = comma {
                    bytes[comma] = b' ';
                }
                at + 1
            }
            _ => at + 1,
        };
        comma = None;
        at = end;
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The length of the string at the beginning.
fn string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The length of the comment at the beginning, where there is one.
fn comment(bytes: &[u8]) -> Option<usize> {
    let find = |what: &[u8]| bytes[2..].windows(what.len()).position(|window| window == what);
    match bytes.get(1)? {
        b'/' => Some(find(b"\n").map_or(bytes.len(), |end| end + 2)),
        b'*' => Some(find(b"*/").map_or(bytes.len(), |end| end + 4)),
        _ => None,
    }
}
