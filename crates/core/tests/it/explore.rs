//! Visits every reachable state within small bounds, and tries every event in each.
//!
//! Two runners, up to three questions, an approval or none, work here or elsewhere, every combination of rules.
//! The fence is left out of a state's identity: only its equality with a report's matters, and the walk tries
//! reports of the present and of the last claim.

use std::{collections::HashMap, panic::resume_unwind, thread};

use longhaul_core::{
    Birth, Body, Event, Fence, Millis, QuestionKey, Reason, Run, RunnerId, Span, Task, decide,
    event::{Answer, Ask},
    open,
    task::{CanAsk, CancelledBy, OnCrash, OnSilence, QuestionState, Reader, Rules},
};

use crate::{choose_fault, invariants, table};

pub(crate) const RUNNERS: [RunnerId; 2] = [RunnerId([1; 16]), RunnerId([2; 16])];

const EXPIRES_AT: Millis = Millis(3);
const NOW_MAX: Millis = Millis(3);
const QUESTIONS_MAX: u32 = 2;
const QUESTIONS_EVER: usize = 2;
const LEGS_EVER: u32 = 1;
const STARTS_EVER: u32 = 3;

/// A state of the walk: the task, the time, and what the walk itself remembers to judge by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) task: Task,
    pub(crate) now: Millis,
    /// An attempt is out of sight: its runner was lost unswept, or its stop was not confirmed.
    pub(crate) strays: bool,
    /// Starts since the last leg that parked.
    pub(crate) begun: u32,
}

/// One birth and all that can come of it.
struct Walk {
    nodes: HashMap<Node, usize>,
    queue: Vec<Node>,
    /// For each node the nodes that lead to it otherwise than by a cancel or by the end of the time to live.
    from: Vec<Vec<usize>>,
    steps: usize,
    rows: Vec<usize>,
}

#[test]
fn every_reachable_state_keeps_the_rules() {
    choose_fault();
    let births: Vec<Birth> = births().collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let seen = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|first| {
                let part = births.iter().skip(first).step_by(threads);
                scope.spawn(move || part.map(Seen::of).fold(Seen::nothing(), Seen::with))
            })
            .collect();
        started
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .fold(Seen::nothing(), Seen::with)
    });
    let Seen { states, steps, rows } = seen;
    for (row, used) in table::ROWS.iter().zip(&rows) {
        assert!(*used > 0, "no step takes this row of the table: {row:?}");
    }
    eprintln!("{states} states, {steps} steps, {} rows of the table", rows.len());
}

/// How much was walked.
struct Seen {
    states: usize,
    steps: usize,
    /// How often each row of the table was taken.
    rows: Vec<usize>,
}

impl Seen {
    fn nothing() -> Seen {
        Seen {
            states: 0,
            steps: 0,
            rows: vec![0; table::ROWS.len()],
        }
    }

    /// Walks all that can come of one birth.
    fn of(birth: &Birth) -> Seen {
        let walk = Walk::of(birth);
        walk.every_state_can_end();
        Seen {
            states: walk.nodes.len(),
            steps: walk.steps,
            rows: walk.rows,
        }
    }

    fn with(mut self, other: Seen) -> Seen {
        self.states += other.states;
        self.steps += other.steps;
        for (total, used) in self.rows.iter_mut().zip(&other.rows) {
            *total += used;
        }
        self
    }
}

/// Every combination of rules, capabilities and approval.
fn births() -> impl Iterator<Item = Birth> {
    let crashes = [
        OnCrash::Fail,
        OnCrash::Rerun {
            starts_max: 2,
            backoff: Span(1),
        },
        OnCrash::Resume,
    ];
    let silences = [OnSilence::Decline, OnSilence::Dismiss, OnSilence::Fail];
    let can_asks = [(true, true), (true, false), (false, true), (false, false)];
    let mut births = Vec::new();
    for on_crash in crashes {
        for on_silence in silences {
            for (client, operator) in can_asks {
                for fail_when_nobody_can_answer in [false, true] {
                    for approval in [false, true] {
                        births.push(Birth {
                            rules: Rules {
                                on_crash,
                                on_silence,
                                fail_when_nobody_can_answer,
                                question_deadline: Span(1),
                                approval_lasts: Span(2),
                                questions_max: QUESTIONS_MAX,
                            },
                            can_ask: CanAsk { client, operator },
                            expires_at: EXPIRES_AT,
                            approval: approval.then(|| ask(Reader::Client)),
                        });
                    }
                }
            }
        }
    }
    births.into_iter()
}

impl Walk {
    fn of(birth: &Birth) -> Walk {
        let mut walk = Walk {
            nodes: HashMap::new(),
            queue: Vec::new(),
            from: Vec::new(),
            steps: 0,
            rows: vec![0; table::ROWS.len()],
        };
        let change = open(birth, Millis(0));
        invariants::of_birth(birth, &change);
        walk.visit(Node {
            task: change.task,
            now: Millis(0),
            strays: false,
            begun: 0,
        });
        while let Some(node) = walk.queue.pop() {
            walk.step_everywhere(&node);
        }
        walk
    }

    fn visit(&mut self, node: Node) -> Option<usize> {
        let node = same_as(node);
        if !within_bounds(&node.task) {
            return None;
        }
        let next = self.nodes.len();
        let index = *self.nodes.entry(node.clone()).or_insert(next);
        if index == next {
            self.from.push(Vec::new());
            self.queue.push(node);
        }
        Some(index)
    }

    fn step_everywhere(&mut self, node: &Node) {
        let here = self.nodes[node];
        invariants::of_state(node);
        for event in events(&node.task) {
            self.steps += 1;
            let change = decide(&node.task, event.clone(), node.now);
            if let Some(row) = invariants::of_step(node, &event, &change) {
                self.rows[row] += 1;
            }
            let Ok(change) = change else { continue };
            let next = invariants::follow(node, &event, change.task);
            let expires = node.now >= node.task.expires_at && event == Event::Due;
            let helps = !expires && !matches!(event, Event::Cancel { .. });
            if let Some(there) = self.visit(next)
                && helps
            {
                self.from[there].push(here);
            }
        }
        if node.now < NOW_MAX && !node.task.is_finished() {
            let later = Node {
                now: Millis(node.now.0 + 1),
                ..node.clone()
            };
            if let Some(there) = self.visit(later) {
                self.from[there].push(here);
            }
        }
    }

    /// From every state some way leads to an end at which nothing is owed, without a cancel and without the end
    /// of the time to live. After that end only the time to live is left, so those states are not asked.
    fn every_state_can_end(&self) {
        let mut ends = vec![false; self.nodes.len()];
        let mut queue: Vec<usize> = Vec::new();
        for (node, index) in &self.nodes {
            if node.task.is_finished() && node.task.run == Run::Idle {
                ends[*index] = true;
                queue.push(*index);
            }
        }
        while let Some(index) = queue.pop() {
            for before in &self.from[index] {
                if !ends[*before] {
                    ends[*before] = true;
                    queue.push(*before);
                }
            }
        }
        for (node, index) in &self.nodes {
            let expired = node.now >= node.task.expires_at;
            // A finished task leaves by its stop alone, whatever ended it.
            assert!(
                ends[*index] || (expired && !node.task.is_finished()),
                "nothing ends {node:?}"
            );
        }
    }
}

/// The state that stands for all that differ only in what no later step can tell: the fence's value, which of the
/// two runners holds the lease, a moment that is over, how a question was settled. The checks of a step see the
/// real ones; only what is walked on from is made the same.
fn same_as(mut node: Node) -> Node {
    let task = &mut node.task;
    task.fence = Fence(1);
    task.run = match task.run {
        Run::Leased(_) => Run::Leased(RUNNERS[0]),
        Run::Running(_) => Run::Running(RUNNERS[0]),
        Run::Stopping(_) => Run::Stopping(RUNNERS[0]),
        Run::Held | Run::Queued { .. } | Run::Parked | Run::StopOwed | Run::Idle => task.run,
    };
    for question in &mut task.questions {
        if !is_open(&question.state) {
            question.state = QuestionState::Withdrawn;
            question.misfits = 0;
        }
    }
    if task.is_finished() {
        node.now = Millis(0);
    }
    task.not_before = if task.not_before <= node.now {
        node.now
    } else {
        task.not_before
    };
    node
}

fn within_bounds(task: &Task) -> bool {
    let approvals = usize::from(task.approved_until.is_some() || task.run == Run::Held);
    let waits_to_start = matches!(task.run, Run::Queued { reattach: false } | Run::Parked);
    task.questions.len() <= QUESTIONS_EVER + approvals
        && task.legs <= LEGS_EVER
        && task.starts <= STARTS_EVER
        && !(waits_to_start && task.starts == STARTS_EVER)
}

/// Every event that the walk tries in this state.
fn events(task: &Task) -> Vec<Event> {
    let mut events = vec![Event::Due];
    for by in [CancelledBy::Owner, CancelledBy::Operator] {
        events.push(Event::Cancel { by });
    }
    for runner in RUNNERS {
        events.push(Event::Claimed { runner });
        for swept in [true, false] {
            events.push(Event::RunnerLost { runner, swept });
        }
    }
    for fence in [task.fence.0, task.fence.0 - 1] {
        reports(Fence(fence), &mut events);
    }
    let unknown = QuestionKey(99);
    for key in task
        .questions
        .iter()
        .map(|question| question.key)
        .chain([unknown])
    {
        for fence in [task.fence.0, task.fence.0 - 1] {
            events.push(Event::TakenBack {
                fence: Fence(fence),
                keys: vec![key],
            });
        }
        for reader in [Reader::Client, Reader::Operator] {
            events.push(Event::Misfit { key, reader });
            for answer in [Answer::Accept(Body::Stored), Answer::Decline, Answer::Dismiss] {
                events.push(Event::Answered { key, reader, answer });
            }
        }
    }
    events
}

fn reports(fence: Fence, events: &mut Vec<Event>) {
    let body = || Body::Stored;
    events.extend([
        Event::Started { fence },
        Event::Noted { fence },
        Event::Attached {
            fence,
            upstream: body(),
        },
        Event::Parked {
            fence,
            checkpoint: body(),
        },
        Event::Returned {
            fence,
            body: body(),
            is_error: false,
        },
        Event::Returned {
            fence,
            body: body(),
            is_error: true,
        },
        Event::Errored { fence, body: body() },
        Event::Failed {
            fence,
            reason: Reason::UpstreamLost,
        },
        Event::CancelledElsewhere { fence },
        Event::Stopped {
            fence,
            confirmed: true,
        },
        Event::Stopped {
            fence,
            confirmed: false,
        },
        Event::Released { fence },
    ]);
    for readers in [
        &[][..],
        &[Reader::Client],
        &[Reader::Operator],
        &[Reader::Client, Reader::Client],
        &[Reader::Operator, Reader::Client],
        &[Reader::Client, Reader::Client, Reader::Client],
    ] {
        events.push(Event::Asked {
            fence,
            asks: readers.iter().map(|reader| ask(*reader)).collect(),
        });
    }
}

fn ask(reader: Reader) -> Ask {
    Ask {
        reader,
        body: Body::Stored,
        bind: [7; 32],
    }
}

/// Whether the question waits for its answer.
pub(crate) fn is_open(state: &QuestionState) -> bool {
    matches!(state, QuestionState::Open { .. })
}
