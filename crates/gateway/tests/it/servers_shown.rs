//! What the person who runs Longhaul is told of the servers behind it, and of calls that wait for them or were lost
//! with them.

use std::time::Duration;

use longhaul_engine::clock;
use longhaul_gateway::{
    admin::{Backend as _, api},
    dispatch::Settings,
};
use serde_json::json;

use crate::{
    behind::{fixture, world},
    support::{Client, ME, World},
};

/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

async fn shown(world: &World) -> api::Server {
    let listed = world.dispatch.servers(ME).await.expect("they are shown");
    listed.servers.into_iter().next().expect("one server")
}

/// The newest task of a list, once it is so.
async fn task(world: &World, wanted: impl Fn(&api::Task) -> bool) -> api::Task {
    let began = clock::monotonic();
    loop {
        let listed = world.dispatch.list(ME, api::Filter::default()).await;
        let tasks = listed.expect("they are listed").tasks;
        if let Some(found) = tasks.iter().find(|task| wanted(task)) {
            return found.clone();
        }
        assert!(began.elapsed() < PATIENCE, "no such task: {tasks:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_that_waits_for_a_process_says_so_and_is_counted() {
    let world = world(
        "2025",
        "isolation = \"call\"\nprocesses_max = 1\npromote_after = \"0s\"\n",
    )
    .await;
    let hung = world.call(&Client::with_tasks(), "hang", json!({ "n": 0 })).await;
    let hung = hung.result()["taskId"].as_str().expect("an id").to_owned();
    for n in 1..3 {
        world.call(&Client::with_tasks(), "hang", json!({ "n": n })).await;
        let began = clock::monotonic();
        while shown(&world).await.waiting < n {
            assert!(began.elapsed() < PATIENCE, "it does not wait");
            tokio::task::yield_now().await;
        }
    }
    let waits = |task: &api::Task| task.status == "waiting for the server's one process";
    task(&world, waits).await;
    world
        .rpc(&Client::with_tasks(), "tasks/cancel", json!({ "taskId": hung }))
        .await
        .result();
    let began = clock::monotonic();
    while shown(&world).await.waiting > 1 {
        assert!(began.elapsed() < PATIENCE, "nobody's turn comes");
        tokio::task::yield_now().await;
    }
    task(&world, |task| {
        task.state == api::State::Running && task.status.is_empty()
    })
    .await;
}

#[tokio::test]
async fn why_a_call_was_lost_is_known_after_the_server_is_back() {
    let world = world("2025", "promote_after = \"0s\"\n").await;
    world.call(&Client::with_tasks(), "die", json!({})).await;
    let lost = task(&world, |task| task.state == api::State::Lost).await;
    assert!(
        lost.status
            .contains("Last heard: the server was lost: its program exited with code 7"),
        "{lost:?}"
    );
    world.ready().await;
    let began = clock::monotonic();
    let failure = loop {
        match shown(&world).await {
            api::Server {
                state: api::ServerState::Ready,
                last_failure: Some(failure),
                ..
            } => break failure,
            other => assert!(began.elapsed() < PATIENCE, "{other:?}"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(failure.why, "its program exited with code 7");
    assert!(failure.stderr.contains("about to die"), "{failure:?}");
}

#[tokio::test]
async fn a_list_says_why_a_call_failed() {
    let world = world("2025", "").await;
    let raw = json!({ "result": r#"{"content":[{"type":"text","text":"no such branch"}],"isError":true}"# });
    world.call(&Client::with_tasks(), "raw", raw).await;
    let failed = task(&world, |task| task.state == api::State::Failed).await;
    assert_eq!(failed.status, "no such branch");
}

#[tokio::test]
async fn no_argument_of_a_server_is_shown() {
    let secret = fixture("2025", "args = [\"--note\", \"sk-in-args\"]\ndisabled = true\n");
    let secret = secret.replace("\"stdio\",", "\"stdio\", \"--api-key\", \"sk-in-command\",");
    let world = World::behind(&secret, Settings::default()).await;
    let shown = shown(&world).await;
    assert_eq!(shown.reached_by, "python3 with 7 arguments");
}
