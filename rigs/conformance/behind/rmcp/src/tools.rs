//! The tools, by the names and with the words that the suite expects.

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, ErrorCode, InputRequiredResult, ProgressNotificationParam,
        ProtocolVersion,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::{
    Behind, Changed,
    asks::{answer, ask, field, form, form_of, roots, sample, state},
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
) -> Result<CallToolResponse, ErrorData> {
    let name = &*request.name;
    if let Some(kind) = name.strip_prefix("test_input_required_result_") {
        return asking(kind, request, context);
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
                return Err(ErrorData::new(code, "the client has to sample", Some(needed)));
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
        "test_sampling" => sampled(context, argument(request, "prompt")).await?,
        "test_elicitation" => {
            let fields = json!({"username": {"type": "string"}, "email": {"type": "string"}});
            filled_in(context, form_of(argument(request, "message"), fields)).await?
        }
        "test_elicitation_sep1034_defaults" => filled_in(context, defaults()).await?,
        "test_elicitation_sep1330_enums" => filled_in(context, choices()).await?,
        "test_streaming_elicitation" => {
            let form = form("Who are you?", "name");
            if context.protocol_version() < Some(ProtocolVersion::V_2026_07_28) {
                filled_in(context, form).await?
            } else if answer(request.input_responses.as_ref(), "name").is_some() {
                text("It was answered.")
            } else {
                return ask(json!({"name": form}), None).map(Into::into);
            }
        }
        _ => return Err(unknown(name)),
    };
    done(json!([content]))
}

fn unknown(name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no tool `{name}`"), None)
}

fn done(content: Value) -> Result<CallToolResponse, ErrorData> {
    result(json!({"content": content})).map(CallToolResponse::Complete)
}

fn failed(why: &str) -> Result<CallToolResponse, ErrorData> {
    result(json!({"content": [text(why)], "isError": true})).map(CallToolResponse::Complete)
}

/// The tools of 2026-07-28 that ask before they end.
fn asking(
    kind: &str,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let answers = request.input_responses.as_ref();
    let said = |key: &str| answer(answers, key);
    let state = state(request.request_state.as_ref())?;
    let asked = |requests: Value, state: Option<&str>| -> Result<CallToolResponse, ErrorData> {
        ask(requests, state).map(InputRequiredResult::into)
    };
    let words = match (kind, state.as_deref()) {
        ("elicitation", _) => match said("user_name") {
            Some(answer) => format!("Hello, {}!", field(answer, "name")),
            None => return asked(json!({"user_name": form("What is your name?", "name")}), None),
        },
        ("sampling", _) => match said("capital_question") {
            Some(answer) => format!("The model said: {}", answer["content"]["text"]),
            None => {
                return asked(
                    json!({"capital_question": sample("What is the capital of France?")}),
                    None,
                );
            }
        },
        ("list_roots", _) => match said("client_roots") {
            Some(answer) => format!("The roots are: {}", answer["roots"]),
            None => return asked(json!({"client_roots": roots()}), None),
        },
        ("request_state" | "tampered_state", Some("asked")) if said("confirm").is_some() => {
            "state-ok: it was confirmed".to_owned()
        }
        ("request_state" | "tampered_state", _) => {
            let confirm = form_of("Please confirm", json!({"ok": {"type": "boolean"}}));
            return asked(json!({"confirm": confirm}), Some("asked"));
        }
        ("multiple_inputs", _) => {
            if ["user_name", "greeting", "client_roots"]
                .iter()
                .all(|key| said(key).is_some())
            {
                "All three were answered.".to_owned()
            } else {
                let requests = json!({
                    "user_name": form("What is your name?", "name"),
                    "greeting": sample("Generate a greeting"),
                    "client_roots": roots(),
                });
                return asked(requests, Some("asked"));
            }
        }
        ("multi_round", Some("first")) if said("step1").is_some() => {
            return asked(
                json!({"step2": form("Step 2: what is your color?", "color")}),
                Some("second"),
            );
        }
        ("multi_round", Some("second")) if said("step2").is_some() => "Both were answered.".to_owned(),
        ("multi_round", _) => {
            return asked(
                json!({"step1": form("Step 1: what is your name?", "name")}),
                Some("first"),
            );
        }
        ("capabilities", _) => {
            let client = context.client_capabilities().unwrap_or_default();
            let mut requests = json!({});
            if client.sampling.is_some() {
                requests["sample"] = sample("Say hello");
            }
            if client.elicitation.is_some() {
                requests["ask"] = form("What is your name?", "name");
            }
            return asked(requests, Some("asked"));
        }
        _ => return Err(unknown(&request.name)),
    };
    done(json!([text(&words)]))
}

fn argument<'a>(request: &'a CallToolRequestParams, name: &str) -> &'a str {
    let arguments = request.arguments.as_ref();
    arguments
        .and_then(|all| all.get(name)?.as_str())
        .unwrap_or_default()
}

/// A client of 2026-07-28 says with each call whether it wants to hear the log.
async fn log(context: &Context, line: &str) -> Result<(), ErrorData> {
    let stands_alone = context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28);
    if stands_alone && context.meta.log_level().is_none() {
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

/// What the client's model answers, in the middle of a call of a session.
async fn sampled(context: &Context, prompt: &str) -> Result<Value, ErrorData> {
    let request = sample(prompt)["params"].take();
    let answer = sent(context.peer.create_message(of(request)?).await)?;
    let words = answer
        .message
        .content
        .first()
        .and_then(|content| content.as_text());
    Ok(text(&format!(
        "LLM response: {}",
        words.map_or("none", |words| &words.text)
    )))
}

/// How a form was filled in, in the middle of a call of a session.
async fn filled_in(context: &Context, mut form: Value) -> Result<Value, ErrorData> {
    let answer = sent(context.peer.create_elicitation(of(form["params"].take())?).await)?;
    let content = answer.content.unwrap_or_default();
    Ok(text(&format!(
        "User response: action={:?}, content={content}",
        answer.action
    )))
}

fn sent<T>(outcome: Result<T, rmcp::ServiceError>) -> Result<T, ErrorData> {
    outcome.map_err(|error| ErrorData::internal_error(error.to_string(), None))
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
