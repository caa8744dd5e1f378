//! A gateway on the memory store with a few scripted tools, spoken to over its real HTTP router.

mod commands;
pub(crate) mod site;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body as HttpBody, http::Request};
use http_body_util::BodyExt as _;
use longhaul_core::{
    Body, Reason, RunnerId, Span,
    event::Ask,
    task::{OnCrash, OnSilence, Reader, Rules},
};
use longhaul_engine::{
    Engine, Options, clock,
    process::Shim,
    tool::{Call, Context, Finish, Running, Settled, Tool as Work},
};
use longhaul_gateway::{
    admin::{Entrance, Peer},
    catalog::{Arguments, Catalog, Entry, Holding},
    dispatch::{self, Dispatch, Settings},
    http::{self, Allowed, Limits},
    outbound::{self, Note},
    sealed_id::Keys,
    upstream::{
        Definitions,
        fleet::{self, Fleet},
        server::State,
        stdio::Host,
    },
};
use longhaul_mcp::{
    ToolRule,
    frame::Raw,
    reply::{Annotations, TaskSupport, Tool as Listing},
    request::Answers,
    url_rule::Reach,
};
use longhaul_store::{Runner, memory::Memory};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    sync::watch,
};
use tower::ServiceExt as _;

pub(crate) const ADDRESS: &str = "127.0.0.1:7410";
/// The program of a server behind the gateway; python3 runs it.
pub(crate) const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/mcp_server.py");
/// The same of a server with tasks; its head says what it does.
pub(crate) const TASK_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/task_server.py");
const PATIENCE: Duration = Duration::from_secs(20);
/// The person who runs it, at the socket.
pub(crate) const ME: Peer = Peer {
    uid: 0,
    entrance: Entrance::Socket,
};
/// The longest that the servers behind a gateway take to begin.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Takes away the guard that the environment names.
pub(crate) fn choose_fault() {
    longhaul_core::fault::choose(&std::env::var("LONGHAUL_FAULT").unwrap_or_default());
}

/// A server that is nobody's child, run by python3 with these arguments, and the port on which it says that it listens.
pub(crate) async fn listening(arguments: &[&str]) -> (Child, u16) {
    #[expect(
        clippy::disallowed_methods,
        reason = "a server behind a URL is nobody's child in production"
    )]
    let mut process = tokio::process::Command::new("python3")
        .args(arguments)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(process.stdout.take().expect("piped")).lines();
    let line = tokio::time::timeout(READY_WITHIN, said.next_line())
        .await
        .expect("in time");
    let line = line.expect("readable").expect("a line");
    let port = line.strip_prefix("listening ").expect("its port");
    (process, port.parse().expect("a number"))
}

/// One gateway.
pub(crate) struct World {
    pub runner: RunnerId,
    pub dispatch: Dispatch,
    pub catalog: Arc<Catalog>,
    /// The servers behind it.
    pub fleet: Fleet,
    router: Router,
    open: watch::Sender<bool>,
    _spool: Option<tempfile::TempDir>,
}

/// What a client declares, besides its version.
#[derive(Clone)]
pub(crate) struct Client {
    pub tasks: bool,
    pub capabilities: Value,
    pub accept: &'static str,
}

impl Client {
    pub(crate) fn with_tasks() -> Client {
        Client {
            tasks: true,
            capabilities: json!({ "elicitation": {} }),
            accept: BOTH,
        }
    }

    pub(crate) fn without_tasks() -> Client {
        Client {
            tasks: false,
            ..Client::with_tasks()
        }
    }
}

const BOTH: &str = "application/json, text/event-stream";

/// A reply over HTTP.
pub(crate) struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    pub(crate) fn result(&self) -> &Value {
        assert!(self.body.get("error").is_none(), "an error: {}", self.body);
        &self.body["result"]
    }

    pub(crate) fn code(&self) -> i64 {
        self.body["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("no error: {}", self.body))
    }
}

impl World {
    pub(crate) async fn start() -> World {
        World::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> World {
        choose_fault();
        let open = watch::Sender::new(false);
        let catalog = Arc::new(catalog(&open));
        let engine = Engine::new(
            Arc::new(Memory::new(Arc::new(clock::now))),
            options(),
            Arc::clone(&catalog) as _,
        );
        engine.start().await.expect("memory starts");
        let keys = Keys::derive(1, &[7; 32]);
        let dispatch = Dispatch::new(engine.clone(), Arc::clone(&catalog), keys, settings);
        let address: SocketAddr = ADDRESS.parse().expect("an address");
        let router = http::router(
            dispatch.clone(),
            Arc::clone(&catalog),
            Limits::default(),
            Allowed::new(address, &[], &[]),
        );
        World {
            runner: engine.runner(),
            dispatch,
            catalog,
            fleet: Fleet::empty(dispatch::logins(&engine)),
            router,
            open,
            _spool: None,
        }
    }

    /// A gateway in front of the servers and the commands of this configuration.
    pub(crate) async fn behind(config: &str, settings: Settings) -> World {
        let store = Arc::new(Memory::new(Arc::new(clock::now)));
        World::over(store, config, settings, &|_| None).await
    }

    /// The same, once every server is ready.
    pub(crate) async fn ready_behind(config: &str, settings: Settings) -> World {
        let world = World::behind(config, settings).await;
        world.ready().await;
        world
    }

    /// A gateway over the store of one before, which knows what that one knew of its servers.
    pub(crate) async fn over(
        store: Arc<Memory>,
        config: &str,
        settings: Settings,
        known: &dyn Fn(&str) -> Option<Definitions>,
    ) -> World {
        choose_fault();
        // JSON is the file of a client.
        let file = match config.starts_with('{') {
            true => "/.mcp.json",
            false => "/longhaul.toml",
        };
        let loaded = crate::config::read(&[(file, config)], &[]).expect("a configuration");
        let servers = loaded.config.servers_in_order().into_iter();
        let servers = servers.map(|server| (server.name.clone(), server.prefix));
        let spool = tempfile::tempdir().expect("a directory");
        let shim = Shim {
            program: env!("CARGO_BIN_EXE_gateway-rig").into(),
            args: Vec::new(),
        };
        let commands = commands::entries(&loaded.config, shim.clone(), spool.path());
        let catalog = Catalog::new(commands).with_servers(servers);
        let catalog = Arc::new(catalog.with_toolsets(loaded.config.toolsets.values().cloned()));
        let engine = Engine::new(store, options(), Arc::clone(&catalog) as _);
        engine.start().await.expect("memory starts");
        let (fleet, _changed) = Fleet::open(&fleet::Setup {
            config: &loaded.config,
            host: Host {
                shim,
                runner: "runner".to_owned(),
                spool: spool.path().to_owned(),
                grace: Duration::from_millis(300),
            },
            env: std::env::vars_os().collect(),
            known,
            catalog: Arc::clone(&catalog),
            logins: dispatch::logins(&engine),
        });
        let keys = Keys::derive(1, &[7; 32]);
        let runner = engine.runner();
        let dispatch = Dispatch::before(engine, Arc::clone(&catalog), fleet.clone(), keys, settings);
        let address: SocketAddr = ADDRESS.parse().expect("an address");
        let allowed = Allowed::new(address, &[], &[]);
        let router = http::router(dispatch.clone(), Arc::clone(&catalog), Limits::default(), allowed);
        World {
            runner,
            dispatch,
            catalog,
            fleet,
            router,
            open: watch::Sender::new(false),
            _spool: Some(spool),
        }
    }

    /// Waits until every server behind it is ready.
    pub(crate) async fn ready(&self) {
        for server in self.fleet.servers() {
            let mut state = server.watch_state();
            let ready = state.wait_for(|state| *state == State::Ready);
            tokio::time::timeout(READY_WITHIN, ready)
                .await
                .expect("in time")
                .expect("the server lives");
        }
    }

    /// The same gateway, whose clients all speak to the endpoint of this toolset.
    pub(crate) fn at(&self, toolset: &str) -> World {
        let path = format!("/mcp/{toolset}");
        let router = self.router.clone();
        let router = router.map_request(move |mut request: Request<HttpBody>| {
            *request.uri_mut() = path.parse().expect("a path");
            request
        });
        World {
            dispatch: self.dispatch.clone(),
            catalog: Arc::clone(&self.catalog),
            runner: self.runner,
            fleet: self.fleet.clone(),
            router: Router::new().fallback_service(router),
            open: self.open.clone(),
            _spool: None,
        }
    }

    /// Lets `waits` return.
    pub(crate) fn release(&self) {
        self.open.send_replace(true);
    }

    pub(crate) async fn respond(&self, request: Request<HttpBody>) -> axum::response::Response {
        self.router
            .clone()
            .oneshot(request)
            .await
            .expect("a router answers")
    }

    pub(crate) async fn send(&self, request: Request<HttpBody>) -> (u16, Vec<u8>) {
        let response = self.respond(request).await;
        let status = response.status().as_u16();
        let bytes = tokio::time::timeout(PATIENCE, response.into_body().collect());
        (
            status,
            bytes
                .await
                .expect("a body in time")
                .expect("a body")
                .to_bytes()
                .to_vec(),
        )
    }

    pub(crate) async fn rpc(&self, client: &Client, method: &str, params: Value) -> Answer {
        let (status, bytes) = self.send(post(client, method, params)).await;
        Answer {
            status,
            body: last_frame(&bytes),
        }
    }

    pub(crate) async fn call(&self, client: &Client, tool: &str, arguments: Value) -> Answer {
        self.rpc(
            client,
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
        .await
    }

    pub(crate) async fn get(&self, id: &str) -> Answer {
        self.rpc(&Client::with_tasks(), "tasks/get", json!({ "taskId": id }))
            .await
    }

    /// The task once it has this status, as its stream tells it.
    pub(crate) async fn until(&self, id: &str, status: &str) -> Value {
        let filter = json!({ "notifications": { "taskIds": [id] } });
        let mut frames = self
            .stream(&Client::with_tasks(), "subscriptions/listen", filter)
            .await;
        loop {
            let frame = frames
                .next()
                .await
                .expect("the task before the end of its stream");
            if frame["params"]["status"] == status {
                return frame["params"].clone();
            }
        }
    }

    /// The frames of a stream, as they come.
    pub(crate) async fn stream(&self, client: &Client, method: &str, params: Value) -> Frames {
        let response = self
            .router
            .clone()
            .oneshot(post(client, method, params))
            .await
            .expect("a router answers");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Frames {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }
}

/// A stream of events.
pub(crate) struct Frames {
    body: HttpBody,
    buffer: Vec<u8>,
}

impl Frames {
    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(data) = event.strip_prefix(b"data: ") {
                    return Some(serde_json::from_slice(data).expect("a frame is JSON"));
                }
                continue;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame())
                .await
                .expect("a frame in time")?;
            self.buffer
                .extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default());
        }
    }
}

pub(crate) fn post(client: &Client, method: &str, mut params: Value) -> Request<HttpBody> {
    let mut capabilities = client.capabilities.clone();
    if client.tasks {
        capabilities["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
    }
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let name = params
        .get("name")
        .or_else(|| params.get("taskId"))
        .or_else(|| params.get("uri"))
        .and_then(Value::as_str)
        .map(str::to_owned);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut request = Request::post("/mcp")
        .header("host", ADDRESS)
        .header("content-type", "application/json")
        .header("accept", client.accept)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(name) = name {
        request = request.header("mcp-name", name);
    }
    request.body(HttpBody::from(body.to_string())).expect("a request")
}

fn last_frame(bytes: &[u8]) -> Value {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    let json = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back()
        .unwrap_or(text);
    serde_json::from_str(json).unwrap_or_else(|_| json!({ "text": text }))
}

pub(crate) fn options() -> Options {
    let runner = Runner {
        id: clock::runner_id(),
        host: String::new(),
        boot: String::new(),
        pid: 1,
        pid_start: 1,
    };
    Options::new(
        runner,
        Arc::new(|task| task.to_string()),
        Arc::new(|_, tasks| tasks.iter().copied().collect()),
    )
}

fn catalog(open: &watch::Sender<bool>) -> Catalog {
    let opened = open.subscribe();
    let tool = |name: &str, support, work: Script| entry(name, support, work);
    let waits = {
        script(move |_, context: Context| {
            let mut opened = opened.clone();
            async move {
                context.note(Note::new(Some(1.0), Some(2.0), Some("half way")).encode());
                tokio::select! {
                    _ = opened.wait_for(|open| *open) => text("waited"),
                    () = context.stop() => Finish::Stopped { confirmed: true },
                }
            }
        })
    };
    let mut asks_first = tool(
        "asks_first",
        TaskSupport::Required,
        script(|_, context| asked(context, &["name"])),
    );
    asks_first.asks_first = true;
    asks_first.promote_after = Span::seconds(3600);
    let mut slow = tool("waits", TaskSupport::Optional, waits);
    slow.promote_after = Span(0);
    let mut asks = tool(
        "asks",
        TaskSupport::Optional,
        script(|_, context| asked(context, &["name"])),
    );
    asks.promote_after = Span::seconds(3600);
    let mut needs = tool(
        "needs_sampling",
        TaskSupport::Optional,
        script(|_, _| async { text("sampled") }),
    );
    needs.needs = Answers {
        sampling: true,
        ..Answers::default()
    };
    Catalog::new(vec![
        tool(
            "greet",
            TaskSupport::Forbidden,
            script(|call, _| async move { greeting(&call) }),
        ),
        slow,
        asks,
        tool(
            "asks_two",
            TaskSupport::Required,
            script(|_, context| asked(context, &["first", "second"])),
        ),
        asks_first,
        tool(
            "asks_alike",
            TaskSupport::Forbidden,
            script(|_, context| asked(context, &["name", "name", "q1"])),
        ),
        tool("fails", TaskSupport::Required, script(|_, _| async { failed() })),
        tool("breaks", TaskSupport::Required, script(|_, _| async { broken() })),
        tool(
            "gives_up",
            TaskSupport::Required,
            script(|_, _| async { Finish::Failed(Reason::UpstreamLost) }),
        ),
        needs,
    ])
}

pub(crate) type Script = Arc<dyn Fn(Call, Context) -> Running + Send + Sync>;

pub(crate) fn script<F>(work: impl Fn(Call, Context) -> F + Send + Sync + 'static) -> Script
where
    F: Future<Output = Finish> + Send + 'static,
{
    Arc::new(move |call, context| Box::pin(work(call, context)))
}

struct Scripted(Script);

impl Work for Scripted {
    fn run(&self, call: Call, context: Context) -> Running {
        (self.0)(call, context)
    }

    fn concurrency_max(&self) -> usize {
        64
    }
}

struct Named;

impl Arguments for Named {
    fn misfits(&self, arguments: &Raw) -> Vec<String> {
        let read: Result<BTreeMap<String, Value>, _> = arguments.read();
        match read.map(|members| members.contains_key("bad")) {
            Ok(false) => Vec::new(),
            Ok(true) | Err(_) => vec!["`bad` is not an argument of this tool".to_owned()],
        }
    }
}

pub(crate) fn entry(name: &str, support: TaskSupport, work: Script) -> Entry {
    Entry {
        listing: Listing {
            name: name.to_owned(),
            title: None,
            description: Some(format!("The scripted tool {name}.")),
            input_schema: Raw::parse(r#"{"type":"object"}"#).expect("JSON"),
            output_schema: None,
            annotations: Annotations::default(),
            task_support: support,
            relayed: None,
        },
        rule: ToolRule {
            requires_task: support == TaskSupport::Required,
            forbids_task: support == TaskSupport::Forbidden,
            ..ToolRule::default()
        },
        rules: Rules {
            on_crash: OnCrash::Fail,
            on_silence: OnSilence::Decline,
            fail_when_nobody_can_answer: false,
            question_deadline: Span::seconds(600),
            questions_max: 16,
            approval_lasts: Span::seconds(600),
        },
        ttl: Span::seconds(600),
        promote_after: Span::seconds(3600),
        asks_first: false,
        asks_again: false,
        needs: Answers::default(),
        holding: Holding::default(),
        server_tool: None,
        is_of_session: false,
        is_wrapped: false,
        arguments: Arc::new(Named),
        work: Arc::new(Scripted(work)),
    }
}

fn greeting(call: &Call) -> Finish {
    let arguments: Value = serde_json::from_slice(call.args.bytes().expect("arguments")).expect("JSON");
    text(&format!(
        "Hello, {}!",
        arguments["name"].as_str().unwrap_or("nobody")
    ))
}

/// Asks for each of these names at once and returns what was said.
pub(crate) async fn asked(context: Context, labels: &'static [&'static str]) -> Finish {
    let asks: Vec<Ask> = labels.iter().map(|label| ask(label)).collect();
    match context.ask(asks).await {
        Ok(settled) => text(&settled.iter().map(said).collect::<Vec<_>>().join(" and ")),
        Err(_) => Finish::Stopped { confirmed: true },
    }
}

const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;

fn ask(label: &str) -> Ask {
    let question = outbound::Question {
        label: Some(label.to_owned()),
        message: format!("What is the {label}?"),
        form: Some(Raw::parse(FORM).expect("JSON")),
        ..outbound::Question::default()
    };
    let ask = outbound::question(&question, Reach::Public, 64 * 1024).expect("a form that may be asked");
    assert_eq!(ask.reader, Reader::Client);
    ask
}

fn said(settled: &Settled) -> String {
    match settled {
        Settled::Accepted(body) => {
            let content: Value = serde_json::from_slice(body.bytes().expect("an answer")).expect("JSON");
            content["name"].as_str().unwrap_or("?").to_owned()
        }
        Settled::Declined => "declined".to_owned(),
        Settled::Dismissed => "dismissed".to_owned(),
    }
}

pub(crate) fn text(text: &str) -> Finish {
    returned(&json!({ "content": [{ "type": "text", "text": text }] }), false)
}

fn failed() -> Finish {
    returned(
        &json!({ "content": [{ "type": "text", "text": "it failed" }], "isError": true }),
        true,
    )
}

fn broken() -> Finish {
    Finish::Errored {
        body: Body::new(br#"{"code":-32050,"message":"broken","data":{"part":3}}"#),
    }
}

pub(crate) fn returned(result: &Value, is_error: bool) -> Finish {
    Finish::Returned {
        body: Body::new(result.to_string().as_bytes()),
        is_error,
    }
}
