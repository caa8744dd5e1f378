//! Parameters that every generation reads alike.
//!
//! Only the edges call this module. It knows no member of `_meta`.

use crate::{
    canon, clean,
    frame::{Obj, Raw, request_id},
    malformed::Rule,
    request::{Notice, RelayMethod, Subject},
};

/// The `params` of a request.
#[derive(Clone, Copy)]
pub(crate) struct Params<'a>(pub(crate) Option<&'a Obj>);

impl Params<'_> {
    pub(crate) fn raw(&self, member: &str) -> Option<&Raw> {
        self.0.and_then(|params| params.raw(member))
    }

    /// A string that must be there.
    pub(crate) fn text(&self, member: &'static str) -> Result<String, Rule> {
        let text = self.raw(member).and_then(|value| value.read().ok());
        text.ok_or(Rule::ParamInvalid {
            member,
            must_be: "a string",
        })
    }

    /// A string that may be absent.
    pub(crate) fn text_if_any(&self, member: &'static str) -> Result<Option<String>, Rule> {
        self.raw(member).map(|_| self.text(member)).transpose()
    }

    /// What a request that is passed on is about.
    pub(crate) fn subject(&self, method: RelayMethod) -> Result<Subject, Rule> {
        Ok(match method {
            RelayMethod::ListResources | RelayMethod::ListTemplates | RelayMethod::ListPrompts => {
                Subject::List {
                    cursor: self.text_if_any("cursor")?,
                }
            }
            RelayMethod::ReadResource | RelayMethod::Subscribe | RelayMethod::Unsubscribe => {
                Subject::Resource {
                    uri: self.text("uri")?,
                }
            }
            RelayMethod::GetPrompt => Subject::Prompt {
                name: self.text("name")?,
            },
            RelayMethod::Complete => self.reference()?,
        })
    }

    /// What an argument belongs to that is to be completed.
    fn reference(&self) -> Result<Subject, Rule> {
        let reference = self.0.and_then(|params| params.obj("ref")).unwrap_or_default();
        let text = |member| reference.get::<String>(member);
        let subject = match text("type").as_deref() {
            Some("ref/prompt") => text("name").map(|name| Subject::Prompt { name }),
            Some("ref/resource") => text("uri").map(|uri| Subject::Resource { uri }),
            Some(_) | None => None,
        };
        subject.ok_or(Rule::ParamInvalid {
            member: "ref",
            must_be: "a reference to a prompt or a resource",
        })
    }

    /// The members of a call's parameters that no reader of the call takes: what a server behind is sent besides.
    pub(crate) fn rest(&self) -> Obj {
        const READ: [&str; 5] = ["name", "arguments", "task", "inputResponses", "requestState"];
        let members = self.0.iter().flat_map(|params| &params.0);
        let rest = members.filter(|(name, _)| !READ.contains(&name.unescaped().as_ref()));
        Obj(rest.cloned().collect())
    }

    /// The arguments of a call: an object of finite numbers (E-4), as it was written.
    pub(crate) fn arguments(&self) -> Result<Option<Raw>, Rule> {
        let Some(arguments) = self.raw("arguments") else {
            return Ok(None);
        };
        if !arguments.text().starts_with('{') {
            return Err(Rule::ParamInvalid {
                member: "arguments",
                must_be: "an object",
            });
        }
        canon::check_finite(arguments).map_err(|bad| Rule::NotFinite {
            path: clean(&bad.path, 200),
        })?;
        Ok(Some(arguments.clone()))
    }
}

/// B-34, B-61: a malformed cancellation is ignored like one of a finished request.
pub(crate) fn notice(method: &str, params: Option<&Obj>) -> Notice {
    if method != "notifications/cancelled" {
        return Notice::Ignored;
    }
    let request = params
        .and_then(|params| params.raw("requestId"))
        .and_then(request_id);
    match request {
        Some(request) => Notice::Cancelled {
            request,
            reason: params.and_then(|params| params.get("reason")),
        },
        None => Notice::Ignored,
    }
}
