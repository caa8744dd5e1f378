//! `cargo xtask servers`: MCP servers of others behind the binary, as a user would put them there.
//!
//! Installs the servers as `rigs/servers/` pins them, fills in `rigs/servers/longhaul.toml`, starts `longhaul serve`
//! on it, and runs `first-use.mjs`: a client of each generation, both at once. Then it shows what `longhaul servers`
//! says, and kills the server with -9: nothing of what it started may be left. `LONGHAUL_BINARY` names another binary
//! to judge.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Outcome, no_arguments,
    pinned::{self, Npm},
    program::Program,
    server::{Server, binary, empty_folder},
    workspace::{make_folder, read, write},
};

const RIG: &str = "rigs/servers";
/// Where the browser of Playwright is, by the names that distributions give it.
const BROWSERS: &[&str] = &[
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];
/// The most processes of Playwright, as the configuration says.
const PLAYWRIGHT_MAX: u64 = 3;
/// The longest that what a killed server started may live on.
const LEFT_MAX: Duration = Duration::from_secs(15);

pub(crate) fn run(arguments: &[String]) -> Outcome {
    no_arguments("servers", arguments)?;
    let npm = Npm::install(RIG, "servers/npm")?;
    let python = pinned::python("rigs/servers/requirements.txt", "servers/python")?;
    let binary = binary()?;
    let results = empty_folder("servers/results")?;
    let work = results.join("work");
    let repository = work.join("repository");
    repository_with_a_commit(&repository)?;
    let config = filled(&npm, &python, &work)?;
    write(&results.join("longhaul.toml"), &config)?;
    for script in ["clients.mjs", "first-use.mjs"] {
        write(&npm.folder().join(script), &read(&format!("{RIG}/{script}"))?)?;
    }
    let server = Server::start(&binary, &results, &results)?;
    ready(&binary, &results)?;
    Program::new(npm.node())
        .args([npm.folder().join("first-use.mjs")])
        .args([server.url()])
        .args([&work])
        .folder(npm.folder())
        .run()?;
    print!("{}", longhaul(&binary, &results, &["servers"])?);
    counted(&listed(&binary, &results)?)?;
    nothing_left(&server)
}

/// The configuration for this machine.
fn filled(npm: &Npm, python: &Path, work: &Path) -> Result<String, String> {
    let values = [
        ("${NODE}", npm.node()),
        ("${MODULES}", npm.modules()),
        ("${PYTHON}", python.to_path_buf()),
        ("${CHROMIUM}", browser()?),
        ("${WORK}", work.to_path_buf()),
    ];
    let mut config = read(&format!("{RIG}/longhaul.toml"))?;
    for (name, value) in values {
        config = config.replace(name, &value.display().to_string());
    }
    Ok(config)
}

/// The browser of Playwright.
///
/// # Errors
/// When this machine has none.
pub(crate) fn browser() -> Result<PathBuf, String> {
    let found = BROWSERS.iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| format!("no browser: none of {} is there", BROWSERS.join(", ")))
}

/// Makes a git repository with one commit.
///
/// # Errors
/// When `git` fails.
pub(crate) fn repository_with_a_commit(folder: &Path) -> Outcome {
    make_folder(folder)?;
    let git = |arguments: &[&str]| {
        Program::new("git")
            .args(["-c", "user.name=rig", "-c", "user.email=rig@example.org"])
            .args(arguments)
            .folder(folder)
            .run()
    };
    git(&["init", "--quiet"])?;
    git(&[
        "commit",
        "--quiet",
        "--allow-empty",
        "--message",
        "the first commit",
    ])
}

/// What a command of the binary prints.
fn longhaul(binary: &Path, results: &Path, arguments: &[&str]) -> Result<String, String> {
    Program::new(binary)
        .args(arguments)
        .args(["--state"])
        .args([results.join("state")])
        .output()
}

fn listed(binary: &Path, results: &Path) -> Result<Vec<Value>, String> {
    let text = longhaul(binary, results, &["servers", "--json"])?;
    let listed: Value =
        serde_json::from_str(&text).map_err(|error| format!("`servers --json` is not JSON: {error}"))?;
    Ok(listed["servers"].as_array().cloned().unwrap_or_default())
}

/// Waits until every server was reached.
///
/// # Errors
/// When one is not after a minute.
pub(crate) fn ready(binary: &Path, results: &Path) -> Outcome {
    let start = Instant::now();
    loop {
        let servers = listed(binary, results)?;
        if !servers.is_empty() && servers.iter().all(|server| server["state"] == "ready") {
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("not every server was reached: {servers:#?}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Two users had a browser each, and no server has more processes than it may.
fn counted(servers: &[Value]) -> Outcome {
    for server in servers {
        let (processes, most) = (server["processes"].as_u64(), server["processes_max"].as_u64());
        if processes > most {
            return Err(format!(
                "{} has {processes:?} processes, at most {most:?} may be",
                server["name"]
            ));
        }
    }
    let playwright = servers.iter().find(|server| server["name"] == "playwright");
    match playwright.and_then(|server| server["processes"].as_u64()) {
        Some(2..=PLAYWRIGHT_MAX) => Ok(()),
        count => Err(format!("two users of Playwright, and {count:?} processes of it")),
    }
}

/// Kills the server, and waits until nothing that it started is left.
fn nothing_left(server: &Server) -> Outcome {
    let started = descendants(server.pid())?;
    Program::new("kill")
        .args(["-9", &server.pid().to_string()])
        .run()?;
    let start = Instant::now();
    loop {
        let left = started.iter().filter(|pid| is_alive(**pid)).count();
        if left == 0 {
            println!(
                "killed with -9: of the {} processes that it started none is left",
                started.len()
            );
            return Ok(());
        }
        if start.elapsed() > LEFT_MAX {
            return Err(format!("{left} processes of the killed server are left"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// All that a process has started, and what that has.
fn descendants(of: u32) -> Result<Vec<u32>, String> {
    let table = fs::read_dir("/proc").map_err(|error| format!("cannot read `/proc`: {error}"))?;
    let pairs: Vec<(u32, u32)> = table
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, parent(pid)?))
        })
        .collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(pairs.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    Ok(found.split_off(1))
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Whether it runs; one that nobody has waited for does not.
fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}
