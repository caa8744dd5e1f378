//! What the audit keeps of a change: events of a task's life, and the record that carries them.
//!
//! `decide` says which events a change produces; the engine and the gateway fill in who, where and why, and the
//! store writes [`Record::encode`] in the transaction of the change. Bodies never come here: no arguments, no
//! questions, no answers, no results.

use alloc::{format, string::String, vec::Vec};
use core::fmt::Write as _;

use crate::{
    event::Refused,
    id::{QuestionKey, StepId},
    task::{CancelledBy, Outcome, Phase, Reason, Stop},
    time::Millis,
};

/// Something that happened in the life of a task (G-39).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The task was born.
    Created,
    /// Its status changed.
    StatusChanged {
        /// The status before.
        from: Status,
        /// The status after.
        to: Status,
    },
    /// An attempt began.
    Started {
        /// Its number, from 1.
        attempt: u32,
    },
    /// The work can be followed from outside this process.
    Attached,
    /// A leg ended with a checkpoint.
    Parked,
    /// Questions were asked.
    InputRequired {
        /// Their keys.
        keys: Vec<QuestionKey>,
    },
    /// Questions were settled by their reader.
    InputAnswered {
        /// Their keys.
        keys: Vec<QuestionKey>,
    },
    /// Questions were settled by no answer: a deadline, the third misfit, nobody to ask, work that waits no longer, or the
    /// end of the task.
    InputClosed {
        /// Their keys.
        keys: Vec<QuestionKey>,
    },
    /// An answer did not fit its form.
    InputMisfit {
        /// The question's key.
        key: QuestionKey,
    },
    /// The tool returned.
    Completed {
        /// The tool itself calls the result an error.
        is_error: bool,
    },
    /// The task failed.
    Failed {
        /// Longhaul's reason; `None` when the call ended in an error of its own.
        reason: Option<Reason>,
    },
    /// Somebody asked for the end of the task.
    CancelRequested,
    /// The task was cancelled.
    Cancelled {
        /// Who ended it.
        by: CancelledBy,
    },
    /// The time to live was over while the task was open.
    Expired,
    /// The stop of the work settled.
    Stopped {
        /// What is known of the work.
        stop: Stop,
    },
    /// The runner was lost, and with it the lease.
    Reclaimed,
    /// Something was refused; recorded where a refusal must leave a trace, such as the result of a runner that
    /// no longer holds the task.
    Refused {
        /// Why.
        why: Refused,
    },
}

/// The status of a task as the audit names it, the same for both generations of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Queued, running, or waiting for an operator.
    Working,
    /// A question to the client is open.
    InputRequired,
    /// The tool returned, even if it calls the result an error.
    Completed,
    /// Ended by an error or by Longhaul.
    Failed,
    /// Ended from outside.
    Cancelled,
}

impl Status {
    /// The status of this phase.
    pub fn of(phase: &Phase) -> Status {
        match phase {
            Phase::Working => Status::Working,
            Phase::Asking => Status::InputRequired,
            Phase::Finished(Outcome::Returned { .. }) => Status::Completed,
            Phase::Finished(Outcome::Errored { .. } | Outcome::Failed(_)) => Status::Failed,
            Phase::Finished(Outcome::Cancelled { .. }) => Status::Cancelled,
        }
    }

    /// The stable word.
    pub fn name(self) -> &'static str {
        match self {
            Status::Working => "working",
            Status::InputRequired => "input_required",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }
}

impl Event {
    /// The stable word, as it stands in records and exports.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Created => "mcp.task.created",
            Event::StatusChanged { .. } => "mcp.task.status_changed",
            Event::Started { .. } => "mcp.task.started",
            Event::Attached => "mcp.task.attached",
            Event::Parked => "mcp.task.parked",
            Event::InputRequired { .. } => "mcp.task.input_required",
            Event::InputAnswered { .. } => "mcp.task.input_answered",
            Event::InputClosed { .. } => "mcp.task.input_closed",
            Event::InputMisfit { .. } => "mcp.task.input_misfit",
            Event::Completed { .. } => "mcp.task.completed",
            Event::Failed { .. } => "mcp.task.failed",
            Event::CancelRequested => "mcp.task.cancel_requested",
            Event::Cancelled { .. } => "mcp.task.cancelled",
            Event::Expired => "mcp.task.expired",
            Event::Stopped { .. } => "mcp.task.stopped",
            Event::Reclaimed => "mcp.task.reclaimed",
            Event::Refused { .. } => "mcp.task.refused",
        }
    }

    /// What the event says beyond its name, in stable words; empty when there is nothing.
    pub fn detail(&self) -> String {
        match self {
            Event::Created
            | Event::Attached
            | Event::Parked
            | Event::CancelRequested
            | Event::Expired
            | Event::Reclaimed => String::new(),
            Event::StatusChanged { from, to } => format!("{} {}", from.name(), to.name()),
            Event::Started { attempt } => format!("{attempt}"),
            Event::InputRequired { keys } | Event::InputAnswered { keys } | Event::InputClosed { keys } => {
                words(keys)
            }
            Event::InputMisfit { key } => format!("{key}"),
            Event::Completed { is_error: true } => "is_error".into(),
            Event::Completed { is_error: false } | Event::Failed { reason: None } => String::new(),
            Event::Failed { reason: Some(reason) } => reason.name().into(),
            Event::Cancelled { by } => by.name().into(),
            Event::Stopped { stop } => stop.name().into(),
            Event::Refused { why } => why.name().into(),
        }
    }

    /// The event as a record keeps it.
    pub fn entry(&self) -> Entry {
        Entry {
            name: self.name().into(),
            detail: self.detail(),
        }
    }
}

fn words(keys: &[QuestionKey]) -> String {
    let mut text = String::new();
    for (index, key) in keys.iter().enumerate() {
        let gap = if index == 0 { "" } else { " " };
        write!(text, "{gap}{key}").expect("writing to a string does not fail");
    }
    text
}

/// One event in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The stable word.
    pub name: String,
    /// What it says beyond its name, in stable words.
    pub detail: String,
}

/// The audit record of one step (G-40). A text that does not apply is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// When, by the store's clock.
    pub at: Millis,
    /// The step that wrote it.
    pub step: StepId,
    /// The tenant.
    pub tenant: String,
    /// Whose task or call it is: issuer and subject.
    pub principal: String,
    /// The app through which it came.
    pub app: String,
    /// The session.
    pub session: String,
    /// The task's reference in logs: a keyed hash, never the sealed id.
    pub task: String,
    /// The caller's trace id.
    pub trace: String,
    /// The tool.
    pub tool: String,
    /// The server behind the tool.
    pub upstream: String,
    /// Who did it: `owner`, `operator`, `runner`, `sweeper`.
    pub actor: String,
    /// What happened, in order.
    pub events: Vec<Entry>,
    /// `allow`, or the refusal's reason word.
    pub decision: String,
    /// The reason that a person gave.
    pub reason: String,
    /// The status after the step.
    pub status: String,
    /// The approval it belongs to.
    pub approval: String,
    /// How long the call took, in milliseconds, where it is known.
    pub latency_ms: Option<u64>,
    /// How many bytes the call carried, where it is known.
    pub bytes: Option<u64>,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They do not begin with the domain of audit records, or with a version that this program knows.
    UnknownFormat,
    /// They end too early.
    Truncated,
    /// Something follows the record.
    TrailingBytes,
    /// A field has a length that it cannot have.
    WrongLength,
    /// A text is not UTF-8.
    NotText,
}

impl core::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Unreadable::UnknownFormat => "read an audit record of an unknown format",
            Unreadable::Truncated => "read an audit record that ends too early",
            Unreadable::TrailingBytes => "read an audit record with bytes after its end",
            Unreadable::WrongLength => "read an audit record with a field of the wrong length",
            Unreadable::NotText => "read an audit record with a text that is not UTF-8",
        })
    }
}

impl core::error::Error for Unreadable {}

/// What every record begins with, so that its bytes can never be taken for anything else that is hashed or signed.
const DOMAIN: &[u8] = b"longhaul/audit-record";
const VERSION: u8 = 1;

impl Record {
    /// The canonical bytes (G-41): equal records have equal bytes, and unequal ones never do.
    ///
    /// The domain, a version byte, then every field in the order of the struct as a big-endian `u32` length and
    /// that many bytes. Numbers are big-endian `u64`; an absent one has length 0. The events are a `u32` count,
    /// then name and detail of each.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(DOMAIN);
        out.push(VERSION);
        field(&mut out, &self.at.0.to_be_bytes());
        field(&mut out, &self.step.0);
        for text in self.texts_before_events() {
            field(&mut out, text.as_bytes());
        }
        out.extend_from_slice(&length(self.events.len()));
        for entry in &self.events {
            field(&mut out, entry.name.as_bytes());
            field(&mut out, entry.detail.as_bytes());
        }
        for text in self.texts_after_events() {
            field(&mut out, text.as_bytes());
        }
        for number in [self.latency_ms, self.bytes] {
            match number {
                Some(number) => field(&mut out, &number.to_be_bytes()),
                None => field(&mut out, &[]),
            }
        }
        out
    }

    /// The record that these bytes are.
    ///
    /// # Errors
    /// [`Unreadable`] unless the bytes are exactly what [`Record::encode`] gives for some record.
    pub fn decode(bytes: &[u8]) -> Result<Record, Unreadable> {
        let rest = bytes.strip_prefix(DOMAIN).ok_or(Unreadable::UnknownFormat)?;
        let rest = rest.strip_prefix(&[VERSION]).ok_or(Unreadable::UnknownFormat)?;
        let mut reader = Reader { rest };
        let record = Record {
            at: Millis(u64::from_be_bytes(reader.fixed()?)),
            step: StepId(reader.fixed()?),
            tenant: reader.text()?,
            principal: reader.text()?,
            app: reader.text()?,
            session: reader.text()?,
            task: reader.text()?,
            trace: reader.text()?,
            tool: reader.text()?,
            upstream: reader.text()?,
            actor: reader.text()?,
            events: reader.entries()?,
            decision: reader.text()?,
            reason: reader.text()?,
            status: reader.text()?,
            approval: reader.text()?,
            latency_ms: reader.number()?,
            bytes: reader.number()?,
        };
        if reader.rest.is_empty() {
            Ok(record)
        } else {
            Err(Unreadable::TrailingBytes)
        }
    }

    fn texts_before_events(&self) -> [&str; 9] {
        [
            &self.tenant,
            &self.principal,
            &self.app,
            &self.session,
            &self.task,
            &self.trace,
            &self.tool,
            &self.upstream,
            &self.actor,
        ]
    }

    fn texts_after_events(&self) -> [&str; 4] {
        [&self.decision, &self.reason, &self.status, &self.approval]
    }
}

fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&length(bytes.len()));
    out.extend_from_slice(bytes);
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length)
        .expect("a field of an audit record is under 4 GiB")
        .to_be_bytes()
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn length(&mut self) -> Result<usize, Unreadable> {
        let bytes = self.take(4)?.try_into().map_err(|_| Unreadable::Truncated)?;
        usize::try_from(u32::from_be_bytes(bytes)).map_err(|_| Unreadable::WrongLength)
    }

    fn field(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.length()?;
        self.take(length)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        self.field()?.try_into().map_err(|_| Unreadable::WrongLength)
    }

    fn text(&mut self) -> Result<String, Unreadable> {
        let bytes = self.field()?;
        core::str::from_utf8(bytes)
            .map(String::from)
            .map_err(|_| Unreadable::NotText)
    }

    fn number(&mut self) -> Result<Option<u64>, Unreadable> {
        let bytes = self.field()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        bytes
            .try_into()
            .map(|bytes| Some(u64::from_be_bytes(bytes)))
            .map_err(|_| Unreadable::WrongLength)
    }

    fn entries(&mut self) -> Result<Vec<Entry>, Unreadable> {
        let count = self.length()?;
        // Not reserved in advance: the count is only a claim until the bytes are there.
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(Entry {
                name: self.text()?,
                detail: self.text()?,
            });
        }
        Ok(entries)
    }
}
