//! The words by which the machine's states and the declared rules are stored.
//!
//! A word that was written once is read for ever. Called by the row's layout alone.

use longhaul_core::{
    Body, Outcome, Phase, Reason, Run, RunnerId, Span, Stop,
    task::{CanAsk, CancelledBy, OnCrash, OnSilence, Rules},
};
use serde::{Deserialize, Serialize};

use super::unknown;
use crate::Error;

pub(super) fn phase_words(phase: &Phase) -> (&'static str, Option<String>, bool) {
    match phase {
        Phase::Working => ("working", None, false),
        Phase::Asking => ("asking", None, false),
        Phase::Finished(Outcome::Returned { is_error, .. }) => {
            ("finished", Some("returned".to_owned()), *is_error)
        }
        Phase::Finished(Outcome::Errored { .. }) => ("finished", Some("errored".to_owned()), false),
        Phase::Finished(Outcome::Cancelled { by }) => {
            ("finished", Some(format!("cancelled:{}", by.name())), false)
        }
        Phase::Finished(Outcome::Failed(reason)) => {
            ("finished", Some(format!("failed:{}", reason.name())), false)
        }
    }
}

pub(super) fn read_phase(phase: &str, ending: Option<&str>, is_error: bool) -> Result<Phase, Error> {
    let outcome = match (
        phase,
        ending.map(|ending| ending.split_once(':').unwrap_or((ending, ""))),
    ) {
        ("working", None) => return Ok(Phase::Working),
        ("asking", None) => return Ok(Phase::Asking),
        ("finished", Some(("returned", ""))) => Outcome::Returned {
            body: Body::Stored,
            is_error,
        },
        ("finished", Some(("errored", ""))) => Outcome::Errored { body: Body::Stored },
        ("finished", Some(("cancelled", by))) => Outcome::Cancelled {
            by: read_word(&CANCELLERS, CancelledBy::name, by)?,
        },
        ("finished", Some(("failed", reason))) => Outcome::Failed(read_word(&REASONS, Reason::name, reason)?),
        (other, _) => return Err(unknown("phase", other)),
    };
    Ok(Phase::Finished(outcome))
}

pub(super) const STOPS: [Stop; 5] = [
    Stop::None,
    Stop::NotStarted,
    Stop::Stopping,
    Stop::Stopped,
    Stop::Unknown,
];
const CANCELLERS: [CancelledBy; 6] = [
    CancelledBy::Owner,
    CancelledBy::Operator,
    CancelledBy::Session,
    CancelledBy::Loop,
    CancelledBy::Approval,
    CancelledBy::Server,
];
const REASONS: [Reason; 6] = [
    Reason::Interrupted,
    Reason::Expired,
    Reason::NoAnswer,
    Reason::NobodyToAnswer,
    Reason::Shutdown,
    Reason::UpstreamLost,
];

pub(super) fn read_word<T: Copy>(all: &[T], name: fn(T) -> &'static str, word: &str) -> Result<T, Error> {
    all.iter()
        .copied()
        .find(|value| name(*value) == word)
        .ok_or_else(|| unknown("word", word))
}

pub(super) fn run_word(run: Run) -> &'static str {
    match run {
        Run::Held => "held",
        Run::Queued { reattach: false } => "queued",
        Run::Queued { reattach: true } => "queued:reattach",
        Run::Leased(_) => "leased",
        Run::Running(_) => "running",
        Run::Parked => "parked",
        Run::Stopping(_) => "stopping",
        Run::StopOwed => "stop_owed",
        Run::Idle => "idle",
    }
}

pub(super) fn read_run(word: &str, runner: Option<RunnerId>) -> Result<Run, Error> {
    match (word, runner) {
        ("held", None) => Ok(Run::Held),
        ("queued", None) => Ok(Run::Queued { reattach: false }),
        ("queued:reattach", None) => Ok(Run::Queued { reattach: true }),
        ("leased", Some(runner)) => Ok(Run::Leased(runner)),
        ("running", Some(runner)) => Ok(Run::Running(runner)),
        ("parked", None) => Ok(Run::Parked),
        ("stopping", Some(runner)) => Ok(Run::Stopping(runner)),
        ("stop_owed", None) => Ok(Run::StopOwed),
        ("idle", None) => Ok(Run::Idle),
        (other, _) => Err(unknown("run", other)),
    }
}

/// The declared rules as they are kept in `rules`, JSON.
#[derive(Serialize, Deserialize)]
struct StoredRules {
    on_crash: StoredCrash,
    on_silence: StoredSilence,
    fail_when_nobody_can_answer: bool,
    question_deadline_ms: u64,
    approval_lasts_ms: u64,
    questions_max: u32,
    ask_client: bool,
    ask_operator: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredCrash {
    Fail,
    Rerun { starts_max: u32, backoff_ms: u64 },
    Resume,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredSilence {
    Decline,
    Dismiss,
    Fail,
}

pub(super) fn rules_text(rules: &Rules, can_ask: CanAsk) -> Result<String, Error> {
    let stored = StoredRules {
        on_crash: match rules.on_crash {
            OnCrash::Fail => StoredCrash::Fail,
            OnCrash::Rerun { starts_max, backoff } => StoredCrash::Rerun {
                starts_max,
                backoff_ms: backoff.0,
            },
            OnCrash::Resume => StoredCrash::Resume,
        },
        on_silence: match rules.on_silence {
            OnSilence::Decline => StoredSilence::Decline,
            OnSilence::Dismiss => StoredSilence::Dismiss,
            OnSilence::Fail => StoredSilence::Fail,
        },
        fail_when_nobody_can_answer: rules.fail_when_nobody_can_answer,
        question_deadline_ms: rules.question_deadline.0,
        approval_lasts_ms: rules.approval_lasts.0,
        questions_max: rules.questions_max,
        ask_client: can_ask.client,
        ask_operator: can_ask.operator,
    };
    serde_json::to_string(&stored).map_err(|cause| Error::broken("write a task's rules").caused_by(cause))
}

pub(super) fn read_rules(text: &str) -> Result<(Rules, CanAsk), Error> {
    let stored: StoredRules =
        serde_json::from_str(text).map_err(|cause| Error::broken("read a task's rules").caused_by(cause))?;
    let rules = Rules {
        on_crash: match stored.on_crash {
            StoredCrash::Fail => OnCrash::Fail,
            StoredCrash::Rerun {
                starts_max,
                backoff_ms,
            } => OnCrash::Rerun {
                starts_max,
                backoff: Span(backoff_ms),
            },
            StoredCrash::Resume => OnCrash::Resume,
        },
        on_silence: match stored.on_silence {
            StoredSilence::Decline => OnSilence::Decline,
            StoredSilence::Dismiss => OnSilence::Dismiss,
            StoredSilence::Fail => OnSilence::Fail,
        },
        fail_when_nobody_can_answer: stored.fail_when_nobody_can_answer,
        question_deadline: Span(stored.question_deadline_ms),
        approval_lasts: Span(stored.approval_lasts_ms),
        questions_max: stored.questions_max,
    };
    Ok((
        rules,
        CanAsk {
            client: stored.ask_client,
            operator: stored.ask_operator,
        },
    ))
}
