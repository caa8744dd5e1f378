//! Frame to request. The checks stand in the order of wire B.3, so that a frame that breaks several rules is
//! always refused for the same one; ownership and state are the caller's, after all of these.

use super::SUPPORTED;
use crate::{
    clean,
    edge::Offer,
    frame::{Frame, Obj, Raw},
    header::{self, Headers},
    malformed::{Malformed, Rule},
    meta::Meta,
    params::{Params, notice},
    request::{
        CallTool, Filter, Incoming, Message, Relay, RelayMethod, Request, RequestId, Response, ToolRule,
    },
};

/// Reads a frame of this generation. `headers` are those of its HTTP request; `None` on stdio, where there are
/// none.
///
/// # Errors
/// The first rule that the frame breaks.
pub fn parse(headers: Option<&Headers>, frame: Frame, offer: &Offer<'_>) -> Result<Message, Malformed> {
    match frame {
        Frame::Response { .. } => Err(Malformed::anonymous(Rule::UnexpectedResponse)),
        Frame::Notification { method, params } => Ok(Message::Notice(notice(&method, params.as_ref()))),
        Frame::Request { id, method, params } => {
            let reader = Reader {
                headers,
                offer,
                method: &method,
                params: Params(params.as_ref()),
            };
            match reader.read(id.clone()) {
                Ok(incoming) => Ok(Message::Request(Box::new(incoming))),
                Err(rule) => Err(Malformed { id: Some(id), rule }),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Discover,
    ListTools,
    CallTool,
    GetTask,
    UpdateTask,
    CancelTask,
    Listen,
    Relay(RelayMethod),
}

impl Method {
    fn named(name: &str, offer: &Offer<'_>) -> Option<Method> {
        match name {
            "server/discover" => Some(Method::Discover),
            "tools/list" => Some(Method::ListTools),
            "tools/call" => Some(Method::CallTool),
            "subscriptions/listen" => Some(Method::Listen),
            "tasks/get" if offer.tasks => Some(Method::GetTask),
            "tasks/update" if offer.tasks => Some(Method::UpdateTask),
            "tasks/cancel" if offer.tasks => Some(Method::CancelTask),
            // K-14: here a client subscribes by listening.
            "resources/subscribe" | "resources/unsubscribe" => None,
            other => RelayMethod::offered(other, &offer.relays).map(Method::Relay),
        }
    }
}

struct Reader<'a, 'o> {
    headers: Option<&'a Headers>,
    offer: &'a Offer<'o>,
    method: &'a str,
    params: Params<'a>,
}

impl Reader<'_, '_> {
    fn read(&self, id: RequestId) -> Result<Incoming, Rule> {
        let meta = Meta::read(self.params.0)?;
        if let Some(headers) = self.headers {
            headers.must_say(header::VERSION, &meta.version)?;
            headers.must_say(header::METHOD, self.method)?;
        }
        if !SUPPORTED.contains(&meta.version.as_str()) {
            let requested = clean(&meta.version, 100);
            return Err(Rule::UnsupportedVersion {
                supported: SUPPORTED,
                requested,
            });
        }
        let method =
            Method::named(self.method, self.offer).ok_or_else(|| Rule::method_not_found(self.method))?;
        let name_header_missing = self.check_name_header(method)?;
        self.check_mirrors(method)?;
        self.check_capability(method, &meta)?;
        let request = self.request(method, &meta)?;
        Ok(Incoming {
            id,
            client: meta.client()?,
            request,
            name_header_missing,
        })
    }

    /// B-21, C-46. True when the header is absent where that is let pass.
    fn check_name_header(&self, method: Method) -> Result<bool, Rule> {
        let is_lenient = match method {
            Method::GetTask | Method::UpdateTask | Method::CancelTask => !self.offer.strict_headers,
            Method::CallTool | Method::Relay(_) | Method::Discover | Method::ListTools | Method::Listen => {
                false
            }
        };
        let (Some(headers), Some(member)) = (self.headers, header::named_by(self.method)) else {
            return Ok(false);
        };
        // A body without the name is refused with the other parameters.
        let Ok(body) = self.params.text(member) else {
            return Ok(false);
        };
        match headers.must_say(header::NAME, &body) {
            Ok(()) => Ok(false),
            Err(Rule::HeaderMissing { .. }) if is_lenient => Ok(true),
            Err(rule) => Err(rule),
        }
    }

    fn tool_rule(&self, method: Method) -> Option<&ToolRule> {
        if method != Method::CallTool {
            return None;
        }
        (self.offer.tool)(&self.params.text("name").ok()?)
    }

    fn check_mirrors(&self, method: Method) -> Result<(), Rule> {
        let (Some(headers), Some(tool)) = (self.headers, self.tool_rule(method)) else {
            return Ok(());
        };
        tool.mirrors
            .iter()
            .try_for_each(|mirror| mirror.check(headers, self.params.raw("arguments")))
    }

    /// K-9: before any look-up, so an undeclared client learns nothing about ids.
    fn check_capability(&self, method: Method, meta: &Meta) -> Result<(), Rule> {
        let needs_tasks = match method {
            Method::GetTask | Method::UpdateTask | Method::CancelTask => true,
            Method::CallTool => self.tool_rule(method).is_some_and(|tool| tool.requires_task),
            Method::Listen => self.offer.tasks && self.asks_for_tasks(),
            Method::Discover | Method::ListTools | Method::Relay(_) => false,
        };
        if needs_tasks && !meta.declares_tasks() {
            Err(Rule::NeedsTasks)
        } else {
            Ok(())
        }
    }

    fn asks_for_tasks(&self) -> bool {
        let filter = self.params.0.and_then(|params| params.obj("notifications"));
        filter.is_some_and(|filter| filter.raw("taskIds").is_some())
    }

    fn request(&self, method: Method, meta: &Meta) -> Result<Request, Rule> {
        match method {
            Method::Discover => Ok(Request::Discover),
            Method::ListTools => {
                let cursor = self.params.text_if_any("cursor")?;
                Ok(Request::ListTools { cursor })
            }
            Method::CallTool => self.call(meta).map(Request::CallTool),
            Method::GetTask => Ok(Request::GetTask {
                task: self.params.text("taskId")?,
            }),
            Method::UpdateTask => {
                let task = self.params.text("taskId")?;
                let responses = self.responses()?.ok_or(BAD_RESPONSES)?;
                Ok(Request::UpdateTask { task, responses })
            }
            Method::CancelTask => Ok(Request::CancelTask {
                task: self.params.text("taskId")?,
            }),
            Method::Listen => self.filter().map(Request::Listen),
            Method::Relay(method) => Ok(Request::Relay(Relay {
                method,
                subject: self.params.subject(method)?,
                params: self.params.0.cloned(),
                progress_token: meta.members.progress_token()?,
                log_level: meta.members.log_level()?,
            })),
        }
    }

    fn call(&self, meta: &Meta) -> Result<CallTool, Rule> {
        let arguments = self.params.arguments()?;
        Ok(CallTool {
            name: self.params.text("name")?,
            arguments,
            responses: self.responses()?.unwrap_or_default(),
            ttl_ms: None,
            request_state: self.params.text_if_any("requestState")?,
            idempotency_key: meta.members.idempotency_key()?,
            metadata: meta.members.metadata()?,
            progress_token: meta.members.progress_token()?,
            log_level: meta.members.log_level()?,
            related_tasks: meta.members.related_tasks(),
            rest: self.params.rest(),
        })
    }

    fn responses(&self) -> Result<Option<Vec<Response>>, Rule> {
        let Some(map) = self.params.raw("inputResponses") else {
            return Ok(None);
        };
        let map: Obj = map.read().map_err(|_| BAD_RESPONSES)?;
        let responses = map.0.into_iter().map(|(name, body)| {
            if !body.text().starts_with('{') {
                return Err(BAD_RESPONSES);
            }
            Ok(Response {
                key: name.unescaped().into_owned(),
                body,
            })
        });
        responses.collect::<Result<_, _>>().map(Some)
    }

    /// B-45. Kinds that are not offered are left out here, and so from the acknowledgement (B-46).
    fn filter(&self) -> Result<Filter, Rule> {
        let bad = |must_be| Rule::ParamInvalid {
            member: "notifications",
            must_be,
        };
        let asked = self
            .params
            .0
            .and_then(|params| params.obj("notifications"))
            .ok_or(bad("an object"))?;
        let wants = |member| match asked.raw(member).map(Raw::read::<bool>) {
            None => Ok(false),
            Some(Ok(wanted)) => Ok(wanted),
            Some(Err(_)) => Err(bad("an object whose `…ListChanged` are booleans")),
        };
        let resources = match asked.raw("resourceSubscriptions").map(Raw::read::<Vec<String>>) {
            None => Vec::new(),
            Some(Ok(uris)) if self.offer.relays.subscribe => uris,
            Some(Ok(_)) => Vec::new(),
            Some(Err(_)) => return Err(bad("an object whose `resourceSubscriptions` are strings")),
        };
        let tasks = match asked.raw("taskIds").map(Raw::read::<Vec<String>>) {
            None => None,
            Some(Ok(ids)) => Some(ids).filter(|_| self.offer.tasks),
            Some(Err(_)) => return Err(bad("an object whose `taskIds` are strings")),
        };
        Ok(Filter {
            tools_list_changed: wants("toolsListChanged")?,
            prompts_list_changed: wants("promptsListChanged")? && self.offer.relays.prompts_change,
            resources_list_changed: wants("resourcesListChanged")? && self.offer.relays.resources_change,
            resources,
            tasks,
        })
    }
}

const BAD_RESPONSES: Rule = Rule::ParamInvalid {
    member: "inputResponses",
    must_be: "an object of objects",
};
