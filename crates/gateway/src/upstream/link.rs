//! What stands between a connection and its server's bytes: frames out, frames in, and how it ended.
//!
//! The two links, [`stdio`] and [`http`], speak in these words. Nothing here reads a frame further than
//! the id of a reply that cannot be read.

use std::{fmt, time::Duration};

use longhaul_engine::process::View;
use longhaul_mcp::client::{Carrier, Sent};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use tokio::time::{Instant, sleep_until};

use super::{
    connection::{FLOOD_TIME, PER_SECOND},
    http, stdio,
};

/// The longest frame that a server may send, in bytes.
pub const FRAME_MAX: usize = 16 << 20;
/// The most bytes of no use which a server may send within [`NOISE_TIME`] and between two replies.
pub const NOISE_MAX: u64 = 64 << 20;
/// The time in which noise is counted.
pub const NOISE_TIME: Duration = Duration::from_secs(60);
/// How much of a server's standard error is kept, in bytes.
pub const STDERR_MAX: usize = 64 << 10;

/// Something that came from the server. `Debug` shows lengths only: results never reach a log.
pub enum Heard {
    /// What should be one frame, as it was written.
    Frame {
        /// The bytes, at most [`FRAME_MAX`].
        bytes: Vec<u8>,
        /// Where it came.
        via: Via,
    },
    /// A frame longer than [`FRAME_MAX`]; it was dropped.
    TooLong {
        /// The request that it answers, where that can be told.
        reply_to: Option<u64>,
    },
    /// Over HTTP: the request was refused, and its body may say why.
    Refused {
        /// The request.
        request: u64,
        /// Neither a success nor [`Over::SessionEnded`].
        status: u16,
        /// The start of the body.
        body: Vec<u8>,
    },
    /// Over HTTP: the stream of this request begins with an event of this id, and can be gone on with behind it (A-17),
    /// on another connection, too.
    Placed {
        /// The request.
        request: u64,
        /// The id.
        after: String,
    },
    /// Over HTTP: nothing more comes for this request, and its reply did not.
    Over {
        /// The request.
        request: u64,
        /// Why.
        over: Over,
    },
    /// Nothing comes any more. It is the last.
    Lost(Lost),
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Heard::Frame { bytes, via } => write!(f, "Frame({} bytes, {via:?})", bytes.len()),
            Heard::TooLong { reply_to } => write!(f, "TooLong({reply_to:?})"),
            Heard::Refused {
                request,
                status,
                body,
            } => write!(f, "Refused({request}, {status}, {} bytes)", body.len()),
            Heard::Placed { request, .. } => write!(f, "Placed({request})"),
            Heard::Over { request, over } => write!(f, "Over({request}, {over:?})"),
            Heard::Lost(lost) => write!(f, "Lost({:?})", lost.why),
        }
    }
}

/// Why the reply to one request will not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// It never left.
    #[error("it cannot be reached: {0}")]
    Unsent(String),
    /// The connection broke; the server may have read the request.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The stream ended before the reply, and cannot be resumed.
    #[error("its stream ended before the reply")]
    Cut,
    /// The request was accepted like a notification.
    #[error("it accepted the request and sent no reply")]
    NoReply,
    /// The body is neither JSON nor a stream of events.
    #[error("its reply is neither JSON nor a stream of events")]
    NotJson,
    /// A reply or an event is longer than [`FRAME_MAX`].
    #[error("its reply is longer than {} MiB", FRAME_MAX >> 20)]
    TooLong,
    /// The server does not know the session any more (A-25).
    #[error("it has forgotten the session")]
    SessionEnded,
}

/// Where a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// On what all requests share: the pipe, or the stream of a session.
    Shared,
    /// On the stream that belongs to this request of ours.
    Request(u64),
    /// It is all that was answered to this request of ours.
    Whole(u64),
}

/// Why nothing comes any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The reason.
    pub why: Why,
    /// The end of what the server wrote on its standard error, at most [`STDERR_MAX`] bytes of it. Shown with a
    /// failure only, to whoever runs this server; never to a client.
    pub stderr: String,
    /// Nothing of it is left alive. Always true of a server that is no program of ours.
    pub confirmed: bool,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

/// The reasons for which a link is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// We closed it.
    #[error("it was closed")]
    Closed,
    /// The program exited.
    #[error("its program exited with code {0}")]
    Exited(i32),
    /// A signal ended the program.
    #[error("signal {0} ended its program")]
    Signalled(i32),
    /// The program went on, and closed its standard output.
    #[error("its program closed its standard output")]
    OutputClosed,
    /// The shim of the program was killed.
    #[error("its program was lost: the process that guarded it was killed")]
    ShimLost,
    /// The server does not know the session any more (A-25).
    #[error("it has forgotten the session")]
    SessionEnded,
    /// More than [`NOISE_MAX`] of no use.
    #[error("it wrote too much that is of no use")]
    Noise,
    /// It told and asked more than may be read, without a rest.
    #[error("it sent more than {PER_SECOND} notifications and requests a second for {} s", FLOOD_TIME.as_secs())]
    Flood,
    /// A frame longer than [`FRAME_MAX`], and who waits for it cannot be told.
    #[error("it wrote a frame longer than {} MiB", FRAME_MAX >> 20)]
    TooLong,
}

/// The way to a server. Cheap to clone.
#[derive(Clone)]
pub enum Outlet {
    /// The input of a program.
    Stdio(stdio::Outlet),
    /// Requests to a URL.
    Http(http::Outlet),
}

/// It did not reach the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Untold(String);

impl Outlet {
    /// What carries the frames.
    pub fn carrier(&self) -> Carrier {
        match self {
            Outlet::Stdio(_) => Carrier::Pipe,
            Outlet::Http(_) => Carrier::Http,
        }
    }

    /// Hands a request over; it waits while a program does not read. When the future is dropped, the request is
    /// sent whole or not at all.
    ///
    /// # Errors
    /// The server has ended.
    pub async fn request(&self, id: u64, sent: Sent, begins_session: bool) -> Result<(), Untold> {
        match self {
            Outlet::Stdio(outlet) => stdio_told(outlet.send(sent.frame).await),
            Outlet::Http(outlet) => {
                outlet.request(id, sent, begins_session);
                Ok(())
            }
        }
    }

    /// Sends a notification or an answer.
    ///
    /// # Errors
    /// It did not arrive, as far as can be seen.
    pub async fn tell(&self, sent: Sent) -> Result<(), Untold> {
        match self {
            Outlet::Stdio(outlet) => {
                let told = tokio::time::timeout(http::TELL_MAX, outlet.send(sent.frame)).await;
                stdio_told(told.map_err(|_late| Untold("it does not read".to_owned()))?)
            }
            Outlet::Http(outlet) => outlet.tell(sent).await.map_err(|error| Untold(error.to_string())),
        }
    }

    /// Gives a request up. On a pipe that only means that its reply is dropped when it comes.
    pub fn abandon(&self, id: u64) {
        match self {
            Outlet::Stdio(_) => {}
            Outlet::Http(outlet) => outlet.abandon(id),
        }
    }

    /// What can be seen of a program.
    pub fn view(&self) -> Option<View> {
        match self {
            Outlet::Stdio(outlet) => Some(outlet.view()),
            Outlet::Http(_) => None,
        }
    }

    /// The end of the server's standard error so far.
    pub fn stderr(&self) -> String {
        match self {
            Outlet::Stdio(outlet) => outlet.stderr(),
            Outlet::Http(_) => String::new(),
        }
    }

    /// What goes with every request to a URL.
    pub(super) fn credentials(&self) -> http::Credentials {
        match self {
            Outlet::Stdio(_) => http::Credentials::default(),
            Outlet::Http(outlet) => outlet.credentials(),
        }
    }

    /// From here on the headers of `remote` go with every request.
    pub(super) fn renew(&self, remote: &http::Remote) {
        match self {
            Outlet::Stdio(_) => {}
            Outlet::Http(outlet) => outlet.renew(remote),
        }
    }

    /// The process id of a program.
    pub fn pid(&self) -> Option<i32> {
        match self {
            Outlet::Stdio(outlet) => Some(outlet.pid()),
            Outlet::Http(_) => None,
        }
    }

    /// Over HTTP: goes on with the stream of a request that was sent before, behind the event of this id.
    pub(super) fn go_on(&self, request: u64, after: String) {
        match self {
            // A program's pipe ends with it.
            Outlet::Stdio(_) => {}
            Outlet::Http(outlet) => outlet.go_on(request, after),
        }
    }

    /// The id of a session behind a URL.
    pub(super) fn session_id(&self) -> Option<String> {
        match self {
            Outlet::Stdio(_) => None,
            Outlet::Http(outlet) => outlet.session_id(),
        }
    }

    /// A session behind a URL is not to be ended with the connection, until [`Outlet::let_go`].
    pub(super) fn keep(&self) {
        match self {
            Outlet::Stdio(_) => {}
            Outlet::Http(outlet) => outlet.keep(),
        }
    }

    /// One reason less not to end the session.
    pub(super) fn let_go(&self) {
        match self {
            Outlet::Stdio(_) => {}
            Outlet::Http(outlet) => outlet.let_go(),
        }
    }
}

fn stdio_told(told: Result<(), longhaul_engine::process::Gone>) -> Result<(), Untold> {
    told.map_err(|_gone| Untold("it has ended".to_owned()))
}

/// What comes from a server. Dropping it ends what it comes from.
pub enum Inlet {
    /// The output of a program.
    Stdio(Box<stdio::Inlet>),
    /// The replies from a URL.
    Http(http::Inlet),
}

impl Inlet {
    /// What comes next. Cancel-safe.
    pub async fn next(&mut self) -> Heard {
        match self {
            Inlet::Stdio(inlet) => inlet.next().await,
            Inlet::Http(inlet) => inlet.next().await,
        }
    }

    /// A program has written lines that are no frames.
    pub fn has_skipped(&self) -> bool {
        match self {
            Inlet::Stdio(inlet) => inlet.skipped() > 0,
            Inlet::Http(_) => false,
        }
    }

    /// A request got its reply.
    pub(super) fn replied(&mut self) {
        match self {
            Inlet::Stdio(inlet) => inlet.replied(),
            // Its frames are all that is counted, and by the connection.
            Inlet::Http(_) => {}
        }
    }

    /// Ends the server's program or session.
    pub async fn close(self, why: Why) -> Lost {
        match self {
            Inlet::Stdio(inlet) => inlet.close(why).await,
            Inlet::Http(inlet) => inlet.close(why).await,
        }
    }
}

/// Waits for a moment, or for ever where there is none.
pub(super) async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Counts what a server sends that is of no use.
#[derive(Debug)]
pub(super) struct Noise {
    bytes: u64,
    since: Instant,
}

/// What a line or frame of no use counts at least, in bytes: many short ones cost as much as a few long ones.
const NOISE_LEAST: u64 = 512;

impl Noise {
    pub(super) fn new() -> Noise {
        Noise {
            bytes: 0,
            since: Instant::now(),
        }
    }

    pub(super) fn reset(&mut self) {
        self.bytes = 0;
    }

    /// Whether it is too much by now.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        if self.since.elapsed() > NOISE_TIME {
            *self = Noise::new();
        }
        self.bytes += (bytes as u64).max(NOISE_LEAST);
        self.bytes > NOISE_MAX
    }
}

/// The id in the text of a reply, also of one that cannot be read whole, if it is one of ours: a number.
///
/// It may fail a request, so it looks at the members of the frame itself only. What names a method is no reply.
pub fn reply_to(text: &[u8]) -> Option<u64> {
    let mut seen = Seen::default();
    // The error comes where the text ends or breaks; what was seen before it counts.
    let _broken = serde_json::Deserializer::from_slice(text).deserialize_map(Members(&mut seen));
    seen.id.filter(|_| !seen.method)
}

#[derive(Default)]
struct Seen {
    id: Option<u64>,
    method: bool,
}

struct Members<'a>(&'a mut Seen);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "id" {
                self.0.id = map.next_value::<serde_json::Number>()?.as_u64();
            } else {
                self.0.method |= name == "method";
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The id at the end of a frame, `…,"id":7}`, as it stands in replies whose result comes first.
pub(super) fn reply_to_at_end(end: &[u8]) -> Option<u64> {
    let end = end.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let digits = end.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = end.split_at(end.len() - digits);
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    // A quote inside a string is escaped, so this one opens a name.
    before.strip_suffix(b"\"id\"")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(reply_to(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn the_id_of_a_reply_that_cannot_be_read_is_found_where_it_stands_before_the_break() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1"#, Some(7));
        check(r#"{"id":7,"id":8}"#, Some(8));
        check(r#"{"result":{"id":7}}"#, None);
        check(r#"{"id":"7","result":{}}"#, None);
        check(r#"{"id":-7,"result":{}}"#, None);
        check(r#"[{"id":7}]"#, None);
        check(r#"{"id":7,"method":"ping"}"#, None);
        check("no JSON", None);
    }

    #[test]
    fn the_id_at_the_end_of_a_frame_is_its_own() {
        let at_end = |text: &str| reply_to_at_end(text.as_bytes());
        assert_eq!(at_end(r#"...","jsonrpc":"2.0","id":7}"#), Some(7));
        assert_eq!(at_end("...\",\"id\" : 7 } \r"), Some(7));
        assert_eq!(at_end(r#"...\"id\":7}"#), None);
        assert_eq!(at_end(r#"..."id":7}}"#), None);
        assert_eq!(at_end(r#"..."id":}"#), None);
        assert_eq!(at_end(r#"..."id":7,"x":1}"#), None);
    }
}
