//! Ids of events on the streams of sessions: `<stream>.<version>` (A-22).
//!
//! A stream's part says what it was for, so that any replica can go on with it from the row; the version's part
//! says how far its client has come, and has a number besides, so that no two are equal. A client can forge both: it learns nothing but what its own tasks tell it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use longhaul_mcp::RequestId;

use crate::{dispatch::As, session::feed::Seen};

/// The longest id that is read, in bytes.
const TEXT_MAX: usize = 1_024;
/// The longest request id that has a place in an event's id, in bytes.
const REQUEST_MAX: usize = 200;

/// What a stream is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamId {
    /// The short name of the task.
    pub(super) name: String,
    /// Part of the ids of its questions.
    pub(super) send: String,
    /// The request that it answers.
    pub(super) request: RequestId,
    pub(super) reply: As,
}

impl StreamId {
    /// As the first part of an event's id; `None` when the client's request id is too long for one.
    pub(super) fn text(&self) -> Option<String> {
        let request = serde_json::to_string(&self.request).ok()?;
        if request.len() > REQUEST_MAX {
            return None;
        }
        let kind = match self.reply {
            As::Outcome => "r",
            As::Result => "c",
        };
        let plain = format!("{kind} {} {} {request}", self.name, self.send);
        Some(URL_SAFE_NO_PAD.encode(plain))
    }

    fn parse(text: &str) -> Option<StreamId> {
        let plain = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let mut parts = plain.splitn(4, ' ');
        let reply = match parts.next()? {
            "r" => As::Outcome,
            "c" => As::Result,
            _ => return None,
        };
        Some(StreamId {
            reply,
            name: word(parts.next()?)?,
            send: word(parts.next()?)?,
            request: serde_json::from_str(parts.next()?).ok()?,
        })
    }
}

/// A short name, or what is made like one.
fn word(text: &str) -> Option<String> {
    let fits = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    fits.then(|| text.to_owned())
}

/// Makes the ids of one stream's events.
pub(super) struct EventIds {
    stream: String,
    seen: Seen,
    number: u32,
}

impl EventIds {
    /// The ids of a stream, from where its client is.
    pub(super) fn of(stream: &StreamId, from: From) -> Option<EventIds> {
        Some(EventIds {
            stream: stream.text()?,
            seen: from.seen,
            number: from.number,
        })
    }

    /// The id of the next event; `question` is the number of the question that it asks.
    pub(super) fn next(&mut self, version: u64, question: Option<u32>) -> String {
        self.seen.version = self.seen.version.max(version);
        self.seen.asked = self.seen.asked.max(question.unwrap_or(0));
        self.number = self.number.wrapping_add(1);
        let Seen { version, asked } = self.seen;
        format!("{}.{version}-{asked}-{}", self.stream, self.number)
    }
}

/// Where a stream goes on: what its client has seen, and the number of its last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct From {
    pub(super) seen: Seen,
    pub(super) number: u32,
}

/// The stream, and where it goes on, from a `Last-Event-ID`; `None` for an id of no such stream.
pub(super) fn parse(text: &str) -> Option<(StreamId, From)> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let (stream, version) = text.rsplit_once('.')?;
    let mut parts = version.split('-');
    let seen = Seen {
        version: parts.next()?.parse().ok()?,
        asked: parts.next()?.parse().ok()?,
    };
    let number = parts.next()?.parse().ok()?;
    let from = From { seen, number };
    parts.next().is_none().then_some((StreamId::parse(stream)?, from))
}
