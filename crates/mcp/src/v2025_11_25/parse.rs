//! Frame to request, and `initialize` to peer. Ownership and state are the caller's, after all of these checks.

use super::{Opening, Peer, Version};
use crate::{
    clean,
    edge::Offer,
    frame::{Frame, Obj, Raw},
    malformed::{Malformed, Rule},
    meta::{self, Members},
    params::{Params, notice},
    request::{
        Answer, Answers, Asked, CallTool, Client, Incoming, Message, Notice, Relay, RelayMethod, Request,
        RequestId, Takes,
    },
};

/// The longest name and version of a client that are kept, in characters: both travel in the session's id.
const CLIENT_CHARS_MAX: usize = 100;

/// Reads `initialize`. What the client says about itself is cut to size, and nothing of it is ever needed: a
/// name of the wrong type is none.
///
/// # Errors
/// The version is absent or no string, or the capabilities are no object.
pub fn open(id: RequestId, params: Option<&Obj>) -> Result<Opening, Malformed> {
    let params = params.cloned().map(Obj::without_nulls);
    match peer(Params(params.as_ref())) {
        Ok(peer) => Ok(Opening { id, peer }),
        Err(rule) => Err(Malformed { id: Some(id), rule }),
    }
}

fn peer(params: Params<'_>) -> Result<Peer, Rule> {
    //
    let requested = params.text("protocolVersion")?;
    let version = Version::parse(&requested).unwrap_or(Version::LATEST);
    let capabilities = match params.raw("capabilities").map(Raw::read::<Obj>) {
        None => Obj::default(),
        Some(Ok(capabilities)) => capabilities,
        Some(Err(_)) => {
            return Err(Rule::ParamInvalid {
                member: "capabilities",
                must_be: "an object",
            });
        }
    };
    let info = params.0.and_then(|params| params.obj("clientInfo"));
    let said = |member| {
        let text: String = info.as_ref()?.get(member)?;
        Some(clean(&text, CLIENT_CHARS_MAX)).filter(|text| !text.is_empty())
    };
    Ok(Peer {
        version,
        client: Client {
            answers: answers(version, &capabilities),
            asked: Asked::OnStream,
            name: said("name"),
            version: said("version"),
            ..Client::default()
        },
    })
}

/// what the version has no way to ask is not asked, whatever the client declares.
fn answers(version: Version, capabilities: &Obj) -> Answers {
    let declared = meta::answers(capabilities);
    Answers {
        form: declared.form && version.has_elicitation(),
        url: declared.url && version.has_url_elicitation(),
        ..declared
    }
}

/// Reads a frame of an open session.
///
/// # Errors
/// The first rule that the frame breaks.
pub fn parse(frame: Frame, peer: &Peer, offer: &Offer<'_>) -> Result<Message, Malformed> {
    match frame {
        Frame::Response {
            id: Some(id),
            outcome,
        } => Ok(Message::Answer(Answer { id, outcome })),
        // The client could not read a request of ours; it does not say which.
        Frame::Response { id: None, .. } => Ok(Message::Notice(Notice::Ignored)),
        Frame::Notification { method, params } => Ok(Message::Notice(notice(&method, params.as_ref()))),
        Frame::Request { id, method, params } => {
            // Clients of sessions write an absent member as null, too.
            let has_nulls = params.as_ref().is_some_and(Obj::has_nulls);
            let without = params
                .as_ref()
                .filter(|_| has_nulls)
                .cloned()
                .map(Obj::without_nulls);
            let reader = Reader {
                peer,
                offer,
                params: Params(without.as_ref().or(params.as_ref())),
                written: Params(params.as_ref()),
            };
            match reader.read(&method) {
                Ok((request, client)) => Ok(Message::Request(Box::new(Incoming {
                    id,
                    client,
                    request,
                    name_header_missing: false,
                }))),
                Err(rule) => Err(Malformed { id: Some(id), rule }),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Ping,
    SetLevel,
    ListTools,
    CallTool,
    GetTask,
    TaskResult,
    ListTasks,
    CancelTask,
    Relay(RelayMethod),
}

struct Reader<'a, 'o> {
    peer: &'a Peer,
    offer: &'a Offer<'o>,
    params: Params<'a>,
    /// What a server behind is sent.
    written: Params<'a>,
}

impl Reader<'_, '_> {
    fn read(&self, method: &str) -> Result<(Request, Client), Rule> {
        if method == "initialize" {
            return Err(Rule::AlreadyOpen);
        }
        let method = self
            .method(method)
            .ok_or_else(|| Rule::method_not_found(method))?;
        let meta = Members::read(self.params.0)?;
        let wish = if method == Method::CallTool {
            self.wish()?
        } else {
            None
        };
        let client = Client {
            takes: if wish.is_some() {
                Takes::AtOnce
            } else {
                Takes::Never
            },
            asked: Asked::OnStream,
            session: meta.session()?,
            traceparent: meta.traceparent(),
            ..self.peer.client.clone()
        };
        Ok((self.request(method, &meta, wish)?, client))
    }

    /// Open tasks stay readable, and can be cancelled, while no new ones are given out. Q-21: a list that is not
    /// declared is not offered.
    fn method(&self, name: &str) -> Option<Method> {
        let has_tasks = self.peer.version.has_tasks();
        match name {
            "ping" => Some(Method::Ping),
            "logging/setLevel" => Some(Method::SetLevel),
            "tools/list" => Some(Method::ListTools),
            "tools/call" => Some(Method::CallTool),
            "tasks/get" if has_tasks => Some(Method::GetTask),
            "tasks/result" if has_tasks => Some(Method::TaskResult),
            "tasks/list" if has_tasks && self.offer.tasks_list => Some(Method::ListTasks),
            "tasks/cancel" if has_tasks => Some(Method::CancelTask),
            other => RelayMethod::offered(other, &self.offer.relays).map(Method::Relay),
        }
    }

    fn request(&self, method: Method, meta: &Members, wish: Option<Wish>) -> Result<Request, Rule> {
        match method {
            Method::Ping => Ok(Request::Ping),
            Method::SetLevel => self.level(),
            Method::ListTools => Ok(Request::ListTools {
                cursor: self.params.text_if_any("cursor")?,
            }),
            Method::CallTool => self.call(meta, wish).map(Request::CallTool),
            // the parameter alone says which task.
            Method::GetTask => Ok(Request::GetTask {
                task: self.params.text("taskId")?,
            }),
            Method::TaskResult => Ok(Request::TaskResult {
                task: self.params.text("taskId")?,
            }),
            Method::ListTasks => Ok(Request::ListTasks {
                cursor: self.params.text_if_any("cursor")?,
            }),
            Method::CancelTask => Ok(Request::CancelTask {
                task: self.params.text("taskId")?,
            }),
            Method::Relay(method) => Ok(Request::Relay(Relay {
                method,
                subject: self.params.subject(method)?,
                params: self.written.0.cloned(),
                progress_token: meta.progress_token()?,
                log_level: None,
            })),
        }
    }

    ///
    fn level(&self) -> Result<Request, Rule> {
        let level = self.params.raw("level").and_then(|level| level.read().ok());
        level.map(Request::SetLogLevel).ok_or(Rule::ParamInvalid {
            member: "level",
            must_be: "a log level of RFC 5424",
        })
    }

    fn call(&self, meta: &Members, wish: Option<Wish>) -> Result<CallTool, Rule> {
        let name = self.params.text("name")?;
        self.check_support(&name, wish.is_some())?;
        Ok(CallTool {
            arguments: self.params.arguments()?,
            name,
            responses: Vec::new(),
            request_state: None,
            ttl_ms: wish.and_then(|wish| wish.ttl_ms),
            idempotency_key: meta.idempotency_key()?,
            metadata: meta.metadata()?,
            progress_token: meta.progress_token()?,
            log_level: None,
            related_tasks: Vec::new(),
            rest: self.written.rest(),
        })
    }

    fn gives_tasks(&self) -> bool {
        self.peer.version.has_tasks() && self.offer.tasks
    }

    /// where no call can become a task, the wish is not even read.
    fn wish(&self) -> Result<Option<Wish>, Rule> {
        let bad = |must_be| Rule::ParamInvalid {
            member: "task",
            must_be,
        };
        let Some(task) = self.params.raw("task").filter(|_| self.gives_tasks()) else {
            return Ok(None);
        };
        let task = task.read::<Obj>().map_err(|_| bad("an object"))?;
        let ttl_ms = match task.without_nulls().raw("ttl") {
            None => None,
            Some(ttl) => whole(ttl).ok_or(bad("an object whose `ttl` is a number"))?,
        };
        Ok(Some(Wish { ttl_ms }))
    }

    /// Where no call can become a task, nothing was said about tasks, and a tool that wants one is
    /// called plainly.
    fn check_support(&self, name: &str, as_task: bool) -> Result<(), Rule> {
        let Some(rule) = (self.offer.tool)(name).filter(|_| self.gives_tasks()) else {
            return Ok(());
        };
        let tool = || clean(name, 200);
        if as_task && rule.forbids_task {
            Err(Rule::TaskForbidden { tool: tool() })
        } else if !as_task && rule.requires_task {
            Err(Rule::TaskRequired { tool: tool() })
        } else {
            Ok(())
        }
    }
}

/// What a call asks of its task.
#[derive(Clone, Copy)]
struct Wish {
    ttl_ms: Option<u64>,
}

/// A number of milliseconds; the outer `None` for what is no number. Q-26: what is not positive says nothing.
fn whole(value: &Raw) -> Option<Option<u64>> {
    let ms: f64 = value.read().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, and a wish that is out of reach is the longest there is"
    )]
    let whole = ms as u64;
    Some((whole > 0).then_some(whole))
}
