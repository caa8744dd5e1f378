//! What passes through the gateway arrives as it was sent, but for the edits of docs/reference/relay.md.
//!
//! The sessions were recorded with real servers (rigs/recorded). `fixtures/replay.py` plays the servers' half with the
//! very bytes; clients of every generation send the other half through the gateway. What arrives on either side is
//! compared, token by token, with what was sent after the documented edits, which `edits` makes a second time.

mod client;
mod edits;
mod hostile;
mod json;
mod session;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::stream::{self, StreamExt as _};
use longhaul_gateway::dispatch::Settings;
use tokio::process::Child;

use self::{
    client::{Client, Speaks},
    edits::{Era, Met, Of},
    json::Node,
    session::Session,
};
use crate::support::{World, listening};

const PATIENCE: Duration = Duration::from_secs(30);
const SESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/recorded/sessions");
const REPLAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/replay.py");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/lossless.md");
/// The most differences that a failing test prints.
const SHOWN_MAX: usize = 50;
/// Replays at the same time.
const AT_ONCE: usize = 4;

/// How the gateway reaches the replayed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Carrier {
    Pipe,
    Http,
}

/// A gateway with one server behind it, which replays.
struct Replay {
    world: World,
    _folder: tempfile::TempDir,
    _process: Option<Child>,
}

/// What arrived at the server.
struct Log {
    path: PathBuf,
    read: usize,
}

impl Replay {
    async fn start(session: &Path, carrier: Carrier) -> (Replay, Log) {
        let folder = tempfile::tempdir().expect("a directory");
        let log = folder.path().join("log");
        fs::write(&log, "").expect("a file");
        let (process, how) = match carrier {
            Carrier::Pipe => {
                let command = ["python3", REPLAY, "stdio", path(session), path(&log)];
                (
                    None,
                    format!("command = {command:?}\nenv.PYTHONDONTWRITEBYTECODE = \"1\"\n"),
                )
            }
            Carrier::Http => {
                let (process, port) = listening(&[REPLAY, "http", path(session), path(&log)]).await;
                (Some(process), format!("url = \"http://127.0.0.1:{port}/mcp\"\n"))
            }
        };
        let config = format!(
            "[servers.recorded]\npromote_after = \"0s\"\nquestions = [\"form\", \"url\", \"sampling\", \"roots\"]\n{how}"
        );
        let world = World::ready_behind(&config, Settings::default()).await;
        let log = Log { path: log, read: 0 };
        (
            Replay {
                world,
                _folder: folder,
                _process: process,
            },
            log,
        )
    }
}

impl Log {
    /// The frames since the last look.
    fn arrived(&mut self) -> Vec<Node> {
        let text = fs::read_to_string(&self.path).expect("the log");
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let new = &text[self.read..whole];
        self.read = whole;
        let frames = new.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            Node::parse(line["raw"].as_str().expect("a text"))
        });
        frames.collect()
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// What was compared, and which edits were met.
#[derive(Default)]
struct Found {
    requests: usize,
    replies: usize,
    definitions: usize,
    notices: usize,
    questions: usize,
    refused: usize,
    met: Met,
    differences: Vec<String>,
}

impl Found {
    fn add(&mut self, other: Found) {
        self.count(&other);
        self.differences.extend(other.differences);
    }

    fn count(&mut self, other: &Found) {
        self.requests += other.requests;
        self.replies += other.replies;
        self.definitions += other.definitions;
        self.notices += other.notices;
        self.questions += other.questions;
        self.refused += other.refused;
        self.met.extend(&other.met);
    }

    /// Whether these are equal; a difference is remembered under this name.
    fn compare(&mut self, what: &str, expected: &Node, arrived: &Node) {
        if expected != arrived {
            self.differences.push(format!(
                "{what}\n  expected {}\n  arrived  {}",
                cut(expected),
                cut(arrived)
            ));
        }
    }

    /// The request of this method among what arrived at a server of this generation.
    fn compare_request(&mut self, name: &str, method: &str, sent: &Node, arrived: &[Node], era: Era) {
        let is_it = |frame: &&Node| frame.text_at(&["method"]).as_deref() == Some(method);
        let Some(frame) = arrived.iter().find(is_it) else {
            self.wrong(format!("{name}: it did not arrive at the server"));
            return;
        };
        let expected = edits::request(sent, method == "tools/call", era, &mut self.met);
        let arrived = frame.get("params").cloned().unwrap_or_else(Node::object);
        let arrived = edits::without_ours(arrived, &expected, era, &mut self.met);
        self.requests += 1;
        self.compare(name, &expected, &arrived);
    }

    /// The result in a response.
    fn compare_result(&mut self, name: &str, sent: &Node, of: Of, response: &Node, speaks: Speaks) {
        let knows_structure = speaks.version() >= "2025-06-18";
        let expected = edits::result(sent, of, speaks.era(), knows_structure, &mut self.met);
        self.replies += 1;
        match response.get("result") {
            Some(arrived) => {
                let arrived = match of {
                    Of::Tool { .. } => arrived.clone(),
                    Of::Other => edits::without_freshness(arrived.clone(), sent, &mut self.met),
                };
                self.compare(name, &expected, &arrived);
            }
            None => self.wrong(format!("{name}: no result: {response}")),
        }
    }

    /// The error in a response.
    fn compare_error(&mut self, name: &str, sent: &Node, response: &Node, speaks: Speaks) {
        let expected = edits::error(sent, speaks.era(), &mut self.met);
        self.replies += 1;
        match response.get("error") {
            Some(arrived) => self.compare(name, &expected, arrived),
            None => self.wrong(format!("{name}: no error: {response}")),
        }
    }

    /// The definition of a tool, as it must be listed.
    fn definition(&mut self, sent: &Node, speaks: Speaks) -> Node {
        // D-44: a session may call without a task, and so may be told that the work goes on.
        let shows_output = speaks == Speaks::Stateless { tasks: true };
        edits::definition(sent, speaks.era(), speaks.version(), shows_output, &mut self.met)
    }

    fn wrong(&mut self, what: String) {
        self.differences.push(what);
    }
}

fn cut(node: &Node) -> String {
    let text = node.to_string();
    text.chars().take(2_000).collect()
}

fn frame(id: u32, method: &str, params: Option<&Node>) -> String {
    let params = params
        .map(|params| format!(r#","params":{params}"#))
        .unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#)
}

fn is_ours(tool: &Node) -> bool {
    tool.text_at(&["name"])
        .is_some_and(|name| name.starts_with("longhaul_"))
}

/// One recorded session over one carrier, with every client.
async fn replayed(file: &Path, carrier: Carrier) -> Found {
    let session = Session::read(file);
    let (replay, mut log) = Replay::start(file, carrier).await;
    listed(&replay.world, session.listed("tools/list", "tools").len()).await;
    let mut found = Found::default();
    // What a version has is a matter of the client's side alone.
    let clients = Speaks::ALL.into_iter();
    let clients =
        clients.filter(|speaks| carrier == Carrier::Pipe || speaks.version() >= Speaks::ALL[0].version());
    for speaks in clients {
        let client = Client::open(&replay.world, speaks).await;
        found.add(walk::whole(&session, client, carrier, &mut log).await);
    }
    found
}

/// Waits until the server's tools are listed: as many as this, at least.
async fn listed(world: &World, count: usize) {
    let client = Client::open(world, Speaks::Stateless { tasks: false }).await;
    let all = async {
        loop {
            let mut params = Node::object();
            client.introduced(&mut params, None);
            let listed = client.send(&frame(1, "tools/list", Some(&params))).await;
            let tools = listed
                .response()
                .at(&["result", "tools"])
                .map_or(&[][..], Node::items);
            if tools.iter().filter(|tool| !is_ours(tool)).count() >= count {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("its tools in time");
}

fn recorded() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(SESSIONS)
        .expect("the recorded sessions")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// E-2, and every edit that relay.md lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_real_servers_said_arrives_as_it_was_sent() {
    let files = recorded();
    assert!(files.len() >= 16, "recorded sessions are missing: {files:?}");
    let runs = files
        .into_iter()
        .flat_map(|file| [Carrier::Pipe, Carrier::Http].map(|carrier| (file.clone(), carrier)));
    let runs = stream::iter(runs).map(|(file, carrier)| async move {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        ((name, carrier), replayed(&file, carrier).await)
    });
    let rows: BTreeMap<(String, Carrier), Found> = runs.buffer_unordered(AT_ONCE).collect().await;
    let differences = rows.values().flat_map(|found| &found.differences);
    all_equal(&differences.cloned().collect::<Vec<_>>());
    let page = page(&rows);
    if env::var("LONGHAUL_BLESS").as_deref() == Ok("1") {
        fs::write(PAGE, &page).expect("the page can be written");
    }
    let committed = fs::read_to_string(PAGE).expect("the page can be read");
    assert!(
        committed == page,
        "docs/reference/lossless.md is stale: run `cargo xtask docs --write`"
    );
}

fn all_equal(differences: &[String]) {
    let shown = differences.len().min(SHOWN_MAX);
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences[..shown].join("\n")
    );
}

fn page(rows: &BTreeMap<(String, Carrier), Found>) -> String {
    let mut page = HEAD.to_owned();
    let mut total = Found::default();
    for ((name, carrier), found) in rows {
        let carrier = match carrier {
            Carrier::Pipe => "pipe",
            Carrier::Http => "HTTP",
        };
        page.push_str(&row(&format!("{name} | {carrier}"), found));
        total.count(found);
    }
    page.push_str(&row("**all** |", &total));
    page.push_str("\n## The edits that were met\n\n| edit | in sessions |\n|---|---|\n");
    for edit in &total.met {
        let rows = rows.iter().filter(|(_, found)| found.met.contains(edit));
        let names: BTreeSet<&str> = rows.map(|((name, _), _)| name.as_str()).collect();
        writeln!(page, "| {edit} | {} |", names.len()).expect("memory");
    }
    page
}

fn row(of: &str, found: &Found) -> String {
    let Found {
        requests,
        replies,
        definitions,
        notices,
        questions,
        refused,
        met,
        ..
    } = found;
    let met = met.len();
    format!(
        "| {of} | {requests} | {replies} | {definitions} | {notices} | {questions} | {refused} | {met} |\n"
    )
}

const HEAD: &str = "# What was compared: recorded sessions of real servers

Generated by `crates/gateway/tests/it/lossless.rs`; do not edit.

Each session of `rigs/recorded/sessions` was recorded with the real server, directly.
The test plays the server's half with the very bytes, on a pipe and over HTTP, and sends the other half through Longhaul as six clients would: sessions of 2025-11-25 (plain, and each call as a task), of 2025-06-18 and 2025-03-26 (in front of a pipe), and 2026-07-28 without the tasks extension and with it.
Everything that arrived on either side is equal to what was sent but for the edits of [relay.md](relay.md): token by token, so the order of members, escapes and digits count, and blanks between tokens do not.

Requests are what arrived at the server; replies are results and errors; definitions are the items of lists; notices are progress and log messages; questions are forms.
Refused are requests that Longhaul answers itself: of tools and prompts that there are not, and of what asks a client that cannot be asked.
`rigs/recorded/hostile.jsonl` has the messages that were made to be misread; the same file tests them.

| session | server behind | requests | replies | definitions | notices | questions | refused | edits met |
|---|---|---|---|---|---|---|---|---|
";
