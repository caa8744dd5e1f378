//! Time and memory.

use longhaul_engine::process::{Exit, Reason};

use super::*;

#[tokio::test]
async fn a_program_that_runs_too_long_is_stopped() {
    let directory = directory();
    let mut spec = script(&directory, "while :; do echo alive; sleep 0.02; done");
    spec.timeout = Some(Duration::from_millis(300));
    spec.idle_timeout = Some(PATIENCE);
    let ended = run(spec).await;
    assert_eq!((ended.reason, ended.confirmed), (Reason::TimedOut, true));
}

#[tokio::test]
async fn a_program_that_is_silent_too_long_is_stopped() {
    let directory = directory();
    let mut spec = script(&directory, "echo hello; exec sleep 1000");
    spec.timeout = Some(PATIENCE);
    spec.idle_timeout = Some(Duration::from_millis(200));
    let ended = run(spec).await;
    assert_eq!((ended.reason, ended.confirmed), (Reason::Idle, true));
    assert_eq!(ended.output.bytes, b"hello\n");
}

#[tokio::test]
async fn a_program_that_speaks_on_any_stream_is_not_idle() {
    let directory = directory();
    let text = "for i in 1 2 3 4 5; do sleep 0.2; echo; sleep 0.2; echo >&2; sleep 0.2; echo {} >&$LONGHAUL_FD; done";
    let mut spec = script(&directory, text);
    spec.idle_timeout = Some(Duration::from_millis(1500));
    let ended = run(spec).await;
    assert_eq!((ended.reason, ended.exit), (Reason::Exited, Some(Exit::Code(0))));
}

#[tokio::test]
async fn time_stands_still_while_the_program_waits_for_a_person() {
    let directory = directory();
    let mut spec = script(
        &directory,
        "echo '{}' >&$LONGHAUL_FD; sleep 1; echo '{}' >&$LONGHAUL_FD; exec sleep 1000",
    );
    spec.timeout = Some(Duration::from_millis(500));
    spec.idle_timeout = Some(Duration::from_millis(400));
    let (mut facts, orders) = start(spec).await;
    orders.waiting(true);
    assert!(matches!(next(&mut facts).await, Fact::Message(_)));
    assert!(
        matches!(next(&mut facts).await, Fact::Message(_)),
        "the second comes after both time-outs"
    );
    orders.waiting(false);
    assert_eq!(ended(facts).await.reason, Reason::Idle);
}

#[tokio::test]
async fn a_tree_that_uses_too_much_memory_is_killed() {
    let directory = directory();
    let hungry = "x = [bytearray(b'x' * (1 << 20)) for _ in range(60)]; import time; time.sleep(1000)";
    // Two of them: each is below the limit, together they are not.
    let mut spec = script(
        &directory,
        &format!("python3 -c \"{hungry}\" & python3 -c \"{hungry}\""),
    );
    spec.env[0].1 = std::env::var_os("PATH").expect("a PATH");
    spec.memory_max = Some(100 << 20);
    let ended = run(spec).await;
    assert_eq!((ended.reason, ended.confirmed), (Reason::OutOfMemory, true));
}

#[tokio::test]
async fn an_allocation_far_beyond_the_limit_fails_in_the_program_itself() {
    let directory = directory();
    let mut spec = script(&directory, "exec python3 -c 'bytearray(1 << 30)'");
    spec.env[0].1 = std::env::var_os("PATH").expect("a PATH");
    spec.memory_max = Some(100 << 20);
    let ended = run(spec).await;
    assert_eq!((ended.reason, ended.exit), (Reason::Exited, Some(Exit::Code(1))));
    assert!(String::from_utf8_lossy(&ended.error_tail).contains("MemoryError"));
}

#[tokio::test]
async fn a_program_gives_way_as_much_as_it_is_told_to() {
    let directory = directory();
    let mut spec = script(&directory, "nice");
    let before: u8 = String::from_utf8_lossy(&run(script(&directory, "nice")).await.output.bytes)
        .trim()
        .parse()
        .expect("a number");
    spec.nice = 7;
    let said = String::from_utf8_lossy(&run(spec).await.output.bytes)
        .trim()
        .to_owned();
    assert_eq!(said, (before + 7).min(19).to_string());
}
