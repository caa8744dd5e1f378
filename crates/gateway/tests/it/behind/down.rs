//! Servers that are down, or put their callers off.

use std::time::Duration;

use longhaul_gateway::{dispatch::Settings, upstream::server::State};
use serde_json::json;

use super::{fixture, world};
use crate::support::{Client, FIXTURE, World, site::said};

#[tokio::test]
async fn one_bad_server_disturbs_no_other() {
    let bad = "[servers.bad]\ncommand = [\"no-such-program-anywhere\"]\n";
    let world = World::behind(&format!("{}{bad}", fixture("2025", "")), Settings::default()).await;
    let echoed = async {
        loop {
            let reply = world.call(&Client::without_tasks(), "echo", json!({})).await;
            if reply.body.get("result").is_some() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), echoed)
        .await
        .expect("in time");
    let bad = world.fleet.server("bad").expect("it is configured");
    let mut state = bad.watch_state();
    let state = tokio::time::timeout(
        Duration::from_secs(20),
        state.wait_for(|state| matches!(state, State::Degraded { .. })),
    );
    let state = state.await.expect("in time").expect("it lives").clone();
    let State::Degraded { why, .. } = state else {
        panic!("{state:?}");
    };
    assert!(why.contains("no-such-program-anywhere"), "{why}");
}

/// A server that is the fixture and cannot be started any more once the file is gone.
fn by_script(name: &str, options: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a directory");
    let program = folder.path().join("start");
    let text = format!("#!/bin/sh\nexec python3 {FIXTURE} stdio {options}\n");
    std::fs::write(&program, text).expect("a file");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&program, executable).expect("its mode");
    let config = format!(
        "[servers.{name}]\ncommand = [\"{}\"]\nenv.PYTHONDONTWRITEBYTECODE = \"1\"\n",
        program.display()
    );
    (folder, config)
}

#[tokio::test]
async fn a_client_is_told_of_a_server_that_is_down_and_of_no_path() {
    let (folder, config) = by_script("gone", "--era=2025");
    let world = World::ready_behind(&config, Settings::default()).await;
    drop(folder);
    world.fleet.restart("gone").await.expect("it is configured");
    let echoed = world.call(&Client::without_tasks(), "echo", json!({})).await;
    let uri = json!({ "uri": "fixture://one" });
    let read = world.rpc(&Client::without_tasks(), "resources/read", uri).await;
    assert_eq!(read.status, 502);
    for told in [echoed, read] {
        let error = &told.body["error"];
        assert_eq!(error["data"]["reason"], "upstream_unavailable", "{error}");
        assert!(!error.to_string().contains('/'), "{error}");
    }
    let server = world.fleet.server("gone").expect("it is configured");
    let State::Degraded { why, .. } = server.state() else {
        panic!("{:?}", server.state());
    };
    assert!(why.contains("start"), "whoever runs it is told: {why}");
}

#[tokio::test]
async fn a_call_that_is_put_off_again_and_again_ends_with_its_time() {
    let world = world("2026", "timeout = \"1500ms\"\n").await;
    let reply = world.call(&Client::without_tasks(), "put_off", json!({})).await;
    assert_eq!(reply.result()["isError"], true);
    assert!(
        said(reply.result()).contains("did not end within 1500ms"),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn a_resource_is_found_past_a_server_that_is_down() {
    let (folder, down) = by_script("down", "--era=2025 --templates");
    let (_folder, well) = by_script("well", "--era=2025 --templates");
    let world = World::ready_behind(&format!("{down}{well}"), Settings::default()).await;
    drop(folder);
    world.fleet.restart("down").await.expect("it is configured");
    let read = world
        .rpc(
            &Client::without_tasks(),
            "resources/read",
            json!({ "uri": "other:thing" }),
        )
        .await;
    assert_eq!(read.result()["contents"][0]["text"], "one", "{}", read.body);
}
