//! Clients of 2025-11-25 over HTTP: sessions, tasks, their streams and their questions.

use longhaul_gateway::admin::{Backend as _, api::Filter};
use serde_json::{Value, json};

use crate::{
    session_client::{SessionClient, frame, initialize, post, send},
    support::{Client, ME, World},
};

const RELATED: &str = "io.modelcontextprotocol/related-task";

fn accept(name: &str) -> Value {
    json!({ "action": "accept", "content": { "name": name } })
}

// D-13
#[tokio::test]
async fn initialize_agrees_on_a_version_and_begins_a_session() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    assert!(client.id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
    assert_eq!(client.initialized["protocolVersion"], "2025-11-25");
    let offered = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
    assert_eq!(client.initialized["capabilities"]["tasks"], offered);
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    let tools = client.request("tools/list", json!({})).await;
    let support: Vec<_> = tools["result"]["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| (tool["name"].clone(), tool["execution"]["taskSupport"].clone()))
        .collect();
    assert!(support.contains(&(json!("greet"), Value::Null)));
    assert!(support.contains(&(json!("waits"), json!("optional"))));
    assert!(support.contains(&(json!("fails"), json!("required"))));
}

//
#[tokio::test]
async fn a_session_that_is_missing_unknown_or_over_is_told_apart_by_status() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let ping = frame(1, "ping", json!({}));
    let mut without = post(&ping, None);
    without.headers_mut().insert(
        "mcp-protocol-version",
        "2025-11-25".parse().expect("a valid request"),
    );
    assert_eq!(send(&world, without).await.0, 400);
    assert_eq!(send(&world, post(&ping, Some("lhs1.nobody"))).await.0, 404);
    let mut wrong_version = post(&ping, Some(&client.id));
    wrong_version.headers_mut().insert(
        "mcp-protocol-version",
        "1999-01-01".parse().expect("a valid request"),
    );
    assert_eq!(send(&world, wrong_version).await.0, 400);
    assert_eq!(client.post(&ping).await.status, 200);
    let mut shared = client.listen(None).await;
    assert_eq!(client.end().await, 204);
    assert_eq!(shared.next().await, None, "a stream outlived its session");
    assert_eq!(client.post(&ping).await.status, 404);
    assert_eq!(client.end().await, 404);
}

//
#[tokio::test]
async fn a_task_is_polled_waited_for_by_many_and_listed() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("waits").await;
    let got = client.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(got["result"]["status"], "working");
    assert_eq!(got["result"]["ttl"], 60_000);
    assert!(got["result"].get("result").is_none());
    let mut first = client.stream(20, "tasks/result", json!({ "taskId": id })).await;
    let mut second = client.stream(21, "tasks/result", json!({ "taskId": id })).await;
    let dropped = client.stream(22, "tasks/result", json!({ "taskId": id })).await;
    drop(dropped);
    world.release();
    for (stream, request) in [(&mut first, 20), (&mut second, 21)] {
        let reply = loop {
            let data = stream.data().await;
            if data["id"] == request {
                break data;
            }
        };
        assert_eq!(reply["result"]["content"][0]["text"], "waited");
        assert_eq!(reply["result"]["_meta"][RELATED]["taskId"], id.as_str());
        assert!(reply["result"].get("resultType").is_none());
        assert_eq!(stream.next().await, None);
    }
    let list = client.request("tasks/list", json!({})).await;
    assert_eq!(list["result"]["tasks"][0]["taskId"], id.as_str());
    assert_eq!(list["result"]["tasks"][0]["status"], "completed");
    //
    let cancel = client.request("tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(cancel["error"]["code"], -32602);
}

// A-54, D-17
#[tokio::test]
async fn a_list_has_pages_and_refuses_a_cursor_that_is_not_its_own() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let mut made = Vec::new();
    for _ in 0..53 {
        made.push(client.task("fails").await);
    }
    let first = client.request("tasks/list", json!({})).await;
    let cursor = first["result"]["nextCursor"]
        .as_str()
        .expect("another page")
        .to_owned();
    let second = client.request("tasks/list", json!({ "cursor": cursor })).await;
    assert!(second["result"].get("nextCursor").is_none());
    let mut listed: Vec<_> = [&first, &second]
        .iter()
        .flat_map(|page| page["result"]["tasks"].as_array().expect("tasks"))
        .map(|task| task["taskId"].as_str().expect("an id").to_owned())
        .collect();
    listed.sort();
    made.sort();
    assert_eq!(listed, made);
    //
    made.dedup();
    assert_eq!(made.len(), 53);
    for bad in ["", "nonsense", &made[0]] {
        let refused = client.request("tasks/list", json!({ "cursor": bad })).await;
        assert_eq!(refused["error"]["code"], -32602, "{bad}");
    }
}

// A-56, D-19
#[tokio::test]
async fn a_cancel_replies_with_the_cancelled_task() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("waits").await;
    let cancel = client.request("tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(cancel["result"]["status"], "cancelled");
    let result = client.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(result["error"]["code"], -32603);
}

// D-46: on the stream that waits for the task.
#[tokio::test]
async fn a_task_asks_on_the_stream_that_waits_for_it() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("asks").await;
    let mut shared = client.listen(None).await;
    let mut stream = client.stream(30, "tasks/result", json!({ "taskId": id })).await;
    let question = stream.until("elicitation/create").await.data;
    assert_eq!(question["params"]["_meta"][RELATED]["taskId"], id.as_str());
    assert!(question["id"].as_str().expect("text").starts_with("tiq-"));
    let got = client.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(got["result"]["status"], "input_required");
    assert_eq!(client.answer(&question, accept("Ada")).await, 202);
    let reply = stream.data().await;
    assert_eq!(reply["result"]["content"][0]["text"], "Ada");
    // the shared stream was told of the status and of nothing else.
    loop {
        let message = shared.data().await;
        assert_eq!(message["method"], "notifications/tasks/status");
        assert!(message["params"]["_meta"].get(RELATED).is_none());
        if message["params"]["status"] == "completed" {
            break;
        }
    }
}

// D-46: a client that only polls is asked on the shared stream, and any session of its owner may answer.
#[tokio::test]
async fn a_task_that_nobody_waits_for_asks_on_the_shared_stream() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("asks").await;
    let mut shared = client.listen(None).await;
    let question = shared.until("elicitation/create").await.data;
    let other = SessionClient::open(&world).await;
    assert_eq!(other.answer(&question, accept("Grace")).await, 202);
    let reply = other.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(reply["result"]["content"][0]["text"], "Grace");
    // D-22: the session that was asked learns that nobody waits for its answer.
    let withdrawn = shared.until("notifications/cancelled").await.data;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
}

// D-46: an error on the shared stream, from a client that perhaps does not know the task yet, settles nothing: it is asked
// again on the stream on which it waits for the task.
#[tokio::test]
async fn a_question_that_fails_on_the_shared_stream_stays_open() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("asks").await;
    let mut shared = client.listen(None).await;
    let question = shared.until("elicitation/create").await.data;
    let error = json!({ "code": -32603, "message": "no such task here" });
    let refusal = json!({ "jsonrpc": "2.0", "id": question["id"], "error": error });
    assert_eq!(client.post(&refusal).await.status, 202);
    let got = client.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(got["result"]["status"], "input_required");
    let mut stream = client.stream(30, "tasks/result", json!({ "taskId": id })).await;
    let question = stream.until("elicitation/create").await.data;
    assert_eq!(client.answer(&question, accept("Ada")).await, 202);
    let reply = stream.data().await;
    assert_eq!(reply["result"]["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn a_session_whose_stream_is_gone_is_forgotten_and_goes_on() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    for _ in 0..2 {
        drop(client.listen(None).await);
        assert!(client.request("ping", json!({})).await.get("result").is_some());
    }
    let mut shared = client.listen(None).await;
    client.task("asks").await;
    let question = shared.until("elicitation/create").await.data;
    assert_eq!(client.answer(&question, accept("Ada")).await, 202);
}

// a resumed stream repeats the id; a new one raises it.
#[tokio::test]
async fn a_stream_that_was_cut_goes_on_where_it_was() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("asks").await;
    let mut stream = client.stream(40, "tasks/result", json!({ "taskId": id })).await;
    let before = stream.next().await.expect("an id without data");
    assert_eq!(before.data, Value::Null);
    let asked = stream.until("elicitation/create").await;
    drop(stream);
    let mut resumed = client.listen(before.id.as_deref()).await;
    let again = resumed.next().await.expect("the question");
    assert_eq!(again.data, asked.data);
    //
    assert_ne!(again.id, before.id);
    drop(resumed);
    let mut fresh = client.stream(41, "tasks/result", json!({ "taskId": id })).await;
    let anew = fresh.until("elicitation/create").await;
    assert_ne!(anew.data["id"], asked.data["id"]);
    //
    assert_ne!(anew.id, asked.id);
    drop(fresh);
    // What the client has seen is not sent again; the answer to what it saw first still counts.
    let mut resumed = client.listen(asked.id.as_deref()).await;
    assert_eq!(client.answer(&asked.data, accept("Edsger")).await, 202);
    loop {
        let event = resumed.next().await.expect("the reply");
        assert_ne!(event.data["method"], "elicitation/create");
        if event.data["id"] == 40 {
            assert_eq!(event.data["result"]["content"][0]["text"], "Edsger");
            break;
        }
    }
}

// A-18, D-27: a plain call asks on its own stream.
#[tokio::test]
async fn a_plain_call_asks_on_its_own_stream() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let mut stream = client
        .stream(50, "tools/call", json!({ "name": "asks", "arguments": {} }))
        .await;
    let question = stream.until("elicitation/create").await.data;
    assert!(
        question["params"]
            .get("_meta")
            .is_none_or(|meta| meta.get(RELATED).is_none())
    );
    assert_eq!(client.answer(&question, accept("Barbara")).await, 202);
    let reply = stream.data().await;
    assert_eq!(reply["id"], 50);
    assert_eq!(reply["result"]["content"][0]["text"], "Barbara");
    // An answer that nobody waits for is taken and dropped (D-41).
    assert_eq!(client.answer(&question, accept("again")).await, 202);
    assert_eq!(
        client
            .answer(&json!({ "id": "tiq-nobody-q1-x" }), accept("who"))
            .await,
        202
    );
}

//
#[tokio::test]
async fn a_tool_says_whether_it_is_called_as_a_task() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let plain = client
        .request("tools/call", json!({ "name": "fails", "arguments": {} }))
        .await;
    assert_eq!(plain["error"]["code"], -32601);
    let as_task = client
        .request(
            "tools/call",
            json!({ "name": "greet", "arguments": {}, "task": {} }),
        )
        .await;
    assert_eq!(as_task["error"]["code"], -32601);
    let older = SessionClient::open_with(&world, initialize("2025-06-18")).await;
    assert_eq!(older.initialized["protocolVersion"], "2025-06-18");
    assert!(older.initialized["capabilities"].get("tasks").is_none());
    let ignored = older
        .request(
            "tools/call",
            json!({ "name": "greet", "arguments": { "name": "you" }, "task": {} }),
        )
        .await;
    assert_eq!(ignored["result"]["content"][0]["text"], "Hello, you!");
    let unknown = older.request("tasks/get", json!({ "taskId": "x" })).await;
    assert_eq!(unknown["error"]["code"], -32601);
}

// D-5
#[tokio::test]
async fn an_error_of_the_tool_is_a_failed_task_with_its_text_and_its_result() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("fails").await;
    let result = client.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(result["result"]["isError"], true);
    let got = client.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(got["result"]["status"], "failed");
    assert_eq!(got["result"]["statusMessage"], "it failed");
    let id = client.task("breaks").await;
    let result = client.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(
        result["error"],
        json!({ "code": -32050, "message": "broken", "data": { "part": 3 } })
    );
}

// giving up a wait ends that wait only.
#[tokio::test]
async fn a_wait_that_is_given_up_leaves_its_task_alone() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("waits").await;
    let mut stream = client.stream(60, "tasks/result", json!({ "taskId": id })).await;
    stream.next().await.expect("an id without data");
    let given_up = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 60, "reason": "timed out" } });
    assert_eq!(client.post(&given_up).await.status, 202);
    while let Some(event) = stream.next().await {
        assert_ne!(event.data["id"], 60);
    }
    let got = client.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(got["result"]["status"], "working");
}

// the token of the call stays good until the task has ended.
#[tokio::test]
async fn progress_goes_on_under_the_token_of_the_call() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("waits").await;
    let mut stream = client.stream(70, "tasks/result", json!({ "taskId": id })).await;
    let progress = stream.until("notifications/progress").await.data;
    assert_eq!(progress["params"]["progressToken"], "p");
    assert_eq!(progress["params"]["_meta"][RELATED]["taskId"], id.as_str());
}

// D-3: one task, read by both generations.
#[tokio::test]
async fn a_task_is_found_from_a_new_session_and_from_the_other_generation() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let id = client.task("waits").await;
    client.end().await;
    let other = SessionClient::open(&world).await;
    world.release();
    let result = other.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(result["result"]["content"][0]["text"], "waited");
    let newer = world.get(&id).await;
    assert_eq!(newer.result()["status"], "completed");
    let answer = world.call(&Client::with_tasks(), "waits", json!({})).await;
    let newer = answer.result()["taskId"].as_str().expect("a task");
    let got = other.request("tasks/get", json!({ "taskId": newer })).await;
    assert_eq!(got["result"]["taskId"], newer);
}

//
#[tokio::test]
async fn an_unknown_task_is_the_same_error_everywhere() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let refused = client.request(method, json!({ "taskId": "lh1.1.nobody" })).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}");
        assert_eq!(
            refused["error"]["message"],
            "Failed to retrieve task: Task not found"
        );
    }
}

/// How many calls were born.
async fn born(world: &World) -> usize {
    let all = world.dispatch.list(ME, Filter::default()).await;
    all.expect("a list").tasks.len()
}

// D-45: a client that gives up without a word and calls again waits for the same work.
#[tokio::test(start_paused = true)]
async fn an_equal_call_of_a_session_whose_call_is_held_is_its_client_coming_back() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let call = json!({ "name": "waits", "arguments": {}, "_meta": { "progressToken": 1 } });
    let mut given_up = client.stream(80, "tools/call", call.clone()).await;
    given_up.next().await.expect("an id without data");
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    let mut back = client.stream(81, "tools/call", call).await;
    back.next().await.expect("an id without data");
    world.release();
    loop {
        let data = back.data().await;
        if data["id"] == 81 {
            assert_eq!(data["result"]["content"][0]["text"], "waited");
            break;
        }
    }
    assert_eq!(born(&world).await, 1);
}

#[tokio::test]
async fn equal_calls_of_a_session_side_by_side_are_each_their_own_work() {
    let world = World::start().await;
    let client = SessionClient::open(&world).await;
    let call = json!({ "name": "waits", "arguments": {} });
    let mut one = client.stream(82, "tools/call", call.clone()).await;
    let mut two = client.stream(83, "tools/call", call).await;
    one.next().await.expect("an id without data");
    two.next().await.expect("an id without data");
    world.release();
    for stream in [&mut one, &mut two] {
        while stream.next().await.is_some() {}
    }
    assert_eq!(born(&world).await, 2);
}
