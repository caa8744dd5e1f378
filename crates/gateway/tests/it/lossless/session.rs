//! A recorded session: which requests were sent, and what the server sent until it had answered each.

use std::{fs, path::Path};

use serde_json::Value;

use super::{edits::Era, json::Node};

/// What followed a request.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A notification, and whether it came on a stream of the session.
    Notice { frame: Node, is_shared: bool },
    /// A request of the server, and the result with which it was answered.
    Ask { frame: Node, answer: Option<Node> },
    /// The whole response.
    Reply(Node),
}

/// A request, and what followed.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub method: String,
    pub params: Option<Node>,
    pub steps: Vec<Step>,
}

impl Exchange {
    pub(super) fn reply(&self) -> Option<&Node> {
        self.steps.iter().find_map(|step| match step {
            Step::Reply(frame) => Some(frame),
            Step::Notice { .. } | Step::Ask { .. } => None,
        })
    }

    /// A member of the parameters that is a text.
    pub(super) fn says(&self, member: &str) -> Option<String> {
        self.params.as_ref()?.text_at(&[member])
    }

    /// It is the repetition of one that asked first.
    pub(super) fn is_repeated(&self) -> bool {
        self.params
            .as_ref()
            .is_some_and(|params| params.get("inputResponses").is_some())
    }

    pub(super) fn asks_first(&self) -> bool {
        let kind = self
            .reply()
            .and_then(|reply| reply.text_at(&["result", "resultType"]));
        kind.as_deref() == Some("input_required")
    }

    pub(super) fn asks(&self) -> bool {
        self.asks_first() || self.steps.iter().any(|step| matches!(step, Step::Ask { .. }))
    }

    /// It asks for something else than a form, in its result.
    pub(super) fn asks_beyond_forms(&self) -> bool {
        let asked = self
            .reply()
            .and_then(|reply| reply.at(&["result", "inputRequests"]));
        let mut asked = asked.into_iter().flat_map(Node::values);
        asked.any(|ask| ask.text_at(&["method"]).as_deref() != Some("elicitation/create"))
    }

    /// The notifications of this method, and whether they came on a stream of the session.
    pub(super) fn notices(&self, method: &str) -> Vec<(&Node, bool)> {
        let notices = self.steps.iter().filter_map(|step| match step {
            Step::Notice { frame, is_shared } => Some((frame, *is_shared)),
            Step::Ask { .. } | Step::Reply(_) => None,
        });
        let wanted = notices.filter(|(frame, _)| frame.text_at(&["method"]).as_deref() == Some(method));
        wanted.collect()
    }
}

/// One file.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub name: String,
    pub era: Era,
    pub exchanges: Vec<Exchange>,
}

impl Session {
    pub(super) fn read(path: &Path) -> Session {
        let text = fs::read_to_string(path).expect("a recorded session");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect();
        let mut exchanges: Vec<(String, Exchange)> = Vec::new();
        for line in &lines {
            let frame = Node::parse(line["raw"].as_str().expect("a text"));
            let id = frame.get("id").map(ToString::to_string);
            let method = frame.text_at(&["method"]);
            match (line["from"] == "client", method, id) {
                (true, Some(method), Some(id)) => {
                    let params = frame.get("params").cloned();
                    let exchange = Exchange {
                        method,
                        params,
                        steps: Vec::new(),
                    };
                    exchanges.push((id, exchange));
                }
                // `initialized` and the like.
                (true, Some(_), None) => {}
                (true, None, _) => answered(&mut exchanges, &frame),
                (false, None, id) => {
                    let id = id.expect("the id of a reply");
                    let found = exchanges.iter_mut().find(|(own, _)| *own == id);
                    found
                        .expect("a reply to a request")
                        .1
                        .steps
                        .push(Step::Reply(frame));
                }
                (false, Some(_), id) => {
                    let Some((_, last)) = exchanges.last_mut() else {
                        continue;
                    };
                    last.steps.push(match id {
                        Some(_) => Step::Ask { frame, answer: None },
                        None => Step::Notice {
                            frame,
                            is_shared: line["shared"] == true,
                        },
                    });
                }
            }
        }
        let exchanges: Vec<Exchange> = exchanges.into_iter().map(|(_, exchange)| exchange).collect();
        let has_session = exchanges.iter().any(|exchange| exchange.method == "initialize");
        Session {
            name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
            era: if has_session {
                Era::Sessions
            } else {
                Era::Stateless
            },
            exchanges,
        }
    }

    /// What a list held, over all its pages.
    pub(super) fn listed(&self, method: &str, member: &str) -> Vec<Node> {
        let pages = self.exchanges.iter().filter(|exchange| exchange.method == method);
        let pages = pages.filter_map(Exchange::reply);
        let items = pages.flat_map(|page| page.at(&["result", member]).map_or(&[][..], Node::items));
        items.cloned().collect()
    }
}

fn answered(exchanges: &mut [(String, Exchange)], frame: &Node) {
    let steps = exchanges.iter_mut().flat_map(|(_, exchange)| &mut exchange.steps);
    for step in steps {
        if let Step::Ask {
            frame: asked,
            answer: answer @ None,
        } = step
            && asked.get("id") == frame.get("id")
        {
            *answer = Some(frame.get("result").cloned().unwrap_or_else(Node::object));
            return;
        }
    }
}
