//! A request to one server that is no call of a tool, in its rounds: what the server asks meanwhile is asked of the
//! request's client, and goes back with the request (B-40).
//!
//! Called by `relay`, which knows the server. Nothing of it is stored.

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use longhaul_core::Span;
use longhaul_mcp::{
    Reply, RpcError,
    client::{self, result::Came},
    frame::Obj,
    request::{Answers, LogLevel, Relay, RelayMethod, Subject},
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::Dispatch;
use crate::{
    config::written,
    question::words_of_relay,
    toolset::Selection,
    upstream::{
        Event, Outcome, Reason, Request, Server,
        asked::{Asker, Inquiry, Opened, Whom},
        fleet::Member,
        outcome::EVENTS_MAX,
        reason::Asked,
        relayed::{AGAIN, ROUNDS_MAX},
        server,
    },
};

/// What a request that is passed on tells its client before the reply, and what it may ask.
pub(super) struct Telling {
    /// Where progress and log messages go; `None` when its client wants neither.
    pub(super) events: Option<mpsc::Sender<Event>>,
    /// The least grave log messages that the client said it wants.
    pub(super) level: Option<LogLevel>,
    /// Where it is asked.
    pub(super) asks: mpsc::Sender<Inquiry>,
    /// What it can be asked.
    pub(super) answers: Answers,
}

/// Who asks, and what can be asked of them meanwhile.
pub(super) struct Asking<'a> {
    /// What is shown to them.
    pub(super) selection: &'a Selection,
    pub(super) whose: server::Caller,
    pub(super) declared: Answers,
    pub(super) can_repeat: bool,
    pub(super) told: Telling,
    /// A question is open: times stand still.
    pub(super) is_asked: watch::Sender<bool>,
}

impl Asking<'_> {
    /// What the client declared. A client with a session declares nothing from one request to the next, so it counts
    /// as one that declared everything.
    fn declared(&self) -> Answers {
        match self.can_repeat {
            true => self.declared,
            false => Answers::ALL,
        }
    }

    /// The request once, and what comes of it. What a session's server asks meanwhile is asked.
    async fn exchange(
        &self,
        server: &Server,
        method: RelayMethod,
        params: Option<&Obj>,
        timeout: Span,
        asker: &Asker,
    ) -> Outcome {
        let capabilities = client::capabilities(asker.answers);
        let is_asked = self.is_asked.subscribe();
        let request = Request {
            method: method.as_str(),
            params,
            capabilities: Some(&capabilities),
            log_level: self.told.level,
            timeout: Some(Duration::from_millis(timeout.0)),
            asked: Some(&is_asked),
            is_quiet: self.told.events.is_none(),
            ..Request::default()
        };
        let (events, mut heard) = mpsc::channel(EVENTS_MAX);
        let outcome = server.call(&self.whose, request, Some(events), pending());
        tokio::pin!(outcome);
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(event) = heard.recv() => match event {
                    Event::Ask(question) => open.push(asker.clone().reply(question)),
                    event @ (Event::Progress(_) | Event::Log { .. } | Event::Waits(_) | Event::Runs(_) | Event::Task(_) | Event::Placed(..)) => {
                        self.tell(event);
                    }
                },
                // It has no rule that a question without an answer ends it.
                Some(_replied) = open.next(), if !open.is_empty() => {}
                outcome = &mut outcome => {
                    while let Ok(event) = heard.try_recv() {
                        self.tell(event);
                    }
                    self.is_asked.send_replace(false);
                    return outcome;
                }
            }
            self.is_asked.send_replace(!open.is_empty());
        }
    }

    /// Waits for an answer of the client's.
    async fn asked<T>(&self, asking: impl Future<Output = T>) -> T {
        self.is_asked.send_replace(true);
        let answered = asking.await;
        self.is_asked.send_replace(false);
        answered
    }

    fn tell(&self, event: Event) {
        if let Some(events) = &self.told.events {
            // Whoever does not keep up misses it.
            let _full = events.try_send(event);
        }
    }
}

impl Dispatch {
    /// Passes it on to this server, and asks on the way what that asks.
    pub(super) async fn ask(
        &self,
        member: &Member,
        server: &Server,
        asking: &Asking<'_>,
        relay: &Relay,
        params: Option<&Obj>,
    ) -> Result<Reply, RpcError> {
        let timeout = member.config.request_timeout;
        let asker = Asker {
            whom: Whom::Client {
                inquiries: asking.told.asks.clone(),
                who: who_asks(relay, server.name()),
            },
            answers: server.may_be_asked(asking.told.answers),
            roots: server.roots().cloned(),
            reach: asking.whose.reach(),
            bytes_max: member.question_max,
            fails_when_nobody: false,
            earlier: Arc::default(),
            again: Arc::default(),
        };
        let asked = Asked {
            server: server.name(),
            runs_longhaul: asking.whose.is_local,
            declared: server.declared(asking.declared()),
        };
        let mut params = params.cloned();
        // Heard from before the request, so that nothing is missed.
        let mut done = server.links_done();
        for _ in 0..ROUNDS_MAX {
            let outcome = asking.exchange(server, relay.method, params.as_ref(), timeout, &asker);
            let outcome = outcome.await;
            let links = outcome.links();
            if !links.is_empty() {
                // D-28
                let opened = asking.asked(asker.open(&links, &mut done)).await;
                if matches!(opened, Ok(Opened::All)) {
                    continue;
                }
            }
            match outcome {
                // B-37: the client repeats its request, answers and all, and the server's state is the server's to check.
                Outcome::Came(Came::InputRequired { requests, state })
                    if asking.can_repeat && asker.lets_pass(&requests) =>
                {
                    return Ok(Reply::InputRequired { requests, state });
                }
                // D-27
                Outcome::Came(Came::InputRequired { requests, state }) => {
                    let answers = match requests.is_empty() {
                        // B-38: it is to be asked again later.
                        true => {
                            sleep(AGAIN).await;
                            Ok(Obj::default())
                        }
                        false => asking.asked(asker.ask(&requests)).await,
                    };
                    let answers = answers.map_err(|why| Reason::Asked.error(asked, why.why()))?;
                    client::answer_round(params.get_or_insert_default(), &answers, state.as_deref());
                }
                Outcome::TimedOut => {
                    let limit = format!("`request_timeout` is {}", written(timeout));
                    return Err(Reason::Silent.error(asked, limit));
                }
                outcome @ (Outcome::Came(_)
                | Outcome::Errored(_)
                | Outcome::Unusable(_)
                | Outcome::Unsent(_)
                | Outcome::Failed(_)
                | Outcome::Stopped { .. }) => {
                    let outcome = outcome.fit_to_show(asking.whose.reach(), &crate::dispatch::short_name());
                    return outcome
                        .result(asked)
                        .map(|result| self.relayed(asking.selection, relay, result));
                }
            }
        }
        Err(Reason::Asked.error(asked, "it asks again and again"))
    }
}

/// The line that says who asks in the middle of this request (G-31).
fn who_asks(relay: &Relay, server: &str) -> String {
    match &relay.subject {
        Subject::Resource { uri } => words_of_relay("resource", uri, server),
        Subject::Prompt { name } => words_of_relay("prompt", name, server),
        Subject::List { .. } => words_of_relay("list", relay.method.as_str(), server),
    }
}
