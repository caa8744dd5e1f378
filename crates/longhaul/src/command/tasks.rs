//! `longhaul tasks`: what there is, and each single thing about a task.

use longhaul_gateway::admin::api::{self, Task};

use super::{answer, cancel, run};
use crate::{
    background,
    client::task_name,
    exit::{Exit, Outcome},
    flags::{Common, Filter, Name, ResultOf, Tasks, TasksCommand},
    screen::{self, line, say, say_json},
    stored,
};

/// Runs the command.
pub(crate) async fn tasks(common: &Common, flags: &Tasks) -> Outcome {
    match (&flags.command, &flags.name) {
        (None, None) => list(common, &flags.filter).await,
        (None, Some(name)) => get(common, name).await,
        (Some(command), _) => match command {
            TasksCommand::List(filter) => list(common, filter).await,
            TasksCommand::Get(Name { name }) => get(common, name).await,
            TasksCommand::Result(ResultOf { name, raw }) => {
                run::screen_raw(*raw)?;
                let name = task_name(name)?;
                let outcome = stored::reader(common).await?.result(&name).await?;
                run::print(&outcome, common.json, *raw)
            }
            TasksCommand::Watch(Name { name }) => watch(common, name).await,
            TasksCommand::Cancel(name) => cancel::cancel(common, name).await,
            TasksCommand::Answer(flags) => answer::answer(common, flags).await,
            TasksCommand::Run(flags) => run::run(common, flags).await,
        },
    }
}

async fn list(common: &Common, filter: &Filter) -> Outcome {
    let filter = api::Filter {
        status: filter.status.map(Into::into),
        tool: filter.tool.clone(),
        session: filter.session.clone(),
        before: None,
        limit: filter.limit,
    };
    let listed = stored::reader(common).await?.list(&filter).await?;
    if common.json {
        say_json(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.tasks.is_empty() {
        say("no tasks");
        return Ok(Exit::Done);
    }
    for text in screen::tasks(&listed.tasks, screen::width()) {
        say(text);
    }
    if listed.next.is_some() {
        say("… older ones: longhaul tasks --limit 1000");
    }
    Ok(Exit::Done)
}

async fn get(common: &Common, name: &str) -> Outcome {
    let name = task_name(name)?;
    let task = stored::reader(common).await?.task(&name).await?;
    match common.json {
        true => say_json(&task)?,
        false => describe(&task),
    }
    Ok(Exit::Done)
}

async fn watch(common: &Common, name: &str) -> Outcome {
    let client = background::client(common)?;
    let task = client.task(name).await?;
    let name = task.name.clone();
    if common.json {
        // One line for each version, for programs.
        let mut versions = client.watch(&name, 0).await?;
        while let Some(task) = versions.next().await {
            let text = serde_json::to_string(&task).unwrap_or_default();
            say(screen::json(&text));
        }
        return Ok(run::exit(&client.result(&name).await?));
    }
    run::follow(&client, task).await?;
    run::print(&client.result(&name).await?, false, false)
}

fn describe(task: &Task) {
    let row = |label: &str, text: String| {
        if !text.is_empty() {
            say(format!("{label:<10} {text}"));
        }
    };
    row("task", task.name.clone());
    row("tool", line(&task.tool));
    row("server", task.server.as_deref().map(line).unwrap_or_default());
    row("state", task.state.word().to_owned());
    row("age", screen::age(task.now_ms.saturating_sub(task.created_at_ms)));
    row("from", line(task.caller()));
    row("session", line(&task.session));
    row("attempts", task.attempts.to_string());
    row(
        "progress",
        task.progress.as_ref().map(screen::progress).unwrap_or_default(),
    );
    row("status", line(&task.status));
    row("why", task.reason.as_deref().map(line).unwrap_or_default());
    row(
        "its work",
        task.stop
            .map(|stop| screen::stop(stop).to_owned())
            .unwrap_or_default(),
    );
    if let Some(left) = &task.left {
        row("", left.words());
        row("alive", screen::alive(left));
    }
    for question in &task.questions {
        row(
            "asks",
            format!("{}  \"{}\"", question.key, line(&question.message)),
        );
        row("address", question.url.as_deref().map(line).unwrap_or_default());
        row("at", question.site.as_deref().map(line).unwrap_or_default());
        row(
            "warning",
            question.warning.as_deref().map(line).unwrap_or_default(),
        );
    }
    let next = match (task.questions.is_empty(), task.state.is_finished()) {
        (false, _) => format!("longhaul answer {}", task.name),
        (true, true) => format!("longhaul tasks result {}", task.name),
        (true, false) => format!("longhaul tasks watch {}", task.name),
    };
    row("next", next);
    for (label, tail) in [("it wrote last", &task.stdout), ("standard error", &task.stderr)] {
        if !tail.is_empty() {
            say(format!("\n{label}"));
            screen::block(tail)
                .lines()
                .for_each(|text| say(format!("  {text}")));
        }
    }
}
