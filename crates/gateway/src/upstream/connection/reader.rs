//! The one reader of a connection: what comes is told to whoever waits for it, in its order.
//!
//! Begun with the connection. It never waits for anybody, and what nobody waits for is counted as noise.

use std::sync::Arc;

use longhaul_mcp::{
    client::{
        self, Carrier, Era, Incoming,
        incoming::{Ask, AskKind, Notice},
    },
    frame::Obj,
};
use tokio::sync::watch;

use super::{
    super::{
        dial::number,
        link::{Heard, Inlet, Lost, Noise, Over, Via, Why, reply_to},
        outcome::{Event, Failed, Unsent},
    },
    Inner, LIMITS,
    waiting::Told,
};

impl Inner {
    /// The one reader.
    pub(super) async fn read(self: Arc<Self>, mut inlet: Inlet, mut closing: watch::Receiver<Option<Why>>) {
        let mut noise = Noise::new();
        let lost = loop {
            let heard = tokio::select! {
                biased;
                why = closed(&mut closing) => break inlet.close(why).await,
                heard = inlet.next() => heard,
            };
            match self.hear(heard) {
                Use::Some => noise.reset(),
                Use::None { bytes } => {
                    if noise.add(bytes) {
                        self.close(Why::Noise);
                    }
                }
                Use::Last(lost) => {
                    // A session that was forgotten has streams to close.
                    drop(inlet);
                    break lost;
                }
            }
        };
        self.end(Arc::new(lost));
    }

    fn end(&self, lost: Arc<Lost>) {
        self.waiting.end(&lost);
        self.questions.withdraw_all();
        self.lost.send_replace(Some(lost));
    }

    fn hear(self: &Arc<Self>, heard: Heard) -> Use {
        match heard {
            Heard::Frame { bytes, via } => self.frame(&bytes, via),
            Heard::TooLong { reply_to } => {
                let failed =
                    reply_to.is_some_and(|id| self.waiting.settle(id, Told::Failed(Failed::TooLong)));
                if !failed && !self.waiting.is_empty() {
                    // Somebody waits for it, and who cannot be told.
                    self.close(Why::TooLong);
                }
                Use::None { bytes: 0 }
            }
            Heard::Refused {
                request,
                status,
                body,
            } => {
                let told = match client::read(&body, &LIMITS) {
                    Ok(
                        Incoming::Reply {
                            outcome: Err(error), ..
                        }
                        | Incoming::Unread(error),
                    ) => Told::Reply(Err(error)),
                    Ok(
                        Incoming::Reply { outcome: Ok(_), .. } | Incoming::Notice { .. } | Incoming::Ask(_),
                    )
                    | Err(_) => Told::Failed(Failed::Status(status)),
                };
                self.used(self.waiting.settle(request, told), 0)
            }
            Heard::Over { request, over } => {
                let told = match over {
                    Over::Unsent(why) => Told::Unsent(Unsent::Unreachable(why)),
                    Over::TooLong => Told::Failed(Failed::TooLong),
                    Over::Broken(_) | Over::Cut | Over::NoReply | Over::NotJson | Over::SessionEnded => {
                        Told::Failed(Failed::Over(over))
                    }
                };
                self.used(self.waiting.settle(request, told), 0)
            }
            Heard::Lost(lost) => Use::Last(lost),
        }
    }

    fn used(&self, used: bool, bytes: usize) -> Use {
        if used { Use::Some } else { Use::None { bytes } }
    }

    fn frame(self: &Arc<Self>, bytes: &[u8], via: Via) -> Use {
        let used = match client::read(bytes, &LIMITS) {
            Ok(Incoming::Reply { id, outcome }) => {
                let id = number(&id);
                self.may_answer(id, via) && self.waiting.settle(id, Told::Reply(outcome))
            }
            Ok(Incoming::Unread(error)) => {
                let id = self.only(via);
                id.is_some_and(|id| self.waiting.settle(id, Told::Reply(Err(error))))
            }
            Ok(Incoming::Notice { notice, .. }) => self.notice(notice, via),
            Ok(Incoming::Ask(ask)) => self.asked(ask, via),
            Err(malformed) => {
                let id = match via {
                    Via::Request(id) => Some(id),
                    Via::Shared => reply_to(bytes),
                };
                let failed = Failed::Unreadable(malformed.rule.to_string());
                id.is_some_and(|id| self.waiting.settle(id, Told::Failed(failed)))
            }
        };
        self.used(used, bytes.len())
    }

    /// Over HTTP a reply comes on its request's own stream and on no other.
    fn may_answer(&self, id: u64, via: Via) -> bool {
        match via {
            Via::Request(request) => request == id || longhaul_core::fault!("any-stream-replies"),
            Via::Shared => self.outlet.carrier() == Carrier::Pipe,
        }
    }

    /// The request that something without an id belongs to, if it can be no other.
    fn only(&self, via: Via) -> Option<u64> {
        match via {
            Via::Request(request) => Some(request),
            Via::Shared => self.waiting.only(),
        }
    }

    fn notice(&self, notice: Notice, via: Via) -> bool {
        match notice {
            Notice::Progress { token, progress } => {
                let id = number(&token);
                let belongs = matches!(via, Via::Shared) || via == Via::Request(id);
                belongs && self.waiting.event(Some(id), Event::Progress(progress))
            }
            Notice::Log { level, logger, data } => {
                let id = match via {
                    Via::Request(id) => Some(id),
                    Via::Shared => self.waiting.only_call(),
                };
                self.waiting.event(id, Event::Log { level, logger, data });
                true
            }
            Notice::ToolsChanged
            | Notice::PromptsChanged
            | Notice::ResourcesChanged
            | Notice::ResourceUpdated { .. }
            | Notice::LinkDone { .. }
            | Notice::Task { .. } => {
                (self.notices)(notice);
                true
            }
            Notice::Cancelled { request, .. } => {
                self.questions.withdraw(&request);
                true
            }
            Notice::Acknowledged { .. } => true,
            Notice::Other { .. } => false,
        }
    }

    /// B-33: a stateless server asks nothing.
    fn asked(&self, ask: Ask, via: Via) -> bool {
        let Era::Session(version) = self.spoken.era else {
            return false;
        };
        let Some(question) = self.questions.take(ask, version, &self.outlet) else {
            return false;
        };
        match (question.kind, &self.ours.roots) {
            (AskKind::Ping, _) => question.answer(&Obj::default()),
            (AskKind::Roots, Some(roots)) => question.answer(roots),
            (AskKind::Other, _) => drop(question),
            (AskKind::Roots, None) | (AskKind::Sampling | AskKind::Elicitation, _) => {
                // One that no call takes is dropped, and so refused.
                self.waiting.event(self.asking_call(via), Event::Ask(question));
            }
        }
        true
    }

    /// The call whose question it is: the one whose stream carried it, or the only one that is open. Where all calls
    /// are of one owner, it is the last of several.
    fn asking_call(&self, via: Via) -> Option<u64> {
        match via {
            Via::Request(id) => Some(id),
            Via::Shared if self.ours.one_owner => self.waiting.last_call(),
            Via::Shared => self.waiting.only_call(),
        }
    }
}

/// Whether what was heard was of use.
enum Use {
    Some,
    None { bytes: usize },
    Last(Lost),
}

async fn closed(closing: &mut watch::Receiver<Option<Why>>) -> Why {
    match closing.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or(Why::Closed),
        Err(_dropped) => Why::Closed,
    }
}
