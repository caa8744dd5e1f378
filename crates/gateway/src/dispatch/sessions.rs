//! Sessions of clients: begun at `initialize`, found by their id, ended by DELETE.
//!
//! The id says what was agreed ([`crate::session::seal`]), so nothing is written when a session begins. A session that
//! was ended, the log level that its client set, and the resources that it subscribed to, are records. What this
//! process knows of a session is shared by all its streams.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longhaul_core::{Span, audit::Entry};
use longhaul_engine::transact::Keeping;
use longhaul_mcp::{
    RpcError,
    edge::Peer,
    request::{Answers, LogLevel},
};
use longhaul_store::{Record, RecordKey, RecordKind, Scope, Snapshot};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Dispatch, store_reply};
use crate::{
    gate::{self, Action, View},
    identity::Caller,
    session::{
        Session,
        seal::{self, Opened},
    },
    upstream,
};

/// How many sessions this process remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most that have sent a request after `initialize` (`server.sessions_max`).
    pub sessions_max: usize,
    /// How long one is remembered without a request or a stream (`server.session_idle`).
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions_max: 1_000,
            idle: Duration::from_secs(5 * 60),
        }
    }
}

/// The sessions that this process knows. One that no stream uses may be forgotten at any time: it is made anew from
/// its id.
pub(super) struct Sessions {
    limits: Limits,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    used: BTreeMap<String, Used>,
    /// Those that were begun and not yet used, the oldest first. Most of what only says `initialize` ends here.
    fresh: VecDeque<Arc<Session>>,
    swept_at: Option<Instant>,
}

struct Used {
    session: Arc<Session>,
    at: Instant,
}

/// What is kept of a session beside its id.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(default)]
    ended: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<LogLevel>,
    /// The resources that are subscribed to, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) resources: Vec<String>,
}

impl Dispatch {
    /// Begins a session: its id, and what its streams share.
    pub(crate) fn open_session(&self, caller: &Caller, peer: Peer) -> (String, Arc<Session>) {
        let inner = &self.inner;
        let opened = Opened {
            peer: peer.clone(),
            expires_at: inner.engine.now() + SESSION_LASTS,
        };
        let id = inner
            .session_ids
            .seal(&caller.owner, &caller.selection, &opened, super::random());
        let session = Session::new(seal::key(&id), caller.owner.clone(), peer, false, true);
        inner.sessions.begun(&session);
        (id, session)
    }

    /// A session that lives as long as its pipe, which is its only stream. `key` is the pipe's own, where it has one
    /// that outlives this connection.
    pub(crate) async fn pipe_session(
        &self,
        caller: &Caller,
        peer: Peer,
        key: Option<u128>,
    ) -> Result<Arc<Session>, RpcError> {
        let is_kept = key.is_some();
        let key = key.unwrap_or_else(|| u128::from_be_bytes(super::random()));
        let key = seal::key(&format!("pipe {key:032x}"));
        let kept = match is_kept {
            true => self.kept(caller, &key).await?,
            false => Kept::default(),
        };
        let session = Session::new(key, caller.owner.clone(), peer, true, is_kept);
        kept.put_into(&session);
        Ok(session)
    }

    /// The caller's own session of this id. A foreign one, one of another endpoint, one that has ended and one that
    /// never was are not told apart: `None`.
    pub(crate) async fn find_session(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Option<Arc<Session>>, RpcError> {
        let inner = &self.inner;
        let now = inner.engine.now();
        let Some(opened) = inner.session_ids.open(id, &caller.owner, &caller.selection, now) else {
            return Ok(None);
        };
        let key = seal::key(id);
        if let Some(session) = inner.sessions.find(&key) {
            return Ok(Some(session));
        }
        let kept = self.kept(caller, &key).await?;
        if kept.ended {
            return Ok(None);
        }
        let session = Session::new(key, caller.owner.clone(), opened.peer, false, true);
        kept.put_into(&session);
        Ok(Some(inner.sessions.know(session)))
    }

    async fn kept(&self, caller: &Caller, key: &str) -> Result<Kept, RpcError> {
        let record = record_key(caller, key);
        let scope = Scope::record(record.clone());
        let judge = move |snapshot: &Snapshot| (None, kept(snapshot, &record));
        let found = self.inner.engine.keep(scope, judge).await;
        found.map_err(|error| store_reply(&error))
    }

    /// Ends a session. Its tasks are their owner's and stay.
    pub(crate) async fn end_session(&self, caller: &Caller, session: &Session) -> Result<(), RpcError> {
        self.keep_session(caller, session, "session_ended", |kept| kept.ended = true)
            .await?;
        self.inner.sessions.forget(session.key());
        session.end();
        self.leave_servers(caller, session.key());
        Ok(())
    }

    /// Nobody calls in this session any more: what servers behind this one keep for it is ended.
    pub(crate) fn leave_servers(&self, caller: &Caller, key: &str) {
        let left = upstream::Caller::of(&caller.owner, Some(key.to_owned()), Answers::default());
        self.inner.fleet.leave(&left);
    }

    /// A stream of the session is gone. What nobody uses and nothing is known of needs no memory until it is idle.
    pub(crate) fn left_session(&self, key: &str) {
        self.inner.sessions.left(key);
    }

    /// Remembers which log messages a session wants.
    pub(super) async fn set_level(
        &self,
        caller: &Caller,
        session: &Session,
        level: LogLevel,
    ) -> Result<(), RpcError> {
        // The client of a pipe that is reached directly lives as long as its connection.
        if session.is_kept() {
            self.keep_session(caller, session, "session_level", move |kept| {
                kept.level = Some(level);
            })
            .await?;
        }
        session.set_level(level);
        let whose = super::relay::in_session(caller, session);
        for server in self.usable(&caller.selection) {
            server.level(&whose, level);
        }
        Ok(())
    }

    pub(super) async fn keep_session(
        &self,
        caller: &Caller,
        session: &Session,
        what: &'static str,
        change: impl Fn(&mut Kept) + Send + 'static,
    ) -> Result<(), RpcError> {
        let record = record_key(caller, session.key());
        let scope = Scope::record(record.clone());
        let owner = caller.owner.clone();
        let judge = move |snapshot: &Snapshot| {
            let permit = match gate::judge(&View::of_task(Action::Cancel, &owner, Some(&owner))) {
                Ok(permit) => permit,
                Err(refusal) => return (None, Err(refusal)),
            };
            let mut kept = kept(snapshot, &record);
            change(&mut kept);
            let body = serde_json::to_vec(&kept).expect("plain members always serialize");
            let written = Record {
                key: record.clone(),
                version: 0,
                expires_at: Some(snapshot.now + SESSION_LASTS),
                body,
            };
            let entry = Entry {
                name: what.to_owned(),
                detail: String::new(),
            };
            let keeping = Keeping::record(owner.clone(), "owner", written, entry);
            (Some((permit, keeping)), Ok(()))
        };
        let done = self.inner.engine.keep(scope, judge).await;
        done.map_err(|error| store_reply(&error))?
            .map_err(gate::Refusal::reply)
    }
}

impl Kept {
    fn put_into(self, session: &Session) {
        if let Some(level) = self.level {
            session.set_level(level);
        }
        session.owe(self.resources);
    }
}

impl Sessions {
    pub(super) fn new(limits: Limits) -> Sessions {
        Sessions {
            limits,
            known: Mutex::default(),
        }
    }

    fn find(&self, key: &str) -> Option<Arc<Session>> {
        let mut known = self.lock();
        if let Some(used) = known.used.get_mut(key) {
            used.at = Instant::now();
            return Some(Arc::clone(&used.session));
        }
        let at = known.fresh.iter().position(|session| session.key() == key)?;
        let session = known.fresh.remove(at)?;
        self.keep(&mut known, &session);
        Some(session)
    }

    /// A session has begun.
    fn begun(&self, session: &Arc<Session>) {
        let mut known = self.lock();
        if known.fresh.len() == FRESH_MAX {
            known.fresh.pop_front();
        }
        known.fresh.push_back(Arc::clone(session));
    }

    /// A session is used. Returns the one of its id that is known: another request may have made it meanwhile, and
    /// what one request sets, the streams of all must see.
    fn know(&self, session: Arc<Session>) -> Arc<Session> {
        let mut known = self.lock();
        if let Some(used) = known.used.get_mut(session.key()) {
            used.at = Instant::now();
            return Arc::clone(&used.session);
        }
        self.keep(&mut known, &session);
        session
    }

    fn keep(&self, known: &mut Known, session: &Arc<Session>) {
        let now = Instant::now();
        let sweep = known
            .swept_at
            .is_none_or(|swept| now.duration_since(swept) >= self.limits.idle / 4);
        if sweep || known.used.len() >= self.limits.sessions_max {
            known.swept_at = Some(now);
            known
                .used
                .retain(|_, used| used.is_open() || now.duration_since(used.at) < self.limits.idle);
        }
        if known.used.len() >= self.limits.sessions_max {
            let unused = known.used.iter().filter(|(_, used)| !used.is_open());
            let oldest = unused.min_by_key(|(_, used)| used.at).map(|(key, _)| key.clone());
            // What has a stream has one of the places for streams, and those are fewer.
            if let Some(oldest) = oldest {
                known.used.remove(&oldest);
            }
        }
        let used = Used {
            session: Arc::clone(session),
            at: now,
        };
        known.used.insert(session.key().to_owned(), used);
    }

    fn left(&self, key: &str) {
        let mut known = self.lock();
        if let Some(used) = known.used.get(key)
            && !used.is_open()
            && used.session.is_blank()
        {
            known.used.remove(key);
        }
    }

    fn forget(&self, key: &str) {
        let mut known = self.lock();
        known.used.remove(key);
        known.fresh.retain(|session| session.key() != key);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    /// Whether a stream or a request has it.
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.session) > 1
    }
}

fn kept(snapshot: &Snapshot, key: &RecordKey) -> Kept {
    let record = snapshot.records.get(key);
    record
        .and_then(|record| serde_json::from_slice(&record.body).ok())
        .unwrap_or_default()
}

fn record_key(caller: &Caller, key: &str) -> RecordKey {
    RecordKey {
        kind: RecordKind::Session,
        tenant: caller.owner.tenant.clone(),
        id: key.to_owned(),
    }
}

/// How long a session may be used.
const SESSION_LASTS: Span = Span::seconds(30 * 24 * 60 * 60);
/// How many sessions are remembered that have only begun.
const FRESH_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use longhaul_mcp::{Client, edge::Version};
    use longhaul_store::Owner;

    use super::*;

    fn session() -> Arc<Session> {
        let owner = Owner {
            tenant: "default".to_owned(),
            issuer: "local".to_owned(),
            subject: "uid:1".to_owned(),
            app: String::new(),
        };
        let peer = Peer {
            version: Version::LATEST,
            client: Client::default(),
        };
        Session::new("one".to_owned(), owner, peer, false, true)
    }

    #[test]
    fn requests_that_make_one_session_at_once_share_it() {
        let sessions = Sessions::new(Limits::default());
        let first = sessions.know(session());
        let second = sessions.know(session());
        assert!(Arc::ptr_eq(&first, &second));
        assert!(
            sessions
                .find("one")
                .is_some_and(|found| Arc::ptr_eq(&first, &found))
        );
    }
}
