//! One client that sends its half of a recorded session, and compares what arrives on either side.

use std::collections::VecDeque;

use super::{
    Carrier, Found, Log,
    client::{Client, Frames},
    edits::{self, Era, Of},
    frame, is_ours,
    json::Node,
    session::{Exchange, Session, Step},
};

/// One client against one replayed session.
pub(super) async fn whole(session: &Session, client: Client<'_>, carrier: Carrier, log: &mut Log) -> Found {
    let name = format!("{} over {carrier:?}, to {:?}", session.name, client.speaks);
    let mut walk = Walk {
        session,
        client,
        carrier,
        name,
        found: Found::default(),
        next: 0,
    };
    walk.whole(log).await;
    walk.found
}

struct Walk<'a> {
    session: &'a Session,
    client: Client<'a>,
    carrier: Carrier,
    name: String,
    found: Found,
    next: u32,
}

const LISTS: [(&str, &str); 3] = [
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

const CALLS: [&str; 4] = [
    "tools/call",
    "resources/read",
    "prompts/get",
    "completion/complete",
];

impl Walk<'_> {
    fn is_task(&self, exchange: &Exchange) -> bool {
        exchange.method == "tools/call" && self.client.speaks.as_tasks()
    }

    async fn whole(&mut self, log: &mut Log) {
        self.tools().await;
        for (method, member) in LISTS {
            self.list(method, member).await;
        }
        let exchanges = &self.session.exchanges;
        for (at, exchange) in exchanges.iter().enumerate() {
            if CALLS.contains(&exchange.method.as_str()) && !exchange.is_repeated() {
                let rest = exchanges[at + 1..].iter();
                let again: Vec<&Exchange> = rest.take_while(|next| next.is_repeated()).collect();
                self.exchange(exchange, &again, log).await;
            }
        }
    }

    /// The list of tools: each definition, in the server's order.
    async fn tools(&mut self) {
        let sent = self.session.listed("tools/list", "tools");
        let listed = self.request("tools/list", None, None).await;
        let arrived = listed
            .response()
            .at(&["result", "tools"])
            .map_or(&[][..], Node::items)
            .to_vec();
        let relayed: Vec<&Node> = arrived.iter().filter(|tool| !is_ours(tool)).collect();
        if relayed.len() != sent.len() {
            self.found.wrong(format!(
                "{}: {} tools were sent, {} arrived",
                self.name,
                sent.len(),
                relayed.len()
            ));
        }
        for (sent, arrived) in sent.iter().zip(relayed) {
            let expected = self.found.definition(sent, self.client.speaks);
            self.found.definitions += 1;
            let name = format!("{}: the definition of a tool", self.name);
            self.found.compare(&name, &expected, arrived);
        }
    }

    /// A list of something else: the pages as one.
    async fn list(&mut self, method: &str, member: &str) {
        let sent = self.session.listed(method, member);
        let pages = self
            .session
            .exchanges
            .iter()
            .filter(|exchange| exchange.method == method);
        let Some(first) = pages.filter_map(Exchange::reply).next() else {
            return;
        };
        let listed = self.request(method, None, None).await;
        let mut page = Node::object();
        page.set(member, Node::List(sent.clone()));
        if first.get("result").is_some_and(|first| first.names().len() > 1) {
            self.found
                .met
                .insert("a list is one page: what stood about the items goes");
        }
        self.found.definitions += sent.len();
        let name = format!("{}: {method}", self.name);
        let speaks = self.client.speaks;
        self.found
            .compare_result(&name, &page, Of::Other, listed.response(), speaks);
    }

    /// Whether Longhaul answers this itself, as there is no such thing.
    fn is_unknown(&self, exchange: &Exchange) -> bool {
        let (named, method, member) = match exchange.method.as_str() {
            "tools/call" => (exchange.says("name"), "tools/list", "tools"),
            "prompts/get" => (exchange.says("name"), "prompts/list", "prompts"),
            "completion/complete" => {
                let named = exchange
                    .params
                    .as_ref()
                    .and_then(|params| params.text_at(&["ref", "name"]));
                (named, "prompts/list", "prompts")
            }
            _ => (None, "", ""),
        };
        let listed = self.session.listed(method, member);
        named.is_some_and(|named| {
            !listed
                .iter()
                .any(|item| item.text_at(&["name"]).as_ref() == Some(&named))
        })
    }

    async fn exchange(&mut self, exchange: &Exchange, again: &[&Exchange], log: &mut Log) {
        let name = format!("{}: {} {}", self.name, exchange.method, subject(exchange));
        let is_call = exchange.method == "tools/call";
        let is_task = self.is_task(exchange);
        let answers = answers(exchange, again);
        if exchange.asks() && !self.client.speaks.can_be_asked() {
            return;
        }
        let mut params = exchange.params.clone().unwrap_or_else(Node::object);
        let mut members = params.take("_meta").unwrap_or_else(Node::object);
        members.retain(|name| !name.starts_with("io.modelcontextprotocol/") && name != "progressToken");
        if !members.is_empty() {
            params.set("_meta", members);
        }
        if is_task && self.client.speaks.era() == Era::Sessions {
            params.set("task", Node::parse(r#"{"ttl":60000}"#));
        }
        log.arrived();
        self.next += 1;
        let token = is_call.then(|| Node::string(&format!("token-{}", self.next)));
        self.client.introduced(&mut params, token.as_ref());
        let mut frames = self.send(&exchange.method, Some(&params), &answers).await;
        if self.is_unknown(exchange) {
            self.found.refused += 1;
            let code = frames.response().at(&["error", "code"]).map(ToString::to_string);
            if code.as_deref() != Some("-32602") {
                self.found
                    .wrong(format!("{name}: no refusal: {}", frames.response()));
            }
            return;
        }
        // No client here says that it has a model or folders.
        if exchange.asks_beyond_forms() {
            let outcome = match is_task {
                true => self.of_task(frames.response(), &[], false).await,
                false => frames.response().clone(),
            };
            self.found.refused += 1;
            if outcome.text_at(&["error", "data", "reason"]).as_deref() != Some("upstream_asked") {
                self.found.wrong(format!("{name}: no refusal: {outcome}"));
            }
            return;
        }
        let mut left: VecDeque<Node> = answers.iter().cloned().collect();
        while frames.response().text_at(&["result", "resultType"]).as_deref() == Some("input_required") {
            self.compare_questions(&name, exchange, again, frames.response());
            frames = self.again(exchange, &params, &frames, &mut left).await;
        }
        let reply = again.last().copied().unwrap_or(exchange).reply();
        let has_members = reply.is_some_and(|reply| reply.at(&["result", "_meta"]).is_some());
        let outcome = match is_task {
            true => self.of_task(frames.response(), &answers, has_members).await,
            false => frames.response().clone(),
        };
        let of_request = format!("{name}: the request");
        let (method, era) = (&exchange.method, self.session.era);
        self.found
            .compare_request(&of_request, method, &params, &log.arrived(), era);
        self.compare_reply(&name, exchange, reply, &outcome);
        if !is_task && let Some(token) = token {
            self.compare_notices(&name, exchange, &frames, &token);
        }
    }

    fn compare_reply(&mut self, name: &str, exchange: &Exchange, sent: Option<&Node>, arrived: &Node) {
        let Some(sent) = sent else { return };
        let speaks = self.client.speaks;
        if let Some(error) = sent.get("error") {
            self.found
                .compare_error(&format!("{name}: the error"), error, arrived, speaks);
            return;
        }
        let of = match exchange.method.as_str() {
            "tools/call" => Of::Tool {
                is_in_task: self.is_task(exchange),
            },
            _ => Of::Other,
        };
        let sent = sent.get("result").expect("a result");
        self.found
            .compare_result(&format!("{name}: the result"), sent, of, arrived, speaks);
    }

    fn compare_notices(&mut self, name: &str, exchange: &Exchange, frames: &Frames, token: &Node) {
        let era = self.client.speaks.era();
        for method in ["notifications/progress", "notifications/message"] {
            // Under another token it is nobody's.
            let params = exchange.params.as_ref();
            let own = params.and_then(|params| params.at(&["_meta", "progressToken"]));
            let is_own =
                |params: &&Node| method != "notifications/progress" || params.get("progressToken") == own;
            let notices = exchange.notices(method);
            // Over HTTP nothing orders another stream and the reply.
            if self.carrier == Carrier::Http && notices.iter().any(|(_, is_shared)| *is_shared) {
                continue;
            }
            let sent = notices.into_iter().filter_map(|(frame, _)| frame.get("params"));
            let expected: Vec<Node> = sent
                .filter(is_own)
                .map(|params| edits::notice(method, params, token, era, &mut self.found.met))
                .collect();
            let arrived = frames.frames.iter();
            let arrived = arrived.filter(|frame| frame.text_at(&["method"]).as_deref() == Some(method));
            let arrived: Vec<Node> = arrived.filter_map(|frame| frame.get("params").cloned()).collect();
            self.found.notices += expected.len();
            let (expected, arrived) = (Node::List(expected), Node::List(arrived));
            self.found
                .compare(&format!("{name}: {method}"), &expected, &arrived);
        }
    }

    /// What is asked: the fields of each form, as the server wrote them.
    fn compare_questions(&mut self, name: &str, exchange: &Exchange, again: &[&Exchange], asking: &Node) {
        let asked = exchange.steps.iter().filter_map(|step| match step {
            Step::Ask { frame, .. } => frame.get("params"),
            Step::Reply(_) | Step::Notice { .. } => None,
        });
        let replies = [exchange]
            .into_iter()
            .chain(again.iter().copied())
            .filter_map(Exchange::reply);
        let in_result = replies
            .filter_map(|reply| reply.at(&["result", "inputRequests"]))
            .flat_map(Node::values)
            .filter_map(|ask| ask.get("params"));
        let asked: Vec<Node> = asked.chain(in_result).map(fields).collect();
        let arrived = asking
            .at(&["result", "inputRequests"])
            .into_iter()
            .flat_map(Node::values);
        for mut arrived in arrived.filter_map(|ask| ask.get("params")).map(fields) {
            self.found
                .met
                .insert("a form is read and written anew, and says first who asks");
            let message = arrived.text_at(&["message"]).unwrap_or_default();
            let (who, what) = message.split_once("\n\n").unwrap_or_default();
            if who.starts_with("The tool ") || who.starts_with("The prompt ") {
                arrived.set("message", Node::string(what));
            }
            self.found.questions += 1;
            if !asked.contains(&arrived) {
                self.found.wrong(format!(
                    "{name}: the question\n  expected {asked:?}\n  arrived  {arrived}"
                ));
            }
        }
    }

    /// The call once more, with the answers.
    async fn again(
        &mut self,
        exchange: &Exchange,
        params: &Node,
        asked: &Frames,
        answers: &mut VecDeque<Node>,
    ) -> Frames {
        let result = asked.response().get("result").expect("a result");
        let mut params = params.clone();
        let mut responses = Node::object();
        for key in result.get("inputRequests").map(Node::names).unwrap_or_default() {
            responses.set(&key, answers.pop_front().expect("an answer to each question"));
        }
        params.set("inputResponses", responses);
        if let Some(state) = result.get("requestState") {
            params.set("requestState", state.clone());
        }
        self.send(&exchange.method, Some(&params), &[]).await
    }

    /// What came of a task, as the reply to the call would have been.
    async fn of_task(&mut self, created: &Node, answers: &[Node], has_members: bool) -> Node {
        match self.client.speaks.era() {
            Era::Sessions => {
                let Some(id) = created.at(&["result", "task", "taskId"]) else {
                    return created.clone();
                };
                let mut params = Node::object();
                params.set("taskId", id.clone());
                let frames = self.send("tasks/result", Some(&params), answers).await;
                let mut outcome = frames.response().clone();
                if let Some(mut result) = outcome.get("result").cloned() {
                    let mut members = result.get("_meta").cloned().unwrap_or_else(Node::object);
                    let related = members.take("io.modelcontextprotocol/related-task");
                    assert!(related.is_some(), "A-52: {outcome}");
                    match members.is_empty() && !has_members {
                        true => drop(result.take("_meta")),
                        false => result.set("_meta", members),
                    }
                    outcome.set("result", result);
                }
                outcome
            }
            Era::Stateless => {
                let Some(id) = created.at(&["result", "taskId"]).cloned() else {
                    return created.clone();
                };
                let mut answers = answers.to_vec();
                loop {
                    let status = self.settled(&id).await;
                    let mut params = Node::object();
                    params.set("taskId", id.clone());
                    let got = self.request("tasks/get", Some(params.clone()), None).await;
                    let task = got.response().get("result").expect("a task");
                    if status == "input_required" && !answers.is_empty() {
                        let mut responses = Node::object();
                        for key in task.get("inputRequests").map(Node::names).unwrap_or_default() {
                            responses.set(&key, answers.remove(0));
                        }
                        params.set("inputResponses", responses);
                        self.request("tasks/update", Some(params), None).await;
                        continue;
                    }
                    let mut outcome = Node::object();
                    for member in ["result", "error"] {
                        if let Some(value) = task.get(member) {
                            outcome.set(member, value.clone());
                        }
                    }
                    return outcome;
                }
            }
        }
    }

    /// The status of a task once its work rests.
    async fn settled(&mut self, id: &Node) -> String {
        let mut params = Node::parse(&format!(r#"{{"notifications":{{"taskIds":[{id}]}}}}"#));
        self.client.introduced(&mut params, None);
        let mut stream = self
            .client
            .stream(&frame(9_000, "subscriptions/listen", Some(&params)))
            .await;
        loop {
            let told = stream
                .next()
                .await
                .expect("the task before the end of its stream");
            match told.text_at(&["params", "status"]) {
                Some(status) if status != "working" => return status,
                Some(_) | None => {}
            }
        }
    }

    async fn request(&mut self, method: &str, params: Option<Node>, token: Option<&Node>) -> Frames {
        let mut params = params.unwrap_or_else(Node::object);
        self.client.introduced(&mut params, token);
        let params = (!params.is_empty()).then_some(params);
        self.send(method, params.as_ref(), &[]).await
    }

    async fn send(&mut self, method: &str, params: Option<&Node>, answers: &[Node]) -> Frames {
        self.next += 1;
        let text = frame(self.next, method, params);
        self.client.send_answering(&text, answers).await
    }
}

fn subject(exchange: &Exchange) -> String {
    let named = exchange.says("name").or_else(|| exchange.says("uri"));
    let arguments = exchange
        .params
        .as_ref()
        .and_then(|params| params.get("arguments"));
    let arguments = arguments.map(ToString::to_string).unwrap_or_default();
    format!(
        "{} {}",
        named.unwrap_or_default(),
        arguments.chars().take(120).collect::<String>()
    )
}

/// The message and the fields of a form. The fields keep their order; what is said of each has none.
fn fields(params: &Node) -> Node {
    let mut form = Node::object();
    for path in [&["message"][..], &["requestedSchema", "properties"]] {
        if let Some(value) = params.at(path) {
            form.set(path[path.len() - 1], value.with_sorted_values());
        }
    }
    form
}

/// What was answered to the questions of a call, in their order.
fn answers(exchange: &Exchange, again: &[&Exchange]) -> Vec<Node> {
    if !again.is_empty() {
        let given = again
            .iter()
            .filter_map(|again| again.params.as_ref()?.get("inputResponses"));
        return given.flat_map(Node::values).cloned().collect();
    }
    let answers = exchange.steps.iter().filter_map(|step| match step {
        Step::Ask { answer, .. } => answer.clone(),
        Step::Notice { .. } | Step::Reply(_) => None,
    });
    answers.collect()
}
