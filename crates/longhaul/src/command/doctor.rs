//! `longhaul doctor`: looks at everything that Longhaul needs on this machine, and says how to mend what is wrong.
//!
//! It changes nothing. Each check is one row; a broken one makes the command fail.

use std::{fs, net::TcpListener, os::unix::fs::MetadataExt, path::Path, time::UNIX_EPOCH};

use longhaul_engine::process;
use longhaul_gateway::{
    admin::api::{Health, ServerState},
    command,
    config::Loaded,
    local::notice::Program,
    upstream,
};
use serde::Serialize;

use crate::{
    client::Client,
    desktop::{clients::Home, look},
    exit::{Exit, Failure, Outcome},
    flags::Common,
    places::{self, State},
    screen::{self, line, say, say_json},
};

/// Runs the command.
pub(crate) async fn doctor(common: &Common) -> Outcome {
    let mut rows = vec![row("version", env!("CARGO_PKG_VERSION").to_owned()), platform()];
    let (state, mut running) = (State::find(common), Vec::new());
    let health = match &state {
        Ok(state) => server(state, &mut running).await,
        Err(_) => None,
    };
    let loaded = configuration(common, health.as_ref(), &mut rows);
    match state {
        Err(failure) => rows.push(broken("state", failure)),
        Ok(state) => {
            rows.push(directory(&state));
            rows.push(store(&state, loaded.as_ref()));
            rows.append(&mut running);
            match (&health, &loaded) {
                (Some(health), _) => {
                    read_by(health, &mut rows);
                    rows.push(notices(health.notices.as_ref(), health.no_notices.as_deref()));
                    behind(&state, &mut rows).await;
                }
                (None, Some(loaded)) => {
                    rows.push(address(loaded));
                    let env: Vec<_> = std::env::vars_os().collect();
                    let found = Program::find(&loaded.config.local.notify, &env, Path::new("/"));
                    let program = found.as_ref().ok().map(|found| found.file.display().to_string());
                    let why = found.err().map(|why| why.to_string());
                    rows.push(notices(program.as_ref(), why.as_deref()));
                    unasked(loaded, &mut rows);
                }
                (None, None) => {}
            }
        }
    }
    rows.push(subreaper());
    rows.push(cgroup());
    clients(&mut rows);
    if let Some(loaded) = &loaded {
        programs(loaded, &mut rows);
    }
    let exit = match rows.iter().any(|row| row.verdict == Verdict::Broken) {
        true => Exit::Failed,
        false => Exit::Done,
    };
    if common.json {
        say_json(&serde_json::json!({ "checks": rows }))?;
    } else {
        print(&rows);
    }
    Ok(exit)
}

#[derive(Serialize)]
struct Row {
    check: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Fine,
    Odd,
    Broken,
}

fn row(check: &'static str, found: String) -> Row {
    Row {
        check,
        verdict: Verdict::Fine,
        found,
        fix: None,
    }
}

fn odd(check: &'static str, found: String, fix: impl Into<String>) -> Row {
    Row {
        check,
        verdict: Verdict::Odd,
        found,
        fix: Some(fix.into()),
    }
}

fn broken(check: &'static str, failure: Failure) -> Row {
    Row {
        check,
        verdict: Verdict::Broken,
        found: failure.message,
        fix: failure.fix,
    }
}

fn platform() -> Row {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    match (os, arch) {
        ("linux", "x86_64" | "aarch64") => row("platform", format!("{os} {arch}")),
        ("macos", _) => odd(
            "platform",
            format!("{os} {arch}"),
            "untested; a process that leaves its session can survive a cancel",
        ),
        (_, _) => odd("platform", format!("{os} {arch}"), "untested"),
    }
}

/// The configuration of this command, and where it has none, that of the server that runs.
fn configuration(common: &Common, health: Option<&Health>, rows: &mut Vec<Row>) -> Option<Loaded> {
    let read = health.and_then(|health| health.config.first());
    let read = read.map(|file| line(file));
    let with = |file: &str| format!("longhaul --config {file} doctor");
    match places::load(common, true) {
        Err(failure) => {
            let failure = match &read {
                Some(file) if failure.reason == "no_config" => failure.fix(with(file)),
                Some(_) | None => failure,
            };
            rows.push(broken("config", failure));
            None
        }
        Ok(loaded) => {
            rows.push(match (loaded.files.first(), &read) {
                (Some(file), _) => row(
                    "config",
                    format!("{}; {}", file.display(), screen::declared(&loaded.config)),
                ),
                (None, Some(file)) => odd(
                    "config",
                    format!("none for this command; the running server reads {file}"),
                    with(file),
                ),
                (None, None) => odd(
                    "config",
                    "none; the defaults hold and there are no tools".into(),
                    "longhaul config init",
                ),
            });
            for warning in &loaded.warnings {
                rows.push(Row {
                    check: "config",
                    verdict: Verdict::Odd,
                    found: warning.to_string(),
                    fix: None,
                });
            }
            Some(loaded)
        }
    }
}

fn directory(state: &State) -> Row {
    let dir = state.dir.display();
    match fs::metadata(&state.dir) {
        Err(_) => row("state", format!("{dir}; made by the first server")),
        Ok(found) if !found.is_dir() => broken(
            "state",
            Failure::usage(format!("{dir} is not a directory")).fix("pass --state DIR"),
        ),
        Ok(found) if found.uid() != 0 && nix::unistd::geteuid().is_root() => {
            row("state", format!("{dir}; of the user with uid {}", found.uid()))
        }
        Ok(found) if found.uid() != nix::unistd::geteuid().as_raw() => broken(
            "state",
            Failure::usage(format!("{dir} belongs to another user (uid {})", found.uid()))
                .fix("pass --state DIR"),
        ),
        Ok(found) if found.mode() & 0o077 != 0 => broken(
            "state",
            Failure::usage(format!(
                "{dir} is open to others (mode {:o})",
                found.mode() & 0o777
            ))
            .fix(format!("chmod 700 {dir}")),
        ),
        Ok(_) => row("state", dir.to_string()),
    }
}

fn store(state: &State, loaded: Option<&Loaded>) -> Row {
    let settings = loaded.map(|loaded| &loaded.config.store);
    if let Some(url) = settings
        .map(|store| store.url.as_str())
        .filter(|url| *url != "sqlite")
    {
        let kind = url.split(':').next().unwrap_or(url);
        return row("store", line(kind));
    }
    let path = settings
        .and_then(|store| store.path.clone())
        .unwrap_or_else(|| state.dir.join("longhaul.db"));
    let mode = fs::metadata(&path).map(|found| (found.len(), found.mode()));
    match mode {
        Err(_) => row("store", format!("{}; made by the first server", path.display())),
        Ok((_, mode)) if mode & 0o077 != 0 => {
            let found = format!("{} is open to others (mode {:o})", path.display(), mode & 0o777);
            odd("store", found, format!("chmod 600 {}", path.display()))
        }
        Ok((bytes, _)) => row(
            "store",
            format!("{}; {} KiB", path.display(), bytes.div_ceil(1024)),
        ),
    }
}

/// A file of the configuration that is newer than what the running server read.
pub(super) fn changed(health: &Health) -> Option<&str> {
    let is_newer = |file: &&String| {
        let changed = fs::metadata(file).and_then(|found| found.modified()).ok();
        let changed = changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        changed.is_some_and(|at| at.as_millis() > u128::from(health.started_at_ms))
    };
    health.config.iter().find(is_newer).map(String::as_str)
}

/// Which configuration the running server reads.
fn read_by(health: &Health, rows: &mut Vec<Row>) {
    let Some(file) = health.config.first() else {
        return;
    };
    match changed(health) {
        Some(changed) => rows.push(odd(
            "config",
            format!("{} was changed after the running server read it", line(changed)),
            "longhaul serve --replace",
        )),
        None => rows.push(row("config", format!("the running server reads {}", line(file)))),
    }
}

async fn server(state: &State, rows: &mut Vec<Row>) -> Option<Health> {
    let socket = state.socket();
    match Client::new(socket.clone()).health().await {
        Ok(health) => {
            rows.push(row("socket", socket.display().to_string()));
            let found = format!(
                "version {}, pid {}, {} open of {} tasks",
                line(&health.version),
                health.pid,
                health.open,
                health.tasks
            );
            match health.version == env!("CARGO_PKG_VERSION") {
                true => rows.push(row("server", found)),
                false => rows.push(odd(
                    "server",
                    found,
                    "restart it: this command is of another version",
                )),
            }
            if let Some(mcp) = &health.mcp {
                rows.push(row("mcp", line(mcp)));
            }
            for problem in &health.problems {
                rows.push(Row {
                    check: "server",
                    verdict: Verdict::Broken,
                    found: line(problem),
                    fix: None,
                });
            }
            Some(health)
        }
        Err(failure) if failure.exit == Exit::Unreachable => {
            rows.push(odd(
                "server",
                format!("none on {}", socket.display()),
                "longhaul serve",
            ));
            None
        }
        Err(failure) => {
            rows.push(broken("server", failure));
            None
        }
    }
}

/// How the servers behind are, and what each toolset has, as the server that runs says.
async fn behind(state: &State, rows: &mut Vec<Row>) {
    let listed = match Client::new(state.socket()).servers().await {
        Ok(listed) => listed,
        Err(failure) => return rows.push(broken("behind", failure)),
    };
    for server in &listed.servers {
        let name = line(&server.name);
        let show = format!("longhaul servers show {name}");
        rows.push(match server.state {
            ServerState::Ready => {
                let tools = screen::counted(server.tools, "tool");
                row("behind", format!("{name}: ready; {tools}"))
            }
            ServerState::Disabled => row("behind", format!("{name}: disabled")),
            ServerState::Starting => odd("behind", format!("{name}: not reached yet"), show),
            ServerState::Degraded => {
                let why = line(server.why.as_deref().unwrap_or_default());
                broken("behind", Failure::usage(format!("{name}: {why}")).fix(show))
            }
        });
    }
    for toolset in &listed.toolsets {
        let found = screen::toolset(toolset);
        rows.push(match toolset.unmatched.as_slice() {
            [] => row("toolset", found),
            unmatched => odd(
                "toolset",
                format!("{found}; these fit no tool: {}", line(&unmatched.join(", "))),
                "longhaul servers show NAME lists the tools of a server; one that was not reached yet has none",
            ),
        });
    }
}

/// Whether the address is free, when no server of ours holds it.
fn address(loaded: &Loaded) -> Row {
    let bind = loaded.config.server.bind;
    match TcpListener::bind(bind) {
        Ok(_) => row("address", format!("{bind} is free")),
        Err(error) => broken(
            "address",
            Failure::usage(format!("{bind} cannot be bound: {error}"))
                .fix("longhaul serve --bind 127.0.0.1:PORT"),
        ),
    }
}

/// How the user hears of a question that no client shows.
fn notices(program: Option<&String>, why_not: Option<&str>) -> Row {
    let found = match program {
        Some(program) => format!("questions that no client shows are told of by {}", line(program)),
        None => format!(
            "none: {}; such questions wait in `longhaul tasks` and on the page",
            line(why_not.unwrap_or("the server is older"))
        ),
    };
    row("notices", found)
}

fn subreaper() -> Row {
    match process::become_subreaper() {
        Ok(()) => row(
            "processes",
            "a killed tool leaves nothing behind (subreaper)".to_owned(),
        ),
        Err(error) => odd(
            "processes",
            format!("no subreaper here: {error}"),
            "a process that leaves its session can survive a cancel",
        ),
    }
}

fn cgroup() -> Row {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(path) = path else {
        return row("cgroup", "no cgroup v2; not needed".to_owned());
    };
    let directory = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let writable =
        nix::unistd::access(&directory.join("cgroup.procs"), nix::unistd::AccessFlags::W_OK).is_ok();
    match writable {
        true => row(
            "cgroup",
            format!("{} (writable; not needed)", directory.display()),
        ),
        false => row(
            "cgroup",
            "cgroup v2, not delegated; not needed: the shim follows the process tree".to_owned(),
        ),
    }
}

fn programs(loaded: &Loaded, rows: &mut Vec<Row>) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (name, tool) in &loaded.config.tools {
        let Some(program) = tool.command.items.first().and_then(|(_, item)| item.literal()) else {
            continue;
        };
        match command::program(tool, &program, &path) {
            Ok(found) => rows.push(row("tool", format!("{}: {}", line(name), found.display()))),
            Err(error) => {
                rows.push(broken(
                    "tool",
                    Failure::usage(format!("{}: cannot {error}", line(name))),
                ));
            }
        }
    }
}

/// What can be said of the servers behind where no server runs that could be asked.
fn unasked(loaded: &Loaded, rows: &mut Vec<Row>) {
    let env: Vec<_> = std::env::vars_os().collect();
    for server in loaded.config.servers_in_order() {
        let name = line(&server.name);
        let faults = upstream::place::faults(server, &env);
        rows.push(match faults.as_slice() {
            [] => row("behind", format!("{name}: not asked, since no server runs")),
            faults => broken(
                "behind",
                Failure::usage(format!("{name}: {}", line(&faults.join("; ")))),
            ),
        });
    }
}

/// The clients on this machine, and what they could not start.
fn clients(rows: &mut Vec<Row>) {
    let Some(home) = Home::find() else {
        return;
    };
    for found in look::look(&home) {
        let name = found.client.name();
        let install = format!("longhaul install {name}");
        rows.push(match &found.servers {
            Err(why) => odd(
                "client",
                format!("{name}: cannot read {}: {}", line(&found.file), line(why)),
                "mend the file; Longhaul changes only what it can read",
            ),
            Ok((all, 0)) => row(
                "client",
                format!(
                    "{name}: none of {} through Longhaul ({install})",
                    screen::counted(*all, "server")
                ),
            ),
            Ok((all, ours)) => row(
                "client",
                format!(
                    "{name}: {ours} of {} through Longhaul",
                    screen::counted(*all, "server")
                ),
            ),
        });
        for missing in found.missing {
            let mut text = format!(
                "{name}: cannot start `{}` for server `{}`: not found",
                line(&missing.program),
                line(&missing.server)
            );
            if let Some(path) = &missing.path {
                text.push_str(&format!(
                    "\nPATH here       {}   (what the client passes)",
                    line(path)
                ));
            }
            if let Some(shell) = &missing.shell {
                text.push_str(&format!("\nyour shell has  {}", line(shell)));
            }
            let fix = match missing.shell {
                Some(_) => format!("{install}   (writes full paths)"),
                None => format!("install `{}`, or take the server out", line(&missing.program)),
            };
            rows.push(Row {
                check: "client",
                verdict: if missing.is_ours {
                    Verdict::Broken
                } else {
                    Verdict::Odd
                },
                found: text,
                fix: Some(fix),
            });
        }
    }
}

fn print(rows: &[Row]) {
    for row in rows {
        let word = match row.verdict {
            Verdict::Fine => "ok",
            Verdict::Odd => "odd",
            Verdict::Broken => "BROKEN",
        };
        let mut found = row.found.lines();
        say(format!(
            "{word:<7} {:<10} {}",
            row.check,
            line(found.next().unwrap_or_default())
        ));
        for more in found {
            say(format!("{:<18} {}", "", line(more)));
        }
        if let Some(fix) = &row.fix {
            say(format!("{:<18} fix: {}", "", line(fix)));
        }
    }
}
