//! A plain server behind the gateway, as clients of every generation meet it: its tools listed whole, its slow calls
//! adopted as tasks, its prompts and resources passed on.

mod asked;
mod down;
mod followed;
mod links;
mod processes;
mod prompts;
mod tasks;

use std::time::Duration;

use longhaul_gateway::{
    admin::Backend as _,
    dispatch::Settings,
    upstream::{Definitions, server::State},
};
use serde_json::{Value, json};

use crate::{
    session_client::{SessionClient, initialize},
    support::{Client, FIXTURE, ME, World, site::said},
};

/// One server that is the fixture, of one generation. Options of the fixture stand behind that: `2025 --odd`.
pub(crate) fn fixture(era: &str, more: &str) -> String {
    named("fixture", era, more)
}

/// The same, called so.
pub(crate) fn named(name: &str, era: &str, more: &str) -> String {
    let options = format!("--era={era}");
    let mut command = vec!["python3", FIXTURE, "stdio"];
    command.extend(options.split(' '));
    format!("[servers.{name}]\ncommand = {command:?}\nenv.PYTHONDONTWRITEBYTECODE = \"1\"\n{more}")
}

pub(crate) async fn world(era: &str, more: &str) -> World {
    world_with(era, more, Settings::default()).await
}

pub(crate) async fn world_with(era: &str, more: &str, settings: Settings) -> World {
    World::ready_behind(&fixture(era, more), settings).await
}

const ARGUMENTS: &str = r#"{"a":12345678901234567890,"text":"\u00e9","z":1.0}"#;

/// A server that does one thing after the other, and says that its tools changed before it works.
const BUSY: &str = r#"
import json, sys, time
def say(**frame): print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    method = frame.get("method")
    if method == "initialize":
        say(id=frame["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "busy", "version": "1"}})
    elif method == "tools/list":
        say(id=frame["id"], result={"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        say(method="notifications/tools/list_changed")
        time.sleep(2)
        say(id=frame["id"], result={"content": [{"type": "text", "text": "done"}]})
    elif "id" in frame:
        say(id=frame["id"], error={"code": -32601, "message": "no"})
"#;

#[tokio::test]
async fn a_call_goes_on_while_its_server_is_too_busy_to_list() {
    let config = format!(
        "[servers.busy]\nprotocol = \"2025\"\ncommand = [\"python3\", \"-c\", '''{BUSY}''']\nrequest_timeout = \"1s\"\n"
    );
    let world = World::ready_behind(&config, Settings::default()).await;
    let called = world.call(&Client::without_tasks(), "work", json!({})).await;
    assert_eq!(said(called.result()), "done");
}

#[tokio::test]
async fn a_call_and_its_result_pass_whole_between_every_two_generations() {
    for era in ["2025", "2026"] {
        let world = world(era, "").await;
        let arguments: Value = serde_json::from_str(ARGUMENTS).expect("JSON");
        let plain = world
            .call(&Client::without_tasks(), "echo", arguments.clone())
            .await;
        assert_eq!(said(plain.result()), ARGUMENTS);
        assert_eq!(plain.result()["resultType"], "complete");
        let session = SessionClient::open(&world).await;
        let params = json!({ "name": "raw", "arguments": { "result":
            r#"{"content":[{"type":"text","text":"x","vendor":1.0}],"vendor":{"b":1,"a":[2.50]}}"# } });
        let reply = session.request("tools/call", params).await;
        let result = &reply["result"];
        assert_eq!(result["content"][0]["vendor"].to_string(), "1.0", "{reply}");
        assert_eq!(result["vendor"].to_string(), r#"{"a":[2.5],"b":1}"#);
        assert!(result.get("resultType").is_none(), "{reply}");
    }
}

#[tokio::test]
async fn tools_are_listed_as_their_server_defines_them() {
    let world = world("2025", "").await;
    let session = SessionClient::open(&world).await;
    let listed = session.request("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let echo = tools.iter().find(|tool| tool["name"] == "echo").expect("echo");
    assert_eq!(echo["vendor"]["kept"].to_string(), "1.0");
    // D-12
    assert_eq!(echo["execution"]["taskSupport"], "optional");
    let listed = world.rpc(&Client::with_tasks(), "tools/list", json!({})).await;
    let tools = listed.result()["tools"].as_array().expect("tools");
    let echo = tools.iter().find(|tool| tool["name"] == "echo").expect("echo");
    assert!(echo.get("execution").is_none());
    assert_eq!(echo["vendor"]["kept"].to_string(), "1.0");
}

#[tokio::test]
async fn a_slow_call_becomes_a_task_and_its_result_is_kept() {
    for era in ["2025", "2026"] {
        let world = world(era, "promote_after = \"0s\"\n").await;
        let created = world
            .call(&Client::with_tasks(), "late", json!({ "seconds": 0.2 }))
            .await;
        assert_eq!(created.result()["resultType"], "task", "{}", created.body);
        let id = created.result()["taskId"].as_str().expect("an id");
        let task = world.until(id, "completed").await;
        assert_eq!(said(&task["result"]), "late");
        let session = SessionClient::open(&world).await;
        let result = session.request("tasks/result", json!({ "taskId": id })).await;
        assert_eq!(said(&result["result"]), "late");
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_server_behind() {
    let world = world("2025", "promote_after = \"0s\"\nisolation = \"shared\"\n").await;
    let created = world.call(&Client::with_tasks(), "hang", json!({})).await;
    let id = created.result()["taskId"].as_str().expect("an id").to_owned();
    seen(&world, |seen| seen["count"] == 1).await;
    let cancelled = world
        .rpc(&Client::with_tasks(), "tasks/cancel", json!({ "taskId": id }))
        .await;
    assert_eq!(cancelled.status, 200);
    let is_told = |seen: &Value| {
        seen["cancelled"]
            .as_array()
            .is_some_and(|cancelled| cancelled.len() == 1)
    };
    seen(&world, is_told).await;
}

/// Asks the server, in the name of a client without a session, what it has seen, until that is as wanted.
pub(crate) async fn seen(world: &World, wanted: impl Fn(&Value) -> bool) {
    seen_by(world, "seen", wanted).await;
}

async fn seen_by(world: &World, tool: &str, wanted: impl Fn(&Value) -> bool) {
    let client = Client::without_tasks();
    let ask = async || world.call(&client, tool, json!({})).await.result().clone();
    until_told(ask, wanted).await;
}

/// Asks until the JSON in the text of the result is as wanted.
async fn until_told(ask: impl AsyncFn() -> Value, wanted: impl Fn(&Value) -> bool) {
    let seen = async {
        loop {
            let seen: Value = serde_json::from_str(said(&ask().await)).expect("JSON");
            if wanted(&seen) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen)
        .await
        .expect("in time");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_never_called_again_for_it() {
    let world = world("2025", "promote_after = \"0s\"\n").await;
    // With half a reply it has not answered.
    for tool in ["die", "half"] {
        let created = world.call(&Client::with_tasks(), tool, json!({})).await;
        let id = created.result()["taskId"].as_str().expect("an id").to_owned();
        let task = world.until(&id, "failed").await;
        assert_eq!(task["error"]["data"]["reason"], "interrupted", "{task}");
    }
    // Another call is served by a new process.
    let echoed = world
        .call(&Client::without_tasks(), "echo", json!({ "a": 1 }))
        .await;
    assert_eq!(said(echoed.result()), r#"{"a":1}"#);
}

#[tokio::test]
async fn progress_of_the_server_is_the_task_s() {
    let world = world("2026", "promote_after = \"0s\"\n").await;
    let created = world
        .call(&Client::with_tasks(), "progress", json!({ "steps": 3 }))
        .await;
    let id = created.result()["taskId"].as_str().expect("an id").to_owned();
    let task = world.until(&id, "completed").await;
    assert_eq!(task["_meta"]["dev.longhaul/progress"]["progress"], 3, "{task}");
    assert_eq!(task["_meta"]["dev.longhaul/progress"]["message"], "step 3");
}

#[tokio::test]
async fn an_error_of_the_server_is_the_call_s() {
    let world = world("2025", "").await;
    let refused = world.call(&Client::without_tasks(), "refuse", json!({})).await;
    assert_eq!(refused.code(), -32050);
    assert_eq!(refused.body["error"]["data"]["why"].to_string(), "1.0");
    let failed = world.call(&Client::without_tasks(), "fail", json!({})).await;
    assert_eq!(failed.result()["isError"], true);
}

#[tokio::test]
async fn a_task_of_a_server_that_knows_none_is_lost_or_refused() {
    for (more, reason) in [
        ("", "upstream_tasks_lost"),
        ("strict_tasks = true\n", "upstream_unasked_task"),
    ] {
        let world = world("2025", more).await;
        let reply = world
            .call(&Client::without_tasks(), "unasked_task", json!({}))
            .await;
        assert_eq!(reply.body["error"]["data"]["reason"], reason, "{}", reply.body);
    }
}

#[tokio::test]
async fn a_question_of_the_server_is_the_call_s_and_its_answer_goes_back() {
    let name = json!({ "action": "accept", "content": { "name": "Ada" } });
    // B-37, B-40: a server asks in its result, and is called again with the answers.
    let stateless = world("2026", "tasks = \"never\"\n").await;
    let asked = stateless
        .call(&Client::without_tasks(), "form", json!({ "a": 1.0 }))
        .await;
    assert_eq!(asked.result()["resultType"], "input_required", "{}", asked.body);
    let form = &asked.result()["inputRequests"]["user_name"]["params"]["requestedSchema"];
    assert_eq!(form["properties"]["name"]["type"], "string");
    let again = json!({ "name": "form", "arguments": { "a": 1.0 }, "inputResponses": { "user_name": name },
        "requestState": asked.result()["requestState"] });
    let done = stateless.rpc(&Client::without_tasks(), "tools/call", again).await;
    let called: Value = serde_json::from_str(said(done.result())).expect("JSON");
    assert_eq!(called["inputResponses"]["user_name"], name);
    assert_eq!(called["requestState"], "kept");
    assert_eq!(called["arguments"]["a"].to_string(), "1.0");
    // A-70: in a session the server sends a request meanwhile.
    for era in ["2025", "2026"] {
        let world = world(era, "promote_after = \"0s\"\n").await;
        let created = world.call(&Client::with_tasks(), "form", json!({})).await;
        let id = created.result()["taskId"].as_str().expect("an id").to_owned();
        let asking = world.until(&id, "input_required").await;
        let keys: Vec<&String> = asking["inputRequests"]
            .as_object()
            .expect("questions")
            .keys()
            .collect();
        let answers = json!({ "taskId": id, "inputResponses": { keys[0]: name } });
        let taken = world.rpc(&Client::with_tasks(), "tasks/update", answers).await;
        assert_eq!(taken.status, 200, "{}", taken.body);
        let task = world.until(&id, "completed").await;
        assert!(said(&task["result"]).contains("Ada"), "{task}");
    }
}

#[tokio::test]
async fn a_client_s_model_is_asked_without_what_the_server_s_library_adds() {
    let world = world("2025", "tasks = \"never\"\nquestions = [\"sampling\"]\n").await;
    let mut hello = initialize("2025-11-25");
    hello["capabilities"] = json!({ "sampling": {} });
    let session = SessionClient::open_with(&world, hello).await;
    let messages = json!([{ "role": "user", "content": { "type": "text", "text": "Hello?" } }]);
    let sample = json!({ "messages": messages, "maxTokens": 5, "_meta": { "progressToken": 0 } });
    let arguments = json!({ "method": "sampling/createMessage", "params": sample });
    let call = json!({ "name": "ask", "arguments": arguments });
    let mut events = session.stream(9, "tools/call", call).await;
    let asked = events.until("sampling/createMessage").await.data;
    assert_eq!(asked["params"]["messages"], messages, "{asked}");
    let said_by_model = json!({ "type": "text", "text": "Hello!" });
    let answer = json!({ "role": "assistant", "model": "m", "content": said_by_model });
    assert_eq!(session.answer(&asked, answer.clone()).await, 202);
    let done = loop {
        let event = events.next().await.expect("a reply").data;
        if event.get("result").is_some() {
            break event;
        }
    };
    let answered: Value = serde_json::from_str(said(&done["result"])).expect("JSON");
    assert_eq!(answered, answer, "{done}");
}

#[tokio::test]
async fn t26_what_a_server_takes_back_is_asked_no_more() {
    let world = world("2025", "promote_after = \"0s\"\nisolation = \"shared\"\n").await;
    let created = world.call(&Client::with_tasks(), "ask_in_vain", json!({})).await;
    let id = created.result()["taskId"].as_str().expect("an id").to_owned();
    world.until(&id, "input_required").await;
    let client = Client::without_tasks();
    world.call(&client, "release", json!({})).await.result();
    let task = world.until(&id, "working").await;
    // T26
    assert!(task["inputRequests"].is_null(), "{task}");
    world.call(&client, "release", json!({})).await.result();
    let task = world.until(&id, "completed").await;
    assert_eq!(said(&task["result"]), "went on");
}

#[tokio::test]
async fn a_server_is_told_what_this_caller_can_be_asked() {
    let mute = Client {
        capabilities: json!({}),
        ..Client::without_tasks()
    };
    // A user of this machine has the page, whatever the client shows.
    for (setting, client, told) in [
        ("", Client::without_tasks(), true),
        ("", mute.clone(), true),
        ("ask_undeclared = false", Client::without_tasks(), true),
        ("ask_undeclared = false", mute, false),
    ] {
        let world = world("2026", setting).await;
        let seen = world.call(&client, "params", json!({})).await;
        let seen: Value = serde_json::from_str(said(seen.result())).expect("JSON");
        let capabilities = &seen["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(capabilities["elicitation"].is_object(), told, "{setting}: {seen}");
        assert!(capabilities["sampling"].is_null());
    }
}

#[tokio::test]
async fn a_prompt_that_asks_first_is_asked_for_again() {
    let world = world("2026", "").await;
    let client = Client::without_tasks();
    let asked = world
        .rpc(&client, "prompts/get", json!({ "name": "greet" }))
        .await;
    assert_eq!(asked.result()["resultType"], "input_required", "{}", asked.body);
    assert_eq!(asked.result()["requestState"], "kept");
    let who = json!({ "who": { "action": "accept", "content": {} } });
    let again = json!({ "name": "greet", "requestState": "kept", "inputResponses": who });
    let got = world.rpc(&client, "prompts/get", again).await;
    assert_eq!(got.result()["seen"]["inputResponses"], who, "{}", got.body);
}

#[tokio::test]
async fn prompts_and_resources_pass_on() {
    for era in ["2025", "2026"] {
        let world = world(era, "").await;
        let session = SessionClient::open(&world).await;
        assert!(session.initialized["capabilities"]["resources"].is_object());
        assert!(session.initialized["capabilities"]["prompts"].is_object());
        let instructions = session.initialized["instructions"].as_str().expect("text");
        assert!(
            instructions.ends_with("Of the server `fixture`:\nCall echo."),
            "{instructions}"
        );
        let prompts = session.request("prompts/list", json!({})).await;
        assert_eq!(
            prompts["result"]["prompts"][0]["vendor"].to_string(),
            "1.0",
            "{prompts}"
        );
        let read = session
            .request("resources/read", json!({ "uri": "fixture://one" }))
            .await;
        assert_eq!(read["result"]["contents"][0]["text"], "one", "{read}");
        let listed = world
            .rpc(&Client::without_tasks(), "resources/list", json!({}))
            .await;
        assert_eq!(listed.result()["resources"][0]["uri"], "fixture://one");
        assert_eq!(listed.result()["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_changed_list_is_told_to_clients_of_both_generations() {
    let world = world("2025", "isolation = \"shared\"\n").await;
    let session = SessionClient::open(&world).await;
    let mut stream = session.listen(None).await;
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut frames = world
        .stream(&Client::without_tasks(), "subscriptions/listen", filter)
        .await;
    let acknowledged = frames.next().await.expect("an acknowledgement");
    assert_eq!(
        acknowledged["params"]["notifications"]["toolsListChanged"], true,
        "{acknowledged}"
    );
    world
        .call(&Client::without_tasks(), "change", json!({}))
        .await
        .result();
    let changed = frames.next().await.expect("a change");
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    let changed = loop {
        let event = stream.next().await.expect("a change").data;
        if event["method"].is_string() {
            break event;
        }
    };
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    let late = world.call(&Client::without_tasks(), "late_tool", json!({})).await;
    assert_eq!(
        late.code(),
        -32602,
        "the server knows no such method: {}",
        late.body
    );
}

#[tokio::test]
async fn the_time_of_a_call_stands_still_while_its_caller_is_asked() {
    for era in ["2025", "2026"] {
        let world = world(era, "promote_after = \"0s\"\ntimeout = \"1s\"\n").await;
        let created = world.call(&Client::with_tasks(), "form", json!({})).await;
        let id = created.result()["taskId"].as_str().expect("an id").to_owned();
        let asking = world.until(&id, "input_required").await;
        // Another call, begun after the question, has had the same time and used it up.
        let hung = world.call(&Client::without_tasks(), "hang", json!({})).await;
        assert_eq!(hung.result()["isError"], true, "{}", hung.body);
        let asked = asking["inputRequests"].as_object().expect("questions");
        let key = asked.keys().next().expect("a question");
        let name = json!({ "action": "accept", "content": { "name": "Ada" } });
        let answers = json!({ "taskId": id, "inputResponses": { key: name } });
        world
            .rpc(&Client::with_tasks(), "tasks/update", answers)
            .await
            .result();
        let task = world.until(&id, "completed").await;
        assert!(said(&task["result"]).contains("Ada"), "{task}");
    }
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused_with_its_size() {
    let world = world("2025", "[limits]\nresult_max = \"4KiB\"\n").await;
    let reply = world
        .call(&Client::without_tasks(), "long", json!({ "bytes": 5000 }))
        .await;
    let error = &reply.body["error"];
    assert_eq!(error["data"]["reason"], "result_too_large", "{error}");
    let message = error["message"].as_str().expect("text");
    assert!(
        message.contains("4096 are kept at most (`limits.result_max`)"),
        "{message}"
    );
}

#[tokio::test]
async fn an_odd_name_is_listed_by_the_nearest_and_called_as_it_is() {
    let world = world("2025 --odd", "[servers.fixture.tools.pid]\nhidden = true\n").await;
    for (listed, own) in [("odd_tool", "odd_tool"), ("odd_tool_2", "odd tool")] {
        let called = world.call(&Client::without_tasks(), listed, json!({})).await;
        assert_eq!(said(called.result()), own);
    }
    let listed = world.rpc(&Client::with_tasks(), "tools/list", json!({})).await;
    let shown = world.dispatch.servers(ME).await.expect("they are shown");
    let shown = &shown.servers[0];
    let tools = listed.result()["tools"].as_array().expect("tools").iter();
    let of_server = tools.filter(|tool| tool["name"] != "longhaul_wait");
    assert_eq!(shown.tools as usize, of_server.count());
    assert_eq!(
        shown.left_out,
        [
            "bad: its `inputSchema` is missing or of the wrong type",
            "resource memo: its `uri` is empty, has control characters, or is a URI without a scheme",
            "pid: it is hidden (`hidden = true`)",
        ]
    );
    assert_eq!(
        shown.notes,
        [
            "odd tool: it is listed as `odd_tool_2`".to_owned(),
            format!(
                "{}: some clients refuse a name of more than 60 characters",
                "x".repeat(70)
            ),
        ]
    );
}

#[tokio::test]
async fn what_is_left_out_is_known_after_a_restart() {
    let world = world("2025 --odd", "").await;
    let server = world.fleet.server("fixture").expect("it is configured");
    let defined = server.definitions().expect("it was reached");
    let known = Definitions::decode(&defined.encode()).expect("it is kept");
    assert_eq!(known.dropped, defined.dropped);
    assert_eq!((known.dropped_count, known.digest), (2, defined.digest));
}

#[tokio::test]
async fn the_values_of_a_client_s_file_are_literal_but_for_its_variables() {
    let declared = |era: &str| {
        let env =
            json!({ "DATABASE_URL": "file:./none.db", "RUN": "cmd:none", "PYTHONDONTWRITEBYTECODE": "1" });
        json!({ "command": "python3", "args": [FIXTURE, "stdio", format!("--era={era}")], "env": env })
    };
    let file = json!({ "mcpServers": {
        "good": declared("${LONGHAUL_NONE:-2025}"),
        "bad": declared("${LONGHAUL_NONE}"),
        "far": { "url": "ftp://${LONGHAUL_NONE:-hunter2}/mcp" },
    } });
    let world = World::behind(&file.to_string(), Settings::default()).await;
    let settled = |name: &'static str| {
        let server = world.fleet.server(name).expect("it is configured");
        let mut state = server.watch_state();
        async move {
            let settled = state.wait_for(|state| *state != State::Starting);
            let settled = tokio::time::timeout(Duration::from_secs(30), settled).await;
            settled.expect("in time").expect("the server lives").clone()
        }
    };
    assert_eq!(settled("good").await, State::Ready);
    for (name, expected) in [
        ("bad", "`LONGHAUL_NONE` is not set"),
        ("far", "its address is none"),
    ] {
        let State::Degraded { why, .. } = settled(name).await else {
            panic!("{name} was started");
        };
        assert!(why.contains(expected) && !why.contains("hunter2"), "{why}");
    }
}
