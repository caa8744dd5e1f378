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

/// T26.
pub(crate) fn taken_back(mut change: Change, fence: Fence, keys: &[QuestionKey]) -> Result<Change, Refused> {
    let runner = holder(&change.task, fence)?;
    if change.task.run != Run::Running(runner) {
        return Err(Refused::OutOfPlace);
    }
    let mut withdrawn = Vec::new();
    for question in &mut change.task.questions {
        let may = is_open(question) || fault!("takes-back-what-is-settled");
        if keys.contains(&question.key) && may {
            question.state = QuestionState::Withdrawn;
            withdrawn.push(question.key);
        }
    }
    if withdrawn.is_empty() {
        return Err(Refused::QuestionClosed);
    }
    change.audit.push(audit::Event::InputClosed { keys: withdrawn });
    change.effects.push(Effect::Resume);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Event, Outcome, Phase, Stop,
        decide::check::{FENCE, ME, NOW, OLD, asking, check, refused, task},
        task::{CanAsk, OnCrash},
    };

    const UNTIL: QuestionState = QuestionState::Open { until: Millis(150) };

    fn ask(reader: Reader) -> Ask {
        Ask {
            reader,
            body: Body::new(b"?"),
            bind: [5; 32],
        }
    }

    fn ask_event(readers: &[Reader]) -> Event {
        Event::Asked {
            fence: FENCE,
            asks: readers.iter().map(|reader| ask(*reader)).collect(),
        }
    }

    fn question(key: u32, reader: Reader, state: QuestionState) -> Question {
        Question {
            key: QuestionKey(key),
            reader,
            ask: Body::new(b"?"),
            bind: [5; 32],
            state,
            misfits: 0,
        }
    }

    fn answer(key: u32, reader: Reader, answer: Answer) -> Event {
        Event::Answered {
            key: QuestionKey(key),
            reader,
            answer,
        }
    }

    fn accept() -> Answer {
        Answer::Accept(Body::new(b"!"))
    }

    fn given() -> QuestionState {
        QuestionState::Given {
            answer: Body::new(b"!"),
        }
    }

    #[test]
    fn t5_a_question_gets_a_new_key_and_a_deadline() {
        let mut task = task(Run::Running(ME));
        task.questions
            .push(question(4, Reader::Client, QuestionState::Declined));
        let change = check(&task, ask_event(&[Reader::Client]), |task| {
            task.questions.push(question(5, Reader::Client, UNTIL));
            task.phase = Phase::Asking;
        });
        assert_eq!(
            change.audit[0],
            audit::Event::InputRequired {
                keys: alloc::vec![QuestionKey(5)]
            }
        );
    }

    #[test]
    fn t5_only_running_work_asks_something_and_not_too_much() {
        refused(
            &task(Run::Leased(ME)),
            ask_event(&[Reader::Client]),
            Refused::OutOfPlace,
        );
        refused(&task(Run::Running(ME)), ask_event(&[]), Refused::OutOfPlace);
        refused(
            &task(Run::Running(ME)),
            ask_event(&[Reader::Client; 3]),
            Refused::TooManyQuestions,
        );
        let asking = asking(Run::Running(ME), Reader::Client);
        refused(
            &asking,
            ask_event(&[Reader::Client; 2]),
            Refused::TooManyQuestions,
        );
        let stale = Event::Asked {
            fence: OLD,
            asks: alloc::vec![ask(Reader::Client)],
        };
        refused(&task(Run::Running(ME)), stale, Refused::Fenced);
    }

    #[test]
    fn t5_a_tool_may_have_as_many_open_questions_as_its_rule_says() {
        check(&task(Run::Running(ME)), ask_event(&[Reader::Client; 2]), |task| {
            task.questions
                .extend([1, 2].map(|key| question(key, Reader::Client, UNTIL)));
            task.phase = Phase::Asking;
        });
    }

    #[test]
    fn g34_what_was_settled_stays_settled_when_nobody_can_answer() {
        let mut task = task(Run::Running(ME));
        task.can_ask = CanAsk {
            client: false,
            operator: false,
        };
        task.questions.push(question(1, Reader::Client, given()));
        check(&task, ask_event(&[Reader::Client]), |task| {
            task.questions
                .push(question(2, Reader::Client, QuestionState::Dismissed));
        });
    }

    #[test]
    fn g34_a_question_nobody_can_answer_is_dismissed_at_once() {
        let mut task = task(Run::Running(ME));
        task.can_ask = CanAsk {
            client: false,
            operator: false,
        };
        let change = check(&task, ask_event(&[Reader::Client]), |task| {
            task.questions
                .push(question(1, Reader::Client, QuestionState::Dismissed));
        });
        assert!(change.effects.contains(&Effect::Resume));
        task.rules.fail_when_nobody_can_answer = true;
        check(&task, ask_event(&[Reader::Client]), |task| {
            task.questions
                .push(question(1, Reader::Client, QuestionState::Dismissed));
            task.phase = Phase::Finished(Outcome::Failed(Reason::NobodyToAnswer));
            (task.run, task.stop) = (Run::Stopping(ME), Stop::Stopping);
        });
    }

    #[test]
    fn g34_an_operator_answers_for_a_client_that_cannot_but_never_the_other_way_round() {
        let mut task = task(Run::Running(ME));
        check(&task, ask_event(&[Reader::Operator]), |task| {
            task.questions
                .push(question(1, Reader::Operator, QuestionState::Dismissed));
        });
        task.can_ask = CanAsk {
            client: false,
            operator: true,
        };
        check(&task, ask_event(&[Reader::Client]), |task| {
            task.questions.push(question(1, Reader::Operator, UNTIL));
        });
    }

    #[test]
    fn t6_one_of_two_answers_leaves_the_task_asking() {
        let mut task = asking(Run::Running(ME), Reader::Client);
        task.questions.push(question(2, Reader::Client, UNTIL));
        let change = check(&task, answer(2, Reader::Client, accept()), |task| {
            task.questions[1].state = given()
        });
        check(&change.task, answer(1, Reader::Client, Answer::Decline), |task| {
            task.questions[0].state = QuestionState::Declined;
            task.phase = Phase::Working;
        });
    }

    #[test]
    fn t6_a_question_is_settled_once_in_time_and_by_its_reader() {
        let mut task = asking(Run::Running(ME), Reader::Client);
        refused(
            &task,
            answer(9, Reader::Client, accept()),
            Refused::NoSuchQuestion,
        );
        refused(
            &task,
            answer(1, Reader::Operator, accept()),
            Refused::QuestionClosed,
        );
        task.questions[0].state = QuestionState::Open { until: NOW };
        refused(
            &task,
            answer(1, Reader::Client, accept()),
            Refused::QuestionClosed,
        );
        task.questions[0].state = QuestionState::Dismissed;
        refused(
            &task,
            answer(1, Reader::Client, accept()),
            Refused::QuestionClosed,
        );
        task.phase = Phase::Finished(Outcome::Failed(Reason::Expired));
        refused(&task, answer(1, Reader::Client, accept()), Refused::Finished);
    }

    #[test]
    fn t26_the_work_takes_back_a_question_that_is_open() {
        let take_back = |fence, key| Event::TakenBack {
            fence,
            keys: alloc::vec![QuestionKey(key)],
        };
        let mut task = asking(Run::Running(ME), Reader::Client);
        task.questions.push(question(2, Reader::Client, UNTIL));
        let change = check(&task, take_back(FENCE, 1), |task| {
            task.questions[0].state = QuestionState::Withdrawn;
        });
        let closed = audit::Event::InputClosed {
            keys: alloc::vec![QuestionKey(1)],
        };
        assert_eq!(change.audit, [closed]);
        check(&change.task, take_back(FENCE, 2), |task| {
            task.questions[1].state = QuestionState::Withdrawn;
            task.phase = Phase::Working;
        });
        refused(&change.task, take_back(FENCE, 1), Refused::QuestionClosed);
        refused(&task, take_back(OLD, 1), Refused::Fenced);
        let parked = asking(Run::Leased(ME), Reader::Client);
        refused(&parked, take_back(FENCE, 1), Refused::OutOfPlace);
    }

    #[test]
    fn the_third_misfit_is_a_decline() {
        let misfit = || Event::Misfit {
            key: QuestionKey(1),
            reader: Reader::Client,
        };
        let task = asking(Run::Running(ME), Reader::Client);
        let task = check(&task, misfit(), |task| task.questions[0].misfits = 1).task;
        let task = check(&task, misfit(), |task| task.questions[0].misfits = 2).task;
        check(&task, misfit(), |task| {
            task.questions[0].misfits = 3;
            task.questions[0].state = QuestionState::Declined;
            task.phase = Phase::Working;
        });
    }

    #[test]
    fn g18_an_approval_lets_the_task_begin_and_holds_for_its_time() {
        let mut held = asking(Run::Held, Reader::Operator);
        let approve = || answer(1, Reader::Operator, accept());
        check(&held, approve(), |task| {
            task.questions[0].state = given();
            task.run = Run::Queued { reattach: false };
            task.not_before = NOW;
            task.approved_until = Some(Millis(300));
        });
        held.expires_at = Millis(250);
        let change = crate::decide(&held, approve(), NOW).expect("taken");
        assert_eq!(change.task.approved_until, Some(Millis(250)));
    }

    #[test]
    fn no_approval_no_work() {
        for (no, state) in [
            (Answer::Decline, QuestionState::Declined),
            (Answer::Dismiss, QuestionState::Dismissed),
        ] {
            check(
                &asking(Run::Held, Reader::Operator),
                answer(1, Reader::Operator, no),
                |task| {
                    task.questions[0].state = state;
                    task.phase = Phase::Finished(Outcome::Cancelled {
                        by: CancelledBy::Approval,
                    });
                    (task.run, task.stop) = (Run::Idle, Stop::NotStarted);
                },
            );
        }
    }

    #[test]
    fn t7_parked_work_goes_on_when_every_question_is_settled() {
        let parked = Event::Parked {
            fence: FENCE,
            checkpoint: Body::new(b"here"),
        };
        let change = check(&asking(Run::Running(ME), Reader::Client), parked, |task| {
            task.checkpoint = Some(Body::new(b"here"));
            task.legs = 1;
            task.not_before = NOW;
            task.run = Run::Parked;
        });
        let change = check(&change.task, answer(1, Reader::Client, accept()), |task| {
            task.questions[0].state = given();
            task.phase = Phase::Working;
            task.run = Run::Queued { reattach: false };
        });
        assert!(change.effects.contains(&Effect::Start));
    }

    #[test]
    fn t7_work_that_may_begin_once_parks_too() {
        let task = task(Run::Running(ME));
        assert_eq!(task.rules.on_crash, OnCrash::Fail);
        check(
            &task,
            Event::Parked {
                fence: FENCE,
                checkpoint: Body::new(b"here"),
            },
            |task| {
                task.checkpoint = Some(Body::new(b"here"));
                task.legs = 1;
                task.not_before = NOW;
                task.run = Run::Queued { reattach: false };
            },
        );
    }
}
