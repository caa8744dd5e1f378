//! A tree of processes: reading it, and ending it.
//!
//! Called by the shim for its own descendants and by the sweep for a dead runner's. It never waits for a process
//! to be reaped; that is the caller's, who alone knows which are its children.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::{Pid, Signal};

/// How often the tree is read again, while it is being frozen, in search of processes born meanwhile.
const FREEZE_ROUNDS: u32 = 16;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) pid: i32,
    /// In clock ticks since the boot. With the process id it names one process.
    pub(super) started: u64,
    pub(super) parent: i32,
    pub(super) session: i32,
    /// It has ended and waits to be reaped.
    pub(super) ended: bool,
}

/// Every process that can be seen.
#[cfg(target_os = "linux")]
pub(super) fn all() -> Vec<Entry> {
    let names = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

/// What descends from this process, read from its own tree alone where the kernel tells the children of a process.
/// While processes come and go it may miss some; whoever must know looks again.
#[cfg(target_os = "linux")]
pub(super) fn below(root: i32) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        let Some(children) = children(parent) else {
            if parent == root {
                return descendants(&all(), [root]);
            }
            // It ended meanwhile.
            continue;
        };
        for child in children {
            if seen.insert(child) {
                found.extend(read(child));
                next.push(child);
            }
        }
    }
    found
}

/// The children of all threads of a process; `None` where the kernel does not tell, or when it is gone.
#[cfg(target_os = "linux")]
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let listed = match std::fs::read_to_string(thread.path().join("children")) {
            Ok(listed) => listed,
            // The thread ended meanwhile; its children are another thread's by now.
            Err(_) if !thread.path().exists() => continue,
            Err(_) => return None,
        };
        children.extend(
            listed
                .split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    Some(children)
}

/// One process, if it is there.
#[cfg(target_os = "linux")]
pub(super) fn read(pid: i32) -> Option<Entry> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold any byte, a parenthesis too: the fields begin after the last one.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    let fields: Vec<&str> = std::str::from_utf8(stat.get(after..)?).ok()?.split(' ').collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Entry {
        pid,
        started: field(22)?.parse().ok()?,
        parent: field(4)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        ended: matches!(field(3)?, "Z" | "X"),
    })
}

/// The short name of a process; empty when it is gone.
#[cfg(target_os = "linux")]
pub(super) fn name(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn name(_pid: i32) -> String {
    String::new()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn all() -> Vec<Entry> {
    #[expect(
        clippy::disallowed_methods,
        reason = "there is no other safe way to see the processes of this platform"
    )]
    let listing = std::process::Command::new("/bin/ps")
        .args(["-axo", "pid=,ppid=,sess=,stat=,comm="])
        .output();
    let text = listing
        .map(|listing| String::from_utf8_lossy(&listing.stdout).into_owned())
        .unwrap_or_default();
    text.lines().filter_map(line).collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn read(pid: i32) -> Option<Entry> {
    all().into_iter().find(|entry| entry.pid == pid)
}

#[cfg(not(target_os = "linux"))]
fn line(line: &str) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let pid = words.next()?.parse().ok()?;
    let parent = words.next()?.parse().ok()?;
    let session = words.next()?.parse().unwrap_or(0);
    let ended = words.next()?.starts_with('Z');
    (words.next()? != "/bin/ps").then_some(Entry {
        pid,
        started: 0,
        parent,
        session,
        ended,
    })
}

/// The descendants of `roots` among `entries`, the roots not included.
pub(super) fn descendants(entries: &[Entry], roots: impl IntoIterator<Item = i32>) -> Vec<Entry> {
    let mut children: BTreeMap<i32, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        children.entry(entry.parent).or_default().push(*entry);
    }
    let mut seen: BTreeSet<i32> = roots.into_iter().collect();
    let mut next: Vec<i32> = seen.iter().copied().collect();
    let mut found = Vec::new();
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.pid) {
                found.push(*child);
                next.push(child.pid);
            }
        }
    }
    found
}

/// Sends the signal to exactly this process; a process that has its number by now gets nothing.
#[cfg(target_os = "linux")]
pub(super) fn send(entry: Entry, signal: Signal) {
    use rustix::{
        io::Errno,
        process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal},
    };

    let Some(pid) = Pid::from_raw(entry.pid) else {
        return;
    };
    let handle = pidfd_open(pid, PidfdFlags::empty());
    if !is_still(entry) {
        return;
    }
    // Old kernels and some containers' filters know no pidfds; then the number alone must do.
    let sent = handle.and_then(|handle| pidfd_send_signal(handle, signal));
    if sent.is_err_and(|error| error != Errno::SRCH) {
        // One that may not be reached is found alive in the next round.
        let _unreached = kill_process(pid, signal);
    }
}

#[cfg(target_os = "linux")]
fn is_still(entry: Entry) -> bool {
    read(entry.pid).is_some_and(|now| now.started == entry.started)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn send(entry: Entry, signal: Signal) {
    if let Some(pid) = Pid::from_raw(entry.pid) {
        let _unreached = rustix::process::kill_process(pid, signal);
    }
}

/// Kills all that `find` sees. They are frozen first, so that none gives birth between the look and the kill.
/// Returns those that were alive.
pub(super) fn kill(find: impl Fn() -> Vec<Entry>) -> Vec<Entry> {
    let mut frozen: BTreeSet<(i32, u64)> = BTreeSet::new();
    let mut alive: Vec<Entry> = Vec::new();
    for _ in 0..FREEZE_ROUNDS {
        alive = find().into_iter().filter(|entry| !entry.ended).collect();
        let fresh: Vec<Entry> = alive
            .iter()
            .copied()
            .filter(|entry| frozen.insert((entry.pid, entry.started)))
            .collect();
        if fresh.is_empty() {
            break;
        }
        fresh.into_iter().for_each(|entry| send(entry, Signal::STOP));
    }
    alive.iter().for_each(|entry| send(*entry, Signal::KILL));
    alive
}

/// The memory that these processes hold and do not share with files, in bytes, swapped out or not.
#[cfg(target_os = "linux")]
pub(super) fn memory(entries: &[Entry]) -> u64 {
    let of_one = |entry: &Entry| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", entry.pid)).unwrap_or_default();
        let lines = status.lines().filter_map(|line| line.split_once(':'));
        let counted = lines.filter(|(name, _)| matches!(*name, "RssAnon" | "RssShmem" | "VmSwap"));
        counted
            .filter_map(|(_, value)| value.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            .sum::<u64>()
            * 1024
    };
    entries.iter().map(of_one).sum()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn memory(_entries: &[Entry]) -> u64 {
    0
}

/// The process was started with this variable in its environment. False for one that cannot be read.
pub(super) fn is_marked(pid: i32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
        environ
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    })
}
