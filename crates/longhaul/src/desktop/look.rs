//! What `doctor` says of the clients on this machine: what runs through Longhaul, and what could not be started.
//!
//! It reads the clients' files and changes nothing. The user's shell is asked only when a program is missing.

use std::{ffi::OsString, fs::File, io::Read as _, path::Path};

use super::{
    clients::{Client, Home, Place},
    document::Document,
    file::Original,
    plan,
    program::{self, Shell},
    tree::{Node, Table},
};

/// One file of a client.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) client: Client,
    pub(crate) file: String,
    /// How many servers it has, and how many of them run through Longhaul; or why it cannot be read.
    pub(crate) servers: Result<(usize, usize), String>,
    pub(crate) missing: Vec<Missing>,
}

/// A program that is not where the client looks.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) server: String,
    pub(crate) program: String,
    /// The `PATH` in which it was looked for; `None` when it was named by its full path.
    pub(crate) path: Option<String>,
    /// Where the user's shell has it.
    pub(crate) shell: Option<String>,
    /// It is started through Longhaul.
    pub(crate) is_ours: bool,
}

/// Looks at every client.
pub(crate) fn look(home: &Home) -> Vec<Found> {
    let shell = Shell::default();
    let places = |client: Client| client.places(home).into_iter().map(move |place| (client, place));
    let places = Client::ALL.into_iter().flat_map(places);
    places
        .filter_map(|(client, place)| one(client, &place, &shell))
        .collect()
}

fn one(client: Client, place: &Place, shell: &Shell) -> Option<Found> {
    let found = |servers, missing| {
        Some(Found {
            client,
            file: place.file.display().to_string(),
            servers,
            missing,
        })
    };
    let original = match Original::read(&place.file) {
        Ok(original) => original,
        Err(error) => return found(Err(error.to_string()), Vec::new()),
    };
    let document = match Document::read(original.text.as_deref()?, place.format) {
        Ok(document) => document,
        Err(error) => return found(Err(error.to_string()), Vec::new()),
    };
    let servers = match plan::servers(place, &document) {
        Ok(servers) => servers,
        Err(error) => return found(Err(error.to_string()), Vec::new()),
    };
    let (mut all, mut ours, mut missing) = (0, 0, Vec::new());
    for (name, entry) in servers {
        all += 1;
        let Some((command, words)) = command(entry) else {
            continue;
        };
        let is_ours = command == "longhaul" || command.ends_with("/longhaul");
        ours += usize::from(is_ours);
        let behind = words
            .iter()
            .position(|word| *word == "--")
            .and_then(|at| words.get(at + 1));
        let behind = behind.filter(|_| is_ours && words.first() == Some(&"wrap"));
        for program in [command].into_iter().chain(behind.copied()) {
            missing.extend(absent(client, entry, name, program, is_ours, shell));
        }
    }
    // A file without servers says nothing.
    (all > 0).then(|| found(Ok((all, ours)), missing)).flatten()
}

fn command(entry: &Table) -> Option<(&str, Vec<&str>)> {
    let command = entry.get("command")?.text()?;
    let words = match entry.get("args") {
        Some(Node::List { items, .. }) => items.iter().filter_map(Node::text).collect(),
        Some(Node::Text { .. } | Node::Table(_) | Node::Other { .. }) | None => Vec::new(),
    };
    Some((command, words))
}

/// A program, or the one that runs it, when it is not found.
fn absent(
    client: Client,
    entry: &Table,
    server: &str,
    command: &str,
    is_ours: bool,
    shell: &Shell,
) -> Option<Missing> {
    if command.is_empty() || command.contains(['$', '~']) {
        return None;
    }
    let own = entry
        .get("env")
        .and_then(Node::table)
        .and_then(|env| env.get("PATH")?.text());
    let path: OsString = match (own, client.looks_in()) {
        (Some(own), _) if !own.contains('$') => own.into(),
        (_, Some(path)) => path.into(),
        (_, None) => std::env::var_os("PATH")?,
    };
    let missing = |program: &str, in_path: bool| {
        Some(Missing {
            server: server.to_owned(),
            program: program.to_owned(),
            path: in_path.then(|| path.to_string_lossy().into_owned()),
            shell: shell
                .find(Path::new(program).file_name()?.to_str()?)
                .map(|found| found.display().to_string()),
            is_ours,
        })
    };
    let found = match command.contains('/') {
        // Where the client stands is not known here.
        true if !command.starts_with('/') => return None,
        true if !program::is_program(Path::new(command)) => return missing(command, false),
        true => Path::new(command).to_owned(),
        false => match program::in_path(command, &path) {
            Some(found) => found,
            None => return missing(command, true),
        },
    };
    let runner = runner(&found)?;
    match program::in_path(&runner, &path) {
        Some(_) => None,
        None => missing(&runner, true),
    }
}

/// What a script asks `env` to find.
fn runner(program: &Path) -> Option<String> {
    let mut head = Vec::new();
    File::open(program).ok()?.take(256).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.strip_prefix("#!")?.lines().next()?.split_whitespace();
    let is_env = words.next()?.ends_with("/env");
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    is_env.then(|| name.to_owned())
}
