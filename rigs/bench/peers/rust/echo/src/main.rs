//! No MCP server: it reads the JSON and sends the bodies that a create, a get, a cancel and an `echo` are answered with.
//!
//! `peer-echo PORT`. The least that an HTTP server in front of axum costs: nothing is kept, nothing is run.

use axum::{Json, Router, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};

const TASK: &str = "lh1.1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const TIME: &str = "2026-07-28T00:00:00.000Z";

#[derive(Deserialize)]
struct Frame {
    id: Value,
    method: String,
    #[serde(default)]
    params: Params,
}

#[derive(Deserialize, Default)]
struct Params {
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: Value,
}

async fn answer(Json(frame): Json<Frame>) -> Json<Value> {
    let result = match (frame.method.as_str(), frame.params.name.as_str()) {
        ("tools/call", "echo") => json!({
            "resultType": "complete",
            "content": [{"type": "text", "text": frame.params.arguments["text"]}],
            "isError": false,
        }),
        ("tools/call", _) => task("task", "working"),
        ("tasks/get", _) => task("complete", "completed"),
        ("tasks/cancel" | "tasks/update", _) => json!({"resultType": "complete"}),
        _ => {
            return Json(
                json!({"jsonrpc": "2.0", "id": frame.id, "error": {"code": -32601, "message": "Method not found"}}),
            );
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": frame.id, "result": result}))
}

fn task(kind: &str, status: &str) -> Value {
    let mut task = json!({
        "resultType": kind,
        "taskId": TASK,
        "status": status,
        "createdAt": TIME,
        "lastUpdatedAt": TIME,
        "ttlMs": 604_800_000,
        "pollIntervalMs": 500,
    });
    if status == "completed" {
        task["result"] = json!({"content": [{"type": "text", "text": "slept"}], "isError": false});
    }
    task
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("say: peer-echo PORT")?;
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let service = Router::new().route("/mcp", post(answer));
    axum::serve(listener, service).await?;
    Ok(())
}
