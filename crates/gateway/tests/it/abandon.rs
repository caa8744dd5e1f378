//! What becomes of the work when the caller of a call without a task leaves (A-19, A-32, D-45).

use longhaul_core::Span;
use longhaul_gateway::{
    admin::{Backend as _, api},
    dispatch::{HoldLimits, Left, Settings},
};
use longhaul_mcp::request::Takes;
use longhaul_store::RecordKind;

use serde_json::{Value, json};

use crate::support::{
    Client, ME, World,
    site::{Saying, Site, patient, result, said},
};

#[test]
fn a_reason_that_says_time_out_is_one_and_any_other_is_on_purpose() {
    for reason in [
        "McpError: MCP error -32001: Request timed out",
        "Timeout",
        "the request hit its time-out",
        "Time out after 60 s",
        "context DEADLINE exceeded",
    ] {
        assert_eq!(Left::because(Some(reason)), Left::TimedOut, "{reason}");
    }
    for reason in [
        None,
        Some(""),
        Some("User cancelled"),
        Some("AbortError: This operation was aborted"),
        Some("it is time"),
    ] {
        assert_eq!(Left::because(reason), Left::Cancelled, "{reason:?}");
    }
}

#[tokio::test]
async fn the_work_ends_or_goes_on_as_its_tool_says() {
    use Left::{Cancelled, Gone, TimedOut};
    for (tool, left, ends) in [
        ("work", TimedOut, false),
        ("work", Gone, false),
        ("work", Cancelled, true),
        ("finishes", TimedOut, false),
        ("finishes", Gone, false),
        ("finishes", Cancelled, false),
        ("cancels", TimedOut, true),
        ("cancels", Gone, true),
        ("cancels", Cancelled, true),
    ] {
        let site = Site::new();
        let server = site.serve(patient()).await;
        let held = server.held(&Saying::default(), tool).await;
        site.began(1).await;
        held.leave(left);
        let state = if ends {
            server.until("cancelled").await;
            "cancelled"
        } else {
            server
                .record_until(RecordKind::Join, |body| body["left"] == true)
                .await;
            "running"
        };
        let states: Vec<String> = server
            .tasks()
            .await
            .into_iter()
            .map(|(_, _, state)| state)
            .collect();
        assert_eq!(states, [state], "{tool} {left:?}");
    }
}

// a call that asked for a task is ended by `tasks/cancel` alone.
#[tokio::test]
async fn leaving_never_ends_a_task_that_was_asked_for() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    let held = server.held(&Saying::taking(Takes::AtOnce), "cancels").await;
    held.leave(Left::Cancelled);
    site.began(1).await;
    site.release();
    server.until("done").await;
}

// A server that is told to stop drops its callers; that is not their doing.
#[tokio::test]
async fn a_server_that_stops_cancels_nothing_for_its_callers() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    let held = server.held(&Saying::default(), "cancels").await;
    site.began(1).await;
    server.drain().await;
    drop(held);
    server
        .record_until(RecordKind::Join, |body| body["left"] == true)
        .await;
    site.release();
    server.until("done").await;
    assert!(server.records(RecordKind::Patience).await.is_empty());
}

// Two equal calls wait for one run; the one that is cancelled does not take it from the other.
#[tokio::test]
async fn work_that_somebody_else_waits_for_goes_on() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    drop(server.held(&Saying::default(), "work").await);
    server
        .record_until(RecordKind::Join, |body| body["left"] == true)
        .await;
    let one = server.held(&Saying::default(), "work").await;
    let two = server.held(&Saying::default(), "work").await;
    one.leave(Left::Cancelled);
    site.began(1).await;
    site.release();
    assert_eq!(said(&result(two.finish().await)), "run 1");
}

/// What a gateway over HTTP says to `longhaul_wait`.
async fn waited(world: &World, arguments: Value) -> Value {
    let answer = world
        .call(&Client::without_tasks(), "longhaul_wait", arguments)
        .await;
    answer.result().clone()
}

// A-19, B-36: a stream that is cut is no cancel, and its call waits for an equal one. Whatever the last frame
// travels in, it counts as delivered.
#[tokio::test]
async fn a_cut_stream_leaves_its_call_to_the_next_equal_one() {
    for accept in ["application/json, text/event-stream", "application/json"] {
        let settings = Settings {
            hold: HoldLimits {
                plain: Span(1),
                with_progress: Span::seconds(100_000),
                ..HoldLimits::default()
            },
            ..Settings::default()
        };
        let world = World::with(settings).await;
        let call = json!({ "name": "waits", "arguments": {}, "_meta": { "progressToken": 1 } });
        let mut frames = world
            .stream(&Client::without_tasks(), "tools/call", call.clone())
            .await;
        frames.next().await.expect("progress");
        let listed = waited(&world, json!({})).await;
        let name = &listed["structuredContent"]["tasks"][0]["task"];
        let joinable = async || {
            let told = waited(&world, json!({ "task": name })).await;
            said(&told).contains("Calling waits again with the same arguments also waits")
        };
        assert!(!joinable().await, "its caller waits here");
        drop(frames);
        while !joinable().await {
            tokio::task::yield_now().await;
        }
        world.release();
        let client = Client {
            accept,
            ..Client::without_tasks()
        };
        for tasks in [1, 2] {
            let answer = world.rpc(&client, "tools/call", call.clone()).await;
            assert_eq!(said(answer.result()), "waited");
            let Ok(listed) = world.dispatch.list(ME, api::Filter::default()).await else {
                panic!("no list");
            };
            assert_eq!(listed.tasks.len(), tasks, "{accept}");
        }
    }
}
