//! Who has a place, what each one does with it, and whose is taken when there is none left.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// The places of a listener.
#[derive(Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    pulses: BTreeMap<u64, Arc<Pulse>>,
}

/// One place; free again when it is dropped.
pub(super) struct Place {
    places: Places,
    number: u64,
    pulse: Arc<Pulse>,
    _permit: OwnedSemaphorePermit,
}

/// What a connection does.
pub(super) struct Pulse {
    state: Mutex<State>,
    given_up: Notify,
}

struct State {
    phase: Phase,
    since: Instant,
    /// Since when its reader takes nothing of what waits for it.
    stuck: Option<Instant>,
    /// Something came while a request was served: the next one has begun.
    early: bool,
    /// A request was answered before all of it had come.
    unread: bool,
}

/// Where a connection is between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has come yet.
    New,
    /// A reply is out, and no further request has begun.
    Idle,
    /// A request has begun and not all of its headers have come.
    Arriving,
    /// Its headers have come and its body has not.
    Body,
    /// A request is served.
    Serving,
    /// The reply is made, and not all of it is written.
    Replied,
    /// Its place was given to another.
    GivenUp,
}

impl Places {
    pub(super) fn new(connections_max: usize) -> Places {
        Places {
            free: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
            taken: Arc::default(),
        }
    }

    /// A place, at the cost of whoever keeps us waiting longest when none is free.
    pub(super) async fn take(&self) -> Place {
        loop {
            let free = Arc::clone(&self.free);
            if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
                return self.enter(permit);
            }
            self.give_one_up();
            // Those that are served now may keep us waiting soon, so this is asked again.
            if let Ok(permit) = tokio::time::timeout(AGAIN, free.acquire_owned()).await {
                return self.enter(permit.expect("the semaphore is never closed"));
            }
        }
    }

    fn enter(&self, permit: OwnedSemaphorePermit) -> Place {
        let pulse = Arc::new(Pulse::new());
        let mut taken = self.lock();
        taken.next += 1;
        let number = taken.next;
        taken.pulses.insert(number, Arc::clone(&pulse));
        drop(taken);
        Place {
            places: self.clone(),
            number,
            pulse,
            _permit: permit,
        }
    }

    /// Closes the connection that waits longest without a request; else the one whose request is on its way longest;
    /// else the one whose reader is stuck longest. One whose request is served stays.
    fn give_one_up(&self) {
        let now = Instant::now();
        let taken = self.lock();
        let worst = taken
            .pulses
            .values()
            .filter_map(|pulse| Some((pulse.waits(now)?, pulse)))
            .min_by_key(|(waits, _)| *waits);
        if let Some((_, pulse)) = worst {
            pulse.give_up();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().pulses.remove(&self.number);
    }
}

/// How a connection keeps us waiting, the first to go first, and since when.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waits {
    Idle(Instant),
    Arriving(Instant),
    Stuck(Instant),
}

impl Pulse {
    fn new() -> Pulse {
        Pulse {
            state: Mutex::new(State {
                phase: Phase::New,
                since: Instant::now(),
                stuck: None,
                early: false,
                unread: false,
            }),
            given_up: Notify::new(),
        }
    }

    fn waits(&self, now: Instant) -> Option<Waits> {
        let state = self.lock();
        let (waits, since, least) = match state.phase {
            Phase::New | Phase::Idle => (Waits::Idle(state.since), state.since, WAIT_LEAST),
            Phase::Arriving | Phase::Body => (Waits::Arriving(state.since), state.since, WAIT_LEAST),
            Phase::Serving | Phase::Replied => (Waits::Stuck(state.stuck?), state.stuck?, STUCK_LEAST),
            Phase::GivenUp => return None,
        };
        (now.duration_since(since) >= least).then_some(waits)
    }

    fn give_up(&self) {
        self.lock().phase = Phase::GivenUp;
        self.given_up.notify_one();
    }

    /// Resolves when the place was given to another.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// What the connection does, and since when.
    pub(super) fn phase(&self) -> (Phase, Instant) {
        let state = self.lock();
        (state.phase, state.since)
    }

    /// Bytes came. Whether they begin a request.
    pub(super) fn heard(&self) -> bool {
        let mut state = self.lock();
        match state.phase {
            Phase::New | Phase::Idle => {
                state.phase = Phase::Arriving;
                state.since = Instant::now();
                true
            }
            Phase::Serving | Phase::Replied => {
                state.early = true;
                false
            }
            Phase::Arriving | Phase::Body | Phase::GivenUp => false,
        }
    }

    /// The headers of a request have come: since when it is on its way.
    pub(super) fn begun(&self) -> Instant {
        let mut state = self.lock();
        if state.phase != Phase::GivenUp {
            // A request that came with the one before is read in one piece with it.
            if state.phase != Phase::Arriving {
                state.since = Instant::now();
            }
            state.phase = Phase::Body;
        }
        state.early = false;
        state.unread = false;
        state.since
    }

    /// All of a request has come. False when the place was given to another: nothing may be served then.
    pub(super) fn arrived(&self) -> bool {
        let mut state = self.lock();
        match state.phase {
            Phase::GivenUp => return false,
            Phase::New | Phase::Idle | Phase::Arriving | Phase::Body | Phase::Serving => {
                state.phase = Phase::Serving;
                state.since = Instant::now();
            }
            // The reply was quicker.
            Phase::Replied => {}
        }
        true
    }

    /// The rest of a request is not waited for.
    pub(super) fn left_unread(&self) {
        self.lock().unread = true;
    }

    pub(super) fn is_unread(&self) -> bool {
        self.lock().unread
    }

    /// The reply is made.
    pub(super) fn replied(&self) {
        let mut state = self.lock();
        if state.phase != Phase::GivenUp {
            state.phase = Phase::Replied;
        }
    }

    /// Everything that was made is written.
    pub(super) fn written(&self) {
        let mut state = self.lock();
        state.stuck = None;
        if state.phase == Phase::Replied {
            state.phase = if std::mem::take(&mut state.early) {
                Phase::Arriving
            } else {
                Phase::Idle
            };
            state.since = Instant::now();
        }
    }

    /// The reader takes nothing, or takes something again.
    pub(super) fn stuck(&self, is_stuck: bool) {
        let mut state = self.lock();
        if is_stuck {
            state.stuck.get_or_insert_with(Instant::now);
        } else {
            state.stuck = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a newcomer asks again whether somebody keeps us waiting.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a sender may send nothing before its place can be given to another: one that has just connected, or just
/// read a reply, most often has a request on its way.
const WAIT_LEAST: Duration = Duration::from_millis(250);
/// How long a reader may take nothing before its place can be given to another.
const STUCK_LEAST: Duration = Duration::from_secs(1);
