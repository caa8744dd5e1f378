//! A request that is passed on. Its client hears of its progress and its log messages, where it asked for either.
//!
//! Made by `dispatch::relay`; read by the transports, as a call is. Nothing of it is stored: a client that leaves, or
//! cancels it, gives the request up.

use std::pin::Pin;

use longhaul_mcp::{
    Push, Reply,
    reply::Progress,
    request::{LogLevel, ProgressToken},
};
use tokio::sync::mpsc;

use super::{Left, Step, Steps};
use crate::{outbound::Log, session::feed::Seen, upstream::Event};

/// A request that is passed on. Dropping it gives it up: its server is told.
pub struct Relaying {
    token: Option<ProgressToken>,
    level: Option<LogLevel>,
    events: mpsc::Receiver<Event>,
    reply: Pin<Box<dyn Future<Output = Reply> + Send>>,
    /// The reply, once it is there: it may be asked for again.
    replied: Option<Reply>,
    progress: f64,
}

impl Relaying {
    pub(super) fn new(
        token: Option<ProgressToken>,
        level: Option<LogLevel>,
        events: mpsc::Receiver<Event>,
        reply: impl Future<Output = Reply> + Send + 'static,
    ) -> Relaying {
        Relaying {
            token,
            level,
            events,
            reply: Box::pin(reply),
            replied: None,
            progress: f64::NEG_INFINITY,
        }
    }

    /// Whether its client is told anything before the reply.
    pub(crate) fn wants_stream(&self) -> bool {
        self.token.is_some() || self.level.is_some()
    }

    fn push(&mut self, event: Event) -> Option<Push> {
        match event {
            Event::Progress(progress) => self.progressed(progress),
            Event::Log { level, logger, data } => Log { level, logger, data }.cleaned().push(self.level?),
            // Dropped, it is refused.
            Event::Ask(question) => {
                drop(question);
                None
            }
            Event::Waits(_) => None,
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
}

impl Steps for Relaying {
    async fn next(&mut self) -> Step {
        loop {
            let event = match &self.replied {
                Some(reply) => match self.events.try_recv() {
                    Ok(event) => event,
                    Err(_) => return Step::Reply(Box::new(reply.clone())),
                },
                None => tokio::select! {
                    biased;
                    Some(event) = self.events.recv() => event,
                    reply = &mut self.reply => {
                        self.replied = Some(reply);
                        continue;
                    }
                },
            };
            if let Some(push) = self.push(event) {
                return Step::Push(Box::new(push));
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
