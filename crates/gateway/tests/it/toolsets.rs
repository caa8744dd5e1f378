//! The endpoint of a toolset, as clients of every generation meet it: what it shows works as everywhere, and the rest
//! is not there.

use axum::{body::Body as HttpBody, http::Request};
use longhaul_gateway::dispatch::Settings;
use serde_json::{Value, json};

use crate::{
    behind::named,
    session_client::SessionClient,
    support::{Client, World, site::said},
};

const TOOLSETS: &str = r#"
[toolsets.review]
tools = ["one__*", "two__late"]
exclude = ["*hang*"]
instructions = "Review, and change nothing."
[toolsets.second]
servers = ["two"]
"#;

/// Two servers that define the same, and two toolsets of them.
async fn world() -> World {
    world_with("").await
}

/// The same; `more` is said of each server.
async fn world_with(more: &str) -> World {
    let more = format!("promote_after = \"0s\"\n{more}");
    let (one, two) = (named("one", "2025", &more), named("two", "2026", &more));
    World::ready_behind(&format!("{one}{two}{TOOLSETS}"), Settings::default()).await
}

fn names(listed: &Value, list: &str) -> Vec<String> {
    let listed = listed[list]
        .as_array()
        .unwrap_or_else(|| panic!("no list: {listed}"));
    let names = listed
        .iter()
        .map(|item| item["name"].as_str().expect("a name").to_owned());
    names.collect()
}

#[tokio::test]
async fn a_toolset_shows_its_tools_to_clients_of_every_generation() {
    let world = world().await;
    let review = world.at("review");
    let stateless = review
        .rpc(&Client::without_tasks(), "tools/list", json!({}))
        .await;
    let session = SessionClient::open(&review).await;
    let in_session = session.request("tools/list", json!({})).await;
    for listed in [stateless.result(), &in_session["result"]] {
        let names = names(listed, "tools");
        assert!(names.contains(&"one__echo".to_owned()), "{names:?}");
        assert!(names.contains(&"two__late".to_owned()), "{names:?}");
        let others = names.iter().filter(|name| name.starts_with("two__")).count();
        assert_eq!(others, 1, "{names:?}");
        assert!(!names.iter().any(|name| name.contains("hang")), "{names:?}");
        // A task can be waited for everywhere.
        assert!(names.contains(&"longhaul_wait".to_owned()), "{names:?}");
    }
    let all = world.rpc(&Client::without_tasks(), "tools/list", json!({})).await;
    assert!(names(all.result(), "tools").contains(&"two__echo".to_owned()));
}

#[tokio::test]
async fn a_tool_outside_is_answered_as_one_that_does_not_exist() {
    let world = world().await;
    let review = world.at("review");
    let (outside, absent) = ("two__echo", "two__ecco");
    for client in [Client::without_tasks(), Client::with_tasks()] {
        let replies = [
            review.call(&client, outside, json!({})).await,
            review.call(&client, absent, json!({})).await,
        ];
        let [outside, absent] =
            replies.map(|reply| (reply.status, reply.body.to_string().replace(outside, absent)));
        assert_eq!(outside, absent);
    }
    let session = SessionClient::open(&review).await;
    let mut replies = Vec::new();
    for tool in [outside, absent] {
        let reply = session.call(tool, json!({})).await;
        assert!(reply["error"].is_object(), "{reply}");
        replies.push(reply.to_string().replace(outside, absent));
    }
    assert_eq!(replies[0], replies[1]);
    let echoed = world
        .call(&Client::without_tasks(), outside, json!({ "a": 1 }))
        .await;
    assert_eq!(said(echoed.result()), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_tool_inside_is_called_and_its_task_is_its_owner_s_at_every_endpoint() {
    let world = world().await;
    let review = world.at("review");
    let created = review
        .call(&Client::with_tasks(), "two__late", json!({ "seconds": 0.1 }))
        .await;
    assert_eq!(created.result()["resultType"], "task", "{}", created.body);
    let id = created.result()["taskId"].as_str().expect("an id").to_owned();
    for endpoint in [&world, &review, &world.at("second")] {
        let task = endpoint.until(&id, "completed").await;
        assert_eq!(said(&task["result"]), "late");
        let session = SessionClient::open(endpoint).await;
        let result = session.request("tasks/result", json!({ "taskId": id })).await;
        assert_eq!(said(&result["result"]), "late", "{result}");
    }
}

#[tokio::test]
async fn prompts_resources_and_instructions_come_with_whole_servers() {
    let world = world().await;
    let second = world.at("second");
    let session = SessionClient::open(&second).await;
    let instructions = session.initialized["instructions"].as_str().expect("text");
    assert!(instructions.contains("Of the server `two`"), "{instructions}");
    assert!(!instructions.contains("`one`"), "{instructions}");
    // The names are those of the whole.
    let prompts = session.request("prompts/list", json!({})).await;
    let own = names(&prompts["result"], "prompts");
    assert!(
        !own.is_empty() && own.iter().all(|name| name.starts_with("two__")),
        "{own:?}"
    );
    let outside = second
        .rpc(
            &Client::without_tasks(),
            "prompts/get",
            json!({ "name": "one__greet" }),
        )
        .await;
    assert_eq!(outside.body["error"]["message"], "Unknown prompt: one__greet");
    let resources = second
        .rpc(&Client::without_tasks(), "resources/list", json!({}))
        .await;
    let listed = resources.result()["resources"].as_array().expect("a list").len();
    let all = world
        .rpc(&Client::without_tasks(), "resources/list", json!({}))
        .await;
    assert_eq!(
        all.result()["resources"].as_array().expect("a list").len(),
        2 * listed
    );
    let read = second
        .rpc(
            &Client::without_tasks(),
            "resources/read",
            json!({ "uri": "fixture://one" }),
        )
        .await;
    assert_eq!(read.result()["contents"][0]["text"], "one", "{}", read.body);
}

#[tokio::test]
async fn a_toolset_of_tools_alone_has_nothing_beside_them() {
    let world = world().await;
    let review = world.at("review");
    let session = SessionClient::open(&review).await;
    let capabilities = &session.initialized["capabilities"];
    assert!(
        capabilities["prompts"].is_null() && capabilities["resources"].is_null(),
        "{capabilities}"
    );
    let instructions = session.initialized["instructions"].as_str().expect("text");
    assert!(
        instructions.ends_with("Review, and change nothing."),
        "{instructions}"
    );
    let prompts = session.request("prompts/list", json!({})).await;
    assert_eq!(prompts["error"]["code"], -32601, "{prompts}");
    let found = review
        .rpc(&Client::without_tasks(), "server/discover", json!({}))
        .await;
    assert!(
        found.result()["capabilities"]["prompts"].is_null(),
        "{}",
        found.body
    );
    for uri in ["fixture://one", "nowhere://one"] {
        let read = review
            .rpc(&Client::without_tasks(), "resources/read", json!({ "uri": uri }))
            .await;
        assert_eq!(read.code(), -32601, "{}", read.body);
    }
}

#[tokio::test]
async fn a_subscription_reaches_no_server_outside_its_toolset() {
    let world = world_with("isolation = \"shared\"\n").await;
    let (review, second) = (world.at("review"), world.at("second"));
    let session = SessionClient::open(&second).await;
    let mut events = session.listen(None).await;
    let uri = json!({ "uri": "fixture://one" });
    let reply = session.request("resources/subscribe", uri.clone()).await;
    assert_eq!(reply["result"], json!({}), "{reply}");
    let filter = json!({ "notifications": { "resourceSubscriptions": ["fixture://one"] } });
    let client = Client::without_tasks();
    let mut frames = second
        .stream(&client, "subscriptions/listen", filter.clone())
        .await;
    let first = frames.next().await.expect("a first message");
    let honoured = &first["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(*honoured, json!(["fixture://one"]));
    let updated = |message: &Value| message["params"]["uri"].as_str().map(str::to_owned);
    // Once it is subscribed to, a resource may have changed.
    let event = events.until("notifications/resources/updated").await;
    assert_eq!(updated(&event.data).as_deref(), Some("fixture://one"));
    for (server, part) in [("one", "fixture://one/outside"), ("two", "fixture://one/inside")] {
        let touch = format!("{server}__touch");
        let touched = world.call(&client, &touch, json!({ "uri": part })).await;
        assert_eq!(said(touched.result()), "touched");
    }
    let event = events.until("notifications/resources/updated").await;
    assert_eq!(updated(&event.data).as_deref(), Some("fixture://one/inside"));
    let mut told = frames.next().await.expect("a message");
    if updated(&told).as_deref() == Some("fixture://one") {
        told = frames.next().await.expect("a message");
    }
    assert_eq!(updated(&told).as_deref(), Some("fixture://one/inside"), "{told}");
    let seen = world.call(&client, "one__seen", json!({})).await;
    let seen: Value = serde_json::from_str(said(seen.result())).expect("JSON");
    assert_eq!(seen["subscribed"], json!([]));
    // A toolset without resources has none to subscribe to.
    let session = SessionClient::open(&review).await;
    let reply = session.request("resources/subscribe", uri).await;
    assert_eq!(reply["error"]["code"], -32601, "{reply}");
    let mut frames = review.stream(&client, "subscriptions/listen", filter).await;
    let first = frames.next().await.expect("a first message");
    let honoured = &first["params"]["notifications"]["resourceSubscriptions"];
    assert!(honoured.is_null() || *honoured == json!([]), "{first}");
}

#[tokio::test]
async fn a_completion_is_asked_of_no_server_outside_its_toolset() {
    let world = world().await;
    let complete = |prompt: &str| {
        json!({
            "ref": { "type": "ref/prompt", "name": prompt },
            "argument": { "name": "who", "value": "" },
        })
    };
    let (review, second) = (world.at("review"), world.at("second"));
    let session = SessionClient::open(&second).await;
    let client = Client::without_tasks();
    let own = complete("two__greet");
    let replies = [
        session.request("completion/complete", own.clone()).await,
        second.rpc(&client, "completion/complete", own).await.body,
    ];
    for reply in replies {
        assert_eq!(reply["result"]["completion"]["values"], json!(["one"]), "{reply}");
    }
    let others = complete("one__greet");
    let replies = [
        session.request("completion/complete", others.clone()).await,
        second
            .rpc(&client, "completion/complete", others.clone())
            .await
            .body,
    ];
    for reply in replies {
        assert_eq!(reply["error"]["message"], "Unknown prompt: one__greet", "{reply}");
    }
    let none = review.rpc(&client, "completion/complete", others).await;
    assert_eq!(none.code(), -32601, "{}", none.body);
}

// A-25
#[tokio::test]
async fn a_session_of_one_toolset_is_unknown_at_another() {
    let world = world().await;
    let (review, second) = (world.at("review"), world.at("second"));
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    for (own, others) in [(&review, [&world, &second]), (&world, [&review, &second])] {
        let session = SessionClient::open(own).await;
        for other in others {
            let there = session.elsewhere(other);
            assert_eq!(there.post(&ping).await.status, 404);
            assert_eq!(there.end().await, 404);
        }
        assert_eq!(session.post(&ping).await.status, 200);
    }
}

#[tokio::test]
async fn a_toolset_that_is_none_is_not_found() {
    let world = world().await;
    for endpoint in ["another", "review%2F", "REVIEW"] {
        let nowhere = world.at(endpoint);
        let reply = nowhere
            .rpc(&Client::without_tasks(), "tools/list", json!({}))
            .await;
        assert_eq!(reply.status, 404);
        let message = reply.body["error"]["message"].as_str().expect("a text");
        assert!(message.starts_with("There is no toolset `"), "{message}");
        let get = Request::get("/mcp").header("host", crate::support::ADDRESS);
        let (status, _) = nowhere
            .send(get.body(HttpBody::empty()).expect("a request"))
            .await;
        assert_eq!(status, 404);
    }
}
