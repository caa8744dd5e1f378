//! `rmcp` 3.11 as a client of 2026-07-28: poll, update, cancel. It cannot listen to tasks.
//!
//! Started as `rmcp-3 first TARGET`, and after the server was killed and started again as `rmcp-3 later TARGET LEFT`.
//! TARGET is a URL, or a command as a JSON array. It prints one line of JSON for each step.

mod pair;

use std::{borrow::Cow, collections::BTreeMap, error::Error, fmt::Display, process::Stdio, time::Duration};

use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientConfig, GetTaskParams,
        Implementation, ProtocolVersion, TaskPayload, TaskStatus, UpdateTaskParams,
    },
    service::{RunningService, ServiceError},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, process::Command};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const STEP_MAX: Duration = Duration::from_secs(40);
const UNKNOWN: &str = "lh1.1.bm90aGluZyBvZiB0aGUga2luZCBleGlzdHMgaGVyZQ";
const UNKNOWN_TASK: i32 = -32602;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [phase, target, left @ ..] = arguments.as_slice() else {
        return Err("usage: rmcp-3 first|later TARGET [LEFT]".into());
    };
    let peer = match Peer::connect(target).await {
        Ok(peer) => peer,
        Err(error) => {
            say("connect", Err(error));
            return Ok(());
        }
    };
    match (phase.as_str(), left) {
        ("pair", [steps]) => pair::pair(&peer, &serde_json::from_str(steps)?).await,
        ("find", [left]) => pair::find(&peer, &serde_json::from_str(left)?).await,
        ("later", [left]) => {
            step("restart", peer.restart(&serde_json::from_str(left)?)).await;
            Ok(())
        }
        _ => peer.first(target).await,
    }
}

/// Runs one step by itself; whatever it returns as an error is why it failed.
async fn step(name: &str, work: impl Future<Output = Outcome>) {
    let outcome = match tokio::time::timeout(STEP_MAX, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("not done after {} s", STEP_MAX.as_secs()).into()),
    };
    say(name, outcome);
}

fn say(step: &str, outcome: Outcome) {
    let why = outcome.err().map(|error| error.to_string()).unwrap_or_default();
    println!("{}", json!({"step": step, "ok": why.is_empty(), "why": why}));
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("expected {expected:?}, found {found:?}").into())
    }
}

fn refused<T>(answer: Result<T, ServiceError>) -> Outcome {
    match answer {
        Err(ServiceError::McpError(error)) => same(&error.code.0, &UNKNOWN_TASK),
        Err(error) => Err(error.into()),
        Ok(_) => Err("the server took an id that nobody has".into()),
    }
}

/// A connection.
struct Peer(RunningService<RoleClient, ClientConfig>);

impl Peer {
    async fn connect(target: &str) -> Outcome<Peer> {
        let tasks = json!({"io.modelcontextprotocol/tasks": {}});
        let capabilities = serde_json::from_value(json!({"elicitation": {"form": {}}, "extensions": tasks}))?;
        let config = ClientConfig::new(capabilities, Implementation::new("longhaul-rig", "1.0.0"));
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        };
        let service = if target.starts_with("http") {
            let transport = StreamableHttpClientTransport::from_uri(target);
            config.serve_with_lifecycle(transport, lifecycle).await?
        } else {
            let command: Vec<String> = serde_json::from_str(target)?;
            let (program, arguments) = command.split_first().ok_or("an empty command")?;
            let mut command = Command::new(program);
            command.args(arguments);
            let (transport, _) = TokioChildProcess::builder(command)
                .stderr(Stdio::null())
                .spawn()?;
            config.serve_with_lifecycle(transport, lifecycle).await?
        };
        Ok(Peer(service))
    }

    async fn first(&self, target: &str) -> Outcome {
        step("call", self.call()).await;
        step("poll", self.poll()).await;
        step("result", self.result()).await;
        step("question", self.question()).await;
        step("cancel", self.cancel()).await;
        step("unknown id", self.unknown()).await;
        step("new connection", self.another(target)).await;
        let finished = self.start("slow", json!({"seconds": 0.1})).await?;
        self.ended(&finished).await?;
        let running = self.start("outlives", json!({})).await?;
        println!("{}", json!({"left": {"finished": finished, "running": running}}));
        tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
        Ok(())
    }

    async fn call(&self) -> Outcome {
        match self.ask("echo", json!({"words": "hello"})).await? {
            CallToolResponse::Complete(result) => same(
                &serde_json::to_value(&result.content)?[0]["text"],
                &json!("hello"),
            ),
            other => Err(format!("no result but {other:?}").into()),
        }
    }

    async fn poll(&self) -> Outcome {
        let task = self.start("slow", json!({"seconds": 2})).await?;
        same(&self.status(&task).await?, &TaskStatus::Working)?;
        same(&self.text(&task).await?, &"worked for 2 s".to_owned())
    }

    async fn result(&self) -> Outcome {
        let shaped = self.start("shaped", json!({})).await?;
        let counts = json!({"files": 900, "problems": 0});
        same(&self.completed(&shaped).await?["structuredContent"], &counts)?;
        let failed = self.start("fails", json!({})).await?;
        same(&self.completed(&failed).await?["isError"], &json!(true))?;
        let erred = self.start("errs", json!({})).await?;
        match self.ended(&erred).await? {
            TaskPayload::Failed { error } => same(&error["code"], &json!(-32050)),
            other => Err(format!("not failed but {other:?}").into()),
        }
    }

    async fn question(&self) -> Outcome {
        let task = self.start("asks", json!({})).await?;
        let key = loop {
            match self.payload(&task).await? {
                TaskPayload::InputRequired { input_requests } => {
                    break input_requests.keys().next().cloned().ok_or("no question")?;
                }
                TaskPayload::Working => tokio::time::sleep(Duration::from_millis(200)).await,
                other => return Err(format!("no question but {other:?}").into()),
            }
        };
        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        let update = UpdateTaskParams::new(&task, BTreeMap::from([(key, answer)]));
        self.0.peer().update_task(update).await?;
        same(&self.text(&task).await?, &"Hello, Ada!".to_owned())
    }

    async fn cancel(&self) -> Outcome {
        let task = self.start("endless", json!({})).await?;
        self.0.peer().cancel_task(CancelTaskParams::new(&task)).await?;
        self.ended(&task).await?;
        same(&self.status(&task).await?, &TaskStatus::Cancelled)
    }

    async fn unknown(&self) -> Outcome {
        refused(self.0.peer().get_task(GetTaskParams::new(UNKNOWN)).await)?;
        refused(self.0.peer().cancel_task(CancelTaskParams::new(UNKNOWN)).await)
    }

    async fn another(&self, target: &str) -> Outcome {
        let task = self.start("slow", json!({"seconds": 1})).await?;
        let other = Peer::connect(target).await?;
        same(&other.text(&task).await?, &"worked for 1 s".to_owned())?;
        other.0.cancel().await.map_err(text_of)?;
        Ok(())
    }

    async fn restart(&self, left: &Value) -> Outcome {
        for (name, words) in [("finished", "worked for 0.1 s"), ("running", "done at attempt 2")] {
            let task = left[name].as_str().ok_or("nothing was left")?;
            same(&self.text(task).await?, &words.to_owned())?;
        }
        Ok(())
    }

    async fn ask(&self, tool: impl Into<Cow<'static, str>>, arguments: Value) -> Outcome<CallToolResponse> {
        let arguments = serde_json::from_value(arguments)?;
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        Ok(self.0.peer().call_tool_once(call).await?)
    }

    async fn start(&self, tool: impl Into<Cow<'static, str>>, arguments: Value) -> Outcome<String> {
        match self.ask(tool, arguments).await? {
            CallToolResponse::Task(created) => Ok(created.task.task_id),
            other => Err(format!("no task but {other:?}").into()),
        }
    }

    async fn payload(&self, task: &str) -> Outcome<TaskPayload> {
        Ok(self
            .0
            .peer()
            .get_task(GetTaskParams::new(task))
            .await?
            .task
            .payload)
    }

    async fn status(&self, task: &str) -> Outcome<TaskStatus> {
        Ok(self.payload(task).await?.status())
    }

    async fn ended(&self, task: &str) -> Outcome<TaskPayload> {
        loop {
            let payload = self.payload(task).await?;
            if payload.status().is_terminal() {
                return Ok(payload);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn completed(&self, task: &str) -> Outcome<Value> {
        match self.ended(task).await? {
            TaskPayload::Completed { result } => Ok(Value::from(result)),
            other => Err(format!("not completed but {other:?}").into()),
        }
    }

    async fn text(&self, task: &str) -> Outcome<String> {
        let result = self.completed(task).await?;
        Ok(result["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }
}

fn text_of(error: impl Display) -> String {
    error.to_string()
}
