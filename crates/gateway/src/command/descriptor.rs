//! What a program says on the descriptor named in `LONGHAUL_FD`, and what it is told: one JSON object a line.
//!
//! The reference page `docs/reference/command-tools.md` describes it for authors. Pure.

use longhaul_engine::tool::Settled;
use longhaul_mcp::{
    frame::{Obj, Raw},
    scan::{self, Limits},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
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

/// The ids of the questions on a line of which only the start is there; `None` when it asks nothing. Where not every
/// id can have been read, the last one is `null`.
pub(super) fn cut(start: &[u8]) -> Option<Vec<Raw>> {
    let mut line = Cut::default();
    // It ends early, so what was seen until then counts.
    let _ended_early = line.deserialize(&mut serde_json::Deserializer::from_slice(start));
    if !line.asks {
        return None;
    }
    let mut ids = line.ids;
    if line.is_list || ids.is_empty() {
        ids.extend(Raw::of(&()).ok());
    }
    Some(ids)
}

/// What was seen of a line that asks.
#[derive(Default)]
struct Cut {
    asks: bool,
    is_list: bool,
    ids: Vec<Raw>,
}

impl<'de> DeserializeSeed<'de> for &mut Cut {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Visits the line, then its question or list of questions.
impl<'de> Visitor<'de> for &mut Cut {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a line that asks")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "ask" if !self.asks => {
                    self.asks = true;
                    members.next_value_seed(&mut *self)?;
                }
                "id" if self.asks => self.ids.push(members.next_value()?),
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut questions: A) -> Result<(), A::Error> {
        self.is_list = true;
        while questions.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }
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
