//! Our reading of a frame against that of rmcp, on the same bytes. Where the two disagree, the reason is one of
//! [`Class`]; anything else is a bug in one of them. `docs/reference/fuzzing.md` says why each class is as it is.

use longhaul_mcp::{
    Malformed, RequestId,
    frame::{Frame, Obj, Raw},
    malformed::Rule,
    scan::{self, BadText, Limits},
};
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, NumberOrString};
use serde_json::Value;

use crate::json::same;

/// Why two readers may disagree about the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// We refuse two members of one object with the same name. rmcp takes the last one, except in the envelope.
    Duplicate,
    /// We refuse a member of the envelope that is one of ours but for case. To rmcp it is another member.
    Case,
    /// We refuse U+0000 and halves of surrogate pairs. rmcp takes the first, and the second where it reads no text.
    Text,
    /// We refuse what is deeper than 64 levels, has too many values or too long a number. rmcp goes to 128 levels.
    Size,
    /// We refuse `params` that are no object. rmcp gives them to the handler of custom requests.
    Params,
    /// We refuse an id in the form of a float. To rmcp `1.0` is 1.
    FloatId,
    /// We take integers of up to 39 digits as an id. rmcp refuses what does not fit 64 bits.
    WideId,
    /// We take numbers that no double can hold, where nobody reads them. rmcp reads them all.
    WideNumber,
    /// We take any error object of a response; who asked reads it. rmcp needs a 32-bit code and a message.
    ErrorObject,
    /// We take a `_meta` that is no object where nothing is read of it. rmcp refuses the frame.
    Meta,
}

/// An input for each class. The table of the page is true as long as these hold.
const EXAMPLES: &[(Class, &str)] = &[
    (
        Class::Duplicate,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1,"x":2}}}"#,
    ),
    (
        Class::Case,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
    ),
    (Class::Text, r#"{"jsonrpc":"2.0","id":1,"method":"a\u0000"}"#),
    (Class::Size, DEEP),
    (
        Class::Params,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":null}"#,
    ),
    (Class::FloatId, r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#),
    (
        Class::WideId,
        r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#,
    ),
    (
        Class::WideNumber,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":1e400}}"#,
    ),
    (
        Class::ErrorObject,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#,
    ),
    (
        Class::Meta,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":1}}"#,
    ),
];

/// 66 levels.
const DEEP: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"#,
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    "}}"
);

/// Checks that each class has a frame about which the two readers disagree.
pub fn check_examples() {
    for (class, text) in EXAMPLES {
        assert_eq!(disagreement(text.as_bytes()), Some(*class), "{text}");
    }
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    disagreement(bytes);
}

/// Why the two disagree, where they do.
fn disagreement(bytes: &[u8]) -> Option<Class> {
    let ours = Frame::parse(bytes, &Limits::default());
    let theirs = serde_json::from_slice::<ClientJsonRpcMessage>(bytes);
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => {
            agree(ours, theirs);
            None
        }
        (Err(_), Err(_)) => None,
        (Err(malformed), Ok(_)) => {
            let class = stricter(malformed, bytes);
            assert!(class.is_some(), "only we refuse it: {malformed:?}");
            class
        }
        (Ok(frame), Err(error)) => {
            let class = looser(frame, bytes);
            assert!(class.is_some(), "only rmcp refuses it: {error}: {frame:?}");
            class
        }
    }
}

/// Why we refuse what rmcp takes.
fn stricter(malformed: &Malformed, bytes: &[u8]) -> Option<Class> {
    match &malformed.rule {
        Rule::Scan(refused) => match refused.rule {
            scan::Rule::DuplicateMember => Some(Class::Duplicate),
            scan::Rule::WrongCase => Some(Class::Case),
            scan::Rule::Text(BadText::LoneSurrogate | BadText::Nul) => Some(Class::Text),
            scan::Rule::TooDeep | scan::Rule::TooManyValues | scan::Rule::NumberTooLong => Some(Class::Size),
            scan::Rule::NotUtf8 | scan::Rule::Text(BadText::Syntax) => None,
        },
        Rule::ParamsNotAnObject => Some(Class::Params),
        Rule::BadId => {
            let tree: Value = serde_json::from_slice(bytes).ok()?;
            tree["id"].is_f64().then_some(Class::FloatId)
        }
        _ => None,
    }
}

/// Why rmcp refuses what we take.
fn looser(frame: &Frame, bytes: &[u8]) -> Option<Class> {
    let Ok(tree) = serde_json::from_slice::<Value>(bytes) else {
        return Some(Class::WideNumber);
    };
    if matches!(frame_id(frame), Some(RequestId::Integer(number)) if i64::try_from(*number).is_err()) {
        return Some(Class::WideId);
    }
    if let Frame::Response { outcome: Err(_), .. } = frame {
        let error = &tree["error"];
        let code = error["code"].as_i64().and_then(|code| i32::try_from(code).ok());
        return (code.is_none() || !error["message"].is_string()).then_some(Class::ErrorObject);
    }
    let meta = tree["params"].get("_meta")?;
    (!meta.is_object() && !meta.is_null()).then_some(Class::Meta)
}

fn frame_id(frame: &Frame) -> Option<&RequestId> {
    match frame {
        Frame::Request { id, .. } => Some(id),
        Frame::Notification { .. } => None,
        Frame::Response { id, .. } => id.as_ref(),
    }
}

/// Both read the same thing.
fn agree(ours: &Frame, theirs: &ClientJsonRpcMessage) {
    match (ours, theirs) {
        (Frame::Request { id, method, params }, JsonRpcMessage::Request(request)) => {
            assert!(same_id(id, &request.id), "{id:?} {:?}", request.id);
            assert_eq!(method, request.request.method());
            agree_on_params(params.as_ref(), &request.request);
        }
        (Frame::Notification { method, .. }, JsonRpcMessage::Notification(notification)) => {
            if let ClientNotification::CustomNotification(custom) = &notification.notification {
                assert_eq!(method, &custom.method);
            }
        }
        (
            Frame::Response {
                id: Some(id),
                outcome: Ok(_),
            },
            JsonRpcMessage::Response(response),
        ) => {
            assert!(same_id(id, &response.id));
        }
        (
            Frame::Response {
                id,
                outcome: Err(error),
            },
            JsonRpcMessage::Error(other),
        ) => {
            match (id, &other.id) {
                (None, None) => {}
                (Some(id), Some(other)) => assert!(same_id(id, other)),
                (id, other) => panic!("{id:?} {other:?}"),
            }
            let error: Value = error.read().expect("both took it");
            assert_eq!(error["code"].as_i64(), Some(i64::from(other.error.code.0)));
            assert_eq!(error["message"].as_str(), Some(&*other.error.message));
        }
        (ours, theirs) => panic!("{ours:?} is to rmcp {theirs:?}"),
    }
}

/// What a rule about calls would look at is what rmcp's server would run.
fn agree_on_params(ours: Option<&Obj>, theirs: &ClientRequest) {
    let text = |member: &str| ours.and_then(|params| params.get::<String>(member));
    match theirs {
        ClientRequest::CallToolRequest(call) => {
            assert_eq!(text("name").as_deref(), Some(&*call.params.name));
            let arguments = ours.and_then(|params| params.raw("arguments")).map(tree);
            match (arguments.filter(|value| !value.is_null()), &call.params.arguments) {
                (None, None) => {}
                (Some(ours), Some(theirs)) => {
                    assert!(same(&ours, &Value::Object(theirs.clone())), "{ours} {theirs:?}");
                }
                (ours, theirs) => panic!("arguments {ours:?} are to rmcp {theirs:?}"),
            }
        }
        ClientRequest::GetTaskRequest(get) => {
            assert_eq!(text("taskId").as_ref(), Some(&get.params.task_id));
        }
        ClientRequest::UpdateTaskRequest(update) => {
            assert_eq!(text("taskId").as_ref(), Some(&update.params.task_id));
        }
        ClientRequest::CancelTaskRequest(cancel) => {
            assert_eq!(text("taskId").as_ref(), Some(&cancel.params.task_id));
        }
        _ => {}
    }
}

fn tree(raw: &Raw) -> Value {
    raw.read().expect("both took it")
}

fn same_id(ours: &RequestId, theirs: &NumberOrString) -> bool {
    match (ours, theirs) {
        (RequestId::Integer(ours), NumberOrString::Number(theirs)) => *ours == i128::from(*theirs),
        (RequestId::Text(ours), NumberOrString::String(theirs)) => **ours == **theirs,
        (RequestId::Integer(_), NumberOrString::String(_))
        | (RequestId::Text(_), NumberOrString::Number(_)) => false,
    }
}
