//! What the tests share: frames to send, and the official schemas to hold replies against.

use std::sync::LazyLock;

use longhaul_core::{Millis, Phase};
use longhaul_mcp::{
    Client, Incoming, Malformed, Message, Request, TaskView, ToolRule,
    edge::{Offer, Peer, Version},
    frame::{Frame, Raw},
    header::Headers,
    reply::Relays,
    request::Asked,
    scan::Limits,
    v2026_07_28,
};
use serde_json::{Value, json};

pub(crate) const VERSION: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// `_meta` of a client that takes tasks and answers forms.
pub(crate) fn meta() -> Value {
    json!({
        VERSION_KEY: VERSION,
        CAPABILITIES_KEY: {
            "elicitation": { "form": {}, "url": {} },
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    })
}

/// `_meta` of a client that declares nothing.
pub(crate) fn bare_meta() -> Value {
    json!({ VERSION_KEY: VERSION, CAPABILITIES_KEY: {} })
}

pub(crate) fn frame(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

/// A frame with good headers; each test breaks one thing of it.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Option<Vec<(String, Vec<u8>)>>,
    pub(crate) strict: bool,
    pub(crate) tasks: bool,
    pub(crate) relays: Relays,
    pub(crate) tool: Option<ToolRule>,
}

impl Post {
    pub(crate) fn raw(body: &str) -> Post {
        Post {
            body: body.into(),
            headers: None,
            strict: false,
            tasks: true,
            relays: Relays::default(),
            tool: None,
        }
    }

    pub(crate) fn new(method: &str, params: Value) -> Post {
        let mut headers = vec![
            ("MCP-Protocol-Version", VERSION.to_owned()),
            ("Mcp-Method", method.to_owned()),
        ];
        let named = match method {
            "tools/call" => params.get("name"),
            "prompts/get" => params.get("name"),
            "resources/read" => params.get("uri"),
            _ => params.get("taskId"),
        };
        if let Some(name) = named.and_then(Value::as_str) {
            headers.push(("Mcp-Name", name.to_owned()));
        }
        let headers = headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into_bytes()));
        Post {
            headers: Some(headers.collect()),
            ..Post::raw(&frame(method, params).to_string())
        }
    }

    /// Sets a header, or removes it.
    pub(crate) fn header(mut self, name: &str, value: Option<&str>) -> Post {
        let headers = self.headers.get_or_insert_with(Vec::new);
        headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        headers.extend(value.map(|value| (name.to_owned(), value.as_bytes().to_vec())));
        self
    }

    pub(crate) fn read(&self) -> Result<Message, Malformed> {
        let headers = self.headers.as_ref().map(|headers| {
            Headers::new(
                headers
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_slice())),
            )
        });
        let tool = |_: &str| self.tool.as_ref();
        let offer = Offer {
            tasks: self.tasks,
            tasks_list: self.tasks,
            relays: self.relays,
            strict_headers: self.strict,
            ..offer(&tool)
        };
        let frame = Frame::parse(&self.body, &offer.limits)?;
        v2026_07_28::parse(headers.as_ref(), frame, &offer)
    }

    pub(crate) fn incoming(&self) -> Incoming {
        match self.read() {
            Ok(Message::Request(incoming)) => *incoming,
            other => panic!("no request: {other:?}"),
        }
    }

    pub(crate) fn request(&self) -> Request {
        self.incoming().request
    }

    pub(crate) fn malformed(&self) -> Malformed {
        match self.read() {
            Err(malformed) => malformed,
            Ok(message) => panic!("accepted: {message:?}"),
        }
    }

    /// The code and the HTTP status of the refusal.
    pub(crate) fn refusal(&self) -> (i64, u16) {
        let malformed = self.malformed();
        (malformed.rule.code(), malformed.rule.status())
    }
}

/// All that there can be beside tools.
pub(crate) const EVERYTHING: Relays = Relays {
    prompts: true,
    prompts_change: true,
    resources: true,
    resources_change: true,
    subscribe: true,
    completions: true,
};

/// Everything is offered, and no header may be missing.
pub(crate) fn offer<'a>(tool: &'a dyn Fn(&str) -> Option<&'a ToolRule>) -> Offer<'a> {
    Offer {
        tasks: true,
        tasks_list: true,
        relays: EVERYTHING,
        strict_headers: true,
        limits: Limits::default(),
        tool,
    }
}

/// A client of this version that said nothing about itself.
pub(crate) fn peer(version: Version) -> Peer {
    Peer {
        version,
        client: Client {
            asked: Asked::OnStream,
            ..Client::default()
        },
    }
}

pub(crate) fn raw(value: &Value) -> Raw {
    Raw::of(value).expect("a value is JSON")
}

/// A task of a fixed moment in this phase.
pub(crate) fn task(phase: Phase) -> TaskView {
    TaskView {
        id: "lh1.k1.Zq81vS0cYl3nR7".to_owned(),
        name: "k7f2m9".to_owned(),
        phase,
        questions: Vec::new(),
        created_at: Millis(1_795_942_800_000),
        updated_at: Millis(1_795_942_812_345),
        ttl_ms: Some(1_800_000),
        poll_ms: Some(4_000),
        status_message: None,
        progress: None,
        metadata: None,
    }
}

static CORE: LazyLock<Value> = LazyLock::new(|| schema(include_str!("../schema/mcp-2026-07-28.schema.json")));
static SESSIONS: LazyLock<Value> =
    LazyLock::new(|| schema(include_str!("../schema/mcp-2025-11-25.schema.json")));
static TASKS: LazyLock<Value> =
    LazyLock::new(|| schema(include_str!("../schema/ext-tasks-draft.schema.json")));

/// An official schema.
#[derive(Clone, Copy)]
pub(crate) enum Official {
    Core,
    Tasks,
    /// The newest version that has sessions.
    Sessions,
}

/// Panics unless `value` is what the official schema calls `definition`.
#[track_caller]
pub(crate) fn assert_is(official: Official, definition: &str, value: &Value) {
    if let Err(why) = check(official, definition, value) {
        panic!("no {definition}: {why}\n{value:#}");
    }
}

pub(crate) fn check(official: Official, definition: &str, value: &Value) -> Result<(), String> {
    let all = match official {
        Official::Core => &*CORE,
        Official::Tasks => &*TASKS,
        Official::Sessions => &*SESSIONS,
    };
    assert!(
        all["$defs"].get(definition).is_some(),
        "the schema has no {definition}"
    );
    let schema = json!({ "$ref": format!("#/$defs/{definition}"), "$defs": all["$defs"] });
    let validator = jsonschema::draft202012::new(&schema).expect("the official schema compiles");
    validator
        .validate(value)
        .map_err(|error| format!("{error} at {}", error.instance_path()))
}

fn schema(text: &str) -> Value {
    serde_json::from_str(text).expect("the official schema is JSON")
}
