//! The gate for what tools send: notes, questions and text are cleaned and bounded here before they are stored or
//! shown (S22).
//!
//! `command` calls it for every fact that leaves a program; `dispatch` and `view` decode notes. Pure: it never
//! asks, stores or sends.

use longhaul_core::{event::Ask, task::Reader};
use longhaul_mcp::{
    Push, canon, clean,
    form::Form,
    frame::{Obj, Raw},
    request::LogLevel,
    url_rule::{BadLink, Link, Reach},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::question::{Kind, Stored};

mod secrets;

/// The most bytes of an encoded note (T4).
pub const NOTE_BYTES_MAX: usize = 8 << 10;
/// The most characters of a note's message.
pub const NOTE_CHARS_MAX: usize = 1000;
/// The most characters of a logger's name.
const LOGGER_CHARS_MAX: usize = 60;
/// The most characters of a question's message.
pub const MESSAGE_CHARS_MAX: usize = 4000;
/// The most choices of one question.
pub const CHOICES_MAX: usize = 100;

/// What a running task shows: how far it is, and a line of text.
///
/// Stored as a JSON object; unknown members are ignored and absent ones are `None`, so that older and newer
/// versions read each other's notes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// How far; finite and not negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// What `progress` is at the end; finite and positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// In words: one line without hidden characters, at most [`NOTE_CHARS_MAX`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Note {
    /// A note from what a tool said. Numbers that make no sense and an empty message are left out.
    pub fn new(progress: Option<f64>, total: Option<f64>, message: Option<&str>) -> Note {
        let message = message.map(|text| clean(text, NOTE_CHARS_MAX).trim().to_owned());
        Note {
            progress: progress.filter(|number| number.is_finite() && *number >= 0.0),
            total: total.filter(|number| number.is_finite() && *number > 0.0),
            message: message.filter(|text| !text.is_empty()),
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Note::default()
    }

    /// The note as bytes, at most [`NOTE_BYTES_MAX`] of them.
    pub fn encode(&self) -> Vec<u8> {
        // Invariant: 1,000 characters of at most 4 bytes, none of them escaped to more than 2, fit 8 KiB.
        serde_json::to_vec(self).expect("numbers and text always serialize")
    }

    /// The note in these bytes; an empty note when they are none.
    pub fn decode(bytes: &[u8]) -> Note {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}

/// A log message of a tool, for clients that want some (A-11, B-55).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// How grave.
    pub level: LogLevel,
    /// Who says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// What: any JSON.
    pub data: Raw,
}

impl Log {
    /// Fit to be shown: a name without hidden characters.
    pub fn cleaned(self) -> Log {
        let logger = self
            .logger
            .map(|name| clean(&name, LOGGER_CHARS_MAX).trim().to_owned());
        Log {
            logger: logger.filter(|name| !name.is_empty()),
            ..self
        }
    }

    /// As a client is told it that wants those of at least this gravity.
    pub(crate) fn push(self, least: LogLevel) -> Option<Push> {
        let Log { level, logger, data } = self;
        (level >= least).then_some(Push::Log { level, logger, data })
    }

    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a level, text and JSON always serialize")
    }

    /// The message in these bytes; `None` when they are none.
    pub fn decode(bytes: &[u8]) -> Option<Log> {
        serde_json::from_slice(bytes).ok()
    }
}

/// A question as a tool asks it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Question {
    /// The tool's own name for it.
    #[serde(default)]
    pub label: Option<String>,
    /// What is asked, in words. A person reads it; a client's model does not.
    #[serde(default)]
    pub message: String,
    /// The form to fill in. Without it, one field `answer`.
    #[serde(default)]
    pub form: Option<Raw>,
    /// What may be answered, when there is no form.
    #[serde(default)]
    pub choices: Option<Vec<String>>,
    /// The answer that is offered, when there is no form.
    #[serde(default)]
    pub default: Option<Json>,
    /// A link that somebody is asked to open, instead of a form.
    #[serde(default)]
    pub url: Option<String>,
    /// What the client itself is asked for, instead of a person: `sampling/createMessage` or `roots/list`.
    #[serde(default)]
    pub method: Option<String>,
    /// The parameters of `method`.
    #[serde(default)]
    pub params: Option<Raw>,
}

impl Question {
    /// Which kind of question it is.
    ///
    /// # Errors
    /// It is of several kinds, or of none that there is.
    pub fn kind(&self) -> Result<Kind, Unasked> {
        let kinds = [
            self.form.is_some(),
            self.choices.is_some(),
            self.url.is_some(),
            self.method.is_some(),
        ];
        if kinds.iter().filter(|kind| **kind).count() > 1 {
            return Err(Unasked::Several);
        }
        match (&self.url, self.method.as_deref()) {
            (Some(_), _) => Ok(Kind::Url),
            (None, Some("sampling/createMessage")) => Ok(Kind::Sampling),
            (None, Some("roots/list")) => Ok(Kind::Roots),
            (None, Some(_)) => Err(Unasked::Method),
            (None, None) => Ok(Kind::Form),
        }
    }
}

/// Why a question is not asked. The tool reads the message; it counts as a decline, and [`Unasked::Nobody`] as an
/// answer of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unasked {
    /// Nothing to read.
    #[error("a question needs a message")]
    NoMessage,
    /// Of more than one kind.
    #[error("give only one of `form`, `choices`, `url` and `method`")]
    Several,
    /// A method that no client is asked for.
    #[error("`method` is `sampling/createMessage` or `roots/list`")]
    Method,
    /// The client's model cannot be asked this.
    #[error("`params` of `sampling/createMessage`: {0}")]
    Sampling(&'static str),
    /// A link that is not shown to anybody.
    #[error("a link must be {0}")]
    Link(BadLink),
    /// The caller did not declare this kind, and no person can answer it.
    #[error("no_one_to_answer")]
    Nobody,
    /// None, or more than [`CHOICES_MAX`].
    #[error("a question offers 1 to {CHOICES_MAX} choices")]
    Choices,
    /// Larger than `limits.question_max`.
    #[error("the question has {bytes} bytes, and {max} is the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: u64,
    },
    /// It came on a line that is larger than `limits.question_max`, and was not read to its end.
    #[error("its line has more than {max} bytes (`limits.question_max`)")]
    LineTooLong {
        /// The limit.
        max: u64,
    },
    /// More than `limits.asks_max`, or too many at once.
    #[error("too many questions")]
    TooMany,
    /// It asks for something that a form may never ask for.
    #[error("a form may not ask for a secret (`{word}`)")]
    Secret {
        /// The word that says so.
        word: &'static str,
    },
    /// The form breaks a rule.
    #[error("{0}")]
    Form(String),
}

/// Checks a question and makes it ready to be asked of the task's owner. `reach` is how far a link may lead that
/// owner.
///
/// # Errors
/// [`Unasked`]; the question is then never shown.
pub fn question(question: &Question, reach: Reach, bytes_max: u64) -> Result<Ask, Unasked> {
    let kind = question.kind()?;
    let (method, params) = match kind {
        Kind::Form => ("elicitation/create", form_params(question)?),
        Kind::Url => ("elicitation/create", link_params(question, reach)?),
        Kind::Sampling => ("sampling/createMessage", sampling_params(question)?),
        Kind::Roots => ("roots/list", Obj::default().to_raw()),
    };
    let mut request = Obj::default();
    request.set("method", method);
    request.set("params", &params);
    let request = request.to_raw();
    if request.text().len() as u64 > bytes_max {
        return Err(Unasked::TooLarge {
            bytes: request.text().len(),
            max: bytes_max,
        });
    }
    let bind = canon::digest(&request).map_err(|error| Unasked::Form(error.to_string()))?;
    let label = question.label.as_deref().map(|label| clean(label, 64));
    let stored = Stored {
        label,
        kind,
        request,
        server_id: None,
    };
    let body = stored.encode();
    Ok(Ask {
        reader: Reader::Client,
        body,
        bind,
    })
}

fn message(question: &Question) -> Result<String, Unasked> {
    let message = clean(&question.message, MESSAGE_CHARS_MAX).trim().to_owned();
    if message.is_empty() {
        return Err(Unasked::NoMessage);
    }
    Ok(message)
}

fn form_params(question: &Question) -> Result<Raw, Unasked> {
    let message = message(question)?;
    let form = match &question.form {
        Some(form) => form.clone(),
        None => {
            let form = plain(question.choices.as_deref(), question.default.as_ref())?;
            Raw::of(&form).map_err(|error| Unasked::Form(error.to_string()))?
        }
    };
    let mut params = Obj::default();
    params.set("mode", "form");
    params.set("message", message.as_str());
    params.set("requestedSchema", &form);
    let form = Form::parse(&params.to_raw()).map_err(|error| Unasked::Form(error.to_string()))?;
    match secrets::sought(&form) {
        Some(word) if !longhaul_core::fault!("asks-for-secrets") => Err(Unasked::Secret { word }),
        Some(_) | None => Ok(form.params()),
    }
}

fn link_params(question: &Question, reach: Reach) -> Result<Raw, Unasked> {
    let url = question.url.as_deref().unwrap_or_default();
    let shown = match Link::parse(url, reach) {
        Ok(link) => link.as_str().to_owned(),
        Err(_) if longhaul_core::fault!("shows-any-link") => url.to_owned(),
        Err(broken) => return Err(Unasked::Link(broken)),
    };
    let mut params = Obj::default();
    params.set("mode", "url");
    params.set("message", message(question)?.as_str());
    params.set("url", &shown);
    Ok(params.to_raw())
}

/// What a client that samples understands without having declared more.
const SAMPLING_MEMBERS: &[&str] = &[
    "messages",
    "maxTokens",
    "modelPreferences",
    "systemPrompt",
    "temperature",
    "stopSequences",
    "metadata",
];

fn sampling_params(question: &Question) -> Result<Raw, Unasked> {
    let params = question
        .params
        .as_ref()
        .and_then(|params| params.read::<Obj>().ok());
    let params = params.ok_or(Unasked::Sampling("must be an object"))?;
    let messages = params.raw("messages").map(Raw::read::<Vec<Obj>>);
    if !matches!(messages, Some(Ok(messages)) if !messages.is_empty()) {
        return Err(Unasked::Sampling("`messages` must be a list of objects"));
    }
    if params.get::<u32>("maxTokens").is_none_or(|tokens| tokens == 0) {
        return Err(Unasked::Sampling("`maxTokens` must be a whole number above 0"));
    }
    let known = |name: &str| SAMPLING_MEMBERS.contains(&name);
    if !params.0.iter().all(|(name, _)| known(&name.unescaped())) {
        return Err(Unasked::Sampling(
            "only `messages`, `maxTokens`, `modelPreferences`, `systemPrompt`, `temperature`, `stopSequences` and \
             `metadata` are known",
        ));
    }
    Ok(params.to_raw())
}

/// The form of a question that has one field, `answer`.
fn plain(choices: Option<&[String]>, default: Option<&Json>) -> Result<Json, Unasked> {
    let mut field = Map::new();
    field.insert("type".to_owned(), "string".into());
    if let Some(choices) = choices {
        if choices.is_empty() || choices.len() > CHOICES_MAX {
            return Err(Unasked::Choices);
        }
        field.insert("enum".to_owned(), json!(choices));
    }
    if let Some(default) = default {
        field.insert("default".to_owned(), default.clone());
    }
    Ok(json!({ "type": "object", "properties": { "answer": field }, "required": ["answer"] }))
}

/// The last lines of what a program wrote on standard error, fit to be shown: no escape sequences, no hidden
/// characters, none of `secrets`, at most `bytes_max` bytes.
pub fn tail(bytes: &[u8], bytes_max: usize, secrets: &[String]) -> String {
    const LINE_CHARS_MAX: usize = 2000;
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret.as_str(), "[secret]");
    }
    let lines = text.lines().map(|line| {
        let shown = line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or("");
        clean(&plain_text(shown), LINE_CHARS_MAX)
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.trim_end();
    let mut start = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let kept = &text[start..];
    // A cut line is left out, unless it is the only one.
    match kept.find('\n').filter(|_| start > 0) {
        Some(newline) => kept[newline + 1..].to_owned(),
        None => kept.to_owned(),
    }
}

/// `text` without terminal escape sequences.
fn plain_text(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
            Some(']') => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
            Some(_) | None => {}
        }
    }
    plain
}
