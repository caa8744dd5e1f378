//! Tasks that a server behind makes of its calls: asked for in the way of its generation, followed to their end, asked,
//! cancelled, lost, and found again after a restart.

use std::{path::Path, sync::Arc, time::Duration};

use longhaul_engine::clock;
use longhaul_gateway::dispatch::Settings;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;

use crate::{
    session_client::SessionClient,
    support::{Client, World, listening, site::said},
};

const TASKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/task_server.py");
const PATIENCE: Duration = Duration::from_secs(20);
/// Each call is a task of ours at once.
const AT_ONCE: &str = "promote_after = \"0s\"\n";

/// A server with tasks, and a gateway in front of it.
struct Site {
    world: World,
    folder: TempDir,
    config: String,
    store: Arc<Memory>,
    /// A server behind a URL.
    _process: Option<Child>,
}

impl Site {
    /// The server is a program of the gateway's.
    async fn program(era: &str, options: &[&str], more: &str) -> Site {
        let folder = tempfile::tempdir().expect("a directory");
        let mut command = vec!["python3".to_owned(), TASKS.to_owned(), "stdio".to_owned()];
        command.extend(arguments(era, options, folder.path()));
        let config = format!(
            "[servers.tasks]\ncommand = {command:?}\nenv.PYTHONDONTWRITEBYTECODE = \"1\"\nenv.PATH = \"/usr/local/bin:/usr/bin:/bin\"\n{more}"
        );
        Site::over(folder, config, None).await
    }

    /// The server is behind a URL.
    async fn remote(era: &str, options: &[&str], more: &str) -> Site {
        let folder = tempfile::tempdir().expect("a directory");
        let mut all = vec![TASKS.to_owned(), "http".to_owned()];
        all.extend(arguments(era, options, folder.path()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let (process, port) = listening(&all).await;
        let config = format!("[servers.tasks]\nurl = \"http://127.0.0.1:{port}/mcp\"\n{more}");
        Site::over(folder, config, Some(process)).await
    }

    /// Both of each generation.
    async fn all(options: &[&str], more: &str) -> [Site; 4] {
        [
            Site::program("2025", options, more).await,
            Site::program("2026", options, more).await,
            Site::remote("2025", options, more).await,
            Site::remote("2026", options, more).await,
        ]
    }

    async fn over(folder: TempDir, config: String, process: Option<Child>) -> Site {
        let store = Arc::new(Memory::new(Arc::new(clock::now)));
        let world = World::over(Arc::clone(&store), &config, Settings::default(), &|_| None).await;
        world.ready().await;
        Site {
            world,
            folder,
            config,
            store,
            _process: process,
        }
    }

    /// The gateway is killed, and another one takes its place.
    async fn restart(&mut self) {
        self.store.kill(self.world.runner);
        let fleet = self.world.fleet.clone();
        let server = fleet.server("tasks").expect("it is configured");
        let known = server.definitions();
        let store = Arc::clone(&self.store);
        self.world = World::over(store, &self.config, Settings::default(), &|_| {
            known.as_deref().cloned()
        })
        .await;
        self.world.ready().await;
    }

    /// A call that is a task of ours at once; its id.
    async fn task(&self, tool: &str, arguments: Value) -> String {
        let created = self.world.call(&Client::with_tasks(), tool, arguments).await;
        assert_eq!(created.result()["resultType"], "task", "{}", created.body);
        created.result()["taskId"].as_str().expect("an id").to_owned()
    }

    /// The frames that the server got with this method, as they were sent.
    fn got(&self, method: &str) -> Vec<Value> {
        let frames = self.log().into_iter().map(|line| line["frame"].clone());
        frames.filter(|frame| frame["method"] == method).collect()
    }

    fn log(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines = log.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect()
    }

    /// Waits until the server got a frame of this method.
    async fn until_got(&self, method: &str) {
        self.until_got_so_often(method, 1).await;
    }

    async fn until_got_so_often(&self, method: &str, times: usize) {
        let until = async {
            while self.got(method).len() < times {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, until).await.expect("in time");
    }

    /// The task once it is so, as its stream tells it.
    async fn until_that(&self, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let filter = json!({ "notifications": { "taskIds": [id] } });
        let client = Client::with_tasks();
        let mut frames = self.world.stream(&client, "subscriptions/listen", filter).await;
        loop {
            let frame = frames
                .next()
                .await
                .expect("the task before the end of its stream");
            let task = &frame["params"];
            if task["taskId"] == id && is_so(task) {
                return task.clone();
            }
        }
    }

    async fn cancel(&self, id: &str) {
        let cancelled = self
            .world
            .rpc(&Client::with_tasks(), "tasks/cancel", json!({ "taskId": id }))
            .await;
        assert_eq!(cancelled.status, 200, "{}", cancelled.body);
    }

    /// Answers the questions that are open with this name, each by itself where `singly`.
    async fn answer(&self, id: &str, singly: bool) {
        let asking = self.world.until(id, "input_required").await;
        let requests = asking["inputRequests"].as_object().expect("questions");
        let mut answers = json!({});
        for (key, request) in requests {
            // Above what the server asks stands who asks.
            let message = request["params"]["message"].as_str().expect("a message");
            let name = message.lines().last().unwrap_or_default();
            answers[key] = json!({ "action": "accept", "content": { "name": name } });
            if singly {
                self.send(id, &answers).await;
                answers = json!({});
            }
        }
        if !singly {
            self.send(id, &answers).await;
        }
    }

    async fn send(&self, id: &str, answers: &Value) {
        let params = json!({ "taskId": id, "inputResponses": answers });
        let taken = self
            .world
            .rpc(&Client::with_tasks(), "tasks/update", params)
            .await;
        assert_eq!(taken.status, 200, "{}", taken.body);
    }
}

/// A session asks one after the other.
fn asks_two(task: &Value) -> bool {
    let asks = task["inputRequests"].as_object();
    asks.is_some_and(|asks| asks.len() == 2)
}

fn arguments(era: &str, options: &[&str], folder: &Path) -> Vec<String> {
    let log = folder.join("log");
    let mut all = vec![format!("--era={era}"), format!("--log={}", log.display())];
    all.extend(options.iter().map(|option| (*option).to_owned()));
    all
}

/// What a tool of the fixture says that it got.
fn returned(task: &Value) -> Value {
    serde_json::from_str(said(&task["result"])).unwrap_or_else(|_| panic!("no text of the fixture: {task}"))
}

#[tokio::test]
async fn a_server_s_own_task_is_followed_to_its_result() {
    for site in Site::all(&[], AT_ONCE).await {
        let id = site.task("slow", json!({ "mark": "a", "seconds": 0.3 })).await;
        let task = site.world.until(&id, "completed").await;
        assert_eq!(returned(&task)["mark"], "a");
        let call = &site.got("tools/call")[0]["params"];
        let is_of_session = !site.got("initialize").is_empty();
        if is_of_session {
            // A-42, A-50
            assert!(call["task"]["ttl"].as_u64().is_some_and(|ttl| ttl > 0), "{call}");
            assert_eq!(site.got("tasks/result").len(), 1);
        } else {
            // C-1
            let declared = &call["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(
                declared["extensions"],
                json!({ "io.modelcontextprotocol/tasks": {} })
            );
            assert!(call["task"].is_null(), "{call}");
        }
        // The server's id is no client's.
        assert_ne!(id, "task-1");
    }
}

#[tokio::test]
async fn a_plain_caller_gets_the_result_of_the_server_s_own_task() {
    for more in ["", "tasks = \"never\"\n", "tasks = \"relay\"\n"] {
        for era in ["2025", "2026"] {
            let site = Site::program(era, &[], more).await;
            let arguments = json!({ "mark": "b", "seconds": 0.2 });
            let called = site.world.call(&Client::without_tasks(), "slow", arguments).await;
            assert!(said(called.result()).contains("\"b\""), "{}", called.body);
            let is_followed = !site.got("tasks/get").is_empty() || !site.got("tasks/result").is_empty();
            // A-39, C-2: with `never` no server is told that it may make one.
            assert_eq!(is_followed, !more.contains("never"), "{era} {more}");
        }
    }
}

#[tokio::test]
async fn how_a_server_s_task_ended_is_how_ours_ends() {
    for site in Site::all(&[], AT_ONCE).await {
        // D-6: an error of the tool is a result.
        let id = site.task("fail", json!({ "mark": "c" })).await;
        let task = site.world.until(&id, "completed").await;
        assert_eq!(task["result"]["isError"], true, "{task}");
        let id = site.task("error", json!({ "mark": "d" })).await;
        let task = site.world.until(&id, "failed").await;
        assert_eq!(task["error"]["code"], -32050, "{task}");
        assert_eq!(task["error"]["data"]["mark"], "d");
        // D-7, T27
        let id = site.task("cancelled", json!({ "mark": "e" })).await;
        let task = site.world.until(&id, "cancelled").await;
        assert_eq!(
            task["statusMessage"], "Cancelled by the server behind Longhaul.",
            "{task}"
        );
        // C-10
        let id = site.task("quick", json!({ "mark": "f" })).await;
        let task = site.world.until(&id, "completed").await;
        assert_eq!(returned(&task)["mark"], "f");
    }
}

#[tokio::test]
async fn a_task_that_completed_may_hold_an_error_of_its_tool() {
    let site = Site::program("2025", &["--completed"], AT_ONCE).await;
    let id = site.task("fail", json!({ "mark": "c" })).await;
    let task = site.world.until(&id, "completed").await;
    assert_eq!(task["result"]["isError"], true, "{task}");
    let site = Site::program("2025", &["--wrong"], AT_ONCE).await;
    let id = site.task("quick", json!({ "mark": "c" })).await;
    let task = site.world.until(&id, "failed").await;
    assert_eq!(task["error"]["code"], -32051, "{task}");
}

#[tokio::test]
async fn what_a_server_s_task_tells_is_our_task_s() {
    for site in Site::all(&[], AT_ONCE).await {
        let id = site.task("slow", json!({ "mark": "g", "seconds": 1.0 })).await;
        let is_told = |task: &Value| {
            let message = task["statusMessage"].as_str().unwrap_or_default();
            message.starts_with("g: step")
        };
        let task = site.until_that(&id, is_told).await;
        if !site.got("initialize").is_empty() {
            // A-34: the token of the call stays good for its task.
            let counts = |task: &Value| task["_meta"]["dev.longhaul/progress"]["total"] == 10;
            let task = site.until_that(&id, counts).await;
            assert_eq!(task["status"], "working", "{task}");
        }
        assert_eq!(task["status"], "working");
        site.world.until(&id, "completed").await;
    }
}

#[tokio::test]
async fn questions_of_a_server_s_task_are_our_task_s_and_each_answer_goes_back() {
    for site in Site::all(&[], AT_ONCE).await {
        let id = site.task("ask_two", json!({ "mark": "h" })).await;
        site.until_that(&id, asks_two).await;
        site.answer(&id, false).await;
        let task = site.world.until(&id, "completed").await;
        let answers = &returned(&task)["answers"];
        assert_eq!(answers["first"]["content"]["name"], "The first, h?", "{task}");
        assert_eq!(answers["second"]["content"]["name"], "The second, h?", "{task}");
        // C-28: a second round, asked as the first was.
        let id = site.task("ask_again", json!({ "mark": "i" })).await;
        site.answer(&id, false).await;
        site.until_that(&id, |task| task.to_string().contains("Again, i?"))
            .await;
        site.answer(&id, false).await;
        let task = site.world.until(&id, "completed").await;
        let answers = &returned(&task)["answers"];
        assert_eq!(answers["two"]["content"]["name"], "Again, i?", "{task}");
    }
}

#[tokio::test]
async fn c27_each_answer_goes_to_a_stateless_server_as_soon_as_it_is_there() {
    let site = Site::program("2026", &[], AT_ONCE).await;
    let id = site.task("ask_two", json!({ "mark": "j" })).await;
    let asking = site.world.until(&id, "input_required").await;
    let keys: Vec<String> = asking["inputRequests"]
        .as_object()
        .expect("two")
        .keys()
        .cloned()
        .collect();
    assert_eq!(keys.len(), 2, "{asking}");
    let answer = json!({ "action": "decline" });
    site.send(&id, &json!({ keys[0].clone(): answer })).await;
    site.until_got("tasks/update").await;
    let told = &site.got("tasks/update")[0]["params"]["inputResponses"];
    assert_eq!(told.as_object().expect("one").len(), 1, "{told}");
    site.send(&id, &json!({ keys[1].clone(): answer })).await;
    let task = site.world.until(&id, "completed").await;
    assert_eq!(
        returned(&task)["answers"]["second"]["action"],
        "decline",
        "{task}"
    );
}

#[tokio::test]
async fn a61_a_session_asks_on_whichever_stream_it_likes() {
    for options in [
        &["--ask-shared"][..],
        &["--tell"],
        // What was asked on a stream that broke is asked again, and is one question all the same.
        &["--cut=1"],
        &["--poll=none"],
    ] {
        let site = Site::remote("2025", options, AT_ONCE).await;
        let id = site.task("ask_two", json!({ "mark": "k" })).await;
        site.until_that(&id, asks_two).await;
        site.answer(&id, false).await;
        let task = site.world.until(&id, "completed").await;
        let answers = &returned(&task)["answers"];
        assert_eq!(
            answers["first"]["content"]["name"], "The first, k?",
            "{options:?} {task}"
        );
        // A-62: an answer says which task it is of.
        let answers = site.log().into_iter().map(|line| line["frame"].clone());
        let answers = answers.filter(|frame| frame["result"]["action"] == "accept");
        for answer in answers {
            let related = &answer["result"]["_meta"]["io.modelcontextprotocol/related-task"];
            assert_eq!(related["taskId"], "task-1", "{answer}");
        }
    }
}

#[tokio::test]
async fn d37_a_stateless_server_that_tells_is_asked_seldom() {
    let site = Site::remote("2026", &["--listen", "--poll=100"], AT_ONCE).await;
    let id = site.task("slow", json!({ "mark": "l", "seconds": 2.0 })).await;
    let task = site.world.until(&id, "completed").await;
    assert_eq!(returned(&task)["mark"], "l");
    let asked = site.got("tasks/get").len();
    assert!(asked <= 2, "asked {asked} times");
}

#[tokio::test]
async fn a_cancel_ends_the_server_s_task() {
    for site in Site::all(&[], AT_ONCE).await {
        let id = site.task("slow", json!({ "mark": "m", "seconds": 30 })).await;
        site.until_got("tasks/get").await;
        site.cancel(&id).await;
        site.until_got("tasks/cancel").await;
        assert_eq!(site.got("tasks/cancel")[0]["params"]["taskId"], "task-1");
        // A-32, C-31: never by the means for a request that runs.
        let calls = site.got("tools/call");
        let cancelled = site.got("notifications/cancelled");
        assert!(
            cancelled
                .iter()
                .all(|notice| notice["params"]["requestId"] != calls[0]["id"]),
            "{cancelled:?}"
        );
    }
}

#[tokio::test]
async fn d22_a_question_that_is_open_at_a_cancel_is_answered_so() {
    let site = Site::program("2025", &[], AT_ONCE).await;
    let id = site.task("ask_form", json!({ "mark": "n" })).await;
    site.world.until(&id, "input_required").await;
    site.cancel(&id).await;
    site.until_got("tasks/cancel").await;
    let answered = async {
        let is_answer = |line: &Value| line["frame"]["result"]["action"] == "cancel";
        while !site.log().iter().any(is_answer) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("in time");
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_cancelled_at_its_server() {
    for era in ["2025", "2026"] {
        let more = format!("{AT_ONCE}timeout = \"300ms\"\n");
        let site = Site::program(era, &[], &more).await;
        let id = site.task("slow", json!({ "mark": "o", "seconds": 30 })).await;
        let task = site.world.until(&id, "completed").await;
        assert!(said(&task["result"]).contains("did not end within"), "{task}");
        site.until_got("tasks/cancel").await;
    }
}

#[tokio::test]
async fn a_task_that_nobody_asked_for_is_followed_unless_that_is_refused() {
    for era in ["2025", "2026"] {
        let never = "tasks = \"never\"\n";
        let site = Site::program(era, &["--unasked"], never).await;
        let called = site
            .world
            .call(&Client::without_tasks(), "quick", json!({ "mark": "p" }))
            .await;
        assert!(said(called.result()).contains("\"p\""), "{}", called.body);
        let strict = format!("{never}strict_tasks = true\n");
        let site = Site::program(era, &["--unasked"], &strict).await;
        let called = site
            .world
            .call(&Client::without_tasks(), "slow", json!({ "mark": "p" }))
            .await;
        let reason = &called.body["error"]["data"]["reason"];
        assert_eq!(reason, "upstream_unasked_task", "{}", called.body);
        site.until_got("tasks/cancel").await;
    }
}

#[tokio::test]
async fn a_task_is_followed_whatever_its_server_says_of_times() {
    for options in [
        &["--poll=0", "--ttl=0"][..],
        &["--poll=-5", "--ttl=-1"],
        &["--poll=none"],
        &["--same-id"],
    ] {
        for era in ["2025", "2026"] {
            let site = Site::program(era, options, AT_ONCE).await;
            for mark in ["q", "r"] {
                let id = site.task("slow", json!({ "mark": mark, "seconds": 0.1 })).await;
                let task = site.world.until(&id, "completed").await;
                assert_eq!(returned(&task)["mark"], mark, "{era} {options:?}");
            }
            // D-16: however often it wants to be asked.
            assert!(site.got("tasks/get").len() < 20, "{era} {options:?}");
        }
    }
}

#[tokio::test]
async fn a_session_may_be_silent_of_its_tasks_or_answer_too_early() {
    for options in [&["--silent"], &["--hasty"]] {
        let site = Site::program("2025", options, AT_ONCE).await;
        let id = site.task("slow", json!({ "mark": "s", "seconds": 0.5 })).await;
        let task = site.world.until(&id, "completed").await;
        assert_eq!(returned(&task)["mark"], "s");
    }
}

#[tokio::test]
async fn d15_a_task_that_its_server_forgot_is_lost() {
    for era in ["2025", "2026"] {
        let site = Site::program(era, &["--forgets=1", "--hasty"], AT_ONCE).await;
        let id = site.task("slow", json!({ "mark": "t", "seconds": 30 })).await;
        let task = site.world.until(&id, "failed").await;
        assert_eq!(task["error"]["data"]["reason"], "upstream_tasks_lost", "{task}");
    }
}

#[tokio::test]
async fn d38_a_task_is_found_again_after_a_restart() {
    // The second sends a question once, and waits for its answer.
    for (era, options) in [("2025", &[][..]), ("2025", &["--ask-shared"]), ("2026", &[])] {
        let mut site = Site::remote(era, options, AT_ONCE).await;
        let id = site.task("slow", json!({ "mark": "u", "seconds": 2.0 })).await;
        site.until_got("tasks/get").await;
        let asking = site.task("ask_form", json!({ "mark": "v" })).await;
        site.world.until(&asking, "input_required").await;
        if era == "2025" {
            // It may ask before it is known that it made a task.
            site.until_got_so_often("tasks/result", 2).await;
        }
        site.restart().await;
        let task = site.world.until(&id, "completed").await;
        assert_eq!(returned(&task)["mark"], "u");
        // What was open is asked again, and answered by whoever follows it now.
        let task = site.world.until(&asking, "input_required").await;
        let open = task["inputRequests"].as_object().map(serde_json::Map::len);
        assert_eq!(open, Some(1), "{options:?} {task}");
        site.answer(&asking, false).await;
        let task = site.world.until(&asking, "completed").await;
        let answers = &returned(&task)["answers"];
        assert_eq!(answers["who"]["content"]["name"], "Who are you, v?", "{task}");
        assert_eq!(site.got("tools/call").len(), 2, "a call is made once");
    }
}

// D-6: FastMCP 3 refuses so what is asked before the end, and the word that it has ended may be faster.
#[tokio::test]
async fn a_result_that_was_asked_for_just_before_the_end_is_asked_for_again() {
    let site = Site::remote("2025", &["--late", "--tell"], AT_ONCE).await;
    let id = site.task("slow", json!({ "mark": "l", "seconds": 0.5 })).await;
    let task = site.world.until(&id, "completed").await;
    assert_eq!(returned(&task)["mark"], "l");
}

// FastMCP 3 asks so.
#[tokio::test]
async fn a_question_that_names_no_task_is_that_of_the_one_task_that_asks() {
    // The word that the task asks may come before the one that there is such a task, and the one that it works before the
    // question.
    for early in [&[][..], &["--early=told"], &["--fickle"]] {
        let options = [&["--ask-shared", "--tell", "--nameless", "--hasty"], early].concat();
        let site = Site::remote("2025", &options, AT_ONCE).await;
        let go = site.folder.path().join("go");
        let other = site.task("waits", json!({ "mark": "w", "file": go })).await;
        let id = site.task("ask_form", json!({ "mark": "k" })).await;
        site.world.until(&id, "input_required").await;
        site.answer(&id, false).await;
        let task = site.world.until(&id, "completed").await;
        let answers = &returned(&task)["answers"];
        assert_eq!(answers["who"]["content"]["name"], "Who are you, k?", "{task}");
        std::fs::write(&go, "").expect("a file");
        site.world.until(&other, "completed").await;
    }
}

#[tokio::test]
async fn a_session_is_gone_on_with_by_its_id_and_not_ended_before_its_tasks() {
    let mut site = Site::remote("2025", &["--bound"], AT_ONCE).await;
    let id = site
        .task(
            "waits",
            json!({ "mark": "w", "file": site.folder.path().join("go") }),
        )
        .await;
    site.until_got("tasks/result").await;
    let log = site.log();
    let call = log
        .iter()
        .find(|line| line["frame"]["method"] == "tools/call")
        .expect("it was called");
    let session = call["session"].clone();
    // The old one closes in order, too.
    let before = site.world.fleet.clone();
    site.restart().await;
    before.close().await;
    let ended = |site: &Site| {
        let log = site.log();
        log.iter()
            .any(|line| line["http"] == "DELETE" && line["session"] == session)
    };
    assert!(!ended(&site), "the session of a task was ended");
    std::fs::write(site.folder.path().join("go"), "").expect("written");
    let task = site.world.until(&id, "completed").await;
    assert_eq!(returned(&task)["mark"], "w");
    // A-2: no id of ours is used twice in a session.
    let log = site.log();
    let ids: Vec<u64> = log
        .iter()
        .filter(|line| line["session"] == session)
        .filter_map(|line| {
            line["frame"]["id"]
                .as_u64()
                .filter(|_| line["frame"]["method"].is_string())
        })
        .collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "{ids:?}");
}

#[tokio::test]
async fn a_session_that_was_forgotten_is_begun_anew_and_the_task_looked_for_there() {
    let site = Site::remote("2025", &["--loses=2"], AT_ONCE).await;
    let id = site.task("slow", json!({ "mark": "x", "seconds": 1.5 })).await;
    let task = site.world.until(&id, "completed").await;
    assert_eq!(returned(&task)["mark"], "x");
    let site = Site::remote("2025", &["--loses=2", "--bound"], AT_ONCE).await;
    let id = site.task("slow", json!({ "mark": "x", "seconds": 1.5 })).await;
    let task = site.world.until(&id, "failed").await;
    assert_eq!(task["error"]["data"]["reason"], "upstream_tasks_lost", "{task}");
}

#[tokio::test]
async fn a_program_that_is_begun_anew_is_asked_for_the_task_that_it_had() {
    let folder = tempfile::tempdir().expect("a directory");
    let keep = format!("--keep={}", folder.path().join("kept").display());
    for (options, status) in [(&[][..], "failed"), (&[keep.as_str()], "completed")] {
        let site = Site::program("2025", options, AT_ONCE).await;
        let id = site.task("slow", json!({ "mark": "y", "seconds": 2.0 })).await;
        site.until_got("tasks/get").await;
        site.world.fleet.restart("tasks").await;
        let task = site.world.until(&id, status).await;
        if status == "failed" {
            assert_eq!(task["error"]["data"]["reason"], "upstream_tasks_lost", "{task}");
        } else {
            assert_eq!(returned(&task)["mark"], "y");
        }
    }
}

#[tokio::test]
async fn t24_a_cancel_after_a_restart_reaches_the_server() {
    for era in ["2025", "2026"] {
        let mut site = Site::remote(era, &[], AT_ONCE).await;
        let id = site.task("slow", json!({ "mark": "z", "seconds": 30 })).await;
        site.until_got("tasks/get").await;
        site.restart().await;
        site.cancel(&id).await;
        site.until_got("tasks/cancel").await;
    }
}

#[tokio::test]
async fn relay_offers_tasks_where_the_server_runs_them() {
    for (options, support) in [
        (&["--support=required"][..], json!("required")),
        (&[], json!("optional")),
        (&["--plain"], Value::Null),
    ] {
        let site = Site::program("2025", options, "tasks = \"relay\"\n").await;
        let session = SessionClient::open(&site.world).await;
        let listed = session.request("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().expect("tools");
        let slow = tools.iter().find(|tool| tool["name"] == "slow").expect("slow");
        let listed = &slow["execution"]["taskSupport"];
        let listed = if *listed == "forbidden" {
            &Value::Null
        } else {
            listed
        };
        assert_eq!(*listed, support, "{options:?}");
    }
}
