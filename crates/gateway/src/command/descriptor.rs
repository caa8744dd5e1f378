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

use crate::outbound::{Log, Note, Question, Unasked};

/// One line from a program.
#[derive(Debug)]
pub(super) enum Said {
    /// How far it is.
    Progress(Note),
    /// Questions that are asked together, each with the id by which its answer is told apart. At least one.
    Ask(Vec<(Raw, Question)>),
    /// A line for the log of whoever waits for the call.
    Log(Log),
    /// Something else; newer programs may say more.
    Unknown,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    progress: Option<Progress>,
    #[serde(default)]
    log: Option<Log>,
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
    if let Some(log) = line.log {
        return Said::Log(log);
    }
    let Some(ask) = line.ask else { return Said::Unknown };
    let asks = match ask.read::<Vec<Raw>>() {
        Ok(asks) => asks,
        Err(_) => vec![ask],
    };
    match asks.iter().map(question).collect::<Option<Vec<_>>>() {
        Some(asks) if !asks.is_empty() => Said::Ask(asks),
        Some(_) | None => Said::Unknown,
    }
}

/// A question whose members cannot be read is answered as one without any.
fn question(ask: &Raw) -> Option<(Raw, Question)> {
    let id = match ask.read::<Id>() {
        Ok(id) => id.id,
        Err(_) => Raw::of(&()).ok()?,
    };
    Some((id, ask.read().unwrap_or_default()))
}

/// The line that answers a question.
pub(super) fn answer(id: &Raw, settled: &Settled) -> Vec<u8> {
    let mut answer = Obj::default();
    answer.set("id", id);
    match settled {
        Settled::Accepted(body) => {
            answer.set("action", "accept");
            if let Some(Ok(content)) = body.bytes().map(Raw::parse_bytes) {
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
    let nobody = *why == Unasked::Nobody;
    answer.set("action", if nobody { "nobody" } else { "decline" });
    answer.set("why", &json!(why.to_string()));
    line(&answer)
}

fn line(answer: &Obj) -> Vec<u8> {
    let mut message = Obj::default();
    message.set("answer", &answer.to_raw());
    message.to_raw().text().as_bytes().to_vec()
}
