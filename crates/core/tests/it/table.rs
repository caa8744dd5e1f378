//! The transition table, written out a second time and independently of the code: what each trigger does to each
//! state. `explore` compares every step with it, and `states` prints it.

use longhaul_core::{
    Event, Fence, Millis, Outcome, Phase, Reason, Run, Stop, Task,
    event::{Answer, Ask},
    task::{CancelledBy, OnCrash, OnSilence, Question, QuestionState, Reader},
};

use Kind::{Held, Idle, Leased, Parked, Queued, Reattach, Running, StopOwed, Stopping};

/// A [`Run`] without the runner's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Held,
    Queued,
    Reattach,
    Leased,
    Running,
    Parked,
    Stopping,
    StopOwed,
    Idle,
}

impl Kind {
    pub(crate) const ALL: [Kind; 9] = [
        Held, Queued, Reattach, Leased, Running, Parked, Stopping, StopOwed, Idle,
    ];

    pub(crate) fn of(run: Run) -> Kind {
        match run {
            Run::Held => Held,
            Run::Queued { reattach: false } => Queued,
            Run::Queued { reattach: true } => Reattach,
            Run::Leased(_) => Leased,
            Run::Running(_) => Running,
            Run::Parked => Parked,
            Run::Stopping(_) => Stopping,
            Run::StopOwed => StopOwed,
            Run::Idle => Idle,
        }
    }
}

/// What an event comes to once its guards hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    Claimed,
    Started,
    Noted,
    Attached,
    Asked,
    Settled,
    Misfit,
    TakenBack,
    Approved,
    Parked,
    Released,
    Lost,
    Reported(Ended),
    Ended(Ended),
    StopReported,
}

/// How a task ended, without its bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned { is_error: bool },
    Errored,
    Cancelled(CancelledBy),
    Failed(Reason),
}

impl Ended {
    pub(crate) fn of(phase: &Phase) -> Option<Ended> {
        match phase {
            Phase::Working | Phase::Asking => None,
            Phase::Finished(Outcome::Returned { is_error, .. }) => {
                Some(Ended::Returned { is_error: *is_error })
            }
            Phase::Finished(Outcome::Errored { .. }) => Some(Ended::Errored),
            Phase::Finished(Outcome::Cancelled { by }) => Some(Ended::Cancelled(*by)),
            Phase::Finished(Outcome::Failed(reason)) => Some(Ended::Failed(*reason)),
        }
    }
}

/// What a row asks of the task besides its state; judged on the task as it was, questions as they are after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Elsewhere,
    Here,
    OpenHere,
    SettledHere,
    OpenElsewhere,
    SettledElsewhere,
    Fails,
    Reruns,
    ResumesOpen,
    ResumesSettled,
}

impl When {
    pub(crate) fn text(self) -> &'static str {
        match self {
            When::Always => "",
            When::Elsewhere => "the work lives elsewhere",
            When::Here => "the work does not live elsewhere",
            When::OpenHere => "the work does not live elsewhere, a question is open",
            When::SettledHere => "the work does not live elsewhere, no question is open",
            When::OpenElsewhere => "the work lives elsewhere, a question is open",
            When::SettledElsewhere => "the work lives elsewhere, no question is open",
            When::Fails => "`fail`, or starts spent, or no checkpoint",
            When::Reruns => "`rerun` with starts left",
            When::ResumesOpen => "`resume` with a checkpoint, a question is open",
            When::ResumesSettled => "`resume` with a checkpoint, no question is open",
        }
    }

    fn holds(self, before: &Task, open_after: bool) -> bool {
        let elsewhere = before.upstream.is_some();
        let resumes = !elsewhere && before.rules.on_crash == OnCrash::Resume && before.checkpoint.is_some();
        let reruns = match before.rules.on_crash {
            OnCrash::Rerun { starts_max, .. } => !elsewhere && before.starts < starts_max + before.legs,
            OnCrash::Fail | OnCrash::Resume => false,
        };
        match self {
            When::Always => true,
            When::Elsewhere => elsewhere,
            When::Here => !elsewhere,
            When::OpenHere => !elsewhere && open_after,
            When::SettledHere => !elsewhere && !open_after,
            When::OpenElsewhere => elsewhere && open_after,
            When::SettledElsewhere => elsewhere && !open_after,
            When::Fails => !elsewhere && !reruns && !resumes,
            When::Reruns => reruns,
            When::ResumesOpen => resumes && open_after,
            When::ResumesSettled => resumes && !open_after,
        }
    }
}

/// What the row says of [`Stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// As it was.
    Same,
    /// The stop is owed.
    Stopping,
    /// Not started, stopped or unknown, by what became of the attempts.
    Left,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) rule: &'static str,
    pub(crate) on: On,
    pub(crate) from: Kind,
    pub(crate) when: When,
    pub(crate) to: Kind,
    pub(crate) stop: Known,
}

/// A [`Trigger`] without its particulars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Claimed,
    Started,
    Noted,
    Attached,
    Asked,
    Settled,
    Misfit,
    TakenBack,
    Approved,
    Parked,
    Released,
    Lost,
    Returned,
    Errored,
    Failed,
    CancelledElsewhere,
    Interrupted,
    Ended,
    StopReported,
}

impl On {
    pub(crate) fn text(self) -> &'static str {
        match self {
            On::Claimed => "a runner claims it",
            On::Started => "the runner begins, its approval (if any) still good",
            On::Noted => "the runner notes progress",
            On::Attached => "the work can be followed from elsewhere",
            On::Asked => "the work asks",
            On::Settled => "a question is answered, or its deadline passes",
            On::Misfit => "an answer does not fit",
            On::TakenBack => "the work takes a question back",
            On::Approved => "the approval is given",
            On::Parked => "the leg ends with a checkpoint",
            On::Released => "a draining runner gives it back",
            On::Lost => "the runner is lost",
            On::Returned => "the tool returns",
            On::Errored => "the call ends in an error",
            On::Failed => "the runner says why it failed",
            On::CancelledElsewhere => "the work is cancelled where it lives",
            On::Interrupted => "the runner is lost",
            On::Ended => "ended from outside",
            On::StopReported => "the runner reports the stop",
        }
    }

    fn of(trigger: Trigger) -> On {
        match trigger {
            Trigger::Claimed => On::Claimed,
            Trigger::Started => On::Started,
            Trigger::Noted => On::Noted,
            Trigger::Attached => On::Attached,
            Trigger::Asked => On::Asked,
            Trigger::Settled => On::Settled,
            Trigger::Misfit => On::Misfit,
            Trigger::TakenBack => On::TakenBack,
            Trigger::Approved => On::Approved,
            Trigger::Parked => On::Parked,
            Trigger::Released => On::Released,
            Trigger::Lost => On::Lost,
            Trigger::Reported(Ended::Returned { .. }) => On::Returned,
            Trigger::Reported(Ended::Errored) => On::Errored,
            Trigger::Reported(Ended::Failed(Reason::Interrupted)) => On::Interrupted,
            Trigger::Reported(Ended::Failed(_)) => On::Failed,
            Trigger::Reported(Ended::Cancelled(_)) => On::CancelledElsewhere,
            Trigger::Ended(_) => On::Ended,
            Trigger::StopReported => On::StopReported,
        }
    }
}

const fn row(rule: &'static str, on: On, from: Kind, when: When, to: Kind, stop: Known) -> Row {
    Row {
        rule,
        on,
        from,
        when,
        to,
        stop,
    }
}

/// Every transition. What is not here is refused and changes nothing.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row("T1",  On::Claimed,  Queued,   When::Always, Leased,   Known::Same),
    row("T1",  On::Claimed,  Reattach, When::Always, Leased,   Known::Same),
    row("T24", On::Claimed,  StopOwed, When::Always, Stopping, Known::Same),
    row("T2",  On::Started,  Leased,   When::Always, Running,  Known::Same),
    row("T4",  On::Noted,    Leased,   When::Always, Leased,   Known::Same),
    row("T4",  On::Noted,    Running,  When::Always, Running,  Known::Same),
    row("T17", On::Attached, Running,  When::Here,   Running,  Known::Same),
    row("T5",  On::Asked,    Running,  When::Always, Running,  Known::Same),
    row("T0",  On::Approved, Held,     When::Always, Queued,   Known::Same),
    row("T6",  On::Settled,  Running,  When::Always, Running,  Known::Same),
    row("T6",  On::Settled,  Parked,   When::OpenHere,         Parked,   Known::Same),
    row("T6",  On::Settled,  Parked,   When::OpenElsewhere,    Parked,   Known::Same),
    row("T7",  On::Settled,  Parked,   When::SettledHere,      Queued,   Known::Same),
    row("T7",  On::Settled,  Parked,   When::SettledElsewhere, Reattach, Known::Same),
    row("T6",  On::Misfit,   Held,     When::Always, Held,     Known::Same),
    row("T6",  On::Misfit,   Running,  When::Always, Running,  Known::Same),
    row("T6",  On::Misfit,   Parked,   When::Always, Parked,   Known::Same),
    row("T26", On::TakenBack, Running, When::Always, Running,  Known::Same),
    row("T7",  On::Parked,   Running,  When::OpenHere,         Parked,   Known::Same),
    row("T7",  On::Parked,   Running,  When::OpenElsewhere,    Parked,   Known::Same),
    row("T7",  On::Parked,   Running,  When::SettledHere,      Queued,   Known::Same),
    row("T7",  On::Parked,   Running,  When::SettledElsewhere, Reattach, Known::Same),
    row("T8",  On::Returned, Running,  When::Always, Idle,     Known::Same),
    row("T9",  On::Errored,  Running,  When::Always, Idle,     Known::Same),
    row("T9",  On::Failed,   Leased,   When::Always, Idle,     Known::Same),
    row("T9",  On::Failed,   Running,  When::Always, Idle,     Known::Same),
    row("T27", On::CancelledElsewhere, Running, When::Always, Idle, Known::Same),
    row("T10", On::Ended,    Held,     When::Always, Idle,     Known::Left),
    row("T10", On::Ended,    Queued,   When::Always, Idle,     Known::Left),
    row("T24", On::Ended,    Reattach, When::Always, StopOwed, Known::Stopping),
    row("T10", On::Ended,    Leased,   When::Here,      Idle,     Known::Left),
    row("T24", On::Ended,    Leased,   When::Elsewhere, StopOwed, Known::Stopping),
    row("T10", On::Ended,    Running,  When::Always, Stopping, Known::Stopping),
    row("T10", On::Ended,    Parked,   When::Here,      Idle,     Known::Left),
    row("T24", On::Ended,    Parked,   When::Elsewhere, StopOwed, Known::Stopping),
    row("T12", On::StopReported, Stopping, When::Always, Idle, Known::Left),
    row("T13", On::Lost,     Leased,   When::Here,      Queued,   Known::Same),
    row("T13", On::Lost,     Leased,   When::Elsewhere, Reattach, Known::Same),
    row("T14", On::Interrupted, Running, When::Fails, Idle,    Known::Left),
    row("T15", On::Lost,     Running,  When::Reruns,         Queued,   Known::Same),
    row("T16", On::Lost,     Running,  When::ResumesOpen,    Parked,   Known::Same),
    row("T16", On::Lost,     Running,  When::ResumesSettled, Queued,   Known::Same),
    row("T17", On::Lost,     Running,  When::Elsewhere,      Reattach, Known::Same),
    row("T23", On::Lost,     Stopping, When::Here,      Idle,     Known::Left),
    row("T23", On::Lost,     Stopping, When::Elsewhere, StopOwed, Known::Stopping),
    row("T21", On::Released, Leased,   When::Here,      Queued,   Known::Same),
    row("T21", On::Released, Leased,   When::Elsewhere, Reattach, Known::Same),
    row("T21", On::Released, Running,  When::Reruns,         Queued,   Known::Same),
    row("T21", On::Released, Running,  When::ResumesOpen,    Parked,   Known::Same),
    row("T21", On::Released, Running,  When::ResumesSettled, Queued,   Known::Same),
    row("T21", On::Released, Running,  When::Elsewhere,      Reattach, Known::Same),
];

/// The row of a trigger, by the state before and by whether a question is open afterwards.
pub(crate) fn find(trigger: Trigger, before: &Task, open_after: bool) -> Option<usize> {
    let on = On::of(trigger);
    let from = Kind::of(before.run);
    ROWS.iter()
        .position(|row| row.on == on && row.from == from && row.when.holds(before, open_after))
}

/// What the event comes to; `None` when a guard refuses it. That a row exists is for [`find`] to say.
pub(crate) fn trigger(task: &Task, event: &Event, now: Millis) -> Option<Trigger> {
    let live = !task.is_finished();
    let mine = |fence: &Fence| *fence == task.fence;
    let report = |fence: &Fence, trigger| (live && mine(fence)).then_some(trigger);
    match event {
        Event::Claimed { .. } => {
            (task.run == Run::StopOwed || now >= task.not_before).then_some(Trigger::Claimed)
        }
        Event::Started { fence } => {
            let good = task.approved_until.is_none_or(|until| now < until);
            report(fence, Trigger::Started).filter(|_| good)
        }
        Event::Noted { fence } => report(fence, Trigger::Noted),
        Event::Attached { fence, .. } => report(fence, Trigger::Attached),
        Event::Asked { fence, asks } => report(fence, asked(task, asks)?),
        Event::TakenBack { fence, keys } => {
            let mut open = task.open_questions();
            let takes = Kind::of(task.run) == Running && open.any(|question| keys.contains(&question.key));
            report(fence, Trigger::TakenBack).filter(|_| takes)
        }
        Event::Parked { fence, .. } => report(fence, Trigger::Parked),
        Event::Returned { fence, is_error, .. } => {
            report(fence, Trigger::Reported(Ended::Returned { is_error: *is_error }))
        }
        Event::Errored { fence, .. } => report(fence, Trigger::Reported(Ended::Errored)),
        Event::Failed { fence, reason } => report(fence, Trigger::Reported(Ended::Failed(*reason))),
        Event::CancelledElsewhere { fence } => {
            report(fence, Trigger::Reported(Ended::Cancelled(CancelledBy::Server)))
        }
        Event::Released { fence } => report(fence, Trigger::Released),
        Event::Stopped { fence, .. } => (!live && mine(fence)).then_some(Trigger::StopReported),
        Event::Cancel { by } => live.then_some(Trigger::Ended(Ended::Cancelled(*by))),
        Event::Answered { key, reader, answer } => {
            answerable(
                task,
                |question| question.key == *key && question.reader == *reader,
                now,
            )?;
            Some(settled(task, matches!(answer, Answer::Accept(_))))
        }
        Event::Misfit { key, reader } => {
            let question = answerable(
                task,
                |question| question.key == *key && question.reader == *reader,
                now,
            )?;
            Some(if question.misfits == 2 {
                settled(task, false)
            } else {
                Trigger::Misfit
            })
        }
        Event::RunnerLost { runner, .. } => (task.runner() == Some(*runner)).then(|| lost(task)),
        Event::Due => due(task, now),
    }
}

/// Whether the reader can be heard, after a client's question was routed to whoever can.
pub(crate) fn heard(task: &Task, reader: Reader) -> Option<Reader> {
    match reader {
        Reader::Client if task.can_ask.client => Some(Reader::Client),
        Reader::Client | Reader::Operator => task.can_ask.operator.then_some(Reader::Operator),
    }
}

fn asked(task: &Task, asks: &[Ask]) -> Option<Trigger> {
    let open = task.open_questions().count();
    if asks.is_empty()
        || open + asks.len() > task.rules.questions_max as usize
        || Kind::of(task.run) != Running
    {
        return None;
    }
    let nobody = asks.iter().any(|ask| heard(task, ask.reader).is_none());
    let fails = nobody && task.rules.fail_when_nobody_can_answer;
    Some(if fails {
        Trigger::Ended(Ended::Failed(Reason::NobodyToAnswer))
    } else {
        Trigger::Asked
    })
}

fn answerable(task: &Task, is_it: impl Fn(&Question) -> bool, now: Millis) -> Option<&Question> {
    task.questions.iter().find(|question| {
        is_it(question) && matches!(question.state, QuestionState::Open { until } if now < until)
    })
}

fn settled(task: &Task, accepted: bool) -> Trigger {
    match (Kind::of(task.run), accepted) {
        (Held, true) => Trigger::Approved,
        (Held, false) => Trigger::Ended(Ended::Cancelled(CancelledBy::Approval)),
        (Queued | Reattach | Leased | Running | Parked | Stopping | StopOwed | Idle, _) => Trigger::Settled,
    }
}

fn lost(task: &Task) -> Trigger {
    let interrupted = Kind::of(task.run) == Running && When::Fails.holds(task, false);
    if interrupted {
        Trigger::Reported(Ended::Failed(Reason::Interrupted))
    } else {
        Trigger::Lost
    }
}

fn due(task: &Task, now: Millis) -> Option<Trigger> {
    let silent =
        |question: &Question| matches!(question.state, QuestionState::Open { until } if until <= now);
    if task.is_finished() {
        None
    } else if task.expires_at <= now {
        Some(Trigger::Ended(Ended::Failed(Reason::Expired)))
    } else if task.approved_until.is_some_and(|until| until <= now) {
        Some(Trigger::Ended(Ended::Cancelled(CancelledBy::Approval)))
    } else if !task.questions.iter().any(silent) {
        None
    } else if task.rules.on_silence == OnSilence::Fail && Kind::of(task.run) != Held {
        Some(Trigger::Ended(Ended::Failed(Reason::NoAnswer)))
    } else {
        Some(settled(task, false))
    }
}

/// How the trigger ends the task, if it does.
pub(crate) fn ended(trigger: Trigger) -> Option<Ended> {
    match trigger {
        Trigger::Reported(ended) | Trigger::Ended(ended) => Some(ended),
        Trigger::Claimed
        | Trigger::Started
        | Trigger::Noted
        | Trigger::Attached
        | Trigger::Asked
        | Trigger::Settled
        | Trigger::Misfit
        | Trigger::TakenBack
        | Trigger::Approved
        | Trigger::Parked
        | Trigger::Released
        | Trigger::Lost
        | Trigger::StopReported => None,
    }
}

/// What the row says is known of the work. `strays`: an attempt is out of sight; kept by the walk itself.
pub(crate) fn stop(known: Known, before: &Task, strays: bool) -> Stop {
    match known {
        Known::Same => before.stop,
        Known::Stopping => Stop::Stopping,
        Known::Left if strays => Stop::Unknown,
        Known::Left if before.starts == 0 => Stop::NotStarted,
        Known::Left => Stop::Stopped,
    }
}
