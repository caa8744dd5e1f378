//! Who waits on one connection, and for what: each request has an id, a place to be told, and events if it wants them.
//!
//! A connection's callers enter here and its reader tells them. Nothing here reads a frame.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use longhaul_mcp::frame::{Obj, Raw};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    super::{
        link::Lost,
        outcome::{Event, Failed, Outcome, Unsent},
    },
    CANCEL_WAIT, Inner, PENDING_MAX,
};

/// The requests of one connection that wait for their replies.
pub(super) struct Waiting {
    next_id: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u64, Waiter>,
    lost: Option<Arc<Lost>>,
}

struct Waiter {
    told: oneshot::Sender<Told>,
    hears: Hears,
}

/// What a request is told besides its reply.
#[derive(Default)]
pub(super) struct Hears {
    /// Progress, log messages, and questions.
    pub(super) events: Option<mpsc::Sender<Event>>,
    /// What is honoured of a subscription.
    pub(super) acknowledged: Option<oneshot::Sender<Obj>>,
    /// It is a call of a tool: what names no request belongs to one of those.
    pub(super) is_call: bool,
}

impl Waiter {
    fn is_call(&self) -> bool {
        self.hears.is_call && self.hears.events.is_some()
    }
}

/// What became of a request.
pub(super) enum Told {
    Reply(Result<Raw, Raw>),
    Failed(Failed),
    Unsent(Unsent),
}

impl Waiting {
    pub(super) fn new(ids_from: u64) -> Waiting {
        Waiting {
            next_id: AtomicU64::new(ids_from),
            table: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.table().by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn enter(&self, hears: Hears) -> Result<(u64, oneshot::Receiver<Told>), Unsent> {
        let mut table = self.table();
        if table.lost.is_some() {
            drop(table);
            return Err(self.gone());
        }
        if table.by_id.len() >= PENDING_MAX {
            return Err(Unsent::TooMany);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (told, waits) = oneshot::channel();
        table.by_id.insert(id, Waiter { told, hears });
        Ok((id, waits))
    }

    /// Whether it still waited.
    fn leave(&self, id: u64) -> bool {
        self.table().by_id.remove(&id).is_some()
    }

    /// Why nothing is sent any more.
    pub(super) fn gone(&self) -> Unsent {
        let lost = self.table().lost.clone();
        Unsent::Unreachable(lost.map_or_else(|| "it has ended".to_owned(), |lost| lost.to_string()))
    }

    /// Whether somebody waited for it.
    pub(super) fn settle(&self, id: u64, told: Told) -> bool {
        let waiter = self.table().by_id.remove(&id);
        waiter.is_some_and(|waiter| waiter.told.send(told).is_ok())
    }

    /// Tells everybody that the connection is lost; nobody enters any more.
    pub(super) fn end(&self, lost: &Arc<Lost>) {
        let waiters = {
            let mut table = self.table();
            table.lost = Some(Arc::clone(lost));
            std::mem::take(&mut table.by_id)
        };
        for waiter in waiters.into_values() {
            let _left = waiter.told.send(Told::Failed(Failed::Lost(Arc::clone(lost))));
        }
    }

    /// The one request that waits, if there is just one.
    pub(super) fn only(&self) -> Option<u64> {
        let table = self.table();
        let mut ids = table.by_id.keys();
        ids.next().copied().filter(|_| ids.next().is_none())
    }

    /// The one call that is open, if there is just one.
    pub(super) fn only_call(&self) -> Option<u64> {
        let table = self.table();
        let mut calls = table.by_id.iter().filter(|(_, waiter)| waiter.is_call());
        calls.next().map(|(id, _)| *id).filter(|_| calls.next().is_none())
    }

    /// The last call that is open.
    pub(super) fn last_call(&self) -> Option<u64> {
        let table = self.table();
        let calls = table.by_id.iter().filter(|(_, waiter)| waiter.is_call());
        calls.map(|(id, _)| *id).max()
    }

    /// Whether somebody listens to what belongs to this request.
    pub(super) fn listens(&self, id: Option<u64>) -> bool {
        let table = self.table();
        let waiter = id.and_then(|id| table.by_id.get(&id));
        waiter.is_some_and(|waiter| waiter.hears.events.is_some())
    }

    /// Whether somebody listens to it.
    pub(super) fn event(&self, id: Option<u64>, event: Event) -> bool {
        let table = self.table();
        let waiter = id.and_then(|id| table.by_id.get(&id));
        let Some(events) = waiter.and_then(|waiter| waiter.hears.events.as_ref()) else {
            return false;
        };
        // Progress is told again; whoever does not keep up misses some of it.
        let _full = events.try_send(event);
        true
    }

    /// A subscription stands.
    pub(super) fn acknowledge(&self, id: Option<u64>, honoured: Obj) {
        let mut table = self.table();
        let waiter = id.and_then(|id| table.by_id.get_mut(&id));
        if let Some(acknowledged) = waiter.and_then(|waiter| waiter.hears.acknowledged.take()) {
            let _left = acknowledged.send(honoured);
        }
    }
}

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
