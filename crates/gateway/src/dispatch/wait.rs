//! `longhaul_wait`: the tool with which a model waits for a task, sees its tasks and cancels one.
//!
//! `call` comes here by the tool's name. A wait is a held call of its own and never a task; it begins nothing.

use std::sync::LazyLock;

use longhaul_core::{Millis, Span};
use longhaul_mcp::{
    Client, Reply, RpcError, clean,
    frame::Raw,
    reply::{Annotations, TaskSupport, Tool as Listing},
    request::{CallTool, LogLevel, ProgressToken, Takes},
};
use longhaul_store::{List, Query, Row, Scope, Snapshot};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Conversation, Dispatch,
    call::misfit_result,
    held::{Arrival, Held},
    hold::{Stay, Terms, Waits, age, standing},
    join::{self, Name},
    shown::shown,
    store_reply,
};
use crate::{
    admin::api,
    config::WAIT_TOOL,
    gate::{self, Action, View},
    identity::Caller,
    quota::Place,
};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    task: Option<String>,
    #[serde(default)]
    since: Option<u64>,
    #[serde(default)]
    cancel: Option<bool>,
}

/// A wait for one task.
struct Wait {
    session: Option<Conversation>,
    client: Client,
    progress_token: Option<ProgressToken>,
    log_level: Option<LogLevel>,
    since: u64,
    began: Instant,
    place: Place,
}

/// The tool as it is listed.
pub(super) fn listing() -> Listing {
    static SCHEMA: LazyLock<Raw> = LazyLock::new(|| {
        Raw::of(&json!({
            "type": "object",
            "properties": {
                "task": {
                    "type": "string",
                    "description": "The six characters that name the task. Without it, your tasks are listed.",
                },
                "since": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "The number that the last reply about this task gave.",
                },
                "cancel": {
                    "type": "boolean",
                    "description": "Ends the task instead of waiting for it.",
                },
            },
            "additionalProperties": false,
        }))
        .expect("a JSON value always serializes")
    });
    Listing {
        name: WAIT_TOOL.to_owned(),
        title: Some("Wait for a task".to_owned()),
        description: Some(
            "Waits for a task that another tool left running, and returns that tool's result. Use it when a reply \
             says STILL RUNNING or WAITING FOR AN ANSWER. Without `task` it lists your open tasks and those that \
             ended lately."
                .to_owned(),
        ),
        input_schema: SCHEMA.clone(),
        output_schema: None,
        annotations: Annotations {
            open_world: Some(false),
            ..Annotations::default()
        },
        task_support: TaskSupport::Forbidden,
        relayed: None,
    }
}

impl Dispatch {
    pub(super) async fn wait_call(
        &self,
        caller: &Caller,
        session: Option<&Conversation>,
        client: Client,
        call: CallTool,
        began: Instant,
    ) -> Result<Held, Box<Reply>> {
        let error = |error: RpcError| Box::new(Reply::Error(error));
        if client.takes == Takes::AtOnce {
            //
            return Err(error(RpcError::plain(
                -32601,
                format!("{WAIT_TOOL} is never a task"),
            )));
        }
        let arguments = match &call.arguments {
            Some(raw) => raw.read::<Arguments>().map_err(|why| {
                let why = clean(&why.to_string(), MISFIT_MAX);
                Box::new(Reply::Result(misfit_result(WAIT_TOOL, &[why])))
            })?,
            None => Arguments::default(),
        };
        let place = self.held_place(caller, &[]).map_err(error)?;
        let Some(name) = arguments.task else {
            if arguments.cancel == Some(true) {
                let why = "`cancel` needs `task`: the name of the task to end".to_owned();
                return Err(Box::new(Reply::Result(misfit_result(WAIT_TOOL, &[why]))));
            }
            let list = self.listed_tasks(caller).await.map_err(error)?;
            return Err(Box::new(list));
        };
        let Some((row, now)) = self.task_named(caller, &name).await.map_err(error)? else {
            return Err(Box::new(no_such_task(&name)));
        };
        if arguments.cancel == Some(true) {
            let ended = self.ended_by_name(caller, &row, now).await.map_err(error)?;
            return Err(Box::new(ended));
        }
        let wait = Wait {
            session: session.cloned(),
            // A wait is answered as a plain call is, whatever its client takes.
            client: Client {
                takes: Takes::Never,
                ..client
            },
            progress_token: call.progress_token,
            log_level: call.log_level,
            since: arguments.since.unwrap_or(0),
            began,
            place,
        };
        self.wait_for(caller, wait, &row).await.map_err(error)
    }

    async fn wait_for(&self, caller: &Caller, wait: Wait, row: &Row) -> Result<Held, RpcError> {
        let name = self.join_name(row);
        let terms = Terms::of_wait(self.is_joinable(row, &name).await?);
        let with_progress = wait.progress_token.is_some();
        let limit = self
            .hold_limit(caller, &terms, wait.client.takes, with_progress)
            .await;
        let waits = Waits::ByName { since: wait.since };
        let mut stay = Stay::new(waits, wait.began, limit);
        stay.join = Some(name);
        stay.knows = self.known_question(row.id, waits);
        Ok(self.hold(Arrival {
            caller: caller.clone(),
            session: wait.session,
            client: wait.client,
            task: row.id,
            notes: None,
            digest: row.digest,
            terms,
            stay,
            offered: Vec::new(),
            progress_token: wait.progress_token,
            log_level: wait.log_level,
            place: wait.place,
        }))
    }

    /// Whether an equal call would wait for this task too.
    async fn is_joinable(&self, row: &Row, name: &Name) -> Result<bool, RpcError> {
        let (task, here) = (row.id, self.inner.engine.runner());
        let scope = Scope::record(name.key.clone());
        let name = name.clone();
        let judge = move |snapshot: &Snapshot| {
            let join = join::candidate(snapshot, &name, here, None);
            (None, join.is_some_and(|join| join.task == task))
        };
        self.inner
            .engine
            .keep(scope, judge)
            .await
            .map_err(|error| store_reply(&error))
    }

    /// The caller's own task of this name. One that is another's and one that does not exist are the same (G-3).
    async fn task_named(&self, caller: &Caller, name: &str) -> Result<Option<(Row, Millis)>, RpcError> {
        let query = Query::Named {
            owner: caller.owner.clone(),
            name: name.to_ascii_lowercase(),
        };
        let found = self
            .inner
            .engine
            .read(query)
            .await
            .map_err(|error| store_reply(&error))?;
        let mine = |row: &Row| {
            let view = View::of_task(Action::Get, &caller.owner, Some(&row.owner));
            gate::judge(&view).is_ok()
        };
        let row = found.rows.into_iter().next().filter(mine);
        Ok(row.map(|row| (row, found.now)))
    }

    async fn ended_by_name(&self, caller: &Caller, row: &Row, now: Millis) -> Result<Reply, RpcError> {
        let before = shown(row, now);
        if before.state.is_settled() || before.state == api::State::Stopping {
            let text = format!(
                "{} ({}) had ended before: {}.",
                row.name,
                row.tool,
                ending(&before)
            );
            return Ok(said(&text, Some(&task_json(&before)), false));
        }
        self.end(caller, row.id).await?;
        let row = self.row(row.id).await?.ok_or_else(RpcError::task_expired)?;
        let after = shown(&row, now);
        let text = format!("{} ({}) is cancelled: {}.", row.name, row.tool, ending(&after));
        Ok(said(&text, Some(&task_json(&after)), false))
    }

    async fn listed_tasks(&self, caller: &Caller) -> Result<Reply, RpcError> {
        let view = View::of_task(Action::List, &caller.owner, None);
        gate::judge(&view).map_err(gate::Refusal::reply)?;
        let mut tasks = Vec::new();
        for open in [true, false] {
            let query = List {
                owner: Some(caller.owner.clone()),
                open: Some(open),
                hidden: open,
                limit: LISTED_MAX,
                ..List::default()
            };
            let found = self
                .inner
                .engine
                .read(Query::List(query))
                .await
                .map_err(|error| store_reply(&error))?;
            let lately = |row: &Row| open || found.now.since(row.updated_at) <= LATELY;
            for row in found.rows.iter().filter(|row| lately(row)) {
                tasks.push((line(row, found.now), task_json(&shown(row, found.now))));
            }
        }
        let text = match tasks.as_slice() {
            [] => "No task of yours is open, and none ended in the last hour.".to_owned(),
            tasks => {
                let lines: Vec<&str> = tasks.iter().map(|(line, _)| line.as_str()).collect();
                format!(
                    "Your tasks, the newest first:\n{}\nWait for one: {WAIT_TOOL} {{\"task\":\"NAME\"}}.",
                    lines.join("\n")
                )
            }
        };
        let tasks: Vec<Value> = tasks.into_iter().map(|(_, task)| task).collect();
        Ok(said(&text, Some(&json!({ "tasks": tasks })), false))
    }
}

/// One task in one line of a list.
fn line(row: &Row, now: Millis) -> String {
    let task = shown(row, now);
    let how = if task.state.is_settled() || task.state == api::State::Stopping {
        format!("{}, {} ago", ending(&task), age(now.since(row.updated_at)))
    } else {
        format!("{}, {}", word(task.state), standing(row, now))
    };
    format!("{} {}: {how}", row.name, row.tool)
}

/// How a task ended, and what is known of its work.
fn ending(task: &api::Task) -> String {
    let work = match task.stop {
        None => "",
        Some(api::Stop::NotStarted) => ", its work never began",
        Some(api::Stop::Stopping) => ", its work is being stopped",
        Some(api::Stop::Stopped) => ", nothing of its work is left",
        Some(api::Stop::Unknown) => ", its work may still go on",
    };
    format!("{}{work}", word(task.state))
}

fn word(state: api::State) -> &'static str {
    match state {
        api::State::Held => "waits for an approval",
        api::State::Queued => "queued",
        api::State::Running => "running",
        api::State::Asking => "asks its user",
        api::State::Stopping => "cancelled",
        api::State::Done => "done",
        api::State::Failed => "failed",
        api::State::Cancelled => "cancelled",
        api::State::Lost => "lost",
    }
}

fn task_json(task: &api::Task) -> Value {
    let mut told = json!({
        "task": task.name,
        "tool": task.tool,
        "state": task.state,
        "ageMs": task.now_ms.saturating_sub(task.created_at_ms),
    });
    if let Some(stop) = task.stop {
        told["stop"] = json!(stop);
    }
    if let Some(progress) = &task.progress {
        told["progress"] = json!(progress.done);
        if let Some(total) = progress.total {
            told["total"] = json!(total);
        }
    }
    told
}

fn no_such_task(name: &str) -> Reply {
    let name = clean(name, NAME_MAX);
    let text = format!("No task of yours is called `{name}`. Without `task`, {WAIT_TOOL} lists them.");
    said(&text, None, true)
}

fn said(text: &str, structured: Option<&Value>, is_error: bool) -> Reply {
    let mut result = json!({ "content": [{ "type": "text", "text": text }], "isError": is_error });
    if let Some(structured) = structured {
        result["structuredContent"] = structured.clone();
    }
    Reply::Result(Raw::of(&result).expect("a JSON value always serializes"))
}

/// The most tasks that are listed of those that are open, and of those that ended.
const LISTED_MAX: u32 = 50;
/// How long ago a task may have ended that is still listed.
const LATELY: Span = Span::seconds(60 * 60);
/// The longest name that a reply repeats, in characters.
const NAME_MAX: usize = 40;
/// The longest complaint about the arguments, in characters.
const MISFIT_MAX: usize = 200;
