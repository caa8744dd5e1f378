//! `[servers.NAME]`: an MCP server behind this one, read and checked.
//!
//! `config` calls it for each section; `upstream` starts and speaks to what it describes. Nothing here does, and no
//! secret is read here: `env:`, `file:` and `cmd:` are looked up when the server is started.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use longhaul_core::Span;
use longhaul_mcp::request::Answers;
use serde_json::Value as Json;

use super::{
    client_file,
    holding::{Hold, OnAbandon, ShowSchema},
    measure::Bytes,
    node::{Data, Node, Table},
    problem::{At, Problems},
    setting::{Reader, Value, beside, choice, section},
    tool::{OnCrash, OnMisfit, OnNobody, OnSilence, TaskUse, object_schema},
};

choice! {
    /// Which generation a server speaks.
    Protocol {
        /// It is asked.
        Auto = "auto",
        /// The one with sessions.
        Sessions = "2025",
        /// The one in which every request stands for itself.
        Stateless = "2026",
    }
    kind "one of `auto`, `2025`, `2026`"
}

choice! {
    /// Who shares one process of a server, or one session of a remote one.
    Isolation {
        /// The requests of one client session; of a client without sessions, those of one owner.
        Session = "session",
        /// All requests of one owner.
        Principal = "principal",
        /// Everybody.
        Shared = "shared",
        /// Nobody: each call has its own.
        Call = "call",
    }
    kind "one of `session`, `principal`, `shared`, `call`"
}

choice! {
    /// Whether calls become tasks of ours.
    Adoption {
        /// A slow call becomes a task.
        Adopt = "adopt",
        /// Only what the server itself makes a task is one.
        Relay = "relay",
        /// No call becomes a task.
        Never = "never",
    }
    kind "one of `adopt`, `relay`, `never`"
}

choice! {
    /// When the names of a server's tools and prompts begin with the server's own (`server__name`).
    Prefix {
        /// Where another server or a command has the same name.
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never; of two with the same name the first one in the configuration is served.
        Never = "never",
    }
    kind "one of `auto`, `always`, `never`"
}

choice! {
    /// What a server may ask.
    Askable {
        /// Forms to fill in.
        Form = "form",
        /// Links to open.
        Url = "url",
        /// Completions by the client's model.
        Sampling = "sampling",
        /// Workspace folders.
        Roots = "roots",
    }
    kind "one of `form`, `url`, `sampling`, `roots`"
}

choice! {
    /// By which name of this machine a browser comes back from a login.
    #[derive(Default)]
    CallbackHost {
        #[default]
        /// `127.0.0.1`, or `[::1]` where Longhaul listens there.
        Address = "127.0.0.1",
        /// `localhost`.
        Name = "localhost",
    }
    kind "one of `127.0.0.1`, `localhost`"
}

impl Prefix {
    /// Whether a name begins with its server's, where another server or a command has it, too, or not.
    pub fn begins(self, is_shared: bool) -> bool {
        match self {
            Prefix::Auto => is_shared,
            Prefix::Always => true,
            Prefix::Never => false,
        }
    }
}

section! {
    /// One MCP server behind this one: a program (`command`), or an address (`url`).
    Upstream in "servers.NAME" with
        /// The name in the section's head.
        name: String,
        /// The folder of the file that declares the server; of a client's file, its workspace.
        folder: PathBuf,
        /// Its place among the servers, from 0: in the order in which the files are read and name them.
        rank: usize,
        /// What is said of single tools.
        tools: BTreeMap<String, UpstreamTool>,
        /// How somebody logs in at it.
        login: Login,
        /// It is declared in the file of an MCP client: its values are literal but for that client's variables.
        is_of_client: bool,
        /// It was brought by `longhaul wrap`, and is shown to nobody else: its values are literal.
        is_wrapped: bool,
    {
        /// The program and its arguments. No shell reads it.
        command: Words = "", since "0.1.0";
        /// More arguments of the program.
        args: Vec<String> = "", since "0.1.0";
        /// Where the server is, with `https:` or `http:`.
        url: Option<String> = "", since "0.1.0";
        /// Headers of every request to `url`. A value `env:NAME`, `file:PATH` or `cmd:PROGRAM ARGUMENTS` is read
        /// there when a connection is made.
        headers: Secrets = "", since "0.1.0";
        /// The folder in which the program runs; without it, the folder of the file that declares the server.
        cwd: Option<PathBuf> = "", since "0.1.0";
        /// Variables of the program's environment. A value `env:NAME`, `file:PATH` or `cmd:PROGRAM ARGUMENTS` is read
        /// there when the program is started.
        env: Secrets = "", since "0.1.0";
        /// Variables that the program gets from the server's own environment besides `PATH`, `HOME`, `USER`,
        /// `LOGNAME`, `SHELL`, `LANG`, `LC_ALL`, `TZ` and `TMPDIR`.
        env_pass: Vec<String> = "", since "0.1.0";
        /// Which generation of MCP the server speaks. `auto` asks it, once for each start.
        protocol: Protocol = "auto", since "0.1.0";
        /// Who shares one process of the server, or one session with it: `session` (the requests of one client
        /// session), `principal` (those of one owner), `shared` (everybody) or `call` (nobody).
        isolation: Isolation = "session", since "0.1.0";
        /// The most processes of the server, or sessions with it, at once. A call that needs one more waits for one
        /// that is idle, which is ended.
        processes_max: u32 = "16" in 1..=1000, since "0.1.0";
        /// How long a process or session is kept without a request.
        idle_stop: Span = "10m" in 1000..=31536000000, since "0.1.0";
        /// How long the server may take to start and say what it is.
        start_timeout: Span = "30s" in 100..=600000, since "0.1.0";
        /// How long the server may take to answer what is no call of a tool.
        request_timeout: Span = "60s" in 100..=3600000, since "0.1.0";
        /// How long all pages of all its lists may take together.
        lists_timeout: Span = "2m" in 100..=3600000, since "0.1.0";
        /// How long a call waits for a process or session: for one to be opened, or to become free.
        wait_timeout: Span = "5m" in 100..=3600000, since "0.1.0";
        /// How long a process or session without a request is kept for its caller where another caller waits for one.
        keep_idle: Span = "2m" in 0..=3600000, since "0.1.0";
        /// When the names of its tools and prompts begin with `NAME__`: `auto` (where two would be the same), `always`
        /// or `never`.
        prefix: Prefix = "auto", since "0.1.0";
        /// Not ready until this server has been reached. Otherwise its absence is told, and all else is served.
        required: bool = "false", since "0.1.0";
        /// Do not start it. Client configurations have this key.
        disabled: bool = "false", since "0.1.0";
        /// Whether calls become tasks of Longhaul: `adopt` (slow ones do), `relay` (those of tools of which the server says
        /// that it runs them as tasks itself) or `never`. Tasks that the server makes of calls are followed in each case;
        /// with `never` it is not told that it may make some.
        tasks: Adoption = "adopt", since "0.1.0";
        /// Refuse a task that the server makes of a call without having been told that it may: the call ends in an error
        /// (`upstream_unasked_task`), and the server is told to cancel it. Otherwise it is followed, and its result is
        /// the call's.
        strict_tasks: bool = "false", since "0.1.0";
        /// The most memory of one process and all its children.
        memory_max: Option<Bytes> = "" in 1048576..=17592186044416, since "0.1.0";
        /// How much its processes give way to others when the processors are busy; 0 is not at all.
        nice: u32 = "5" in 0..=19, since "0.1.0";
        /// The most calls of one tool at once; more wait in the queue.
        concurrency: u32 = "16" in 1..=1000, since "0.1.0";
        /// How long one call may take; it stands still while somebody is asked.
        timeout: Option<Span> = "" in 1..=31536000000, since "0.1.0";
        /// How long a call is waited for before it becomes a task; without it, `tasks.promote_after`.
        promote_after: Option<Span> = "" in 0..=600000, since "0.1.0";
        /// How long a caller without a task waits for the result, as for a command.
        hold: Hold = "auto", since "0.1.0";
        /// An equal call waits for one that its caller left.
        join: bool = "true", since "0.1.0";
        /// What becomes of a call when its caller leaves.
        on_abandon: OnAbandon = "auto", since "0.1.0";
        /// Whom the output schema of its tools is listed to; without it, `tasks.show_output_schema`.
        show_output_schema: Option<ShowSchema> = "", since "0.1.0";
        /// What happens to a call when this program, or the server behind it, dies meanwhile: `fail`, or `rerun`, which
        /// is for tools that may be called twice.
        on_crash: OnCrash = "fail", since "0.1.0";
        /// What the server may ask whoever calls it: any of `form`, `url` (a link to open), `sampling` (a completion by
        /// the client's model) and `roots` (the client's workspace folders). It is told of nothing else.
        questions: Vec<Askable> = "form, url, roots", since "0.1.0";
        /// A user of this machine is asked forms and links whatever the client declared: the server is told that it may
        /// ask them, and the local page and `longhaul answer` show them. Otherwise a server of 2026-07-28 is told what
        /// the client declared, and may refuse the call.
        ask_undeclared: bool = "true", since "0.1.0";
        /// Folders that the server is told are its caller's workspace, in place of what the client says.
        roots: Vec<PathBuf> = "", since "0.1.0";
        /// What a question that is not answered in time turns into.
        on_silence: OnSilence = "decline", since "0.1.0";
        /// What becomes of a question whose answer does not fit, where the client cannot be told so: the clients of
        /// 2025-11-25.
        on_misfit: OnMisfit = "decline", since "0.1.0";
        /// What a question that nobody can answer turns into: the server is told (`tool`), or the task fails.
        on_nobody: OnNobody = "tool", since "0.1.0";
        /// How long a question stays open; without it, `tasks.input_timeout`.
        question_deadline: Option<Span> = "" in 1000..=31536000000, since "0.1.0";
        /// How long its tasks are kept; without it, `tasks.ttl`.
        ttl: Option<Span> = "" in 1000..=31536000000, since "0.1.0";
    }
}

impl Upstream {
    /// A server that `longhaul wrap` brought, with the default of each setting; how it is reached is still to be said.
    pub fn wrapped(name: String) -> Upstream {
        let mut problems = Problems::default();
        let mut reader = Reader::new("servers", Table::new(), &mut problems);
        Upstream {
            name,
            is_wrapped: true,
            // No other server has a part in what its clients see.
            prefix: Prefix::Never,
            ..Upstream::read(&mut reader)
        }
    }

    /// The most that the server may ask of anybody.
    pub fn may_ask(&self) -> Answers {
        let may = |what| self.questions.contains(&what);
        Answers {
            form: may(Askable::Form),
            url: may(Askable::Url),
            sampling: may(Askable::Sampling),
            roots: may(Askable::Roots),
        }
    }
}

section! {
    /// How `longhaul login` comes to a server at a `url`. Without it, all is asked of the server.
    #[derive(Default)]
    Login in "servers.NAME.oauth" {
        /// The id of a client that was registered with the authorization server by hand.
        client_id: Option<String> = "", since "0.1.0";
        /// Where that client's secret stands: `env:NAME`, `file:PATH` or `cmd:PROGRAM ARGUMENTS`.
        client_secret: Option<String> = "", since "0.1.0";
        /// An https address of a client id metadata document, which is used where the authorization server takes one.
        client_document: Option<String> = "", since "0.1.0";
        /// The scopes to ask for; without them, those that the server wants.
        scopes: Vec<String> = "", since "0.1.0";
        /// By which name of this machine the browser comes back: `127.0.0.1` or `localhost`.
        callback_host: CallbackHost = "127.0.0.1", since "0.1.0";
        /// Hosts that a login may speak to though they are not public, such as an authorization server of a company.
        hosts: Vec<String> = "", since "0.1.0";
    }
}

section! {
    /// What is said of one tool of a server; what is absent is as the server has it.
    UpstreamTool in "servers.NAME.tools.TOOL" {
        /// Not listed, and not called.
        hidden: bool = "false", since "0.1.0";
        /// Whether a call becomes a task.
        task: Option<TaskUse> = "", since "0.1.0";
        /// Whether calls become tasks of this server.
        tasks: Option<Adoption> = "", since "0.1.0";
        /// The tool asks before it works: with `task = "required"` its first question comes before the task.
        asks_first: bool = "false", since "0.1.0";
        /// The most calls at once.
        concurrency: Option<u32> = "" in 1..=1000, since "0.1.0";
        /// How long one call may take; it stands still while somebody is asked.
        timeout: Option<Span> = "" in 1..=31536000000, since "0.1.0";
        /// How long a call is waited for before it becomes a task.
        promote_after: Option<Span> = "" in 0..=600000, since "0.1.0";
        /// How long a caller without a task waits for the result.
        hold: Option<Hold> = "", since "0.1.0";
        /// An equal call waits for one that its caller left.
        join: Option<bool> = "", since "0.1.0";
        /// What becomes of a call when its caller leaves.
        on_abandon: Option<OnAbandon> = "", since "0.1.0";
        /// Whom its output schema is listed to.
        show_output_schema: Option<ShowSchema> = "", since "0.1.0";
        /// What happens to a call when this program, or the server behind it, dies meanwhile.
        on_crash: Option<OnCrash> = "", since "0.1.0";
        /// What a question that is not answered in time turns into.
        on_silence: Option<OnSilence> = "", since "0.1.0";
        /// What becomes of a question whose answer does not fit, where the client cannot be told so.
        on_misfit: Option<OnMisfit> = "", since "0.1.0";
        /// What a question that nobody can answer turns into.
        on_nobody: Option<OnNobody> = "", since "0.1.0";
        /// How long a question stays open.
        question_deadline: Option<Span> = "" in 1000..=31536000000, since "0.1.0";
        /// How long its tasks are kept.
        ttl: Option<Span> = "" in 1000..=31536000000, since "0.1.0";
    }
}

/// A program and its arguments: a list, or one text that is the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

impl Value for Words {
    const KIND: &'static str = "a list of texts: the program and its arguments";

    fn read(node: &Node, problems: &mut Problems) -> Result<Words, Option<String>> {
        match &node.data {
            Data::Text(program) => Ok(Words(vec![program.clone()])),
            Data::Whole(_)
            | Data::Number(_)
            | Data::Flag(_)
            | Data::Moment
            | Data::List(_)
            | Data::Table(_) => Vec::read(node, problems).map(Words),
        }
    }

    fn from_text(text: &str) -> Result<Words, String> {
        Ok(Words(match text {
            "" => Vec::new(),
            program => vec![program.to_owned()],
        }))
    }

    fn schema() -> Json {
        serde_json::json!({ "anyOf": [
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            { "type": "string" },
        ] })
    }
}

/// A table of texts, each of which may be secret. `Debug` shows the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(pub BTreeMap<String, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Value for Secrets {
    const KIND: &'static str = "a table of texts";

    fn read(node: &Node, problems: &mut Problems) -> Result<Secrets, Option<String>> {
        BTreeMap::read(node, problems).map(Secrets)
    }

    fn from_text(text: &str) -> Result<Secrets, String> {
        BTreeMap::from_text(text).map(Secrets)
    }

    fn schema() -> Json {
        <BTreeMap<String, String> as Value>::schema()
    }
}

/// The JSON schema of the table of servers.
pub(super) fn schema() -> Json {
    let mut server = object_schema(&Upstream::settings());
    server["properties"]["oauth"] = object_schema(&Login::settings());
    server["properties"]["tools"] = serde_json::json!({
        "type": "object",
        "additionalProperties": object_schema(&UpstreamTool::settings()),
        "description": "What is said of single tools: the section below.",
    });
    server["anyOf"] = serde_json::json!([{ "required": ["command"] }, { "required": ["url"] }]);
    serde_json::json!({ "type": "object", "additionalProperties": server })
}

/// Reads and checks one server's section.
pub(super) fn read(name: &str, at: &At, node: &Node, problems: &mut Problems) -> Option<Upstream> {
    let section = format!("servers.{name}");
    let mut table = node.table(&section, problems)?.clone();
    if !is_section_name(name) {
        problems.add(at, format!("`{name}` cannot name a server: {SECTION_NAME}"));
    }
    let tools = table.remove("tools");
    let login = table.remove("oauth");
    let mut reader = Reader::new(&section, table.clone(), problems);
    let mut server = Upstream::read(&mut reader);
    reader.finish();
    server.tools = tools
        .map(|(_, node)| single_tools(name, &node, problems))
        .unwrap_or_default();
    if let Some((_, node)) = login {
        server.login = login_of(name, &node, server.url.is_some(), problems);
    }
    server.is_of_client = client_file::is_one(Path::new(&*at.file));
    reach(&server, at, &table, problems);
    server.name = name.to_owned();
    server.folder = match server.is_of_client {
        true => client_file::workspace(Path::new(&*at.file)),
        false => beside(at, ""),
    };
    Some(server)
}

fn login_of(server: &str, node: &Node, is_remote: bool, problems: &mut Problems) -> Login {
    let section = format!("servers.{server}.oauth");
    let Some(table) = node.table(&section, problems) else {
        return Login::default();
    };
    let table = table.clone();
    let place = |key: &str| table.get(key).map_or(&node.at, |(_, node)| &node.at).clone();
    let mut reader = Reader::new(&section, table.clone(), problems);
    let login = Login::read(&mut reader);
    reader.finish();
    if !is_remote {
        problems.add(&node.at, "`oauth` is for a server at a `url`".to_owned());
    }
    if let Some(secret) = &login.client_secret {
        if !["env:", "file:", "cmd:"]
            .iter()
            .any(|begin| secret.starts_with(begin))
        {
            let why = "a secret does not stand in the configuration: write where it is, as `env:NAME` or `file:PATH`";
            problems.add(&place("client_secret"), why.to_owned());
        }
        if login.client_id.is_none() {
            problems.add(
                &place("client_secret"),
                "`client_secret` belongs to a `client_id`".to_owned(),
            );
        }
    }
    if login
        .client_document
        .as_ref()
        .is_some_and(|document| !document.starts_with("https://"))
    {
        problems.add(
            &place("client_document"),
            "a client id metadata document has an `https:` address".to_owned(),
        );
    }
    login
}

fn single_tools(server: &str, node: &Node, problems: &mut Problems) -> BTreeMap<String, UpstreamTool> {
    let section = format!("servers.{server}.tools");
    let mut tools = BTreeMap::new();
    let Some(table) = node.table(&section, problems) else {
        return tools;
    };
    for (name, (_, node)) in table {
        let section = format!("{section}.{name}");
        let Some(table) = node.table(&section, problems) else {
            continue;
        };
        let mut reader = Reader::new(&section, table.clone(), problems);
        tools.insert(name.clone(), UpstreamTool::read(&mut reader));
        reader.finish();
    }
    tools
}

/// Checks how the server is reached.
fn reach(server: &Upstream, at: &At, table: &Table, problems: &mut Problems) {
    let place = |key: &str| table.get(key).map_or(at, |(_, node)| &node.at);
    let program = server.command.0.first();
    match (program, &server.url) {
        (None, None) => problems.add(
            at,
            "a server needs a `command` to start, or a `url` where it is".to_owned(),
        ),
        (Some(_), Some(_)) => problems.add(place("url"), "give `command` or `url`, not both".to_owned()),
        (Some(program), None) if program.is_empty() => {
            problems.add(place("command"), "the program's name is empty".to_owned());
        }
        // What it is stands in variables, and is looked at when the server is reached.
        (None, Some(url)) if server.is_of_client && url.contains("${") && !url.contains('@') => {}
        (None, Some(url)) => {
            if let Err(why) = address(url) {
                problems.add(place("url"), why);
            }
        }
        (Some(program), None) => command(program, place("command"), problems),
    }
    if let Some((_, node)) = table.get("headers")
        && let Data::Table(headers) = &node.data
    {
        for (name, (_, value)) in headers {
            let written = server
                .headers
                .0
                .get(name)
                .is_some_and(|text| text.contains(char::is_control));
            if written {
                problems.add(
                    &value.at,
                    format!("`headers.{name}` holds a line end or another character that no header may have"),
                );
            }
        }
    }
    let remote = server.url.is_some();
    for key in ["args", "cwd", "env", "env_pass", "memory_max", "nice"] {
        if remote && table.contains_key(key) {
            problems.add(
                place(key),
                format!("`{key}` is for a server that is started with `command`"),
            );
        }
    }
    if !remote && table.contains_key("headers") {
        problems.add(
            place("headers"),
            "`headers` are for a server at a `url`".to_owned(),
        );
    }
}

/// A command in one text is a program's name. A name that is looked for in `PATH` has no spaces.
fn command(program: &str, at: &At, problems: &mut Problems) {
    let mut words = program.split_whitespace();
    let first = words.next().unwrap_or_default();
    if words.next().is_some() && !first.contains('/') {
        let list: Vec<String> = program
            .split_whitespace()
            .map(|word| format!("{word:?}"))
            .collect();
        problems.add(
            at,
            format!(
                "`{program}` is taken for the name of one program; write a list: [{}]",
                list.join(", ")
            ),
        );
    }
}

/// What [`is_section_name`] demands, for whoever wrote another.
pub(super) const SECTION_NAME: &str = "use 1 to 32 letters, digits, `_` and `-`, without two `_` in a row";

/// Whether this may name a server or a toolset.
pub fn is_section_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && !name.contains("__")
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// What is wrong with an address. One that may have a password in it is not repeated.
pub(crate) fn address(text: &str) -> Result<(), String> {
    match url::Url::parse(text) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err("the address has a name or a password in it; put it into `headers` as `env:NAME`".to_owned())
        }
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        Ok(_) | Err(_) if text.contains('@') => {
            Err("the address is not one such as `https://example.org/mcp`".to_owned())
        }
        Ok(_) | Err(_) => Err(format!(
            "`{}` is not an address such as `https://example.org/mcp`",
            // A key may stand behind its `?`.
            text.split(['?', '#']).next().unwrap_or_default()
        )),
    }
}
