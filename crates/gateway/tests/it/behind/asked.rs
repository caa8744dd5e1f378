//! What a server behind may ask whom, and what becomes of it: what it is told, what its settings allow, and the rules of
//! its questions.

use serde_json::{Value, json};

use super::{fixture, world};
use crate::{
    session_client::{SessionClient, initialize},
    support::{Client, World, site::said},
};

const ALL: &str = "questions = [\"form\", \"url\", \"sampling\", \"roots\"]\n";

/// A form that asks for a name.
pub(super) fn form() -> Value {
    let schema =
        json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    json!({ "method": "elicitation/create", "params": { "message": "Who?", "requestedSchema": schema } })
}

fn sampling() -> Value {
    let messages = json!([{ "role": "user", "content": { "type": "text", "text": "Hello?" } }]);
    json!({ "method": "sampling/createMessage", "params": { "messages": messages, "maxTokens": 5 } })
}

fn text_of(result: &Value) -> Value {
    serde_json::from_str(said(result)).expect("JSON")
}

async fn session(world: &World, capabilities: Value) -> SessionClient<'_> {
    let mut hello = initialize("2025-11-25");
    hello["capabilities"] = capabilities;
    SessionClient::open_with(world, hello).await
}

async fn told(session: &SessionClient<'_>) -> Value {
    text_of(&session.call("told", json!({})).await["result"])
}

fn of_run(run: &str, capabilities: Value) -> (Client, Value) {
    let client = Client {
        capabilities,
        ..Client::without_tasks()
    };
    (client, json!({ "dev.longhaul/session": run }))
}

async fn inquire(world: &World, (client, meta): &(Client, Value), asks: Value) -> crate::support::Answer {
    let params = json!({ "name": "inquire", "arguments": { "asks": asks }, "_meta": meta });
    world.rpc(client, "tools/call", params).await
}

#[tokio::test]
async fn d29_a_session_server_is_told_what_its_own_caller_can_be_asked() {
    let everything = json!({ "elicitation": { "url": {} }, "sampling": {}, "roots": {} });
    let personal = json!({ "elicitation": { "form": {}, "url": {} } });
    // Whoever sits at the machine can always answer forms and links.
    let asked_of_all = world("2025", ALL).await;
    let able = session(&asked_of_all, everything.clone()).await;
    let all = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    assert_eq!(told(&able).await, all);
    assert_eq!(told(&session(&asked_of_all, json!({})).await).await, personal);
    // G-29: its settings must allow that the client's model is asked.
    let usual = world("2025", "").await;
    let able = session(&usual, everything.clone()).await;
    let rooted = json!({ "elicitation": { "form": {}, "url": {} }, "roots": {} });
    assert_eq!(told(&able).await, rooted);
    let forms = world("2025", "questions = [\"form\"]\n").await;
    let able = session(&forms, everything.clone()).await;
    assert_eq!(told(&able).await, json!({ "elicitation": { "form": {} } }));
    // What serves several clients is told of none.
    for isolation in ["principal", "shared"] {
        let world = world("2025", &format!("{ALL}isolation = \"{isolation}\"\n")).await;
        let able = session(&world, everything.clone()).await;
        assert_eq!(told(&able).await, personal, "{isolation}");
    }
}

#[tokio::test]
async fn a_spare_process_goes_to_a_caller_who_can_be_asked_what_it_was_told() {
    let world = world("2025", "").await;
    let server = world.fleet.server("fixture").expect("it is configured");
    let spare = server.live()[0].pid;
    let pid = async |session: &SessionClient<'_>| {
        let reply = session.call("pid", json!({})).await;
        said(&reply["result"]).parse::<i32>().ok()
    };
    let rooted = session(&world, json!({ "roots": {} })).await;
    assert_ne!(pid(&rooted).await, spare);
    assert_eq!(server.count(), 2);
    let usual = SessionClient::open(&world).await;
    assert_eq!(pid(&usual).await, spare);
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_spare_process_makes_way_where_there_may_be_no_more() {
    let world = world("2025", "processes_max = 1\n").await;
    let rooted = session(&world, json!({ "roots": {} })).await;
    let told = told(&rooted).await;
    assert!(told["roots"].is_object(), "{told}");
    let server = world.fleet.server("fixture").expect("it is configured");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn d29_what_a_later_caller_of_a_process_cannot_be_asked_is_answered_for_it() {
    let world = world("2025", ALL).await;
    let able = of_run("a", json!({ "sampling": {} }));
    // Its first call tells the server what may be asked.
    inquire(&world, &able, json!({})).await.result();
    let mute = of_run("a", json!({}));
    let answered = inquire(&world, &mute, json!({ "model": sampling() })).await;
    let answer = text_of(answered.result());
    assert_eq!(answer["model"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn g34_with_on_nobody_fail_a_question_that_nobody_can_answer_fails_the_call() {
    for era in ["2025", "2026"] {
        let more = format!("{ALL}on_nobody = \"fail\"\ntasks = \"never\"\n");
        let world = world(era, &more).await;
        let able = of_run("a", json!({ "sampling": {} }));
        inquire(&world, &able, json!({})).await;
        let mute = of_run("a", json!({}));
        // Of several that come together none is asked.
        let asks = match era {
            "2025" => json!({ "model": sampling() }),
            _ => json!({ "model": sampling(), "who": form() }),
        };
        let failed = inquire(&world, &mute, asks).await;
        let error = &failed.body["error"];
        assert_eq!(error["data"]["reason"], "no_one_to_answer", "{era}: {error}");
    }
}

#[tokio::test]
async fn d32_a_server_s_question_that_is_not_answered_in_time_ends_by_its_rules() {
    let rules = "promote_after = \"0s\"\nquestion_deadline = \"1s\"\non_silence = \"cancel\"\n";
    for era in ["2025", "2026"] {
        let of_tool = "[servers.fixture.tools.form]\non_silence = \"decline\"\n";
        let world = world(era, &format!("{rules}{of_tool}")).await;
        for (tool, action) in [("inquire", "cancel"), ("form", "decline")] {
            let arguments = json!({ "asks": { "who": form() } });
            let created = world.call(&Client::with_tasks(), tool, arguments).await;
            let id = created.result()["taskId"].as_str().expect("an id").to_owned();
            let task = world.until(&id, "completed").await;
            let answered = said(&task["result"]);
            assert!(
                answered.contains(&format!("\"action\": \"{action}\"")),
                "{era}: {answered}"
            );
        }
    }
}

#[tokio::test]
async fn a_client_with_a_session_is_asked_again_where_its_server_s_settings_say_so() {
    for (on_misfit, times) in [("decline", 1), ("ask_again", 3)] {
        let more = format!("tasks = \"never\"\non_misfit = \"{on_misfit}\"\n");
        let world = world("2025", &more).await;
        let session = SessionClient::open(&world).await;
        let call = json!({ "name": "form", "arguments": {} });
        let mut events = session.stream(9, "tools/call", call).await;
        for _ in 0..times {
            let asked = events.until("elicitation/create").await.data;
            let misfit = json!({ "action": "accept", "content": { "name": 5 } });
            assert_eq!(session.answer(&asked, misfit).await, 202);
        }
        let done = loop {
            let event = events.data().await;
            assert_ne!(event["method"], "elicitation/create", "{on_misfit}");
            if event.get("result").is_some() {
                break event;
            }
        };
        assert_eq!(said(&done["result"]), r#"{"action": "decline"}"#);
    }
}

#[tokio::test]
async fn d34_a_server_is_answered_with_the_roots_of_its_settings() {
    for era in ["2025", "2026"] {
        let world = world(era, "roots = [\"/tmp/plans\"]\n").await;
        // Whatever the client can say itself.
        for capabilities in [json!({}), json!({ "roots": {} })] {
            let run = of_run("a", capabilities);
            let asks = json!({ "where": { "method": "roots/list" } });
            let answered = inquire(&world, &run, asks).await;
            let roots = json!([{ "uri": "file:///tmp/plans", "name": "plans" }]);
            assert_eq!(text_of(answered.result())["where"]["roots"], roots, "{era}");
        }
    }
}

#[tokio::test]
async fn d33_a_wish_for_a_task_in_what_a_server_asks_is_ignored() {
    let world = world("2025", &format!("{ALL}tasks = \"never\"\n")).await;
    let session = session(&world, json!({ "elicitation": {}, "sampling": {} })).await;
    let (mut who, mut model) = (form(), sampling());
    who["params"]["task"] = json!({ "ttl": 1000 });
    model["params"]["task"] = json!({ "ttl": 1000 });
    let arguments = json!({ "asks": { "who": who, "model": model } });
    let call = json!({ "name": "inquire", "arguments": arguments });
    let mut events = session.stream(9, "tools/call", call).await;
    let mut asked = Vec::new();
    while asked.len() < 2 {
        let event = events.data().await;
        if let Some(method) = event["method"].as_str().filter(|_| event.get("id").is_some()) {
            assert!(event["params"].get("task").is_none(), "{event}");
            asked.push(method.to_owned());
        }
    }
    asked.sort();
    assert_eq!(asked, ["elicitation/create", "sampling/createMessage"]);
}

#[tokio::test]
async fn d22_a_question_that_is_open_at_a_cancel_is_answered_with_cancel() {
    let world = world("2025", "promote_after = \"0s\"\nisolation = \"shared\"\n").await;
    let created = world
        .call(
            &Client::with_tasks(),
            "inquire",
            json!({ "asks": { "who": form() } }),
        )
        .await;
    let id = created.result()["taskId"].as_str().expect("an id").to_owned();
    world.until(&id, "input_required").await;
    world
        .rpc(&Client::with_tasks(), "tasks/cancel", json!({ "taskId": id }))
        .await
        .result();
    super::seen(&world, |seen| {
        seen["answers"]["inquire-1-who"] == json!({ "action": "cancel" })
    })
    .await;
}

#[tokio::test]
async fn nobody_is_asked_what_a_server_s_settings_forbid() {
    for era in ["2025", "2026"] {
        let world = World::ready_behind(
            &fixture(era, "tasks = \"never\"\nquestions = [\"url\"]\n"),
            longhaul_gateway::dispatch::Settings::default(),
        )
        .await;
        let able = of_run("a", json!({ "elicitation": {}, "roots": {} }));
        let answered = inquire(&world, &able, json!({ "who": form() })).await;
        let answer = &text_of(answered.result())["who"];
        match era {
            "2025" => assert_eq!(answer["code"], -32602, "{answer}"),
            _ => assert_eq!(answer["action"], "cancel", "{answer}"),
        }
    }
}
