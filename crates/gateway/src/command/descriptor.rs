//! What a program says on the descriptor named in `LONGHAUL_FD`, and what it is told: one JSON object a line.
//!
//! The reference page `docs/reference/command-tools.md` describes it for authors. Pure.

use longhaul_engine::tool::Settled;
use longhaul_mcp::{
    frame::{Obj, Raw},
    scan::{self, Limits},
};
use serde::Deserialize;
use serde_json::json;

use crate::outbound::{Note, Question, Unasked};

/// One line from a program.
#[derive(Debug)]
pub(super) enum Said {
    /// How far it is.
    Progress(Note),
    /// A question, with the id by which its answer is told apart.
    Ask(Raw, Box<Question>),
    /// Something else; newer programs may say more.
    Unknown,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    progress: Option<Progress>,
    #[serde(default)]
    ask: Option<Raw>,
}

#[derive(Deserialize)]
struct Progress {
    #[serde(default)]
    n: Option<f64>,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct Id {
    id: Raw,
}

pub(super) fn said(line: &[u8]) -> Said {
    let Ok(scanned) = scan::payload(line, &Limits::default()) else {
        return Said::Unknown;
    };
    let Ok(line) = serde_json::from_str::<Line>(scanned.text()) else {
        return Said::Unknown;
    };
    if let Some(progress) = line.progress {
        return Said::Progress(Note::new(progress.n, progress.total, progress.message.as_deref()));
    }
    let Some(ask) = line.ask else { return Said::Unknown };
    let id = ask
        .read::<Id>()
        .map_or_else(|_| Raw::of(&()).ok(), |id| Some(id.id));
    match (id, ask.read::<Question>()) {
        (Some(id), Ok(question)) => Said::Ask(id, Box::new(question)),
        // The question has no message that can be read: it is answered as one without any.
        (Some(id), Err(_)) => Said::Ask(id, Box::default()),
        (None, _) => Said::Unknown,
    }
}

/// The line that answers a question.
pub(super) fn answer(id: &Raw, settled: &Settled) -> Vec<u8> {
    let mut answer = Obj::default();
    answer.set("id", id);
    match settled {
        Settled::Accepted(body) => {
            answer.set("action", "accept");
            if let Some(content) = body.bytes().and_then(content) {
                answer.set("content", &content);
            }
        }
        Settled::Declined => answer.set("action", "decline"),
        Settled::Dismissed => answer.set("action", "cancel"),
    }
    line(&answer)
}

/// The line that answers a question which was never shown.
pub(super) fn unasked(id: &Raw, why: &Unasked) -> Vec<u8> {
    let mut answer = Obj::default();
    answer.set("id", id);
    answer.set("action", "decline");
    answer.set("why", &json!(why.to_string()));
    line(&answer)
}

fn line(answer: &Obj) -> Vec<u8> {
    let mut message = Obj::default();
    message.set("answer", &answer.to_raw());
    message.to_raw().text().as_bytes().to_vec()
}

/// The values of an answer that is stored as a whole (`action`, `content`).
fn content(body: &[u8]) -> Option<Raw> {
    let raw = Raw::parse_bytes(body).ok()?;
    let answer: Obj = raw.read().ok()?;
    match (answer.get::<String>("action"), answer.raw("content")) {
        (Some(action), Some(content)) if action == "accept" => Some(content.clone()),
        (Some(_) | None, Some(_) | None) => Some(raw),
    }
}
