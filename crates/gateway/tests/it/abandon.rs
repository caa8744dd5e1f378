//! What becomes of the work when the caller of a call without a task leaves (A-19, A-32, D-45).

use longhaul_gateway::dispatch::Left;
use longhaul_mcp::request::Takes;
use longhaul_store::RecordKind;

use crate::support::site::{Saying, Site, patient};

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
