//! A task in the shapes of this generation: one stored outcome, projected. The matches are total, so a new
//! phase or outcome does not compile until it has a shape here.

use longhaul_core::{Body, Millis, Outcome, Phase};

use super::render::set_some;
use crate::{
    clean,
    frame::Obj,
    meta,
    reply::{Progress, TaskView},
    rpc_error::{RpcError, cancelled_text, failed_text},
};

/// The longest `statusMessage`, in characters.
const STATUS_MESSAGE_CHARS_MAX: usize = 2_000;

/// The task without what it asks and how it ended (C-8, K-1).
pub(super) fn plain(view: &TaskView) -> Obj {
    let mut out = Obj::default();
    out.set("taskId", &view.id);
    out.set("status", status(&view.phase));
    set_some(&mut out, "statusMessage", status_message(view).as_ref());
    out.set("createdAt", &timestamp(view.created_at));
    out.set("lastUpdatedAt", &timestamp(view.updated_at));
    out.set("ttlMs", &view.ttl_ms.map(whole_ms));
    set_some(&mut out, "pollIntervalMs", view.poll_ms.map(whole_ms).as_ref());
    out.edit("_meta", |members| {
        members.set(meta::TASK_NAME, &view.name);
        set_some(
            members,
            meta::PROGRESS,
            view.progress.as_ref().map(|p| progress(p).to_raw()).as_ref(),
        );
        set_some(members, meta::METADATA, view.metadata.as_ref());
    });
    out
}

/// The task with what it asks now, or how it ended (C-19).
///
/// # Errors
/// The bodies of the outcome were not loaded, or are no result and no error.
pub(super) fn detailed(view: &TaskView) -> Result<Obj, RpcError> {
    let mut out = plain(view);
    match &view.phase {
        Phase::Working => {}
        // C-20: all of them, on every poll.
        Phase::Asking => {
            let mut requests = Obj::default();
            view.questions
                .iter()
                .for_each(|question| requests.set(&question.key.to_string(), &question.ask));
            out.set("inputRequests", &requests.to_raw());
        }
        // C-15: a result is a result, whatever the tool says of it.
        Phase::Finished(Outcome::Returned { body, is_error: _ }) => {
            out.set("result", &called(loaded(body)?)?.to_raw());
        }
        Phase::Finished(Outcome::Errored { body }) => out.set("error", &errored(body)?.to_raw()),
        Phase::Finished(Outcome::Cancelled { by: _ }) => {}
        Phase::Finished(Outcome::Failed(reason)) => {
            let error = RpcError::failed(*reason);
            out.set("error", &super::render::error_object(&error).to_raw());
        }
    }
    Ok(out)
}

/// The result of a call, as the tool gave it. `resultType` is added where it is absent, and the older
/// generation's task reference is taken out (K-3).
///
/// # Errors
/// The bytes are no JSON object.
pub(super) fn called(body: &[u8]) -> Result<Obj, RpcError> {
    let mut result: Obj = serde_json::from_slice(body).map_err(|_| unreadable())?;
    if result.raw("resultType").is_none() {
        result.set("resultType", "complete");
    }
    let has_reference = result
        .obj("_meta")
        .is_some_and(|members| members.raw(meta::RELATED_TASK).is_some());
    if has_reference {
        result.edit("_meta", |members| drop(members.take(meta::RELATED_TASK)));
    }
    Ok(result)
}

/// How far some work is, in the shape of a progress notification.
pub(super) fn progress(progress: &Progress) -> Obj {
    let mut out = Obj::default();
    out.set("progress", &progress.progress);
    set_some(&mut out, "total", progress.total.as_ref());
    set_some(
        &mut out,
        "message",
        progress.message.as_ref().map(|text| shown(text)).as_ref(),
    );
    out
}

fn status(phase: &Phase) -> &'static str {
    match phase {
        Phase::Working => "working",
        Phase::Asking => "input_required",
        Phase::Finished(Outcome::Returned { .. }) => "completed",
        Phase::Finished(Outcome::Errored { .. } | Outcome::Failed(_)) => "failed",
        Phase::Finished(Outcome::Cancelled { .. }) => "cancelled",
    }
}

/// C-15: a failure explains itself; C-16: whatever a tool says is cleaned.
fn status_message(view: &TaskView) -> Option<String> {
    let own = || view.status_message.as_ref().map(|text| shown(text));
    match &view.phase {
        Phase::Working | Phase::Asking | Phase::Finished(Outcome::Returned { .. }) => own(),
        Phase::Finished(Outcome::Errored { body }) => own().or_else(|| {
            errored(body)
                .ok()?
                .get::<String>("message")
                .map(|text| shown(&text))
        }),
        Phase::Finished(Outcome::Cancelled { by }) => Some(cancelled_text(*by).to_owned()),
        Phase::Finished(Outcome::Failed(reason)) => Some(failed_text(*reason).to_owned()),
    }
}

fn shown(text: &str) -> String {
    clean(text, STATUS_MESSAGE_CHARS_MAX)
}

fn errored(body: &Body) -> Result<Obj, RpcError> {
    let error: Obj = serde_json::from_slice(loaded(body)?).map_err(|_| unreadable())?;
    let is_error = error.get::<i64>("code").is_some() && error.get::<String>("message").is_some();
    if is_error { Ok(error) } else { Err(unreadable()) }
}

fn loaded(body: &Body) -> Result<&[u8], RpcError> {
    body.bytes().ok_or_else(unreadable)
}

fn unreadable() -> RpcError {
    RpcError::internal("outcome_unreadable", "The stored outcome cannot be read")
}

/// K-2: positive, and no larger than every reader's integers (2^53 - 1).
fn whole_ms(ms: u64) -> u64 {
    ms.clamp(1, (1 << 53) - 1)
}

/// C-18: RFC 3339 in UTC with milliseconds. A moment that no calendar reaches is shown as the last that one does.
fn timestamp(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{moment:.3}")
}
