//! Questions that no client shows: the user of this machine is told that they wait.
//!
//! Run once by the server. It hears of tasks that ask, looks at each a moment later, and hands on who asks, never what.
//! A task of anybody else than the local user is left alone.

use std::{collections::BTreeMap, time::Duration};

use longhaul_core::TaskId;
use longhaul_store::Row;
use tokio::{sync::broadcast::error::RecvError, time::Instant};

use super::{Dispatch, told::Shown};
use crate::{
    identity::{Caller, Origin},
    local::notice::Notifier,
    question::{Asker, Stored},
    view::Context,
};

/// The tasks that ask, and when each is looked at.
#[derive(Default)]
struct Due(BTreeMap<TaskId, (Instant, Look)>);

/// How far a task was looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Not yet: a question that the caller did not declare is told of now.
    First,
    /// Whoever declared the questions had time to come for them.
    Last,
}

impl Dispatch {
    /// Tells of questions until it is dropped.
    pub(crate) async fn tell_of_questions(self, notifier: Notifier) {
        let mut asking = self.inner.engine.asking();
        let (mut due, told) = (Due::default(), Shown::default());
        loop {
            tokio::select! {
                heard = asking.recv() => match heard {
                    Ok(task) => due.add(task, Instant::now() + SOON, Look::First),
                    Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "questions that nobody is told of"),
                    Err(RecvError::Closed) => return,
                },
                (task, look) = due.next() => {
                    if let Some(later) = self.notice(task, look, &told, &notifier).await {
                        due.add(task, Instant::now() + later, Look::Last);
                    }
                }
            }
        }
    }

    /// Tells of what nobody was shown; says after how long to look again, where somebody may still come.
    async fn notice(&self, task: TaskId, look: Look, told: &Shown, notifier: &Notifier) -> Option<Duration> {
        let row = self.row(task).await.ok().flatten()?;
        if row.owner != Caller::local(Origin::Client).owner {
            return None;
        }
        let declared = Context::decode(&row.context).answers.into();
        let (mut tells, mut waits) = (false, false);
        for (question, stored) in Stored::open(&row.task) {
            let key = question.key;
            let is_known = self.inner.shown.has(task, key) || told.has(task, key);
            if is_known || !stored.kind.answered_by_people() {
                continue;
            }
            if look == Look::First && stored.kind.declared_by(declared) {
                waits = true;
            } else {
                tells |= told.mark(task, key);
            }
        }
        if tells {
            notifier.tell(&Asker::of(&row));
        }
        waits.then(|| self.patience_of(&row))
    }

    /// For how long whoever follows the task may not have seen its question.
    fn patience_of(&self, row: &Row) -> Duration {
        let poll = self.view(row, self.inner.engine.now()).poll_ms;
        Duration::from_millis(poll.unwrap_or_default() * POLLS).max(LATE)
    }
}

impl Due {
    /// A task that is to be looked at already stays so.
    fn add(&mut self, task: TaskId, at: Instant, look: Look) {
        if self.0.len() < DUE_MAX {
            self.0.entry(task).or_insert((at, look));
        }
    }

    /// The next task whose moment has come. Safe to drop and call again.
    async fn next(&mut self) -> (TaskId, Look) {
        let first = self.0.iter().min_by_key(|(_, (at, _))| *at);
        let Some((task, (at, look))) = first.map(|(task, due)| (*task, *due)) else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(at).await;
        self.0.remove(&task);
        (task, look)
    }
}

/// How long after a question it is told of: several that are asked at once are one notice.
const SOON: Duration = Duration::from_millis(500);
/// For how long a client that can show a question may leave it.
const LATE: Duration = Duration::from_secs(5);
/// How many of its poll intervals a client may leave out.
const POLLS: u64 = 2;
/// The most tasks that wait to be looked at; further ones are told of by nobody.
const DUE_MAX: usize = 1_024;
