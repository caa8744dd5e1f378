//! Hostile text in every field that a tool, a server or a client fills in: in a real browser and on a terminal.
//!
//! The texts stand in `samples/hostile.json`.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde::Deserialize;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::support::{Chrome, Rig, Server};

/// What a script of a payload leaves in the document, where no text can: an attribute.
const SCRIPT: &str = "document.documentElement.dataset.ran=1";
/// The windows in which everything must fit, in CSS pixels.
const WIDTHS: [u32; 2] = [360, 1280];

/// A tool that says what stands in the files of a folder, each in its place.
const TOOLS: &str = r#"
[server]
bind = "127.0.0.1:0"
[tools.hostile]
title = "TITLE"
description = "DESCRIPTION"
command = ["sh", "SCRIPT", "{folder}"]
args.folder = "string"
task = "required"
result = "mcp"
concurrency = 200
"#;

const SCRIPT_OF_TOOL: &str = r#"
cat "$1/stderr" >&2
cat "$1/said" >&$LONGHAUL_FD
# Each question is replied to by itself.
if [ -e "$1/asks" ]; then for reply in 1 2 3; do read -r reply <&$LONGHAUL_FD; done; fi
cat "$1/result"
"#;

#[derive(Deserialize)]
struct Payload {
    name: String,
    text: String,
    times: Option<usize>,
}

/// The texts, with the address of the trap in them.
fn payloads(trap: &str) -> Vec<(String, String)> {
    let payloads: Vec<Payload> = serde_json::from_str(include_str!("samples/hostile.json")).unwrap();
    assert!(payloads.len() >= 60);
    let filled = |text: &str| text.replace("{ran}", SCRIPT).replace("{trap}", trap);
    payloads
        .into_iter()
        .map(|payload| {
            (
                payload.name,
                filled(&payload.text).repeat(payload.times.unwrap_or(1)),
            )
        })
        .collect()
}

/// A server whose tasks hold the payloads.
struct Stage {
    rig: Rig,
    server: Server,
    payloads: Vec<(String, String)>,
    /// For each payload: a task that asks, or could not, and one that ended in an error.
    tasks: Vec<(String, String)>,
    asking: usize,
}

impl Stage {
    fn set(trap: &str) -> Stage {
        let payloads = payloads(trap);
        let rig = Rig::new("");
        let script = rig.file("hostile.sh", SCRIPT_OF_TOOL);
        let behind = rig.file("behind.sh", BEHIND);
        let mut config = TOOLS.replace("SCRIPT", &script);
        // A title and a description of a tool of ours are one each; of servers there are more.
        config = config.replace("\"TITLE\"", &toml_text(&payloads[1].1));
        config = config.replace("\"DESCRIPTION\"", &toml_text(&payloads[2].1));
        for (at, (_, text)) in payloads.iter().enumerate().step_by(6) {
            let (itself, errors) = (
                json!({"name": text, "version": text, "title": text}).to_string(),
                rig.file(&format!("errors{at}"), text),
            );
            let itself = rig.file(&format!("itself{at}"), &itself);
            config.push_str(&format!(
                "[servers.well{at}]\ncommand = [\"sh\", \"{behind}\", \"{itself}\"]\n\
                 [servers.ill{at}]\ncommand = [\"sh\", \"-c\", \"cat {errors} >&2; exit 1\"]\n"
            ));
        }
        rig.file("longhaul.toml", &config);
        let server = rig.serve();
        let mut stage = Stage {
            rig,
            server,
            payloads,
            tasks: Vec::new(),
            asking: 0,
        };
        for at in 0..stage.payloads.len() {
            stage.play(at);
        }
        stage
    }

    /// Begins both tasks of one payload.
    fn play(&mut self, at: usize) {
        let text = self.payloads[at].1.clone();
        let asks = self.begin(&text, &format!("asks{at}"), true);
        let fails = self.begin(&text, &format!("fails{at}"), false);
        self.rig.until_state(&fails, "failed");
        let task = self.rig.until(&asks, |task| {
            task["state"] == "asking" || task["state"] == "done" || task["state"] == "failed"
        });
        self.asking += usize::from(task["state"] == "asking");
        self.tasks.push((asks, fails));
    }

    fn begin(&self, text: &str, folder: &str, asks: bool) -> String {
        let folder_path = self.rig.path(folder);
        fs::create_dir(&folder_path).unwrap();
        let file = |name: &str, content: String| fs::write(folder_path.join(name), content).unwrap();
        file("stderr", format!("{text}\n"));
        let progress = json!({ "progress": 1, "total": 3, "message": text });
        if asks {
            // A question that may not be as long as that is refused.
            let short: String = text.chars().take(3_000).collect();
            let form = json!({ "type": "object", "properties": {
                "a": { "type": "string", "title": short, "description": short, "default": short },
                "b": { "type": "string", "title": short, "oneOf": [{ "const": short, "title": short }, { "const": "x", "title": "y" }] },
                "c": { "type": "array", "title": short, "items": { "type": "string", "enum": [short, "z"] } },
            }});
            let ask = json!({ "ask": { "id": 1, "message": short, "form": form } });
            let link = json!({ "ask": { "id": 2, "message": "Open it", "url": format!("https://a.example/{short}") } });
            let encoded: String =
                form_urlencoded::byte_serialize(short.chars().take(300).collect::<String>().as_bytes())
                    .collect();
            let encoded = json!({ "ask": { "id": 3, "message": short, "url": format!("https://a.example/?{encoded}") } });
            file("said", format!("{progress}\n{link}\n{encoded}\n{ask}\n"));
            file("asks", String::new());
            file(
                "result",
                json!({
                    "content": [{ "type": "text", "text": text }, { "type": text, "text": text }],
                    "structuredContent": { "a": text, "b": [text] }, "isError": false,
                })
                .to_string()
                .replace(&format!(",{{\"text\":{0},\"type\":{0}}}", json!(text)), ""),
            );
        } else {
            file("said", format!("{progress}\n"));
            file(
                "result",
                json!({ "code": 7, "message": text, "data": text }).to_string(),
            );
        }
        self.call(text, &folder_path.display().to_string())
    }

    /// Calls as a client of this name: the task.
    fn call(&self, client: &str, folder: &str) -> String {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "hostile", "arguments": { "folder": folder },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": client, "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {
                    "extensions": { "io.modelcontextprotocol/tasks": {} },
                    "elicitation": { "form": {}, "url": {} },
                },
            },
        }})
        .to_string();
        let (host, length) = (&self.server.address, body.len());
        let reply = self.server.http(&format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: hostile\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert!(
            reply.body.contains("taskId"),
            "{client:.80}: {} {:.400}",
            reply.head,
            reply.body
        );
        let listed = self.rig.run(&["--json", "tasks", "--limit", "1"]).out;
        let listed: Value = serde_json::from_str(&listed).unwrap();
        listed["tasks"][0]["name"].as_str().unwrap().to_owned()
    }
}

/// A server that says of itself what a file holds, and has a tool that is described by it.
const BEHIND: &str = r#"
while read -r line; do
  case "$line" in
    *'"initialize"'*|*'"server/discover"'*|*'"tools/list"'*)
      id=${line#*\"id\":}; id=${id%%[,\}]*}
      case "$line" in
        *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":' "$id"; cat "$1"; echo '}}' ;;
        *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":' "$id"; cat "$1"; echo '}]}}' ;;
        *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
      esac ;;
  esac
done
"#;

fn toml_text(text: &str) -> String {
    json!(text).to_string()
}

/// What is wrong with the page as it is laid out: text beyond its side, and buttons that cannot be pressed.
const WRONG: &str = r#"(() => {
  const wrong = [], wide = document.documentElement.clientWidth;
  if (document.documentElement.dataset.ran) wrong.push("a script ran");
  if (document.documentElement.scrollWidth > wide) wrong.push("it is " + document.documentElement.scrollWidth + " wide");
  if (document.querySelector("script, iframe, object, embed, base, img, svg, math, video, template, style, [style]"))
    wrong.push("it holds " + document.querySelector("script, iframe, object, embed, base, img, svg, math, video, template, style, [style]").outerHTML);
  for (const element of document.querySelectorAll("button, a.button, input:not([type=hidden]), select, textarea")) {
    element.scrollIntoView({ block: "center", behavior: "instant" });
    const box = element.getBoundingClientRect();
    const name = element.tagName + " " + element.textContent.slice(0, 40);
    if (box.width < 10 || box.height < 10) wrong.push(name + " cannot be seen");
    else if (box.left < 0 || box.right > wide + 0.5) wrong.push(name + " is beyond the side");
    else {
      const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
      if (top !== element && !element.contains(top)) wrong.push(name + " is covered by " + (top && top.tagName));
    }
  }
  return wrong;
})()"#;

/// S11, S12
#[test]
#[cfg_attr(not(chromium_at_hand), ignore = "needs /usr/bin/chromium")]
fn in_a_browser_hostile_text_in_every_field_runs_nothing_and_breaks_nothing() {
    let (trap, reached) = trap();
    let stage = Stage::set(&trap);
    assert!(
        stage.asking * 10 >= stage.payloads.len() * 9,
        "{} of {} were asked",
        stage.asking,
        stage.payloads.len()
    );
    let mut chrome = Chrome::start(&stage.rig);
    chrome.resize(WIDTHS[0], 800, 1);

    // The measure works: a page that is too wide and a script that runs are seen.
    chrome.open(&format!(
        "file://{}",
        stage.rig.file(
            "bare.html",
            &format!("<div style=width:999px>wide</div><script>{SCRIPT}</script><img src={trap}/i><button style='position:absolute;left:-99px'>x</button>")
        )
    ));
    let seen = chrome.see(WRONG).to_string();
    for expected in ["a script ran", "wide", "it holds", "beyond the side"] {
        assert!(seen.contains(expected), "{expected}: {seen}");
    }
    assert!(reached.swap(0, Ordering::SeqCst) > 0, "the trap was not reached");
    chrome.requested.clear();

    chrome.open(stage.rig.run(&["page"]).out.trim());
    let home = format!("http://{}/", stage.server.address);
    let mut wrong = Vec::new();
    let mut look = |chrome: &mut Chrome, path: &str, what: &str| {
        chrome.open(&format!("{home}{path}"));
        for width in WIDTHS {
            chrome.resize(width, 800, 1);
            for found in chrome.see(WRONG).as_array().unwrap() {
                wrong.push(format!("{what}, /{path} at {width}: {found}"));
            }
        }
    };
    look(&mut chrome, "?still=1", "the overview that asks");
    let names = stage.payloads.iter().map(|(name, _)| name);
    for (name, (asks, fails)) in names.clone().zip(&stage.tasks) {
        look(&mut chrome, &format!("ask/{asks}"), name);
        look(&mut chrome, &format!("tasks/{asks}?still=1"), name);
        look(&mut chrome, &format!("tasks/{fails}"), name);
    }
    for (asks, _) in &stage.tasks {
        for question in ["q1", "q2", "q3"] {
            stage
                .rig
                .run(&["answer", asks, "--question", question, "--decline"]);
        }
    }
    for (name, (asks, _)) in names.zip(&stage.tasks) {
        stage
            .rig
            .until(asks, |task| task["state"] == "done" || task["state"] == "failed");
        look(&mut chrome, &format!("tasks/{asks}"), name);
    }
    look(&mut chrome, "?still=1", "the overview of what has ended");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let elsewhere: Vec<&String> = chrome
        .requested
        .iter()
        .filter(|url| !url.starts_with(&home))
        .collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    assert_eq!(reached.load(Ordering::SeqCst), 0, "something was fetched");
}

/// S16
#[test]
fn on_a_terminal_hostile_text_in_every_field_steers_nothing() {
    let stage = Stage::set("http://127.0.0.1:9");
    for arguments in [&["tasks"][..], &["servers"], &["top"]] {
        is_plain(&stage.rig.run(arguments).out, "\n");
    }
    for (asks, fails) in &stage.tasks {
        for arguments in [
            ["tasks", asks].as_slice(),
            &["tasks", fails],
            &["tasks", "result", fails],
        ] {
            let ran = stage.rig.run(arguments);
            is_plain(&ran.out, "\n");
            is_plain(&ran.err, "\n");
        }
    }
    let top = at_a_terminal(
        &stage.rig,
        &["top"],
        &format!("{}q", "\n\nj".repeat(stage.tasks.len() * 2)),
    );
    let top = without_our_sequences(&top);
    assert!(
        top.split('\u{0}').count() > stage.tasks.len(),
        "each task was looked at"
    );
    for screen in top.split('\u{0}') {
        is_plain(screen, "\r\n");
        for line in screen.split("\r\n") {
            // The terminal adds another to each.
            assert!(line.trim_end_matches('\r').width() <= 80, "{line:?}");
        }
    }
    for (asks, _) in stage.tasks.iter().step_by(3) {
        let dialogue = at_a_terminal(&stage.rig, &["answer", asks], "/decline\n/decline\n/decline\n");
        is_plain(&dialogue, "\r\n");
    }
}

/// Holds nothing that steers a terminal, besides these.
fn is_plain(text: &str, but: &str) {
    for line in text.split(|c| but.contains(c)) {
        let plain = longhaul_mcp::clean(line, usize::MAX);
        assert_eq!(plain, line, "{line:?}");
    }
}

/// What `top` writes, with a NUL in place of the beginning of each screen.
fn without_our_sequences(text: &str) -> String {
    const OURS: [&str; 17] = [
        "[K", "[J", "[2J", "[?25l", "[?25h", "[?1049h", "[?1049l", "[?2026h", "[?2026l", "[0m", "[1m", "[2m",
        "[31m", "[32m", "[33m", "[36m", "[H",
    ];
    let mut parts = text.split('\u{1b}');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ours = OURS.iter().find(|sequence| part.starts_with(**sequence));
        let ours = ours.unwrap_or_else(|| panic!("not ours: {part:?}"));
        if *ours == "[H" {
            out.push('\u{0}');
        }
        out.push_str(&part[ours.len()..]);
    }
    out
}

/// What a command writes on a terminal of 80 columns and 24 rows on which this is typed.
fn at_a_terminal(rig: &Rig, arguments: &[&str], typed: &str) -> String {
    let size = nix::pty::Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = nix::pty::openpty(Some(&size), None).unwrap();
    let end = || std::process::Stdio::from(terminal.slave.try_clone().unwrap());
    let mut child = rig
        .command(arguments)
        .env("TERM", "xterm-256color")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    drop(terminal.slave);
    let master = fs::File::from(terminal.master);
    let mut writing = master.try_clone().unwrap();
    let typed = typed.to_owned();
    // A terminal takes only so much that nobody has read.
    let typing = std::thread::spawn(move || {
        for key in typed.as_bytes().chunks(64) {
            writing.write_all(key).unwrap();
        }
    });
    let mut out = Vec::new();
    let mut reading = master;
    let mut chunk = vec![0; 1 << 16];
    // When its last user is gone, a terminal ends with an error.
    while let Ok(count @ 1..) = reading.read(&mut chunk) {
        out.extend_from_slice(&chunk[..count]);
    }
    typing.join().unwrap();
    child.wait().unwrap();
    String::from_utf8(out).expect("text")
}

/// An address that only a payload names, and how often it was reached.
fn trap() -> (String, &'static AtomicUsize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let reached: &'static AtomicUsize = Box::leak(Box::default());
    // The thread ends with the process.
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            reached.fetch_add(1, Ordering::SeqCst);
            drop(connection);
        }
    });
    (address, reached)
}
