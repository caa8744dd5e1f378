//! How long a call without a task is held, and what its caller is told instead of the result (D-44).
//!
//! The time of these tests stands still and moves on when nothing else is left to do.

use std::time::Duration;

use longhaul_core::Span;
use longhaul_gateway::dispatch::{HoldLimits, Left, Settings};
use longhaul_mcp::request::Takes;
use longhaul_store::RecordKind;
use serde_json::json;
use tokio::time::Instant;

use crate::support::site::{Saying, Server, Site, impatient, named, patient, progress, reply, result, said};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How long a call of `tool` is held, and what it is told then.
async fn told_after(server: &Server, saying: &Saying, tool: &str) -> (Duration, serde_json::Value) {
    let began = Instant::now();
    let told = server
        .result(saying, tool, json!({ "n": began.elapsed().as_nanos() as u64 }))
        .await;
    (began.elapsed(), told)
}

fn within(took: Duration, wanted: u64) -> bool {
    (seconds(wanted)..seconds(wanted) + Duration::from_millis(100)).contains(&took)
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_task_is_told_in_time_that_the_work_goes_on() {
    let site = Site::new();
    let server = site.serve(Settings::default()).await;
    let (took, told) = told_after(&server, &Saying::default(), "work").await;
    assert!(within(took, 25), "{took:?}");
    assert_eq!(told["isError"], false);
    let name = named(&told);
    assert_eq!(told["structuredContent"]["state"], "running");
    assert_eq!(told["structuredContent"]["since"], 1);
    let text = said(&told);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("STILL RUNNING (not an error). work: "),
        "{text}"
    );
    assert!(lines[0].contains(" s, 61 %, 214 of 350, tests."), "{text}");
    assert!(lines[0].ends_with("It goes on if this chat closes."), "{text}");
    assert_eq!(
        lines[1],
        format!(
            "Wait for it: longhaul_wait {{\"task\":\"{name}\",\"since\":1}}. Calling work again with the same \
             arguments also waits; it starts nothing new."
        )
    );
    assert_eq!(lines.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_wants_progress_is_held_longer() {
    let site = Site::new();
    let server = site.serve(Settings::default()).await;
    let (took, told) = told_after(&server, &Saying::with_progress(), "work").await;
    assert!(within(took, 240), "{took:?}");
    assert!(said(&told).starts_with("STILL RUNNING"));
}

#[tokio::test(start_paused = true)]
async fn one_limit_can_be_set_for_all() {
    let site = Site::new();
    let settings = Settings {
        hold: HoldLimits {
            fixed: Some(Span::seconds(45)),
            ..HoldLimits::default()
        },
        ..Settings::default()
    };
    let server = site.serve(settings).await;
    for saying in [Saying::default(), Saying::with_progress()] {
        let (took, _) = told_after(&server, &saying, "work").await;
        assert!(within(took, 45), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_exact_hold_waits_to_the_end() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let mut held = server.held(&Saying::default(), "exact").await;
    assert!(
        tokio::time::timeout(seconds(3600), held.next()).await.is_err(),
        "nothing is told before the end"
    );
    site.release();
    assert_eq!(said(&result(reply(&mut held).await)), "run 1");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_tasks_is_handed_one_and_never_told_to_wait() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let mut held = server.held(&Saying::taking(Takes::WhenSlow), "work").await;
    let handed = reply(&mut held).await;
    assert!(
        matches!(handed, longhaul_mcp::Reply::TaskCreated(_)),
        "{handed:?}"
    );
}

// A client that waits only as long as it hears something hears something.
#[tokio::test(start_paused = true)]
async fn a_silent_tool_makes_progress_all_the_same() {
    let site = Site::new();
    let server = site.serve(Settings::default()).await;
    let mut held = server.held(&Saying::with_progress(), "work").await;
    let mut last = progress(&mut held).await;
    assert_eq!((last.progress, last.total), (214.0, Some(350.0)));
    for _ in 0..5 {
        let began = Instant::now();
        let next = progress(&mut held).await;
        assert!(within(began.elapsed(), 15), "{:?}", began.elapsed());
        // A-33, and so little that the tool's own next step is further.
        assert!(next.progress > last.progress && next.progress < 214.1);
        assert_eq!(next.message.as_deref(), Some("tests"));
        last = next;
    }
}

// D-44: both official clients refuse a result that does not fit the schema they saw, unless it is an error.
#[tokio::test(start_paused = true)]
async fn an_output_schema_is_shown_to_whoever_never_gets_another_result() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let shown = |takes| {
        let server = &server;
        async move {
            let caller =
                longhaul_gateway::identity::Caller::local(longhaul_gateway::identity::Origin::Client);
            let list = longhaul_mcp::Request::ListTools { cursor: None };
            let client = Saying::taking(takes).client;
            let handled = server.handle(&caller, client, list).await;
            let longhaul_gateway::dispatch::Handled::Reply(reply) = handled else {
                panic!("no reply");
            };
            let longhaul_mcp::Reply::Tools(page) = *reply else {
                panic!("no tools");
            };
            let with_schema = page.tools.iter().filter(|tool| tool.output_schema.is_some());
            with_schema.map(|tool| tool.name.clone()).collect::<Vec<_>>()
        }
    };
    assert_eq!(shown(Takes::Never).await, ["typed_always", "typed_exact"]);
    assert_eq!(
        shown(Takes::WhenSlow).await,
        ["typed", "typed_always", "typed_exact"]
    );

    let (_, told) = told_after(&server, &Saying::default(), "typed").await;
    assert_eq!(told["isError"], false);
    assert_eq!(told["structuredContent"]["state"], "running");
    let (_, told) = told_after(&server, &Saying::default(), "typed_always").await;
    assert_eq!(told["isError"], true);
    assert!(told.get("structuredContent").is_none());
    assert!(said(&told).starts_with("STILL RUNNING (not an error)."));

    site.release();
    let patient = site.serve(patient()).await;
    let answered = patient
        .result(&Saying::in_session("other"), "typed", json!({}))
        .await;
    assert!(
        answered["structuredContent"]["run"].is_number(),
        "an answer in time is structured"
    );
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_learned_from_three_who_gave_up_alike() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    for (nth, after) in [60, 66, 63].into_iter().enumerate() {
        let mut held = server.held(&Saying::in_session(&nth.to_string()), "work").await;
        assert!(tokio::time::timeout(seconds(after), held.next()).await.is_err());
        held.leave(if nth == 0 { Left::TimedOut } else { Left::Gone });
        let taught = |body: &serde_json::Value| body.as_array().is_some_and(|list| list.len() == nth + 1);
        server.record_until(RecordKind::Patience, taught).await;
    }
    let (took, told) = told_after(&server, &Saying::in_session("next"), "work").await;
    assert!(within(took, 45), "{took:?}: {told}");

    // What was learned of calls without progress says nothing of those with some.
    let mut held = server
        .held(
            &Saying {
                progress: true,
                ..Saying::in_session("more")
            },
            "work",
        )
        .await;
    assert!(tokio::time::timeout(seconds(10), reply(&mut held)).await.is_err());

    // It is known to the next process too.
    let next = site.serve(patient()).await;
    let (took, _) = told_after(&next, &Saying::in_session("last"), "work").await;
    assert!(within(took, 45), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_early_or_on_purpose_teaches_nothing() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    for (session, after, left) in [("a", 4, Left::TimedOut), ("b", 60, Left::Cancelled)] {
        let mut held = server.held(&Saying::in_session(session), "finishes").await;
        assert!(tokio::time::timeout(seconds(after), held.next()).await.is_err());
        held.leave(left);
        server
            .record_until(RecordKind::Join, |body| body["left"] == true)
            .await;
    }
    let mut held = server.held(&Saying::in_session("c"), "finishes").await;
    assert!(tokio::time::timeout(seconds(60), held.next()).await.is_err());
    held.leave(Left::TimedOut);
    server
        .record_until(RecordKind::Patience, |body| {
            body.as_array().is_some_and(|list| list.len() == 1)
        })
        .await;
}
