//! Requests that a server makes: whoever can answers them, and otherwise they are refused.
//!
//! Made by a connection for each; pings and, where they are configured, roots are answered there, and what the server
//! was not told that it may ask is refused. The others go to the call that they belong to, until the server takes them
//! back. In the stateless generation a server asks in its
//! results, and never so.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
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
    /// The task of the server that it belongs to.
    task: Option<String>,
    /// Dropped while this is not so, it is not answered: it goes on at the server, for whoever goes on with what asked it.
    is_over: Option<Arc<AtomicBool>>,
    /// The same question, sent again on another stream: all are answered alike.
    repeats: Arc<Repeats>,
}

/// The same question under other ids.
pub(super) type Repeats = Mutex<Vec<Question>>;

/// A question that may be sent again, for as long as it is open.
pub(super) struct Remembered {
    method: String,
    params: Option<Obj>,
    /// How many streams there were before the one on which it came.
    stream: u32,
    repeats: Weak<Repeats>,
}

impl Remembered {
    pub(super) fn is_open(&self) -> bool {
        self.repeats.strong_count() > 0
    }

    /// Takes the same question, sent again because the stream of the first is over: it is answered as the first is. Any
    /// other is given back.
    pub(super) fn take(&self, question: Question, stream: u32) -> Option<Question> {
        let is_same = self.stream < stream
            && self.method == question.method
            && self.params == bare(question.params.as_ref());
        match is_same {
            true => question.put_beside(&self.repeats),
            false => Some(question),
        }
    }
}

/// What is asked, without what is new each time.
fn bare(params: Option<&Obj>) -> Option<Obj> {
    let mut params = params?.clone();
    for member in ["_meta", "elicitationId"] {
        drop(params.take(member));
    }
    Some(params)
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
        for repeat in self.repeats() {
            repeat.answer(result);
        }
        let sent = self.answered(result);
        self.send(sent);
    }

    fn repeats(&self) -> Vec<Question> {
        std::mem::take(&mut *self.repeats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is needed to know it again, where it came on the stream after this many.
    pub(super) fn remembered(&self, stream: u32) -> Remembered {
        Remembered {
            method: self.method.clone(),
            params: bare(self.params.as_ref()),
            stream,
            repeats: Arc::downgrade(&self.repeats),
        }
    }

    fn answered(&self, result: &Obj) -> Sent {
        let Some(task) = &self.task else {
            return client::answer(&self.id, result, self.version);
        };
        let mut result = result.clone();
        client::task::relate(&mut result, task);
        client::answer(&self.id, &result, self.version)
    }

    /// Refuses it with this error.
    pub fn refuse(mut self, error: &RpcError) {
        for repeat in self.repeats() {
            repeat.refuse(error);
        }
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

    /// The id of the request.
    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    /// The question as one of this task of the server, which its answer then names.
    pub(super) fn of_task(mut self, task: &str) -> Question {
        self.task = Some(task.to_owned());
        self
    }

    /// It is sent again: it is answered as the first is. It is given back where that is open no more.
    pub(super) fn put_beside(self, first: &Weak<Repeats>) -> Option<Question> {
        match first.upgrade() {
            Some(repeats) => {
                repeats.lock().unwrap_or_else(PoisonError::into_inner).push(self);
                None
            }
            None => Some(self),
        }
    }

    /// Where the same question is put when it is sent again.
    pub(super) fn place_of_repeats(&self) -> Weak<Repeats> {
        Arc::downgrade(&self.repeats)
    }

    /// It belongs to a task of the server.
    pub(super) fn is_of_task(&self) -> bool {
        self.task.is_some()
    }

    /// What asks goes on without this process: it is answered with the word for that nobody chose only once this is so.
    pub(super) fn open_until(&mut self, is_over: &Arc<AtomicBool>) {
        self.is_over = Some(Arc::clone(is_over));
    }

    /// What asked it has ended.
    pub(super) fn end(&mut self) {
        self.is_over = None;
    }

    /// Resolves when the server does not wait any more: it took the request back, or is gone. Cancel-safe.
    pub async fn withdrawn(&mut self) {
        // Both ends of its waiting look alike.
        let _sent_or_dropped = (&mut self.withdrawn).await;
    }

    /// It is answered by somebody else, or never.
    fn forget(&mut self) {
        if self.permit.take().is_some() {
            drop(self.open.open().remove(&self.id));
        }
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
        let goes_on = self
            .is_over
            .as_ref()
            .is_some_and(|over| !over.load(Ordering::SeqCst));
        if goes_on && !longhaul_core::fault!("lets-go-of-questions-with-an-answer") {
            self.forget();
            return;
        }
        let sent = match self.kind {
            AskKind::Elicitation => {
                // A-72, D-22
                let mut cancel = Obj::default();
                cancel.set("action", "cancel");
                self.answered(&cancel)
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
        let task = ask.params.as_ref().and_then(client::task::related);
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
            task,
            is_over: None,
            repeats: Arc::default(),
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
