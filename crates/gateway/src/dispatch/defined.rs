//! What servers behind this one defined when they were last seen, kept until the next start: lists are answered at once
//! then, before any server was reached.

use std::collections::BTreeMap;

use longhaul_core::{Millis, audit::Entry, hex};
use longhaul_engine::transact::Keeping;
use longhaul_mcp::frame::Raw;
use longhaul_store::{Error, Owner, Record, RecordKey, RecordKind, Scope, Shared, Snapshot};
use tokio::sync::mpsc;

use super::Dispatch;
use crate::{
    gate::{self, Action, Permit, View},
    identity::{Caller, Origin},
    upstream::{definitions::Definitions, offer::Changed},
};

/// The tenant of what belongs to Longhaul as a whole.
const TENANT: &str = "";
/// How many bytes of a digest the audit shows.
const DIGEST_SHOWN: usize = 8;

/// What is known from the last run, by the names of the servers.
///
/// # Errors
/// The store's.
pub async fn known(store: &Shared) -> Result<BTreeMap<String, Definitions>, Error> {
    let records = store.records(RecordKind::Definitions, TENANT.to_owned()).await?;
    let decoded = records.into_iter().filter_map(|record| {
        let definitions = Definitions::decode(&Raw::parse_bytes(&record.body).ok()?)?;
        Some((record.key.id, definitions))
    });
    Ok(decoded.collect())
}

impl Dispatch {
    /// Keeps what changes, one after the other, until nothing can change any more. A change is recorded in the audit by
    /// its digest.
    pub(crate) async fn keep_definitions(self, mut changed: mpsc::Receiver<Changed>) {
        while let Some(changed) = changed.recv().await {
            let server = changed.server.clone();
            if let Err(error) = self.keep(changed).await {
                tracing::warn!(
                    server,
                    error = &error as &dyn std::error::Error,
                    "what a server defines could not be kept"
                );
            }
        }
    }

    async fn keep(&self, changed: Changed) -> Result<(), Error> {
        let key = RecordKey {
            kind: RecordKind::Definitions,
            tenant: TENANT.to_owned(),
            id: changed.server,
        };
        let scope = Scope::record(key.clone());
        let expires_at = self.definitions_last(&key.id);
        let known = Known {
            expires_at,
            owner: Caller::local(Origin::Cli).owner,
            key,
            body: changed.definitions.encode().text().as_bytes().to_vec(),
            digest: hex(&changed.definitions.digest[..DIGEST_SHOWN]),
        };
        self.inner
            .engine
            .keep(scope, move |snapshot| (known.judge(snapshot), ()))
            .await
    }
}

/// What is to be kept of one server.
struct Known {
    owner: Owner,
    key: RecordKey,
    body: Vec<u8>,
    /// The beginning of its digest, for the audit.
    digest: String,
    /// Those of a wrapped server go with it.
    expires_at: Option<Millis>,
}

impl Known {
    /// `None` when nothing changes.
    fn judge(&self, snapshot: &Snapshot) -> Option<(Permit, Keeping)> {
        let permit = gate::judge(&View::of_task(Action::Operate, &self.owner, None)).ok()?;
        let kept = snapshot.records.get(&self.key);
        if kept.is_some_and(|record| record.body == self.body) {
            return None;
        }
        let record = Record {
            key: self.key.clone(),
            version: 0,
            expires_at: self.expires_at,
            body: self.body.clone(),
        };
        let entry = Entry {
            name: "definitions_changed".to_owned(),
            detail: format!("{} {}", self.key.id, self.digest),
        };
        let keeping = Keeping::record(self.owner.clone(), "gateway", record, entry);
        Some((permit, keeping))
    }
}
