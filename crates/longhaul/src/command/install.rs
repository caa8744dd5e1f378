//! `longhaul install`: puts Longhaul before the servers of a client.
//!
//! It shows what it would change, and writes only when a person or `--yes` says so. What was there before is kept for
//! `longhaul uninstall`.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    desktop::{
        back::{self, Entry},
        clients::{Client, Home, Place},
        document::Document,
        entry::{self, Own, Verdict},
        file::Original,
        plan::{self, Plan, Planned},
        program::Shell,
        shown,
        undo::{Record, Records},
    },
    exit::{Exit, Failure, Outcome},
    flags::{ClientName, Common, Install},
    places::{self, State},
    prompt,
    screen::{self, line, say, say_json, tell},
};

/// Runs the command.
pub(crate) fn install(common: &Common, flags: &Install) -> Outcome {
    let chosen = chosen(&flags.clients, flags.file.as_deref())?;
    let state = State::find(common)?;
    let longhaul = entry::longhaul();
    let longhaul = longhaul.ok_or_else(|| Failure::fault("cannot tell where this program is"))?;
    let config = places::config(common, false)?;
    let mut work = Work {
        own: Own {
            flags: own_flags(common, &state, config.as_deref()),
            longhaul,
            shell: Shell::default(),
        },
        offers: config.is_some(),
        records: records(&state, flags.dry_run)?,
        flags,
        json: common.json,
        done: Vec::new(),
    };
    if !common.json && vanishes(&work.own.longhaul) {
        tell(format!(
            "note: {} may be removed by a cache that is cleaned; install Longhaul where it stays",
            line(&work.own.longhaul)
        ));
    }
    let mut exit = Exit::Done;
    let mut missing = Vec::new();
    for client in chosen.clients {
        let places = found(client, flags.file.as_deref())?;
        if places.is_empty() {
            missing.push(client);
            continue;
        }
        for place in places {
            if let Err(failure) = work.one(client, &place) {
                exit = exit.max(failure.exit);
                work.failed(client, &place.file, &failure);
            }
        }
    }
    exit = exit.max(work.missing(&missing, chosen.all)?);
    if common.json {
        let missing: Vec<&str> = missing.iter().map(|client| client.name()).collect();
        say_json(&serde_json::json!({ "files": work.done, "not_found": missing }))?;
    }
    Ok(exit)
}

/// The clients that were named.
pub(super) struct Chosen {
    pub(super) clients: Vec<Client>,
    /// All of them were asked for: one that is not there is no fault.
    pub(super) all: bool,
}

/// Reads the names. A file belongs to one client.
pub(super) fn chosen(names: &[ClientName], file: Option<&Path>) -> Result<Chosen, Failure> {
    let all = names.contains(&ClientName::All);
    let mut clients: Vec<Client> = match all {
        true => Client::ALL.to_vec(),
        false => names.iter().filter_map(|name| name.client()).collect(),
    };
    clients.sort();
    clients.dedup();
    match file {
        Some(_) if clients.len() != 1 => Err(Failure::usage(
            "`--file` is a file of one client; name that client",
        )),
        Some(_) | None => Ok(Chosen { clients, all }),
    }
}

/// The files of a client: the one that was named, else those that are found.
fn found(client: Client, file: Option<&Path>) -> Result<Vec<Place>, Failure> {
    let (format, lists) = client.reads();
    if let Some(file) = file {
        // VS Code's settings hold servers elsewhere than its `mcp.json`.
        let is_settings =
            client == Client::Vscode && file.file_name().is_some_and(|name| name == "settings.json");
        return Ok(vec![Place {
            file: file.to_owned(),
            format,
            lists: if is_settings {
                &[&["mcp", "servers"]]
            } else {
                lists
            },
            is_made: true,
        }]);
    }
    let home = Home::find().ok_or_else(|| Failure::usage("HOME is not set").fix("pass --file FILE"))?;
    Ok(client.places(&home))
}

/// The records, to be changed or, for a dry run, looked at.
pub(super) fn records(state: &State, dry: bool) -> Result<Records, Failure> {
    let opened = match dry {
        true => Records::look(&state.dir),
        false => Records::open(&state.dir, || {
            tell("waiting for another `longhaul install` or `uninstall`")
        }),
    };
    opened.map_err(|error| {
        Failure::fault(format!(
            "cannot keep what is to be undone in `{}`: {error}",
            state.dir.display()
        ))
    })
}

/// The flags that an entry needs where this user's places are not the usual ones: a client does not have the
/// variables of a shell.
fn own_flags(common: &Common, state: &State, config: Option<&Path>) -> Vec<String> {
    let mut flags = Vec::new();
    let mut add = |flag: &str, path: &Path| {
        if let Some(path) = path.to_str() {
            flags.extend([flag.to_owned(), path.to_owned()]);
        }
    };
    if !state.is_usual() {
        add("--state", &state.dir);
    }
    if let Some(config) = config
        && (common.config.is_some() || !places::is_usual_config(config))
        && let Ok(config) = std::path::absolute(config)
    {
        add("--config", &config);
    }
    flags
}

/// Whether this program is where programs do not stay.
fn vanishes(longhaul: &str) -> bool {
    ["/_npx/", "/.cache/uv/", "/archive-v0/"]
        .iter()
        .any(|part| longhaul.contains(part))
}

struct Work<'a> {
    own: Own,
    offers: bool,
    records: Records,
    flags: &'a Install,
    json: bool,
    done: Vec<Done>,
}

/// What became of one file, for programs.
#[derive(Serialize)]
struct Done {
    client: &'static str,
    file: PathBuf,
    servers: Vec<Server>,
    /// Whether there is something to change.
    changes: bool,
    written: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Server {
    name: String,
    keys: Vec<String>,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Server {
    fn of(entry: &Planned) -> Server {
        let (what, detail) = match &entry.verdict {
            Verdict::Wrapped(what) | Verdict::Open(what) => ("wrapped", Some(what.clone())),
            Verdict::Mended(what) => ("mended", Some(what.clone())),
            Verdict::Added => ("added", None),
            Verdict::Kept(why) => ("kept", Some((*why).to_owned())),
            Verdict::Left(why) => ("left", Some(why.clone())),
        };
        Server {
            name: entry.name().to_owned(),
            keys: entry.path.clone(),
            what,
            detail,
        }
    }
}

impl Work<'_> {
    fn one(&mut self, client: Client, place: &Place) -> Result<(), Failure> {
        let cannot = |why: &dyn std::fmt::Display| {
            Failure::usage(format!("cannot change `{}`: {why}", place.file.display()))
        };
        let original = Original::read(&place.file).map_err(|error| cannot(&error))?;
        if original.text.is_none() && !place.is_made {
            return Ok(());
        }
        let text = original.text.as_deref().unwrap_or_default();
        let old = Document::read(text, place.format).map_err(|error| cannot(&error))?;
        let plan = plan::plan(&self.own, client, place, &old, self.offers).map_err(|error| cannot(&error))?;
        let shown = original.path.display().to_string();
        if !self.json {
            describe(client, &shown, &plan);
        }
        let written = match &plan.document {
            None => false,
            Some(new) => {
                if !self.json {
                    let old = original.text.is_some().then_some(&old);
                    for text in shown::diff(&shown, old, Some(new)) {
                        say(text);
                    }
                }
                match self.is_wanted(client)? {
                    true => {
                        self.write(client, place, &original, &old, &plan, new)
                            .map_err(|error| cannot(&error))?;
                        true
                    }
                    false => false,
                }
            }
        };
        self.done.push(Done {
            client: client.name(),
            file: original.path,
            servers: plan.entries.iter().map(Server::of).collect(),
            changes: plan.document.is_some(),
            written,
            error: None,
        });
        Ok(())
    }

    /// Whether to write: `--yes`, or a person who says so.
    fn is_wanted(&self, client: Client) -> Result<bool, Failure> {
        let name = client.name();
        if self.flags.dry_run {
            return Ok(false);
        }
        if self.flags.yes {
            return Ok(true);
        }
        if self.json || !prompt::is_possible() {
            return Err(
                Failure::usage("nothing was written, since nobody can be asked here")
                    .fix(format!("longhaul install {name} --yes, or --dry-run")),
            );
        }
        let _ = write!(io::stderr(), "\nWrite it? [y/N] ");
        let mut typed = String::new();
        let read = io::stdin().read_line(&mut typed);
        read.map_err(|error| Failure::fault(format!("cannot read the answer: {error}")))?;
        let wanted = matches!(typed.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        if !wanted {
            tell("nothing was written");
        }
        Ok(wanted)
    }

    /// The record first: a file that was changed must not be without one.
    fn write(
        &mut self,
        client: Client,
        place: &Place,
        original: &Original,
        old: &Document,
        plan: &Plan,
        new: &Document,
    ) -> Result<(), String> {
        let earlier = self.records.of(&original.path).cloned();
        let (before, mut entries) = match &earlier {
            None => (original.text.clone(), Vec::new()),
            // Nobody changed the file since: what was there before the first time is what comes back.
            Some(record) if Some(&record.written) == original.text.as_ref() => {
                (record.original.clone(), record.entries.clone())
            }
            Some(record) => {
                let turned = back::turn_back(old, &record.entries).map_err(|error| error.to_string())?;
                (Some(turned.document.text()), record.entries.clone())
            }
        };
        for planned in &plan.entries {
            let Some(after) = &planned.after else {
                continue;
            };
            let known = entries.iter().position(|entry| entry.path == planned.path);
            match (known, &planned.verdict) {
                // It was Longhaul's already, so what was there before is what was there before that.
                (Some(at), Verdict::Mended(_)) => entries[at].after = after.clone(),
                (Some(at), _) => entries[at] = entry(planned, after),
                (None, _) => entries.push(entry(planned, after)),
            }
        }
        let record = Record {
            client: client.name().to_owned(),
            file: original.path.clone(),
            original: before,
            written: new.text(),
            entries,
        };
        let kept = self.records.keep(record);
        kept.map_err(|error| format!("what is to be undone cannot be kept: {error}"))?;
        if let Err(error) = original.write(&new.text()) {
            // Nothing was done, so there is nothing to undo but what there was before.
            let _ = match earlier {
                Some(earlier) => self.records.keep(earlier),
                None => self.records.forget(&original.path),
            };
            return Err(error.to_string());
        }
        if !self.json {
            let name = client.name();
            let with = match self.flags.file {
                Some(_) => format!(" --file {}", place.file.display()),
                None => String::new(),
            };
            say(format!(
                "written; start {name} anew. To undo it: longhaul uninstall {name}{with}"
            ));
        }
        Ok(())
    }

    fn failed(&mut self, client: Client, file: &Path, failure: &Failure) {
        if self.json {
            self.done.push(Done {
                client: client.name(),
                file: file.to_owned(),
                servers: Vec::new(),
                changes: false,
                written: false,
                error: Some(failure.message.clone()),
            });
        } else {
            tell(screen::block(&failure.to_string()));
        }
    }

    /// Says which clients are not there.
    fn missing(&self, missing: &[Client], all: bool) -> Result<Exit, Failure> {
        if missing.is_empty() {
            return Ok(Exit::Done);
        }
        let home = Home::find().ok_or_else(|| Failure::usage("HOME is not set"))?;
        if !self.json {
            for client in missing {
                let place = client.looked_for(&home);
                say(format!(
                    "{}: not found; looked for {}",
                    client.name(),
                    place.display()
                ));
            }
        }
        Ok(if all { Exit::Done } else { Exit::NotFound })
    }
}

/// An entry before and after.
fn entry(planned: &Planned, after: &Value) -> Entry {
    Entry {
        path: planned.path.clone(),
        before: planned.before.clone(),
        written: planned.written.clone(),
        after: after.clone(),
    }
}

/// Says of each entry what becomes of it.
fn describe(client: Client, file: &str, plan: &Plan) {
    say(format!("{}: {}", client.name(), line(file)));
    let widest = plan
        .entries
        .iter()
        .map(|entry| line(entry.name()).chars().count())
        .max();
    let widest = widest.unwrap_or_default().min(32);
    for entry in &plan.entries {
        let what = match &entry.verdict {
            Verdict::Open(what) => {
                format!("through Longhaul: {what}  (if it wants a login: longhaul login {what})")
            }
            Verdict::Wrapped(what) => format!("through Longhaul: {what}"),
            Verdict::Mended(what) => format!("found anew: {what}"),
            Verdict::Added => "new: Longhaul itself, with the tools and servers of longhaul.toml".to_owned(),
            Verdict::Kept(why) => (*why).to_owned(),
            Verdict::Left(why) => format!("left as it is: {why}"),
        };
        say(format!("  {:<widest$}  {}", line(entry.name()), line(&what)));
    }
    if plan.document.is_none() {
        say("  nothing to do");
    }
    if client == Client::ClaudeCode && Path::new(".mcp.json").exists() {
        say("  .mcp.json in this folder is its project's, and left alone; --file .mcp.json changes it");
    }
}
