//! `subscriptions/listen` with `taskIds` (C-33 to C-38, Q-14).

use serde_json::{Value, json};

use crate::support::{Client, World};

async fn task(world: &World, tool: &str) -> String {
    let answer = world.call(&Client::with_tasks(), tool, json!({})).await;
    answer.result()["taskId"].as_str().expect("a task").to_owned()
}

fn filter(ids: &[&str]) -> Value {
    json!({ "notifications": { "taskIds": ids } })
}

#[tokio::test]
async fn what_is_followed_then_a_snapshot_then_changes_then_the_end() {
    let world = World::start().await;
    let id = task(&world, "waits").await;
    let mut frames = world
        .stream(
            &Client::with_tasks(),
            "subscriptions/listen",
            filter(&[&id, "lh1.1.nobody"]),
        )
        .await;
    let ack = frames.next().await.expect("an acknowledgement");
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(ack["params"]["notifications"]["taskIds"], json!([id]));
    assert_eq!(
        ack["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        1
    );
    let snapshot = frames.next().await.expect("a snapshot");
    assert_eq!(snapshot["method"], "notifications/tasks");
    assert_eq!(snapshot["params"]["status"], "working");
    world.release();
    let ended = loop {
        let frame = frames.next().await.expect("a change");
        assert_eq!(frame["params"]["taskId"], id.as_str());
        assert_eq!(
            frame["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
            1
        );
        assert!(frame["params"].get("resultType").is_none());
        if frame["params"]["status"] != "working" {
            break frame;
        }
    };
    assert_eq!(ended["params"]["result"], world.get(&id).await.result()["result"]);
    let response = frames.next().await.expect("a response");
    assert_eq!(response["result"]["resultType"], "complete");
    assert_eq!(
        response["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        1
    );
    assert_eq!(frames.next().await, None);
}

#[tokio::test]
async fn a_stream_with_nothing_to_follow_ends_in_order() {
    let world = World::start().await;
    let mut frames = world
        .stream(&Client::with_tasks(), "subscriptions/listen", filter(&["nobody"]))
        .await;
    let ack = frames.next().await.expect("an acknowledgement");
    assert_eq!(ack["params"]["notifications"]["taskIds"], json!([]));
    assert_eq!(
        frames.next().await.expect("a response")["result"]["resultType"],
        "complete"
    );
    assert_eq!(frames.next().await, None);
}

// C-35
#[tokio::test]
async fn tasks_are_not_followed_for_a_client_that_takes_none() {
    let world = World::start().await;
    let answer = world
        .rpc(&Client::without_tasks(), "subscriptions/listen", filter(&[]))
        .await;
    assert_eq!((answer.status, answer.code()), (400, -32021));
}

// B-46: what cannot happen is neither declared nor acknowledged.
#[tokio::test]
async fn changes_of_the_tool_list_are_not_promised() {
    let world = World::start().await;
    let client = Client::with_tasks();
    let found = world.rpc(&client, "server/discover", json!({})).await;
    let capabilities = &found.result()["capabilities"];
    assert_eq!(capabilities["tools"], json!({}));
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let mut frames = world.stream(&client, "subscriptions/listen", wanted).await;
    let first = frames.next().await.expect("an acknowledgement");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({}));
}
