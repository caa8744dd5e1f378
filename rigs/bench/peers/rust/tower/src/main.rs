//! A server of tower-mcp, with its own store of tasks in memory: `peer-tower PORT`.

use std::{process::Stdio, sync::Arc, time::Duration};

use serde::Deserialize;
use tower_mcp::{
    CallToolResult, HttpTransport, McpRouter, TaskContext, TaskOutcome, Tool, ToolBuilder,
    async_task::{MemoryTaskStore, MemoryTaskStoreConfig, TaskRetentionLimits},
    schemars::{self, JsonSchema},
};

/// As long as the longest `nap` of a bench.
const TTL: Duration = Duration::from_secs(7200);

#[derive(Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nap {
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Child {
    seconds: f64,
    mark: String,
}

fn echo() -> Tool {
    ToolBuilder::new("echo")
        .description("Says it again")
        .handler(|echo: Echo| async move { Ok(CallToolResult::text(echo.text)) })
        .build()
}

fn nap() -> Tool {
    ToolBuilder::new("nap")
        .description("Sleeps")
        .live_task_handler(|task: TaskContext, nap: Nap| async move {
            tokio::select! {
                () = task.cancelled() => Err(tower_mcp::Error::TaskCancelled),
                () = tokio::time::sleep(Duration::from_millis(nap.ms)) => {
                    Ok(TaskOutcome::Completed(CallToolResult::text("slept")))
                }
            }
        })
        .build()
}

fn child() -> Tool {
    ToolBuilder::new("child")
        .description("Waits for a process")
        .live_task_handler(|task: TaskContext, child: Child| async move {
            let mut process = tokio::process::Command::new("sleep")
                .arg(child.seconds.to_string())
                .env("MARK", child.mark)
                .stdin(Stdio::null())
                .spawn()
                .map_err(tower_mcp::Error::tool_from)?;
            tokio::select! {
                () = task.cancelled() => Err(tower_mcp::Error::TaskCancelled),
                ended = process.wait() => match ended {
                    Ok(status) if status.success() => Ok(TaskOutcome::Completed(CallToolResult::text("done"))),
                    Ok(status) => Ok(TaskOutcome::Completed(CallToolResult::error(status.to_string()))),
                    Err(error) => Err(tower_mcp::Error::tool_from(error)),
                },
            }
        })
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("say: peer-tower PORT")?;
    let store = MemoryTaskStore::with_config_and_retention(
        MemoryTaskStoreConfig::new().default_ttl(TTL),
        TaskRetentionLimits::unbounded(),
    );
    let router = McpRouter::new()
        .server_info("peer-tower", "0.0.0")
        .task_store(Arc::new(store))
        .tool(echo())
        .tool(nap())
        .tool(child())
        .with_tasks();
    let service = HttpTransport::new(router).into_router_at("/mcp");
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, service).await?;
    Ok(())
}
