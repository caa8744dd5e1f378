//! A server of turul-mcp-server, its tasks in SQLite through the store of its own extension crate:
//! `peer-turul PORT DATABASE`.

use std::{collections::HashMap, process::Stdio, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};
use turul_mcp_ext_tasks::v2026_07_28::sqlite::SqliteTaskStore;
use turul_mcp_protocol::{
    ToolSchema,
    tools::{CallToolResult, ToolResult},
};
use turul_mcp_server::{McpServer, McpTool, SessionContext, prelude::*};

/// Which of the three tools.
#[derive(Clone, Copy)]
enum Work {
    Echo,
    Nap,
    Child,
}

struct Peer {
    name: &'static str,
    work: Work,
    input: ToolSchema,
}

impl Peer {
    fn new(name: &'static str, work: Work, arguments: &[(&str, &str)]) -> Peer {
        let properties: HashMap<String, Value> = arguments
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), json!({"type": kind})))
            .collect();
        let input = ToolSchema::object().with_properties(properties);
        Peer { name, work, input }
    }
}

impl HasBaseMetadata for Peer {
    fn name(&self) -> &str {
        self.name
    }
}

impl HasDescription for Peer {
    fn description(&self) -> Option<&str> {
        Some("A tool of the bench")
    }
}

impl HasInputSchema for Peer {
    fn input_schema(&self) -> &ToolSchema {
        &self.input
    }
}

impl HasOutputSchema for Peer {}
impl HasAnnotations for Peer {}
impl HasToolMeta for Peer {}
impl HasIcons for Peer {}

#[async_trait]
impl McpTool for Peer {
    async fn call(&self, arguments: Value, _: Option<SessionContext>) -> McpResult<CallToolResult> {
        match self.work {
            Work::Echo => Ok(text(arguments["text"].as_str().unwrap_or_default())),
            Work::Nap => {
                tokio::time::sleep(Duration::from_millis(
                    arguments["ms"].as_u64().unwrap_or_default(),
                ))
                .await;
                Ok(text("slept"))
            }
            Work::Child => child(&arguments).await,
        }
    }
}

async fn child(arguments: &Value) -> McpResult<CallToolResult> {
    let ended = tokio::process::Command::new("sleep")
        .arg(arguments["seconds"].as_f64().unwrap_or_default().to_string())
        .env("MARK", arguments["mark"].as_str().unwrap_or_default())
        .stdin(Stdio::null())
        .status()
        .await;
    match ended {
        Ok(status) if status.success() => Ok(text("done")),
        Ok(status) => Err(McpError::tool_execution(&status.to_string())),
        Err(error) => Err(McpError::tool_execution(&error.to_string())),
    }
}

fn text(words: &str) -> CallToolResult {
    CallToolResult::success(vec![ToolResult::text(words)])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(database)) = (arguments.next(), arguments.next()) else {
        return Err("say: peer-turul PORT DATABASE".into());
    };
    let server = McpServer::builder()
        .name("peer-turul")
        .version("0.0.0")
        .with_ext_tasks(Arc::new(SqliteTaskStore::open(database).await?))
        .tool(Peer::new("echo", Work::Echo, &[("text", "string")]))
        .ext_task_tool(Peer::new("nap", Work::Nap, &[("ms", "integer")]))
        .ext_task_tool(Peer::new(
            "child",
            Work::Child,
            &[("seconds", "number"), ("mark", "string")],
        ))
        .bind_address(format!("127.0.0.1:{port}").parse()?)
        .build()?;
    server.run().await?;
    Ok(())
}
