//! What the kernel says about the server: processor time, memory, and the processes that a tool started.
//!
//! Read from `/proc` before and after a measurement. Changes nothing, except that `end` kills one process by its id.

use std::{collections::HashMap, fs, io::Write as _, path::Path, time::Instant};

use serde_json::{Value, json};

use crate::load;

/// `/proc` counts processor time in hundredths of a second on every Linux.
const MICROS_PER_TICK: u64 = 10_000;

/// The server that is measured.
pub struct Process {
    pub pid: u32,
    /// The name of the program that it stands in front of, whose processes are not its own.
    pub behind: Option<String>,
}

/// One line of `/proc/PID/stat`.
struct Stat {
    name: String,
    state: char,
    parent: u32,
    /// Of the process and of its children that ended and were waited for.
    micros: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let (name, rest) = line.rsplit_once(") ")?;
    let name = name.split_once(" (")?.1.to_owned();
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let ticks: u64 = fields
        .skip(9)
        .take(4)
        .map(|field| field.parse().unwrap_or(0))
        .sum();
    Some(Stat {
        name,
        state,
        parent,
        micros: ticks * MICROS_PER_TICK,
    })
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process and everything below it, but what it stands in front of.
fn tree(root: &Process) -> Vec<(u32, Stat)> {
    let mut all: HashMap<u32, Stat> = pids().filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let mut below: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, stat) in &all {
        below.entry(stat.parent).or_default().push(*pid);
    }
    let (mut open, mut found) = (vec![root.pid], Vec::new());
    while let Some(pid) = open.pop() {
        let Some(stat) = all.remove(&pid) else {
            continue;
        };
        if root.behind.as_ref() == Some(&stat.name) {
            continue;
        }
        open.extend(below.get(&pid).into_iter().flatten());
        found.push((pid, stat));
    }
    found
}

/// The processor time that a process and everything below it has used, in microseconds.
pub fn cpu_micros(root: &Process) -> u64 {
    tree(root).iter().map(|(_, stat)| stat.micros).sum()
}

/// The memory of a process and of its tree.
pub fn memory(root: &Process) -> Value {
    let tree = tree(root);
    let sum = |file: &str, name: &str| -> u64 { tree.iter().map(|(pid, _)| kib(*pid, file, name)).sum() };
    json!({
        "rss_kib": kib(root.pid, "status", "VmRSS:"),
        "tree_rss_kib": sum("status", "VmRSS:"),
        "tree_pss_kib": sum("smaps_rollup", "Pss:"),
        "processes": tree.len(),
    })
}

fn kib(pid: u32, file: &str, name: &str) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

/// The `sleep` processes that carry a mark in their arguments or their environment.
pub fn marked(mark: &str) -> Vec<u32> {
    pids()
        .filter(|pid| {
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let command = read("cmdline");
            let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
            program.ends_with(b"sleep") && (has(&command, mark) || has(&read("environ"), mark))
        })
        .collect()
}

fn has(bytes: &[u8], mark: &str) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark.as_bytes())
}

/// Whether a process runs no more. One that ended and waits to be collected does not run.
pub fn ended(pid: u32) -> bool {
    stat(pid).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'))
}

/// Kills one process that a server left behind.
pub fn end(pid: u32) {
    if std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .is_err()
    {
        eprintln!("could not end {pid}");
    }
}

/// How long a small write takes until it is on the disk, in microseconds.
///
/// # Errors
/// When the folder cannot be written to.
pub fn sync(folder: &Path) -> Result<Value, String> {
    const WRITES: usize = 200;
    let path = folder.join("sync-probe");
    let failed = |error: std::io::Error| format!("cannot write `{}`: {error}", path.display());
    let mut file = fs::File::create(&path).map_err(failed)?;
    let mut nanos = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let from = Instant::now();
        file.write_all(&[7; 4096]).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        nanos.push(u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    fs::remove_file(&path).map_err(failed)?;
    nanos.sort_unstable();
    Ok(json!({"p50_us": load::share(&nanos, 0.5), "p99_us": load::share(&nanos, 0.99)}))
}

/// The bytes of all files below a folder.
pub fn bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let kind = entry.metadata().ok()?;
            Some(if kind.is_dir() {
                bytes(&entry.path())
            } else {
                kind.len()
            })
        })
        .sum()
}
