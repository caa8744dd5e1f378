//! What one stream tells its client of one task: progress, questions, and that a question is settled.
//!
//! Derived from the row, so that a stream can be resumed anywhere without a log of its events. It reads nothing;
//! its stream hands it each version of the row.

use std::collections::BTreeMap;

use longhaul_core::{QuestionKey, task::QuestionState};
use longhaul_mcp::{
    Push, RequestId,
    request::{Answers, ProgressToken},
};
use longhaul_store::Row;

use super::Carriage;
use crate::{
    outbound::Note,
    question::{Asker, Stored},
    view::{self, Context},
};

/// The first part of the id of every question that is sent as a request (D-46).
const PREFIX: &str = "tiq";

/// What a stream has told of one task.
pub(crate) struct Feed {
    /// Part of the ids of its questions: a resumed stream repeats them, a new one has others (D-46).
    send: String,
    /// The sealed id, for a client that was handed the task.
    sealed: Option<String>,
    answers: Answers,
    sent: BTreeMap<QuestionKey, u32>,
    seen: Seen,
    progress: f64,
    is_resumed: bool,
}

/// How far the client of a stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The version of the row that it was last told of.
    pub version: u64,
    /// The number of the last question that it was sent.
    pub asked: u32,
}

impl Feed {
    /// A feed for a client that can answer `answers` and has seen so much.
    pub(crate) fn new(send: String, sealed: Option<String>, answers: Answers, seen: Seen) -> Feed {
        Feed {
            send,
            sealed,
            answers,
            sent: BTreeMap::new(),
            seen,
            progress: f64::NEG_INFINITY,
            is_resumed: false,
        }
    }

    /// The stream goes on with one that was cut.
    pub(crate) fn resumed(self) -> Feed {
        Feed {
            is_resumed: true,
            ..self
        }
    }

    /// The client was handed the task: what follows is marked with its id.
    pub(crate) fn handed_out(&mut self, sealed: &str) {
        self.sealed.get_or_insert_with(|| sealed.to_owned());
    }

    /// Part of the ids of its questions.
    pub(crate) fn send(&self) -> &str {
        &self.send
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    /// The questions that its client has and that are open.
    pub(crate) fn asked(&self) -> impl Iterator<Item = QuestionKey> {
        self.sent.keys().copied()
    }

    /// What the client is to be told, now that the row is as it is.
    pub(crate) fn look(&mut self, carriage: &Carriage, row: &Row) -> Vec<Push> {
        let mut told = Vec::new();
        told.extend(self.progress(carriage, row));
        self.withdraw(carriage, row, &mut told);
        self.ask(carriage, row, &mut told);
        self.seen.version = self.seen.version.max(row.version);
        told
    }

    /// Progress under the token of the call that became the task, while the task is open.
    fn progress(&mut self, carriage: &Carriage, row: &Row) -> Option<Push> {
        // A call that is no task shows its progress itself, step by step.
        let shows = self.sealed.is_some() || self.is_resumed;
        if !shows || row.task.is_finished() || row.version <= self.seen.version || !carriage.carries(row.id) {
            return None;
        }
        let context = Context::decode(&row.context);
        let wanted = context
            .progress
            .filter(|wanted| wanted.session == carriage.session().key())?;
        let progress = view::progress(&Note::decode(&row.note))?;
        if progress.progress <= self.progress {
            return None;
        }
        self.progress = progress.progress;
        Some(Push::Progress {
            token: ProgressToken(wanted.token),
            progress,
            task: self.sealed.clone(),
        })
    }

    /// D-22: who was asked and did not answer learns that nobody waits for the answer any more.
    fn withdraw(&mut self, carriage: &Carriage, row: &Row, told: &mut Vec<Push>) {
        let settled: Vec<QuestionKey> = self
            .sent
            .keys()
            .copied()
            .filter(|key| !is_open(row, *key))
            .collect();
        for key in settled {
            let times = self.sent.remove(&key).unwrap_or(0);
            let id = self.id(row, key, times);
            if carriage.settle(row.id, key, &id) {
                told.push(Push::Withdrawn {
                    id: RequestId::Text(id),
                });
            }
        }
    }

    fn ask(&mut self, carriage: &Carriage, row: &Row, told: &mut Vec<Push>) {
        for (question, stored) in Stored::open(&row.task) {
            let key = question.key;
            if !stored.kind.declared_by(self.answers) || carriage.holds(row.id, key) {
                continue;
            }
            if !carriage.claim(row.id, key) {
                continue;
            }
            // Sent before the stream was cut: the resumed stream waits for the same answer.
            let is_new = key.0 > self.seen.asked;
            let times = match self.sent.get(&key) {
                Some(times) => times + 1,
                None => 0,
            };
            self.sent.insert(key, times);
            if is_new || times > 0 {
                self.seen.asked = self.seen.asked.max(key.0);
                told.push(Push::Question {
                    id: RequestId::Text(self.id(row, key, times)),
                    ask: stored.told(&Asker::of(row)),
                    task: self.sealed.clone(),
                });
            }
        }
    }

    fn id(&self, row: &Row, key: QuestionKey, times: u32) -> String {
        let send = &self.send;
        match times {
            0 => format!("{PREFIX}-{}-{key}-{send}", row.name),
            again => format!("{PREFIX}-{}-{key}-{send}{again}", row.name),
        }
    }
}

fn is_open(row: &Row, key: QuestionKey) -> bool {
    row.task
        .questions
        .iter()
        .any(|question| question.key == key && matches!(question.state, QuestionState::Open { .. }))
}

/// The short name and the key in the id of a question of ours; `None` for any other id.
pub(crate) fn question_of(id: &RequestId) -> Option<(String, QuestionKey)> {
    let RequestId::Text(text) = id else { return None };
    let mut parts = text.split('-');
    if parts.next() != Some(PREFIX) {
        return None;
    }
    let name = parts.next()?;
    let key = QuestionKey(parts.next()?.strip_prefix('q')?.parse().ok()?);
    parts.next()?;
    (parts.next().is_none() && name.len() <= NAME_MAX).then(|| (name.to_owned(), key))
}

/// The longest short name that is looked up, in bytes.
const NAME_MAX: usize = 16;
