//! The local API's way into dispatch: the same gate and the same transactions, tasks by their short names.

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use longhaul_core::{Millis, Outcome, Phase, QuestionKey};
use longhaul_mcp::{
    Client, Reply as McpReply, RpcError,
    frame::{Obj, Raw},
    request::{Answers, CallTool, Response, Takes},
    rpc_error::{self, Data},
};
use longhaul_store::{List, Query, Row};
use serde_json::value::RawValue;

use super::{
    Dispatch,
    answers::{Unsettled, last_words},
    servers,
    shown::shown,
    store_reply,
};
use crate::{
    admin::{Backend, Entrance, Error, Peer, Reply, Who, api},
    gate::{self, Action, View},
    identity::{Caller, Origin},
    question::{Kind, Stored},
    toolset,
};

impl Backend for Dispatch {
    fn list(&self, peer: Peer, filter: api::Filter) -> Reply<'_, api::Tasks> {
        Box::pin(async move {
            let caller = caller(peer);
            self.permit(Action::List, &caller, None)?;
            let limit = filter.limit.unwrap_or(api::LIST_DEFAULT).clamp(1, api::LIST_MAX);
            let before = match &filter.before {
                Some(name) => {
                    let (row, _) = self.named(&caller, Action::Get, name).await?;
                    Some((row.created_at, row.id))
                }
                None => None,
            };
            let mut page = Page {
                caller,
                filter,
                before,
                limit: limit as usize,
                tasks: Vec::new(),
                failed: 0,
            };
            let next = page.fill(self).await?;
            Ok(api::Tasks {
                tasks: page.tasks,
                next,
            })
        })
    }

    fn get(&self, peer: Peer, name: String) -> Reply<'_, api::Task> {
        Box::pin(async move {
            let (row, now) = self.named(&caller(peer), Action::Get, &name).await?;
            Ok(self.with_tails(self.seen(&row, now), row.id))
        })
    }

    fn result(&self, peer: Peer, name: String) -> Reply<'_, api::Outcome> {
        Box::pin(async move {
            let (row, _) = self.named(&caller(peer), Action::Get, &name).await?;
            outcome(&row).ok_or_else(Error::still_running)
        })
    }

    fn cancel(&self, peer: Peer, name: String) -> Reply<'_, api::Task> {
        Box::pin(async move {
            let caller = caller(peer);
            let (row, _) = self.named(&caller, Action::Cancel, &name).await?;
            self.end(&caller, row.id).await.map_err(local)?;
            let (row, now) = self.named(&caller, Action::Get, &name).await?;
            Ok(self.seen(&row, now))
        })
    }

    fn answer(&self, peer: Peer, name: String, answer: api::Answer) -> Reply<'_, api::Task> {
        Box::pin(async move {
            let caller = caller(peer);
            let (row, now) = self.named(&caller, Action::Update, &name).await?;
            let (key, stored) = chosen(&row, now, answer.question.as_deref())?;
            let response = Response {
                key: key.to_string(),
                body: elicit_result(&answer)?,
            };
            let settled = self.settle(&caller, &row, vec![(key, stored, response)]).await;
            let counts = settled.map_err(unsettled)?;
            let (row, now) = self.named(&caller, Action::Get, &name).await?;
            let task = shown(&row, now);
            match counts {
                true => Ok(task),
                false => Err(too_late(&task, &key.to_string())),
            }
        })
    }

    fn run(&self, peer: Peer, call: api::Call) -> Reply<'_, api::Started> {
        Box::pin(async move {
            let caller = caller(peer);
            let arguments = Raw::parse(call.arguments.get())
                .map_err(|_| Error::invalid("the arguments are not a JSON object"))?;
            let client = Client {
                takes: Takes::WhenSlow,
                answers: Answers {
                    form: true,
                    url: true,
                    ..Answers::default()
                },
                session: call.session,
                ..Client::default()
            };
            let request = CallTool {
                name: call.tool,
                arguments: Some(arguments),
                responses: Vec::new(),
                request_state: None,
                idempotency_key: call.key,
                metadata: None,
                ttl_ms: None,
                progress_token: None,
                log_level: None,
                related_tasks: Vec::new(),
                rest: Obj::default(),
            };
            let (task, joined) = self.begin(&caller, client, request).await.map_err(refused)?;
            let found = self
                .row(task)
                .await
                .map_err(local)?
                .ok_or_else(Error::not_found)?;
            Ok(api::Started {
                task: shown(&found, self.inner.engine.now()),
                joined,
            })
        })
    }

    fn watch(&self, peer: Peer, name: String, since: u64) -> Reply<'_, BoxStream<'static, api::Task>> {
        Box::pin(async move {
            let caller = caller(peer);
            let (row, _) = self.named(&caller, Action::Listen, &name).await?;
            let watcher = self.inner.engine.watcher();
            watcher.follow(row.id, since);
            let following = Following {
                dispatch: self.clone(),
                caller,
                watcher,
                name,
                since,
                ended: false,
            };
            Ok(stream::unfold(following, Following::next).boxed())
        })
    }

    fn tools(&self, peer: Peer) -> Reply<'_, api::Tools> {
        Box::pin(async move {
            self.permit(Action::List, &caller(peer), None)?;
            let offered = self.inner.catalog.now();
            let tools = offered.entries().iter().map(|entry| tool(entry)).collect();
            Ok(api::Tools { tools })
        })
    }

    fn servers(&self, peer: Peer) -> Reply<'_, api::Servers> {
        Box::pin(async move {
            self.permit(Action::List, &caller(peer), None)?;
            let offered = self.inner.catalog.now();
            let fleet = &self.inner.fleet;
            let wrapped = fleet.wrapped();
            let members = fleet.members().iter().chain(&wrapped);
            Ok(api::Servers {
                servers: members.map(|member| servers::status(member, &offered)).collect(),
                toolsets: self.inner.catalog.toolsets(),
            })
        })
    }

    fn restart_server(&self, peer: Peer, name: String) -> Reply<'_, api::Server> {
        Box::pin(async move {
            self.permit(Action::Operate, &caller(peer), None)?;
            let restarted = self.inner.fleet.restart(&name).await;
            let offered = self.inner.catalog.now();
            let status = restarted.map(|member| servers::status(&member, &offered));
            status.ok_or_else(|| no_server(&name))
        })
    }

    fn begin_login(&self, peer: Peer, server: String) -> Reply<'_, api::Login> {
        Box::pin(async move {
            self.permit(Action::Operate, &caller(peer), None)?;
            self.begin_login(&server).await
        })
    }

    fn login_progress(&self, peer: Peer, id: String) -> Reply<'_, api::LoginProgress> {
        Box::pin(async move {
            self.permit(Action::Operate, &caller(peer), None)?;
            self.login_progress(&id).await
        })
    }

    fn log_out(&self, peer: Peer, server: String) -> Reply<'_, api::LoggedOut> {
        Box::pin(async move {
            self.permit(Action::Operate, &caller(peer), None)?;
            self.log_out(&server).await
        })
    }

    fn health(&self, peer: Peer) -> Reply<'_, api::Health> {
        Box::pin(async move {
            self.permit(Action::List, &caller(peer), None)?;
            let engine = &self.inner.engine;
            let stats = engine.stats().await.map_err(|error| local(store_reply(&error)))?;
            let load = engine.load();
            let mut problems = Vec::new();
            if load.fenced {
                problems
                    .push("this server was declared dead and runs nothing more; start it anew".to_owned());
            }
            Ok(api::Health {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                started_at_ms: self.inner.started_at.0,
                now_ms: engine.now().0,
                draining: load.draining,
                config: self.inner.settings.config_files.clone(),
                mcp: self.inner.settings.mcp_url.clone(),
                notices: self.inner.settings.notices.as_ref().ok().cloned(),
                no_notices: self.inner.settings.notices.as_ref().err().cloned(),
                store: stats.backend.to_owned(),
                schema: stats.schema,
                tasks: stats.tasks,
                open: stats.open,
                audit: stats.audit,
                bytes: stats.bytes,
                problems,
            })
        })
    }
}

impl Dispatch {
    fn permit(&self, action: Action, caller: &Caller, row: Option<&Row>) -> Result<(), Error> {
        let view = View::of_task(action, &caller.owner, row.map(|row| &row.owner));
        gate::judge(&view)
            .map(|_| ())
            .map_err(|refusal| local(refusal.reply()))
    }

    async fn named(&self, caller: &Caller, action: Action, name: &str) -> Result<(Row, Millis), Error> {
        let query = Query::Named {
            owner: caller.owner.clone(),
            name: name.to_ascii_lowercase(),
        };
        let found = self
            .inner
            .engine
            .read(query)
            .await
            .map_err(|error| local(store_reply(&error)))?;
        let row = found.rows.into_iter().next();
        self.permit(action, caller, row.as_ref())?;
        let row = row.ok_or_else(Error::not_found)?;
        Ok((row, found.now))
    }
}

/// A list whose state filter is not one that the store knows: pages are read until enough is found.
struct Page {
    caller: Caller,
    filter: api::Filter,
    before: Option<(Millis, longhaul_core::TaskId)>,
    limit: usize,
    tasks: Vec<api::Task>,
    /// How many failed tasks were read whole.
    failed: usize,
}

impl Page {
    /// Fills the page and says where the next one begins. Reads at most [`PAGES_MAX`] pages of the store, so that
    /// a rare state does not make one request read everything.
    async fn fill(&mut self, dispatch: &Dispatch) -> Result<Option<String>, Error> {
        let mut last = String::new();
        for _ in 0..PAGES_MAX {
            let query = List {
                owner: Some(self.caller.owner.clone()),
                open: None,
                tool: self.filter.tool.clone(),
                session: self.filter.session.clone(),
                hidden: true,
                before: self.before,
                limit: api::LIST_MAX.min(u32::try_from(self.limit).unwrap_or(api::LIST_MAX)),
            };
            let found = dispatch
                .inner
                .engine
                .read(Query::List(query))
                .await
                .map_err(|error| local(store_reply(&error)))?;
            let full = found.rows.len() >= self.limit;
            for row in found.rows {
                self.before = Some((row.created_at, row.id));
                last.clone_from(&row.name);
                let state = api::State::of(&row.task);
                if self.filter.status.is_some_and(|wanted| wanted != state) {
                    continue;
                }
                let task = self.with_bodies(dispatch, row, found.now).await?;
                self.tasks.push(task);
                if self.tasks.len() == self.limit {
                    return Ok(Some(last));
                }
            }
            if !full {
                return Ok(None);
            }
        }
        Ok(Some(last))
    }

    /// A list has no bodies; the few tasks that ask, and the newest that failed, are read whole, so that a list can show
    /// what they ask and why they failed.
    async fn with_bodies(&mut self, dispatch: &Dispatch, row: Row, now: Millis) -> Result<api::Task, Error> {
        let is_read = match api::State::of(&row.task) {
            api::State::Asking => true,
            api::State::Failed if self.failed < FAILED_READ_MAX => {
                self.failed += 1;
                true
            }
            api::State::Held
            | api::State::Queued
            | api::State::Running
            | api::State::Stopping
            | api::State::Done
            | api::State::Failed
            | api::State::Cancelled
            | api::State::Lost => false,
        };
        if !is_read {
            return Ok(dispatch.seen(&row, now));
        }
        let whole = dispatch.row(row.id).await.map_err(local)?;
        Ok(dispatch.seen(whole.as_ref().unwrap_or(&row), now))
    }
}

/// Of how many failed tasks one list says why they failed.
const FAILED_READ_MAX: usize = 20;
/// The most pages of the store that one list reads.
const PAGES_MAX: usize = 10;

/// One follower of one task.
struct Following {
    dispatch: Dispatch,
    caller: Caller,
    watcher: longhaul_engine::watch::Watcher,
    name: String,
    since: u64,
    ended: bool,
}

impl Following {
    async fn next(mut self) -> Option<(api::Task, Following)> {
        if self.ended {
            return None;
        }
        loop {
            let (row, now) = self
                .dispatch
                .named(&self.caller, Action::Listen, &self.name)
                .await
                .ok()?;
            if row.version > self.since {
                self.since = row.version;
                let task = self.dispatch.seen(&row, now);
                let keys = row.task.open_questions().map(|question| question.key);
                self.dispatch.shows(row.id, keys);
                self.ended = task.state.is_settled();
                return Some((task, self));
            }
            if api::State::of(&row.task).is_settled() {
                return None;
            }
            tokio::select! {
                _ = self.watcher.next() => {}
                () = self.dispatch.draining() => return None,
            }
        }
    }
}

fn caller(peer: Peer) -> Caller {
    Caller::local(match peer.entrance {
        Entrance::Socket => Origin::Cli,
        Entrance::Page => Origin::Page,
    })
}

fn outcome(row: &Row) -> Option<api::Outcome> {
    let Phase::Finished(ended) = &row.task.phase else {
        return None;
    };
    let raw = |body: &longhaul_core::Body| {
        let text = std::str::from_utf8(body.bytes()?).ok()?;
        RawValue::from_string(text.to_owned()).ok()
    };
    let (result, error) = match ended {
        Outcome::Returned { body, .. } => (raw(body), None),
        Outcome::Errored { body } => (None, raw(body)),
        Outcome::Cancelled { .. } | Outcome::Failed(_) => (None, None),
    };
    Some(api::Outcome {
        name: row.name.clone(),
        state: api::State::of(&row.task),
        result,
        error,
        reason: api::reason(&row.task.phase).map(str::to_owned),
    })
}

/// The open question that an answer is for.
fn chosen(row: &Row, now: Millis, named: Option<&str>) -> Result<(QuestionKey, Stored), Error> {
    let mut open: Vec<(QuestionKey, Stored)> = Stored::open(&row.task)
        .filter(|(_, stored)| matches!(stored.kind, Kind::Form | Kind::Url))
        .map(|(asked, stored)| (asked.key, stored))
        .collect();
    match named {
        Some(named) => open
            .into_iter()
            .find(|(key, _)| key.to_string() == named)
            .ok_or_else(|| too_late(&shown(row, now), named)),
        None if open.len() == 1 => Ok(open.remove(0)),
        None if open.is_empty() => Err(Error::new(
            409,
            rpc_code(rpc_error::INVALID_PARAMS),
            "nothing_asked",
            "the task asks nothing now",
            Who::Caller,
        )),
        None => {
            let keys: Vec<String> = open.iter().map(|(key, _)| key.to_string()).collect();
            Err(Error::invalid(format!(
                "several questions are open, name one: {}",
                keys.join(", ")
            )))
        }
    }
}

/// Why an answer changes nothing: the first one counted, or nobody waits for any (D-31).
fn too_late(task: &api::Task, key: &str) -> Error {
    let settled = task.settled.iter().find(|settled| settled.key == key);
    let is_open = task.questions.iter().any(|question| question.key == key);
    let why = match settled {
        Some(settled) => settled.how.words().to_owned(),
        None if is_open => "the time for an answer is over".to_owned(),
        None => format!("question `{key}` is not open"),
    };
    let code = rpc_code(rpc_error::INVALID_PARAMS);
    Error::new(409, code, "question_closed", why, Who::Caller)
}

/// An answer of the local API as the wire's result object.
fn elicit_result(answer: &api::Answer) -> Result<Raw, Error> {
    let action = match answer.action {
        api::Action::Accept => "accept",
        api::Action::Decline => "decline",
        api::Action::Dismiss => "cancel",
    };
    let value = match &answer.content {
        Some(content) => serde_json::json!({ "action": action, "content": content }),
        None => serde_json::json!({ "action": action }),
    };
    Raw::of(&value).map_err(|_| Error::invalid("the answer is not JSON"))
}

fn tool(entry: &crate::catalog::Entry) -> api::Tool {
    use longhaul_core::task::OnCrash;
    api::Tool {
        name: entry.listing.name.clone(),
        full_name: toolset::full_name_of(entry),
        description: entry.listing.description.clone().unwrap_or_default(),
        input_schema: RawValue::from_string(entry.listing.input_schema.text().to_owned())
            .expect("a listed schema is JSON"),
        on_crash: match entry.rules.on_crash {
            OnCrash::Fail => "fail",
            OnCrash::Rerun { .. } => "rerun",
            OnCrash::Resume => "resume",
        }
        .to_owned(),
    }
}

/// A refusal before the call was taken, for the person who made it.
fn refused(reply: Box<McpReply>) -> Error {
    match *reply {
        McpReply::Error(error) => local(error),
        McpReply::Result(result) => Error::misfit("arguments", misfit_text(&result)),
        McpReply::Discover(_)
        | McpReply::Tools(_)
        | McpReply::InputRequired { .. }
        | McpReply::TaskCreated(_)
        | McpReply::Task(_)
        | McpReply::Outcome(_)
        | McpReply::Tasks(_)
        | McpReply::Cancelled { .. }
        | McpReply::Ack
        | McpReply::ListenEnded
        | McpReply::Relayed { .. } => Error::internal(),
    }
}

fn misfit_text(result: &Raw) -> String {
    #[derive(serde::Deserialize)]
    struct Text {
        text: String,
    }
    #[derive(serde::Deserialize)]
    struct Content {
        content: Vec<Text>,
    }
    result
        .read::<Content>()
        .ok()
        .and_then(|content| Some(content.content.into_iter().next()?.text))
        .unwrap_or_default()
}

/// Why an answer was not taken, for whoever sits at the form.
fn unsettled(unsettled: Unsettled) -> Error {
    match unsettled {
        Unsettled::Misfit { misfit, is_last, .. } => {
            let field = match misfit.field.as_str() {
                "" => String::new(),
                field => format!("`{field}` "),
            };
            let message = format!("{field}{}{}", misfit.why, last_words(is_last));
            Error::misfit(misfit.field, message)
        }
        Unsettled::Failed(error) => local(error),
    }
}

/// An error of the wire as the local API tells it.
pub(super) fn local(error: RpcError) -> Error {
    let (reason, who, retry_after_ms) = match &error.data {
        Data::Refusal(refusal) => (
            refusal.reason.to_string(),
            match refusal.who {
                rpc_error::Who::Caller => Who::Caller,
                rpc_error::Who::Operator => Who::Operator,
                rpc_error::Who::Wait => Who::Wait,
            },
            refusal.retry_after_ms,
        ),
        Data::None | Data::Raw(_) | Data::Whole(_) => ("invalid".to_owned(), Who::Caller, None),
    };
    if error == RpcError::task_not_found() {
        return Error::not_found();
    }
    let status = match (error.code, who) {
        (7402 | 7405, _) => 429,
        (7407 | 7408, _) => 503,
        (7401..=7499, _) => 403,
        (rpc_error::INTERNAL_ERROR, _) => 500,
        (_, Who::Caller | Who::Operator | Who::Wait) => 400,
    };
    Error {
        retry_after_ms,
        ..Error::new(
            status,
            rpc_code(error.code),
            &reason,
            error.message.into_owned(),
            who,
        )
    }
}

fn rpc_code(code: i64) -> i32 {
    i32::try_from(code).unwrap_or(-32603)
}

pub(super) fn no_server(name: &str) -> Error {
    let message = format!("no server is named `{name}`");
    Error::new(404, -32602, "not_found", message, Who::Caller)
}
