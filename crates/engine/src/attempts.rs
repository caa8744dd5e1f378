//! What this process runs: one entry for each attempt, from before its claim to after its report.
//!
//! Written by the worker, told by every commit and by the watch poll. It holds no truth: the row does.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

use longhaul_core::{Run, RunnerId, TaskId};
use longhaul_store::Row;
use tokio::sync::{Notify, watch};

use crate::process::View;

/// The attempts of this process.
pub(crate) struct Attempts {
    entries: Mutex<BTreeMap<TaskId, Arc<Entry>>>,
    count: watch::Sender<usize>,
}

/// One attempt.
pub(crate) struct Entry {
    pub(crate) id: TaskId,
    pub(crate) tool: String,
    /// Whose slots it counts against.
    slots: String,
    /// The fence of the claim; 0 before it.
    fence: AtomicU32,
    /// The newest version of the row that was seen.
    seen: AtomicU64,
    /// How many questions the work waits for, in calls of `ask`.
    asking: AtomicUsize,
    order: watch::Sender<Order>,
    stop: watch::Sender<bool>,
    note: Mutex<Option<Vec<u8>>>,
    program: Mutex<Option<View>>,
    pub(crate) noted: Notify,
}

/// What the worker is to do with an attempt. It only moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Go on.
    Run,
    /// Give the task back where that is possible; else go on.
    Release,
    /// As `Release`; but what cannot be given back ends now.
    Shutdown,
    /// The task ended from outside, or is no longer this runner's: the work must stop.
    End,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts {
            entries: Mutex::default(),
            count: watch::Sender::new(0),
        }
    }
}

impl Attempts {
    /// Adds an attempt, unless the task has one.
    pub(crate) fn add(&self, id: TaskId, tool: &str, slots: String) -> Option<Arc<Entry>> {
        let mut entries = self.lock();
        if entries.contains_key(&id) {
            return None;
        }
        let entry = Arc::new(Entry::new(id, tool, slots));
        entries.insert(id, Arc::clone(&entry));
        self.count.send_replace(entries.len());
        Some(entry)
    }

    pub(crate) fn remove(&self, id: TaskId) {
        let mut entries = self.lock();
        entries.remove(&id);
        self.count.send_replace(entries.len());
    }

    /// The attempts that take a slot, and those that wait without one, by the name of their tool.
    pub(crate) fn count(&self, waiting_max: usize) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
        self.count_by(waiting_max, |entry| &entry.tool)
    }

    /// The attempts that take a slot, by whose it is.
    pub(crate) fn taken(&self, waiting_max: usize) -> BTreeMap<String, usize> {
        self.count_by(waiting_max, |entry| &entry.slots).0
    }

    fn count_by(
        &self,
        waiting_max: usize,
        key: impl Fn(&Entry) -> &String,
    ) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
        let (mut running, mut waiting) = (BTreeMap::new(), BTreeMap::new());
        for entry in self.lock().values() {
            let waits = entry.asking.load(Ordering::SeqCst) > 0;
            let key = key(entry);
            let places = waiting.get(key).copied().unwrap_or(0);
            let counted = if waits && places < waiting_max {
                &mut waiting
            } else {
                &mut running
            };
            *counted.entry(key.clone()).or_insert(0) += 1;
        }
        (running, waiting)
    }

    /// The newest version that each attempt has seen.
    pub(crate) fn versions(&self) -> BTreeMap<TaskId, u64> {
        self.lock()
            .values()
            .map(|entry| (entry.id, entry.seen.load(Ordering::SeqCst)))
            .collect()
    }

    /// Tells the attempt at this task, if there is one, what the row now says.
    pub(crate) fn observe(&self, me: RunnerId, row: &Row) {
        let entry = self.lock().get(&row.id).cloned();
        if let Some(entry) = entry {
            entry.observe(me, row);
        }
    }

    /// The program that runs for this task, if one does.
    pub(crate) fn program(&self, id: TaskId) -> Option<View> {
        let entry = self.lock().get(&id).cloned()?;
        let program = entry.program.lock().unwrap_or_else(PoisonError::into_inner);
        program.clone()
    }

    /// Gives every attempt this order.
    pub(crate) fn order(&self, order: Order) {
        let entries: Vec<Arc<Entry>> = self.lock().values().cloned().collect();
        entries.iter().for_each(|entry| entry.order(order));
    }

    /// Resolves when there is none.
    pub(crate) async fn idle(&self) {
        // The sender lives as long as this borrow, so the wait cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(id: TaskId, tool: &str, slots: String) -> Entry {
        Entry {
            id,
            tool: tool.to_owned(),
            slots,
            fence: AtomicU32::new(0),
            seen: AtomicU64::new(0),
            asking: AtomicUsize::new(0),
            order: watch::Sender::new(Order::Run),
            stop: watch::Sender::new(false),
            note: Mutex::default(),
            program: Mutex::default(),
            noted: Notify::new(),
        }
    }

    pub(crate) fn claimed(&self, fence: longhaul_core::Fence) {
        self.fence.store(fence.0, Ordering::SeqCst);
    }

    pub(crate) fn fence(&self) -> longhaul_core::Fence {
        longhaul_core::Fence(self.fence.load(Ordering::SeqCst))
    }

    pub(crate) fn orders(&self) -> watch::Receiver<Order> {
        self.order.subscribe()
    }

    pub(crate) fn order(&self, order: Order) {
        self.order.send_if_modified(|present| {
            let moves = *present < order;
            *present = (*present).max(order);
            moves
        });
        if order == Order::End {
            self.tell_stop();
        }
    }

    pub(crate) fn tell_stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn stopped(&self) {
        // The sender lives as long as this borrow, so the wait cannot fail.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    pub(crate) fn asking(self: &Arc<Entry>) -> Asking {
        self.asking.fetch_add(1, Ordering::SeqCst);
        Asking(Arc::clone(self))
    }

    pub(crate) fn note(&self, note: Vec<u8>) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
        self.noted.notify_one();
    }

    pub(crate) fn runs(&self, program: View) {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
    }

    pub(crate) fn take_note(&self) -> Option<Vec<u8>> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn observe(&self, me: RunnerId, row: &Row) {
        self.seen.fetch_max(row.version, Ordering::SeqCst);
        let fence = self.fence();
        // Before the claim is known here, the start is the guard: the core refuses it to a task that has ended.
        if fence.0 == 0 {
            return;
        }
        // A commit is told after it is done, so a row from before this claim may come late. It says nothing of it.
        if row.task.fence < fence {
            return;
        }
        let goes_on = match row.task.run {
            Run::Leased(runner) | Run::Running(runner) => runner == me && row.task.fence == fence,
            Run::Stopping(_) | Run::Held | Run::Queued { .. } | Run::Parked | Run::StopOwed | Run::Idle => {
                false
            }
        };
        if !goes_on {
            self.order(Order::End);
        }
    }
}

/// Counts an attempt as waiting for as long as it lives.
pub(crate) struct Asking(Arc<Entry>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}
