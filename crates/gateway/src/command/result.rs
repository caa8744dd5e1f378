//! How a program ended, as a tool result.
//!
//! Called once, after the program and everything it started is gone. The result is the bytes that every reader
//! gets, of no generation; it never holds more than the limits say.

use std::io::{Read, Seek, SeekFrom};

use base64::Engine as _;
use longhaul_core::Body;
use longhaul_engine::{
    process::{Ended, Exit, Output, Reason},
    tool::Finish,
};
use longhaul_mcp::{
    canon,
    frame::{Obj, Raw},
    scan,
};
use serde_json::{Value as Json, json};

use super::{Command, files, printed};
use crate::{
    config::{self, Bytes, written},
    outbound,
};

/// How much of a failed program's standard output its result shows, in bytes.
const FAILED_OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// The result of a program that ended by itself, or by a limit. `secrets` are kept out of errors.
pub(super) fn finish(command: &Command, mut ended: Ended, secrets: &[String]) -> Finish {
    let tool = &command.tool;
    let success = ended.reason == Reason::Exited
        && matches!(ended.exit, Some(Exit::Code(code)) if tool.success_exit_codes.contains(&code));
    if tool.result == config::Output::Mcp && ended.reason == Reason::Exited {
        match whole(command, &ended.output) {
            Ok(finish) => return if success { finish } else { as_error(finish) },
            Err(why) if success => return failed(command, &mut ended, secrets, &why),
            Err(_) => {}
        }
    }
    if !success {
        let how = how(command, &ended);
        return failed(command, &mut ended, secrets, &how);
    }
    let result = match tool.result {
        config::Output::Text | config::Output::Mcp => {
            Ok(vec![text_block(command, &mut ended.output, command.room())])
        }
        config::Output::Json => return structured(command, &mut ended, secrets),
        config::Output::Files => files::blocks(command),
    };
    match result {
        Ok(blocks) => returned(blocks, None, false),
        Err(why) => failed(command, &mut ended, secrets, &why),
    }
}

/// A result that says no, without any program having run.
pub(super) fn refused(text: &str) -> Finish {
    returned(vec![json!({ "type": "text", "text": text })], None, true)
}

/// How the program ended, in a sentence.
fn how(command: &Command, ended: &Ended) -> String {
    let tool = &command.tool;
    let program = &command.shown;
    match ended.reason {
        Reason::TimedOut => {
            let limit = tool.timeout.map(written).unwrap_or_default();
            format!("`{program}` did not end within {limit} (`timeout`); it was stopped.")
        }
        Reason::Idle => {
            let limit = tool.idle_timeout.map(written).unwrap_or_default();
            format!("`{program}` wrote nothing for {limit} (`idle_timeout`); it was stopped.")
        }
        Reason::OutOfMemory => {
            let limit = tool.memory_max.map(|bytes| bytes.to_string()).unwrap_or_default();
            format!("`{program}` used more than {limit} of memory (`memory_max`); it was killed.")
        }
        Reason::Stopped => format!("`{program}` was stopped."),
        Reason::ShimLost => format!("`{program}` was lost: the process that watched it was killed."),
        Reason::Exited => match ended.exit {
            Some(Exit::Code(code)) => format!("`{program}` exited with code {code}."),
            Some(Exit::Signal(signal)) => format!("`{program}` was ended by signal {}.", signal_name(signal)),
            None => format!("`{program}` ended, and how was not seen."),
        },
    }
}

fn signal_name(signal: i32) -> String {
    let name = nix::sys::signal::Signal::try_from(signal).map(|signal| signal.as_str());
    name.map_or_else(|_| signal.to_string(), |name| format!("{signal} ({name})"))
}

fn failed(command: &Command, ended: &mut Ended, secrets: &[String], why: &str) -> Finish {
    let tail_max = usize::try_from(command.host.limits.stderr_tail.0).unwrap_or(usize::MAX);
    let tail = outbound::tail(&ended.error_tail, tail_max, secrets);
    let mut text = why.to_owned();
    if !tail.is_empty() {
        let cut = ended.error_total > tail.len() as u64 + 1 && ended.error_total > tail_max as u64;
        let of = if cut {
            format!(", the end of {} bytes", ended.error_total)
        } else {
            String::new()
        };
        text.push_str(&format!("\nstandard error{of}:\n{tail}"));
    }
    let mut blocks = vec![json!({ "type": "text", "text": text })];
    if ended.output.total > 0 {
        let room = command.room().min(FAILED_OUTPUT_BYTES_MAX);
        let mut block = text_block(command, &mut ended.output, room);
        if let Some(Json::String(text)) = block.get_mut("text") {
            for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
                *text = text.replace(secret.as_str(), "[secret]");
            }
        }
        blocks.push(block);
    }
    returned(blocks, None, true)
}

fn returned(blocks: Vec<Json>, structured: Option<Raw>, is_error: bool) -> Finish {
    let mut result = Obj::default();
    result.set("content", &blocks);
    // A large text is there once or twice at a time, and not in every form at once.
    drop(blocks);
    if let Some(structured) = structured {
        result.put("structuredContent", structured);
    }
    result.set("isError", &is_error);
    let mut text = String::new();
    result.write(&mut text);
    drop(result);
    Finish::Returned {
        body: Body::new(text.as_bytes()),
        is_error,
    }
}

/// Standard output as one block: text, which is taken out of `output`, or a resource when it is no text.
fn text_block(command: &Command, output: &mut Output, room: u64) -> Json {
    let whole = output.total <= room && output.total == output.bytes.len() as u64;
    if whole {
        let text = match String::from_utf8(std::mem::take(&mut output.bytes)) {
            Ok(text) if !text.contains('\0') => Ok(text),
            Ok(text) => Err(text.into_bytes()),
            Err(error) => Err(error.into_bytes()),
        };
        return match text {
            Ok(mut text) => {
                if text.ends_with('\n') {
                    text.pop();
                }
                let mut block = json!({ "type": "text" });
                block["text"] = Json::String(text);
                block
            }
            Err(bytes) => {
                output.bytes = bytes;
                binary(command, output)
            }
        };
    }
    let half = usize::try_from(room / 2).unwrap_or(usize::MAX);
    let head = &output.bytes[..output.bytes.len().min(half)];
    let head_is_text = match std::str::from_utf8(head) {
        Ok(text) => !text.contains('\0'),
        Err(error) => error.error_len().is_none() && !head.contains(&0),
    };
    if !head_is_text {
        return binary(command, output);
    }
    let head = String::from_utf8_lossy(head);
    let end = end_of(output, half);
    let end = String::from_utf8_lossy(&end);
    let (head, end) = (
        head.trim_end_matches('\u{fffd}'),
        end.trim_start_matches('\u{fffd}').replace('\0', " "),
    );
    let left_out = output.total.saturating_sub((head.len() + end.len()) as u64);
    let text = format!(
        "{head}\n[… {left_out} of {} bytes are left out here: the output is larger than {} …]\n{end}",
        output.total,
        Bytes(room),
    );
    json!({ "type": "text", "text": text })
}

/// The last bytes that were kept.
fn end_of(output: &Output, bytes: usize) -> Vec<u8> {
    let spilled = || {
        let mut file = output.spilled.as_ref()?.file();
        let start = file.metadata().ok()?.len().saturating_sub(bytes as u64);
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut end = Vec::new();
        file.take(bytes as u64).read_to_end(&mut end).ok()?;
        Some(end)
    };
    let in_memory = || output.bytes[output.bytes.len().saturating_sub(bytes)..].to_vec();
    spilled().unwrap_or_else(in_memory)
}

fn binary(command: &Command, output: &Output) -> Json {
    let max = command.host.limits.file_max.0.min(command.room() / 2);
    if output.total <= max && output.total == output.bytes.len() as u64 {
        let blob = base64::engine::general_purpose::STANDARD.encode(&output.bytes);
        let resource = json!({
            "uri": format!("longhaul:output/{}", command.tool.name),
            "mimeType": "application/octet-stream",
            "blob": blob,
        });
        return json!({ "type": "resource", "resource": resource });
    }
    let text = format!(
        "The output is {} bytes that are no UTF-8 text, and more than {} are not put into a result. \
         Let the program write a file, and declare `result = \"files\"`.",
        output.total,
        Bytes(max),
    );
    json!({ "type": "text", "text": text })
}

/// `result = "json"`.
fn structured(command: &Command, ended: &mut Ended, secrets: &[String]) -> Finish {
    match structured_of(command, &ended.output) {
        Ok(raw) => returned(
            vec![json!({ "type": "text", "text": raw.text() })],
            Some(raw),
            false,
        ),
        Err(why) => failed(command, ended, secrets, &why),
    }
}

fn structured_of(command: &Command, output: &Output) -> Result<Raw, String> {
    // The text stands twice in the result.
    let raw = json_of(command, output, command.room() / 2)?;
    fits(command, &raw)?;
    Ok(raw)
}

fn json_of(command: &Command, output: &Output, room: u64) -> Result<Raw, String> {
    let program = &command.shown;
    if output.total > room || output.total != output.bytes.len() as u64 {
        return Err(format!(
            "`{program}` printed {} bytes of JSON, and {} is the most.",
            output.total,
            Bytes(room)
        ));
    }
    let text = output.bytes.trim_ascii();
    let scanned = scan::payload(text, &scan::Limits::default())
        .map_err(|error| format!("`{program}` must print JSON, and did not: {error}."))?;
    let raw = Raw::parse(scanned.text());
    let raw = raw.map_err(|error| format!("`{program}` must print JSON, and did not: {error}."))?;
    // E-4
    canon::check_finite(&raw).map_err(|error| {
        let at = longhaul_mcp::clean(&error.path, 200);
        format!("`{program}` printed a number at `{at}` that is too large for any reader (`not_finite`).")
    })?;
    Ok(raw)
}

/// B-54
fn fits(command: &Command, raw: &Raw) -> Result<(), String> {
    let Some(schema) = &command.output_schema else {
        return Ok(());
    };
    let value: Json = raw.read().map_err(|error| error.to_string())?;
    let misfits: Vec<String> = schema
        .iter_errors(&value)
        .take(5)
        .map(|error| longhaul_mcp::clean(&format!("{}: {error}", error.instance_path()), 300))
        .collect();
    if misfits.is_empty() {
        return Ok(());
    }
    Err(format!(
        "What `{}` printed does not fit the tool's output schema:\n{}",
        command.shown,
        misfits.join("\n")
    ))
}

/// `result = "mcp"`: a whole tool result or a JSON-RPC error, passed on as it was printed.
fn whole(command: &Command, output: &Output) -> Result<Finish, String> {
    let raw = json_of(command, output, command.room())?;
    let program = &command.shown;
    let mut object: Obj = raw.read().map_err(|_| {
        format!("`{program}` must print a tool result or a JSON-RPC error, and printed no object.")
    })?;
    if let Some(result) = object.obj("result").filter(|_| object.raw("jsonrpc").is_some()) {
        object = result;
    }
    let error = object
        .obj("error")
        .or_else(|| object.raw("code").map(|_| object.clone()));
    if let Some(error) = error.filter(|_| object.raw("content").is_none()) {
        if error.get::<i64>("code").is_none() || error.get::<String>("message").is_none() {
            return Err(format!(
                "`{program}` printed an error without an integer `code` and a text `message`."
            ));
        }
        return Ok(Finish::Errored {
            body: Body::new(error.to_raw().text().as_bytes()),
        });
    }
    printed::check(&object).map_err(|why| format!("`{program}` printed a result {why}."))?;
    let is_error = match object.raw("isError") {
        None => false,
        Some(flag) => flag
            .read()
            .map_err(|_| format!("`{program}` printed an `isError` that is no boolean."))?,
    };
    match object.raw("structuredContent") {
        Some(structured) => fits(command, structured)?,
        None if command.output_schema.is_some() && !is_error => {
            return Err(format!(
                "`{program}` printed no `structuredContent`, and the tool has an output schema."
            ));
        }
        None => {}
    }
    printed::strip(&mut object);
    Ok(Finish::Returned {
        body: Body::new(object.to_raw().text().as_bytes()),
        is_error,
    })
}

/// A program that failed does not return a success, whatever it printed.
fn as_error(finish: Finish) -> Finish {
    match finish {
        Finish::Returned {
            body,
            is_error: false,
        } => {
            let object = body
                .bytes()
                .and_then(|bytes| Raw::parse_bytes(bytes).ok()?.read::<Obj>().ok());
            let mut object = object.unwrap_or_default();
            object.set("isError", &true);
            Finish::Returned {
                body: Body::new(object.to_raw().text().as_bytes()),
                is_error: true,
            }
        }
        Finish::Returned { .. }
        | Finish::Errored { .. }
        | Finish::Failed(_)
        | Finish::Cancelled
        | Finish::Parked { .. }
        | Finish::Lost { .. }
        | Finish::Stopped { .. } => finish,
    }
}
