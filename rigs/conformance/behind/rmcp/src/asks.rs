//! What tools and prompts ask, in the way of the client's generation: in a session they send requests and wait; at
//! 2026-07-28 they end with what is asked, and are called again with the answers.

use rmcp::{
    ErrorData, RoleServer, ServiceError,
    model::{InputRequiredResult, InputResponses, ProtocolVersion, RequestStateCodec},
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::of;

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

/// Why a request goes no further.
pub enum Halt {
    /// It ends with what it asks.
    Asks(InputRequiredResult),
    Fails(ErrorData),
}

impl From<ErrorData> for Halt {
    fn from(error: ErrorData) -> Halt {
        Halt::Fails(error)
    }
}

/// A result that asks is a result.
pub fn settled<T: From<InputRequiredResult>>(outcome: Result<T, Halt>) -> Result<T, ErrorData> {
    match outcome {
        Ok(result) => Ok(result),
        Err(Halt::Asks(result)) => Ok(result.into()),
        Err(Halt::Fails(error)) => Err(error),
    }
}

pub fn stands_alone(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28)
}

/// One request that may ask.
pub struct Asker<'a> {
    context: &'a RequestContext<RoleServer>,
    answers: InputResponses,
    /// What it said for itself when it asked last.
    pub state: Option<String>,
}

impl Asker<'_> {
    /// A state that is not ours is refused.
    pub fn of<'a>(
        context: &'a RequestContext<RoleServer>,
        answers: Option<&InputResponses>,
        sealed: Option<&String>,
    ) -> Result<Asker<'a>, ErrorData> {
        let open = |sealed: &String| {
            let state = codec().open(sealed).ok();
            state
                .and_then(|state| String::from_utf8(state).ok())
                .ok_or_else(|| ErrorData::invalid_params("the requestState is not of this server", None))
        };
        Ok(Asker {
            context,
            answers: answers.cloned().unwrap_or_default(),
            state: sealed.map(open).transpose()?,
        })
    }

    /// Asks these together; the answers by their keys.
    pub async fn ask(&self, requests: Value, state: Option<&str>) -> Result<Value, Halt> {
        let asked = requests.as_object().cloned().unwrap_or_default();
        let mut answers = json!({});
        if stands_alone(self.context) {
            let answer = |key: &String| self.answers.get(key).filter(|answer| answer.is_object());
            if asked.is_empty() || asked.keys().any(|key| answer(key).is_none()) {
                let state = state.map(|state| codec().seal(state.as_bytes()));
                return Err(Halt::Asks(InputRequiredResult::new(Some(of(requests)?), state)));
            }
            for key in asked.keys() {
                answers[key] = json!(answer(key));
            }
        } else {
            for (key, request) in &asked {
                answers[key] = self.send(request).await?;
            }
        }
        Ok(answers)
    }

    async fn send(&self, request: &Value) -> Result<Value, ErrorData> {
        let (peer, params) = (&self.context.peer, request["params"].clone());
        Ok(match request["method"].as_str() {
            Some("elicitation/create") => json!(sent(peer.create_elicitation(of(params)?).await)?),
            Some("sampling/createMessage") => json!(sent(peer.create_message(of(params)?).await)?),
            _ => json!(sent(peer.list_roots().await)?),
        })
    }
}

pub fn sent<T>(outcome: Result<T, ServiceError>) -> Result<T, ErrorData> {
    outcome.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn codec() -> RequestStateCodec {
    RequestStateCodec::try_new(*b"the key of a fixture is no secret").expect("the key is long enough")
}
