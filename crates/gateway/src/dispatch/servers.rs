//! How each server behind this one is, in words for the person who configured them.
//!
//! Called by `backend` for `longhaul servers`. Nothing of it is told to clients: reasons and the end of a standard error
//! may hold paths and names of secrets.

use longhaul_engine::clock;
use longhaul_mcp::{
    client::{Era, tools},
    frame::Obj,
};

use crate::{
    admin::api,
    catalog::Offered,
    config::{TOOL_NAME_WARN, Upstream},
    upstream::{Definitions, Server, State, fleet::Member, offer},
};

/// How this server is, and what of it is offered.
pub(super) fn status(member: &Member, offered: &Offered) -> api::Server {
    let config = &member.config;
    let reached_by = match &config.url {
        Some(url) => without_query(url),
        None => program(config),
    };
    let running = member.server.as_ref();
    let definitions = running.and_then(Server::definitions);
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
    let why = why.map(|why| with_login(config, why));
    let spoken = definitions.as_ref().map(|definitions| &definitions.spoken);
    api::Server {
        name: config.name.clone(),
        state,
        reached_by,
        calls_itself: spoken.and_then(|spoken| calls_itself(spoken.server_info.as_ref()?)),
        protocol: spoken.map(|spoken| Era::version(spoken.era).to_owned()),
        tools: u32::try_from(offered.of_server(&config.name).count()).unwrap_or(u32::MAX),
        tool_names: offered
            .of_server(&config.name)
            .map(|(entry, _)| entry.listing.name.clone())
            .collect(),
        left_out: left_out(config, definitions.as_deref(), offered),
        notes: notes(member, offered),
        processes: member
            .server
            .as_ref()
            .map_or(0, |server| u32::try_from(server.count()).unwrap_or(u32::MAX)),
        processes_max: config.processes_max,
        for_ms: clock::now().since(member.state_since()).0,
        waiting: running.map_or(0, |server| u32::try_from(server.waiting()).unwrap_or(u32::MAX)),
        // The failure of now is told already.
        last_failure: running
            .filter(|_| why.is_none())
            .and_then(Server::last_failure)
            .map(|failure| api::ServerFailure {
                ago_ms: clock::now().since(failure.at).0,
                why: failure.why,
                stderr: failure.stderr,
            }),
        why,
        stderr,
    }
}

/// Why a server is not well, and what to do where it lets nobody in.
fn with_login(config: &Upstream, why: String) -> String {
    let is_shut = config.url.is_some() && why.contains("401");
    match (is_shut, config.is_wrapped, &config.url) {
        (true, true, Some(url)) => format!("{why}; it needs a login: longhaul login {}", without_query(url)),
        (true, false, _) => format!("{why}; it needs a login: longhaul login {}", config.name),
        (_, _, _) => why,
    }
}

/// An address as it may be shown: a key may stand behind its `?`.
fn without_query(url: &str) -> String {
    match url.split_once(['?', '#']) {
        Some((address, _)) => format!("{address}?…"),
        None => url.to_owned(),
    }
}

/// A program as it may be shown: any of its arguments may be a key.
fn program(config: &Upstream) -> String {
    let (program, arguments) = match config.command.0.split_first() {
        Some((program, rest)) => (program.as_str(), rest.len() + config.args.len()),
        None => ("", config.args.len()),
    };
    match arguments {
        0 => program.to_owned(),
        1 => format!("{program} with 1 argument"),
        more => format!("{program} with {more} arguments"),
    }
}

/// What the server defines and what is not offered, each with why.
fn left_out(config: &Upstream, definitions: Option<&Definitions>, offered: &Offered) -> Vec<String> {
    let Some(definitions) = definitions else {
        return Vec::new();
    };
    let dropped = definitions.dropped.iter().map(|dropped| match &dropped.name {
        Some(name) => format!("{name}: {}", dropped.why),
        None => format!("a tool without a name: {}", dropped.why),
    });
    let unnamed = definitions
        .dropped_count
        .saturating_sub(definitions.dropped.len());
    let more = (unnamed > 0).then(|| format!("{unnamed} more"));
    let hidden = definitions.tools.iter().filter_map(|tool| {
        let is_hidden = offer::Settings::of(config, &tool.name).is_hidden();
        is_hidden.then(|| format!("{}: it is hidden (`hidden = true`)", shown(&tool.name)))
    });
    let refused = offered.refused_of(&config.name).iter();
    let refused = refused.map(|name| format!("{}: another tool is listed by its name", shown(name)));
    dropped.chain(more).chain(hidden).chain(refused).collect()
}

/// What is unusual about its lists, and about the names by which its tools are listed.
fn notes(member: &Member, offered: &Offered) -> Vec<String> {
    let cut = member.server.iter().flat_map(Server::cut);
    let mut notes: Vec<String> = cut.map(|cut| cut.to_string()).collect();
    for (entry, tool) in offered.of_server(&member.config.name) {
        let listed = &entry.listing.name;
        if tools::listable(&tool.tool) != tool.tool {
            notes.push(format!("{}: it is listed as `{listed}`", shown(&tool.tool)));
        }
        if listed.len() > TOOL_NAME_WARN {
            notes.push(format!(
                "{listed}: some clients refuse a name of more than {TOOL_NAME_WARN} characters"
            ));
        }
    }
    notes
}

fn shown(name: &str) -> String {
    longhaul_mcp::clean(name, 200)
}

fn calls_itself(info: &Obj) -> Option<String> {
    let name: String = info.get("title").or_else(|| info.get("name"))?;
    let version: Option<String> = info.get("version");
    let text = format!("{name} {}", version.unwrap_or_default());
    Some(longhaul_mcp::clean(text.trim(), 100))
}
