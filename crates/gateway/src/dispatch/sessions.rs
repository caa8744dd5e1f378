//! Sessions of clients: begun at `initialize`, found by their id, ended by DELETE.
//!
//! The id says what was agreed ([`crate::session::seal`]), so nothing is written when a session begins. A session
//! that was ended, and the log level that its client set, are records. What this process knows of a session is
//! shared by all its streams.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use longhaul_core::{Span, audit::Entry};
use longhaul_engine::transact::{Keeping, Trail};
use longhaul_mcp::{RpcError, edge::Peer, request::LogLevel};
use longhaul_store::{Record, RecordKey, RecordKind, Scope, Snapshot};
use serde::{Deserialize, Serialize};

use super::{Dispatch, store_reply};
use crate::{
    gate::{self, Action, View},
    identity::Caller,
    session::{
        Session,
        seal::{self, Opened},
    },
};

/// The sessions that this process knows. One that no stream uses may be forgotten at any time.
#[derive(Default)]
pub(super) struct Sessions {
    known: Mutex<BTreeMap<String, Arc<Session>>>,
}

/// What is kept of a session beside its id.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    #[serde(default)]
    ended: bool,
    #[serde(default)]
    level: Option<LogLevel>,
}

impl Dispatch {
    /// Begins a session: its id, and what its streams share.
    pub(crate) fn open_session(&self, caller: &Caller, peer: Peer) -> (String, Arc<Session>) {
        let inner = &self.inner;
        let opened = Opened {
            peer: peer.clone(),
            expires_at: inner.engine.now() + SESSION_LASTS,
        };
        let id = inner.session_ids.seal(&caller.owner, &opened, super::random());
        let session = Session::new(seal::key(&id), caller.owner.clone(), peer, false);
        inner.sessions.know(&session);
        (id, session)
    }

    /// A session that lives as long as its pipe, which is its only stream. `key` is the pipe's own, where it has one
    /// that outlives this connection.
    pub(crate) fn pipe_session(&self, caller: &Caller, peer: Peer, key: Option<u128>) -> Arc<Session> {
        let key = key.unwrap_or_else(|| u128::from_be_bytes(super::random()));
        let key = seal::key(&format!("pipe {key:032x}"));
        Session::new(key, caller.owner.clone(), peer, true)
    }

    /// The caller's own session of this id. A foreign one, one that has ended and one that never was are not told
    /// apart: `None`.
    pub(crate) async fn find_session(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Option<Arc<Session>>, RpcError> {
        let inner = &self.inner;
        let Some(opened) = inner.session_ids.open(id, &caller.owner, inner.engine.now()) else {
            return Ok(None);
        };
        let key = seal::key(id);
        if let Some(session) = inner.sessions.find(&key) {
            return Ok(Some(session));
        }
        let record = record_key(caller, &key);
        let scope = Scope {
            records: vec![record.clone()],
            ..Scope::default()
        };
        let judge = move |snapshot: &Snapshot| (None, kept(snapshot, &record));
        let found = inner.engine.keep(scope, judge).await;
        let kept = found.map_err(|error| store_reply(&error))?;
        if kept.ended {
            return Ok(None);
        }
        let session = Session::new(key, caller.owner.clone(), opened.peer, false);
        if let Some(level) = kept.level {
            session.set_level(level);
        }
        inner.sessions.know(&session);
        Ok(Some(session))
    }

    /// Ends a session. Its tasks are their owner's and stay.
    pub(crate) async fn end_session(&self, caller: &Caller, session: &Session) -> Result<(), RpcError> {
        self.keep_session(caller, session, "session_ended", |kept| kept.ended = true)
            .await?;
        self.inner.sessions.forget(session.key());
        session.end();
        Ok(())
    }

    /// Remembers which log messages a session wants.
    pub(super) async fn set_level(
        &self,
        caller: &Caller,
        session: &Session,
        level: LogLevel,
    ) -> Result<(), RpcError> {
        // A pipe's level lives as long as its connection, and so does its client.
        if !session.is_pipe() {
            self.keep_session(caller, session, "session_level", move |kept| {
                kept.level = Some(level);
            })
            .await?;
        }
        session.set_level(level);
        Ok(())
    }

    async fn keep_session(
        &self,
        caller: &Caller,
        session: &Session,
        what: &'static str,
        change: impl Fn(&mut Kept) + Send + 'static,
    ) -> Result<(), RpcError> {
        let record = record_key(caller, session.key());
        let scope = Scope {
            records: vec![record.clone()],
            ..Scope::default()
        };
        let owner = caller.owner.clone();
        let judge = move |snapshot: &Snapshot| {
            let permit = match gate::judge(&View::of_task(Action::Cancel, &owner, Some(&owner))) {
                Ok(permit) => permit,
                Err(refusal) => return (None, Err(refusal)),
            };
            let mut kept = kept(snapshot, &record);
            change(&mut kept);
            let body = serde_json::to_vec(&kept).expect("two plain members always serialize");
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
            let keeping = Keeping {
                owner: owner.clone(),
                records: BTreeMap::from([(record.clone(), Some(written))]),
                counters: BTreeMap::new(),
                actor: "owner",
                trail: Trail {
                    entries: vec![entry],
                    ..Trail::default()
                },
            };
            (Some((permit, keeping)), Ok(()))
        };
        let done = self.inner.engine.keep(scope, judge).await;
        done.map_err(|error| store_reply(&error))?
            .map_err(gate::Refusal::reply)
    }
}

impl Sessions {
    fn find(&self, key: &str) -> Option<Arc<Session>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).cloned()
    }

    fn know(&self, session: &Arc<Session>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            // What no stream uses can be made anew from its id.
            known.retain(|_, session| Arc::strong_count(session) > 1);
        }
        known.insert(session.key().to_owned(), Arc::clone(session));
    }

    fn forget(&self, key: &str) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
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
/// How many sessions this process remembers before it forgets those that nobody uses.
const KNOWN_MAX: usize = 10_000;
