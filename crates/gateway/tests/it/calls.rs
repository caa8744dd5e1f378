//! `tools/call` and the life of a task, over HTTP, for clients that take tasks and clients that do not.

use serde_json::{Value, json};

use crate::support::{Client, World};

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {result}"))
}

#[tokio::test]
async fn a_quick_call_is_a_plain_result_for_everybody() {
    let world = World::start().await;
    for client in [Client::with_tasks(), Client::without_tasks()] {
        let answer = world.call(&client, "greet", json!({ "name": "Ada" })).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.result()["resultType"], "complete");
        assert_eq!(text(answer.result()), "Hello, Ada!");
    }
}

// C-8, C-9, C-15, C-19
#[tokio::test]
async fn a_slow_call_becomes_a_task_that_can_be_read_at_once() {
    let world = World::start().await;
    let created = world.call(&Client::with_tasks(), "waits", json!({})).await;
    let created = created.result();
    assert_eq!(created["resultType"], "task");
    assert_eq!(created["status"], "working");
    let id = created["taskId"].as_str().expect("an id");
    assert_eq!(world.get(id).await.result()["status"], "working");
    world.release();
    let task = world.until(id, "completed").await;
    assert_eq!(text(&task["result"]), "waited");
}

#[tokio::test]
async fn a_result_is_the_same_at_every_read() {
    let world = World::start().await;
    world.release();
    let id = task(&world, "waits").await;
    let first = world.until(&id, "completed").await;
    for _ in 0..3 {
        assert_eq!(world.get(&id).await.result()["result"], first["result"]);
        assert_eq!(
            world.get(&id).await.result()["lastUpdatedAt"],
            first["lastUpdatedAt"]
        );
    }
}

// C-2: nobody gets a task who did not ask for one.
#[tokio::test]
async fn a_client_without_tasks_waits_for_its_result() {
    let world = World::start().await;
    world.release();
    let answer = world.call(&Client::without_tasks(), "waits", json!({})).await;
    assert_eq!(text(answer.result()), "waited");
    assert!(answer.result().get("taskId").is_none());
}

// C-5
#[tokio::test]
async fn a_tool_that_needs_a_task_refuses_a_client_without() {
    let world = World::start().await;
    let answer = world.call(&Client::without_tasks(), "fails", json!({})).await;
    assert_eq!((answer.status, answer.code()), (400, -32021));
    let required = &answer.body["error"]["data"]["requiredCapabilities"];
    assert_eq!(required["extensions"]["io.modelcontextprotocol/tasks"], json!({}));
}

// B-6
#[tokio::test]
async fn a_tool_says_what_a_client_must_be_able_to_answer() {
    let world = World::start().await;
    let answer = world
        .call(&Client::with_tasks(), "needs_sampling", json!({}))
        .await;
    assert_eq!((answer.status, answer.code()), (400, -32021));
    assert_eq!(
        answer.body["error"]["data"]["requiredCapabilities"],
        json!({ "sampling": {} })
    );
}

// C-15: an error of the tool is a result; an error of the protocol is not.
#[tokio::test]
async fn the_outcomes_of_a_task_are_kept_apart() {
    let world = World::start().await;
    let failed = world.until(&task(&world, "fails").await, "completed").await;
    assert_eq!(failed["result"]["isError"], true);
    let broken = world.until(&task(&world, "breaks").await, "failed").await;
    assert_eq!(
        broken["error"],
        json!({ "code": -32050, "message": "broken", "data": { "part": 3 } })
    );
    assert!(broken.get("result").is_none());
    let lost = world.until(&task(&world, "gives_up").await, "failed").await;
    assert_eq!(lost["error"]["data"]["reason"], "upstream_tasks_lost");
}

// B-54
#[tokio::test]
async fn bad_arguments_are_a_result_that_the_model_can_mend() {
    let world = World::start().await;
    let answer = world
        .call(&Client::with_tasks(), "greet", json!({ "bad": 1 }))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.result()["isError"], true);
    assert!(text(answer.result()).contains("`bad`"));
    let unknown = world.call(&Client::with_tasks(), "nosuch", json!({})).await;
    assert_eq!((unknown.status, unknown.code()), (200, -32602));
}

// C-30, K-6, D-20
#[tokio::test]
async fn a_cancel_is_taken_at_once_and_again_and_never_undone() {
    let world = World::start().await;
    let id = task(&world, "waits").await;
    for _ in 0..2 {
        let ack = world
            .rpc(&Client::with_tasks(), "tasks/cancel", json!({ "taskId": id }))
            .await;
        assert_eq!(ack.result()["resultType"], "complete");
        assert!(ack.result().get("status").is_none());
        let task = world.get(&id).await;
        assert_eq!(task.result()["status"], "cancelled");
        assert_eq!(
            task.result()["statusMessage"],
            "The task was cancelled by request."
        );
    }
    world.release();
    assert_eq!(world.get(&id).await.result()["status"], "cancelled");
}

// C-20, C-24, C-25, C-27, K-7
#[tokio::test]
async fn questions_are_answered_one_by_one_or_not_at_all() {
    let world = World::start().await;
    let id = task(&world, "asks_two").await;
    let asking = world.until(&id, "input_required").await;
    let keys: Vec<&String> = asking["inputRequests"]
        .as_object()
        .expect("a map")
        .keys()
        .collect();
    assert_eq!(keys, ["q1", "q2"]);

    let ignored = update(&world, &id, json!({ "q9": { "ignored": true } })).await;
    assert_eq!(ignored.result()["resultType"], "complete");
    let accept = |name: &str| json!({ "action": "accept", "content": { "name": name } });
    update(&world, &id, json!({ "q1": accept("Ada") })).await.result();
    let rest = world.get(&id).await;
    assert_eq!(rest.result()["status"], "input_required");
    assert_eq!(
        rest.result()["inputRequests"].as_object().map(|map| map.len()),
        Some(1)
    );

    update(
        &world,
        &id,
        json!({ "q1": accept("Eve"), "q2": { "action": "decline" } }),
    )
    .await
    .result();
    let done = world.until(&id, "completed").await;
    assert_eq!(text(&done["result"]), "Ada and declined");
}

// C-29, Q-4: the client is not shown what its call did not declare; a person answers on the page.
#[tokio::test]
async fn a_question_of_a_kind_that_was_not_declared_is_not_shown_to_the_client() {
    let world = World::start().await;
    let client = Client {
        capabilities: json!({}),
        ..Client::with_tasks()
    };
    for tool in ["asks_two", "asks_first"] {
        let created = world.call(&client, tool, json!({})).await;
        let id = created.result()["taskId"].as_str().expect("a task").to_owned();
        let filter = json!({ "notifications": { "taskIds": [id] } });
        let mut frames = world.stream(&client, "subscriptions/listen", filter).await;
        let message = loop {
            let frame = frames.next().await.expect("the task waits");
            assert_ne!(frame["params"]["status"], "input_required", "{frame}");
            if let Some(message) = frame["params"]["statusMessage"].as_str() {
                break message.to_owned();
            }
        };
        assert!(
            message.starts_with("Waits for a person: longhaul answer "),
            "{message}"
        );
    }
}

// B-39: names that are not unique, or look like a number of ours, do not reach the client as keys.
#[tokio::test]
async fn questions_before_a_task_have_keys_that_differ() {
    let world = World::start().await;
    let first = world
        .call(&Client::without_tasks(), "asks_alike", json!({}))
        .await;
    let keys: Vec<&String> = first.result()["inputRequests"]
        .as_object()
        .expect("questions")
        .keys()
        .collect();
    assert_eq!(keys, ["name", "q2", "q3"]);
}

//
#[tokio::test]
async fn an_answer_that_does_not_fit_names_its_place_and_changes_nothing() {
    let world = World::start().await;
    let id = task(&world, "asks_two").await;
    world.until(&id, "input_required").await;
    let misfit =
        json!({ "q1": { "action": "accept", "content": { "name": 7 } }, "q2": { "action": "decline" } });
    for last in [false, false, true] {
        let answer = update(&world, &id, misfit.clone()).await;
        assert_eq!((answer.status, answer.code()), (200, -32602));
        let message = answer.body["error"]["message"].as_str().expect("a message");
        assert!(
            message.contains("`q1`") && message.contains("`name`"),
            "{message}"
        );
        let open = world.get(&id).await.result()["inputRequests"]
            .as_object()
            .map(|map| map.len());
        assert_eq!(
            open,
            Some(if last { 1 } else { 2 }),
            "the third misfit is a decline"
        );
    }
}

// C-11, K-11: rounds first, then the task.
#[tokio::test]
async fn a_tool_that_asks_first_asks_before_there_is_a_task() {
    let world = World::start().await;
    let client = Client::with_tasks();
    let first = world.call(&client, "asks_first", json!({})).await;
    assert_eq!(first.result()["resultType"], "input_required");
    assert!(first.result().get("taskId").is_none());
    let state = first.result()["requestState"].clone();
    let retry = json!({
        "name": "asks_first", "arguments": {}, "requestState": state,
        "inputResponses": { "name": { "action": "accept", "content": { "name": "Ada" } } },
    });
    let second = world.rpc(&client, "tools/call", retry.clone()).await;
    assert_eq!(second.result()["resultType"], "task");
    assert!(second.result().get("requestState").is_none());
    let id = second.result()["taskId"].as_str().expect("an id").to_owned();
    let done = world.until(&id, "completed").await;
    assert_eq!(text(&done["result"]), "Ada");

    // The same retry again begins nothing.
    let again = world.rpc(&client, "tools/call", retry).await;
    assert_eq!(again.result()["taskId"], id.as_str());
}

// B-41, K-13
#[tokio::test]
async fn a_request_state_holds_for_one_call_of_one_tool() {
    let world = World::start().await;
    let client = Client::without_tasks();
    let first = world.call(&client, "asks", json!({})).await;
    let state = first.result()["requestState"]
        .as_str()
        .expect("a state")
        .to_owned();
    let retry = |tool: &str, arguments: Value, state: &str| json!({ "name": tool, "arguments": arguments, "requestState": state, "inputResponses": {} });
    for (tool, arguments, state) in [
        ("asks", json!({}), format!("{state}A")),
        ("asks", json!({ "other": 1 }), state.clone()),
        ("waits", json!({}), state.clone()),
    ] {
        let answer = world
            .rpc(&client, "tools/call", retry(tool, arguments, &state))
            .await;
        assert_eq!((answer.status, answer.code()), (200, -32602));
    }
    // B-42: an answer that is missing is asked for again.
    let asked_again = world
        .rpc(&client, "tools/call", retry("asks", json!({}), &state))
        .await;
    assert_eq!(asked_again.result()["resultType"], "input_required");
}

#[tokio::test]
async fn answers_that_come_with_the_call_are_used() {
    let world = World::start().await;
    let call = json!({
        "name": "asks", "arguments": {},
        "inputResponses": {
            "name": { "action": "accept", "content": { "name": "Ada" } },
            "surplus": { "action": "decline" },
        },
    });
    let answer = world.rpc(&Client::without_tasks(), "tools/call", call).await;
    assert_eq!(text(answer.result()), "Ada");
}

#[tokio::test]
async fn an_idempotency_key_makes_a_call_happen_once() {
    let world = World::start().await;
    let call = |arguments: Value| {
        let params = json!({
            "name": "waits", "arguments": arguments,
            "_meta": { "dev.longhaul/idempotencyKey": "k-1" },
        });
        let world = &world;
        async move { world.rpc(&Client::with_tasks(), "tools/call", params).await }
    };
    let first = call(json!({ "a": 1.0 })).await.result()["taskId"].clone();
    let second = call(json!({ "a": 1 })).await.result()["taskId"].clone();
    assert_eq!(first, second, "equal by value, whatever the spelling");
    let other = call(json!({ "a": 2 })).await;
    assert_eq!(other.code(), -32602);
    assert_eq!(other.body["error"]["data"]["reason"], "idempotency_key_reused");
}

// G-11
#[tokio::test]
async fn the_cap_of_open_tasks_refuses_the_call_and_ends_nothing() {
    let settings = longhaul_gateway::dispatch::Settings {
        open_max: 2,
        ..Default::default()
    };
    let world = World::with(settings).await;
    let first = task(&world, "waits").await;
    task(&world, "waits").await;
    let refused = world.call(&Client::with_tasks(), "waits", json!({})).await;
    assert_eq!((refused.status, refused.code()), (429, 7402));
    assert_eq!(refused.body["error"]["data"]["reason"], "task_limit");
    assert_eq!(world.get(&first).await.result()["status"], "working");
}

// B-27, A-33: progress on the call's own stream, then the result.
#[tokio::test]
async fn progress_travels_on_the_stream_of_its_call() {
    let world = World::start().await;
    let params = json!({ "name": "waits", "arguments": {}, "_meta": { "progressToken": "p-1" } });
    let mut frames = world.stream(&Client::without_tasks(), "tools/call", params).await;
    let progress = frames.next().await.expect("progress");
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p-1");
    assert_eq!(progress["params"]["progress"], 1.0);
    world.release();
    assert_eq!(text(&frames.next().await.expect("a result")["result"]), "waited");
    assert_eq!(frames.next().await, None);
}

async fn task(world: &World, tool: &str) -> String {
    let answer = world.call(&Client::with_tasks(), tool, json!({})).await;
    answer.result()["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("no task: {}", answer.body))
        .to_owned()
}

async fn update(world: &World, id: &str, responses: Value) -> crate::support::Answer {
    let params = json!({ "taskId": id, "inputResponses": responses });
    world.rpc(&Client::with_tasks(), "tasks/update", params).await
}
