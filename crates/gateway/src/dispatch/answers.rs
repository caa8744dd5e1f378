//! Answers to questions: checked against their forms, applied all or none.
//!
//! Every way to answer ends here: `tasks/update`, the next round of a call, the page and the command line.

use longhaul_core::{
    QuestionKey, Task, TaskId,
    event::{Answer, Event},
    task::Reader,
};
use longhaul_engine::transact::{Proposal, Verdict};
use longhaul_mcp::{RpcError, request::Response};
use longhaul_store::{Row, Snapshot};

use super::{Dispatch, scope, store_reply};
use crate::question::{self, Stored, still_open};

impl Dispatch {
    /// Settles the open questions that these answers name, by the tool's own names or by ours.
    ///
    /// # Errors
    /// An answer that does not fit. Nothing was applied, except that the misfit was counted.
    pub(super) async fn answer_labelled(&self, row: &Row, responses: &[Response]) -> Result<bool, RpcError> {
        let mut answers = Vec::new();
        for (key, asked, stored) in shown(&row.task) {
            if let Some(response) = responses.iter().find(|response| response.key == key) {
                answers.push((asked, stored, response.clone()));
            }
        }
        let any = !answers.is_empty();
        self.settle(row, answers).await?;
        Ok(any)
    }

    /// Applies answers to open questions, all or none.
    pub(super) async fn settle(
        &self,
        row: &Row,
        answers: Vec<(QuestionKey, Stored, Response)>,
    ) -> Result<(), RpcError> {
        let mut events = Vec::new();
        let mut misfits = Vec::new();
        for (key, stored, response) in answers {
            match question::check(&stored, &response.body) {
                Ok(answer) => events.push((key, answer)),
                Err(misfit) => misfits.push((key, response.key, misfit)),
            }
        }
        if misfits.is_empty() {
            return self.apply_answers(row.id, events).await;
        }
        let keys: Vec<QuestionKey> = misfits.iter().map(|(key, _, _)| *key).collect();
        self.apply_misfits(row.id, keys).await?;
        let (_, key, misfit) = &misfits[0];
        let last = row.task.questions.iter().any(|asked| {
            asked.misfits + 1 >= MISFITS_MAX && misfits.iter().any(|(key, _, _)| *key == asked.key)
        });
        Err(misfit_reply(key, misfit, last))
    }

    async fn apply_answers(&self, task: TaskId, answers: Vec<(QuestionKey, Answer)>) -> Result<(), RpcError> {
        if answers.is_empty() {
            return Ok(());
        }
        let judge = move |snapshot: &Snapshot| {
            let Some(row) = &snapshot.task else {
                return Verdict::Refuse(());
            };
            let events: Vec<Event> = answers
                .iter()
                .filter(|(key, _)| still_open(&row.task, *key))
                .map(|(key, answer)| Event::Answered {
                    key: *key,
                    reader: Reader::Client,
                    answer: answer.clone(),
                })
                .collect();
            if events.is_empty() {
                return Verdict::Refuse(());
            }
            Verdict::Apply(
                Proposal {
                    events,
                    actor: "owner",
                    ..Proposal::default()
                },
                (),
            )
        };
        self.inner
            .engine
            .transact(scope(task), Box::new(judge))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(())
    }

    /// Dismisses whatever a task still asks its client.
    pub(super) async fn dismiss(&self, task: TaskId) -> Result<(), RpcError> {
        let judge = |snapshot: &Snapshot| {
            let Some(row) = &snapshot.task else {
                return Verdict::Refuse(());
            };
            let open = row
                .task
                .open_questions()
                .filter(|asked| asked.reader == Reader::Client);
            let events: Vec<Event> = open
                .map(|asked| Event::Answered {
                    key: asked.key,
                    reader: Reader::Client,
                    answer: Answer::Dismiss,
                })
                .collect();
            if events.is_empty() {
                return Verdict::Refuse(());
            }
            Verdict::Apply(
                Proposal {
                    events,
                    actor: "gateway",
                    ..Proposal::default()
                },
                (),
            )
        };
        self.inner
            .engine
            .transact(scope(task), Box::new(judge))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(())
    }

    async fn apply_misfits(&self, task: TaskId, keys: Vec<QuestionKey>) -> Result<(), RpcError> {
        let judge = move |snapshot: &Snapshot| {
            let Some(row) = &snapshot.task else {
                return Verdict::Refuse(());
            };
            let events: Vec<Event> = keys
                .iter()
                .filter(|key| still_open(&row.task, **key))
                .map(|key| Event::Misfit {
                    key: *key,
                    reader: Reader::Client,
                })
                .collect();
            if events.is_empty() {
                return Verdict::Refuse(());
            }
            Verdict::Apply(
                Proposal {
                    events,
                    actor: "owner",
                    ..Proposal::default()
                },
                (),
            )
        };
        self.inner
            .engine
            .transact(scope(task), Box::new(judge))
            .await
            .map_err(|error| store_reply(&error))?;
        Ok(())
    }
}

fn misfit_reply(key: &str, misfit: &question::Misfit, last: bool) -> RpcError {
    let key = longhaul_mcp::clean(key, KEY_MAX);
    let place = if misfit.field.is_empty() {
        String::new()
    } else {
        format!(", field `{}`", misfit.field)
    };
    let end = if last {
        "; this was the third misfit, and the question counts as declined"
    } else {
        ""
    };
    RpcError::invalid_params_because(
        "answer_misfit",
        format!("The answer to `{key}` does not fit{place}: {}{end}", misfit.why),
    )
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

/// The third answer that does not fit is a decline.
const MISFITS_MAX: u8 = 3;
/// The longest key that an error repeats, in characters.
const KEY_MAX: usize = 80;
