//! A tool of a server behind this one, as the worker runs it: one call there is one attempt here.
//!
//! `offer` puts it into the catalog. The call is sent once: whether a call whose reply was lost is made again is the
//! task's rule (`on_crash`), and never decided here. Where the server makes a task of the call, `followed` goes on with it.

use std::{sync::Arc, time::Duration};

use longhaul_core::{Body, Span};
use longhaul_engine::tool::{Call, Context, Finish, Running, Tool};
use longhaul_mcp::{
    RpcError,
    client::{self, Kind, result::Came, task},
    frame::{Obj, Raw},
    header::Mirror,
    reply::InputRequest,
    request::{Answers, LogLevel, call_params},
};
use serde_json::json;
use tokio::sync::Notify;

use super::{
    asked::{Asker, NobodyAnswers, Opened, Unanswered, Whom},
    followed::Following,
    handle::Handle,
    link::Why,
    outcome::{Failed, Outcome, Request},
    pool::LinksDone,
    reason::{Asked, Reason},
    server::{Caller, Line, Server},
    streamed::{self, Whose},
    talk::{Said, Talk},
};
use crate::{
    config::{OnNobody, written},
    outbound::Note,
    view,
};

/// How many rounds of questions one call may take.
pub(crate) const ROUNDS_MAX: usize = 100;
/// The pause before a call is repeated that was put off without a question.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// Which calls of a tool its server is to make tasks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskWish {
    /// None: no server is told that it may.
    Never,
    /// Those that a stateless server makes tasks by itself: a server with sessions cannot run this one so.
    Stateless,
    /// All, where the server can.
    Always,
}

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
    /// Which of its calls the server is to make tasks of its own.
    pub tasks: TaskWish,
    /// For how long it is to keep them.
    pub ttl: Span,
    /// A task that it was not asked for is refused.
    pub strict: bool,
    /// The most calls at once.
    pub concurrency: usize,
    /// The largest question that is passed on, in bytes (`limits.question_max`).
    pub question_max: u64,
    /// What a question that nobody can answer turns into.
    pub on_nobody: OnNobody,
    /// It may be called again when it was lost (`on_crash`), and so no call of it is gone on with.
    pub is_rerun: bool,
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

    fn outlives_us(&self) -> bool {
        self.server.is_remote()
    }
}

impl Relayed {
    async fn attempt(&self, call: &Call, context: Context) -> Finish {
        let stored = view::Context::decode(&call.context);
        let declared = Answers::from(stored.answers);
        let caller = Caller::of(&call.owner, stored.session.clone(), declared);
        let mut asker = Asker {
            whom: Whom::Task(context.clone()),
            answers: self.server.may_be_asked(caller.answers()),
            roots: self.server.roots().cloned(),
            fails_when_nobody: self.on_nobody == OnNobody::Fail,
            reach: caller.reach(),
            bytes_max: self.question_max,
            earlier: Arc::default(),
            again: Arc::default(),
        };
        let asked = Asked {
            server: self.server.name(),
            runs_longhaul: caller.is_local,
            declared: self.server.declared(declared),
        };
        let begin = |asker| Talk::begin(asker, context, call.name.clone(), self.timeout);
        let Some(upstream) = &call.upstream else {
            let mut talk = begin(asker);
            if !self.is_rerun {
                talk.keep_for(Whose {
                    server: self.server.name().to_owned(),
                    tool: self.name.clone(),
                });
            }
            let params = self.params(call, &stored);
            return self.call(params, stored.level, &caller, asked, talk).await;
        };
        if let Some(stream) = streamed::Handle::decode(upstream) {
            // The server says all of it again.
            asker.earlier = Arc::new(call.asked.clone());
            return self.go_on(&stream, &caller, asked, begin(asker)).await;
        }
        let Some(handle) = Handle::decode(upstream) else {
            return Finish::Failed(longhaul_core::Reason::UpstreamLost);
        };
        let mut following = Following::of(self, &caller, asked, handle, begin(asker));
        following.earlier.clone_from(&call.asked);
        following.run(None).await
    }

    /// Calls, and calls again with the answers that the server asks for.
    async fn call(
        &self,
        mut params: Obj,
        level: Option<LogLevel>,
        caller: &Caller,
        asked: Asked<'_>,
        mut talk: Talk,
    ) -> Finish {
        let mut rounds = 0;
        // Heard from before the call, so that nothing is missed.
        let mut done = self.server.links_done();
        loop {
            let round = self.round(caller, &params, &mut talk, level);
            let (outcome, line) = match round.await {
                Ok(came) => came,
                Err(NobodyAnswers) => return Finish::Failed(longhaul_core::Reason::NobodyToAnswer),
            };
            let links = outcome.links();
            if !links.is_empty() && rounds < ROUNDS_MAX {
                rounds += 1;
                match self.open(&links, &mut done, &mut talk).await {
                    // D-28
                    Ok(Opened::All) => continue,
                    Ok(Opened::NotAll) => {}
                    Err(finish) => return finish,
                }
            }
            let (requests, state) = match (outcome, line) {
                (Outcome::Came(Came::InputRequired { requests, state }), _) => (requests, state),
                (Outcome::Came(Came::Task { task, result }), Some(line)) => {
                    return self.follow(task, &result, line, caller, asked, talk).await;
                }
                (outcome, _) => {
                    // The cause is not known any more when somebody asks what became of the call.
                    if let Outcome::Failed(failed @ (Failed::Lost(_) | Failed::Over(_))) = &outcome {
                        let note = Note::new(None, None, Some(&failed.to_string()));
                        talk.context().note(note.encode());
                    }
                    return self.finish(talk.fit_to_show(outcome), asked);
                }
            };
            rounds += usize::from(!requests.is_empty());
            let answers = match self.answers(&requests, rounds, &mut talk, asked).await {
                Ok(answers) => answers,
                Err(finish) => return finish,
            };
            client::answer_round(&mut params, &answers, state.as_deref());
        }
    }

    /// Asks to open the links without which the server refuses the call.
    async fn open(
        &self,
        links: &[InputRequest],
        done: &mut LinksDone,
        talk: &mut Talk,
    ) -> Result<Opened, Finish> {
        let context = talk.context();
        talk.clock.wait(true);
        let opened = tokio::select! {
            biased;
            opened = talk.asker.open(links, done) => opened,
            () = context.stop() => Err(Unanswered::Ended),
        };
        talk.clock.wait(false);
        match opened {
            Ok(opened) => Ok(opened),
            Err(Unanswered::Ended) => Err(Finish::Stopped { confirmed: true }),
            Err(Unanswered::Nobody) if talk.asker.fails_when_nobody => {
                Err(Finish::Failed(longhaul_core::Reason::NobodyToAnswer))
            }
            Err(Unanswered::Nobody | Unanswered::Declined | Unanswered::Cannot(_)) => Ok(Opened::NotAll),
        }
    }

    /// The answers to what a server asks before it goes on.
    async fn answers(
        &self,
        requests: &[InputRequest],
        rounds: usize,
        talk: &mut Talk,
        asked: Asked<'_>,
    ) -> Result<Obj, Finish> {
        let context = talk.context();
        let answers = if requests.is_empty() {
            // B-38: it is to be asked again later.
            tokio::select! {
                biased;
                () = context.stop() => Err(Unanswered::Ended),
                () = talk.clock.over() => return Err(self.finish(Outcome::TimedOut, asked)),
                () = tokio::time::sleep(AGAIN) => Ok(Obj::default()),
            }
        } else if rounds > ROUNDS_MAX {
            Err(Unanswered::Cannot("it asks again and again".to_owned()))
        } else {
            talk.clock.wait(true);
            let answers = tokio::select! {
                biased;
                answers = talk.asker.ask(requests) => answers,
                () = context.stop() => Err(Unanswered::Ended),
            };
            talk.clock.wait(false);
            answers
        };
        answers.map_err(|unanswered| match unanswered {
            // The server has replied, so nothing of the call is at work there.
            Unanswered::Ended => Finish::Stopped { confirmed: true },
            Unanswered::Nobody if talk.asker.fails_when_nobody => {
                Finish::Failed(longhaul_core::Reason::NobodyToAnswer)
            }
            why @ (Unanswered::Nobody | Unanswered::Declined | Unanswered::Cannot(_)) => {
                errored(&Reason::Asked.error(asked, why.why()))
            }
        })
    }

    /// One request and what comes of it.
    async fn round(
        &self,
        caller: &Caller,
        params: &Obj,
        talk: &mut Talk,
        level: Option<LogLevel>,
    ) -> Result<(Outcome, Option<Line>), NobodyAnswers> {
        let context = talk.context();
        let mut capabilities = client::capabilities(self.server.told_of(caller));
        if self.tasks != TaskWish::Never {
            // C-1: it makes a task of the call, or does not.
            client::take_tasks(&mut capabilities);
        }
        let request = Request {
            method: "tools/call",
            params: Some(params),
            mirrors: &self.mirrors,
            capabilities: Some(&capabilities),
            log_level: level,
            task_ttl_ms: match self.tasks {
                TaskWish::Always => Some(self.ttl.0),
                TaskWish::Never | TaskWish::Stateless => None,
            },
            // Its time stands still while it asks, which only the talk's clock knows.
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
        let begun = self.server.begin(caller, request, Some(talk.events()), stop);
        self.hear_out(talk, &given_up, begun).await
    }

    /// Takes care of what is said until the request has ended, which is told to `given_up` when it is to end before.
    pub(super) async fn hear_out(
        &self,
        talk: &mut Talk,
        given_up: &Notify,
        begun: impl Future<Output = (Outcome, Option<Line>)>,
    ) -> Result<(Outcome, Option<Line>), NobodyAnswers> {
        tokio::pin!(begun);
        let (mut is_late, mut is_nobody) = (false, false);
        loop {
            tokio::select! {
                biased;
                said = talk.next() => match said {
                    Said::Over => {
                        is_late = true;
                        given_up.notify_one();
                    }
                    Said::Nobody => {
                        is_nobody = true;
                        given_up.notify_one();
                    }
                    // What it says of the task comes before the task.
                    Said::Task(_) => {}
                },
                (outcome, line) = &mut begun => {
                    match line {
                        // It is a task by now, and is stopped as one.
                        Some(_) if is_nobody => talk.nobody_answers(),
                        Some(_) if is_late => talk.clock.end(),
                        Some(_) => {}
                        None => talk.end_request(),
                    }
                    let is_stopped = matches!(outcome, Outcome::Stopped { .. });
                    let may_go_on = matches!(outcome, Outcome::Stopped { confirmed: false }) || line.is_some();
                    return match (is_nobody && !may_go_on, is_late && is_stopped) {
                        (true, _) => Err(NobodyAnswers),
                        (false, true) => Ok((Outcome::TimedOut, line)),
                        (false, false) => Ok((outcome, line)),
                    };
                }
            }
        }
    }

    /// The server made a task of the call: it is followed as soon as it can be found again.
    pub(super) async fn follow(
        &self,
        task: String,
        result: &Raw,
        line: Line,
        caller: &Caller,
        asked: Asked<'_>,
        talk: Talk,
    ) -> Finish {
        let connection = line.connection();
        let created = match task::created(result, connection.spoken().era) {
            Ok(created) => created,
            Err(bad) => return errored(&bad.error(asked.declared)),
        };
        let handle = Handle::of(self.server.name(), &self.name, task, connection);
        let is_asked = match connection.spoken().era.kind() {
            Kind::Sessions => self.tasks == TaskWish::Always && connection.spoken().offers().tasks,
            Kind::Stateless => self.tasks != TaskWish::Never,
        };
        let context = talk.context();
        let mut following = Following::of(self, caller, asked, handle, talk);
        if self.strict && !is_asked {
            return following.refuse(&line).await;
        }
        if !longhaul_core::fault!("a-followed-task-has-no-handle") {
            // One that has ended meanwhile is stopped by whoever follows it.
            let _ended = context.attach(following.handle.encode()).await;
        }
        following.heed(&created);
        following.run(Some(line)).await
    }

    /// The parameters as the client wrote them, under the name that the tool has there.
    fn params(&self, call: &Call, stored: &view::Context) -> Obj {
        let arguments = call.args.bytes().filter(|_| !stored.no_arguments);
        let arguments = arguments.and_then(|bytes| Raw::parse_bytes(bytes).ok());
        let rest = stored.rest.as_ref().and_then(|rest| rest.read().ok());
        let rest = rest.unwrap_or_default();
        call_params(&self.name, arguments.as_ref(), rest)
    }

    pub(super) fn finish(&self, outcome: Outcome, asked: Asked<'_>) -> Finish {
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

    pub(super) fn late(&self) -> Finish {
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

fn returned(result: &Raw) -> Finish {
    let is_error = result
        .read::<Obj>()
        .is_ok_and(|result| result.get("isError") == Some(true));
    Finish::Returned {
        body: Body::new(result.text().as_bytes()),
        is_error,
    }
}

/// The task ends with this error.
pub(crate) fn errored(error: &RpcError) -> Finish {
    Finish::Errored {
        body: Body::new(error.object().to_raw().text().as_bytes()),
    }
}
