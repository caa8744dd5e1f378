//! `tools/call`: from the arguments to a result, a question, or a task.
//!
//! A call becomes a durable row before anything runs and before anybody is told. It starts hidden: when it ends
//! within `promote_after` its caller gets the plain result, and the row is deleted soon. Otherwise the mark is
//! taken away, and a client that takes tasks is handed the task; another one waits on. The owner's own lists show
//! hidden rows too.

use std::{collections::BTreeMap, sync::Arc};

use longhaul_core::{Body, Millis, Span, TaskId, decide::Birth, task::CanAsk};
use longhaul_engine::{
    notes::Notes,
    transact::{Done, Opening, Trail},
};
use longhaul_mcp::{
    Client, Reply, RpcError, canon,
    frame::Raw,
    reply::TaskSupport,
    request::{Answers, Asked, CallTool, LogLevel, Response, Takes},
    rpc_error::{Refusal, RefusalCode, Who},
};
use longhaul_store::{Scope, Slot};

use super::{
    Conversation, Dispatch, Settings,
    birth::{Bearing, Born},
    held::{Arrival, Held},
    hold::{Stay, Terms, Waits},
    join::{self, Mark, Name, Whose},
    store_reply,
};
use crate::{
    catalog::Entry,
    config::WAIT_TOOL,
    gate::{self, Action, View},
    identity::Caller,
    quota::{Amount, Caps, Place},
    view::{Context, Wanted},
};

/// How many short names a birth may choose from; that all are taken has the chance of a lottery win.
const NAMES: usize = 4;
/// The longest idempotency key that is looked at is bounded by the edge; its digest is what is stored.
const IDEM_DOMAIN: &[u8] = b"longhaul idempotency key\0";

/// A call that may be taken.
pub(super) struct Checked {
    pub(super) entry: Arc<Entry>,
    pub(super) arguments: Raw,
    pub(super) digest: [u8; 32],
    /// The session that the call came from.
    session: Option<String>,
    /// The least grave log messages that the caller said it wants.
    level: Option<LogLevel>,
    /// Who is shown the progress of the task that it may become.
    progress: Option<Wanted>,
}

/// The task of a call.
pub(super) enum Begun {
    /// Born with it, and followed since before its work could say anything.
    New(TaskId, Notes),
    /// Born before, under the same idempotency key.
    Same(TaskId),
    /// Born before, with an equal call that was left.
    Joined(TaskId),
}

impl Dispatch {
    pub(super) async fn call(
        &self,
        caller: &Caller,
        session: Option<&Conversation>,
        client: Client,
        call: CallTool,
    ) -> Result<Held, Box<Reply>> {
        let began = tokio::time::Instant::now();
        if self.inner.settings.wait_tool && call.name == WAIT_TOOL {
            return self.wait_call(caller, session, client, call, began).await;
        }
        let mut checked = self.checked(caller, &client, &call)?;
        checked.progress = session
            .zip(call.progress_token.clone())
            .map(|(place, token)| Wanted {
                session: place.session.key().to_owned(),
                token: token.0,
            });
        if let Some(place) = session {
            checked.session = Some(place.session.key().to_owned());
            checked.level = place.session.level();
        } else if checked.session.is_none() {
            checked.session.clone_from(&caller.pipe);
        }
        let error = |error: RpcError| Box::new(Reply::Error(error));
        let kept: &[Response] = match &call.request_state {
            None => &call.responses,
            Some(_) => &[],
        };
        let place = self.held_place(caller, kept).map_err(error)?;
        let name = join_name(caller, &client, &call, &checked);
        let begun = self.task_of(caller, session, &client, &call, &checked, name.clone());
        let (task, waits, notes) = begun.await.map_err(error)?;
        let terms = Terms::of_call(&checked.entry, client.takes, name.is_some());
        let limit = self
            .hold_limit(caller, &terms, client.takes, call.progress_token.is_some())
            .await;
        let mut stay = Stay::new(waits, began, limit);
        stay.join = name;
        stay.knows = self.known_question(task, waits);
        Ok(self.hold(Arrival {
            caller: caller.clone(),
            session: session.cloned(),
            client,
            task,
            notes,
            digest: checked.digest,
            terms,
            stay,
            offered: if call.request_state.is_none() {
                call.responses
            } else {
                Vec::new()
            },
            progress_token: call.progress_token,
            log_level: call.log_level,
            place,
        }))
    }

    /// The task of a call: that of the rounds before it, that of an equal call that was left, or one that is born now
    /// and followed since.
    async fn task_of(
        &self,
        caller: &Caller,
        session: Option<&Conversation>,
        client: &Client,
        call: &CallTool,
        checked: &Checked,
        name: Option<Name>,
    ) -> Result<(TaskId, Waits, Option<Notes>), RpcError> {
        if let Some(state) = &call.request_state {
            let task = self
                .resume(caller, state, checked.digest, &call.responses)
                .await?;
            return Ok((task, Waits::Own, None));
        }
        if let Some(task) = self.came_back(caller, session, name.as_ref()).await? {
            return Ok((task, Waits::Joined, None));
        }
        Ok(match self.birth(caller, client, call, checked, name).await? {
            Begun::New(task, notes) => (task, Waits::Own, Some(notes)),
            Begun::Same(task) => (task, Waits::Own, None),
            Begun::Joined(task) => (task, Waits::Joined, None),
        })
    }

    /// A place among the calls that wait for their reply, for one that keeps `kept` of what came with it.
    pub(super) fn held_place(&self, caller: &Caller, kept: &[Response]) -> Result<Place, RpcError> {
        let Settings {
            held_max,
            held_total_max,
            held_bytes_max,
            ..
        } = self.inner.settings;
        let caps = Caps {
            owner: Amount {
                places: held_max,
                bytes: held_bytes_max,
            },
            all: Amount {
                places: held_total_max,
                bytes: held_bytes_max.saturating_mul(HELD_OWNERS),
            },
        };
        let bytes = kept
            .iter()
            .map(|answer| answer.key.len() + answer.body.text().len());
        self.inner.held.take(&caller.owner, bytes.sum(), caps).ok_or_else(|| {
            RpcError::refused(
                RefusalCode::OverLimit,
                format!(
                    "{held_max} calls of yours are open, or as many as the server holds, which is the most \
                     (`tasks.held_max`, `tasks.held_total_max`, `tasks.held_bytes_max`): wait for one to end"
                ),
                Refusal { reason: "held_limit".into(), who: Who::Wait, retry_after_ms: Some(HELD_RETRY_MS) },
            )
        })
    }

    /// Makes a task at once, for a caller that waits elsewhere. Tells whether it was there before.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        client: Client,
        call: CallTool,
    ) -> Result<(TaskId, bool), Box<Reply>> {
        let checked = self.checked(caller, &client, &call)?;
        let error = |error: RpcError| Box::new(Reply::Error(error));
        let begun = self.birth(caller, &client, &call, &checked, None).await;
        let (task, was_there) = match begun.map_err(error)? {
            Begun::New(task, _) => (task, false),
            Begun::Same(task) | Begun::Joined(task) => (task, true),
        };
        let shown = self.show_marked(&caller.owner, task, None, Mark::Kept).await;
        shown.map_err(error)?;
        Ok((task, was_there))
    }

    /// All that is looked at before the store is: the tool, what the client declared, the arguments.
    fn checked(&self, caller: &Caller, client: &Client, call: &CallTool) -> Result<Checked, Box<Reply>> {
        let error = |error: RpcError| Box::new(Reply::Error(error));
        let offered = self.inner.catalog.now();
        let entry = offered.of(&caller.selection).entry(&call.name).cloned();
        let entry = entry.ok_or_else(|| error(RpcError::unknown_tool(&call.name)))?;
        declared(&entry, client).map_err(error)?;
        let arguments = call.arguments.clone().unwrap_or_else(|| empty_object().clone());
        let misfits = entry.arguments.misfits(&arguments);
        if !misfits.is_empty() {
            return Err(Box::new(Reply::Result(misfit_result(&call.name, &misfits))));
        }
        let digest = call_digest(&entry, &arguments).ok_or_else(|| {
            error(RpcError::invalid_params(
                "The arguments have no canonical form: see the limits on numbers",
            ))
        })?;
        Ok(Checked {
            entry,
            arguments,
            digest,
            session: client.session.clone(),
            level: call.log_level,
            progress: None,
        })
    }

    /// Makes the row (T0), unless the call has a task already. Equal calls under one idempotency key are one task,
    /// and so is a call that is equal to one under `name` whose caller left.
    async fn birth(
        &self,
        caller: &Caller,
        client: &Client,
        call: &CallTool,
        checked: &Checked,
        name: Option<Name>,
    ) -> Result<Begun, RpcError> {
        let mut passed_over = None;
        for _ in 0..BIRTHS_MAX {
            let join = match self
                .try_birth(caller, client, call, checked, name.clone(), passed_over)
                .await?
            {
                Ok(begun) => return Ok(begun),
                Err(Born::Joinable(join)) => join,
                Err(born) => return Err(born.error()),
            };
            if self.may_join(caller, name.as_ref(), &join).await? {
                return Ok(Begun::Joined(join.task));
            }
            passed_over = Some(join.task);
        }
        Err(Born::New.error())
    }

    async fn try_birth(
        &self,
        caller: &Caller,
        client: &Client,
        call: &CallTool,
        checked: &Checked,
        name: Option<Name>,
        passed_over: Option<TaskId>,
    ) -> Result<Result<Begun, Born>, RpcError> {
        let inner = &self.inner;
        let entry = &checked.entry;
        let at_once = match client.takes {
            Takes::Never => false,
            Takes::WhenSlow => task_at_once(entry),
            Takes::AtOnce => true,
        };
        let opening = Opening {
            hidden: !at_once,
            ..self.opening(caller, client, call, checked)
        };
        let id = opening.id;
        let scope = Scope {
            task: Slot::Birth {
                owner: caller.owner.clone(),
                idem: opening.idem,
                names: (0..NAMES).map(|_| super::short_name()).collect(),
            },
            records: name.iter().map(|name| name.key.clone()).collect(),
            ..Scope::default()
        };
        let settings = &inner.settings;
        let wish = call.ttl_ms.map(|wish| Span(wish).min(settings.ttl_max));
        let birth = Bearing {
            opening,
            name,
            passed_over,
            at_once,
            here: inner.engine.runner(),
            draining: self.is_draining(),
            open_max: settings.open_max,
            ttl: wish.unwrap_or(entry.ttl),
            promote_after: entry.promote_after,
            expired_kept: settings.expired_kept,
            answered_kept: settings.answered_kept,
        };
        // The work may begin, and say something, before the commit is told here.
        let notes = inner.engine.notes(id);
        let done = inner
            .engine
            .transact(scope, move |snapshot| birth.judge(snapshot))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(match done {
            Done::Committed(_, _) => Ok(Begun::New(id, notes)),
            Done::Refused(Born::Same(existing)) | Done::NotNow(_, Born::Same(existing)) => {
                Ok(Begun::Same(existing))
            }
            Done::Refused(born) | Done::NotNow(_, born) => Err(born),
        })
    }

    /// The row of a call, but for what only the transaction knows: its name and its times.
    fn opening(&self, caller: &Caller, client: &Client, call: &CallTool, checked: &Checked) -> Opening {
        let inner = &self.inner;
        let entry = &checked.entry;
        let context = Context {
            metadata: call.metadata.clone(),
            answers: client.answers.into(),
            traceparent: client.traceparent.clone(),
            rest: (entry.server_tool.is_some() && !call.rest.0.is_empty()).then(|| call.rest.to_raw()),
            server_tool: entry.server_tool.clone(),
            no_arguments: call.arguments.is_none(),
            session: checked.session.clone(),
            level: checked.level.filter(|_| entry.server_tool.is_some()),
            progress: checked.progress.clone(),
        };
        let key = call.idempotency_key.as_deref();
        let name = client
            .name
            .as_deref()
            .map(|name| longhaul_mcp::clean(name, ORIGIN_MAX));
        Opening {
            id: inner.engine.task_id(),
            owner: caller.owner.clone(),
            kid: inner.keys.kid(),
            name: String::new(),
            tool: checked.entry.listing.name.clone(),
            session: client.session.clone().unwrap_or_default(),
            origin: name.unwrap_or_else(|| caller.origin.word().to_owned()),
            idem: key.map(|key| idem_digest(&caller.owner, key)),
            digest: checked.digest,
            hidden: true,
            args: Body::new(checked.arguments.text().as_bytes()),
            context: Body::new(&serde_json::to_vec(&context).expect("a context always serializes")),
            note: Vec::new(),
            purge_after: Millis(0),
            birth: Birth {
                rules: checked.entry.rules,
                // A local user always has a place to answer: the page and the terminal.
                can_ask: CanAsk {
                    client: true,
                    operator: false,
                },
                expires_at: Millis(0),
                approval: None,
            },
            records: BTreeMap::new(),
            counters: BTreeMap::new(),
            trail: Trail {
                trace: client.traceparent.clone().unwrap_or_default(),
                bytes: Some(checked.arguments.text().len() as u64),
                ..Trail::default()
            },
        }
    }

    /// Goes on with a call that asked before it was a task (B-40). Answers settle open questions; a retry that
    /// was sent twice settles nothing twice and gets the same reply.
    async fn resume(
        &self,
        caller: &Caller,
        state: &str,
        digest: [u8; 32],
        responses: &[Response],
    ) -> Result<TaskId, RpcError> {
        let bad = || {
            RpcError::invalid_params_because(
                "bad_request_state",
                "The request state is not valid for this call: begin the call anew",
            )
        };
        let opened = self
            .inner
            .states
            .open(state, &caller.owner, self.inner.engine.now())
            .ok_or_else(bad)?;
        if opened.digest != digest {
            return Err(bad());
        }
        let row = self.row(opened.task).await?.ok_or_else(bad)?;
        let view = View::of_task(Action::Update, &caller.owner, Some(&row.owner));
        gate::judge(&view).map_err(gate::Refusal::reply)?;
        self.answer_labelled(caller, &row, responses).await?;
        self.inner.rounds.end(&caller.owner, opened.task);
        Ok(opened.task)
    }
}

/// The record under which calls equal to this one find it. None for a call that has an identity of its own, asked for
/// a task, or whose tool begins anew each time.
fn join_name(caller: &Caller, client: &Client, call: &CallTool, checked: &Checked) -> Option<Name> {
    let own_key = call.idempotency_key.as_deref();
    if let Some(pipe) = caller.pipe.as_ref().filter(|_| checked.entry.is_wrapped) {
        // The pipe gives a key to each call that asks for a task. Only a key of the client's own is an identity.
        let is_of_pipe = |key: &str| {
            let given = pipe.split_once(':').map_or("", |(_, given)| given);
            key.split_once('-').is_some_and(|(begin, _)| begin == given)
        };
        let joins = checked.entry.holding.join && own_key.is_none_or(is_of_pipe);
        return joins.then(|| Name {
            key: join::key(&caller.owner, "", &checked.digest),
            whose: Some(Whose {
                session: checked.session.clone().unwrap_or_default(),
                pipe: pipe.clone(),
            }),
        });
    }
    let joins = checked.entry.holding.join && client.takes != Takes::AtOnce && own_key.is_none();
    // Another session's process may be on another page.
    let session = match checked.entry.is_of_session && !longhaul_core::fault!("sessions-share-a-call") {
        true => checked.session.as_deref(),
        false => client.session.as_deref(),
    };
    let session = session.unwrap_or_default();
    joins.then(|| Name {
        key: join::key(&caller.owner, session, &checked.digest),
        whose: None,
    })
}

/// What a client must have declared for this tool (B-6, C-5).
fn declared(entry: &Entry, client: &Client) -> Result<(), RpcError> {
    // A session whose version knows no tasks is held instead; its edge has refused the others.
    let may_wait = client.asked == Asked::OnStream;
    if entry.listing.task_support == TaskSupport::Required && client.takes == Takes::Never && !may_wait {
        return Err(RpcError::needs_tasks(format!(
            "Tool {} runs as a task only: declare the tasks extension",
            entry.listing.name
        )));
    }
    let missing = undeclared(entry.needs, client.answers);
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Tool {} needs what the client did not declare",
        entry.listing.name
    );
    Err(RpcError::missing_capability(
        message,
        &serde_json::Value::Object(missing),
    ))
}

/// What is needed and not declared, as a ClientCapabilities object.
fn undeclared(needs: Answers, declared: Answers) -> serde_json::Map<String, serde_json::Value> {
    let mut missing = serde_json::Map::new();
    let mut elicitation = serde_json::Map::new();
    if needs.form && !declared.form {
        elicitation.insert("form".to_owned(), serde_json::json!({}));
    }
    if needs.url && !declared.url {
        elicitation.insert("url".to_owned(), serde_json::json!({}));
    }
    if !elicitation.is_empty() {
        missing.insert("elicitation".to_owned(), elicitation.into());
    }
    if needs.sampling && !declared.sampling {
        missing.insert("sampling".to_owned(), serde_json::json!({}));
    }
    if needs.roots && !declared.roots {
        missing.insert("roots".to_owned(), serde_json::json!({}));
    }
    missing
}

/// Names a call: equal for the same tool with equal arguments, however they are spelled (E-3).
fn call_digest(entry: &Entry, arguments: &Raw) -> Option<[u8; 32]> {
    // The name of a server's tool may be another's by the time of an equal call.
    let name = match &entry.server_tool {
        None => serde_json::to_string(&entry.listing.name).ok()?,
        Some(tool) => serde_json::to_string(tool).ok()?,
    };
    let call = Raw::parse(&format!("[{name},{}]", arguments.text())).ok()?;
    canon::digest(&call).ok()
}

/// Whether a call of this tool is a task from its first moment on, for a client that takes tasks.
fn task_at_once(entry: &Entry) -> bool {
    match entry.listing.task_support {
        TaskSupport::Forbidden => false,
        TaskSupport::Optional => entry.promote_after.0 == 0,
        TaskSupport::Required => !entry.asks_first,
    }
}

/// Bad argument values are a result that the model can act on, not a protocol error (B-54).
pub(super) fn misfit_result(tool: &str, misfits: &[String]) -> Raw {
    let text = format!("{tool}: the arguments do not fit.\n{}", misfits.join("\n"));
    Raw::of(&serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
        .expect("a JSON value always serializes")
}

fn idem_digest(owner: &longhaul_store::Owner, key: &str) -> [u8; 32] {
    use sha2::Digest as _;
    let mut hash = sha2::Sha256::new();
    hash.update(IDEM_DOMAIN);
    hash.update(crate::sealed_id::owner_digest(owner));
    hash.update(key.as_bytes());
    hash.finalize().into()
}

fn empty_object() -> &'static Raw {
    static EMPTY: std::sync::LazyLock<Raw> =
        std::sync::LazyLock::new(|| Raw::parse("{}").expect("an empty object is JSON"));
    &EMPTY
}

/// How often a birth is tried where equal calls come and go at the same time.
const BIRTHS_MAX: usize = 8;
/// The longest name of a client that is kept beside a task, in characters.
const ORIGIN_MAX: usize = 60;
/// For how many owners that keep as much as they may there is memory.
const HELD_OWNERS: usize = 4;
/// When a caller with too many open calls should try again, in milliseconds.
const HELD_RETRY_MS: u64 = 1_000;
