//! A task in the shapes of this generation: one stored outcome, projected. The matches are total, so a new
//! phase or outcome does not compile until it has a shape here.

use longhaul_core::{Outcome, Phase};

use crate::{
    frame::Obj,
    meta,
    reply::TaskView,
    rpc_error::{self, RpcError, cancelled_text, failed_text},
    shape::{self, errored, loaded, shown, timestamp, whole_ms},
};

/// The task without what it asks and how it ended (C-8, K-1).
pub(super) fn plain(view: &TaskView) -> Obj {
    let mut out = Obj::default();
    out.set("taskId", &view.id);
    out.set("status", status(&view.phase));
    out.set_some("statusMessage", status_message(view).as_ref());
    out.set("createdAt", &timestamp(view.created_at));
    out.set("lastUpdatedAt", &timestamp(view.updated_at));
    out.set("ttlMs", &view.ttl_ms.map(whole_ms));
    out.set_some("pollIntervalMs", view.poll_ms.map(whole_ms).as_ref());
    shape::set_own_members(&mut out, view);
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
            out.put("result", called(loaded(body)?)?.to_raw());
        }
        Phase::Finished(Outcome::Errored { body }) => {
            let mut error = errored(body)?;
            if let Some(code) = error.get::<i64>("code")
                && own_code(code) != code
            {
                error.set("code", &own_code(code));
            }
            out.set("error", &error.to_raw());
        }
        Phase::Finished(Outcome::Cancelled { by: _ }) => {}
        Phase::Finished(Outcome::Failed(reason)) => {
            let error = RpcError::failed(*reason);
            out.set("error", &shape::error_object(&error).to_raw());
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
    let mut result = shape::object(body)?;
    if result.raw("resultType").is_none() {
        result.set("resultType", "complete");
    }
    shape::take_from_meta(&mut result, meta::RELATED_TASK);
    Ok(result)
}

/// B-11: two codes of the older generation are never sent. What one of them says is bad parameters here; the other
/// is for a way of asking that this generation does not have.
pub(super) fn own_code(code: i64) -> i64 {
    match code {
        rpc_error::RESOURCE_NOT_FOUND => rpc_error::INVALID_PARAMS,
        rpc_error::LINK_REQUIRED => rpc_error::INTERNAL_ERROR,
        other => other,
    }
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

/// C-15: a failure explains itself.
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
