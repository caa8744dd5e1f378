//! A server of rmcp, with its own task manager: `peer-rmcp PORT`. Tasks are in memory.
//!
//! `chatter` is for the attacks: it sends the messages of a log while it is called.
#![expect(deprecated, reason = "logging is of 2025-11-25, where the attacks use it")]

use std::{process::Stdio, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
        CreateTaskResult, GetTaskParams, GetTaskResult, JsonObject, ListToolsResult, LoggingLevel,
        LoggingMessageNotificationParam, PaginatedRequestParams, ServerCapabilities, ServerConfig,
        SetLevelRequestParams, Tool, UpdateTaskParams,
    },
    service::RequestContext,
    task_manager::{TaskExit, TaskManager, TaskOptions},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};

/// As long as the longest `nap` of a bench.
const TTL_MS: u64 = 7_200_000;

#[derive(Clone, Default)]
struct Peer {
    tasks: TaskManager,
}

impl Peer {
    fn task(
        &self,
        work: impl Future<Output = Result<CallToolResult, TaskExit>> + Send + 'static,
    ) -> CallToolResponse {
        let options = TaskOptions::new().with_ttl_ms(TTL_MS);
        let task = self.tasks.spawn(options, move |context| {
            Box::pin(async move {
                tokio::select! {
                    () = context.cancelled() => Err(TaskExit::Cancelled),
                    done = work => done,
                }
            })
        });
        CallToolResponse::Task(CreateTaskResult::new(task))
    }
}

impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_logging()
                .enable_tools()
                .enable_tasks()
                .build(),
        )
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![
            tool("echo", "Says it again", json!({"text": {"type": "string"}})),
            tool("nap", "Sleeps", json!({"ms": {"type": "integer"}})),
            tool(
                "child",
                "Waits for a process",
                json!({"seconds": {"type": "number"}, "mark": {"type": "string"}}),
            ),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        match request.name.as_ref() {
            "echo" => Ok(text(arguments["text"].as_str().unwrap_or_default()).into()),
            "nap" => {
                let nap = Duration::from_millis(arguments["ms"].as_u64().unwrap_or_default());
                Ok(self.task(async move {
                    tokio::time::sleep(nap).await;
                    Ok(text("slept"))
                }))
            }
            "chatter" => {
                let words = "x".repeat(arguments["bytes"].as_u64().unwrap_or_default() as usize);
                for _ in 0..arguments["messages"].as_u64().unwrap_or_default() {
                    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(words));
                    if context.peer.notify_logging_message(message).await.is_err() {
                        break;
                    }
                }
                Ok(text("said").into())
            }
            "child" => Ok(self.task(child(arguments))),
            _ => Err(ErrorData::invalid_params("no such tool", None)),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

async fn child(arguments: Value) -> Result<CallToolResult, TaskExit> {
    let seconds = arguments["seconds"].as_f64().unwrap_or_default();
    let ended = tokio::process::Command::new("sleep")
        .arg(seconds.to_string())
        .env("MARK", arguments["mark"].as_str().unwrap_or_default())
        .stdin(Stdio::null())
        .status()
        .await;
    match ended {
        Ok(status) if status.success() => Ok(text("done")),
        Ok(status) => Err(ErrorData::internal_error(status.to_string(), None).into()),
        Err(error) => Err(ErrorData::internal_error(error.to_string(), None).into()),
    }
}

fn text(words: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(words)])
}

fn tool(name: &'static str, description: &'static str, properties: Value) -> Tool {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    Tool::new(name, description, schema)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("say: peer-rmcp PORT")?;
    let peer = Peer::default();
    let service: StreamableHttpService<Peer, LocalSessionManager> = StreamableHttpService::new(
        move || Ok(peer.clone()),
        Default::default(),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}
