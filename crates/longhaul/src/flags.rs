//! The command line: every command and flag, declared once with its text. Help, completions and the reference
//! page come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use longhaul_gateway::admin::api::State;

use crate::desktop::clients::Client;

/// Makes long MCP tool calls durable.
#[derive(Debug, Parser)]
#[command(
    name = "longhaul",
    version,
    disable_help_subcommand = true,
    after_help = crate::exit::table()
)]
pub(crate) struct Flags {
    /// What every command knows.
    #[command(flatten)]
    pub common: Common,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command knows.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// The configuration file, and no other
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The directory in which tasks are kept
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool and wait for its result
    Run(Run),
    /// Show tasks, or one task
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Tasks(Tasks),
    /// Answer a task's question
    Answer(Answer),
    /// Cancel a task and stop its work
    Cancel(Name),
    /// Watch all tasks; keys look at one, cancel it, answer it
    Top,
    /// Show the server's log
    Logs(Logs),
    /// Show the servers behind this one
    Servers(Servers),
    /// Print a link to the local page that works once
    Page(Page),
    /// Serve tools to MCP clients, and run their tasks
    Serve(Serve),
    /// Connect an MCP client's standard streams to the user's server; started by clients
    Stdio(Stdio),
    /// Put Longhaul before the servers of a client, such as Claude Desktop
    Install(Install),
    /// Take back what `install` wrote
    Uninstall(Uninstall),
    /// Log in at a server behind this one, in the browser
    Login(Login),
    /// Forget a login, and have it revoked
    Logout(Logout),
    /// Put one MCP server behind the user's server, and connect a client's standard streams to it; started by clients
    Wrap(Wrap),
    /// Make, check and show the configuration
    #[command(subcommand)]
    Config(Config),
    /// Look for what is wrong on this machine
    Doctor,
    /// Show in 10 seconds what becomes of tasks when the server is killed
    Demo,
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page, or write one for each command
    Man(Man),
    /// Ask the task's owner something, from inside a tool's command
    Ask(Ask),
    /// Report progress, from inside a tool's command
    Progress(Progress),
}

/// `run`
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The tool
    pub tool: String,
    /// Arguments: `name=value`, repeated for lists; `name:=JSON` for JSON
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
    /// Print the task's name and do not wait
    #[arg(long, visible_alias = "detach")]
    pub no_wait: bool,
    /// Equal calls under one key are one task
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The session that the call belongs to
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Print the result as it is, control characters included; only to a file or pipe
    #[arg(long)]
    pub raw: bool,
}

/// `tasks`
#[derive(Args, Debug)]
pub(crate) struct Tasks {
    /// The task; without it, the newest ones
    pub name: Option<String>,
    /// Which tasks
    #[command(flatten)]
    pub filter: Filter,
    /// One thing about tasks.
    #[command(subcommand)]
    pub command: Option<TasksCommand>,
}

/// Which tasks.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only those in this state
    #[arg(long, value_enum)]
    pub status: Option<Status>,
    /// Only those of this tool
    #[arg(long)]
    pub tool: Option<String>,
    /// Only those of this session
    #[arg(long)]
    pub session: Option<String>,
    /// At most so many, 1 to 1000
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
}

/// `tasks` with one more word.
#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// The newest tasks
    List(Filter),
    /// One task
    Get(Name),
    /// The result of a task that has ended
    Result(ResultOf),
    /// Follow a task until it ends
    Watch(Name),
    /// The same as `longhaul cancel`
    Cancel(Name),
    /// The same as `longhaul answer`
    Answer(Answer),
    /// The same as `longhaul run`
    Run(Run),
}

/// A task.
#[derive(Args, Debug)]
pub(crate) struct Name {
    /// The task's name
    pub name: String,
}

/// `tasks result`
#[derive(Args, Debug)]
pub(crate) struct ResultOf {
    /// The task's name
    pub name: String,
    /// Print it as it is, control characters included; only to a file or pipe
    #[arg(long)]
    pub raw: bool,
}

/// `answer`
#[derive(Args, Debug)]
pub(crate) struct Answer {
    /// The task's name
    pub name: String,
    /// The answer: `field=value`, or only the value when there is one field; `-` reads a JSON object from standard
    /// input; without it you are asked
    #[arg(value_name = "FIELD=VALUE", conflicts_with_all = ["decline", "dismiss"])]
    pub fields: Vec<String>,
    /// Which question, when several are open
    #[arg(long, value_name = "KEY")]
    pub question: Option<String>,
    /// Say no
    #[arg(long, conflicts_with = "dismiss")]
    pub decline: bool,
    /// Close the question without choosing
    #[arg(long)]
    pub dismiss: bool,
    /// Give consent to a question that has no form
    #[arg(long, conflicts_with_all = ["decline", "dismiss", "fields"])]
    pub accept: bool,
}

/// `logs`
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// Go on as the log grows
    #[arg(short, long)]
    pub follow: bool,
    /// How many lines
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub lines: u32,
}

/// `servers`
#[derive(Args, Debug)]
pub(crate) struct Servers {
    /// Without it, `list`
    #[command(subcommand)]
    pub command: Option<ServersCommand>,
}

/// What is done with servers.
#[derive(Subcommand, Debug)]
pub(crate) enum ServersCommand {
    /// All of them, and how they are
    List,
    /// One of them, and why it is not well
    Show {
        /// Its name in the configuration
        name: String,
    },
    /// End its processes and start it anew; its calls that run are lost
    Restart {
        /// Its name in the configuration
        name: String,
    },
}

/// `page`
#[derive(Args, Debug)]
pub(crate) struct Page {
    /// A task whose question to show
    pub name: Option<String>,
}

/// `serve`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Serve {
    /// The address to serve MCP and the local page on, over the configuration's
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<std::net::SocketAddr>,
    /// Speak MCP on standard input and output, and end with the input; no address is served unless one is set
    #[arg(long, conflicts_with_all = ["background", "json"])]
    pub stdio: bool,
    /// With `--stdio`: show the client one part of what is offered, as `[toolsets.NAME]` says
    #[arg(long, value_name = "NAME", requires = "stdio")]
    pub toolset: Option<String>,
    /// Take the place of the server that runs; it finishes its work and ends
    #[arg(long)]
    pub replace: bool,
    /// Write what happens to the log file only, away from the terminal
    #[arg(long, hide = true)]
    pub background: bool,
}

/// `stdio`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Stdio {
    /// How long a call may be held before this client is told that its work goes on
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub hold: Option<u32>,
    /// Show this client one part of what is offered, as `[toolsets.NAME]` says
    #[arg(long, value_name = "NAME")]
    pub toolset: Option<String>,
}

/// `install`
#[derive(Args, Debug)]
pub(crate) struct Install {
    /// The clients; `all` for those that are on this machine
    #[arg(required = true, value_enum, value_name = "CLIENT")]
    pub clients: Vec<ClientName>,
    /// Write without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// This file of the client, and no other
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// `uninstall`
#[derive(Args, Debug)]
pub(crate) struct Uninstall {
    /// The clients; `all` for every one that was set up
    #[arg(required = true, value_enum, value_name = "CLIENT")]
    pub clients: Vec<ClientName>,
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// This file of the client, and no other
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The clients, as `install` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientName {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Vscode,
    Codex,
    Gemini,
    Windsurf,
    All,
}

impl ClientName {
    /// The client; `None` for all of them.
    pub(crate) fn client(self) -> Option<Client> {
        match self {
            ClientName::ClaudeDesktop => Some(Client::ClaudeDesktop),
            ClientName::ClaudeCode => Some(Client::ClaudeCode),
            ClientName::Cursor => Some(Client::Cursor),
            ClientName::Vscode => Some(Client::Vscode),
            ClientName::Codex => Some(Client::Codex),
            ClientName::Gemini => Some(Client::Gemini),
            ClientName::Windsurf => Some(Client::Windsurf),
            ClientName::All => None,
        }
    }
}

/// `wrap`
#[derive(Args, Clone, Debug, Default)]
#[command(
    override_usage = "longhaul wrap [OPTIONS] URL\n       longhaul wrap [OPTIONS] -- COMMAND [ARGUMENTS]..."
)]
pub(crate) struct Wrap {
    /// How long a call may be held before this client is told that its work goes on
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub hold: Option<u32>,
    /// A header of every request to the URL; a value `env:NAME` is a variable of this command's environment
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub headers: Vec<String>,
    /// Run the server, and keep its tasks, in this process, as in a container; it ends with its input
    #[arg(long)]
    pub in_process: bool,
    /// The server's address, or `env:NAME`
    #[arg(value_name = "URL", required_unless_present = "command")]
    pub url: Option<String>,
    /// The server's program and its arguments, after `--`; it runs here, in this environment
    #[arg(value_name = "COMMAND", last = true, conflicts_with = "url")]
    pub command: Vec<std::ffi::OsString>,
}

/// `login`
#[derive(Args, Debug)]
pub(crate) struct Login {
    /// The server's name in the configuration, or its address
    #[arg(value_name = "SERVER|URL")]
    pub server: String,
    /// Print the link, and open no browser
    #[arg(long)]
    pub no_browser: bool,
}

/// `logout`
#[derive(Args, Debug)]
pub(crate) struct Logout {
    /// The server's name in the configuration, or its address
    #[arg(value_name = "SERVER|URL")]
    pub server: String,
}

/// `config`
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Write a first longhaul.toml
    Init {
        /// Where to
        #[arg(default_value = "longhaul.toml")]
        file: PathBuf,
    },
    /// Say everything that is wrong
    Check,
    /// Print each setting and its value
    Show,
    /// Print the JSON Schema of the configuration
    Schema,
}

/// `completions`
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `man`
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
}

/// `ask`
#[derive(Args, Debug)]
pub(crate) struct Ask {
    /// What to ask
    #[arg(long, visible_alias = "message")]
    pub text: Option<String>,
    /// Answers to choose from
    #[arg(long, value_delimiter = ',')]
    pub choices: Vec<String>,
    /// What is shown as the answer until another is given
    #[arg(long)]
    pub default: Option<String>,
    /// A JSON Schema of the form to fill in; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["choices", "default"])]
    pub form: Option<PathBuf>,
}

/// `progress`
#[derive(Args, Debug)]
pub(crate) struct Progress {
    /// So far
    pub done: f64,
    /// In all
    pub total: Option<f64>,
    /// A line about it
    pub message: Option<String>,
}

/// The states of a task, as `--status` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Status {
    Held,
    Queued,
    Running,
    Asking,
    Stopping,
    Done,
    Failed,
    Cancelled,
    Lost,
}

impl From<Status> for State {
    fn from(status: Status) -> State {
        match status {
            Status::Held => State::Held,
            Status::Queued => State::Queued,
            Status::Running => State::Running,
            Status::Asking => State::Asking,
            Status::Stopping => State::Stopping,
            Status::Done => State::Done,
            Status::Failed => State::Failed,
            Status::Cancelled => State::Cancelled,
            Status::Lost => State::Lost,
        }
    }
}
