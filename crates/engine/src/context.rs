//! The worker's side of a tool's [`Context`](crate::tool::Context): questions, the handle of work elsewhere,
//! notes, and the order to stop.

use std::{pin::Pin, sync::Arc};

use longhaul_core::{Body, Event, Question, QuestionKey, Refused, event::Ask, task::QuestionState};
use longhaul_store::Row;
use tracing::{debug, warn};

use crate::{
    attempts::Entry,
    engine::Inner,
    notes::Heard,
    process::View,
    report::{Persisted, happened},
    tool::{Asking, Attempt, Ended, Gone, Putting, Settled},
    transact::{Done, OnRefusal},
};

pub(crate) struct Live {
    pub(crate) inner: Arc<Inner>,
    pub(crate) entry: Arc<Entry>,
}

impl Live {
    async fn put(&self, asks: Vec<Ask>) -> Result<Option<Vec<QuestionKey>>, Ended> {
        if asks.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let count = asks.len();
        Ok(
            match self
                .say(Event::Asked {
                    fence: self.entry.fence(),
                    asks,
                })
                .await
            {
                Persisted::Done(Done::Committed(row, ())) => Some(newest_keys(&row, count)),
                Persisted::Done(Done::NotNow(Refused::TooManyQuestions, ())) => {
                    warn!(
                        tool = self.entry.tool,
                        "a tool asked more than it may at once; nobody was asked"
                    );
                    None
                }
                Persisted::Done(Done::NotNow(..) | Done::Refused(())) | Persisted::Fenced => {
                    return Err(Ended);
                }
                Persisted::InDoubt => {
                    let row = self.inner.row(self.entry.id).await.ok_or(Ended)?;
                    Some(newest_keys(&row, count))
                }
            },
        )
    }

    async fn settled(&self, keys: Vec<QuestionKey>, gone: Gone<'_>) -> Result<Option<Vec<Settled>>, Ended> {
        if keys.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let waiting = self.entry.asking();
        // The slot is free for others while this one waits.
        self.inner.work.notify_one();
        let answers = tokio::select! {
            () = self.entry.stopped() => Err(Ended),
            answers = self.answers(&keys) => answers.map(Some),
            () = gone => self.take_back(keys).await.map(|()| None),
        };
        drop(waiting);
        answers
    }

    async fn take_back(&self, keys: Vec<QuestionKey>) -> Result<(), Ended> {
        let event = Event::TakenBack {
            fence: self.entry.fence(),
            keys,
        };
        match self.say(event).await {
            // One that was settled meanwhile is over, too.
            Persisted::Done(Done::Committed(..) | Done::NotNow(Refused::QuestionClosed, ()))
            | Persisted::InDoubt => Ok(()),
            Persisted::Done(Done::NotNow(..) | Done::Refused(())) | Persisted::Fenced => Err(Ended),
        }
    }

    async fn answers(&self, keys: &[QuestionKey]) -> Result<Vec<Settled>, Ended> {
        loop {
            let row = self.inner.row(self.entry.id).await.ok_or(Ended)?;
            if row.task.is_finished() || row.task.fence != self.entry.fence() {
                return Err(Ended);
            }
            let asked = row
                .task
                .questions
                .iter()
                .filter(|question| keys.contains(&question.key));
            let answers: Vec<Settled> = asked.filter_map(settlement).collect();
            if answers.len() == keys.len() {
                return Ok(answers);
            }
            self.inner.changed(self.entry.id, row.version).await;
        }
    }

    async fn attach(&self, upstream: Body) -> Result<(), Ended> {
        match self
            .say(Event::Attached {
                fence: self.entry.fence(),
                upstream,
            })
            .await
        {
            Persisted::Done(Done::Committed(..)) => Ok(()),
            Persisted::Done(Done::NotNow(..) | Done::Refused(())) | Persisted::Fenced => Err(Ended),
            Persisted::InDoubt => {
                let row = self.inner.row(self.entry.id).await.ok_or(Ended)?;
                row.task.upstream.map(|_| ()).ok_or(Ended)
            }
        }
    }

    async fn is_over(&self) -> bool {
        let row = self.inner.row(self.entry.id).await;
        row.is_some_and(|row| row.task.is_finished() && row.task.fence == self.entry.fence())
    }

    async fn say(&self, event: Event) -> Persisted {
        self.inner
            .persist(self.entry.id, OnRefusal::Leave, || happened(event.clone()))
            .await
    }
}

/// How the question was settled for the work; `None` while it is open, and when it was taken back.
pub(crate) fn settlement(question: &Question) -> Option<Settled> {
    match &question.state {
        QuestionState::Given { answer } => Some(Settled::Accepted(answer.clone())),
        QuestionState::Declined => Some(Settled::Declined),
        QuestionState::Dismissed => Some(Settled::Dismissed),
        QuestionState::Open { .. } | QuestionState::Withdrawn => None,
    }
}

/// The keys of the questions that were asked last, in the order in which they were asked.
fn newest_keys(row: &Row, count: usize) -> Vec<QuestionKey> {
    let questions = &row.task.questions;
    let newest = &questions[questions.len().saturating_sub(count)..];
    newest.iter().map(|question| question.key).collect()
}

impl Attempt for Live {
    fn put(&self, asks: Vec<Ask>) -> Putting<'_> {
        Box::pin(Live::put(self, asks))
    }

    fn settled<'a>(&'a self, keys: Vec<QuestionKey>, gone: Gone<'a>) -> Asking<'a> {
        Box::pin(Live::settled(self, keys, gone))
    }

    fn attach(&self, upstream: Body) -> Pin<Box<dyn Future<Output = Result<(), Ended>> + Send + '_>> {
        Box::pin(Live::attach(self, upstream))
    }

    fn tell(&self, line: Vec<u8>) {
        if line.len() <= self.inner.options.note_bytes_max {
            self.inner.notes.tell(self.entry.id, Heard::Line(line));
        }
    }

    fn note(&self, note: Vec<u8>) {
        if note.len() > self.inner.options.note_bytes_max {
            debug!(
                tool = self.entry.tool,
                bytes = note.len(),
                "a note is too long; it is dropped"
            );
            return;
        }
        self.inner.notes.tell(self.entry.id, Heard::Note(note.clone()));
        self.entry.note(note);
    }

    fn runs(&self, program: View) {
        self.entry.runs(program);
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.entry.stopped())
    }

    fn is_over(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(Live::is_over(self))
    }
}
