//! The stream of a session that belongs to no single request: the GET stream over HTTP, or the pipe.
//!
//! It tells of every task that the session has to do with: questions that no other stream carries, changes of
//! status, progress where no other stream shows it, changes of lists and of resources, and log messages of
//! servers behind that belong to no call. Every tick passes the gate. What queues is what one look at one row gave, one
//! change of each list, and a limited number of messages of servers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use longhaul_core::TaskId;
use longhaul_engine::watch::Watcher;
use longhaul_mcp::{Push, request::LogLevel};
use tokio::sync::mpsc;

use super::{
    Carriage, Session,
    feed::{Feed, Seen},
};
use crate::{
    changes::{Changes, Wanted},
    dispatch::Dispatch,
    gate::Action,
    identity::Caller,
    outbound::Log,
    quota::Place,
    upstream::Event,
};

/// One shared stream.
pub(crate) struct Shared {
    _place: Option<Place>,
    dispatch: Dispatch,
    caller: Caller,
    carriage: Carriage,
    watcher: Watcher,
    changes: Changes,
    /// What servers behind say to nobody in particular.
    heard: mpsc::Receiver<Event>,
    feeds: BTreeMap<TaskId, Told>,
    /// The tasks to be looked at, each once.
    due: VecDeque<TaskId>,
    ready: VecDeque<Push>,
    send: String,
    /// Dropped after what has the session.
    _leaves: Leaves,
}

/// Forgets a session of which nothing is known, once its stream is gone. A pipe's session is over then.
struct Leaves {
    dispatch: Dispatch,
    caller: Caller,
    key: String,
    is_pipe: bool,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.dispatch.left_session(&self.key);
        if self.is_pipe {
            self.dispatch.leave_servers(&self.caller, &self.key);
        }
    }
}

struct Told {
    feed: Feed,
    handed_out: bool,
    /// What the client last read of the task's status.
    status: Option<String>,
}

impl Shared {
    pub(crate) fn new(
        dispatch: Dispatch,
        caller: Caller,
        session: &Arc<Session>,
        send: String,
        place: Option<Place>,
    ) -> Shared {
        let watcher = dispatch.watcher();
        let changes = Changes::of(dispatch.catalog(), &caller.selection, Wanted::ALL);
        let heard = dispatch.hears(&caller, session);
        let leaves = Leaves {
            dispatch: dispatch.clone(),
            caller: caller.clone(),
            key: session.key().to_owned(),
            is_pipe: session.is_pipe(),
        };
        Shared {
            _leaves: leaves,
            _place: place,
            dispatch,
            caller,
            carriage: session.shared_stream(),
            watcher,
            changes,
            heard,
            feeds: BTreeMap::new(),
            due: VecDeque::new(),
            ready: VecDeque::new(),
            send,
        }
    }

    /// The next thing to tell; `None` when a newer stream has taken the place of this one. Safe to drop and call
    /// again.
    pub(crate) async fn next(&mut self) -> Option<Push> {
        loop {
            if let Some(push) = self.ready.pop_front() {
                return Some(push);
            }
            if self.carriage.is_replaced() {
                return None;
            }
            if let Some(task) = self.due.front().copied() {
                self.look(task).await;
                self.due.pop_front();
                continue;
            }
            self.follow();
            if !self.due.is_empty() {
                continue;
            }
            let session = Arc::clone(self.carriage.session());
            tokio::select! {
                push = self.changes.next() => return Some(push),
                push = session.updates().next() => return Some(push),
                Some(event) = self.heard.recv() => self.ready.extend(logged(&session, event)),
                changes = self.watcher.next() => self.due.extend(changes.iter().map(|(task, _)| *task)),
                () = self.carriage.changed() => self.due.extend(self.feeds.keys().copied()),
            }
        }
    }

    /// Follows what the session follows; what is new is to be looked at.
    fn follow(&mut self) {
        let session = self.carriage.session();
        let followed = session.followed();
        let gone: Vec<TaskId> = self
            .feeds
            .keys()
            .copied()
            .filter(|task| !followed.contains_key(task))
            .collect();
        for task in gone {
            self.feeds.remove(&task);
            self.watcher.unfollow(task);
        }
        for (task, handed_out) in followed {
            if let Some(told) = self.feeds.get_mut(&task) {
                told.handed_out |= handed_out;
                continue;
            }
            let answers = session.peer().client.answers;
            let feed = Feed::new(self.send.clone(), None, answers, Seen::default());
            self.feeds.insert(
                task,
                Told {
                    feed,
                    handed_out,
                    status: None,
                },
            );
            self.watcher.follow(task, 0);
            self.due.push_back(task);
        }
    }

    async fn look(&mut self, task: TaskId) {
        let Some(told) = self.feeds.get_mut(&task) else {
            return;
        };
        let Ok((row, now)) = self.dispatch.own_row(&self.caller, Action::Listen, task).await else {
            self.forget(task);
            return;
        };
        let view = self.dispatch.view(&row, now);
        if told.handed_out {
            told.feed.handed_out(&view.id);
        }
        self.ready.extend(told.feed.look(&self.carriage, &row));
        self.dispatch.shows(task, told.feed.asked());
        let finished = row.task.is_finished();
        if told.handed_out {
            let status = format!("{:?} {:?}", discriminant(&view), view.status_message);
            // What the client read when it was handed the task is not told again.
            if told.status.as_ref().is_some_and(|before| *before != status) || finished {
                self.ready.push_back(Push::Task(view));
            }
            told.status = Some(status);
        }
        if finished {
            self.forget(task);
        }
    }

    fn forget(&mut self, task: TaskId) {
        self.carriage.session().unfollow(task);
        self.feeds.remove(&task);
        self.watcher.unfollow(task);
    }
}

/// A log message that is grave enough for the session.
fn logged(session: &Session, event: Event) -> Option<Push> {
    let Event::Log { level, logger, data } = event else {
        return None;
    };
    let least = session.level().unwrap_or(LogLevel::Warning);
    Log { level, logger, data }.cleaned().push(least)
}

fn discriminant(view: &longhaul_mcp::TaskView) -> std::mem::Discriminant<longhaul_core::Phase> {
    std::mem::discriminant(&view.phase)
}
