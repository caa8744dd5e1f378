//! A name for each rule that a frame can break, with what its sender is told.
//!
//! The edges make these; the transports send them. What the gate or the state of a task refuses is no matter of
//! form and is not here.

use thiserror::Error;

use crate::{
    clean,
    frame::Raw,
    request::RequestId,
    rpc_error::{self, Data, Refusal, RpcError, Who},
    scan,
};

/// A frame that breaks a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Malformed {
    /// The id to answer to; `None` when it could not be read.
    pub id: Option<RequestId>,
    /// The rule.
    pub rule: Rule,
}

/// The rules, in the order in which they are checked (wire B.3).
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Rule {
    /// The bytes did not pass the scan (E-1).
    #[error("{0}")]
    Scan(scan::Refused),
    /// An array of frames: batches are not served.
    #[error("Batches are not supported")]
    Batch,
    /// The frame is no object.
    #[error("A frame must be an object")]
    NotAnObject,
    /// `jsonrpc` is not `"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    NotJsonRpc2,
    /// The id is null, a fraction, or no string or integer at all.
    #[error("`id` must be a string or an integer")]
    BadId,
    /// `method` is absent or no string.
    #[error("`method` must be a string")]
    BadMethod,
    /// It has a `method`, and a `result` or an `error` besides.
    #[error("A frame with a `method` has neither `result` nor `error`")]
    RequestAndResponse,
    /// `params` is there but no object.
    #[error("`params` must be an object")]
    ParamsNotAnObject,
    /// A response, where the client has nothing to respond to (B-1).
    #[error("A client sends requests and notifications only")]
    UnexpectedResponse,
    /// `_meta` or one of its required members is absent or of the wrong type (B-5).
    #[error("`_meta` must have `{key}`")]
    MetaMissing {
        /// The missing member's full name.
        key: &'static str,
    },
    /// A request of a session does not say which.
    #[error("`Mcp-Session-Id` is missing")]
    SessionMissing,
    /// The version header of a session's request is malformed, or names no version that sessions have.
    #[error("Header `MCP-Protocol-Version` names no version of a session")]
    SessionVersion,
    /// A session is opened where one is open.
    #[error("`initialize` was sent before")]
    AlreadyOpen,
    /// A header that must be there is absent (B-22).
    #[error("Header `{header}` is missing")]
    HeaderMissing {
        /// Its name.
        header: String,
    },
    /// A header appears twice, or its value cannot be decoded (B-22, B-24).
    #[error("Header `{header}` is malformed")]
    HeaderMalformed {
        /// Its name.
        header: String,
    },
    /// A header says something else than the body (B-22).
    #[error("Header `{header}` does not match the body")]
    HeaderMismatch {
        /// Its name.
        header: String,
    },
    /// The version is known to nobody, or switched off (B-13).
    #[error("Protocol version not supported")]
    UnsupportedVersion {
        /// What is served.
        supported: &'static [&'static str],
        /// What was asked for.
        requested: String,
    },
    /// No such method, or one that is not offered (B-23).
    #[error("Method not found: {method}")]
    MethodNotFound {
        /// The method, fit to be shown.
        method: String,
    },
    /// A call asked for a task, and the tool gives none.
    #[error("Tool {tool} cannot be called as a task")]
    TaskForbidden {
        /// The tool, fit to be shown.
        tool: String,
    },
    /// A plain call of a tool that is called as a task only.
    #[error("Tool {tool} must be called as a task")]
    TaskRequired {
        /// The tool, fit to be shown.
        tool: String,
    },
    /// The client did not declare the tasks extension, and the request needs it (C-5, C-35, C-40).
    #[error("Declare {}", crate::meta::TASKS_EXTENSION)]
    NeedsTasks,
    /// A member of `_meta` that may be absent is there and wrong (B-55).
    #[error("`_meta[\"{key}\"]` must be {must_be}")]
    MetaInvalid {
        /// The member's full name.
        key: &'static str,
        /// What it must be.
        must_be: &'static str,
    },
    /// A parameter is absent or of the wrong type.
    #[error("`params.{member}` must be {must_be}")]
    ParamInvalid {
        /// The parameter.
        member: &'static str,
        /// What it must be.
        must_be: &'static str,
    },
    /// The arguments hold a number that is no finite double (E-4).
    #[error("Number at `{path}` is too large")]
    NotFinite {
        /// A JSON pointer into the arguments, fit to be shown.
        path: String,
    },
}

impl Malformed {
    /// A broken rule of a frame whose id could not be read.
    pub fn anonymous(rule: Rule) -> Malformed {
        Malformed { id: None, rule }
    }
}

impl Rule {
    /// The HTTP status of a session's request: errors travel with 200, and 404 would say that the session is over
    /// . Only what is no request of a session at all has a 400.
    pub fn session_status(&self) -> u16 {
        match self {
            Rule::Scan(_)
            | Rule::Batch
            | Rule::NotAnObject
            | Rule::NotJsonRpc2
            | Rule::BadId
            | Rule::BadMethod
            | Rule::RequestAndResponse
            | Rule::ParamsNotAnObject
            | Rule::UnexpectedResponse
            | Rule::SessionMissing
            | Rule::SessionVersion
            | Rule::AlreadyOpen
            | Rule::HeaderMissing { .. }
            | Rule::HeaderMalformed { .. }
            | Rule::HeaderMismatch { .. } => 400,
            Rule::MetaMissing { .. }
            | Rule::UnsupportedVersion { .. }
            | Rule::NeedsTasks
            | Rule::MethodNotFound { .. }
            | Rule::TaskForbidden { .. }
            | Rule::TaskRequired { .. }
            | Rule::MetaInvalid { .. }
            | Rule::ParamInvalid { .. }
            | Rule::NotFinite { .. } => 200,
        }
    }

    /// A method that is not offered.
    pub fn method_not_found(method: &str) -> Rule {
        Rule::MethodNotFound {
            method: clean(method, 200),
        }
    }

    /// The JSON-RPC code.
    pub fn code(&self) -> i64 {
        match self {
            Rule::Scan(refused) => match refused.rule {
                scan::Rule::NotUtf8
                | scan::Rule::Text(_)
                | scan::Rule::TooDeep
                | scan::Rule::TooManyValues
                | scan::Rule::NumberTooLong => rpc_error::PARSE_ERROR,
                scan::Rule::DuplicateMember | scan::Rule::WrongCase => rpc_error::INVALID_REQUEST,
            },
            Rule::Batch
            | Rule::NotAnObject
            | Rule::NotJsonRpc2
            | Rule::BadId
            | Rule::BadMethod
            | Rule::RequestAndResponse
            | Rule::ParamsNotAnObject
            | Rule::UnexpectedResponse
            | Rule::SessionMissing
            | Rule::SessionVersion
            | Rule::AlreadyOpen => rpc_error::INVALID_REQUEST,
            Rule::HeaderMissing { .. } | Rule::HeaderMalformed { .. } | Rule::HeaderMismatch { .. } => {
                rpc_error::HEADER_MISMATCH
            }
            Rule::UnsupportedVersion { .. } => rpc_error::UNSUPPORTED_VERSION,
            Rule::MethodNotFound { .. } | Rule::TaskForbidden { .. } | Rule::TaskRequired { .. } => {
                rpc_error::METHOD_NOT_FOUND
            }
            Rule::NeedsTasks => rpc_error::MISSING_CAPABILITY,
            Rule::MetaMissing { .. }
            | Rule::MetaInvalid { .. }
            | Rule::ParamInvalid { .. }
            | Rule::NotFinite { .. } => rpc_error::INVALID_PARAMS,
        }
    }

    /// The HTTP status of a request without a session. Bad parameters travel with 200: with a 400 a client of
    /// both generations could take the server for an old one.
    pub fn status(&self) -> u16 {
        match self {
            Rule::Scan(_)
            | Rule::Batch
            | Rule::NotAnObject
            | Rule::NotJsonRpc2
            | Rule::BadId
            | Rule::BadMethod
            | Rule::RequestAndResponse
            | Rule::ParamsNotAnObject
            | Rule::UnexpectedResponse
            | Rule::MetaMissing { .. }
            | Rule::SessionMissing
            | Rule::SessionVersion
            | Rule::AlreadyOpen
            | Rule::HeaderMissing { .. }
            | Rule::HeaderMalformed { .. }
            | Rule::HeaderMismatch { .. }
            | Rule::UnsupportedVersion { .. }
            | Rule::NeedsTasks => 400,
            Rule::MethodNotFound { .. } | Rule::TaskForbidden { .. } | Rule::TaskRequired { .. } => 404,
            Rule::MetaInvalid { .. } | Rule::ParamInvalid { .. } | Rule::NotFinite { .. } => 200,
        }
    }

    /// One word for programs (`data.reason`).
    pub fn reason(&self) -> &'static str {
        match self {
            Rule::Scan(refused) => match refused.rule {
                scan::Rule::NotUtf8 => "not_utf8",
                scan::Rule::Text(scan::BadText::Syntax) => "not_json",
                scan::Rule::Text(scan::BadText::LoneSurrogate) => "lone_surrogate",
                scan::Rule::Text(scan::BadText::Nul) => "nul",
                scan::Rule::TooDeep => "too_deep",
                scan::Rule::TooManyValues => "too_many_values",
                scan::Rule::NumberTooLong => "number_too_long",
                scan::Rule::DuplicateMember => "duplicate_member",
                scan::Rule::WrongCase => "wrong_case",
            },
            Rule::Batch => "batch",
            Rule::NotAnObject => "not_an_object",
            Rule::NotJsonRpc2 => "not_json_rpc_2",
            Rule::BadId => "bad_id",
            Rule::BadMethod => "bad_method",
            Rule::RequestAndResponse => "request_and_response",
            Rule::ParamsNotAnObject => "params_not_an_object",
            Rule::UnexpectedResponse => "unexpected_response",
            Rule::MetaMissing { .. } => "meta_missing",
            Rule::SessionMissing => "session_missing",
            Rule::SessionVersion => "session_version",
            Rule::AlreadyOpen => "already_open",
            Rule::HeaderMissing { .. } => "header_missing",
            Rule::HeaderMalformed { .. } => "header_malformed",
            Rule::HeaderMismatch { .. } => "header_mismatch",
            Rule::UnsupportedVersion { .. } => "unsupported_version",
            Rule::MethodNotFound { .. } => "method_not_found",
            Rule::TaskForbidden { .. } => "task_forbidden",
            Rule::TaskRequired { .. } => "task_required",
            Rule::NeedsTasks => "needs_tasks",
            Rule::MetaInvalid { .. } => "meta_invalid",
            Rule::ParamInvalid { .. } => "param_invalid",
            Rule::NotFinite { .. } => "not_finite",
        }
    }

    /// The error that the sender reads. Whatever broke, the sender alone can mend it ([`Who::Caller`]).
    pub fn error(&self) -> RpcError {
        let message = self.to_string();
        match self {
            Rule::NeedsTasks => RpcError::needs_tasks(message),
            Rule::UnsupportedVersion { supported, requested } => versions(message, supported, requested),
            Rule::Scan(_)
            | Rule::Batch
            | Rule::NotAnObject
            | Rule::NotJsonRpc2
            | Rule::BadId
            | Rule::BadMethod
            | Rule::RequestAndResponse
            | Rule::ParamsNotAnObject
            | Rule::UnexpectedResponse
            | Rule::MetaMissing { .. }
            | Rule::SessionMissing
            | Rule::SessionVersion
            | Rule::AlreadyOpen
            | Rule::HeaderMissing { .. }
            | Rule::HeaderMalformed { .. }
            | Rule::HeaderMismatch { .. }
            | Rule::MethodNotFound { .. }
            | Rule::TaskForbidden { .. }
            | Rule::TaskRequired { .. }
            | Rule::MetaInvalid { .. }
            | Rule::ParamInvalid { .. }
            | Rule::NotFinite { .. } => {
                let refusal = Refusal {
                    reason: self.reason().into(),
                    who: Who::Caller,
                    retry_after_ms: None,
                };
                RpcError {
                    code: self.code(),
                    message: message.into(),
                    data: Data::Refusal(refusal),
                }
            }
        }
    }
}

/// B-13: `requested` is echoed.
fn versions(message: String, supported: &[&str], requested: &str) -> RpcError {
    let data = serde_json::json!({ "supported": supported, "requested": requested });
    RpcError::relayed(rpc_error::UNSUPPORTED_VERSION, message, Raw::of(&data).ok())
}
