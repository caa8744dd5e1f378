//! Logins at servers behind this one: where their records are kept, and what the local API asks of them.
//!
//! A record's body is encrypted like every other; the audit learns that somebody logged in, and at which record.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use longhaul_core::audit::Entry;
use longhaul_engine::{Engine, WeakEngine, transact::Keeping};
use longhaul_store::{Record, RecordKey, RecordKind, Scope, Snapshot};

use super::{Dispatch, Gated, backend::no_server};
use crate::{
    admin::{Error, Who, api},
    command::causes,
    gate::{self, Action, Permit, View},
    identity::{Caller, Origin},
    upstream::login::{self, Failed, Logins, Progress, Shelf, Target, Unkept},
};

/// The tenant of what belongs to Longhaul as a whole.
const TENANT: &str = "";

/// The logins that are kept by this engine, for as long as it lives.
pub fn logins(engine: &Engine) -> Logins {
    Logins::new(Arc::new(Shelved(engine.downgrade())))
}

struct Shelved(WeakEngine);

impl Shelved {
    fn engine(&self) -> Result<Gated, Unkept> {
        self.0.upgrade().map(Gated::new).ok_or(Unkept)
    }
}

fn key(id: String) -> RecordKey {
    RecordKey {
        kind: RecordKind::Login,
        tenant: TENANT.to_owned(),
        id,
    }
}

impl Shelf for Shelved {
    fn read(&self, id: String) -> BoxFuture<'_, Result<Option<Vec<u8>>, Unkept>> {
        Box::pin(async move {
            let key = key(id);
            let scope = Scope::record(key.clone());
            let look = move |snapshot: &Snapshot| {
                (None, snapshot.records.get(&key).map(|record| record.body.clone()))
            };
            self.engine()?.keep(scope, look).await.map_err(unkept)
        })
    }

    fn swap(
        &self,
        id: String,
        before: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
        what: &'static str,
    ) -> BoxFuture<'_, Result<bool, Unkept>> {
        Box::pin(async move {
            let swap = Swap {
                caller: Caller::local(Origin::Cli),
                key: key(id),
                before,
                after,
                what,
            };
            let scope = Scope::record(swap.key.clone());
            let judge = move |snapshot: &Snapshot| {
                let kept = swap.judge(snapshot);
                let is_done = kept.is_some();
                (kept, is_done)
            };
            self.engine()?.keep(scope, judge).await.map_err(unkept)
        })
    }
}

fn unkept(error: longhaul_store::Error) -> Unkept {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "a login could not be read or kept"
    );
    Unkept
}

struct Swap {
    caller: Caller,
    key: RecordKey,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    what: &'static str,
}

impl Swap {
    fn judge(&self, snapshot: &Snapshot) -> Option<(Permit, Keeping)> {
        let permit = gate::judge(&View::of_task(Action::Operate, &self.caller.owner, None)).ok()?;
        if snapshot.records.get(&self.key).map(|record| &record.body) != self.before.as_ref() {
            return None;
        }
        let record = self.after.as_ref().map(|body| Record {
            key: self.key.clone(),
            version: 0,
            expires_at: None,
            body: body.clone(),
        });
        let entry = Entry {
            name: self.what.to_owned(),
            detail: self.key.id.clone(),
        };
        let records = [(self.key.clone(), record)].into();
        let keeping = Keeping::records(self.caller.owner.clone(), "gateway", records, entry);
        Some((permit, keeping))
    }
}

impl Dispatch {
    async fn login_target(&self, server: &str) -> Result<Target, Error> {
        let is_address = server.contains("://");
        if is_address {
            crate::config::address(server).map_err(Error::invalid)?;
        }
        let found = self.inner.fleet.target(server).await;
        let found = found.map_err(|error| failed(&causes(&error)))?;
        found.ok_or_else(|| match self.inner.fleet.member(server).is_some() {
            true => failed(&Failed::NoAddress.to_string()),
            false => no_server(server),
        })
    }

    pub(super) async fn begin_login(&self, server: &str) -> Result<api::Login, Error> {
        let target = self.login_target(server).await?;
        let begun = self.inner.fleet.logins().begin(target).await;
        let begun = begun.map_err(|error| failed(&causes(&error)))?;
        Ok(api::Login {
            id: begun.id,
            url: begun.link,
            opened: begun.opened,
            issuer: begun.issuer,
            valid_ms: login::millis(login::TIME),
        })
    }

    pub(super) async fn login_progress(&self, id: &str) -> Result<api::LoginProgress, Error> {
        let found = self.inner.fleet.logins().progress(id);
        let found = found.ok_or_else(|| {
            let message = "that login is over: the server was started anew; log in again";
            Error::new(404, -32602, "not_found", message, Who::Caller)
        })?;
        Ok(match found {
            Progress::Waiting => api::LoginProgress::default(),
            Progress::Failed(why) => api::LoginProgress {
                failed: Some(why),
                ..api::LoginProgress::default()
            },
            Progress::Done {
                issuer,
                expires_at,
                is_refreshed,
                url,
            } => {
                self.inner.fleet.logged_in(&url).await;
                api::LoginProgress {
                    issuer: Some(issuer),
                    expires_in_ms: expires_at.map(|at| at.since(self.inner.engine.now()).0),
                    is_refreshed,
                    ..api::LoginProgress::default()
                }
            }
        })
    }

    pub(super) async fn log_out(&self, server: &str) -> Result<api::LoggedOut, Error> {
        let target = self.login_target(server).await?;
        let ended = self.inner.fleet.logins().log_out(&target).await;
        let ended = ended.map_err(|error| failed(&causes(&error)))?;
        Ok(api::LoggedOut {
            was_logged_in: ended.is_some(),
            is_revoked: ended.unwrap_or_default(),
        })
    }
}

fn failed(why: &str) -> Error {
    Error::new(
        502,
        -32603,
        "login_failed",
        longhaul_mcp::clean(why, 500),
        Who::Operator,
    )
}
