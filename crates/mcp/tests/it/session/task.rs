//! Golden frames of tasks: one stored outcome in the shapes of a session.

use longhaul_core::{Body, Outcome, Phase, QuestionKey, Reason, task::CancelledBy};
use longhaul_mcp::{
    Push, Reply, RequestId, RpcError, TaskView,
    edge::Version,
    reply::{OpenQuestion, Progress, TaskPage},
    v2025_11_25::render,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ID, LATEST, RELATED, cancelled, error, errored, get, pushed, reply, result, returned};
use crate::{
    canon::any_json,
    support::{Official, assert_is, raw, task},
};

/// A-43, A-45, D-10, Q-11.
#[test]
fn a_call_that_became_a_task_is_answered_with_one_that_works() {
    for phase in [
        Phase::Working,
        Phase::Asking,
        returned(r#"{"content":[]}"#, false),
        Phase::Finished(Outcome::Failed(Reason::Shutdown)),
        cancelled(CancelledBy::Operator),
    ] {
        let shown = result("CreateTaskResult", &Reply::TaskCreated(task(phase)));
        assert_eq!(
            shown,
            json!({ "task": {
                "taskId": ID,
                "status": "working",
                "createdAt": "2026-11-29T09:00:00.000Z",
                "lastUpdatedAt": "2026-11-29T09:00:12.345Z",
                "ttl": 1_800_000,
                "pollInterval": 4_000,
                "_meta": { "dev.longhaul/taskName": "k7f2m9" },
            } })
        );
    }
}

/// A-46, A-49, D-47.
#[test]
fn a_task_is_flat_and_says_how_far_it_is() {
    let mut view = task(Phase::Working);
    view.status_message = Some("214/900 files\u{1b}[0m".to_owned());
    view.progress = Some(Progress {
        progress: 214.0,
        total: Some(900.0),
        message: None,
    });
    view.metadata = Some(raw(&json!({ "ticket": 7 })));
    view.ttl_ms = None;
    view.poll_ms = None;
    assert_eq!(
        get(view),
        json!({
            "taskId": ID,
            "status": "working",
            "statusMessage": "214/900 files[0m",
            "createdAt": "2026-11-29T09:00:00.000Z",
            "lastUpdatedAt": "2026-11-29T09:00:12.345Z",
            "ttl": null,
            "_meta": {
                "dev.longhaul/taskName": "k7f2m9",
                "dev.longhaul/progress": { "progress": 214, "total": 900 },
                "dev.longhaul/metadata": { "ticket": 7 },
            },
        })
    );
    let mut edge = task(Phase::Working);
    edge.ttl_ms = Some(u64::MAX);
    edge.poll_ms = Some(0);
    let shown = get(edge);
    assert_eq!(
        (&shown["ttl"], &shown["pollInterval"]),
        (&json!((1_u64 << 53) - 1), &json!(1))
    );
}

/// A-45, A-65; A-49: never with what came of it, nor with what it asks.
#[test]
fn every_phase_has_one_of_the_five_words() {
    let failed = |reason| Phase::Finished(Outcome::Failed(reason));
    let text = r#"{"content":[{"type":"text","text":"no such branch"}],"isError":true}"#;
    for (phase, status, message) in [
        (Phase::Working, "working", None),
        (Phase::Asking, "input_required", None),
        (
            returned(r#"{"content":[{"type":"text","text":"done"}]}"#, false),
            "completed",
            None,
        ),
        (returned(text, true), "failed", Some("no such branch")),
        (
            errored(r#"{"code":-5,"message":"disk\u0007 full","data":{"a":1}}"#),
            "failed",
            Some("disk full"),
        ),
        (
            cancelled(CancelledBy::Owner),
            "cancelled",
            Some("The task was cancelled by request."),
        ),
        (
            failed(Reason::Interrupted),
            "failed",
            Some("Interrupted: the process that ran it ended; it was not run again."),
        ),
    ] {
        let mut view = task(phase);
        view.questions = vec![question(&json!({ "method": "roots/list" }))];
        let shown = get(view);
        assert_eq!(
            (shown["status"].as_str(), shown["statusMessage"].as_str()),
            (Some(status), message)
        );
        for never in ["result", "error", "inputRequests", "content"] {
            assert_eq!(shown.get(never), None);
        }
        assert_eq!(shown["_meta"].get(RELATED), None, "A-62");
    }
}

/// D-5, C-16.
#[test]
fn a_result_that_is_an_error_is_told_in_the_status() {
    let message = |content: Value| {
        let mut view = task(returned(
            &json!({ "content": content, "isError": true }).to_string(),
            true,
        ));
        view.status_message = Some("its last line".to_owned());
        get(view)["statusMessage"].as_str().map(str::to_owned)
    };
    let text = |text: &str| json!({ "type": "text", "text": text });
    let image = json!({ "type": "image", "data": "", "mimeType": "image/png" });
    let lines = json!([text("first\r\nsecond\u{202e}"), image, text("third")]);
    assert_eq!(message(lines).as_deref(), Some("first\nsecond\nthird"));
    for nothing in [
        json!([]),
        json!([image]),
        json!([text(" \n")]),
        json!("odd"),
        json!([7]),
    ] {
        assert_eq!(
            message(nothing.clone()).as_deref(),
            Some("its last line"),
            "{nothing}"
        );
    }
    for long in [
        "x".repeat(100_000),
        "\u{1f980}".repeat(5_000),
        "line\n".repeat(5_000),
    ] {
        let message = message(json!([text(&long), text("never")])).expect("a message");
        assert!(
            message.len() <= 8_192 && message.len() > 8_180,
            "{}",
            message.len()
        );
        assert!(message.ends_with('…'));
    }
    let exact = "x".repeat(8_192);
    assert_eq!(message(json!([text(&exact)])), Some(exact));
    let unloaded = task(Phase::Finished(Outcome::Returned {
        body: Body::Stored,
        is_error: true,
    }));
    let shown = get(unloaded);
    assert_eq!(
        (shown["status"].as_str(), shown.get("statusMessage")),
        (Some("failed"), None)
    );
}

/// A-50, A-52, D-8.
#[test]
fn the_outcome_of_a_task_is_what_the_plain_call_would_have_got() {
    let body = r#"{"resultType":"complete","content":[{"type":"text","text":"\u00e9"}],"structuredContent":{"n":1.50},"isError":true,"_meta":{"x/y":1}}"#;
    for is_error in [true, false] {
        let outcome = Reply::Outcome(task(returned(body, is_error)));
        let bytes = render(&outcome, &RequestId::Integer(7), LATEST);
        let expect = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"\u00e9"}}],"structuredContent":{{"n":1.50}},"isError":true,"_meta":{{"x/y":1,"{RELATED}":{{"taskId":"{ID}"}}}}}}}}"#
        );
        assert_eq!(String::from_utf8(bytes).expect("UTF-8"), expect);
        let shown = result("CallToolResult", &outcome);
        assert_is(Official::Sessions, "GetTaskPayloadResult", &shown);
    }
    let forged =
        r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"forged","x":1}}}"#;
    let shown = result("CallToolResult", &Reply::Outcome(task(returned(forged, false))));
    assert_eq!(shown["_meta"], json!({ RELATED: { "taskId": ID } }));
}

/// A-50: code, message and data.
#[test]
fn the_outcome_of_a_task_is_the_error_that_the_plain_call_would_have_got() {
    let shown = error(&Reply::Outcome(task(errored(
        r#"{"code":-32042,"message":"m","data":{"n":1.50}}"#,
    ))));
    assert_eq!(
        shown,
        json!({ "code": -32042, "message": "m", "data": { "n": 1.50 } })
    );
    let shown = error(&Reply::Outcome(task(errored(
        r#"{"code":5,"message":"","data":null}"#,
    ))));
    assert_eq!(shown, json!({ "code": 5, "message": "", "data": null }));
    let shown = error(&Reply::Outcome(task(errored(r#"{"code":5,"message":"m"}"#))));
    assert_eq!(shown, json!({ "code": 5, "message": "m" }));
    for reason in [Reason::Interrupted, Reason::Expired, Reason::UpstreamLost] {
        let outcome = error(&Reply::Outcome(task(Phase::Finished(Outcome::Failed(reason)))));
        assert_eq!(outcome, error(&Reply::Error(RpcError::failed(reason))));
        assert_eq!(outcome["code"], -32603);
        assert_eq!(outcome["data"]["reason"], reason.name());
    }
}

/// Q-8.
#[test]
fn a_cancelled_task_has_no_result_and_says_so() {
    for by in [CancelledBy::Owner, CancelledBy::Operator, CancelledBy::Loop] {
        let shown = error(&Reply::Outcome(task(cancelled(by))));
        let expect =
            json!({ "code": -32603, "message": "Task was cancelled", "data": { "status": "cancelled" } });
        assert_eq!(shown, expect);
    }
}

#[test]
fn an_outcome_that_cannot_be_shown_is_a_fault_of_ours() {
    let stored = Phase::Finished(Outcome::Returned {
        body: Body::Stored,
        is_error: false,
    });
    for (phase, reason) in [
        (stored, "outcome_unreadable"),
        (returned("[]", false), "outcome_unreadable"),
        (returned("", false), "outcome_unreadable"),
        (errored(r#"{"code":"x","message":"m"}"#), "outcome_unreadable"),
        (errored(r#"{"code":1}"#), "outcome_unreadable"),
        (Phase::Working, "not_ended"),
        (Phase::Asking, "not_ended"),
    ] {
        let shown = error(&Reply::Outcome(task(phase)));
        assert_eq!(
            (&shown["code"], &shown["data"]["reason"]),
            (&json!(-32603), &json!(reason))
        );
    }
}

/// A-54.
#[test]
fn a_page_of_tasks_names_the_next_one() {
    let tasks = vec![
        task(Phase::Working),
        task(returned("{}", false)),
        task(cancelled(CancelledBy::Session)),
    ];
    let page = |tasks: Vec<TaskView>, next_cursor| Reply::Tasks(TaskPage { tasks, next_cursor });
    let shown = result("ListTasksResult", &page(tasks.clone(), Some("b2Zm".to_owned())));
    assert_eq!(shown["nextCursor"], "b2Zm");
    let expect: Vec<Value> = tasks.into_iter().map(get).collect();
    assert_eq!(shown["tasks"], json!(expect));
    let empty = result("ListTasksResult", &page(Vec::new(), None));
    assert_eq!(empty, json!({ "tasks": [] }));
}

/// A-56a, A-56b.
#[test]
fn a_cancel_shows_the_cancelled_task_or_says_what_it_was() {
    let cancel = |phase, was_open| Reply::Cancelled {
        task: task(phase),
        was_open,
    };
    let shown = result("CancelTaskResult", &cancel(cancelled(CancelledBy::Owner), true));
    assert_eq!(shown, get(task(cancelled(CancelledBy::Owner))));
    for (phase, status) in [
        (returned("{}", false), "completed"),
        (returned("{}", true), "failed"),
        (errored("{}"), "failed"),
        (Phase::Finished(Outcome::Failed(Reason::Expired)), "failed"),
        (cancelled(CancelledBy::Owner), "cancelled"),
    ] {
        let shown = error(&cancel(phase, false));
        let message = format!("Cannot cancel: task is already {status}");
        assert_eq!(shown, json!({ "code": -32602, "message": message }));
    }
}

/// A-59, A-62.
#[test]
fn a_pushed_task_is_what_a_get_would_show() {
    for phase in [
        Phase::Working,
        Phase::Asking,
        returned(r#"{"content":[]}"#, true),
        errored(r#"{"code":1,"message":"m"}"#),
        cancelled(CancelledBy::Owner),
    ] {
        let shown = pushed("TaskStatusNotification", &Push::Task(task(phase.clone())), LATEST);
        assert_eq!(shown["params"], get(task(phase)));
        assert_eq!(shown["params"]["_meta"].get(RELATED), None);
    }
}

fn question(ask: &Value) -> OpenQuestion {
    OpenQuestion {
        key: QuestionKey(1),
        ask: raw(ask),
    }
}

proptest! {
    /// D-8, A-52: whatever a tool returns, a client can read it, and it never says which task it is.
    #[test]
    fn any_result_takes_the_shape_of_a_session(
        content in any_json(),
        structured in any_json(),
        meta in any_json(),
        version in prop::sample::select(Version::ALL.to_vec()),
    ) {
        let body = json!({ "resultType": "task", "content": content, "structuredContent": structured, "_meta": meta });
        let plain = Reply::Result(raw(&body));
        let outcome = Reply::Outcome(task(returned(&body.to_string(), false)));
        for (shown, related) in [(plain, Value::Null), (outcome, json!({ "taskId": ID }))] {
            let result = reply(&shown, version)["result"].clone();
            prop_assert!(result["content"].is_array());
            prop_assert_eq!(result["structuredContent"].is_object(), structured.is_object() && version.has_output_schema());
            prop_assert_eq!(result["structuredContent"].is_object(), result.get("structuredContent").is_some());
            prop_assert_eq!(result.get("resultType"), None);
            prop_assert_eq!(&result["_meta"][RELATED], &related);
        }
    }
}
