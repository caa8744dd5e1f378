//! `longhaul wrap`: one server with its own environment, behind the user's server.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf, process::Command};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Client, Place, plain_meta};
use crate::support::{PATIENCE, Site};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/wrapped.py");

/// A user whose configuration has a tool `says`, and a server that is wrapped.
struct Wrap {
    place: Place,
    folder: PathBuf,
}

/// What of tasks a client takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Takes {
    /// A session of 2025-11-25 that asks for tasks.
    Session,
    /// A client of 2026-07-28 with the extension.
    Stateless,
    /// A session of 2025-06-18, which knows no tasks.
    Nothing,
}

const ALL: [Takes; 3] = [Takes::Session, Takes::Stateless, Takes::Nothing];

impl Wrap {
    fn new() -> Wrap {
        let place = Place::new("");
        let folder = place.rig.path("wrapped");
        std::fs::create_dir(&folder).unwrap();
        Wrap { place, folder }
    }

    /// `longhaul wrap` with this fixture.
    fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.place.rig.command(&[&["wrap"], flags].concat());
        command
            .args(["--", "python3", FIXTURE])
            .arg(&self.folder)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn client(&self) -> Client {
        Client::of(self.command(&[]))
    }

    /// A client that has said hello.
    fn open(&self, takes: Takes) -> Client {
        let mut client = self.client();
        hello(&mut client, takes);
        client
    }

    fn lines(&self, name: &str) -> usize {
        std::fs::read_to_string(self.folder.join(name)).map_or(0, |text| text.lines().count())
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.folder.join(name), "").unwrap();
    }

    /// Waits until `waits` was called so often.
    fn until_runs(&self, count: usize) {
        let deadline = longhaul_engine::clock::monotonic() + PATIENCE;
        while self.lines("runs") < count {
            // Whoever looks starts a program each time, so this does not spin.
            self.place.rig.run(&["tasks"]);
            assert!(
                longhaul_engine::clock::monotonic() < deadline,
                "not called {count} times"
            );
        }
    }
}

fn hello(client: &mut Client, takes: Takes) {
    let version = match takes {
        Takes::Session => "2025-11-25",
        Takes::Nothing => "2025-06-18",
        Takes::Stateless => return,
    };
    let id = client.ask_plainly(
        "initialize",
        json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } }),
    );
    let opened = client.reply(id);
    assert_eq!(opened["result"]["protocolVersion"], version, "{opened}");
    assert_eq!(opened["result"]["serverInfo"]["title"], "A Wrapped Server");
    let told = opened["result"]["instructions"].as_str().unwrap();
    assert!(told.contains("Call `seen` first."), "{told}");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
}

fn request(client: &mut Client, takes: Takes, method: &str, params: Value) -> i64 {
    match takes {
        Takes::Stateless => client.ask(method, params),
        Takes::Session | Takes::Nothing => client.ask_plainly(method, params),
    }
}

fn listed(client: &mut Client, takes: Takes) -> Vec<String> {
    let id = request(client, takes, "tools/list", json!({}));
    let reply = client.reply(id);
    let tools = reply["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("no list: {reply}")).iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The text of a plain call.
fn text(client: &mut Client, tool: &str) -> String {
    let id = client.ask_plainly(
        "tools/call",
        json!({ "name": tool, "arguments": {}, "_meta": plain_meta() }),
    );
    let reply = client.reply(id);
    let text = reply["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {reply}")).to_owned()
}

/// Begins `waits` as this client does.
fn begin(client: &mut Client, takes: Takes) -> i64 {
    let params = match takes {
        Takes::Session => json!({ "name": "waits", "arguments": {}, "task": {} }),
        Takes::Stateless | Takes::Nothing => json!({ "name": "waits", "arguments": {} }),
    };
    request(client, takes, "tools/call", params)
}

/// The task that this request led to.
fn handed(client: &mut Client, takes: Takes, id: i64) -> Option<String> {
    let task = match takes {
        Takes::Session => client.reply(id)["result"]["task"]["taskId"].clone(),
        Takes::Stateless => client.reply(id)["result"]["taskId"].clone(),
        Takes::Nothing => return None,
    };
    Some(task.as_str().expect("a task").to_owned())
}

/// The text of the result of what was begun.
fn end(client: &mut Client, takes: Takes, id: i64, task: Option<String>) -> String {
    let result = match (takes, task) {
        (Takes::Session, Some(task)) => {
            let id = client.ask_plainly("tasks/result", json!({ "taskId": task }));
            client.reply(id)["result"].clone()
        }
        (Takes::Stateless, Some(task)) => client.ended(&task)["result"].clone(),
        (_, _) => client.reply(id)["result"].clone(),
    };
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {result}"))
        .to_owned()
}

#[test]
fn a_wrapped_server_serves_clients_of_every_generation_with_its_own_tools_alone() {
    let wrap = Wrap::new();
    wrap.touch("gate");
    for takes in ALL {
        let mut client = wrap.open(takes);
        // `says` is a tool of the configuration, too.
        let expected = ["waits", "seen", "pid", "says", "longhaul_wait"];
        assert_eq!(listed(&mut client, takes), expected, "{takes:?}");
        assert_eq!(text(&mut client, "says"), "wrapped says hello");
        let id = begin(&mut client, takes);
        let task = match takes {
            // It ends before it is a task.
            Takes::Stateless => None,
            Takes::Session | Takes::Nothing => handed(&mut client, takes, id),
        };
        assert_eq!(end(&mut client, takes, id, task), "over", "{takes:?}");
    }
}

#[test]
fn a_wrapped_server_is_shown_to_nobody_else() {
    let wrap = Wrap::new();
    let mut own = wrap.client();
    assert_eq!(text(&mut own, "says"), "wrapped says hello");
    let mut other = wrap.place.pipe();
    assert_eq!(text(&mut other, "says"), "hello");
    let names = listed(&mut other, Takes::Stateless);
    assert!(
        names.contains(&"says".to_owned()) && !names.contains(&"seen".to_owned()),
        "{names:?}"
    );
    let refused = other.call("tools/call", json!({ "name": "seen", "arguments": {} }));
    assert_eq!(refused["error"]["message"], "Unknown tool: seen", "{refused}");
    assert_eq!(wrap.place.rig.run(&["run", "seen"]).code, 3);
    let shown = wrap.place.rig.run(&["servers"]).out;
    assert!(shown.contains("\nwrapped-"), "its user sees it: {shown}");
}

#[test]
fn environment_folder_and_arguments_arrive_as_they_are() {
    let wrap = Wrap::new();
    let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let words = [
        odd(b"two words"),
        odd(b"a\nb\"'$HOME"),
        odd(b"\xff\xfe"),
        odd(b""),
        odd(b"--"),
    ];
    let large = "x".repeat(120 * 1024);
    let mut command = wrap.command(&[]);
    command
        .args(&words)
        .env("LINES_OF_IT", "one\ntwo=three\n")
        .env("LARGE", &large)
        .env("NO_TEXT", odd(b"\x80\xff"))
        .env("EMPTY", "")
        .current_dir(&wrap.folder);
    let mut client = Client::of(command);
    let seen: Value = serde_json::from_str(&text(&mut client, "seen")).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let argv: Vec<&str> = seen["argv"].as_array().unwrap()[1..]
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let expected: Vec<String> = words.iter().map(|word| hex(word.as_encoded_bytes())).collect();
    assert_eq!(argv, expected);
    assert_eq!(seen["cwd"], wrap.folder.to_str().unwrap());
    for (name, value) in [
        ("LINES_OF_IT", &b"one\ntwo=three\n"[..]),
        ("LARGE", large.as_bytes()),
        ("NO_TEXT", b"\x80\xff"),
        ("EMPTY", b""),
    ] {
        assert_eq!(seen["env"][name], hex(value), "{name}");
    }
    // Nothing of another environment is added, but what marks the process as one of Longhaul's.
    let own = seen["env"].as_object().unwrap().keys();
    let known = [
        "HOME",
        "PATH",
        "XDG_RUNTIME_DIR",
        "PYTHONDONTWRITEBYTECODE",
        "LINES_OF_IT",
        "LARGE",
        "NO_TEXT",
        "EMPTY",
    ];
    let added: Vec<&String> = own
        .filter(|name| !known.contains(&name.as_str()) && !name.starts_with("LONGHAUL_"))
        // What Python and a shell that starts it add themselves.
        .filter(|name| !["LC_CTYPE", "PWD", "SHLVL", "_"].contains(&name.as_str()) && !name.contains("PYENV"))
        .collect();
    assert!(added.is_empty(), "{added:?}");
}

#[test]
fn a_secret_of_the_environment_is_in_no_log_no_argument_and_in_clear_in_no_file() {
    let wrap = Wrap::new();
    let secret = "sesame-7f3a9c1e5b";
    let mut command = wrap.command(&[]);
    command.env("API_TOKEN", secret);
    let mut client = Client::of(command);
    assert_eq!(text(&mut client, "says"), "wrapped says hello");
    let mut files = vec![wrap.place.rig.path("state")];
    let mut read = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let Ok(bytes) = std::fs::read(&path) else { continue };
        read += 1;
        let encoded = "c2VzYW1lLTdmM2E5YzFlNWI";
        for word in [secret, encoded] {
            let found = bytes.windows(word.len()).any(|window| window == word.as_bytes());
            assert!(!found, "{} holds it", path.display());
        }
    }
    assert!(read > 2, "the database and the log were read");
    for process in std::fs::read_dir("/proc").unwrap() {
        let line = std::fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(secret));
    }
    // The server was started by this pipe, and is not its client's.
    let environ = std::fs::read(format!("/proc/{}/environ", wrap.place.server_pid())).unwrap();
    assert!(!String::from_utf8_lossy(&environ).contains(secret));
    let shown = wrap.place.rig.run(&["servers"]).out;
    assert!(!shown.contains(secret) && !shown.contains("API_TOKEN"), "{shown}");
}

#[test]
fn two_windows_share_neither_a_process_nor_a_call() {
    let wrap = Wrap::new();
    for takes in ALL {
        let runs = wrap.lines("runs");
        let (mut one, mut other) = (wrap.open(takes), wrap.open(takes));
        assert_ne!(text(&mut one, "pid"), text(&mut other, "pid"), "{takes:?}");
        let (first, second) = (begin(&mut one, takes), begin(&mut other, takes));
        let task = handed(&mut one, takes, first);
        let other_task = handed(&mut other, takes, second);
        wrap.until_runs(runs + 2);
        wrap.touch("gate");
        assert_eq!(end(&mut one, takes, first, task), "over");
        assert_eq!(end(&mut other, takes, second, other_task), "over");
        assert_eq!(wrap.lines("runs"), runs + 2, "{takes:?}");
        std::fs::remove_file(wrap.folder.join("gate")).unwrap();
    }
    // Both are one server to their user.
    let shown = wrap.place.rig.run(&["servers"]).out;
    assert_eq!(shown.matches("\nwrapped-").count(), 1, "{shown}");
}

#[test]
fn who_quits_and_comes_back_by_another_client_gets_the_result_once() {
    let wrap = Wrap::new();
    for takes in ALL {
        for is_over in [false, true] {
            let runs = wrap.lines("runs");
            let mut first = wrap.open(takes);
            let id = begin(&mut first, takes);
            handed(&mut first, takes, id);
            wrap.until_runs(runs + 1);
            first.kill();
            let running = wrap.place.until_runs("waits");
            if is_over {
                wrap.touch("gate");
                wrap.place.rig.until_state(&running, "done");
            }
            let mut second = wrap.open(takes);
            let id = begin(&mut second, takes);
            let task = match takes {
                Takes::Session | Takes::Stateless => handed(&mut second, takes, id),
                Takes::Nothing => None,
            };
            wrap.touch("gate");
            assert_eq!(end(&mut second, takes, id, task), "over", "{takes:?} {is_over}");
            assert_eq!(wrap.lines("runs"), runs + 1, "{takes:?} {is_over}: it ran once");
            // It was fetched: whoever calls now means it anew.
            let mut third = wrap.open(takes);
            let id = begin(&mut third, takes);
            let task = match takes {
                Takes::Session => handed(&mut third, takes, id),
                Takes::Stateless | Takes::Nothing => None,
            };
            assert_eq!(end(&mut third, takes, id, task), "over", "{takes:?} {is_over}");
            assert_eq!(wrap.lines("runs"), runs + 2, "{takes:?} {is_over}: it ran anew");
            std::fs::remove_file(wrap.folder.join("gate")).unwrap();
        }
    }
}

#[test]
fn a_killed_server_costs_the_call_its_process_and_the_client_nothing_else() {
    let wrap = Wrap::new();
    for takes in ALL {
        let runs = wrap.lines("runs");
        let mut client = wrap.open(takes);
        let id = begin(&mut client, takes);
        let task = handed(&mut client, takes, id);
        wrap.until_runs(runs + 1);
        wrap.place.signal_server(Signal::SIGKILL);
        let ended = match (takes, task) {
            (Takes::Session, Some(task)) => {
                let id = client.ask_plainly("tasks/result", json!({ "taskId": task }));
                client.reply(id)["error"]["data"]["reason"].clone()
            }
            (Takes::Stateless, Some(task)) => client.ended(&task)["error"]["data"]["reason"].clone(),
            (_, _) => client.reply(id)["error"]["data"]["reason"].clone(),
        };
        assert_eq!(ended, "interrupted", "{takes:?}");
        assert_eq!(text(&mut client, "says"), "wrapped says hello");
        assert_eq!(wrap.lines("runs"), runs + 1, "{takes:?}");
    }
}

#[test]
fn what_is_known_is_listed_before_the_server_is_up_and_a_start_starts_none() {
    let wrap = Wrap::new();
    let mut client = wrap.client();
    assert_eq!(text(&mut client, "says"), "wrapped says hello");
    client.kill();
    wrap.place.signal_server(Signal::SIGKILL);
    let starts = wrap.lines("starts");
    let mut other = wrap.place.pipe();
    listed(&mut other, Takes::Stateless);
    let shown = wrap.place.rig.run(&["servers"]).out;
    assert!(shown.contains("\nwrapped-"), "it is kept: {shown}");
    assert_eq!(wrap.lines("starts"), starts, "nobody needs it");
    wrap.touch("hang");
    for takes in ALL {
        let mut client = wrap.open(takes);
        assert_eq!(listed(&mut client, takes)[0], "waits");
    }
    // One that is brought otherwise, and has the same command, is taken for the same until it was reached.
    let mut command = wrap.command(&[]);
    command.env("OTHER", "1");
    let mut client = Client::of(command);
    assert_eq!(listed(&mut client, Takes::Stateless)[0], "waits");
    std::fs::remove_file(wrap.folder.join("hang")).unwrap();
    assert_eq!(text(&mut client, "says"), "wrapped says hello");
}

#[test]
fn a_server_that_cannot_be_reached_is_told_with_its_cause_and_what_helps() {
    let wrap = Wrap::new();
    wrap.touch("broken");
    let node = wrap.place.rig.path(".nvm/versions/node/v22.0.0/bin");
    std::fs::create_dir_all(&node).unwrap();
    std::os::unix::fs::symlink("/bin/true", node.join("lh-npx")).unwrap();
    let mut missing = wrap.place.rig.command(&["wrap", "--", "lh-npx", "-y", "@it/mcp"]);
    missing.env("PATH", "/usr/bin");
    let cases: [(Command, &[&str]); 2] = [
        (
            wrap.command(&[]),
            &["exited with code 1", "the folder is in no good state"],
        ),
        (
            missing,
            &["lh-npx", "PATH here: /usr/bin", "/v22.0.0/bin/lh-npx`"],
        ),
    ];
    for (command, words) in cases {
        let mut client = Client::of(command);
        let id = client.ask_plainly(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } }),
        );
        let in_session = client.reply(id);
        let by_itself = client.call("tools/list", json!({}));
        for reply in [in_session, by_itself] {
            let message = reply["error"]["message"]
                .as_str()
                .unwrap_or_else(|| panic!("no error: {reply}"));
            assert_eq!(reply["error"]["data"]["reason"], "server_unreached");
            for word in words {
                assert!(message.contains(word), "{word}: {message}");
            }
        }
    }
    // What was never reached and is used by nobody is not tried again and again.
    let deadline = longhaul_engine::clock::monotonic() + PATIENCE;
    loop {
        let shown = wrap.place.rig.run(&["servers"]);
        if !shown.out.contains("degraded") && shown.code == 0 {
            break;
        }
        assert!(longhaul_engine::clock::monotonic() < deadline, "{shown:?}");
    }
}

#[test]
fn a_wrapped_server_can_run_without_a_server_in_the_background() {
    let wrap = Wrap::new();
    let mut client = Client::of(wrap.command(&["--in-process"]));
    hello(&mut client, Takes::Session);
    assert_eq!(text(&mut client, "says"), "wrapped says hello");
    let id = begin(&mut client, Takes::Session);
    let task = handed(&mut client, Takes::Session, id);
    wrap.touch("gate");
    assert_eq!(end(&mut client, Takes::Session, id, task), "over");
    client.leave();
    assert_eq!(client.exit(), 0);
}

#[test]
fn what_cannot_be_wrapped_is_refused_before_anything_is_started() {
    let wrap = Wrap::new();
    for (arguments, word) in [
        (
            &["wrap", "--", "longhaul", "stdio"][..],
            "cannot be wrapped in itself",
        ),
        (
            &["wrap", "--", "/usr/bin/longhaul", "serve"],
            "cannot be wrapped in itself",
        ),
        (&["wrap"], "required"),
        (&["wrap", "--", ""], "no program"),
        (&["wrap", "http://user:key@127.0.0.1/mcp"], "a name or a password"),
        (
            &[
                "wrap",
                "--header",
                "Authorization=env:NOT_SET",
                "http://127.0.0.1/mcp",
            ],
            "`NOT_SET`",
        ),
        (&["wrap", "env:NOT_SET"], "`NOT_SET`"),
        (
            &["wrap", "--header", "a b=c", "http://127.0.0.1/mcp"],
            "cannot be sent",
        ),
        (&["wrap", "--header", "a=b", "--", "true"], "--header"),
    ] {
        let ran = wrap.place.rig.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?} {ran:?}");
        assert!(ran.err.contains(word), "{arguments:?} {ran:?}");
        assert!(!ran.err.contains("user:key"), "{ran:?}");
    }
    assert!(wrap.place.serving().is_none());
}

#[test]
fn the_next_server_reads_the_configuration_of_the_one_that_was_killed() {
    let place = Place::new("");
    let elsewhere = place.rig.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut server = place.rig.serve();
    let mut command = crate::support::longhaul();
    command
        .env("HOME", &elsewhere)
        .env("XDG_RUNTIME_DIR", place.rig.home.path())
        .arg("--state")
        .arg(place.rig.path("state"))
        .arg("stdio")
        .current_dir(&elsewhere);
    let mut client = Client::of(command);
    assert_eq!(text(&mut client, "says"), "hello");
    server.kill();
    assert_eq!(text(&mut client, "says"), "hello");
}

const FAR: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gateway/tests/it/fixtures/mcp_server.py"
);

#[test]
fn a_wrapped_address_gets_its_headers_and_its_calls_are_gone_on_with_after_a_crash() {
    let place = Place::new("");
    let token = place.rig.file("token", "sesame-7f3a9c");
    let site = Site::start(FAR, &["--era=2025", "--resumable", &format!("--token={token}")]);
    let client = |bearer: &str| {
        let header = ["wrap", "--header", "Authorization=env:BEARER"];
        let mut command = place.rig.command(&header);
        command.arg(site.url()).env("BEARER", format!("Bearer {bearer}"));
        Client::of(command)
    };
    let refused = client("wrong").call("tools/list", json!({}));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("401") && !message.contains("wrong"), "{message}");
    let ask = json!({ "name": "inquire", "arguments": { "asks": { "Who?": {
        "method": "elicitation/create",
        "params": { "message": "Who?", "requestedSchema": {
            "type": "object", "properties": { "name": { "type": "string" } } } },
    } } } });
    let mut first = client("sesame-7f3a9c");
    first.ask("tools/call", ask.clone());
    let name = place.until_asks("inquire");
    first.kill();
    place.signal_server(Signal::SIGKILL);
    // The next server knows it, whoever starts it.
    let mut other = place.pipe();
    listed(&mut other, Takes::Stateless);
    place
        .rig
        .until(&name, |task| task["questions"][0]["message"] == "Who?");
    assert_eq!(place.rig.run(&["answer", &name, "name=Ada"]).code, 0);
    place.rig.until_state(&name, "done");
    let mut second = client("sesame-7f3a9c");
    let id = second.ask("tools/call", ask);
    let reply = second.reply(id);
    let task = reply["result"]["taskId"].as_str().map(str::to_owned);
    let result = match task {
        Some(task) => second.ended(&task)["result"].clone(),
        None => reply["result"].clone(),
    };
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("Ada"), "{result}");
    let seen: Value = serde_json::from_str(&site.get("/seen").body).unwrap();
    assert_eq!(seen["calls"]["inquire"], 1, "{seen}");
}
