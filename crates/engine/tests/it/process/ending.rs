//! Nothing outlives its task: whatever the children do, whoever is killed.

use std::{path::PathBuf, process::Stdio, time::Duration};

use longhaul_engine::process::{self, Exit, Identity, Input, Reason, Swept, Unstartable};
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

/// A child that no mark, no session and no parent betrays, beside a command that waits.
const HIDING: &str = "(env -i setsid sh -c 'trap \"\" TERM; echo $$ > hidden; while :; do /bin/sleep 1; done' &)\n\
                      echo $$ > main; while :; do sleep 1; done";

impl Gateway {
    async fn start() -> Gateway {
        Gateway::of(SCRIPT).await
    }

    async fn of(script: &str) -> Gateway {
        Gateway::playing("gateway", script).await
    }

    async fn playing(role: &str, script: &str) -> Gateway {
        let (directory, mark) = (directory(), mark());
        #[expect(
            clippy::disallowed_methods,
            reason = "the gateway of this test is itself a process that is killed"
        )]
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_engine-rig"))
            .arg(role)
            .arg(directory.path())
            .args([script, &mark, &GRACE.as_millis().to_string()])
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

    async fn kill(&mut self) {
        signal(self.pid(), Signal::SIGKILL);
        self.process.wait().await.expect("the gateway is reaped");
    }

    /// The gateway and the shim die together, so that nobody is left who knows the tree.
    async fn kill_both(&mut self) {
        signal(self.pid(), Signal::SIGSTOP);
        signal(self.shim, Signal::SIGKILL);
        self.kill().await;
        until("the shim is gone", PATIENCE, || !is_alive(self.shim)).await;
    }

    async fn sweep(&self) -> Swept {
        let dead = Identity {
            boot: process::identity().expect("an identity").boot,
            pid: 1,
            started: 1,
        };
        let runner = format!("runner-of-{}", self.mark);
        within(PATIENCE, process::sweep(&self.spool(), &runner, &dead)).await
    }

    fn spool(&self) -> PathBuf {
        self.directory.path().join("spool")
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
async fn p1_a_killed_shim_leaves_no_child_that_hid_and_nothing_to_reap() {
    let mut gateway = Gateway::of(HIDING).await;
    let pids = pids(gateway.directory.path(), ["main", "hidden"]).await;
    signal(gateway.shim, Signal::SIGKILL);
    assert_eq!(gateway.line().await, "ended ShimLost confirmed=true");
    // Not even a zombie, while the gateway lives.
    assert_eq!(pids.map(stat), [None, None]);
}

#[tokio::test]
async fn a_killed_shim_takes_no_other_program_with_it() {
    process::become_subreaper().expect("a subreaper");
    let (directory, other) = (directory(), directory());
    let (facts, orders) = start(script(&directory, HIDING)).await;
    let (bystander, bystander_orders) = start(script(&other, HIDING)).await;
    let ours = pids(directory.path(), ["main", "hidden"]).await;
    let theirs = pids(other.path(), ["main", "hidden"]).await;

    signal(parent(orders.pid()), Signal::SIGKILL);
    let lost = ended(facts).await;

    assert_eq!((lost.reason, lost.confirmed), (Reason::ShimLost, true));
    assert_eq!(ours.map(is_alive), [false; 2]);
    assert_eq!(theirs.map(is_alive), [true; 2]);
    bystander_orders.stop();
    assert!(ended(bystander).await.confirmed);
    assert_eq!(theirs.map(is_alive), [false; 2]);
}

#[tokio::test]
async fn a_killed_shim_is_not_confirmed_where_its_orphans_do_not_fall_to_the_gateway() {
    let mut gateway = Gateway::playing("plain-gateway", SCRIPT).await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    signal(gateway.shim, Signal::SIGKILL);
    assert_eq!(gateway.line().await, "ended ShimLost confirmed=false");
    assert_eq!(pids.map(is_alive), [false; 4]);
}

#[tokio::test]
async fn p3_a_frozen_shim_does_not_hold_up_the_stop_for_ever() {
    let mut gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    signal(gateway.shim, Signal::SIGSTOP);
    let ordered = Instant::now();
    drop(gateway.process.stdin.take());
    assert_eq!(gateway.line().await, "ended Stopped confirmed=true");
    assert_eq!(pids.map(is_alive), [false; 4]);
    let limit = GRACE + Duration::from_secs(2);
    assert!(ordered.elapsed() < limit, "took {:?}", ordered.elapsed());
}

#[tokio::test]
async fn a_terminated_shim_kills_its_tree_at_once() {
    let mut gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    signal(gateway.shim, Signal::SIGTERM);
    assert_eq!(gateway.line().await, "ended Stopped confirmed=true");
    assert_eq!(pids.map(is_alive), [false; 4]);
}

#[tokio::test]
async fn p1_a_sweep_ends_what_a_dead_runner_left() {
    let mut gateway = Gateway::start().await;
    let pids = pids(gateway.directory.path(), STUBBORN).await;
    gateway.kill_both().await;
    assert_eq!(pids.map(is_alive), [true; 4], "only a sweep can end these");

    let swept = gateway.sweep().await;

    assert_eq!(pids.map(is_alive), [false; 4]);
    assert!(swept.left == 0 && swept.ended >= 4, "{swept:?}");
    // R13: the shim did not see its tree end, so nobody can know that nothing hid.
    assert!(!swept.confirms(&gateway.mark));
    assert!(swept.confirms("an attempt that never began"));
    let again = gateway.sweep().await;
    assert_eq!((again.ended, again.confirms(&gateway.mark)), (0, false));
}

#[tokio::test]
async fn r13_a_sweep_does_not_confirm_a_child_that_it_cannot_see() {
    let mut gateway = Gateway::of(HIDING).await;
    let [main, hidden] = pids(gateway.directory.path(), ["main", "hidden"]).await;
    gateway.kill_both().await;

    let swept = gateway.sweep().await;

    assert_eq!((is_alive(main), is_alive(hidden)), (false, true));
    assert!(!swept.confirms(&gateway.mark));
    signal(hidden, Signal::SIGKILL);
}

#[tokio::test]
async fn r13_a_sweep_confirms_what_a_shim_saw_end() {
    let mut gateway = Gateway::of(HIDING).await;
    let pids = pids(gateway.directory.path(), ["main", "hidden"]).await;
    // A frozen shim cannot end its tree, until the sweep lets it go on.
    signal(gateway.shim, Signal::SIGSTOP);
    gateway.kill().await;

    let swept = gateway.sweep().await;

    assert_eq!(pids.map(is_alive), [false; 2]);
    assert!(!is_alive(gateway.shim));
    assert!(swept.confirms(&gateway.mark), "{swept:?}");
}

#[tokio::test]
async fn r13_a_sweep_confirms_nothing_of_a_runner_whose_spool_is_elsewhere() {
    let gateway = Gateway::start().await;
    let elsewhere = gateway.directory.path().join("elsewhere");
    let dead = Identity {
        boot: "another".into(),
        pid: 1,
        started: 1,
    };
    let swept = process::sweep(&elsewhere, "a-runner-of-another-machine", &dead).await;
    assert!(!swept.confirms(&gateway.mark));
}

#[tokio::test]
async fn a_runner_that_only_seemed_dead_starts_nothing_after_the_sweep() {
    let directory = directory();
    let mut spec = script(&directory, "exit 0");
    spec.spool = directory.path().join("spool");
    std::fs::create_dir(&spec.spool).expect("a spool");
    let spool = spec.spool.clone();
    let identity = process::identity().expect("an identity");
    process::sweep(&spool, &mark(), &identity).await;

    let refused = process::start(spec).await.expect_err("it is closed");
    assert!(matches!(refused, Unstartable::Spool { .. }), "{refused:?}");
    process::forget(&spool).expect("it is forgotten");
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("a directory").count(),
        0
    );
}

#[tokio::test]
async fn an_attempt_leaves_nothing_in_the_spool() {
    let directory = directory();
    let mut spec = script(
        &directory,
        "yes | head -c 100000; echo $$ > main; exec sleep 1000",
    );
    spec.spool = directory.path().join("spool");
    spec.limits.output_max = 10;
    std::fs::create_dir(&spec.spool).expect("a spool");
    let names = {
        let spool = spec.spool.clone();
        move || std::fs::read_dir(&spool).expect("a spool").count()
    };
    let (facts, orders) = start(spec).await;
    pids(directory.path(), ["main"]).await;
    until("only its record is there", PATIENCE, || names() == 1).await;
    orders.stop();
    let ended = ended(facts).await;
    assert!(ended.confirmed && ended.output.spilled.is_some());
    assert_eq!(names(), 0);
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
    spec.spool = directory.path().join("spool");
    std::fs::create_dir(&spec.spool).expect("a spool");
    let (spool, runner, mark) = (spec.spool.clone(), spec.runner.clone(), spec.mark.clone());
    let (facts, _orders) = start(spec).await;
    let (bystander, bystander_orders) = start(script(&other, "echo $$ > main; exec sleep 1000")).await;
    let [hidden] = pids(directory.path(), ["hidden"]).await;
    let [main] = pids(other.path(), ["main"]).await;

    let swept = within(
        PATIENCE,
        process::sweep(&spool, &runner, &process::identity().expect("an identity")),
    )
    .await;

    assert!(swept.confirms(&mark), "{swept:?}");
    assert!(!is_alive(hidden));
    assert!(is_alive(main));
    assert!(ended(facts).await.confirmed);
    bystander_orders.stop();
    assert!(ended(bystander).await.confirmed);
}

#[tokio::test]
async fn a_runner_of_another_boot_left_nothing() {
    let directory = directory();
    let mut spec = script(&directory, "exec sleep 1000");
    spec.runner = mark();
    spec.spool = directory.path().join("spool");
    std::fs::create_dir(&spec.spool).expect("a spool");
    let (spool, runner, mark) = (spec.spool.clone(), spec.runner.clone(), spec.mark.clone());
    let (facts, orders) = start(spec).await;
    let dead = Identity {
        boot: "another".into(),
        pid: 1,
        started: 1,
    };
    let swept = process::sweep(&spool, &runner, &dead).await;
    assert_eq!((swept.ended, swept.confirms(&mark)), (0, true));
    assert!(is_alive(orders.pid()));
    orders.stop();
    assert!(ended(facts).await.confirmed);
}
