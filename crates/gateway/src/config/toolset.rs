//! `[toolsets.NAME]`: a part of what is offered, read and checked.
//!
//! `config` calls it for each section; [`crate::toolset`] says which tool is in which. Whether a pattern fits a tool of
//! a server is known only once that server was reached.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    Tool,
    node::Node,
    problem::{At, Problems, suggestion},
    setting::{Reader, section},
    tool::object_schema,
    upstream::{SECTION_NAME, Upstream, is_section_name},
};
use crate::{catalog::BETWEEN, toolset};

section! {
    /// A part of what is offered, with an endpoint of its own: `/mcp/NAME`, or `--toolset NAME` of a pipe.
    #[derive(Default, PartialEq, Eq)]
    Toolset in "toolsets.NAME" with
        /// The name in the section's head.
        name: String,
    {
        /// Tools by the names that they are listed by, or by `server__tool`. `*` stands for any text.
        tools: Vec<String> = "", since "0.1.0";
        /// Servers of which it has all: tools, prompts, resources, and what they say of their use.
        servers: Vec<String> = "", since "0.1.0";
        /// Tools that it does not have, whatever else is said; `*` stands for any text. A tool is left out by any name
        /// of it, that at its own server, too.
        exclude: Vec<String> = "", since "0.1.0";
        /// What it is for, for people.
        description: Option<String> = "", since "0.1.0";
        /// What its clients are told of its use, below what Longhaul itself says.
        instructions: Option<String> = "", since "0.1.0";
    }
}

/// The JSON schema of the table of toolsets.
pub(super) fn schema() -> Json {
    serde_json::json!({ "type": "object", "additionalProperties": object_schema(&Toolset::settings()) })
}

/// Reads one toolset's section.
pub(super) fn read(name: &str, at: &At, node: &Node, problems: &mut Problems) -> Option<Toolset> {
    let section = format!("toolsets.{name}");
    let table = node.table(&section, problems)?;
    if !is_section_name(name) {
        problems.add(at, format!("`{name}` cannot name a toolset: {SECTION_NAME}"));
    }
    let mut reader = Reader::new(&section, table.clone(), problems);
    let mut toolset = Toolset::read(&mut reader);
    reader.finish();
    toolset.name = name.to_owned();
    Some(toolset)
}

/// Checks what a toolset names against what there is.
pub(super) fn check(
    toolset: &Toolset,
    at: &At,
    tools: &BTreeMap<String, Tool>,
    servers: &BTreeMap<String, Upstream>,
    problems: &mut Problems,
    warnings: &mut Problems,
) {
    let name = &toolset.name;
    if toolset.tools.is_empty() && toolset.servers.is_empty() {
        problems.add(
            at,
            format!("toolset `{name}` is empty: name `tools` or `servers` of it"),
        );
    }
    for server in &toolset.servers {
        if !servers.contains_key(server) {
            let nearest = suggestion(server, servers.keys().map(String::as_str));
            problems.add(
                at,
                format!("toolset `{name}` names the server `{server}`, which is not configured{nearest}"),
            );
        }
    }
    for pattern in toolset.tools.iter().chain(&toolset.exclude) {
        if let Some(why) = fits_nothing(pattern, tools, servers) {
            warnings.add(at, format!("`{pattern}` of toolset `{name}` fits no tool: {why}"));
        }
    }
}

/// Why a pattern fits no tool, where that is known before any server was reached.
fn fits_nothing(
    pattern: &str,
    tools: &BTreeMap<String, Tool>,
    servers: &BTreeMap<String, Upstream>,
) -> Option<String> {
    if tools.keys().any(|tool| toolset::fits(pattern, tool)) {
        return None;
    }
    let mut started = servers.values().filter(|server| !server.disabled).peekable();
    if started.peek().is_none() {
        let nearest = suggestion(pattern, tools.keys().map(String::as_str));
        return Some(format!("no command has such a name{nearest}"));
    }
    let (server, _) = pattern.split_once(BETWEEN)?;
    let is_plain = !server.contains('*') && !server.is_empty();
    (is_plain && !started.any(|known| known.name == server)).then(|| format!("no server is named `{server}`"))
}
