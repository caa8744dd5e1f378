//! One request that waits on a connection: it is told, stopped, cancelled, or given up.
//!
//! Taken by a connection for each request that it sends. Whoever has it has a place among those that wait.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use longhaul_mcp::client::result::Came;
use tokio::{sync::oneshot, time::timeout};

use super::{
    super::{
        link::Outlet,
        outcome::{Failed, Outcome, Unsent},
    },
    CANCEL_WAIT, Inner,
    waiting::{Hears, Told},
};

/// How long a server that was asked to make a task of a call may take to say that it did, when the call is given up.
const CREATED_WITHIN: Duration = Duration::from_secs(2);

/// A request that waits. Dropping it gives the request up.
pub(super) struct Ticket {
    inner: Arc<Inner>,
    pub(super) id: u64,
    told: oneshot::Receiver<Told>,
    /// It was sent, and the server was not told that nobody waits.
    pub(super) is_sent: bool,
    kept: Kept,
}

/// Says of one request that it goes on when whoever waits for it is gone: the server is not told to stop then, and its
/// session is not ended.
#[derive(Clone)]
pub struct Kept {
    is_kept: Arc<AtomicBool>,
    outlet: Outlet,
}

impl Kept {
    fn of(inner: &Inner) -> Kept {
        Kept {
            is_kept: Arc::default(),
            outlet: inner.outlet.clone(),
        }
    }

    /// From here on it is so.
    pub(in crate::upstream) fn keep(&self) {
        if !self.is_kept.swap(true, Ordering::SeqCst) {
            self.outlet.keep();
        }
    }

    fn let_go(&self) {
        if self.is_kept.swap(false, Ordering::SeqCst) {
            self.outlet.let_go();
        }
    }

    fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({})", self.is_kept())
    }
}

impl Ticket {
    pub(super) fn of(inner: &Arc<Inner>, mut hears: Hears) -> Result<Ticket, Unsent> {
        let kept = Kept::of(inner);
        hears.kept = Some(kept.clone());
        let (id, told) = inner.waiting.enter(hears)?;
        Ok(Ticket {
            inner: Arc::clone(inner),
            id,
            told,
            is_sent: false,
            kept,
        })
    }

    /// Of a request that was sent before, under its id; it is kept.
    pub(super) fn again(inner: &Arc<Inner>, id: u64, hears: Hears) -> Result<Ticket, Unsent> {
        let told = inner.waiting.enter_as(id, hears)?;
        let kept = Kept::of(inner);
        kept.keep();
        Ok(Ticket {
            inner: Arc::clone(inner),
            id,
            told,
            is_sent: true,
            kept,
        })
    }

    pub(super) async fn told(&mut self) -> Told {
        match (&mut self.told).await {
            Ok(told) => told,
            // Never: a waiter is told before it is dropped, and only its ticket removes it otherwise.
            Err(_dropped) => std::future::pending().await,
        }
    }

    /// Tells the server, and waits a little for the reply that says that the work is over; or that it is a task by now,
    /// which is stopped as such. A server that was asked for a task says so soon, and is not told before that.
    pub(super) async fn stop(mut self, reason: &'static str, is_for_task: bool) -> Outcome {
        self.kept.let_go();
        let inner = Arc::clone(&self.inner);
        if is_for_task && let Ok(told) = timeout(CREATED_WITHIN, self.told()).await {
            return inner.stopped(told);
        }
        if !inner.can_tell() {
            return Outcome::Stopped { confirmed: false };
        }
        let id = self.id;
        self.is_sent = false;
        let over = async {
            inner.tell_cancelled(id, reason).await;
            self.told().await
        };
        match timeout(CANCEL_WAIT, over).await {
            Ok(told) => inner.stopped(told),
            Err(_late) => Outcome::Stopped { confirmed: false },
        }
    }

    pub(super) async fn cancel(mut self, reason: &'static str) {
        self.kept.let_go();
        if self.inner.can_tell() {
            self.is_sent = false;
            self.inner.tell_cancelled(self.id, reason).await;
        }
    }
}

impl Inner {
    /// What came of a request that was given up.
    fn stopped(&self, told: Told) -> Outcome {
        let confirmed = match told {
            told @ Told::Reply(_) => match self.outcome(told) {
                task @ Outcome::Came(Came::Task { .. }) => return task,
                Outcome::Came(Came::Complete(_) | Came::InputRequired { .. })
                | Outcome::Errored(_)
                | Outcome::Unusable(_)
                | Outcome::Unsent(_)
                | Outcome::Failed(_)
                | Outcome::TimedOut
                | Outcome::Stopped { .. } => true,
            },
            Told::Unsent(_) => true,
            Told::Failed(Failed::Lost(lost)) => lost.confirmed,
            Told::Failed(Failed::Over(_) | Failed::Status(_) | Failed::Unreadable(_) | Failed::TooLong) => {
                false
            }
        };
        Outcome::Stopped { confirmed }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let waited = self.inner.waiting.leave(self.id);
        if !waited {
            self.kept.let_go();
            return;
        }
        if self.kept.is_kept() {
            self.inner.outlet.abandon(self.id);
            return;
        }
        let (inner, id) = (Arc::clone(&self.inner), self.id);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.is_sent && inner.can_tell() => {
                runtime.spawn(async move {
                    inner.tell_cancelled(id, "nobody waits for it").await;
                    inner.outlet.abandon(id);
                });
            }
            Ok(_) | Err(_) => inner.outlet.abandon(id),
        }
    }
}
