//! Wrong input over HTTP: each with its documented error, and nothing lost.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::support::{Http, PATIENCE, Rig, Server};

const CONFIG: &str = r#"
[tools.hello]
description = "Says hello."
command = ["echo", "hello", "{name}"]
args.name = "string"
"#;

/// A request with good headers; the test spoils what it is about.
struct Post {
    host: Option<String>,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Post {
    fn new(method: &str, params: Value) -> Post {
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        });
        let named = params
            .get("name")
            .or_else(|| params.get("taskId"))
            .and_then(Value::as_str);
        let name = named.map(|name| ("Mcp-Name", name.to_owned()));
        let frame = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let headers = [
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("MCP-Protocol-Version", "2026-07-28".to_owned()),
            ("Mcp-Method", method.to_owned()),
        ];
        Post {
            host: None,
            headers: headers.into_iter().chain(name).collect(),
            body: frame.to_string().into_bytes(),
        }
    }

    fn call(arguments: Value) -> Post {
        Post::new("tools/call", json!({ "name": "hello", "arguments": arguments }))
    }

    fn raw(body: impl Into<Vec<u8>>) -> Post {
        Post {
            body: body.into(),
            ..Post::call(json!({ "name": "you" }))
        }
    }

    fn with(mut self, name: &'static str, value: &str) -> Post {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Post {
        self.headers.retain(|(other, _)| *other != name);
        self
    }

    fn send(self, server: &Server) -> Http {
        let host = self.host.clone().unwrap_or_else(|| server.address.clone());
        let mut request = format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(&self.body);
        exchange(server, &bytes)
    }
}

/// Sends all that the server takes and reads its whole reply.
fn exchange(server: &Server, bytes: &[u8]) -> Http {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that refuses early closes while we still send; its reply is what counts.
    let _ = stream.write_all(bytes);
    let mut reply = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        reply.extend_from_slice(&chunk[..length]);
    }
    Http::parse(&String::from_utf8(reply).unwrap())
}

#[track_caller]
fn refused(reply: &Http, status: u16, code: i64) -> Value {
    let body: Value = serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("no JSON: {}", reply.body));
    assert_eq!(
        (reply.status, body["error"]["code"].as_i64()),
        (status, Some(code)),
        "{body}"
    );
    assert!(!reply.body.contains("/tmp"), "a path in {body}");
    body
}

#[track_caller]
fn still_serves(server: &Server) {
    let reply = Post::call(json!({ "name": "you" })).send(server);
    assert!(
        reply.status == 200 && reply.body.contains("hello you"),
        "{}",
        reply.body
    );
}

// E-1, A-14
#[test]
fn bytes_that_are_no_request_are_refused_with_their_rule() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let good = String::from_utf8(Post::call(json!({ "name": "you" })).body).unwrap();
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let cases: Vec<(Vec<u8>, i64)> = vec![
        (b"not json".to_vec(), -32700),
        (Vec::new(), -32700),
        (good.replace("you", "\\ud800").into_bytes(), -32700),
        (good.replace("you", "\\u0000").into_bytes(), -32700),
        ([&good.as_bytes()[..good.len() - 2], b"\xff}}"].concat(), -32700),
        (good.replace("\"you\"", &deep(100_000)).into_bytes(), -32700),
        (
            good.replace("\"name\":\"you\"", "\"name\":\"you\",\"name\":\"me\"")
                .into_bytes(),
            -32600,
        ),
        (
            good.replace("\"name\":\"you\"", "\"name\":\"you\",\"n\\u0061me\":\"me\"")
                .into_bytes(),
            -32600,
        ),
        (good.replace("\"method\"", "\"Method\"").into_bytes(), -32600),
        (format!("[{good}]").into_bytes(), -32600),
        (good.replace("\"id\":7", "\"id\":null").into_bytes(), -32600),
    ];
    for (body, code) in cases {
        refused(&Post::raw(body).send(&server), 400, code);
    }
    still_serves(&server);
}

// D1
#[test]
fn a_body_over_the_limit_is_refused_before_it_is_read() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let announced = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n{{",
        server.address
    );
    assert_eq!(exchange(&server, announced.as_bytes()).status, 413);
    let mut unannounced = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        server.address
    )
    .into_bytes();
    let chunk = [b"100000\r\n".as_slice(), &[b' '; 0x10_0000], b"\r\n"].concat();
    (0..100).for_each(|_| unannounced.extend_from_slice(&chunk));
    assert_eq!(exchange(&server, &unannounced).status, 413);
    still_serves(&server);
}

// S4, A-13, B-19, K-12
#[test]
fn a_foreign_host_or_origin_is_refused_and_the_setting_named() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let call = || Post::call(json!({ "name": "you" }));
    let foreign = Post {
        host: Some("evil.example.com".to_owned()),
        ..call()
    }
    .send(&server);
    assert_eq!(foreign.status, 403);
    assert!(foreign.body.contains("server.allowed_hosts"), "{}", foreign.body);
    let origin = call().with("Origin", "http://evil.example.com").send(&server);
    assert_eq!(origin.status, 403);
    assert!(origin.body.contains("server.allowed_origins"), "{}", origin.body);
    assert_eq!(
        call().with("Sec-Fetch-Site", "cross-site").send(&server).status,
        403
    );
    assert_eq!(
        call().with("Content-Type", "text/plain").send(&server).status,
        415
    );
    let own = format!("http://{}", server.address);
    assert_eq!(call().with("Origin", &own).send(&server).status, 200);
}

// B-5, B-13, B-22, K-15
#[test]
fn headers_and_meta_must_be_there_and_agree() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let call = || Post::call(json!({ "name": "you" }));
    let bare = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "hello" } });
    refused(&Post::raw(bare.to_string()).send(&server), 400, -32602);
    refused(&call().without("Mcp-Method").send(&server), 400, -32020);
    refused(
        &call().with("Mcp-Method", "tools/list").send(&server),
        400,
        -32020,
    );
    refused(&call().with("Mcp-Name", "goodbye").send(&server), 400, -32020);
    refused(
        &call().with("MCP-Protocol-Version", "2027-01-01").send(&server),
        400,
        -32020,
    );
    refused(&Post::new("nosuch/method", json!({})).send(&server), 404, -32601);
    still_serves(&server);
}

// G-3, C-39
#[test]
fn an_unknown_and_a_malformed_task_read_the_same() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let bodies: Vec<String> = ["lh1.1.AAAA", "nobody", "../../etc/passwd"]
        .iter()
        .map(|id| {
            let reply = Post::new("tasks/get", json!({ "taskId": id })).send(&server);
            refused(&reply, 200, -32602);
            reply.body
        })
        .collect();
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
    assert!(
        bodies[0].contains("Failed to retrieve task: Task not found"),
        "{}",
        bodies[0]
    );
}

// B-54
#[test]
fn an_unknown_tool_is_an_error_and_bad_arguments_are_a_result() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let unknown = Post::new("tools/call", json!({ "name": "nosuch", "arguments": {} })).send(&server);
    refused(&unknown, 200, -32602);
    for arguments in [
        json!({}),
        json!({ "name": 7 }),
        json!({ "name": "you", "extra": 1 }),
        json!({ "name": "-rf" }),
    ] {
        let reply = Post::call(arguments.clone()).send(&server);
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(
            (reply.status, &body["result"]["isError"]),
            (200, &json!(true)),
            "{arguments}: {body}"
        );
    }
    assert_eq!(
        rig.run(&["--json", "tasks", "list"])
            .out
            .matches("\"name\"")
            .count(),
        0,
        "no task was born"
    );
}

#[test]
fn a_missing_program_says_where_it_was_looked_for() {
    let rig = Rig::new("[tools.gone]\ndescription = \"Gone.\"\ncommand = [\"no-such-program\"]\n");
    let _server = rig.serve();
    let ran = rig.run(&["run", "gone"]);
    assert_eq!(ran.code, 1);
    let told = format!("{}{}", ran.out, ran.err);
    assert!(
        told.contains("`no-such-program`") && told.contains("PATH"),
        "{told}"
    );
    assert!(told.contains(&std::env::var("PATH").unwrap()), "{told}");
}
