//! Servers that were brought by `longhaul wrap`, as their own pipes and everybody else meet them.

use std::{sync::Arc, time::Duration};

use longhaul_gateway::{
    admin::{Backend as _, Error, api::Filter},
    config::WRAPPED_MAX,
    dispatch::Settings,
    stdio::{self, Stdio},
    upstream::wrapped::{Brought, Program, Remote},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream},
    task::JoinHandle,
};

use crate::{
    behind::fixture,
    support::{Client, FIXTURE, ME, World, site::said},
};

/// The fixture, as somebody would bring it.
fn brought(more: &[&str]) -> Brought {
    let argv = ["python3", FIXTURE, "stdio", "--era=2025"].iter().chain(more);
    Brought::Program(Program {
        argv: argv.map(Into::into).collect(),
        cwd: "/".into(),
        env: std::env::vars_os().collect(),
    })
}

fn entrance(world: &World) -> Stdio {
    Stdio::new(
        world.dispatch.clone(),
        Arc::clone(&world.catalog),
        stdio::Limits::default(),
    )
}

async fn wrap(world: &World, brought: &Brought) -> Stdio {
    let entrance = entrance(world);
    let name = entrance.wrap(brought).await.expect("it is taken in");
    entrance.of_wrapped(&name).expect("it is kept")
}

/// A client of 2026-07-28 without tasks, at a pipe of its own.
struct Pipe {
    stream: BufReader<DuplexStream>,
    served: JoinHandle<stdio::Ended>,
    next: u32,
}

impl Pipe {
    async fn open(stdio: &Stdio, key: u128) -> Pipe {
        let stdio = stdio.clone();
        stdio.reached().await;
        let (client, server) = tokio::io::duplex(256 * 1024);
        let (reader, writer) = tokio::io::split(server);
        let peer = stdio::Peer::Pipe {
            hold: None,
            key: Some(key),
        };
        let last = Duration::from_secs(1);
        let served = tokio::spawn(async move {
            stdio
                .serve(reader, writer, peer, std::future::pending(), last)
                .await
        });
        Pipe {
            stream: BufReader::new(client),
            served,
            next: 0,
        }
    }

    async fn say(&mut self, method: &str, mut params: Value) {
        self.next += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let frame = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        let line = format!("{frame}\n");
        self.stream.write_all(line.as_bytes()).await.expect("it is read");
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(method, params).await;
        self.hear().await
    }

    async fn call(&mut self, tool: &str) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": {} }))
            .await
    }

    /// Its client ends.
    async fn end(self) {
        drop(self.stream);
        let ended = self.served.await.expect("it is served");
        assert_eq!(ended, stdio::Ended::Left);
    }

    async fn listed(&mut self) -> Vec<String> {
        let reply = self.ask("tools/list", json!({})).await;
        let tools = reply["result"]["tools"]
            .as_array()
            .unwrap_or_else(|| panic!("no list: {reply}"));
        tools
            .iter()
            .map(|tool| tool["name"].as_str().expect("a name").to_owned())
            .collect()
    }
}

#[tokio::test]
async fn a_wrapped_server_is_shown_to_its_own_pipes_alone_and_renames_nothing() {
    let world = World::ready_behind(&fixture("2025", ""), Settings::default()).await;
    let all = async || {
        let listed = world.rpc(&Client::without_tasks(), "tools/list", json!({})).await;
        listed.result()["tools"].clone()
    };
    let before = all().await;
    let mut pipe = Pipe::open(&wrap(&world, &brought(&["--odd"])).await, 1).await;
    assert_eq!(all().await, before, "nobody else sees it");
    // It has more tools than the other one. Both have these names, and neither is prefixed.
    let own = pipe.listed().await;
    assert!(
        own.contains(&"pid".to_owned()) && own.last().is_some_and(|last| last == "longhaul_wait"),
        "{own:?}"
    );
    let others = world.call(&Client::without_tasks(), "pid", json!({})).await;
    let other = said(others.result()).to_owned();
    assert_ne!(said(&pipe.call("pid").await["result"]), other);
    let tools = world.dispatch.tools(ME).await.expect("a list");
    assert_eq!(tools.tools.len() + 1, before.as_array().expect("a list").len());
    let prompts = pipe.ask("prompts/list", json!({})).await;
    assert_eq!(
        prompts["result"]["prompts"].as_array().map(Vec::len),
        Some(1),
        "{prompts}"
    );
    let servers = world.dispatch.servers(ME).await.expect("a list").servers;
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    assert!(
        names.len() == 2 && names[1].starts_with("mcp_server-"),
        "{names:?}"
    );
    assert!(servers[1].tools > 2, "its user sees what it has");
}

#[tokio::test]
async fn living_windows_share_no_call_and_a_dead_one_leaves_its_own_to_the_next() {
    let world = World::behind("", Settings::default()).await;
    let stdio = wrap(&world, &brought(&[])).await;
    let (mut one, mut other) = (Pipe::open(&stdio, 1).await, Pipe::open(&stdio, 2).await);
    // Longer than a pipe may take to come back after a start: until then nobody knows that it has ended.
    let call = json!({ "name": "late", "arguments": { "seconds": 7 } });
    one.say("tools/call", call.clone()).await;
    until(async || begun(&world).await == 1).await;
    other.say("tools/call", call.clone()).await;
    until(async || begun(&world).await == 2).await;
    one.end().await;
    other.end().await;
    let mut third = Pipe::open(&stdio, 3).await;
    let joined = third.ask("tools/call", call).await;
    assert_eq!(said(&joined["result"]), "late");
    assert_eq!(begun(&world).await, 2, "nothing more was begun");
}

/// How many calls of `late` were begun.
async fn begun(world: &World) -> usize {
    let filter = Filter {
        tool: Some("late".to_owned()),
        ..Filter::default()
    };
    world.dispatch.list(ME, filter).await.expect("a list").tasks.len()
}

async fn until(mut done: impl AsyncFnMut() -> bool) {
    let in_time = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), in_time)
        .await
        .expect("in time");
}

#[tokio::test]
async fn the_one_that_was_not_used_for_longest_makes_room_and_one_in_use_never_does() {
    let world = World::behind("", Settings::default()).await;
    let entrance = entrance(&world);
    let remote = |number: usize| {
        Brought::Remote(Remote {
            url: format!("http://127.0.0.1:1/{number}"),
            headers: Vec::new(),
        })
    };
    let mut names = Vec::new();
    for number in 0..WRAPPED_MAX {
        names.push(entrance.wrap(&remote(number)).await.expect("there is room"));
    }
    let first = entrance.of_wrapped(&names[0]).expect("it is kept");
    let more = entrance
        .wrap(&remote(WRAPPED_MAX))
        .await
        .expect("another one goes");
    assert!(entrance.of_wrapped(&names[0]).is_some(), "it is in use");
    let gone = names.iter().position(|name| entrance.of_wrapped(name).is_none());
    // Those of one millisecond are equally old.
    let gone = names.remove(gone.expect("one that nobody uses"));
    assert!(entrance.of_wrapped(&more).is_some());
    let servers = world.dispatch.servers(ME).await.expect("a list").servers;
    assert_eq!(servers.len(), WRAPPED_MAX);
    // All are in use: there is no room, and nothing is lost.
    let mut held = vec![first];
    held.extend(
        names[1..]
            .iter()
            .map(|name| entrance.of_wrapped(name).expect("it is kept")),
    );
    held.push(entrance.of_wrapped(&more).expect("it is kept"));
    let again = remote(WRAPPED_MAX + 1);
    let Err(Error { reason, .. }) = entrance.wrap(&again).await else {
        panic!("there is no room");
    };
    assert_eq!(reason, "wrapped_limit");
    drop(held);
    assert!(entrance.wrap(&again).await.is_ok(), "there is room again");
    assert!(entrance.of_wrapped(&gone).is_none());
}
