//! The reserved names of `_meta`, and what a client says there.
//!
//! The edges read `_meta` through this module. Nothing in it is remembered from one request to the next (B-2),
//! and nothing here trusts what a client says about its name.

use crate::{
    frame::{Obj, Raw, request_id},
    malformed::Rule,
    request::{Answers, Asked, Client, LogLevel, ProgressToken, Takes},
};

/// The tasks extension.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Which task a message of the older generation belongs to; stripped towards the newer one (K-3).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Tasks that a call says it relates to (C-49).
pub const RELATED_TASK_IDS: &str = "io.modelcontextprotocol/relatedTaskIds";
/// The version of the protocol that a request is written in (B-4).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client can do (B-4).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// What the client calls itself (B-4).
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The least grave log messages that the client wants (B-55).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// What the server calls itself (B-7).
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Which subscription a notification belongs to (B-48).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The agent's run that a request belongs to.
pub const SESSION: &str = "dev.longhaul/session";
/// Makes a call happen once.
pub const IDEMPOTENCY_KEY: &str = "dev.longhaul/idempotencyKey";
/// The caller's own object, kept with the task and echoed (D-47).
pub const METADATA: &str = "dev.longhaul/metadata";
/// How far a task is (D-47).
pub const PROGRESS: &str = "dev.longhaul/progress";
/// A task's short name.
pub const TASK_NAME: &str = "dev.longhaul/taskName";

/// The longest session name and idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 200;
/// The largest [`METADATA`], in bytes.
pub const METADATA_BYTES_MAX: usize = 4096;
/// The most [`RELATED_TASK_IDS`] that are read; the rest is skipped (C-51).
pub const RELATED_TASKS_MAX: usize = 16;

/// The `_meta` of a stateless request.
pub(crate) struct Meta {
    /// What it says beside what follows.
    pub(crate) members: Members,
    /// The version the request is written in.
    pub(crate) version: String,
    capabilities: Obj,
}

impl Meta {
    /// B-5: the two members without which no request is served.
    pub(crate) fn read(params: Option<&Obj>) -> Result<Meta, Rule> {
        let missing = |key| Rule::MetaMissing { key };
        let members = params
            .and_then(|params| params.obj("_meta"))
            .ok_or(missing(PROTOCOL_VERSION))?;
        let version = members.get(PROTOCOL_VERSION).ok_or(missing(PROTOCOL_VERSION))?;
        let capabilities = members
            .obj(CLIENT_CAPABILITIES)
            .ok_or(missing(CLIENT_CAPABILITIES))?;
        Ok(Meta {
            members: Members(members),
            version,
            capabilities,
        })
    }

    pub(crate) fn declares_tasks(&self) -> bool {
        self.capabilities
            .obj("extensions")
            .is_some_and(|map| map.obj(TASKS_EXTENSION).is_some())
    }

    pub(crate) fn client(&self) -> Result<Client, Rule> {
        let info = self.members.0.obj(CLIENT_INFO).unwrap_or_default();
        Ok(Client {
            takes: if self.declares_tasks() {
                Takes::WhenSlow
            } else {
                Takes::Never
            },
            answers: answers(&self.capabilities),
            asked: Asked::InReply,
            session: self.members.session()?,
            traceparent: self.members.traceparent(),
            name: info.get("name"),
            version: info.get("version"),
        })
    }
}

/// an elicitation capability that names no mode means forms.
pub(crate) fn answers(capabilities: &Obj) -> Answers {
    let elicitation = capabilities.obj("elicitation");
    let mode = |name| {
        elicitation
            .as_ref()
            .is_some_and(|modes| modes.obj(name).is_some())
    };
    let url = mode("url");
    Answers {
        form: mode("form") || (elicitation.is_some() && !url),
        url,
        sampling: capabilities.obj("sampling").is_some(),
        roots: capabilities.obj("roots").is_some(),
    }
}

/// What `_meta` may say in every generation.
#[derive(Default)]
pub(crate) struct Members(Obj);

impl Members {
    /// The `_meta` of a session's request, which need not have one.
    pub(crate) fn read(params: Option<&Obj>) -> Result<Members, Rule> {
        match params.and_then(|params| params.raw("_meta")).map(Raw::read) {
            None => Ok(Members::default()),
            Some(Ok(members)) => Ok(Members(Obj::without_nulls(members))),
            Some(Err(_)) => Err(Rule::ParamInvalid {
                member: "_meta",
                must_be: "an object",
            }),
        }
    }

    pub(crate) fn session(&self) -> Result<Option<String>, Rule> {
        self.key(SESSION)
    }

    pub(crate) fn traceparent(&self) -> Option<String> {
        self.0.get("traceparent")
    }

    pub(crate) fn idempotency_key(&self) -> Result<Option<String>, Rule> {
        self.key(IDEMPOTENCY_KEY)
    }

    fn key(&self, key: &'static str) -> Result<Option<String>, Rule> {
        let Some(value) = self.0.raw(key) else {
            return Ok(None);
        };
        match value.read::<String>() {
            Ok(text) if !text.is_empty() && text.len() <= KEY_BYTES_MAX => Ok(Some(text)),
            Ok(_) | Err(_) => Err(Rule::MetaInvalid {
                key,
                must_be: "a string of 1 to 200 bytes",
            }),
        }
    }

    pub(crate) fn metadata(&self) -> Result<Option<Raw>, Rule> {
        match self.0.raw(METADATA) {
            None => Ok(None),
            Some(value) if value.text().starts_with('{') && value.text().len() <= METADATA_BYTES_MAX => {
                Ok(Some(value.clone()))
            }
            Some(_) => Err(Rule::MetaInvalid {
                key: METADATA,
                must_be: "an object of at most 4096 bytes",
            }),
        }
    }

    pub(crate) fn progress_token(&self) -> Result<Option<ProgressToken>, Rule> {
        match self.0.raw("progressToken").map(request_id) {
            None => Ok(None),
            Some(Some(token)) => Ok(Some(ProgressToken(token))),
            Some(None) => Err(Rule::MetaInvalid {
                key: "progressToken",
                must_be: "a string or an integer",
            }),
        }
    }

    pub(crate) fn log_level(&self) -> Result<Option<LogLevel>, Rule> {
        match self.0.raw(LOG_LEVEL).map(Raw::read) {
            None => Ok(None),
            Some(Ok(level)) => Ok(Some(level)),
            Some(Err(_)) => Err(Rule::MetaInvalid {
                key: LOG_LEVEL,
                must_be: "a log level of RFC 5424",
            }),
        }
    }

    /// Advisory, so what does not fit is treated as absent (C-50).
    pub(crate) fn related_tasks(&self) -> Vec<String> {
        let mut tasks: Vec<String> = self.0.get(RELATED_TASK_IDS).unwrap_or_default();
        tasks.truncate(RELATED_TASKS_MAX);
        tasks
    }
}
