//! Nothing outlives its task: whatever the children do, whoever is killed.

use std::{process::Stdio, time::Duration};

use longhaul_engine::process::{self, Exit, Identity, Input, Reason};
use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout},
};

use super::*;

const STUBBORN: [&str; 4] = ["main", "child", "session", "double"];

/// Four processes that ignore TERM: the command, a child, one in a session of its own, one that was forked twice.
const SCRIPT: &str = r#"
trap '' TERM
wait_for_ever() { while :; do sleep 1; done; }
sh -c 'echo $$ > child; while :; do sleep 1; done' &
setsid sh -c 'echo $$ > session; while :; do sleep 1; done' &
(sh -c 'echo $$ > double; while :; do sleep 1; done' &)
echo $$ > main
wait_for_ever
"#;

#[tokio::test]
async fn p1_stop_ends_a_tree_that_ignores_term() {
    let directory = directory();
    let spec = script(&directory, SCRIPT);
    let limit = spec.grace + Duration::from_secs(1);
    let (facts, orders) = start(spec).await;
    let pids = pids(directory.path(), STUBBORN).await;

    let stopped = Instant::now();
    orders.stop();
    let ended = ended(facts).await;

    // R13: when the end is told, nothing is left, not a moment later.
    assert_eq!(pids.map(is_alive), [false; 4]);
    assert!(ended.confirmed);
    assert_eq!(
        (ended.reason, ended.exit),
        (Reason::Stopped, Some(Exit::Signal(9)))
    );
    assert!(stopped.elapsed() < limit, "took {:?}", stopped.elapsed());
    println!("cancel: 4 to 0 alive in {:?}", stopped.elapsed());
}

#[tokio::test]
async fn p1_stop_ends_a_child_that_hides_from_session_parent_and_mark() {
    let directory = directory();
    let hidden = "(env -i setsid sh -c 'trap \"\" TERM; echo $$ > hidden; while :; do /bin/sleep 1; done' &)\n\
                  echo $$ > main; while :; do sleep 1; done";
    let (facts, orders) = start(script(&directory, hidden)).await;
    let pids = pids(directory.path(), ["main", "hidden"]).await;
    orders.stop();
    let ended = ended(facts).await;
    assert_eq!(pids.map(is_alive), [false; 2]);
    assert!(ended.confirmed);
}

#[tokio::test]
async fn stop_gives_the_grace_to_a_program_that_ends_in_order() {
    let directory = directory();
    let mut spec = script(
        &directory,
        "trap 'echo saved; exit 3' TERM; echo $$ > main; while :; do sleep 0.05; done",
    );
    spec.grace = PATIENCE;
    let (facts, orders) = start(spec).await;
    pids(directory.path(), ["main"]).await;
    orders.stop();
    let ended = ended(facts).await;
    assert_eq!((ended.reason, ended.exit), (Reason::Stopped, Some(Exit::Code(3))));
    assert_eq!(ended.output.bytes, b"saved\n");
}

#[tokio::test]
async fn p3_a_frozen_child_ends_too() {
    let directory = directory();
    let (facts, orders) = start(script(&directory, SCRIPT)).await;
    let pids = pids(directory.path(), STUBBORN).await;
    pids.iter().for_each(|pid| signal(*pid, Signal::SIGSTOP));
    orders.stop();
    assert!(ended(facts).await.confirmed);
    assert_eq!(pids.map(is_alive), [false; 4]);
}

#[tokio::test]
async fn an_exit_is_told_only_when_what_it_left_behind_has_ended() {
    let directory = directory();
    let leaky = "setsid sh -c 'echo $$ > left; while :; do sleep 1; done' >/dev/null 2>&1 &\n\
                 while [ ! -s left ]; do :; done; echo done";
    let ended = run(script(&directory, leaky)).await;
    let pids = pids(directory.path(), ["left"]).await;
    assert_eq!(pids.map(is_alive), [false]);
    assert_eq!((ended.reason, ended.exit), (Reason::Exited, Some(Exit::Code(0))));
    assert!(ended.leaked >= 1, "the child that was left is counted");
    assert!(ended.confirmed);
    assert_eq!(ended.output.bytes, b"done\n");
}

#[tokio::test]
async fn dropping_the_facts_is_an_order_to_stop() {
    let directory = directory();
    let (facts, _orders) = start(script(&directory, SCRIPT)).await;
    let pids = pids(directory.path(), STUBBORN).await;
    drop(facts);
    until("nothing is left", PATIENCE, || {
        !pids.iter().any(|pid| is_alive(*pid))
    })
    .await;
}

#[tokio::test]
async fn dropping_the_orders_changes_nothing() {
    let directory = directory();
    let (facts, orders) = start(script(&directory, "sleep 0.2; exit 9")).await;
    drop(orders);
    let ended = ended(facts).await;
    assert_eq!((ended.reason, ended.exit), (Reason::Exited, Some(Exit::Code(9))));
}

#[tokio::test]
async fn p2_a_program_outlives_the_thread_that_started_it() {
    let directory = directory();
    let mut spec = script(&directory, "read line; exit 7");
    spec.input = Input::Open;
    let runtime = tokio::runtime::Handle::current();
    let thread = std::thread::spawn(move || runtime.block_on(process::start(spec)));
    let (facts, orders) = tokio::task::spawn_blocking(|| thread.join().expect("the thread ends"))
        .await
        .expect("the thread is joined")
        .expect("the program starts");
    orders.write(b"go\n".to_vec()).await.expect("it still reads");
    assert_eq!(ended(facts).await.exit, Some(Exit::Code(7)));
}

/// A gateway in a process of its own, which runs [`SCRIPT`].
struct Gateway {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
    shim: i32,
    directory: TempDir,
    mark: String,
}

const GRACE: Duration = Duration::from_millis(500);

impl Gateway {
    async fn start() -> Gateway {
        let (directory, mark) = (directory(), mark());
        #[expect(
            clippy::disallowed_methods,
            reason = "the gateway of this test is itself a process that is killed"
        )]
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_engine-rig"))
            .arg("gateway")
            .arg(directory.path())
            .args([SCRIPT, &mark, &GRACE.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the rig starts");
        let said = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut gateway = Gateway {
            process,
            said,
            shim: 0,
            directory,
            mark,
        };
        let started = gateway.line().await;
        let pid = started
            .strip_prefix("started ")
            .expect("the script started")
            .parse()
            .expect("a number");
        gateway.shim = parent(pid);
        gateway
    }

    async fn line(&mut self) -> String {
        within(PATIENCE, self.said.next_line())
            .await
            .expect("readable")
            .expect("a line")
    }

    fn pid(&self) -> i32 {
        self.process
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .expect("it lives")
    }
}

#[tokio::test]
async fn p1_a_killed_gateway_leaves_nothing() {
    let gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    let killed = Instant::now();
    signal(gateway.pid(), Signal::SIGKILL);
    let limit = GRACE + Duration::from_secs(1);
    until("nothing is left, the shim included", limit, || {
        !pids.iter().chain([&gateway.shim]).any(|pid| is_alive(*pid))
    })
    .await;
    println!("gateway killed: 5 to 0 alive in {:?}", killed.elapsed());
}

#[tokio::test]
async fn p1_a_killed_shim_leaves_nothing() {
    let mut gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    let killed = Instant::now();
    signal(gateway.shim, Signal::SIGKILL);
    assert_eq!(gateway.line().await, "ended ShimLost confirmed=true");
    assert_eq!(pids.map(is_alive), [false; 4]);
    assert!(
        killed.elapsed() < GRACE + Duration::from_secs(1),
        "took {:?}",
        killed.elapsed()
    );
    println!("shim killed: 4 to 0 alive in {:?}", killed.elapsed());
}

#[tokio::test]
async fn p3_a_frozen_shim_does_not_hold_up_the_stop_for_ever() {
    let mut gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    signal(gateway.shim, Signal::SIGSTOP);
    drop(gateway.process.stdin.take());
    assert_eq!(gateway.line().await, "ended Stopped confirmed=true");
    assert_eq!(pids.map(is_alive), [false; 4]);
}

#[tokio::test]
async fn a_terminated_shim_kills_its_tree_at_once() {
    let mut gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    signal(gateway.shim, Signal::SIGTERM);
    assert_eq!(gateway.line().await, "ended Stopped confirmed=true");
    assert_eq!(pids.map(is_alive), [false; 4]);
}

/// The gateway and the shim die together, so that nobody is left who knows the tree.
async fn orphaned() -> ([i32; 4], String) {
    let mut gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    signal(gateway.pid(), Signal::SIGSTOP);
    signal(gateway.shim, Signal::SIGKILL);
    signal(gateway.pid(), Signal::SIGKILL);
    gateway.process.wait().await.expect("the gateway is reaped");
    until("the shim is gone", PATIENCE, || !is_alive(gateway.shim)).await;
    assert_eq!(pids.map(is_alive), [true; 4], "only a sweep can end these");
    (pids, format!("runner-of-{}", gateway.mark))
}

#[tokio::test]
async fn p1_a_sweep_ends_what_a_dead_runner_left() {
    let (pids, runner) = orphaned().await;
    let boot = process::identity().expect("an identity").boot;
    let dead = Identity {
        boot,
        pid: 1,
        started: 1,
    };
    let swept = within(PATIENCE, process::sweep(&runner, &dead)).await;
    assert_eq!(pids.map(is_alive), [false; 4]);
    assert!(
        swept.confirmed && swept.left == 0 && swept.ended >= 4,
        "{swept:?}"
    );

    let again = process::sweep(&runner, &dead).await;
    assert_eq!((again.ended, again.confirmed), (0, true));
}

#[tokio::test]
async fn a_sweep_lets_the_shims_end_their_trees_and_touches_no_other_runner() {
    let (directory, other) = (directory(), directory());
    let mut spec = script(
        &directory,
        "(env -i setsid sh -c 'echo $$ > hidden; exec /bin/sleep 1000' &) ; read x",
    );
    spec.input = Input::Open;
    spec.runner = mark();
    let runner = spec.runner.clone();
    let (facts, _orders) = start(spec).await;
    let (bystander, bystander_orders) = start(script(&other, "echo $$ > main; exec sleep 1000")).await;
    let [hidden] = pids(directory.path(), ["hidden"]).await;
    let [main] = pids(other.path(), ["main"]).await;

    let swept = within(
        PATIENCE,
        process::sweep(&runner, &process::identity().expect("an identity")),
    )
    .await;

    assert!(swept.confirmed, "{swept:?}");
    assert!(!is_alive(hidden));
    assert!(is_alive(main));
    assert!(ended(facts).await.confirmed);
    bystander_orders.stop();
    assert!(ended(bystander).await.confirmed);
}

#[tokio::test]
async fn a_runner_of_another_boot_left_nothing() {
    let (facts, orders) = {
        let directory = directory();
        let mut spec = script(&directory, "exec sleep 1000");
        spec.runner = "of-another-boot".into();
        start(spec).await
    };
    let dead = Identity {
        boot: "another".into(),
        pid: 1,
        started: 1,
    };
    let swept = process::sweep("of-another-boot", &dead).await;
    assert_eq!((swept.ended, swept.confirmed), (0, true));
    assert!(is_alive(orders.pid()));
    orders.stop();
    assert!(ended(facts).await.confirmed);
}
