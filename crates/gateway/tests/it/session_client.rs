//! A client of 2025-11-25 over the real HTTP router: one session, its streams, its answers.

use std::time::Duration;

use axum::{
    body::Body as HttpBody,
    http::{HeaderMap, Request},
};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::support::{ADDRESS, World};

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct SessionClient<'a> {
    world: &'a World,
    pub id: String,
    pub initialized: Value,
}

/// One reply over HTTP.
pub(crate) struct Got {
    pub status: u16,
    pub body: Value,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub id: Option<String>,
    /// `Null` for an event without data.
    pub data: Value,
}

pub(crate) struct Events {
    body: HttpBody,
    buffer: Vec<u8>,
}

/// The parameters of an `initialize` whose client can answer forms.
pub(crate) fn initialize(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "a test", "version": "1" },
    })
}

impl<'a> SessionClient<'a> {
    pub(crate) async fn open(world: &'a World) -> SessionClient<'a> {
        SessionClient::open_with(world, initialize("2025-11-25")).await
    }

    pub(crate) async fn open_with(world: &'a World, params: Value) -> SessionClient<'a> {
        let request = frame(1, "initialize", params);
        let (status, headers, mut events) = send(world, post(&request, None)).await;
        assert_eq!(status, 200);
        let id = headers["mcp-session-id"].to_str().expect("ASCII").to_owned();
        let body = events.whole().await;
        let client = SessionClient {
            world,
            id,
            initialized: body["result"].clone(),
        };
        let noted = client
            .post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
            .await;
        assert_eq!(noted.status, 202);
        client
    }

    /// Two sessions of one gateway.
    pub(crate) async fn two(world: &'a World) -> (SessionClient<'a>, SessionClient<'a>) {
        (SessionClient::open(world).await, SessionClient::open(world).await)
    }

    /// One frame and the whole reply: the last frame of its stream, or the one object.
    pub(crate) async fn post(&self, frame: &Value) -> Got {
        let (status, headers, mut events) = send(self.world, post(frame, Some(&self.id))).await;
        let body = match headers.get("content-type").and_then(|kind| kind.to_str().ok()) {
            Some("text/event-stream") => {
                let mut last = Value::Null;
                while let Some(event) = events.next().await {
                    last = event.data;
                }
                last
            }
            Some(_) | None => events.whole().await,
        };
        Got { status, body }
    }

    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        self.post(&frame(7, method, params)).await.body
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params).await
    }

    /// A call that asks for a task; its id.
    pub(crate) async fn task(&self, tool: &str) -> String {
        let params = json!({ "name": tool, "arguments": {}, "task": { "ttl": 60_000 }, "_meta": { "progressToken": "p" } });
        let reply = self.request("tools/call", params).await;
        assert_eq!(reply["result"]["task"]["status"], "working", "{reply}");
        reply["result"]["task"]["taskId"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// The stream of one request.
    pub(crate) async fn stream(&self, id: u64, method: &str, params: Value) -> Events {
        let (status, headers, events) =
            send(self.world, post(&frame(id, method, params), Some(&self.id))).await;
        assert_eq!(
            (status, &headers["content-type"]),
            (200, &"text/event-stream".parse().expect("a valid request"))
        );
        events
    }

    /// The frames of the reply to one request, on a stream or without.
    pub(crate) async fn frames(&self, id: u64, method: &str, params: Value) -> Events {
        let (status, _, events) = send(self.world, post(&frame(id, method, params), Some(&self.id))).await;
        assert_eq!(status, 200);
        events
    }

    /// The shared stream, or the rest of one that was cut.
    pub(crate) async fn listen(&self, last: Option<&str>) -> Events {
        let mut request = self
            .plain(Request::get("/mcp"))
            .header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let (status, _, events) = send(
            self.world,
            request.body(HttpBody::empty()).expect("a valid request"),
        )
        .await;
        assert_eq!(status, 200);
        events
    }

    pub(crate) async fn end(&self) -> u16 {
        let request = self
            .plain(Request::delete("/mcp"))
            .body(HttpBody::empty())
            .expect("a valid request");
        send(self.world, request).await.0
    }

    /// A client that names this session at another endpoint.
    pub(crate) fn elsewhere<'b>(&self, world: &'b World) -> SessionClient<'b> {
        SessionClient {
            world,
            id: self.id.clone(),
            initialized: self.initialized.clone(),
        }
    }

    pub(crate) async fn answer(&self, question: &Value, result: Value) -> u16 {
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        self.post(&answer).await.status
    }

    fn plain(&self, request: axum::http::request::Builder) -> axum::http::request::Builder {
        request
            .header("host", ADDRESS)
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", "2025-11-25")
    }
}

impl Events {
    /// The next event, comments skipped; `None` at the end. A reply without a stream is one event.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let text: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let text = String::from_utf8(text).expect("UTF-8");
                let field = |name: &str| {
                    text.lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(|value| value.trim().to_owned())
                };
                if let Some(data) = field("data:") {
                    return Some(Event {
                        id: field("id:"),
                        data: serde_json::from_str(&data).unwrap_or(Value::Null),
                    });
                }
                continue;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame())
                .await
                .expect("an event in time");
            let Some(frame) = frame else {
                let whole = std::mem::take(&mut self.buffer);
                let data = serde_json::from_slice(&whole).ok()?;
                return Some(Event { id: None, data });
            };
            self.buffer
                .extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default());
        }
    }

    /// The next event that has data.
    pub(crate) async fn data(&mut self) -> Value {
        loop {
            let event = self.next().await.expect("an event");
            if event.data != Value::Null {
                return event.data;
            }
        }
    }

    /// The next message of this method.
    pub(crate) async fn until(&mut self, method: &str) -> Event {
        loop {
            let event = self.next().await.expect("a message");
            if event.data["method"] == method {
                return event;
            }
        }
    }

    async fn whole(&mut self) -> Value {
        let mut bytes = Vec::new();
        while let Some(frame) = self.body.frame().await {
            bytes.extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default());
        }
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }
}

pub(crate) fn frame(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// One frame by POST, of a session or of none.
pub(crate) fn post(frame: &Value, session: Option<&str>) -> Request<HttpBody> {
    let mut request = Request::post("/mcp")
        .header("host", ADDRESS)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some(session) = session {
        request = request
            .header("mcp-session-id", session)
            .header("mcp-protocol-version", "2025-11-25");
    }
    request
        .body(HttpBody::from(frame.to_string()))
        .expect("a request")
}

pub(crate) async fn send(world: &World, request: Request<HttpBody>) -> (u16, HeaderMap, Events) {
    let response = world.respond(request).await;
    let (parts, body) = response.into_parts();
    let events = Events {
        body,
        buffer: Vec::new(),
    };
    (parts.status.as_u16(), parts.headers, events)
}
