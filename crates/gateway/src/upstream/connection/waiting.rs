//! Who waits on one connection, and for what: each request has an id, a place to be told, and events if it wants them.
//!
//! A `ticket` enters here and the connection's reader tells it. Nothing here sends or reads a frame.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use longhaul_mcp::frame::{Obj, Raw};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{
    super::{
        link::Lost,
        outcome::{Event, Failed, Unsent},
        streamed::Streamed,
    },
    Kept, PENDING_MAX,
    owed::Owed,
};

/// The requests of one connection that wait for their replies.
pub(super) struct Waiting {
    next_id: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u64, Waiter>,
    /// The tasks that the server made of calls, by its own ids of them.
    tasks: HashMap<String, Follower>,
    owed: Owed,
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
    /// The server may ask in the middle of it: what names no request belongs to one of those.
    pub(super) may_ask: bool,
    /// Says that the request goes on without whoever waits for it; `None` of one that never does.
    pub(super) kept: Option<Kept>,
}

/// Who follows a task of the server.
struct Follower {
    /// The id of the call, which is the token of its progress, too.
    call: Option<u64>,
    events: mpsc::Sender<Event>,
}

impl Follower {
    fn is_live(&self) -> bool {
        !self.events.is_closed()
    }

    /// Gives it back where nobody takes it.
    fn ask(&self, question: Event) -> Option<Event> {
        // Whoever does not keep up is asked again.
        match self.events.try_send(question) {
            Ok(()) => None,
            Err(TrySendError::Full(question) | TrySendError::Closed(question)) => Some(question),
        }
    }
}

impl Waiter {
    fn may_ask(&self) -> bool {
        self.hears.may_ask && self.hears.events.is_some()
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

    pub(super) fn enter(&self, hears: Hears) -> Result<(u64, oneshot::Receiver<Told>), Unsent> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ok((id, self.enter_as(id, hears)?))
    }

    /// As [`Waiting::enter`], under an id that nobody waits for.
    pub(super) fn enter_as(&self, id: u64, hears: Hears) -> Result<oneshot::Receiver<Told>, Unsent> {
        let mut table = self.table();
        if table.lost.is_some() {
            drop(table);
            return Err(self.gone());
        }
        if table.by_id.len() >= PENDING_MAX || table.by_id.contains_key(&id) {
            return Err(Unsent::TooMany);
        }
        let (told, waits) = oneshot::channel();
        table.by_id.insert(id, Waiter { told, hears });
        Ok(waits)
    }

    /// Whether it still waited.
    pub(super) fn leave(&self, id: u64) -> bool {
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

    /// As [`Waiting::settle`], for a call that the server made this task of: whoever heard of the call hears of the task
    /// from here on, before anything else is read.
    pub(super) fn settle_as_task(&self, id: u64, task: String, told: Told) -> bool {
        let waiter = {
            let mut table = self.table();
            let waiter = table.by_id.remove(&id);
            let events = waiter.as_ref().and_then(|waiter| waiter.hears.events.clone());
            if let Some(events) = events
                && !longhaul_core::fault!("a-task-is-heard-late")
            {
                table.follow(task, Some(id), events);
            }
            waiter
        };
        waiter.is_some_and(|waiter| waiter.told.send(told).is_ok())
    }

    /// What the server says of this task of its own goes there, until the other end is dropped. `call` is the id of the
    /// call that it was made of.
    pub(super) fn follow(&self, task: &str, call: Option<u64>, events: mpsc::Sender<Event>) {
        self.table().follow(task.to_owned(), call, events);
    }

    /// The id of the call that this task was made of.
    pub(super) fn call_of(&self, task: &str) -> Option<u64> {
        self.table().tasks.get(task)?.call
    }

    /// Whether somebody follows this task of the server.
    pub(super) fn follows(&self, task: &str) -> bool {
        let table = self.table();
        let follower = table.tasks.get(task);
        follower.is_some_and(Follower::is_live)
    }

    /// Whether somebody follows the task.
    pub(super) fn event_of_task(&self, task: &str, event: Event) -> bool {
        let table = self.table();
        let Some(follower) = table.tasks.get(task) else {
            return false;
        };
        // Whoever does not keep up asks again.
        let _full = follower.events.try_send(event);
        true
    }

    /// The server said how far this task is, which perhaps nobody follows yet.
    pub(super) fn task_is(&self, task: &str, status: &str, message: Option<String>) {
        let owed = &mut self.table().owed;
        match status {
            "input_required" => owed.asks(task, message),
            "working" => owed.works(task),
            _ => owed.is_settled(task),
        }
    }

    /// A question of this task has come, by its name.
    pub(super) fn task_has_asked(&self, task: &str) {
        self.table().owed.has_named(task);
    }

    /// Gives a question that names no task, and comes on no stream of a call, to the task that asks it. It comes back
    /// where that is none.
    pub(super) fn ask_of_task(
        &self,
        question: Event,
        message: Option<&str>,
        call_is_open: bool,
    ) -> Option<Event> {
        let mut table = self.table();
        let Some(task) = table.owed.take(message, call_is_open) else {
            let mut live = table.tasks.values().filter(|follower| follower.is_live());
            return match (live.next(), live.next()) {
                (Some(only), None) if !call_is_open => only.ask(question),
                _ => Some(question),
            };
        };
        match table.tasks.get(&task).filter(|follower| follower.is_live()) {
            Some(follower) => follower.ask(question),
            None => {
                table.owed.keep(task, question);
                None
            }
        }
    }

    /// Whether somebody follows the task that was made of this call.
    pub(super) fn event_of_tasks_call(&self, call: u64, event: Event) -> bool {
        let table = self.table();
        let mut followers = table.tasks.values();
        let Some(follower) = followers.find(|follower| follower.call == Some(call)) else {
            return false;
        };
        // Progress is told again.
        let _full = follower.events.try_send(event);
        true
    }

    /// Tells everybody that the connection is lost; nobody enters any more.
    pub(super) fn end(&self, lost: &Arc<Lost>) {
        let waiters = {
            let mut table = self.table();
            table.lost = Some(Arc::clone(lost));
            table.tasks.clear();
            table.owed.clear();
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
        let mut calls = table.by_id.iter().filter(|(_, waiter)| waiter.may_ask());
        calls.next().map(|(id, _)| *id).filter(|_| calls.next().is_none())
    }

    /// The last call that is open.
    pub(super) fn last_call(&self) -> Option<u64> {
        let table = self.table();
        let calls = table.by_id.iter().filter(|(_, waiter)| waiter.may_ask());
        calls.map(|(id, _)| *id).max()
    }

    /// Whether somebody listens to what belongs to this request.
    pub(super) fn listens(&self, id: Option<u64>) -> bool {
        let table = self.table();
        let waiter = id.and_then(|id| table.by_id.get(&id));
        waiter.is_some_and(|waiter| waiter.hears.events.is_some())
    }

    /// The stream of a request can be gone on with: whoever made it hears of it.
    pub(super) fn placed(&self, at: Streamed) {
        let table = self.table();
        let waiter = table.by_id.get(&at.request).filter(|waiter| waiter.may_ask());
        if let Some(Hears {
            events: Some(events),
            kept: Some(kept),
            ..
        }) = waiter.map(|waiter| &waiter.hears)
        {
            // Whoever does not keep up cannot go on with it.
            let _full = events.try_send(Event::Placed(at, kept.clone()));
        }
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

impl Table {
    fn follow(&mut self, task: String, call: Option<u64>, events: mpsc::Sender<Event>) {
        self.tasks.retain(|_, follower| follower.is_live());
        self.owed.followed(&task, &events);
        self.tasks.insert(task, Follower { call, events });
    }
}
