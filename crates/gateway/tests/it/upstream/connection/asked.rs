//! What a server asks over its connection: answered by us, by the call that it belongs to, or refused.

use std::sync::Arc;

use longhaul_gateway::upstream::{
    Event, Failed, Outcome,
    dial::{Ours, Place},
    question::OPEN_MAX,
};
use longhaul_mcp::{
    client::{self, incoming::AskKind},
    frame::Obj,
    request::Answers,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::{Instant, PATIENCE, Peer, directory, fixture, host, text, within};

#[tokio::test]
async fn a_request_of_the_server_is_answered_or_refused() {
    let options = ["--era=2025"];
    for peer in [Peer::program(&options).await, Peer::remote(&options).await] {
        let answer = |method| peer.text("ask", json!({"method": method}));
        assert_eq!(answer("ping").await, "{}");
        assert_eq!(
            answer("roots/list").await,
            r#"{"roots": [{"uri": "file:///tmp"}]}"#
        );
        // No call takes them.
        assert!(answer("sampling/createMessage").await.contains("\"code\": -1"));
        assert_eq!(answer("elicitation/create").await, r#"{"action": "cancel"}"#);
        assert!(answer("no/such").await.contains("-32601"));
    }
}

#[tokio::test]
async fn a70_what_the_server_was_not_told_that_it_may_ask_is_refused() {
    let form = Answers {
        form: true,
        ..Answers::default()
    };
    let place = |spool: &TempDir| Place::Program(fixture(&["--era=2025"]), Arc::new(host(spool)));
    let spool = directory();
    let ours = Ours::new(client::capabilities(form), None);
    let peer = Peer::of(place(&spool), None, spool, &ours)
        .await
        .expect("it opens");
    for (method, mode, code) in [
        ("elicitation/create", "url", "-32602"),
        ("elicitation/create", "voice", "-32602"),
        ("sampling/createMessage", "form", "-32601"),
        ("roots/list", "form", "-32601"),
    ] {
        // Whoever would take it is there.
        let (events, _kept) = mpsc::channel(10);
        let asked = json!({ "method": method, "params": { "mode": mode } });
        let outcome = peer.call_until("ask", asked, Some(events), std::future::pending());
        let refused = text(outcome.await);
        assert!(refused.contains(code), "{method}, {mode}: {refused}");
    }
}

#[tokio::test]
async fn a_question_goes_to_the_call_that_it_belongs_to_and_its_answer_back() {
    let options = ["--era=2025"];
    for peer in [Peer::program(&options).await, Peer::remote(&options).await] {
        let (events, mut heard) = mpsc::channel(10);
        let arguments = json!({"method": "elicitation/create"});
        let ask = peer.call_until("ask", arguments, Some(events), std::future::pending());
        let answer = async {
            let event = within(PATIENCE, heard.recv()).await;
            let Some(Event::Ask(question)) = event else {
                panic!("{event:?}");
            };
            assert_eq!(
                (question.kind, &question.method[..]),
                (AskKind::Elicitation, "elicitation/create")
            );
            question.answer(&Obj::parse(r#"{"action":"decline"}"#).expect("an object"));
        };
        let (outcome, ()) = tokio::join!(ask, answer);
        assert_eq!(text(outcome), r#"{"action": "decline"}"#);
    }
}

#[tokio::test]
async fn a_question_that_nobody_takes_is_refused() {
    let peer = Peer::program(&["--era=2025"]).await;
    let (events, heard) = mpsc::channel(10);
    drop(heard);
    let arguments = json!({"method": "sampling/createMessage"});
    let outcome = peer.call_until("ask", arguments, Some(events), std::future::pending());
    assert!(text(outcome.await).contains("\"code\": -1"));
}

#[tokio::test]
async fn an_id_that_a_server_uses_again_is_another_question() {
    let options = ["--era=2025"];
    for peer in [Peer::program(&options).await, Peer::remote(&options).await] {
        let (events, mut heard) = mpsc::channel(10);
        let ask = peer.call_until("ask_again", json!({}), Some(events), std::future::pending());
        let answer = async {
            for action in ["accept", "decline"] {
                let event = within(PATIENCE, heard.recv()).await;
                let Some(Event::Ask(question)) = event else {
                    panic!("{event:?}");
                };
                let mut answer = Obj::default();
                answer.set("action", action);
                question.answer(&answer);
            }
        };
        let (outcome, ()) = tokio::join!(ask, answer);
        assert_eq!(text(outcome), r#"[{"action": "accept"}, {"action": "decline"}]"#);
    }
}

#[tokio::test]
async fn what_a_server_asks_after_its_reply_is_answered_for_nobody() {
    let options = ["--era=2025"];
    for peer in [Peer::program(&options).await, Peer::remote(&options).await] {
        let (events, _kept) = mpsc::channel(10);
        let late = peer.call_until("ask_late", json!({}), Some(events), std::future::pending());
        assert_eq!(text(late.await), "done");
        let deadline = Instant::now() + PATIENCE;
        let answers = loop {
            assert!(Instant::now() < deadline, "it is answered");
            let seen: serde_json::Value =
                serde_json::from_str(&peer.text("seen", json!({})).await).expect("JSON");
            if let Some(answer) = seen["answers"].get("late") {
                break answer.clone();
            }
        };
        assert_eq!(answers, json!({ "action": "cancel" }));
    }
}

#[tokio::test]
async fn a_question_of_a_server_that_is_gone_is_withdrawn() {
    let peer = Peer::program(&["--era=2025"]).await;
    let (events, mut heard) = mpsc::channel(10);
    let arguments = json!({"method": "elicitation/create"});
    let ask = peer.call_until("ask", arguments, Some(events), std::future::pending());
    let leave = async {
        let event = within(PATIENCE, heard.recv()).await;
        let Some(Event::Ask(mut question)) = event else {
            panic!("{event:?}");
        };
        peer.connection.shut();
        within(PATIENCE, question.withdrawn()).await;
    };
    let (outcome, ()) = tokio::join!(ask, leave);
    assert!(matches!(outcome, Outcome::Failed(Failed::Lost(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_question_that_the_server_takes_back_is_withdrawn() {
    let options = ["--era=2025"];
    for peer in [Peer::program(&options).await, Peer::remote(&options).await] {
        let (events, mut heard) = mpsc::channel(10);
        let ask = peer.call_until("ask_in_vain", json!({}), Some(events), std::future::pending());
        let take_back = async {
            let event = within(PATIENCE, heard.recv()).await;
            let Some(Event::Ask(mut question)) = event else {
                panic!("{event:?}");
            };
            peer.call("release", json!({})).await;
            within(PATIENCE, question.withdrawn()).await;
            peer.call("release", json!({})).await;
        };
        let (outcome, ()) = tokio::join!(ask, take_back);
        assert_eq!(text(outcome), "went on");
    }
}

#[tokio::test]
async fn a_request_of_the_server_that_there_is_no_room_for_is_refused() {
    let many: Vec<String> = (0..=OPEN_MAX).map(|n| format!("many-{n}")).collect();
    for (ids, why) in [
        (many, "Too many requests"),
        (
            vec!["same".to_owned(), "same".to_owned()],
            "A request with this id",
        ),
    ] {
        let peer = Peer::program(&["--era=2025"]).await;
        // Whoever reads them keeps them open.
        let (events, _kept) = mpsc::channel(100);
        let asked = json!({ "ids": ids });
        let outcome = peer.call_until("ask_often", asked, Some(events), std::future::pending());
        let refused = text(outcome.await);
        assert!(refused.contains(why) && refused.contains("-32600"), "{refused}");
    }
}
