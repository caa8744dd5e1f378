//! Reply to frame, and notifications. Every frame is one line of JSON without a line break at its end.

use serde::Serialize;

use super::{SUPPORTED, task};
use crate::{
    frame::{Obj, Raw},
    malformed::Malformed,
    meta,
    reply::{Cache, CacheScope, Discovery, InputRequest, Push, Reply, Tool, ToolPage},
    request::{Filter, RequestId},
    rpc_error::{self, Data, RefusalCode, RpcError},
};

/// The frame of a reply to the request `id`.
pub fn render(reply: &Reply, id: &RequestId) -> Vec<u8> {
    match result(reply, id) {
        Ok(result) => {
            let mut frame = envelope();
            frame.set("id", id);
            frame.set("result", &result.to_raw());
            bytes(&frame)
        }
        Err(error) => render_error(&error, Some(id)),
    }
}

/// The frame of an error; without an id when the request's could not be read.
pub fn render_error(error: &RpcError, id: Option<&RequestId>) -> Vec<u8> {
    let mut frame = envelope();
    if let Some(id) = id {
        frame.set("id", id);
    }
    frame.set("error", &error_object(error).to_raw());
    bytes(&frame)
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
        // A task's own progress stands in the task (C-37).
        Push::Progress {
            token,
            progress,
            task: _,
        } => {
            let mut params = task::progress(progress);
            params.set("progressToken", token);
            ("notifications/progress", params)
        }
        // B-1: a client of this generation is never sent a request, so it has none to be told of.
        Push::Question { .. } | Push::Withdrawn { .. } => return Vec::new(),
        Push::Log { level, logger, data } => {
            let mut params = Obj::default();
            params.set("level", level);
            set_some(&mut params, "logger", logger.as_ref());
            params.set("data", data);
            ("notifications/message", params)
        }
    };
    let mut frame = envelope();
    frame.set("method", method);
    frame.set("params", &params.to_raw());
    bytes(&frame)
}

/// The HTTP status of a reply, in the table of wire B.3 and the refusals of the product. Answers to malformed
/// frames have their own ([`crate::malformed::Rule::status`]).
pub fn status(reply: &Reply) -> u16 {
    match reply {
        Reply::Error(error) => error_status(error),
        Reply::Discover(_)
        | Reply::Tools(_)
        | Reply::Result(_)
        | Reply::InputRequired { .. }
        | Reply::TaskCreated(_)
        | Reply::Task(_)
        | Reply::Outcome(_)
        | Reply::Tasks(_)
        | Reply::Cancelled { .. }
        | Reply::Ack
        | Reply::ListenEnded => 200,
    }
}

fn error_status(error: &RpcError) -> u16 {
    match error.code {
        rpc_error::PARSE_ERROR
        | rpc_error::INVALID_REQUEST
        | rpc_error::HEADER_MISMATCH
        | rpc_error::MISSING_CAPABILITY
        | rpc_error::UNSUPPORTED_VERSION => return 400,
        rpc_error::METHOD_NOT_FOUND => return 404,
        _ => {}
    }
    let Data::Refusal(refusal) = &error.data else {
        return 200;
    };
    if refusal.reason.starts_with("upstream_") {
        return 502;
    }
    match RefusalCode::ALL
        .into_iter()
        .find(|code| code.number() == error.code)
    {
        Some(RefusalCode::OverLimit | RefusalCode::Loop) => 429,
        Some(RefusalCode::StoreUnavailable | RefusalCode::Draining) => 503,
        Some(
            RefusalCode::NotAllowed | RefusalCode::Approval | RefusalCode::Stopped | RefusalCode::Screened,
        )
        | None => 200,
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
        Reply::Outcome(_) | Reply::Tasks(_) => return Err(of_sessions()),
        Reply::ListenEnded => {
            let mut result = complete(Obj::default());
            tag(&mut result, id);
            result
        }
        Reply::Error(error) => return Err(error.clone()),
    };
    result.edit("_meta", |members| {
        members.set(meta::SERVER_INFO, &server_info().to_raw())
    });
    Ok(result)
}

fn of_sessions() -> RpcError {
    RpcError::internal(
        "out_of_place",
        "This reply belongs to another generation of the protocol",
    )
}

fn discover(discovery: &Discovery) -> Obj {
    let mut capabilities = Obj::default();
    capabilities.edit("tools", |tools| {
        if discovery.tools_change {
            tools.set("listChanged", &true);
        }
    });
    if discovery.logging {
        capabilities.edit("logging", |_| {});
    }
    if discovery.tasks {
        capabilities.edit("extensions", |map| map.edit(meta::TASKS_EXTENSION, |_| {}));
    }
    let mut result = Obj::default();
    result.set("supportedVersions", SUPPORTED);
    result.set("capabilities", &capabilities.to_raw());
    set_some(&mut result, "instructions", discovery.instructions.as_ref());
    set_cache(&mut result, discovery.cache);
    result
}

fn tools(page: &ToolPage) -> Obj {
    let tools: Vec<Raw> = page.tools.iter().map(|listed| tool(listed).to_raw()).collect();
    let mut result = Obj::default();
    result.set("tools", &tools);
    set_some(&mut result, "nextCursor", page.next_cursor.as_ref());
    set_cache(&mut result, page.cache);
    result
}

/// B-54: this generation's tools say nothing of tasks; the server decides, call by call.
fn tool(tool: &Tool) -> Obj {
    let mut out = Obj::default();
    out.set("name", &tool.name);
    set_some(&mut out, "title", tool.title.as_ref());
    set_some(&mut out, "description", tool.description.as_ref());
    out.set("inputSchema", &tool.input_schema);
    set_some(&mut out, "outputSchema", tool.output_schema.as_ref());
    let mut hints = Obj::default();
    set_some(&mut hints, "readOnlyHint", tool.annotations.read_only.as_ref());
    set_some(
        &mut hints,
        "destructiveHint",
        tool.annotations.destructive.as_ref(),
    );
    set_some(&mut hints, "idempotentHint", tool.annotations.idempotent.as_ref());
    set_some(&mut hints, "openWorldHint", tool.annotations.open_world.as_ref());
    if !hints.0.is_empty() {
        out.set("annotations", &hints.to_raw());
    }
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
    set_some(&mut result, "requestState", state);
    typed("input_required", result)
}

/// C-36: the ids that are followed, perhaps none; no member for what was not asked for.
fn acknowledged(filter: &Filter) -> Obj {
    let mut out = Obj::default();
    if filter.tools_list_changed {
        out.set("toolsListChanged", &true);
    }
    set_some(&mut out, "taskIds", filter.tasks.as_ref());
    out
}

pub(super) fn error_object(error: &RpcError) -> Obj {
    let mut out = Obj::default();
    out.set("code", &error.code);
    out.set("message", &error.message);
    match &error.data {
        Data::None => {}
        Data::Refusal(refusal) => out.set("data", refusal),
        Data::Raw(data) => out.set("data", data),
    }
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

fn server_info() -> Obj {
    let mut info = Obj::default();
    info.set("name", "longhaul");
    info.set("version", env!("CARGO_PKG_VERSION"));
    info
}

pub(super) fn set_some(out: &mut Obj, name: &str, value: Option<&(impl Serialize + ?Sized)>) {
    if let Some(value) = value {
        out.set(name, value);
    }
}

fn envelope() -> Obj {
    let mut frame = Obj::default();
    frame.set("jsonrpc", "2.0");
    frame
}

fn bytes(frame: &Obj) -> Vec<u8> {
    let mut text = String::new();
    frame.write(&mut text);
    text.into_bytes()
}
