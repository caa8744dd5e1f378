//! Which generation a frame belongs to, and that both are answered in their own shapes.

use longhaul_mcp::{
    Malformed, Message, Push, Reply, Request, RequestId, RpcError,
    edge::{self, Belongs, Edge, Offer, Received, Version},
    frame::Frame,
    header::Headers,
    malformed::Rule,
    reply::Relays,
    rpc_error::{Refusal, RefusalCode, Who},
    scan::Limits,
};
use serde_json::{Value, json};

use crate::{
    session::initialize::everything,
    support::{Official, assert_is, frame, meta, peer},
};

fn read(value: &Value) -> Frame {
    Frame::parse(value.to_string().as_bytes(), &Limits::default()).expect("a frame")
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    Headers::new(pairs.iter().map(|(name, value)| (*name, value.as_bytes())))
}

fn offer(then: impl FnOnce(&Offer<'_>) -> Result<Received, Malformed>) -> Result<Received, Malformed> {
    then(&Offer {
        tasks: true,
        tasks_list: true,
        relays: Relays::default(),
        strict_headers: false,
        limits: Limits::default(),
        tool: &|_| None,
    })
}

fn initialize() -> Value {
    frame(
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } }),
    )
}

fn version_of(text: &str) -> (&'static str, &str) {
    ("MCP-Protocol-Version", text)
}

/// Wire B.2, K-14, K-15, Q-28, Q-29.
#[test]
fn over_http_the_version_decides_then_initialize_then_the_session() {
    let session = ("Mcp-Session-Id", "s");
    let modern = |method: &str| frame(method, json!({ "_meta": meta() }));
    let plain = |method: &str| frame(method, json!({}));
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let response = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    for (value, pairs, expect) in [
        (
            modern("tools/list"),
            vec![version_of("2026-07-28")],
            Belongs::Stateless,
        ),
        (modern("initialize"), vec![], Belongs::Stateless),
        (
            modern("ping"),
            vec![session, version_of("2025-11-25")],
            Belongs::Stateless,
        ),
        (initialize(), vec![version_of("2026-07-28")], Belongs::Stateless),
        (
            plain("ping"),
            vec![session, version_of("2026-07-28")],
            Belongs::Stateless,
        ),
        (
            plain("ping"),
            vec![session, version_of("2027-01-01")],
            Belongs::Stateless,
        ),
        (initialize(), vec![], Belongs::Opens),
        (initialize(), vec![version_of("2025-06-18")], Belongs::Opens),
        (initialize(), vec![session], Belongs::Opens),
        (plain("ping"), vec![session], Belongs::Session),
        (
            plain("ping"),
            vec![session, version_of("2025-11-25")],
            Belongs::Session,
        ),
        (
            plain("ping"),
            vec![session, version_of("1999-01-01")],
            Belongs::Session,
        ),
        (notice.clone(), vec![session], Belongs::Session),
        (response.clone(), vec![session], Belongs::Session),
        (
            plain("ping"),
            vec![version_of("2025-11-25")],
            Belongs::SessionMissing,
        ),
        (
            plain("ping"),
            vec![version_of("2024-11-05")],
            Belongs::SessionMissing,
        ),
        (notice, vec![version_of("2025-03-26")], Belongs::SessionMissing),
        (response, vec![version_of("2025-03-26")], Belongs::SessionMissing),
        (plain("tools/list"), vec![], Belongs::Stateless),
        (
            plain("tools/list"),
            vec![version_of("1999-01-01")],
            Belongs::Stateless,
        ),
    ] {
        let found = edge::of(Some(&headers(&pairs)), &read(&value), None);
        assert_eq!(found, expect, "{value} with {pairs:?}");
    }
}

#[test]
fn on_a_pipe_each_frame_says_it_or_follows_initialize() {
    let open = peer(Version::LATEST);
    let modern = read(&frame("tools/list", json!({ "_meta": meta() })));
    let plain = read(&frame("tools/list", json!({})));
    for (frame, peer, expect) in [
        (&modern, None, Belongs::Stateless),
        (&modern, Some(&open), Belongs::Stateless),
        (&plain, None, Belongs::Stateless),
        (&plain, Some(&open), Belongs::Session),
        (&read(&initialize()), None, Belongs::Opens),
        (&read(&initialize()), Some(&open), Belongs::Session),
    ] {
        assert_eq!(edge::of(None, frame, peer), expect, "{frame:?}");
    }
}

#[test]
fn a_frame_is_read_and_answered_on_its_own_edge() {
    let open = peer(Version::V2025_06_18);
    let session = headers(&[("Mcp-Session-Id", "s"), version_of("2025-06-18")]);
    let ping = read(&frame("ping", json!({})));
    let belongs = edge::of(Some(&session), &ping, None);
    assert_eq!(belongs.edge(Some(&open)), Edge::Session(Version::V2025_06_18));
    let received = offer(|offer| edge::receive(Some(&session), ping, belongs, Some(&open), offer));
    let Ok(Received::Message(Message::Request(incoming))) = received else {
        panic!("{received:?}")
    };
    assert_eq!(incoming.request, Request::Ping);

    let modern = read(&frame("tools/list", json!({ "_meta": meta() })));
    let received = offer(|offer| edge::receive(None, modern, Belongs::Stateless, None, offer));
    assert!(
        matches!(received, Ok(Received::Message(Message::Request(_)))),
        "{received:?}"
    );

    let received = offer(|offer| edge::receive(None, read(&initialize()), Belongs::Opens, None, offer));
    let Ok(Received::Open(opening)) = received else {
        panic!("{received:?}")
    };
    assert_eq!(opening.peer.version, Version::LATEST);
    let shown: Value = serde_json::from_slice(&edge::opened(&everything(), &opening)).expect("JSON");
    assert_is(Official::Sessions, "InitializeResult", &shown["result"]);
    assert_eq!(shown["id"], 7);

    let list = &Reply::Ack;
    let id = RequestId::Integer(7);
    let modern: Value = serde_json::from_slice(&Edge::Stateless.render(list, &id)).expect("JSON");
    let session: Value =
        serde_json::from_slice(&Edge::Session(Version::LATEST).render(list, &id)).expect("JSON");
    assert_eq!(modern["result"]["resultType"], "complete");
    assert_eq!(session["result"], json!({}));
}

#[test]
fn a_message_beside_replies_takes_the_shape_of_its_edge() {
    let shown = |edge: Edge| -> Value {
        serde_json::from_slice(&edge.push(&Push::ToolsChanged, &RequestId::Integer(41))).expect("JSON")
    };
    let stateless = shown(Edge::Stateless);
    let session = shown(Edge::Session(Version::LATEST));
    assert_is(Official::Core, "ToolListChangedNotification", &stateless);
    assert_is(Official::Sessions, "ToolListChangedNotification", &session);
    let tag = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(stateless["params"]["_meta"][tag], 41);
    assert_eq!(session["params"], json!({}));
}

/// A-25.
#[test]
fn a_frame_of_no_session_is_refused_with_400() {
    let versioned = headers(&[version_of("2025-11-25")]);
    let named = headers(&[("Mcp-Session-Id", "s")]);
    for (headers, value) in [
        (&versioned, frame("tools/list", json!({}))),
        (&named, frame("tools/list", json!({}))),
    ] {
        let frame = read(&value);
        let belongs = edge::of(Some(headers), &frame, None);
        let received = offer(|offer| edge::receive(Some(headers), frame, belongs, None, offer));
        let malformed = received.expect_err("refused");
        assert_eq!(malformed.rule, Rule::SessionMissing);
        assert_eq!(malformed.id, Some(RequestId::Integer(7)));
        assert_eq!(belongs.edge(None).malformed_status(&malformed), 400);
    }
}

/// A-27.
#[test]
fn a_session_refuses_a_version_header_that_names_no_version_of_sessions() {
    for good in Version::ALL.map(Version::as_str) {
        assert_eq!(edge::check_version_header(&headers(&[version_of(good)])), Ok(()));
    }
    assert_eq!(edge::check_version_header(&headers(&[])), Ok(()));
    let twice = headers(&[version_of("2025-11-25"), version_of("2025-11-25")]);
    let wrong = ["", "2025-11-26", "2026-07-28", "x", "\u{e9}"].map(|text| headers(&[version_of(text)]));
    for bad in wrong.iter().chain([&twice]) {
        assert_eq!(
            edge::check_version_header(bad),
            Err(Rule::SessionVersion),
            "{bad:?}"
        );
    }
    let open = peer(Version::LATEST);
    for value in [
        frame("ping", json!({})),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
    ] {
        let frame = read(&value);
        let id = frame.id().cloned();
        let headers = headers(&[("Mcp-Session-Id", "s"), version_of("1999-01-01")]);
        let belongs = edge::of(Some(&headers), &frame, None);
        let received = offer(|offer| edge::receive(Some(&headers), frame, belongs, Some(&open), offer));
        let malformed = received.expect_err("refused");
        assert_eq!((&malformed.rule, &malformed.id), (&Rule::SessionVersion, &id));
        assert_eq!(belongs.edge(Some(&open)).malformed_status(&malformed), 400);
    }
}

/// A-25: 404 says that the session is over, so nothing else does.
#[test]
fn in_a_session_no_error_but_a_refusal_has_a_status_of_its_own() {
    let refused = |code| {
        Reply::Error(RpcError::refused(
            code,
            "no",
            Refusal {
                reason: "r".into(),
                who: Who::Wait,
                retry_after_ms: None,
            },
        ))
    };
    let upstream = Reply::Error(RpcError::internal("upstream_unasked_task", "m"));
    let method = Reply::Error(RpcError::method_not_found("x"));
    let request = Reply::Error(RpcError::invalid_request("x"));
    for (reply, stateless, session) in [
        (&refused(RefusalCode::OverLimit), 429, 429),
        (&refused(RefusalCode::Loop), 429, 429),
        (&refused(RefusalCode::StoreUnavailable), 503, 503),
        (&refused(RefusalCode::Draining), 503, 503),
        (&refused(RefusalCode::NotAllowed), 200, 200),
        (&upstream, 502, 502),
        (&method, 404, 200),
        (&request, 400, 200),
        (&Reply::Ack, 200, 200),
    ] {
        assert_eq!(Edge::Stateless.status(reply), stateless, "{reply:?}");
        assert_eq!(Edge::Session(Version::LATEST).status(reply), session, "{reply:?}");
    }
    let malformed = Malformed {
        id: Some(RequestId::Integer(1)),
        rule: Rule::method_not_found("x"),
    };
    assert_eq!(Edge::Stateless.malformed_status(&malformed), 404);
    assert_eq!(Edge::Session(Version::LATEST).malformed_status(&malformed), 200);
}

/// A-1.
#[test]
fn an_error_reads_the_same_on_every_edge() {
    let malformed = Malformed {
        id: Some(RequestId::Text("a".to_owned())),
        rule: Rule::Batch,
    };
    let stateless = Edge::Stateless.malformed(&malformed);
    assert_eq!(stateless, Edge::Session(Version::LATEST).malformed(&malformed));
    let shown: Value = serde_json::from_slice(&stateless).expect("JSON");
    for official in [Official::Core, Official::Sessions] {
        assert_is(official, "JSONRPCErrorResponse", &shown);
    }
    assert_eq!(
        (&shown["id"], &shown["error"]["code"]),
        (&json!("a"), &json!(-32600))
    );
    let anonymous: Value =
        serde_json::from_slice(&edge::error(&RpcError::invalid_request("m"), None)).expect("JSON");
    assert_eq!(anonymous.get("id"), None);
}
