//! This client at one server behind Longhaul: `rmcp-3 pair TARGET SCENARIO` takes the steps that the scenario names and
//! leaves its tasks when it is told to; `rmcp-3 find TARGET LEFT` finds them after Longhaul was killed and started again.

use std::{collections::BTreeMap, path::Path, time::Duration};

use rmcp::model::{CallToolResponse, CancelTaskParams, TaskPayload, TaskStatus, UpdateTaskParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::{Outcome, Peer, same, step};

const PAUSE: Duration = Duration::from_millis(200);

pub async fn pair(peer: &Peer, steps: &Value) -> Outcome {
    let mut left = json!({});
    if steps["call"].is_object() {
        step("call", called(peer, &steps["call"])).await;
    }
    if steps["result"].is_object() {
        step("result", async {
            let task = started(peer, &steps["result"]).await?;
            left["finished"] = kept(&steps["result"], &task);
            ends(peer, &left["finished"]).await
        })
        .await;
    }
    if steps["question"].is_object() {
        step("question", async {
            let task = started(peer, &steps["question"]).await?;
            ends(peer, &kept(&steps["question"], &task)).await
        })
        .await;
    }
    if steps["cancel"].is_object() {
        step("cancel", cancelled(peer, &steps["cancel"])).await;
    }
    println!("{}", json!({"ready": true}));
    let mut input = BufReader::new(tokio::io::stdin());
    input.read_line(&mut String::new()).await?;
    for (name, state) in [
        ("restart", TaskStatus::Working),
        ("asked", TaskStatus::InputRequired),
    ] {
        if steps[name].is_object() {
            step(&format!("{name}, left"), async {
                let task = begun(peer, &steps[name], &state).await?;
                left[name] = kept(&steps[name], &task);
                Ok(())
            })
            .await;
        }
    }
    println!("{}", json!({"left": left}));
    input.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

pub async fn find(peer: &Peer, left: &Value) -> Outcome {
    let tasks = [&left["finished"], &left["restart"]].map(|task| task.is_object().then_some(task));
    if tasks.iter().any(Option::is_some) {
        step("restart", async {
            for task in tasks.into_iter().flatten() {
                ends(peer, task).await?;
            }
            Ok(())
        })
        .await;
    }
    if left["asked"].is_object() {
        step("asked", ends(peer, &left["asked"])).await;
    }
    Ok(())
}

fn kept(step: &Value, task: &str) -> Value {
    let mut kept = step.clone();
    kept["task"] = task.into();
    kept
}

fn says(found: &str, step: &Value) -> Outcome {
    let words = step["says"].as_str().unwrap_or_default();
    match found.contains(words) {
        true => Ok(()),
        false => Err(format!("it does not say `{words}` but `{found}`").into()),
    }
}

async fn called(peer: &Peer, step: &Value) -> Outcome {
    match peer.ask(tool(step), step["arguments"].clone()).await? {
        CallToolResponse::Complete(result) => says(&serde_json::to_string(&result.content)?, step),
        other => Err(format!("no result but {other:?}").into()),
    }
}

async fn cancelled(peer: &Peer, step: &Value) -> Outcome {
    let task = begun(peer, step, &TaskStatus::Working).await?;
    peer.0.peer().cancel_task(CancelTaskParams::new(&task)).await?;
    until(peer, &task, &TaskStatus::Cancelled).await
}

fn tool(step: &Value) -> String {
    step["tool"].as_str().unwrap_or_default().to_owned()
}

async fn started(peer: &Peer, step: &Value) -> Outcome<String> {
    peer.start(tool(step), step["arguments"].clone()).await
}

/// Starts a task, and waits until it is so; work that leaves a mark has begun then.
async fn begun(peer: &Peer, step: &Value, state: &TaskStatus) -> Outcome<String> {
    let task = started(peer, step).await?;
    until(peer, &task, state).await?;
    if *state == TaskStatus::Working {
        match step["began"].as_str() {
            Some(mark) => {
                while !Path::new(mark).exists() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            None => tokio::time::sleep(5 * PAUSE).await,
        }
    }
    Ok(task)
}

async fn until(peer: &Peer, task: &str, state: &TaskStatus) -> Outcome {
    while peer.status(task).await? != *state {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Waits for the end of a task, with its questions answered on the way.
async fn ends(peer: &Peer, step: &Value) -> Outcome {
    let task = step["task"].as_str().ok_or("nothing was left")?;
    let payload = loop {
        match peer.payload(task).await? {
            TaskPayload::Working => {}
            TaskPayload::InputRequired { input_requests } => {
                let answer = json!({"action": "accept", "content": step["answer"]});
                let answers: BTreeMap<String, Value> = input_requests
                    .into_keys()
                    .map(|key| (key, answer.clone()))
                    .collect();
                peer.0
                    .peer()
                    .update_task(UpdateTaskParams::new(task, answers))
                    .await?;
            }
            payload => break payload,
        }
        tokio::time::sleep(PAUSE).await;
    };
    let status = serde_json::to_value(payload.status())?;
    same(&status, &json!(step["ends"].as_str().unwrap_or("completed")))?;
    let said = match payload {
        TaskPayload::Completed { result } => json!(result["content"]),
        TaskPayload::Failed { error } => json!(error["message"]),
        _ => Value::Null,
    };
    says(&said.to_string(), step)
}
