//! What every backend checks of a write before it writes: the promises of the seam, not the rules of a task.
//!
//! Called by each backend between the judge and the first write. It never looks into a body.

use longhaul_core::{Body, Outcome, Phase, Question, task::QuestionState};

use crate::{Error, Owner, Row, Scope, Slot, Snapshot, Write};

/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 8 * 1024;

/// Checks that `write` stays within what `scope` locked and keeps what is written once.
///
/// Returns whether the task, if any, is born by this write.
pub(crate) fn check(scope: &Scope, snapshot: &Snapshot, write: &Write) -> Result<bool, Error> {
    if let Some(name) = write.counters.keys().find(|name| !scope.counters.contains(name)) {
        return Err(Error::broken(format!(
            "write the counter `{name}`, which the scope does not lock"
        )));
    }
    if let Some(key) = write.records.keys().find(|key| !scope.records.contains(key)) {
        return Err(Error::broken(format!(
            "write the record `{}`, which the scope does not lock",
            key.id
        )));
    }
    let named = write
        .records
        .iter()
        .all(|(key, record)| record.as_ref().is_none_or(|record| record.key == *key));
    if !named {
        return Err(Error::broken("write a record under another record's name"));
    }
    let Some(row) = &write.task else { return Ok(false) };
    if row.note.len() > NOTE_BYTES_MAX {
        return Err(Error::broken(format!("write a note of {} bytes", row.note.len())));
    }
    match (&snapshot.task, &scope.task) {
        (Some(old), Slot::Task(_) | Slot::Birth { .. }) => check_update(old, row).map(|()| false),
        (None, Slot::Birth { owner, idem, names }) => check_birth(owner, idem, names, row).map(|()| true),
        (None, Slot::Task(_)) => Err(Error::broken(format!(
            "update task {}, which does not exist",
            row.id
        ))),
        (_, Slot::None) => Err(Error::broken(format!(
            "write task {}, which the scope does not lock",
            row.id
        ))),
    }
}

fn check_birth(owner: &Owner, idem: &Option<[u8; 32]>, names: &[String], row: &Row) -> Result<(), Error> {
    if row.owner != *owner || row.idem != *idem || !names.contains(&row.name) {
        return Err(Error::broken(format!(
            "give birth to task {} outside its slot",
            row.id
        )));
    }
    bodies(row).into_iter().try_for_each(|(name, body)| match body {
        Body::Bytes(_) => Ok(()),
        Body::Stored => Err(lost(&name, row)),
    })
}

fn check_update(old: &Row, new: &Row) -> Result<(), Error> {
    let fixed = old.id == new.id
        && old.owner == new.owner
        && old.kid == new.kid
        && old.name == new.name
        && old.tool == new.tool
        && old.session == new.session
        && old.origin == new.origin
        && old.created_at == new.created_at
        && old.idem == new.idem
        && old.digest == new.digest
        && old.task.rules == new.task.rules
        && old.task.can_ask == new.task.can_ask;
    if !fixed {
        return Err(Error::broken(format!(
            "change what is fixed at birth in task {}",
            old.id
        )));
    }
    if old.task.is_finished() && !same_ending(&old.task.phase, &new.task.phase) {
        return Err(Error::broken(format!("change the outcome of task {}", old.id)));
    }
    if new.task.questions.len() < old.task.questions.len()
        || !old
            .task
            .questions
            .iter()
            .zip(&new.task.questions)
            .all(|(old, new)| same_question(old, new))
    {
        return Err(Error::broken(format!(
            "change a settled question of task {}",
            old.id
        )));
    }
    let had = bodies(old);
    bodies(new).into_iter().try_for_each(|(name, body)| {
        let stored = had.iter().any(|(other, _)| *other == name);
        match body {
            Body::Bytes(_) if stored && !is_replaceable(&name) => Err(Error::broken(format!(
                "write `{name}` of task {} a second time",
                new.id
            ))),
            Body::Stored if !stored => Err(lost(&name, new)),
            Body::Bytes(_) | Body::Stored => Ok(()),
        }
    })
}

/// Whether a body may be replaced while the task lives: only what the next leg goes on from.
pub(crate) fn is_replaceable(name: &str) -> bool {
    matches!(name, "upstream" | "checkpoint")
}

/// All bodies of a row but its note, with the names under which they are kept.
pub(crate) fn bodies(row: &Row) -> Vec<(String, &Body)> {
    let task = &row.task;
    let mut all = vec![
        ("args".to_owned(), &row.args),
        ("context".to_owned(), &row.context),
    ];
    if let Phase::Finished(Outcome::Returned { body, .. } | Outcome::Errored { body }) = &task.phase {
        all.push(("outcome".to_owned(), body));
    }
    all.extend(task.upstream.iter().map(|body| ("upstream".to_owned(), body)));
    all.extend(task.checkpoint.iter().map(|body| ("checkpoint".to_owned(), body)));
    for question in &task.questions {
        all.push((format!("ask.{}", question.key.0), &question.ask));
        if let QuestionState::Given { answer } = &question.state {
            all.push((format!("answer.{}", question.key.0), answer));
        }
    }
    all
}

/// Applies `change` to each body of a row but its note, with its name.
pub(crate) fn change_bodies(row: &mut Row, mut change: impl FnMut(&str, &mut Body)) {
    change("args", &mut row.args);
    change("context", &mut row.context);
    if let Phase::Finished(Outcome::Returned { body, .. } | Outcome::Errored { body }) = &mut row.task.phase {
        change("outcome", body);
    }
    if let Some(body) = &mut row.task.upstream {
        change("upstream", body);
    }
    if let Some(body) = &mut row.task.checkpoint {
        change("checkpoint", body);
    }
    for question in &mut row.task.questions {
        change(&format!("ask.{}", question.key.0), &mut question.ask);
        if let QuestionState::Given { answer } = &mut question.state {
            change(&format!("answer.{}", question.key.0), answer);
        }
    }
}

fn lost(name: &str, row: &Row) -> Error {
    Error::broken(format!(
        "keep `{name}` of task {}, which was never stored",
        row.id
    ))
}

/// The same ending, whether or not the bodies were read.
fn same_ending(old: &Phase, new: &Phase) -> bool {
    match (old, new) {
        (
            Phase::Finished(Outcome::Returned { is_error: old, .. }),
            Phase::Finished(Outcome::Returned { is_error: new, .. }),
        ) => old == new,
        (Phase::Finished(Outcome::Errored { .. }), Phase::Finished(Outcome::Errored { .. })) => true,
        (old, new) => old == new,
    }
}

/// The same question, and if it was settled, settled the same way.
fn same_question(old: &Question, new: &Question) -> bool {
    let same_state = match (&old.state, &new.state) {
        (QuestionState::Open { .. }, _) => true,
        (QuestionState::Given { .. }, QuestionState::Given { .. }) => true,
        (old, new) => old == new,
    };
    same_state && old.key == new.key && old.reader == new.reader && old.bind == new.bind
}
