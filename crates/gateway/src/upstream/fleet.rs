//! All servers behind this one, opened from the configuration, and the way to whichever of them answers a request.
//!
//! Made by the binary before dispatch, which holds it. It keeps no copy of what a server defines: that is asked of the
//! server each time.

use std::{ffi::OsString, sync::Arc, time::Duration};

use longhaul_core::Millis;
use longhaul_engine::clock;
use longhaul_mcp::{
    client::{Kind, dial::Choice},
    frame::{Obj, Raw},
};
use tokio::sync::{mpsc, watch};

use super::{
    definitions::Definitions,
    dial::{LookUp, Ours, Place},
    offer::{Changed, Offering},
    place::Where,
    server::{self, Server, Spec, State},
    stdio::Host,
    times::Times,
};
use crate::{
    catalog::Catalog,
    command,
    config::{Config, Protocol, Upstream},
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
    /// Longhaul's own environment; each program gets a part of it.
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
    /// The largest question that is passed on, in bytes (`limits.question_max`).
    pub question_max: u64,
    changed_at: watch::Receiver<Millis>,
}

impl Fleet {
    /// Begins to reach every server, and returns at once. What changes in their definitions is told.
    pub fn open(setup: &Setup<'_>) -> (Fleet, mpsc::Receiver<Changed>) {
        let (changes, changed) = mpsc::channel(CHANGES_MAX);
        let mut members = Vec::new();
        let mut offerings = Vec::new();
        let mut configured: Vec<&Upstream> = setup.config.servers.values().collect();
        configured.sort_by_key(|server| server.rank);
        for config in configured {
            let (member, offering) = setup.member(config);
            members.push(member);
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
            tokio::spawn(offering.follow(defined, changes.clone()));
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

    /// The servers that are started, in the order of the configuration.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.members.iter().filter_map(|member| member.server.as_ref())
    }

    /// The server of this name, if it is started.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers().find(|server| server.name() == name)
    }

    /// Starts a server anew, and waits until it was reached or could not be. `None` when there is no such server.
    pub async fn restart(&self, name: &str) -> Option<&Member> {
        let member = self.members.iter().find(|member| member.config.name == name)?;
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

impl Member {
    /// Since when its state is what it is.
    pub fn state_since(&self) -> Millis {
        *self.changed_at.borrow()
    }
}

impl Setup<'_> {
    fn member(&self, config: &Upstream) -> (Member, Option<Offering>) {
        let config = Arc::new(config.clone());
        let (changed, changed_at) = watch::channel(clock::now());
        let server = (!config.disabled).then(|| Server::open(self.spec(&config)));
        let offering = server.as_ref().map(|server| {
            tokio::spawn(follow_state(server.watch_state(), changed));
            Offering {
                server: server.clone(),
                config: Arc::clone(&config),
                tasks: self.config.tasks.clone(),
                result_max: self.config.limits.result_max.0,
                question_max: self.config.limits.question_max.0,
                catalog: Arc::clone(&self.catalog),
            }
        });
        let member = Member {
            config,
            server,
            question_max: self.config.limits.question_max.0,
            changed_at,
        };
        (member, offering)
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
            known: (self.known)(&config.name),
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
