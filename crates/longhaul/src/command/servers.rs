//! `longhaul servers`: the servers behind this one, how they are, and what to do about one that is not well.

use longhaul_gateway::admin::api::{Server, ServerState};

use super::doctor;
use crate::{
    background,
    exit::{Exit, Failure, Outcome},
    flags::{Common, Servers, ServersCommand},
    screen::{self, age, block, line, say, say_json, tell},
};

/// Runs the command.
pub(crate) async fn servers(common: &Common, flags: &Servers) -> Outcome {
    match &flags.command {
        None | Some(ServersCommand::List) => list(common).await,
        Some(ServersCommand::Show { name }) => show(common, name).await,
        Some(ServersCommand::Restart { name }) => restart(common, name).await,
    }
}

async fn list(common: &Common) -> Outcome {
    let listed = background::client(common)?.servers().await?;
    if common.json {
        say_json(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.servers.is_empty() {
        say("no servers behind this one; [servers.NAME] in longhaul.toml declares some");
        return Ok(Exit::Done);
    }
    for text in screen::servers(&listed.servers, screen::width()) {
        say(text);
    }
    if !listed.toolsets.is_empty() {
        say("");
    }
    for toolset in &listed.toolsets {
        say(format!("toolset {}", screen::toolset(toolset)));
    }
    Ok(Exit::Done)
}

async fn show(common: &Common, name: &str) -> Outcome {
    let listed = background::client(common)?.servers().await?;
    let toolsets = listed.toolsets.into_iter();
    let toolsets = toolsets.filter(|toolset| toolset.servers.iter().any(|server| server == name));
    let toolsets: Vec<String> = toolsets.map(|toolset| toolset.name).collect();
    let found = listed.servers.into_iter().find(|server| server.name == name);
    let server = found.ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            "not_found",
            format!("no server is named `{}`", line(name)),
        )
        .fix("longhaul servers")
    })?;
    print(common, &server)?;
    if !common.json && !toolsets.is_empty() {
        say(format!("{:<11} {}", "toolsets", line(&toolsets.join(", "))));
    }
    Ok(Exit::Done)
}

async fn restart(common: &Common, name: &str) -> Outcome {
    let client = background::client(common)?;
    let server = client.restart_server(name).await?;
    print(common, &server)?;
    let health = client.health().await?;
    if let Some(file) = doctor::changed(&health) {
        let file = line(file);
        tell(format!(
            "note: `{file}` was changed after Longhaul read it; a restart of one server keeps its settings: longhaul serve --replace"
        ));
    }
    match server.state {
        ServerState::Ready => Ok(Exit::Done),
        ServerState::Starting | ServerState::Degraded => Ok(Exit::Failed),
        ServerState::Disabled => Err(Failure::new(
            Exit::Failed,
            "disabled",
            format!(
                "`{}` is disabled in the configuration, so nothing is started",
                line(name)
            ),
        )
        .fix("take `disabled` out of the configuration, then longhaul serve --replace")),
    }
}

fn print(common: &Common, server: &Server) -> Outcome {
    match common.json {
        true => say_json(server)?,
        false => describe(server),
    }
    Ok(Exit::Done)
}

fn describe(server: &Server) {
    let row = |label: &str, text: String| {
        if !text.is_empty() {
            say(format!("{label:<11} {text}"));
        }
    };
    row("server", line(&server.name));
    row("state", server.state.word().to_owned());
    row("for", age(server.for_ms));
    row("reached by", line(&server.reached_by));
    row(
        "calls itself",
        server.calls_itself.as_deref().map(line).unwrap_or_default(),
    );
    row("speaks", server.protocol.as_deref().map(line).unwrap_or_default());
    row("tools", server.tools.to_string());
    for tool in &server.tool_names {
        row("", line(tool));
    }
    for left_out in &server.left_out {
        row("left out", line(left_out));
    }
    for note in &server.notes {
        row("note", line(note));
    }
    let waiting = match server.waiting {
        0 => String::new(),
        1 => "; 1 call waits for one".to_owned(),
        more => format!("; {more} calls wait for one"),
    };
    row(
        "processes",
        format!(
            "{} of at most {}{waiting}",
            server.processes, server.processes_max
        ),
    );
    row("why", server.why.as_deref().map(line).unwrap_or_default());
    if !server.stderr.is_empty() {
        say("its standard error ends with:");
        say(block(&server.stderr));
    }
    if let Some(failure) = &server.last_failure {
        row(
            "failed",
            format!("{} ago: {}", age(failure.ago_ms), line(&failure.why)),
        );
        if !failure.stderr.is_empty() {
            say("its standard error ended with:");
            say(block(&failure.stderr));
        }
    }
    if server.state == ServerState::Degraded {
        row(
            "next",
            "it is tried again by itself; what you changed in the configuration: longhaul serve --replace"
                .to_owned(),
        );
    }
}
