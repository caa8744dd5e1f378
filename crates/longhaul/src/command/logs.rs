//! `longhaul logs`: the end of the server's log, and what comes after it.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    exit::{Exit, Failure, Outcome},
    flags::{Common, Logs},
    places::State,
    screen::{line, say},
};

/// The beginning of the log's file names; a date follows.
pub(crate) const PREFIX: &str = "longhaul";
/// How far back from the end a line is looked for, in bytes.
const TAIL_BYTES: u64 = 8 * 1024 * 1024;
/// How often the log is looked at while it is followed.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Runs the command.
pub(crate) async fn logs(common: &Common, flags: &Logs) -> Outcome {
    let directory = State::find(common)?.log();
    let newest = newest(&directory);
    let Some(path) = newest else {
        let message = format!("there is no log in `{}`", directory.display());
        return Err(Failure::new(Exit::NotFound, "no_log", message).fix("longhaul serve writes one"));
    };
    let broken = |error| Failure::fault(format!("cannot read `{}`: {error}", path.display()));
    let mut file = File::open(&path).map_err(broken)?;
    let length = file.metadata().map_err(broken)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .map_err(broken)?;
    let mut bytes = Vec::new();
    file.by_ref()
        .take(TAIL_BYTES)
        .read_to_end(&mut bytes)
        .map_err(broken)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    for text in lines
        .iter()
        .skip(lines.len().saturating_sub(flags.lines as usize))
    {
        show(text, common.json);
    }
    if flags.follow {
        follow(&directory, path.clone(), file, common.json)
            .await
            .map_err(broken)?;
    }
    Ok(Exit::Done)
}

async fn follow(directory: &Path, mut path: PathBuf, file: File, as_json: bool) -> std::io::Result<()> {
    let mut reader = BufReader::new(file);
    let mut text = String::new();
    loop {
        match reader.read_line(&mut text)? {
            0 => {
                // A new file begins each day.
                if let Some(newer) = newest(directory).filter(|newer| *newer != path) {
                    reader = BufReader::new(File::open(&newer)?);
                    path = newer;
                    continue;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            _ if text.ends_with('\n') => show(&std::mem::take(&mut text), as_json),
            _ => {}
        }
    }
}

/// The log of the newest day: the names sort by date.
fn newest(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(PREFIX) && name.ends_with(".log"))
        .max()
        .map(|name| directory.join(name))
}

/// One record: as it is for programs, as a line for people.
fn show(text: &str, as_json: bool) {
    let text = text.trim_end();
    let record = match as_json {
        true => None,
        false => serde_json::from_str::<serde_json::Value>(text).ok(),
    };
    let Some(record) = record else {
        return say(crate::screen::json(text));
    };
    let word = |name: &str| record[name].as_str().map(line).unwrap_or_default();
    let mut shown = format!("{}  {:<5} {}", word("timestamp"), word("level"), {
        let fields = &record["fields"];
        fields["message"].as_str().map(line).unwrap_or_default()
    });
    for (name, value) in record["fields"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "message")
    {
        shown.push_str(&format!("  {}={}", line(name), line(&value.to_string())));
    }
    say(shown);
}
