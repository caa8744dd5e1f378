//! JSON-RPC errors: every code that Longhaul sends, with its exact text where one is fixed.
//!
//! The gateway and the edges make errors through these constructors. A protocol error that a tool returned is
//! passed on through [`RpcError::relayed`] and never rewritten.

use std::borrow::Cow;

use longhaul_core::{Reason, task::CancelledBy};
use serde::Serialize;

use crate::frame::{Obj, Raw};

/// Not JSON, or bytes that break a rule of the scan.
pub const PARSE_ERROR: i64 = -32700;
/// JSON, but no request.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method, or one that is not offered.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Bad parameters; also every id that names no task of the caller (C-39).
pub const INVALID_PARAMS: i64 = -32602;
/// A fault of the server.
pub const INTERNAL_ERROR: i64 = -32603;
/// No such resource; of sessions only, and only passed on (B-11).
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// A link must be opened first; of sessions only, and only passed on.
pub const LINK_REQUIRED: i64 = -32042;
/// A header does not say what the body says (B-22).
pub const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare what the request needs (B-6).
pub const MISSING_CAPABILITY: i64 = -32021;
/// A protocol version that is not served (B-13).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    /// A code of the protocol, a [`RefusalCode`], or whatever a tool returned.
    pub code: i64,
    /// For the caller; holds nothing that the caller may not know.
    pub message: Cow<'static, str>,
    /// What a program can act on.
    pub data: Data,
}

/// The `data` member of an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Absent.
    None,
    /// Why Longhaul says no.
    Refusal(Refusal),
    /// As it was given.
    Raw(Raw),
    /// It belongs to an error that is passed on: the whole error object, as it was given.
    Whole(Obj),
}

/// Why Longhaul says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// One word of the table of reasons, such as `task_limit`.
    pub reason: Cow<'static, str>,
    /// Who can do something about it.
    pub who: Who,
    /// When trying again makes sense, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Who can do something about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// The caller: the request must change.
    Caller,
    /// An operator: a setting or a decision must change.
    Operator,
    /// Nobody: time will do.
    Wait,
}

/// Longhaul's own codes, outside the range that JSON-RPC reserves (B-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalCode {
    /// The caller may not do this.
    NotAllowed,
    /// A cap or a rate is reached.
    OverLimit,
    /// An approval is missing, declined or over.
    Approval,
    /// An operator stopped this.
    Stopped,
    /// The same call, again and again.
    Loop,
    /// The content was screened out.
    Screened,
    /// The store is out of reach.
    StoreUnavailable,
    /// The server is shutting down.
    Draining,
}

impl RefusalCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [RefusalCode; 8] = [
        RefusalCode::NotAllowed,
        RefusalCode::OverLimit,
        RefusalCode::Approval,
        RefusalCode::Stopped,
        RefusalCode::Loop,
        RefusalCode::Screened,
        RefusalCode::StoreUnavailable,
        RefusalCode::Draining,
    ];

    /// The number on the wire.
    pub fn number(self) -> i64 {
        match self {
            RefusalCode::NotAllowed => 7401,
            RefusalCode::OverLimit => 7402,
            RefusalCode::Approval => 7403,
            RefusalCode::Stopped => 7404,
            RefusalCode::Loop => 7405,
            RefusalCode::Screened => 7406,
            RefusalCode::StoreUnavailable => 7407,
            RefusalCode::Draining => 7408,
        }
    }
}

impl RpcError {
    /// The HTTP status that a refusal travels with, in every generation; 200 for all else.
    pub(crate) fn refusal_status(&self) -> u16 {
        let Data::Refusal(refusal) = &self.data else {
            return 200;
        };
        if refusal.reason.starts_with("upstream_") {
            return 502;
        }
        match RefusalCode::ALL
            .into_iter()
            .find(|code| code.number() == self.code)
        {
            Some(RefusalCode::OverLimit | RefusalCode::Loop) => 429,
            Some(RefusalCode::StoreUnavailable | RefusalCode::Draining) => 503,
            Some(
                RefusalCode::NotAllowed
                | RefusalCode::Approval
                | RefusalCode::Stopped
                | RefusalCode::Screened,
            )
            | None => 200,
        }
    }

    /// A no from the gate or from the state of the server.
    pub fn refused(code: RefusalCode, message: impl Into<Cow<'static, str>>, refusal: Refusal) -> RpcError {
        RpcError {
            code: code.number(),
            message: message.into(),
            data: Data::Refusal(refusal),
        }
    }

    /// The store is out of reach; `retry_after_ms` from now it may be back.
    pub fn store_unavailable(retry_after_ms: u64) -> RpcError {
        RpcError::refused(
            RefusalCode::StoreUnavailable,
            "The store is out of reach",
            Refusal {
                reason: "store_unavailable".into(),
                who: Who::Wait,
                retry_after_ms: Some(retry_after_ms),
            },
        )
    }

    /// The server is shutting down and takes no new work.
    pub fn draining(retry_after_ms: u64) -> RpcError {
        RpcError::refused(
            RefusalCode::Draining,
            "The server is shutting down",
            Refusal {
                reason: "draining".into(),
                who: Who::Wait,
                retry_after_ms: Some(retry_after_ms),
            },
        )
    }

    /// A request that cannot be served as it is written.
    pub fn invalid_request(message: impl Into<Cow<'static, str>>) -> RpcError {
        RpcError::plain(INVALID_REQUEST, message)
    }

    /// Bad parameters: an unknown tool, arguments of the wrong shape, an answer that does not fit.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> RpcError {
        RpcError::plain(INVALID_PARAMS, message)
    }

    /// Bad parameters, with a reason word that a program can act on.
    pub fn invalid_params_because(
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> RpcError {
        let refusal = Refusal {
            reason: reason.into(),
            who: Who::Caller,
            retry_after_ms: None,
        };
        RpcError {
            code: INVALID_PARAMS,
            message: message.into(),
            data: Data::Refusal(refusal),
        }
    }

    /// No such tool (B-54).
    pub fn unknown_tool(name: &str) -> RpcError {
        RpcError::invalid_params(format!("Unknown tool: {}", crate::clean(name, 200)))
    }

    /// No toolset has this name: there is nothing at this address.
    pub fn unknown_toolset(name: &str) -> RpcError {
        RpcError::plain(
            INVALID_REQUEST,
            format!(
                "There is no toolset `{}`: its name is wrong, or `[toolsets.NAME]` is missing in the configuration",
                crate::clean(name, 100)
            ),
        )
    }

    /// No such method, or one that is not offered (B-23).
    pub fn method_not_found(method: &str) -> RpcError {
        RpcError::plain(
            METHOD_NOT_FOUND,
            format!("Method not found: {}", crate::clean(method, 200)),
        )
    }

    /// The id names no task of the caller. Unknown, malformed and foreign ids get these same bytes (D-3).
    /// A deleted task of the caller's own is [`task_expired`](RpcError::task_expired) instead.
    pub fn task_not_found() -> RpcError {
        RpcError::plain(INVALID_PARAMS, "Failed to retrieve task: Task not found")
    }

    /// The caller's own task is past its time to live, or deleted. Only its owner may read this.
    pub fn task_expired() -> RpcError {
        RpcError::plain(INVALID_PARAMS, "Task has expired")
    }

    /// An answer to a task that the gateway cancelled.
    pub fn task_cancelled() -> RpcError {
        RpcError::plain(INVALID_PARAMS, "Task has been cancelled")
    }

    /// The client did not declare the tasks extension, and the request needs it (C-5, C-35, C-40).
    pub fn needs_tasks(message: impl Into<Cow<'static, str>>) -> RpcError {
        RpcError::missing_capability(
            message,
            &serde_json::json!({ "extensions": { crate::meta::TASKS_EXTENSION: {} } }),
        )
    }

    /// The client did not declare what the request needs; `required` is a ClientCapabilities object of what is
    /// missing (B-6).
    pub fn missing_capability(
        message: impl Into<Cow<'static, str>>,
        required: &serde_json::Value,
    ) -> RpcError {
        let data = serde_json::json!({ "requiredCapabilities": required });
        RpcError {
            code: MISSING_CAPABILITY,
            message: message.into(),
            data: Data::of(&data),
        }
    }

    /// The server's own fault, with a reason word; the message says nothing about the inside.
    pub fn internal(reason: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> RpcError {
        let refusal = Refusal {
            reason: reason.into(),
            who: Who::Operator,
            retry_after_ms: None,
        };
        RpcError {
            code: INTERNAL_ERROR,
            message: message.into(),
            data: Data::Refusal(refusal),
        }
    }

    /// An error that a tool returned, passed on as it is.
    pub fn relayed(code: i64, message: String, data: Option<Raw>) -> RpcError {
        RpcError {
            code,
            message: message.into(),
            data: data.map_or(Data::None, Data::Raw),
        }
    }

    /// An error object that a server behind gave, or a tool: passed on with every member that it has. Without a code
    /// or a message of its own it gets one.
    pub fn passed_on(error: Obj) -> RpcError {
        RpcError {
            code: error.get("code").unwrap_or(INTERNAL_ERROR),
            message: error.get::<String>("message").unwrap_or_default().into(),
            data: Data::Whole(error),
        }
    }

    /// The error object, as every client reads it.
    pub fn object(&self) -> Obj {
        crate::shape::error_object(self)
    }

    /// A code and a message without data.
    pub fn plain(code: i64, message: impl Into<Cow<'static, str>>) -> RpcError {
        RpcError {
            code,
            message: message.into(),
            data: Data::None,
        }
    }

    /// The error of a task that Longhaul itself ended. It is the same in every generation.
    pub fn failed(reason: Reason) -> RpcError {
        #[derive(Serialize)]
        struct Why {
            reason: &'static str,
        }
        let data = Data::of(&Why {
            reason: reason.name(),
        });
        RpcError {
            code: INTERNAL_ERROR,
            message: failed_text(reason).into(),
            data,
        }
    }
}

impl Data {
    fn of(value: &(impl Serialize + ?Sized)) -> Data {
        Raw::of(value).map_or(Data::None, Data::Raw)
    }
}

/// What a client reads when a task was ended from outside, word for word.
pub fn cancelled_text(by: CancelledBy) -> &'static str {
    match by {
        CancelledBy::Owner => "The task was cancelled by request.",
        CancelledBy::Operator => "Cancelled by the gateway: an administrator cancelled this task.",
        CancelledBy::Session => "Cancelled by the gateway: its session was ended.",
        CancelledBy::Loop => "Cancelled by the gateway: a loop was detected.",
        CancelledBy::Approval => "Cancelled by the gateway: its approval ended.",
        CancelledBy::Server => "Cancelled by the server behind Longhaul.",
    }
}

/// What a client reads when Longhaul itself ended a task, word for word.
pub fn failed_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Interrupted => "Interrupted: the process that ran it ended; it was not run again.",
        Reason::Expired => "Expired: the task was still open when its time to live was over.",
        Reason::NoAnswer => "Failed: a question was not answered in time.",
        Reason::NobodyToAnswer => "Failed: a question was asked that nobody can answer.",
        Reason::Shutdown => "Failed: the server shut down and could not wait any longer.",
        Reason::UpstreamLost => "Failed: the server behind Longhaul no longer knows the task.",
    }
}
