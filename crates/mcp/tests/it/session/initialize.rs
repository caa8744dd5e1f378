//! How a session begins, and what is kept of its client.

use longhaul_mcp::{
    Client, Malformed, RequestId,
    edge::{Opening, Peer, Version},
    frame::{Frame, Obj},
    malformed::Rule,
    reply::{Cache, CacheScope, Discovery, Relays},
    request::{Answers, Asked, Takes},
    scan::Limits,
    v2025_11_25::{self as sessions, open},
};
use serde_json::{Value, json};

use super::{LATEST, parsed};
use crate::support::{EVERYTHING, Official, assert_is, frame, peer, raw};

fn opening(params: &Value) -> Result<Opening, Malformed> {
    let params: Obj = raw(params).read().expect("an object");
    open(RequestId::Integer(1), Some(&params))
}

pub(super) fn opened(version: &str, capabilities: Value) -> Peer {
    let info = json!({ "name": "desk-agent", "version": "4.2.0" });
    let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": info });
    assert_is(
        Official::Sessions,
        "InitializeRequest",
        &frame("initialize", params.clone()),
    );
    opening(&params).expect("opened").peer
}

/// A-5.
#[test]
fn initialize_says_who_the_client_is() {
    let peer = opened(
        "2025-11-25",
        json!({ "sampling": {}, "roots": { "listChanged": true } }),
    );
    let expect = Client {
        takes: Takes::Never,
        answers: Answers {
            sampling: true,
            roots: true,
            ..Answers::default()
        },
        asked: Asked::OnStream,
        name: Some("desk-agent".to_owned()),
        version: Some("4.2.0".to_owned()),
        session: None,
        traceparent: None,
    };
    assert_eq!((peer.version, peer.client), (Version::V2025_11_25, expect));
    let frame = Frame::parse(
        br#"{"jsonrpc":"2.0","id":"i-1","method":"initialize"}"#,
        &Limits::default(),
    );
    let id = frame.expect("a frame").id().cloned();
    let opening = open(id.expect("an id"), None);
    assert_eq!(
        opening.expect_err("refused").id,
        Some(RequestId::Text("i-1".to_owned()))
    );
}

/// A-6a, A-6b.
#[test]
fn a_version_that_has_sessions_is_taken_and_any_other_is_answered_with_the_latest() {
    for version in Version::ALL {
        assert_eq!(opened(version.as_str(), json!({})).version, version);
    }
    for other in ["2026-07-28", "2025-11-26", "1999-01-01", "", "latest"] {
        assert_eq!(opened(other, json!({})).version, Version::LATEST, "{other}");
    }
}

/// A-70: an elicitation capability that names no mode means forms.
#[test]
fn an_elicitation_capability_names_its_modes() {
    let answers = |elicitation: Value| {
        let answers = opened("2025-11-25", json!({ "elicitation": elicitation }))
            .client
            .answers;
        (answers.form, answers.url)
    };
    assert_eq!(answers(json!({})), (true, false));
    assert_eq!(answers(json!({ "form": {} })), (true, false));
    assert_eq!(answers(json!({ "url": {} })), (false, true));
    assert_eq!(answers(json!({ "form": {}, "url": {} })), (true, true));
    assert_eq!(opened("2025-11-25", json!({})).client.answers, Answers::default());
}

/// A-8.
#[test]
fn a_client_is_never_asked_what_its_version_cannot_carry() {
    let all = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {} });
    for (version, form, url) in [
        ("2024-11-05", false, false),
        ("2025-03-26", false, false),
        ("2025-06-18", true, false),
        ("2025-11-25", true, true),
    ] {
        let answers = opened(version, all.clone()).client.answers;
        assert_eq!((answers.form, answers.url), (form, url), "{version}");
        assert!(answers.sampling);
    }
}

#[test]
fn a_hostile_initialize_is_cut_to_size_or_refused() {
    let huge = "n".repeat(1_000_000);
    let hidden = "a\u{1b}[31m\u{202e}b\n";
    let info = |info: Value| {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let client = opening(&params).expect("opened").peer.client;
        (client.name, client.version)
    };
    let (name, version) = info(json!({ "name": huge, "version": huge }));
    assert_eq!(name.map(|name| name.chars().count()), Some(100));
    assert_eq!(version.map(|version| version.chars().count()), Some(100));
    assert_eq!(
        info(json!({ "name": hidden, "version": "" })),
        (Some("a[31mb ".to_owned()), None)
    );
    for odd in [
        json!(7),
        json!([]),
        json!("x"),
        json!(null),
        json!({ "name": 7, "version": {} }),
    ] {
        assert_eq!(info(odd.clone()), (None, None), "{odd}");
    }

    let mut deep = json!({});
    for _ in 0..50 {
        deep = json!({ "x": deep });
    }
    let odd = json!({ "elicitation": deep, "sampling": [], "roots": "yes", "experimental": { "x": huge } });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": odd });
    let peer = opening(&params).expect("opened").peer;
    let expect = Answers {
        form: true,
        ..Answers::default()
    };
    assert_eq!(peer.client.answers, expect);
    let stored = serde_json::to_string(&peer).expect("JSON");
    assert!(stored.len() < 200, "{stored}");

    for (params, member) in [
        (json!({}), "protocolVersion"),
        (json!({ "protocolVersion": 20251125 }), "protocolVersion"),
        (json!({ "protocolVersion": ["2025-11-25"] }), "protocolVersion"),
        (
            json!({ "protocolVersion": "2025-11-25", "capabilities": [] }),
            "capabilities",
        ),
    ] {
        let refused = opening(&params).expect_err("refused");
        assert_eq!(refused.id, Some(RequestId::Integer(1)));
        let Rule::ParamInvalid { member: found, .. } = refused.rule else {
            panic!("{:?}", refused.rule)
        };
        assert_eq!(found, member, "{params}");
    }
}

#[test]
fn a_peer_is_the_same_after_it_was_stored() {
    for version in Version::ALL {
        let peer = opened(
            version.as_str(),
            json!({ "elicitation": { "form": {}, "url": {} }, "roots": {} }),
        );
        let stored = serde_json::to_string(&peer).expect("JSON");
        assert_eq!(serde_json::from_str::<Peer>(&stored).expect("a peer"), peer);
    }
    let longest = opening(&json!({
        "protocolVersion": "2025-11-25",
        "clientInfo": { "name": "\u{10ffff}\"".repeat(100), "version": "\u{10ffff}\\".repeat(100) },
    }));
    let stored = serde_json::to_vec(&longest.expect("opened").peer).expect("JSON");
    assert!(
        stored.len() < 1_200,
        "it travels in a header: {} bytes",
        stored.len()
    );
}

#[test]
fn an_old_and_a_new_record_of_a_peer_can_be_read() {
    let old: Peer = serde_json::from_str(r#"{"version":"2025-03-26"}"#).expect("a peer");
    assert_eq!(old, peer(Version::V2025_03_26));
    let new = r#"{"version":"2025-11-25","name":"n","form":true,"hologram":true}"#;
    let new: Peer = serde_json::from_str(new).expect("a peer");
    assert!(new.client.answers.form && new.client.name.as_deref() == Some("n"));
    assert!(serde_json::from_str::<Peer>(r#"{"version":"2031-01-01"}"#).is_err());
    assert!(serde_json::from_str::<Peer>("{}").is_err());
}

pub(crate) fn everything() -> Discovery {
    Discovery {
        tasks: true,
        tasks_list: true,
        tools_change: true,
        logging: true,
        relays: EVERYTHING,
        instructions: Some("Long tools run as tasks.".to_owned()),
        title: None,
        cache: Cache {
            ttl_ms: 60_000,
            scope: CacheScope::Private,
        },
    }
}

fn greeting(discovery: &Discovery, version: Version) -> Value {
    let opening = Opening {
        id: RequestId::Text("i-1".to_owned()),
        peer: peer(version),
    };
    let frame = parsed(&sessions::opened(discovery, &opening));
    assert_is(Official::Sessions, "JSONRPCResultResponse", &frame);
    assert_is(Official::Sessions, "InitializeResult", &frame["result"]);
    assert_eq!(frame["id"], "i-1");
    frame["result"].clone()
}

/// A-6, A-35a, A-35b, D-13.
#[test]
fn initialize_is_answered_with_what_the_session_can_do() {
    assert_eq!(
        greeting(&everything(), LATEST),
        json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": { "listChanged": true },
                "prompts": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true },
                "completions": {},
                "logging": {},
                "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } },
            },
            "serverInfo": { "name": "longhaul", "version": env!("CARGO_PKG_VERSION") },
            "instructions": "Long tools run as tasks.",
        })
    );
    // A-68: whoever cannot be told from others gets no list.
    let unlisted = Discovery {
        tasks_list: false,
        ..everything()
    };
    let tasks = &greeting(&unlisted, LATEST)["capabilities"]["tasks"];
    assert_eq!(
        tasks,
        &json!({ "cancel": {}, "requests": { "tools": { "call": {} } } })
    );
    let nothing = Discovery {
        tasks: false,
        tools_change: false,
        logging: false,
        relays: Relays::default(),
        instructions: None,
        ..everything()
    };
    let shown = greeting(&nothing, LATEST);
    assert_eq!(shown["capabilities"], json!({ "tools": {} }));
    assert_eq!(shown.get("instructions"), None);
}

/// A-8.
#[test]
fn an_older_session_is_offered_no_tasks() {
    for version in Version::ALL {
        let shown = greeting(&everything(), version);
        assert_eq!(shown["protocolVersion"], version.as_str());
        assert_eq!(shown["capabilities"].get("tasks").is_some(), version == LATEST);
        assert_eq!(shown["capabilities"]["tools"], json!({ "listChanged": true }));
        let completes = shown["capabilities"].get("completions").is_some();
        assert_eq!(completes, version > Version::V2024_11_05);
    }
}
