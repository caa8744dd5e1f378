//! Messages that careless readers choke on or change (rigs/recorded/hostile.jsonl), in both directions and through
//! every pairing of generations. Each passes as it is, or is refused with its code; the server serves on.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use super::{
    Carrier, Found, Log, PATIENCE, Replay,
    client::{Client, Frames, Speaks},
    edits::{self, Era, Of},
    frame, is_ours,
    json::Node,
};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/recorded/hostile.jsonl");

/// One message.
#[derive(Clone, Debug)]
struct Case {
    /// Where in which frame it stands.
    way: String,
    name: String,
    raw: String,
    then: Then,
    /// In a session it passes, whatever becomes of it elsewhere.
    passes_in_sessions: bool,
}

impl Case {
    /// What passes of it.
    fn passing(&self) -> Node {
        Node::parse(match &self.then {
            Then::PassesAs(other) => other,
            Then::Passes | Then::Refused(_) | Then::LeftOut => &self.raw,
        })
    }

    /// What becomes of it for this client.
    fn then(&self, speaks: Speaks) -> &Then {
        match self.passes_in_sessions && speaks.era() == Era::Sessions {
            true => &Then::Passes,
            false => &self.then,
        }
    }
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq)]
enum Then {
    Passes,
    /// As another text: what stands about it is not passed on, or its name is not one that can be listed.
    PassesAs(String),
    Refused(i64),
    /// It alone is missing.
    LeftOut,
}

fn corpus() -> Vec<Case> {
    let text = fs::read_to_string(CORPUS).expect("the corpus");
    let cases = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let text = |member: &str| line[member].as_str().expect("a text").to_owned();
        let then = &line["then"];
        Case {
            way: text("way"),
            name: text("name"),
            raw: repeated(&text("raw")),
            passes_in_sessions: then["of sessions"] == "passes",
            then: match (
                then.as_str(),
                then["refused"].as_i64(),
                then["passes as"].as_str(),
            ) {
                (Some("passes"), _, _) => Then::Passes,
                (_, Some(code), _) => Then::Refused(code),
                (_, _, Some(other)) => Then::PassesAs(repeated(other)),
                _ if then["left out"] == true => Then::LeftOut,
                _ => panic!("{line}"),
            },
        }
    });
    cases.collect()
}

/// `<<x*3>>` is `xxx`.
fn repeated(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<<") {
        let (inner, after) = after.split_once(">>").expect("an end");
        let (what, count) = inner.rsplit_once('*').expect("a count");
        write!(out, "{before}{}", what.repeat(count.parse().expect("a number"))).expect("memory");
        rest = after;
    }
    out + rest
}

/// The server's half, as a recorded session.
struct Script {
    lines: String,
    next: u32,
    era: Era,
}

impl Script {
    fn line(&mut self, line: &Value) {
        writeln!(self.lines, "{line}").expect("memory");
    }

    /// A request without a word about the hop, and its answer.
    fn exchange(&mut self, method: &str, params: &str, answer: &str) {
        self.asked(method, params);
        let reply = format!(r#"{{"jsonrpc":"2.0","id":ID,{answer}}}"#);
        self.answer("exact", &reply);
    }

    fn asked(&mut self, method: &str, params: &str) {
        self.next += 1;
        let mut params = Node::parse(params);
        if !params.is_object() {
            params = Node::object();
        }
        let mut members = Node::object();
        members.set("progressToken", Node::Token(self.next.to_string()));
        params.set("_meta", members);
        self.line(&serde_json::json!({ "from": "client", "raw": frame(self.next, method, Some(&params)) }));
    }

    fn answer(&mut self, kind: &str, raw: &str) {
        self.line(
            &serde_json::json!({ "from": "server", "raw": raw, "to": self.next.to_string(), "as": kind }),
        );
    }

    fn list(&mut self, method: &str, member: &str, items: &[String]) {
        let answer = format!(r#""result":{{{}"{member}":[{}]}}"#, self.kind(), items.join(","));
        self.exchange(method, "{}", &answer);
    }

    fn kind(&self) -> &'static str {
        match self.era {
            Era::Sessions => "",
            Era::Stateless => r#""resultType":"complete","#,
        }
    }
}

/// Of these ways, the cases' texts.
fn texts(cases: &[Case], way: &str) -> Vec<String> {
    let cases = cases.iter().filter(|case| case.way == way);
    cases.map(|case| case.raw.clone()).collect()
}

/// How a case is asked for.
fn giving(case: &Case) -> (&'static str, String) {
    let name = Node::string(&case.name);
    match case.way.as_str() {
        "prompt" => (
            "prompts/get",
            format!(r#"{{"name":"ask","arguments":{{"case":{name}}}}}"#),
        ),
        "contents" => (
            "resources/read",
            format!(r#"{{"uri":{}}}"#, Node::string(&format!("case:{}", case.name))),
        ),
        "completion" => (
            "completion/complete",
            format!(
                r#"{{"ref":{{"type":"ref/prompt","name":"ask"}},"argument":{{"name":"case","value":{name}}}}}"#
            ),
        ),
        _ => (
            "tools/call",
            format!(r#"{{"name":"give","arguments":{{"case":{name}}}}}"#),
        ),
    }
}

fn script(cases: &[Case], era: Era, carrier: Carrier) -> String {
    let mut script = Script {
        lines: String::new(),
        next: 0,
        era,
    };
    let capabilities =
        r#""capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{},"logging":{}}"#;
    let (method, said) = match era {
        Era::Sessions => (
            "initialize",
            r#""protocolVersion":"2025-11-25","serverInfo":{"name":"hostile","version":"1"}"#,
        ),
        Era::Stateless => (
            "server/discover",
            r#""supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private""#,
        ),
    };
    let hello = format!(r#""result":{{{}{capabilities},{said}}}"#, script.kind());
    script.exchange(method, "{}", &hello);
    let plain =
        ["take", "give"].map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
    script.list(
        "tools/list",
        "tools",
        &[&plain[..], &texts(cases, "tool")].concat(),
    );
    let ask = [r#"{"name":"ask"}"#.to_owned()];
    script.list(
        "prompts/list",
        "prompts",
        &[&ask[..], &texts(cases, "prompt definition")].concat(),
    );
    script.list("resources/list", "resources", &texts(cases, "resource"));
    script.list(
        "resources/templates/list",
        "resourceTemplates",
        &texts(cases, "template"),
    );
    // Whatever arrives is answered alike.
    let taken = format!(r#""result":{{{}"content":[]}}"#, script.kind());
    script.exchange("tools/call", r#"{"name":"take"}"#, &taken);
    let got = format!(r#""result":{{{}"messages":[]}}"#, script.kind());
    script.exchange("prompts/get", r#"{"name":"ask"}"#, &got);
    let read = format!(r#""result":{{{}"contents":[]}}"#, script.kind());
    script.exchange("resources/read", "{}", &read);
    let completed = format!(r#""result":{{{}"completion":{{"values":[]}}}}"#, script.kind());
    script.exchange("completion/complete", "{}", &completed);
    for case in cases {
        let (method, params) = giving(case);
        // A line of a pipe has no line ends.
        let raw = &match carrier {
            Carrier::Pipe => case.raw.replace(['\r', '\n'], " "),
            Carrier::Http => case.raw.clone(),
        };
        match case.way.as_str() {
            "result" | "prompt" | "contents" | "completion" => {
                script.exchange(method, &params, &format!(r#""result":{raw}"#));
            }
            "error" => script.exchange(method, &params, &format!(r#""error":{raw}"#)),
            "reply" => {
                script.asked(method, &params);
                script.answer("exact", raw);
            }
            "log" | "progress" => {
                script.asked(method, &params);
                let (method, raw) = match case.way.as_str() {
                    "log" => ("message", raw.clone()),
                    _ => (
                        "progress",
                        raw.replacen('{', &format!(r#"{{"progressToken":{},"#, script.next), 1),
                    ),
                };
                let notice =
                    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{raw}}}"#);
                script.answer("notice", &notice);
                let reply = format!(
                    r#"{{"jsonrpc":"2.0","id":ID,"result":{{{}"content":[]}}}}"#,
                    script.kind()
                );
                script.answer("exact", &reply);
            }
            _ => {}
        }
    }
    script.lines
}

/// One client, against the server of the corpus.
struct Walk<'a> {
    client: Client<'a>,
    server: Era,
    name: String,
    found: Found,
    next: u32,
}

impl Walk<'_> {
    async fn case(&mut self, case: &Case, log: &mut Log) {
        let name = format!("{}: {}: {}", self.name, case.way, case.name);
        match case.way.as_str() {
            "tool" | "prompt definition" | "resource" | "template" => {}
            "frame" => {
                let frames = self.client.send(&case.raw).await;
                self.refusal(&name, case, frames.frames.last());
            }
            "arguments" | "params" | "meta" | "id" | "uri" | "prompt arguments" | "completion value" => {
                self.taken(&name, case, log).await;
            }
            _ => self.given(&name, case).await,
        }
    }

    /// From the client to the server.
    async fn taken(&mut self, name: &str, case: &Case, log: &mut Log) {
        log.arrived();
        let raw = &case.raw;
        let mut id = self.id();
        let mut members = String::new();
        let (method, params) = match case.way.as_str() {
            "arguments" => ("tools/call", format!(r#""name":"take","arguments":{raw}"#)),
            "params" => ("tools/call", format!(r#""name":"take","arguments":{{}},{raw}"#)),
            "meta" => {
                members.clone_from(raw);
                ("tools/call", r#""name":"take","arguments":{}"#.to_owned())
            }
            "uri" => ("resources/read", format!(r#""uri":{raw}"#)),
            "prompt arguments" => ("prompts/get", format!(r#""name":"ask","arguments":{raw}"#)),
            "completion value" => {
                let argument = format!(r#""argument":{{"name":"a","value":{raw}}}"#);
                (
                    "completion/complete",
                    format!(r#""ref":{{"type":"ref/prompt","name":"ask"}},{argument}"#),
                )
            }
            _ => {
                id.clone_from(raw);
                ("tools/call", r#""name":"take","arguments":{}"#.to_owned())
            }
        };
        let meta = self.meta(&members);
        let sent = format!("{{{params}{meta}}}");
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{sent}}}"#);
        let frames = self.client.send(&text).await;
        if *case.then(self.client.speaks) != Then::Passes {
            self.refusal(name, case, frames.frames.last());
            return;
        }
        let response = frames.response();
        // The same value; an id's spelling is each hop's own.
        let value = |node: &Node| node.text().unwrap_or_else(|| node.to_string());
        if response.get("id").map(value) != Some(value(&Node::parse(&id))) {
            self.found
                .wrong(format!("{name}: the id came back as {response}"));
        }
        if response.get("result").is_none() {
            self.found.wrong(format!("{name}: {response}"));
        }
        let arrived = log.arrived();
        let mut sent = Node::parse(&sent);
        if self.client.speaks.era() == Era::Sessions {
            edits::without_null_arguments(&mut sent, &mut self.found.met);
        }
        self.found
            .compare_request(name, method, &sent, &arrived, self.server);
    }

    /// From the server to the client.
    async fn given(&mut self, name: &str, case: &Case) {
        let (method, params) = giving(case);
        let id = self.id();
        let meta = self.meta("");
        let params = params.strip_suffix('}').expect("an object");
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}{meta}}}}}"#);
        let frames = self.client.send(&text).await;
        if matches!(case.way.as_str(), "log" | "progress") {
            self.told(name, case, &frames);
            return;
        }
        if let Then::Refused(_) = case.then {
            self.refusal(name, case, frames.frames.last());
            return;
        }
        let sent = case.passing();
        let (response, speaks) = (frames.response(), self.client.speaks);
        if case.way == "error" {
            self.found.compare_error(name, &sent, response, speaks);
            return;
        }
        let of = match method {
            "tools/call" => Of::Tool { is_in_task: false },
            _ => Of::Other,
        };
        self.found.compare_result(name, &sent, of, response, speaks);
    }

    fn told(&mut self, name: &str, case: &Case, frames: &Frames) {
        let method = match case.way.as_str() {
            "log" => "notifications/message",
            _ => "notifications/progress",
        };
        let told = frames
            .frames
            .iter()
            .find(|frame| frame.text_at(&["method"]).as_deref() == Some(method));
        let token = Node::string("t");
        self.found.notices += 1;
        match (
            case.then == Then::LeftOut,
            told.and_then(|frame| frame.get("params")),
        ) {
            (true, None) => {}
            (true, Some(params)) => self.found.wrong(format!("{name}: it passed: {params}")),
            (false, None) => self.found.wrong(format!("{name}: it did not arrive")),
            (false, Some(params)) => {
                let sent = Node::parse(&case.raw);
                let expected = edits::notice(
                    method,
                    &sent,
                    &token,
                    self.client.speaks.era(),
                    &mut self.found.met,
                );
                self.found.compare(name, &expected, params);
            }
        }
    }

    fn refusal(&mut self, name: &str, case: &Case, frame: Option<&Node>) {
        self.found.refused += 1;
        let code = frame
            .and_then(|frame| frame.at(&["error", "code"]))
            .map(ToString::to_string);
        let wanted = match case.then {
            Then::Refused(code) => Some(code.to_string()),
            Then::Passes | Then::PassesAs(_) | Then::LeftOut => None,
        };
        if code != wanted {
            let arrived = frame.map(ToString::to_string).unwrap_or_default();
            let arrived: String = arrived.chars().take(400).collect();
            self.found
                .wrong(format!("{name}: expected {:?}, arrived {arrived}", case.then));
        }
    }

    /// The lists: what passes stands in its place, what does not is missing alone.
    async fn lists(&mut self, cases: &[Case]) {
        for (way, method, member) in [
            ("tool", "tools/list", "tools"),
            ("prompt definition", "prompts/list", "prompts"),
            ("resource", "resources/list", "resources"),
            ("template", "resources/templates/list", "resourceTemplates"),
        ] {
            let id = self.id();
            let meta = self.meta("");
            let meta = meta.strip_prefix(',').unwrap_or_default();
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{meta}}}}}"#);
            let frames = self.client.send(&text).await;
            let listed = frames
                .response()
                .at(&["result", member])
                .map_or(&[][..], Node::items);
            let ours = ["take", "give", "ask"].map(str::to_owned);
            let is_plain = |item: &&Node| item.text_at(&["name"]).is_some_and(|name| ours.contains(&name));
            let mut arrived = listed.iter().filter(|item| !is_ours(item) && !is_plain(item));
            let speaks = self.client.speaks;
            for case in cases
                .iter()
                .filter(|case| case.way == way && case.then != Then::LeftOut)
            {
                let sent = case.passing();
                let expected = match way {
                    "tool" => self.found.definition(&sent, speaks),
                    _ => sent,
                };
                self.found.definitions += 1;
                let name = format!("{}: {way}: {}", self.name, case.name);
                match arrived.next() {
                    Some(item) => self.found.compare(&name, &expected, item),
                    None => self.found.wrong(format!("{name}: it is not listed")),
                }
            }
            if let Some(more) = arrived.next() {
                self.found
                    .wrong(format!("{}: {way}: listed too: {more}", self.name));
            }
        }
    }

    fn id(&mut self) -> String {
        self.next += 1;
        self.next.to_string()
    }

    /// The member `_meta`, with these members in it.
    fn meta(&self, members: &str) -> String {
        let mut params = Node::object();
        self.client.introduced(&mut params, Some(&Node::string("t")));
        let ours = params.get("_meta").map(ToString::to_string).unwrap_or_default();
        let ours = ours.strip_prefix('{').expect("an object");
        let comma = if members.is_empty() { "" } else { "," };
        format!(r#","_meta":{{{members}{comma}{ours}"#)
    }
}

async fn hostile(cases: &[Case], server: Era, carrier: Carrier, folder: &Path) -> Found {
    let file = folder.join(format!("{server:?}"));
    fs::write(&file, script(cases, server, carrier)).expect("the script");
    let (replay, mut log) = Replay::start(&file, carrier).await;
    let mut found = Found::default();
    for speaks in [
        Speaks::Session {
            version: "2025-11-25",
            as_tasks: false,
        },
        Speaks::Session {
            version: "2025-06-18",
            as_tasks: false,
        },
        Speaks::Stateless { tasks: false },
    ] {
        super::listed(&replay.world, 2).await;
        let client = Client::open(&replay.world, speaks).await;
        let name = format!("{server:?} over {carrier:?}, to {speaks:?}");
        let mut walk = Walk {
            client,
            server,
            name,
            found: Found::default(),
            next: 0,
        };
        walk.lists(cases).await;
        for case in cases {
            let one = walk.case(case, &mut log);
            tokio::time::timeout(PATIENCE, one)
                .await
                .unwrap_or_else(|_| panic!("{case:?} in time"));
        }
        found.add(walk.found);
    }
    found
}

/// E-1 to E-4.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hostile_message_passes_as_it_is_or_is_refused_and_nothing_else_is_lost() {
    let cases = corpus();
    assert!(cases.len() >= 100, "the corpus is too small");
    let folder = tempfile::tempdir().expect("a directory");
    let mut differences = Vec::new();
    for server in [Era::Sessions, Era::Stateless] {
        for carrier in [Carrier::Pipe, Carrier::Http] {
            let found = hostile(&cases, server, carrier, folder.path()).await;
            differences.extend(found.differences);
        }
    }
    super::all_equal(&differences);
}
