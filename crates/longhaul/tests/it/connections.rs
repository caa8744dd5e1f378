//! Whoever keeps the listener waiting loses the connection (DOS-6, DOS-7).

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::json;

use crate::support::{PATIENCE, Rig, Server};

/// The tools of `Rig::new` follow the section `[server]`, so these are its settings.
const CONFIG: &str = r#"
read_timeout = "1s"
slow_reader = "1s"
connections_max = 2
[tools.quiet]
description = "Says nothing for longer than a sender has for its headers."
command = ["sleep", "2"]
[tools.big]
description = "Prints more than any socket buffers."
command = ["sh", "-c", "head -c 7500000 /dev/zero | tr '\\0' x"]
"#;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A call of a tool by a client that takes no tasks.
fn call(server: &Server, tool: &str) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut stream = connect(server);
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: {tool}\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        body.len(),
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads until the server closes.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is a close, too.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn headers_that_never_end_are_waited_for_no_longer_than_their_time() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let silent = connect(&server);
    let mut half = connect(&server);
    half.write_all(b"POST /mcp HTTP/1.1\r\nHost: ").unwrap();
    assert!(until_closed(silent).is_empty());
    assert!(!until_closed(half).starts_with(b"HTTP/1.1 2"));
}

#[test]
fn a_call_may_take_longer_than_headers_may() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    assert!(until_closed(call(&server, "quiet")).starts_with(b"HTTP/1.1 200"));
}

#[test]
fn readers_that_take_nothing_give_their_places_up() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let whole = until_closed(call(&server, "big")).len();
    let readers: Vec<TcpStream> = (0..2).map(|_| call(&server, "big")).collect();
    // Every place is taken: the next connection is served when a reader is given up.
    assert!(until_closed(call(&server, "quiet")).starts_with(b"HTTP/1.1 200"));
    let taken = readers.into_iter().map(|reader| until_closed(reader).len());
    assert!(taken.min().unwrap() < whole, "every reply came whole");
}
