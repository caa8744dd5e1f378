//! Which process of a server serves whom.

use std::{sync::Arc, time::Duration};

use longhaul_gateway::{
    stdio::{self, Stdio},
    upstream::server::State,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{until_told, world};
use crate::{
    session_client::SessionClient,
    support::{Client, site::said},
};

#[tokio::test]
async fn each_session_has_a_process_of_its_own() {
    let world = world("2025", "").await;
    let (ada, bob) = SessionClient::two(&world).await;
    let pid = async |session: &SessionClient<'_>| {
        let reply = session.call("pid", json!({})).await;
        said(&reply["result"]).to_owned()
    };
    let (first, second) = (pid(&ada).await, pid(&bob).await);
    assert_ne!(first, second);
    assert_eq!(first, pid(&ada).await);
    let of_run = |run: &'static str| {
        let world = &world;
        async move {
            let params = json!({ "name": "pid", "arguments": {}, "_meta": { "dev.longhaul/session": run } });
            let reply = world.rpc(&Client::without_tasks(), "tools/call", params).await;
            said(reply.result()).to_owned()
        }
    };
    let (run, other) = (of_run("a").await, of_run("b").await);
    assert!(run != other && run != first && other != second);
    assert_eq!(run, of_run("a").await);
}

#[tokio::test]
async fn each_pipe_has_a_process_of_its_own_where_its_client_has_no_session() {
    let world = world("2025", "").await;
    let pid = |key: u128| {
        let stdio = Stdio::new(
            world.dispatch.clone(),
            Arc::clone(&world.catalog),
            stdio::Limits::default(),
        );
        async move {
            let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
                "name": "pid", "arguments": {}, "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            } });
            let (client, server) = tokio::io::duplex(64 * 1024);
            let (reader, writer) = tokio::io::split(server);
            let peer = stdio::Peer::Pipe {
                hold: None,
                key: Some(key),
            };
            let last = Duration::from_secs(1);
            tokio::spawn(async move {
                stdio
                    .serve(reader, writer, peer, std::future::pending(), last)
                    .await
            });
            let mut client = BufReader::new(client);
            let line = format!("{request}\n");
            client.write_all(line.as_bytes()).await.expect("it is read");
            let mut reply = String::new();
            client.read_line(&mut reply).await.expect("a line");
            let reply: Value = serde_json::from_str(&reply).expect("JSON");
            said(&reply["result"]).to_owned()
        }
    };
    let (first, second) = (pid(1).await, pid(2).await);
    assert_ne!(first, second);
    assert_eq!(first, pid(1).await);
}

#[tokio::test]
async fn an_equal_call_of_another_session_is_not_answered_by_the_first_one_s_process() {
    let world = world("2025", "").await;
    let (ada, bob) = SessionClient::two(&world).await;
    let params = json!({ "name": "hang", "arguments": {} });
    // Both leave.
    drop(ada.stream(11, "tools/call", params.clone()).await);
    drop(bob.stream(12, "tools/call", params).await);
    for session in [&ada, &bob] {
        // Its own process was called.
        let seen = async || session.call("seen", json!({})).await["result"].clone();
        until_told(seen, |seen| seen["count"] == 1).await;
    }
}

#[tokio::test]
async fn a_result_that_was_read_is_not_given_to_the_next_equal_call() {
    let world = world("2025", "isolation = \"shared\"\n").await;
    for count in 1..=5 {
        // With a progress token the reply comes on a stream; the client closes it with its last frame.
        let params = json!({ "name": "counted", "arguments": {}, "_meta": { "progressToken": 1 } });
        let mut frames = world.stream(&Client::without_tasks(), "tools/call", params).await;
        let reply = loop {
            let frame = frames.next().await.expect("a reply");
            if frame.get("result").is_some() {
                break frame;
            }
        };
        drop(frames);
        assert_eq!(said(&reply["result"]), count.to_string());
    }
}

#[tokio::test]
async fn the_process_of_a_session_that_ended_goes_with_it() {
    let world = world("2025", "").await;
    let session = SessionClient::open(&world).await;
    let reply = session.call("pid", json!({})).await;
    said(&reply["result"]);
    let server = world.fleet.server("fixture").expect("it is configured");
    assert_eq!(server.count(), 1);
    assert_eq!(session.end().await, 204);
    tokio::time::timeout(Duration::from_secs(20), server.at_most(0))
        .await
        .expect("it ends");
}

#[tokio::test]
async fn a_list_starts_no_process() {
    let world = world("2025", "").await;
    let server = world.fleet.server("fixture").expect("it is configured");
    for _ in 0..3 {
        let session = SessionClient::open(&world).await;
        let prompts = session.request("prompts/list", json!({})).await;
        assert_eq!(prompts["result"]["prompts"][0]["name"], "greet");
    }
    assert_eq!(server.count(), 1, "the one that told what there is");
}

#[tokio::test]
async fn a_server_that_is_started_anew_is_another_process() {
    let world = world("2025", "isolation = \"shared\"\n").await;
    let first = world.call(&Client::without_tasks(), "pid", json!({})).await;
    let restarted = tokio::time::timeout(Duration::from_secs(30), world.fleet.restart("fixture"));
    let server = restarted.await.expect("it waits no longer than it must");
    let server = &server.expect("it is configured").server;
    assert_eq!(server.as_ref().expect("it is started").state(), State::Ready);
    let second = world.call(&Client::without_tasks(), "pid", json!({})).await;
    assert_ne!(said(first.result()), said(second.result()));
    assert!(world.fleet.restart("another").await.is_none());
}

#[tokio::test]
async fn no_process_is_started_for_a_resource_that_its_server_cannot_know() {
    let world = world("2025", "").await;
    let server = world.fleet.server("fixture").expect("it is configured");
    for _ in 0..2 {
        let session = SessionClient::open(&world).await;
        let read = session
            .request("resources/read", json!({ "uri": "other:thing" }))
            .await;
        assert_eq!(
            read["error"]["message"], "Resource not found: other:thing",
            "{read}"
        );
    }
    assert_eq!(server.count(), 1, "the one that told what there is");
}
