//! Which task a question belongs to that names none: what the server said of tasks that ask, until their questions come.
//!
//! Some servers ask on the session's own stream without a word of the task, and say there just before that it asks. The
//! notice may come before the reply that made a task of the call: whoever follows the task is told then. `waiting` holds
//! one list for each connection, under its lock.

use std::{collections::VecDeque, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::super::outcome::Event;

/// The most tasks that ask and whose questions have not come.
const OWED_MAX: usize = 64;
/// The most questions that wait for somebody who follows their task.
const EARLY_MAX: usize = 16;
/// How long one waits; then it is refused.
const EARLY_WAIT: Duration = Duration::from_secs(30);

/// The tasks of one connection that ask, in the order in which the server said so.
#[derive(Default)]
pub(super) struct Owed {
    tasks: VecDeque<Asking>,
    early: Vec<Early>,
    /// The questions of this server's tasks say whose they are.
    are_named: bool,
}

struct Asking {
    task: String,
    /// What is asked, where the notice says it.
    message: Option<String>,
    /// The server said since that it works, as some do before the question has come.
    works: bool,
}

/// A question of a task that nobody follows yet.
struct Early {
    task: String,
    follower: oneshot::Sender<mpsc::Sender<Event>>,
}

impl Owed {
    /// The server said that this task asks, perhaps what.
    pub(super) fn asks(&mut self, task: &str, message: Option<String>) {
        self.is_settled(task);
        if self.tasks.len() == OWED_MAX {
            self.tasks.pop_front();
        }
        let task = task.to_owned();
        self.tasks.push_back(Asking {
            task,
            message,
            works: false,
        });
    }

    /// The server said that this task works.
    pub(super) fn works(&mut self, task: &str) {
        if let Some(asking) = self.tasks.iter_mut().find(|asking| asking.task == task) {
            asking.works = true;
        }
    }

    /// Its question has come, or is asked no more.
    pub(super) fn is_settled(&mut self, task: &str) {
        self.tasks.retain(|asking| asking.task != task);
    }

    /// A question said of which task it is, and so will others.
    pub(super) fn has_named(&mut self, task: &str) {
        self.are_named = true;
        self.is_settled(task);
    }

    /// The task that this question belongs to: the first that asks the same, or else the only one that asks and does not
    /// work by now. Where a call is open, too, it is the call's, rather than that of a task which asks something else, or
    /// whose server names tasks.
    pub(super) fn take(&mut self, message: Option<&str>, call_is_open: bool) -> Option<String> {
        let same = |asking: &Asking| message.is_some() && asking.message.as_deref() == message;
        let mut asking = self.tasks.iter().enumerate().filter(|(_, asking)| !asking.works);
        let only = match (asking.next(), asking.next()) {
            (Some((at, only)), None) => {
                let may_be_its = !call_is_open || (only.message.is_none() && !self.are_named);
                may_be_its.then_some(at)
            }
            (Some(_) | None, _) => None,
        };
        let at = self.tasks.iter().position(same).or(only)?;
        self.tasks.remove(at).map(|asking| asking.task)
    }

    /// Keeps the question until somebody follows its task.
    pub(super) fn keep(&mut self, task: String, question: Event) {
        self.early.retain(|early| !early.follower.is_closed());
        if self.early.len() == EARLY_MAX {
            return;
        }
        let (follower, followed) = oneshot::channel::<mpsc::Sender<Event>>();
        self.early.push(Early { task, follower });
        tokio::spawn(async move {
            // One that nobody takes is dropped, and so refused.
            if let Ok(Ok(events)) = timeout(EARLY_WAIT, followed).await {
                let _left = events.send(question).await;
            }
        });
    }

    /// Somebody follows the task from now on.
    pub(super) fn followed(&mut self, task: &str, events: &mpsc::Sender<Event>) {
        for early in self.early.extract_if(.., |early| early.task == task) {
            let _late = early.follower.send(events.clone());
        }
    }

    /// The connection is lost, and all questions with it.
    pub(super) fn clear(&mut self) {
        *self = Owed::default();
    }
}
