//! All servers behind this one: opened from the configuration, their tools kept in the catalog, and the way to
//! whichever of them answers a request.
//!
//! Made by the binary before dispatch, which holds it. It keeps no list of its own: what a server defines is asked of
//! the server each time.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use longhaul_core::Millis;
use longhaul_engine::{
    clock,
    process::{self, Unstartable},
};
use longhaul_mcp::{
    canon,
    client::{self, Era, Kind, dial::Choice, list::Item},
    frame::{Obj, Raw},
    reply::Relays,
    request::Answers,
};
use tokio::sync::{mpsc, watch};

use super::{
    credentials::{Elsewhere, Unreadable},
    definitions::Definitions,
    dial::{LookUp, Ours, Place},
    http::Remote,
    offer::{self, Settings},
    relayed::Relayed,
    server::{self, Server, Spec, State},
    stdio::{Host, Program},
};
use crate::{
    admin::api,
    catalog::{Beside, Catalog, Entry},
    command,
    config::{self, Config, Isolation, Protocol, Upstream},
};

/// How long a restart waits for the server to be reached or not.
const RESTART_MAX: Duration = Duration::from_secs(45);
/// How many changed definitions wait to be stored.
const CHANGES_MAX: usize = 64;

/// What a fleet is made of.
pub struct Setup<'a> {
    /// The settings.
    pub config: &'a Config,
    /// What runs programs.
    pub host: Host,
    /// The server's own environment; each program gets a part of it.
    pub env: Vec<(OsString, OsString)>,
    /// What each server defined when it was last seen, as [`Definitions::encode`] wrote it.
    pub known: &'a dyn Fn(&str) -> Option<Definitions>,
    /// Where the servers' tools are offered.
    pub catalog: Arc<Catalog>,
}

/// Every server behind this one. Cheap to clone; with the last clone their processes end.
#[derive(Clone, Default)]
pub struct Fleet {
    members: Arc<[Member]>,
}

/// One configured server.
pub struct Member {
    /// Its settings.
    pub config: Arc<Upstream>,
    /// `None` for one that is not to be started.
    pub server: Option<Server>,
    changed_at: watch::Receiver<Millis>,
}

/// What a server newly defines, to be kept until the next start.
pub struct Changed {
    /// The server.
    pub server: String,
    /// What it defines now.
    pub definitions: Arc<Definitions>,
}

impl Fleet {
    /// Begins to reach every server, and returns at once. What changes in their definitions is told.
    pub fn open(setup: &Setup<'_>) -> (Fleet, mpsc::Receiver<Changed>) {
        let (changes, changed) = mpsc::channel(CHANGES_MAX);
        let mut members = Vec::new();
        let mut configured: Vec<&Upstream> = setup.config.servers.values().collect();
        configured.sort_by_key(|server| server.rank);
        for config in configured {
            members.push(setup.member(config, &changes));
        }
        let fleet = Fleet {
            members: members.into(),
        };
        (fleet, changed)
    }

    /// Whether there is any.
    pub fn is_any(&self) -> bool {
        !self.members.is_empty()
    }

    /// All that are configured, in the order of the configuration.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The settings of the server of this name.
    pub fn config(&self, name: &str) -> Option<&Upstream> {
        let mut members = self.members.iter();
        members
            .find(|member| member.config.name == name)
            .map(|member| &*member.config)
    }

    /// The servers that are started, in the order of the configuration.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.members.iter().filter_map(|member| member.server.as_ref())
    }

    /// The server of this name, if it is started.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers().find(|server| server.name() == name)
    }

    /// How every server is, for the person who configured them.
    pub fn status(&self) -> Vec<api::Server> {
        self.members.iter().map(Member::status).collect()
    }

    /// Starts a server anew, and waits until it was reached or could not be. `None` when there is no such server.
    pub async fn restart(&self, name: &str) -> Option<api::Server> {
        let member = self.members.iter().find(|member| member.config.name == name)?;
        if let Some(server) = &member.server {
            let mut state = server.watch_state();
            state.mark_unchanged();
            server.restart().await;
            let settled = async {
                // The first change is the end of what was before. A server that is closed changes no more.
                if state.changed().await.is_ok() {
                    let _closed = state.wait_for(|state| *state != State::Starting).await;
                }
            };
            let _late = tokio::time::timeout(RESTART_MAX, settled).await;
        }
        Some(member.status())
    }

    /// The session of this caller has ended.
    pub fn leave(&self, caller: &server::Caller) {
        self.servers().for_each(|server| server.leave(caller));
    }

    /// Resolves when every server that the configuration calls required was reached.
    pub async fn required(&self) {
        for member in self.members.iter().filter(|member| member.config.required) {
            if let Some(server) = &member.server {
                let mut state = server.watch_state();
                let _closed = state.wait_for(|state| *state == State::Ready).await;
            }
        }
    }

    /// Ends all of them. Returns when nothing of them is left, or that cannot be confirmed.
    pub async fn close(&self) {
        futures_util::future::join_all(self.servers().map(Server::close)).await;
    }
}

impl Setup<'_> {
    fn member(&self, config: &Upstream, changes: &mpsc::Sender<Changed>) -> Member {
        let config = Arc::new(config.clone());
        let (changed, changed_at) = watch::channel(clock::now());
        let server = (!config.disabled).then(|| {
            let server = Server::open(self.spec(&config));
            let offering = Offering {
                server: server.clone(),
                config: Arc::clone(&config),
                tasks: self.config.tasks.clone(),
                result_max: self.config.limits.result_max.0,
                question_max: self.config.limits.question_max.0,
                catalog: Arc::clone(&self.catalog),
            };
            tokio::spawn(offering.follow(changes.clone()));
            tokio::spawn(follow_state(server.watch_state(), changed));
            server
        });
        Member {
            config,
            server,
            changed_at,
        }
    }

    fn spec(&self, config: &Arc<Upstream>) -> Spec {
        let place = Where {
            config: Arc::clone(config),
            host: Arc::new(self.host.clone()),
            env: self.env.clone().into(),
        };
        Spec {
            name: config.name.clone(),
            place: Place::LookedUp(LookUp {
                is_remote: config.url.is_some(),
                find: Arc::new(move || {
                    let place = place.clone();
                    Box::pin(async move { place.look_up().await })
                }),
            }),
            choice: match config.protocol {
                Protocol::Auto => Choice::Find {
                    first: Kind::Stateless,
                },
                Protocol::Sessions => Choice::Only(Kind::Sessions),
                Protocol::Stateless => Choice::Only(Kind::Stateless),
            },
            isolation: match config.isolation {
                Isolation::Session => server::Isolation::Session,
                Isolation::Principal => server::Isolation::Principal,
                Isolation::Shared => server::Isolation::Shared,
                Isolation::Call => server::Isolation::Call,
            },
            processes_max: config.processes_max as usize,
            idle_stop: Duration::from_millis(config.idle_stop.0),
            ours: Ours {
                dial_max: Duration::from_millis(config.start_timeout.0),
                // A form can be filled in elsewhere by whoever called (C-29); a model and roots are their client's own.
                ..Ours::new(
                    client::capabilities(Answers {
                        form: true,
                        ..Answers::default()
                    }),
                    None,
                )
            },
            known: (self.known)(&config.name),
        }
    }
}

/// How a server is reached, as far as the configuration says it.
#[derive(Clone)]
struct Where {
    config: Arc<Upstream>,
    host: Arc<Host>,
    env: Arc<[(OsString, OsString)]>,
}

impl Where {
    async fn look_up(&self) -> Result<Place, Unreadable> {
        let config = &self.config;
        let folder = command::absolute(&config.folder);
        let elsewhere = Elsewhere {
            env: &self.env,
            folder: &folder,
            host: &self.host,
        };
        if let Some(url) = &config.url {
            let mut headers = Vec::new();
            for (name, written) in &config.headers.0 {
                headers.push((name.clone(), elsewhere.value(written).await?));
            }
            return Ok(Place::Remote(Remote {
                url: url.clone(),
                headers,
            }));
        }
        let mut env = command::passed(&self.env, &config.env_pass);
        for (name, written) in &config.env.0 {
            let value = elsewhere.value(written).await?;
            env.retain(|(own, _)| own.as_os_str() != name.as_str());
            env.push((name.into(), value.into()));
        }
        let words = config.command.0.iter().chain(&config.args);
        let program = Program {
            server: config.name.clone(),
            command: words.map(OsString::from).collect(),
            cwd: command::absolute(config.cwd.as_ref().unwrap_or(&config.folder)),
            folder,
            env,
            memory_max: config.memory_max.map(|bytes| bytes.0),
            nice: u8::try_from(config.nice).unwrap_or(0),
        };
        Ok(Place::Program(program, Arc::clone(&self.host)))
    }
}

/// Where the program of a server is, which is none at a URL.
///
/// # Errors
/// Why it cannot be started.
pub fn program(server: &Upstream, path: &OsStr) -> Result<PathBuf, Unstartable> {
    let program = server.command.0.first().ok_or(Unstartable::Empty)?;
    process::resolve(OsStr::new(program), path, &command::absolute(&server.folder))
}

/// Keeps the catalog as a server defines its tools.
struct Offering {
    server: Server,
    config: Arc<Upstream>,
    tasks: config::Tasks,
    result_max: u64,
    question_max: u64,
    catalog: Arc<Catalog>,
}

impl Offering {
    async fn follow(self, changes: mpsc::Sender<Changed>) {
        let mut defined = self.server.watch();
        let mut is_first = defined.borrow().is_some();
        let name = self.server.name().to_owned();
        loop {
            let definitions = defined.borrow_and_update().clone();
            if let Some(definitions) = definitions {
                self.catalog
                    .offer(&name, self.entries(&definitions), beside(&definitions));
                // What was known from the last run is stored already.
                if !is_first {
                    let changed = Changed {
                        server: name.clone(),
                        definitions,
                    };
                    let _nobody_stores_it = changes.send(changed).await;
                }
            }
            is_first = false;
            if defined.changed().await.is_err() {
                return;
            }
        }
    }

    fn entries(&self, definitions: &Definitions) -> Vec<Entry> {
        let tools = definitions.tools.iter();
        tools
            .filter_map(|definition| {
                let settings = Settings::of(&self.config, &definition.name);
                if settings.is_hidden() {
                    return None;
                }
                let work = Relayed {
                    server: self.server.clone(),
                    name: definition.name.clone(),
                    mirrors: definition.mirrors.clone().into(),
                    timeout: settings.timeout(),
                    concurrency: settings.concurrency(),
                    result_max: self.result_max,
                    question_max: self.question_max,
                };
                Some(offer::entry(definition, settings, &self.tasks, Arc::new(work)))
            })
            .collect()
    }
}

/// What there is of a server beside tools.
fn beside(definitions: &Definitions) -> Beside {
    let offers = definitions.spoken.offers();
    let digest = |lists: &[&[Item]]| {
        let items = lists.iter().flat_map(|list| list.iter());
        let texts: Vec<Raw> = items.map(|item| item.raw.to_raw()).collect();
        Raw::of(&texts)
            .ok()
            .and_then(|texts| canon::digest(&texts).ok())
            .unwrap_or_default()
    };
    Beside {
        relays: Relays {
            prompts: offers.prompts,
            // Lists are fetched again when a server comes back, whether it tells of changes or not.
            prompts_change: offers.prompts,
            resources: offers.resources,
            resources_change: offers.resources,
            subscribe: false,
            completions: offers.completions,
        },
        prompts: digest(&[&definitions.prompts]),
        resources: digest(&[&definitions.resources, &definitions.templates]),
    }
}

/// Notes when a server's state changed last.
async fn follow_state(mut state: watch::Receiver<State>, changed: watch::Sender<Millis>) {
    let mut last = std::mem::discriminant(&*state.borrow_and_update());
    while state.changed().await.is_ok() {
        let now = std::mem::discriminant(&*state.borrow_and_update());
        if now != last {
            last = now;
            changed.send_replace(clock::now());
        }
    }
}

impl Member {
    fn status(&self) -> api::Server {
        let config = &self.config;
        let reached_by = match &config.url {
            Some(url) => without_query(url),
            None => config
                .command
                .0
                .iter()
                .map(|word| without_value(word))
                .collect::<Vec<_>>()
                .join(" "),
        };
        let definitions = self.server.as_ref().and_then(Server::definitions);
        let (state, why, stderr) = match self.server.as_ref().map(Server::state) {
            None => (api::ServerState::Disabled, None, String::new()),
            Some(State::Starting) => (api::ServerState::Starting, None, String::new()),
            Some(State::Ready) => (api::ServerState::Ready, None, String::new()),
            Some(State::Degraded { why, stderr, .. }) => (api::ServerState::Degraded, Some(why), stderr),
            Some(State::Closed) => (
                api::ServerState::Degraded,
                Some("it was closed".to_owned()),
                String::new(),
            ),
        };
        let spoken = definitions.as_ref().map(|definitions| &definitions.spoken);
        api::Server {
            name: config.name.clone(),
            state,
            reached_by,
            calls_itself: spoken.and_then(|spoken| calls_itself(spoken.server_info.as_ref()?)),
            protocol: spoken.map(|spoken| Era::version(spoken.era).to_owned()),
            tools: definitions.as_ref().map_or(0, |definitions| {
                u32::try_from(definitions.tools.len()).unwrap_or(u32::MAX)
            }),
            left_out: definitions.as_ref().map(left_out).unwrap_or_default(),
            processes: self
                .server
                .as_ref()
                .map_or(0, |server| u32::try_from(server.count()).unwrap_or(u32::MAX)),
            processes_max: config.processes_max,
            for_ms: clock::now().since(*self.changed_at.borrow()).0,
            why,
            stderr,
        }
    }
}

/// An address as it may be shown: a key may stand behind its `?`.
fn without_query(url: &str) -> String {
    match url.split_once(['?', '#']) {
        Some((address, _)) => format!("{address}?…"),
        None => url.to_owned(),
    }
}

/// An argument as it may be shown: a token may stand behind its `=`.
fn without_value(word: &str) -> String {
    match word.split_once('=') {
        Some((option, _)) if option.starts_with('-') => format!("{option}=…"),
        Some(_) | None => word.to_owned(),
    }
}

fn left_out(definitions: &Arc<Definitions>) -> Vec<String> {
    let dropped = definitions.dropped.iter();
    dropped
        .map(|dropped| match &dropped.name {
            Some(name) => format!("{name}: {}", dropped.why),
            None => format!("a tool without a name: {}", dropped.why),
        })
        .collect()
}

fn calls_itself(info: &Obj) -> Option<String> {
    let name: String = info.get("title").or_else(|| info.get("name"))?;
    let version: Option<String> = info.get("version");
    let text = format!("{name} {}", version.unwrap_or_default());
    Some(longhaul_mcp::clean(text.trim(), 100))
}
