//! The one loop: scope, judge, step.
//!
//! A caller says what it wants to happen ([`Verdict`]) after seeing a snapshot; this module asks the core,
//! writes the task and its audit record in one store transaction, and wakes whoever waits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use longhaul_core::{
    Body, Effect, Event, Fence, Millis, Phase, Refused, Run, StepId, Task,
    audit::{self, Entry, Status},
    decide::{self, Birth},
};
use longhaul_store::{Error, Owner, Record, RecordKey, Row, Scope, Snapshot, Step, Write};

use crate::{clock, engine::Inner, options::Reference};

/// What the caller wants after seeing the snapshot. `R` is its own reply.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made once a step and taken apart at once; a box would only cost an allocation"
)]
pub enum Verdict<R> {
    /// Nothing happens.
    Refuse(R),
    /// A task is born.
    Open(Box<Opening>, R),
    /// These events happen to the task, in order, all or none.
    Apply(Proposal, R),
}

/// A change of records and counters alone.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// Whose they are, for the audit.
    pub owner: Owner,
    /// Records to set or delete.
    pub records: BTreeMap<RecordKey, Option<Record>>,
    /// Counters to set.
    pub counters: BTreeMap<String, Vec<u8>>,
    /// Who did it, for the audit.
    pub actor: &'static str,
    /// What the audit keeps of it; its entries say what happened.
    pub trail: Trail,
}

/// A birth: the parts of the row that the caller knows.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The row's id, minted before.
    pub id: longhaul_core::TaskId,
    /// Who it belongs to.
    pub owner: Owner,
    /// The key id under which its sealed id is made.
    pub kid: u32,
    /// One of the snapshot's free names.
    pub name: String,
    /// The tool.
    pub tool: String,
    /// The session, or empty.
    pub session: String,
    /// How the call came in.
    pub origin: String,
    /// The digest of the caller's idempotency key.
    pub idem: Option<[u8; 32]>,
    /// The digest of tool and canonical arguments.
    pub digest: [u8; 32],
    /// Not yet shown as a task.
    pub hidden: bool,
    /// The arguments as they were sent.
    pub args: Body,
    /// What the caller declared and wants echoed.
    pub context: Body,
    /// The first note.
    pub note: Vec<u8>,
    /// When the row may be deleted.
    pub purge_after: Millis,
    /// What the machine begins with.
    pub birth: Birth,
    /// Records to set or delete beside it.
    pub records: BTreeMap<RecordKey, Option<Record>>,
    /// Counters to set beside it.
    pub counters: BTreeMap<String, Vec<u8>>,
    /// What the audit keeps of the call.
    pub trail: Trail,
}

/// A change to a task that exists.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    /// What happened, in order; may be empty when only the row's own fields change.
    pub events: Vec<Event>,
    /// Replaces progress and status text.
    pub note: Option<Vec<u8>>,
    /// Hands the task out: it is no longer hidden, and is kept until then.
    pub shown: Option<Millis>,
    /// Records to set or delete beside it.
    pub records: BTreeMap<RecordKey, Option<Record>>,
    /// Counters to set beside it.
    pub counters: BTreeMap<String, Vec<u8>>,
    /// Who did it, for the audit: `owner`, `operator`, `runner`, `sweeper`.
    pub actor: &'static str,
    /// What else the audit keeps of it.
    pub trail: Trail,
}

/// What the caller adds to the audit record of a step (G-40). A text that does not apply is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Events of the caller's own, put before those of the core.
    pub entries: Vec<Entry>,
    /// The caller's trace id.
    pub trace: String,
    /// The server behind the tool.
    pub upstream: String,
    /// The reason that a person gave.
    pub reason: String,
    /// The approval it belongs to.
    pub approval: String,
    /// How long the call took so far, in milliseconds, where it is known.
    pub latency_ms: Option<u64>,
    /// How many bytes the call carried, where it is known.
    pub bytes: Option<u64>,
}

/// How a transaction ended.
#[derive(Debug)]
pub enum Done<R> {
    /// The caller's own judge refused; nothing was written.
    Refused(R),
    /// The core refused; nothing was written.
    NotNow(Refused, R),
    /// Committed: the row as it is now, without its bodies where they were not at hand.
    Committed(Box<Row>, R),
}

/// A judge of records and counters alone: what to change, if anything, and the caller's own reply.
pub type Keeper<R> = Box<dyn FnMut(&Snapshot) -> (Option<Keeping>, R) + Send + 'static>;

/// A judge of the engine's callers.
pub type Judge<R> = Box<dyn FnMut(&Snapshot) -> Verdict<R> + Send + 'static>;

impl<R> Done<R> {
    /// Whether anything was written.
    pub fn is_committed(&self) -> bool {
        match self {
            Done::Refused(_) | Done::NotNow(..) => false,
            Done::Committed(..) => true,
        }
    }
}

/// What becomes of a refusal by the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRefusal {
    /// Nothing is written.
    Leave,
    /// It is a result that came too late: the audit keeps that it came, and nothing else of it.
    Record,
}

impl Inner {
    pub(crate) async fn transact<R: Send + 'static>(
        &self,
        scope: Scope,
        judge: Judge<R>,
    ) -> Result<Done<R>, Error> {
        let done = self
            .step(clock::step_id(), scope, judge, OnRefusal::Leave)
            .await?;
        Ok(done.expect("a store calls the judge before it commits a new step"))
    }

    /// Changes records and counters, and no task.
    pub(crate) async fn keep<R: Send + 'static>(
        &self,
        scope: Scope,
        mut judge: Keeper<R>,
    ) -> Result<R, Error> {
        let id = clock::step_id();
        let judged = Arc::new(Mutex::new(None));
        let last = Arc::clone(&judged);
        let stored = move |snapshot: &Snapshot| {
            let (keeping, reply) = judge(snapshot);
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
            match keeping {
                Some(keeping) => Step::Write(Box::new(keeping.write(id, snapshot.now))),
                None => Step::Nothing,
            }
        };
        self.store.transact(id, scope, Box::new(stored)).await?;
        let reply = judged.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(reply.expect("a store calls the judge before it commits a new step"))
    }

    /// One try of a step whose id was minted before. `None` when an earlier try had been committed all the same.
    pub(crate) async fn step<R: Send + 'static>(
        &self,
        id: StepId,
        scope: Scope,
        mut judge: Judge<R>,
        on_refusal: OnRefusal,
    ) -> Result<Option<Done<R>>, Error> {
        let judged = Arc::new(Mutex::new(None));
        let (last, reference) = (Arc::clone(&judged), Arc::clone(&self.options.reference));
        let stored = move |snapshot: &Snapshot| {
            let bench = Bench {
                id,
                reference: &reference,
                on_refusal,
                snapshot,
            };
            let (step, judgement) = bench.judge(judge(snapshot));
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(judgement);
            step
        };
        let committed = self.store.transact(id, scope, Box::new(stored)).await?;
        let judgement = judged.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(judgement.map(|judgement| match judgement {
            Judgement::Refused(reply) => Done::Refused(reply),
            Judgement::NotNow(why, reply) => Done::NotNow(why, reply),
            Judgement::Changed {
                mut row,
                effects,
                reply,
            } => {
                row.version = committed.version.unwrap_or(row.version);
                self.committed(&row, &effects);
                Done::Committed(row, reply)
            }
        }))
    }

    /// Wakes whoever waits for what was committed.
    fn committed(&self, row: &Row, effects: &[Effect]) {
        self.hub.publish(row.id, row.version);
        if row.task.phase == Phase::Asking {
            // Nobody listens where nobody is to be told.
            let _unheard = self.asking.send(row.id);
        }
        self.attempts.observe(self.options.runner.id, row);
        for effect in effects {
            match effect {
                Effect::Stop => self.work.notify_one(),
                Effect::Start if self.has_slot(&row.tool) => self.work.notify_one(),
                // The end of an attempt that has a slot of the tool looks for it.
                Effect::Start => {}
                // The attempt that waits was woken with the other watchers.
                Effect::Resume | Effect::Tell => {}
            }
        }
    }
}

/// Whether the holder of the task could give it back (T21). The time plays no part in that.
pub(crate) fn is_releasable(task: &Task, fence: Fence) -> bool {
    decide::decide(task, Event::Released { fence }, task.not_before).is_ok()
}

enum Judgement<R> {
    Refused(R),
    NotNow(Refused, R),
    Changed {
        row: Box<Row>,
        effects: Vec<Effect>,
        reply: R,
    },
}

/// One call of a judge: what it is judged with.
struct Bench<'a> {
    id: StepId,
    reference: &'a Reference,
    on_refusal: OnRefusal,
    snapshot: &'a Snapshot,
}

impl Bench<'_> {
    fn judge<R>(&self, verdict: Verdict<R>) -> (Step, Judgement<R>) {
        match verdict {
            Verdict::Refuse(reply) => (Step::Nothing, Judgement::Refused(reply)),
            Verdict::Open(opening, reply) => self.open(*opening, reply),
            Verdict::Apply(proposal, reply) => self.apply(proposal, reply),
        }
    }

    fn open<R>(&self, opening: Opening, reply: R) -> (Step, Judgement<R>) {
        if self.snapshot.task.is_some() {
            return (Step::Nothing, Judgement::NotNow(Refused::OutOfPlace, reply));
        }
        let now = self.snapshot.now;
        let change = decide::open(&opening.birth, now);
        let row = Row {
            id: opening.id,
            owner: opening.owner,
            kid: opening.kid,
            name: opening.name,
            tool: opening.tool,
            session: opening.session,
            origin: opening.origin,
            version: 0,
            created_at: now,
            updated_at: now,
            purge_after: opening.purge_after,
            idem: opening.idem,
            digest: opening.digest,
            hidden: opening.hidden,
            task: change.task,
            args: opening.args,
            context: opening.context,
            note: opening.note,
        };
        let write = Write {
            audit: self.record(&row, &change.audit, "owner", opening.trail),
            task: Some(row.clone()),
            counters: opening.counters,
            records: opening.records,
        };
        let judgement = Judgement::Changed {
            row: Box::new(row),
            effects: change.effects,
            reply,
        };
        (Step::Write(Box::new(write)), judgement)
    }

    fn apply<R>(&self, proposal: Proposal, reply: R) -> (Step, Judgement<R>) {
        let Some(old) = &self.snapshot.task else {
            return (Step::Nothing, Judgement::NotNow(Refused::OutOfPlace, reply));
        };
        let folded = fold(&old.task, proposal.events, self.snapshot.now);
        // A finished task never changes, its note included.
        let too_late = old.task.is_finished() && proposal.note.is_some();
        let folded = if too_late { Err(Refused::Finished) } else { folded };
        let (task, audit, effects) = match folded {
            Ok(folded) => folded,
            Err(why) => {
                return (
                    self.refused(old, why, proposal.actor),
                    Judgement::NotNow(why, reply),
                );
            }
        };
        let mut row = Row { task, ..old.clone() };
        let noted = proposal.note.is_some();
        if let Some(note) = proposal.note {
            row.note = note;
        }
        if let Some(kept_until) = proposal.shown {
            row.hidden = false;
            row.purge_after = kept_until;
        }
        // D-11
        if noted || is_visible(&old.task, &row.task) || longhaul_core::fault!("every-write-is-an-update") {
            row.updated_at = old.updated_at.max(self.snapshot.now);
        }
        let write = Write {
            audit: self.record(&row, &audit, proposal.actor, proposal.trail),
            task: Some(row.clone()),
            counters: proposal.counters,
            records: proposal.records,
        };
        (
            Step::Write(Box::new(write)),
            Judgement::Changed {
                row: Box::new(row),
                effects,
                reply,
            },
        )
    }

    fn refused(&self, row: &Row, why: Refused, actor: &str) -> Step {
        let late = matches!(why, Refused::Finished | Refused::Fenced);
        match self.on_refusal {
            OnRefusal::Record if late => {
                let audit = self.record(row, &[audit::Event::Refused { why }], actor, Trail::default());
                Step::Write(Box::new(Write {
                    audit,
                    ..Write::default()
                }))
            }
            OnRefusal::Record | OnRefusal::Leave => Step::Nothing,
        }
    }

    fn record(&self, row: &Row, events: &[audit::Event], actor: &str, trail: Trail) -> Vec<u8> {
        let mut entries = trail.entries;
        entries.extend(events.iter().map(audit::Event::entry));
        let record = audit::Record {
            session: row.session.clone(),
            task: (self.reference)(row.id),
            trace: trail.trace,
            tool: row.tool.clone(),
            upstream: trail.upstream,
            actor: actor.to_owned(),
            events: entries,
            reason: trail.reason,
            status: Status::of(&row.task.phase).name().to_owned(),
            approval: trail.approval,
            latency_ms: trail.latency_ms,
            bytes: trail.bytes,
            ..record_of(self.id, self.snapshot.now, &row.owner)
        };
        record.encode()
    }
}

impl Keeping {
    /// One record is set. `entry` says what happened.
    pub fn record(owner: Owner, actor: &'static str, record: Record, entry: Entry) -> Keeping {
        let records = BTreeMap::from([(record.key.clone(), Some(record))]);
        Keeping::records(owner, actor, records, entry)
    }

    /// Records are set or deleted. `entry` says what happened.
    pub fn records(
        owner: Owner,
        actor: &'static str,
        records: BTreeMap<RecordKey, Option<Record>>,
        entry: Entry,
    ) -> Keeping {
        Keeping {
            owner,
            records,
            counters: BTreeMap::new(),
            actor,
            trail: Trail {
                entries: vec![entry],
                ..Trail::default()
            },
        }
    }

    fn write(self, id: StepId, now: Millis) -> Write {
        let record = audit::Record {
            trace: self.trail.trace,
            actor: self.actor.to_owned(),
            events: self.trail.entries,
            reason: self.trail.reason,
            ..record_of(id, now, &self.owner)
        };
        Write {
            audit: record.encode(),
            task: None,
            counters: self.counters,
            records: self.records,
        }
    }
}

/// What every audit record says, whatever happened.
fn record_of(step: StepId, at: Millis, owner: &Owner) -> audit::Record {
    audit::Record {
        at,
        step,
        tenant: owner.tenant.clone(),
        principal: format!("{} {}", owner.issuer, owner.subject),
        app: owner.app.clone(),
        session: String::new(),
        task: String::new(),
        trace: String::new(),
        tool: String::new(),
        upstream: String::new(),
        actor: String::new(),
        events: Vec::new(),
        decision: "allow".to_owned(),
        reason: String::new(),
        status: String::new(),
        approval: String::new(),
        latency_ms: None,
        bytes: None,
    }
}

type Folded = (Task, Vec<audit::Event>, Vec<Effect>);

/// All events or none.
fn fold(task: &Task, events: Vec<Event>, now: Millis) -> Result<Folded, Refused> {
    let mut folded: Folded = (task.clone(), Vec::new(), Vec::new());
    for event in events {
        match decide::decide(&folded.0, event, now) {
            Ok(change) => {
                folded.0 = change.task;
                folded.1.extend(change.audit);
                folded.2.extend(change.effects);
            }
            Err(_) if longhaul_core::fault!("half-a-proposal-counts") => break,
            Err(why) => return Err(why),
        }
    }
    Ok(folded)
}

/// Whether a client can see the difference. What a runner owes after the end is not shown to clients.
fn is_visible(old: &Task, new: &Task) -> bool {
    let asked = |task: &Task| {
        task.questions
            .iter()
            .map(|asked| (asked.key, asked.state.clone()))
            .collect::<Vec<_>>()
    };
    old.phase != new.phase || asked(old) != asked(new) || (!new.is_finished() && stage(old) != stage(new))
}

/// What a status text tells of a task that works: it waits for an approval, for its turn, or it runs.
fn stage(task: &Task) -> u8 {
    match task.run {
        Run::Held => 0,
        Run::Queued { .. } | Run::Leased(_) => 1,
        Run::Running(_) | Run::Parked => 2,
        Run::Stopping(_) | Run::StopOwed | Run::Idle => 3,
    }
}
