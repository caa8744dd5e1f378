//! The configuration: every setting with its text, read strictly, with everything that is wrong reported at once.
//!
//! The binary loads it; `dispatch`, `http`, `listen`, `command` and `outbound` read the parsed structs. Nothing
//! outside this module parses TOML, and nothing here starts a program.

mod args;
mod client_file;
mod files;
mod holding;
mod local;
mod measure;
mod node;
mod place;
mod problem;
mod reference;
mod script;
mod sections;
mod setting;
mod template;
mod tool;
mod toolset;
mod upstream;
mod variables;

use std::{
    cell::LazyCell,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use files::Gathered;
use node::{Data, Node, Table};
use problem::suggestion;
use setting::Reader;

pub use args::{Args, Kind, Param};
pub use client_file::is_one as is_clients_file;
pub use files::Source;
pub use holding::{Hold, OnAbandon, ShowSchema};
pub use local::{Local, Notify};
pub use measure::{Bytes, written};
pub use place::{Place, Writable, places, writable};
pub(crate) use problem::suggestion as nearest;
pub use problem::{At, Problem, Problems};
pub use reference::{init, reference, schema};
pub use sections::{Limits, Server, Store, Tasks};
pub use setting::Setting;
pub use template::{Item, Part, Template};
pub use tool::{
    Annotations, Crash, Need, OnCrash, OnMisfit, OnNobody, OnSilence, Output, PROGRESS_REGEX_BYTES_MAX,
    Schema, Stdin, TaskUse, Tool,
};
pub use toolset::Toolset;
pub(crate) use upstream::address;
pub use upstream::{
    Adoption, Askable, CallbackHost, Isolation, Login, Prefix, Protocol, Secrets, Upstream, UpstreamTool,
    Words, is_section_name,
};
pub(crate) use variables::replaced as with_variables;

/// How deep `include` may nest.
pub const INCLUDE_DEPTH_MAX: usize = 8;
/// The most files that one configuration may consist of.
pub const FILES_MAX: usize = 64;
/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// A tool's name longer than this is warned about: some clients cut it off.
pub const TOOL_NAME_WARN: usize = 60;
/// The most servers behind one Longhaul.
pub const SERVERS_MAX: usize = 100;
/// The most servers that `longhaul wrap` brought and that are kept; one more takes the place of the one that was not
/// used for longest.
pub const WRAPPED_MAX: usize = 64;
/// The most bytes of the command, the folder and the environment of a wrapped server: what the system takes for a
/// program.
pub const WRAPPED_BYTES_MAX: usize = 1 << 20;
/// The most bytes of instructions that clients are told, those of all servers together.
pub const INSTRUCTIONS_BYTES_MAX: usize = 64 << 10;
/// The helper tool with which a model waits for a task; no other tool may have its name.
pub const WAIT_TOOL: &str = "longhaul_wait";

/// A whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the server listens.
    pub server: Server,
    /// How tasks live.
    pub tasks: Tasks,
    /// Where tasks are kept.
    pub store: Store,
    /// What tools may send.
    pub limits: Limits,
    /// What the user of this machine is told.
    pub local: Local,
    /// The tools by name.
    pub tools: BTreeMap<String, Tool>,
    /// The servers behind this one, by name.
    pub servers: BTreeMap<String, Upstream>,
    /// The parts of what is offered that have an endpoint of their own, by name.
    pub toolsets: BTreeMap<String, Toolset>,
}

impl Config {
    /// The tools in the order in which the files name them: an included file's after those of the file that
    /// includes it.
    pub fn in_order(&self) -> Vec<&Tool> {
        let mut tools: Vec<&Tool> = self.tools.values().collect();
        tools.sort_by_key(|tool| tool.rank);
        tools
    }

    /// The servers that are to be started, in the order in which the files name them.
    pub fn servers_in_order(&self) -> Vec<&Upstream> {
        let enabled = self.servers.values().filter(|server| !server.disabled);
        let mut servers: Vec<&Upstream> = enabled.collect();
        servers.sort_by_key(|server| server.rank);
        servers
    }
}

/// A configuration that can be used, and what is odd about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What the user should hear, without it being wrong.
    pub warnings: Vec<Problem>,
    /// Every file that was read, the first one first.
    pub files: Vec<PathBuf>,
    /// `server.bind` is set, and not only its default.
    pub binds: bool,
}

/// Loads the configuration at `path` from the file system.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path, env: &[(String, String)]) -> Result<Loaded, Problems> {
    read(path, env, &files::open)
}

/// The configuration that has no file: the defaults and the environment.
///
/// # Errors
/// What is wrong with the environment.
pub fn defaults(env: &[(String, String)]) -> Result<Loaded, Problems> {
    build(
        Table::new(),
        env,
        &|_| Err(io::ErrorKind::NotFound.into()),
        Gathered::default(),
    )
}

/// Loads the configuration at `path`, reading files through `open`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(
    path: &Path,
    env: &[(String, String)],
    open: &dyn Fn(&Path) -> io::Result<Source>,
) -> Result<Loaded, Problems> {
    let mut gathered = Gathered::default();
    let table = gathered.file(path, &At::whole(&path.display().to_string()), 0, open);
    build(table, env, open, gathered)
}

const SECTIONS: &[&str] = &[
    "server", "tasks", "store", "limits", "local", "tools", "servers", "toolsets", "include",
];
const LATER: &[&str] = &[
    "tls",
    "tenants",
    "roles",
    "policy",
    "audit",
    "keys",
    "approvals",
    "screening",
    "egress",
];

/// The table of a section, which is taken out of that of the file.
fn section(table: &mut Table, name: &str, problems: &mut Problems) -> Table {
    match table.remove(name) {
        Some((
            _,
            Node {
                data: Data::Table(table),
                ..
            },
        )) => table,
        Some((_, node)) => {
            problems.add(
                &node.at,
                format!("`{name}` must be a section, [{name}], not {}", node.what()),
            );
            Table::new()
        }
        None => Table::new(),
    }
}

fn build(
    mut table: Table,
    env: &[(String, String)],
    open: &dyn Fn(&Path) -> io::Result<Source>,
    gathered: Gathered,
) -> Result<Loaded, Problems> {
    let Gathered {
        mut problems,
        mut warnings,
        files,
    } = gathered;
    environment(&mut table, env, &mut problems);
    let places: BTreeMap<&str, Table> = [
        "server", "tasks", "store", "limits", "local", "tools", "servers", "toolsets",
    ]
    .map(|name| (name, section(&mut table, name, &mut problems)))
    .into();
    macro_rules! fixed {
        ($name:literal, $type:ty) => {{
            let mut reader = Reader::new($name, places[$name].clone(), &mut problems);
            let section = <$type>::read(&mut reader);
            reader.finish();
            section
        }};
    }
    let mut config = Config {
        server: fixed!("server", Server),
        tasks: fixed!("tasks", Tasks),
        store: fixed!("store", Store),
        limits: fixed!("limits", Limits),
        local: fixed!("local", Local),
        tools: tools(&places["tools"], &files, open, &mut problems, &mut warnings),
        servers: BTreeMap::new(),
        toolsets: BTreeMap::new(),
    };
    config.servers = servers(
        &places["servers"],
        &files,
        &config.server,
        env,
        &mut problems,
        &mut warnings,
    );
    config.toolsets = toolsets(&places["toolsets"], &config, &mut problems, &mut warnings);
    match elsewhere(&config.store.url, env, open) {
        Ok(url) => config.store.url = url,
        Err(why) => {
            let at = places["store"]
                .get("url")
                .map_or_else(|| At::whole("store.url"), |(_, node)| node.at.clone());
            problems.add(&at, why);
        }
    }
    unknown(&table, &mut problems);
    check(&config, &places, &mut problems);
    if !problems.0.is_empty() {
        problems.0.sort();
        return Err(problems);
    }
    Ok(Loaded {
        config,
        warnings: warnings.0,
        files,
        binds: places["server"].contains_key("bind"),
    })
}

fn tools(
    table: &Table,
    read: &[PathBuf],
    open: &dyn Fn(&Path) -> io::Result<Source>,
    problems: &mut Problems,
    warnings: &mut Problems,
) -> BTreeMap<String, Tool> {
    let files = |path: &Path| open(path).map(|source| source.text);
    let mut tools = BTreeMap::new();
    for (rank, (name, (at, node))) in as_written_in(table, read).into_iter().enumerate() {
        if name.len() > TOOL_NAME_WARN {
            warnings.add(
                at,
                format!(
                    "the name `{name}` is longer than {TOOL_NAME_WARN} characters; some clients cut it off"
                ),
            );
        }
        if name == WAIT_TOOL {
            problems.add(
                at,
                format!("`{WAIT_TOOL}` is a tool of Longhaul's own; give this one another name"),
            );
        }
        if let Some(mut tool) = tool::read(name, at, node, &files, problems) {
            if tool.description.is_none() {
                warnings.add(
                    at,
                    format!("tool `{name}` has no `description`; a model cannot know when to use it"),
                );
            }
            tool.rank = rank;
            tools.insert(name.clone(), tool);
        }
    }
    tools
}

fn servers(
    table: &Table,
    read: &[PathBuf],
    own: &Server,
    env: &[(String, String)],
    problems: &mut Problems,
    warnings: &mut Problems,
) -> BTreeMap<String, Upstream> {
    let mut servers = BTreeMap::new();
    for (rank, (name, (at, node))) in as_written_in(table, read).into_iter().enumerate() {
        if let Some(mut server) = upstream::read(name, at, node, problems) {
            if server.is_of_client && client_file::is_longhaul(&server, own.bind) {
                warnings.add(at, format!("server `{name}` is Longhaul itself, and is left out"));
                continue;
            }
            if !server.is_of_client && !server.disabled && client_file::is_this_longhaul(&server, own.bind) {
                problems.add(
                    at,
                    format!("server `{name}` is this Longhaul itself: each of its tools would call itself"),
                );
            }
            if server.is_of_client && !server.disabled {
                for variable in client_file::unset(&server, env) {
                    warnings.add(
                        at,
                        format!("server `{name}` needs the variable `{variable}`, which is not set"),
                    );
                }
            }
            server.rank = rank;
            servers.insert(name.clone(), server);
        }
    }
    servers
}

fn toolsets(
    table: &Table,
    config: &Config,
    problems: &mut Problems,
    warnings: &mut Problems,
) -> BTreeMap<String, Toolset> {
    let mut toolsets = BTreeMap::new();
    for (name, (at, node)) in table {
        if let Some(read) = toolset::read(name, at, node, problems) {
            toolset::check(&read, at, &config.tools, &config.servers, problems, warnings);
            toolsets.insert(name.clone(), read);
        }
    }
    toolsets
}

/// The members of a section in the order in which the files were read and name them.
fn as_written_in<'a>(table: &'a Table, read: &[PathBuf]) -> Vec<(&'a String, &'a (At, Node))> {
    let mut order: Vec<_> = table.iter().collect();
    order.sort_by_key(|(_, (at, _))| {
        let file = read.iter().position(|file| file.as_os_str() == &*at.file);
        (file, at.line, at.column)
    });
    order
}

fn unknown(table: &Table, problems: &mut Problems) {
    for (key, (at, _)) in table {
        if LATER.contains(&key.as_str()) {
            problems.add(
                at,
                format!("`{key}` is not in this version ({})", env!("CARGO_PKG_VERSION")),
            );
        } else {
            let nearest = suggestion(key, SECTIONS.iter().copied());
            problems.add(at, format!("unknown section or key `{key}`{nearest}"));
        }
    }
}

/// The value itself, or what `env:NAME` or `file:PATH` refers to.
fn elsewhere(
    value: &str,
    env: &[(String, String)],
    open: &dyn Fn(&Path) -> io::Result<Source>,
) -> Result<String, String> {
    if let Some(name) = value.strip_prefix("env:") {
        let found = env.iter().find(|(own, _)| own == name);
        return found
            .map(|(_, value)| value.clone())
            .ok_or_else(|| format!("the variable `{name}` is not set"));
    }
    match value.strip_prefix("file:") {
        Some(path) => open(Path::new(path))
            .map(|source| source.text.trim_end().to_owned())
            .map_err(|error| format!("cannot read `{path}`: {error}")),
        None => Ok(value.to_owned()),
    }
}

/// Puts `LONGHAUL_SECTION__KEY` over the file's values. Tools are declared in files only (S6).
fn environment(table: &mut Table, env: &[(String, String)], problems: &mut Problems) {
    // Most environments name no setting.
    let settings = LazyCell::new(reference);
    for (variable, text) in env {
        let Some(rest) = variable
            .strip_prefix("LONGHAUL_")
            .filter(|rest| rest.contains("__"))
        else {
            continue;
        };
        let at = At::whole(variable);
        if ["TOOLS__", "SERVERS__", "TOOLSETS__"]
            .iter()
            .any(|section| rest.starts_with(section))
        {
            problems.add(
                &at,
                "tools, servers and toolsets are declared in the configuration file only, never in the environment",
            );
            continue;
        }
        let Some(setting) = settings
            .iter()
            .find(|setting| setting.variable().as_ref() == Some(variable))
        else {
            let known: Vec<String> = settings.iter().filter_map(Setting::variable).collect();
            let nearest = suggestion(variable, known.iter().map(String::as_str));
            problems.add(&at, format!("no setting has this name{nearest}"));
            continue;
        };
        let data = match as_written(setting, text) {
            Some(data) => data,
            None => {
                problems.add(&at, format!("must be {}, not the text `{text}`", setting.kind));
                continue;
            }
        };
        let section = table.entry(setting.section.to_owned()).or_insert_with(|| {
            (
                at.clone(),
                Node {
                    at: at.clone(),
                    data: Data::Table(Table::new()),
                },
            )
        });
        if let Data::Table(section) = &mut section.1.data {
            section.insert(setting.key.to_owned(), (at.clone(), Node { at, data }));
        }
    }
}

/// The text of a variable as the value that a file would hold.
fn as_written(setting: &Setting, text: &str) -> Option<Data> {
    match setting.schema.get("type").and_then(serde_json::Value::as_str) {
        Some("boolean") => text.parse().ok().map(Data::Flag),
        Some("integer") => text.parse().ok().map(Data::Whole),
        Some("array") => {
            let at = At::whole("");
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Data::List(
                items
                    .map(|item| Node {
                        at: at.clone(),
                        data: Data::Text(item.to_owned()),
                    })
                    .collect(),
            ))
        }
        Some(_) | None => Some(Data::Text(text.to_owned())),
    }
}

/// Checks that concern more than one setting.
fn check(config: &Config, places: &BTreeMap<&str, Table>, problems: &mut Problems) {
    let place = |section: &str, key: &str| {
        let written = places.get(section).and_then(|table| table.get(key));
        written.map_or_else(
            || At::whole(&format!("{section}.{key}")),
            |(_, node)| node.at.clone(),
        )
    };
    let tasks = &config.tasks;
    if tasks.ttl > tasks.ttl_max {
        problems.add(
            &place("tasks", "ttl"),
            format!(
                "`ttl` ({}) is longer than `ttl_max` ({})",
                written(tasks.ttl),
                written(tasks.ttl_max)
            ),
        );
    }
    if tasks.poll_min > tasks.poll_max {
        problems.add(
            &place("tasks", "poll_min"),
            format!(
                "`poll_min` ({}) is longer than `poll_max` ({})",
                written(tasks.poll_min),
                written(tasks.poll_max)
            ),
        );
    }
    if config.limits.result_max > config.limits.output_max {
        problems.add(
            &place("limits", "result_max"),
            format!(
                "`result_max` ({}) is larger than `output_max` ({})",
                config.limits.result_max, config.limits.output_max
            ),
        );
    }
    if config.servers.len() > SERVERS_MAX {
        let last = places
            .get("servers")
            .and_then(|servers| servers.values().next_back());
        problems.add(
            &last.map_or(At::whole("servers"), |(at, _)| at.clone()),
            format!(
                "there are {} servers, and {SERVERS_MAX} are the most",
                config.servers.len()
            ),
        );
    }
    if !config.server.bind.ip().is_loopback() {
        problems.add(
            &place("server", "bind"),
            format!("`{}` can be reached from other machines, and this version serves plain HTTP without keys; bind a loopback address", config.server.bind),
        );
    }
    for (name, tool) in &config.tools {
        lives_too_long(name, tool, tasks, places, problems);
    }
}

fn lives_too_long(
    name: &str,
    tool: &Tool,
    tasks: &Tasks,
    places: &BTreeMap<&str, Table>,
    problems: &mut Problems,
) {
    let at = || match places.get("tools").and_then(|tools| tools.get(name)) {
        Some((
            at,
            Node {
                data: Data::Table(table),
                ..
            },
        )) => table.get("ttl").map_or(at.clone(), |(_, node)| node.at.clone()),
        Some((at, _)) => at.clone(),
        None => At::whole(name),
    };
    if let Some(ttl) = tool.ttl.filter(|ttl| *ttl > tasks.ttl_max) {
        problems.add(
            &at(),
            format!(
                "`ttl` of tool `{name}` ({}) is longer than `tasks.ttl_max` ({})",
                written(ttl),
                written(tasks.ttl_max)
            ),
        );
    }
}
