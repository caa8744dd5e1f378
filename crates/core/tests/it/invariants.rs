//! What must hold of every state and of every step, whatever the table says.

use longhaul_core::{
    Birth, Change, Effect, Event, Fence, Millis, Phase, Question, QuestionKey, Reason, Refused, Run, Stop,
    Task,
    audit::{self, Status},
    event::Answer,
    task::{OnCrash, OnSilence, QuestionState, Reader},
};

use crate::{
    explore::{Node, RUNNERS, is_open},
    table::{self, Ended, Kind, Trigger},
};

/// A birth: held when an approval is asked, queued otherwise.
pub(crate) fn of_birth(birth: &Birth, change: &Change) {
    let task = &change.task;
    assert_eq!((task.fence, task.starts, task.legs), (Fence(0), 0, 0));
    assert_eq!(change.audit.first(), Some(&audit::Event::Created));
    assert!(change.effects.contains(&Effect::Tell));
    if birth.approval.is_some() {
        assert_eq!(task.run, Run::Held, "T0: no approval, no work");
        let asked: Vec<_> = task.open_questions().map(|question| question.reader).collect();
        assert_eq!(
            asked,
            [Reader::Operator],
            "G-15: an approval is never the caller's"
        );
    } else {
        assert_eq!(task.run, Run::Queued { reattach: false });
        assert!(change.effects.contains(&Effect::Start));
    }
}

/// Every state.
pub(crate) fn of_state(node: &Node) {
    let task = &node.task;
    let asking = task
        .open_questions()
        .any(|question| question.reader == Reader::Client);
    match task.phase {
        Phase::Working => assert!(
            !asking,
            "a client's question is open, but the task shows as working: {task:?}"
        ),
        Phase::Asking => assert!(
            asking,
            "no client's question is open, but the task shows as asking: {task:?}"
        ),
        Phase::Finished(_) => assert!(
            task.open_questions().next().is_none(),
            "open after the end: {task:?}"
        ),
    }
    let kind = Kind::of(task.run);
    let owes_only_a_stop = matches!(kind, Kind::Stopping | Kind::StopOwed | Kind::Idle);
    assert_eq!(owes_only_a_stop, task.is_finished(), "{task:?}");
    if matches!(kind, Kind::Queued | Kind::Reattach | Kind::Leased) {
        assert!(
            task.open_questions().next().is_none(),
            "a leg would begin with open questions: {task:?}"
        );
    }
    assert_eq!(
        kind == Kind::Reattach,
        task.upstream.is_some() && matches!(task.run, Run::Queued { .. })
    );
    let stop_is_owed = matches!(kind, Kind::Stopping | Kind::StopOwed);
    assert_eq!(stop_is_owed, task.stop == Stop::Stopping, "{task:?}");
    assert!(task.is_finished() || task.stop == Stop::None, "{task:?}");
    assert_eq!(task.is_open(), !(task.is_finished() && kind == Kind::Idle));
    questions_are_within_limits(task);
    starts_are_within_limits(node);
    due_is_sane(node);
    for (after, now) in [(4, 3), (4, 4), (4, 5)] {
        let may = task.may_purge(Millis(after), Millis(now));
        assert_eq!(may, !task.is_open() && after <= now, "T20 of {task:?}");
    }
}

fn questions_are_within_limits(task: &Task) {
    assert!(
        task.open_questions().count() <= task.rules.questions_max as usize,
        "T5: {task:?}"
    );
    for pair in task.questions.windows(2) {
        assert!(pair[0].key < pair[1].key, "C-26: a key was used again: {task:?}");
    }
    for question in &task.questions {
        assert!(question.misfits <= 3);
        assert!(
            question.misfits < 3 || !is_open(&question.state),
            "the third misfit is a decline"
        );
        let heard = task.run == Run::Held || table::heard(task, question.reader) == Some(question.reader);
        assert!(
            !is_open(&question.state) || heard,
            "nobody can answer {question:?}"
        );
    }
}

fn starts_are_within_limits(node: &Node) {
    let task = &node.task;
    match task.rules.on_crash {
        OnCrash::Fail => assert!(node.begun <= 1, "at most once: {task:?}"),
        OnCrash::Rerun { starts_max, .. } => assert!(task.starts <= starts_max + task.legs, "{task:?}"),
        OnCrash::Resume => assert!(node.begun <= 1 || task.checkpoint.is_some(), "{task:?}"),
    }
}

/// Nothing that is owed is out of sight of whoever looks for due work.
fn due_is_sane(node: &Node) {
    let task = &node.task;
    match task.run {
        Run::Queued { .. } => assert!(task.claim_at() >= Some(task.not_before), "T1"),
        Run::StopOwed => assert_eq!(task.claim_at(), Some(Task::STOP_OWED), "T24"),
        Run::Held | Run::Leased(_) | Run::Running(_) | Run::Parked | Run::Stopping(_) | Run::Idle => {
            assert_eq!(task.claim_at(), None, "{task:?}");
        }
    }
    let due = task.due_at();
    if task.is_finished() {
        assert_eq!(due, None, "{task:?}");
        return;
    }
    let due = due.expect("a live task has at least the end of its time to live");
    assert!(due <= task.expires_at, "T19");
    assert!(task.approved_until.is_none_or(|until| due <= until), "T25");
    for question in task.open_questions() {
        let QuestionState::Open { until } = question.state else {
            unreachable!()
        };
        assert!(due <= until && until <= task.expires_at, "T18");
    }
}

/// Every step, taken or refused. Returns the row of the table that the step took.
pub(crate) fn of_step(node: &Node, event: &Event, change: &Result<Change, Refused>) -> Option<usize> {
    let before = &node.task;
    let trigger = table::trigger(before, event, node.now);
    let change = match change {
        Ok(change) => change,
        Err(refused) => {
            let row = trigger.and_then(|trigger| table::find(trigger, before, open_after(before, event)));
            assert_eq!(
                row, None,
                "{refused:?} although the table lets {event:?} pass in {before:?}"
            );
            the_refusal_says_why(node, event, *refused);
            return None;
        }
    };
    let after = &change.task;
    let open = after.open_questions().next().is_some();
    let trigger = trigger.unwrap_or_else(|| panic!("a guard lets {event:?} pass in {before:?}"));
    let Some(index) = table::find(trigger, before, open) else {
        panic!("not in the table: {event:?} in {before:?} gives {after:?}");
    };
    let row = &table::ROWS[index];
    assert_eq!(Kind::of(after.run), row.to, "{row:?}: {event:?} in {before:?}");
    let ended = table::ended(trigger).or(Ended::of(&before.phase));
    assert_eq!(Ended::of(&after.phase), ended, "{row:?}: {event:?} in {before:?}");
    let next = follow(node, event, after.clone());
    assert_eq!(
        after.stop,
        table::stop(row.stop, before, next.strays),
        "{row:?}: {event:?} in {before:?}"
    );
    the_past_stays(before, event, after);
    the_runner_is_right(before, event, after);
    times_are_right(node, trigger, after);
    questions_settle_once(node, event, trigger, after);
    effects_are_hints_of_the_change(before, change);
    audit_tells_the_change(before, event, change);
    Some(index)
}

/// What the walk remembers, independently of the code under test.
pub(crate) fn follow(node: &Node, event: &Event, after: Task) -> Node {
    let begins = matches!(event, Event::Started { .. }) && node.task.upstream.is_none();
    let parks = matches!(event, Event::Parked { .. });
    let begun_here =
        matches!(node.task.run, Run::Running(_) | Run::Stopping(_)) && node.task.upstream.is_none();
    let lost = begun_here && matches!(event, Event::RunnerLost { swept: false, .. });
    let strays = lost || matches!(event, Event::Stopped { confirmed: false, .. });
    Node {
        task: after,
        now: node.now,
        strays: node.strays || strays,
        begun: if parks { 0 } else { node.begun + u32::from(begins) },
    }
}

/// Whether a question would be open after the event, had it passed; asked only where it was refused.
fn open_after(before: &Task, event: &Event) -> bool {
    let answered = if let Event::Answered { key, .. } = event {
        Some(*key)
    } else {
        None
    };
    before
        .open_questions()
        .any(|question| Some(question.key) != answered)
}

fn the_refusal_says_why(node: &Node, event: &Event, refused: Refused) {
    let task = &node.task;
    let report = matches!(
        event,
        Event::Started { .. }
            | Event::Noted { .. }
            | Event::Attached { .. }
            | Event::Asked { .. }
            | Event::TakenBack { .. }
            | Event::Parked { .. }
            | Event::Returned { .. }
            | Event::Errored { .. }
            | Event::Failed { .. }
            | Event::Released { .. }
    );
    if report {
        assert_eq!(
            refused == Refused::Finished,
            task.is_finished(),
            "{event:?} in {task:?}"
        );
        let holds = matches!(task.run, Run::Leased(_) | Run::Running(_));
        let stale = !fence_of(event).is_some_and(|fence| fence == task.fence && holds);
        assert_eq!(
            refused == Refused::Fenced,
            !task.is_finished() && stale,
            "{event:?} in {task:?}"
        );
    }
    if let Event::Cancel { .. } = event {
        assert!(task.is_finished(), "T10: a live task refuses a cancel: {task:?}");
        assert_eq!(refused, Refused::Finished);
    }
    if let Event::Due = event {
        let due = task.due_at().is_some_and(|due| due <= node.now);
        assert!(!due, "due, but nothing is done: {task:?}");
    }
}

fn fence_of(event: &Event) -> Option<Fence> {
    match event {
        Event::Started { fence }
        | Event::Noted { fence }
        | Event::Attached { fence, .. }
        | Event::Asked { fence, .. }
        | Event::TakenBack { fence, .. }
        | Event::Parked { fence, .. }
        | Event::Returned { fence, .. }
        | Event::Errored { fence, .. }
        | Event::Failed { fence, .. }
        | Event::CancelledElsewhere { fence }
        | Event::Stopped { fence, .. }
        | Event::Released { fence } => Some(*fence),
        Event::Claimed { .. }
        | Event::Answered { .. }
        | Event::Misfit { .. }
        | Event::Cancel { .. }
        | Event::RunnerLost { .. }
        | Event::Due => None,
    }
}

fn the_past_stays(before: &Task, event: &Event, after: &Task) {
    if before.is_finished() {
        assert_eq!(before.phase, after.phase, "finished is for ever: {event:?}");
    }
    assert!(
        fence_of(event).is_none_or(|fence| fence == before.fence),
        "a report of another claim: {event:?}"
    );
    let claimed = u32::from(matches!(event, Event::Claimed { .. }));
    assert_eq!(
        after.fence.0,
        before.fence.0 + claimed,
        "the fence rises at a claim and nowhere else: {event:?}"
    );
    let begun = u32::from(matches!(event, Event::Started { .. }) && before.upstream.is_none());
    assert_eq!(after.starts, before.starts + begun, "T2: {event:?}");
    let parked = u32::from(matches!(event, Event::Parked { .. }));
    assert_eq!(after.legs, before.legs + parked, "{event:?}");
    assert_eq!(
        after.checkpoint.is_some(),
        before.checkpoint.is_some() || parked == 1,
        "{event:?}"
    );
    let attached = matches!(event, Event::Attached { .. });
    assert_eq!(
        after.upstream.is_some(),
        before.upstream.is_some() || attached,
        "{event:?}"
    );
    assert_eq!(
        (after.rules, after.can_ask, after.expires_at),
        (before.rules, before.can_ask, before.expires_at)
    );
}

fn the_runner_is_right(before: &Task, event: &Event, after: &Task) {
    let expected = if let Event::Claimed { runner } = event {
        Some(*runner)
    } else {
        before.runner()
    };
    assert!(
        after.runner().is_none() || after.runner() == expected,
        "{event:?}: {after:?}"
    );
    assert!(after.runner().is_none_or(|runner| RUNNERS.contains(&runner)));
}

fn times_are_right(node: &Node, trigger: Trigger, after: &Task) {
    let (before, now) = (&node.task, node.now);
    let approved = Some((now + before.rules.approval_lasts).min(before.expires_at));
    let until = if trigger == Trigger::Approved {
        approved
    } else {
        before.approved_until
    };
    assert_eq!(after.approved_until, until, "G-18");
    let reruns = Kind::of(before.run) == Kind::Running && before.upstream.is_none();
    let requeued = matches!(
        trigger,
        Trigger::Lost | Trigger::Released | Trigger::Parked | Trigger::Approved
    );
    let not_before = if !requeued || before.is_finished() {
        before.not_before
    } else if let (Trigger::Lost, OnCrash::Rerun { backoff, .. }, true) =
        (trigger, before.rules.on_crash, reruns)
    {
        now + backoff
    } else {
        now
    };
    assert_eq!(after.not_before, not_before, "{trigger:?} in {before:?}");
}

fn questions_settle_once(node: &Node, event: &Event, trigger: Trigger, after: &Task) {
    let before = &node.task;
    let (old, new) = after.questions.split_at(before.questions.len());
    for (was, is) in before.questions.iter().zip(old) {
        assert_eq!(
            (was.key, was.reader, &was.ask, was.bind),
            (is.key, is.reader, &is.ask, is.bind)
        );
        if !is_open(&was.state) {
            assert_eq!(was, is, "a settled question changed: {event:?}");
        } else if !is_open(&is.state) {
            settled_as(node, event, trigger, was, is);
        } else {
            let misfit = matches!(event, Event::Misfit { key, .. } if *key == was.key);
            assert_eq!(
                (&is.state, is.misfits),
                (&was.state, was.misfits + u8::from(misfit)),
                "{event:?}"
            );
        }
    }
    let Event::Asked { asks, .. } = event else {
        return assert!(new.is_empty(), "asked without asking: {event:?}");
    };
    assert_eq!(new.len(), asks.len());
    for (ask, question) in asks.iter().zip(new) {
        let heard = table::heard(before, ask.reader);
        assert_eq!(question.reader, heard.unwrap_or(ask.reader));
        let until = (node.now + before.rules.question_deadline).min(before.expires_at);
        let expected = match (heard, after.is_finished()) {
            (None, _) => QuestionState::Dismissed,
            (Some(_), true) => QuestionState::Withdrawn,
            (Some(_), false) => QuestionState::Open { until },
        };
        assert_eq!(question.state, expected, "{event:?}");
    }
}

fn settled_as(node: &Node, event: &Event, trigger: Trigger, was: &Question, is: &Question) {
    let silence = match node.task.rules.on_silence {
        OnSilence::Decline | OnSilence::Fail => QuestionState::Declined,
        OnSilence::Dismiss => QuestionState::Dismissed,
    };
    let due = matches!(was.state, QuestionState::Open { until } if until <= node.now);
    let ends_all = matches!(trigger, Trigger::Ended(Ended::Failed(Reason::Expired)));
    let expected = if let Event::Answered { key, answer, .. } = event
        && *key == was.key
    {
        match answer {
            Answer::Accept(answer) => QuestionState::Given {
                answer: answer.clone(),
            },
            Answer::Decline => QuestionState::Declined,
            Answer::Dismiss => QuestionState::Dismissed,
        }
    } else if matches!(event, Event::Misfit { key, .. } if *key == was.key) {
        QuestionState::Declined
    } else if *event == Event::Due && due && !ends_all && !approval_over(node) {
        silence
    } else {
        QuestionState::Withdrawn
    };
    assert_eq!(is.state, expected, "{event:?} in {:?}", node.task);
    let goes_on = matches!(node.task.run, Run::Running(_))
        && node.task.rules.on_crash == OnCrash::Resume
        && node.task.upstream.is_none()
        && node.task.checkpoint.is_some();
    let leg_gone = matches!(trigger, Trigger::Lost | Trigger::Released) && !goes_on;
    let withdrawn = expected == QuestionState::Withdrawn;
    let taken_back = matches!(event, Event::TakenBack { keys, .. } if keys.contains(&was.key));
    assert!(
        !withdrawn || leg_gone || taken_back || table::ended(trigger).is_some(),
        "T16: withdrawn by {event:?}"
    );
}

fn approval_over(node: &Node) -> bool {
    node.task.approved_until.is_some_and(|until| until <= node.now)
}

fn effects_are_hints_of_the_change(before: &Task, change: &Change) {
    let after = &change.task;
    let has = |effect| change.effects.contains(&effect);
    let queued = |task: &Task| matches!(task.run, Run::Queued { .. });
    assert_eq!(has(Effect::Start), queued(after) && !queued(before), "{after:?}");
    let stop_begins =
        after.stop == Stop::Stopping && (before.stop != Stop::Stopping || after.run == Run::StopOwed);
    assert_eq!(has(Effect::Stop), stop_begins, "{after:?}");
    let count = |task: &Task| {
        task.questions
            .iter()
            .filter(|question| !is_open(&question.state))
            .count()
    };
    let settled = count(after) > count(before) && matches!(after.run, Run::Running(_));
    assert!(!settled || has(Effect::Resume), "the work is not told: {after:?}");
    let visible = Status::of(&before.phase) != Status::of(&after.phase)
        || before.stop != after.stop
        || count(before) != count(after);
    assert!(!visible || has(Effect::Tell), "nobody is told: {after:?}");
}

fn audit_tells_the_change(before: &Task, event: &Event, change: &Change) {
    let after = &change.task;
    let (from, to) = (Status::of(&before.phase), Status::of(&after.phase));
    let told: Vec<_> = change
        .audit
        .iter()
        .filter(|event| matches!(event, audit::Event::StatusChanged { .. }))
        .collect();
    let expected = audit::Event::StatusChanged { from, to };
    assert_eq!(
        told,
        if from == to { vec![] } else { vec![&expected] },
        "G-39: {event:?}"
    );
    let has = |wanted: audit::Event| change.audit.contains(&wanted);
    match Ended::of(&after.phase).filter(|_| !before.is_finished()) {
        Some(Ended::Returned { is_error }) => assert!(has(audit::Event::Completed { is_error })),
        Some(Ended::Errored) => assert!(has(audit::Event::Failed { reason: None })),
        Some(Ended::Cancelled(by)) => assert!(has(audit::Event::Cancelled { by })),
        Some(Ended::Failed(Reason::Expired)) => assert!(has(audit::Event::Expired)),
        Some(Ended::Failed(reason)) => assert!(has(audit::Event::Failed { reason: Some(reason) })),
        None => {}
    }
    let lost = matches!(event, Event::RunnerLost { .. });
    assert_eq!(has(audit::Event::Reclaimed), lost, "G-39: {event:?}");
    let settles = before.run != after.run && after.run == Run::Idle && before.is_finished();
    assert_eq!(
        has(audit::Event::Stopped { stop: after.stop }),
        settles,
        "G-39: {event:?}"
    );
    assert_eq!(
        has(audit::Event::CancelRequested),
        matches!(event, Event::Cancel { .. }),
        "G-39: {event:?}"
    );
    every_question_is_told(before, change);
}

fn every_question_is_told(before: &Task, change: &Change) {
    let mut asked: Vec<QuestionKey> = Vec::new();
    let mut settled: Vec<QuestionKey> = Vec::new();
    for event in &change.audit {
        if let audit::Event::InputRequired { keys } = event {
            asked.extend(keys);
        }
        if let audit::Event::InputAnswered { keys } | audit::Event::InputClosed { keys } = event {
            settled.extend(keys);
        }
    }
    let after = &change.task.questions;
    let new: Vec<_> = after[before.questions.len()..]
        .iter()
        .map(|question| question.key)
        .collect();
    assert_eq!(asked, new, "G-39: input_required");
    let was_open = |key| {
        before
            .questions
            .iter()
            .all(|question| question.key != key || is_open(&question.state))
    };
    let mut closed: Vec<_> = after
        .iter()
        .filter(|question| !is_open(&question.state) && was_open(question.key))
        .map(|question| question.key)
        .collect();
    closed.sort();
    settled.sort();
    assert_eq!(settled, closed, "G-39: input_answered, input_closed");
}
