//! Asks a task's question at the terminal: shows the form field by field and reads what is typed.
//!
//! Used by `run`, `answer` and `tasks watch`. It checks nothing but types; the server judges the answer.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Write},
};

use longhaul_gateway::{
    admin::api::{Action, Answer, Question, Task},
    local::form::{self, Field, Kind},
};
use tokio::sync::mpsc;

use crate::screen::{self, line, tell};

/// Whether there is a person who can be asked: someone who reads and types.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The lines typed at the terminal. One for the whole process: a reader cannot be stopped while it waits.
#[derive(Debug)]
pub(crate) struct Typed {
    lines: mpsc::Receiver<String>,
}

impl Typed {
    /// Begins to read.
    pub(crate) fn begin() -> Typed {
        let (sender, lines) = mpsc::channel(16);
        // A thread of its own and not the runtime's: the process may end while it waits for a line.
        std::thread::spawn(move || {
            for typed in io::stdin().lock().lines().map_while(Result::ok) {
                if sender.blocking_send(typed).is_err() {
                    return;
                }
            }
        });
        Typed { lines }
    }

    /// Lines that somebody else reads.
    pub(crate) fn from_lines(lines: mpsc::Receiver<String>) -> Typed {
        Typed { lines }
    }

    async fn next(&mut self) -> Option<String> {
        self.lines.recv().await
    }
}

/// What was typed into the fields of a question that is asked again, by their names.
pub(crate) type Earlier = BTreeMap<String, Vec<String>>;

/// Asks until the form is filled in. `None` when the terminal was closed.
pub(crate) async fn ask(
    typed: &mut Typed,
    task: &Task,
    question: &Question,
    earlier: &mut Earlier,
) -> Option<Answer> {
    tell("");
    show(task, question);
    tell("  (/decline says no, /dismiss closes the question)");
    let settled = |action, content| Answer {
        question: Some(question.key.clone()),
        action,
        content,
    };
    let Some(form) = &question.form else {
        return loop {
            tell("Go on? [yes/no]");
            prompt();
            match typed.next().await?.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => break Some(settled(Action::Accept, None)),
                "n" | "no" | "/decline" => break Some(settled(Action::Decline, None)),
                "/dismiss" => break Some(settled(Action::Dismiss, None)),
                _ => {}
            }
        };
    };
    let mut members = BTreeMap::new();
    for mut field in form::fields(form) {
        if let Some(values) = earlier.get(&field.name) {
            field.default.clone_from(values);
        }
        loop {
            tell(heading(&field));
            prompt();
            let text = typed.next().await?;
            match text.trim() {
                "/decline" => return Some(settled(Action::Decline, None)),
                "/dismiss" => return Some(settled(Action::Dismiss, None)),
                _ => {}
            }
            let values = values(&field, &text);
            match field.read(&values) {
                Ok(Some(value)) => {
                    earlier.insert(field.name.clone(), values);
                    members.insert(field.name.clone(), value);
                    break;
                }
                Ok(None) => break,
                Err(error) => tell(format!("  {error}")),
            }
        }
    }
    Some(settled(Action::Accept, Some(form::object(&members))))
}

/// Says who asks, in our words, and what, set apart from them (G-31).
pub(crate) fn show(task: &Task, question: &Question) {
    let server = task.server.as_ref();
    let server = server.map(|server| format!(" of the server {}", line(server)));
    tell(format!(
        "{}{} asks  (task {}, called by {})",
        line(&task.tool),
        server.unwrap_or_default(),
        task.name,
        line(task.caller())
    ));
    for text in screen::quoted(&line(&question.message)) {
        tell(format!("  | {text}"));
    }
    if let Some(url) = &question.url {
        tell(format!("  address   {}", line(url)));
    }
    if let Some(site) = &question.site {
        tell(format!("  it is at  {}", line(site)));
    }
    if let Some(warning) = &question.warning {
        tell(format!("  warning   {}", line(warning)));
    }
}

fn prompt() {
    let _ = write!(io::stderr(), "> ");
}

fn heading(field: &Field) -> String {
    let mut text = format!("\n{}", line(&field.label));
    match &field.kind {
        Kind::One(choices) | Kind::Several(choices) => {
            for (at, choice) in choices.iter().enumerate() {
                text.push_str(&format!("\n  {}  {}", at + 1, line(&choice.label)));
            }
            if matches!(field.kind, Kind::Several(_)) {
                text.push_str("\n  (several: apart by commas)");
            }
        }
        Kind::Check => text.push_str(" [yes/no]"),
        Kind::Number { min, max, .. } => match (min, max) {
            (Some(min), Some(max)) => text.push_str(&format!(" ({} to {})", line(min), line(max))),
            (Some(min), None) => text.push_str(&format!(" (at least {})", line(min))),
            (None, Some(max)) => text.push_str(&format!(" (at most {})", line(max))),
            (None, None) => {}
        },
        Kind::List(_) => text.push_str("\n  (several: apart by commas)"),
        Kind::Text { .. } | Kind::Json => {}
    }
    if let Some(help) = &field.help {
        text.push_str(&format!("\n  {}", line(help)));
    }
    match (field.default.is_empty(), field.required) {
        (false, _) => {
            let shown: Vec<&str> = field.default.iter().map(|value| word(field, value)).collect();
            text.push_str(&format!("\n  (enter for: {})", line(&shown.join(", "))));
        }
        (true, false) => text.push_str("\n  (may be left empty)"),
        (true, true) => {}
    }
    text
}

/// A value as people read it.
fn word<'a>(field: &'a Field, value: &'a str) -> &'a str {
    match &field.kind {
        Kind::One(choices) | Kind::Several(choices) => choices
            .iter()
            .find(|choice| choice.value == value)
            .map_or(value, |choice| &choice.label),
        Kind::Check if value == "true" => "yes",
        Kind::Check if value == "false" => "no",
        Kind::Check | Kind::Text { .. } | Kind::Number { .. } | Kind::List(_) | Kind::Json => value,
    }
}

/// What was typed as the field's values: nothing is the default, a number is the choice of that number.
fn values(field: &Field, text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        return field.default.clone();
    }
    let chosen = |text: &str| match &field.kind {
        Kind::One(choices) | Kind::Several(choices) => {
            let number = text
                .parse::<usize>()
                .ok()
                .and_then(|number| choices.get(number.checked_sub(1)?));
            match (number, choices.iter().any(|choice| choice.value == text)) {
                (Some(choice), false) => choice.value.clone(),
                (Some(_) | None, _) => text.to_owned(),
            }
        }
        Kind::Text { .. } | Kind::Number { .. } | Kind::Check | Kind::List(_) | Kind::Json => text.to_owned(),
    };
    match field.kind {
        Kind::Several(_) | Kind::List(_) => text.split(',').map(|text| chosen(text.trim())).collect(),
        Kind::Text { .. } | Kind::Number { .. } | Kind::Check | Kind::One(_) | Kind::Json => {
            vec![chosen(text)]
        }
    }
}
