//! What is generated from the declarations: the list of settings, the JSON schema, and the first file.
//!
//! `longhaul config schema` and `cargo xtask docs` call it.

use serde_json::{Map, Value as Json, json};

use super::{
    local::Local,
    sections::{Limits, Server, Store, Tasks},
    setting::Setting,
    tool::{Annotations, Tool, object_schema},
    toolset::{self, Toolset},
    upstream::{self, Login, Upstream, UpstreamTool},
};

/// Every setting, section by section.
pub fn reference() -> Vec<Setting> {
    [
        Server::settings(),
        Tasks::settings(),
        Store::settings(),
        Limits::settings(),
        Local::settings(),
        Tool::settings(),
        Annotations::settings(),
        Upstream::settings(),
        Login::settings(),
        UpstreamTool::settings(),
        Toolset::settings(),
    ]
    .concat()
}

/// The JSON schema of a configuration file, for editors.
pub fn schema() -> Json {
    let mut properties = Map::new();
    properties.insert(
        "include".to_owned(),
        json!({
            "type": "array",
            "items": { "type": "string" },
            "default": [],
            "description": "More files of the configuration, or files of MCP clients (`.mcp.json`); a relative path starts at the \
                            folder of the file that names it.",
        }),
    );
    for (name, settings) in [
        ("server", Server::settings()),
        ("tasks", Tasks::settings()),
        ("store", Store::settings()),
        ("limits", Limits::settings()),
        ("local", Local::settings()),
    ] {
        properties.insert(name.to_owned(), object_schema(&settings));
    }
    let mut tool = object_schema(&Tool::settings());
    tool["required"] = json!(["command"]);
    properties.insert(
        "tools".to_owned(),
        json!({ "type": "object", "additionalProperties": tool }),
    );
    properties.insert("servers".to_owned(), upstream::schema());
    properties.insert("toolsets".to_owned(), toolset::schema());
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Longhaul configuration",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// The file that `longhaul config init` writes.
pub fn init() -> &'static str {
    include_str!("init.toml")
}
