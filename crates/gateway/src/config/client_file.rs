//! The JSON files in which MCP clients keep their servers (`{"mcpServers": {"NAME": {"command": …}}}`), read as they
//! are.
//!
//! `config` calls it for files that end in `.json`. What our own files would refuse as unknown is only warned about
//! here: such a file is another program's, and has that program's keys. Places are whole files: these have no lines.

use serde_json::{Map, Value as Json};

use super::{
    node::{Data, Node, Table},
    problem::{At, Problems},
};

/// The members under which clients list their servers.
const LISTS: &[&str] = &["mcpServers", "servers"];
/// The keys that mean here what they mean there.
const KEPT: &[&str] = &["command", "args", "env", "cwd", "url", "headers", "disabled"];

/// The servers of one file. What cannot be read is left out and reported.
pub(super) fn parse(file: &str, text: &str, problems: &mut Problems, warnings: &mut Problems) -> Table {
    let at = At::whole(file);
    let whole: Map<String, Json> = match serde_json::from_str(text) {
        Ok(whole) => whole,
        Err(error) => {
            problems.add(&at, format!("not a JSON object: {error}"));
            return Table::new();
        }
    };
    let Some(Json::Object(listed)) = LISTS.iter().find_map(|list| whole.get(*list)) else {
        problems.add(&at, "no `mcpServers` in it".to_owned());
        return Table::new();
    };
    let mut servers = Table::new();
    for (name, declared) in listed {
        let Json::Object(declared) = declared else {
            problems.add(&at, format!("server `{name}` must be an object"));
            continue;
        };
        let table = server(name, declared, &at, warnings);
        servers.insert(server_name(name), (at.clone(), node(&at, Data::Table(table))));
    }
    Table::from([(
        "servers".to_owned(),
        (at.clone(), node(&at, Data::Table(servers))),
    )])
}

fn server(name: &str, declared: &Map<String, Json>, at: &At, warnings: &mut Problems) -> Table {
    let mut table = Table::new();
    for (key, value) in declared {
        match (key.as_str(), value) {
            (_, Json::Null) => {}
            ("type" | "transport", Json::String(kind)) if kind == "sse" => warnings.add(
                at,
                format!(
                    "server `{name}` is of the type `sse`, a transport of 2024 that is not spoken here; its address is \
                     tried with Streamable HTTP"
                ),
            ),
            ("type" | "transport", _) => {}
            (key, value) if KEPT.contains(&key) => {
                let data = data(at, value);
                table.insert(key.to_owned(), (at.clone(), node(at, data)));
            }
            (key, _) => warnings.add(
                at,
                format!("`{key}` of server `{name}` means nothing here and is passed over"),
            ),
        }
    }
    table
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

fn node(at: &At, data: Data) -> Node {
    Node { at: at.clone(), data }
}

fn data(at: &At, value: &Json) -> Data {
    match value {
        Json::Null => Data::Text(String::new()),
        Json::Bool(flag) => Data::Flag(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Data::Whole(whole),
            None => Data::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Data::Text(text.clone()),
        Json::Array(items) => Data::List(items.iter().map(|item| node(at, data(at, item))).collect()),
        Json::Object(members) => Data::Table(
            members
                .iter()
                .map(|(key, value)| (key.clone(), (at.clone(), node(at, data(at, value)))))
                .collect(),
        ),
    }
}
