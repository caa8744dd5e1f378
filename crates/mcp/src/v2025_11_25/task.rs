//! A task and its outcome in the shapes of sessions: one stored outcome, projected. The matches are total, so a
//! new phase or outcome does not compile until it has a shape here.

use longhaul_core::{Body, Outcome, Phase};

use super::Version;
use crate::{
    clean,
    frame::{Obj, Raw},
    meta,
    reply::TaskView,
    rpc_error::{self, Data, RpcError, cancelled_text, failed_text},
    shape::{self, errored, loaded, shown, timestamp, whole_ms},
};

/// The longest `statusMessage` that is a result's text, in bytes: some clients never fetch the result of a
/// failed task, and see only this (D-5).
const RESULT_TEXT_MAX: usize = 8 * 1_024;

/// The task as `tasks/get` shows it, never with what came of it.
pub(super) fn flat(view: &TaskView) -> Obj {
    shaped(view, &view.phase)
}

/// The task as the reply to the call that made it: at its first status, however far it is by now (A-45, D-10).
pub(super) fn created(view: &TaskView) -> Obj {
    let mut result = Obj::default();
    result.set("task", &shaped(view, &Phase::Working).to_raw());
    result
}

fn shaped(view: &TaskView, phase: &Phase) -> Obj {
    let mut out = Obj::default();
    out.set("taskId", &view.id);
    out.set("status", status(phase));
    out.set_some("statusMessage", status_message(view, phase).as_ref());
    out.set("createdAt", &timestamp(view.created_at));
    out.set("lastUpdatedAt", &timestamp(view.updated_at));
    out.set("ttl", &view.ttl_ms.map(whole_ms));
    out.set_some("pollInterval", view.poll_ms.map(whole_ms).as_ref());
    shape::set_own_members(&mut out, view);
    out
}

/// a result that calls itself an error is a failure here.
pub(super) fn status(phase: &Phase) -> &'static str {
    match phase {
        Phase::Working => "working",
        Phase::Asking => "input_required",
        Phase::Finished(Outcome::Returned { is_error: false, .. }) => "completed",
        Phase::Finished(
            Outcome::Returned { is_error: true, .. } | Outcome::Errored { .. } | Outcome::Failed(_),
        ) => "failed",
        Phase::Finished(Outcome::Cancelled { .. }) => "cancelled",
    }
}

/// a failure explains itself.
fn status_message(view: &TaskView, phase: &Phase) -> Option<String> {
    let own = || view.status_message.as_ref().map(|text| shown(text));
    match phase {
        Phase::Working | Phase::Asking | Phase::Finished(Outcome::Returned { is_error: false, .. }) => own(),
        Phase::Finished(Outcome::Returned { body, is_error: true }) => result_text(body).or_else(own),
        Phase::Finished(Outcome::Errored { body }) => {
            let message = errored(body)
                .ok()
                .and_then(|error| error.get::<String>("message"));
            message.map(|text| shown(&text)).or_else(own)
        }
        Phase::Finished(Outcome::Cancelled { by }) => Some(cancelled_text(*by).to_owned()),
        Phase::Finished(Outcome::Failed(reason)) => Some(failed_text(*reason).to_owned()),
    }
}

/// The text of a result, line by line made fit to be shown (C-16).
fn result_text(body: &Body) -> Option<String> {
    let result = shape::object(body.bytes()?).ok()?;
    let blocks: Vec<Raw> = result.get("content")?;
    let mut text = String::new();
    let said = blocks
        .iter()
        .filter_map(|block| block.read::<Obj>().ok()?.get::<String>("text"));
    'blocks: for said in said {
        for line in said.lines() {
            if text.len() > RESULT_TEXT_MAX {
                break 'blocks;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&clean(line, RESULT_TEXT_MAX));
        }
    }
    cut(&mut text);
    (!text.trim().is_empty()).then_some(text)
}

fn cut(text: &mut String) {
    const MARK: char = '…';
    if text.len() > RESULT_TEXT_MAX {
        text.truncate(text.floor_char_boundary(RESULT_TEXT_MAX - MARK.len_utf8()));
        text.push(MARK);
    }
}

/// D-9: an error that a server behind gave to a call of the newer generation, in which a client can be told what to
/// declare.
pub(super) fn own(error: RpcError) -> RpcError {
    let is_of_the_hop = error.code == rpc_error::MISSING_CAPABILITY && matches!(error.data, Data::Whole(_));
    RpcError {
        code: match is_of_the_hop {
            true => rpc_error::INTERNAL_ERROR,
            false => error.code,
        },
        ..error
    }
}

/// What came of a task that has ended: exactly what the plain call would have got, with the task that it
/// came from.
///
/// # Errors
/// The error that the work ended with; Q-8: or that it was cancelled; or the bodies were not loaded.
pub(super) fn outcome(view: &TaskView, version: Version) -> Result<Obj, RpcError> {
    match &view.phase {
        Phase::Working | Phase::Asking => Err(RpcError::internal("not_ended", "The task has not ended")),
        Phase::Finished(Outcome::Returned { body, is_error: _ }) => {
            let mut result = called(loaded(body)?, version)?;
            relate(&mut result, &view.id);
            Ok(result)
        }
        Phase::Finished(Outcome::Errored { body }) => Err(own(RpcError::passed_on(errored(body)?))),
        Phase::Finished(Outcome::Cancelled { by: _ }) => {
            let data = Raw::of(&serde_json::json!({ "status": status(&view.phase) })).ok();
            let message = "Task was cancelled".to_owned();
            Err(RpcError::relayed(rpc_error::INTERNAL_ERROR, message, data))
        }
        Phase::Finished(Outcome::Failed(reason)) => Err(RpcError::failed(*reason)),
    }
}

/// The result of a call in the shape of a version (D-8). A reference to a task is Longhaul's to make, so one
/// that a tool wrote is taken out.
///
/// # Errors
/// The bytes are no JSON object.
pub(super) fn called(body: &[u8], version: Version) -> Result<Obj, RpcError> {
    let mut result = shape::object(body)?;
    drop(result.take("resultType"));
    let structured = result.raw("structuredContent").cloned();
    let is_kept = version.has_output_schema() && structured.as_ref().is_some_and(is_object);
    if !is_kept {
        drop(result.take("structuredContent"));
    }
    let blocks = result.get::<Vec<Raw>>("content");
    let says_nothing = match &blocks {
        None => true,
        Some(blocks) => blocks.is_empty() && !is_kept && structured.is_some(),
    };
    if says_nothing {
        let blocks: Vec<Raw> = structured.iter().map(text_block).collect();
        result.set("content", &blocks);
    }
    shape::take_from_meta(&mut result, meta::RELATED_TASK);
    Ok(result)
}

fn is_object(value: &Raw) -> bool {
    value.text().starts_with('{')
}

/// what cannot be shown as a structure is still there as text.
fn text_block(value: &Raw) -> Raw {
    let mut block = Obj::default();
    block.set("type", "text");
    block.set("text", value.text());
    block.to_raw()
}

/// names the task that a message belongs to.
pub(super) fn relate(message: &mut Obj, task: &str) {
    message.edit("_meta", |members| {
        members.edit(meta::RELATED_TASK, |related| related.set("taskId", task));
    });
}
