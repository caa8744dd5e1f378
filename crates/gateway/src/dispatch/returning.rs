//! A client that calls again while its own equal call is still held (D-45).
//!
//! Some clients give up without a word: no cancellation, and their stream stays open. An equal call of the same
//! session, some seconds after the one that is held, is such a client coming back: it waits for the same work, and
//! how long it had waited counts as a time-out. Two calls that are both meant come side by side, or from two
//! sessions. Memory only: where it is lost, the call is one whose process died, and is joined as such.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::TaskId;
use longhaul_mcp::RpcError;
use longhaul_store::RecordKey;
use tokio::time::Instant;

use super::{Conversation, Dispatch, patience::GIVE_UP_MIN};
use crate::identity::Caller;

/// The newest held call of each session and kind.
#[derive(Clone, Default)]
pub(super) struct Calls {
    held: Arc<Mutex<BTreeMap<Kind, Call>>>,
}

/// A session, and the record under which equal calls find each other.
type Kind = (String, RecordKey);

#[derive(Clone, Copy)]
struct Call {
    task: TaskId,
    began: Instant,
    with_progress: bool,
    /// That its client gave up was counted.
    is_counted: bool,
}

/// A held call that its client may come back for, until it is dropped.
pub(super) struct Awaited {
    calls: Calls,
    kind: Kind,
    began: Instant,
}

impl Calls {
    /// A call is held from now on.
    pub(super) fn held(
        &self,
        session: Option<&Conversation>,
        key: Option<&RecordKey>,
        task: TaskId,
        with_progress: bool,
    ) -> Option<Awaited> {
        let kind = (session?.session.key().to_owned(), key?.clone());
        let began = Instant::now();
        let call = Call {
            task,
            began,
            with_progress,
            is_counted: false,
        };
        self.lock().insert(kind.clone(), call);
        Some(Awaited {
            calls: self.clone(),
            kind,
            began,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Kind, Call>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut held = self.calls.lock();
        // A newer call of the same kind may have taken the place.
        if held.get(&self.kind).is_some_and(|call| call.began == self.began) {
            held.remove(&self.kind);
        }
    }
}

impl Dispatch {
    /// The task of an equal call of the same session that is held, when its client must have given it up.
    pub(super) async fn came_back(
        &self,
        caller: &Caller,
        session: Option<&Conversation>,
        key: Option<&RecordKey>,
    ) -> Result<Option<TaskId>, RpcError> {
        let (Some(place), Some(key)) = (session, key) else {
            return Ok(None);
        };
        let kind = (place.session.key().to_owned(), key.clone());
        let (call, waited) = {
            let mut held = self.inner.returning.lock();
            let Some(call) = held.get_mut(&kind) else {
                return Ok(None);
            };
            let waited = call.began.elapsed();
            if waited < GIVE_UP_MIN {
                return Ok(None);
            }
            let before = *call;
            call.is_counted = true;
            (before, waited)
        };
        if self
            .row(call.task)
            .await?
            .is_none_or(|row| row.task.is_finished())
        {
            return Ok(None);
        }
        if !call.is_counted {
            self.gave_up(&caller.owner, call.with_progress, waited).await;
        }
        Ok(Some(call.task))
    }
}
