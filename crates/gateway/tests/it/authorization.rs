//! A foreign, an unknown and a malformed id give the same bytes, for everything that names a task (G-3, S1).

use longhaul_gateway::{
    dispatch::Handled,
    gate::{self, Action, Refusal, View},
    identity::{Caller, Origin},
};
use longhaul_mcp::{
    Client as Declared, Incoming, Request, RequestId,
    request::{Filter, Response, Takes},
    v2026_07_28 as edge,
};
use longhaul_store::Owner;
use serde_json::json;

use crate::support::{Client, World};

fn stranger() -> Caller {
    let local = Caller::local(Origin::Client);
    Caller {
        owner: Owner {
            subject: "uid:nobody".to_owned(),
            ..local.owner
        },
        ..local
    }
}

/// Every request that names a task. A new kind of request does not compile until it is sorted here.
fn naming(task: &str, like: &Request) -> Option<Request> {
    let task = task.to_owned();
    match like {
        Request::Discover
        | Request::Ping
        | Request::SetLogLevel(_)
        | Request::ListTools { .. }
        | Request::ListTasks { .. }
        | Request::Relay(_)
        | Request::CallTool(_) => None,
        Request::GetTask { .. } => Some(Request::GetTask { task }),
        Request::TaskResult { .. } => Some(Request::TaskResult { task }),
        Request::UpdateTask { responses, .. } => Some(Request::UpdateTask {
            task,
            responses: responses.clone(),
        }),
        Request::CancelTask { .. } => Some(Request::CancelTask { task }),
        Request::Listen(_) => Some(Request::Listen(Filter {
            tasks: Some(vec![task]),
            ..Filter::default()
        })),
    }
}

fn kinds() -> Vec<Request> {
    let task = String::new();
    let body = longhaul_mcp::frame::Raw::parse(r#"{"action":"decline"}"#).expect("JSON");
    let responses = vec![Response {
        key: "q1".to_owned(),
        body,
    }];
    vec![
        Request::GetTask { task: task.clone() },
        Request::UpdateTask {
            task: task.clone(),
            responses,
        },
        Request::CancelTask { task: task.clone() },
        Request::TaskResult { task },
        Request::Listen(Filter::default()),
    ]
}

async fn bytes(world: &World, caller: &Caller, request: Request) -> Vec<u8> {
    let id = RequestId::Integer(1);
    let client = Declared {
        takes: Takes::WhenSlow,
        ..Declared::default()
    };
    let incoming = Incoming {
        id: id.clone(),
        client,
        request,
        name_header_missing: false,
    };
    match world.dispatch.handle(caller, None, incoming).await {
        Handled::Reply(reply) => edge::render(&reply, &id),
        Handled::Call(_) | Handled::Relay(_) => panic!("nothing was called"),
        Handled::Wait(waiting) => edge::render(&waiting.finish().await, &id),
        Handled::Listen(mut listener) => {
            let mut all = Vec::new();
            loop {
                match listener.next().await {
                    longhaul_gateway::listen::Tick::Push(push) => all.extend(edge::push(&push, &id)),
                    longhaul_gateway::listen::Tick::End(reply) => {
                        all.extend(edge::render(&reply, &id));
                        return all;
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn another_owner_sees_nothing() {
    let world = World::start().await;
    let created = world.call(&Client::with_tasks(), "asks_two", json!({})).await;
    let id = created.result()["taskId"].as_str().expect("a task").to_owned();
    world.until(&id, "input_required").await;
    let mut altered = id.clone();
    altered.replace_range(20..21, if &id[20..21] == "A" { "B" } else { "A" });
    for kind in kinds() {
        let mut told = Vec::new();
        for named in [
            id.as_str(),
            altered.as_str(),
            "lh1.1.AAAA",
            "",
            "nobody",
            "../../etc/passwd",
        ] {
            let request = naming(named, &kind).expect("a kind that names a task");
            told.push(bytes(&world, &stranger(), request).await);
        }
        assert!(
            told.windows(2).all(|pair| pair[0] == pair[1]),
            "{kind:?} tells strangers apart"
        );
    }
    assert_eq!(
        world.get(&id).await.result()["status"],
        "input_required",
        "nothing was changed"
    );
}

#[test]
fn only_the_owner_passes_the_gate() {
    let owner = Caller::local(Origin::Client).owner;
    let other = stranger().owner;
    for action in Action::ALL {
        let view = |task_owner| View {
            action,
            caller: &owner,
            task_owner,
            open_tasks: 0,
            open_max: 1,
            draining: false,
        };
        let names_no_task = match action {
            Action::Call | Action::List | Action::Relay | Action::Operate => true,
            Action::Get | Action::Update | Action::Cancel | Action::Listen => false,
        };
        assert!(gate::judge(&view(Some(&owner))).is_ok());
        for foreign in [None, Some(&other)] {
            let judged = gate::judge(&view(foreign)).map(|_| ());
            assert_eq!(
                judged,
                if names_no_task {
                    Ok(())
                } else {
                    Err(Refusal::NotFound)
                }
            );
        }
    }
}

// G-7: a server that drains, or an owner at the cap, still reads, answers and cancels.
#[test]
fn nothing_but_a_call_is_refused_for_want_of_room() {
    let owner = Caller::local(Origin::Client).owner;
    for action in Action::ALL {
        let view = |open_tasks, draining| View {
            action,
            caller: &owner,
            task_owner: Some(&owner),
            open_tasks,
            open_max: 3,
            draining,
        };
        let refused = action == Action::Call;
        assert_eq!(gate::judge(&view(3, false)).is_err(), refused);
        assert_eq!(gate::judge(&view(0, true)).is_err(), refused);
        assert!(gate::judge(&view(2, false)).is_ok());
    }
}

#[test]
fn a_refusal_of_the_owner_is_the_reply_to_an_unknown_id() {
    assert_eq!(
        Refusal::NotFound.reply(),
        longhaul_mcp::RpcError::task_not_found()
    );
}
