//! Reply to frame, requests of ours, and notifications.

use super::{Opening, Version, task};
use crate::{
    frame::{Obj, Raw},
    malformed::Malformed,
    reply::{Discovery, Push, Reply, TaskPage, TaskSupport, Tool, ToolPage},
    request::RequestId,
    rpc_error::RpcError,
    shape,
};

/// The frame of a reply to the request `id`.
pub fn render(reply: &Reply, id: &RequestId, version: Version) -> Vec<u8> {
    match result(reply, version) {
        Ok(result) => shape::result_frame(id, &result),
        Err(error) => shape::error_frame(&error, Some(id)),
    }
}

/// The frame of an error; without an id when the request's could not be read.
pub fn render_error(error: &RpcError, id: Option<&RequestId>) -> Vec<u8> {
    shape::error_frame(error, id)
}

/// The frame that answers a malformed one.
pub fn render_malformed(malformed: &Malformed) -> Vec<u8> {
    shape::error_frame(&malformed.rule.error(), malformed.id.as_ref())
}

/// The frame of the reply to `initialize` (A-6, A-35, D-13).
pub fn opened(discovery: &Discovery, opening: &Opening) -> Vec<u8> {
    let version = opening.peer.version;
    let mut capabilities = shape::capabilities(discovery);
    if !version.has_completions() {
        drop(capabilities.take("completions"));
    }
    if discovery.tasks && version.has_tasks() {
        capabilities.edit("tasks", |tasks| {
            if discovery.tasks_list {
                tasks.edit("list", |_| {});
            }
            tasks.edit("cancel", |_| {});
            tasks.edit("requests", |requests| {
                requests.edit("tools", |tools| tools.edit("call", |_| {}));
            });
        });
    }
    let mut result = Obj::default();
    result.set("protocolVersion", version.as_str());
    result.set("capabilities", &capabilities.to_raw());
    result.set(
        "serverInfo",
        &shape::server_info(discovery.title.as_deref()).to_raw(),
    );
    result.set_some("instructions", discovery.instructions.as_ref());
    shape::result_frame(&opening.id, &result)
}

/// The frame of a message to a session's client; empty for what sessions do not have.
pub fn push(push: &Push, version: Version) -> Vec<u8> {
    match push {
        // B-46: subscriptions belong to another generation.
        Push::Acknowledged(_) => Vec::new(),
        // the full task; its id says already which it is.
        Push::Task(view) => shape::notification("notifications/tasks/status", &task::flat(view)),
        Push::ToolsChanged => shape::notification("notifications/tools/list_changed", &Obj::default()),
        Push::PromptsChanged => shape::notification("notifications/prompts/list_changed", &Obj::default()),
        Push::ResourcesChanged => {
            shape::notification("notifications/resources/list_changed", &Obj::default())
        }
        Push::ResourceUpdated { uri } => {
            let mut params = Obj::default();
            params.set("uri", uri);
            shape::notification("notifications/resources/updated", &params)
        }
        Push::Progress {
            token,
            progress,
            task,
        } => {
            let mut params = Obj::default();
            params.set("progressToken", token);
            params.0.extend(shape::progress(progress).0);
            if !version.has_progress_messages() {
                drop(params.take("message"));
            }
            if let Some(task) = task {
                task::relate(&mut params, task);
            }
            shape::notification("notifications/progress", &params)
        }
        Push::Question { id, ask, task } => question(id, ask, task.as_deref(), version),
        Push::Withdrawn { id } => {
            let mut params = Obj::default();
            params.set("requestId", id);
            params.set("reason", "no answer is needed any more");
            shape::notification("notifications/cancelled", &params)
        }
        Push::Log { level, logger, data } => shape::notification(
            "notifications/message",
            &shape::log(*level, logger.as_deref(), data),
        ),
    }
}

/// A question as a request of ours.
fn question(id: &RequestId, ask: &Raw, task: Option<&str>, version: Version) -> Vec<u8> {
    let ask: Obj = ask.read().unwrap_or_default();
    let method = ask.raw("method").cloned().unwrap_or_else(|| Raw::string(""));
    let mut params = ask.obj("params").unwrap_or_default();
    let mode = params.get::<String>("mode");
    if mode.as_deref() == Some("url") && params.raw("elicitationId").is_none() {
        // the id of the question is unique, and so is this.
        params.set("elicitationId", &format!("el-{id}"));
    }
    if mode.as_deref() == Some("form") && !version.has_url_elicitation() {
        drop(params.take("mode"));
    }
    if let Some(task) = task {
        task::relate(&mut params, task);
    }
    shape::request_frame(id, &method, &params)
}

/// The HTTP status of a reply: errors travel with 200, but for the refusals of the product. 404 would say that
/// the session is over. Answers to malformed frames have their own
/// ([`crate::malformed::Rule::session_status`]).
pub fn status(reply: &Reply) -> u16 {
    reply.error().map_or(200, RpcError::refusal_status)
}

fn result(reply: &Reply, version: Version) -> Result<Obj, RpcError> {
    match reply {
        Reply::Tools(page) => Ok(tools(page, version)),
        Reply::Result(body) => task::called(body.text().as_bytes(), version),
        Reply::TaskCreated(view) => Ok(task::created(view)),
        Reply::Task(view) => Ok(task::flat(view)),
        Reply::Outcome(view) => task::outcome(view, version),
        Reply::Tasks(page) => Ok(tasks(page)),
        Reply::Cancelled { task, was_open: true } => Ok(task::flat(task)),
        //
        Reply::Cancelled {
            task,
            was_open: false,
        } => Err(RpcError::invalid_params(format!(
            "Cannot cancel: task is already {}",
            task::status(&task.phase)
        ))),
        Reply::Ack => Ok(Obj::default()),
        // D-8: sessions know no kinds of results, and no freshness.
        Reply::Relayed { result, cache: _ } => {
            let mut result = shape::object(result.text().as_bytes())?;
            for member in ["resultType", "ttlMs", "cacheScope"] {
                drop(result.take(member));
            }
            Ok(result)
        }
        // A session's client is asked by a request of ours, finds out at `initialize`, and has no subscriptions.
        Reply::InputRequired { .. } | Reply::Discover(_) | Reply::ListenEnded => Err(shape::out_of_place()),
        Reply::Error(error) => Err(task::own(error.clone())),
    }
}

fn tasks(page: &TaskPage) -> Obj {
    let tasks: Vec<Raw> = page.tasks.iter().map(|view| task::flat(view).to_raw()).collect();
    let mut result = Obj::default();
    result.set("tasks", &tasks);
    result.set_some("nextCursor", page.next_cursor.as_ref());
    result
}

fn tools(page: &ToolPage, version: Version) -> Obj {
    let tools: Vec<Raw> = page
        .tools
        .iter()
        .map(|listed| tool(listed, version).to_raw())
        .collect();
    let mut result = Obj::default();
    result.set("tools", &tools);
    result.set_some("nextCursor", page.next_cursor.as_ref());
    result
}

/// no more than the version has.
fn tool(tool: &Tool, version: Version) -> Obj {
    if let Some(definition) = &tool.relayed {
        return relayed_tool(definition, tool, version);
    }
    let mut out = Obj::default();
    out.set("name", &tool.name);
    if version.has_titles() {
        out.set_some("title", tool.title.as_ref());
    }
    out.set_some("description", tool.description.as_ref());
    out.set("inputSchema", &tool.input_schema);
    if version.has_output_schema() {
        out.set_some(
            "outputSchema",
            tool.output_schema.as_ref().filter(|schema| is_of_objects(schema)),
        );
    }
    if version.has_annotations() {
        let hints = shape::hints(&tool.annotations);
        out.set_some("annotations", hints.map(|hints| hints.to_raw()).as_ref());
    }
    if version.has_tasks()
        && let Some(support) = support(tool.task_support)
    {
        out.edit("execution", |execution| execution.set("taskSupport", support));
    }
    out
}

/// A server's own definition passes whole, whatever the version has; only what would make a client act wrongly
/// is taken out.
fn relayed_tool(definition: &Obj, tool: &Tool, version: Version) -> Obj {
    let mut out = shape::relayed_tool(definition, tool);
    let is_kept = version.has_output_schema() && out.raw("outputSchema").is_some_and(is_of_objects);
    if !is_kept {
        drop(out.take("outputSchema"));
    }
    let support = support(tool.task_support).filter(|_| version.has_tasks());
    match support {
        Some(support) => out.edit("execution", |execution| execution.set("taskSupport", support)),
        None if out.raw("execution").is_some() => {
            out.edit("execution", |execution| drop(execution.take("taskSupport")));
            if out
                .obj("execution")
                .is_some_and(|execution| execution.0.is_empty())
            {
                drop(out.take("execution"));
            }
        }
        None => {}
    }
    out
}

/// structured results are objects here, and so is what a schema of them describes.
fn is_of_objects(schema: &Raw) -> bool {
    let of = schema
        .read::<Obj>()
        .ok()
        .and_then(|schema| schema.get::<String>("type"));
    of.as_deref() == Some("object")
}

/// A-40, D-12: what is absent is forbidden.
fn support(support: TaskSupport) -> Option<&'static str> {
    match support {
        TaskSupport::Forbidden => None,
        TaskSupport::Optional => Some("optional"),
        TaskSupport::Required => Some("required"),
    }
}
