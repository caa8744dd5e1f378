//! How a caller leaves a call that was taken, and what becomes of the work and its result (D-40, D-45).

use std::time::Duration;

use longhaul_core::TaskId;
use longhaul_mcp::request::Takes;

use super::{
    Dispatch, Held,
    hold::{Told, Waits},
    join::{Mark, Name},
    returning::Awaited,
};
use crate::{config::OnAbandon, identity::Caller};

/// How a caller left, as its transport saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Its client gave up waiting.
    TimedOut,
    /// Its connection or its pipe ended.
    Gone,
    /// It cancelled the call on purpose.
    Cancelled,
}

impl Left {
    /// How a client left that cancelled its request for this reason. Clients say in words that they gave up
    /// waiting; whatever else they say, or nothing, is on purpose.
    pub fn because(reason: Option<&str>) -> Left {
        let reason = reason.unwrap_or_default().to_lowercase();
        if TIMED_OUT.iter().any(|words| reason.contains(words)) {
            Left::TimedOut
        } else {
            Left::Cancelled
        }
    }
}

/// What clients say when they gave up waiting.
const TIMED_OUT: &[&str] = &["timed out", "timeout", "time-out", "time out", "deadline"];

/// Whether the work ends when its caller leaves. A call that asked for a task is ended by `tasks/cancel` alone
///
pub(super) fn ends_work(on_abandon: OnAbandon, left: Left, takes: Takes) -> bool {
    if takes == Takes::AtOnce {
        return false;
    }
    match (on_abandon, left) {
        (OnAbandon::Cancel, Left::TimedOut | Left::Gone | Left::Cancelled)
        | (OnAbandon::Auto, Left::Cancelled) => true,
        (OnAbandon::Finish, Left::TimedOut | Left::Gone | Left::Cancelled)
        | (OnAbandon::Auto, Left::TimedOut | Left::Gone) => false,
    }
}

impl Held {
    /// The caller left in this way before its reply reached it. Dropping the call says that it is
    /// [`Left::Gone`].
    pub fn leave(mut self, left: Left) {
        self.stay.left = left;
    }

    /// The last frame of the reply was handed to the caller's connection. A call that is dropped without this is
    /// one whose caller left, and its result is given to the next equal call.
    pub async fn delivered(mut self) {
        let told = std::mem::replace(&mut self.stay.told, Told::Delivered);
        // A caller that never left needs no record: nobody joins a call that is held here. The process that comes
        // after one that drains cannot know that.
        let marks = match self.stay.waits {
            Waits::Own => self.dispatch.is_draining(),
            Waits::Joined | Waits::ByName { .. } => true,
        };
        if !marks || told != Told::Result {
            return;
        }
        let key = self.stay.join.clone();
        let marked = self
            .dispatch
            .show_marked(&self.caller.owner, self.task, key, Mark::Spent)
            .await;
        if marked.is_err() {
            tracing::warn!("a delivered result could not be marked as such; an equal call gets it once more");
        }
    }

    /// What is left to do when this call is dropped.
    fn leaving(&mut self) -> Option<Leaving> {
        match self.stay.told {
            Told::Nothing | Told::Result => {}
            Told::Round | Told::StillRunning | Told::Delivered => return None,
        }
        let drains = self.dispatch.is_draining();
        let gave_up = match self.stay.left {
            Left::TimedOut | Left::Gone => self.stay.told == Told::Nothing && !drains,
            Left::Cancelled => false,
        };
        // Whoever else waits for the work still wants it.
        let ends_work = !drains
            && self.dispatch.inner.waiting.of(self.task) == 1
            && ends_work(self.terms.holding.on_abandon, self.stay.left, self.client.takes);
        let awaited = self.awaited.take().filter(|_| !ends_work);
        if let Some(awaited) = &awaited {
            awaited.has_left();
        }
        Some(Leaving {
            dispatch: self.dispatch.clone(),
            caller: self.caller.clone(),
            task: self.task,
            waits: self.stay.waits,
            join: self.stay.join.take(),
            ends_work,
            gave_up: (gave_up && self.client.takes == Takes::Never).then(|| self.stay.lasted()),
            with_progress: self.with_progress(),
            _awaited: awaited,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (Some(leaving), Ok(runtime)) = (self.leaving(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(leaving.settle());
    }
}

/// A caller that left, and what it leaves behind.
struct Leaving {
    dispatch: Dispatch,
    caller: Caller,
    task: TaskId,
    waits: Waits,
    join: Option<Name>,
    ends_work: bool,
    gave_up: Option<Duration>,
    with_progress: bool,
    /// Until all this is stored, an equal call finds it here.
    _awaited: Option<Awaited>,
}

impl Leaving {
    async fn settle(self) {
        if let Some(after) = self.gave_up {
            self.dispatch
                .gave_up(&self.caller.owner, self.with_progress, after)
                .await;
        }
        match self.waits {
            Waits::ByName { .. } => return,
            Waits::Own | Waits::Joined => {}
        }
        let owner = &self.caller.owner;
        let (mark, ended) = if self.ends_work {
            (Mark::Spent, self.dispatch.end(&self.caller, self.task).await)
        } else {
            (Mark::Left, Ok(false))
        };
        let shown = self.dispatch.show_marked(owner, self.task, self.join, mark).await;
        if ended.is_err() || shown.is_err() {
            tracing::warn!(
                "what becomes of a call whose client left could not be stored; its result may be kept for a shorter time"
            );
        }
    }
}
