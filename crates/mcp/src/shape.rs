//! Shapes that are the same in every generation: frames, errors, notifications, and the parts of a task.
//!
//! Only the edges and the client half call this module. It decides nothing that depends on a generation, and reads nothing that a
//! client sent. Every frame is one line of JSON without a line break at its end.

use longhaul_core::{Body, Millis};

use crate::{
    clean,
    frame::{Obj, Raw},
    meta,
    reply::{Annotations, Discovery, Progress, TaskView, Tool},
    request::{LogLevel, RequestId},
    rpc_error::{Data, RpcError},
};

/// The longest status text and progress message, in characters.
const SHOWN_CHARS_MAX: usize = 2_000;

/// The frame of a result.
pub(crate) fn result_frame(id: &RequestId, result: &Obj) -> Vec<u8> {
    let mut frame = envelope();
    frame.set("id", id);
    around(&frame, "result", result)
}

/// The frame of an error; without an id when the request's could not be read.
pub(crate) fn error_frame(error: &RpcError, id: Option<&RequestId>) -> Vec<u8> {
    let mut frame = envelope();
    frame.set_some("id", id);
    frame.set("error", &error_object(error).to_raw());
    bytes(&frame)
}

/// The frame of a notification.
pub(crate) fn notification(method: &str, params: &Obj) -> Vec<u8> {
    let mut frame = envelope();
    frame.set("method", method);
    around(&frame, "params", params)
}

/// The frame of a notification without parameters.
pub(crate) fn bare_notification(method: &str) -> Vec<u8> {
    let mut frame = envelope();
    frame.set("method", method);
    bytes(&frame)
}

/// The frame of a request of ours without parameters.
pub(crate) fn bare_request(id: &RequestId, method: &Raw) -> Vec<u8> {
    let mut frame = envelope();
    frame.set("id", id);
    frame.set("method", method);
    bytes(&frame)
}

/// The frame of a request of ours.
pub(crate) fn request_frame(id: &RequestId, method: &Raw, params: &Obj) -> Vec<u8> {
    let mut frame = envelope();
    frame.set("id", id);
    frame.set("method", method);
    frame.set("params", &params.to_raw());
    bytes(&frame)
}

pub(crate) fn error_object(error: &RpcError) -> Obj {
    let mut out = match &error.data {
        Data::Whole(whole) => whole.clone(),
        Data::None | Data::Refusal(_) | Data::Raw(_) => Obj::default(),
    };
    if out.get::<i64>("code") != Some(error.code) {
        out.set("code", &error.code);
    }
    if out.get::<String>("message").as_deref() != Some(&*error.message) {
        out.set("message", &error.message);
    }
    match &error.data {
        Data::None | Data::Whole(_) => {}
        Data::Refusal(refusal) => out.set("data", refusal),
        Data::Raw(data) => out.set("data", data),
    }
    out
}

pub(crate) fn server_info(title: Option<&str>) -> Obj {
    let mut info = Obj::default();
    info.set("name", "longhaul");
    info.set_some("title", title.as_ref());
    info.set("version", env!("CARGO_PKG_VERSION"));
    info
}

/// What there is, as far as both generations say it alike.
pub(crate) fn capabilities(discovery: &Discovery) -> Obj {
    let relays = &discovery.relays;
    let mut capabilities = Obj::default();
    let mut offer = |part: &str, is_there: bool, says: &[(&str, bool)]| {
        if !is_there {
            return;
        }
        capabilities.edit(part, |members| {
            for (member, _) in says.iter().filter(|(_, is_so)| *is_so) {
                members.set(member, &true);
            }
        });
    };
    offer("tools", true, &[("listChanged", discovery.tools_change)]);
    offer(
        "prompts",
        relays.prompts,
        &[("listChanged", relays.prompts_change)],
    );
    let resources = [
        ("subscribe", relays.subscribe),
        ("listChanged", relays.resources_change),
    ];
    offer("resources", relays.resources, &resources);
    offer("completions", relays.completions, &[]);
    offer("logging", discovery.logging, &[]);
    capabilities
}

/// A tool as its server defines it, with the edits that both generations share: its name among all servers, and
/// no output schema where none is shown.
pub(crate) fn relayed_tool(definition: &Obj, tool: &Tool) -> Obj {
    let mut out = definition.clone();
    if out.get::<String>("name").as_ref() != Some(&tool.name) {
        out.set("name", &tool.name);
    }
    if tool.output_schema.is_none() {
        drop(out.take("outputSchema"));
    }
    out
}

/// A tool's hints; `None` when nothing is said.
pub(crate) fn hints(annotations: &Annotations) -> Option<Obj> {
    let mut hints = Obj::default();
    hints.set_some("readOnlyHint", annotations.read_only.as_ref());
    hints.set_some("destructiveHint", annotations.destructive.as_ref());
    hints.set_some("idempotentHint", annotations.idempotent.as_ref());
    hints.set_some("openWorldHint", annotations.open_world.as_ref());
    (!hints.0.is_empty()).then_some(hints)
}

/// The parameters of a log message.
pub(crate) fn log(level: LogLevel, logger: Option<&str>, data: &Raw) -> Obj {
    let mut params = Obj::default();
    params.set("level", &level);
    params.set_some("logger", logger);
    params.set("data", data);
    params
}

/// How far some work is, in the shape of a progress notification.
pub(crate) fn progress(progress: &Progress) -> Obj {
    let mut out = Obj::default();
    out.set("progress", &number(progress.progress));
    out.set_some("total", progress.total.map(number).as_ref());
    out.set_some(
        "message",
        progress.message.as_ref().map(|text| shown(text)).as_ref(),
    );
    out
}

/// A whole number without a fraction: `3` is not passed on as `3.0`.
fn number(value: f64) -> Raw {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        Raw::built(format!("{value:.0}"))
    } else {
        Raw::of(&value).unwrap_or_else(|_| Raw::built("0".to_owned()))
    }
}

/// What Longhaul says of a task beside the protocol's own members (D-47).
pub(crate) fn set_own_members(task: &mut Obj, view: &TaskView) {
    task.edit("_meta", |members| {
        members.set(meta::TASK_NAME, &view.name);
        members.set_some(
            meta::PROGRESS,
            view.progress.as_ref().map(|p| progress(p).to_raw()).as_ref(),
        );
        members.set_some(meta::METADATA, view.metadata.as_ref());
    });
}

/// C-16: whatever a tool says is cleaned.
pub(crate) fn shown(text: &str) -> String {
    clean(text, SHOWN_CHARS_MAX)
}

/// K-2: positive, and no larger than every reader's integers (2^53 - 1).
pub(crate) fn whole_ms(ms: u64) -> u64 {
    ms.clamp(1, (1 << 53) - 1)
}

/// C-18: RFC 3339 in UTC with milliseconds. A moment that no calendar reaches is shown as the last that one does.
pub(crate) fn timestamp(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{moment:.3}")
}

/// A stored JSON-RPC error.
///
/// # Errors
/// The body was not loaded, or is no such error.
pub(crate) fn errored(body: &Body) -> Result<Obj, RpcError> {
    let error = object(loaded(body)?)?;
    let is_error = error.get::<i64>("code").is_some() && error.get::<String>("message").is_some();
    if is_error { Ok(error) } else { Err(unreadable()) }
}

/// A stored object.
///
/// # Errors
/// The bytes are none.
pub(crate) fn object(bytes: &[u8]) -> Result<Obj, RpcError> {
    serde_json::from_slice(bytes).map_err(|_| unreadable())
}

pub(crate) fn loaded(body: &Body) -> Result<&[u8], RpcError> {
    body.bytes().ok_or_else(unreadable)
}

/// A reply that this generation has no shape for.
pub(crate) fn out_of_place() -> RpcError {
    RpcError::internal(
        "out_of_place",
        "This reply belongs to another generation of the protocol",
    )
}

fn unreadable() -> RpcError {
    RpcError::internal("outcome_unreadable", "The stored outcome cannot be read")
}

/// Takes the members called `name` out of `_meta`, if it is there.
pub(crate) fn take_from_meta(result: &mut Obj, name: &str) {
    let is_there = result
        .obj("_meta")
        .is_some_and(|members| members.raw(name).is_some());
    if is_there {
        result.edit("_meta", |members| drop(members.take(name)));
    }
}

fn envelope() -> Obj {
    let mut frame = Obj::default();
    frame.set("jsonrpc", "2.0");
    frame
}

/// A frame on one line. What is relayed as it was written may have line ends between its tokens; inside
/// strings they are escaped.
fn bytes(frame: &Obj) -> Vec<u8> {
    let mut text = String::new();
    frame.write(&mut text);
    one_line(text)
}

/// As [`bytes`], with one more member at the end, which may be large: it is copied once.
fn around(frame: &Obj, name: &'static str, last: &Obj) -> Vec<u8> {
    let mut text = String::new();
    frame.write(&mut text);
    text.truncate(text.len() - 1);
    text.push_str(&format!(",\"{name}\":"));
    last.write(&mut text);
    text.push('}');
    one_line(text)
}

fn one_line(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for byte in bytes.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    bytes
}
