//! Resources of a server behind the gateway that are subscribed to, and what else of its requests is told meanwhile.

use std::time::Duration;

use futures_util::future::join_all;
use longhaul_gateway::{
    dispatch::{SessionLimits, Settings},
    updates::Limits,
};
use serde_json::{Value, json};

use crate::{
    behind::{named, seen, world, world_with},
    session_client::{Events, SessionClient, initialize},
    support::{Client, Frames, World, site::said},
};

const SHARED: &str = "isolation = \"shared\"\n";
const UPDATED: &str = "notifications/resources/updated";

async fn subscribe(session: &SessionClient<'_>, uri: &str) -> Value {
    session
        .request("resources/subscribe", json!({ "uri": uri }))
        .await
}

/// A stream of the stateless generation, and what its first message says that it tells of.
async fn listen(world: &World, uris: &[&str]) -> (Frames, Value) {
    let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
    let client = Client::without_tasks();
    let mut frames = world.stream(&client, "subscriptions/listen", filter).await;
    let first = frames.next().await.expect("a first message");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let honoured = first["params"]["notifications"]["resourceSubscriptions"].clone();
    (frames, honoured)
}

async fn touch(world: &World, uri: &str) {
    let touched = world
        .call(&Client::without_tasks(), "touch", json!({ "uri": uri }))
        .await;
    assert_eq!(said(touched.result()), "touched");
}

async fn updated(events: &mut Events) -> String {
    let event = events.until(UPDATED).await;
    event.data["params"]["uri"].as_str().expect("a URI").to_owned()
}

async fn next_updated(frames: &mut Frames) -> String {
    let frame = frames.next().await.expect("a message");
    assert_eq!(frame["method"], UPDATED, "{frame}");
    assert_eq!(
        frame["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1,
        "{frame}"
    );
    frame["params"]["uri"].as_str().expect("a URI").to_owned()
}

#[tokio::test]
async fn a_resource_that_changes_is_told_between_every_two_generations() {
    for era in ["2025", "2026"] {
        let world = world(era, SHARED).await;
        let session = SessionClient::open(&world).await;
        assert_eq!(
            session.initialized["capabilities"]["resources"]["subscribe"],
            true
        );
        let mut events = session.listen(None).await;
        let reply = subscribe(&session, "fixture://one").await;
        assert_eq!(reply["result"], json!({}), "{reply}");
        assert_eq!(updated(&mut events).await, "fixture://one");
        let (mut frames, honoured) = listen(&world, &["fixture://one"]).await;
        assert_eq!(honoured, json!(["fixture://one"]));
        touch(&world, "fixture://one").await;
        assert_eq!(updated(&mut events).await, "fixture://one");
        assert_eq!(next_updated(&mut frames).await, "fixture://one");
        // A part of it.
        touch(&world, "fixture://one/part").await;
        assert_eq!(updated(&mut events).await, "fixture://one/part");
        assert_eq!(next_updated(&mut frames).await, "fixture://one/part");
    }
}

#[tokio::test]
async fn a_change_reaches_only_those_who_subscribed() {
    for era in ["2025", "2026"] {
        let world = world(era, SHARED).await;
        let (ada, bob) = SessionClient::two(&world).await;
        let (mut of_ada, mut of_bob) = (ada.listen(None).await, bob.listen(None).await);
        subscribe(&ada, "fixture://one").await;
        subscribe(&bob, "fixture://two").await;
        assert_eq!(updated(&mut of_ada).await, "fixture://one");
        assert_eq!(updated(&mut of_bob).await, "fixture://two");
        touch(&world, "fixture://one").await;
        touch(&world, "fixture://oneself").await;
        touch(&world, "fixture://two").await;
        assert_eq!(updated(&mut of_bob).await, "fixture://two");
        assert_eq!(updated(&mut of_ada).await, "fixture://one");
        touch(&world, "fixture://one/last").await;
        assert_eq!(updated(&mut of_ada).await, "fixture://one/last");
    }
}

#[tokio::test]
async fn the_server_is_asked_once_for_all_who_share_its_connection_and_told_when_the_last_leaves() {
    for era in ["2025", "2026"] {
        let world = world(era, SHARED).await;
        let session = SessionClient::open(&world).await;
        let reply = subscribe(&session, "fixture://one").await;
        assert!(reply["error"].is_null(), "{reply}");
        // The fixture refuses a second subscription in a session.
        let (frames, honoured) = listen(&world, &["fixture://one", "fixture://one"]).await;
        assert_eq!(honoured, json!(["fixture://one"]));
        seen(&world, |seen| seen["subscribed"] == json!(["fixture://one"])).await;
        let ended = session
            .request("resources/unsubscribe", json!({ "uri": "fixture://one" }))
            .await;
        assert_eq!(ended["result"], json!({}), "{ended}");
        seen(&world, |seen| seen["subscribed"] == json!(["fixture://one"])).await;
        drop(frames);
        seen(&world, |seen| seen["subscribed"] == json!([])).await;
    }
}

#[tokio::test]
async fn a_subscription_is_made_again_when_the_server_comes_back_and_its_client_is_told() {
    for era in ["2025", "2026"] {
        let world = world(era, SHARED).await;
        let session = SessionClient::open(&world).await;
        let mut events = session.listen(None).await;
        subscribe(&session, "fixture://one").await;
        assert_eq!(updated(&mut events).await, "fixture://one");
        world.fleet.restart("fixture").await.expect("it is configured");
        // Something may have changed meanwhile.
        assert_eq!(updated(&mut events).await, "fixture://one");
        seen(&world, |seen| seen["subscribed"] == json!(["fixture://one"])).await;
        touch(&world, "fixture://one/again").await;
        loop {
            // The fixture tells of a resource when it is subscribed to.
            if updated(&mut events).await == "fixture://one/again" {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_session_subscribes_in_its_own_process_which_lives_as_long_as_the_subscription() {
    let world = world("2025", "idle_stop = \"1s\"\n").await;
    let session = SessionClient::open(&world).await;
    let mut events = session.listen(None).await;
    subscribe(&session, "fixture://one").await;
    assert_eq!(updated(&mut events).await, "fixture://one");
    let server = world.fleet.server("fixture").expect("it is configured");
    let pid = server.live()[0].pid;
    // Another owner's process, or session's, says nothing to this one.
    touch(&world, "fixture://one").await;
    tokio::time::timeout(Duration::from_secs(20), server.at_most(1))
        .await
        .expect("an idle process ends");
    session.call("touch", json!({ "uri": "fixture://one/own" })).await;
    assert_eq!(updated(&mut events).await, "fixture://one/own");
    assert_eq!(server.live()[0].pid, pid);
    assert_eq!(session.end().await, 204);
    tokio::time::timeout(Duration::from_secs(20), server.at_most(0))
        .await
        .expect("the process of a session that ended goes");
}

#[tokio::test]
async fn a_resource_that_its_server_does_not_tell_of_is_refused() {
    for era in ["2025", "2026"] {
        let world = world(era, SHARED).await;
        let session = SessionClient::open(&world).await;
        let reply = subscribe(&session, "fixture://nothing").await;
        assert_eq!(reply["error"]["code"], -32602, "{reply}");
        let long = format!("fixture://{}", "x".repeat(3_000));
        let reply = subscribe(&session, &long).await;
        assert_eq!(reply["error"]["code"], -32602, "{reply}");
        let (_frames, honoured) = listen(&world, &["fixture://nothing", "fixture://one"]).await;
        assert_eq!(honoured, json!(["fixture://one"]));
    }
}

#[tokio::test]
async fn a_refused_subscription_ends_with_the_server_s_own_error() {
    for era in ["2025", "2026"] {
        let world = world(era, SHARED).await;
        let session = SessionClient::open(&world).await;
        for _ in 0..20 {
            let reply = subscribe(&session, "fixture://refused").await;
            assert_eq!(reply["error"]["code"], -32050, "{reply}");
        }
    }
}

/// Two servers in sessions that all share, each of its own kind.
async fn two(first: &str, second: &str) -> World {
    let config = [named("first", first, SHARED), named("second", second, SHARED)].concat();
    World::ready_behind(&config, Settings::default()).await
}

#[tokio::test]
async fn the_server_that_lists_a_resource_has_the_last_word() {
    let world = two("2025 --refuses=fixture://mine", "2025").await;
    let session = SessionClient::open(&world).await;
    let reply = subscribe(&session, "fixture://mine").await;
    assert_eq!(reply["error"]["code"], -32050, "{reply}");
}

#[tokio::test]
async fn a_resource_that_nobody_lists_is_subscribed_to_at_the_server_that_gives_it() {
    let world = two("2025 --unread", "2025").await;
    let session = SessionClient::open(&world).await;
    let reply = subscribe(&session, "fixture://two").await;
    assert_eq!(reply["result"], json!({}), "{reply}");
    for (tool, subscribed) in [
        ("first__seen", json!([])),
        ("second__seen", json!(["fixture://two"])),
    ] {
        let seen = world.call(&Client::without_tasks(), tool, json!({})).await;
        let seen: Value = serde_json::from_str(said(seen.result())).expect("JSON");
        assert_eq!(seen["subscribed"], subscribed, "{tool}");
    }
}

#[tokio::test]
async fn a_silent_server_keeps_no_stream_from_opening() {
    let world = two("2025 --secretive", "2025 --secretive").await;
    let filter = json!({ "notifications": { "resourceSubscriptions": ["fixture://one", "fixture://two"] } });
    let client = Client::without_tasks();
    let stream = world.stream(&client, "subscriptions/listen", filter);
    tokio::time::timeout(Duration::from_secs(5), stream)
        .await
        .expect("the reply begins");
}

#[tokio::test]
async fn a_server_with_a_process_for_each_call_takes_no_subscription() {
    let world = world("2025", "isolation = \"call\"\n").await;
    let session = SessionClient::open(&world).await;
    let reply = subscribe(&session, "fixture://one").await;
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
    let message = reply["error"]["message"].as_str().expect("a text");
    assert!(message.contains("isolation"), "{message}");
}

async fn limited(subscriptions: Limits) -> World {
    let settings = Settings {
        subscriptions,
        ..Settings::default()
    };
    world_with("2025", SHARED, settings).await
}

#[tokio::test]
async fn subscriptions_that_begin_at_once_are_no_more_than_the_limit() {
    let world = limited(Limits {
        each_max: 2,
        owner_max: 3,
        ..Limits::default()
    })
    .await;
    let (ada, bob) = SessionClient::two(&world).await;
    let uris: Vec<String> = (0..6).map(|part| format!("fixture://{part}")).collect();
    let stand = async |session: &SessionClient<'_>| {
        let replies = join_all(uris.iter().map(|uri| subscribe(session, uri))).await;
        replies.iter().filter(|reply| reply["error"].is_null()).count()
    };
    assert_eq!(stand(&ada).await, 2);
    // The rest of what its owner may have.
    assert_eq!(stand(&bob).await, 1);
}

#[tokio::test]
async fn a_change_that_a_dead_stream_took_is_told_by_the_next() {
    let world = world("2025", SHARED).await;
    let session = SessionClient::open(&world).await;
    let mut events = session.listen(None).await;
    subscribe(&session, "fixture://one").await;
    assert_eq!(updated(&mut events).await, "fixture://one");
    // Nobody takes these from the stream.
    for part in ["fixture://one/1", "fixture://one/2", "fixture://one/3"] {
        touch(&world, part).await;
    }
    drop(events);
    let mut events = session.listen(None).await;
    let mut told = Vec::new();
    while told.len() < 3 {
        told.push(updated(&mut events).await);
    }
    told.sort();
    assert_eq!(told, ["fixture://one/1", "fixture://one/2", "fixture://one/3"]);
}

#[tokio::test]
async fn subscriptions_have_a_limit_in_a_session_and_in_all() {
    let world = limited(Limits {
        each_max: 2,
        total_max: 3,
        ..Limits::default()
    })
    .await;
    let (ada, bob) = SessionClient::two(&world).await;
    for uri in ["fixture://one", "fixture://two"] {
        let reply = subscribe(&ada, uri).await;
        assert!(reply["error"].is_null(), "{reply}");
    }
    let third = subscribe(&ada, "fixture://three").await;
    assert_eq!(third["error"]["data"]["reason"], "subscription_limit", "{third}");
    // What stands is not counted again.
    assert!(subscribe(&ada, "fixture://one").await["error"].is_null());
    assert!(subscribe(&bob, "fixture://one").await["error"].is_null());
    let fourth = subscribe(&bob, "fixture://two").await;
    assert_eq!(
        fourth["error"]["data"]["reason"], "subscription_limit",
        "{fourth}"
    );
    let (_frames, honoured) = listen(&world, &["fixture://one"]).await;
    assert!(honoured.is_null(), "{honoured}");
}

#[tokio::test]
async fn a_session_that_was_forgotten_is_told_again_once_its_client_reads_its_stream() {
    let settings = Settings {
        sessions: SessionLimits {
            sessions_max: 1,
            idle: Duration::from_secs(300),
        },
        ..Settings::default()
    };
    let world = world_with("2025", SHARED, settings).await;
    let ada = SessionClient::open(&world).await;
    subscribe(&ada, "fixture://one").await;
    seen(&world, |seen| seen["subscribed"] == json!(["fixture://one"])).await;
    let bob = SessionClient::open(&world).await;
    bob.request("ping", json!({})).await;
    seen(&world, |seen| seen["subscribed"] == json!([])).await;
    // Nobody reads its stream yet; another subscription does not make it wait longer for one.
    subscribe(&ada, "fixture://two").await;
    let mut events = ada.listen(None).await;
    let mut told = [updated(&mut events).await, updated(&mut events).await];
    told.sort();
    assert_eq!(told, ["fixture://one", "fixture://two"]);
    ada.request("resources/unsubscribe", json!({ "uri": "fixture://two" }))
        .await;
    seen(&world, |seen| seen["subscribed"] == json!(["fixture://one"])).await;
    // It can be ended, and stays ended.
    ada.request("resources/unsubscribe", json!({ "uri": "fixture://one" }))
        .await;
    seen(&world, |seen| seen["subscribed"] == json!([])).await;
}

#[tokio::test]
async fn a_session_without_a_reader_lets_its_subscriptions_rest() {
    let settings = Settings {
        sessions: SessionLimits {
            sessions_max: 100,
            idle: Duration::from_millis(50),
        },
        ..Settings::default()
    };
    let world = world_with("2025", SHARED, settings).await;
    let session = SessionClient::open(&world).await;
    let events = session.listen(None).await;
    subscribe(&session, "fixture://one").await;
    drop(events);
    seen(&world, |seen| seen["subscribed"] == json!([])).await;
    let mut events = session.listen(None).await;
    assert_eq!(updated(&mut events).await, "fixture://one");
    seen(&world, |seen| seen["subscribed"] == json!(["fixture://one"])).await;
}

#[tokio::test]
async fn a_request_without_a_stream_is_cancelled_at_its_server() {
    let more = format!("{SHARED}request_timeout = \"5m\"\n");
    let world = world("2025 --secretive", &more).await;
    // One that cannot be asked anything meanwhile.
    let mut hello = initialize("2025-11-25");
    hello["capabilities"] = json!({});
    let session = SessionClient::open_with(&world, hello).await;
    let read = json!({ "jsonrpc": "2.0", "id": 31, "method": "resources/read", "params": { "uri": "fixture://one" } });
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 31 } });
    let reading = session.post(&read);
    let cancelling = async {
        seen(&world, |seen| seen["reads"] == 1).await;
        assert_eq!(session.post(&cancelled).await.status, 202);
        seen(&world, |seen| {
            seen["cancelled"]
                .as_array()
                .is_some_and(|cancelled| cancelled.len() == 1)
        })
        .await;
    };
    let (got, ()) = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::join!(reading, cancelling)
    })
    .await
    .expect("nobody waits any more");
    assert_eq!(got.status, 202);
}

#[tokio::test]
async fn requests_that_are_passed_on_have_places_as_calls_have() {
    let settings = Settings {
        held_max: 1,
        ..Settings::default()
    };
    let more = format!("{SHARED}request_timeout = \"5m\"\n");
    let world = world_with("2025 --secretive", &more, settings).await;
    let session = SessionClient::open(&world).await;
    let read = async |id: u64| {
        let read = json!({ "jsonrpc": "2.0", "id": id, "method": "resources/read", "params": { "uri": "fixture://one" } });
        session.post(&read).await.body
    };
    // The server is silent: only one of them is answered.
    let refused = async {
        tokio::select! {
            refused = read(1) => refused,
            refused = read(2) => refused,
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(20), refused).await;
    let refused = refused.expect("in time");
    assert_eq!(refused["error"]["data"]["reason"], "held_limit", "{refused}");
}

#[tokio::test]
async fn progress_of_a_request_that_is_no_call_is_told_under_the_client_s_token() {
    let of = |method: &str| match method {
        "resources/read" => json!({ "uri": "fixture://one", "_meta": { "progressToken": "p" } }),
        _ => json!({ "ref": { "type": "ref/resource", "uri": "fixture://one" },
            "argument": { "name": "a", "value": "o" }, "_meta": { "progressToken": "p" } }),
    };
    for era in ["2025", "2026"] {
        let world = world(era, "").await;
        let session = SessionClient::open(&world).await;
        for method in ["resources/read", "completion/complete"] {
            let mut frames = world.stream(&Client::without_tasks(), method, of(method)).await;
            let mut events = session.stream(31, method, of(method)).await;
            for step in [1, 2] {
                let frame = frames.next().await.expect("progress");
                let event = events.data().await;
                for told in [frame, event] {
                    assert_eq!(told["method"], "notifications/progress", "{told}");
                    assert_eq!(told["params"]["progressToken"], "p");
                    assert_eq!(told["params"]["progress"], step);
                }
            }
            let reply = frames.next().await.expect("a reply");
            assert_eq!(reply["result"]["resultType"], "complete", "{reply}");
            let reply = events.data().await;
            assert!(reply["result"].is_object(), "{reply}");
        }
    }
}
