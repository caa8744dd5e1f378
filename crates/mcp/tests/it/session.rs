//! Sessions: what their frames say, every rule that they can break, and every shape that is sent, held against
//! the official schema. Here is what the tests below share.

pub(crate) mod initialize;
mod malformed;
mod parse;
mod render;
mod task;

use longhaul_core::{Body, Outcome, Phase, task::CancelledBy};
use longhaul_mcp::{
    Incoming, Malformed, Message, Push, Reply, Request, RequestId, TaskView, ToolRule,
    edge::{Offer, Version},
    frame::Frame,
    malformed::Rule,
    reply::Relays,
    request::CallTool,
    scan::Limits,
    v2025_11_25::{self as sessions, push},
};
use serde_json::Value;

use crate::support::{Official, assert_is, frame, peer};

const RELATED: &str = "io.modelcontextprotocol/related-task";

const ID: &str = "lh1.k1.Zq81vS0cYl3nR7";

const LATEST: Version = Version::LATEST;

/// A frame of a session; each test changes one thing.
#[derive(Clone)]
struct Sent {
    body: String,
    version: Version,
    tasks: bool,
    tasks_list: bool,
    relays: Relays,
    tool: Option<ToolRule>,
}

impl Sent {
    fn raw(body: &str) -> Sent {
        Sent {
            body: body.to_owned(),
            version: Version::LATEST,
            tasks: true,
            tasks_list: true,
            relays: Relays::default(),
            tool: None,
        }
    }

    fn new(method: &str, params: Value) -> Sent {
        Sent::raw(&frame(method, params).to_string())
    }

    fn read(&self) -> Result<Message, Malformed> {
        let tool = |_: &str| self.tool.as_ref();
        let offer = Offer {
            tasks: self.tasks,
            tasks_list: self.tasks_list,
            relays: self.relays,
            strict_headers: true,
            limits: Limits::default(),
            tool: &tool,
        };
        let frame = Frame::parse(self.body.as_bytes(), &offer.limits)?;
        sessions::parse(frame, &peer(self.version), &offer)
    }

    #[track_caller]
    fn incoming(&self) -> Incoming {
        match self.read() {
            Ok(Message::Request(incoming)) => *incoming,
            other => panic!("no request: {other:?}"),
        }
    }

    #[track_caller]
    fn call(&self) -> CallTool {
        let Request::CallTool(call) = self.incoming().request else {
            panic!("no call")
        };
        call
    }

    #[track_caller]
    fn rule(&self) -> Rule {
        self.read().expect_err("refused").rule
    }
}

fn rule(requires_task: bool, forbids_task: bool) -> Option<ToolRule> {
    Some(ToolRule {
        mirrors: Vec::new(),
        requires_task,
        forbids_task,
    })
}

fn reply(shown: &Reply, version: Version) -> Value {
    let frame = parsed(&sessions::render(shown, &RequestId::Integer(7), version));
    assert_eq!(frame["id"], 7);
    frame
}

/// The result, which must be what the official schema calls `definition`.
#[track_caller]
fn result(definition: &str, shown: &Reply) -> Value {
    let frame = reply(shown, LATEST);
    assert_is(Official::Sessions, "JSONRPCResultResponse", &frame);
    assert_is(Official::Sessions, definition, &frame["result"]);
    assert_eq!(frame["result"].get("resultType"), None);
    frame["result"].clone()
}

#[track_caller]
fn error(shown: &Reply) -> Value {
    let frame = reply(shown, LATEST);
    assert_is(Official::Sessions, "JSONRPCErrorResponse", &frame);
    assert_eq!(frame.get("result"), None);
    frame["error"].clone()
}

fn get(view: TaskView) -> Value {
    result("GetTaskResult", &Reply::Task(view))
}

#[track_caller]
fn pushed(definition: &str, message: &Push, version: Version) -> Value {
    let frame = parsed(&push(message, version));
    assert_is(Official::Sessions, definition, &frame);
    frame
}

fn parsed(bytes: &[u8]) -> Value {
    assert!(!bytes.contains(&b'\n'), "one line");
    let frame: Value = serde_json::from_slice(bytes).expect("JSON");
    assert_eq!(frame["jsonrpc"], "2.0");
    frame
}

fn returned(body: &str, is_error: bool) -> Phase {
    Phase::Finished(Outcome::Returned {
        body: Body::new(body.as_bytes()),
        is_error,
    })
}

fn errored(body: &str) -> Phase {
    Phase::Finished(Outcome::Errored {
        body: Body::new(body.as_bytes()),
    })
}

fn cancelled(by: CancelledBy) -> Phase {
    Phase::Finished(Outcome::Cancelled { by })
}
