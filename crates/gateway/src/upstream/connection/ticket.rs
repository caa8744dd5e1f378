//! One request that waits on a connection: it is told, stopped, cancelled, or given up.
//!
//! Taken by a connection for each request that it sends. Whoever has it has a place among those that wait.

use std::sync::Arc;

use tokio::{sync::oneshot, time::timeout};

use super::{
    super::outcome::{Failed, Outcome, Unsent},
    CANCEL_WAIT, Inner,
    waiting::{Hears, Told},
};

/// A request that waits. Dropping it gives the request up.
pub(super) struct Ticket {
    inner: Arc<Inner>,
    pub(super) id: u64,
    told: oneshot::Receiver<Told>,
    /// It was sent, and the server was not told that nobody waits.
    pub(super) is_sent: bool,
}

impl Ticket {
    pub(super) fn of(inner: &Arc<Inner>, hears: Hears) -> Result<Ticket, Unsent> {
        let (id, told) = inner.waiting.enter(hears)?;
        Ok(Ticket {
            inner: Arc::clone(inner),
            id,
            told,
            is_sent: false,
        })
    }

    pub(super) async fn told(&mut self) -> Told {
        match (&mut self.told).await {
            Ok(told) => told,
            // Never: a waiter is told before it is dropped, and only its ticket removes it otherwise.
            Err(_dropped) => std::future::pending().await,
        }
    }

    /// Tells the server, and waits a little for the reply that says that the work is over.
    pub(super) async fn stop(mut self, reason: &'static str) -> Outcome {
        if !self.inner.can_tell() {
            return Outcome::Stopped { confirmed: false };
        }
        let id = self.id;
        let inner = Arc::clone(&self.inner);
        self.is_sent = false;
        let over = async {
            inner.tell_cancelled(id, reason).await;
            self.told().await
        };
        let confirmed = match timeout(CANCEL_WAIT, over).await {
            Ok(Told::Reply(_) | Told::Unsent(_)) => true,
            Ok(Told::Failed(Failed::Lost(lost))) => lost.confirmed,
            Ok(Told::Failed(
                Failed::Over(_) | Failed::Status(_) | Failed::Unreadable(_) | Failed::TooLong,
            ))
            | Err(_) => false,
        };
        Outcome::Stopped { confirmed }
    }

    pub(super) async fn cancel(mut self, reason: &'static str) {
        if self.inner.can_tell() {
            self.is_sent = false;
            self.inner.tell_cancelled(self.id, reason).await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let waited = self.inner.waiting.leave(self.id);
        if !waited {
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
