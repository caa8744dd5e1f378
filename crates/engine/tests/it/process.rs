//! Children that are real: shell and Python scripts under the real shim, looked at through `/proc`.
//!
//! The shim is the binary `engine-rig` (`tests/it/rig.rs`), which also plays the gateway where one must be killed.

mod ending;
mod limits;
mod starting;
mod streams;

use std::{
    future::Future,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use longhaul_engine::process::{self, Ended, Fact, Facts, Input, Limits, Lines, Orders, Shim, Spec};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

/// No step of a test takes longer than this on a machine that is merely busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A shell script in a directory of its own.
fn script(directory: &TempDir, text: &str) -> Spec {
    command(directory, &["/bin/sh", "-c", text])
}

fn command(directory: &TempDir, argv: &[&str]) -> Spec {
    Spec {
        program: argv[0].into(),
        argv: argv.iter().map(Into::into).collect(),
        cwd: directory.path().into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        input: Input::Nothing,
        timeout: None,
        idle_timeout: None,
        memory_max: None,
        nice: 0,
        grace: Duration::from_millis(300),
        limits: Limits::default(),
        lines: Lines::Neither,
        mark: mark(),
        runner: "a-runner".into(),
        attempt: 1,
        idempotency_key: None,
        spool: directory.path().into(),
        shim: shim(),
    }
}

fn shim() -> Shim {
    Shim {
        program: env!("CARGO_BIN_EXE_engine-rig").into(),
        args: vec!["shim".into()],
    }
}

/// A mark that no other test has.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "task-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

async fn start(spec: Spec) -> (Facts, Orders) {
    process::start(spec).await.expect("the program starts")
}

/// Runs it to its end.
async fn run(spec: Spec) -> Box<Ended> {
    let (facts, _orders) = start(spec).await;
    ended(facts).await
}

async fn ended(facts: Facts) -> Box<Ended> {
    timeout(PATIENCE, facts.ended())
        .await
        .expect("it ends in time")
        .expect("the end is told")
}

async fn next(facts: &mut Facts) -> Fact {
    timeout(PATIENCE, facts.next())
        .await
        .expect("a fact in time")
        .expect("a fact")
}

/// Looks until `condition` holds; fails with its name when that takes too long.
async fn until(name: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {name}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the scripts have written their process ids to these files.
async fn pids<const N: usize>(directory: &Path, names: [&str; N]) -> [i32; N] {
    let read = |name: &str| {
        std::fs::read_to_string(directory.join(name))
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    };
    until("every script has written its process id", PATIENCE, || {
        names.iter().all(|name| read(name).is_some())
    })
    .await;
    names.map(|name| read(name).expect("a process id"))
}

/// The fields of `/proc/PID/stat` after the name: state, parent, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

fn parent(pid: i32) -> i32 {
    stat(pid).expect("a live process")[1].parse().expect("a number")
}

fn signal(pid: i32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("the signal is sent");
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    timeout(limit, future).await.expect("in time")
}
