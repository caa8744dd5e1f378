//! The requests of one connection that wait for their reply: which there are, and who waits for them no longer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use longhaul_mcp::RequestId;
use tokio::sync::oneshot;

use crate::dispatch::Left;

/// The open requests of a connection.
#[derive(Clone, Default)]
pub(super) struct Requests {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Open>,
    closing: AtomicBool,
}

#[derive(Default)]
struct Open {
    begun: u64,
    waiting: BTreeMap<RequestId, (u64, oneshot::Sender<Left>)>,
}

/// What became of a request that came in.
pub(super) enum Taken {
    Request(Request),
    /// One with this id is open.
    Duplicate,
    TooMany,
}

/// One open request. Dropping it frees its id.
pub(super) struct Request {
    requests: Requests,
    id: RequestId,
    number: u64,
    told: oneshot::Receiver<Left>,
    left: Option<Left>,
}

impl Requests {
    pub(super) fn take(&self, id: &RequestId, requests_max: usize) -> Taken {
        let mut open = self.lock();
        if open.waiting.contains_key(id) {
            return Taken::Duplicate;
        }
        if open.waiting.len() >= requests_max {
            return Taken::TooMany;
        }
        open.begun += 1;
        let number = open.begun;
        let (sender, told) = oneshot::channel();
        open.waiting.insert(id.clone(), (number, sender));
        drop(open);
        Taken::Request(Request {
            requests: self.clone(),
            id: id.clone(),
            number,
            told,
            left: None,
        })
    }

    /// The client waits for this one no longer. One that is not open is ignored (B-61).
    pub(super) fn cancel(&self, id: &RequestId, reason: Option<String>) {
        if let Some((_, sender)) = self.lock().waiting.remove(id) {
            // A request that has just ended needs no word.
            let _ = sender.send(Left::because(reason.as_deref()));
        }
    }

    /// This server closes the connection: what it only would refuse is for the next one.
    pub(super) fn close(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
    }

    /// Nobody waits for any of them any more.
    pub(super) fn leave(&self) {
        self.lock().waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.shared.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request {
    /// Resolves when nobody waits for the reply any more, with how. Safe to drop and call again.
    pub(super) async fn left(&mut self) -> Left {
        if let Some(left) = self.left {
            return left;
        }
        let left = (&mut self.told).await.unwrap_or(Left::Gone);
        *self.left.insert(left)
    }

    /// The reply is there: the id is free from now on. Whether the reply is to be sent. One whose client is gone
    /// is sent all the same: it may have closed its side only.
    pub(super) fn end(&mut self) -> bool {
        let left = self.left.or_else(|| self.told.try_recv().ok());
        self.free();
        matches!(left, None | Some(Left::Gone))
    }

    /// Whether this server closes the connection.
    pub(super) fn is_closing(&self) -> bool {
        self.requests.shared.closing.load(Ordering::Relaxed)
    }

    fn free(&self) {
        let mut open = self.requests.lock();
        if open
            .waiting
            .get(&self.id)
            .is_some_and(|(number, _)| *number == self.number)
        {
            open.waiting.remove(&self.id);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.free();
    }
}
