//! What servers behind this one defined when they were last seen, kept until the next start: lists are answered at once
//! then, before any server was reached.

use std::collections::BTreeMap;

use longhaul_core::audit::Entry;
use longhaul_engine::transact::{Keeping, Trail};
use longhaul_mcp::frame::Raw;
use longhaul_store::{Error, Record, RecordKey, RecordKind, Scope, Shared, Snapshot};
use tokio::sync::mpsc;

use super::Dispatch;
use crate::{
    gate::{self, Action, View},
    identity::{Caller, Origin},
    upstream::{definitions::Definitions, offer::Changed},
};

/// The tenant of what belongs to the server as a whole.
const TENANT: &str = "";

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
            id: changed.server.clone(),
        };
        let scope = Scope {
            records: vec![key.clone()],
            ..Scope::default()
        };
        let owner = Caller::local(Origin::Cli).owner;
        let body = changed.definitions.encode().text().as_bytes().to_vec();
        let digest: String = changed.definitions.digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let judge = move |snapshot: &Snapshot| {
            let same = snapshot
                .records
                .get(&key)
                .is_some_and(|record| record.body == body);
            let Ok(permit) = gate::judge(&View::of_task(Action::Operate, &owner, None)) else {
                return (None, ());
            };
            if same {
                return (None, ());
            }
            let record = Record {
                key: key.clone(),
                version: 0,
                expires_at: None,
                body: body.clone(),
            };
            let keeping = Keeping {
                owner: owner.clone(),
                records: BTreeMap::from([(key.clone(), Some(record))]),
                counters: BTreeMap::new(),
                actor: "gateway",
                trail: Trail {
                    entries: vec![Entry {
                        name: "definitions_changed".to_owned(),
                        detail: format!("{} {digest}", key.id),
                    }],
                    ..Trail::default()
                },
            };
            (Some((permit, keeping)), ())
        };
        self.inner.engine.keep(scope, judge).await
    }
}
