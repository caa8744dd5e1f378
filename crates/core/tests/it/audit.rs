//! Audit records as bytes.

use longhaul_core::{
    Millis, Outcome, Phase, QuestionKey, Reason, Refused, StepId, Stop,
    audit::{Entry, Event, Record, Status, Unreadable},
    task::CancelledBy,
};

fn record() -> Record {
    Record {
        at: Millis(1_700_000_000_123),
        step: StepId([9; 16]),
        tenant: "default".into(),
        principal: "local uid:1000".into(),
        app: "cli".into(),
        session: String::new(),
        task: "0123456789".into(),
        trace: "trace".into(),
        tool: "run_tests".into(),
        upstream: "upstream".into(),
        actor: "owner".into(),
        events: vec![
            Entry {
                name: "mcp.task.created".into(),
                detail: String::new(),
            },
            Entry {
                name: "mcp.task.status_changed".into(),
                detail: "working input_required".into(),
            },
        ],
        decision: "allow".into(),
        reason: "because".into(),
        status: "working".into(),
        approval: "approval".into(),
        latency_ms: Some(12),
        bytes: None,
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let other = Record {
        latency_ms: None,
        bytes: Some(u64::MAX),
        events: vec![],
        ..record()
    };
    for record in [record(), other] {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

/// The first format, for ever: records of this release stay readable.
#[test]
fn the_bytes_of_version_1_stay() {
    let hex: String = record()
        .encode()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hex, include_str!("audit-v1.hex").trim_end());
}

/// G-41: no two records have the same bytes.
#[test]
fn text_does_not_move_between_fields() {
    let moved = Record {
        tenant: "defaul".into(),
        principal: "tlocal uid:1000".into(),
        ..record()
    };
    assert_ne!(moved.encode(), record().encode());
}

#[test]
fn a_cut_record_is_refused_at_every_length() {
    let bytes = record().encode();
    for length in 0..bytes.len() {
        let refused = Record::decode(&bytes[..length]).expect_err("a cut record is none");
        let expected = if length < 22 {
            Unreadable::UnknownFormat
        } else {
            Unreadable::Truncated
        };
        assert_eq!(refused, expected, "cut to {length} bytes");
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    let mut bytes = record().encode();
    bytes.push(0);
    assert_eq!(Record::decode(&bytes), Err(Unreadable::TrailingBytes));
}

#[test]
fn an_unknown_version_is_refused() {
    let mut bytes = record().encode();
    bytes[21] = 2;
    assert_eq!(Record::decode(&bytes), Err(Unreadable::UnknownFormat));
}

#[test]
fn a_field_of_the_wrong_length_is_refused() {
    let mut bytes = record().encode();
    bytes[25] = 7;
    assert_eq!(Record::decode(&bytes), Err(Unreadable::WrongLength));
    let mut bytes = Record {
        bytes: Some(1),
        ..record()
    }
    .encode();
    let last = bytes.len() - 9;
    bytes[last] = 7;
    bytes.pop();
    assert_eq!(Record::decode(&bytes), Err(Unreadable::WrongLength));
}

#[test]
fn a_text_that_is_not_utf8_is_refused() {
    let mut bytes = record().encode();
    let at = bytes
        .windows(7)
        .position(|window| window == b"default")
        .expect("the tenant is there");
    bytes[at] = 0xff;
    assert_eq!(Record::decode(&bytes), Err(Unreadable::NotText));
}

#[test]
fn a_huge_count_of_events_costs_nothing() {
    let mut bytes = Record {
        events: vec![],
        ..record()
    }
    .encode();
    let at = bytes
        .windows(5)
        .position(|window| window == b"owner")
        .expect("the actor is there")
        + 5;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(Record::decode(&bytes).is_err());
}

/// G-39: whoever reads an export relies on these words.
#[test]
fn the_words_of_events_stay() {
    let keys = || vec![QuestionKey(1), QuestionKey(2)];
    let (from, to) = (Status::Working, Status::InputRequired);
    let words = [
        (Event::Created, "created", ""),
        (
            Event::StatusChanged { from, to },
            "status_changed",
            "working input_required",
        ),
        (Event::Started { attempt: 2 }, "started", "2"),
        (Event::Attached, "attached", ""),
        (Event::Parked, "parked", ""),
        (Event::InputRequired { keys: keys() }, "input_required", "q1 q2"),
        (Event::InputAnswered { keys: keys() }, "input_answered", "q1 q2"),
        (Event::InputClosed { keys: keys() }, "input_closed", "q1 q2"),
        (Event::InputMisfit { key: QuestionKey(3) }, "input_misfit", "q3"),
        (Event::Completed { is_error: false }, "completed", ""),
        (Event::Completed { is_error: true }, "completed", "is_error"),
        (Event::Failed { reason: None }, "failed", ""),
        (
            Event::Failed {
                reason: Some(Reason::Interrupted),
            },
            "failed",
            "interrupted",
        ),
        (
            Event::Failed {
                reason: Some(Reason::Expired),
            },
            "failed",
            "expired",
        ),
        (
            Event::Failed {
                reason: Some(Reason::NoAnswer),
            },
            "failed",
            "no_answer",
        ),
        (
            Event::Failed {
                reason: Some(Reason::NobodyToAnswer),
            },
            "failed",
            "no_one_to_answer",
        ),
        (
            Event::Failed {
                reason: Some(Reason::Shutdown),
            },
            "failed",
            "shutdown",
        ),
        (
            Event::Failed {
                reason: Some(Reason::UpstreamLost),
            },
            "failed",
            "upstream_tasks_lost",
        ),
        (Event::CancelRequested, "cancel_requested", ""),
        (
            Event::Cancelled {
                by: CancelledBy::Owner,
            },
            "cancelled",
            "owner",
        ),
        (
            Event::Cancelled {
                by: CancelledBy::Operator,
            },
            "cancelled",
            "operator",
        ),
        (
            Event::Cancelled {
                by: CancelledBy::Session,
            },
            "cancelled",
            "session",
        ),
        (
            Event::Cancelled {
                by: CancelledBy::Loop,
            },
            "cancelled",
            "loop",
        ),
        (
            Event::Cancelled {
                by: CancelledBy::Approval,
            },
            "cancelled",
            "approval",
        ),
        (
            Event::Cancelled {
                by: CancelledBy::Server,
            },
            "cancelled",
            "server",
        ),
        (Event::Expired, "expired", ""),
        (Event::Stopped { stop: Stop::None }, "stopped", "none"),
        (
            Event::Stopped {
                stop: Stop::NotStarted,
            },
            "stopped",
            "not_started",
        ),
        (Event::Stopped { stop: Stop::Stopping }, "stopped", "stopping"),
        (Event::Stopped { stop: Stop::Stopped }, "stopped", "stopped"),
        (Event::Stopped { stop: Stop::Unknown }, "stopped", "unknown"),
        (Event::Reclaimed, "reclaimed", ""),
        (
            Event::Refused {
                why: Refused::Finished,
            },
            "refused",
            "finished",
        ),
        (Event::Refused { why: Refused::Fenced }, "refused", "fenced"),
        (
            Event::Refused {
                why: Refused::NotClaimable,
            },
            "refused",
            "not_claimable",
        ),
        (
            Event::Refused {
                why: Refused::TooEarly,
            },
            "refused",
            "too_early",
        ),
        (
            Event::Refused {
                why: Refused::MayNotStart,
            },
            "refused",
            "may_not_start",
        ),
        (
            Event::Refused {
                why: Refused::NoSuchQuestion,
            },
            "refused",
            "no_such_question",
        ),
        (
            Event::Refused {
                why: Refused::QuestionClosed,
            },
            "refused",
            "question_closed",
        ),
        (
            Event::Refused {
                why: Refused::TooManyQuestions,
            },
            "refused",
            "too_many_questions",
        ),
        (Event::Refused { why: Refused::NotDue }, "refused", "not_due"),
        (
            Event::Refused {
                why: Refused::OutOfPlace,
            },
            "refused",
            "out_of_place",
        ),
    ];
    for (event, name, detail) in words {
        let expected = Entry {
            name: format!("mcp.task.{name}"),
            detail: detail.into(),
        };
        assert_eq!(event.entry(), expected);
    }
}

#[test]
fn the_words_of_statuses_stay() {
    let body = longhaul_core::Body::Stored;
    let statuses = [
        (Phase::Working, "working"),
        (Phase::Asking, "input_required"),
        (
            Phase::Finished(Outcome::Returned {
                body: body.clone(),
                is_error: true,
            }),
            "completed",
        ),
        (Phase::Finished(Outcome::Errored { body }), "failed"),
        (Phase::Finished(Outcome::Failed(Reason::Shutdown)), "failed"),
        (
            Phase::Finished(Outcome::Cancelled {
                by: CancelledBy::Loop,
            }),
            "cancelled",
        ),
    ];
    for (phase, word) in statuses {
        assert_eq!(Status::of(&phase).name(), word);
    }
}

#[test]
fn unreadable_says_what_is_wrong() {
    let text = Unreadable::TrailingBytes.to_string();
    assert_eq!(text, "read an audit record with bytes after its end");
}
