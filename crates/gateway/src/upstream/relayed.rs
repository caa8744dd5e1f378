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
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use super::{
    asked::{Asker, NobodyAnswers, Opened, Unanswered, Whom},
    link::{Why, at},
    outcome::{EVENTS_MAX, Event, Failed, Outcome, Request},
    reason::{Asked, Reason},
    server::{Caller, Server},
};
use crate::{
    config::{OnNobody, written},
    identity,
    outbound::{Log, Note},
    view,
};

/// How many rounds of questions one call may take.
pub(crate) const ROUNDS_MAX: usize = 100;
/// The pause before a call is repeated that was put off without a question.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// One tool of a server.
#[derive(Clone)]
pub struct Relayed {
    /// The server.
    pub server: Server,
    /// The tool's name there.
    pub name: String,
    /// The arguments that headers mirror there.
    pub mirrors: Arc<[Mirror]>,
    /// How long one call may take, all its rounds together; the time in which its caller is asked does not count.
    pub timeout: Option<Span>,
    /// The most calls at once.
    pub concurrency: usize,
    /// The largest question that is passed on, in bytes (`limits.question_max`).
    pub question_max: u64,
    /// What a question that nobody can answer turns into.
    pub on_nobody: OnNobody,
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
        let mut params = self.params(call, &stored);
        let caller = Caller::of(&call.owner, stored.session, declared);
        let asker = Asker {
            whom: Whom::Task(context.clone()),
            answers: self.server.may_be_asked(caller.answers()),
            roots: self.server.roots().cloned(),
            fails_when_nobody: self.on_nobody == OnNobody::Fail,
            reach: match identity::is_local(&call.owner) {
                true => Reach::ThisMachine,
                false => Reach::Public,
            },
            bytes_max: self.question_max,
        };
        let asked = Asked {
            server: self.server.name(),
            runs_longhaul: caller.is_local,
            declared: self.server.declared(declared),
        };
        let mut clock = Clock::start(self.timeout);
        let mut rounds = 0;
        // Heard from before the call, so that nothing is missed.
        let mut done = self.server.links_done();
        loop {
            let round = self.round(&caller, &params, &asker, &context, stored.level, &mut clock);
            let outcome = match round.await {
                Ok(outcome) => outcome,
                Err(NobodyAnswers) => return Finish::Failed(longhaul_core::Reason::NobodyToAnswer),
            };
            let links = outcome.links();
            if !links.is_empty() && rounds < ROUNDS_MAX {
                rounds += 1;
                clock.wait(true);
                let opened = tokio::select! {
                    biased;
                    opened = asker.open(&links, &mut done) => opened,
                    () = context.stop() => Err(Unanswered::Ended),
                };
                clock.wait(false);
                match opened {
                    // D-28
                    Ok(Opened::All) => continue,
                    Err(Unanswered::Ended) => return Finish::Stopped { confirmed: true },
                    Err(Unanswered::Nobody) if asker.fails_when_nobody => {
                        return Finish::Failed(longhaul_core::Reason::NobodyToAnswer);
                    }
                    Ok(Opened::NotAll)
                    | Err(Unanswered::Nobody | Unanswered::Declined | Unanswered::Cannot(_)) => {}
                }
            }
            let Outcome::Came(Came::InputRequired { requests, state }) = outcome else {
                // The cause is not known any more when somebody asks what became of the call.
                if let Outcome::Failed(failed @ (Failed::Lost(_) | Failed::Over(_))) = &outcome {
                    context.note(Note::new(None, None, Some(&failed.to_string())).encode());
                }
                return self.finish(outcome.fit_to_show(asker.reach, &call.name), asked);
            };
            let answers = if requests.is_empty() {
                // B-38: it is to be asked again later.
                tokio::select! {
                    biased;
                    () = context.stop() => Err(Unanswered::Ended),
                    () = clock.over() => return self.finish(Outcome::TimedOut, asked),
                    () = tokio::time::sleep(AGAIN) => Ok(Obj::default()),
                }
            } else if rounds == ROUNDS_MAX {
                Err(Unanswered::Cannot("it asks again and again".to_owned()))
            } else {
                rounds += 1;
                clock.wait(true);
                let answers = tokio::select! {
                    biased;
                    answers = asker.ask(&requests) => answers,
                    () = context.stop() => Err(Unanswered::Ended),
                };
                clock.wait(false);
                answers
            };
            let answers = match answers {
                Ok(answers) => answers,
                // The server has replied, so nothing of the call is at work there.
                Err(Unanswered::Ended) => return Finish::Stopped { confirmed: true },
                Err(Unanswered::Nobody) if asker.fails_when_nobody => {
                    return Finish::Failed(longhaul_core::Reason::NobodyToAnswer);
                }
                Err(why) => return errored(&Reason::Asked.error(asked, why.why())),
            };
            // B-40
            params.set("inputResponses", &answers.to_raw());
            drop(params.take("requestState"));
            if let Some(state) = state {
                params.set("requestState", &state);
            }
        }
    }

    /// One request and what comes of it.
    async fn round(
        &self,
        caller: &Caller,
        params: &Obj,
        asker: &Asker,
        context: &Context,
        level: Option<LogLevel>,
        clock: &mut Clock,
    ) -> Result<Outcome, NobodyAnswers> {
        let capabilities = client::capabilities(self.server.may_be_asked(caller.declared));
        let request = Request {
            method: "tools/call",
            params: Some(params),
            mirrors: &self.mirrors,
            capabilities: Some(&capabilities),
            log_level: level,
            // Its time stands still while it asks, which only `clock` knows.
            timeout: None,
            ..Request::default()
        };
        let given_up = Notify::new();
        let stop = async {
            tokio::select! {
                () = context.stop() => {}
                () = given_up.notified() => {}
            }
        };
        let (events, mut told) = mpsc::channel(EVENTS_MAX);
        let outcome = self.server.call(caller, request, Some(events), stop);
        tokio::pin!(outcome);
        let mut open = FuturesUnordered::new();
        let (mut is_late, mut is_nobody) = (false, false);
        loop {
            tokio::select! {
                biased;
                Some(event) = told.recv() => match event {
                    // The call ends: nothing more is asked for it.
                    Event::Ask(question) if is_nobody => drop(question),
                    Event::Ask(question) => {
                        open.push(asker.clone().reply(question));
                        clock.wait(true);
                    }
                    event @ (Event::Progress(_) | Event::Log { .. } | Event::Waits(_)) => {
                        pass_on(context, event);
                    }
                },
                Some(replied) = open.next(), if !open.is_empty() => {
                    clock.wait(!open.is_empty());
                    if let Err(NobodyAnswers) = replied {
                        is_nobody = true;
                        // A server that waits for another answer as well would not hear that it is to stop.
                        open.clear();
                        given_up.notify_one();
                    }
                }
                outcome = &mut outcome => {
                    while let Ok(event) = told.try_recv() {
                        pass_on(context, event);
                    }
                    clock.wait(false);
                    let is_stopped = matches!(outcome, Outcome::Stopped { .. });
                    let may_go_on = matches!(outcome, Outcome::Stopped { confirmed: false });
                    return match (is_nobody && !may_go_on, is_late && is_stopped) {
                        (true, _) => Err(NobodyAnswers),
                        (false, true) => Ok(Outcome::TimedOut),
                        (false, false) => Ok(outcome),
                    };
                }
                () = clock.over(), if !is_late => {
                    is_late = true;
                    given_up.notify_one();
                }
            }
        }
    }

    /// The parameters as the client wrote them, under the name that the tool has there.
    fn params(&self, call: &Call, stored: &view::Context) -> Obj {
        let arguments = call.args.bytes().filter(|_| !stored.no_arguments);
        let arguments = arguments.and_then(|bytes| Raw::parse_bytes(bytes).ok());
        let rest = stored.rest.as_ref().and_then(|rest| rest.read().ok());
        let rest = rest.unwrap_or_default();
        call_params(&self.name, arguments.as_ref(), rest)
    }

    fn finish(&self, outcome: Outcome, asked: Asked<'_>) -> Finish {
        match outcome {
            Outcome::Errored(error) => Finish::Errored {
                body: Body::new(error.text().as_bytes()),
            },
            // What was done is not known, unless the server is gone for certain.
            Outcome::Failed(Failed::Lost(lost)) => Finish::Lost {
                confirmed: lost.confirmed && lost.why != Why::Closed,
            },
            Outcome::Failed(Failed::Over(_)) => Finish::Lost { confirmed: false },
            Outcome::TimedOut => self.late(),
            Outcome::Stopped { confirmed } => Finish::Stopped { confirmed },
            outcome @ (Outcome::Came(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(Failed::Status(_) | Failed::Unreadable(_) | Failed::TooLong)) => {
                match outcome
                    .result(asked)
                    .and_then(|result| self.fitting(result, asked))
                {
                    Ok(result) => returned(&result),
                    Err(error) => errored(&error),
                }
            }
        }
    }

    fn late(&self) -> Finish {
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

    fn fitting(&self, result: Raw, asked: Asked<'_>) -> Result<Raw, RpcError> {
        let bytes = result.text().len();
        if bytes as u64 <= self.result_max {
            return Ok(result);
        }
        let most = self.result_max;
        let detail = format!("{bytes} bytes, and {most} are kept at most (`limits.result_max`)");
        Err(Reason::ResultTooLarge.error(asked, detail))
    }
}

/// The time of one call, which stands still while its caller is asked.
struct Clock {
    ends: Option<Instant>,
    waits_since: Option<Instant>,
}

impl Clock {
    fn start(limit: Option<Span>) -> Clock {
        Clock {
            ends: limit.map(|limit| Instant::now() + Duration::from_millis(limit.0)),
            waits_since: None,
        }
    }

    /// Says whether a question is open now.
    fn wait(&mut self, waits: bool) {
        match (waits, self.waits_since) {
            (true, None) => self.waits_since = Some(Instant::now()),
            (false, Some(since)) => {
                self.ends = self.ends.map(|ends| ends + since.elapsed());
                self.waits_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Resolves when the time is over. Cancel-safe.
    async fn over(&self) {
        at(self.ends.filter(|_| self.waits_since.is_none())).await;
    }
}

fn returned(result: &Raw) -> Finish {
    let is_error = result
        .read::<Obj>()
        .is_ok_and(|result| result.get("isError") == Some(true));
    Finish::Returned {
        body: Body::new(result.text().as_bytes()),
        is_error,
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
        Event::Waits(processes) => {
            let text = processes.map(|processes| match processes {
                1 => "waiting for the server's one process".to_owned(),
                several => format!("waiting for one of the server's {several} processes"),
            });
            context.note(Note::new(None, None, text.as_deref()).encode());
        }
        Event::Log { level, logger, data } => {
            context.tell(Log { level, logger, data }.cleaned().encode());
        }
    }
}

/// The task ends with this error.
pub(crate) fn errored(error: &RpcError) -> Finish {
    Finish::Errored {
        body: Body::new(error.object().to_raw().text().as_bytes()),
    }
}
