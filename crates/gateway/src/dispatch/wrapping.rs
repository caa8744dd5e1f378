//! Servers that `longhaul wrap` brings: taken in before the first call can reach them, and kept as long as a task may need
//! them.
//!
//! Called by the pipes, and by the binary at a start. The record of a wrapped server holds its environment, so like every
//! record's body it is encrypted; nothing of it is logged. What a call that comes back from another pipe may join is
//! decided in `join`, which asks here whether a pipe has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::{Millis, Span, audit::Entry};
use longhaul_engine::transact::Keeping;
use longhaul_mcp::{
    RpcError,
    rpc_error::{Refusal, RefusalCode, Who},
};
use longhaul_store::{Error, List, Owner, Query, Record, RecordKey, RecordKind, Scope, Shared, Snapshot};
use serde::{Deserialize, Serialize};

use super::{Dispatch, backend::local, store_reply};
use crate::{
    admin,
    config::WRAPPED_MAX,
    gate::{self, Action, Permit, View},
    identity::{Caller, Origin},
    sealed_id::Keys,
    toolset::Selection,
    upstream::{State, fleet::InUse, wrapped::Brought},
    view,
};

/// The tenant of what belongs to Longhaul as a whole.
const TENANT: &str = "";
/// How long a wrapped server is kept after its last use, where no task of it can be older.
const KEPT: Span = Span::seconds(30 * 24 * 60 * 60);
/// The most open tasks that are looked at to find those of a server.
const OPEN_MAX: u32 = 1_000;
/// When a client should try again for which there was no room, in milliseconds.
const RETRY_MS: u64 = 60_000;
/// The last lines of a standard error that its user is shown.
const STDERR_LINES: usize = 12;
/// The purpose of the key of the names.
const PURPOSE: &str = "wrapped-server";

/// A wrapped server as it is stored.
pub struct Kept {
    /// Its name.
    pub name: String,
    /// How it was brought last.
    pub brought: Brought,
    /// When.
    pub used_at: Millis,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    brought: Box<serde_json::value::RawValue>,
    used_at: u64,
}

/// Those that are stored.
///
/// # Errors
/// The store's.
pub async fn wrapped(store: &Shared) -> Result<Vec<Kept>, Error> {
    let records = store.records(RecordKind::Wrapped, TENANT.to_owned()).await?;
    let kept = records.into_iter().filter_map(|record| {
        let stored: Stored = serde_json::from_slice(&record.body).ok()?;
        Some(Kept {
            name: record.key.id,
            brought: Brought::decode(stored.brought.get().as_bytes()).ok()?,
            used_at: Millis(stored.used_at),
        })
    });
    Ok(kept.collect())
}

/// What is known of wrapped servers while this process runs.
pub(super) struct Wrapping {
    key: [u8; 32],
    /// One is taken in at a time.
    entrance: tokio::sync::Mutex<()>,
    /// The pipes that are open, with how many connections each has.
    pipes: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// A pipe that is open until this is dropped.
pub(crate) struct OpenPipe {
    pipes: Arc<Mutex<BTreeMap<String, usize>>>,
    pipe: String,
}

fn lock(pipes: &Mutex<BTreeMap<String, usize>>) -> MutexGuard<'_, BTreeMap<String, usize>> {
    pipes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for OpenPipe {
    fn drop(&mut self) {
        let mut pipes = lock(&self.pipes);
        if let Some(open) = pipes.get_mut(&self.pipe) {
            *open -= 1;
            if *open == 0 {
                pipes.remove(&self.pipe);
            }
        }
    }
}

impl Wrapping {
    pub(super) fn new(keys: &Keys) -> Wrapping {
        Wrapping {
            key: keys.purpose(PURPOSE),
            entrance: tokio::sync::Mutex::default(),
            pipes: Arc::default(),
        }
    }
}

impl Dispatch {
    /// This pipe is open for as long as what is returned is held.
    pub(crate) fn open_pipe(&self, pipe: String) -> OpenPipe {
        let pipes = Arc::clone(&self.inner.wrapping.pipes);
        *lock(&pipes).entry(pipe.clone()).or_insert(0) += 1;
        OpenPipe { pipes, pipe }
    }

    /// Whether this server was brought.
    pub(super) fn is_wrapped(&self, server: &str) -> bool {
        self.inner.fleet.has_wrapped(server)
    }

    pub(super) fn is_open(&self, pipe: &str) -> bool {
        lock(&self.inner.wrapping.pipes).contains_key(pipe)
    }

    /// Takes a server in that was brought, durably, and begins to reach it. Its name.
    pub(crate) async fn wrap(&self, brought: &Brought) -> Result<String, admin::Error> {
        self.take_in(brought).await.map_err(local)
    }

    async fn take_in(&self, brought: &Brought) -> Result<String, RpcError> {
        let inner = &self.inner;
        let name = brought.name(&inner.wrapping.key);
        let _one_at_a_time = inner.wrapping.entrance.lock().await;
        if !inner.fleet.has_wrapped(&name) && inner.fleet.wrapped().len() >= WRAPPED_MAX {
            self.make_room().await?;
        }
        let now = inner.engine.now();
        self.keep_wrapped(&name, Some(brought), now).await?;
        if !inner.fleet.wrap(&name, brought, None, now, false) {
            return Err(RpcError::internal(
                "not_wrapped",
                "This server takes no wrapped servers",
            ));
        }
        if let Some((member, _)) = inner.fleet.use_wrapped(&name)
            && let Some(server) = &member.server
        {
            server.wake();
        }
        Ok(name)
    }

    /// What the pipes of a wrapped server are shown, and the server's being in use.
    pub(crate) fn wrapped_selection(&self, name: &str) -> Option<(Selection, InUse)> {
        let (member, in_use) = self.inner.fleet.use_wrapped(name)?;
        Some((Selection::of_wrapped(member), in_use))
    }

    /// A wrapped server is used now, and is kept accordingly.
    pub(crate) async fn wrapped_is_used(&self, name: &str) {
        let now = self.inner.engine.now();
        self.inner.fleet.used(name, now);
        if self.keep_wrapped(name, None, now).await.is_err() {
            tracing::warn!(server = name, "the use of a wrapped server could not be stored");
        }
    }

    /// A pipe of a wrapped server has ended.
    pub(crate) async fn wrapped_is_left(&self, name: &str) {
        self.wrapped_is_used(name).await;
        self.inner.fleet.rest(name);
    }

    /// Writes the record of a wrapped server, and lets that of its definitions last as long. Without `brought`, it is as it
    /// was brought last.
    async fn keep_wrapped(&self, name: &str, brought: Option<&Brought>, now: Millis) -> Result<(), RpcError> {
        let inner = &self.inner;
        let brought = match brought {
            Some(brought) => Some(brought.clone()),
            None => inner.fleet.brought(name),
        };
        let Some(brought) = brought else {
            return Ok(());
        };
        let encoded = String::from_utf8(brought.encode()).expect("JSON is text");
        let stored = Stored {
            brought: serde_json::value::RawValue::from_string(encoded).expect("it was just written"),
            used_at: now.0,
        };
        let using = Using {
            owner: Caller::local(Origin::Cli).owner,
            name: name.to_owned(),
            body: serde_json::to_vec(&stored).expect("texts always serialize"),
            until: self.wrapped_until(now),
        };
        let scope = Scope {
            records: keys(name).to_vec(),
            ..Scope::default()
        };
        let kept = inner
            .engine
            .keep(scope, move |snapshot| (using.judge(snapshot), ()))
            .await;
        kept.map_err(|error| store_reply(&error))
    }

    /// Lets the wrapped server go that was not used for longest.
    async fn make_room(&self) -> Result<(), RpcError> {
        let needed = self.needed().await?;
        for name in self.inner.fleet.unused() {
            if needed.contains(&name) || !self.inner.fleet.unwrap(&name) {
                continue;
            }
            let going = Going {
                owner: Caller::local(Origin::Cli).owner,
                name: name.clone(),
            };
            let scope = Scope {
                records: keys(&name).to_vec(),
                ..Scope::default()
            };
            let gone = self
                .inner
                .engine
                .keep(scope, move |snapshot| (going.judge(snapshot), ()))
                .await;
            return gone.map_err(|error| store_reply(&error));
        }
        Err(RpcError::refused(
            RefusalCode::OverLimit,
            format!("{WRAPPED_MAX} wrapped servers are in use, which is the most: close a client"),
            Refusal {
                reason: "wrapped_limit".into(),
                who: Who::Caller,
                retry_after_ms: Some(RETRY_MS),
            },
        ))
    }

    /// The servers that open tasks need.
    async fn needed(&self) -> Result<BTreeSet<String>, RpcError> {
        let list = List {
            open: Some(true),
            hidden: true,
            limit: OPEN_MAX,
            ..List::default()
        };
        let found = self.inner.engine.read(Query::List(list)).await;
        let mut needed = BTreeSet::new();
        for row in found.map_err(|error| store_reply(&error))?.rows {
            // A list has no bodies.
            let context = self
                .row(row.id)
                .await?
                .map(|row| view::Context::decode(&row.context));
            needed.extend(context.and_then(|context| context.server_tool.map(|tool| tool.server)));
        }
        Ok(needed)
    }
}

/// The records of a wrapped server: itself, and what it defines.
fn keys(name: &str) -> [RecordKey; 2] {
    [RecordKind::Wrapped, RecordKind::Definitions].map(|kind| RecordKey {
        kind,
        tenant: TENANT.to_owned(),
        id: name.to_owned(),
    })
}

struct Using {
    owner: Owner,
    name: String,
    body: Vec<u8>,
    until: Millis,
}

impl Using {
    fn judge(&self, snapshot: &Snapshot) -> Option<(Permit, Keeping)> {
        let permit = gate::judge(&View::of_task(Action::Operate, &self.owner, None)).ok()?;
        let [own, definitions] = keys(&self.name);
        let record = Record {
            key: own,
            version: 0,
            expires_at: Some(self.until),
            body: self.body.clone(),
        };
        let entry = Entry {
            name: "server_wrapped".to_owned(),
            detail: self.name.clone(),
        };
        let mut keeping = Keeping::record(self.owner.clone(), "owner", record, entry);
        if let Some(there) = snapshot.records.get(&definitions) {
            let lasting = Record {
                expires_at: Some(self.until),
                ..there.clone()
            };
            keeping.records.insert(definitions, Some(lasting));
        }
        Some((permit, keeping))
    }
}

struct Going {
    owner: Owner,
    name: String,
}

impl Going {
    fn judge(&self, snapshot: &Snapshot) -> Option<(Permit, Keeping)> {
        let permit = gate::judge(&View::of_task(Action::Operate, &self.owner, None)).ok()?;
        let there = keys(&self.name)
            .into_iter()
            .filter(|key| snapshot.records.contains_key(key));
        let records = there.map(|key| (key, None)).collect();
        let entry = Entry {
            name: "server_unwrapped".to_owned(),
            detail: self.name.clone(),
        };
        let keeping = Keeping::records(self.owner.clone(), "gateway", records, entry);
        Some((permit, keeping))
    }
}

impl Dispatch {
    /// Why a wrapped server has nothing to offer yet; `None` where it has, or where nothing is wrapped. Whoever is shown it
    /// has brought it, so the cause is told in full.
    pub(crate) fn unreached(&self, selection: &Selection) -> Option<RpcError> {
        let member = selection.wrapped()?;
        let server = member.server.as_ref()?;
        if server.definitions().is_some() {
            return None;
        }
        let name = &member.config.name;
        let mut lines = vec![format!("Longhaul cannot use the wrapped server `{name}`")];
        match server.state() {
            State::Degraded { why, stderr, .. } => {
                lines[0].push_str(&format!(": {why}"));
                lines.extend(self.inner.fleet.brought(name).and_then(|brought| brought.hint()));
                let said: Vec<&str> = stderr.lines().collect();
                if !said.is_empty() {
                    lines.push("Its last words on standard error:".to_owned());
                    let last = &said[said.len().saturating_sub(STDERR_LINES)..];
                    lines.extend(
                        last.iter()
                            .map(|line| format!("  {}", longhaul_mcp::clean(line, 300))),
                    );
                }
            }
            State::Starting | State::Ready | State::Closed => {
                lines[0].push_str(": it has not said in time what it offers");
            }
        }
        lines.push(format!(
            "It is tried again; `longhaul servers show {name}` says how it is."
        ));
        Some(RpcError::internal("server_unreached", lines.join("\n")))
    }

    /// Whether what a server defines is kept only as long as the server is: it is a wrapped one.
    pub(super) fn definitions_last(&self, server: &str) -> Option<Millis> {
        self.is_wrapped(server)
            .then(|| self.wrapped_until(self.inner.engine.now()))
    }

    /// Until when a wrapped server is kept that is used now. A task may be as young as its last use.
    fn wrapped_until(&self, now: Millis) -> Millis {
        let settings = &self.inner.settings;
        now + KEPT.max(settings.ttl_max) + settings.expired_kept
    }
}
