//! The edits of docs/reference/relay.md, made a second time and from its words alone: what must arrive when this was
//! sent. Each function notes which edits it made.

use std::collections::BTreeSet;

use super::json::Node;

const META: &str = "io.modelcontextprotocol/";
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    Sessions,
    Stateless,
}

/// The edits that were met, by the words of the page.
pub(super) type Met = BTreeSet<&'static str>;

/// The parameters of a request, as they must arrive at a server.
pub(super) fn request(sent: &Node, is_call: bool, era: Era, met: &mut Met) -> Node {
    let mut params = sent.clone();
    if params.take("task").is_some() {
        met.insert("`task` goes");
    }
    if era == Era::Sessions {
        for name in ["inputResponses", "requestState"] {
            if params.take(name).is_some() {
                met.insert("`inputResponses` and `requestState` go");
            }
        }
    }
    if is_call {
        let first = params.names().into_iter().next();
        let arguments = params.take("arguments");
        let name = params.take("name").expect("a tool");
        if let Some(arguments) = arguments {
            params.lead("arguments", arguments);
        }
        params.lead("name", name);
        if params.names().into_iter().next() != first {
            met.insert("`name` and `arguments` come first");
        }
    }
    if let Some(mut members) = params.get("_meta").filter(|members| members.is_object()).cloned() {
        let was_empty = members.is_empty();
        if members.retain(|name| !name.starts_with(META)) {
            met.insert("the protocol's own members of `_meta` go");
        }
        if members.retain(|name| !name.starts_with("dev.longhaul/")) {
            met.insert("what a client says to Longhaul in `_meta` goes");
        }
        if members.retain(|name| name != "progressToken") {
            met.insert("`progressToken` is one of Longhaul's");
        }
        match members.is_empty() && !was_empty {
            true => drop(params.take("_meta")),
            false => params.set("_meta", members),
        }
    }
    params
}

/// `arguments` of null, which sessions write for none.
pub(super) fn without_null_arguments(params: &mut Node, met: &mut Met) {
    if params.get("arguments") == Some(&Node::Token("null".to_owned())) {
        params.take("arguments");
        met.insert("`arguments` of null go");
    }
}

/// What arrived at a server, without what Longhaul says there of itself.
pub(super) fn without_ours(mut arrived: Node, sent: &Node, era: Era, met: &mut Met) -> Node {
    if era == Era::Sessions && arrived.get("task").is_some_and(|wish| wish.names() == ["ttl"]) {
        arrived.take("task");
        met.insert("where a server with sessions can run the tool as a task, `task` asks it to");
    }
    let Some(mut members) = arrived
        .get("_meta")
        .filter(|members| members.is_object())
        .cloned()
    else {
        assert_eq!(era, Era::Sessions, "no `_meta`: {arrived}");
        return arrived;
    };
    members.take("progressToken");
    if era == Era::Stateless {
        let ours = |name: &str| members.get(&format!("{META}{name}"));
        assert_eq!(
            ours("protocolVersion").and_then(Node::text).as_deref(),
            Some("2026-07-28")
        );
        let client = ours("clientInfo").and_then(|info| info.text_at(&["name"]));
        assert_eq!(client.as_deref(), Some("longhaul"), "{arrived}");
        assert!(
            ours("clientCapabilities").is_some_and(Node::is_object),
            "{arrived}"
        );
        met.insert("`_meta` says who asks: Longhaul");
        for name in ["protocolVersion", "clientInfo", "clientCapabilities", "logLevel"] {
            members.take(&format!("{META}{name}"));
        }
    }
    match members.is_empty() && sent.get("_meta").is_none() {
        true => drop(arrived.take("_meta")),
        false => arrived.set("_meta", members),
    }
    arrived
}

/// What a result is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Tool { is_in_task: bool },
    Other,
}

/// A result, as it must arrive at a client; `knows_structure` for sessions from 2025-06-18 on.
pub(super) fn result(sent: &Node, of: Of, to: Era, knows_structure: bool, met: &mut Met) -> Node {
    let mut result = sent.clone();
    let had_type = result.take("resultType").is_some();
    if let Some(mut members) = result.get("_meta").cloned()
        && members.take(RELATED_TASK).is_some()
        && (matches!(of, Of::Tool { .. }) || to == Era::Stateless)
    {
        met.insert("the server's reference to a task of its own goes");
        result.set("_meta", members);
    }
    match to {
        Era::Sessions => {
            if had_type {
                met.insert("`resultType` goes");
            }
            if matches!(of, Of::Tool { .. }) {
                structure(&mut result, knows_structure, met);
            } else {
                for name in ["ttlMs", "cacheScope"] {
                    if result.take(name).is_some() {
                        met.insert("`ttlMs` and `cacheScope` go");
                    }
                }
            }
        }
        Era::Stateless => {
            let complete = Node::string("complete");
            match of {
                Of::Tool { .. } => result.set("resultType", complete),
                Of::Other => result.lead("resultType", complete),
            }
            met.insert(match had_type {
                false => "`resultType` is added",
                true => "`resultType` has its place",
            });
            // The reply that holds the task names its server, and not the result in it.
            if of != (Of::Tool { is_in_task: true }) {
                named(&mut result, met);
            }
        }
    }
    result
}

/// What arrived, without the freshness that Longhaul says where the server says none (B-51).
pub(super) fn without_freshness(mut arrived: Node, sent: &Node, met: &mut Met) -> Node {
    for name in ["ttlMs", "cacheScope"] {
        if sent.get(name).is_none() && arrived.take(name).is_some() {
            met.insert("`ttlMs` and `cacheScope` are added where they are missing");
        }
    }
    arrived
}

/// A-88, D-8.
fn structure(result: &mut Node, knows_structure: bool, met: &mut Met) {
    let structured = result.get("structuredContent").cloned();
    let is_kept = knows_structure && structured.as_ref().is_some_and(Node::is_object);
    if structured.is_some() && !is_kept {
        met.insert("`structuredContent` that a session's version cannot hold goes");
        result.take("structuredContent");
    }
    let is_list = matches!(result.get("content"), Some(Node::List(_)));
    let says_nothing = result
        .get("content")
        .is_some_and(|content| content.items().is_empty());
    if !is_list || (says_nothing && structured.is_some() && !is_kept) {
        met.insert("`content` is added");
        let blocks = structured.iter().map(|value| {
            let mut block = Node::object();
            block.set("type", Node::string("text"));
            block.set("text", Node::string(&value.to_string()));
            block
        });
        result.set("content", Node::List(blocks.collect()));
    }
}

/// B-7: every result names its server.
fn named(result: &mut Node, met: &mut Met) {
    let mut members = result.get("_meta").filter(|members| members.is_object()).cloned();
    let members = members.get_or_insert_with(Node::object);
    let info = format!(
        r#"{{"name":"longhaul","version":"{}"}}"#,
        env!("CARGO_PKG_VERSION")
    );
    members.set(SERVER_INFO, Node::parse(&info));
    result.set("_meta", members.clone());
    met.insert("`_meta` names Longhaul as the server");
}

/// An error, as it must arrive at a client.
pub(super) fn error(sent: &Node, to: Era, met: &mut Met) -> Node {
    let mut error = sent.clone();
    let code = error.get("code").map(ToString::to_string);
    let missing = sent
        .at(&["data", "requiredCapabilities"])
        .map(Node::names)
        .unwrap_or_default();
    let is_undeclared = missing
        .iter()
        .all(|name| matches!(name.as_str(), "roots" | "sampling"));
    match (code.as_deref(), to) {
        // No client here declares these two.
        (Some("-32021"), Era::Stateless) if is_undeclared => {}
        (Some("-32021"), Era::Sessions) if is_undeclared => {
            met.insert("-32021 of what the client did not declare becomes -32603");
            error.set("code", Node::Token("-32603".to_owned()));
        }
        (Some(code @ ("-32020" | "-32021" | "-32022")), _) => {
            met.insert("what a server and Longhaul cannot agree on becomes a fault of the server");
            let message = error.text_at(&["message"]).expect("a message");
            let text = format!("The server does not take the request: {message} (code {code})");
            let mut data = Node::object();
            data.set("reason", Node::string("upstream_refused"));
            data.set("who", Node::string("operator"));
            error = Node::object();
            error.set("code", Node::Token("-32603".to_owned()));
            error.set("message", Node::string(&text));
            error.set("data", data);
        }
        (Some("-32002"), Era::Stateless) => {
            met.insert("-32002 becomes -32602");
            error.set("code", Node::Token("-32602".to_owned()));
        }
        _ => {}
    }
    error
}

/// The definition of a tool, as it must be listed.
pub(super) fn definition(sent: &Node, to: Era, version: &str, shows_output: bool, met: &mut Met) -> Node {
    let mut tool = sent.clone();
    match to {
        Era::Stateless => {
            if tool.take("execution").is_some() {
                met.insert("`execution` goes");
            }
        }
        Era::Sessions => {
            let mut execution = tool.get("execution").cloned().unwrap_or_else(Node::object);
            match version {
                "2025-11-25" => {
                    execution.set("taskSupport", Node::string("optional"));
                    met.insert("`execution.taskSupport` says what Longhaul does with a call");
                    tool.set("execution", execution);
                }
                _ => {
                    if execution.take("taskSupport").is_some() {
                        met.insert("`execution.taskSupport` goes");
                    }
                    match execution.is_empty() {
                        true => drop(tool.take("execution")),
                        false => tool.set("execution", execution),
                    }
                }
            }
        }
    }
    if tool.get("outputSchema").is_some() {
        let is_of_objects = tool.text_at(&["outputSchema", "type"]).as_deref() == Some("object");
        let is_kept = to == Era::Stateless || (is_of_objects && version >= "2025-06-18");
        if !shows_output {
            met.insert("`outputSchema` goes where a call may end with the reply that the work goes on");
            tool.take("outputSchema");
        } else if !is_kept {
            met.insert("`outputSchema` that a session's version cannot hold goes");
            tool.take("outputSchema");
        }
    }
    tool
}

/// The parameters of a progress notification under this token, or of a log message.
pub(super) fn notice(method: &str, sent: &Node, token: &Node, to: Era, met: &mut Met) -> Node {
    let mut params = Node::object();
    let keep = |params: &mut Node, name: &str, value: Option<Node>| {
        if let Some(value) = value {
            params.set(name, value);
        }
    };
    if method == "notifications/message" {
        for name in ["level", "logger", "data"] {
            keep(&mut params, name, sent.get(name).cloned());
        }
        if params != *sent {
            met.insert("a log message has its level, logger and data, and nothing else");
        }
        return params;
    }
    met.insert("progress has the client's token, its numbers in their shortest spelling, and nothing else");
    if to == Era::Sessions {
        params.set("progressToken", token.clone());
    }
    for name in ["progress", "total"] {
        let number = sent.get(name).map(|number| {
            let value: f64 = number.to_string().parse().expect("a number");
            Node::Token(value.to_string())
        });
        keep(&mut params, name, number);
    }
    keep(&mut params, "message", sent.get("message").cloned());
    if to == Era::Stateless {
        params.set("progressToken", token.clone());
    }
    params
}
