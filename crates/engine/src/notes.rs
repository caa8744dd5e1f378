//! What work says as it says it, for whoever is on the line: the stream of a call shows each step of its progress,
//! while the store keeps at most one note a second (T4), and each log line, of which the store keeps none.
//!
//! Nothing depends on it: a follower that is too slow misses notes, and so does one in another process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::TaskId;
use tokio::sync::broadcast::{self, error::TryRecvError};

/// How many notes a follower may be behind before it misses some.
const BEHIND_MAX: usize = 64;

/// What work says while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Progress and status text; the newest is in the task, too.
    Note(Vec<u8>),
    /// A line that is kept nowhere.
    Line(Vec<u8>),
}

/// Who follows which task's notes in this process.
#[derive(Clone, Default)]
pub(crate) struct Board {
    lines: Arc<Mutex<BTreeMap<TaskId, broadcast::Sender<Heard>>>>,
}

/// The notes of one task, from the moment that it was followed.
pub struct Notes {
    board: Board,
    id: TaskId,
    line: Option<broadcast::Receiver<Heard>>,
}

impl Board {
    pub(crate) fn follow(&self, id: TaskId) -> Notes {
        let line = self
            .lock()
            .entry(id)
            .or_insert_with(|| broadcast::Sender::new(BEHIND_MAX))
            .subscribe();
        Notes {
            board: self.clone(),
            id,
            line: Some(line),
        }
    }

    pub(crate) fn tell(&self, id: TaskId, heard: Heard) {
        if let Some(line) = self.lock().get(&id) {
            // Nobody may be listening any more.
            let _ = line.send(heard);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, broadcast::Sender<Heard>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    /// The next thing that the work says. Waits for ever when there is none; safe to drop and call again.
    pub async fn next(&mut self) -> Heard {
        loop {
            let Some(line) = &mut self.line else {
                return std::future::pending().await;
            };
            match line.recv().await {
                Ok(note) => return note,
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => self.line = None,
            }
        }
    }

    /// What it has said already.
    pub fn try_next(&mut self) -> Option<Heard> {
        loop {
            match self.line.as_mut()?.try_recv() {
                Ok(note) => return Some(note),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Closed) => self.line = None,
            }
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.line = None;
        let mut lines = self.board.lock();
        if lines.get(&self.id).is_some_and(|line| line.receiver_count() == 0) {
            lines.remove(&self.id);
        }
    }
}
