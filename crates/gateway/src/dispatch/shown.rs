//! A task as a person reads it: what its row says, and what only this process sees of its program.
//!
//! Called by `backend` and by the waits of clients. It writes nothing.

use longhaul_core::{Millis, Outcome, Phase, TaskId};
use longhaul_engine::process;
use longhaul_mcp::{
    rpc_error,
    url_rule::{Link, Reach},
};
use longhaul_store::Row;
use serde_json::value::RawValue;

use super::Dispatch;
use crate::{
    admin::api,
    outbound::{self, Note},
    question::{self, Asker, Stored},
};

/// The most bytes that are shown of what a program wrote on one stream.
const TAIL_MAX: usize = 4 << 10;

impl Dispatch {
    /// The row as a person reads it, and what only this process sees of its program.
    pub(super) fn seen(&self, row: &Row, now: Millis) -> api::Task {
        let mut task = shown(row, now);
        if task.state == api::State::Stopping {
            let program = self.inner.engine.program(row.id);
            task.left = program.and_then(|program| program.left()).map(left);
        }
        task
    }

    /// The same with the last lines of what its program wrote.
    pub(super) fn with_tails(&self, mut task: api::Task, id: TaskId) -> api::Task {
        if let Some(program) = self.inner.engine.program(id) {
            let tail = |bytes: &[u8]| outbound::tail(bytes, TAIL_MAX, program.secrets());
            task.stdout = tail(&program.output_tail());
            task.stderr = tail(&program.error_tail());
        }
        task
    }
}

fn left(left: process::Left) -> api::Left {
    let named = left.named.into_iter().map(|process| api::Process {
        pid: process.pid,
        name: longhaul_mcp::clean(&process.name, PROCESS_NAME_MAX),
    });
    api::Left {
        seen: left.seen,
        alive: left.alive,
        named: named.collect(),
    }
}

/// The longest name of a process, in characters: the kernel keeps 15 bytes.
const PROCESS_NAME_MAX: usize = 16;

pub(super) fn shown(row: &Row, now: Millis) -> api::Task {
    let note = Note::decode(&row.note);
    let progress = note.progress.map(|done| api::Progress {
        done,
        total: note.total,
        message: note.message.clone(),
    });
    let questions = Stored::open(&row.task)
        .filter(|(_, stored)| stored.kind.answered_by_people())
        .filter_map(|(asked, stored)| asked_question(asked, &stored))
        .collect();
    let read = api::Read {
        server: Asker::of(row).server,
        progress,
        status: status(row, &note),
        questions,
    };
    api::Task::of(row, now, read)
}

/// What the task is doing, or how it ended, in one line.
fn status(row: &Row, note: &Note) -> String {
    match &row.task.phase {
        Phase::Working | Phase::Asking => note.message.clone().unwrap_or_default(),
        Phase::Finished(Outcome::Cancelled { by }) => rpc_error::cancelled_text(*by).to_owned(),
        Phase::Finished(Outcome::Failed(reason)) => {
            let failed = rpc_error::failed_text(*reason);
            match &note.message {
                Some(last) => format!("{failed} Last heard: {last}"),
                None => failed.to_owned(),
            }
        }
        Phase::Finished(Outcome::Returned { is_error: true, body } | Outcome::Errored { body }) => body
            .bytes()
            .and_then(cause)
            .or_else(|| note.message.clone())
            .unwrap_or_default(),
        Phase::Finished(Outcome::Returned { is_error: false, .. }) => {
            note.message.clone().unwrap_or_default()
        }
    }
}

/// The first words of a failed result, or the message of an error.
fn cause(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Failed {
        message: Option<String>,
        #[serde(default)]
        content: Vec<Block>,
    }
    #[derive(serde::Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let failed: Failed = serde_json::from_slice(body).ok()?;
    let text = failed.message;
    let text = text.or_else(|| failed.content.into_iter().find_map(|block| block.text))?;
    Note::new(None, None, Some(&text)).message
}

fn asked_question(asked: &longhaul_core::Question, stored: &Stored) -> Option<api::Question> {
    let longhaul_core::task::QuestionState::Open { until } = asked.state else {
        return None;
    };
    let params: Elicitation = stored.request.read::<Asked>().ok()?.params;
    // Whoever reads it here sits at this machine.
    let link = params
        .url
        .as_deref()
        .map(|url| Link::parse(url, Reach::ThisMachine));
    let link = link.and_then(Result::ok);
    Some(api::Question {
        key: asked.key.to_string(),
        message: params.message,
        form: params.requested_schema,
        url: params.url,
        site: link.as_ref().map(|link| link.site().to_owned()),
        warning: link.as_ref().and_then(question::warning),
        until_ms: until.0,
        misfits: asked.misfits,
    })
}

#[derive(serde::Deserialize)]
struct Asked {
    params: Elicitation,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Elicitation {
    #[serde(default)]
    message: String,
    #[serde(default)]
    requested_schema: Option<Box<RawValue>>,
    #[serde(default)]
    url: Option<String>,
}
