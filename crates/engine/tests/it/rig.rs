//! Programs that the tests of `process` need beside themselves: the shim, and a gateway that can be killed.
//!
//! Started by `tests/it/process.rs` only. `engine-rig shim` is the shim. `engine-rig gateway DIR SCRIPT MARK GRACE_MS`
//! is a gateway that runs one script: it prints `started PID`, stops the script when its standard input ends, and
//! prints `ended …` with the facts; `plain-gateway` is the same and no subreaper. `engine-rig ask` is a command
//! that asks on the descriptor and prints the answer.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use longhaul_engine::process::{self, Input, Limits, Lines, Shim, Spec};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("shim") => process::shim::main(),
        Some("gateway") => {
            process::become_subreaper().expect("become a subreaper");
            gateway(arguments.collect())
        }
        Some("plain-gateway") => gateway(arguments.collect()),
        Some("ask") => ask(),
        Some(_) | None => ExitCode::from(2),
    }
}

fn ask() -> ExitCode {
    let socket = UnixStream::from(process::descriptor().expect("the descriptor"));
    (&socket).write_all(b"{\"ask\":1}\n").expect("it is sent");
    let mut answer = String::new();
    BufReader::new(&socket)
        .read_line(&mut answer)
        .expect("it is answered");
    say(answer.trim());
    ExitCode::SUCCESS
}

fn gateway(arguments: Vec<String>) -> ExitCode {
    let [directory, script, mark, grace_ms] = <[String; 4]>::try_from(arguments).expect("four arguments");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(
        directory.into(),
        script,
        mark,
        grace_ms.parse().expect("a number"),
    ));
    // A thread that still reads standard input would hold the runtime up.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

async fn run(directory: PathBuf, script: String, mark: String, grace_ms: u64) {
    let spool = directory.join("spool");
    std::fs::create_dir(&spool).expect("a spool");
    let spec = Spec {
        program: "/bin/sh".into(),
        argv: vec!["sh".into(), "-c".into(), script.into()],
        cwd: directory.clone(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        input: Input::Nothing,
        timeout: None,
        idle_timeout: None,
        memory_max: None,
        nice: 0,
        grace: Duration::from_millis(grace_ms),
        limits: Limits::default(),
        lines: Lines::Neither,
        runner: format!("runner-of-{mark}"),
        mark,
        attempt: 1,
        idempotency_key: None,
        spool,
        shim: Shim {
            program: std::env::current_exe().expect("own path"),
            args: vec!["shim".into()],
        },
    };
    let (facts, orders) = process::start(spec).await.expect("the script starts");
    say(&format!("started {}", orders.pid()));
    tokio::task::spawn_blocking(move || {
        let _until_the_end = io::stdin().read_to_end(&mut Vec::new());
        orders.stop();
    });
    let ended = facts.ended().await.expect("an end");
    say(&format!("ended {:?} confirmed={}", ended.reason, ended.confirmed));
}

fn say(line: &str) {
    let mut out = io::stdout();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("standard output");
}
