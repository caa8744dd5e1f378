//! What is written to the terminal: escaping, widths, tables, ages.
//!
//! Everything that comes from a tool or a client goes through [`line`], [`block`] or [`json`] before it is
//! printed (S16). Nothing here reads anything.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

use longhaul_gateway::{
    admin::api::{Left, Progress, Server, State, Stop, Task, Toolset},
    config::Config,
};
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::exit::Failure;

/// The width of a table that no terminal shows: a pipe or a file cuts nothing, and a line still ends.
const WIDTH_UNSHOWN: usize = 400;
/// The longest line of a text from outside, in characters.
const LINE_MAX: usize = 100_000;

/// Prints one line to standard output. A reader that went away ends nothing: the command's own outcome counts.
pub(crate) fn say(text: impl AsRef<str>) {
    let mut out = io::stdout().lock();
    let _ = out
        .write_all(text.as_ref().as_bytes())
        .and_then(|()| out.write_all(b"\n"));
}

/// Prints one line to standard error.
pub(crate) fn tell(text: impl AsRef<str>) {
    let mut out = io::stderr().lock();
    let _ = out
        .write_all(text.as_ref().as_bytes())
        .and_then(|()| out.write_all(b"\n"));
}

/// Prints as JSON for programs.
///
/// # Errors
/// When the value is no JSON, which is a fault of ours.
pub(crate) fn say_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::fault(error.to_string()))?;
    say(json(&text));
    Ok(())
}

/// One line of text from outside: without anything that steers a terminal or changes how other text is shown.
pub(crate) fn line(text: &str) -> String {
    longhaul_mcp::clean(text, LINE_MAX)
}

/// Several lines of text from outside.
pub(crate) fn block(text: &str) -> String {
    text.lines()
        .map(|text| line(&text.replace('\t', "    ")))
        .collect::<Vec<_>>()
        .join("\n")
}

/// JSON text in which characters that steer a terminal or hide are written as escapes: the same JSON.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Such characters occur inside strings only, where an escape means the same.
        if c == '\n' || c == '\t' || line(c.encode_utf8(&mut [0; 4])).contains(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// The columns of the terminal behind standard output.
pub(crate) fn width() -> usize {
    match terminal_size::terminal_size() {
        Some((width, _)) if io::stdout().is_terminal() => usize::from(width.0).max(40),
        Some(_) | None => WIDTH_UNSHOWN,
    }
}

/// Cuts to so many columns; a cut ends in `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        out.push(c);
    }
    out.push('…');
    out
}

/// A text from outside in lines that fit beside a bar, so that none of it can be taken for our own.
pub(crate) fn quoted(text: &str) -> Vec<String> {
    let columns = terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0));
    quoted_in(text, columns.saturating_sub(4))
}

/// The same in lines of about so many columns.
pub(crate) fn quoted_in(text: &str, columns: usize) -> Vec<String> {
    let room = columns.clamp(20, 100);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        if used > 0 && used + word.trim_end().width() > room {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > room {
                lines.push(String::new());
                used = 0;
            }
            used += wide;
            if let Some(last) = lines.last_mut() {
                last.push(c);
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Rows under a heading, each column as wide as its widest cell; the last one takes what is left.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]], columns: usize) -> Vec<String> {
    let widths = widths(heading, rows, columns);
    let head = heading.map(str::to_owned);
    std::iter::once(&head)
        .chain(rows)
        .map(|row| {
            let mut text = String::new();
            for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
                if at + 1 == N {
                    text.push_str(&cut(cell, columns.saturating_sub(text.width()).max(10)));
                } else {
                    let cell = cut(cell, width);
                    text.push_str(&cell);
                    text.push_str(&" ".repeat(width.saturating_sub(cell.width()) + 2));
                }
            }
            text.trim_end().to_owned()
        })
        .collect()
}

fn widths<const N: usize>(heading: [&str; N], rows: &[[String; N]], columns: usize) -> [usize; N] {
    let mut widths = heading.map(str::width);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width()).min(columns / 3);
        }
    }
    widths
}

/// The table of tasks.
pub(crate) fn tasks(tasks: &[Task], columns: usize) -> Vec<String> {
    const HEADING: [&str; 6] = ["NAME", "TOOL", "STATE", "AGE", "FROM", "NOW"];
    let mut rows: Vec<[String; 6]> = tasks
        .iter()
        .map(|task| {
            [
                task.name.clone(),
                line(&task.tool),
                task.state.word().to_owned(),
                age(task.now_ms.saturating_sub(task.created_at_ms)),
                line(task.caller()),
                String::new(),
            ]
        })
        .collect();
    let [first @ .., _] = widths(HEADING, &rows, columns);
    let room = columns.saturating_sub(first.iter().map(|width| width + 2).sum());
    for (row, task) in rows.iter_mut().zip(tasks) {
        row[5] = now(task, room);
    }
    table(HEADING, &rows, columns)
}

/// A number of things: `1 tool`, `3 tools`.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    let more = if count == N::from(1) { "" } else { "s" };
    format!("{count} {one}{more}")
}

/// How much a configuration declares: `3 tools, 1 server`.
pub(crate) fn declared(config: &Config) -> String {
    let tools = counted(config.tools.len(), "tool");
    let mut declared = vec![tools];
    let more = [
        (config.servers.len(), "server"),
        (config.toolsets.len(), "toolset"),
    ];
    declared.extend(
        more.into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, one)| counted(count, one)),
    );
    declared.join(", ")
}

/// A toolset in one line.
pub(crate) fn toolset(toolset: &Toolset) -> String {
    let purpose = toolset.description.as_deref().unwrap_or_default();
    let tools = counted(toolset.tools, "tool");
    let name = &toolset.name;
    match purpose {
        "" => line(&format!("{name}: {tools} at /mcp/{name}")),
        purpose => line(&format!(
            "{name}: {tools} at /mcp/{name}; {}",
            purpose.trim_end().trim_end_matches('.')
        )),
    }
}

/// The table of servers.
pub(crate) fn servers(servers: &[Server], columns: usize) -> Vec<String> {
    const HEADING: [&str; 6] = ["NAME", "STATE", "FOR", "TOOLS", "PROCESSES", "NOW"];
    let rows: Vec<[String; 6]> = servers
        .iter()
        .map(|server| {
            let reached = server.calls_itself.as_deref().unwrap_or(&server.reached_by);
            [
                line(&server.name),
                server.state.word().to_owned(),
                age(server.for_ms),
                server.tools.to_string(),
                match server.waiting {
                    0 => format!("{}/{}", server.processes, server.processes_max),
                    waiting => format!("{}/{}, {waiting} wait", server.processes, server.processes_max),
                },
                line(server.why.as_deref().unwrap_or(reached)),
            ]
        })
        .collect();
    table(HEADING, &rows, columns)
}

/// The processes that are left, each by its name and id.
pub(crate) fn alive(left: &Left) -> String {
    let named = left.named.iter();
    let named = named.map(|process| format!("{} {}", line(&process.name), process.pid));
    named.collect::<Vec<_>>().join(", ")
}

/// What a task is doing, or how it ended, in one line. A question is cut so that what answers it is still seen.
pub(crate) fn now(task: &Task, room: usize) -> String {
    if let Some(question) = task.questions.first() {
        let answer = format!("→ longhaul answer {}", task.name);
        let room = room.saturating_sub(answer.width() + 4).min(60);
        return match room < 10 {
            true => answer,
            false => format!("\"{}\"  {answer}", cut(&line(&question.message), room)),
        };
    }
    match (task.state, task.stop) {
        (State::Stopping, _) => match &task.left {
            Some(left) => left.words(),
            None => "its processes are being stopped".to_owned(),
        },
        (State::Cancelled, Some(stop)) => self::stop(stop).to_owned(),
        (State::Held, _) => "waits for an approval".to_owned(),
        (State::Running | State::Queued | State::Asking, _) => match &task.progress {
            Some(shown) => progress(shown),
            None => line(&task.status),
        },
        (State::Cancelled | State::Done | State::Failed | State::Lost, _) => line(&task.status),
    }
}

/// How far the work is: `61 %  214/350  tests`.
pub(crate) fn progress(progress: &Progress) -> String {
    let message = progress.message.as_deref().map(line).unwrap_or_default();
    let counts = match progress.total.filter(|total| *total > 0.0) {
        Some(total) => {
            let percent = (progress.done / total * 100.0).clamp(0.0, 100.0);
            format!("{percent:.0} %  {}/{total}", progress.done)
        }
        None => progress.done.to_string(),
    };
    format!("{counts}  {message}").trim_end().to_owned()
}

/// What is known of the work of a task that was ended from outside.
pub(crate) const fn stop(stop: Stop) -> &'static str {
    match stop {
        Stop::NotStarted => "it never began",
        Stop::Stopping => "told to stop; not confirmed yet",
        Stop::Stopped => "stopped; nothing of it is left",
        Stop::Unknown => "its work may still be running: nobody is left who could tell",
    }
}

/// A length of time: `6s`, `4m12s`, `3h05m`, `2d04h`.
pub(crate) fn age(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        86_400.. => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// One line at the bottom of a terminal that is written over; nothing when standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Ticker {
    shown: bool,
    on: bool,
}

impl Ticker {
    /// A line that is not shown yet.
    pub(crate) fn new() -> Ticker {
        Ticker {
            shown: false,
            on: io::stderr().is_terminal(),
        }
    }

    /// Shows the text in place of the one before.
    pub(crate) fn show(&mut self, text: &str) {
        if self.on {
            let mut out = io::stderr().lock();
            let _ =
                write!(out, "\r\x1b[2K{}", cut(text, width().saturating_sub(1))).and_then(|()| out.flush());
            self.shown = true;
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            let mut out = io::stderr().lock();
            let _ = out.write_all(b"\r\x1b[2K").and_then(|()| out.flush());
            self.shown = false;
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: [&str; 12] = [
        "\x1b]0;title\x07",
        "\x1b[2J",
        "\u{9b}31m",
        "\x1b]52;c;eA==\x07",
        "\x1b]8;;http://x\x1b\\y",
        "a\rb",
        "\u{202e}txt",
        "\u{200b}zero",
        "\u{2066}iso",
        "\u{e0041}tag",
        "\u{7f}",
        "\u{85}next",
    ];

    #[test]
    fn text_from_outside_never_steers_a_terminal() {
        for text in HOSTILE {
            for shown in [line(text), block(text), json(text)] {
                assert!(
                    shown
                        .chars()
                        .all(|c| c == '\n' || line(&c.to_string()) == c.to_string()),
                    "{shown:?}"
                );
            }
        }
    }

    #[test]
    fn escaped_json_means_the_same() {
        for text in HOSTILE {
            let plain = serde_json::to_string(text).unwrap();
            assert_eq!(serde_json::from_str::<String>(&json(&plain)).unwrap(), text);
        }
    }

    #[test]
    fn a_cut_never_takes_more_columns_than_there_are() {
        for (text, columns, expect) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 4, "日…"),
            ("日本語", 6, "日本語"),
        ] {
            assert_eq!(cut(text, columns), expect);
        }
    }
}
