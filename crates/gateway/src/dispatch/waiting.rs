//! `tasks/result`: a wait for the end of a task, and the stream of a call that is resumed.

use std::{collections::VecDeque, sync::Arc};

use longhaul_core::{Phase, TaskId};
use longhaul_mcp::{Push, Reply, RpcError};

use super::{
    Dispatch,
    held::{Step, plain_reply},
};
use crate::{
    gate::Action,
    identity::Caller,
    quota::Place,
    session::{
        Carriage, Session,
        feed::{Feed, Seen},
    },
};

/// Somebody waits for the end of a task. Dropping it leaves the task as it is (A-53, D-18).
pub struct Waiting {
    dispatch: Dispatch,
    caller: Caller,
    task: TaskId,
    name: String,
    reply: As,
    feed: Option<(Feed, Carriage)>,
    ready: VecDeque<Push>,
    _place: Place,
}

/// What the end of the task is told as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// The reply to `tasks/result`.
    Outcome,
    /// The reply to the call itself.
    Result,
}

/// How a wait's stream tells its client of the task.
pub(crate) struct Line<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// Part of the ids of its questions.
    pub(crate) send: String,
    /// What the client has seen of it.
    pub(crate) seen: Seen,
}

impl Dispatch {
    /// Waits for the end of the caller's own task. Without a line only the end is told.
    pub(super) async fn wait(
        &self,
        caller: &Caller,
        sealed: &str,
        line: Option<Line<'_>>,
    ) -> Result<Waiting, RpcError> {
        let (row, _) = self.own(caller, Action::Get, sealed).await?;
        if let Some(line) = &line {
            line.session.follow(row.id, true);
        }
        let place = self.held_place(caller, &[])?;
        let feed = line.map(|line| {
            let answers = line.session.peer().client.answers;
            let feed = Feed::new(line.send, Some(sealed.to_owned()), answers, line.seen);
            (feed, line.session.own_stream(row.id))
        });
        Ok(Waiting {
            dispatch: self.clone(),
            caller: caller.clone(),
            task: row.id,
            name: row.name,
            reply: As::Outcome,
            feed,
            ready: VecDeque::new(),
            _place: place,
        })
    }

    /// Goes on with a stream that was cut, of the task that the caller's short name means.
    pub(crate) async fn resume_stream(
        &self,
        caller: &Caller,
        name: &str,
        reply: As,
        line: Line<'_>,
    ) -> Result<Waiting, RpcError> {
        let (row, _) = self.own_named(caller, Action::Get, name).await?;
        let place = self.held_place(caller, &[])?;
        let sealed = match reply {
            As::Outcome => Some(self.inner.keys.seal(row.id, &row.owner, row.created_at)),
            As::Result => None,
        };
        let answers = line.session.peer().client.answers;
        let feed = Feed::new(line.send, sealed, answers, line.seen).resumed();
        Ok(Waiting {
            dispatch: self.clone(),
            caller: caller.clone(),
            task: row.id,
            name: row.name,
            reply,
            feed: Some((feed, line.session.own_stream(row.id))),
            ready: VecDeque::new(),
            _place: place,
        })
    }
}

impl Waiting {
    /// What its stream is called, and what tells its questions from others; `None` without a stream.
    pub(crate) fn stream_name(&self) -> Option<(String, String)> {
        let (feed, _) = self.feed.as_ref()?;
        Some((self.name.clone(), feed.send().to_owned()))
    }

    /// How far the client will have come once it has read the last thing that [`Waiting::next`] gave.
    pub(crate) fn seen(&self) -> Seen {
        self.feed
            .as_ref()
            .map(|(feed, _)| feed.seen())
            .unwrap_or_default()
    }

    /// The next thing for the client. Safe to drop and call again.
    pub async fn next(&mut self) -> Step {
        loop {
            if let Some(push) = self.ready.pop_front() {
                return Step::Push(Box::new(push));
            }
            let (row, now) = match self.dispatch.own_row(&self.caller, Action::Get, self.task).await {
                Ok(found) => found,
                Err(error) => return Step::Reply(Box::new(Reply::Error(error))),
            };
            if let Some((feed, carriage)) = &mut self.feed {
                self.ready.extend(feed.look(carriage, &row));
                self.dispatch.shows(row.id, feed.asked());
                if !self.ready.is_empty() {
                    continue;
                }
            }
            if let Phase::Finished(outcome) = &row.task.phase {
                let reply = match self.reply {
                    As::Outcome => Reply::Outcome(self.dispatch.view(&row, now)),
                    As::Result => plain_reply(outcome),
                };
                self.dispatch.was_fetched(&row).await;
                return Step::Reply(Box::new(reply));
            }
            self.wait(row.version).await;
        }
    }

    /// The end of the task, whatever it takes; pushes are dropped.
    pub async fn finish(mut self) -> Reply {
        loop {
            if let Step::Reply(reply) = self.next().await {
                return *reply;
            }
        }
    }

    async fn wait(&mut self, version: u64) {
        let changed = self.dispatch.inner.engine.changed(self.task, version);
        match &mut self.feed {
            Some((_, carriage)) => tokio::select! {
                _ = changed => {}
                () = carriage.changed() => {}
            },
            None => {
                changed.await;
            }
        }
    }
}
