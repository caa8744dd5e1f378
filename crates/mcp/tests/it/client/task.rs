//! A task of a server, the same from either generation.

use std::time::Duration;

use longhaul_mcp::{
    client::{
        self, Era,
        result::Bad,
        task::{State, about, created, read, relate, related, update},
    },
    frame::Obj,
    reply::InputRequest,
    request::Answers,
};
use serde_json::{Value, json};

use super::SESSION;
use crate::support::{Official, assert_is, raw};

fn obj(value: &Value) -> Obj {
    Obj::parse(&value.to_string()).expect("an object")
}

/// A task in this state, with more in it, as this generation writes it.
fn task(era: Era, status: &str, more: Value) -> Value {
    let mut task = json!({
        "taskId": "tk_Zq81vS0cYl3nR7", "status": status,
        "createdAt": "2026-11-29T09:00:00Z", "lastUpdatedAt": "2026-11-29T09:00:12Z",
    });
    match era {
        Era::Session(_) => task["ttl"] = json!(1_800_000),
        Era::Stateless => {
            task["ttlMs"] = json!(1_800_000);
            task["resultType"] = json!("complete");
        }
    }
    for (name, value) in more.as_object().expect("an object") {
        task[name] = value.clone();
    }
    task
}

fn state(era: Era, status: &str, more: Value) -> Result<State, Bad> {
    read(&obj(&task(era, status, more)), era).map(|task| task.state)
}

/// A-43, A-46, C-8, C-10.
#[test]
fn a_call_is_made_a_task_nested_in_one_generation_and_flat_in_the_other() {
    let more = json!({ "statusMessage": "queued on worker 2" });
    let nested = json!({ "task": task(SESSION, "working", more.clone()), "_meta": { "vendor": 1 } });
    assert_is(Official::Sessions, "CreateTaskResult", &nested);
    let mut flat = task(Era::Stateless, "working", more);
    flat["resultType"] = json!("task");
    for (result, era) in [(&nested, SESSION), (&flat, Era::Stateless)] {
        let task = created(&raw(result), era).expect("a task");
        assert_eq!(task.message.as_deref(), Some("queued on worker 2"));
        assert_eq!(task.state, State::Working);
    }
    // K-1: an outcome is read with `tasks/get` only.
    flat["status"] = json!("completed");
    let task = created(&raw(&flat), Era::Stateless).expect("a task");
    assert_eq!(task.state, State::Working);
    assert_eq!(created(&raw(&nested), Era::Stateless), Err(Bad::BadTask));
}

/// A-49, A-65, C-15, C-19.
#[test]
fn a_task_that_ended_says_how_in_the_way_of_its_generation() {
    let result =
        json!({ "resultType": "complete", "content": [{ "type": "text", "text": "no" }], "isError": true });
    let error = json!({ "code": -32050, "message": "Refused", "data": { "n": 1 } });
    assert_eq!(
        state(SESSION, "completed", json!({})),
        Ok(State::Settled { is_failure: false })
    );
    assert_eq!(
        state(SESSION, "failed", json!({})),
        Ok(State::Settled { is_failure: true })
    );
    // D-8
    let came = state(Era::Stateless, "completed", json!({ "result": result }));
    let bare = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
    let Ok(State::Came(came)) = came else {
        panic!("{came:?}")
    };
    assert_eq!(came.read::<Value>().expect("JSON"), bare);
    assert_eq!(
        state(Era::Stateless, "failed", json!({ "error": error })),
        Ok(State::Errored(raw(&error)))
    );
    for era in [SESSION, Era::Stateless] {
        assert_eq!(state(era, "cancelled", json!({})), Ok(State::Cancelled));
        assert_eq!(state(era, "working", json!({ "vendor": [] })), Ok(State::Working));
    }
    for (status, more) in [
        ("completed", json!({})),
        (
            "completed",
            json!({ "result": { "resultType": "input_required", "requestState": "s" } }),
        ),
        ("failed", json!({})),
        ("pending", json!({})),
    ] {
        assert_eq!(state(Era::Stateless, status, more), Err(Bad::BadTask), "{status}");
    }
    assert_eq!(
        state(Era::Stateless, "failed", json!({ "error": { "code": 1 } })),
        Err(Bad::BadError)
    );
}

/// A-60, C-20.
#[test]
fn a_task_that_asks_names_its_questions_where_its_generation_does() {
    let ask = json!({ "method": "elicitation/create", "params": { "message": "?" } });
    let requests = json!({ "q1": ask, "q2": { "method": "roots/list" } });
    let asking = state(
        Era::Stateless,
        "input_required",
        json!({ "inputRequests": requests }),
    );
    let q1 = InputRequest {
        key: "q1".to_owned(),
        ask: raw(&ask),
    };
    let q2 = InputRequest {
        key: "q2".to_owned(),
        ask: raw(&json!({ "method": "roots/list" })),
    };
    assert_eq!(asking, Ok(State::Asking(vec![q1, q2])));
    for era in [SESSION, Era::Stateless] {
        assert_eq!(
            state(era, "input_required", json!({})),
            Ok(State::Asking(Vec::new()))
        );
    }
    assert_eq!(
        state(
            Era::Stateless,
            "input_required",
            json!({ "inputRequests": { "q": 1 } })
        ),
        Err(Bad::BadQuestions)
    );
}

/// A-47, Q-26.
#[test]
fn a_hint_that_makes_no_sense_is_none() {
    for (name, era) in [("pollInterval", SESSION), ("pollIntervalMs", Era::Stateless)] {
        for (hint, expect) in [
            (json!(4000), Some(4000)),
            (json!(250.0), Some(250)),
            (json!(0), None),
            (json!(-5), None),
            (json!(1e300), None),
            (json!("4000"), None),
            (json!(null), None),
        ] {
            let mut more = json!({});
            more[name] = hint.clone();
            let task = read(&obj(&task(era, "working", more)), era).expect("a task");
            assert_eq!(task.poll, expect.map(Duration::from_millis), "{name} {hint}");
        }
    }
}

/// A-48, C-23, C-1, C-38.
#[test]
fn what_is_sent_about_a_task_is_what_its_generation_reads() {
    assert_eq!(about("tk").to_raw().text(), r#"{"taskId":"tk"}"#);
    let answers = obj(&json!({ "q1": { "action": "decline" } }));
    assert_eq!(
        update("tk", &answers).to_raw().text(),
        r#"{"taskId":"tk","inputResponses":{"q1":{"action":"decline"}}}"#
    );
    let mut capabilities = client::capabilities(Answers {
        form: true,
        ..Answers::default()
    });
    client::take_tasks(&mut capabilities);
    assert_eq!(
        capabilities.to_raw().text(),
        r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#
    );
    let listen = client::listen_to_tasks(&["tk".to_owned()]);
    assert_eq!(listen.to_raw().text(), r#"{"notifications":{"taskIds":["tk"]}}"#);
}

/// A-62.
#[test]
fn what_belongs_to_a_task_says_so() {
    let mut answer = obj(&json!({ "action": "cancel", "_meta": { "vendor": 1 } }));
    relate(&mut answer, "tk");
    assert_eq!(related(&answer).as_deref(), Some("tk"));
    assert_eq!(
        answer.to_raw().text(),
        r#"{"_meta":{"vendor":1,"io.modelcontextprotocol/related-task":{"taskId":"tk"}},"action":"cancel"}"#
    );
    assert_eq!(related(&obj(&json!({ "_meta": {} }))), None);
}
