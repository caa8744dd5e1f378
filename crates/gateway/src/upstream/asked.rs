//! What a server behind this one asks in the middle of a call: a question of the call's task, and its answer in the
//! words of the server's generation.
//!
//! Called by `relayed`. It asks through the engine and sends nothing itself.

use std::future::{Future, pending};

use longhaul_core::event::Ask;
use longhaul_engine::tool::{Context, Settled};
use longhaul_mcp::{
    frame::{Obj, Raw},
    reply::InputRequest,
    request::Answers,
    url_rule::Reach,
};

use crate::{
    outbound::{self, Question, Unasked},
    question::Kind,
};

/// What one call may ask, and of whom.
#[derive(Clone)]
pub(super) struct Asker {
    /// Where it is asked.
    pub context: Context,
    /// The kinds of question that the caller declared.
    pub declared: Answers,
    /// How far a link may lead them.
    pub reach: Reach,
    /// The largest question, in bytes (`limits.question_max`).
    pub bytes_max: u64,
}

/// Why a server gets no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The task ended first.
    Ended,
    /// It cannot be asked, or the client did not answer, and the server's generation has no word for that.
    Cannot(String),
}

impl Asker {
    /// Asks these together, and waits until all are settled: seconds, or days. Returns the answers by their keys.
    ///
    /// # Errors
    /// [`Unanswered`]; nothing is to be sent then.
    pub(super) async fn ask(&self, requests: &[InputRequest]) -> Result<Obj, Unanswered> {
        let answers = self.ask_until(requests, pending()).await?;
        Ok(answers.unwrap_or_default())
    }

    /// As [`Asker::ask`], until `gone` resolves: what is still open then is taken back.
    async fn ask_until(
        &self,
        requests: &[InputRequest],
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Option<Obj>, Unanswered> {
        let mut answers = Obj::default();
        let (mut asked, mut asks) = (Vec::new(), Vec::new());
        for request in requests {
            match self.checked(request) {
                Ok((kind, ask)) => {
                    asked.push((&request.key, kind));
                    asks.push(ask);
                }
                // A form or a link that is not shown counts as declined.
                Err((Some(Kind::Form | Kind::Url), _)) => {
                    answers.set(&request.key, &plain("decline"));
                }
                Err((_, why)) => return Err(Unanswered::Cannot(why.to_string())),
            }
        }
        if asks.is_empty() {
            return Ok(Some(answers));
        }
        let settled = self.context.ask_until(asks, gone).await;
        let Some(settled) = settled.map_err(|_| Unanswered::Ended)? else {
            return Ok(None);
        };
        for ((key, kind), settled) in asked.into_iter().zip(&settled) {
            answers.set(key, &answer(kind, settled)?);
        }
        Ok(Some(answers))
    }

    /// Asks what a session's server asks in the middle of a call, and answers it. What cannot be asked is refused, and
    /// what the server takes back is taken back here.
    pub(super) async fn reply(self, mut asked: super::Question) {
        let mut ask = Obj::default();
        ask.set("method", &asked.method);
        if let Some(params) = &asked.params {
            ask.put("params", params.to_raw());
        }
        let request = InputRequest {
            key: String::new(),
            ask: ask.to_raw(),
        };
        // Dropped, the question is refused; one that was taken back is not answered.
        if let Ok(Some(answers)) = self.ask_until(&[request], asked.withdrawn()).await
            && let Some(answer) = answers.obj("")
        {
            asked.answer(&answer);
        }
    }

    fn checked(&self, request: &InputRequest) -> Result<(Kind, Ask), (Option<Kind>, Unasked)> {
        let question = question(request);
        let kind = question.kind().map_err(|why| (None, why))?;
        if !kind.answered_by_people() && !kind.declared_by(self.declared) {
            return Err((Some(kind), Unasked::Nobody));
        }
        let ask = outbound::question(&question, self.reach, self.bytes_max);
        ask.map(|ask| (kind, ask)).map_err(|why| (Some(kind), why))
    }
}

/// The kind of question that a request of a server is; `None` when it is none.
pub(crate) fn kind(request: &InputRequest) -> Option<Kind> {
    question(request).kind().ok()
}

/// The question in a request, in our own terms.
fn question(request: &InputRequest) -> Question {
    let request_of: Obj = request.ask.read().unwrap_or_default();
    let method: String = request_of.get("method").unwrap_or_default();
    let mut params = request_of.obj("params").unwrap_or_default();
    // It is of one hop: a library's own progress token, mostly (D-39).
    drop(params.take("_meta"));
    let label = Some(request.key.clone()).filter(|key| !key.is_empty());
    if method != "elicitation/create" {
        return Question {
            label,
            method: Some(method),
            params: Some(params.to_raw()),
            ..Question::default()
        };
    }
    let is_link = params.get::<String>("mode").as_deref() == Some("url");
    Question {
        label,
        message: params.get("message").unwrap_or_default(),
        form: params.raw("requestedSchema").filter(|_| !is_link).map(bare),
        url: is_link.then(|| params.get("url").unwrap_or_default()),
        ..Question::default()
    }
}

/// A form without what libraries write about it as a whole; the form of A-71 has no place for that.
fn bare(schema: &Raw) -> Raw {
    match schema.read::<Obj>() {
        Ok(mut schema) => {
            for about in ["title", "description", "additionalProperties"] {
                drop(schema.take(about));
            }
            schema.to_raw()
        }
        Err(_) => schema.clone(),
    }
}

/// The answer as a server reads it.
fn answer(kind: Kind, settled: &Settled) -> Result<Raw, Unanswered> {
    let content = |body: &longhaul_core::Body| body.bytes().and_then(|bytes| Raw::parse_bytes(bytes).ok());
    match (kind, settled) {
        (Kind::Form, Settled::Accepted(body)) => {
            let mut answer = Obj::default();
            answer.set("action", "accept");
            if let Some(content) = content(body) {
                answer.put("content", content);
            }
            Ok(answer.to_raw())
        }
        (Kind::Url, Settled::Accepted(_)) => Ok(plain("accept")),
        (Kind::Sampling | Kind::Roots, Settled::Accepted(body)) => {
            content(body).ok_or_else(|| Unanswered::Cannot("the answer cannot be read".to_owned()))
        }
        (Kind::Form | Kind::Url, Settled::Declined) => Ok(plain("decline")),
        (Kind::Form | Kind::Url, Settled::Dismissed) => Ok(plain("cancel")),
        (Kind::Sampling | Kind::Roots, Settled::Declined | Settled::Dismissed) => {
            Err(Unanswered::Cannot("the client did not answer".to_owned()))
        }
    }
}

fn plain(action: &str) -> Raw {
    let mut answer = Obj::default();
    answer.set("action", action);
    answer.to_raw()
}
