//! `longhaul serve`: puts the crates together and keeps them running until told to stop.
//!
//! The one place where store, engine and gateway meet. It decides nothing about tasks.
//! With `--stdio` its end is that of standard input; in the background it ends when nobody needs it.

mod ending;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    io::{self, IsTerminal},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use longhaul_core::{Span, TaskId};
use longhaul_engine::{
    Engine, Options, clock,
    process::{self, Identity, Shim},
};
use longhaul_gateway::{
    admin::{Entrance, Peer},
    catalog::Catalog,
    command::{self, Host},
    config::{Config, Loaded},
    dispatch,
    local::{
        notice::{self, NoNotices, Notifier},
        socket::{self, Claim},
    },
    sealed_id::Keys,
    server::{self, Listen, Server, Setup},
    stdio::Stdio,
    upstream::{
        self,
        fleet::{self, Fleet},
        offer::Changed,
        wrapped::Brought,
    },
};
use longhaul_store::Runner;
use nix::sys::resource::{Resource, setrlimit};
use tokio::sync::mpsc;
use tracing_appender::rolling::{self, Rotation};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use self::ending::{Life, Told};
use super::logs;
use crate::{
    background::{self, Starting},
    client::Client,
    database,
    exit::{Exit, Failure, Outcome},
    flags::{Common, Serve, Wrap},
    places::{self, State},
    screen::{counted, line, say, tell},
    service,
};

/// After how long without its database a server stops all its work, where others may take it over.
const FENCE_AFTER: Duration = Duration::from_secs(15);
/// The directory in which every runner has its spool.
const SPOOLS: &str = "spool";
/// How many days of logs are kept.
const LOG_DAYS: usize = 7;
/// The log filter when `LONGHAUL_LOG` is not set.
const LOG_DEFAULT: &str = "info";

/// What is ready before the runtime starts.
pub(crate) struct Prepared {
    state: State,
    loaded: Loaded,
    flags: Serve,
    as_json: bool,
    /// What the client at the standard streams is shown.
    wrapped: Option<Brought>,
    _log: tracing_appender::non_blocking::WorkerGuard,
}

/// Reads the configuration, makes the state directory, and begins the log.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn prepare(common: &Common, flags: &Serve) -> Result<Prepared, Failure> {
    if flags.background {
        // Refused only to the leader of a session, which has no terminal to lose.
        let _ = nix::unistd::setsid();
    }
    // A client starts `--stdio` in folders that are not trusted with a configuration.
    let mut loaded = places::load(common, !flags.background && !flags.stdio)?;
    if let Some(bind) = flags.bind {
        loaded.config.server.bind = bind;
        loaded.binds = true;
    }
    if let Some(toolset) = &flags.toolset
        && !loaded.config.toolsets.contains_key(toolset)
    {
        return Err(Failure::usage(format!("no toolset is named `{}`", line(toolset)))
            .fix("[toolsets.NAME] in the configuration declares one"));
    }
    let state = State::find(common)?;
    directory(&state.dir)?;
    let log = begin_log(&state.log(), flags.background || flags.stdio)?;
    // What a task holds in memory never lands in a core file. A limit that cannot be set is the system's choice.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    Ok(Prepared {
        state,
        loaded,
        flags: flags.clone(),
        as_json: common.json,
        wrapped: None,
        _log: log,
    })
}

/// As [`prepare`], for a server of its own that shows what is wrapped to the client at the standard streams.
///
/// # Errors
/// What is wrong with the configuration and the state directory.
pub(crate) fn prepare_wrapped(common: &Common, flags: &Wrap, brought: Brought) -> Result<Prepared, Failure> {
    let serve = Serve {
        stdio: true,
        ..Serve::default()
    };
    let mut prepared = prepare(common, &serve)?;
    if let Some(seconds) = flags.hold {
        prepared.loaded.config.tasks.hold_max = Some(Span::seconds(u64::from(seconds)));
    }
    prepared.wrapped = Some(brought);
    Ok(prepared)
}

/// Serves until SIGTERM or ctrl-c, or what else ends this kind of server, then drains; a second one ends at once.
pub(crate) async fn serve(prepared: Prepared) -> Outcome {
    let Prepared {
        state,
        loaded,
        flags,
        as_json,
        wrapped,
        _log,
    } = prepared;
    let config = loaded.config;
    for warning in &loaded.warnings {
        tracing::warn!("{}", line(&warning.to_string()));
    }
    let path = state.socket();
    let early = match flags.replace {
        true => None,
        false => claim(&path)?,
    };
    if flags.background && !flags.replace && early.is_none() {
        tracing::info!("another server has the socket; this one is not needed");
        return Ok(Exit::Done);
    }
    if let Err(error) = process::become_subreaper() {
        tracing::warn!(%error, "a killed shim's processes are found by their mark only");
    }
    let (store, keys) = database::open(&state, &config).await?;
    let runner = this_process()?;
    let host = Arc::new(host(&config, &state, &runner)?);
    let catalog = Arc::new(catalog(&config, &host)?);
    let spools = state.dir.join(SPOOLS);
    let spool = spools.join(runner.id.to_string());
    let options = options(runner, keys.clone(), spools, &config);
    let engine = Engine::new(store, options, Arc::clone(&catalog) as _);
    engine.start().await.map_err(|error| unstored(&error))?;
    let (fleet, changed) = open_fleet(&engine, &config, &host, &catalog).await?;
    // Until somebody listens for it, the order to stop ends the process at once; from then on it must be heard.
    let mut told = None;
    if config.servers.values().any(|server| server.required)
        && !ending::required(&fleet, told.insert(Told::listen()?)).await
    {
        return Ok(Exit::Done);
    }
    let (socket, starting) = match flags.replace {
        true => replace(&path).await?,
        false => (early, None),
    };
    if socket.is_none() {
        tracing::warn!("another server has the socket; this one cannot be reached there");
    } else if let Err(error) = state.note_socket(&path) {
        tracing::warn!(%error, "the place of the socket cannot be noted; programs with another environment will not find it");
    }
    let setup = Setup {
        engine: engine.clone(),
        catalog: Arc::clone(&catalog),
        servers: (fleet.clone(), changed),
        keys,
        config: &config,
        config_files: &loaded.files,
        socket,
        listen: match (&flags, loaded.binds) {
            (Serve { stdio: true, .. }, false) => Listen::Nowhere,
            (Serve { background: true, .. }, _) => Listen::ThereOrNear,
            (Serve { .. }, _) => Listen::There,
        },
        makes_way: flags.background,
        notices: notices(&config, &loaded.files, &host, &flags),
    };
    let server = match Server::bind(setup).await {
        Ok(server) => server,
        Err(error) => return Err(taken(error, &path).await),
    };
    drop(starting);
    announce(&server, &state, &config, &catalog, &flags, as_json);
    let mut life = life(&flags, &config, &server);
    if let Some(brought) = wrapped {
        life.stdio = Some(wrapped_alone(&server, &brought).await?);
    }
    let ended = ending::run(engine, server, life, told).await;
    fleet.close().await;
    if ended.is_ok() {
        // One that still holds a record is of work that could not be ended.
        let _kept = fs::remove_dir(spool);
    }
    ended
}

/// The standard streams of a client that is shown what is wrapped.
async fn wrapped_alone(server: &Server, brought: &Brought) -> Result<Stdio, Failure> {
    let stdio = server.control().stdio;
    let name = stdio.wrap(brought).await.map_err(Failure::from)?;
    let shown = stdio
        .of_wrapped(&name)
        .ok_or_else(|| Failure::fault("what was wrapped is gone already"))?;
    shown.reached().await;
    Ok(shown)
}

/// This process, as one that runs work.
fn this_process() -> Result<Runner, Failure> {
    let identity = process::identity().map_err(|error| fault("find this process in /proc", &error))?;
    let host = nix::unistd::gethostname().ok();
    Ok(Runner {
        id: clock::runner_id(),
        host: host.and_then(|name| name.into_string().ok()).unwrap_or_default(),
        boot: identity.boot,
        pid: identity.pid.unsigned_abs(),
        pid_start: identity.started,
    })
}

/// How the engine runs work here.
fn options(runner: Runner, references: Keys, spools: PathBuf, config: &Config) -> Options {
    let mut options = Options::new(
        runner,
        Arc::new(move |task| references.reference(task)),
        Arc::new(move |dead, tasks| sweep(&spools, dead, tasks)),
    );
    let shared = !matches!(config.store.url.as_str(), "memory" | "sqlite");
    // Where runners are on several machines, death is told by a clock.
    options.fence_after = shared.then_some(FENCE_AFTER);
    options
}

fn life(flags: &Serve, config: &Config, server: &Server) -> Life {
    Life {
        drain: Duration::from_millis(config.server.drain.0),
        // What is in memory only ends with the process.
        idle_exit: (flags.background && config.store.url != "memory")
            .then(|| Duration::from_millis(config.server.idle_exit.0)),
        stdio: match (&flags.toolset, flags.stdio) {
            // It was looked for before anything began.
            (Some(toolset), _) => server.control().stdio.of_toolset(toolset),
            (None, true) => Some(server.control().stdio),
            (None, false) => None,
        },
    }
}

/// The servers behind this one, with what is known of them from the last run.
async fn open_fleet(
    engine: &Engine,
    config: &Config,
    host: &Host,
    catalog: &Arc<Catalog>,
) -> Result<(Fleet, mpsc::Receiver<Changed>), Failure> {
    let wrapped = dispatch::wrapped(engine.store())
        .await
        .map_err(|error| unstored(&error))?;
    let known = match config.servers.is_empty() && wrapped.is_empty() {
        true => BTreeMap::new(),
        false => dispatch::known(engine.store())
            .await
            .map_err(|error| unstored(&error))?,
    };
    let (fleet, changed) = Fleet::open(&fleet::Setup {
        config,
        host: stdio_host(config, host),
        env: host.env.clone(),
        known: &|name| known.get(name).cloned(),
        catalog: Arc::clone(catalog),
        logins: dispatch::logins(engine),
    });
    for kept in wrapped {
        // Without its definitions there is no task of it, and whoever needs it brings it again.
        if let Some(defined) = known.get(&kept.name) {
            fleet.wrap(
                &kept.name,
                &kept.brought,
                Some(defined.clone()),
                kept.used_at,
                true,
            );
        }
    }
    Ok((fleet, changed))
}

/// The right to the socket; `None` when another server has it.
fn claim(path: &Path) -> Result<Option<Claim>, Failure> {
    match Claim::take(path) {
        Ok(claim) => Ok(Some(claim)),
        Err(socket::BindError::InUse(_)) => Ok(None),
        Err(error) => Err(unbound(error.into())),
    }
}

/// The right to the socket, after the server that had it made way. Nobody else starts one as long as the second
/// value is held.
async fn replace(path: &Path) -> Result<(Option<Claim>, Option<Starting>), Failure> {
    let starting = Starting::take(path).await?;
    let client = Client::new(path.to_owned());
    let before = client.health().await;
    // Said first: a server without work ends as soon as it is asked to.
    service::main_process(std::process::id());
    match client.hand_over(true).await {
        Ok(()) => background::made_way(path).await?,
        Err(failure) if failure.exit == Exit::Unreachable => {}
        Err(failure) => {
            if let Ok(before) = before {
                service::main_process(before.pid);
            }
            return Err(failure);
        }
    }
    Ok((claim(path)?, Some(starting)))
}

/// The state directory, made with mode 0700; one that others may enter is refused.
fn directory(dir: &Path) -> Result<(), Failure> {
    let shown = dir.display();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| {
            Failure::usage(format!("cannot make the state directory `{shown}`: {error}"))
                .fix("pass --state DIR")
        })?;
    let found =
        fs::metadata(dir).map_err(|error| Failure::usage(format!("cannot use `{shown}`: {error}")))?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(
            Failure::usage(format!("the state directory `{shown}` belongs to another user"))
                .fix("pass --state DIR"),
        );
    }
    if found.mode() & 0o077 != 0 {
        return Err(Failure::usage(format!(
            "the state directory `{shown}` is open to others (mode {:o})",
            found.mode() & 0o777
        ))
        .fix(format!("chmod 700 {shown}")));
    }
    Ok(())
}

/// JSON to a file of its own for each day; to standard error besides, plain on a terminal.
fn begin_log(dir: &Path, background: bool) -> Result<tracing_appender::non_blocking::WorkerGuard, Failure> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| fault("make the log directory", &error))?;
    let files = rolling::Builder::new()
        .rotation(Rotation::DAILY)
        .filename_prefix(logs::PREFIX)
        .filename_suffix("log")
        .max_log_files(LOG_DAYS)
        .build(dir)
        .map_err(|error| fault("open the log", &error))?;
    let (file, guard) = tracing_appender::non_blocking(files);
    let filter = EnvFilter::try_from_env("LONGHAUL_LOG").unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    let terminal = io::stderr().is_terminal();
    let plain = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .with_filter(
            // Warnings only: what a person at the terminal wants to see is announced apart.
            tracing_subscriber::filter::LevelFilter::WARN,
        );
    let json = tracing_subscriber::fmt::layer().json().with_writer(io::stderr);
    tracing_subscriber::registry()
        .with(filter)
        .with(tracing_subscriber::fmt::layer().json().with_writer(file))
        .with((!background && terminal).then_some(plain))
        .with((!background && !terminal).then_some(json))
        .try_init()
        .map_err(|error| Failure::fault(format!("cannot begin the log: {error}")))?;
    Ok(guard)
}

/// What runs programs.
fn host(config: &Config, state: &State, runner: &Runner) -> Result<Host, Failure> {
    let spools = state.dir.join(SPOOLS);
    directory(&spools)?;
    let spool = spools.join(runner.id.to_string());
    directory(&spool)?;
    let own = places::program().map_err(|error| fault("find this program's file", &error))?;
    Ok(Host {
        shim: Shim {
            program: own,
            args: vec![OsString::from("__shim")],
        },
        runner: runner.id.to_string(),
        spool,
        env: std::env::vars_os().collect(),
        limits: config.limits.clone(),
        grace: config.tasks.grace,
        questions_max: config.tasks.questions_max,
    })
}

/// What tells the user of questions that no client shows. A relative program starts at the folder of the configuration.
fn notices(config: &Config, files: &[PathBuf], host: &Host, flags: &Serve) -> Result<Notifier, NoNotices> {
    let folder = files.first().and_then(|file| file.parent());
    let folder = folder.and_then(|folder| std::path::absolute(folder).ok());
    let folder = folder.unwrap_or_else(|| PathBuf::from("/"));
    let program = notice::Program::find(&config.local.notify, &host.env, &folder)?;
    let has_page = config.server.page && !flags.stdio;
    Ok(Notifier::new(
        program,
        host.env.clone(),
        folder,
        stdio_host(config, host),
        has_page,
    ))
}

/// What runs the programs of servers.
fn stdio_host(config: &Config, host: &Host) -> upstream::stdio::Host {
    upstream::stdio::Host {
        shim: host.shim.clone(),
        runner: host.runner.clone(),
        spool: host.spool.clone(),
        grace: Duration::from_millis(config.tasks.grace.0),
    }
}

fn catalog(config: &Config, host: &Arc<Host>) -> Result<Catalog, Failure> {
    let entries: Result<Vec<_>, Failure> = config
        .in_order()
        .into_iter()
        .map(|tool| {
            command::entry(tool, &config.tasks, host)
                .map_err(|why| Failure::usage(format!("cannot offer the tool `{}`: {why}", line(&tool.name))))
        })
        .collect();
    let servers = config.servers_in_order().into_iter();
    let servers = servers.map(|server| (server.name.clone(), server.prefix));
    let toolsets = config.toolsets.values().cloned();
    Ok(Catalog::new(entries?)
        .with_servers(servers)
        .with_toolsets(toolsets))
}

/// Ends what a dead runner's tasks left behind, and says of which nothing is left; called on a thread that may
/// block. Without a task the runner is settled, and its spool goes.
fn sweep(spools: &Path, dead: &Runner, tasks: &[TaskId]) -> BTreeSet<TaskId> {
    let spool = spools.join(dead.id.to_string());
    if tasks.is_empty() {
        if let Err(error) = process::forget(&spool) {
            tracing::warn!(%error, "cannot delete the spool of a dead runner");
        }
        return BTreeSet::new();
    }
    let Ok(pid) = i32::try_from(dead.pid) else {
        return BTreeSet::new();
    };
    let identity = Identity {
        boot: dead.boot.clone(),
        pid,
        started: dead.pid_start,
    };
    let runtime = tokio::runtime::Handle::current();
    let swept = runtime.block_on(process::sweep(&spool, &dead.id.to_string(), &identity));
    let confirmed: BTreeSet<TaskId> = tasks
        .iter()
        .copied()
        .filter(|task| swept.confirms(&task.to_string()))
        .collect();
    let (ended, left, unsure) = (swept.ended, swept.left, tasks.len() - confirmed.len());
    if ended > 0 || left > 0 || unsure > 0 {
        tracing::info!(ended, left, unsure, "swept what a dead runner left behind");
    }
    confirmed
}

/// Says where the server is: to a person, or as one line of JSON to a program. The link is a secret, so it goes
/// to a terminal and to nothing else.
fn announce(
    server: &Server,
    state: &State,
    config: &Config,
    catalog: &Catalog,
    flags: &Serve,
    as_json: bool,
) {
    let tools = catalog.now().entries().len();
    let behind: Vec<&str> = config
        .servers_in_order()
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    // Each tells of itself once it was reached; until then, a new one's tools are not known.
    let servers = behind.join(", ");
    let Some(address) = server.address() else {
        return tracing::info!(tools, servers, version = env!("CARGO_PKG_VERSION"), "ready");
    };
    tracing::info!(%address, tools, servers, version = env!("CARGO_PKG_VERSION"), "ready");
    if as_json {
        let mcp = format!("http://{address}/mcp");
        let ready = serde_json::json!({ "mcp": mcp, "address": address, "state": state.dir, "pid": std::process::id() });
        say(ready.to_string());
    }
    if flags.background || flags.stdio || !io::stderr().is_terminal() {
        return;
    }
    tell(format!(
        "longhaul {} serves {}",
        env!("CARGO_PKG_VERSION"),
        counted(tools, "tool")
    ));
    if !servers.is_empty() {
        tell(format!("  servers {servers}"));
    }
    tell(format!("  mcp     http://{address}/mcp"));
    if let Some(links) = server.links() {
        let peer = Peer {
            uid: nix::unistd::geteuid().as_raw(),
            entrance: Entrance::Page,
        };
        tell(format!(
            "  page    {}\n          works once; later: longhaul page",
            links.hand_out(peer, None).url
        ));
    }
    tell(format!("  state   {}", state.dir.display()));
    if tools == 0 && behind.is_empty() {
        tell("  no tools yet: longhaul config init");
    }
    tell("  ctrl-c ends it; a second ctrl-c at once");
}

/// Why this one cannot be bound; where the server of this user has the address, how to take its place.
async fn taken(error: server::BindError, socket: &Path) -> Failure {
    if let server::BindError::AddressInUse(address) = &error
        && let Ok(running) = Client::new(socket.to_owned()).health().await
        && running.mcp.as_deref() == Some(&format!("http://{address}/mcp"))
    {
        let pid = running.pid;
        return Failure::new(
            Exit::Usage,
            "bind",
            format!("`{address}` is in use by the Longhaul server that runs already (pid {pid})"),
        )
        .fix("longhaul serve --replace takes its place and finishes what it runs");
    }
    unbound(error)
}

/// The store does not do what it must before anything is served.
fn unstored(error: &dyn std::error::Error) -> Failure {
    Failure::caused(Exit::Fault, "store", error).fix("longhaul doctor")
}

fn unbound(error: server::BindError) -> Failure {
    Failure::caused(Exit::Usage, "bind", &error)
}

fn fault(doing: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::fault(format!("cannot {doing}: {error}"))
}
