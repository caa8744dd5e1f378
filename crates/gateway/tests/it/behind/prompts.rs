//! What a prompt or a resource asks in the middle of its request, for clients and servers of every two generations.

use std::sync::Arc;

use longhaul_engine::clock;
use longhaul_gateway::dispatch::Settings;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use super::{asked::form, fixture, world};
use crate::{
    session_client::SessionClient,
    support::{Answer, Client, World},
};

fn ada() -> Value {
    json!({ "action": "accept", "content": { "name": "Ada" } })
}

/// `prompts/get` of a prompt that asks all of these.
fn prompt(asks: Value) -> Value {
    json!({ "name": "ask", "arguments": { "asks": asks.to_string() } })
}

/// The next round of a request.
fn again(params: &Value, asked: &Answer, answers: Value) -> Value {
    let mut params = params.clone();
    params["requestState"] = asked.result()["requestState"].clone();
    params["inputResponses"] = answers;
    params
}

async fn get(world: &World, params: &Value) -> Answer {
    world
        .rpc(&Client::without_tasks(), "prompts/get", params.clone())
        .await
}

fn keys(asked: &Answer) -> Vec<String> {
    let result = asked.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    let asks = result["inputRequests"].as_object().expect("questions");
    asks.keys().cloned().collect()
}

#[tokio::test]
async fn b37_what_a_session_s_prompt_or_resource_asks_is_asked_in_the_reply() {
    let world = world("2025 --asks", "").await;
    let client = Client::without_tasks();
    for (method, params) in [
        ("prompts/get", json!({ "name": "ask" })),
        ("resources/read", json!({ "uri": "fixture://ask" })),
    ] {
        let asked = world.rpc(&client, method, params.clone()).await;
        assert_eq!(keys(&asked), ["q1"]);
        // G-31
        let message = asked.result()["inputRequests"]["q1"]["params"]["message"].as_str();
        let (who, message) = message
            .and_then(|text| text.split_once("\n\n"))
            .expect("two parts");
        assert!(who.ends_with("ask of the server fixture asks:"), "{who}");
        assert_eq!(message, "Who are you?");
        let schema = &asked.result()["inputRequests"]["q1"]["params"]["requestedSchema"];
        assert_eq!(schema["properties"]["name"]["type"], "string");
        let again = again(&params, &asked, json!({ "q1": ada() }));
        let got = world.rpc(&client, method, again).await;
        assert_eq!(got.result()["answers"]["who"], ada(), "{}", got.body);
    }
}

#[tokio::test]
async fn b42_what_is_not_answered_is_asked_for_again_and_a_misfit_changes_nothing() {
    let world = world("2025 --asks", "").await;
    // In the order in which the server asks.
    let params = prompt(json!({ "a": form(), "b": form() }));
    let asked = get(&world, &params).await;
    assert_eq!(keys(&asked), ["q1", "q2"]);
    let misfit = json!({ "action": "accept", "content": { "name": 5 } });
    let answers = json!({ "q1": ada(), "q2": misfit });
    let refused = get(&world, &again(&params, &asked, answers)).await;
    assert_eq!(
        refused.body["error"]["data"]["reason"], "misfit",
        "{}",
        refused.body
    );
    let left = get(&world, &again(&params, &asked, json!({ "q1": ada() }))).await;
    assert_eq!(keys(&left), ["q2"]);
    assert_ne!(left.result()["requestState"], asked.result()["requestState"]);
    let declined = json!({ "q2": { "action": "decline" } });
    let got = get(&world, &again(&params, &left, declined)).await;
    let answers = json!({ "a": ada(), "b": { "action": "decline" } });
    assert_eq!(got.result()["answers"], answers, "{}", got.body);
}

#[tokio::test]
async fn b41_a_state_is_good_for_its_own_request_and_once() {
    let world = world("2025 --asks", "").await;
    let params = prompt(json!({ "who": form() }));
    let asked = get(&world, &params).await;
    let other = prompt(json!({ "whose": form() }));
    let refused = get(&world, &again(&other, &asked, json!({ "q1": ada() }))).await;
    assert_eq!(
        refused.body["error"]["data"]["reason"], "bad_request_state",
        "{}",
        refused.body
    );
    let retry = again(&params, &asked, json!({ "q1": ada() }));
    assert_eq!(get(&world, &retry).await.result()["answers"]["who"], ada());
    // It begins anew.
    assert_eq!(keys(&get(&world, &retry).await), ["q1"]);
}

#[tokio::test]
async fn b43_an_owner_has_so_many_requests_that_wait_and_the_oldest_ends() {
    let settings = Settings {
        rounds_max: 1,
        ..Settings::default()
    };
    let world = World::ready_behind(&fixture("2025 --asks", ""), settings).await;
    let params = prompt(json!({ "who": form() }));
    let (first, second) = (get(&world, &params).await, get(&world, &params).await);
    let done = get(&world, &again(&params, &second, json!({ "q1": ada() }))).await;
    assert_eq!(done.result()["answers"]["who"], ada());
    // Nobody waits for what was asked first: its server was told so, and the request begins anew.
    let anew = get(&world, &again(&params, &first, json!({ "q1": ada() }))).await;
    assert_eq!(keys(&anew), ["q1"]);
    super::seen(&world, |seen| {
        seen["cancelled"]
            .as_array()
            .is_some_and(|cancelled| !cancelled.is_empty())
    })
    .await;
}

#[tokio::test]
async fn after_a_restart_a_request_that_asked_begins_anew() {
    let store = Arc::new(Memory::new(Arc::new(clock::now)));
    let config = fixture("2025 --asks", "");
    let params = prompt(json!({ "who": form() }));
    let before = World::over(Arc::clone(&store), &config, Settings::default(), &|_| None).await;
    before.ready().await;
    let asked = get(&before, &params).await;
    drop(before);
    let after = World::over(store, &config, Settings::default(), &|_| None).await;
    after.ready().await;
    let anew = get(&after, &again(&params, &asked, json!({ "q1": ada() }))).await;
    assert_eq!(keys(&anew), ["q1"]);
}

#[tokio::test]
async fn d27_a_client_with_a_session_is_asked_on_the_stream_of_its_request() {
    for era in ["2025", "2026"] {
        let world = world(&format!("{era} --asks"), "").await;
        let session = SessionClient::open(&world).await;
        for (method, params) in [
            ("prompts/get", prompt(json!({ "who": form(), "also": form() }))),
            ("resources/read", json!({ "uri": "fixture://ask" })),
        ] {
            let mut events = session.stream(9, method, params).await;
            let done = loop {
                let event = events.data().await;
                if event["method"] == "elicitation/create" {
                    assert_eq!(session.answer(&event, ada()).await, 202);
                }
                if event.get("method").is_none() {
                    break event;
                }
            };
            assert_eq!(done["result"]["answers"]["who"], ada(), "{era}: {done}");
        }
    }
}

#[tokio::test]
async fn g29_a_secret_that_a_prompt_asks_for_is_declined_unseen() {
    for era in ["2025", "2026"] {
        let world = world(&format!("{era} --asks"), "").await;
        let mut secret = form();
        secret["params"]["message"] = "Your password, please".into();
        let got = get(&world, &prompt(json!({ "who": secret }))).await;
        assert_eq!(
            got.result()["answers"]["who"],
            json!({ "action": "decline" }),
            "{era}: {}",
            got.body
        );
    }
}

#[tokio::test]
async fn what_a_prompt_asks_of_a_client_that_cannot_be_asked_is_answered_for_it() {
    let world = world("2025 --asks", "").await;
    let mute = Client {
        capabilities: json!({}),
        ..Client::without_tasks()
    };
    let got = world.rpc(&mute, "prompts/get", json!({ "name": "ask" })).await;
    assert_eq!(
        got.result()["answers"]["who"],
        json!({ "action": "cancel" }),
        "{}",
        got.body
    );
}
