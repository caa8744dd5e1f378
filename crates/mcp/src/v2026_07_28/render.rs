//! Reply to frame, and notifications.

use super::{SUPPORTED, task};
use crate::{
    frame::{Obj, Raw},
    malformed::Malformed,
    meta,
    reply::{Cache, CacheScope, Discovery, InputRequest, Push, Reply, Tool, ToolPage},
    request::{Filter, RequestId},
    rpc_error::{self, RpcError},
    shape,
};

/// The frame of a reply to the request `id`.
pub fn render(reply: &Reply, id: &RequestId) -> Vec<u8> {
    match result(reply, id) {
        Ok(result) => shape::result_frame(id, &result),
        Err(error) => render_error(&error, Some(id)),
    }
}

/// The frame of an error; without an id when the request's could not be read.
pub fn render_error(error: &RpcError, id: Option<&RequestId>) -> Vec<u8> {
    shape::error_frame(error, id)
}

/// The frame that answers a malformed one.
pub fn render_malformed(malformed: &Malformed) -> Vec<u8> {
    render_error(&malformed.rule.error(), malformed.id.as_ref())
}

/// The frame of a notification on the stream of the request `stream`. What belongs to a subscription is tagged
/// with it (B-48); progress and log messages are not.
pub fn push(push: &Push, stream: &RequestId) -> Vec<u8> {
    let (method, params) = match push {
        Push::Acknowledged(filter) => {
            let mut params = Obj::default();
            params.set("notifications", &acknowledged(filter).to_raw());
            tag(&mut params, stream);
            ("notifications/subscriptions/acknowledged", params)
        }
        Push::Task(view) => {
            // A task that cannot be shown is left to the client's next get, which tells why.
            let mut params = task::detailed(view).unwrap_or_else(|_| task::plain(view));
            tag(&mut params, stream);
            ("notifications/tasks", params)
        }
        Push::ToolsChanged => {
            let mut params = Obj::default();
            tag(&mut params, stream);
            ("notifications/tools/list_changed", params)
        }
        Push::PromptsChanged => {
            let mut params = Obj::default();
            tag(&mut params, stream);
            ("notifications/prompts/list_changed", params)
        }
        Push::ResourcesChanged => {
            let mut params = Obj::default();
            tag(&mut params, stream);
            ("notifications/resources/list_changed", params)
        }
        Push::ResourceUpdated { uri } => {
            let mut params = Obj::default();
            params.set("uri", uri);
            tag(&mut params, stream);
            ("notifications/resources/updated", params)
        }
        // A task's own progress stands in the task (C-37).
        Push::Progress {
            token,
            progress,
            task: _,
        } => {
            let mut params = shape::progress(progress);
            params.set("progressToken", token);
            ("notifications/progress", params)
        }
        // B-1: a client of this generation is never sent a request, so it has none to be told of.
        Push::Question { .. } | Push::Withdrawn { .. } => return Vec::new(),
        Push::Log { level, logger, data } => {
            let params = shape::log(*level, logger.as_deref(), data);
            ("notifications/message", params)
        }
    };
    shape::notification(method, &params)
}

/// The HTTP status of a reply, in the table of wire B.3 and the refusals of the product. Answers to malformed
/// frames have their own ([`crate::malformed::Rule::status`]).
pub fn status(reply: &Reply) -> u16 {
    reply.error().map_or(200, error_status)
}

fn error_status(error: &RpcError) -> u16 {
    match error.code {
        rpc_error::PARSE_ERROR
        | rpc_error::INVALID_REQUEST
        | rpc_error::HEADER_MISMATCH
        | rpc_error::MISSING_CAPABILITY
        | rpc_error::UNSUPPORTED_VERSION => 400,
        rpc_error::METHOD_NOT_FOUND => 404,
        _ => error.refusal_status(),
    }
}

fn result(reply: &Reply, id: &RequestId) -> Result<Obj, RpcError> {
    let mut result = match reply {
        Reply::Discover(discovery) => complete(discover(discovery)),
        Reply::Tools(page) => complete(tools(page)),
        Reply::Result(body) => task::called(body.text().as_bytes())?,
        Reply::InputRequired { requests, state } => input_required(requests, state.as_deref()),
        Reply::TaskCreated(view) => typed("task", task::plain(view)),
        Reply::Task(view) => complete(task::detailed(view)?),
        // C-30, K-6: the same for a task that had ended before.
        Reply::Ack | Reply::Cancelled { .. } => complete(Obj::default()),
        // K-5: this generation has no way to ask for them.
        Reply::Outcome(_) | Reply::Tasks(_) => return Err(shape::out_of_place()),
        Reply::ListenEnded => {
            let mut result = complete(Obj::default());
            tag(&mut result, id);
            result
        }
        Reply::Relayed { result, cache } => relayed(result, *cache)?,
        Reply::Error(error) => {
            let mut error = error.clone();
            error.code = task::own_code(error.code);
            return Err(error);
        }
    };
    let title = if let Reply::Discover(discovery) = reply {
        discovery.title.as_deref()
    } else {
        None
    };
    result.edit("_meta", |members| {
        members.set(meta::SERVER_INFO, &shape::server_info(title).to_raw())
    });
    Ok(result)
}

/// The result of a server behind. What this generation demands of every result is added where it is absent
/// (B-8, B-51).
fn relayed(result: &Raw, cache: Option<Cache>) -> Result<Obj, RpcError> {
    let mut result = shape::object(result.text().as_bytes())?;
    shape::take_from_meta(&mut result, meta::RELATED_TASK);
    if result.raw("resultType").is_none() {
        result = complete(result);
    }
    if let Some(cache) = cache {
        let mut ours = Obj::default();
        set_cache(&mut ours, cache);
        for member in ["ttlMs", "cacheScope"] {
            if result.raw(member).is_none() {
                result.set_some(member, ours.raw(member));
            }
        }
    }
    Ok(result)
}

fn discover(discovery: &Discovery) -> Obj {
    let mut capabilities = shape::capabilities(discovery);
    if discovery.tasks {
        capabilities.edit("extensions", |map| map.edit(meta::TASKS_EXTENSION, |_| {}));
    }
    let mut result = Obj::default();
    result.set("supportedVersions", SUPPORTED);
    result.set("capabilities", &capabilities.to_raw());
    result.set_some("instructions", discovery.instructions.as_ref());
    set_cache(&mut result, discovery.cache);
    result
}

fn tools(page: &ToolPage) -> Obj {
    let tools: Vec<Raw> = page.tools.iter().map(|listed| tool(listed).to_raw()).collect();
    let mut result = Obj::default();
    result.set("tools", &tools);
    result.set_some("nextCursor", page.next_cursor.as_ref());
    set_cache(&mut result, page.cache);
    result
}

/// B-54: this generation's tools say nothing of tasks; the server decides, call by call.
fn tool(tool: &Tool) -> Obj {
    if let Some(definition) = &tool.relayed {
        let mut out = shape::relayed_tool(definition, tool);
        drop(out.take("execution"));
        return out;
    }
    let mut out = Obj::default();
    out.set("name", &tool.name);
    out.set_some("title", tool.title.as_ref());
    out.set_some("description", tool.description.as_ref());
    out.set("inputSchema", &tool.input_schema);
    out.set_some("outputSchema", tool.output_schema.as_ref());
    let hints = shape::hints(&tool.annotations);
    out.set_some("annotations", hints.map(|hints| hints.to_raw()).as_ref());
    out
}

/// B-38: at least one of the two members is there.
fn input_required(requests: &[InputRequest], state: Option<&str>) -> Obj {
    let mut result = Obj::default();
    if !requests.is_empty() {
        let mut map = Obj::default();
        requests
            .iter()
            .for_each(|request| map.set(&request.key, &request.ask));
        result.set("inputRequests", &map.to_raw());
    }
    result.set_some("requestState", state);
    typed("input_required", result)
}

/// C-36: the ids that are followed, perhaps none; no member for what was not asked for.
fn acknowledged(filter: &Filter) -> Obj {
    let mut out = Obj::default();
    for (member, is_honoured) in [
        ("toolsListChanged", filter.tools_list_changed),
        ("promptsListChanged", filter.prompts_list_changed),
        ("resourcesListChanged", filter.resources_list_changed),
    ] {
        if is_honoured {
            out.set(member, &true);
        }
    }
    if !filter.resources.is_empty() {
        out.set("resourceSubscriptions", &filter.resources);
    }
    out.set_some("taskIds", filter.tasks.as_ref());
    out
}

fn set_cache(result: &mut Obj, cache: Cache) {
    result.set("ttlMs", &cache.ttl_ms);
    let scope = match cache.scope {
        CacheScope::Private => "private",
        CacheScope::Public => "public",
    };
    result.set("cacheScope", scope);
}

fn complete(result: Obj) -> Obj {
    typed("complete", result)
}

/// B-8: `resultType` leads every result.
fn typed(result_type: &str, result: Obj) -> Obj {
    let mut out = Obj::default();
    out.set("resultType", result_type);
    out.0.extend(result.0);
    out
}

fn tag(message: &mut Obj, subscription: &RequestId) {
    message.edit("_meta", |members| {
        members.set(meta::SUBSCRIPTION_ID, subscription)
    });
}
