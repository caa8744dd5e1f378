//! A tool of a server behind this one, as the worker runs it: one call there is one attempt here.
//!
//! `offer` puts it into the catalog. The call is sent once: whether a call whose reply was lost is made again is the
//! task's rule (`on_crash`), and never decided here.

use std::{sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use longhaul_core::{Body, Span};
use longhaul_engine::tool::{Call, Context, Finish, Running, Tool};
use longhaul_mcp::{
    RpcError,
    client::{self, result::Came},
    frame::{Obj, Raw},
    header::Mirror,
    request::{Answers, LogLevel, call_params},
    url_rule::Reach,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    asked::{Asker, Unanswered},
    link::Why,
    outcome::{Event, Failed, Outcome, Request},
    server::{Caller, Server},
};
use crate::{
    config::written,
    identity,
    outbound::{Log, Note},
    sealed_id::owner_digest,
    view,
};

/// How many reports of one call wait to be passed on; of more, some are dropped.
const EVENTS_MAX: usize = 64;
/// How often one call may ask before it goes on.
const ROUNDS_MAX: usize = 100;
/// The pause before a call is repeated that was put off without a question.
const AGAIN: Duration = Duration::from_secs(1);

/// One tool of a server.
#[derive(Clone)]
pub struct Relayed {
    /// The server.
    pub server: Server,
    /// The tool's name there.
    pub name: String,
    /// The arguments that headers mirror there.
    pub mirrors: Arc<[Mirror]>,
    /// How long one call may take.
    pub timeout: Option<Span>,
    /// The most calls at once.
    pub concurrency: usize,
    /// The largest question that is passed on, in bytes (`limits.question_max`).
    pub question_max: u64,
    /// The largest result that is kept, in bytes (`limits.result_max`).
    pub result_max: u64,
}

impl Tool for Relayed {
    fn run(&self, call: Call, context: Context) -> Running {
        let tool = self.clone();
        Box::pin(async move { tool.attempt(&call, context).await })
    }

    fn concurrency_max(&self) -> usize {
        self.concurrency
    }
}

impl Relayed {
    async fn attempt(&self, call: &Call, context: Context) -> Finish {
        let stored = view::Context::decode(&call.context);
        let declared = Answers::from(stored.answers);
        let asker = Asker {
            context: context.clone(),
            declared,
            reach: match identity::is_local(&call.owner) {
                true => Reach::ThisMachine,
                false => Reach::Public,
            },
            bytes_max: self.question_max,
        };
        let mut params = self.params(call, stored.rest);
        let caller = Caller::of(&owner_digest(&call.owner), stored.session);
        for _ in 0..ROUNDS_MAX {
            let outcome = self.round(&caller, &params, &asker).await;
            let Outcome::Came(Came::InputRequired { requests, state }) = outcome else {
                return self.finish(outcome);
            };
            if requests.is_empty() {
                // B-38: it is to be asked again later.
                tokio::time::sleep(AGAIN).await;
            }
            let answers = tokio::select! {
                biased;
                answers = asker.ask(&requests) => answers,
                () = context.stop() => Err(Unanswered::Ended),
            };
            let answers = match answers {
                Ok(answers) => answers,
                // The server has replied, so nothing of the call is at work there.
                Err(Unanswered::Ended) => return Finish::Stopped { confirmed: true },
                Err(Unanswered::Cannot(why)) => {
                    return self.refused("upstream_asked", &format!("it asks its caller something: {why}"));
                }
            };
            // B-40
            params.set("inputResponses", &answers.to_raw());
            drop(params.take("requestState"));
            if let Some(state) = state {
                params.set("requestState", &state);
            }
        }
        self.refused("upstream_asked", "it asks its caller again and again")
    }

    /// One request and what comes of it.
    async fn round(&self, caller: &Caller, params: &Obj, asker: &Asker) -> Outcome {
        let context = &asker.context;
        let capabilities = client::capabilities(asker.declared);
        let request = Request {
            method: "tools/call",
            params: Some(params),
            mirrors: &self.mirrors,
            capabilities: Some(&capabilities),
            // What the client wants of it is sorted out where the client is.
            log_level: Some(LogLevel::Debug),
            timeout: self.timeout.map(|timeout| Duration::from_millis(timeout.0)),
        };
        let (events, mut told) = mpsc::channel(EVENTS_MAX);
        let outcome = self.server.call(caller, request, Some(events), context.stop());
        tokio::pin!(outcome);
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(event) = told.recv() => match event {
                    Event::Ask(question) => open.push(asker.clone().reply(question)),
                    event @ (Event::Progress(_) | Event::Log { .. }) => pass_on(context, event),
                },
                Some(()) = open.next(), if !open.is_empty() => {}
                outcome = &mut outcome => {
                    while let Ok(event) = told.try_recv() {
                        pass_on(context, event);
                    }
                    return outcome;
                }
            }
        }
    }

    /// The parameters as the client wrote them, under the name that the tool has there.
    fn params(&self, call: &Call, rest: Option<Raw>) -> Obj {
        let arguments = call.args.bytes().and_then(|bytes| Raw::parse_bytes(bytes).ok());
        let rest = rest.and_then(|rest| rest.read().ok()).unwrap_or_default();
        call_params(&self.name, arguments.as_ref(), rest)
    }

    fn finish(&self, outcome: Outcome) -> Finish {
        match outcome {
            Outcome::Came(Came::Complete(result)) => self.returned(&result),
            Outcome::Came(Came::InputRequired { .. }) => {
                self.refused("upstream_asked", "it asks its caller something that is not asked")
            }
            Outcome::Came(Came::Task { .. }) => self.refused(
                "upstream_unasked_task",
                "it made a task of the call, which it was not asked for",
            ),
            Outcome::Errored(error) => Finish::Errored {
                body: Body::new(error.text().as_bytes()),
            },
            Outcome::Unusable(bad) => errored(&bad.error()),
            Outcome::Unsent(unsent) => {
                self.refused("upstream_unavailable", &format!("it was not called: {unsent}"))
            }
            // What was done is not known, unless the server is gone for certain.
            Outcome::Failed(Failed::Lost(lost)) => Finish::Lost {
                confirmed: lost.confirmed && lost.why != Why::Closed,
            },
            Outcome::Failed(Failed::Over(_)) => Finish::Lost { confirmed: false },
            Outcome::Failed(failed @ (Failed::Status(_) | Failed::Unreadable(_) | Failed::TooLong)) => {
                self.refused("upstream_malformed", &failed.to_string())
            }
            Outcome::TimedOut => {
                let limit = self.timeout.map(written).unwrap_or_default();
                let text = format!(
                    "`{}` did not end within {limit} (`timeout`); the server `{}` was told to stop.",
                    self.name,
                    self.server.name()
                );
                let result = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
                Finish::Returned {
                    body: Body::new(result.to_string().as_bytes()),
                    is_error: true,
                }
            }
            Outcome::Stopped { confirmed } => Finish::Stopped { confirmed },
        }
    }

    fn returned(&self, result: &Raw) -> Finish {
        let bytes = result.text().as_bytes();
        if bytes.len() as u64 > self.result_max {
            return self.refused(
                "result_too_large",
                &format!(
                    "it returned {} bytes, and {} is the most (`limits.result_max`)",
                    bytes.len(),
                    self.result_max
                ),
            );
        }
        let is_error = result
            .read::<Obj>()
            .is_ok_and(|result| result.get("isError") == Some(true));
        Finish::Returned {
            body: Body::new(bytes),
            is_error,
        }
    }

    fn refused(&self, reason: &'static str, what: &str) -> Finish {
        let (server, tool) = (self.server.name(), &self.name);
        errored(&RpcError::internal(
            reason,
            format!("`{tool}` of the server `{server}`: {what}"),
        ))
    }
}

fn pass_on(context: &Context, event: Event) {
    match event {
        Event::Progress(progress) => {
            let note = Note::new(
                Some(progress.progress),
                progress.total,
                progress.message.as_deref(),
            );
            context.note(note.encode());
        }
        // The call has ended: dropped, it is refused.
        Event::Ask(question) => drop(question),
        Event::Log { level, logger, data } => {
            context.tell(Log { level, logger, data }.cleaned().encode());
        }
    }
}

fn errored(error: &RpcError) -> Finish {
    Finish::Errored {
        body: Body::new(error.object().to_raw().text().as_bytes()),
    }
}
