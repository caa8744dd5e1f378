//! Clients of every generation that write and read texts: nothing between the test and the gateway reads a frame.

use axum::{body::Body, http::Request};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::BodyExt as _;

use super::{edits::Era, json::Node};
use crate::support::{ADDRESS, World};

const META: &str = "io.modelcontextprotocol/";

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// A session of this version; its calls are tasks, or plain.
    Session { version: &'static str, as_tasks: bool },
    /// Each request stands alone; with the tasks extension, or without.
    Stateless { tasks: bool },
}

impl Speaks {
    pub(super) const ALL: [Speaks; 6] = [
        Speaks::Session {
            version: "2025-11-25",
            as_tasks: false,
        },
        Speaks::Session {
            version: "2025-11-25",
            as_tasks: true,
        },
        Speaks::Session {
            version: "2025-06-18",
            as_tasks: false,
        },
        Speaks::Session {
            version: "2025-03-26",
            as_tasks: false,
        },
        Speaks::Stateless { tasks: false },
        Speaks::Stateless { tasks: true },
    ];

    pub(super) fn era(self) -> Era {
        match self {
            Speaks::Session { .. } => Era::Sessions,
            Speaks::Stateless { .. } => Era::Stateless,
        }
    }

    pub(super) fn version(self) -> &'static str {
        match self {
            Speaks::Session { version, .. } => version,
            Speaks::Stateless { .. } => "2026-07-28",
        }
    }

    /// Versions before 2025-06-18 have no questions.
    pub(super) fn can_be_asked(self) -> bool {
        self.version() >= "2025-06-18"
    }

    pub(super) fn as_tasks(self) -> bool {
        match self {
            Speaks::Session { as_tasks, .. } => as_tasks,
            Speaks::Stateless { tasks } => tasks,
        }
    }
}

/// One client.
pub(super) struct Client<'a> {
    world: &'a World,
    pub speaks: Speaks,
    session: Option<String>,
}

/// The frames of one reply, the response last.
pub(super) struct Frames {
    pub frames: Vec<Node>,
}

impl Frames {
    pub(super) fn response(&self) -> &Node {
        self.frames.last().expect("a response")
    }
}

impl<'a> Client<'a> {
    pub(super) async fn open(world: &'a World, speaks: Speaks) -> Client<'a> {
        let mut client = Client {
            world,
            speaks,
            session: None,
        };
        if let Speaks::Session { version, .. } = speaks {
            let hello = format!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{"elicitation":{{}}}},"clientInfo":{{"name":"raw","version":"1"}}}}}}"#
            );
            let response = world.respond(client.post(&hello)).await;
            let id = response.headers()["mcp-session-id"].to_str().expect("ASCII");
            client.session = Some(id.to_owned());
            client
                .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
                .await;
            client
                .send(r#"{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"debug"}}"#)
                .await;
        }
        client
    }

    /// What this client says in every request's `_meta`.
    pub(super) fn introduced(&self, params: &mut Node, token: Option<&Node>) {
        let mut members = params.get("_meta").cloned().unwrap_or_else(Node::object);
        if let Some(token) = token {
            members.set("progressToken", token.clone());
        }
        if let Speaks::Stateless { tasks } = self.speaks {
            let extensions = match tasks {
                true => r#","extensions":{"io.modelcontextprotocol/tasks":{}}"#,
                false => "",
            };
            members.set(&format!("{META}protocolVersion"), Node::string("2026-07-28"));
            members.set(
                &format!("{META}clientInfo"),
                Node::parse(r#"{"name":"raw","version":"1"}"#),
            );
            let capabilities = format!(r#"{{"elicitation":{{}}{extensions}}}"#);
            members.set(&format!("{META}clientCapabilities"), Node::parse(&capabilities));
            members.set(&format!("{META}logLevel"), Node::string("debug"));
        }
        if !members.is_empty() {
            params.set("_meta", members);
        }
    }

    /// One frame, and all that comes back. Questions are answered with `answer`.
    pub(super) async fn send(&self, text: &str) -> Frames {
        self.send_answering(text, &[]).await
    }

    pub(super) async fn send_answering(&self, text: &str, answers: &[Node]) -> Frames {
        let mut answers = answers.iter();
        let mut stream = self.stream(text).await;
        let mut frames = Vec::new();
        while let Some(frame) = stream.next().await {
            let asks = frame.get("method").is_some() && frame.get("id").is_some();
            if let Some(id) = frame.get("id").filter(|_| asks) {
                let answer = answers.next().expect("an answer to each question");
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{answer}}}"#);
                let taken = self.world.respond(self.post(&answer)).await;
                assert_eq!(taken.status().as_u16(), 202, "{frame}");
            }
            frames.push(frame);
        }
        Frames { frames }
    }

    /// The frames of one reply, as they come.
    pub(super) async fn stream(&self, text: &str) -> Stream {
        let response = self.world.respond(self.post(text)).await;
        let kind = response.headers().get("content-type");
        let is_events = kind.is_some_and(|kind| kind == "text/event-stream");
        Stream {
            is_events,
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    fn post(&self, text: &str) -> Request<Body> {
        let mut request = Request::post("/mcp")
            .header("host", ADDRESS)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", self.speaks.version());
        }
        if self.speaks.era() == Era::Stateless {
            request = request.header("mcp-protocol-version", "2026-07-28");
            for (header, value) in headers(text) {
                request = request.header(header, value);
            }
        }
        request.body(Body::from(text.to_owned())).expect("a request")
    }
}

/// B-21: the headers that a stateless request repeats. A text that is no frame has none.
fn headers(text: &str) -> Vec<(&'static str, String)> {
    let Ok(frame) = serde_json::from_str::<serde_json::Value>(text) else {
        return vec![
            ("mcp-method", "tools/call".to_owned()),
            ("mcp-name", "take".to_owned()),
        ];
    };
    let params = &frame["params"];
    let method = frame["method"].as_str();
    let name = ["name", "uri", "taskId"]
        .into_iter()
        .find_map(|member| params[member].as_str());
    let method = method.map(|method| ("mcp-method", method.to_owned()));
    let name = name.map(|name| ("mcp-name", in_header(name)));
    method.into_iter().chain(name).collect()
}

/// B-24.
fn in_header(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    match is_plain && !value.is_empty() && !value.starts_with("=?") {
        true => value.to_owned(),
        false => format!("=?base64?{}?=", BASE64_STANDARD.encode(value)),
    }
}

/// A reply that is read frame by frame.
pub(super) struct Stream {
    is_events: bool,
    body: Body,
    buffer: Vec<u8>,
}

impl Stream {
    pub(super) async fn next(&mut self) -> Option<Node> {
        loop {
            if self.is_events
                && let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n")
            {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let event = String::from_utf8(event).expect("UTF-8");
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                match data.filter(|data| !data.is_empty()) {
                    Some(data) => return Some(Node::parse(data)),
                    None => continue,
                }
            }
            let more = tokio::time::timeout(super::PATIENCE, self.body.frame()).await;
            match more.expect("a frame in time") {
                Some(more) => {
                    let more = more.expect("a frame").into_data().unwrap_or_default();
                    self.buffer.extend_from_slice(&more);
                }
                None if self.is_events || self.buffer.is_empty() => return None,
                None => {
                    let whole = String::from_utf8(std::mem::take(&mut self.buffer)).expect("UTF-8");
                    return whole.starts_with('{').then(|| Node::parse(&whole));
                }
            }
        }
    }
}
