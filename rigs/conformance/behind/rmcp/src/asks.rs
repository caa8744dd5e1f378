//! What tools and prompts ask, and how they read the answers.

use rmcp::{
    ErrorData,
    model::{InputRequiredResult, InputResponses, RequestStateCodec},
};
use serde_json::{Value, json};

use crate::of;

fn codec() -> RequestStateCodec {
    RequestStateCodec::try_new(*b"the key of a fixture is no secret").expect("the key is long enough")
}

/// A form with one field of text.
pub fn form(message: &str, field: &str) -> Value {
    form_of(message, json!({field: {"type": "string"}}))
}

pub fn form_of(message: &str, fields: Value) -> Value {
    let schema = json!({"type": "object", "properties": fields});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

pub fn sample(text: &str) -> Value {
    let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
    json!({"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}})
}

pub fn roots() -> Value {
    json!({"method": "roots/list"})
}

/// The reply that asks; the state comes back with the answers.
pub fn ask(requests: Value, state: Option<&str>) -> Result<InputRequiredResult, ErrorData> {
    let state = state.map(|state| codec().seal(state.as_bytes()));
    Ok(InputRequiredResult::new(Some(of(requests)?), state))
}

/// The state that came back, if any did; one that is not ours is refused.
pub fn state(sealed: Option<&String>) -> Result<Option<String>, ErrorData> {
    let Some(sealed) = sealed else {
        return Ok(None);
    };
    let state = codec().open(sealed).ok();
    state
        .and_then(|state| String::from_utf8(state).ok())
        .map(Some)
        .ok_or_else(|| ErrorData::invalid_params("the requestState is not of this server", None))
}

/// The answer under this key; what is no object is none.
pub fn answer<'a>(answers: Option<&'a InputResponses>, key: &str) -> Option<&'a Value> {
    answers?.get(key).filter(|answer| answer.is_object())
}

/// What was written in a form's field.
pub fn field<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer["content"][name].as_str().unwrap_or("nothing")
}
