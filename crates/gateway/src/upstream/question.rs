//! Requests that a server makes: whoever can answers them, and otherwise they are refused.
//!
//! Made by a connection for each; pings and, where they are configured, roots are answered there, and what the server
//! was not told that it may ask is refused. The others go to the call that they belong to, until the server takes them
//! back. In the stateless generation a server asks in its
//! results, and never so.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_mcp::{
    RpcError,
    client::{
        self, Sent, Version,
        incoming::{Ask, AskKind, Mode},
    },
    frame::Obj,
    request::{Answers, RequestId},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::link::Outlet;

/// The most requests of one server's process or session that wait for their answers.
pub const OPEN_MAX: usize = 64;
/// The most refusals for want of room that wait to be written; beyond that a server that reads nothing hears nothing.
const REFUSALS_MAX: usize = 16;

/// The code of a request to a client's model that was not answered.
const REJECTED: i64 = -1;

/// A request of a server, which waits for its answer. Dropped, it is answered with the word for that nobody chose.
pub struct Question {
    /// What kind.
    pub kind: AskKind,
    /// The method, as it was written.
    pub method: String,
    /// As they were written; `None` when there are none.
    pub params: Option<Obj>,
    id: RequestId,
    version: Version,
    outlet: Outlet,
    open: Arc<Questions>,
    permit: Option<OwnedSemaphorePermit>,
    withdrawn: oneshot::Receiver<()>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl Question {
    /// Sends the result of the request.
    pub fn answer(mut self, result: &Obj) {
        let sent = client::answer(&self.id, result, self.version);
        self.send(sent);
    }

    /// Refuses it with this error.
    pub fn refuse(mut self, error: &RpcError) {
        self.send(client::refuse(&self.id, error, self.version));
    }

    /// Refuses what the server was not told that it may ask.
    pub(super) fn refuse_undeclared(self) {
        let error = match self.kind {
            //
            AskKind::Elicitation => RpcError::invalid_params("This mode of elicitation was not declared"),
            //
            AskKind::Ping | AskKind::Roots | AskKind::Sampling | AskKind::Other => {
                RpcError::method_not_found(&self.method)
            }
        };
        self.refuse(&error);
    }

    /// Whether this is among what can be asked.
    pub(super) fn is_among(&self, answers: Answers) -> bool {
        match self.kind {
            AskKind::Ping => true,
            AskKind::Roots => answers.roots,
            AskKind::Sampling => answers.sampling,
            AskKind::Elicitation => match Mode::of(self.params.as_ref()) {
                Some(Mode::Form) => answers.form,
                Some(Mode::Url) => answers.url,
                None => false,
            },
            AskKind::Other => false,
        }
    }

    /// Resolves when the server does not wait any more: it took the request back, or is gone. Cancel-safe.
    pub async fn withdrawn(&mut self) {
        // Both ends of its waiting look alike.
        let _sent_or_dropped = (&mut self.withdrawn).await;
    }

    fn send(&mut self, sent: Sent) {
        // Only the first answer has a permit.
        let (Some(permit), Ok(runtime)) = (self.permit.take(), Handle::try_current()) else {
            return;
        };
        let is_open = self.open.open().remove(&self.id).is_some();
        if !is_open {
            return;
        }
        let outlet = self.outlet.clone();
        runtime.spawn(async move {
            // A server that is gone waits for nothing.
            let _gone = outlet.tell(sent).await;
            drop(permit);
        });
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let sent = match self.kind {
            AskKind::Elicitation => {
                // A-72, D-22
                let mut cancel = Obj::default();
                cancel.set("action", "cancel");
                client::answer(&self.id, &cancel, self.version)
            }
            AskKind::Sampling => {
                let error = RpcError::plain(REJECTED, "The request to the model was not answered");
                client::refuse(&self.id, &error, self.version)
            }
            AskKind::Ping | AskKind::Roots | AskKind::Other => {
                let error = RpcError::method_not_found(&self.method);
                client::refuse(&self.id, &error, self.version)
            }
        };
        self.send(sent);
    }
}

/// The requests of one process or session that wait.
#[derive(Debug)]
pub(super) struct Questions {
    permits: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    open: Mutex<HashMap<RequestId, oneshot::Sender<()>>>,
}

impl Questions {
    pub(super) fn new() -> Arc<Questions> {
        Arc::new(Questions {
            permits: Arc::new(Semaphore::new(OPEN_MAX)),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            open: Mutex::default(),
        })
    }

    /// `None` when [`OPEN_MAX`] is reached, or when its id is in use: it is refused then.
    pub(super) fn take(self: &Arc<Self>, ask: Ask, version: Version, outlet: &Outlet) -> Option<Question> {
        let (withdraw, withdrawn) = oneshot::channel();
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.refuse(
                &ask.id,
                "Too many requests wait for their answers",
                version,
                outlet,
            );
            return None;
        };
        let mut open = self.open();
        if open.contains_key(&ask.id) {
            drop(open);
            self.refuse(
                &ask.id,
                "A request with this id waits for its answer",
                version,
                outlet,
            );
            return None;
        }
        open.insert(ask.id.clone(), withdraw);
        drop(open);
        Some(Question {
            kind: ask.kind,
            method: ask.method,
            params: ask.params,
            id: ask.id,
            version,
            outlet: outlet.clone(),
            open: Arc::clone(self),
            permit: Some(permit),
            withdrawn,
        })
    }

    /// Refuses a request that no question is made of.
    pub(super) fn refuse(&self, id: &RequestId, why: &'static str, version: Version, outlet: &Outlet) {
        let (Ok(permit), Ok(runtime)) = (
            Arc::clone(&self.refusals).try_acquire_owned(),
            Handle::try_current(),
        ) else {
            return;
        };
        let sent = client::refuse(id, &RpcError::invalid_request(why), version);
        let outlet = outlet.clone();
        runtime.spawn(async move {
            // A server that is gone waits for nothing.
            let _gone = outlet.tell(sent).await;
            drop(permit);
        });
    }

    /// The server does not wait for it any more.
    pub(super) fn withdraw(&self, id: &RequestId) {
        drop(self.open().remove(id));
    }

    pub(super) fn withdraw_all(&self) {
        self.open().clear();
    }

    fn open(&self) -> MutexGuard<'_, HashMap<RequestId, oneshot::Sender<()>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
