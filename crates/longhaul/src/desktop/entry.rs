//! One entry of a client's file: what it starts, and what it becomes when Longhaul stands before it.
//!
//! It changes what it must and nothing else, and says of each entry what it did or why it did nothing.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{
    clients::Client,
    document::{Document, Edits},
    program::{self, Shell},
    secret,
    tree::{self, Layout, Node, Table},
};
use crate::places;

/// The variables through which headers reach `longhaul wrap`: arguments can be read by every user of the machine.
const HEADER: &str = "LONGHAUL_HEADER_";
/// The variable for an address that may hold a secret.
const ADDRESS: &str = "LONGHAUL_URL";
/// Members of an entry under which clients keep the address of a server, the plainest first.
const ADDRESSES: [&str; 3] = ["httpUrl", "serverUrl", "url"];
/// Members under which they keep its headers.
const HEADERS: [&str; 2] = ["headers", "http_headers"];
/// Members that only the client itself can act on.
const CLIENTS_OWN: [&str; 10] = [
    "auth",
    "authProviderType",
    "authProvider",
    "bearer_token",
    "bearer_token_env_var",
    "env_http_headers",
    "headersHelper",
    "oauth",
    "oauth_resource",
    "oauth_scopes",
];
/// What clients call the transport that `longhaul wrap URL` speaks.
const HTTP: [&str; 5] = [
    "http",
    "streamable-http",
    "streamableHttp",
    "streamable_http",
    "streamable",
];

/// What stands behind all entries.
#[derive(Debug)]
pub(crate) struct Own {
    /// The full path of this program.
    pub(crate) longhaul: String,
    /// What every command of this user needs, where the usual places do not hold.
    pub(crate) flags: Vec<String>,
    pub(crate) shell: Shell,
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It will run through Longhaul, and starts or reaches this.
    Wrapped(String),
    /// So will it, and it may want a login, since its address is all that is known.
    Open(String),
    /// It ran through Longhaul already, and a program that has moved is found again.
    Mended(String),
    /// It is new: Longhaul's own tools and servers.
    Added,
    /// It is as it should be.
    Kept(&'static str),
    /// It is left alone, and why.
    Left(String),
}

/// An entry and what is to be done.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) verdict: Verdict,
    pub(super) edits: Edits,
    /// What the entry says afterwards.
    pub(super) after: Option<Value>,
}

impl Change {
    pub(super) fn none(verdict: Verdict) -> Change {
        Change {
            verdict,
            edits: Edits::default(),
            after: None,
        }
    }

    pub(super) fn left(why: impl Into<String>) -> Change {
        Change::none(Verdict::Left(why.into()))
    }
}

impl Own {
    /// What is to be done with an entry.
    pub(super) fn change(&self, client: Client, document: &Document, entry: &Node) -> Change {
        let Some(table) = entry.table() else {
            return Change::left("it is not an entry of a server");
        };
        if let Some(twice) = table.twice() {
            return Change::left(format!("`{}` is there twice", twice.key));
        }
        let address = ADDRESSES.iter().find(|key| table.get(key).is_some());
        match (
            table.position("command"),
            address.and_then(|key| table.position(key)),
        ) {
            (Some(_), Some(_)) => Change::left("it has both a program and an address"),
            (Some(command), None) => self.program(client, document, table, command),
            (None, Some(address)) => self.address(client, document, table, address),
            (None, None) => Change::left("it has neither a program nor an address"),
        }
    }

    fn program(&self, client: Client, document: &Document, entry: &Table, at: usize) -> Change {
        let member = &entry.members[at];
        let (Some(command), Some(span)) = (member.node.text(), member.node.span()) else {
            return Change::left("its `command` is no text");
        };
        let arguments = match entry.get("args") {
            None => None,
            Some(Node::List { items, at }) if items.iter().all(|item| item.text().is_some()) => {
                Some((items, at))
            }
            Some(Node::List { .. } | Node::Text { .. } | Node::Table(_) | Node::Other { .. }) => {
                return Change::left("its `args` are no list of texts");
            }
        };
        if self.is_own(command) {
            return self.mend(client, document, entry, at, arguments);
        }
        if command.is_empty() {
            return Change::left("its `command` is empty");
        }
        let found = match self.resolved(command) {
            Ok(found) => found,
            Err(why) => return Change::left(why),
        };
        let mut before = self.words("wrap", client, Some(entry));
        before.extend(["--".to_owned(), found.clone()]);
        let mut edits = Edits::default();
        edits.replace(span, tree::quoted(&self.longhaul));
        let mut new = Vec::new();
        match arguments {
            Some((items, at)) => document.prepend(&mut edits, items, at, &before),
            None => new.push(("args", list(&before))),
        }
        let mut after = object(entry);
        after.insert("command".to_owned(), self.longhaul.clone().into());
        let old = arguments.map(|(items, _)| items.iter().map(Node::meaning));
        let all = before
            .into_iter()
            .map(Value::String)
            .chain(old.into_iter().flatten());
        after.insert("args".to_owned(), all.collect());
        match self.with_path(client, document, entry, &found, &mut edits, &mut after) {
            Ok(more) => new.extend(more),
            Err(why) => return Change::left(why),
        }
        if !new.is_empty() {
            let anchor = entry.position("args").unwrap_or(at);
            document.add_after(&mut edits, entry, anchor, &new);
        }
        Change {
            verdict: Verdict::Wrapped(found),
            edits,
            after: Some(Value::Object(after)),
        }
    }

    /// The full path of a program that is named alone; anything else as it is written, for the client knows where it
    /// stands and what its variables are.
    fn resolved(&self, command: &str) -> Result<String, String> {
        if command.contains(['/', '$', '~']) {
            let is_gone = command.starts_with('/') && !program::is_program(Path::new(command));
            let anew = is_gone.then(|| self.found_anew(command)).flatten();
            return Ok(anew.unwrap_or_else(|| command.to_owned()));
        }
        let found = self.shell.find(command);
        let found = found.ok_or_else(|| format!("`{command}` is not found in the PATH of your shell"))?;
        let found = found.into_os_string().into_string();
        found.map_err(|_| format!("the path of `{command}` is no UTF-8"))
    }

    /// Gives a program that needs a `PATH` the shell's, where the entry has none: in its `env`, or as a new member
    /// that is returned.
    pub(super) fn with_path(
        &self,
        client: Client,
        document: &Document,
        entry: &Table,
        program: &str,
        edits: &mut Edits,
        after: &mut Map<String, Value>,
    ) -> Result<Option<(&'static str, String)>, &'static str> {
        let env = entry.get("env");
        if env
            .and_then(Node::table)
            .is_some_and(|env| env.get("PATH").is_some())
        {
            return Ok(None);
        }
        let program = Path::new(program);
        let needed = program.is_absolute() && (client.changes_path() || program::needs_path(program));
        let Some(path) = needed.then(|| self.shell.path_for(program)).flatten() else {
            return Ok(None);
        };
        let value = tree::quoted(&path);
        let new = match env.map(Node::table) {
            None => Some((
                "env",
                format!("{{ {} }}", tree::pair("PATH", &value, document.format)),
            )),
            Some(Some(env)) if document.add(edits, env, "PATH", &value) => None,
            Some(Some(_)) => return Err("its `env` is written in a way that a member cannot be added to"),
            Some(None) => return Err("its `env` is not what it should be"),
        };
        let env = after.entry("env").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(env) = env {
            env.insert("PATH".to_owned(), path.into());
        }
        Ok(new)
    }

    pub(super) fn is_own(&self, command: &str) -> bool {
        command == self.longhaul || command == "longhaul" || command.ends_with("/longhaul")
    }

    fn address(&self, client: Client, document: &Document, entry: &Table, at: usize) -> Change {
        let member = &entry.members[at];
        let (Some(url), Some(span)) = (member.node.text(), member.node.span()) else {
            return Change::left("its address is no text");
        };
        if entry.get("args").is_some() {
            return Change::left("it has both an address and `args`");
        }
        if ADDRESSES.iter().filter(|key| entry.get(key).is_some()).count() > 1 {
            return Change::left("it has several addresses");
        }
        let kind = ["type", "transport"]
            .iter()
            .find_map(|key| entry.get(key)?.text());
        if let Some(why) = old_transport(url, kind) {
            return Change::left(why);
        }
        if let Some(own) = CLIENTS_OWN.iter().find(|key| entry.get(key).is_some()) {
            return Change::left(format!("only the client can act on its `{own}`"));
        }
        let mut words = self.words("wrap", client, Some(entry));
        let mut edits = Edits::default();
        let mut after = object(entry);
        let headers_key = HEADERS.iter().find(|key| entry.get(key).is_some());
        if let Some(key) = headers_key {
            let names = match headers(document, entry, key, &mut edits) {
                Ok(names) => names,
                Err(why) => return Change::left(why),
            };
            let mut values = match after.remove(*key) {
                Some(Value::Object(values)) => values,
                Some(_) | None => Map::new(),
            };
            let mut env = Map::new();
            for (name, variable) in names {
                env.extend(values.remove(&name).map(|value| (variable.clone(), value)));
                words.extend(["--header".to_owned(), format!("{name}=env:{variable}")]);
            }
            after.insert("env".to_owned(), Value::Object(env));
        }
        let hidden = secret::holds(url);
        words.push(match hidden {
            true => format!("env:{ADDRESS}"),
            false => url.to_owned(),
        });
        edits.replace(member.key_at.clone(), tree::key("command", document.format));
        edits.replace(span, tree::quoted(&self.longhaul));
        let mut new = vec![("args", list(&words))];
        if hidden {
            let held = headers_key.copied().unwrap_or("env");
            match entry.get(held).map(Node::table) {
                None => {
                    let pair = tree::pair(ADDRESS, &tree::quoted(url), document.format);
                    new.push(("env", format!("{{ {pair} }}")));
                }
                Some(Some(env)) if document.add(&mut edits, env, ADDRESS, &tree::quoted(url)) => {}
                Some(_) => {
                    return Change::left("its `env` is written in a way that a member cannot be added to");
                }
            }
            let env = after.entry("env").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(env) = env {
                env.insert(ADDRESS.to_owned(), url.into());
            }
        }
        document.add_after(&mut edits, entry, at, &new);
        after.remove(&member.key);
        after.insert("command".to_owned(), self.longhaul.clone().into());
        after.insert("args".to_owned(), words.into_iter().map(Value::String).collect());
        for key in ["type", "transport"] {
            let Some(index) = entry.position(key) else {
                continue;
            };
            match (client.program_type(), entry.members[index].node.span()) {
                (Some(kind), Some(span)) => {
                    edits.replace(span, tree::quoted(kind));
                    after.insert(key.to_owned(), kind.into());
                }
                (_, _) => {
                    document.remove(&mut edits, entry, index);
                    after.remove(key);
                }
            }
        }
        Change {
            verdict: match (hidden, headers_key) {
                (true, _) => {
                    Verdict::Wrapped("its address, by a variable, since it may hold a secret".to_owned())
                }
                (false, Some(_)) => Verdict::Wrapped(url.to_owned()),
                (false, None) => Verdict::Open(url.to_owned()),
            },
            edits,
            after: Some(Value::Object(after)),
        }
    }

    /// The words of a command of ours before its own ones.
    fn words(&self, command: &str, client: Client, entry: Option<&Table>) -> Vec<String> {
        let mut words = vec![command.to_owned()];
        words.extend(self.flags.iter().cloned());
        if let Some(hold) = hold(client, entry) {
            words.extend(["--hold".to_owned(), hold.to_string()]);
        }
        words
    }

    /// The members of Longhaul's own entry.
    pub(super) fn entry(&self, client: Client) -> (Vec<(&'static str, String)>, Value) {
        let words = self.words("stdio", client, None);
        let mut members = Vec::new();
        let mut after = Map::new();
        // The clients whose schema asks for it; the others take a program for one.
        if client == Client::Vscode {
            members.push(("type", tree::quoted("stdio")));
            after.insert("type".to_owned(), "stdio".into());
        }
        members.push(("command", tree::quoted(&self.longhaul)));
        members.push(("args", list(&words)));
        after.insert("command".to_owned(), self.longhaul.clone().into());
        after.insert("args".to_owned(), words.into_iter().map(Value::String).collect());
        (members, Value::Object(after))
    }

    /// Whether an entry starts Longhaul with its own tools.
    pub(super) fn is_own_entry(&self, entry: &Node) -> bool {
        let table = entry.table();
        let command = table.and_then(|table| table.get("command")?.text());
        let first = table.and_then(|table| match table.get("args")? {
            Node::List { items, .. } => items.first()?.text(),
            Node::Text { .. } | Node::Table(_) | Node::Other { .. } => None,
        });
        command.is_some_and(|command| self.is_own(command)) && first != Some("wrap")
    }
}

/// Three quarters of what the client waits: what the server itself would learn from calls that were given up.
fn hold(client: Client, entry: Option<&Table>) -> Option<u32> {
    let own = client
        .waits_key()
        .and_then(|(key, units)| Some(entry?.get(key)?.number()? / units));
    let waits = own
        .filter(|seconds| *seconds >= 1.0)
        .or(client.waits().map(f64::from))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what `--hold` takes"
    )]
    let hold = (waits * 0.75).clamp(1.0, 86_400.0) as u32;
    Some(hold)
}

/// Turns an entry's headers into variables: each header and its variable.
fn headers(
    document: &Document,
    entry: &Table,
    key: &str,
    edits: &mut Edits,
) -> Result<Vec<(String, String)>, String> {
    let refused = |why: &str| Err(format!("its `{key}` {why}"));
    let Some(at) = entry.position(key) else {
        return Ok(Vec::new());
    };
    let member = &entry.members[at];
    let Some(table) = member.node.table() else {
        return refused("is not what it should be");
    };
    if entry.get("env").is_some() {
        return Err("it has both headers and an `env`".to_owned());
    }
    if table.layout == Layout::Spread && !table.members.is_empty() {
        return refused("is written as keys with dots");
    }
    if let Some(twice) = table.twice() {
        return Err(format!("its header `{}` is there twice", twice.key));
    }
    edits.replace(member.key_at.clone(), tree::key("env", document.format));
    let mut names = Vec::new();
    for (number, header) in table.members.iter().enumerate() {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if header.node.text().is_none() || header.key.is_empty() || !header.key.chars().all(is_name) {
            return refused("holds something that is no header");
        }
        let variable = format!("{HEADER}{}", number + 1);
        edits.replace(header.key_at.clone(), tree::key(&variable, document.format));
        names.push((header.key.clone(), variable));
    }
    Ok(names)
}

/// Why an address is not one that Longhaul can reach.
fn old_transport(url: &str, kind: Option<&str>) -> Option<String> {
    let sse = "it speaks the HTTP+SSE transport of 2024, which Longhaul does not";
    match kind {
        Some(kind) if HTTP.contains(&kind) => None,
        Some("sse") => Some(sse.to_owned()),
        Some(kind) => Some(format!("its type `{kind}` is not known")),
        // Clients try both transports; by custom the old one has this path.
        None => {
            let path = url.split(['?', '#']).next().unwrap_or_default();
            path.trim_end_matches('/')
                .ends_with("/sse")
                .then(|| sse.to_owned())
        }
    }
}

fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| tree::quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

pub(super) fn object(table: &Table) -> Map<String, Value> {
    match table.meaning() {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// The full path of this program, by the name under which it was found, so that an update of it is found, too.
pub(crate) fn longhaul() -> Option<String> {
    let own = places::program().ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let name = own.file_name()?.to_str()?;
    let named =
        program::in_path(name, &path).filter(|named| named.canonicalize().ok().as_ref() == Some(&own));
    let path: PathBuf = named.unwrap_or(own);
    path.into_os_string().into_string().ok()
}
