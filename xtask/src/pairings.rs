//! `cargo xtask pairings [--all] [--write] [NAME..]`: clients in front of Longhaul and servers behind it, pair by pair.
//!
//! Every server of `rigs/pairings/` stands behind one Longhaul, at a toolset of its own. A client calls there, answers
//! what is asked, cancels, and leaves work that runs and a question that is open. Then Longhaul is killed with -9 and
//! started again, and a new process of the client must find both. Without a name the pairs of `covering` run, with `--all`
//! every pair; a name is a client, a server, or `CLIENT/SERVER`. A failing step that is not in `exceptions.json` fails,
//! and so does a line of it that passes. `--write` writes what was seen into the page of the reference.
//! `LONGHAUL_BINARY` names another binary to judge.

mod cell;
mod page;
mod place;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde::Deserialize;

use crate::{
    Outcome,
    clients::{Client, Installed, side_by_side, unexpected},
    server::{Server, binary},
    workspace::{json, root},
};

use cell::Cell;
pub(crate) use page::{PAGE, rendered};
use place::Place;
use rows::{Row, Rows};

const RIG: &str = "rigs/pairings";
/// The most clients that wait for one kill.
const BATCH: usize = 20;

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let wanted = Wanted::of(arguments)?;
    let rows = Rows::read()?;
    let clients = Client::all()?;
    let pairs = wanted.pairs(&rows, &clients)?;
    let (start, commit) = (Instant::now(), page::commit()?);
    let results = Place::results()?;
    let servers: Vec<&Row> = distinct(pairs.iter().map(|(_, row)| *row), |row| &row.name);
    let fronts: Vec<Client> = distinct(pairs.iter().map(|(client, _)| *client), |client| &client.name)
        .into_iter()
        .cloned()
        .collect();
    let installed = Installed::for_clients(&fronts)?;
    let place = Place::prepare(&servers, &results)?;
    let binary = binary()?;
    let mut longhaul = Server::start(&binary, &results, &results)?;
    crate::servers::ready(&binary, &results)?;
    println!("everything stands after {} s", start.elapsed().as_secs());
    let mut cells = pairs
        .iter()
        .map(|(client, row)| Cell::new(client, row, &rows, &place, &longhaul))
        .collect::<Result<Vec<_>, _>>()?;
    for batch in cells.chunks_mut(BATCH) {
        side_by_side(batch, |cell| cell.first(&installed))?;
        side_by_side(batch, |cell| cell.leave())?;
        println!("Longhaul is killed with -9");
        batch.iter_mut().for_each(Cell::crash);
        longhaul.kill_and_start()?;
        side_by_side(batch, |cell| cell.later(&installed))?;
    }
    drop(longhaul);
    cells.iter_mut().for_each(Cell::left_behind);
    drop(place);
    println!(
        "pairings: {} pairs in {} s",
        cells.len(),
        start.elapsed().as_secs()
    );
    settle(&cells, &commit, &wanted)
}

/// What the command line says.
struct Wanted {
    all: bool,
    write: bool,
    names: Vec<String>,
}

impl Wanted {
    fn of(arguments: &[String]) -> Result<Wanted, String> {
        let mut wanted = Wanted {
            all: false,
            write: false,
            names: Vec::new(),
        };
        for argument in arguments {
            match argument.as_str() {
                "--all" => wanted.all = true,
                "--write" => wanted.write = true,
                flag if flag.starts_with("--") => return Err(format!("`pairings` has no `{flag}`")),
                name => wanted.names.push(name.to_owned()),
            }
        }
        Ok(wanted)
    }

    /// The pairs that run, those of one server apart from each other: its clients are not all there at once.
    fn pairs<'a>(&self, rows: &'a Rows, clients: &'a [Client]) -> Result<Vec<(&'a Client, &'a Row)>, String> {
        let known = |name: &String| {
            let (client, server) = name.split_once('/').unwrap_or((name, name));
            clients.iter().any(|known| known.name == client)
                || rows.servers.iter().any(|row| row.name == server)
        };
        if let Some(stranger) = self.names.iter().find(|name| !known(name)) {
            return Err(format!("no client, server or pair is named `{stranger}`"));
        }
        let named = |client: &Client, row: &Row| {
            let pair = format!("{}/{}", client.name, row.name);
            match (self.names.is_empty(), self.all) {
                (true, true) => true,
                (true, false) => rows.covering.contains(&pair),
                (false, _) => [&client.name, &row.name, &pair]
                    .iter()
                    .any(|name| self.names.contains(name)),
            }
        };
        let mut pairs = Vec::new();
        for shift in 0..rows.servers.len() {
            for (at, client) in clients.iter().enumerate() {
                let row = &rows.servers[(at + shift) % rows.servers.len()];
                if named(client, row) && rows.here(row) {
                    pairs.push((client, row));
                }
            }
        }
        match pairs.is_empty() {
            true => Err("no pair is wanted".to_owned()),
            false => Ok(pairs),
        }
    }

    /// Whether every pair runs.
    fn whole(&self) -> bool {
        self.all && self.names.is_empty()
    }
}

/// Each once, in the order in which it comes first.
fn distinct<'a, T>(all: impl Iterator<Item = &'a T>, name: impl Fn(&T) -> &String) -> Vec<&'a T> {
    let mut seen = BTreeSet::new();
    all.filter(|one| seen.insert(name(one).clone())).collect()
}

/// Why a step may fail. `CLIENT/SERVER/STEP` names it; `*` stands for every client or server.
#[derive(Deserialize)]
struct Exception {
    why: String,
    /// A file of the rig in which it fails in the same way without Longhaul.
    reproduction: Option<String>,
    /// The fault is Longhaul's.
    #[serde(default)]
    ours: bool,
}

type Exceptions = BTreeMap<String, Exception>;

fn exceptions() -> Result<Exceptions, String> {
    json(&format!("{RIG}/exceptions.json"))
}

/// The exception that is about this step.
fn excused<'a>(
    exceptions: &'a Exceptions,
    client: &str,
    server: &str,
    step: &str,
) -> Option<(&'a str, &'a Exception)> {
    let names = [
        format!("{client}/{server}/{step}"),
        format!("*/{server}/{step}"),
        format!("{client}/*/{step}"),
    ];
    let found = names.iter().find_map(|name| exceptions.get_key_value(name))?;
    Some((found.0, found.1))
}

fn settle(cells: &[Cell<'_>], commit: &str, wanted: &Wanted) -> Outcome {
    let exceptions = exceptions()?;
    let mut wrong = Vec::new();
    for (name, exception) in &exceptions {
        let reproduced = exception
            .reproduction
            .as_ref()
            .is_some_and(|file| root().join(RIG).join("repro").join(file).is_file());
        if exception.why.is_empty() || !(reproduced || exception.ours) {
            wrong.push(format!("{name} is excused without a reason or a reproduction"));
        }
    }
    let (mut verdicts, mut known, mut used) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for cell in cells {
        for (step, why) in cell.verdicts() {
            let name = format!("{}/{step}", cell.name());
            if let Some((exception, _)) = excused(&exceptions, &cell.client.name, &cell.row.name, &step) {
                known.insert(name.clone());
                used.insert(exception.to_owned());
            }
            verdicts.insert(name, why);
        }
    }
    wrong.extend(unexpected(&verdicts, &known, !wanted.whole()));
    if wanted.whole() {
        let unused = exceptions.keys().filter(|name| !used.contains(*name));
        wrong.extend(unused.map(|name| format!("{name} is in the exceptions but does not run")));
    }
    wrong.extend(page::settle(cells, commit, wanted.write)?);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("pairings:\n  {}", wrong.join("\n  "))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Client, Exceptions, Rows, Wanted, excused};

    #[test]
    fn the_covering_pairs_have_every_client_and_every_server_that_asks() {
        let (rows, clients) = (Rows::read().unwrap(), Client::all().unwrap());
        let pairs = Wanted::of(&[]).unwrap().pairs(&rows, &clients).unwrap();
        assert_eq!(pairs.len(), rows.covering.len());
        assert!(pairs.len() <= 20);
        for client in clients.iter().filter(|client| !client.is_page()) {
            assert!(
                pairs.iter().any(|(covered, _)| covered.name == client.name),
                "{}",
                client.name
            );
        }
        let asking = rows
            .servers
            .iter()
            .filter(|row| !row.without.contains_key("question") && row.needs.is_none());
        for row in asking {
            assert!(
                pairs.iter().any(|(_, covered)| covered.name == row.name),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn every_pair_has_each_step_or_says_why_not() {
        let (rows, clients) = (Rows::read().unwrap(), Client::all().unwrap());
        for row in &rows.servers {
            for client in &clients {
                for step in super::rows::STEPS {
                    let has = rows.has(client, row, step);
                    assert_ne!(
                        has,
                        rows.why_not(client, row, step).is_some(),
                        "{}/{}/{step}",
                        client.name,
                        row.name
                    );
                }
            }
        }
    }

    #[test]
    fn a_star_excuses_every_client_or_server() {
        let exceptions: Exceptions =
            serde_json::from_str(r#"{"*/git/call": {"why": "a"}, "mcpdo/*/asked": {"why": "b"}}"#).unwrap();
        let why = |client, server, step| {
            excused(&exceptions, client, server, step).map(|(_, found)| found.why.as_str())
        };
        assert_eq!(why("any", "git", "call"), Some("a"));
        assert_eq!(why("mcpdo", "git", "asked"), Some("b"));
        assert_eq!(why("any", "git", "result"), None);
    }
}
