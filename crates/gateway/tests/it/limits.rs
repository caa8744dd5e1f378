//! What one caller may hold of a server's memory and time.

use longhaul_gateway::dispatch::{SessionLimits, Settings};
use serde_json::json;

use crate::{
    session_client::SessionClient,
    support::{Client, World, post},
};

async fn open_task(world: &World) -> String {
    let made = world.call(&Client::with_tasks(), "waits", json!({})).await;
    made.result()["taskId"].as_str().expect("a task").to_owned()
}

fn looks(poll_burst: u32) -> Settings {
    Settings {
        poll_burst,
        ..Settings::default()
    }
}

// DOS-8
#[tokio::test]
async fn a_task_is_looked_at_a_few_times_in_a_row_and_then_at_four_times_its_hint() {
    let world = World::with(looks(20)).await;
    let (id, other) = (open_task(&world).await, open_task(&world).await);
    let mut last = None;
    for number in 0..40 {
        let got = world.get(&id).await;
        if got.status != 200 {
            last = Some((number, got));
            break;
        }
        assert_eq!(got.result()["pollIntervalMs"], 500);
    }
    let (number, refused) = last.expect("a refusal");
    assert!(number >= 20, "refused at look {number}");
    assert_eq!((refused.status, refused.code()), (429, 7402));
    assert_eq!(refused.body["error"]["data"]["reason"], "poll_limit");
    assert_eq!(refused.body["error"]["data"]["who"], "wait");
    let params = json!({ "taskId": id });
    let response = world
        .respond(post(&Client::with_tasks(), "tasks/get", params.clone()))
        .await;
    assert_eq!(response.headers()["retry-after"], "1");
    // Only looks at this task are.
    assert_eq!(world.get(&other).await.status, 200);
    // There is a look again soon, and it hints to look less often.
    let raised = loop {
        let got = world.get(&id).await;
        if got.status == 200 {
            break got.result()["pollIntervalMs"].as_u64().expect("a hint");
        }
    };
    assert!(raised > 500, "{raised}");
    let cancelled = world.rpc(&Client::with_tasks(), "tasks/cancel", params).await;
    assert_eq!(cancelled.status, 200);
}

// DOS-8
#[tokio::test]
async fn looks_of_a_session_are_limited_as_well() {
    let world = World::with(looks(20)).await;
    let client = SessionClient::open(&world).await;
    let id = client.task("waits").await;
    let mut refused = None;
    for _ in 0..40 {
        let got = client.request("tasks/get", json!({ "taskId": id })).await;
        if got.get("error").is_some() {
            refused = Some(got);
            break;
        }
    }
    let refused = refused.expect("a refusal");
    assert_eq!(refused["error"]["code"], 7402);
    assert_eq!(refused["error"]["data"]["reason"], "poll_limit");
}

// an id of nobody is limited like one's own, so a refusal tells nothing.
#[tokio::test]
async fn ids_of_tasks_that_are_not_there_are_looked_at_no_more_often() {
    let world = World::with(looks(20)).await;
    let elsewhere = World::start().await;
    let id = open_task(&elsewhere).await;
    let mut codes: Vec<i64> = Vec::new();
    for _ in 0..40 {
        codes.push(world.get(&id).await.code());
    }
    assert_eq!((codes[0], codes[39]), (-32602, 7402));
}

#[tokio::test]
async fn what_held_calls_keep_is_limited() {
    let world = World::with(Settings {
        held_bytes_max: 64 * 1024,
        ..Settings::default()
    })
    .await;
    let call = |bytes: usize| {
        let content = json!({ "name": "x".repeat(bytes) });
        json!({
            "name": "asks",
            "arguments": {},
            "inputResponses": { "later": { "action": "accept", "content": content } },
        })
    };
    let client = Client::with_tasks();
    let kept = world.rpc(&client, "tools/call", call(1_000)).await;
    assert_eq!(kept.status, 200);
    let refused = world.rpc(&client, "tools/call", call(70_000)).await;
    assert_eq!((refused.status, refused.code()), (429, 7402));
    assert_eq!(refused.body["error"]["data"]["reason"], "held_limit");
}

#[tokio::test]
async fn calls_of_all_owners_that_wait_are_limited() {
    let world = World::with(Settings {
        held_total_max: 1,
        ..Settings::default()
    })
    .await;
    let client = SessionClient::open(&world).await;
    let id = client.task("waits").await;
    let waits = client.stream(20, "tasks/result", json!({ "taskId": id })).await;
    let refused = client.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(refused["error"]["data"]["reason"], "held_limit");
    drop(waits);
}

// DOS-4
#[tokio::test]
async fn a_session_that_was_forgotten_can_be_used() {
    let world = World::with(Settings {
        sessions: SessionLimits {
            sessions_max: 16,
            ..SessionLimits::default()
        },
        ..Settings::default()
    })
    .await;
    let first = SessionClient::open(&world).await;
    let id = first.task("waits").await;
    for _ in 0..200 {
        let other = SessionClient::open(&world).await;
        assert!(other.request("ping", json!({})).await.get("result").is_some());
    }
    let got = first.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(got["result"]["status"], "working");
}

// DOS-2
#[tokio::test]
async fn deep_nesting_is_refused_as_no_frame() {
    let world = World::start().await;
    for depth in [100_000, 1_900_000] {
        let body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let mut request = post(&Client::with_tasks(), "server/discover", json!({}));
        *request.body_mut() = body.into();
        let (status, reply) = world.send(request).await;
        let reply: serde_json::Value = serde_json::from_slice(&reply).expect("JSON");
        assert_eq!((status, &reply["error"]["code"]), (400, &json!(-32700)));
    }
}

#[tokio::test]
async fn an_id_that_would_be_kept_for_long_is_short() {
    let world = World::start().await;
    let mut request = post(&Client::with_tasks(), "server/discover", json!({}));
    let body = json!({ "jsonrpc": "2.0", "id": "x".repeat(2_000), "method": "server/discover" });
    *request.body_mut() = body.to_string().into();
    let (status, reply) = world.send(request).await;
    let reply: serde_json::Value = serde_json::from_slice(&reply).expect("JSON");
    assert_eq!(
        (status, &reply["error"]["data"]["reason"]),
        (400, &json!("bad_id"))
    );
}
