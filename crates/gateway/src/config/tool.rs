//! `[tools.NAME]`: a command-line program as a tool, read and checked.
//!
//! `config` calls it for each section; `command` runs what it describes. It starts nothing.

mod check;

use std::{collections::BTreeMap, path::PathBuf};

use longhaul_core::{Span, task};
use serde_json::Value as Json;

use super::{
    args::{self, Args},
    holding::{Hold, OnAbandon, ShowSchema},
    measure::Bytes,
    node::{Data, Node},
    problem::{At, Problems},
    setting::{Reader, Setting, Value, beside, choice, section},
    template::{self, Part, Template},
};

pub use check::PROGRESS_REGEX_BYTES_MAX;

choice! {
    /// How the program's output becomes the result.
    Output {
        /// Standard output as text.
        Text = "text",
        /// Standard output as JSON: structured content.
        Json = "json",
        /// The files that match `files`.
        Files = "files",
        /// Standard output as a whole tool result or JSON-RPC error.
        Mcp = "mcp",
    }
    kind "one of `text`, `json`, `files`, `mcp`"
}

choice! {
    /// Whether a call becomes a task.
    TaskUse {
        /// At once.
        Required = "required",
        /// When it takes longer than `promote_after`.
        Optional = "optional",
        /// Never.
        Forbidden = "forbidden",
    }
    kind "one of `required`, `optional`, `forbidden`"
}

choice! {
    /// What a client must be able to answer.
    Need {
        /// Forms.
        Form = "elicitation",
        /// Links to open.
        Url = "elicitation.url",
        /// Completions by the client's model.
        Sampling = "sampling",
        /// The client's workspace folders.
        Roots = "roots",
    }
    kind "one of `elicitation`, `elicitation.url`, `sampling`, `roots`"
}

choice! {
    /// What a question that is not answered in time turns into.
    OnSilence {
        /// A decline.
        Decline = "decline",
        /// A dismissal.
        Cancel = "cancel",
        /// The task fails.
        Fail = "fail",
    }
    kind "one of `decline`, `cancel`, `fail`"
}

impl OnSilence {
    /// As the core has it.
    pub(crate) fn rule(self) -> task::OnSilence {
        match self {
            OnSilence::Decline => task::OnSilence::Decline,
            OnSilence::Cancel => task::OnSilence::Dismiss,
            OnSilence::Fail => task::OnSilence::Fail,
        }
    }
}

choice! {
    /// What becomes of a question that a client with a session answered with what does not fit.
    OnMisfit {
        /// A decline.
        Decline = "decline",
        /// It is asked again; the third misfit is a decline.
        AskAgain = "ask_again",
    }
    kind "one of `decline`, `ask_again`"
}

choice! {
    /// What a question that nobody can answer turns into.
    OnNobody {
        /// The program is told that nobody can answer.
        Tool = "tool",
        /// The task fails.
        Fail = "fail",
    }
    kind "one of `tool`, `fail`"
}

section! {
    /// One tool that is a command-line program.
    Tool in "tools.NAME" with
        /// The name in the section's head.
        name: String,
        /// The folder of the file that declares the tool.
        folder: PathBuf,
        /// Its place among the tools, from 0: in the order in which the files are read and name them.
        rank: usize,
    {
        /// The name that people see.
        title: Option<String> = "", since "0.1.0";
        /// What the tool does, for the model that chooses it.
        description: Option<String> = "", since "0.1.0";
        /// The program and its arguments. An item is text in which `{name}` stands for an argument's value,
        /// `"{name...}"` for each value of a list, `"{name?--flag}"` for a flag when a boolean is true, or a list
        /// of items that is left out when a name in it is absent. No shell reads it. A value that begins with `-`
        /// is refused where the program would take it for an option: as a whole item before a literal `--`,
        /// unless its argument says `dash = true`.
        command: Template = "", since "0.1.0";
        /// Lets values stand in program text and choose what runs, where this is what the tool is for. Without it
        /// such a `command` is refused, as far as the programs in it are known.
        allow_program_text: bool = "false", since "0.1.0";
        /// The arguments by name: `"string"`, `"string?"` (may be absent), `"string[]"`, `"integer"`, `"number"`,
        /// `"boolean"`, `"integer = 5"` (a default), or a table with `type` and any of `description`, `default`,
        /// `enum`, `minimum`, `maximum`, `pattern`, `secret` and `dash`. Or the path of a JSON Schema.
        args: Args = "", since "0.1.0";
        /// The path of a JSON Schema for the arguments; the same as `args = "PATH"`. `writeOnly` marks a secret,
        /// `x-dash` a value that may begin with `-`.
        args_schema: Option<PathBuf> = "", since "0.1.0";
        /// The folder in which the program runs; without it, the folder of the file that declares the tool.
        cwd: Option<PathBuf> = "", since "0.1.0";
        /// Variables of the program's environment.
        env: BTreeMap<String, String> = "", since "0.1.0";
        /// Variables that the program gets from the server's own environment besides `PATH`, `HOME`, `USER`,
        /// `LOGNAME`, `SHELL`, `LANG`, `LC_ALL`, `TZ` and `TMPDIR`.
        env_pass: Vec<String> = "", since "0.1.0";
        /// What the program reads on standard input: `none`, `secrets` (the secret arguments as a JSON object;
        /// the default when there are any), `arguments` (all of them), or text with `{name}` in it.
        stdin: Option<Stdin> = "", since "0.1.0";
        /// How long an attempt may take.
        timeout: Option<Span> = "" in 1..=31536000000, since "0.1.0";
        /// How long the program may write nothing.
        idle_timeout: Option<Span> = "" in 1..=31536000000, since "0.1.0";
        /// The most memory of the program and all its children.
        memory_max: Option<Bytes> = "" in 1048576..=17592186044416, since "0.1.0";
        /// How much the program and its children give way to other processes when the processors are busy; 0 is not
        /// at all. The server and its clients stay responsive while tools compute.
        nice: u32 = "10" in 0..=19, since "0.1.0";
        /// The most attempts at once; more wait in the queue.
        concurrency: u32 = "4" in 1..=1000, since "0.1.0";
        /// The exit codes that mean success.
        success_exit_codes: Vec<i32> = "0", since "0.1.0";
        /// How the output becomes the result.
        result: Output = "text", since "0.1.0";
        /// The path of a JSON Schema, or a table that is one, that the structured content must fit.
        output_schema: Option<Schema> = "", since "0.1.0";
        /// With `result = "files"`: patterns of the files that the result names, below `cwd`.
        files: Vec<String> = "", since "0.1.0";
        /// Whether a call becomes a task.
        task: TaskUse = "optional", since "0.1.0";
        /// How long a call is waited for before it becomes a task; without it, `tasks.promote_after`.
        promote_after: Option<Span> = "" in 0..=600000, since "0.1.0";
        /// How long a caller without a task waits for the result: `auto` (until `tasks.hold`, then it is told that
        /// the work goes on and how to wait for it) or `exact` (until the end).
        hold: Hold = "auto", since "0.1.0";
        /// An equal call waits for a call of this tool that its caller left or was told is still running. When
        /// false, it begins new work.
        join: bool = "true", since "0.1.0";
        /// What becomes of the work when the caller of a call without a task leaves: `auto` (it goes on after a
        /// time-out or a lost connection, and is cancelled when the caller cancels the call), `finish` or `cancel`.
        on_abandon: OnAbandon = "auto", since "0.1.0";
        /// Whom `output_schema` is listed to; without it, `tasks.show_output_schema`.
        show_output_schema: Option<ShowSchema> = "", since "0.1.0";
        /// What happens when the server dies while the program runs: `fail`, `rerun`, or a table
        /// `{ action = "rerun", max = 3, backoff = "1s" }` with the most starts and the wait before each further one.
        on_crash: OnCrash = "fail", since "0.1.0";
        /// What a question that is not answered in time turns into.
        on_silence: OnSilence = "decline", since "0.1.0";
        /// What becomes of a question whose answer does not fit, where the client cannot be told so: the clients of
        /// 2025-11-25.
        on_misfit: OnMisfit = "decline", since "0.1.0";
        /// What a question that nobody can answer turns into.
        on_nobody: OnNobody = "tool", since "0.1.0";
        /// How long a question stays open; without it, `tasks.input_timeout`.
        question_deadline: Option<Span> = "" in 1000..=31536000000, since "0.1.0";
        /// The tool asks before it works: with `task = "required"` its first question comes before the task.
        asks_first: bool = "false", since "0.1.0";
        /// What a client must declare that it can be asked, or its call is refused: any of `elicitation` (forms),
        /// `elicitation.url` (links), `sampling` and `roots`.
        needs: Vec<Need> = "", since "0.1.0";
        /// Hints for clients: `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`.
        annotations: Annotations = "", since "0.1.0";
        /// How long its tasks are kept; without it, `tasks.ttl`.
        ttl: Option<Span> = "" in 1000..=31536000000, since "0.1.0";
        /// A regular expression with the groups `n`, `total` and `message`, tried on each line of output; a match
        /// is progress. Without it, lines such as `3/10 message` and `30% message` are. `off` reads none.
        progress: Option<String> = "", since "0.1.0";
    }
}

section! {
    /// Hints for clients. They bind nobody.
    Annotations in "tools.NAME.annotations" {
        /// The tool changes nothing.
        read_only as "readOnlyHint": Option<bool> = "", since "0.1.0";
        /// The tool may destroy something.
        destructive as "destructiveHint": Option<bool> = "", since "0.1.0";
        /// A second equal call changes nothing more.
        idempotent as "idempotentHint": Option<bool> = "", since "0.1.0";
        /// The tool reaches outside this machine.
        open_world as "openWorldHint": Option<bool> = "", since "0.1.0";
    }
}

impl Annotations {
    /// As `tools/list` shows them; `None` when nothing is said.
    pub fn json(&self) -> Option<Json> {
        let hints = [
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        ];
        let said = hints
            .into_iter()
            .filter_map(|(name, hint)| Some((name.to_owned(), hint?.into())));
        let said: serde_json::Map<String, Json> = said.collect();
        (!said.is_empty()).then_some(Json::Object(said))
    }
}

impl Value for Annotations {
    const KIND: &'static str = "a table of hints";

    fn read(node: &Node, problems: &mut Problems) -> Result<Annotations, Option<String>> {
        let Data::Table(table) = &node.data else {
            return Err(Some("a table of hints".to_owned()));
        };
        let mut reader = Reader::new("tools.NAME.annotations", table.clone(), problems);
        let annotations = Annotations::read(&mut reader);
        reader.finish();
        Ok(annotations)
    }

    fn from_text(_: &str) -> Result<Annotations, String> {
        Ok(Annotations {
            read_only: None,
            destructive: None,
            idempotent: None,
            open_world: None,
        })
    }

    fn schema() -> Json {
        object_schema(&Annotations::settings())
    }
}

/// The JSON schema of a table with these settings.
pub(super) fn object_schema(settings: &[Setting]) -> Json {
    let properties = settings.iter().map(|setting| {
        let mut schema = setting.schema.clone();
        schema["description"] = setting.text.as_str().into();
        if let Some(default) = default_of(setting) {
            schema["default"] = default;
        }
        (setting.key.to_owned(), schema)
    });
    let properties: serde_json::Map<String, Json> = properties.collect();
    serde_json::json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// The default as a file would hold it; none where it is nothing, or has a meaning that no value has.
fn default_of(setting: &Setting) -> Option<Json> {
    if setting.default.is_empty() {
        return None;
    }
    match setting.schema["type"].as_str() {
        Some("boolean" | "integer") => setting.default.parse().ok(),
        Some("array") => {
            let whole = setting.schema["items"]["type"] == "integer";
            let item = |text: &str| -> Option<Json> {
                if whole {
                    text.parse().ok()
                } else {
                    Some(text.into())
                }
            };
            let items: Option<Vec<Json>> = setting.default.split(',').map(|text| item(text.trim())).collect();
            items.map(Json::from)
        }
        _ => Some(setting.default.into()),
    }
}

/// What the program reads on standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    Nothing,
    /// The secret arguments as a JSON object.
    Secrets,
    /// All arguments as a JSON object.
    Arguments,
    /// Text with values in it.
    Text(Vec<Part>),
}

impl Value for Stdin {
    const KIND: &'static str = "`none`, `secrets`, `arguments`, or text with `{name}` in it";

    fn read(node: &Node, _: &mut Problems) -> Result<Stdin, Option<String>> {
        let Data::Text(text) = &node.data else {
            return Err(Some(Stdin::KIND.to_owned()));
        };
        Stdin::from_text(text).map_err(Some)
    }

    fn from_text(text: &str) -> Result<Stdin, String> {
        match text {
            "none" => Ok(Stdin::Nothing),
            "secrets" => Ok(Stdin::Secrets),
            "arguments" => Ok(Stdin::Arguments),
            _ => template::parts(text).map(Stdin::Text),
        }
    }

    fn schema() -> Json {
        serde_json::json!({ "type": "string" })
    }
}

/// What happens when the server dies while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCrash {
    /// The task fails: the program began at most once.
    Fail,
    /// The program runs again.
    Rerun {
        /// The most starts in all, at least 1.
        starts_max: u32,
        /// The wait before each further start.
        backoff: Span,
    },
}

section! {
    /// The long form of `on_crash`.
    Crash in "tools.NAME.on_crash" {
        /// `fail` or `rerun`.
        action: String = "fail", since "0.1.0";
        /// The most starts in all.
        max: u32 = "3" in 1..=100, since "0.1.0";
        /// The wait before each further start.
        backoff: Span = "1s" in 0..=86400000, since "0.1.0";
    }
}

impl Value for OnCrash {
    const KIND: &'static str =
        "`fail`, `rerun`, or a table `{ action = \"rerun\", max = 3, backoff = \"1s\" }`";

    fn read(node: &Node, problems: &mut Problems) -> Result<OnCrash, Option<String>> {
        match &node.data {
            Data::Text(text) => OnCrash::from_text(text).map_err(Some),
            Data::Table(table) => {
                let mut reader = Reader::new("tools.NAME.on_crash", table.clone(), problems);
                let crash = Crash::read(&mut reader);
                reader.finish();
                let rerun = OnCrash::Rerun {
                    starts_max: crash.max,
                    backoff: crash.backoff,
                };
                OnCrash::from_text(&crash.action)
                    .map_err(Some)
                    .map(|action| match action {
                        OnCrash::Fail => OnCrash::Fail,
                        OnCrash::Rerun { .. } => rerun,
                    })
            }
            Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Moment | Data::List(_) => {
                Err(Some(OnCrash::KIND.to_owned()))
            }
        }
    }

    fn from_text(text: &str) -> Result<OnCrash, String> {
        match text {
            "fail" => Ok(OnCrash::Fail),
            "rerun" => Ok(OnCrash::Rerun {
                starts_max: 3,
                backoff: Span::seconds(1),
            }),
            "resume" => Err(
                "`fail` or `rerun` in this version; a command has no checkpoint to resume from".to_owned(),
            ),
            _ => Err(OnCrash::KIND.to_owned()),
        }
    }

    fn schema() -> Json {
        serde_json::json!({ "anyOf": [{ "enum": ["fail", "rerun"] }, object_schema(&Crash::settings())] })
    }
}

/// A JSON Schema, in a file or in the configuration itself.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The schema.
    pub json: Json,
    at: At,
    file: Option<PathBuf>,
}

impl Value for Schema {
    const KIND: &'static str = "the path of a JSON Schema, or a table that is one";

    fn read(node: &Node, _: &mut Problems) -> Result<Schema, Option<String>> {
        let at = node.at.clone();
        if let Data::Text(path) = &node.data {
            return Ok(Schema {
                json: Json::Null,
                file: Some(beside(&at, path)),
                at,
            });
        }
        match (&node.data, node.json()) {
            (Data::Table(_), Some(json)) => Ok(Schema { json, at, file: None }),
            _ => Err(Some(Schema::KIND.to_owned())),
        }
    }

    fn from_text(_: &str) -> Result<Schema, String> {
        Err(Schema::KIND.to_owned())
    }

    fn schema() -> Json {
        serde_json::json!({ "type": ["string", "object"] })
    }
}

/// Reads a file that the configuration names.
pub(super) type Files<'a> = dyn Fn(&std::path::Path) -> std::io::Result<String> + 'a;

/// Reads and checks one section.
pub(super) fn read(
    name: &str,
    at: &At,
    node: &Node,
    files: &Files<'_>,
    problems: &mut Problems,
) -> Option<Tool> {
    let section = format!("tools.{name}");
    let table = node.table(&section, problems)?;
    if !is_tool_name(name) {
        problems.add(
            at,
            format!("`{name}` cannot name a tool: use 1 to 64 letters, digits, `_`, `-` and `.`"),
        );
    }
    let mut reader = Reader::new(&section, table.clone(), problems);
    let mut tool = Tool::read(&mut reader);
    reader.finish();
    let place = |key: &str| table.get(key).map_or(at, |(_, node)| &node.at);
    load_schemas(
        &mut tool,
        place("args_schema"),
        table.contains_key("args"),
        files,
        problems,
    );
    if tool.command.items.is_empty() && table.get("command").is_none_or(|(_, node)| is_empty_list(node)) {
        problems.add(at, format!("tool `{name}` needs a `command`"));
    }
    check::command(&tool, place("stdin"), problems);
    check::plain(&tool, table, problems);
    check::header_mirrors(&tool, place("args"), problems);
    check::names(&tool, place("stdin"), problems);
    check::output(&tool, &place, problems);
    tool.name = name.to_owned();
    tool.folder = beside(at, "");
    Some(tool)
}

fn is_empty_list(node: &Node) -> bool {
    matches!(&node.data, Data::List(items) if items.is_empty())
}

fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn load_schemas(tool: &mut Tool, at: &At, has_args: bool, files: &Files<'_>, problems: &mut Problems) {
    if let Some(path) = tool.args_schema.clone() {
        if has_args {
            problems.add(at, "give `args` or `args_schema`, not both");
        }
        tool.args.file = Some((at.clone(), path));
    }
    if let Some((at, path)) = tool.args.file.take() {
        tool.args = match load_schema(&at, &path, files, problems) {
            Some(json) => args::of_schema(json, &at, problems),
            None => Args::default(),
        };
        if !tool.args.schema.is_null() {
            args::check_schema("the schema of the arguments", &tool.args.schema, &at, problems);
        }
    }
    if let Some(schema) = &mut tool.output_schema {
        if let Some(path) = &schema.file {
            schema.json = load_schema(&schema.at, path, files, problems).unwrap_or(Json::Bool(true));
        }
        args::check_schema("`output_schema`", &schema.json, &schema.at, problems);
    }
}

fn load_schema(at: &At, path: &std::path::Path, files: &Files<'_>, problems: &mut Problems) -> Option<Json> {
    let text = match files(path) {
        Ok(text) => text,
        Err(error) => {
            problems.add(at, format!("cannot read `{}`: {error}", path.display()));
            return None;
        }
    };
    match serde_json::from_str(&text) {
        Ok(json) => Some(json),
        Err(error) => {
            problems.add(at, format!("`{}` is not JSON: {error}", path.display()));
            None
        }
    }
}

impl Tool {
    /// What the program reads on standard input: as declared, else the secrets when there are any.
    pub fn stdin(&self) -> Stdin {
        let secrets = self.args.params.values().any(|param| param.secret);
        self.stdin
            .clone()
            .unwrap_or(if secrets { Stdin::Secrets } else { Stdin::Nothing })
    }
}
