//! `longhaul ask` and `longhaul progress`: what a tool's command says while it runs.
//!
//! JSON lines on the descriptor named in `LONGHAUL_FD`, both ways; `docs/reference/command-tools.md` describes
//! them for programs that speak them on their own. These commands know no server and read no configuration.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
};

use longhaul_engine::process::descriptor;
use rustix::{
    fs::{FlockOperation, fcntl_lock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{
    exit::{Exit, Failure, Outcome},
    flags::{Ask, Progress},
    screen::{line, say, tell},
};

/// The longest answer that is read, in bytes.
const ANSWER_MAX: usize = 1024 * 1024;
/// The longest form that is sent, in bytes.
const FORM_MAX: u64 = 64 * 1024;

/// Asks, waits for the answer, prints it.
pub(crate) fn ask(flags: &Ask, as_json: bool) -> Outcome {
    let mut question = BTreeMap::<&str, Box<RawValue>>::new();
    let mut say_of = |member, value: Value| {
        question.insert(member, to_raw_value(&value).expect("a value is JSON"));
    };
    // Commands of one tool share the descriptor; the process id tells their questions apart.
    let id = format!("ask-{}", std::process::id());
    say_of("id", json!(id));
    let form;
    match (&flags.text, &flags.form) {
        (None, None) => {
            return Err(Failure::usage("what to ask? pass --text MESSAGE").fix("longhaul ask --help"));
        }
        (text, path) => {
            form = path.as_deref().map(read_form).transpose()?;
            let message = text.clone().or_else(|| {
                let form = serde_json::from_str::<Value>(form.as_deref()?.get()).ok()?;
                Some(form["title"].as_str()?.to_owned())
            });
            let Some(message) = message else {
                return Err(Failure::usage(
                    "a form needs a message: pass --text MESSAGE, or give it a `title`",
                ));
            };
            say_of("message", json!(message));
        }
    }
    if !flags.choices.is_empty() {
        say_of("choices", json!(flags.choices));
    }
    if let Some(default) = &flags.default {
        say_of("default", json!(default));
    }
    // As it was written: people see its fields in this order.
    question.extend(form.map(|form| ("form", form)));
    let mut descriptor = open()?;
    wait_for_turn(&descriptor);
    send(&mut descriptor, &BTreeMap::from([("ask", question)]))?;
    let Some(answer) = answer(&mut descriptor, &id).map_err(|error| lost(&error))? else {
        tell("longhaul: nobody can answer: the task has ended");
        return Ok(Exit::Unanswerable);
    };
    if as_json {
        say(format!(
            r#"{{"action":{},"content":{}}}"#,
            json!(answer.action),
            answer.content.as_deref().map_or("null", RawValue::get)
        ));
    } else if let Some(content) = answer.content.as_deref().filter(|_| answer.action == "accept") {
        print(content, flags.form.is_some());
    }
    if let Some(why) = &answer.why {
        tell(format!("longhaul: {}", line(why)));
    }
    Ok(match (answer.action.as_str(), answer.why.as_deref()) {
        ("accept", _) => Exit::Done,
        ("nobody", _) | (_, Some("no_one_to_answer")) => Exit::Unanswerable,
        ("decline", _) => Exit::Declined,
        (_, _) => Exit::Dismissed,
    })
}

/// Reports how far the work is.
pub(crate) fn progress(flags: &Progress) -> Outcome {
    if !flags.done.is_finite() || flags.total.is_some_and(|total| !total.is_finite()) {
        return Err(Failure::usage("progress is a number"));
    }
    let mut progress = serde_json::Map::new();
    progress.insert("n".to_owned(), json!(flags.done));
    if let Some(total) = flags.total {
        progress.insert("total".to_owned(), json!(total));
    }
    if let Some(message) = &flags.message {
        progress.insert("message".to_owned(), json!(message));
    }
    send(&mut open()?, &json!({ "progress": progress }))?;
    Ok(Exit::Done)
}

#[derive(Deserialize)]
struct Line {
    answer: Answer,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    action: String,
    #[serde(default)]
    content: Option<Box<RawValue>>,
    #[serde(default)]
    why: Option<String>,
}

fn open() -> Result<File, Failure> {
    match descriptor() {
        Ok(descriptor) => Ok(File::from(descriptor)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::usage(
            "`ask` and `progress` work inside a command that Longhaul runs: LONGHAUL_FD is not set",
        )),
        Err(error) => Err(
            Failure::usage(format!("the descriptor in LONGHAUL_FD is not open here: {error}"))
                .fix("keep descriptors open where the command starts this one (Python: close_fds=False)"),
        ),
    }
}

/// Waits until no other command of the same tool asks: each of them would read the other's answer.
///
/// The lock belongs to this process, and goes with it. Where a socket cannot be locked, only commands that ask one
/// after the other work.
fn wait_for_turn(descriptor: &File) {
    while fcntl_lock(descriptor, FlockOperation::LockExclusive) == Err(Errno::INTR) {}
}

fn send(descriptor: &mut File, message: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string(message).expect("texts and JSON are JSON");
    text.push('\n');
    descriptor
        .write_all(text.as_bytes())
        .map_err(|error| lost(&error))
}

/// The answer to this question; `None` when the descriptor was closed first.
///
/// Read byte by byte, so that nothing is taken which is meant for another command of the same tool.
fn answer(descriptor: &mut File, id: &str) -> io::Result<Option<Answer>> {
    loop {
        let mut text = Vec::new();
        let mut byte = [0];
        loop {
            match descriptor.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) if byte == *b"\n" => break,
                Ok(_) if text.len() < ANSWER_MAX => text.extend(byte),
                Ok(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "an answer of over 1 MiB",
                    ));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        match serde_json::from_slice::<Line>(&text) {
            // `null` is for a question that was too long for its id to be read; no other command asks now.
            Ok(line) if line.answer.id == id || line.answer.id.is_null() => return Ok(Some(line.answer)),
            Ok(_) | Err(_) => {}
        }
    }
}

/// A form's answer as JSON; a question without a form has one field, whose value is printed alone.
fn print(content: &RawValue, form: bool) {
    let only = serde_json::from_str::<Value>(content.get())
        .ok()
        .map(|content| content["answer"].clone());
    match only {
        Some(Value::String(text)) if !form => say(text),
        Some(value) if !form && !value.is_null() => say(value.to_string()),
        Some(_) | None => say(content.get()),
    }
}

/// The form in one line.
fn read_form(path: &std::path::Path) -> Result<Box<RawValue>, Failure> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().take(FORM_MAX + 1).read_to_string(&mut text),
        Some(_) | None => File::open(path).and_then(|file| file.take(FORM_MAX + 1).read_to_string(&mut text)),
    };
    let shown = path.display();
    match read {
        Err(error) => Err(Failure::usage(format!("cannot read the form `{shown}`: {error}"))),
        Ok(bytes) if bytes as u64 > FORM_MAX => Err(Failure::usage(format!(
            "the form `{shown}` is larger than {FORM_MAX} bytes"
        ))),
        // JSON has line breaks only between its tokens.
        Ok(_) => RawValue::from_string(text.trim().replace(['\n', '\r'], " "))
            .map_err(|error| Failure::usage(format!("the form `{shown}` is no JSON: {error}"))),
    }
}

fn lost(error: &io::Error) -> Failure {
    Failure::new(
        Exit::Unanswerable,
        "no_one_to_answer",
        format!("the task has ended: {error}"),
    )
}
