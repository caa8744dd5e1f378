//! How each server behind this one is, in words for the person who configured them.
//!
//! Called by `backend` for `longhaul servers`. Nothing of it is told to clients: reasons and the end of a standard error
//! may hold paths and names of secrets.

use std::sync::Arc;

use longhaul_engine::clock;
use longhaul_mcp::{client::Era, frame::Obj};

use crate::{
    admin::api,
    upstream::{Definitions, Server, State, fleet::Member},
};

/// How this server is.
pub(super) fn status(member: &Member) -> api::Server {
    let config = &member.config;
    let reached_by = match &config.url {
        Some(url) => without_query(url),
        None => config
            .command
            .0
            .iter()
            .map(|word| without_value(word))
            .collect::<Vec<_>>()
            .join(" "),
    };
    let definitions = member.server.as_ref().and_then(Server::definitions);
    let (state, why, stderr) = match member.server.as_ref().map(Server::state) {
        None => (api::ServerState::Disabled, None, String::new()),
        Some(State::Starting) => (api::ServerState::Starting, None, String::new()),
        Some(State::Ready) => (api::ServerState::Ready, None, String::new()),
        Some(State::Degraded { why, stderr, .. }) => (api::ServerState::Degraded, Some(why), stderr),
        Some(State::Closed) => (
            api::ServerState::Degraded,
            Some("it was closed".to_owned()),
            String::new(),
        ),
    };
    let spoken = definitions.as_ref().map(|definitions| &definitions.spoken);
    api::Server {
        name: config.name.clone(),
        state,
        reached_by,
        calls_itself: spoken.and_then(|spoken| calls_itself(spoken.server_info.as_ref()?)),
        protocol: spoken.map(|spoken| Era::version(spoken.era).to_owned()),
        tools: definitions.as_ref().map_or(0, |definitions| {
            u32::try_from(definitions.tools.len()).unwrap_or(u32::MAX)
        }),
        left_out: definitions.as_ref().map(left_out).unwrap_or_default(),
        processes: member
            .server
            .as_ref()
            .map_or(0, |server| u32::try_from(server.count()).unwrap_or(u32::MAX)),
        processes_max: config.processes_max,
        for_ms: clock::now().since(member.state_since()).0,
        why,
        stderr,
    }
}

/// An address as it may be shown: a key may stand behind its `?`.
fn without_query(url: &str) -> String {
    match url.split_once(['?', '#']) {
        Some((address, _)) => format!("{address}?…"),
        None => url.to_owned(),
    }
}

/// An argument as it may be shown: a token may stand behind its `=`.
fn without_value(word: &str) -> String {
    match word.split_once('=') {
        Some((option, _)) if option.starts_with('-') => format!("{option}=…"),
        Some(_) | None => word.to_owned(),
    }
}

fn left_out(definitions: &Arc<Definitions>) -> Vec<String> {
    let dropped = definitions.dropped.iter();
    dropped
        .map(|dropped| match &dropped.name {
            Some(name) => format!("{name}: {}", dropped.why),
            None => format!("a tool without a name: {}", dropped.why),
        })
        .collect()
}

fn calls_itself(info: &Obj) -> Option<String> {
    let name: String = info.get("title").or_else(|| info.get("name"))?;
    let version: Option<String> = info.get("version");
    let text = format!("{name} {}", version.unwrap_or_default());
    Some(longhaul_mcp::clean(text.trim(), 100))
}
