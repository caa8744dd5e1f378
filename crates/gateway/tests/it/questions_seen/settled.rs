//! How a question of a server ends when nobody fills in its form: what the server reads, for each generation of servers
//! and of clients.

use serde_json::{Value, json};

use super::{Behind, Carrier, how, listing};
use crate::{
    session_client::{SessionClient, initialize},
    support::{Client, World},
};

const SERVERS: [Behind; 4] = [
    Behind::Plain("2025"),
    Behind::Plain("2026"),
    Behind::Tasks("2025"),
    Behind::Tasks("2026"),
];

async fn world(behind: Behind, more: &str) -> World {
    let (_, how) = how(behind, Carrier::Pipe).await.expect("a server");
    listing(&format!("{more}[servers.asks]\n{how}")).await
}

/// A client of 2026-07-28 whose call became a task that asks: the task and the key of its question.
async fn asking(world: &World, tool: &str) -> (String, String) {
    let created = world.call(&Client::with_tasks(), tool, json!({})).await;
    let id = created.result()["taskId"].as_str().expect("an id").to_owned();
    let task = world.until(&id, "input_required").await;
    let requests = task["inputRequests"].as_object().expect("questions");
    let key = requests.keys().next().expect("a question").clone();
    (id, key)
}

/// What the server read as the answer to its one question.
async fn read(world: &World, id: &str) -> Value {
    let task = world.until(id, "completed").await;
    answer_in(&task)
}

fn answer_in(response: &Value) -> Value {
    let text = response["result"]["content"][0]["text"].as_str().expect("text");
    let returned: Value = serde_json::from_str(text).expect("JSON");
    let answers = returned["answers"].as_object().expect("answers");
    answers.values().next().expect("an answer").clone()
}

/// A session whose call asks: its question, answered so; then what the server read.
async fn in_session(world: &World, tool: &str, response: Value) -> Value {
    let client = SessionClient::open(world).await;
    let call = json!({ "name": tool, "arguments": {} });
    let mut events = client.frames(9, "tools/call", call).await;
    let question = events.until("elicitation/create").await.data;
    let mut frame = json!({ "jsonrpc": "2.0", "id": question["id"] });
    let (member, value) = response.as_object().expect("one").iter().next().expect("one");
    frame[member] = value.clone();
    assert_eq!(client.post(&frame).await.status, 202);
    loop {
        let frame = events.data().await;
        if frame["id"] == 9 && frame["method"].is_null() {
            return answer_in(&frame);
        }
    }
}

// A-72, D-32
#[tokio::test]
async fn a_server_reads_whether_its_question_was_declined_or_dismissed() {
    for behind in SERVERS {
        let world = world(behind, "").await;
        for action in ["decline", "cancel"] {
            let (id, key) = asking(&world, "ask_form").await;
            let answers = json!({ "taskId": id, "inputResponses": { key: { "action": action } } });
            world
                .rpc(&Client::with_tasks(), "tasks/update", answers)
                .await
                .result();
            assert_eq!(read(&world, &id).await, json!({ "action": action }), "{behind:?}");
            let answer = json!({ "result": { "action": action } });
            let read = in_session(&world, "ask_form", answer).await;
            assert_eq!(read, json!({ "action": action }), "{behind:?}");
        }
        // A client that cannot ask its user has not chosen.
        let failed = json!({ "error": { "code": -32603, "message": "no window" } });
        let read = in_session(&world, "ask_form", failed).await;
        assert_eq!(read["action"], "cancel", "{behind:?}");
    }
}

// Q-24, D-30
#[tokio::test]
async fn the_third_answer_that_does_not_fit_declines_a_server_s_question() {
    for behind in SERVERS {
        let world = world(behind, "").await;
        let (id, key) = asking(&world, "ask_number").await;
        let wrong = json!({ "action": "accept", "content": { "number": 10 } });
        for time in 1..=3 {
            let answers = json!({ "taskId": id, "inputResponses": { &key: wrong } });
            let misfit = world.rpc(&Client::with_tasks(), "tasks/update", answers).await;
            assert_eq!(misfit.code(), -32602, "{behind:?}");
            assert_eq!(misfit.body["error"]["data"]["reason"], "misfit");
            let message = misfit.body["error"]["message"].as_str().expect("text");
            assert!(message.contains("field `number`"), "{message}");
            assert_eq!(message.contains("third misfit"), time == 3, "{message}");
        }
        assert_eq!(read(&world, &id).await["action"], "decline", "{behind:?}");
        // A session hears of no misfit: the first one is a decline.
        let read = in_session(&world, "ask_number", json!({ "result": wrong })).await;
        assert_eq!(read["action"], "decline", "{behind:?}");
    }
}

// D-32
#[tokio::test]
async fn silence_declines_a_server_s_question_at_its_deadline() {
    for behind in SERVERS {
        let world = world(behind, "[tasks]\ninput_timeout = \"1s\"\n").await;
        let (id, _) = asking(&world, "ask_form").await;
        assert_eq!(read(&world, &id).await["action"], "decline", "{behind:?}");
    }
}

// G-29
#[tokio::test]
async fn a_server_s_form_that_asks_for_a_secret_is_declined_unseen() {
    for behind in SERVERS {
        let world = world(behind, "").await;
        let client = SessionClient::open(&world).await;
        let call = json!({ "name": "ask_secret", "arguments": {} });
        let mut events = client.frames(9, "tools/call", call).await;
        let first = events.data().await;
        assert_eq!(answer_in(&first)["action"], "decline", "{behind:?}: {first}");
        let reply = world
            .call(&Client::without_tasks(), "ask_secret", json!({}))
            .await;
        assert_eq!(answer_in(&reply.body)["action"], "decline", "{behind:?}");
    }
}

// A-70, D-29, D-34
#[tokio::test]
async fn who_cannot_be_asked_is_asked_nothing_even_by_a_server_that_asks_all_the_same() {
    for behind in SERVERS {
        for rude in [false, true] {
            let (_, mut how) = how(behind, Carrier::Pipe).await.expect("a server");
            if rude {
                how = how.replacen("\"stdio\"", "\"stdio\", \"--rude\"", 1);
            }
            let world = listing(&format!("[servers.asks]\n{how}")).await;
            for tool in ["ask_model", "ask_folders"] {
                let client = SessionClient::open_with(&world, initialize("2025-11-25")).await;
                let of_session = client.call(tool, json!({})).await;
                let reply = world.call(&Client::without_tasks(), tool, json!({})).await;
                for response in [of_session, reply.body] {
                    nobody(behind, rude, &response);
                }
            }
        }
    }
}

/// The server was told that nobody can be asked: it does not ask, or is refused, or its call is.
fn nobody(behind: Behind, rude: bool, response: &Value) {
    if !rude {
        let text = response["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_default();
        assert!(text.contains("\"undeclared\""), "{behind:?}: {response}");
        return;
    }
    match behind {
        Behind::Plain("2025") | Behind::Tasks("2025") => {
            let code = answer_in(response)["error"]["code"].as_i64();
            assert!(matches!(code, Some(-32601 | -32602)), "{response}");
        }
        Behind::Command | Behind::Plain(_) | Behind::Tasks(_) => assert_eq!(
            response["error"]["data"]["reason"], "upstream_asked",
            "{response}"
        ),
    }
}
