//! Answers to questions: checked against their forms, applied all or none.
//!
//! Every way to answer ends here: `tasks/update`, the next round of a call, the page and the command line.

use longhaul_core::{
    Millis, QuestionKey, Task, TaskId,
    event::{Answer, Event},
    task::Reader,
};
use longhaul_engine::transact::Proposal;
use longhaul_mcp::{
    RequestId, RpcError,
    request::{Answer as Answered, Response},
};
use longhaul_store::Row;

use super::{Dispatch, store_reply};
use crate::{
    gate::Action,
    identity::{self, Caller},
    question::{self, Stored, still_open},
    session::{Session, feed},
};

impl Dispatch {
    /// Settles the open questions that these answers name, by the tool's own names or by ours.
    ///
    /// # Errors
    /// An answer that does not fit. Nothing was applied, except that the misfit was counted.
    pub(super) async fn answer_labelled(
        &self,
        caller: &Caller,
        row: &Row,
        responses: &[Response],
    ) -> Result<bool, RpcError> {
        let mut answers = Vec::new();
        for (key, asked, stored) in shown(&row.task) {
            if let Some(response) = responses.iter().find(|response| response.key == key) {
                answers.push((asked, stored, response.clone()));
            }
        }
        let any = !answers.is_empty();
        self.settle(caller, row, answers).await?;
        Ok(any)
    }

    /// Applies answers to open questions, all or none. Those to questions that were settled meanwhile, or whose
    /// deadline has passed, change nothing (D-31); whether any did.
    ///
    /// # Errors
    /// The first answer that does not fit. Nothing was applied, except that the misfits were counted.
    pub(super) async fn settle(
        &self,
        caller: &Caller,
        row: &Row,
        answers: Vec<(QuestionKey, Stored, Response)>,
    ) -> Result<bool, Unsettled> {
        let mut events = Vec::new();
        let mut misfits = Vec::new();
        for (key, stored, response) in answers {
            match question::check(&stored, &response.body) {
                Ok(answer) => events.push((key, answer)),
                Err(misfit) => misfits.push((key, response.key, misfit)),
            }
        }
        if misfits.is_empty() {
            let make = move |row: &Row, now: Millis| {
                let open = events.iter().filter(|(key, _)| still_open(&row.task, *key, now));
                proposed(
                    "owner",
                    open.map(|(key, answer)| answered(*key, answer.clone())).collect(),
                )
            };
            let changed = self.try_change(&caller.owner, Action::Update, row.id, make).await;
            return changed.map_err(|error| Unsettled::Failed(store_reply(&error)));
        }
        let keys: Vec<QuestionKey> = misfits.iter().map(|(key, _, _)| *key).collect();
        let make = move |row: &Row, now: Millis| {
            let open = keys.iter().filter(|key| still_open(&row.task, **key, now));
            proposed(
                "owner",
                open.map(|key| Event::Misfit {
                    key: *key,
                    reader: Reader::Client,
                })
                .collect(),
            )
        };
        self.change(&caller.owner, Action::Update, row.id, make).await?;
        let (asked, key, misfit) = misfits.swap_remove(0);
        let before = row.task.questions.iter().find(|question| question.key == asked);
        let is_last = before.is_some_and(|question| question.misfits + 1 >= MISFITS_MAX);
        Err(Unsettled::Misfit { key, misfit, is_last })
    }

    /// Settles the question that a session's client was asked by a request of ours (D-46). Any connection of the
    /// owner may answer; what fits no open question is dropped (D-41).
    ///
    /// # Errors
    /// The store's.
    pub async fn take_answer(
        &self,
        caller: &Caller,
        session: &Session,
        answer: Answered,
    ) -> Result<(), RpcError> {
        if let RequestId::Text(id) = &answer.id
            && session.answer_inquiry(id, &answer.outcome)
        {
            return Ok(());
        }
        let Some((name, key)) = feed::question_of(&answer.id) else {
            return Ok(());
        };
        let Ok((row, _)) = self.own_named(caller, Action::Update, &name).await else {
            return Ok(());
        };
        let Some((_, stored)) = Stored::open(&row.task).find(|(asked, _)| asked.key == key) else {
            return Ok(());
        };
        let given = match &answer.outcome {
            Ok(body) => question::check(&stored, body).ok(),
            // Who can be asked at the page meanwhile.
            Err(_)
                if identity::is_local(&caller.owner)
                    && stored.kind.answered_by_people()
                    && session.refused(row.id, key) =>
            {
                return Ok(());
            }
            // The client could not ask its user, or refused to.
            Err(_) => Some(Answer::Dismiss),
        };
        if let RequestId::Text(id) = &answer.id {
            session.answered(id);
        }
        let by_rule = self
            .inner
            .catalog
            .now()
            .entry(&row.tool)
            .is_some_and(|entry| entry.asks_again);
        let asks_again = given.is_none() && by_rule;
        let event = match given {
            Some(answer) => answered(key, answer),
            None if asks_again => Event::Misfit {
                key,
                reader: Reader::Client,
            },
            None => answered(key, Answer::Decline),
        };
        let make = move |row: &Row, now: Millis| {
            still_open(&row.task, key, now)
                .then(|| proposed("owner", vec![event.clone()]))
                .flatten()
        };
        self.change(&caller.owner, Action::Update, row.id, make).await?;
        if asks_again {
            session.ask_again(row.id, key);
        }
        Ok(())
    }

    /// Dismisses whatever a task still asks its client.
    pub(super) async fn dismiss(&self, caller: &Caller, task: TaskId) -> Result<(), RpcError> {
        let make = |row: &Row, _: Millis| {
            let open = row
                .task
                .open_questions()
                .filter(|asked| asked.reader == Reader::Client);
            proposed(
                "gateway",
                open.map(|asked| answered(asked.key, Answer::Dismiss)).collect(),
            )
        };
        self.change(&caller.owner, Action::Update, task, make).await
    }
}

/// These events, unless there are none.
fn proposed(actor: &'static str, events: Vec<Event>) -> Option<Proposal> {
    (!events.is_empty()).then(|| Proposal {
        events,
        actor,
        ..Proposal::default()
    })
}

fn answered(key: QuestionKey, answer: Answer) -> Event {
    Event::Answered {
        key,
        reader: Reader::Client,
        answer,
    }
}

/// Why answers were not applied.
pub(super) enum Unsettled {
    /// One does not fit.
    Misfit {
        /// The key under which it was sent.
        key: String,
        /// What does not fit.
        misfit: question::Misfit,
        /// It was the third, and the question counts as declined.
        is_last: bool,
    },
    /// The store failed.
    Failed(RpcError),
}

impl From<RpcError> for Unsettled {
    fn from(error: RpcError) -> Unsettled {
        Unsettled::Failed(error)
    }
}

impl From<Unsettled> for RpcError {
    fn from(unsettled: Unsettled) -> RpcError {
        match unsettled {
            Unsettled::Misfit { key, misfit, is_last } => misfit_reply(&key, &misfit, is_last),
            Unsettled::Failed(error) => error,
        }
    }
}

pub(super) fn misfit_reply(key: &str, misfit: &question::Misfit, is_last: bool) -> RpcError {
    let key = longhaul_mcp::clean(key, KEY_MAX);
    let place = if misfit.field.is_empty() {
        String::new()
    } else {
        format!(", field `{}`", misfit.field)
    };
    RpcError::invalid_params_because(
        "misfit",
        format!(
            "The answer to `{key}` does not fit{place}: {}{}",
            misfit.why,
            last_words(is_last)
        ),
    )
}

/// What is said besides when a misfit was the third.
pub(super) fn last_words(is_last: bool) -> &'static str {
    if is_last {
        "; this was the third misfit, and the question counts as declined"
    } else {
        ""
    }
}

/// The open questions of a call that is no task yet, each under the name that its tool gave it. A name that is
/// taken, or could be a number of ours, is not used: keys must differ.
pub(super) fn shown(task: &Task) -> Vec<(String, QuestionKey, Stored)> {
    let mut shown: Vec<(String, QuestionKey, Stored)> = Vec::new();
    for (asked, stored) in Stored::open(task) {
        let free = |label: &String| {
            !shown.iter().any(|(key, _, _)| key == label)
                && !task.questions.iter().any(|other| other.key.to_string() == *label)
        };
        let label = stored.label.clone().filter(free);
        shown.push((label.unwrap_or_else(|| asked.key.to_string()), asked.key, stored));
    }
    shown
}

/// Whether an answer that came before its question fits the question that has its name.
pub(super) fn fits(task: &Task, response: &Response) -> bool {
    shown(task)
        .iter()
        .any(|(key, _, stored)| *key == response.key && question::check(stored, &response.body).is_ok())
}

/// The third answer that does not fit is a decline.
pub(super) const MISFITS_MAX: u8 = 3;
/// The longest key that an error repeats, in characters.
const KEY_MAX: usize = 80;
