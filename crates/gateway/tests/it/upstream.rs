//! Servers behind the gateway that are real processes: `fixtures/mcp_server.py`, plain or hostile.

mod connection;
mod http;
mod server;
mod stdio;

use std::{future::Future, path::Path, time::Duration};

use longhaul_engine::process::Shim;
use longhaul_gateway::upstream::stdio::{Host, Program};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::support::FIXTURE;

/// Longer than anything here takes on a busy machine; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

fn host(spool: &TempDir) -> Host {
    Host {
        shim: Shim {
            program: env!("CARGO_BIN_EXE_gateway-rig").into(),
            args: Vec::new(),
        },
        runner: "runner".to_owned(),
        spool: spool.path().to_owned(),
        grace: Duration::from_millis(300),
    }
}

fn fixture(options: &[&str]) -> Program {
    let command = ["python3", FIXTURE, "stdio"].iter().chain(options);
    Program {
        server: "fixture".to_owned(),
        command: command.map(Into::into).collect(),
        folder: Path::new("/").to_owned(),
        cwd: std::env::temp_dir(),
        env: vec![
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("PYTHONDONTWRITEBYTECODE".into(), "1".into()),
        ],
        memory_max: None,
        nice: 0,
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    timeout(limit, future).await.expect("in time")
}

/// Looks until `condition` holds; fails with its name when that takes too long.
async fn until(name: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {name}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, fields)| fields.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// A field of `/proc/self/status`, in bytes.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("the line");
    let number = line.trim().trim_end_matches(" kB").parse::<u64>();
    number.expect("a number") * 1024
}
