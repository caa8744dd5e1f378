//! Ends what nobody watches any more: the tree of a killed shim, and what a dead runner left behind.
//!
//! Called by the engine's sweeper at start, and by the keeper after a shim was killed. It never touches a process
//! of another user, nor one that has neither the mark nor an ancestor or a session that has.

use std::{
    collections::BTreeSet,
    os::unix::fs::MetadataExt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, getpid, getsid, getuid, waitpid};
use tokio::time::{Instant, sleep};

use super::{
    Identity, RUNNER, TASK, identity,
    tree::{self, Entry},
};

/// Marks the shims themselves, beside the marks that they share with their commands.
pub(super) const SHIM: &str = "LONGHAUL_SHIM";

/// How long the shims of a dead runner have to end their trees themselves.
const SHIMS_MAX: Duration = Duration::from_secs(3);
/// How long a sweep goes on killing.
const SWEEP_MAX: Duration = Duration::from_secs(10);
/// The pause between two looks.
const SWEEP_TICK: Duration = Duration::from_millis(20);

/// What a sweep found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// How many processes were ended.
    pub ended: u32,
    /// How many are still alive, such as one in the kernel's uninterruptible sleep.
    pub left: u32,
    /// Nothing is left, and this platform can tell.
    pub confirmed: bool,
}

/// Ends every process that a dead runner left behind, and waits until none is left (10 s at most).
///
/// `runner` is the [`Spec::runner`](super::Spec::runner) of its processes, `dead` who it was. Call it only for a
/// runner that is known to be dead, by its lock. When it ran in another boot of this machine, nothing can be left
/// and nothing is looked for.
///
/// Its shims, if they live, are told to end their trees at once; they also know processes that cleared their
/// environment. What is left after 3 s is killed directly.
pub async fn sweep(runner: &str, dead: &Identity) -> Swept {
    if identity().is_ok_and(|now| now.boot != dead.boot) {
        return Swept {
            ended: 0,
            left: 0,
            confirmed: true,
        };
    }
    let mut seen = BTreeSet::new();
    let shims_until = Instant::now() + SHIMS_MAX;
    while Instant::now() < shims_until {
        let found = look({
            let runner = runner.to_owned();
            move || marked(RUNNER, &runner)
        })
        .await;
        let fresh: Vec<Entry> = found
            .iter()
            .copied()
            .filter(|entry| seen.insert((entry.pid, entry.started)))
            .collect();
        for shim in fresh
            .into_iter()
            .filter(|entry| tree::is_marked(entry.pid, SHIM, "1"))
        {
            tree::send(shim, Signal::TERM);
            tree::send(shim, Signal::CONT);
        }
        if !found.iter().any(|entry| tree::is_marked(entry.pid, SHIM, "1")) {
            break;
        }
        sleep(SWEEP_TICK).await;
    }
    let left = kill(seen.clone(), {
        let runner = runner.to_owned();
        move || marked(RUNNER, &runner)
    })
    .await;
    let ended = u32::try_from(left.seen.len())
        .unwrap_or(u32::MAX)
        .saturating_sub(left.alive);
    Swept {
        ended,
        left: left.alive,
        confirmed: left.alive == 0 && cfg!(target_os = "linux"),
    }
}

/// Ends the tree of a shim that was killed. True when nothing of it is left.
///
/// Its orphans have become children of this process: they are known by the shim's session and by the mark. One
/// that left the session *and* cleared its environment is not known; it is not killed, because it could be the
/// child of a program that embeds Longhaul, and then the end is not confirmed.
pub(super) async fn orphans(shim: i32, mark: &str) -> bool {
    let mark = mark.to_owned();
    let left = kill(BTreeSet::new(), move || {
        let mut roots = marked(TASK, &mark);
        roots.extend(tree::all().into_iter().filter(|entry| entry.session == shim));
        with_descendants(roots)
    })
    .await;
    left.alive == 0 && cfg!(target_os = "linux") && look(strays).await.is_empty()
}

struct Left {
    seen: BTreeSet<(i32, u64)>,
    alive: u32,
}

/// Kills what `find` sees until it sees nothing, or the time is over.
async fn kill(
    mut seen: BTreeSet<(i32, u64)>,
    find: impl Fn() -> Vec<Entry> + Clone + Send + 'static,
) -> Left {
    let until = Instant::now() + SWEEP_MAX;
    loop {
        let find = find.clone();
        let alive = look(move || tree::kill(find)).await;
        seen.extend(alive.iter().map(|entry| (entry.pid, entry.started)));
        reap(&seen);
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

/// Reaps those that became children of this process. Never all children: the others belong to whoever started
/// them.
fn reap(seen: &BTreeSet<(i32, u64)>) {
    let own = getpid().as_raw_nonzero().get();
    for (pid, started) in seen {
        let ours = tree::read(*pid).is_some_and(|now| now.started == *started && now.parent == own);
        if ours && !shims().contains(pid) {
            // One that has not ended yet is reaped in the next round.
            let _not_yet = waitpid(Pid::from_raw(*pid), WaitOptions::NOHANG);
        }
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

/// Children that this process did not start: not a shim, and of another session.
fn strays() -> Vec<Entry> {
    let own = getpid().as_raw_nonzero().get();
    let session = getsid(None).map_or(0, |session| session.as_raw_nonzero().get());
    let shims = shims().clone();
    let mut all = tree::all();
    all.retain(|entry| {
        entry.parent == own && !entry.ended && entry.session != session && !shims.contains(&entry.pid)
    });
    all
}

/// The shims of this process that live.
static SHIMS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn shims() -> MutexGuard<'static, BTreeSet<i32>> {
    SHIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shim that lives and is waited for by its keeper.
pub(super) struct Registered {
    pub(super) pid: i32,
}

impl Registered {
    /// Starts and registers in one step, so that no look in between takes the shim for a stray.
    pub(super) fn start<T, E>(start: impl FnOnce() -> Result<(i32, T), E>) -> Result<(Registered, T), E> {
        let mut shims = shims();
        let (pid, started) = start()?;
        shims.insert(pid);
        Ok((Registered { pid }, started))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        shims().remove(&self.pid);
    }
}
