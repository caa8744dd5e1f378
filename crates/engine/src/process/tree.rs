//! A tree of processes: reading it, and ending it.
//!
//! Called by the shim for its own descendants and by the sweep for a dead runner's. It never waits for a process
//! to be reaped; that is the caller's, who alone knows which are its children.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::ffi::OsStrExt,
};

use rustix::process::{Pid, Signal};

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
pub(super) fn all() -> Vec<Entry> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter_map(read).collect()
}

/// One process, if it is there.
pub(super) fn read(pid: i32) -> Option<Entry> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold any byte, a parenthesis too: the fields begin after the last one.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    let fields: Vec<&str> = std::str::from_utf8(stat.get(after..)?).ok()?.split(' ').collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Entry {
        pid,
        started: number(22)?,
        parent: i32::try_from(number(4)?).ok()?,
        session: i32::try_from(number(6)?).ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
    })
}

/// The descendants of `roots` among `entries`, the roots not included, parents before children.
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

/// The environment with which the process was started holds this variable with this value. False for another
/// user's process, which cannot be read.
pub(super) fn is_marked(pid: i32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()))
}
