//! What passes between a server behind the gateway and its clients besides calls: which log messages are wanted, that a
//! list changed, for how long something may be kept, and what a client did not declare.

use std::time::Duration;

use longhaul_gateway::dispatch::Settings;
use serde_json::{Value, json};

use crate::{
    behind::{named, world},
    session_client::SessionClient,
    support::{Client, World, site::said},
};

const SHARED: &str = "isolation = \"shared\"\n";

/// The levels that the server was told, as this session's process of it says.
async fn levels(session: &SessionClient<'_>) -> Value {
    let seen = session.call("seen", json!({})).await;
    let seen: Value = serde_json::from_str(said(&seen["result"])).expect("JSON");
    seen["levels"].clone()
}

async fn set_level(session: &SessionClient<'_>, level: &str) {
    let set = session
        .request("logging/setLevel", json!({ "level": level }))
        .await;
    assert_eq!(set["result"], json!({}), "{set}");
}

/// How many log messages a session hears of a call that sends one of the level `info`.
async fn heard(session: &SessionClient<'_>) -> usize {
    let params = json!({ "name": "log", "arguments": {}, "_meta": { "progressToken": 1 } });
    let mut events = session.stream(21, "tools/call", params).await;
    let mut heard = 0;
    loop {
        let told = events.data().await;
        if told.get("result").is_some() {
            return heard;
        }
        heard += usize::from(told["method"] == "notifications/message");
    }
}

#[tokio::test]
async fn the_server_of_a_session_is_told_the_level_that_its_client_wants() {
    let world = world("2025", "").await;
    let (ada, bob) = SessionClient::two(&world).await;
    // Who said nothing changes nothing.
    assert_eq!(levels(&ada).await, json!([]));
    set_level(&ada, "debug").await;
    assert_eq!(heard(&ada).await, 1);
    assert_eq!(levels(&ada).await, json!(["debug"]));
    assert_eq!(levels(&bob).await, json!([]));
    set_level(&ada, "error").await;
    let told = async {
        while levels(&ada).await != json!(["debug", "error"]) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told)
        .await
        .expect("its process is told at once");
    assert_eq!(heard(&ada).await, 0);
}

#[tokio::test]
async fn a_shared_server_sends_what_any_client_wants_and_each_hears_its_own() {
    let world = world("2025", SHARED).await;
    let (ada, bob) = SessionClient::two(&world).await;
    set_level(&ada, "error").await;
    assert_eq!(levels(&ada).await, json!(["error"]));
    set_level(&bob, "debug").await;
    assert_eq!(levels(&bob).await, json!(["error", "debug"]));
    assert_eq!(levels(&ada).await, json!(["error", "debug"]));
    assert_eq!((heard(&ada).await, heard(&bob).await), (0, 1));
}

#[tokio::test]
async fn a_request_says_its_level_to_servers_of_both_generations() {
    let leveled = |tool: &str| {
        json!({ "name": tool, "arguments": {},
        "_meta": { "io.modelcontextprotocol/logLevel": "debug" } })
    };
    let older = world("2025", "").await;
    let seen = older
        .rpc(&Client::without_tasks(), "tools/call", leveled("seen"))
        .await;
    let seen: Value = serde_json::from_str(said(seen.result())).expect("JSON");
    assert_eq!(seen["levels"], json!(["debug"]));
    let newer = world("2026", "").await;
    let params = newer
        .rpc(&Client::without_tasks(), "tools/call", leveled("params"))
        .await;
    let params: Value = serde_json::from_str(said(params.result())).expect("JSON");
    assert_eq!(params["_meta"]["io.modelcontextprotocol/logLevel"], "debug");
    let session = SessionClient::open(&newer).await;
    set_level(&session, "info").await;
    assert_eq!(heard(&session).await, 1);
}

#[tokio::test]
async fn a_log_message_of_no_call_reaches_the_session_whose_process_it_is() {
    let world = world("2025", "").await;
    let (ada, bob) = SessionClient::two(&world).await;
    let (mut of_ada, mut of_bob) = (ada.listen(None).await, bob.listen(None).await);
    let later = async |session: &SessionClient<'_>, level: &str| {
        session.call("log_later", json!({ "level": level })).await
    };
    // Not grave enough for who said nothing.
    later(&ada, "info").await;
    later(&ada, "error").await;
    let told = of_ada.until("notifications/message").await;
    assert_eq!(told.data["params"], json!({ "level": "error", "data": "later" }));
    later(&bob, "critical").await;
    let told = of_bob.until("notifications/message").await;
    assert_eq!(told.data["params"]["level"], "critical");
}

#[tokio::test]
async fn a_server_without_log_messages_is_told_no_level() {
    let world = world("2025 --no-logging", "").await;
    let session = SessionClient::open(&world).await;
    set_level(&session, "debug").await;
    assert_eq!(levels(&session).await, json!([]));
}

#[tokio::test]
async fn a_list_that_the_server_says_changed_is_told_even_where_nothing_is_seen_of_it() {
    for era in ["2025", "2026"] {
        let world = world(era, SHARED).await;
        let session = SessionClient::open(&world).await;
        let mut events = session.listen(None).await;
        let filter = json!({ "notifications": { "toolsListChanged": true } });
        let mut frames = world
            .stream(&Client::without_tasks(), "subscriptions/listen", filter)
            .await;
        frames.next().await.expect("an acknowledgement");
        world
            .call(&Client::without_tasks(), "change_nothing", json!({}))
            .await
            .result();
        let changed = "notifications/tools/list_changed";
        assert_eq!(frames.next().await.expect("a change")["method"], changed);
        events.until(changed).await;
    }
}

#[tokio::test]
async fn a_list_may_be_kept_for_as_long_as_each_of_its_servers_says() {
    let plain = named("plain", "2025", "");
    let newer = named("newer", "2026 --ages", "");
    let both = World::ready_behind(&format!("{plain}{newer}"), Settings::default()).await;
    let client = Client::without_tasks();
    for method in ["tools/list", "prompts/list", "resources/list"] {
        let listed = both.rpc(&client, method, json!({})).await;
        assert_eq!(listed.result()["ttlMs"], 5_000, "{method}");
        // B-52: it depends on who asks.
        assert_eq!(listed.result()["cacheScope"], "private");
    }
    let alone = world("2026 --ages", "").await;
    let read = alone
        .rpc(&client, "resources/read", json!({ "uri": "fixture://one" }))
        .await;
    assert_eq!(read.result()["ttlMs"], 5_000);
    assert_eq!(read.result()["cacheScope"], "public");
    // Of an older server nobody knows.
    let older = world("2025", "").await;
    let read = older
        .rpc(&client, "resources/read", json!({ "uri": "fixture://one" }))
        .await;
    assert_eq!(read.result()["ttlMs"], 0);
}

#[tokio::test]
async fn a_client_is_told_to_declare_what_the_server_needs_and_only_that() {
    let world = world("2026", "questions = [\"form\", \"sampling\"]\n").await;
    let client = Client::without_tasks();
    let lacks = |needs: Value| json!({ "name": "lacks", "arguments": { "needs": needs } });
    let refused = world
        .rpc(&client, "tools/call", lacks(json!({ "sampling": {} })))
        .await;
    assert_eq!(
        (refused.status, refused.code()),
        (400, -32021),
        "{}",
        refused.body
    );
    let data = &refused.body["error"]["data"];
    assert_eq!(data["requiredCapabilities"], json!({ "sampling": {} }));
    // The client declared it, or nothing that it declares would help.
    for needs in [
        json!({ "elicitation": {} }),
        json!({ "extensions": { "com.example/x": {} } }),
    ] {
        let failed = world.rpc(&client, "tools/call", lacks(needs)).await;
        assert_eq!(failed.code(), -32603, "{}", failed.body);
        assert_eq!(failed.body["error"]["data"]["reason"], "upstream_refused");
    }
    // In a session it has no such code.
    let session = SessionClient::open(&world).await;
    let failed = session
        .request("tools/call", lacks(json!({ "sampling": {} })))
        .await;
    assert_eq!(failed["error"]["code"], -32603, "{failed}");
}
