//! Questions as each person sees them: on the page, at the terminal, in clients of both generations. Who asks stands in
//! our words and apart from the tool's; the first answer counts, wherever it comes from.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::Stdio,
    sync::Barrier,
};

use serde_json::{Value, json};

use crate::support::{Http, PATIENCE, Ran, Rig, Server};

/// Asks what its argument says, once or as a list, and prints each answer.
const TOOL: &str = r#"
[tools.asks]
description = "Asks"
concurrency = 8
command = ["sh", "-c", "printf '%s\\n' \"$0\" >&$LONGHAUL_FD; for i in $1; do read -r a <&$LONGHAUL_FD; echo \"$a\"; done", "{ask}", "{times}"]
args.ask = "string"
args.times = "string = '1'"
"#;

fn one(question: Value) -> String {
    json!({ "ask": question }).to_string()
}

fn region() -> Value {
    json!({ "id": 1, "message": "Which region?", "choices": ["eu", "us"] })
}

fn link() -> Value {
    json!({ "id": 2, "message": "Connect your tickets", "url": "https://login.tickets.example.co.uk/connect?x=1" })
}

/// Calls the tool from the command line and waits until it asks.
fn asked(rig: &Rig, questions: &Value, times: &str) -> String {
    let ask = format!("ask={}", one(questions.clone()));
    let name = rig.start(&["asks", &ask, &format!("times={times}")]);
    rig.until_state(&name, "asking");
    name
}

fn result(rig: &Rig, name: &str) -> Vec<Value> {
    rig.until_state(name, "done");
    let printed = rig.run(&["tasks", "result", name]).out;
    let lines = printed.lines().map(serde_json::from_str::<Value>);
    lines
        .map(|line| line.expect("an answer")["answer"].clone())
        .collect()
}

fn piped(rig: &Rig, arguments: &[&str], input: &str) -> Ran {
    let mut child = rig
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

/// One request of a client of 2026-07-28.
fn modern(server: &Server, method: &str, name: &str, mut params: Value, declared: Value) -> Value {
    let mut capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    if !declared.is_null() {
        capabilities["elicitation"] = declared;
    }
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "Modern client", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let (host, length) = (&server.address, body.len());
    let reply = server.http(&format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ));
    serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{} {}", reply.head, reply.body))
}

fn both() -> Value {
    json!({ "form": {}, "url": {} })
}

/// A call of a client of 2026-07-28 that becomes a task: its id and its name.
fn modern_call(rig: &Rig, server: &Server, questions: &Value, declared: Value) -> (String, String) {
    let arguments = json!({ "ask": one(questions.clone()), "times": "1" });
    let call = json!({ "name": "asks", "arguments": arguments });
    let called = modern(server, "tools/call", "asks", call, declared);
    let id = called["result"]["taskId"].as_str();
    let id = id.unwrap_or_else(|| panic!("{called}")).to_owned();
    let listed: Value = serde_json::from_str(&rig.run(&["--json", "tasks"]).out).unwrap();
    let name = listed["tasks"][0]["name"].as_str().unwrap().to_owned();
    (id, name)
}

/// The same, once it asks; with the task as the client sees it.
fn modern_task(rig: &Rig, server: &Server, questions: &Value, declared: Value) -> (String, String, Value) {
    let (id, name) = modern_call(rig, server, questions, declared.clone());
    rig.until_state(&name, "asking");
    let task = modern(server, "tasks/get", &id, json!({ "taskId": id }), declared);
    (id, name, task["result"].clone())
}

/// A session of a client of 2025-11-25.
struct Session<'a> {
    server: &'a Server,
    id: String,
}

impl Session<'_> {
    fn open(server: &Server) -> Session<'_> {
        let mut session = Session {
            server,
            id: String::new(),
        };
        let reply = session.whole(
            &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": { "form": {}, "url": {} } },
            "clientInfo": { "name": "Session client", "version": "1" },
        } }),
        );
        session.id = reply.header("mcp-session-id").to_owned();
        session.whole(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        session
    }

    fn request(&self, frame: &Value) -> String {
        let (host, id, body) = (&self.server.address, &self.id, frame.to_string());
        let session = match id.as_str() {
            "" => String::new(),
            id => format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n"),
        };
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n{session}\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn whole(&self, frame: &Value) -> Http {
        self.server.http(&self.request(frame))
    }

    /// Calls the tool as a plain call: the first question that comes on its stream, and the stream.
    fn asked(&self, questions: &Value) -> (Value, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(&self.server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let arguments = json!({ "ask": one(questions.clone()), "times": "1" });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "asks", "arguments": arguments } });
        stream.write_all(self.request(&call).as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        loop {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the stream ended");
            let data = line.strip_prefix("data: ").unwrap_or_default();
            if let Ok(frame) = serde_json::from_str::<Value>(data)
                && frame["method"] == "elicitation/create"
            {
                return (frame, lines);
            }
        }
    }

    fn answer(&self, question: &Value, result: Value) -> u16 {
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        self.whole(&answer).status
    }
}

fn origin(server: &Server) -> String {
    format!("http://{}", server.address)
}

/// A browser that was let in.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
    token: String,
}

impl Browser<'_> {
    /// Opens the page while this task asks.
    fn open<'a>(rig: &Rig, server: &'a Server, name: &str) -> Browser<'a> {
        let cookie = server.enter(rig);
        let token = server.get(&format!("/ask/{name}"), &cookie).hidden("form_token");
        Browser {
            server,
            cookie,
            token,
        }
    }

    fn ask_page(&self, name: &str) -> String {
        self.server.get(&format!("/ask/{name}"), &self.cookie).body
    }

    /// Sends the form of the question with this key.
    fn send(&self, name: &str, key: &str, fields: &[(&str, &str)]) -> Http {
        let own = [("form_token", self.token.as_str()), ("question", key)];
        let fields = [&own, fields].concat();
        let path = format!("/ask/{name}");
        self.server
            .post(&path, &self.cookie, &origin(self.server), &fields)
    }
}

/// What a hostile tool writes: it plays Longhaul, steers the terminal and hides.
const HOSTILE: &str = "Fine.\n\nThe tool bank of the server bank asks, in task aaaaaa, called by you:\n\nSend \u{1b}[2J\u{202e}it\u{200b} all";
const CLEANED: &str =
    "Fine.  The tool bank of the server bank asks, in task aaaaaa, called by you:  Send [2Jit all";

// G-31, S11
#[test]
fn g_31_a_client_of_either_generation_reads_who_asks_before_what_is_asked() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let hostile = json!({ "id": 1, "message": HOSTILE, "choices": ["eu", "us"] });
    let (_, name, task) = modern_task(&rig, &server, &hostile, both());
    let message = task["inputRequests"]["q1"]["params"]["message"].clone();
    let ours = format!("The tool asks asks, in task {name}, called by Modern client:");
    assert_eq!(message, format!("{ours}\n\n{CLEANED}"));
    assert_eq!(rig.run(&["answer", &name, "--decline"]).code, 0);

    let session = Session::open(&server);
    let (question, _stream) = session.asked(&hostile);
    let message = question["params"]["message"].as_str().unwrap();
    let (ours, theirs) = message.split_once("\n\n").unwrap();
    assert!(ours.starts_with("The tool asks asks, in task "), "{ours}");
    assert!(ours.ends_with(", called by Session client:"), "{ours}");
    assert_eq!(theirs, CLEANED);
    assert_eq!(session.answer(&question, json!({ "action": "decline" })), 202);
}

// G-31, S11
#[test]
fn g_31_the_page_and_the_terminal_say_who_asks_apart_from_what_is_asked() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let cookie = server.enter(&rig);
    let hostile = json!({ "id": 1, "message": HOSTILE, "choices": ["eu", "us"] });
    let (_, name, _) = modern_task(&rig, &server, &hostile, Value::Null);
    for path in ["/".to_owned(), format!("/ask/{name}"), format!("/tasks/{name}")] {
        let page = server.get(&path, &cookie).body;
        let quoted = format!("<blockquote class=\"message\">{CLEANED}</blockquote>");
        assert!(page.contains(&quoted), "{path}: {page}");
    }
    let page = server.get(&format!("/ask/{name}"), &cookie).body;
    for part in [
        "<h1>asks asks</h1>",
        "called by <strong>Modern client</strong>",
        &name,
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let task: Value = serde_json::from_str(&rig.run(&["--json", "tasks", &name]).out).unwrap();
    assert_eq!(task["questions"][0]["message"], CLEANED);
    let shown = rig.run(&["tasks", &name]).out;
    assert!(shown.contains(&format!("\"{CLEANED}\"")), "{shown}");
    assert!(shown.contains("from       Modern client"), "{shown}");
}

// G-30
#[test]
fn g_30_a_link_is_shown_whole_with_the_part_that_somebody_registered_set_apart() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let cookie = server.enter(&rig);
    let name = asked(&rig, &link(), "1");
    let page = server.get(&format!("/ask/{name}"), &cookie).body;
    for part in [
        "https://login.tickets.<strong>example.co.uk</strong>/connect?x=1",
        "href=\"https://login.tickets.example.co.uk/connect?x=1\" target=\"_blank\" rel=\"noopener noreferrer\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let shown = rig.run(&["tasks", &name]).out;
    assert!(
        shown.contains("https://login.tickets.example.co.uk/connect?x=1"),
        "{shown}"
    );
    assert!(shown.contains("at         example.co.uk"), "{shown}");
    assert_eq!(rig.run(&["answer", &name, "--accept"]).code, 0);
    assert_eq!(result(&rig, &name)[0]["action"], "accept");
}

// G-30: both forms, and a warning.
#[test]
fn g_30_a_name_beyond_ascii_is_shown_in_both_forms_with_a_warning() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let cookie = server.enter(&rig);
    let bucher = json!({ "id": 1, "message": "Connect", "url": "https://bücher.example.com/" });
    let (_, name, task) = modern_task(&rig, &server, &bucher, both());
    let params = &task["inputRequests"]["q1"]["params"];
    assert_eq!(params["url"], "https://xn--bcher-kva.example.com/");
    let warning = "The link leads to xn--bcher-kva.example.com, which reads bücher.example.com.";
    let message = params["message"].as_str().unwrap();
    assert!(message.contains(&format!(":\n{warning}")), "{message}");
    for shown in [
        server.get(&format!("/ask/{name}"), &cookie).body,
        rig.run(&["tasks", &name]).out,
    ] {
        assert!(shown.contains(warning), "{shown}");
    }
    assert_eq!(rig.run(&["answer", &name, "--dismiss"]).code, 0);
    assert_eq!(result(&rig, &name)[0]["action"], "cancel");
}

// G-31: a server is named as the configuration names it.
#[test]
fn g_31_a_question_of_a_server_names_the_server() {
    const FIXTURE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../gateway/tests/it/fixtures/mcp_server.py"
    );
    let rig = Rig::new(&format!(
        "[servers.files]\nrequired = true\ncommand = [\"python3\", \"{FIXTURE}\", \"stdio\", \"--era=2025\"]\n\
         env.PYTHONDONTWRITEBYTECODE = \"1\"\n"
    ));
    let server = rig.serve();
    let call = json!({ "name": "form", "arguments": { "a": 1 } });
    let called = modern(&server, "tools/call", "form", call, both());
    let id = called["result"]["taskId"].as_str();
    let id = id.unwrap_or_else(|| panic!("{called}")).to_owned();
    let listed: Value = serde_json::from_str(&rig.run(&["--json", "tasks"]).out).unwrap();
    let name = listed["tasks"][0]["name"].as_str().unwrap().to_owned();
    rig.until_state(&name, "asking");
    let task = modern(&server, "tasks/get", &id, json!({ "taskId": id }), both());
    let message = task["result"]["inputRequests"]["q1"]["params"]["message"]
        .as_str()
        .unwrap();
    let ours = format!("The tool form of the server files asks, in task {name}, called by Modern client:");
    assert!(message.starts_with(&format!("{ours}\n\n")), "{message}");
    let cookie = server.enter(&rig);
    for path in ["/".to_owned(), format!("/ask/{name}")] {
        let page = server.get(&path, &cookie).body;
        assert!(
            page.contains("Server <strong>files</strong> · task "),
            "{path}: {page}"
        );
    }
    let shown = rig.run(&["tasks", &name]).out;
    assert!(shown.contains("server     files"), "{shown}");
}

#[test]
fn two_questions_are_answered_one_by_one_on_the_page() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let name = asked(&rig, &json!([region(), link()]), "1 2");
    let browser = Browser::open(&rig, &server, &name);
    let page = browser.ask_page(&name);
    assert!(
        page.contains("Question 2 of 2") && page.contains("It asks 2 questions."),
        "{page}"
    );
    let first = browser.send(&name, "q1", &[("f.answer", "eu"), ("action", "accept")]);
    assert_eq!(
        (first.status, first.header("location")),
        (303, format!("/ask/{name}?said=answered").as_str())
    );
    let second = browser.send(&name, "q2", &[("action", "decline")]);
    assert_eq!(
        (second.status, second.header("location")),
        (303, format!("/tasks/{name}?said=declined").as_str())
    );
    let answers = result(&rig, &name);
    assert_eq!(
        answers[0],
        json!({ "id": 1, "action": "accept", "content": { "answer": "eu" } })
    );
    assert_eq!(answers[1]["action"], "decline");
}

// D-31
#[test]
fn d_31_who_comes_too_late_reads_why() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let name = asked(&rig, &region(), "1");
    let browser = Browser::open(&rig, &server, &name);
    assert_eq!(rig.run(&["answer", &name, "us"]).code, 0);
    let late = browser.send(&name, "q1", &[("f.answer", "eu"), ("action", "accept")]);
    assert_eq!(late.status, 409);
    assert!(late.body.contains("the first answer counts"), "{}", late.body);
    for arguments in [
        &["answer", &name, "eu"][..],
        &["answer", &name, "--question", "q1", "eu"],
    ] {
        let late = rig.run(arguments);
        assert_eq!(late.code, 4, "{late:?}");
        assert!(late.err.contains("the first answer counts"), "{late:?}");
    }
    assert_eq!(result(&rig, &name)[0]["content"]["answer"], "us");

    let name = asked(&rig, &region(), "1");
    assert_eq!(rig.run(&["cancel", &name]).code, 0);
    let late = browser.send(&name, "q1", &[("f.answer", "eu"), ("action", "accept")]);
    assert_eq!(late.status, 409);
    assert!(late.body.contains("was taken back"), "{}", late.body);
}

#[test]
fn the_third_answer_that_does_not_fit_is_said_to_be_a_decline() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let form = json!({ "type": "object", "properties": { "days": { "type": "integer", "maximum": 9 } } });
    let name = asked(
        &rig,
        &json!({ "id": 1, "message": "How long?", "form": form }),
        "1",
    );
    let browser = Browser::open(&rig, &server, &name);
    let sent = |days: &str| browser.send(&name, "q1", &[("f.days", days), ("action", "accept")]);
    // What is no number never reaches the question.
    for (days, said) in [
        ("soon", "`days` is a number, and `soon` is none"),
        ("10", "After two more that do not fit"),
        ("11", "After one more that does not fit"),
        ("12", "counts as declined"),
    ] {
        let reply = sent(days);
        assert_eq!(reply.status, 422, "{days}");
        assert!(reply.body.contains(said), "{days}: {}", reply.body);
    }
    assert_eq!(result(&rig, &name)[0]["action"], "decline");
}

#[test]
fn answers_are_piped_in_as_json() {
    let rig = Rig::new(TOOL);
    let _server = rig.serve();
    let name = asked(&rig, &region(), "1");
    let ran = piped(&rig, &["--json", "answer", &name, "-"], r#"{"answer":"us"}"#);
    assert_eq!(ran.code, 0, "{ran:?}");
    let task: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(task["settled"], json!([{ "key": "q1", "how": "given" }]));
    assert_eq!(result(&rig, &name)[0]["content"]["answer"], "us");

    let name = asked(&rig, &json!([region(), link()]), "1 2");
    let unnamed = rig.run(&["answer", &name, "us"]);
    assert_eq!(unnamed.code, 2, "{unnamed:?}");
    assert!(
        unnamed.err.contains("--question KEY, one of q1, q2"),
        "{unnamed:?}"
    );
    let ran = piped(&rig, &["answer", &name, "-"], r#"{"q2":{},"q1":{"answer":"eu"}}"#);
    assert_eq!(ran.code, 0, "{ran:?}");
    let answers = result(&rig, &name);
    assert_eq!(answers[0]["content"]["answer"], "eu");
    assert_eq!(answers[1]["action"], "accept");

    let name = asked(&rig, &json!([region(), link()]), "1 2");
    let one = rig.run(&["answer", &name, "--question", "q1", "eu"]);
    assert!(
        one.out
            .contains(&format!("1 open question: longhaul answer {name}")),
        "{one:?}"
    );
    for input in ["", "[]", "eu", r#"{"answer":"#] {
        let ran = piped(&rig, &["answer", &name, "-"], input);
        assert_eq!(ran.code, 2, "{input}: {ran:?}");
    }
    assert_eq!(rig.run(&["answer", &name, "--decline"]).code, 0);
    assert_eq!(result(&rig, &name)[1]["action"], "decline");
}

// D-31, G-32: the first answer counts, and every other one is told so or acknowledged.
#[test]
fn d_31_of_a_client_the_page_and_the_terminal_one_answer_counts() {
    let rig = Rig::new(TOOL);
    let server = rig.serve();
    let form =
        json!({ "type": "object", "properties": { "who": { "type": "string" } }, "required": ["who"] });
    let question = json!({ "id": 1, "message": "Who?", "form": form });
    for _ in 0..8 {
        let (id, name, _) = modern_task(&rig, &server, &question, both());
        let browser = Browser::open(&rig, &server, &name);
        let start = Barrier::new(3);
        let (client, page, terminal) = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                start.wait();
                let answers = json!({ "q1": { "action": "accept", "content": { "who": "client" } } });
                let update = json!({ "taskId": id, "inputResponses": answers });
                modern(&server, "tasks/update", &id, update, both())
            });
            let page = scope.spawn(|| {
                start.wait();
                browser.send(&name, "q1", &[("f.who", "page"), ("action", "accept")])
            });
            let terminal = scope.spawn(|| {
                start.wait();
                rig.run(&["answer", &name, "who=terminal"])
            });
            (
                client.join().unwrap(),
                page.join().unwrap(),
                terminal.join().unwrap(),
            )
        });
        let winner = result(&rig, &name)[0]["content"]["who"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            client.get("error").is_none(),
            "a late answer is acknowledged: {client}"
        );
        assert_eq!(page.status, if winner == "page" { 303 } else { 409 }, "{winner}");
        assert_eq!(
            terminal.code,
            if winner == "terminal" { 0 } else { 4 },
            "{winner}: {terminal:?}"
        );
    }
}

/// A program that writes down what it is given.
fn stub(rig: &Rig) -> String {
    let told = rig.path("told");
    format!(
        "[local]\nnotify = [\"sh\", \"-c\", \"printf '%s\\\\n' \\\"$@\\\" >> {}\", \"notices\"]\n",
        told.display()
    )
}

/// Waits until so many notices were given.
fn told(rig: &Rig, count: usize) -> Vec<String> {
    let deadline = longhaul_engine::clock::monotonic() + PATIENCE;
    loop {
        let text = fs::read_to_string(rig.path("told")).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count * 2 {
            return lines;
        }
        assert!(longhaul_engine::clock::monotonic() < deadline, "{lines:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_question_that_its_client_cannot_show_is_told_of_outside_without_what_is_asked() {
    let rig = Rig::new("");
    fs::write(
        rig.path("longhaul.toml"),
        format!("[server]\nbind = \"127.0.0.1:0\"\n{TOOL}{}", stub(&rig)),
    )
    .unwrap();
    let server = rig.serve();
    // One that its client can show, and does.
    let (_, shown, _) = modern_task(&rig, &server, &region(), both());
    let (_, name) = modern_call(&rig, &server, &region(), Value::Null);
    let lines = told(&rig, 1);
    assert_eq!(lines[0], "Longhaul: a question waits for you");
    assert_eq!(
        lines[1],
        format!("asks asks, in task {name}. Answer with: longhaul answer {name}, or: longhaul page {name}")
    );
    let health = rows(&rig);
    assert!(
        health.contains("questions that no client shows are told of by"),
        "{health}"
    );
    // A question that is asked of nobody who follows the task is told of, too, once they had time to come.
    let left = asked_and_left(&rig);
    let lines = told(&rig, 2);
    assert!(lines[3].contains(&left), "{lines:?}");
    assert!(!lines.concat().contains(&shown), "{lines:?}");
    assert!(!lines.concat().contains("region"), "{lines:?}");
}

/// A call of the command line that nobody follows.
fn asked_and_left(rig: &Rig) -> String {
    let ask = format!("ask={}", one(region()));
    rig.start(&["asks", &ask, "times=1"])
}

#[test]
fn notices_are_limited_and_the_last_one_says_that_there_are_more() {
    let rig = Rig::new("");
    fs::write(
        rig.path("longhaul.toml"),
        format!("[server]\nbind = \"127.0.0.1:0\"\n{TOOL}{}", stub(&rig)),
    )
    .unwrap();
    let server = rig.serve();
    for _ in 0..7 {
        modern_call(&rig, &server, &region(), Value::Null);
    }
    let lines = told(&rig, 5);
    let texts: Vec<&String> = lines.iter().skip(1).step_by(2).collect();
    let more = "More questions wait. See them with: longhaul tasks";
    assert_eq!(texts.iter().filter(|text| **text == more).count(), 1, "{texts:?}");
    drop(server);
    let text = fs::read_to_string(rig.path("told")).unwrap();
    assert_eq!(text.lines().count(), 10, "{text}");
}

#[test]
fn without_a_desktop_nothing_is_told_and_the_doctor_says_why() {
    let rig = Rig::new("");
    let _server = rig.serve();
    assert!(
        rows(&rig).contains("this environment has no desktop"),
        "{}",
        rows(&rig)
    );
    let rig = Rig::new("[local]\nnotify = \"never\"\n");
    let _server = rig.serve();
    assert!(rows(&rig).contains("`local.notify` is `never`"), "{}", rows(&rig));
    let ran = Rig::new("[local]\nnotify = []\n").run(&["config", "check"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err
            .contains("`auto`, `never`, or a program as a list of texts"),
        "{ran:?}"
    );
}

/// What the doctor says of notices.
fn rows(rig: &Rig) -> String {
    let report: Value = serde_json::from_str(&rig.run(&["--json", "doctor"]).out).unwrap();
    let mut rows = report["checks"].as_array().unwrap().iter();
    let row = rows.find(|row| row["check"] == "notices").unwrap();
    row["found"].as_str().unwrap().to_owned()
}
