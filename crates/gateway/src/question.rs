//! A tool's question as the gateway stores it, how it is told to a client, and what counts as an answer.
//!
//! `command` and `upstream` make questions through `outbound`; `dispatch` and `session` show them, and `dispatch` checks
//! answers. Pure.

use longhaul_core::{
    Body, Millis,
    event::Answer,
    task::{Question, QuestionState, Reader},
};
use longhaul_mcp::{
    clean,
    client::incoming::AskKind,
    form::{self, Form},
    frame::{Obj, Raw},
    request::{Answers, RequestId},
    url_rule::{Link, Reach},
};
use longhaul_store::Row;
use serde::{Deserialize, Serialize};

use crate::view::Context;

/// The most characters of a name that a question repeats.
const NAME_CHARS_MAX: usize = 80;

/// A question as it is stored: what is asked, and the name that the tool gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The tool's own name for the question. Shown as its key while there is no task yet; in a task the key is
    /// ours (D-23).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What kind it is.
    pub kind: Kind,
    /// `{"method": …, "params": …}`, as a client is shown it.
    pub request: Raw,
    /// The id of a session's server's own request, under which it takes the answer. Never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<RequestId>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A form to fill in.
    Form,
    /// A link to open.
    Url,
    /// A completion by the client's model.
    Sampling,
    /// The client's workspace folders.
    Roots,
}

impl Kind {
    /// Whether a client that declared these can be shown the question (B-39).
    pub fn declared_by(self, answers: Answers) -> bool {
        match self {
            Kind::Form => answers.form,
            Kind::Url => answers.url,
            Kind::Sampling => answers.sampling,
            Kind::Roots => answers.roots,
        }
    }

    /// The kind of request of a session's server that it came as.
    pub fn of_request(self) -> AskKind {
        match self {
            Kind::Form | Kind::Url => AskKind::Elicitation,
            Kind::Sampling => AskKind::Sampling,
            Kind::Roots => AskKind::Roots,
        }
    }

    /// Whether a person at the local page or the terminal can answer it.
    pub fn answered_by_people(self) -> bool {
        match self {
            Kind::Form | Kind::Url => true,
            Kind::Sampling | Kind::Roots => false,
        }
    }
}

/// Who asks, as Longhaul knows it (G-31, S11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The tool, by the name that it is listed by.
    pub tool: String,
    /// The server behind that has the tool.
    pub server: Option<String>,
    /// The short name of the task.
    pub task: String,
    /// Who called the tool: what the client calls itself, or `you`.
    pub caller: String,
}

impl Asker {
    /// Who asks the open questions of this row. Its context must have been loaded.
    pub fn of(row: &Row) -> Asker {
        let short = |name: &str| clean(name, NAME_CHARS_MAX);
        let server = Context::decode(&row.context).server_tool;
        Asker {
            tool: short(&row.tool),
            server: server.map(|tool| short(&tool.server)),
            task: row.name.clone(),
            caller: match caller(&row.origin) {
                "" | "client" => "a client".to_owned(),
                name => short(name),
            },
        }
    }

    /// In one line, as it stands above the words of the tool.
    pub fn words(&self) -> String {
        let Asker {
            tool,
            server,
            task,
            caller,
        } = self;
        let server = server.as_ref().map(|server| format!(" of the server {server}"));
        let server = server.unwrap_or_default();
        format!("The tool {tool}{server} asks, in task {task}, called by {caller}:")
    }
}

/// Who asks in the middle of a request that is no call: the server's prompt or resource, by its name (G-31).
pub(crate) fn words_of_relay(what: &str, name: &str, server: &str) -> String {
    format!(
        "The {what} {} of the server {server} asks:",
        clean(name, NAME_CHARS_MAX)
    )
}

/// Whoever came in this way, for the person whose tasks these are: `you`, or what the MCP client calls itself.
pub fn caller(origin: &str) -> &str {
    match origin {
        "cli" | "page" => "you",
        client => client,
    }
}

/// What a person is told of a link whose name has letters beyond ASCII.
pub fn warning(link: &Link) -> Option<String> {
    let spelt = link.spelt()?;
    let host = link.host();
    Some(format!(
        "The link leads to {host}, which reads {spelt}. Letters beyond ASCII can look like others: open it only if you \
         know that name."
    ))
}

impl Stored {
    /// The request as a client is sent it. What a person is to read begins with a line of ours that says who asks; the
    /// tool's own words, which have no line breaks, stand below it (G-31).
    pub fn told(self, asker: &Asker) -> Raw {
        self.told_by(&asker.words())
    }

    /// As [`Stored::told`], where `who` is the line that says who asks.
    pub(crate) fn told_by(self, who: &str) -> Raw {
        if !self.kind.answered_by_people() {
            return self.request;
        }
        let Ok(mut request) = self.request.read::<Obj>() else {
            return self.request;
        };
        let mut params = request.obj("params").unwrap_or_default();
        let words: String = params.get("message").unwrap_or_default();
        let url = params.get::<String>("url");
        let link = url.and_then(|url| Link::parse(&url, Reach::ThisMachine).ok());
        let warning = link.as_ref().and_then(warning);
        let message = match warning {
            Some(warning) => format!("{who}\n{warning}\n\n{words}"),
            None => format!("{who}\n\n{words}"),
        };
        params.set("message", &message);
        request.set("params", &params.to_raw());
        request.to_raw()
    }

    /// The question as a body.
    pub fn encode(&self) -> Body {
        Body::new(&serde_json::to_vec(self).expect("text, an enum and raw JSON always serialize"))
    }

    /// The question in a body that was loaded; `None` when it was not, or is not one of ours.
    pub fn decode(body: &Body) -> Option<Stored> {
        serde_json::from_slice(body.bytes()?).ok()
    }

    /// The open questions of a task that its owner may answer, oldest first.
    pub fn open(task: &longhaul_core::Task) -> impl Iterator<Item = (&Question, Stored)> {
        task.open_questions()
            .filter(|question| question.reader == Reader::Client)
            .filter_map(|question| Some((question, Stored::decode(&question.ask)?)))
    }
}

/// Whether an open question can still be answered at `now`: it is open, and its deadline has not passed.
pub fn still_open(task: &longhaul_core::Task, key: longhaul_core::QuestionKey, now: Millis) -> bool {
    task.questions.iter().any(|question| {
        question.key == key && matches!(question.state, QuestionState::Open { until } if now < until)
    })
}

/// An answer that does not fit its question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The field of the form; empty when the answer as a whole is of the wrong shape.
    pub field: String,
    /// What is wrong with it, for whoever answers.
    pub why: String,
}

/// Checks an answer, as a bare result object, against the question that it answers (G-32).
///
/// # Errors
/// The first thing that does not fit.
pub fn check(question: &Stored, answer: &Raw) -> Result<Answer, Misfit> {
    if longhaul_core::fault!("any-answer-fits") {
        return Ok(Answer::Accept(Body::new(answer.text().as_bytes())));
    }
    match question.kind {
        Kind::Form => filled_in(question, answer),
        Kind::Url => Ok(match form::Answer::parse(answer).map_err(misfit)? {
            form::Answer::Accept(_) => Answer::Accept(Body::new(b"{}")),
            form::Answer::Decline => Answer::Decline,
            form::Answer::Dismiss => Answer::Dismiss,
        }),
        Kind::Sampling => object_with(answer, &["role", "content"]),
        Kind::Roots => object_with(answer, &["roots"]),
    }
}

fn filled_in(question: &Stored, answer: &Raw) -> Result<Answer, Misfit> {
    let answer = form::Answer::parse(answer).map_err(misfit)?;
    let asked: Asked = question.request.read().map_err(|_| unreadable())?;
    let form = Form::parse(&asked.params).map_err(|_| unreadable())?;
    Ok(match form.check(&answer).map_err(misfit)? {
        form::Fit::Accept(content) => Answer::Accept(Body::new(content.text().as_bytes())),
        form::Fit::Decline => Answer::Decline,
        form::Fit::Dismiss => Answer::Dismiss,
    })
}

#[derive(Deserialize)]
struct Asked {
    params: Raw,
}

/// What a model or a client's roots say is not ours to judge; only the shape is.
fn object_with(answer: &Raw, members: &[&str]) -> Result<Answer, Misfit> {
    let object: serde_json::Map<String, serde_json::Value> = answer.read().map_err(|_| Misfit {
        field: String::new(),
        why: "must be an object".to_owned(),
    })?;
    match members.iter().find(|member| !object.contains_key(**member)) {
        Some(missing) => Err(Misfit {
            field: (*missing).to_owned(),
            why: "is missing".to_owned(),
        }),
        None => Ok(Answer::Accept(Body::new(answer.text().as_bytes()))),
    }
}

fn misfit(misfit: form::Misfit) -> Misfit {
    Misfit {
        field: misfit.field,
        why: misfit.why.to_string(),
    }
}

fn unreadable() -> Misfit {
    Misfit {
        field: String::new(),
        why: "the question itself cannot be read".to_owned(),
    }
}
