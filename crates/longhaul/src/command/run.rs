//! `longhaul run`: calls a tool, shows its progress, asks its questions, prints its result.

use std::{collections::BTreeMap, time::Duration};

use longhaul_gateway::{
    admin::api::{Answer, Call, Outcome as Ended, State, Task, Tool},
    local::form,
};
use serde_json::Value;

use crate::{
    arguments, background,
    client::Client,
    exit::{Exit, Failure, Outcome},
    flags::{Common, Run},
    places, prompt,
    screen::{self, Ticker, line, say, say_json, tell},
};

/// How often a server that went away is looked for again, and how long.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);
const RECONNECT_TRIES_MAX: u32 = 60;

/// Runs the command.
pub(crate) async fn run(common: &Common, flags: &Run) -> Outcome {
    screen_raw(flags.raw)?;
    let client = background::reach(common).await?;
    let tool = find(&client.tools().await?.tools, &flags.tool)?;
    let arguments = arguments::object(&tool.input_schema, &flags.arguments).map_err(|failure| {
        let usage = format!(
            "longhaul run {} {}",
            tool.name,
            arguments::usage(&form::fields(&tool.input_schema))
        );
        Failure {
            fix: Some(usage.trim_end().to_owned()),
            ..failure
        }
    })?;
    let call = Call {
        tool: tool.name,
        arguments,
        key: flags.key.clone(),
        session: flags.session.clone(),
    };
    let started = client.run(&call).await?;
    if flags.no_wait {
        match common.json {
            true => say_json(&started)?,
            false => say(&started.task.name),
        }
        return Ok(Exit::Done);
    }
    let name = started.task.name.clone();
    tell(format!(
        "{} is task {name}{}",
        line(&call.tool),
        if started.joined {
            " (already under way)"
        } else {
            ""
        }
    ));
    follow(&client, started.task).await?;
    let outcome = client.result(&name).await?;
    print(&outcome, common.json, flags.raw)
}

/// Follows a task until it has ended: progress on the terminal, questions to the person.
pub(crate) async fn follow(client: &Client, task: Task) -> Result<Task, Failure> {
    let name = task.name.clone();
    tokio::select! {
        ended = follow_to_end(client, task) => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::fault(error.to_string()))?;
            Err(Failure::new(Exit::Interrupted, "interrupted", format!("task {name} goes on"))
                .fix(format!("longhaul tasks watch {name}, or longhaul cancel {name}")))
        }
    }
}

async fn follow_to_end(client: &Client, mut task: Task) -> Result<Task, Failure> {
    let mut ticker = Ticker::new();
    let mut typed = None;
    let mut told = BTreeMap::<String, u8>::new();
    let mut earlier = BTreeMap::<String, prompt::Earlier>::new();
    let mut tries = 0;
    loop {
        show(&mut ticker, &task);
        if task.state.is_finished() {
            return Ok(task);
        }
        let question = task
            .questions
            .iter()
            .find(|question| told.get(&question.key) != Some(&question.misfits));
        if let Some(question) = question.cloned() {
            ticker.clear();
            told.insert(question.key.clone(), question.misfits);
            if prompt::is_possible() {
                let typed = typed.get_or_insert_with(prompt::Typed::begin);
                let earlier = earlier.entry(question.key.clone()).or_default();
                if let Some(answer) = prompt::ask(typed, &task, &question, earlier).await {
                    if give(client, &task.name, answer).await? == Given::Misfit {
                        // Asked again: the question is open with one misfit more.
                        told.remove(&question.key);
                    }
                    task = client.task(&task.name).await?;
                    continue;
                }
            }
            prompt::show(&task, &question);
            tell(format!("  answer   longhaul answer {}", task.name));
        }
        match next(client, &task).await {
            Ok(Some(newer)) => (task, tries) = (newer, 0),
            // The server drains or was killed: what the task becomes is known when it is back.
            Ok(None) => {}
            Err(failure) if failure.exit == Exit::Unreachable && tries < RECONNECT_TRIES_MAX => {
                ticker.show("the server is away; waiting for it");
                tries += 1;
                tokio::time::sleep(RECONNECT_EVERY).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

async fn next(client: &Client, task: &Task) -> Result<Option<Task>, Failure> {
    Ok(client.watch(&task.name, task.version).await?.next().await)
}

#[derive(PartialEq, Eq)]
enum Given {
    Taken,
    Misfit,
}

async fn give(client: &Client, name: &str, answer: Answer) -> Result<Given, Failure> {
    match client.answer(name, &answer).await {
        Ok(_) => Ok(Given::Taken),
        Err(failure) if failure.reason == "misfit" => {
            tell(format!("  {}", line(&failure.message)));
            Ok(Given::Misfit)
        }
        // Answered elsewhere, or the task has ended meanwhile.
        Err(failure) if failure.exit == Exit::Refused || failure.exit == Exit::Usage => {
            tell(format!("  {}", line(&failure.message)));
            Ok(Given::Taken)
        }
        Err(failure) => Err(failure),
    }
}

fn show(ticker: &mut Ticker, task: &Task) {
    let age = screen::age(task.now_ms.saturating_sub(task.created_at_ms));
    let begun = format!("{}  {}  {age}  ", task.name, task.state.word());
    let room = screen::width().saturating_sub(begun.len());
    ticker.show(&format!("{begun}{}", screen::now(task, room)));
}

/// Prints how a task ended; its outcome is the command's.
pub(crate) fn print(outcome: &Ended, as_json: bool, raw: bool) -> Outcome {
    match as_json {
        true => say_json(outcome)?,
        false => print_for_people(outcome, raw),
    }
    Ok(exit(outcome))
}

fn print_for_people(outcome: &Ended, raw: bool) {
    let shown = |text: &str| if raw { text.to_owned() } else { screen::block(text) };
    if let Some(result) = outcome
        .result
        .as_deref()
        .and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok())
    {
        let blocks = result["content"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for block in blocks {
            match (
                block["text"].as_str(),
                block["type"].as_str().unwrap_or("content"),
            ) {
                (Some(text), _) => say(shown(text)),
                (None, kind) => say(format!("[{}: see --json]", line(kind))),
            }
        }
        if blocks.is_empty() && !result["structuredContent"].is_null() {
            say(screen::json(&format!("{:#}", result["structuredContent"])));
        }
    }
    if let Some(error) = outcome
        .error
        .as_deref()
        .and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok())
    {
        tell(format!(
            "longhaul: {}",
            screen::block(error["message"].as_str().unwrap_or("the call failed"))
        ));
    }
    let name = &outcome.name;
    let why = outcome.reason.as_deref().unwrap_or_default();
    match outcome.state {
        State::Cancelled | State::Stopping => {
            tell(format!("longhaul: task {name} was cancelled ({})", line(why)))
        }
        State::Lost => tell(format!(
            "longhaul: task {name} was interrupted: the process that ran it ended, and it was not run again; what it \
             did is unknown"
        )),
        State::Failed if outcome.error.is_none() && outcome.result.is_none() => {
            tell(format!("longhaul: task {name} failed ({})", line(why)));
        }
        State::Held | State::Queued | State::Running | State::Asking | State::Done | State::Failed => {}
    }
}

/// A task's own outcome as an exit code.
pub(crate) fn exit(outcome: &Ended) -> Exit {
    match outcome.state {
        State::Done => Exit::Done,
        State::Cancelled | State::Stopping => Exit::Cancelled,
        State::Failed => match outcome.reason.as_deref() {
            Some("expired" | "no_answer") => Exit::TimedOut,
            Some(_) | None => Exit::Failed,
        },
        State::Lost | State::Held | State::Queued | State::Running | State::Asking => Exit::Failed,
    }
}

fn find(tools: &[Tool], name: &str) -> Result<Tool, Failure> {
    let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
    let is_it = |tool: &&Tool| tool.full_name.as_deref() == Some(name);
    let found = tools.iter().find(|tool| tool.name == name);
    if let Some(tool) = found.or_else(|| tools.iter().find(is_it)) {
        return Ok(tool.clone());
    }
    let failure = Failure::new(
        Exit::NotFound,
        "unknown_tool",
        format!("no tool is named `{}`", line(name)),
    );
    Err(match (names.is_empty(), places::unread_config()) {
        (false, _) => failure.fix(format!("tools: {}", names.join(", "))),
        (true, Some(file)) => failure.fix(format!(
            "the server has no tools; `{}` here is read by `longhaul serve`, or with --config",
            file.display()
        )),
        (true, None) => failure.fix("the server has no tools: longhaul config init, then longhaul serve"),
    })
}

/// `--raw` never reaches a terminal (S16).
pub(crate) fn screen_raw(raw: bool) -> Result<(), Failure> {
    use std::io::IsTerminal;
    match raw && std::io::stdout().is_terminal() {
        true => Err(
            Failure::usage("`--raw` writes control characters as they are, and this is a terminal")
                .fix("longhaul … --raw > FILE"),
        ),
        false => Ok(()),
    }
}
