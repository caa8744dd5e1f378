//! Questions are never mixed up: many calls of many clients ask at once, with the same JSON-RPC ids everywhere, and
//! are answered in any order by anybody who may. Each tool gets its own answer and each client its own result.
//!
//! The server keeps sessions and counts its questions from 1 in each. A failure prints the seed and the smallest
//! round that fails; `LONGHAUL_SEED` repeats it.

mod round;

use std::{
    cell::Cell,
    collections::BTreeSet,
    env,
    hash::{BuildHasher as _, Hasher as _, RandomState},
};

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tokio::runtime::Runtime;

use self::round::{Answers, Clients, Round};
use crate::{
    questions_seen::{BY_ALL, listing},
    support::{TASK_SERVER, listening},
};

/// The most calls of one round.
const CALLS_MAX: usize = 8;

fn rounds(calls: std::ops::Range<usize>) -> impl Strategy<Value = Round> {
    let call = (0..Clients::COUNT, 0..BY_ALL);
    let who = prop_oneof![
        Just(Answers::Client),
        Just(Answers::AnotherConnection),
        Just(Answers::Page),
        Just(Answers::Terminal),
    ];
    let turns = vec((any::<prop::sample::Index>(), who), 1..24);
    (vec(call, calls), turns).prop_map(|(calls, turns)| Round { calls, turns })
}

/// So many rounds with the clients of one gateway.
fn all_apart(config: &str, rounds_of: impl Strategy<Value = Round>, cases: u32, runtime: &Runtime) {
    let world = runtime.block_on(listing(config));
    let clients = runtime.block_on(Clients::of(&world));
    let seed = env::var("LONGHAUL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 8,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let number = Cell::new(0);
    let result = TestRunner::new_with_rng(config, rng).run(&rounds_of, |round| {
        number.set(number.get() + 1);
        runtime.block_on(clients.play(&round, number.get()));
        Ok(())
    });
    if let Err(failed) = result {
        panic!("LONGHAUL_SEED={seed}: {failed}");
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(4).enable_all().build().expect("a runtime")
}

// S3
#[test]
fn over_http_questions_of_many_calls_are_never_mixed_up() {
    for isolation in ["session", "shared"] {
        let runtime = runtime();
        let server = [TASK_SERVER, "http", "--era=2025", "--plain"];
        let (_process, port) = runtime.block_on(listening(&server));
        let config = format!(
            "[servers.asks]\nurl = \"http://127.0.0.1:{port}/mcp\"\nisolation = \"{isolation}\"\nconcurrency = 64\n"
        );
        all_apart(&config, rounds(1..CALLS_MAX), 100, &runtime);
    }
}

// D-43
#[test]
fn questions_in_tasks_of_servers_are_never_mixed_up() {
    for era in ["--era=2025", "--era=2026"] {
        let runtime = runtime();
        let options = [era, "--poll=10"];
        let (_process, port) = runtime.block_on(listening(&[&[TASK_SERVER, "http"], &options[..]].concat()));
        let far = format!("[servers.asks]\nurl = \"http://127.0.0.1:{port}/mcp\"\nconcurrency = 64\n");
        all_apart(&far, rounds(1..CALLS_MAX), 25, &runtime);
        let command = [&["python3", TASK_SERVER, "stdio"], &options[..]].concat();
        let near = format!(
            "[servers.asks]\ncommand = {command:?}\nconcurrency = 64\nenv.PYTHONDONTWRITEBYTECODE = \"1\"\n"
        );
        all_apart(&near, rounds(1..CALLS_MAX), 25, &runtime);
    }
}

// On a pipe a question names no call, so a process has one call at a time here.
#[test]
fn on_pipes_questions_of_many_processes_are_never_mixed_up() {
    let runtime = runtime();
    let command = ["python3", TASK_SERVER, "stdio", "--era=2025", "--plain"];
    let config = format!("[servers.asks]\ncommand = {command:?}\nenv.PYTHONDONTWRITEBYTECODE = \"1\"\n");
    let one_each = rounds(1..CALLS_MAX).prop_map(|mut round| {
        let mut seen = BTreeSet::new();
        round.calls.retain(|(client, _)| seen.insert(*client));
        round
    });
    all_apart(&config, one_each, 100, &runtime);
}
