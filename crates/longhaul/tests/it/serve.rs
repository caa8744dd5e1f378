//! A real server and the commands that reach it: run, ask, cancel, kill -9.

use longhaul_engine::clock;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::Rig;

pub(crate) const TOOLS: &str = r#"
[tools.echo]
description = "Prints its text"
command = ["echo", "{text}"]
args.text = "string"

[tools.fails]
description = "Fails"
command = ["sh", "-c", "echo out; echo wrong >&2; exit 3"]

[tools.asks]
description = "Asks where"
command = ["sh", "-c", "longhaul ask --text 'Which region?' --choices eu,us; echo code $?"]

[tools.sleeps]
description = "Sleeps"
command = ["sleep", "600"]

[tools.again]
description = "The first attempt never ends, the second does"
command = ["sh", "-c", "test $LONGHAUL_ATTEMPT = 1 && sleep 600; echo attempt $LONGHAUL_ATTEMPT"]
on_crash = "rerun"
"#;

#[test]
fn run_prints_the_result_and_ends_as_the_tool_did() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    let ran = rig.run(&["run", "echo", "text=a=b \u{1b}[2J"]);
    assert_eq!((ran.code, ran.out.trim()), (0, "a=b [2J"), "{ran:?}");
    let ran = rig.run(&["--json", "run", "echo", "text=x"]);
    let outcome: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(outcome["state"], "done", "{outcome:#}");
    let ran = rig.run(&["run", "fails"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("wrong"), "{ran:?}");
}

#[test]
fn a_tool_or_argument_that_does_not_exist_is_named() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    let ran = rig.run(&["run", "eccho"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("echo"), "{ran:?}");
    let ran = rig.run(&["run", "echo", "txt=a"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err.contains("txt") && ran.err.contains("text=TEXT"),
        "{ran:?}"
    );
    assert_eq!(rig.run(&["tasks", "zzzzzz"]).code, 3);
}

#[test]
fn equal_calls_under_one_key_are_one_task() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    let first = rig.start(&["echo", "text=x", "--key", "k"]);
    assert_eq!(rig.start(&["echo", "text=x", "--key", "k"]), first);
}

#[test]
fn a_question_is_answered_from_the_command_line() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    let name = rig.start(&["asks"]);
    rig.until_state(&name, "asking");
    let listed = rig.run(&["tasks"]).out;
    assert!(listed.contains(&format!("longhaul answer {name}")), "{listed}");
    let misfit = rig.run(&["answer", &name, "moon"]);
    assert_eq!(misfit.code, 2, "{misfit:?}");
    let answered = rig.run(&["answer", &name, "us"]);
    assert_eq!(answered.code, 0, "{answered:?}");
    rig.until_state(&name, "done");
    assert_eq!(rig.run(&["tasks", "result", &name]).out.trim(), "us\ncode 0");
    assert_eq!(rig.run(&["answer", &name, "us"]).code, 4);
}

#[test]
fn a_declined_question_reaches_the_tool_as_its_own_exit_code() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    for (flag, code) in [("--decline", "code 10"), ("--dismiss", "code 11")] {
        let name = rig.start(&["asks"]);
        rig.until_state(&name, "asking");
        assert_eq!(rig.run(&["answer", &name, flag]).code, 0);
        rig.until_state(&name, "done");
        assert_eq!(rig.run(&["tasks", "result", &name]).out.trim(), code);
    }
}

#[test]
fn cancel_says_that_nothing_is_left_and_the_waiting_run_ends_as_cancelled() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    let name = rig.start(&["sleeps"]);
    rig.until_state(&name, "running");
    let cancelled = rig.run(&["cancel", &name]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert!(cancelled.out.contains("nothing of it is left"), "{cancelled:?}");
    assert_eq!(rig.run(&["tasks", "watch", &name]).code, 6);
}

#[test]
fn after_kill_9_one_task_is_lost_and_the_other_runs_again() {
    let rig = Rig::new(TOOLS);
    let mut server = rig.serve();
    let finished = rig.start(&["echo", "text=kept"]);
    rig.until_state(&finished, "done");
    let before = rig.run(&["--json", "tasks", "result", &finished]).out;
    let (lost, again) = (rig.start(&["sleeps"]), rig.start(&["again"]));
    for name in [&lost, &again] {
        rig.until(name, |task| task["state"] == "running" && task["attempts"] == 1);
    }
    server.kill();
    let _server = rig.serve();
    let task = rig.run(&["--json", "tasks", "get", &lost]).out;
    let task: Value = serde_json::from_str(&task).unwrap();
    assert_eq!(
        (&task["state"], &task["reason"]),
        (&"lost".into(), &"interrupted".into()),
        "{task:#}"
    );
    rig.until_state(&again, "done");
    assert_eq!(rig.run(&["tasks", "result", &again]).out.trim(), "attempt 2");
    assert_eq!(rig.run(&["--json", "tasks", "result", &finished]).out, before);
}

#[test]
fn a_second_server_on_the_same_database_works_without_the_socket() {
    let rig = Rig::new(TOOLS);
    let mut first = rig.serve();
    let second = rig.serve();
    assert_eq!(rig.run(&["run", "echo", "text=x"]).code, 0);
    first.signal(Signal::SIGTERM);
    assert!(first.ended().success());
    assert_eq!(
        rig.run(&["cancel", "zzzzzz"]).code,
        5,
        "the socket went with the server that held it"
    );
    drop(second);
}

#[test]
fn a_second_signal_ends_the_drain() {
    let rig = Rig::new(TOOLS);
    let mut server = rig.serve();
    let name = rig.start(&["sleeps"]);
    rig.until_state(&name, "running");
    server.signal(Signal::SIGTERM);
    // Signals of one kind that wait are one signal: the second is of another kind.
    server.signal(Signal::SIGINT);
    let begun = clock::monotonic();
    assert!(server.ended().success());
    assert!(begun.elapsed().as_secs() < 25, "a drain alone takes 30 s");
}

#[test]
fn a_port_in_use_is_said_with_the_flag_that_mends_it() {
    let rig = Rig::new(TOOLS);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = rig.run(&["serve", "--bind", &address]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err.contains("in use") && ran.err.contains("--bind"),
        "{ran:?}"
    );
}

#[test]
fn run_starts_a_server_where_there_is_none() {
    let rig = Rig::new(TOOLS);
    let ran = rig.run(&["run", "echo", "text=hello"]);
    assert_eq!((ran.code, ran.out.trim()), (0, "hello"), "{ran:?}");
    assert!(ran.err.contains("starting one in the background"), "{ran:?}");
    let doctor = rig.run(&["--json", "doctor"]).out;
    let pid = doctor
        .split_once("pid ")
        .unwrap()
        .1
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).unwrap();
}

#[test]
fn logs_never_hold_arguments_or_results() {
    let rig = Rig::new(TOOLS);
    let _server = rig.serve();
    rig.run(&["run", "echo", "text=sesame-1234"]);
    let logs = rig.run(&["logs", "-n", "1000"]);
    assert_eq!(logs.code, 0, "{logs:?}");
    assert!(
        logs.out.contains("ready") && !logs.out.contains("sesame"),
        "{logs:?}"
    );
}

#[test]
fn the_demo_ends_as_it_promises() {
    let home = tempfile::tempdir().unwrap();
    let ran = crate::support::plain(&["demo"], home.path());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.out.contains("lost") && ran.out.contains("done in attempt 2"),
        "{}",
        ran.out
    );
}

#[test]
fn a_restart_of_a_server_that_stays_down_fails_with_its_reason() {
    let rig = Rig::new("[servers.gone]\ncommand = [\"/no/such/program\"]\n");
    let _server = rig.serve();
    let ran = rig.run(&["servers", "restart", "gone"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.out.contains("degraded") && ran.out.contains("/no/such/program"),
        "{ran:?}"
    );
    assert_eq!(rig.run(&["servers", "restart", "other"]).code, 3);
}

#[test]
fn a_restart_of_a_disabled_server_says_why_nothing_was_started() {
    let rig = Rig::new("[servers.off]\ncommand = [\"true\"]\ndisabled = true\n");
    let _server = rig.serve();
    let ran = rig.run(&["servers", "restart", "off"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("disabled in the configuration"), "{ran:?}");
}

#[test]
fn an_address_that_our_own_server_has_is_said_with_how_to_take_its_place() {
    let rig = Rig::new(TOOLS);
    let server = rig.serve();
    let ran = rig.run(&["serve", "--bind", &server.address]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let pid = format!(
        "the Longhaul server that runs already (pid {})",
        server.child.id()
    );
    assert!(ran.err.contains(&pid) && ran.err.contains("--replace"), "{ran:?}");
}
