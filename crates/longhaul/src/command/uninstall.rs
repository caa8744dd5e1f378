//! `longhaul uninstall`: takes back what `longhaul install` wrote.
//!
//! A file that is as `install` left it gets its bytes of before. In one that was changed since, only what `install`
//! wrote is turned back.

use std::path::PathBuf;

use serde::Serialize;

use super::install::{chosen, records};
use crate::{
    desktop::{
        back,
        clients::{Client, Home},
        document::Document,
        file::Original,
        look, shown,
        undo::{Record, Records},
    },
    exit::{Exit, Failure, Outcome},
    flags::{Common, Uninstall},
    places::State,
    screen::{self, line, say, say_json, tell},
};

/// Runs the command.
pub(crate) fn uninstall(common: &Common, flags: &Uninstall) -> Outcome {
    let chosen = chosen(&flags.clients, flags.file.as_deref())?;
    let state = State::find(common)?;
    let mut records = records(&state, flags.dry_run)?;
    let mut exit = Exit::Done;
    let mut done = Vec::new();
    for client in chosen.clients {
        let file = flags
            .file
            .as_deref()
            .map(|file| file.canonicalize().unwrap_or_else(|_| file.to_owned()));
        let mut of_client: Vec<Record> = records.of_client(client.name()).cloned().collect();
        of_client.retain(|record| file.as_ref().is_none_or(|file| *file == record.file));
        if of_client.is_empty() && !chosen.all {
            exit = exit.max(Exit::NotFound);
            if !common.json {
                say(format!("{}: {}", client.name(), nothing(client, &state)));
            }
        }
        for record in of_client {
            match one(client, &record, &mut records, flags.dry_run, common.json) {
                Ok(how) => done.push(Done::of(&record, how)),
                Err(failure) => {
                    exit = exit.max(failure.exit);
                    if !common.json {
                        tell(screen::block(&failure.to_string()));
                    }
                    done.push(Done {
                        error: Some(failure.message),
                        ..Done::of(&record, How::Untouched)
                    });
                }
            }
        }
    }
    match common.json {
        true => say_json(&serde_json::json!({ "files": done }))?,
        false if done.is_empty() && chosen.all => say("nothing to undo"),
        false => {}
    }
    Ok(exit)
}

/// Why there is nothing to undo.
fn nothing(client: Client, state: &State) -> String {
    let found = Home::find().map(|home| look::look(&home)).unwrap_or_default();
    let of_client = found.iter().filter(|found| found.client == client);
    let ours: usize = of_client
        .filter_map(|found| Some(found.servers.as_ref().ok()?.1))
        .sum();
    match ours {
        0 => "nothing to undo".to_owned(),
        ours => format!(
            "{} through Longhaul, but {} does not say what was there before; was it another --state?",
            match ours {
                1 => "1 server runs".to_owned(),
                ours => format!("{ours} servers run"),
            },
            state.dir.display()
        ),
    }
}

/// What became of one file.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "how")]
enum How {
    /// It has its bytes of before.
    Restored,
    /// `install` had made it, and it is gone.
    Removed,
    /// It was gone, or as before, already.
    Nothing,
    /// What `install` wrote was turned back; what was changed since in the entries that are named stays.
    TurnedBack {
        kept: Vec<String>,
    },
    Untouched,
}

#[derive(Serialize)]
struct Done {
    client: String,
    file: PathBuf,
    #[serde(flatten)]
    how: How,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Done {
    fn of(record: &Record, how: How) -> Done {
        Done {
            client: record.client.clone(),
            file: record.file.clone(),
            how,
            error: None,
        }
    }
}

fn one(
    client: Client,
    record: &Record,
    records: &mut Records,
    dry: bool,
    json: bool,
) -> Result<How, Failure> {
    let shown = record.file.display().to_string();
    let cannot = |why: &dyn std::fmt::Display| Failure::usage(format!("cannot undo `{shown}`: {why}"));
    let now = Original::read(&record.file).map_err(|error| cannot(&error))?;
    let (format, _) = client.reads();
    let (new, how) = match &now.text {
        None => (None, How::Nothing),
        Some(text) if *text == record.written => match &record.original {
            Some(original) => (Some(original.clone()), How::Restored),
            None => (None, How::Removed),
        },
        Some(text) if Some(text) == record.original.as_ref() => (None, How::Nothing),
        Some(text) => {
            let document = Document::read(text, format).map_err(|error| cannot(&error))?;
            let turned = back::turn_back(&document, &record.entries).map_err(|error| cannot(&error))?;
            (
                Some(turned.document.text()),
                How::TurnedBack { kept: turned.kept },
            )
        }
    };
    if !json {
        say(format!("{}: {}", client.name(), line(&shown)));
        let read = |text: Option<&str>| Document::read(text?, format).ok();
        let (old, new) = (read(now.text.as_deref()), read(new.as_deref()));
        let lines = match how {
            How::Nothing | How::Untouched => Vec::new(),
            How::Restored | How::Removed | How::TurnedBack { .. } => {
                shown::diff(&shown, old.as_ref(), new.as_ref())
            }
        };
        for text in lines {
            say(text);
        }
    }
    if !dry {
        match (&how, &new) {
            (How::Removed, _) => now.remove().map_err(|error| cannot(&error))?,
            (How::Restored | How::TurnedBack { .. }, Some(new)) if Some(new) != now.text.as_ref() => {
                now.write(new).map_err(|error| cannot(&error))?;
            }
            (_, _) => {}
        }
        records.forget(&record.file).map_err(|error| cannot(&error))?;
    }
    if !json {
        told(&how, dry);
    }
    Ok(how)
}

fn told(how: &How, dry: bool) {
    let text = match how {
        How::Restored => "  as it was before, byte for byte",
        How::Removed => "  removed, since `install` had made it",
        How::Nothing => "  nothing to undo: it is as it was before, or gone",
        How::TurnedBack { .. } => {
            "  it was changed since; what `install` wrote is turned back, and the rest stays"
        }
        How::Untouched => "",
    };
    say(format!("{text}{}", if dry { " (not written)" } else { "" }));
    if let How::TurnedBack { kept } = how
        && !kept.is_empty()
    {
        say(format!(
            "  changed by somebody else, and left in part: {}",
            line(&kept.join(", "))
        ));
    }
}
