//! One round: its calls, who is asked, and who answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use futures_util::future::join_all;
use longhaul_gateway::admin::api::Question;
use proptest::sample::Index;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    questions_seen::{
        ASKED, Asked, GIVEN,
        clients::answer_to,
        end,
        person::{Asking, Person},
        value, words,
    },
    session_client::{SessionClient, initialize},
    support::{Client as Stateless, World},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Who answers a question.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answers {
    /// The client that called.
    Client,
    /// Another connection of the same owner.
    AnotherConnection,
    Page,
    Terminal,
}

/// What happens in one round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Which client calls which tool; all of them at once.
    pub calls: Vec<(usize, usize)>,
    /// Which of the open questions is answered next, and by whom; over and over.
    pub turns: Vec<(Index, Answers)>,
}

/// The clients of one owner: sessions, and two generations of requests that stand alone.
pub(super) struct Clients<'a> {
    world: &'a World,
    person: Person,
    sessions: [SessionClient<'a>; 2],
}

/// How one client was asked a question.
#[derive(Clone)]
enum Way {
    /// In its task.
    InTask { client: usize, task: Value },
    /// By a request in its session.
    Request {
        session: usize,
        task: Value,
        frame: Value,
    },
    /// In a result; the call comes again with the answers.
    InResult { call: usize },
}

/// What the clients of a round were asked, by what is asked.
#[derive(Default)]
struct Board {
    asked: Mutex<BTreeMap<String, Way>>,
    /// Rises with each question.
    shown: watch::Sender<usize>,
    /// Calls that may come again.
    again: watch::Sender<BTreeSet<usize>>,
    /// How many calls have ended.
    ended: watch::Sender<usize>,
}

impl Board {
    fn add(&self, message: &Value, way: Way) {
        let message = words(message.as_str().expect("a message")).to_owned();
        self.asked.lock().expect("no panic").insert(message, way);
        self.shown.send_modify(|shown| *shown += 1);
    }

    /// How a client is asked this. One that sees each question at once is waited for; another may see it only when
    /// it comes again.
    async fn way(&self, message: &str, sees_at_once: bool) -> Option<Way> {
        let mut shown = self.shown.subscribe();
        loop {
            shown.borrow_and_update();
            let way = self.asked.lock().expect("no panic").get(message).cloned();
            if way.is_some() || !sees_at_once {
                return way;
            }
            shown.changed().await.expect("the board");
        }
    }

    /// Calls of whose questions none is open may come again.
    fn let_go_on(&self, open: &BTreeSet<&str>) {
        let asked = self.asked.lock().expect("no panic");
        let of_calls = asked.iter().filter_map(|(message, way)| match way {
            Way::InResult { call } => Some((*call, message.as_str())),
            Way::InTask { .. } | Way::Request { .. } => None,
        });
        let (wait, go): (Vec<_>, Vec<_>) = of_calls.partition(|(_, message)| open.contains(message));
        let wait: BTreeSet<usize> = wait.into_iter().map(|(call, _)| call).collect();
        let go = go
            .into_iter()
            .map(|(call, _)| call)
            .filter(|call| !wait.contains(call));
        self.again.send_modify(|again| again.extend(go));
    }
}

impl<'a> Clients<'a> {
    /// Two with tasks and two without of the generation without sessions, then two sessions.
    pub(super) const COUNT: usize = 6;

    pub(super) async fn of(world: &'a World) -> Clients<'a> {
        let mut params = initialize("2025-11-25");
        params["capabilities"] = json!({ "elicitation": { "form": {}, "url": {} } });
        let one = SessionClient::open_with(world, params.clone()).await;
        let other = SessionClient::open_with(world, params).await;
        Clients {
            world,
            person: Person::at(world),
            sessions: [one, other],
        }
    }

    /// Plays the round; `number` is no other round's.
    pub(super) async fn play(&self, round: &Round, number: u32) {
        let board = Board::default();
        let prefix = format!("r{number}z");
        let calls = round.calls.iter().enumerate().map(|(index, (client, tool))| {
            let mark = mark(&prefix, index);
            let (board, asked) = (&board, &ASKED[*tool]);
            async move {
                let ended = self.call(*client, index, asked, &mark, board).await;
                board.ended.send_modify(|ended| *ended += 1);
                (end(asked, &mark, &ended), asked)
            }
        });
        let all = async { tokio::join!(join_all(calls), self.answer_all(round, &prefix, &board)).0 };
        let ends = tokio::time::timeout(PATIENCE, all).await.expect("an end in time");
        for (end, asked) in ends {
            // What a server with sessions is not told of, it does not ask.
            assert!(end == GIVEN || asked.tool == "ask_url", "{}: {end}", asked.tool);
        }
    }

    async fn call(&self, client: usize, index: usize, asked: &Asked, mark: &str, board: &Board) -> Value {
        let params = json!({ "name": asked.tool, "arguments": { "mark": mark } });
        match client {
            0 | 1 => self.with_task(client, params, board).await,
            2 | 3 => self.plain(client, index, params, board).await,
            _ => self.in_session(client - 4, index, params, board).await,
        }
    }

    async fn with_task(&self, client: usize, params: Value, board: &Board) -> Value {
        let created = self.send(client, "tools/call", params).await;
        let id = created["result"]["taskId"].clone();
        if id.is_null() {
            return created;
        }
        let filter = json!({ "notifications": { "taskIds": [id] }, "_meta": meta(client) });
        let mut frames = self
            .world
            .stream(&stateless(client), "subscriptions/listen", filter)
            .await;
        loop {
            let task = frames.next().await.expect("the end of the task")["params"].clone();
            for request in task["inputRequests"]
                .as_object()
                .into_iter()
                .flat_map(|map| map.values())
            {
                let task = id.clone();
                board.add(&request["params"]["message"], Way::InTask { client, task });
            }
            if matches!(
                task["status"].as_str(),
                Some("completed" | "failed" | "cancelled")
            ) {
                return task;
            }
        }
    }

    async fn plain(&self, client: usize, index: usize, mut params: Value, board: &Board) -> Value {
        loop {
            let reply = self.send(client, "tools/call", params.clone()).await;
            let result = &reply["result"];
            if result["resultType"] != "input_required" {
                return reply;
            }
            let requests = result["inputRequests"].as_object().expect("questions");
            for request in requests.values() {
                board.add(&request["params"]["message"], Way::InResult { call: index });
            }
            let mut again = board.again.subscribe();
            again
                .wait_for(|again| again.contains(&index))
                .await
                .expect("the board");
            board.again.send_if_modified(|again| again.remove(&index));
            let answers = requests
                .iter()
                .map(|(key, request)| (key.clone(), answer_to(&request["params"])));
            params["inputResponses"] = Value::Object(answers.collect());
            params["requestState"] = result["requestState"].clone();
        }
    }

    async fn in_session(&self, session: usize, index: usize, mut params: Value, board: &Board) -> Value {
        let client = &self.sessions[session];
        params["task"] = json!({ "ttl": 600_000 });
        let created = client.request("tools/call", params).await;
        let task = created["result"]["task"]["taskId"].clone();
        // The same ids in both sessions.
        let id = 40 + index as u64;
        let mut events = client.stream(id, "tasks/result", json!({ "taskId": task })).await;
        loop {
            let frame = events.data().await;
            if frame["method"] == "elicitation/create" {
                let message = frame["params"]["message"].clone();
                let task = task.clone();
                board.add(&message, Way::Request { session, task, frame });
            } else if frame["method"].is_null() {
                assert_eq!(frame["id"], id);
                return frame;
            }
        }
    }

    /// Answers whatever is open, until all calls have ended.
    async fn answer_all(&self, round: &Round, prefix: &str, board: &Board) {
        let mut turns = round.turns.iter().cycle();
        while *board.ended.borrow() < round.calls.len() {
            let asking = self.person.asking(prefix).await;
            let open: Vec<(&Asking, &Question)> = asking
                .iter()
                .flat_map(|asking| asking.questions.iter().map(move |question| (asking, question)))
                .collect();
            let messages = open.iter().map(|(_, question)| question.message.as_str());
            board.let_go_on(&messages.collect());
            // The calls are played by this task, too.
            tokio::task::yield_now().await;
            if open.is_empty() {
                continue;
            }
            let (index, who) = turns.next().expect("turns without end");
            let (asking, question) = index.get(&open);
            let is_plain = |(index, (client, _)): (usize, &(usize, usize))| {
                matches!(client, 2 | 3) && question.message.contains(&mark(prefix, index))
            };
            let sees_at_once = !round.calls.iter().enumerate().any(is_plain);
            self.answer(asking, question, *who, sees_at_once, board).await;
        }
    }

    async fn answer(
        &self,
        asking: &Asking,
        question: &Question,
        who: Answers,
        sees_at_once: bool,
        board: &Board,
    ) {
        let own = value(&question.message);
        let is_own = match who {
            Answers::Page => return self.person.answers_on_page(asking, question, &own).await,
            Answers::Terminal => return self.in_terminal(asking, question, &own).await,
            Answers::Client => true,
            Answers::AnotherConnection => false,
        };
        let answer = answer_to(&json!({ "message": question.message, "url": question.url }));
        match board.way(&question.message, sees_at_once).await {
            Some(Way::InTask { client, task }) => {
                let client = if is_own { client } else { 1 - client };
                self.update(client, task, &question.key, answer).await;
            }
            // One session's is answered in the other, the other's by a client of another generation.
            Some(Way::Request { session: 1, task, .. }) if !is_own => {
                self.update(0, task, &question.key, answer).await;
            }
            Some(Way::Request { session, frame, .. }) => {
                let session = if is_own { session } else { 1 - session };
                let taken = self.sessions[session].answer(&frame, answer).await;
                assert_eq!(taken, 202);
            }
            Some(Way::InResult { call }) if is_own => {
                board.again.send_if_modified(|again| again.insert(call));
            }
            // It has no id by which another connection could answer it.
            Some(Way::InResult { .. }) | None => self.in_terminal(asking, question, &own).await,
        }
    }

    /// An answer that comes too late is nobody's.
    async fn in_terminal(&self, asking: &Asking, question: &Question, own: &str) {
        let _late = self.person.answers_in_terminal(asking, question, own).await;
    }

    async fn update(&self, client: usize, task: Value, key: &str, answer: Value) {
        let params = json!({ "taskId": task, "inputResponses": { key: answer } });
        let updated = self.send(client, "tasks/update", params).await;
        assert_eq!(updated["result"]["resultType"], "complete", "{updated}");
    }

    async fn send(&self, client: usize, method: &str, mut params: Value) -> Value {
        params["_meta"] = meta(client);
        self.world.rpc(&stateless(client), method, params).await.body
    }
}

/// What stands in all that a call asks and returns.
fn mark(prefix: &str, index: usize) -> String {
    format!("{prefix}c{index}y")
}

/// What a client without a session says of itself.
fn stateless(client: usize) -> Stateless {
    Stateless {
        tasks: client < 2,
        capabilities: json!({ "elicitation": { "form": {}, "url": {} } }),
        ..Stateless::with_tasks()
    }
}

/// Its run, which keeps its process apart from the others'.
fn meta(client: usize) -> Value {
    json!({ "dev.longhaul/session": format!("run-{client}") })
}
