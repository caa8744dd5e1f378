//! A client that calls again while its own equal call is still held (D-45).
//!
//! Some clients give up without a word: no cancellation, and their stream stays open. An equal call of the same
//! session, some seconds after the one that is held, is such a client coming back: it waits for the same work, and
//! how long it had waited counts as a time-out. Two calls that are both meant come side by side, or from two
//! sessions. Others say that they leave, and call again before that is stored: such a call waits for the same work.
//! Memory only: where it is lost, the call is one whose process died, and is joined as such.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::{Outcome, Phase, TaskId};
use longhaul_mcp::RpcError;
use longhaul_store::RecordKey;
use tokio::time::Instant;

use super::{Conversation, Dispatch, join::Name, patience::GIVE_UP_MIN};
use crate::identity::Caller;

/// The newest held call of each session and kind.
#[derive(Clone, Default)]
pub(super) struct Calls {
    held: Arc<Mutex<BTreeMap<Kind, Call>>>,
}

/// A session, or nothing for a call without one, and the record under which equal calls find each other.
type Kind = (String, RecordKey);

#[derive(Clone, Copy)]
struct Call {
    task: TaskId,
    began: Instant,
    with_progress: bool,
    /// That its client gave up was counted.
    is_counted: bool,
    /// Its client left, and the work goes on.
    has_left: bool,
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
        name: Option<&Name>,
        task: TaskId,
        with_progress: bool,
    ) -> Option<Awaited> {
        let kind = kind(session, name?);
        let began = Instant::now();
        let call = Call {
            task,
            began,
            with_progress,
            is_counted: false,
            has_left: false,
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

impl Awaited {
    /// Its client left, and the work goes on.
    pub(super) fn has_left(&self) {
        if let Some(call) = self.calls.lock().get_mut(&self.kind)
            && call.began == self.began
        {
            call.has_left = true;
            call.is_counted = true;
        }
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
    /// The task of an equal call that is held, when its client has given it up, or must have.
    pub(super) async fn came_back(
        &self,
        caller: &Caller,
        session: Option<&Conversation>,
        name: Option<&Name>,
    ) -> Result<Option<TaskId>, RpcError> {
        let Some(name) = name else {
            return Ok(None);
        };
        let kind = kind(session, name);
        let (call, waited) = {
            let mut held = self.inner.returning.lock();
            let Some(call) = held.get_mut(&kind) else {
                return Ok(None);
            };
            let waited = call.began.elapsed();
            let must_have = session.is_some() && waited >= GIVE_UP_MIN;
            if !call.has_left && !must_have {
                return Ok(None);
            }
            let before = *call;
            call.is_counted = true;
            (before, waited)
        };
        let row = self.row(call.task).await?;
        let is_wanted = row.is_some_and(|row| match &row.task.phase {
            Phase::Working | Phase::Asking => true,
            Phase::Finished(Outcome::Cancelled { .. }) => false,
            Phase::Finished(_) => call.has_left,
        });
        if !is_wanted {
            return Ok(None);
        }
        if !call.is_counted {
            self.gave_up(&caller.owner, call.with_progress, waited).await;
        }
        Ok(Some(call.task))
    }
}

fn kind(session: Option<&Conversation>, name: &Name) -> Kind {
    let session = session.map(|place| place.session.key().to_owned());
    let whose = || name.whose.as_ref().map(|whose| whose.session.clone());
    (session.or_else(whose).unwrap_or_default(), name.key.clone())
}
