//! A task of a server with sessions: its outcome is fetched with `tasks/result`, which is held open from the beginning,
//! since it brings the task's questions, too. How far it is, `tasks/get` and notifications say.

use std::time::Duration;

use longhaul_engine::tool::Finish;
use longhaul_mcp::{
    client::{
        result::{Bad, Came},
        task::{self, State, Task},
    },
    frame::{Obj, Raw},
    rpc_error,
};
use tokio::time::Instant;

use super::{
    super::{
        back_off::{BACK_OFF, Pause},
        link::at,
        outcome::{Failed, Outcome},
        server::Line,
        talk::Said,
    },
    Ended, Following, Polls, Sent, code, is_unknown, lost, outcome_of,
};

/// How long the outcome of a task that has ended is waited for, before it is asked for again.
const RESULT_WITHIN: Duration = Duration::from_secs(10);

/// What is under way on one line.
struct Watch {
    result: Option<Sent>,
    /// When the result is asked for again, and not before when.
    result_due: Option<Instant>,
    result_not_before: Instant,
    result_pause: Pause,
    /// The server answers `tasks/result` with an error before the end: it is asked while the task asks, and at the end.
    is_early: bool,
    /// `tasks/result` ended with this error: of the call, or of the request.
    refused: Option<Raw>,
    /// The task was known to have ended when its result was asked for last.
    is_asked_at_end: bool,
    /// Since when the task has ended, and its outcome is waited for.
    settled: Option<Instant>,
    /// The server said once that it does not know the task.
    is_unknown: bool,
    poll: Option<Sent>,
    polls: Polls,
}

impl Watch {
    /// The next time `tasks/result` is sent later than this time; the first time at once.
    fn wait_for_result(&mut self) {
        self.result_not_before = Instant::now() + self.result_pause.now();
        self.result_pause.lengthen();
    }
}

/// What comes next.
enum Next {
    Result(Outcome),
    Poll(Outcome),
    Told(Obj),
    AskForResult,
    Ask,
}

impl Following<'_> {
    pub(super) async fn in_session(&mut self, line: &Line) -> Ended {
        let connection = line.connection();
        let context = self.talk.context();
        let is_known = self.hear(connection);
        self.ask_again(connection);
        let mut watch = Watch {
            result: Some(self.result(line)),
            result_due: None,
            result_not_before: Instant::now(),
            result_pause: Pause::new(BACK_OFF),
            is_early: false,
            refused: None,
            is_asked_at_end: false,
            settled: None,
            is_unknown: false,
            poll: None,
            polls: Polls::begin(is_known, self.hint),
        };
        loop {
            let next = tokio::select! {
                biased;
                () = context.stop() => return Ended::Stop,
                said = self.talk.next() => match said {
                    Said::Over => return Ended::Late,
                    Said::Nobody => return Ended::Nobody,
                    Said::Task(task) => Next::Told(task),
                },
                outcome = outcome_of(&mut watch.result) => Next::Result(outcome),
                outcome = outcome_of(&mut watch.poll) => Next::Poll(outcome),
                () = at(watch.result_due) => Next::AskForResult,
                () = at(watch.polls.due) => Next::Ask,
            };
            let ended = match next {
                Next::Result(outcome) => self.fetched(&mut watch, outcome, line).await,
                Next::Poll(outcome) => self.polled(&mut watch, outcome, line).await,
                Next::Told(task) => match task::read(&task, connection.spoken().era) {
                    Ok(task) => self.seen(&mut watch, &task),
                    Err(_) => None,
                },
                Next::AskForResult => {
                    watch.result_due = None;
                    self.talk.another_stream();
                    watch.result = Some(self.result(line));
                    None
                }
                Next::Ask => {
                    watch.polls.ask();
                    watch.poll = Some(self.get(connection));
                    None
                }
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// It ends with the task, and is waited for as long.
    fn result(&self, line: &Line) -> Sent {
        let about = task::about(&self.handle.task);
        let events = Some(self.talk.events());
        self.send(line.connection(), "tasks/result", about, None, events)
    }

    async fn fetched(&mut self, watch: &mut Watch, outcome: Outcome, line: &Line) -> Option<Ended> {
        match outcome {
            // D-6: whatever the status said.
            outcome @ (Outcome::Came(Came::Complete(_))
            | Outcome::Unusable(_)
            | Outcome::Failed(Failed::Unreadable(_) | Failed::TooLong)) => Some(self.with(outcome)),
            Outcome::Came(Came::InputRequired { .. } | Came::Task { .. }) => {
                Some(self.with(Outcome::Unusable(Bad::BadTask)))
            }
            // The status tells an error of the call from one of the request.
            Outcome::Errored(error) => {
                watch.refused = Some(error);
                watch.wait_for_result();
                watch.polls.hurry();
                None
            }
            outcome @ (Outcome::Unsent(_)
            | Outcome::Failed(Failed::Lost(_) | Failed::Over(_) | Failed::Status(_))
            | Outcome::TimedOut
            | Outcome::Stopped { .. }) => {
                // A proxy may cut what is silent for long: the task is not affected.
                watch.wait_for_result();
                watch.result_due = Some(watch.result_not_before);
                self.missed(&outcome, line).await
            }
        }
    }

    async fn polled(&mut self, watch: &mut Watch, outcome: Outcome, line: &Line) -> Option<Ended> {
        match outcome {
            Outcome::Came(Came::Complete(result)) => {
                let task = match self.read_poll(&mut watch.polls, &result, line) {
                    Ok(task) => task,
                    Err(ended) => return ended,
                };
                let ended = self.seen(watch, &task);
                watch.polls.answered(self.hint);
                ended
            }
            Outcome::Errored(error) if is_unknown(&error) => {
                // The outcome may be under way: a server may forget a task once it was asked for.
                if watch.refused.is_some() || watch.result.is_none() || watch.is_unknown {
                    return Some(lost());
                }
                watch.is_unknown = true;
                watch.polls.due = Some(Instant::now() + RESULT_WITHIN);
                None
            }
            // It does not say how far its tasks are: the end is all that there is.
            Outcome::Errored(error) if code(&error) == Some(rpc_error::METHOD_NOT_FOUND) => {
                let refused = watch.refused.take();
                refused.map(|error| match code(&error) {
                    // It knows nothing of tasks at all.
                    Some(rpc_error::METHOD_NOT_FOUND) => lost(),
                    Some(_) | None => self.with(Outcome::Errored(error)),
                })
            }
            outcome @ (Outcome::Came(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut
            | Outcome::Stopped { .. }) => {
                watch.polls.missed(self.hint);
                self.unsaid(&outcome, line).await
            }
        }
    }

    fn seen(&mut self, watch: &mut Watch, task: &Task) -> Option<Ended> {
        self.heed(task);
        watch.is_unknown = false;
        match &task.state {
            State::Working | State::Asking(_) => {
                watch.settled = None;
                // Before the end that is no outcome.
                watch.is_early |= watch.refused.take().is_some();
                let asks = matches!(task.state, State::Asking(_));
                if watch.result.is_none() && (asks || !watch.is_early) {
                    watch.result_due.get_or_insert(watch.result_not_before);
                }
                None
            }
            State::Settled { is_failure } => self.settled(watch, *is_failure),
            State::Cancelled => Some(Ended::With(Finish::Cancelled)),
            // No session says so much.
            State::Came(_) | State::Errored(_) => None,
        }
    }

    /// D-6: how the task ended is what `tasks/result` says.
    fn settled(&mut self, watch: &mut Watch, is_failure: bool) -> Option<Ended> {
        match watch.refused.take() {
            None => {}
            // It was perhaps asked just before the end: servers refuse that in the same words as a task that is unknown.
            Some(_) if !is_failure && !watch.is_asked_at_end => {}
            // What has a result cannot be unknown.
            Some(error) if !is_failure && is_unknown(&error) => return Some(lost()),
            Some(error) => return Some(self.with(Outcome::Errored(error))),
        }
        let since = *watch.settled.get_or_insert_with(Instant::now);
        let is_overdue = since.elapsed() >= RESULT_WITHIN;
        if is_overdue || watch.result.is_none() {
            watch.settled = None;
            watch.result = None;
            watch.is_asked_at_end = true;
            watch.result_due.get_or_insert(watch.result_not_before);
        }
        None
    }
}
