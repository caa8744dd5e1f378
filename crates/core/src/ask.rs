//! Questions: asked, answered, not fitting, and work that waits for them without being held.
//!
//! Called by `decide` only. That a question may be shown and that an answer fits its form was checked before;
//! bodies are never read here.

use alloc::vec::Vec;

use crate::{
    audit,
    cancel::{self, Ended},
    claim::holder,
    decide::Change,
    event::{Answer, Ask, Effect, Refused},
    fault,
    id::{Fence, QuestionKey},
    task::{Body, CancelledBy, Question, QuestionState, Reader, Reason, Run, Task},
    time::Millis,
};

/// The misfit at which a question counts as declined.
const MISFITS_MAX: u8 = 3;

/// T5.
pub(crate) fn asked(
    mut change: Change,
    fence: Fence,
    asks: Vec<Ask>,
    now: Millis,
) -> Result<Change, Refused> {
    let runner = holder(&change.task, fence)?;
    if change.task.run != Run::Running(runner) || asks.is_empty() {
        return Err(Refused::OutOfPlace);
    }
    let open = change.task.open_questions().count() + asks.len();
    if open > change.task.rules.questions_max as usize && !fault!("asks-without-limit") {
        return Err(Refused::TooManyQuestions);
    }
    let asks: Vec<Ask> = asks.into_iter().map(|ask| routed(&change.task, ask)).collect();
    put(&mut change, &asks, now);
    let nobody = dismiss_unanswerable(&mut change);
    if nobody && change.task.rules.fail_when_nobody_can_answer {
        cancel::end(&mut change, Ended::Failed(Reason::NobodyToAnswer));
        return Ok(change);
    }
    change.tell();
    Ok(change)
}

/// T6.
pub(crate) fn answered(
    mut change: Change,
    key: QuestionKey,
    reader: Reader,
    answer: Answer,
    now: Millis,
) -> Result<Change, Refused> {
    let question = open_question(&mut change.task, key, reader, now)?;
    let accepted = matches!(answer, Answer::Accept(_));
    question.state = match answer {
        Answer::Accept(answer) => QuestionState::Given { answer },
        Answer::Decline => QuestionState::Declined,
        Answer::Dismiss => QuestionState::Dismissed,
    };
    change.audit.push(audit::Event::InputAnswered {
        keys: alloc::vec![key],
    });
    settled(&mut change, accepted, now);
    Ok(change)
}

/// An answer that does not fit its form. The question stays as it is; the third one declines it.
pub(crate) fn misfit(
    mut change: Change,
    key: QuestionKey,
    reader: Reader,
    now: Millis,
) -> Result<Change, Refused> {
    let question = open_question(&mut change.task, key, reader, now)?;
    question.misfits = question.misfits.saturating_add(1);
    let declined = question.misfits >= MISFITS_MAX && !fault!("misfits-for-ever");
    if declined {
        question.state = QuestionState::Declined;
    }
    change.audit.push(audit::Event::InputMisfit { key });
    if declined {
        change.audit.push(audit::Event::InputClosed {
            keys: alloc::vec![key],
        });
        settled(&mut change, false, now);
    }
    Ok(change)
}

/// The leg ended with a checkpoint. Whatever the tool's rule for a crash is, the next leg begins when every
/// question is settled: it is a leg that was never begun.
pub(crate) fn parked(
    mut change: Change,
    fence: Fence,
    checkpoint: Body,
    now: Millis,
) -> Result<Change, Refused> {
    let runner = holder(&change.task, fence)?;
    if change.task.run != Run::Running(runner) {
        return Err(Refused::OutOfPlace);
    }
    change.task.checkpoint = Some(checkpoint);
    change.task.legs = change.task.legs.saturating_add(1);
    change.task.not_before = now;
    change.task.run = Run::Parked;
    change.audit.push(audit::Event::Parked);
    go_on_when_settled(&mut change);
    change.tell();
    Ok(change)
}

/// Adds open questions under new keys.
pub(crate) fn put(change: &mut Change, asks: &[Ask], now: Millis) {
    let until = (now + change.task.rules.question_deadline).min(change.task.expires_at);
    let mut keys = Vec::with_capacity(asks.len());
    for ask in asks {
        let key = next_key(&change.task);
        change.task.questions.push(Question {
            key,
            reader: ask.reader,
            ask: ask.body.clone(),
            bind: ask.bind,
            state: QuestionState::Open { until },
            misfits: 0,
        });
        keys.push(key);
    }
    change.audit.push(audit::Event::InputRequired { keys });
}

/// T7: what parked is queued for its next leg as soon as no question is open.
pub(crate) fn go_on_when_settled(change: &mut Change) {
    let waits = change.task.open_questions().next().is_some() && !fault!("next-leg-does-not-wait");
    if change.task.run != Run::Parked || waits || fault!("parked-for-ever") {
        return;
    }
    change.task.run = Run::Queued {
        reattach: change.task.upstream.is_some(),
    };
    change.effects.push(Effect::Start);
}

/// What follows when a question was settled by its reader, its deadline or its misfits.
///
/// A task that is held has one question, its approval. Accepted, it lets the task begin; anything else, silence
/// included, ends the task as [`CancelledBy::Approval`]: no approval, no work.
pub(crate) fn settled(change: &mut Change, accepted: bool, now: Millis) {
    let task = &mut change.task;
    match task.run {
        Run::Held if accepted => {
            task.approved_until = Some((now + task.rules.approval_lasts).min(task.expires_at));
            task.not_before = now;
            task.run = Run::Queued { reattach: false };
            change.effects.push(Effect::Start);
        }
        Run::Held => return cancel::end(change, Ended::Cancelled(CancelledBy::Approval)),
        Run::Parked => go_on_when_settled(change),
        Run::Running(_) => change.effects.push(Effect::Resume),
        Run::Queued { .. } | Run::Leased(_) | Run::Stopping(_) | Run::StopOwed | Run::Idle => {}
    }
    change.tell();
}

/// A question that its client cannot be asked goes to an operator, where one may be asked (G-34). The other way
/// round never: what is an operator's to decide is not the caller's.
fn routed(task: &Task, ask: Ask) -> Ask {
    match ask.reader {
        Reader::Client if !task.can_ask.client && task.can_ask.operator => Ask {
            reader: Reader::Operator,
            ..ask
        },
        Reader::Client | Reader::Operator => ask,
    }
}

/// Settles what nobody can answer, at once, as dismissed. Returns whether there was such a question.
fn dismiss_unanswerable(change: &mut Change) -> bool {
    let can_ask = change.task.can_ask;
    let mut keys = Vec::new();
    for question in &mut change.task.questions {
        let heard = match question.reader {
            Reader::Client => can_ask.client,
            Reader::Operator => can_ask.operator,
        };
        if !heard && is_open(question) && !fault!("asks-nobody") {
            question.state = QuestionState::Dismissed;
            keys.push(question.key);
        }
    }
    if keys.is_empty() {
        return false;
    }
    change.audit.push(audit::Event::InputClosed { keys });
    change.effects.push(Effect::Resume);
    true
}

/// The open question with this key, if this reader may settle it now.
fn open_question(
    task: &mut Task,
    key: QuestionKey,
    reader: Reader,
    now: Millis,
) -> Result<&mut Question, Refused> {
    if task.is_finished() {
        return Err(Refused::Finished);
    }
    let question = task
        .questions
        .iter_mut()
        .find(|question| question.key == key)
        .ok_or(Refused::NoSuchQuestion)?;
    let until = match question.state {
        QuestionState::Open { until } => until,
        QuestionState::Given { .. }
        | QuestionState::Declined
        | QuestionState::Dismissed
        | QuestionState::Withdrawn => {
            return if fault!("answers-twice") {
                Ok(question)
            } else {
                Err(Refused::QuestionClosed)
            };
        }
    };
    // A deadline is over when its moment comes, not when somebody gets round to noticing it.
    let late = until <= now && !fault!("answers-late");
    let foreign = question.reader != reader && !fault!("answers-for-another");
    if late || foreign {
        Err(Refused::QuestionClosed)
    } else {
        Ok(question)
    }
}

fn is_open(question: &Question) -> bool {
    matches!(question.state, QuestionState::Open { .. })
}

/// C-26: no question is ever deleted, so the last key is the highest.
fn next_key(task: &Task) -> QuestionKey {
    if fault!("reuses-keys") {
        return QuestionKey(1);
    }
    let last = task.questions.last().map_or(0, |question| question.key.0);
    QuestionKey(last.saturating_add(1))
}
