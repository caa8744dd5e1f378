//! The server that the gateways stand in front of: a plain one of 2025-11-25, without tasks.
//!
//! `peer-behind` speaks on standard streams, `peer-behind PORT` over HTTP, with sessions. It answers at once and on one
//! thread, so that what is measured is the gateway. `who` says which process answered. What a client may send and gets
//! no answer to (a GET for a stream) is refused as the protocol allows.

use std::io::{BufRead as _, Write as _};

use axum::{
    Json, Router,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::Deserialize;
use serde_json::{Value, json};

const SESSION: &str = "mcp-session-id";
const NEWEST: &str = "2025-11-25";
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST];

#[derive(Deserialize)]
struct Frame {
    id: Option<Value>,
    #[serde(default)]
    method: String,
    #[serde(default)]
    params: Value,
}

/// The reply to a frame; none to what is no request.
fn reply(frame: &Frame) -> Option<Value> {
    let id = frame.id.as_ref()?;
    if frame.method.is_empty() {
        return None;
    }
    Some(match result(frame) {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, message)) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    })
}

fn result(frame: &Frame) -> Result<Value, (i32, &'static str)> {
    match frame.method.as_str() {
        "initialize" => {
            let asked = frame.params["protocolVersion"].as_str().unwrap_or_default();
            let version = VERSIONS.iter().find(|version| **version == asked).unwrap_or(&NEWEST);
            Ok(json!({
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "peer-behind", "version": "0.0.0"},
            }))
        }
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": [
            {
                "name": "echo",
                "description": "Says what it is told",
                "inputSchema": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}},
                    "required": ["text"],
                },
            },
            {
                "name": "who",
                "description": "Says which process answers",
                "inputSchema": {"type": "object", "properties": {}},
            },
        ]})),
        "tools/call" => match frame.params["name"].as_str().unwrap_or_default() {
            "echo" => Ok(content(frame.params["arguments"]["text"].clone())),
            "who" => Ok(content(json!(std::process::id().to_string()))),
            _ => Err((-32602, "Unknown tool")),
        },
        _ => Err((-32601, "Method not found")),
    }
}

fn content(text: Value) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}

async fn over_http(headers: HeaderMap, Json(frame): Json<Frame>) -> Response {
    let Some(reply) = reply(&frame) else {
        return StatusCode::ACCEPTED.into_response();
    };
    let session = if frame.method == "initialize" {
        HeaderValue::from_static("the-only-one")
    } else if let Some(session) = headers.get(SESSION) {
        session.clone()
    } else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    ([(HeaderName::from_static(SESSION), session)], Json(reply)).into_response()
}

/// The end of a session; nothing is kept for one.
async fn end() -> StatusCode {
    StatusCode::OK
}

fn on_standard_streams() -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(frame) = serde_json::from_str::<Frame>(&line?) else {
            continue;
        };
        if let Some(reply) = reply(&frame) {
            let mut line = reply.to_string();
            line.push('\n');
            output.write_all(line.as_bytes())?;
            output.flush()?;
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn serve(port: &str) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, Router::new().route("/mcp", post(over_http).delete(end))).await
}

fn main() -> std::io::Result<()> {
    match std::env::args().nth(1) {
        Some(port) => serve(&port),
        None => on_standard_streams(),
    }
}
