//! A call that its server made a task of, followed to its end: across lost connections, and across a restart of ours.
//!
//! Begun by `relayed`, with the line that the call went by, or without one after a restart. How a task is followed on
//! one line depends on the server's generation (`session`, `stateless`); here is what is common: how the way back is
//! found, and how the task is stopped. The outcome is copied once, into the row of ours.

mod session;
mod stateless;

use std::{
    future::{Future, pending},
    pin::Pin,
    time::Duration,
};

use longhaul_engine::tool::{Earlier, Finish};
use longhaul_mcp::{
    client::{
        self, Kind, Version,
        result::{Bad, Came},
        task::{self, Task},
    },
    frame::{Obj, Raw},
    rpc_error,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use super::{
    back_off::{BACK_OFF, Pause, shaken},
    connection::{CANCEL_WAIT, Connection},
    handle::Handle,
    link::{Over, Why},
    outcome::{Event, Failed, Outcome, Request},
    reason::{Asked, Reason},
    relayed::{Relayed, errored},
    server::{Caller, Line, Server},
    talk::{Said, Talk},
};
use crate::question::Stored;

/// How often a server is asked that gives no hint.
const POLL_DEFAULT: Duration = Duration::from_secs(1);
/// How often at most, and at least, whatever it hints.
const POLL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// How long the answers to open questions may take to be sent when the task is stopped.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// How long a server is waited for that is only to be told to stop.
const REACHED_WITHIN: Duration = Duration::from_secs(20);
/// A line that lasted for so long was no failure.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// How many replies in a row may say nothing that can be read.
const UNREADABLE_MAX: u32 = 5;

/// A task of a server that is followed.
pub(super) struct Following<'a> {
    tool: &'a Relayed,
    caller: &'a Caller,
    asked: Asked<'a>,
    pub(super) handle: Handle,
    /// What was asked before a restart of ours, until its session is gone on with.
    pub(super) earlier: Vec<Earlier>,
    talk: Talk,
    /// What a stateless server is told with each request.
    capabilities: Obj,
    /// When the server wants to be asked next.
    hint: Duration,
}

/// Why there is no way to a server.
pub(super) enum Unreached {
    /// Ours has ended.
    Stop,
    /// Its time is over.
    Late,
    /// Nobody can answer what it asks, and it is to fail for that.
    Nobody,
}

/// How the following on one line ended.
enum Ended {
    /// The task has ended.
    With(Finish),
    /// Ours has ended: it is to be stopped.
    Stop,
    /// Its time is over: it is to be stopped.
    Late,
    /// Nobody can answer what it asks, and it is to fail for that: it is to be stopped.
    Nobody,
    /// The line is lost. The server may have forgotten the session.
    Lost { is_forgotten: bool },
}

/// A request on its way.
type Sent = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl<'a> Following<'a> {
    pub(super) fn of(
        tool: &'a Relayed,
        caller: &'a Caller,
        asked: Asked<'a>,
        handle: Handle,
        mut talk: Talk,
    ) -> Following<'a> {
        let mut capabilities = client::capabilities(tool.server.told_of(caller));
        client::take_tasks(&mut capabilities);
        talk.goes_on();
        Following {
            tool,
            caller,
            asked,
            handle,
            earlier: Vec::new(),
            talk,
            capabilities,
            hint: POLL_DEFAULT,
        }
    }

    /// Follows it to its end, beginning on this line.
    pub(super) async fn run(mut self, mut line: Option<Line>) -> Finish {
        let context = self.talk.context();
        let mut pause = Pause::new(BACK_OFF);
        loop {
            let reached = match line.take() {
                Some(line) => Ok(line),
                None => {
                    let session = self.handle.session();
                    let server = &self.tool.server;
                    reach(server, self.caller, session, &mut self.talk, &mut pause, "task").await
                }
            };
            let line = match reached {
                Ok(line) => line,
                Err(Unreached::Late) => return self.tool.late(),
                Err(Unreached::Stop | Unreached::Nobody) => return self.stop_from_afar().await,
            };
            // Until the task has ended, its session is not to be: whoever follows it next goes on with it.
            line.connection().keep();
            let begun = Instant::now();
            let ended = match line.connection().spoken().era.kind() {
                Kind::Sessions => self.in_session(&line).await,
                Kind::Stateless => self.stateless(&line).await,
            };
            let finish = match ended {
                Ended::With(finish) => finish,
                // Whoever follows it next goes on with all that there is of it.
                Ended::Stop if !context.is_over().await => return Finish::Stopped { confirmed: false },
                Ended::Stop => self.stop(&line).await,
                Ended::Late => {
                    self.stop(&line).await;
                    self.tool.late()
                }
                Ended::Nobody => {
                    self.stop(&line).await;
                    Finish::Failed(longhaul_core::Reason::NobodyToAnswer)
                }
                Ended::Lost { is_forgotten } => {
                    if is_forgotten {
                        self.handle.forget_session();
                    }
                    if begun.elapsed() >= SETTLED_AFTER {
                        pause.reset();
                    }
                    drop(line);
                    tokio::select! {
                        biased;
                        () = context.stop() => {}
                        () = sleep(shaken(pause.now())) => pause.lengthen(),
                    }
                    continue;
                }
            };
            line.connection().let_go();
            return finish;
        }
    }

    /// Nobody asked for it, and this server is not to make tasks of calls.
    pub(super) async fn refuse(&mut self, line: &Line) -> Finish {
        self.stop(line).await;
        errored(&Reason::UnaskedTask.error(self.asked, ""))
    }

    /// D-19, D-22: open questions are answered, then the server is told, and watched for a moment.
    async fn stop(&mut self, line: &Line) -> Finish {
        self.talk.settle(ANSWERED_WITHIN).await;
        let told = timeout(CANCEL_WAIT, self.cancel(line.connection())).await;
        // Whoever is late has confirmed nothing.
        let confirmed = told.unwrap_or(false);
        Finish::Stopped {
            confirmed: confirmed || line.end_own_program().await,
        }
    }

    /// Whether the server says that the task is over.
    async fn cancel(&mut self, connection: &Connection) -> bool {
        if !self.handle.cancels {
            return false;
        }
        let about = task::about(&self.handle.task);
        let wait = Some(CANCEL_WAIT);
        let told = self.send(connection, "tasks/cancel", about, wait, None).await;
        if let Outcome::Came(Came::Complete(task)) = &told
            && read(task, connection).is_ok_and(|task| task.state.is_over())
        {
            return true;
        }
        // A-56, C-30: it may have ended by itself, or end soon.
        loop {
            let told = self.get(connection).await;
            match &told {
                Outcome::Came(Came::Complete(task)) => {
                    if read(task, connection).is_ok_and(|task| task.state.is_over()) {
                        return true;
                    }
                }
                // It may be gone because nobody keeps it, or be at work elsewhere.
                Outcome::Errored(_) | Outcome::Unusable(_) => return false,
                Outcome::Came(_)
                | Outcome::Unsent(_)
                | Outcome::Failed(_)
                | Outcome::TimedOut
                | Outcome::Stopped { .. } => {}
            }
            sleep(POLL.0).await;
        }
    }

    /// All that is owed is the stop (T24).
    async fn stop_from_afar(&mut self) -> Finish {
        if !self.talk.context().is_over().await {
            return Finish::Stopped { confirmed: false };
        }
        loop {
            let had_session = self.handle.session().is_some();
            let reached = self.tool.server.line(self.caller, self.handle.session());
            let Ok(Ok(line)) = timeout(REACHED_WITHIN, reached).await else {
                return Finish::Stopped { confirmed: false };
            };
            let finish = self.stop(&line).await;
            let is_forgotten = line
                .connection()
                .lost()
                .is_some_and(|lost| lost.why == Why::SessionEnded);
            if !(had_session && is_forgotten) {
                return finish;
            }
            self.handle.forget_session();
        }
    }

    /// What the server says of the task on this connection is heard from here on. Whether it was made on this connection.
    fn hear(&self, connection: &Connection) -> bool {
        let is_known = connection.call_of(&self.handle.task).is_some();
        // In another session the token may be another request's.
        let is_same_session = is_known || self.handle.session().is_some();
        let token = self.handle.token.filter(|_| is_same_session);
        connection.follow(&self.handle.task, token, self.talk.events());
        is_known
    }

    /// Many servers send a question once, and wait for its answer in their session: what was open is asked again, and
    /// what was answered is answered again, in case that did not arrive. A server that has its answer heeds no other.
    pub(super) fn ask_again(&mut self, connection: &Connection) {
        let earlier = std::mem::take(&mut self.earlier);
        if self.handle.session().is_none() {
            return;
        }
        for earlier in earlier {
            let Some(stored) = Stored::decode(&earlier.ask.body) else {
                continue;
            };
            if let Some(question) = connection.asked_before(&stored, &self.handle.task) {
                self.talk.ask_again(question, stored.kind, earlier);
            }
        }
    }

    fn get(&self, connection: &Connection) -> Sent {
        let wait = self.tool.server.request_timeout();
        let about = task::about(&self.handle.task);
        self.send(connection, "tasks/get", about, Some(wait), None)
    }

    fn send(
        &self,
        connection: &Connection,
        method: &'static str,
        params: Obj,
        wait: Option<Duration>,
        events: Option<mpsc::Sender<Event>>,
    ) -> Sent {
        let (connection, capabilities) = (connection.clone(), self.capabilities.clone());
        Box::pin(async move {
            let request = Request {
                method,
                params: Some(&params),
                capabilities: Some(&capabilities),
                timeout: wait,
                // The progress of a task is told under the token of its call.
                is_quiet: true,
                ..Request::default()
            };
            connection.request(request, events, pending()).await
        })
    }

    /// What the task shows of how far the server says that its own is.
    pub(super) fn heed(&mut self, task: &Task) {
        if let Some(message) = task
            .message
            .as_deref()
            .filter(|message| !message.trim().is_empty())
        {
            self.talk.say(message);
        }
        self.hint = task.poll.unwrap_or(POLL_DEFAULT).clamp(POLL.0, POLL.1);
    }

    /// The task in a reply to `tasks/get`. A server whose reply cannot be read is asked again, and is given up when that
    /// does not help.
    fn read_poll(&self, polls: &mut Polls, result: &Raw, line: &Line) -> Result<Task, Option<Ended>> {
        read(result, line.connection()).map_err(|bad| {
            polls.unreadable += 1;
            polls.missed(self.hint);
            (polls.unreadable >= UNREADABLE_MAX).then(|| self.with(Outcome::Unusable(bad)))
        })
    }

    fn with(&self, outcome: Outcome) -> Ended {
        Ended::With(self.tool.finish(self.talk.fit_to_show(outcome), self.asked))
    }

    /// How far the task is was not said: what that means for the line, and the task shows that it is so.
    async fn unsaid(&mut self, outcome: &Outcome, line: &Line) -> Option<Ended> {
        let ended = self.missed(outcome, line).await;
        let is_silent = match outcome {
            Outcome::Unsent(_) | Outcome::Failed(_) | Outcome::TimedOut => true,
            Outcome::Came(_) | Outcome::Errored(_) | Outcome::Unusable(_) | Outcome::Stopped { .. } => false,
        };
        if is_silent {
            self.talk
                .say("The server of this task does not answer; it is asked again.");
        }
        ended
    }

    /// A request was not answered: what that means for the line.
    async fn missed(&mut self, outcome: &Outcome, line: &Line) -> Option<Ended> {
        let connection = line.connection();
        match outcome {
            Outcome::Failed(Failed::Over(Over::SessionEnded)) => {
                return Some(Ended::Lost { is_forgotten: true });
            }
            Outcome::Failed(Failed::Status(401 | 403)) => {
                let refused = connection.credentials();
                self.tool.server.renew(line, &refused).await;
            }
            Outcome::Failed(_) | Outcome::Unsent(_) | Outcome::TimedOut => {}
            // It does answer.
            Outcome::Came(_) | Outcome::Errored(_) | Outcome::Unusable(_) | Outcome::Stopped { .. } => {
                return None;
            }
        }
        connection.lost().map(|lost| Ended::Lost {
            is_forgotten: lost.why == Why::SessionEnded,
        })
    }
}

/// Tries for as long as the task lives. `what` is gone on with there, as its caller reads it.
pub(super) async fn reach(
    server: &Server,
    caller: &Caller,
    session: Option<(&str, Version)>,
    talk: &mut Talk,
    pause: &mut Pause,
    what: &str,
) -> Result<Line, Unreached> {
    let context = talk.context();
    loop {
        let line = server.line(caller, session);
        let unreached = tokio::select! {
            biased;
            () = context.stop() => return Err(Unreached::Stop),
            line = line => match line {
                Ok(line) => return Ok(line),
                Err(untaken) => untaken.shown(),
            },
            said = talk.next() => match said {
                Said::Over => return Err(Unreached::Late),
                Said::Nobody => return Err(Unreached::Nobody),
                Said::Task(_) => continue,
            },
        };
        talk.say(&format!(
            "The server of this {what} cannot be reached ({unreached}); it is tried again."
        ));
        tokio::select! {
            biased;
            () = context.stop() => return Err(Unreached::Stop),
            () = talk.clock.over() => return Err(Unreached::Late),
            () = sleep(shaken(pause.now())) => pause.lengthen(),
        }
    }
}

/// The moments at which a server is asked how far a task is.
struct Polls {
    /// `None` where it is not asked.
    due: Option<Instant>,
    asked: Option<Instant>,
    pause: Pause,
    unreadable: u32,
}

impl Polls {
    fn at_once() -> Polls {
        Polls {
            due: Some(Instant::now()),
            asked: None,
            pause: Pause::new(BACK_OFF),
            unreadable: 0,
        }
    }

    /// Of a task that the server has just told of, or not.
    fn begin(is_told: bool, hint: Duration) -> Polls {
        match is_told {
            true => Polls {
                due: Some(Instant::now() + shaken(hint)),
                ..Polls::at_once()
            },
            false => Polls::at_once(),
        }
    }

    /// It is asked now.
    fn ask(&mut self) {
        self.due = None;
        self.asked = Some(Instant::now());
    }

    /// It answered: the next time is as it hints.
    fn answered(&mut self, hint: Duration) {
        self.pause.reset();
        self.unreadable = 0;
        self.due = Some(Instant::now() + shaken(hint));
    }

    /// It did not.
    fn missed(&mut self, hint: Duration) {
        self.due = Some(Instant::now() + shaken(hint.max(self.pause.now())));
        self.pause.lengthen();
    }

    /// Something happened there.
    fn hurry(&mut self) {
        let soonest = self.asked.map_or_else(Instant::now, |asked| asked + POLL.0);
        self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
    }
}

/// Waits for the end of a request, if there is one. Cancel-safe.
async fn outcome_of(sent: &mut Option<Sent>) -> Outcome {
    match sent {
        Some(request) => {
            let outcome = request.await;
            *sent = None;
            outcome
        }
        None => pending().await,
    }
}

/// The task in a result of the server.
fn read(result: &Raw, connection: &Connection) -> Result<Task, Bad> {
    let task: Obj = result.read().map_err(|_| Bad::BadTask)?;
    task::read(&task, connection.spoken().era)
}

/// Whether an error says that there is no such task (A-64, C-39).
fn code(error: &Raw) -> Option<i64> {
    error.read::<Obj>().ok()?.get("code")
}

fn is_unknown(error: &Raw) -> bool {
    code(error) == Some(rpc_error::INVALID_PARAMS)
}

/// The server does not know the task any more, and its outcome was not copied (D-15).
fn lost() -> Ended {
    Ended::With(Finish::Failed(longhaul_core::Reason::UpstreamLost))
}
