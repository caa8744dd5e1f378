//! What a pipe remembers, so that its client does not notice when the server behind it is another one.
//!
//! Used by `longhaul stdio`. It reads frames only as far as it must to know which request a reply is for; what it
//! cannot read passes as it is. Pure: no clock, no IO.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use longhaul_mcp::{edge, frame::Obj, meta, request::RequestId, rpc_error::RpcError};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most requests that are remembered until their reply.
const REQUESTS_MAX: usize = 256;
/// The most bytes of them.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// The most requests of which at least the id is known.
const IDS_MAX: usize = 4_096;
/// The longest id that is remembered, in bytes.
const ID_BYTES_MAX: usize = 1_024;
/// How often one request is sent before its client is told that it is lost: perhaps it is what ends the servers.
const SENDS_MAX: u32 = 4;
/// The most messages that want no reply and are kept while no server is there.
const UNSENT_MAX: usize = 256;

/// What was said over one pipe and still matters.
pub(crate) struct Ledger {
    /// Names the pipe in the keys of its calls.
    key: String,
    read: u64,
    opening: Option<Opening>,
    ready: Option<Bytes>,
    waiting: BTreeMap<u64, Waiting>,
    bytes: usize,
    /// Replies that the client has already.
    swallow: BTreeSet<RequestId>,
    unsent: VecDeque<Bytes>,
}

/// The client's `initialize`.
struct Opening {
    id: RequestId,
    line: Bytes,
    answered: bool,
}

/// A request without a reply.
struct Waiting {
    id: RequestId,
    /// `None` when there was no room for it.
    line: Option<Bytes>,
    sends: u32,
}

/// What a new connection begins with.
#[derive(Debug, Default)]
pub(crate) struct Again {
    /// Lines for the server, in order.
    pub lines: Vec<Bytes>,
    /// Replies for the client, to what cannot be sent again.
    pub lost: Vec<Vec<u8>>,
}

/// A frame, as far as a pipe reads it.
#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

impl Ledger {
    /// A ledger of a pipe that nobody has spoken over. `key` is random.
    pub(crate) fn new(key: String) -> Ledger {
        Ledger {
            key,
            read: 0,
            opening: None,
            ready: None,
            waiting: BTreeMap::new(),
            bytes: 0,
            swallow: BTreeSet::new(),
            unsent: VecDeque::new(),
        }
    }

    /// The client said this. Returns what the server is to be told.
    pub(crate) fn said(&mut self, line: Vec<u8>) -> Bytes {
        self.read += 1;
        let Ok(frame) = serde_json::from_slice::<Frame<'_>>(&line) else {
            return line.into();
        };
        match (frame.method.as_deref(), frame.id.and_then(request_id)) {
            (Some("initialize"), Some(id)) => {
                let line = Bytes::from(line);
                if line.len() <= BYTES_MAX {
                    self.opening = Some(Opening {
                        id,
                        line: line.clone(),
                        answered: false,
                    });
                }
                line
            }
            (Some("tools/call"), Some(id)) => {
                let line = self.once(&line).map_or_else(|| line.into(), Bytes::from);
                self.wait(id, &line);
                line
            }
            (Some(_), Some(id)) => {
                let line = line.into();
                self.wait(id, &line);
                line
            }
            (Some("notifications/initialized"), None) => {
                let line = Bytes::from(line);
                self.ready = Some(line.clone());
                self.keep(&line);
                line
            }
            (Some("notifications/cancelled"), None) => {
                if let Some(request) = cancelled(frame.params) {
                    self.forget(&request);
                }
                let line = line.into();
                self.keep(&line);
                line
            }
            (Some(_) | None, _) => {
                let line = line.into();
                self.keep(&line);
                line
            }
        }
    }

    /// The last line that wants no reply was sent.
    pub(crate) fn sent(&mut self) {
        self.unsent.clear();
    }

    /// The server said this. Whether the client is to hear it.
    pub(crate) fn heard(&mut self, line: &[u8]) -> bool {
        let Ok(frame) = serde_json::from_slice::<Frame<'_>>(line) else {
            return true;
        };
        let (None, Some(id)) = (frame.method, frame.id.and_then(request_id)) else {
            return true;
        };
        if self.swallow.remove(&id) {
            return false;
        }
        match &mut self.opening {
            Some(opening) if opening.id == id => opening.answered = true,
            Some(_) | None => self.forget(&id),
        }
        true
    }

    /// What another server is to be told first.
    pub(crate) fn again(&mut self) -> Again {
        let mut again = Again::default();
        self.swallow.clear();
        if let Some(opening) = &self.opening {
            again.lines.push(opening.line.clone());
            if opening.answered {
                self.swallow.insert(opening.id.clone());
                again.lines.extend(self.ready.clone());
            }
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        for (number, mut request) in waiting {
            request.sends += 1;
            match &request.line {
                Some(line) if request.sends <= SENDS_MAX => {
                    again.lines.push(line.clone());
                    self.bytes += line.len();
                    self.waiting.insert(number, request);
                }
                Some(_) => again.lost.push(lost(&request.id, ENDS_SERVERS)),
                None => again.lost.push(lost(&request.id, NO_ROOM)),
            }
        }
        // The client's last words of another kind, unless they are there already.
        let ready = self.ready.clone();
        again
            .lines
            .extend(self.unsent.drain(..).filter(|line| Some(line) != ready.as_ref()));
        again
    }

    /// No server comes any more: the replies to everything that waits.
    pub(crate) fn give_up(&mut self) -> Vec<Vec<u8>> {
        let opening = self.opening.take().filter(|opening| !opening.answered);
        let waiting = std::mem::take(&mut self.waiting);
        let ids = opening.map(|opening| opening.id);
        let ids = ids
            .into_iter()
            .chain(waiting.into_values().map(|request| request.id));
        ids.map(|id| lost(&id, NO_SERVER)).collect()
    }

    fn wait(&mut self, id: RequestId, line: &Bytes) {
        if id_bytes(&id) > ID_BYTES_MAX || self.waiting.len() >= IDS_MAX {
            return;
        }
        let remembered = self
            .waiting
            .values()
            .filter(|request| request.line.is_some())
            .count();
        let fits = remembered < REQUESTS_MAX && self.bytes + line.len() <= BYTES_MAX;
        if fits {
            self.bytes += line.len();
        }
        let request = Waiting {
            id,
            line: fits.then(|| line.clone()),
            sends: 1,
        };
        self.waiting.insert(self.read, request);
    }

    fn forget(&mut self, id: &RequestId) {
        let found = self.waiting.iter().find(|(_, request)| request.id == *id);
        if let Some(number) = found.map(|(number, _)| *number)
            && let Some(request) = self.waiting.remove(&number)
        {
            self.bytes -= request.line.map_or(0, |line| line.len());
        }
    }

    /// A line that wants no reply is kept until it was written.
    fn keep(&mut self, line: &Bytes) {
        if self.unsent.len() < UNSENT_MAX {
            self.unsent.push_back(line.clone());
        }
    }

    /// A call that asks for a task gets a key, so that it happens once however often it is sent. Other calls join the
    /// work of an equal one that was left.
    fn once(&self, line: &[u8]) -> Option<Vec<u8>> {
        let mut frame = Obj::parse(std::str::from_utf8(line).ok()?).ok()?;
        let params = frame.obj("params")?;
        params.raw("task")?;
        let has_key = params
            .obj("_meta")
            .is_some_and(|meta| meta.raw(meta::IDEMPOTENCY_KEY).is_some());
        if has_key {
            return None;
        }
        let key = format!("{}-{}", self.key, self.read);
        frame.edit("params", |params| {
            params.edit("_meta", |meta| meta.set(meta::IDEMPOTENCY_KEY, &key));
        });
        let mut text = String::new();
        frame.write(&mut text);
        Some(text.into_bytes())
    }
}

const NO_ROOM: &str =
    "The server ended while this request waited, and the pipe had no room to remember it: send it again";
const ENDS_SERVERS: &str = "The server ended each time while this request waited; it is not sent again";
const NO_SERVER: &str = "The server ended while this request waited, and no other could be reached";

fn lost(id: &RequestId, why: &'static str) -> Vec<u8> {
    edge::error(&RpcError::internal("server_lost", why), Some(id))
}

fn cancelled(params: Option<&RawValue>) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Cancelled<'a> {
        #[serde(borrow, rename = "requestId")]
        request_id: &'a RawValue,
    }
    let cancelled: Cancelled<'_> = serde_json::from_str(params?.get()).ok()?;
    request_id(cancelled.request_id)
}

/// The id as the server reads it; `None` for what is none.
fn request_id(raw: &RawValue) -> Option<RequestId> {
    let text = raw.get();
    if text.starts_with('"') {
        return serde_json::from_str(text).ok().map(RequestId::Text);
    }
    text.parse().ok().map(RequestId::Integer)
}

fn id_bytes(id: &RequestId) -> usize {
    match id {
        RequestId::Text(text) => text.len(),
        RequestId::Integer(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new("pipe".to_owned())
    }

    fn say(ledger: &mut Ledger, line: &str) -> String {
        text(&ledger.said(line.as_bytes().to_vec()))
    }

    fn text(line: &[u8]) -> String {
        String::from_utf8(line.to_vec()).expect("lines are text")
    }

    fn again(ledger: &mut Ledger) -> Vec<String> {
        ledger.again().lines.iter().map(|line| text(line)).collect()
    }

    const OPEN: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    const OPENED: &[u8] = br#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
    const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    const LIST: &str = r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#;
    const LISTED: &[u8] = br#"{"jsonrpc":"2.0","id":"\u0061","result":{}}"#;

    #[test]
    fn what_had_no_reply_is_sent_again_and_the_rest_is_not() {
        let mut ledger = ledger();
        say(&mut ledger, OPEN);
        assert!(ledger.heard(OPENED));
        say(&mut ledger, READY);
        ledger.sent();
        say(&mut ledger, LIST);
        assert_eq!(again(&mut ledger), [OPEN, READY, LIST]);
        assert!(!ledger.heard(OPENED), "the client has that reply");
        assert!(ledger.heard(LISTED));
        assert_eq!(again(&mut ledger), [OPEN, READY]);
    }

    #[test]
    fn an_opening_that_had_no_reply_is_sent_again_and_its_reply_passes() {
        let mut ledger = ledger();
        say(&mut ledger, OPEN);
        assert_eq!(again(&mut ledger), [OPEN]);
        assert!(ledger.heard(OPENED));
    }

    #[test]
    fn what_the_client_cancelled_is_not_sent_again() {
        let mut ledger = ledger();
        say(&mut ledger, LIST);
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        say(&mut ledger, cancel);
        ledger.sent();
        assert_eq!(again(&mut ledger), Vec::<String>::new());
    }

    #[test]
    fn a_message_that_was_not_written_is_sent_again() {
        let mut ledger = ledger();
        let answer = r#"{"jsonrpc":"2.0","id":"tiq","result":{}}"#;
        say(&mut ledger, answer);
        assert_eq!(again(&mut ledger), [answer]);
        assert_eq!(again(&mut ledger), Vec::<String>::new());
    }

    #[test]
    fn a_call_that_asks_for_a_task_gets_one_key_for_all_its_sends() {
        let mut ledger = ledger();
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n": 1.50},"task":{}}}"#;
        let sent = say(&mut ledger, call);
        assert!(
            sent.contains(r#""_meta":{"dev.longhaul/idempotencyKey":"pipe-1"}"#),
            "{sent}"
        );
        assert!(sent.contains(r#""arguments":{"n": 1.50}"#), "{sent}");
        assert_eq!(again(&mut ledger), [sent]);
    }

    #[test]
    fn a_clients_own_key_and_a_plain_call_stay_as_they_are() {
        let mut ledger = ledger();
        for call in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","task":{},"_meta":{"dev.longhaul/idempotencyKey":"k"}}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"2.0", "id":{}, "method":"tools/call"}"#,
            "no JSON",
            r#"{"id":1,"id":2,"method":"ping"}"#,
        ] {
            assert_eq!(say(&mut ledger, call), call);
        }
    }

    #[test]
    fn what_found_no_room_is_answered_when_its_server_is_lost() {
        let mut ledger = ledger();
        for n in 0..=REQUESTS_MAX {
            say(
                &mut ledger,
                &format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"ping"}}"#),
            );
        }
        let again = ledger.again();
        assert_eq!(again.lines.len(), REQUESTS_MAX);
        let [lost] = &again.lost[..] else {
            panic!("{again:?}")
        };
        let lost: serde_json::Value = serde_json::from_slice(lost).expect("a reply is JSON");
        assert_eq!(lost["id"], REQUESTS_MAX);
        assert_eq!(lost["error"]["code"], -32603);
        assert_eq!(lost["error"]["data"]["reason"], "server_lost");
    }

    #[test]
    fn a_request_that_ends_every_server_is_given_up() {
        let mut ledger = ledger();
        say(&mut ledger, LIST);
        for _ in 1..SENDS_MAX {
            assert_eq!(again(&mut ledger), [LIST]);
        }
        let last = ledger.again();
        assert!(last.lines.is_empty());
        assert_eq!(last.lost.len(), 1);
    }

    #[test]
    fn everything_that_waits_is_answered_when_no_server_comes() {
        let mut ledger = ledger();
        say(&mut ledger, OPEN);
        say(&mut ledger, LIST);
        assert_eq!(ledger.give_up().len(), 2);
        assert!(ledger.give_up().is_empty());
    }
}
