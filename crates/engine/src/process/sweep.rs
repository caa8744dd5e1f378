//! Ends what nobody watches any more: the tree of a killed shim, and what a dead runner left behind.
//!
//! Called by the engine's sweeper at start, and by the keeper after a shim was killed. It never touches a process
//! that is neither marked, nor descends from one that is, nor shares a killed shim's session, nor fell to this
//! process as a subreaper.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, getpid, getuid, waitpid};
use tokio::time::{Instant, sleep};

use super::{
    ATTEMPT, Identity, RUNNER, TASK, identity,
    identity::{earlier, is_subreaper},
    record,
    tree::{self, Entry},
};

/// Marks the shims themselves, beside the marks that they share with their commands.
pub(super) const SHIM: &str = "LONGHAUL_SHIM";

/// How long the shims of a dead runner have to end their trees themselves: all at once, and longer than one of
/// them tries before it owns that something is left.
const SHIMS_MAX: Duration = Duration::from_secs(7);
/// How long a sweep goes on killing.
const SWEEP_MAX: Duration = Duration::from_secs(10);
/// How long the tree of a killed shim is killed before it is told that something is left.
const ORPHANS_MAX: Duration = Duration::from_secs(5);
/// The pause between two looks.
const SWEEP_TICK: Duration = Duration::from_millis(20);

/// What a sweep found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// How many processes were ended.
    pub ended: u32,
    /// How many are still alive, such as one in the kernel's uninterruptible sleep.
    pub left: u32,
    /// The marks of the attempts of which something may be left; `None` when that holds for every one.
    unsure: Option<BTreeSet<String>>,
}

impl Swept {
    /// Nothing is left of the attempts with this [`Spec::mark`](super::Spec::mark), and this platform can tell.
    pub fn confirms(&self, mark: &str) -> bool {
        self.unsure.as_ref().is_some_and(|unsure| !unsure.contains(mark))
    }
}

/// Ends every process that a dead runner left behind, and waits until none is left (17 s at most).
///
/// `runner` is the [`Spec::runner`](super::Spec::runner) of its processes, `spool` their
/// [`Spec::spool`](super::Spec::spool), `dead` who it was. Call it only for a runner that is known to be dead, by
/// its lock. When it ran in another boot of this machine, nothing can be left and nothing is looked for.
///
/// Its shims, if they live, are told to end their trees at once; they also know processes that cleared their
/// environment. What is left after 7 s is killed directly. A process is found by its mark, and one may have
/// cleared it: so an attempt is confirmed only when its shim wrote that its tree is empty, or when it never began.
/// Without the spool, as on another machine, nothing is confirmed. The spool is closed, and stays until
/// [`forget`].
pub async fn sweep(spool: &Path, runner: &str, dead: &Identity) -> Swept {
    let closed = record::close(spool);
    if identity().is_ok_and(|now| now.boot != dead.boot) {
        return Swept {
            ended: 0,
            left: 0,
            unsure: closed.map(|_| BTreeSet::new()),
        };
    }
    let find = {
        let runner = runner.to_owned();
        move || marked(RUNNER, &runner)
    };
    let mut seen = BTreeSet::new();
    let shims_until = Instant::now() + SHIMS_MAX;
    while Instant::now() < shims_until {
        let found = look(find.clone()).await;
        let is_shim = |entry: &Entry| tree::is_marked(entry.pid, SHIM, "1");
        for entry in &found {
            if seen.insert((entry.pid, entry.started)) && is_shim(entry) {
                tree::send(*entry, Signal::TERM);
                tree::send(*entry, Signal::CONT);
            }
        }
        if !found.iter().any(is_shim) {
            break;
        }
        sleep(SWEEP_TICK).await;
    }
    let left = kill(seen, SWEEP_MAX, find).await;
    let ended = u32::try_from(left.seen.len())
        .unwrap_or(u32::MAX)
        .saturating_sub(left.alive);
    let sure = left.alive == 0 && cfg!(target_os = "linux");
    let unsure = closed.filter(|_| sure).and_then(|closed| {
        record::unsure(&closed)
            .inspect_err(|error| tracing::warn!(%error, "cannot read what a dead runner recorded"))
            .ok()
    });
    Swept {
        ended,
        left: left.alive,
        unsure,
    }
}

/// Deletes the spool of a dead runner whose tasks are all settled; of one that is not there nothing.
///
/// # Errors
/// When the file system refuses.
pub fn forget(spool: &Path) -> io::Result<()> {
    record::forget(spool)
}

/// Ends the tree of a shim that was killed. True when nothing of it is left.
///
/// Its orphans have become children of this process. Whatever fell to this process is from a shim that is dead,
/// since a live one keeps its own; so all of it that is younger than the shim (`since`, in clock ticks since the
/// boot) is ended, with or without a mark. Where this process is no
/// [subreaper](super::become_subreaper), only the shim's session and the mark are known, and nothing is
/// confirmed.
pub(super) async fn orphans(shim: i32, since: u64, mark: &str, attempt: u32) -> bool {
    let (mark, attempt) = (mark.to_owned(), attempt.to_string());
    let left = kill(BTreeSet::new(), ORPHANS_MAX, move || {
        fallen(since, |entry| {
            entry.session == shim
                || tree::is_marked(entry.pid, TASK, &mark) && tree::is_marked(entry.pid, ATTEMPT, &attempt)
        })
    })
    .await;
    left.alive == 0 && is_subreaper()
}

struct Left {
    seen: BTreeSet<(i32, u64)>,
    alive: u32,
}

/// Kills what `find` sees until it sees nothing, or the time is over.
async fn kill(
    mut seen: BTreeSet<(i32, u64)>,
    limit: Duration,
    find: impl Fn() -> Vec<Entry> + Clone + Send + 'static,
) -> Left {
    let until = Instant::now() + limit;
    loop {
        let find = find.clone();
        let alive = look(move || {
            let alive = tree::kill(find);
            reap();
            alive
        })
        .await;
        seen.extend(alive.iter().map(|entry| (entry.pid, entry.started)));
        if alive.is_empty() || Instant::now() > until {
            return Left {
                seen,
                alive: u32::try_from(alive.len()).unwrap_or(u32::MAX),
            };
        }
        sleep(SWEEP_TICK).await;
    }
}

/// Reading every process's files takes milliseconds, so it has a thread of its own.
async fn look(find: impl FnOnce() -> Vec<Entry> + Send + 'static) -> Vec<Entry> {
    tokio::task::spawn_blocking(find).await.unwrap_or_default()
}

/// Reaps what fell to this process and has ended. Never another child: those belong to whoever started them.
fn reap() {
    for entry in strays(&tree::all()).filter(|entry| entry.ended) {
        let _reaped_before = waitpid(Pid::from_raw(entry.pid), WaitOptions::NOHANG);
    }
}

/// This user's processes with the mark, and their descendants; never this process.
fn marked(name: &str, value: &str) -> Vec<Entry> {
    with_descendants(
        tree::all()
            .into_iter()
            .filter(|entry| tree::is_marked(entry.pid, name, value))
            .collect(),
    )
}

fn with_descendants(roots: Vec<Entry>) -> Vec<Entry> {
    let own = getpid().as_raw_nonzero().get();
    let roots: Vec<Entry> = roots
        .into_iter()
        .filter(|entry| entry.pid != own && is_own_user(entry.pid))
        .collect();
    let mut found = tree::descendants(&tree::all(), roots.iter().map(|entry| entry.pid));
    found.extend(roots);
    found.sort();
    found.dedup_by_key(|entry| entry.pid);
    found.retain(|entry| !entry.ended && entry.pid != own);
    found
}

fn is_own_user(pid: i32) -> bool {
    std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|metadata| metadata.uid() == getuid().as_raw())
}

/// What fell to this process and is not older than `since`, what `is_known`, and their descendants; never a live shim or what descends from it.
fn fallen(since: u64, is_known: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    let own = getpid().as_raw_nonzero().get();
    let all = tree::all();
    // After the look: a shim is registered before it can be seen by another look.
    let live: Vec<i32> = shims().keys().copied().collect();
    let mut guarded: BTreeSet<i32> = tree::descendants(&all, live.iter().copied())
        .iter()
        .map(|entry| entry.pid)
        .collect();
    guarded.extend(live);
    guarded.insert(own);
    let mut roots: BTreeSet<i32> = strays(&all)
        .filter(|entry| entry.started >= since)
        .map(|entry| entry.pid)
        .collect();
    let known = all
        .iter()
        .filter(|entry| !guarded.contains(&entry.pid) && is_known(entry));
    roots.extend(known.map(|entry| entry.pid));
    let descendants = tree::descendants(&all, roots.iter().copied());
    roots.extend(descendants.iter().map(|entry| entry.pid));
    let mut all = all;
    all.retain(|entry| roots.contains(&entry.pid) && !guarded.contains(&entry.pid) && !entry.ended);
    all
}

/// The children that fell to this process as a subreaper: no live shim, and of another session. Call it with a
/// look that is already taken.
fn strays(all: &[Entry]) -> impl Iterator<Item = &Entry> {
    let own = getpid().as_raw_nonzero().get();
    // Read from the same place as theirs. The call for it cannot say 0, which is what a process reads in a container
    // whose session began outside.
    let session = tree::read(own).map_or(0, |entry| entry.session);
    let live: BTreeSet<i32> = shims().keys().copied().collect();
    all.iter().filter(move |entry| {
        earlier().is_some_and(|earlier| !earlier.contains(&(entry.pid, entry.started)))
            && entry.parent == own
            && entry.session != session
            && !live.contains(&entry.pid)
    })
}

/// The shims of this process that live, each with the number of its registration.
static SHIMS: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());

fn shims() -> MutexGuard<'static, BTreeMap<i32, u64>> {
    SHIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shim that lives and is waited for by its keeper. Drop it when the shim was reaped.
pub(super) struct Registered {
    pub(super) pid: i32,
    /// In clock ticks since the boot.
    pub(super) since: u64,
    number: u64,
}

impl Registered {
    /// Starts and registers in one step, so that no look in between takes the shim for a stray.
    pub(super) fn start<T, E>(start: impl FnOnce() -> Result<(i32, T), E>) -> Result<(Registered, T), E> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut shims = shims();
        let (pid, started) = start()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        shims.insert(pid, number);
        let since = tree::read(pid).map_or(0, |entry| entry.started);
        Ok((Registered { pid, since, number }, started))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut shims = shims();
        // A later shim may have the same process id by now.
        if shims.get(&self.pid) == Some(&self.number) {
            shims.remove(&self.pid);
        }
    }
}
