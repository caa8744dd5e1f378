//! Bytes to frame to request, on every edge: whatever is refused renders as a JSON-RPC error with the right id, and
//! whatever is accepted can be written again and reads the same.

use longhaul_mcp::{
    Client, Message, Reply, RpcError, ToolRule,
    edge::{self, Edge, Offer, Peer, Received, Version},
    frame::{Frame, Obj, Raw},
    reply::{Cache, CacheScope, Discovery, Relays},
    request::{Answers, Asked},
    scan::Limits,
};

use crate::json;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let limits = Limits::default();
    let frame = match Frame::parse(bytes, &limits) {
        Ok(frame) => frame,
        Err(malformed) => {
            for edge in [Edge::Stateless, Edge::Session(Version::LATEST)] {
                json::check_error(&edge.malformed(&malformed), malformed.id.as_ref());
                assert_eq!(edge.malformed_status(&malformed), 400, "{malformed:?}");
            }
            return;
        }
    };
    let written = write(&frame);
    let again = Frame::parse(written.as_bytes(), &limits);
    assert_eq!(
        again.as_ref(),
        Ok(&frame),
        "a frame that was written again is another: {written}"
    );
    receive(&frame, None);
    for version in Version::ALL {
        receive(&frame, Some(&peer(version)));
    }
}

/// A frame's text, from its parts.
fn write(frame: &Frame) -> String {
    let mut text = Obj::default();
    text.set("jsonrpc", "2.0");
    let set_params = |text: &mut Obj, params: &Option<Obj>| {
        if let Some(params) = params {
            text.set("params", &params.to_raw());
        }
    };
    match frame {
        Frame::Request { id, method, params } => {
            text.set("id", id);
            text.set("method", method);
            set_params(&mut text, params);
        }
        Frame::Notification { method, params } => {
            text.set("method", method);
            set_params(&mut text, params);
        }
        Frame::Response { id, outcome } => {
            if let Some(id) = id {
                text.set("id", id);
            }
            match outcome {
                Ok(result) => text.set("result", result),
                Err(error) => text.set("error", error),
            }
        }
    }
    text.to_raw().text().to_owned()
}

fn peer(version: Version) -> Peer {
    Peer {
        version,
        client: Client {
            asked: Asked::OnStream,
            answers: Answers {
                form: version.has_elicitation(),
                ..Answers::default()
            },
            ..Client::default()
        },
    }
}

fn receive(frame: &Frame, peer: Option<&Peer>) {
    let rules = [
        ToolRule::default(),
        ToolRule {
            requires_task: true,
            ..ToolRule::default()
        },
        ToolRule {
            forbids_task: true,
            ..ToolRule::default()
        },
    ];
    let tool = |name: &str| match name {
        "plain" => rules.first(),
        "slow" => rules.get(1),
        "quick" => rules.get(2),
        _ => None,
    };
    for tasks in [true, false] {
        let offer = Offer {
            tasks,
            tasks_list: tasks,
            relays: RELAYS,
            strict_headers: tasks,
            limits: Limits::default(),
            tool: &tool,
        };
        let belongs = edge::of(None, frame, peer);
        let edge = belongs.edge(peer);
        match edge::receive(None, frame.clone(), belongs, peer, &offer) {
            Err(malformed) => {
                // Who answers with no id must have had none to read.
                assert_eq!(malformed.id.as_ref(), frame.id(), "{malformed:?}");
                json::check_error(&edge.malformed(&malformed), malformed.id.as_ref());
                let status = edge.malformed_status(&malformed);
                assert!(matches!(status, 200 | 400 | 404), "{status}");
            }
            Ok(received) => accepted(frame, edge, &received),
        }
    }
}

/// What was understood says what the frame said, and can be answered.
fn accepted(frame: &Frame, edge: Edge, received: &Received) {
    match (received, frame) {
        (Received::Open(opening), Frame::Request { id, .. }) => {
            assert_eq!(&opening.id, id);
            json::check_reply(&edge::opened(&DISCOVERY, opening), Some(id));
            let stored = Raw::of(&opening.peer).expect("a peer has a stored form");
            let read: Peer = stored.read().expect("a stored peer can be read");
            assert_eq!(read, opening.peer);
        }
        (Received::Message(Message::Request(incoming)), Frame::Request { id, .. }) => {
            assert_eq!(&incoming.id, id);
            let error = Reply::Error(RpcError::invalid_request("No"));
            json::check_error(&edge.render(&error, id), Some(id));
            // Every refusal of a well-formed request carries the same id.
            for reply in [Reply::Ack, Reply::Discover(DISCOVERY)] {
                json::check_reply(&edge.render(&reply, id), Some(id));
            }
        }
        (Received::Message(Message::Notice(_)), Frame::Notification { .. }) => {}
        (Received::Message(Message::Notice(_)), Frame::Response { id: None, .. }) => {}
        (Received::Message(Message::Answer(answer)), Frame::Response { id, outcome }) => {
            assert_eq!(Some(&answer.id), id.as_ref());
            assert_eq!(&answer.outcome, outcome);
        }
        (received, frame) => panic!("{frame:?} was understood as {received:?}"),
    }
}

const RELAYS: Relays = Relays {
    prompts: true,
    prompts_change: true,
    resources: true,
    resources_change: true,
    subscribe: true,
    completions: true,
};

const DISCOVERY: Discovery = Discovery {
    title: None,
    tasks: true,
    tasks_list: true,
    tools_change: true,
    logging: true,
    relays: RELAYS,
    instructions: None,
    cache: Cache {
        ttl_ms: 0,
        scope: CacheScope::Private,
    },
};
