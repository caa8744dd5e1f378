//! A gateway spoken to at its dispatch, one caller after the other, with tools that count their runs.
//!
//! A [`Site`] outlives its servers: several may stand on its database, one after the other.

use std::{sync::Arc, time::Duration};

use longhaul_core::Span;
use longhaul_engine::{Engine, clock, tool::Finish};
use longhaul_gateway::{
    admin::{Backend as _, api},
    catalog::{Catalog, Entry, Holding},
    config::{Hold, OnAbandon, ShowSchema},
    dispatch::{Dispatch, Handled, Held, HoldLimits, Settings, Step},
    identity::{Caller, Origin},
    outbound::Note,
    sealed_id::Keys,
};
use longhaul_mcp::{
    Client, Incoming, Push, Reply, Request, RequestId,
    frame::{Obj, Raw},
    reply::TaskSupport,
    request::{CallTool, ProgressToken, Takes},
};
use longhaul_store::{
    Record, RecordKind, Shared,
    crypt::KeyRing,
    memory::Memory,
    sqlite::{self, Sqlite},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ME, PATIENCE, asked, choose_fault, entry, options, returned, script, text};

/// A database, and what happened in the tools.
pub(crate) struct Site {
    backend: Backend,
    runs: watch::Sender<u32>,
    open: watch::Sender<bool>,
}

enum Backend {
    Memory(Arc<Memory>),
    Sqlite(tempfile::TempDir),
}

/// One process on the database of a site.
pub(crate) struct Server {
    pub(crate) dispatch: Dispatch,
    engine: Engine,
    store: Shared,
}

/// What one frame of a call says besides the tool and its arguments.
#[derive(Clone, Default)]
pub(crate) struct Saying {
    pub(crate) client: Client,
    pub(crate) key: Option<String>,
    pub(crate) progress: bool,
}

impl Saying {
    pub(crate) fn taking(takes: Takes) -> Saying {
        Saying {
            client: Client {
                takes,
                ..Client::default()
            },
            ..Saying::default()
        }
    }

    pub(crate) fn in_session(session: &str) -> Saying {
        let mut saying = Saying::default();
        saying.client.session = Some(session.to_owned());
        saying
    }

    pub(crate) fn with_progress() -> Saying {
        Saying {
            progress: true,
            ..Saying::default()
        }
    }
}

/// Limits that no test waits for.
pub(crate) fn patient() -> Settings {
    Settings {
        hold: HoldLimits {
            plain: Span::seconds(100_000),
            with_progress: Span::seconds(100_000),
            ..HoldLimits::default()
        },
        ..Settings::default()
    }
}

/// Limits that are over at once.
pub(crate) fn impatient() -> Settings {
    Settings {
        hold: HoldLimits {
            fixed: Some(Span(1)),
            ..HoldLimits::default()
        },
        ..Settings::default()
    }
}

impl Site {
    pub(crate) fn new() -> Site {
        Site::on(Backend::Memory(Arc::new(Memory::new(Arc::new(clock::now)))))
    }

    /// On a database that each server opens for itself, as a process would.
    pub(crate) fn on_sqlite() -> Site {
        Site::on(Backend::Sqlite(tempfile::tempdir().expect("a folder")))
    }

    fn on(backend: Backend) -> Site {
        choose_fault();
        Site {
            backend,
            runs: watch::Sender::new(0),
            open: watch::Sender::new(false),
        }
    }

    pub(crate) async fn serve(&self, settings: Settings) -> Server {
        let store: Shared = match &self.backend {
            Backend::Memory(memory) => memory.clone(),
            Backend::Sqlite(directory) => {
                let options = sqlite::Options {
                    directory: directory.path().to_owned(),
                    keys: KeyRing::new([7; 32], &[]),
                    clock: Arc::new(clock::now),
                    allow_network_file_system: true,
                };
                Arc::new(Sqlite::open(options).expect("a database"))
            }
        };
        let catalog = Arc::new(self.catalog());
        let engine = Engine::new(store.clone(), options(), Arc::clone(&catalog) as _);
        engine.start().await.expect("the store is there");
        let dispatch = Dispatch::new(engine.clone(), catalog, Keys::derive(1, &[7; 32]), settings);
        Server {
            dispatch,
            engine,
            store,
        }
    }

    /// Lets the tools return.
    pub(crate) fn release(&self) {
        self.open.send_replace(true);
    }

    /// How often a tool began.
    pub(crate) fn runs(&self) -> u32 {
        *self.runs.borrow()
    }

    /// Waits until tools began so often.
    pub(crate) async fn began(&self, times: u32) {
        let mut runs = self.runs.subscribe();
        runs.wait_for(|runs| *runs >= times)
            .await
            .expect("the site lives");
    }

    fn catalog(&self) -> Catalog {
        let tool = |name: &str, holding: Holding| {
            let (runs, open) = (self.runs.clone(), self.open.subscribe());
            let work = script(move |_, context: longhaul_engine::tool::Context| {
                let (runs, mut open) = (runs.clone(), open.clone());
                async move {
                    let mut run = 0;
                    runs.send_modify(|runs| {
                        *runs += 1;
                        run = *runs;
                    });
                    context.note(Note::new(Some(214.0), Some(350.0), Some("tests")).encode());
                    tokio::select! {
                        _ = open.wait_for(|open| *open) => structured(run),
                        () = context.stop() => Finish::Stopped { confirmed: true },
                    }
                }
            });
            let mut entry = entry(name, TaskSupport::Optional, work);
            entry.holding = holding;
            entry.promote_after = Span::seconds(2);
            entry
        };
        let usual = Holding::default();
        let schema =
            Raw::parse(r#"{"type":"object","properties":{"run":{"type":"integer"}}}"#).expect("JSON");
        let typed = |name: &str, show_schema| {
            let mut entry = tool(name, Holding { show_schema, ..usual });
            entry.listing.output_schema = Some(schema.clone());
            entry
        };
        let mut exact_typed = typed("typed_exact", ShowSchema::Auto);
        exact_typed.holding.hold = Hold::Exact;
        let mut asks: Entry = entry(
            "asks",
            TaskSupport::Optional,
            script(|_, context| asked(context, &["name"])),
        );
        asks.promote_after = Span::seconds(2);
        Catalog::new(vec![
            tool("work", usual),
            tool(
                "exact",
                Holding {
                    hold: Hold::Exact,
                    ..usual
                },
            ),
            tool("anew", Holding { join: false, ..usual }),
            tool(
                "finishes",
                Holding {
                    on_abandon: OnAbandon::Finish,
                    ..usual
                },
            ),
            tool(
                "cancels",
                Holding {
                    on_abandon: OnAbandon::Cancel,
                    ..usual
                },
            ),
            typed("typed", ShowSchema::Auto),
            typed("typed_always", ShowSchema::Always),
            typed("typed_never", ShowSchema::Never),
            exact_typed,
            asks,
            entry(
                "quick",
                TaskSupport::Optional,
                script(|_, _| async { text("done at once") }),
            ),
        ])
    }
}

fn structured(run: u32) -> Finish {
    let said = json!({
        "content": [{ "type": "text", "text": format!("run {run}") }],
        "structuredContent": { "run": run },
    });
    returned(&said, false)
}

impl Server {
    pub(crate) async fn handle(&self, caller: &Caller, client: Client, request: Request) -> Handled {
        let incoming = Incoming {
            id: RequestId::Integer(1),
            client,
            request,
            name_header_missing: false,
        };
        self.dispatch.handle(caller, None, incoming).await
    }

    /// A call of the local user's, held or answered.
    pub(crate) async fn call(&self, saying: &Saying, tool: &str, arguments: Value) -> Handled {
        self.call_as(&Caller::local(Origin::Client), saying, tool, arguments)
            .await
    }

    pub(crate) async fn call_as(
        &self,
        caller: &Caller,
        saying: &Saying,
        tool: &str,
        arguments: Value,
    ) -> Handled {
        let call = CallTool {
            name: tool.to_owned(),
            arguments: Some(Raw::of(&arguments).expect("JSON")),
            responses: Vec::new(),
            request_state: None,
            ttl_ms: None,
            idempotency_key: saying.key.clone(),
            metadata: None,
            progress_token: saying.progress.then_some(ProgressToken(RequestId::Integer(7))),
            log_level: None,
            related_tasks: Vec::new(),
            rest: Obj::default(),
        };
        self.handle(caller, saying.client.clone(), Request::CallTool(call))
            .await
    }

    /// A call that is taken.
    pub(crate) async fn held(&self, saying: &Saying, tool: &str) -> Held {
        match self.call(saying, tool, json!({})).await {
            Handled::Call(held) => *held,
            Handled::Reply(reply) => panic!("answered at once: {reply:?}"),
            Handled::Listen(_) | Handled::Wait(_) | Handled::Relay(_) => panic!("a stream"),
        }
    }

    /// The result of a call whose reply arrives.
    pub(crate) async fn result(&self, saying: &Saying, tool: &str, arguments: Value) -> Value {
        match self.call(saying, tool, arguments).await {
            Handled::Call(held) => result(held.finish().await),
            Handled::Reply(reply) => result(*reply),
            Handled::Listen(_) | Handled::Wait(_) | Handled::Relay(_) => panic!("a stream"),
        }
    }

    /// What `longhaul_wait` says.
    pub(crate) async fn wait(&self, arguments: Value) -> Value {
        self.result(&Saying::default(), "longhaul_wait", arguments).await
    }

    /// The names, tools and states of the owner's tasks, as the helper tool lists them.
    pub(crate) async fn tasks(&self) -> Vec<(String, String, String)> {
        let listed = self.wait(json!({})).await;
        let tasks = listed["structuredContent"]["tasks"]
            .as_array()
            .expect("a list")
            .clone();
        let word = |task: &Value, member: &str| task[member].as_str().expect("a text").to_owned();
        tasks
            .iter()
            .map(|task| (word(task, "task"), word(task, "tool"), word(task, "state")))
            .collect()
    }

    /// Answers a task's one question, as a person at the terminal would.
    pub(crate) async fn answer(&self, name: &str, content: Value) {
        let answer = api::Answer {
            question: None,
            action: api::Action::Accept,
            content: serde_json::value::to_raw_value(&content).ok(),
        };
        let answered = self.dispatch.answer(ME, name.to_owned(), answer).await;
        assert!(answered.is_ok(), "the answer was not taken");
    }

    /// Takes no new work any more.
    pub(crate) async fn drain(&self) {
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.drain(Duration::from_secs(3600)).await });
        while !self.dispatch.is_draining() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn records(&self, kind: RecordKind) -> Vec<Record> {
        let found = self.store.records(kind, "default".to_owned()).await;
        found.expect("the store is there")
    }

    /// Waits until a record of this kind, as JSON, is as `wanted` says: what follows a call whose caller left is
    /// stored in its own time.
    pub(crate) async fn record_until(&self, kind: RecordKind, wanted: impl Fn(&Value) -> bool) {
        let began = clock::monotonic();
        loop {
            assert!(began.elapsed() < PATIENCE, "no such record of {kind:?}");
            let records = self.records(kind).await;
            let bodies = records
                .iter()
                .filter_map(|record| serde_json::from_slice::<Value>(&record.body).ok());
            if bodies.into_iter().any(|body| wanted(&body)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// What the helper tool lists, once this stands in it.
    pub(crate) async fn listed_with(&self, words: &str) -> String {
        let began = clock::monotonic();
        loop {
            let listed = self.wait(json!({})).await;
            if said(&listed).contains(words) {
                return said(&listed).to_owned();
            }
            assert!(began.elapsed() < PATIENCE, "no `{words}`: {listed}");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a task is in this state, and returns its name.
    pub(crate) async fn until(&self, wanted: &str) -> String {
        let began = clock::monotonic();
        loop {
            let tasks = self.tasks().await;
            assert!(began.elapsed() < PATIENCE, "no task is {wanted}: {tasks:?}");
            if let Some((name, _, _)) = tasks.into_iter().find(|(_, _, state)| state == wanted) {
                return name;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// The result in a reply that holds one.
pub(crate) fn result(reply: Reply) -> Value {
    let Reply::Result(raw) = reply else {
        panic!("no result: {reply:?}");
    };
    serde_json::from_str(raw.text()).expect("JSON")
}

/// The first text of a result.
pub(crate) fn said(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {result}"))
}

/// The name of the task that a result speaks of.
pub(crate) fn named(result: &Value) -> String {
    result["structuredContent"]["task"]
        .as_str()
        .unwrap_or_else(|| panic!("no task: {result}"))
        .to_owned()
}

/// The reply of a held call, which is then in nobody's hands yet; its progress is dropped.
pub(crate) async fn reply(held: &mut Held) -> Reply {
    loop {
        match held.next().await {
            Step::Push(_) => {}
            Step::Reply(reply) => return *reply,
        }
    }
}

/// The next progress of a held call.
pub(crate) async fn progress(held: &mut Held) -> longhaul_mcp::reply::Progress {
    let push = match held.next().await {
        Step::Push(push) => *push,
        Step::Reply(reply) => panic!("a reply: {reply:?}"),
    };
    let Push::Progress { progress, .. } = push else {
        panic!("no progress: {push:?}");
    };
    progress
}
