//! Which tool a stored task runs once servers have come, gone or changed their names.

use std::sync::Arc;

use longhaul_engine::clock;
use longhaul_gateway::dispatch::Settings;
use longhaul_store::memory::Memory;
use serde_json::json;

use super::{named, seen, seen_by};
use crate::support::{Client, World};

/// A task of the server `b` that ran and one that waited when their process ended, in the store that they are in.
async fn of_a_process_that_ended() -> (Arc<Memory>, World, [String; 2]) {
    let store = Arc::new(Memory::new(Arc::new(clock::now)));
    let more = "promote_after = \"0s\"\nisolation = \"shared\"\nconcurrency = 1\non_crash = \"rerun\"\n";
    let config = named("b", "2025", more);
    let world = World::over(Arc::clone(&store), &config, Settings::default(), &|_| None).await;
    world.ready().await;
    let mut ids = Vec::new();
    for n in 0..2 {
        let hung = world.call(&Client::with_tasks(), "hang", json!({ "n": n })).await;
        ids.push(hung.result()["taskId"].as_str().expect("an id").to_owned());
        seen(&world, |seen| seen["count"] == 1).await;
    }
    store.kill(world.runner);
    (store, world, ids.try_into().expect("two"))
}

#[tokio::test]
async fn a_task_never_runs_another_server_s_tool_of_its_name() {
    let (store, _before, ids) = of_a_process_that_ended().await;
    let config = named("a", "2025", "prefix = \"never\"\nisolation = \"shared\"\n");
    let world = World::over(store, &config, Settings::default(), &|_| None).await;
    for id in ids {
        let task = world.until(&id, "failed").await;
        assert_eq!(task["error"]["data"]["reason"], "tool_gone", "{task}");
        let message = task["error"]["message"].as_str().expect("text");
        assert_eq!(
            message,
            "The server `b` no longer has the tool of this task: hang"
        );
    }
    seen(&world, |seen| seen["count"] == 0).await;
}

#[tokio::test]
async fn a_task_finds_its_server_s_tool_whatever_that_is_called_by_now() {
    let (store, before, _) = of_a_process_that_ended().await;
    let a = named("a", "2025", "prefix = \"never\"\nisolation = \"shared\"\n");
    let b = named("b", "2025", "isolation = \"shared\"\nconcurrency = 2\n");
    let known = before.fleet.server("b").expect("it is configured").definitions();
    let world = World::over(store, &format!("{a}{b}"), Settings::default(), &|name| {
        known.as_deref().filter(|_| name == "b").cloned()
    })
    .await;
    world.ready().await;
    seen_by(&world, "b__seen", |seen| seen["count"] == 2).await;
    seen(&world, |seen| seen["count"] == 0).await;
}
