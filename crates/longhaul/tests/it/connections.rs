//! Whoever keeps the listener waiting loses the connection (DOS-6, DOS-7).

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

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
    send(
        server,
        "tools/call",
        tool,
        json!({ "name": tool, "arguments": {} }),
        json!({}),
    )
}

/// A request of a client that takes tasks.
fn request(server: &Server, method: &str, name: &str, params: Value) -> TcpStream {
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    send(server, method, name, params, tasks)
}

fn send(server: &Server, method: &str, name: &str, mut params: Value, capabilities: Value) -> TcpStream {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let mut stream = connect(server);
    let head = head(server, method);
    let length = body.len();
    write!(
        stream,
        "{head}Connection: close\r\nAccept: application/json\r\nMcp-Name: {name}\r\nContent-Length: {length}\r\n\r\n{body}",
    )
    .unwrap();
    stream
}

/// The frame of a reply.
fn body(reply: &[u8]) -> Value {
    let text = std::str::from_utf8(reply).unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
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

/// A request of 2026-07-28 without a body's length.
fn head(server: &Server, method: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: {method}\r\n",
        server.address,
    )
}

/// What `server/discover` gets.
fn discover(server: &Server) -> Vec<u8> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "_meta": meta });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params }).to_string();
    let mut stream = connect(server);
    let head = head(server, "server/discover");
    let length = body.len();
    write!(
        stream,
        "{head}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    until_closed(stream)
}

fn is_ok(reply: &[u8]) -> bool {
    reply.starts_with(b"HTTP/1.1 200")
}

/// Nobody here is given up because its own time is over.
const PATIENT: &str = r#"
read_timeout = "10m"
idle_timeout = "1h"
slow_reader = "1h"
connections_max = 4
"#;

#[test]
fn a_newcomer_takes_the_place_of_an_idle_connection() {
    let rig = Rig::new(PATIENT);
    let server = rig.serve();
    let silent: Vec<TcpStream> = (0..12).map(|_| connect(&server)).collect();
    assert!(is_ok(&discover(&server)));
    // The oldest went first.
    assert!(until_closed(silent.into_iter().next().unwrap()).is_empty());
}

#[test]
fn a_newcomer_takes_the_place_of_half_a_request() {
    let rig = Rig::new(PATIENT);
    let server = rig.serve();
    let mut halves = Vec::new();
    for number in 0..12 {
        let mut half = connect(&server);
        let head = head(&server, "server/discover");
        match number % 2 {
            0 => half.write_all(head.as_bytes()).unwrap(),
            _ => write!(half, "{head}Content-Length: 1000\r\n\r\n{{").unwrap(),
        }
        halves.push(half);
    }
    assert!(is_ok(&discover(&server)));
}

#[test]
fn a_call_that_is_served_keeps_its_place() {
    let rig = Rig::new(&CONFIG.replace("read_timeout = \"1s\"", "read_timeout = \"10m\""));
    let server = rig.serve();
    let calls = [call(&server, "quiet"), call(&server, "quiet")];
    let begun = || rig.run(&["--json", "tasks"]).out.matches("\"quiet\"").count();
    while begun() < 2 {}
    let late = connect(&server);
    for call in calls {
        assert!(is_ok(&until_closed(call)));
    }
    drop(late);
}

#[test]
fn a_body_that_drips_has_no_more_time_than_any_other() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let mut drip = connect(&server);
    write!(
        drip,
        "{}Content-Length: 1000\r\n\r\n",
        head(&server, "server/discover")
    )
    .unwrap();
    drip.set_read_timeout(Some(std::time::Duration::from_millis(50)))
        .unwrap();
    let begun = longhaul_engine::clock::monotonic();
    let mut reply = [0; 12];
    let came = loop {
        // One byte for each look at whether there is a reply.
        let _ = drip.write_all(b" ");
        match drip.read(&mut reply) {
            Ok(came) => break came,
            Err(_) => assert!(longhaul_engine::clock::monotonic() < begun + PATIENCE),
        }
    };
    assert_eq!(&reply[..came], b"HTTP/1.1 408");
}

// DOS-1
#[test]
fn who_sends_too_much_reads_that_it_is_too_much() {
    let rig = Rig::new("body_max = \"64KiB\"\n");
    let server = rig.serve();
    let part = [b' '; 64 * 1024];
    let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat();
    for (length, part) in [
        ("Content-Length: 100000000", &part[..]),
        ("Transfer-Encoding: chunked", &chunk),
    ] {
        let mut large = connect(&server);
        write!(large, "{}{length}\r\n\r\n", head(&server, "server/discover")).unwrap();
        // Sent without a look at the reply, as many clients do.
        let sent = (0..1_600).take_while(|_| large.write_all(part).is_ok()).count();
        assert!(until_closed(large).starts_with(b"HTTP/1.1 413"), "{length}");
        assert!(sent < 1_600, "all of it was read");
    }
}

#[test]
fn senders_that_stop_hold_no_more_memory_than_they_sent() {
    let rig = Rig::new("bodies_max = \"1MiB\"\nbody_max = \"1MiB\"\nread_timeout = \"10m\"\n");
    let server = rig.serve();
    let mut stopped = Vec::new();
    for number in 0..64 {
        let mut half = connect(&server);
        let head = head(&server, "server/discover");
        match number % 2 {
            0 => write!(half, "{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n").unwrap(),
            _ => write!(half, "{head}Content-Length: 1000000\r\n\r\n{{").unwrap(),
        }
        stopped.push(half);
    }
    assert!(is_ok(&discover(&server)));
}

#[test]
fn large_bodies_that_wait_for_each_other_all_arrive() {
    let rig = Rig::new("bodies_max = \"1MiB\"\nbody_max = \"1MiB\"\n");
    let server = rig.serve();
    let body = format!("{}{}", " ".repeat(900_000), "[]");
    let mut senders = Vec::new();
    let mut sent = Vec::new();
    for _ in 0..8 {
        let mut sender = connect(&server);
        let head = head(&server, "server/discover");
        let length = body.len();
        write!(
            sender,
            "{head}Connection: close\r\nContent-Length: {length}\r\n\r\n{}",
            &body[..600_000]
        )
        .unwrap();
        senders.push(sender);
    }
    for mut sender in senders {
        let rest = body[600_000..].to_owned();
        sent.push(std::thread::spawn(move || {
            sender.write_all(rest.as_bytes()).unwrap();
            until_closed(sender)
        }));
    }
    for reply in sent {
        // A batch is no request, and that is told once all of it was read.
        assert!(reply.join().unwrap().starts_with(b"HTTP/1.1 400"));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the reader's pace is what is tested")]
fn a_reader_that_takes_a_little_now_and_then_is_given_up_as_well() {
    let rig = Rig::new(CONFIG);
    let server = rig.serve();
    let mut slow = call(&server, "big");
    let mut taken = 0;
    let mut part = [0; 2_000];
    let end = loop {
        // A tenth of what it would have to take in its time.
        std::thread::sleep(std::time::Duration::from_millis(20));
        match slow.read(&mut part) {
            Ok(0) => break "closed",
            Ok(bytes) => taken += bytes,
            Err(_) => break "broken off",
        }
    };
    assert!(taken < 7_500_000, "{end} after {taken} bytes");
}

/// The memory of a server that is resident, in KiB.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

// DOS-3
#[test]
fn arrays_of_millions_of_values_are_refused_before_they_take_memory() {
    let rig = Rig::new("");
    let server = rig.serve();
    assert!(is_ok(&discover(&server)));
    let before = resident(&server);
    let body = format!("[0{}]", ",0".repeat(1_999_999));
    let most = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut sender = connect(&server);
                let head = head(&server, "server/discover");
                let length = body.len();
                let head = format!("{head}Connection: close\r\nContent-Length: {length}\r\n\r\n");
                sender.write_all(head.as_bytes()).unwrap();
                sender.write_all(body.as_bytes()).unwrap();
                let reply = until_closed(sender);
                most.fetch_max(resident(&server), std::sync::atomic::Ordering::Relaxed);
                let text = String::from_utf8(reply).unwrap();
                assert!(
                    text.starts_with("HTTP/1.1 400") && text.contains("too_many_values"),
                    "{text}"
                );
            });
        }
    });
    let most = most.into_inner();
    assert!(most < before + 200 * 1024, "{before} KiB, then {most} KiB");
}

#[test]
fn readers_that_stop_hold_no_more_memory_than_there_is_for_replies() {
    let kept = r#"
        [tools.kept]
        description = "Its result is read later."
        task = "required"
        command = ["sh", "-c", "head -c 7500000 /dev/zero | tr '\\0' x"]
    "#;
    let rest = CONFIG.replace("_max = 2", "_max = 128");
    let rig = Rig::new(&format!("replies_max = \"16MiB\"{rest}{kept}"));
    let server = rig.serve();
    // One result that many read.
    let arguments = json!({ "name": "kept", "arguments": {} });
    let begun = until_closed(request(&server, "tools/call", "kept", arguments));
    let id = body(&begun)["result"]["taskId"].as_str().unwrap().to_owned();
    let get = || request(&server, "tasks/get", &id, json!({ "taskId": id }));
    let ended = || until_closed(get());
    let whole = loop {
        let got = ended();
        if body(&got)["result"]["status"] == "completed" {
            break got.len();
        }
    };
    assert!(whole > 7_500_000);
    let before = resident(&server);
    let readers: Vec<TcpStream> = (0..60).map(|_| get()).collect();
    let mut most = 0;
    let told: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            // One after the other, so that those at the end stop for as long as they may.
            readers.into_iter().map(until_closed).collect()
        });
        while !read.is_finished() {
            most = most.max(resident(&server));
            assert!(is_ok(&discover(&server)));
        }
        read.join().unwrap()
    });
    assert!(
        told.iter().any(|reply| reply.len() < whole),
        "every reply came whole"
    );
    // The replies, what is made on the way to them, and what the allocator keeps: far less than 60 of them.
    assert!(most < before + 200 * 1024, "{before} KiB, then {most} KiB");
}
