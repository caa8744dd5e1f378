//! Questions of a command: how they are asked, what comes back, and which may not be shown.

use longhaul_core::{
    Body, Event, Outcome, Phase, TaskId,
    event::Answer,
    task::{QuestionState, Reader},
};
use longhaul_gateway::{
    config::Bytes,
    outbound::{self, Note, Question, Unasked},
    question::Stored,
};
use longhaul_mcp::url_rule::{BadLink, Reach};
use longhaul_store::Row;
use serde_json::{Value as Json, json};

use super::{Rig, text};

const ASKING: &str = r#"import json, os, socket, sys
lines = socket.socket(fileno=os.dup(int(os.environ["LONGHAUL_FD"]))).makefile("rw")
asks = json.loads(sys.argv[1])
print(json.dumps({"ask": asks}), file=lines, flush=True)
for _ in asks if isinstance(asks, list) else [asks]:
    print(lines.readline(), end="")
"#;

async fn asking() -> Rig {
    asking_with("").await
}

async fn asking_with(settings: &str) -> Rig {
    Rig::new(&asking_tool(settings)).await
}

fn asking_tool(settings: &str) -> String {
    let asking = ASKING.replace('{', "{{").replace('}', "}}");
    format!(
        "[tools.t]\ncommand = [\"python3\", \"-c\", '''{asking}''', \"{{q}}\"]\nargs.q = \"string\"\n{settings}\n"
    )
}

async fn asked(rig: &Rig, question: Json) -> (TaskId, Row) {
    let id = rig.call("t", json!({ "q": question.to_string() })).await;
    let row = rig.until(id, |row| row.task.phase != Phase::Working).await;
    (id, row)
}

async fn told(rig: &Rig, id: TaskId) -> String {
    match rig.outcome(id).await {
        Outcome::Returned { body, .. } => {
            text(&serde_json::from_slice(body.bytes().expect("read")).expect("JSON"))
        }
        other @ (Outcome::Errored { .. } | Outcome::Cancelled { .. } | Outcome::Failed(_)) => {
            panic!("{other:?}")
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_asked_and_its_answer_goes_back() {
    let rig = asking().await;
    let (id, row) = asked(
        &rig,
        json!({ "id": "q1", "message": "Which region?", "choices": ["eu", "us"] }),
    )
    .await;
    let question = row.task.open_questions().next().expect("a question").clone();
    assert!(matches!(question.state, QuestionState::Open { .. }));
    let stored = Stored::decode(&question.ask).expect("ours");
    assert!(
        stored.request.text().contains("\"Which region?\""),
        "{}",
        stored.request.text()
    );
    let answer = Answer::Accept(Body::new(br#"{"answer":"eu"}"#));
    rig.happen(
        id,
        Event::Answered {
            key: question.key,
            reader: Reader::Client,
            answer,
        },
    )
    .await;
    assert_eq!(
        told(&rig, id).await,
        r#"{"answer":{"id":"q1","action":"accept","content":{"answer":"eu"}}}"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decline_and_a_dismissal_are_told_apart() {
    let rig = asking().await;
    for (answer, action) in [(Answer::Decline, "decline"), (Answer::Dismiss, "cancel")] {
        let (id, row) = asked(&rig, json!({ "id": 7, "message": "Go on?" })).await;
        let key = row.task.open_questions().next().expect("a question").key;
        rig.happen(
            id,
            Event::Answered {
                key,
                reader: Reader::Client,
                answer,
            },
        )
        .await;
        assert_eq!(
            told(&rig, id).await,
            format!(r#"{{"answer":{{"id":7,"action":"{action}"}}}}"#)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_may_not_be_shown_is_declined_with_the_reason() {
    let rig = asking().await;
    let (id, _) = asked(&rig, json!({ "id": 1, "message": "" })).await;
    assert_eq!(
        told(&rig, id).await,
        r#"{"answer":{"id":1,"action":"decline","why":"a question needs a message"}}"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_a_line_that_is_too_long_is_declined_by_its_id_or_by_null() {
    let rig = Rig::with(&asking_tool(""), |host| host.limits.question_max = Bytes(1000)).await;
    let long = "x".repeat(5000);
    let why = r#""action":"decline","why":"its line has more than 1000 bytes (`limits.question_max`)""#;
    for (question, ids) in [
        (json!({ "id": "q1", "message": long }), ["\"q1\""].as_slice()),
        (json!({ "choices": [long], "id": "q1" }), &["null"]),
        (
            json!([{ "id": 1, "message": "?" }, { "choices": [long], "id": 2 }]),
            &["1", "null"],
        ),
    ] {
        let id = rig.call("t", json!({ "q": question.to_string() })).await;
        let told = told(&rig, id).await;
        let mut lines: Vec<_> = told.lines().collect();
        lines.sort_unstable();
        let expected = ids
            .iter()
            .map(|id| format!(r#"{{"answer":{{"id":{id},{why}}}}}"#));
        assert_eq!(lines, expected.collect::<Vec<_>>());
        let row = rig.until(id, |row| !row.note.is_empty()).await;
        let note = Note::decode(&row.note).message.unwrap_or_default();
        assert!(
            note.starts_with("A question was not asked: its line has"),
            "{note}"
        );
    }
}

/// Accepts every open question with this answer.
async fn accept_all(rig: &Rig, id: TaskId, row: &Row, answer: &'static [u8]) {
    for question in row.task.open_questions() {
        let event = Event::Answered {
            key: question.key,
            reader: Reader::Client,
            answer: Answer::Accept(Body::new(answer)),
        };
        rig.happen(id, event).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_asked_at_once_and_answered_line_by_line() {
    let rig = asking().await;
    let (id, row) = asked(
        &rig,
        json!([{ "id": "a", "message": "First?" }, { "id": 2, "message": "" }, { "id": "b", "message": "Second?" }]),
    )
    .await;
    assert_eq!(row.task.open_questions().count(), 2);
    accept_all(&rig, id, &row, br#"{"answer":"x"}"#).await;
    let told = told(&rig, id).await;
    let mut lines: Vec<&str> = told.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            r#"{"answer":{"id":"a","action":"accept","content":{"answer":"x"}}}"#,
            r#"{"answer":{"id":"b","action":"accept","content":{"answer":"x"}}}"#,
            r#"{"answer":{"id":2,"action":"decline","why":"a question needs a message"}}"#,
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_can_never_be_open_at_once_is_declined() {
    let rig = asking().await;
    let many: Vec<Json> = (0..=rig.config.tasks.questions_max)
        .map(|id| json!({ "id": id, "message": "Go on?" }))
        .collect();
    let id = rig.call("t", json!({ "q": json!(many).to_string() })).await;
    let told = told(&rig, id).await;
    assert_eq!(told.lines().count(), many.len());
    let declined = r#""action":"decline","why":"too many questions"}}"#;
    assert!(told.lines().all(|line| line.ends_with(declined)), "{told}");
}

// Q-4
#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_asked_itself_only_when_its_call_declared_so() {
    let rig = asking().await;
    let roots = json!({ "id": 1, "method": "roots/list" });
    let (id, row) = asked(&rig, roots.clone()).await;
    assert_eq!(
        told(&rig, id).await,
        r#"{"answer":{"id":1,"action":"nobody","why":"no_one_to_answer"}}"#
    );
    assert!(row.task.questions.is_empty());

    let id = rig
        .call_declaring("t", json!({ "q": roots.to_string() }), json!({ "roots": true }))
        .await;
    let row = rig.until(id, |row| row.task.phase != Phase::Working).await;
    let stored = Stored::decode(&row.task.questions[0].ask).expect("ours");
    assert_eq!(stored.request.text(), r#"{"method":"roots/list","params":{}}"#);
    // Members of an answer are never taken for those of a form.
    accept_all(&rig, id, &row, br#"{"action":"accept","content":{},"roots":[]}"#).await;
    assert_eq!(
        told(&rig, id).await,
        r#"{"answer":{"id":1,"action":"accept","content":{"action":"accept","content":{},"roots":[]}}}"#
    );
}

// G-34
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_can_answer_fails_a_task_whose_tool_says_so() {
    let rig = asking_with("on_nobody = \"fail\"").await;
    let ask = json!({ "id": 1, "method": "roots/list" }).to_string();
    let id = rig.call("t", json!({ "q": ask })).await;
    let ended = rig.outcome(id).await;
    assert!(
        matches!(ended, Outcome::Failed(longhaul_core::Reason::NobodyToAnswer)),
        "{ended:?}"
    );
}

fn checked(question: Json) -> Result<Stored, Unasked> {
    checked_for(question, Reach::Public)
}

fn checked_for(question: Json, reach: Reach) -> Result<Stored, Unasked> {
    let question = serde_json::from_value::<Question>(question).expect("a question");
    let ask = outbound::question(&question, reach, 4096)?;
    Ok(Stored::decode(&ask.body).expect("ours"))
}

// T5, S11; the rule itself is tested where it is.
#[test]
fn a_link_is_shown_as_browsers_write_it_or_not_at_all() {
    let ask = |url: &str, reach| {
        let question = json!({ "message": "Connect", "url": url });
        checked_for(question, reach).map(|stored| stored.request.text().to_owned())
    };
    let shown = |url: &str| {
        format!(
            r#"{{"method":"elicitation/create","params":{{"mode":"url","message":"Connect","url":"{url}"}}}}"#
        )
    };
    assert_eq!(
        ask(
            "https://Tickets.example.com:443/connect/../a?x=1#b",
            Reach::Public
        ),
        Ok(shown("https://tickets.example.com/a?x=1#b"))
    );
    assert_eq!(ask("", Reach::ThisMachine), Err(Unasked::Link(BadLink::Scheme)));
    let here = "http://127.0.0.1:8080/callback";
    assert_eq!(ask(here, Reach::ThisMachine), Ok(shown(here)));
    assert_eq!(ask(here, Reach::Public), Err(Unasked::Link(BadLink::Scheme)));
    assert_eq!(
        ask("https://10.0.0.1/", Reach::ThisMachine),
        Err(Unasked::Link(BadLink::Address))
    );
}

// S11
#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_this_machine_is_shown_to_its_own_users_only() {
    let question = json!({ "id": 1, "message": "Connect", "url": "http://localhost:8080/callback" });
    let mut rig = asking().await;
    let (_, row) = asked(&rig, question.clone()).await;
    assert_eq!(row.task.phase, Phase::Asking);
    rig.issuer = "elsewhere";
    let (id, _) = asked(&rig, question).await;
    let why = "a link must be one that begins with `https://` and a host";
    let answer = json!({ "answer": { "id": 1, "action": "decline", "why": why } });
    assert_eq!(
        serde_json::from_str::<Json>(&told(&rig, id).await).expect("JSON"),
        answer
    );
}

// A-80a
#[test]
fn a_client_is_asked_what_every_client_that_samples_understands() {
    let message = json!({ "role": "user", "content": { "type": "text", "text": "Hi" } });
    let ask = |params: Json| checked(json!({ "method": "sampling/createMessage", "params": params }));
    let good = json!({ "messages": [message], "maxTokens": 10, "systemPrompt": "Be brief" });
    assert!(ask(good.clone()).is_ok());
    for (member, value) in [
        ("messages", json!([])),
        ("messages", json!("Hi")),
        ("maxTokens", json!(0)),
        ("maxTokens", json!("10")),
        ("tools", json!([])),
        ("includeContext", json!("allServers")),
        ("task", json!({})),
        ("_meta", json!({})),
    ] {
        let mut bad = good.clone();
        bad[member] = value;
        assert!(matches!(ask(bad), Err(Unasked::Sampling(_))), "{member}");
    }
    assert!(matches!(ask(json!([])), Err(Unasked::Sampling(_))));
    let mut large = good;
    large["systemPrompt"] = "x".repeat(5000).into();
    assert!(matches!(ask(large), Err(Unasked::TooLarge { max: 4096, .. })));
    assert_eq!(checked(json!({ "method": "tools/call" })), Err(Unasked::Method));
    assert_eq!(
        checked(json!({ "method": "roots/list", "url": "https://a.example.com/" })),
        Err(Unasked::Several)
    );
}

// A-74
#[test]
fn a_form_is_checked_before_it_is_asked() {
    let ask = |question: Json| {
        outbound::question(
            &serde_json::from_value::<Question>(question).expect("a question"),
            Reach::Public,
            4096,
        )
    };
    assert_eq!(
        ask(json!({ "message": " \u{200b}" })).unwrap_err(),
        Unasked::NoMessage
    );
    assert_eq!(
        ask(json!({ "message": "m", "choices": [] })).unwrap_err(),
        Unasked::Choices
    );
    assert_eq!(
        ask(json!({ "message": "m", "choices": ["a"], "form": {} })).unwrap_err(),
        Unasked::Several
    );
    crate::support::choose_fault();
    let named = |name: &str| {
        let form = json!({ "type": "object", "properties": { name: { "type": "string" } } });
        ask(json!({ "message": "m", "form": form }))
    };
    for (name, word) in [
        ("apiKey", "api key"),
        ("PASSWORD", "password"),
        ("auth_token", "auth token"),
        ("pin", "pin"),
    ] {
        assert_eq!(named(name).unwrap_err(), Unasked::Secret { word });
    }
    for name in ["token_count", "secretary", "spinning", "key_name"] {
        assert!(named(name).is_ok(), "{name}");
    }
    assert!(matches!(
        ask(json!({ "message": "Your password?" })),
        Err(Unasked::Secret { .. })
    ));
    assert!(ask(json!({ "message": "Reset the password?", "choices": ["yes", "no"] })).is_ok());
    let nested = json!({ "type": "object", "properties": { "a": { "type": "object" } } });
    assert!(matches!(
        ask(json!({ "message": "m", "form": nested })),
        Err(Unasked::Form(_))
    ));
    let good = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    assert!(ask(json!({ "message": "m", "form": good })).is_ok());
    let large = json!({ "message": "m".repeat(3000), "default": "d".repeat(2000) });
    assert!(matches!(ask(large), Err(Unasked::TooLarge { max: 4096, .. })));
}
