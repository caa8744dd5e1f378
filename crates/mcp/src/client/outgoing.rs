//! Requests to a server: the client's parameters as it wrote them, and what the server's generation needs.
//!
//! What belongs to one hop is written anew: how the client speaks, its progress token, its wish for a task, and
//! the headers (D-39). All else keeps its order, its spelling and its digits (E-2). What was absent stays absent
//! where the generation allows it.

use super::{Carrier, Era, Hello};
use crate::{
    frame::{Obj, Raw},
    header::{self, Mirror},
    meta,
    request::{LogLevel, RequestId},
    shape,
};

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// One line of JSON without a line break at its end.
    pub frame: Vec<u8>,
    /// Over HTTP, the headers that go with it; names in lower case, values of visible ASCII and inner spaces.
    pub headers: Vec<(String, String)>,
}

/// A request, before it is written for a server.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// What is asked.
    pub method: &'a str,
    /// As the client wrote them; `None` when it wrote none.
    pub params: Option<&'a Obj>,
    /// Where the server is to report progress to. It is Longhaul's own: the client's is for the client's hop.
    pub progress_token: Option<&'a RequestId>,
    /// The least grave log messages that are wanted on the reply's stream. Sessions set a level of their own.
    pub log_level: Option<LogLevel>,
    /// The arguments that headers mirror, by the server's own schema of the tool (B-25).
    pub mirrors: &'a [Mirror],
    /// For how long the server is to keep the task that it is to make of the call, in milliseconds; `None` for no
    /// wish. A stateless server decides by itself (C-3).
    pub task_ttl_ms: Option<u64>,
}

impl Outgoing<'_> {
    /// The request as a server of `era` reads it, under the id `id`.
    pub fn write(&self, id: &RequestId, hello: &Hello, era: Era, carrier: Carrier) -> Sent {
        let params = self.written(hello, era);
        let headers = match carrier {
            Carrier::Http => self.headers(params.as_ref(), era),
            Carrier::Pipe => Vec::new(),
        };
        let method = Raw::string(self.method);
        let frame = match &params {
            Some(params) => shape::request_frame(id, &method, params),
            None => shape::bare_request(id, &method),
        };
        Sent { frame, headers }
    }

    fn written(&self, hello: &Hello, era: Era) -> Option<Obj> {
        let mut params = self.params.cloned();
        if let Some(params) = &mut params {
            // D-33: a wish for a task is between the client and Longhaul.
            drop(params.take("task"));
            if let Era::Session(_) = era {
                drop(params.take("inputResponses"));
                drop(params.take("requestState"));
                if let Some(ttl) = self.task_ttl_ms {
                    params.edit("task", |wish| wish.set("ttl", &ttl));
                }
            }
        }
        let mut members = params.as_ref().and_then(|params| params.obj("_meta"));
        if let Some(members) = &mut members {
            members.0.retain(|(name, _)| !is_of_the_hop(&name.unescaped()));
        }
        match era {
            Era::Stateless => {
                let members = members.get_or_insert_default();
                hello.introduce(members);
                members.set_some(meta::LOG_LEVEL, self.log_level.as_ref());
                members.set_some("progressToken", self.progress_token);
            }
            Era::Session(_) => {
                if let Some(token) = self.progress_token {
                    members.get_or_insert_default().set("progressToken", token);
                }
            }
        }
        let was_empty = params
            .as_ref()
            .and_then(|params| params.obj("_meta"))
            .is_some_and(|members| members.0.is_empty());
        match members {
            Some(members) if !members.0.is_empty() || was_empty => {
                params.get_or_insert_default().set("_meta", &members.to_raw());
            }
            Some(_) | None => {
                if let Some(params) = &mut params {
                    drop(params.take("_meta"));
                }
            }
        }
        params
    }

    fn headers(&self, params: Option<&Obj>, era: Era) -> Vec<(String, String)> {
        let mut headers = headers(era, self.method);
        if era != Era::Stateless {
            return headers;
        }
        let named = header::named_by(self.method)
            .and_then(|member| params.and_then(|params| params.get::<String>(member)));
        if let Some(name) = named {
            headers.push((header::NAME.to_owned(), header::encoded(&name)));
        }
        let arguments = params.and_then(|params| params.raw("arguments"));
        let mirrored = self.mirrors.iter().filter_map(|mirror| mirror.say(arguments?));
        headers.extend(mirrored);
        headers
    }
}

/// The headers of every message of a method (B-21, A-27).
pub(super) fn headers(era: Era, method: &str) -> Vec<(String, String)> {
    let mut headers = version_header(era);
    if era == Era::Stateless {
        headers.push((header::METHOD.to_owned(), header::encoded(method)));
    }
    headers
}

pub(super) fn version_header(era: Era) -> Vec<(String, String)> {
    vec![(header::VERSION.to_owned(), era.version().to_owned())]
}

/// Whether a member of `_meta` speaks of the client's own hop: how it speaks, where it waits for progress, which
/// of Longhaul's tasks it means, what it asks of Longhaul. All other members are for the server.
fn is_of_the_hop(name: &str) -> bool {
    name == "progressToken"
        || name.starts_with("io.modelcontextprotocol/")
        || matches!(name, meta::SESSION | meta::IDEMPOTENCY_KEY | meta::METADATA)
}
