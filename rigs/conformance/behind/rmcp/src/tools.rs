//! The tools, by the names and with the words that the suite expects.

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, ErrorCode, ProgressNotificationParam},
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::{
    Behind, Changed,
    asks::{Asker, Halt, form, form_of, roots, sample, sent, stands_alone},
    of, result,
};

type Context = RequestContext<RoleServer>;

/// One pixel.
pub const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
/// A WAV without a sound in it.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const STEP: Duration = Duration::from_millis(50);

pub fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub fn image() -> Value {
    json!({"type": "image", "data": IMAGE, "mimeType": "image/png"})
}

pub fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

pub async fn call(
    behind: &Behind,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, Halt> {
    let name = &*request.name;
    let (answers, state) = (request.input_responses.as_ref(), request.request_state.as_ref());
    let asker = Asker::of(context, answers, state)?;
    if let Some(kind) = name.strip_prefix("test_input_required_result_") {
        return asking(kind, &asker, context).await;
    }
    let content = match name {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => image(),
        "test_audio_content" => json!({"type": "audio", "data": SOUND, "mimeType": "audio/wav"}),
        "test_embedded_resource" => resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        ),
        "test_multiple_content_types" => {
            let data = resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            );
            return done(json!([text("Multiple content types test:"), image(), data]));
        }
        "test_error_handling" => return failed("This tool intentionally returns an error for testing"),
        "test_tool_with_logging" => {
            for line in [
                "Tool execution started",
                "Tool processing data",
                "Tool execution completed",
            ] {
                log(context, line).await?;
                tokio::time::sleep(STEP).await;
            }
            text("It has logged.")
        }
        "test_logging_tool" => {
            log(context, "test_logging_tool ran").await?;
            text("It has logged.")
        }
        "test_tool_with_progress" => {
            for step in [0.0, 50.0, 100.0] {
                progress(context, step).await?;
                tokio::time::sleep(STEP).await;
            }
            text("It has told its progress.")
        }
        "test_reconnection" => {
            tokio::time::sleep(4 * STEP).await;
            text("It has taken a moment.")
        }
        "test_missing_capability" => {
            let sampling = context.client_capabilities().and_then(|all| all.sampling);
            if sampling.is_none() {
                let needed = json!({"requiredCapabilities": {"sampling": {}}});
                let code = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
                return Err(ErrorData::new(code, "the client has to sample", Some(needed)).into());
            }
            text("The client samples.")
        }
        "test_trigger_tool_change" => {
            behind.changed(Changed::Tools);
            text("The tools changed.")
        }
        "test_trigger_prompt_change" => {
            behind.changed(Changed::Prompts);
            text("The prompts changed.")
        }
        "test_x_mcp_header" => match argument(request, "region") {
            "" => return failed("`region` is required: say a text"),
            region => text(&format!("region={region}")),
        },
        "test_dynamic_tool" => text("It is there."),
        "json_schema_2020_12_tool" => text("It is listed for its schema."),
        "test_sampling" => {
            let requests = json!({"answer": sample(argument(request, "prompt"))});
            let answers = asker.ask(requests, None).await?;
            text(&format!("LLM response: {}", answers["answer"]["content"]))
        }
        "test_elicitation" => {
            let fields = json!({"username": {"type": "string"}, "email": {"type": "string"}});
            filled_in(&asker, form_of(argument(request, "message"), fields)).await?
        }
        "test_elicitation_sep1034_defaults" => filled_in(&asker, defaults()).await?,
        "test_elicitation_sep1330_enums" => filled_in(&asker, choices()).await?,
        "test_streaming_elicitation" => filled_in(&asker, form("Who are you?", "name")).await?,
        _ => return Err(unknown(name)),
    };
    done(json!([content]))
}

/// The tools that ask, each in one way or another.
async fn asking(kind: &str, asker: &Asker<'_>, context: &Context) -> Result<CallToolResponse, Halt> {
    let (form, state) = (
        |field| form(&format!("What is your {field}?"), field),
        asker.state.as_deref(),
    );
    let requests = match (kind, state) {
        ("elicitation", _) => json!({"user_name": form("name")}),
        ("sampling", _) => json!({"capital_question": sample("What is the capital of France?")}),
        ("list_roots", _) => json!({"client_roots": roots()}),
        ("request_state" | "tampered_state", _) => {
            json!({"confirm": form_of("Please confirm", json!({"ok": {"type": "boolean"}}))})
        }
        ("multiple_inputs", _) => {
            json!({"user_name": form("name"), "greeting": sample("Generate a greeting"), "client_roots": roots()})
        }
        ("multi_round", Some("second")) => json!({"step2": form("color")}),
        ("multi_round", _) => {
            asker.ask(json!({"step1": form("name")}), Some("first")).await?;
            json!({"step2": form("color")})
        }
        ("capabilities", _) => {
            let client = context.client_capabilities().unwrap_or_default();
            let mut requests = json!({});
            if client.sampling.is_some() {
                requests["sample"] = sample("Say hello");
            }
            if client.elicitation.is_some() {
                requests["ask"] = form("name");
            }
            requests
        }
        _ => return Err(unknown(kind)),
    };
    let state = match kind {
        "elicitation" | "sampling" | "list_roots" => None,
        _ => Some("second"),
    };
    let answers = asker.ask(requests, state).await?;
    done(json!([text(&format!("state-ok: {answers}"))]))
}

/// How a form was filled in.
async fn filled_in(asker: &Asker<'_>, form: Value) -> Result<Value, Halt> {
    let answers = asker.ask(json!({"form": form}), None).await?;
    let (action, content) = (&answers["form"]["action"], &answers["form"]["content"]);
    Ok(text(&format!(
        "User response: action={action}, content={content}"
    )))
}

fn done(content: Value) -> Result<CallToolResponse, Halt> {
    Ok(CallToolResponse::Complete(result(json!({"content": content}))?))
}

fn failed(why: &str) -> Result<CallToolResponse, Halt> {
    let failed = json!({"content": [text(why)], "isError": true});
    Ok(CallToolResponse::Complete(result(failed)?))
}

fn unknown(name: &str) -> Halt {
    ErrorData::invalid_params(format!("there is no tool `{name}`"), None).into()
}

fn argument<'a>(request: &'a CallToolRequestParams, name: &str) -> &'a str {
    let arguments = request.arguments.as_ref();
    arguments
        .and_then(|all| all.get(name)?.as_str())
        .unwrap_or_default()
}

/// A client of 2026-07-28 says with each call whether it wants to hear the log.
async fn log(context: &Context, line: &str) -> Result<(), ErrorData> {
    if stands_alone(context) && context.meta.log_level().is_none() {
        return Ok(());
    }
    let message = json!({"level": "info", "logger": "behind", "data": line});
    sent(context.peer.notify_logging_message(of(message)?).await)
}

async fn progress(context: &Context, step: f64) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else {
        return Ok(());
    };
    let progress = ProgressNotificationParam::new(token, step).with_total(100.0);
    sent(context.peer.notify_progress(progress).await)
}

fn defaults() -> Value {
    let fields = json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    });
    form_of("Please fill in what is not as it should be", fields)
}

fn choices() -> Value {
    let titled =
        json!([{"const": "low", "title": "Low Priority"}, {"const": "high", "title": "High Priority"}]);
    let fields = json!({
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    });
    form_of("Please choose", fields)
}
