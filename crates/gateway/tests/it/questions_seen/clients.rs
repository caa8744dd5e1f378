//! Clients of each generation that call a tool which asks: each notes what it is shown, answers where it can be asked,
//! and leaves the rest to a person.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    Asked, kind_of,
    person::{Asking, Person},
    value,
};
use crate::{
    session_client::{Events, SessionClient, initialize},
    support::{Client as Stateless, Frames, World},
};

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub speaks: Speaks,
    /// It declared that it shows forms and links.
    pub can_be_asked: bool,
}

/// How a client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Speaks {
    /// 2025-11-25, each call as a task.
    SessionTask,
    /// 2025-11-25, plain calls.
    Session,
    /// 2026-07-28 with the tasks extension.
    Extension,
    /// 2026-07-28 without it.
    Plain,
}

impl Speaks {
    pub(super) const ALL: [Speaks; 4] = [
        Speaks::SessionTask,
        Speaks::Session,
        Speaks::Extension,
        Speaks::Plain,
    ];

    /// Its client, in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Speaks::SessionTask => "2025-11-25, each call a task",
            Speaks::Session => "2025-11-25, plain calls",
            Speaks::Extension => "2026-07-28 with the tasks extension",
            Speaks::Plain => "2026-07-28 without it",
        }
    }
}

impl Who {
    fn capabilities(self) -> Value {
        match self.can_be_asked {
            true => json!({ "elicitation": { "form": {}, "url": {} } }),
            false => json!({}),
        }
    }
}

/// What came of one call.
#[derive(Debug, Default)]
pub(super) struct Saw {
    /// How the client was asked, round by round.
    pub rounds: Vec<String>,
    /// What its task said meanwhile.
    pub status: BTreeSet<String>,
    /// What a model read instead of the result.
    pub told: Vec<String>,
    /// What the person saw, round by round: on the page, and in the terminal.
    pub person: Vec<(String, String)>,
    /// The response at the end.
    pub ended: Value,
}

/// One client, and the person beside it.
pub(super) struct Client<'a> {
    world: &'a World,
    who: Who,
    person: &'a Person,
    /// Of a client that has one.
    session: Option<SessionClient<'a>>,
}

impl<'a> Client<'a> {
    pub(super) async fn open(world: &'a World, who: Who, person: &'a Person) -> Client<'a> {
        let mut params = initialize("2025-11-25");
        params["capabilities"] = who.capabilities();
        let session = match who.speaks {
            Speaks::SessionTask | Speaks::Session => Some(SessionClient::open_with(world, params).await),
            Speaks::Extension | Speaks::Plain => None,
        };
        Client {
            world,
            who,
            person,
            session,
        }
    }

    pub(super) async fn calls(&self, asked: &Asked, mark: &str) -> Saw {
        let call = Call {
            client: self,
            asked,
            mark,
            saw: Saw::default(),
        };
        match (&self.session, self.who.speaks) {
            (Some(session), Speaks::SessionTask) => call.in_task(session).await,
            (Some(session), _) => call.in_session(session).await,
            (None, _) => call.stateless().await,
        }
    }
}

/// One call.
struct Call<'a> {
    client: &'a Client<'a>,
    asked: &'a Asked,
    mark: &'a str,
    saw: Saw,
}

impl Call<'_> {
    async fn in_task(mut self, session: &SessionClient<'_>) -> Saw {
        let mut params = self.params();
        params["task"] = json!({ "ttl": 60_000 });
        let created = session.request("tools/call", params).await;
        let id = created["result"]["task"]["taskId"].clone();
        if id.is_null() {
            return self.end(created);
        }
        let params = json!({ "taskId": id });
        let mut events = session.stream(40, "tasks/result", params.clone()).await;
        loop {
            let round = self.round();
            let frame = tokio::select! {
                frame = next(&mut events) => frame,
                asking = self.client.person.asked(self.mark, round), if !self.client.who.can_be_asked => {
                    let task = session.request("tasks/get", params.clone()).await;
                    self.saw_status(&task["result"]);
                    self.person_answers(asking).await;
                    continue;
                }
            };
            if frame["id"] == 40 && frame["method"].is_null() {
                return self.end(frame);
            }
            let questions = others(frame, round, &mut events).await;
            let task = session.request("tasks/get", params.clone()).await;
            self.saw_status(&task["result"]);
            self.answers(session, &questions, "on the stream of `tasks/result`")
                .await;
        }
    }

    async fn in_session(mut self, session: &SessionClient<'_>) -> Saw {
        let mut events = session.frames(41, "tools/call", self.params()).await;
        loop {
            let frame = next(&mut events).await;
            if frame["id"] != 41 || !frame["method"].is_null() {
                let questions = others(frame, self.round(), &mut events).await;
                self.answers(session, &questions, "on the stream of the call")
                    .await;
                continue;
            }
            if !self.was_told(&frame).await {
                return self.end(frame);
            }
            events = session.frames(41, "tools/call", self.params()).await;
        }
    }

    async fn stateless(mut self) -> Saw {
        let client = Stateless {
            tasks: self.client.who.speaks == Speaks::Extension,
            capabilities: self.client.who.capabilities(),
            ..Stateless::with_tasks()
        };
        let mut params = self.params();
        loop {
            let reply = self
                .client
                .world
                .rpc(&client, "tools/call", params.clone())
                .await
                .body;
            let result = &reply["result"];
            if result["resultType"] == "task" {
                return self.of_extension(&client, &result["taskId"]).await;
            }
            if result["resultType"] == "input_required" {
                let words = requests(&result["inputRequests"], &BTreeSet::new());
                self.saw.rounds.push(format!("`input_required` with {words}"));
                params["inputResponses"] = responses(&result["inputRequests"]);
                params["requestState"] = result["requestState"].clone();
                continue;
            }
            if !self.was_told(&reply).await {
                return self.end(reply);
            }
            params = self.params();
        }
    }

    async fn of_extension(mut self, client: &Stateless, id: &Value) -> Saw {
        let filter = json!({ "notifications": { "taskIds": [id] } });
        let mut frames = self
            .client
            .world
            .stream(client, "subscriptions/listen", filter)
            .await;
        let mut answered = BTreeSet::new();
        loop {
            let round = self.round();
            let task = tokio::select! {
                task = next_task(&mut frames) => task,
                asking = self.client.person.asked(self.mark, round), if !self.client.who.can_be_asked => {
                    let task = self.client.world.rpc(client, "tasks/get", json!({ "taskId": id })).await;
                    self.saw_status(task.result());
                    self.person_answers(asking).await;
                    continue;
                }
            };
            match task["status"].as_str() {
                Some("working") => continue,
                Some("input_required") => {}
                _ => return self.end(task),
            }
            let requests_of = &task["inputRequests"];
            let keys = requests_of.as_object().expect("questions").keys();
            let fresh: Vec<String> = keys.filter(|key| !answered.contains(*key)).cloned().collect();
            if fresh.len() < round {
                continue;
            }
            self.saw_status(&task);
            let words = requests(requests_of, &answered);
            self.saw.rounds.push(format!("`inputRequests` with {words}"));
            let mut given = responses(requests_of);
            given
                .as_object_mut()
                .expect("answers")
                .retain(|key, _| fresh.contains(key));
            let update = json!({ "taskId": id, "inputResponses": given });
            self.client
                .world
                .rpc(client, "tasks/update", update)
                .await
                .result();
            answered.extend(fresh);
        }
    }

    fn params(&self) -> Value {
        json!({ "name": self.asked.tool, "arguments": { "mark": self.mark } })
    }

    /// How many questions come at once now.
    fn round(&self) -> usize {
        let so_far = self.saw.rounds.len() + self.saw.person.len();
        self.asked.rounds.get(so_far).map_or(1, |round| round.len())
    }

    fn saw_status(&mut self, task: &Value) {
        let status = task["status"].as_str().expect("a status");
        self.saw.status.insert(status.to_owned());
    }

    /// A session's client answers what it was asked.
    async fn answers(&mut self, session: &SessionClient<'_>, questions: &[Value], place: &str) {
        let kinds: Vec<&str> = questions.iter().map(|asked| kind_of(&asked["params"])).collect();
        let kinds = kinds.join(" and ");
        self.saw
            .rounds
            .push(format!("`elicitation/create` ({kinds}) {place}"));
        for question in questions {
            let answer = answer_to(&question["params"]);
            assert_eq!(session.answer(question, answer).await, 202);
        }
    }

    /// Whether this is no result but says that a person must answer, who does then.
    async fn was_told(&mut self, response: &Value) -> bool {
        let text = response["result"]["content"][0]["text"].as_str();
        let Some(told) = text.filter(|text| text.contains("(not an error)")) else {
            return false;
        };
        let asking = self.client.person.asked(self.mark, self.round()).await;
        let told = told.replace(&asking.name, "k7f2m9").replace(self.mark, "Ada");
        self.saw.told.push(told);
        self.person_answers(asking).await;
        true
    }

    async fn person_answers(&mut self, asking: Asking) {
        let person = self.client.person;
        let page = person.sees_on_page(&asking).await;
        self.saw.person.push((page, Person::sees_in_terminal(&asking)));
        let on_page = self.client.who.speaks == Speaks::SessionTask;
        for question in &asking.questions {
            let value = value(&question.message);
            match on_page {
                true => person.answers_on_page(&asking, question, &value).await,
                false => assert!(person.answers_in_terminal(&asking, question, &value).await),
            }
        }
    }

    fn end(mut self, response: Value) -> Saw {
        self.saw.ended = response;
        self.saw
    }
}

/// What is answered to a question with these parameters.
pub(crate) fn answer_to(params: &Value) -> Value {
    match params["url"].is_null() {
        true => {
            let message = params["message"].as_str().expect("a message");
            json!({ "action": "accept", "content": { "name": value(message) } })
        }
        false => json!({ "action": "accept" }),
    }
}

fn responses(requests: &Value) -> Value {
    let requests = requests.as_object().expect("questions").iter();
    requests
        .map(|(key, request)| (key.clone(), answer_to(&request["params"])))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The keys and kinds of these questions, without those that were answered.
fn requests(requests: &Value, answered: &BTreeSet<String>) -> String {
    let requests = requests.as_object().expect("questions").iter();
    let fresh = requests.filter(|(key, _)| !answered.contains(*key));
    let words = fresh.map(|(key, request)| format!("`{key}` ({})", kind_of(&request["params"])));
    words.collect::<Vec<_>>().join(" and ")
}

/// The next question or response.
async fn next(events: &mut Events) -> Value {
    loop {
        let frame = events.data().await;
        if frame["method"].is_null() || frame["method"] == "elicitation/create" {
            return frame;
        }
    }
}

/// This question and those that come with it, so many in all.
async fn others(first: Value, count: usize, events: &mut Events) -> Vec<Value> {
    let mut questions = vec![first];
    while questions.len() < count {
        questions.push(next(events).await);
    }
    questions
}

/// The next version of a task.
async fn next_task(frames: &mut Frames) -> Value {
    loop {
        let frame = frames
            .next()
            .await
            .expect("the end of the task before that of its stream");
        if frame["method"] == "notifications/tasks" {
            return frame["params"].clone();
        }
    }
}
