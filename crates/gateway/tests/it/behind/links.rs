//! A call that its server refuses until a link was opened (-32042).

use serde_json::{Value, json};

use super::world;
use crate::{
    session_client::{SessionClient, initialize},
    support::{Client, World, site::said},
};

fn accept() -> Value {
    json!({ "action": "accept" })
}

fn able(client: Client) -> Client {
    Client {
        capabilities: json!({ "elicitation": { "url": {} } }),
        ..client
    }
}

async fn session(world: &World) -> SessionClient<'_> {
    let mut hello = initialize("2025-11-25");
    hello["capabilities"] = json!({ "elicitation": { "url": {} } });
    SessionClient::open_with(world, hello).await
}

fn call(arguments: Value) -> Value {
    json!({ "name": "link_first", "arguments": arguments })
}

#[tokio::test]
async fn d28_a_task_s_link_is_a_question_and_the_call_is_made_again() {
    for era in ["2025", "2026"] {
        let world = world(era, "promote_after = \"0s\"\n").await;
        let client = able(Client::with_tasks());
        let created = world.call(&client, "link_first", json!({ "times": 2 })).await;
        let id = created.result()["taskId"].as_str().expect("an id").to_owned();
        for key in ["q1", "q2"] {
            let asking = loop {
                let task = world.until(&id, "input_required").await;
                if task["inputRequests"].get(key).is_some() {
                    break task;
                }
            };
            let asked = &asking["inputRequests"][key]["params"];
            assert_eq!(asked["mode"], "url", "{asking}");
            assert_eq!(asked["url"], "https://example.org/connect");
            let answers = json!({ "taskId": id, "inputResponses": { key: accept() } });
            world.rpc(&client, "tasks/update", answers).await.result();
        }
        let task = world.until(&id, "completed").await;
        assert_eq!(said(&task["result"]), "in");
    }
}

#[tokio::test]
async fn d28_a_client_without_tasks_is_asked_to_open_the_link_in_the_way_of_its_generation() {
    for era in ["2025", "2026"] {
        let world_of_plain = world(era, "tasks = \"never\"\n").await;
        let client = able(Client::without_tasks());
        let asked = world_of_plain.rpc(&client, "tools/call", call(json!({}))).await;
        let result = asked.result();
        assert_eq!(result["resultType"], "input_required", "{result}");
        let asks = result["inputRequests"].as_object().expect("questions");
        let key = asks.keys().next().expect("a question").clone();
        let mut again = call(json!({}));
        again["inputResponses"] = json!({ key: accept() });
        again["requestState"] = result["requestState"].clone();
        let done = world_of_plain.rpc(&client, "tools/call", again).await;
        assert_eq!(said(done.result()), "in");

        let world = world(era, "tasks = \"never\"\n").await;
        let session = session(&world).await;
        let mut events = session.stream(9, "tools/call", call(json!({}))).await;
        let asked = events.until("elicitation/create").await.data;
        assert_eq!(asked["params"]["url"], "https://example.org/connect");
        assert!(asked["params"]["elicitationId"].is_string(), "{asked}");
        session.answer(&asked, accept()).await;
        let done = loop {
            let event = events.data().await;
            if event.get("result").is_some() {
                break event;
            }
        };
        assert_eq!(said(&done["result"]), "in");
    }
}

#[tokio::test]
async fn d28_a_link_that_is_not_opened_leaves_the_error_with_links_named_by_us() {
    let world = world("2025", "tasks = \"never\"\n").await;
    let session = session(&world).await;
    let mut events = session.stream(9, "tools/call", call(json!({}))).await;
    let asked = events.until("elicitation/create").await.data;
    session.answer(&asked, json!({ "action": "decline" })).await;
    let refused = loop {
        let event = events.data().await;
        if event.get("error").is_some() {
            break event;
        }
    };
    assert_eq!(refused["error"]["code"], -32042, "{refused}");
    let link = &refused["error"]["data"]["elicitations"][0];
    assert_eq!(link["vendor"].to_string(), "1.0");
    assert_eq!(link["url"], "https://example.org/connect");
    let name = link["elicitationId"].as_str().expect("a name");
    assert!(name.starts_with("el-") && name != "link-1", "{name}");
}

#[tokio::test]
async fn b11_a_client_of_2026_never_reads_the_code_of_a_link() {
    let world = world("2025", "tasks = \"never\"\nquestions = []\n").await;
    let client = able(Client::without_tasks());
    let refused = world.rpc(&client, "tools/call", call(json!({}))).await;
    assert_eq!(refused.code(), -32603, "{}", refused.body);
}

#[tokio::test]
async fn t5_a_link_that_leads_nowhere_public_is_shown_to_nobody() {
    let world = world("2025", "tasks = \"never\"\n").await;
    let session = session(&world).await;
    for url in [
        "https://user@example.org/",
        "https://169.254.169.254/latest",
        "file:///etc/passwd",
    ] {
        let refused = session
            .request("tools/call", call(json!({ "url": url, "times": 100 })))
            .await;
        let error = &refused["error"];
        assert_eq!(error["code"], -32042, "{refused}");
        assert_eq!(error["data"]["elicitations"], json!([]), "{refused}");
    }
}

#[tokio::test]
async fn a76_a_link_that_is_done_with_needs_no_answer() {
    let world = world("2025", "promote_after = \"0s\"\nisolation = \"shared\"\n").await;
    let client = able(Client::with_tasks());
    let created = world.call(&client, "link_first", json!({})).await;
    let id = created.result()["taskId"].as_str().expect("an id").to_owned();
    world.until(&id, "input_required").await;
    world
        .call(&Client::without_tasks(), "link_done", json!({ "link": "link-1" }))
        .await
        .result();
    let task = world.until(&id, "completed").await;
    assert_eq!(said(&task["result"]), "in");
}
