//! A request that is passed on. Its client hears of its progress and its log messages, where it asked for either, and is
//! asked what its server asks meanwhile.
//!
//! Made by `dispatch::relay`; read by the transports, as a call is. Nothing of it is stored: a client that leaves, or
//! cancels it, gives the request up. A client without a session is asked in the reply, and the request waits in
//! `suspended` until it comes back.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt as _},
};
use longhaul_core::{TaskId, event::Answer};
use longhaul_engine::tool::Settled;
use longhaul_mcp::{
    Push, Reply, RequestId, RpcError,
    frame::Obj,
    reply::{InputRequest, Progress},
    request::{LogLevel, ProgressToken},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    Dispatch, Left, Step, Steps,
    answers::{MISFITS_MAX, misfit_reply},
};
use crate::{
    identity::Caller,
    outbound::Log,
    question,
    quota::Place,
    request_state::State,
    session::{Session, feed::Seen},
    upstream::{Event, asked::Inquiry},
};

/// How long more questions are waited for once there is one: a server may ask several at once.
const GATHER: Duration = Duration::from_millis(50);
/// How the id of a question begins that a session's client is asked by a request that is no task.
const PREFIX: &str = "inq";

/// A request that is passed on. Dropping it gives it up: its server is told.
pub struct Relaying {
    token: Option<ProgressToken>,
    level: Option<LogLevel>,
    /// `None` once its client was asked in the reply.
    work: Option<Work>,
    /// The reply, once it is there: it may be asked for again.
    replied: Option<Reply>,
    progress: f64,
    way: Way,
    _place: Place,
}

/// A request at a server, as far as it has come.
pub(super) struct Work {
    events: mpsc::Receiver<Event>,
    inquiries: mpsc::Receiver<Inquiry>,
    reply: Pin<Box<dyn Future<Output = Reply> + Send>>,
    /// What is asked and was not answered yet.
    open: Vec<Open>,
    /// How many questions there have been.
    asked: u32,
    /// What the request is: the next round is of the same.
    digest: [u8; 32],
}

/// A question that waits for its client to come back.
struct Open {
    key: String,
    inquiry: Inquiry,
    misfits: u8,
}

/// How its client is asked.
pub(super) enum Way {
    /// It is not.
    Never,
    /// In the reply.
    InReply(Box<InReply>),
    /// By a request of ours on the request's own stream.
    OnStream(OnStream),
}

/// A client that is asked in the reply.
pub(super) struct InReply {
    dispatch: Dispatch,
    caller: Caller,
    /// Until when more questions are waited for.
    gathers: Option<Instant>,
}

/// A client that is asked on the stream.
pub(super) struct OnStream {
    session: Arc<Session>,
    /// Part of the ids of its questions.
    name: String,
    open: FuturesUnordered<BoxFuture<'static, Option<Push>>>,
}

impl OnStream {
    /// Asks, as the question of this number.
    fn ask(&self, number: u32, inquiry: Inquiry) -> Push {
        let id = format!("{PREFIX}-{}-{number}", self.name);
        let answered = self.session.inquire(&id);
        let (ask, request) = (inquiry.told(), RequestId::Text(id));
        let Inquiry {
            question,
            mut settled,
            ..
        } = inquiry;
        let withdrawn = request.clone();
        self.open.push(Box::pin(async move {
            let outcome = tokio::select! {
                outcome = answered => outcome,
                // D-22
                () = settled.closed() => return Some(Push::Withdrawn { id: withdrawn }),
            };
            let settling = match outcome {
                Ok(Ok(body)) => question::check(&question, &body).map_or(Settled::Declined, settled_by),
                // The client could not ask its user, or refused to.
                Ok(Err(_)) | Err(_) => Settled::Dismissed,
            };
            let _over = settled.send(settling);
            None
        }));
        Push::Question {
            id: request,
            ask,
            task: None,
        }
    }

    /// What is to be said of the questions that are open; waits until there is something.
    async fn next(&mut self) -> Push {
        loop {
            match self.open.next().await {
                Some(Some(push)) => return push,
                Some(None) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl Way {
    pub(super) fn in_reply(dispatch: &Dispatch, caller: &Caller) -> Way {
        Way::InReply(Box::new(InReply {
            dispatch: dispatch.clone(),
            caller: caller.clone(),
            gathers: None,
        }))
    }

    /// `name` tells its questions from those of other requests.
    pub(super) fn on_stream(session: &Arc<Session>, name: String) -> Way {
        Way::OnStream(OnStream {
            session: Arc::clone(session),
            name,
            open: FuturesUnordered::new(),
        })
    }

    /// What is to be said of the questions that are open.
    async fn next(&mut self) -> Push {
        match self {
            Way::OnStream(stream) => stream.next().await,
            Way::Never | Way::InReply(_) => std::future::pending().await,
        }
    }

    /// Until when more questions are waited for.
    fn gathers(&self) -> Option<Instant> {
        match self {
            Way::InReply(way) => way.gathers,
            Way::Never | Way::OnStream(_) => None,
        }
    }
}

impl Relaying {
    pub(super) fn new(
        token: Option<ProgressToken>,
        level: Option<LogLevel>,
        work: Work,
        mut way: Way,
        place: Place,
    ) -> Relaying {
        if let Way::InReply(way) = &mut way
            && !work.open.is_empty()
        {
            way.gathers = Some(Instant::now() + GATHER);
        }
        Relaying {
            token,
            level,
            work: Some(work),
            replied: None,
            progress: f64::NEG_INFINITY,
            way,
            _place: place,
        }
    }

    /// Whether its client may be told anything before the reply.
    pub(crate) fn wants_stream(&self) -> bool {
        self.token.is_some() || self.level.is_some() || matches!(self.way, Way::OnStream(_))
    }

    fn push(&mut self, event: Event) -> Option<Push> {
        match event {
            Event::Progress(progress) => self.progressed(progress),
            Event::Log { level, logger, data } => Log { level, logger, data }.cleaned().push(self.level?),
            // Whoever asks has taken it before.
            Event::Ask(question) => {
                drop(question);
                None
            }
            Event::Waits(_) | Event::Runs(_) | Event::Task(_) | Event::Placed(..) => None,
        }
    }

    /// under the client's own token, and further than all before it.
    fn progressed(&mut self, progress: Progress) -> Option<Push> {
        let token = self.token.clone()?;
        if progress.progress <= self.progress {
            return None;
        }
        self.progress = progress.progress;
        Some(Push::Progress {
            token,
            progress,
            task: None,
        })
    }

    /// Asks the client, in its way. What it is told at once.
    fn inquire(&mut self, inquiry: Inquiry) -> Option<Push> {
        let work = self.work.as_mut()?;
        work.asked += 1;
        match &mut self.way {
            // Dropped, the request goes on without an answer.
            Way::Never => None,
            Way::InReply(way) => {
                way.gathers.get_or_insert_with(|| Instant::now() + GATHER);
                work.open.push(Open {
                    key: format!("q{}", work.asked),
                    inquiry,
                    misfits: 0,
                });
                None
            }
            Way::OnStream(stream) => Some(stream.ask(work.asked, inquiry)),
        }
    }

    /// The reply that asks; the request waits for its client to come back. `None` when nothing is asked any more.
    fn suspend(&mut self) -> Option<Reply> {
        let Way::InReply(way) = &mut self.way else {
            return None;
        };
        way.gathers = None;
        let work = self.work.as_mut()?;
        work.open.retain(|open| !open.inquiry.settled.is_closed());
        if work.open.is_empty() {
            return None;
        }
        let asks = work.open.iter().map(|open| InputRequest {
            key: open.key.clone(),
            ask: open.inquiry.told(),
        });
        let requests = asks.collect();
        let state = way.dispatch.suspend(&way.caller, self.work.take()?);
        Some(Reply::InputRequired {
            requests,
            state: Some(state),
        })
    }

    async fn step(&mut self) -> Option<Step> {
        let Some(work) = &mut self.work else {
            return self.replied.clone().map(|reply| Step::Reply(Box::new(reply)));
        };
        if let Some(reply) = &self.replied {
            let reply = reply.clone();
            return match work.events.try_recv() {
                Ok(event) => self.push(event).map(|push| Step::Push(Box::new(push))),
                Err(_) => Some(Step::Reply(Box::new(reply))),
            };
        }
        let gathers = self.way.gathers();
        let gathered = async {
            match gathers {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let push = tokio::select! {
            biased;
            Some(event) = work.events.recv() => self.push(event),
            Some(inquiry) = work.inquiries.recv() => self.inquire(inquiry),
            push = self.way.next() => Some(push),
            reply = &mut work.reply => {
                self.replied = Some(reply);
                None
            }
            () = gathered => {
                self.replied = self.suspend();
                None
            }
        };
        push.map(|push| Step::Push(Box::new(push)))
    }
}

impl Steps for Relaying {
    async fn next(&mut self) -> Step {
        loop {
            if let Some(step) = self.step().await {
                return step;
            }
        }
    }

    fn seen(&self) -> Seen {
        Seen::default()
    }

    fn delivered(self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    fn leave(self, _left: Left) {}
}

impl Dispatch {
    /// Keeps a request that asks until its client comes back with what this returns.
    fn suspend(&self, caller: &Caller, work: Work) -> String {
        let inner = &self.inner;
        let state = State {
            task: TaskId(super::random()),
            digest: work.digest,
            expires_at: inner.engine.now() + inner.settings.round_max,
            round: work.asked,
        };
        let until = Instant::now() + Duration::from_millis(inner.settings.round_max.0);
        let max = inner.settings.rounds_max;
        inner.suspended.keep(&caller.owner, state.task, work, until, max);
        inner.states.seal(&state, &caller.owner, super::random())
    }

    /// The request that this one goes on with; `None` where that is not there any more, and begins anew.
    ///
    /// # Errors
    /// An answer does not fit. The request waits on.
    pub(super) fn resumed(
        &self,
        caller: &Caller,
        state: &State,
        digest: [u8; 32],
        answers: &Obj,
    ) -> Result<Option<Work>, RpcError> {
        if state.digest != digest && !longhaul_core::fault!("any-request-goes-on") {
            return Err(bad_state());
        }
        let inner = &self.inner;
        let Some(mut work) = inner.suspended.take(&caller.owner, state.task) else {
            return Ok(None);
        };
        let misfit = work.answer(answers);
        if let Some(misfit) = misfit {
            let until = Instant::now() + Duration::from_millis(inner.settings.round_max.0);
            let max = inner.settings.rounds_max;
            inner.suspended.keep(&caller.owner, state.task, work, until, max);
            return Err(misfit);
        }
        Ok(Some(work))
    }
}

impl Work {
    pub(super) fn new(
        events: mpsc::Receiver<Event>,
        inquiries: mpsc::Receiver<Inquiry>,
        digest: [u8; 32],
        reply: impl Future<Output = Reply> + Send + 'static,
    ) -> Work {
        Work {
            events,
            inquiries,
            reply: Box::pin(reply),
            open: Vec::new(),
            asked: 0,
            digest,
        }
    }

    /// Answers what is open, all or nothing; what is not answered stays open. Returns the first misfit.
    fn answer(&mut self, answers: &Obj) -> Option<RpcError> {
        let mut fitting = Vec::new();
        let mut misfit = None;
        for (at, open) in self.open.iter_mut().enumerate() {
            let Some(answer) = answers.raw(&open.key) else {
                continue;
            };
            match question::check(&open.inquiry.question, answer) {
                Ok(answer) => fitting.push((at, settled_by(answer))),
                Err(why) => {
                    open.misfits += 1;
                    let is_last = open.misfits >= MISFITS_MAX;
                    misfit.get_or_insert_with(|| misfit_reply(&open.key, &why, is_last));
                }
            }
        }
        if misfit.is_none() {
            for (at, settled) in fitting.into_iter().rev() {
                let _over = self.open.remove(at).inquiry.settled.send(settled);
            }
        } else {
            for at in (0..self.open.len()).rev() {
                if self.open[at].misfits >= MISFITS_MAX {
                    let _over = self.open.remove(at).inquiry.settled.send(Settled::Declined);
                }
            }
        }
        misfit
    }
}

/// The state is not that of such a request.
pub(super) fn bad_state() -> RpcError {
    RpcError::invalid_params_because(
        "bad_request_state",
        "The request state is not valid for this request: begin it anew",
    )
}

fn settled_by(answer: Answer) -> Settled {
    match answer {
        Answer::Accept(body) => Settled::Accepted(body),
        Answer::Decline => Settled::Declined,
        Answer::Dismiss => Settled::Dismissed,
    }
}
