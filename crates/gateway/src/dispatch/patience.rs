//! How long an owner's clients wait for a call before they give up, learned from those that did.
//!
//! Three give-ups after nearly the same time are a client's limit: calls are then answered well before it. A client
//! that would wait longer than it was made to is never seen to; `tasks.hold_max` says so by hand. What was learned
//! is kept for some time after the last give-up and then learned anew.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use longhaul_core::{Millis, Span, audit::Entry, hex};
use longhaul_engine::transact::Keeping;
use longhaul_store::{Error, Owner, Record, RecordKey, RecordKind, Scope, Snapshot};
use serde::{Deserialize, Serialize};

use super::Dispatch;
use crate::{
    gate::{self, Action, View},
    sealed_id::owner_digest,
};

/// A caller that left sooner gave up for another reason than its patience.
pub(super) const GIVE_UP_MIN: Duration = Duration::from_secs(5);
/// The most give-ups that are remembered.
const GIVE_UPS_MAX: usize = 8;
/// How many of them must agree.
const AGREEING: usize = 3;
/// How long they are remembered after the last one.
const KEPT: Span = Span::seconds(30 * 24 * 60 * 60);
/// How long this process goes by what it has read.
const READ_AGAIN: Span = Span::seconds(60 * 60);

/// What this process knows of its owners' clients, with progress and without.
#[derive(Default)]
pub(super) struct Patience {
    known: Mutex<BTreeMap<(Owner, bool), Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    limit: Option<Span>,
    until: Millis,
}

/// The last give-ups, in milliseconds, the oldest first.
#[derive(Clone, Default, Serialize, Deserialize)]
struct GiveUps(Vec<u64>);

impl GiveUps {
    fn decode(record: Option<&Record>) -> GiveUps {
        let stored = record.and_then(|record| serde_json::from_slice(&record.body).ok());
        stored.unwrap_or_default()
    }

    fn add(&mut self, after: Duration) {
        self.0.push(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let surplus = self.0.len().saturating_sub(GIVE_UPS_MAX);
        self.0.drain(..surplus);
    }

    /// Three quarters of the least of three that lie within a fifth of each other.
    fn limit(&self) -> Option<Span> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let agree = |near: &&[u64]| near[AGREEING - 1] - near[0] <= near[0] / 5;
        let least = sorted.windows(AGREEING).find(agree)?[0];
        Some(Span(least / 4 * 3))
    }
}

impl Dispatch {
    /// The limit that this owner's clients taught, if they did.
    pub(super) async fn learned(&self, owner: &Owner, with_progress: bool) -> Option<Span> {
        let now = self.inner.engine.now();
        if let Some(known) = self.inner.patience.get(owner, with_progress)
            && now < known.until
        {
            return known.limit;
        }
        let key = key(owner, with_progress);
        let read = move |snapshot: &Snapshot| (None, snapshot.records.get(&key).cloned());
        let scope = Scope::record(self::key(owner, with_progress));
        match self.inner.engine.keep(scope, read).await {
            Ok(record) => {
                let limit = GiveUps::decode(record.as_ref()).limit();
                self.inner.patience.set(owner, with_progress, limit, now);
                limit
            }
            Err(error) => {
                unknown(&error);
                None
            }
        }
    }

    /// A caller left after this time without a reply.
    pub(super) async fn gave_up(&self, owner: &Owner, with_progress: bool, after: Duration) {
        if after < GIVE_UP_MIN {
            return;
        }
        let (key, whose) = (key(owner, with_progress), owner.clone());
        let judge = move |snapshot: &Snapshot| {
            let mut give_ups = GiveUps::decode(snapshot.records.get(&key));
            give_ups.add(after);
            let limit = give_ups.limit();
            let Ok(permit) = gate::judge(&View::of_task(Action::List, &whose, None)) else {
                return (None, limit);
            };
            let record = Record {
                key: key.clone(),
                version: 0,
                expires_at: Some(snapshot.now + KEPT),
                body: serde_json::to_vec(&give_ups).expect("numbers always serialize"),
            };
            let entry = Entry {
                name: "gave_up".to_owned(),
                detail: format!("after {} s", after.as_secs()),
            };
            let keeping = Keeping::record(whose.clone(), "gateway", record, entry);
            (Some((permit, keeping)), limit)
        };
        match self
            .inner
            .engine
            .keep(Scope::record(self::key(owner, with_progress)), judge)
            .await
        {
            Ok(limit) => {
                let now = self.inner.engine.now();
                self.inner.patience.set(owner, with_progress, limit, now);
            }
            Err(error) => unknown(&error),
        }
    }
}

impl Patience {
    fn get(&self, owner: &Owner, with_progress: bool) -> Option<Known> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(owner.clone(), with_progress)).copied()
    }

    fn set(&self, owner: &Owner, with_progress: bool, limit: Option<Span>, now: Millis) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let until = now + READ_AGAIN;
        known.insert((owner.clone(), with_progress), Known { limit, until });
    }
}

/// One record for calls with progress and one for those without: a client may wait longer while it hears of some.
fn key(owner: &Owner, with_progress: bool) -> RecordKey {
    let digest = hex(&owner_digest(owner));
    RecordKey {
        kind: RecordKind::Patience,
        tenant: owner.tenant.clone(),
        id: if with_progress {
            format!("{digest}+progress")
        } else {
            digest
        },
    }
}

fn unknown(error: &Error) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "how long a caller's clients wait could not be read or stored"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_give_ups_that_agree_are_a_limit() {
        for (seconds, limit) in [
            (&[][..], None),
            (&[60.0, 60.0][..], None),
            (&[60.0, 60.0, 60.0][..], Some(45.0)),
            (&[60.0, 72.0, 66.0][..], Some(45.0)),
            (&[60.0, 73.0, 66.0][..], None),
            (&[8.0, 300.0, 60.0, 61.0, 140.0, 62.0][..], Some(45.0)),
            // The least of those that agree: it is right for every client.
            (&[300.0, 300.0, 300.0, 60.0, 60.0, 60.0][..], Some(45.0)),
            // Only the last eight count.
            (
                &[60.0, 60.0, 60.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0][..],
                None,
            ),
        ] {
            let mut give_ups = GiveUps::default();
            seconds
                .iter()
                .for_each(|after| give_ups.add(Duration::from_secs_f64(*after)));
            let seconds_of = |span: Span| Duration::from_millis(span.0).as_secs_f64();
            assert_eq!(give_ups.limit().map(seconds_of), limit, "{seconds:?}");
        }
    }
}
