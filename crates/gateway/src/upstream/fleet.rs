//! All servers behind this one, opened from the configuration or brought by `longhaul wrap`, and the way to whichever of
//! them answers a request.
//!
//! Made by the binary before dispatch, which holds it. It keeps no copy of what a server defines: that is asked of the
//! server each time. A wrapped server comes and goes while Longhaul runs; which are kept is decided by dispatch.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longhaul_core::Millis;
use longhaul_engine::clock;
use longhaul_mcp::{
    client::{Kind, dial::Choice},
    frame::{Obj, Raw},
};
use tokio::sync::{mpsc, watch};

use super::{
    credentials::Unreadable,
    definitions::Definitions,
    dial::{LookUp, Ours, Place},
    login::{Logins, Target},
    offer::{Changed, Offering},
    place::Where,
    server::{self, Server, Spec, State},
    stdio::Host,
    times::Times,
    wrapped::Brought,
};
use crate::{
    catalog::Catalog,
    command,
    config::{Config, Protocol, Tasks, Upstream},
};

/// How long a restart waits for the server to be reached or not.
const RESTART_MAX: Duration = Duration::from_secs(45);
/// How much longer than a start its lists may take, where a client waits for them.
const KNOWN_EXTRA: Duration = Duration::from_secs(10);
/// How many changed definitions wait to be stored.
const CHANGES_MAX: usize = 64;

/// What a fleet is made of.
pub struct Setup<'a> {
    /// The settings.
    pub config: &'a Config,
    /// What runs programs.
    pub host: Host,
    /// Longhaul's own environment; each program gets a part of it.
    pub env: Vec<(OsString, OsString)>,
    /// What each server defined when it was last seen, as [`Definitions::encode`] wrote it.
    pub known: &'a dyn Fn(&str) -> Option<Definitions>,
    /// Where the servers' tools are offered.
    pub catalog: Arc<Catalog>,
    /// Who is logged in at the servers.
    pub logins: Logins,
}

/// Every server behind this one. Cheap to clone; with the last clone their processes end.
#[derive(Clone)]
pub struct Fleet {
    members: Arc<[Arc<Member>]>,
    wrapped: Arc<Mutex<BTreeMap<String, Wrapped>>>,
    /// `None` in a fleet to which nothing can be added.
    opener: Option<Arc<Opener>>,
    logins: Logins,
}

/// A server that was brought.
struct Wrapped {
    member: Arc<Member>,
    /// As it was brought last: what differs from window to window is that of the newest.
    brought: Arc<Mutex<Brought>>,
    /// Held by each pipe that is shown it.
    shown: Arc<()>,
    used_at: Millis,
}

/// As long as this is held, a wrapped server is in use.
#[derive(Clone)]
pub struct InUse(#[expect(dead_code, reason = "it is counted, not read")] Arc<()>);

/// All that a server is opened with, besides what is its own.
struct Opener {
    tasks: Tasks,
    result_max: u64,
    question_max: u64,
    host: Host,
    env: Arc<[(OsString, OsString)]>,
    catalog: Arc<Catalog>,
    changes: mpsc::Sender<Changed>,
    logins: Logins,
}

/// One configured server.
pub struct Member {
    /// Its settings.
    pub config: Arc<Upstream>,
    /// `None` for one that is not to be started.
    pub server: Option<Server>,
    /// The largest question that is passed on, in bytes (`limits.question_max`).
    pub question_max: u64,
    changed_at: watch::Receiver<Millis>,
}

impl Fleet {
    /// Begins to reach every server, and returns at once. What changes in their definitions is told.
    pub fn open(setup: &Setup<'_>) -> (Fleet, mpsc::Receiver<Changed>) {
        let (changes, changed) = mpsc::channel(CHANGES_MAX);
        let opener = Opener {
            logins: setup.logins.clone(),
            tasks: setup.config.tasks.clone(),
            result_max: setup.config.limits.result_max.0,
            question_max: setup.config.limits.question_max.0,
            host: setup.host.clone(),
            env: setup.env.clone().into(),
            catalog: Arc::clone(&setup.catalog),
            changes,
        };
        let mut members = Vec::new();
        let mut offerings = Vec::new();
        let mut configured: Vec<&Upstream> = setup.config.servers.values().collect();
        configured.sort_by_key(|server| server.rank);
        for config in configured {
            let known = (setup.known)(&config.name);
            let (member, offering) = opener.member(config.clone(), None, known, false);
            members.push(Arc::new(member));
            offerings.extend(offering);
        }
        // Watched first: a change after what is known is told.
        let watched: Vec<_> = offerings
            .into_iter()
            .map(|offering| (offering.server.watch(), offering))
            .collect();
        // As one: a name that two servers have is never one server's alone, not for a moment.
        let known = watched.iter().filter_map(|(_, offering)| offering.known());
        setup.catalog.offer_all(known);
        for (defined, offering) in watched {
            tokio::spawn(offering.follow(defined, opener.changes.clone()));
        }
        let fleet = Fleet {
            members: members.into(),
            wrapped: Arc::default(),
            opener: Some(Arc::new(opener)),
            logins: setup.logins.clone(),
        };
        (fleet, changed)
    }

    /// A fleet of no servers, to which none can be added.
    pub fn empty(logins: Logins) -> Fleet {
        Fleet {
            members: Arc::default(),
            wrapped: Arc::default(),
            opener: None,
            logins,
        }
    }

    /// Who is logged in at which of them.
    pub fn logins(&self) -> &Logins {
        &self.logins
    }

    /// The server of this name as somebody logs in at it, or the one at this address; an address of none is one, too.
    /// `None` where there is no such server, or it is a program.
    ///
    /// # Errors
    /// A value that stands elsewhere cannot be read.
    pub async fn target(&self, named: &str) -> Result<Option<Target>, Unreadable> {
        let Some(opener) = &self.opener else {
            return Ok(None);
        };
        if crate::config::is_section_name(named) {
            return match self.member(named) {
                Some(member) => opener.place(&member.config, None).target().await,
                None => Ok(None),
            };
        }
        let wrapped = self.wrapped();
        let mut members = self.members.iter().chain(&wrapped);
        let same = members.find(|member| member.config.url.as_deref() == Some(named));
        let settings = same.map(|member| Arc::clone(&member.config));
        let settings = settings.unwrap_or_else(|| {
            let mut settings = Upstream::wrapped(String::new());
            settings.url = Some(named.to_owned());
            Arc::new(settings)
        });
        opener.place(&settings, None).target().await
    }

    /// Somebody logged in at this address, or out: those there that are not well are tried again.
    pub async fn logged_in(&self, url: &url::Url) {
        let wrapped = self.wrapped();
        for member in self.members.iter().chain(&wrapped) {
            let unwell = member.server.as_ref();
            let unwell = unwell.filter(|server| server.state() != State::Ready);
            let (Some(opener), Some(server)) = (&self.opener, unwell) else {
                continue;
            };
            let own = opener.place(&member.config, None).target().await.ok().flatten();
            if own.is_some_and(|own| own.url == *url) {
                server.restart().await;
            }
        }
    }

    /// Whether any is configured.
    pub fn is_any(&self) -> bool {
        !self.members.is_empty()
    }

    /// All that are configured, in the order of the configuration.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// All that were brought and are kept, in the order of their names.
    pub fn wrapped(&self) -> Vec<Arc<Member>> {
        let wrapped = self.lock();
        wrapped
            .values()
            .map(|wrapped| Arc::clone(&wrapped.member))
            .collect()
    }

    /// A wrapped server of this name, which is in use from now on.
    pub fn use_wrapped(&self, name: &str) -> Option<(Arc<Member>, InUse)> {
        let wrapped = self.lock();
        let found = wrapped.get(name)?;
        Some((Arc::clone(&found.member), InUse(Arc::clone(&found.shown))))
    }

    /// Takes a wrapped server in, or takes note of how it was brought now. `known` is what it defined when it was last
    /// seen; without it, what an equal command or address defined counts until it was reached. One that sleeps is not
    /// started before somebody needs it. False where this fleet takes none.
    pub fn wrap(
        &self,
        name: &str,
        brought: &Brought,
        known: Option<Definitions>,
        used_at: Millis,
        sleeps: bool,
    ) -> bool {
        let Some(opener) = &self.opener else {
            return false;
        };
        let mut wrapped = self.lock();
        if let Some(there) = wrapped.get_mut(name) {
            there.used_at = there.used_at.max(used_at);
            *there.brought.lock().unwrap_or_else(PoisonError::into_inner) = brought.clone();
            return true;
        }
        let known = known.or_else(|| like(&wrapped, brought));
        let settings = brought.settings(name);
        let shared = Arc::new(Mutex::new(brought.clone()));
        opener.catalog.wrap(name);
        let (member, offering) = opener.member(settings, Some(Arc::clone(&shared)), known, sleeps);
        if let Some(offering) = offering {
            let defined = offering.server.watch();
            opener.catalog.offer_all(offering.known());
            tokio::spawn(offering.follow(defined, opener.changes.clone()));
        }
        let entry = Wrapped {
            member: Arc::new(member),
            brought: shared,
            shown: Arc::default(),
            used_at,
        };
        wrapped.insert(name.to_owned(), entry);
        true
    }

    /// As a wrapped server was brought last.
    pub fn brought(&self, name: &str) -> Option<Brought> {
        let wrapped = self.lock();
        let brought = wrapped.get(name)?.brought.lock();
        Some(brought.unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// A wrapped server is used at this moment.
    pub fn used(&self, name: &str, at: Millis) {
        if let Some(wrapped) = self.lock().get_mut(name) {
            wrapped.used_at = at;
        }
    }

    /// The wrapped servers that nobody uses and of which nothing runs, the one that was used first before the others.
    pub fn unused(&self) -> Vec<String> {
        let wrapped = self.lock();
        let mut unused: Vec<(Millis, &String)> = wrapped
            .iter()
            .filter(|(_, wrapped)| {
                // One that is only tried to be reached is of use to nobody.
                let server = wrapped.member.server.as_ref();
                let runs = server.is_some_and(|server| !server.live().is_empty());
                Arc::strong_count(&wrapped.shown) == 1 && !runs
            })
            .map(|(name, wrapped)| (wrapped.used_at, name))
            .collect();
        unused.sort();
        unused.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// Lets a wrapped server sleep that cannot be reached and that nobody uses: it is not tried again before somebody
    /// needs it.
    pub fn rest(&self, name: &str) {
        let found = self.lock().get(name).map(|wrapped| {
            let brought = wrapped.brought.lock().unwrap_or_else(PoisonError::into_inner);
            (Arc::clone(&wrapped.member), brought.clone(), wrapped.used_at)
        });
        let Some((member, brought, used_at)) = found else {
            return;
        };
        let server = member.server.as_ref();
        let is_down = server.is_some_and(|server| matches!(server.state(), State::Degraded { .. }));
        if is_down && self.unwrap(name) {
            let known = server.and_then(Server::definitions);
            if let Some(known) = known {
                self.wrap(name, &brought, Some(Definitions::clone(&known)), used_at, true);
            }
        }
    }

    /// Keeps a wrapped server no longer, unless it is in use again. Whether it is gone.
    pub fn unwrap(&self, name: &str) -> bool {
        let mut wrapped = self.lock();
        if wrapped
            .get(name)
            .is_some_and(|wrapped| Arc::strong_count(&wrapped.shown) > 1)
        {
            return false;
        }
        wrapped.remove(name);
        drop(wrapped);
        if let Some(opener) = &self.opener {
            opener.catalog.unwrap(name);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Wrapped>> {
        // Invariant: what is under this lock is whole at each step, so a poisoned one is used on.
        self.wrapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that are started, those of the configuration first.
    fn all(&self) -> Vec<Server> {
        let wrapped = self.wrapped();
        let members = self.members.iter().chain(&wrapped);
        members.filter_map(|member| member.server.clone()).collect()
    }

    /// The servers that are started, in the order of the configuration.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.members.iter().filter_map(|member| member.server.as_ref())
    }

    /// The server of this name, if it is started.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers().find(|server| server.name() == name)
    }

    /// The server of this name, configured or brought, started or not.
    pub fn member(&self, name: &str) -> Option<Arc<Member>> {
        let configured = self.members.iter().find(|member| member.config.name == name);
        configured
            .cloned()
            .or_else(|| Some(Arc::clone(&self.lock().get(name)?.member)))
    }

    /// Whether a server of this name was brought.
    pub fn has_wrapped(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// Starts a server anew, and waits until it was reached or could not be. `None` when there is no such server.
    pub async fn restart(&self, name: &str) -> Option<Arc<Member>> {
        let member = self.member(name)?;
        if let Some(server) = &member.server {
            let mut state = server.watch_state();
            state.mark_unchanged();
            let settled = async {
                server.restart().await;
                // The first change is the end of what was before. A server that is closed changes no more.
                if state.changed().await.is_ok() {
                    let _closed = state.wait_for(|state| *state != State::Starting).await;
                }
            };
            let _late = tokio::time::timeout(RESTART_MAX, settled).await;
        }
        Some(member)
    }

    /// The session of this caller has ended.
    pub fn leave(&self, caller: &server::Caller) {
        self.all().iter().for_each(|server| server.leave(caller));
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
        futures_util::future::join_all(self.all().iter().map(Server::close)).await;
    }
}

/// What the server that was used last defines, of those that are the same command or address.
fn like(wrapped: &BTreeMap<String, Wrapped>, brought: &Brought) -> Option<Definitions> {
    let likely = wrapped.values().filter(|wrapped| {
        let own = wrapped.brought.lock().unwrap_or_else(PoisonError::into_inner);
        own.is_like(brought)
    });
    let defined = likely.filter_map(|wrapped| {
        let definitions = wrapped.member.server.as_ref()?.definitions()?;
        Some((wrapped.used_at, definitions))
    });
    let (_, newest) = defined.max_by_key(|(used_at, _)| *used_at)?;
    Some(Definitions::clone(&newest))
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Member").field(&self.config.name).finish()
    }
}

/// Two of one name are the same.
impl PartialEq for Member {
    fn eq(&self, other: &Member) -> bool {
        self.config.name == other.config.name
    }
}

impl Eq for Member {}

impl Member {
    /// Waits until it is known what it defines, or that it cannot be reached now; no longer than it may take to start.
    pub async fn known(&self) {
        let Some(server) = &self.server else {
            return;
        };
        let (mut defined, mut state) = (server.watch(), server.watch_state());
        let known = async {
            tokio::select! {
                _closed = defined.wait_for(Option::is_some) => {}
                _closed = state.wait_for(|state| matches!(state, State::Degraded { .. } | State::Closed)) => {}
            }
        };
        let most = Duration::from_millis(self.config.start_timeout.0) + KNOWN_EXTRA;
        let _late = tokio::time::timeout(most, known).await;
    }

    /// Since when its state is what it is.
    pub fn state_since(&self) -> Millis {
        *self.changed_at.borrow()
    }
}

impl Opener {
    fn member(
        &self,
        config: Upstream,
        brought: Option<Arc<Mutex<Brought>>>,
        known: Option<Definitions>,
        sleeps: bool,
    ) -> (Member, Option<Offering>) {
        let config = Arc::new(config);
        let (changed, changed_at) = watch::channel(clock::now());
        let server = (!config.disabled).then(|| Server::open(self.spec(&config, brought, known, sleeps)));
        let offering = server.as_ref().map(|server| {
            tokio::spawn(follow_state(server.watch_state(), changed));
            Offering {
                server: server.clone(),
                config: Arc::clone(&config),
                tasks: self.tasks.clone(),
                result_max: self.result_max,
                question_max: self.question_max,
                catalog: Arc::clone(&self.catalog),
            }
        });
        let member = Member {
            config,
            server,
            question_max: self.question_max,
            changed_at,
        };
        (member, offering)
    }

    fn place(&self, config: &Arc<Upstream>, brought: Option<Arc<Mutex<Brought>>>) -> Where {
        Where {
            config: Arc::clone(config),
            host: Arc::new(self.host.clone()),
            env: Arc::clone(&self.env),
            brought,
            logins: self.logins.clone(),
        }
    }

    fn spec(
        &self,
        config: &Arc<Upstream>,
        brought: Option<Arc<Mutex<Brought>>>,
        known: Option<Definitions>,
        sleeps: bool,
    ) -> Spec {
        let place = self.place(config, brought);
        Spec {
            name: config.name.clone(),
            place: Place::LookedUp(LookUp {
                is_remote: config.url.is_some(),
                find: Arc::new(move |refused| {
                    let place = place.clone();
                    Box::pin(async move { place.look_up(refused).await })
                }),
            }),
            choice: match config.protocol {
                Protocol::Auto => Choice::Find {
                    first: Kind::Stateless,
                },
                Protocol::Sessions => Choice::Only(Kind::Sessions),
                Protocol::Stateless => Choice::Only(Kind::Stateless),
            },
            isolation: config.isolation,
            processes_max: config.processes_max as usize,
            times: Times {
                idle_stop: Duration::from_millis(config.idle_stop.0),
                keep_idle: Duration::from_millis(config.keep_idle.0),
                wait: Duration::from_millis(config.wait_timeout.0),
                request: Duration::from_millis(config.request_timeout.0),
                lists: Duration::from_millis(config.lists_timeout.0),
            },
            ours: Ours {
                dial_max: Duration::from_millis(config.start_timeout.0),
                ..Ours::new(Obj::default(), roots(config))
            },
            may_ask: config.may_ask(),
            asks_undeclared: config.ask_undeclared,
            known,
            sleeps,
        }
    }
}

/// What the server is answered to `roots/list`, where its settings say it (D-34).
fn roots(config: &Upstream) -> Option<Obj> {
    let is_told = !config.roots.is_empty() && config.may_ask().roots;
    is_told.then(|| {
        let roots = config.roots.iter().map(|folder| {
            let folder = command::absolute(folder);
            let mut root = Obj::default();
            // An absolute path always is one.
            let uri = url::Url::from_file_path(&folder).map(String::from);
            root.set("uri", &uri.unwrap_or_default());
            if let Some(name) = folder.file_name() {
                root.set("name", &name.to_string_lossy());
            }
            root.to_raw()
        });
        let mut list = Obj::default();
        list.set("roots", &roots.collect::<Vec<Raw>>());
        list
    })
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
