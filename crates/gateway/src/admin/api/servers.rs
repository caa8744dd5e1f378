//! The servers behind this one and the toolsets, as the local API shows them.

use serde::{Deserialize, Serialize};

/// The servers behind this one, in the order of the configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Servers {
    /// The servers.
    pub servers: Vec<Server>,
    /// The parts of what is offered that have an endpoint of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolsets: Vec<Toolset>,
}

/// A part of what is offered, as the person reads it who configured it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Toolset {
    /// Its name in the configuration; its endpoint is `/mcp/NAME`.
    pub name: String,
    /// What it is for: text of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How many tools it has now.
    pub tools: u32,
    /// The servers that it has whole, or of which it has a tool.
    pub servers: Vec<String>,
    /// Its patterns that fit no tool of now: text of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
}

/// One server behind this one, as the person reads it who configured it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// Its name in the configuration.
    pub name: String,
    /// The state.
    pub state: ServerState,
    /// What is started, or the address: text of the configuration.
    pub reached_by: String,
    /// What it calls itself, and its version; text from outside. Absent until it was reached once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_itself: Option<String>,
    /// The version of MCP that it speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// How many tools of it are offered.
    pub tools: u32,
    /// The names by which they are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_names: Vec<String>,
    /// Its tools that are not offered, each with why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What is unusual about the names by which its tools are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How many processes of it run, or sessions with it are open.
    pub processes: u32,
    /// The most at once.
    pub processes_max: u32,
    /// How many calls wait for one because all are in use.
    #[serde(default)]
    pub waiting: u32,
    /// For how long it has been in this state, in milliseconds.
    pub for_ms: u64,
    /// Why it is degraded, for the person who runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The end of what it wrote on its standard error when it failed; text from outside.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// How it failed last, where it is well again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<ServerFailure>,
}

/// How a server failed, for the person who configured it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerFailure {
    /// How long ago, in milliseconds.
    pub ago_ms: u64,
    /// Why.
    pub why: String,
    /// The end of its standard error; text from outside.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

/// The state of a server in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Not reached yet.
    Starting,
    /// Reached; calls are passed on.
    Ready,
    /// Not reached lately; it is tried again and again.
    Degraded,
    /// Not started, as the configuration says.
    Disabled,
}

impl ServerState {
    /// The word that people read.
    pub const fn word(self) -> &'static str {
        match self {
            ServerState::Starting => "starting",
            ServerState::Ready => "ready",
            ServerState::Degraded => "degraded",
            ServerState::Disabled => "disabled",
        }
    }
}
