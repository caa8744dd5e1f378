//! `tasks/get`, `tasks/update` and `tasks/cancel`.

use longhaul_core::{Millis, Outcome, Phase, TaskId, event::Event, task::CancelledBy};
use longhaul_engine::transact::Proposal;
use longhaul_mcp::{Reply, RpcError, request::Response};
use longhaul_store::{Fault, Row};

use super::{Conversation, Dispatch, Settings, store_reply};
use crate::{gate::Action, identity::Caller, question::Stored};

impl Dispatch {
    /// A read (C-22), as often as the task's poll hint says and a few times more. Of the task nothing changes; that the end
    /// of a call of a wrapped server was fetched is remembered.
    pub(super) async fn get(
        &self,
        caller: &Caller,
        session: Option<&Conversation>,
        sealed: &str,
    ) -> Result<Reply, RpcError> {
        let opened = self.opened(sealed)?;
        let Settings { poll, poll_burst, .. } = &self.inner.settings;
        let polls = &self.inner.polls;
        let look = polls.take(&caller.owner, opened.task, poll.min.0, *poll_burst)?;
        let (row, now) = self.own_opened(caller, Action::Get, &opened).await?;
        // A session that asks for a task is told of it, wherever it began.
        if let Some(Conversation { session, .. }) = session
            && !row.task.is_finished()
        {
            session.follow(row.id, true);
        }
        let mut view = self.view(&row, now);
        if session.is_none() {
            // A session reads its questions on its streams, and here only that there are some.
            self.shows(row.id, view.questions.iter().map(|question| question.key));
        }
        view.poll_ms = view.poll_ms.map(|hint| polls.hint(look, hint));
        self.was_fetched(&row).await;
        Ok(Reply::Task(view))
    }

    /// Answers to open questions; all of an update or none of it. Keys that name no open question are
    /// ignored (C-25). Applied before the acknowledgement (K-7).
    pub(super) async fn update(
        &self,
        caller: &Caller,
        sealed: &str,
        responses: Vec<Response>,
    ) -> Result<Reply, RpcError> {
        let (row, _) = self.own(caller, Action::Update, sealed).await?;
        match &row.task.phase {
            Phase::Finished(Outcome::Cancelled {
                by: CancelledBy::Operator | CancelledBy::Session | CancelledBy::Loop | CancelledBy::Approval,
            }) => return Err(RpcError::task_cancelled()),
            Phase::Finished(
                Outcome::Cancelled {
                    by: CancelledBy::Owner | CancelledBy::Server,
                }
                | Outcome::Returned { .. }
                | Outcome::Errored { .. }
                | Outcome::Failed(_),
            ) => return Ok(Reply::Ack),
            Phase::Working | Phase::Asking => {}
        }
        let answers = responses
            .into_iter()
            .filter_map(|response| {
                let key = response.question()?;
                let (_, stored) = Stored::open(&row.task).find(|(asked, _)| asked.key == key)?;
                Some((key, stored, response))
            })
            .collect();
        self.settle(caller, &row, answers).await?;
        Ok(Reply::Ack)
    }

    /// Taken at once; how the work stops is followed apart (C-30, D-20). A task that has ended stays as it is.
    pub(super) async fn cancel(&self, caller: &Caller, sealed: &str) -> Result<Reply, RpcError> {
        let (row, _) = self.own(caller, Action::Cancel, sealed).await?;
        let was_open = !row.task.is_finished() && self.end(caller, row.id).await?;
        let (row, now) = self.own_row(caller, Action::Get, row.id).await?;
        Ok(Reply::Cancelled {
            task: self.view(&row, now),
            was_open,
        })
    }

    /// Ends a task for its owner; whether it was open until then. On a full disk it may use the space that is held
    /// back for this.
    pub(super) async fn end(&self, caller: &Caller, task: TaskId) -> Result<bool, RpcError> {
        let make = |row: &Row, _: Millis| {
            (!row.task.is_finished()).then(|| Proposal {
                events: vec![Event::Cancel {
                    by: CancelledBy::Owner,
                }],
                actor: "owner",
                ..Proposal::default()
            })
        };
        let mut done = self.try_change(&caller.owner, Action::Cancel, task, make).await;
        if done.as_ref().is_err_and(|error| error.fault == Fault::Full) && self.inner.engine.give_up_reserve()
        {
            done = self.try_change(&caller.owner, Action::Cancel, task, make).await;
        }
        done.map_err(|error| store_reply(&error))
    }
}
