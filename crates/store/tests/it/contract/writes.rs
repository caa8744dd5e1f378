//! What a step may and may not do to what is stored.

use std::{collections::BTreeMap, sync::Arc};

use longhaul_core::{
    Body, Fence, Millis, Outcome, Phase, Question, QuestionKey, Reason, Run, RunnerId, Span, StepId, Stop,
    task::{CancelledBy, OnCrash, OnSilence, QuestionState, Reader},
};
use longhaul_store::{Fault, Record, RecordKey, RecordKind, Row, Scope, Slot, Step, Write};

use crate::support::{Rig, birth, change, owner, row, step, unique, write};

pub(super) async fn every_shape_of_a_task_is_read_back(rig: Rig) {
    let now = rig.now().await;
    for (n, (shape, on_crash)) in shapes(now).into_iter().enumerate() {
        let mut born = row(&owner("uid:1"), &format!("shape{n}"), now);
        born.task.rules.on_crash = on_crash;
        born.task.rules.on_silence = [OnSilence::Decline, OnSilence::Dismiss, OnSilence::Fail][n % 3];
        birth(&*rig.store, &born).await.unwrap();
        let target = shape.clone();
        change(&*rig.store, born.id, move |row| apply(&target, row))
            .await
            .unwrap();
        let mut expected = born.clone();
        apply(&shape, &mut expected);
        expected.version = 2;
        assert_eq!(rig.task(born.id).await, Some(expected));
    }
}

/// The parts of a row that a step may change.
#[derive(Clone)]
struct Shape {
    phase: Phase,
    run: Run,
    stop: Stop,
    questions: Vec<Question>,
    handles: Option<Body>,
    moments: Millis,
}

fn apply(shape: &Shape, row: &mut Row) {
    row.task.phase = shape.phase.clone();
    row.task.run = shape.run;
    row.task.stop = shape.stop;
    row.task.questions = shape.questions.clone();
    row.task.upstream = shape.handles.clone();
    row.task.checkpoint = shape.handles.clone();
    row.task.fence = Fence(u32::MAX);
    row.task.starts = 2;
    row.task.legs = 3;
    row.task.strays = !row.task.strays;
    row.task.not_before = shape.moments;
    row.task.expires_at = shape.moments + Span(1);
    row.task.approved_until = Some(shape.moments + Span(2));
    row.updated_at = shape.moments + Span(3);
    row.purge_after = shape.moments + Span(4);
    row.hidden = !row.hidden;
    row.note = b"note".to_vec();
}

fn shapes(now: Millis) -> Vec<(Shape, OnCrash)> {
    let runner = RunnerId(unique());
    let body = Body::new(b"body");
    let mut phases = vec![
        Phase::Working,
        Phase::Asking,
        Phase::Finished(Outcome::Returned {
            body: body.clone(),
            is_error: false,
        }),
        Phase::Finished(Outcome::Returned {
            body: Body::new(b""),
            is_error: true,
        }),
        Phase::Finished(Outcome::Errored { body }),
    ];
    let cancelled = [
        CancelledBy::Owner,
        CancelledBy::Operator,
        CancelledBy::Session,
        CancelledBy::Loop,
        CancelledBy::Approval,
        CancelledBy::Server,
    ];
    phases.extend(cancelled.map(|by| Phase::Finished(Outcome::Cancelled { by })));
    let failed = [
        Reason::Interrupted,
        Reason::Expired,
        Reason::NoAnswer,
        Reason::NobodyToAnswer,
        Reason::Shutdown,
        Reason::UpstreamLost,
    ];
    phases.extend(failed.map(|reason| Phase::Finished(Outcome::Failed(reason))));
    let runs = [
        Run::Held,
        Run::Queued { reattach: true },
        Run::Queued { reattach: false },
        Run::Leased(runner),
        Run::Running(runner),
        Run::Parked,
        Run::Stopping(runner),
        Run::StopOwed,
        Run::Idle,
    ];
    let stops = [
        Stop::None,
        Stop::NotStarted,
        Stop::Stopping,
        Stop::Stopped,
        Stop::Unknown,
    ];
    let crashes = [
        OnCrash::Fail,
        OnCrash::Resume,
        OnCrash::Rerun {
            starts_max: u32::MAX,
            backoff: Span(u64::from(u32::MAX)),
        },
    ];
    let states = [
        QuestionState::Open { until: now },
        QuestionState::Given {
            answer: Body::new(b"answer"),
        },
        QuestionState::Declined,
        QuestionState::Dismissed,
        QuestionState::Withdrawn,
    ];
    let questions: Vec<Question> = (1..).zip(states).map(|(n, state)| question(n, state)).collect();
    let shape = |(n, phase): (usize, Phase)| {
        let shape = Shape {
            phase,
            run: runs[n % runs.len()],
            stop: stops[n % stops.len()],
            questions: questions[..n % (questions.len() + 1)].to_vec(),
            handles: (n % 2 == 0).then(|| Body::new(b"handle")),
            moments: Millis(now.0 + n as u64),
        };
        (shape, crashes[n % crashes.len()])
    };
    phases.into_iter().enumerate().map(shape).collect()
}

fn question(key: u32, state: QuestionState) -> Question {
    Question {
        key: QuestionKey(key),
        reader: if key.is_multiple_of(2) {
            Reader::Client
        } else {
            Reader::Operator
        },
        ask: Body::new(format!("ask {key}").as_bytes()),
        bind: [u8::try_from(key).unwrap(); 32],
        state,
        misfits: 2,
    }
}

pub(super) async fn concurrent_increments_all_count(rig: Rig) {
    let other = rig.another().await;
    let increments = (0..24).map(|n| {
        let store = if n % 2 == 0 {
            rig.store.clone()
        } else {
            Arc::clone(&other)
        };
        tokio::spawn(async move {
            let scope = Scope {
                counters: vec!["calls".to_owned()],
                ..Scope::default()
            };
            step(&*store, scope, |snapshot| {
                let seen = snapshot.counters.get("calls").map_or(0, |bytes| bytes[0]);
                let counters = BTreeMap::from([("calls".to_owned(), vec![seen + 1])]);
                Step::Write(Box::new(Write {
                    counters,
                    ..Write::default()
                }))
            })
            .await
        })
    });
    for increment in increments.collect::<Vec<_>>() {
        increment.await.unwrap().unwrap();
    }
    assert_eq!(counter(&rig, "calls").await, Some(vec![24]));
}

pub(super) async fn concurrent_changes_of_one_task_all_count(rig: Rig) {
    let born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    birth(&*rig.store, &born).await.unwrap();
    let other = rig.another().await;
    let changes = (0..24).map(|n| {
        let store = if n % 2 == 0 {
            rig.store.clone()
        } else {
            Arc::clone(&other)
        };
        tokio::spawn(async move { change(&*store, born.id, |row| row.task.fence.0 += 1).await })
    });
    let mut versions = Vec::new();
    for change in changes.collect::<Vec<_>>() {
        versions.push(change.await.unwrap().unwrap().version.unwrap());
    }
    versions.sort_unstable();
    assert_eq!(versions, (2..=25).collect::<Vec<u64>>());
    assert_eq!(rig.task(born.id).await.unwrap().task.fence, Fence(24));
}

pub(super) async fn versions_rise_by_one(rig: Rig) {
    let born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    assert_eq!(birth(&*rig.store, &born).await.unwrap().version, Some(1));
    for version in 2..5 {
        // What the judge says of the version does not count.
        let committed = change(&*rig.store, born.id, |row| row.version = 77)
            .await
            .unwrap();
        assert_eq!(committed.version, Some(version));
        assert_eq!(rig.task(born.id).await.unwrap().version, version);
    }
}

pub(super) async fn a_refused_step_writes_nothing(rig: Rig) {
    let born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    birth(&*rig.store, &born).await.unwrap();
    let scope = Scope {
        task: Slot::Task(born.id),
        counters: vec!["calls".to_owned()],
        ..Scope::default()
    };
    let committed = step(&*rig.store, scope, |_| Step::Nothing).await.unwrap();
    assert!(!committed.wrote);
    assert_eq!(committed.version, None);
    assert_eq!(rig.task(born.id).await.unwrap().version, 1);
    assert_eq!(counter(&rig, "calls").await, None);
    assert_eq!(rig.store.audit(0, 10).await.unwrap().len(), 1);
}

pub(super) async fn each_step_leaves_one_audit_record_in_order(rig: Rig) {
    let mut steps = Vec::new();
    for n in 0..5_u8 {
        let id = StepId(unique());
        let judge = move |_: &_| {
            Step::Write(Box::new(Write {
                audit: vec![n],
                ..Write::default()
            }))
        };
        rig.store
            .transact(id, Scope::default(), Box::new(judge))
            .await
            .unwrap();
        steps.push((id, vec![n]));
    }
    let rows = rig.store.audit(0, 100).await.unwrap();
    assert_eq!(
        rows.iter()
            .map(|row| (row.step, row.body.clone()))
            .collect::<Vec<_>>(),
        steps
    );
    assert!(rows.is_sorted_by(|left, right| left.position < right.position));
    assert!(rows[0].position >= 1);
    let later = rig.store.audit(rows[1].position, 2).await.unwrap();
    assert_eq!(later, rows[2..4]);
}

pub(super) async fn a_step_is_written_once(rig: Rig) {
    let id = StepId(unique());
    let judge = || Box::new(|_: &_| write(None));
    rig.store.transact(id, Scope::default(), judge()).await.unwrap();
    let failed = rig
        .store
        .transact(id, Scope::default(), judge())
        .await
        .unwrap_err();
    assert_eq!(failed.fault, Fault::Broken);
    assert_eq!(rig.store.audit(0, 10).await.unwrap().len(), 1);
}

pub(super) async fn a_body_is_written_once(rig: Rig) {
    let mut born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    born.task.questions = vec![question(
        1,
        QuestionState::Given {
            answer: Body::new(b"yes"),
        },
    )];
    birth(&*rig.store, &born).await.unwrap();
    let again: [fn(&mut Row); 4] = [
        |row| row.args = Body::new(b"other"),
        |row| row.context = Body::new(b"other"),
        |row| row.task.questions[0].ask = Body::new(b"other"),
        |row| {
            row.task.questions[0].state = QuestionState::Given {
                answer: Body::new(b"no"),
            }
        },
    ];
    for overwrite in again {
        assert_eq!(
            change(&*rig.store, born.id, overwrite).await.unwrap_err().fault,
            Fault::Broken
        );
    }
    born.version = 1;
    assert_eq!(rig.task(born.id).await, Some(born));
    assert_eq!(rig.store.audit(0, 10).await.unwrap().len(), 1);
}

pub(super) async fn a_stored_body_is_kept(rig: Rig) {
    let mut born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    born.task.upstream = Some(Body::new(b"handle"));
    birth(&*rig.store, &born).await.unwrap();
    change(&*rig.store, born.id, |row| {
        assert_eq!(row.args, Body::Stored);
        assert_eq!(row.task.upstream, Some(Body::Stored));
        row.note = b"new".to_vec();
    })
    .await
    .unwrap();
    let kept = rig.task(born.id).await.unwrap();
    assert_eq!(
        (&kept.args, &kept.task.upstream),
        (&born.args, &born.task.upstream)
    );
    assert_eq!(kept.note, b"new");

    let failed = change(&*rig.store, born.id, |row| {
        row.task.checkpoint = Some(Body::Stored)
    })
    .await;
    assert_eq!(failed.unwrap_err().fault, Fault::Broken);
}

pub(super) async fn an_outcome_never_changes(rig: Rig) {
    let born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    birth(&*rig.store, &born).await.unwrap();
    let returned = |body: Body, is_error| Phase::Finished(Outcome::Returned { body, is_error });
    let outcome = returned(Body::new(b"result"), false);
    let finish = outcome.clone();
    change(&*rig.store, born.id, move |row| {
        row.task.phase = finish.clone();
        row.task.run = Run::Idle;
    })
    .await
    .unwrap();
    let others = [
        Phase::Working,
        returned(Body::new(b"result"), false),
        returned(Body::new(b"other"), false),
        returned(Body::Stored, true),
        Phase::Finished(Outcome::Errored { body: Body::Stored }),
        Phase::Finished(Outcome::Failed(Reason::Expired)),
    ];
    for other in others {
        let failed = change(&*rig.store, born.id, move |row| row.task.phase = other.clone())
            .await
            .unwrap_err();
        assert_eq!(failed.fault, Fault::Broken);
        assert_eq!(rig.task(born.id).await.unwrap().task.phase, outcome);
    }
    change(&*rig.store, born.id, |row| row.task.stop = Stop::Stopped)
        .await
        .unwrap();
    assert_eq!(rig.task(born.id).await.unwrap().task.phase, outcome);
}

pub(super) async fn what_the_next_leg_goes_on_from_may_be_replaced(rig: Rig) {
    let born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    birth(&*rig.store, &born).await.unwrap();
    let legs = [
        Some(Body::new(b"one")),
        Some(Body::new(b"two")),
        None,
        Some(Body::new(b"three")),
    ];
    for leg in legs {
        let (upstream, checkpoint) = (leg.clone(), leg.clone());
        change(&*rig.store, born.id, move |row| {
            row.task.upstream = upstream.clone();
            row.task.checkpoint = checkpoint.clone();
        })
        .await
        .unwrap();
        let task = rig.task(born.id).await.unwrap().task;
        assert_eq!((&task.upstream, &task.checkpoint), (&leg, &leg));
    }
}

pub(super) async fn a_write_outside_the_scope_fails_whole(rig: Rig) {
    let now = rig.now().await;
    let born = row(&owner("uid:1"), "aaaaaa", now);
    let stranger = row(&owner("uid:1"), "bbbbbb", now);
    birth(&*rig.store, &born).await.unwrap();
    birth(&*rig.store, &stranger).await.unwrap();
    let key = key("r1");
    let record = Record {
        key: key.clone(),
        version: 0,
        expires_at: None,
        body: vec![1],
    };
    let writes = [
        Write {
            counters: BTreeMap::from([("other".to_owned(), vec![1])]),
            ..Write::default()
        },
        Write {
            records: BTreeMap::from([(key.clone(), Some(record))]),
            ..Write::default()
        },
        Write {
            task: Some(stranger.clone()),
            ..Write::default()
        },
    ];
    for write in writes {
        let scope = Scope {
            task: Slot::Task(born.id),
            counters: vec!["calls".to_owned()],
            ..Scope::default()
        };
        let failed = step(&*rig.store, scope, move |_| {
            let mut write = write.clone();
            write.counters.insert("calls".to_owned(), vec![1]);
            Step::Write(Box::new(write))
        })
        .await
        .unwrap_err();
        assert_eq!(failed.fault, Fault::Broken);
    }
    assert_eq!(counter(&rig, "calls").await, None);
    assert_eq!(rig.store.audit(0, 10).await.unwrap().len(), 2);
}

pub(super) async fn a_judge_that_panics_harms_nobody(rig: Rig) {
    let born = row(&owner("uid:1"), "aaaaaa", rig.now().await);
    let steps = (0..6).map(|n| {
        let store = rig.store.clone();
        tokio::spawn(async move {
            let scope = Scope {
                counters: vec![format!("c{n}")],
                ..Scope::default()
            };
            step(&*store, scope, move |_| {
                assert!(n % 2 == 0, "a judge's own fault");
                let counters = BTreeMap::from([(format!("c{n}"), vec![1])]);
                Step::Write(Box::new(Write {
                    counters,
                    ..Write::default()
                }))
            })
            .await
        })
    });
    for (n, step) in steps.collect::<Vec<_>>().into_iter().enumerate() {
        match step.await.unwrap() {
            Ok(committed) => assert!(committed.wrote && n % 2 == 0),
            Err(failed) => assert!(failed.fault == Fault::Broken && n % 2 == 1),
        }
    }
    birth(&*rig.store, &born).await.unwrap();
    assert_eq!(rig.store.audit(0, 10).await.unwrap().len(), 4);
}

pub(super) async fn records_are_set_and_deleted(rig: Rig) {
    let (one, two) = (key("r1"), key("r2"));
    let put = |keys: &[&RecordKey], bodies: &[Option<&[u8]>]| {
        let pairs = keys.iter().zip(bodies).map(|(key, body)| {
            let record = |body: &[u8]| Record {
                key: (*key).clone(),
                version: 0,
                expires_at: None,
                body: body.to_vec(),
            };
            ((*key).clone(), body.map(record))
        });
        let records: BTreeMap<_, _> = pairs.collect();
        let scope = Scope {
            records: vec![one.clone(), two.clone()],
            ..Scope::default()
        };
        let store = rig.store.clone();
        async move {
            step(&*store, scope, move |_| {
                Step::Write(Box::new(Write {
                    records: records.clone(),
                    ..Write::default()
                }))
            })
            .await
            .unwrap()
        }
    };
    put(&[&two, &one], &[Some(b"two"), Some(b"one")]).await;
    put(&[&one], &[Some(b"uno")]).await;
    let listed = rig
        .store
        .records(RecordKind::Spent, "default".to_owned())
        .await
        .unwrap();
    let seen: Vec<_> = listed
        .iter()
        .map(|record| (&record.key, record.version, &record.body[..]))
        .collect();
    assert_eq!(seen, [(&one, 2, &b"uno"[..]), (&two, 1, b"two")]);
    assert_eq!(
        rig.store
            .records(RecordKind::Setting, "default".to_owned())
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        rig.store
            .records(RecordKind::Spent, "other".to_owned())
            .await
            .unwrap(),
        []
    );

    put(&[&one], &[None]).await;
    let scope = Scope {
        records: vec![one.clone(), two.clone()],
        ..Scope::default()
    };
    step(&*rig.store, scope, move |snapshot| {
        assert_eq!(snapshot.records.keys().collect::<Vec<_>>(), [&two]);
        assert_eq!(snapshot.records[&two].body, b"two");
        Step::Nothing
    })
    .await
    .unwrap();
}

fn key(id: &str) -> RecordKey {
    RecordKey {
        kind: RecordKind::Spent,
        tenant: "default".to_owned(),
        id: id.to_owned(),
    }
}

async fn counter(rig: &Rig, name: &str) -> Option<Vec<u8>> {
    let scope = Scope {
        counters: vec![name.to_owned()],
        ..Scope::default()
    };
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let name = name.to_owned();
    step(&*rig.store, scope, move |snapshot| {
        sender.send(snapshot.counters.get(&name).cloned()).unwrap();
        Step::Nothing
    })
    .await
    .unwrap();
    receiver.recv().unwrap()
}
