//! A command-line program as a tool: its template filled in, run, followed, and its end made a result.
//!
//! The worker calls [`Command::run`](Tool::run); `catalog` is filled from [`entry`]. It starts programs only
//! through `engine::process`, and nothing that a program sends leaves here except through `outbound`.

pub mod arguments;
pub mod expand;

mod descriptor;
mod files;
mod lines;
mod printed;
mod result;

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use longhaul_core::{
    Span,
    event::Ask,
    task::{OnCrash, Rules},
};
use longhaul_engine::{
    process::{self, Ended, Fact, Facts, Input, Lines, Orders, Reason, Shim, Spec},
    tool::{Call, Context, Finish, Running, Settled, Tool},
};
use longhaul_mcp::{ToolRule, frame::Raw, header, reply, request::Answers, url_rule::Reach};
use serde_json::Value as Json;

use self::{
    arguments::{Checker, Values},
    descriptor::Said,
    lines::Patterns,
};
use crate::{
    catalog::{Entry, Holding},
    config::{self, Limits, Tasks},
    identity,
    outbound::{self, Note, Question, Unasked},
    view,
};

/// Variables that every program gets from the server's environment.
pub const ENV_PASSED: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR",
];
/// The most questions of one attempt that wait for their turn; one more is declined.
pub const QUESTIONS_WAITING_MAX: usize = 64;

/// What all commands of this process share.
#[derive(Clone, Debug)]
pub struct Host {
    /// How the shim is started.
    pub shim: Shim,
    /// This runner, as text.
    pub runner: String,
    /// The folder for large output, mode 0700.
    pub spool: PathBuf,
    /// The server's own environment; each program gets a part of it.
    pub env: Vec<(OsString, OsString)>,
    /// What tools may send.
    pub limits: Limits,
    /// How long a program may take to end after TERM.
    pub grace: Span,
    /// The most questions of one attempt that are open at once.
    pub questions_max: u32,
}

/// A configured command.
pub struct Command {
    tool: config::Tool,
    host: Arc<Host>,
    checker: Arc<Checker>,
    output_schema: Option<jsonschema::Validator>,
    patterns: Patterns,
    /// The program as the configuration names it.
    shown: String,
}

/// The catalog's entry for a tool.
///
/// # Errors
/// A schema or pattern that cannot be compiled; a configuration that was loaded has none.
pub fn entry(tool: &config::Tool, tasks: &Tasks, host: &Arc<Host>) -> Result<Entry, String> {
    let command = Command::new(tool, host)?;
    let raw = |json: &Json| Raw::of(json).map_err(|error| error.to_string());
    let hints = &tool.annotations;
    Ok(Entry {
        listing: reply::Tool {
            name: tool.name.clone(),
            title: tool.title.clone(),
            description: tool.description.clone(),
            input_schema: raw(&tool.args.schema)?,
            output_schema: tool
                .output_schema
                .as_ref()
                .map(|schema| raw(&schema.json))
                .transpose()?,
            annotations: reply::Annotations {
                read_only: hints.read_only,
                destructive: hints.destructive,
                idempotent: hints.idempotent,
                open_world: hints.open_world,
            },
            task_support: match tool.task {
                config::TaskUse::Required => reply::TaskSupport::Required,
                config::TaskUse::Optional => reply::TaskSupport::Optional,
                config::TaskUse::Forbidden => reply::TaskSupport::Forbidden,
            },
            relayed: None,
        },
        rule: ToolRule {
            mirrors: header::mirrors(&raw(&tool.args.schema)?).map_err(|error| error.to_string())?,
            requires_task: tool.task == config::TaskUse::Required && !tool.asks_first,
            forbids_task: tool.task == config::TaskUse::Forbidden,
        },
        rules: rules(tool, tasks),
        ttl: tool.ttl.unwrap_or(tasks.ttl),
        promote_after: tool.promote_after.unwrap_or(tasks.promote_after),
        asks_first: tool.asks_first,
        asks_again: tool.on_misfit == config::OnMisfit::AskAgain,
        needs: needs(&tool.needs),
        holding: Holding {
            hold: tool.hold,
            join: tool.join,
            on_abandon: tool.on_abandon,
            show_schema: tool.show_output_schema.unwrap_or(tasks.show_output_schema),
        },
        server_tool: None,
        is_of_session: false,
        is_wrapped: false,
        arguments: Arc::clone(&command.checker) as Arc<_>,
        work: Arc::new(command),
    })
}

fn needs(listed: &[config::Need]) -> Answers {
    Answers {
        form: listed.contains(&config::Need::Form),
        url: listed.contains(&config::Need::Url),
        sampling: listed.contains(&config::Need::Sampling),
        roots: listed.contains(&config::Need::Roots),
    }
}

/// The rules that the tool's tasks are born with.
pub fn rules(tool: &config::Tool, tasks: &Tasks) -> Rules {
    Rules {
        on_crash: match tool.on_crash {
            config::OnCrash::Fail => OnCrash::Fail,
            config::OnCrash::Rerun { starts_max, backoff } => OnCrash::Rerun { starts_max, backoff },
        },
        on_silence: tool.on_silence.rule(),
        fail_when_nobody_can_answer: match tool.on_nobody {
            config::OnNobody::Tool => false,
            config::OnNobody::Fail => true,
        },
        // A question never outlives its task, so the longest time to live stands for none.
        question_deadline: tool
            .question_deadline
            .or(tasks.input_timeout)
            .unwrap_or(tasks.ttl_max),
        // No tool of this version is held for an approval.
        approval_lasts: Span(0),
        questions_max: tasks.questions_max,
    }
}

impl Command {
    /// A tool that runs this command.
    ///
    /// # Errors
    /// A schema or pattern that cannot be compiled; a configuration that was loaded has none.
    pub fn new(tool: &config::Tool, host: &Arc<Host>) -> Result<Command, String> {
        let schema = tool
            .output_schema
            .as_ref()
            .map(|schema| jsonschema::options().build(&schema.json));
        let shown = tool.command.items.first().and_then(|(_, item)| item.literal());
        Ok(Command {
            checker: Arc::new(Checker::new(tool)?),
            output_schema: schema.transpose().map_err(|error| error.to_string())?,
            patterns: Patterns::of(tool)?,
            shown: shown.unwrap_or_default(),
            tool: tool.clone(),
            host: Arc::clone(host),
        })
    }

    /// The most bytes of a result's payload: some room is left for what stands around it.
    fn room(&self) -> u64 {
        self.host.limits.result_max.0.saturating_sub(1024)
    }

    fn cwd(&self) -> PathBuf {
        absolute(self.tool.cwd.as_ref().unwrap_or(&self.tool.folder))
    }

    /// The program's environment: a few of the server's variables, those that the tool passes, and its own. The
    /// folder of our own program comes last in `PATH`, so that scripts find `longhaul ask`.
    fn env(&self) -> Vec<(OsString, OsString)> {
        let mut env = passed(&self.host.env, &self.tool.env_pass);
        for (name, value) in &self.tool.env {
            env.retain(|(own, _)| own.as_os_str() != name.as_str());
            env.push((name.into(), value.into()));
        }
        if let Some(folder) = self
            .host
            .shim
            .program
            .parent()
            .filter(|folder| folder.is_absolute())
        {
            let path = env
                .iter()
                .find(|(name, _)| name == "PATH")
                .map(|(_, path)| path.clone());
            let mut folders: Vec<PathBuf> = path.iter().flat_map(std::env::split_paths).collect();
            folders.push(folder.to_owned());
            if let Ok(path) = std::env::join_paths(folders) {
                env.retain(|(name, _)| name != "PATH");
                env.push(("PATH".into(), path));
            }
        }
        env
    }

    fn spec(&self, call: &Call, values: &Values) -> Result<Spec, String> {
        let argv = expand::argv(&self.tool, values).map_err(|error| error.to_string())?;
        let input = expand::stdin(&self.tool, values).map_err(|error| error.to_string())?;
        let (env, cwd) = (self.env(), self.cwd());
        let path = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, path)| path.clone())
            .unwrap_or_default();
        let program = program(&self.tool, &self.shown, &path).map_err(|error| cannot(&error))?;
        let bytes = |bytes: config::Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        let span = |span: Span| Duration::from_millis(span.0);
        let limits = &self.host.limits;
        Ok(Spec {
            program,
            argv,
            cwd,
            env,
            input: input.map_or(Input::Nothing, Input::Bytes),
            timeout: self.tool.timeout.map(span),
            idle_timeout: self.tool.idle_timeout.map(span),
            memory_max: self.tool.memory_max.map(|bytes| bytes.0),
            nice: self
                .tool
                .nice
                .try_into()
                .expect("at most 19, as the configuration was checked"),
            grace: span(self.host.grace),
            limits: process::Limits {
                output_max: bytes(limits.result_max),
                spill_max: limits.output_max.0,
                error_tail_max: bytes(limits.stderr_tail).saturating_mul(4),
                message_max: bytes(limits.question_max),
                ..process::Limits::default()
            },
            lines: if self.patterns.is_empty() {
                Lines::Neither
            } else {
                Lines::Both
            },
            mark: call.task.to_string(),
            runner: self.host.runner.clone(),
            attempt: call.attempt,
            idempotency_key: Some(call.task.to_string()),
            spool: self.host.spool.clone(),
            shim: self.host.shim.clone(),
        })
    }

    async fn attempt(&self, call: Call, context: Context) -> Finish {
        let args = call
            .args
            .bytes()
            .and_then(|bytes| std::str::from_utf8(bytes).ok());
        let values = match self
            .checker
            .values(args.filter(|text| !text.is_empty()).unwrap_or("{}"))
        {
            Ok(values) => values,
            Err(misfits) => return result::refused(&misfits.join("\n")),
        };
        let spec = match self.spec(&call, &values) {
            Ok(spec) => spec,
            Err(why) => return result::refused(&why),
        };
        let (facts, orders) = match process::start(spec).await {
            Ok(started) => started,
            Err(error) => return result::refused(&cannot(&error)),
        };
        let secrets = self.checker.secrets(&values);
        context.runs(orders.view().with_secrets(secrets.clone()));
        let declared = view::Context::decode(&call.context).answers.into();
        let reach = if identity::is_local(&call.owner) || longhaul_core::fault!("links-lead-anybody-here") {
            Reach::ThisMachine
        } else {
            Reach::Public
        };
        let mut following = Following::new(self, context, orders, declared, reach);
        let Some(ended) = following.follow(facts).await else {
            return result::refused(&format!("`{}` ended, and how was not seen.", self.shown));
        };
        match ended.reason {
            Reason::Stopped if following.nobody && ended.confirmed => {
                Finish::Failed(longhaul_core::Reason::NobodyToAnswer)
            }
            Reason::Stopped => Finish::Stopped {
                confirmed: ended.confirmed,
            },
            Reason::ShimLost => Finish::Lost {
                confirmed: ended.confirmed,
            },
            Reason::Exited | Reason::TimedOut | Reason::Idle | Reason::OutOfMemory => {
                result::finish(self, *ended, &secrets)
            }
        }
    }
}

/// Where a tool's program is. One written with a slash starts at the folder of the configuration, which need not
/// be the tool's `cwd`.
///
/// # Errors
/// Why it cannot be started.
pub fn program(tool: &config::Tool, shown: &str, path: &OsStr) -> Result<PathBuf, process::Unstartable> {
    process::resolve(OsStr::new(shown), path, &absolute(&tool.folder))
}

/// What a program gets of the server's own environment: what every program does, and these variables.
pub(crate) fn passed(env: &[(OsString, OsString)], more: &[String]) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsStr| {
        let more = more.iter().map(String::as_str);
        ENV_PASSED.iter().copied().chain(more).any(|pass| name == pass)
    };
    env.iter().filter(|(name, _)| passes(name)).cloned().collect()
}

/// An empty path stands for the server's own folder.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Why a program cannot be started, with every cause.
fn cannot(error: &dyn std::error::Error) -> String {
    format!("cannot {}", causes(error))
}

/// An error with its causes, each after a colon.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

impl Tool for Command {
    fn run(&self, call: Call, context: Context) -> Running {
        let command = Command {
            tool: self.tool.clone(),
            host: Arc::clone(&self.host),
            checker: Arc::clone(&self.checker),
            output_schema: self.output_schema.clone(),
            patterns: self.patterns.clone(),
            shown: self.shown.clone(),
        };
        Box::pin(async move { command.attempt(call, context).await })
    }

    fn concurrency_max(&self) -> usize {
        self.tool.concurrency as usize
    }
}

/// The ids of questions that were asked together, and how each was settled; `None` when the task ended first.
type Answered = (Vec<Raw>, Option<Vec<Settled>>);

/// A running program: what it says is passed on, and answers are passed back.
struct Following<'a> {
    command: &'a Command,
    context: Context,
    orders: Orders,
    /// The kinds of question that the caller declared.
    declared: Answers,
    /// How far a link may lead them.
    reach: Reach,
    open: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// How many questions are open; each future stands for those that were asked together.
    open_count: usize,
    waiting: VecDeque<Vec<(Raw, Question)>>,
    asked: u32,
    /// A question that nobody can answer ends the task.
    nobody: bool,
}

impl<'a> Following<'a> {
    fn new(
        command: &'a Command,
        context: Context,
        orders: Orders,
        declared: Answers,
        reach: Reach,
    ) -> Following<'a> {
        let open = FuturesUnordered::new();
        Following {
            command,
            context,
            orders,
            declared,
            reach,
            open,
            open_count: 0,
            waiting: VecDeque::new(),
            asked: 0,
            nobody: false,
        }
    }

    async fn follow(&mut self, mut facts: Facts) -> Option<Box<Ended>> {
        let context = self.context.clone();
        let stop = context.stop();
        tokio::pin!(stop);
        let mut stopping = false;
        loop {
            tokio::select! {
                () = &mut stop, if !stopping => {
                    stopping = true;
                    self.orders.stop();
                }
                Some((ids, settled)) = self.open.next(), if !self.open.is_empty() => {
                    self.settled(&ids, settled);
                }
                fact = facts.next() => match fact? {
                    Fact::Ended(ended) => return Some(ended),
                    Fact::Line { bytes, more: false, .. } => {
                        if let Some(note) = self.command.patterns.note(&bytes) {
                            self.context.note(note.encode());
                        }
                    }
                    Fact::Message(line) => self.hear(&line),
                    Fact::TooLong { start } => self.too_long(&start),
                    Fact::Line { more: true, .. } | Fact::Closed(_) | Fact::Garbled => {}
                },
            }
        }
    }

    fn hear(&mut self, line: &[u8]) {
        let asks = match descriptor::said(line) {
            Said::Progress(note) if !note.is_empty() => return self.context.note(note.encode()),
            Said::Log(log) => return self.context.tell(log.cleaned().encode()),
            Said::Progress(_) | Said::Unknown => return,
            Said::Ask(asks) => asks,
        };
        let waiting: usize = self.waiting.iter().map(Vec::len).sum();
        if asks.len() > self.open_max() || waiting + asks.len() > QUESTIONS_WAITING_MAX {
            asks.iter()
                .for_each(|(id, _)| self.tell(descriptor::unasked(id, &Unasked::TooMany)));
            return;
        }
        self.waiting.push_back(asks);
        self.ask_waiting();
    }

    /// A line of which only the start was read. When it asks, the program is told that nobody was asked, and whoever
    /// looks at the task why.
    fn too_long(&self, start: &[u8]) {
        let Some(ids) = descriptor::cut(start) else { return };
        let why = Unasked::LineTooLong {
            max: self.command.host.limits.question_max.0,
        };
        self.context
            .note(Note::new(None, None, Some(&format!("A question was not asked: {why}"))).encode());
        for id in &ids {
            self.tell(descriptor::unasked(id, &why));
        }
    }

    fn open_max(&self) -> usize {
        self.command.host.questions_max as usize
    }

    /// Asks as many questions as may be open at once. Those that came together are asked together.
    fn ask_waiting(&mut self) {
        while let Some(asks) = self.waiting.pop_front() {
            if self.open_count + asks.len() > self.open_max() {
                self.waiting.push_front(asks);
                break;
            }
            self.ask(asks);
        }
        self.orders.waiting(self.open_count > 0);
    }

    fn ask(&mut self, together: Vec<(Raw, Question)>) {
        let (mut ids, mut asks) = (Vec::new(), Vec::new());
        for (id, question) in together {
            match self.checked(&question) {
                Ok(ask) => {
                    ids.push(id);
                    asks.push(ask);
                }
                Err(why) => self.unasked(&id, &why),
            }
        }
        if asks.is_empty() {
            return;
        }
        self.open_count += asks.len();
        let context = self.context.clone();
        self.open
            .push(Box::pin(async move { (ids, context.ask(asks).await.ok()) }));
    }

    fn checked(&mut self, question: &Question) -> Result<Ask, Unasked> {
        let limits = &self.command.host.limits;
        if self.asked >= limits.asks_max {
            return Err(Unasked::TooMany);
        }
        let ask = outbound::question(question, self.reach, limits.question_max.0)?;
        let kind = question.kind()?;
        if !kind.answered_by_people() && !kind.declared_by(self.declared) {
            return Err(Unasked::Nobody);
        }
        self.asked += 1;
        Ok(ask)
    }

    fn unasked(&mut self, id: &Raw, why: &Unasked) {
        if *why == Unasked::Nobody && self.command.tool.on_nobody == config::OnNobody::Fail {
            self.nobody = true;
            self.orders.stop();
            return;
        }
        self.tell(descriptor::unasked(id, why));
    }

    fn settled(&mut self, ids: &[Raw], settled: Option<Vec<Settled>>) {
        self.open_count -= ids.len();
        let Some(settled) = settled else {
            // The task ended first; its stop is under way.
            return self.orders.stop();
        };
        for (id, settled) in ids.iter().zip(&settled) {
            self.tell(descriptor::answer(id, settled));
        }
        self.ask_waiting();
    }

    fn tell(&self, line: Vec<u8>) {
        let orders = self.orders.clone();
        // A program that does not read its answers must not keep its own stop from being seen. One that is gone
        // needs none.
        tokio::spawn(async move { orders.answer(line).await });
    }
}
