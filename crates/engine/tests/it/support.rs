//! Engines on a shared store, tools that do as a test says, and waits that end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use longhaul_core::{
    Body, Event, Millis, RunnerId, Span, TaskId, audit,
    decide::Birth,
    event::{Answer, Ask},
    id::QuestionKey,
    task::{CanAsk, CancelledBy, OnCrash, OnSilence, Reader, Rules},
};
use longhaul_engine::{
    Engine, Options, clock,
    tool::{Call, Context, Finish, Running, Slots, Tool, Tools},
    transact::{Done, Opening, Proposal, Trail, Verdict},
};
use longhaul_store::{
    Owner, Query, Row, Runner, Scope, Shared, Slot, Store,
    crypt::KeyRing,
    memory::Memory,
    sqlite::{self, Sqlite},
};

/// Longer than anything here takes on a busy machine; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// One database, and the engines on it.
pub(crate) struct Rig {
    backend: Backend,
    /// A store of the test's own, to look with.
    store: Shared,
    opened: Mutex<BTreeMap<RunnerId, Weak<dyn Store>>>,
    swept: bool,
}

enum Backend {
    Memory(Arc<Memory>),
    Sqlite(tempfile::TempDir),
}

/// Runs each of these tests on each store.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::support::Rig::memory()).await;
            })*
        }

        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::support::Rig::sqlite()).await;
            })*
        }
    };
}
pub(crate) use on_each_store;

impl Rig {
    pub(crate) fn memory() -> Rig {
        let memory = Arc::new(Memory::new(Arc::new(clock::now)));
        Rig::on(Backend::Memory(memory))
    }

    /// Each engine opens the same file for itself, as a process would.
    pub(crate) fn sqlite() -> Rig {
        Rig::on(Backend::Sqlite(tempfile::tempdir().unwrap()))
    }

    /// A rig on which nobody can tell whether a dead runner's processes are gone.
    pub(crate) fn unswept() -> Rig {
        Rig {
            swept: false,
            ..Rig::memory()
        }
    }

    fn on(backend: Backend) -> Rig {
        longhaul_core::fault::choose(&std::env::var("LONGHAUL_FAULT").unwrap_or_default());
        let store = backend.open();
        Rig {
            backend,
            store,
            opened: Mutex::default(),
            swept: true,
        }
    }

    pub(crate) fn store(&self) -> Shared {
        Arc::clone(&self.store)
    }

    /// An engine that is not started.
    pub(crate) fn idle(&self, tools: Toolbox, change: impl FnOnce(&mut Options)) -> Engine {
        let store = self.backend.open();
        let opened = Arc::downgrade(&store);
        let engine = self.idle_on(store, tools, change);
        self.opened.lock().unwrap().insert(engine.runner(), opened);
        engine
    }

    /// An engine that is not started, on another store.
    pub(crate) fn idle_on(&self, store: Shared, tools: Toolbox, change: impl FnOnce(&mut Options)) -> Engine {
        let runner = Runner {
            id: clock::runner_id(),
            host: "here".to_owned(),
            boot: "boot".to_owned(),
            pid: std::process::id(),
            pid_start: 0,
        };
        let swept = self.swept;
        let mut options = Options::new(
            runner,
            Arc::new(|id| format!("ref-{id}")),
            Arc::new(move |_, tasks| tasks.iter().copied().filter(|_| swept).collect()),
        );
        options.claim_interval = Duration::from_millis(20);
        options.sweep_interval = Duration::from_millis(10);
        options.watch_interval = Duration::from_millis(10);
        options.beat_interval = Duration::from_millis(10);
        options.note_interval = Duration::from_millis(50);
        options.report_backoff_min = Duration::from_millis(1);
        change(&mut options);
        Engine::new(store, options, Arc::new(tools))
    }

    pub(crate) async fn engine(&self, tools: Toolbox) -> Engine {
        self.engine_with(tools, |_| {}).await
    }

    pub(crate) async fn engine_with(&self, tools: Toolbox, change: impl FnOnce(&mut Options)) -> Engine {
        let engine = self.idle(tools, change);
        engine.start().await.unwrap();
        engine
    }

    /// The end of an engine's process: it runs nothing more, and others can tell.
    pub(crate) async fn crash(&self, engine: Engine) {
        let runner = engine.runner();
        drop(engine);
        match &self.backend {
            Backend::Memory(memory) => memory.kill(runner),
            Backend::Sqlite(_) => {
                let store = self.opened.lock().unwrap().remove(&runner).unwrap();
                within(async {
                    while store.strong_count() > 0 {
                        tokio::task::yield_now().await;
                    }
                })
                .await;
            }
        }
    }

    /// The others hold this runner for dead, though its process goes on. Only the model can be told so.
    pub(crate) fn declare_dead(&self, runner: RunnerId) {
        match &self.backend {
            Backend::Memory(memory) => memory.kill(runner),
            Backend::Sqlite(_) => panic!("a runner whose process lives is not dead on one machine"),
        }
    }

    /// The names of all audit events of a task, in order.
    pub(crate) async fn audit(&self, id: TaskId) -> Vec<(String, String)> {
        let records = self.store().audit(0, 10_000).await.unwrap();
        let records = records
            .iter()
            .map(|row| audit::Record::decode(&row.body).unwrap());
        let own = records.filter(|record| record.task == format!("ref-{id}"));
        own.flat_map(|record| record.events)
            .map(|entry| (entry.name, entry.detail))
            .collect()
    }
}

impl Backend {
    fn open(&self) -> Shared {
        match self {
            Backend::Memory(memory) => memory.clone(),
            Backend::Sqlite(directory) => {
                let options = sqlite::Options {
                    directory: directory.path().to_owned(),
                    keys: KeyRing::new([7; 32], &[]),
                    clock: Arc::new(clock::now),
                    allow_network_file_system: true,
                };
                Arc::new(Sqlite::open(options).unwrap())
            }
        }
    }
}

/// Tools by name.
#[derive(Default)]
pub(crate) struct Toolbox {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    /// The slots of the tools that share a name, by what is stored with their tasks.
    shared: BTreeMap<String, Vec<(Body, Slots)>>,
}

impl Toolbox {
    pub(crate) fn one<F>(name: &str, run: impl Fn(Call, Context) -> F + Send + Sync + 'static) -> Toolbox
    where
        F: Future<Output = Finish> + Send + 'static,
    {
        Toolbox::default().with(name, 8, run)
    }

    pub(crate) fn with<F>(
        mut self,
        name: &str,
        concurrency_max: usize,
        run: impl Fn(Call, Context) -> F + Send + Sync + 'static,
    ) -> Toolbox
    where
        F: Future<Output = Finish> + Send + 'static,
    {
        let script = Script {
            run: Box::new(move |call, context| Box::pin(run(call, context))),
            concurrency_max,
            outlives_us: true,
        };
        self.tools.insert(name.to_owned(), Arc::new(script));
        self
    }

    /// One tool whose work ends with the process, whatever handle it has.
    pub(crate) fn ends_with_us<F>(
        name: &str,
        run: impl Fn(Call, Context) -> F + Send + Sync + 'static,
    ) -> Toolbox
    where
        F: Future<Output = Finish> + Send + 'static,
    {
        let script = Script {
            run: Box::new(move |call, context| Box::pin(run(call, context))),
            concurrency_max: 8,
            outlives_us: false,
        };
        let mut toolbox = Toolbox::default();
        toolbox.tools.insert(name.to_owned(), Arc::new(script));
        toolbox
    }

    pub(crate) fn sharing(mut self, name: &str, shared: Vec<(Body, Slots)>) -> Toolbox {
        self.shared.insert(name.to_owned(), shared);
        self
    }
}

impl Tools for Toolbox {
    fn find(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    fn slots(&self, name: &str) -> Vec<Slots> {
        match self.shared.get(name) {
            Some(shared) => shared.iter().map(|(_, slots)| slots.clone()).collect(),
            None => {
                let tool = self.tools.get(name).map(|tool| Slots {
                    of: name.to_owned(),
                    max: tool.concurrency_max(),
                });
                tool.into_iter().collect()
            }
        }
    }

    fn slots_of(&self, name: &str, context: &Body) -> Option<Slots> {
        let mut shared = self.shared.get(name)?.iter();
        Some(shared.find(|(of, _)| of == context)?.1.clone())
    }
}

struct Script {
    run: Box<dyn Fn(Call, Context) -> Running + Send + Sync>,
    concurrency_max: usize,
    outlives_us: bool,
}

impl Tool for Script {
    fn run(&self, call: Call, context: Context) -> Running {
        (self.run)(call, context)
    }

    fn concurrency_max(&self) -> usize {
        self.concurrency_max
    }

    fn outlives_us(&self) -> bool {
        self.outlives_us
    }
}

/// What tests see of tools at work: who began, in order, and who may go on.
#[derive(Clone)]
pub(crate) struct Stage {
    began: Arc<tokio::sync::watch::Sender<Vec<Call>>>,
    open: Arc<tokio::sync::watch::Sender<bool>>,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage {
            began: Arc::new(tokio::sync::watch::Sender::new(Vec::new())),
            open: Arc::new(tokio::sync::watch::Sender::new(false)),
        }
    }

    pub(crate) fn enter(&self, call: &Call) {
        self.began.send_modify(|began| began.push(call.clone()));
    }

    /// Waits until so many attempts began.
    pub(crate) async fn began(&self, count: usize) -> Vec<Call> {
        let mut began = self.began.subscribe();
        within(async {
            began
                .wait_for(|began| began.len() >= count)
                .await
                .unwrap()
                .clone()
        })
        .await
    }

    pub(crate) fn count(&self) -> usize {
        self.began.borrow().len()
    }

    /// Lets everyone at the door go on.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) async fn door(&self) {
        self.open.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("this should have happened by now")
}

pub(crate) fn rules(on_crash: OnCrash) -> Rules {
    Rules {
        on_crash,
        on_silence: OnSilence::Decline,
        fail_when_nobody_can_answer: false,
        question_deadline: Span::seconds(600),
        approval_lasts: Span::seconds(600),
        questions_max: 4,
    }
}

pub(crate) fn rerun(starts_max: u32) -> Rules {
    rules(OnCrash::Rerun {
        starts_max,
        backoff: Span(0),
    })
}

pub(crate) fn owner() -> Owner {
    Owner {
        tenant: "default".into(),
        issuer: "local".into(),
        subject: "uid:1000".into(),
        app: String::new(),
    }
}

pub(crate) async fn call(engine: &Engine, tool: &str) -> TaskId {
    call_with(engine, tool, rules(OnCrash::Fail), |_| {}).await
}

pub(crate) async fn call_with(
    engine: &Engine,
    tool: &str,
    rules: Rules,
    change: impl FnOnce(&mut Opening),
) -> TaskId {
    let id = engine.task_id();
    let name = id.to_string();
    let mut opening = Opening {
        id,
        owner: owner(),
        kid: 1,
        name: name.clone(),
        tool: tool.to_owned(),
        session: String::new(),
        origin: "test".to_owned(),
        idem: None,
        digest: [0; 32],
        hidden: false,
        args: Body::new(b"{}"),
        context: Body::new(b"{}"),
        note: Vec::new(),
        purge_after: Millis(u64::MAX),
        birth: Birth {
            rules,
            can_ask: CanAsk {
                client: true,
                operator: true,
            },
            expires_at: engine.now() + Span::seconds(3_600),
            approval: None,
        },
        records: BTreeMap::new(),
        counters: BTreeMap::new(),
        trail: Trail::default(),
    };
    change(&mut opening);
    let slot = Slot::Birth {
        owner: owner(),
        idem: opening.idem,
        names: vec![name],
    };
    let judge = move |snapshot: &longhaul_store::Snapshot| match &snapshot.task {
        Some(row) => Verdict::Refuse(row.id),
        None => Verdict::Open(Box::new(opening.clone()), opening.id),
    };
    match engine
        .transact(
            Scope {
                task: slot,
                ..Scope::default()
            },
            Box::new(judge),
        )
        .await
        .unwrap()
    {
        Done::Committed(_, id) | Done::Refused(id) => id,
        Done::NotNow(why, _) => panic!("{why:?}"),
    }
}

pub(crate) async fn happen(engine: &Engine, id: TaskId, event: Event) -> Done<()> {
    let scope = Scope {
        task: Slot::Task(id),
        ..Scope::default()
    };
    let judge = move |_: &longhaul_store::Snapshot| {
        Verdict::Apply(
            Proposal {
                events: vec![event.clone()],
                actor: "owner",
                ..Proposal::default()
            },
            (),
        )
    };
    engine.transact(scope, Box::new(judge)).await.unwrap()
}

pub(crate) async fn cancel(engine: &Engine, id: TaskId) -> Done<()> {
    happen(
        engine,
        id,
        Event::Cancel {
            by: CancelledBy::Owner,
        },
    )
    .await
}

pub(crate) async fn answer(engine: &Engine, id: TaskId, key: u32, answer: Answer) -> Done<()> {
    let key = QuestionKey(key);
    happen(
        engine,
        id,
        Event::Answered {
            key,
            reader: Reader::Client,
            answer,
        },
    )
    .await
}

pub(crate) fn question(text: &str) -> Ask {
    Ask {
        reader: Reader::Client,
        body: Body::new(text.as_bytes()),
        bind: [7; 32],
    }
}

pub(crate) async fn row(engine: &Engine, id: TaskId) -> Row {
    engine.read(Query::Task(id)).await.unwrap().rows.remove(0)
}

/// Waits for the row to be so, by the engine's own watch.
pub(crate) async fn until(engine: &Engine, id: TaskId, so: impl Fn(&Row) -> bool) -> Row {
    let last = Mutex::new(None);
    let wait = async {
        loop {
            let row = row(engine, id).await;
            if so(&row) {
                return row;
            }
            let changed = engine.changed(id, row.version);
            *last.lock().unwrap() = Some(row);
            changed.await;
        }
    };
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(row) => row,
        Err(_) => panic!("the task stays as it is: {:?}", last.into_inner().unwrap()),
    }
}

pub(crate) async fn finished(engine: &Engine, id: TaskId) -> Row {
    until(engine, id, |row| !row.task.is_open()).await
}

pub(crate) fn returned(text: &str) -> Finish {
    Finish::Returned {
        body: Body::new(text.as_bytes()),
        is_error: false,
    }
}
