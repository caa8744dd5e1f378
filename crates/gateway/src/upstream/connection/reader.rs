//! The one reader of a connection: what comes is told to whoever waits for it, in its order.
//!
//! Begun with the connection. It waits for nobody, but reads on more slowly where too much comes that nobody waits
//! for.

use std::sync::Arc;

use longhaul_mcp::{
    client::{
        self, Carrier, Era, Incoming,
        incoming::{Ask, AskKind, Notice},
        result::{self, Came},
        task,
    },
    frame::{Obj, Raw},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    super::{
        dial::number,
        link::{Heard, Inlet, Lost, Noise, Over, Via, Why, reply_to},
        outcome::{Event, Failed, Unsent},
        streamed::Streamed,
    },
    Inner, LIMITS,
    pace::{Pace, Step},
    waiting::Told,
};

/// The longest notification that is kept whole, in bytes; many wait for whoever reads them.
const NOTICE_BYTES_MAX: usize = 8 << 10;
/// The longest reply that can say that the server made a task of a call, in bytes.
const CREATED_BYTES_MAX: usize = 64 << 10;
/// The longest request of a server, in bytes; none that is longer can be a question (`limits.question_max`).
const ASK_BYTES_MAX: usize = 128 << 10;

impl Inner {
    /// The one reader.
    pub(super) async fn read(self: Arc<Self>, mut inlet: Inlet, mut closing: watch::Receiver<Option<Why>>) {
        let mut noise = Noise::new();
        let mut pace = Pace::new(Instant::now());
        let lost = loop {
            let heard = tokio::select! {
                biased;
                why = closed(&mut closing) => break inlet.close(why).await,
                heard = inlet.next() => heard,
            };
            match self.hear(heard) {
                Use::Reply => {
                    noise.reset();
                    inlet.replied();
                }
                Use::Told => match pace.take(Instant::now()) {
                    Step::On => {}
                    Step::Pause(pause) => tokio::select! {
                        biased;
                        why = closed(&mut closing) => break inlet.close(why).await,
                        () = sleep(pause) => {}
                    },
                    Step::End => self.close(Why::Flood),
                },
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
                // The link counts so long a line itself.
                Use::reply(failed, 0)
            }
            Heard::Refused {
                request,
                status,
                body,
            } => {
                let told = match client::read(&body, &LIMITS) {
                    // Whatever its body says, it was not taken.
                    _ if status == 401 => Told::Failed(Failed::Status(status)),
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
                Use::reply(self.waiting.settle(request, told), 0)
            }
            Heard::Placed { request, after } => {
                if let (Era::Session(version), Some(session)) = (self.spoken.era, self.outlet.session_id()) {
                    self.waiting.placed(Streamed {
                        session,
                        version,
                        request,
                        after,
                    });
                }
                Use::Told
            }
            Heard::Over { request, over } => {
                let told = match over {
                    Over::Unsent(why) => Told::Unsent(Unsent::Unreachable(why)),
                    Over::TooLong => Told::Failed(Failed::TooLong),
                    Over::Broken(_) | Over::Cut | Over::NoReply | Over::NotJson | Over::SessionEnded => {
                        Told::Failed(Failed::Over(over))
                    }
                };
                Use::reply(self.waiting.settle(request, told), 0)
            }
            Heard::Lost(lost) => Use::Last(lost),
        }
    }

    fn frame(self: &Arc<Self>, frame: &[u8], via: Via) -> Use {
        let bytes = frame.len();
        match client::read(frame, &LIMITS) {
            Ok(Incoming::Reply { id, outcome }) => {
                let id = number(&id);
                let told = self.may_answer(id, via)
                    && match self.task_in(&outcome) {
                        Some(task) => self.waiting.settle_as_task(id, task, Told::Reply(outcome)),
                        None => self.waiting.settle(id, Told::Reply(outcome)),
                    };
                self.reply(told, via, bytes, "it answers another request")
            }
            Ok(Incoming::Unread(error)) => {
                let id = self.only(via);
                let told = id.is_some_and(|id| self.waiting.settle(id, Told::Reply(Err(error))));
                Use::reply(told, bytes)
            }
            Ok(Incoming::Notice {
                notice,
                subscription,
                task,
            }) => {
                let place = Belongs {
                    via,
                    subscription: subscription.as_ref().map(number),
                    task: task.filter(|task| self.waiting.follows(task)),
                };
                let told = shortened(notice, bytes).is_some_and(|notice| self.notice(notice, &place));
                self.told(told, via, bytes)
            }
            Ok(Incoming::Ask(ask)) => self.told(self.asked(ask, via, bytes), via, bytes),
            Err(malformed) => {
                let failed = Failed::Unreadable(malformed.rule.to_string());
                let id = reply_to(frame).filter(|id| self.may_answer(*id, via));
                let told = id.is_some_and(|id| self.waiting.settle(id, Told::Failed(failed)));
                self.reply(told, via, bytes, &malformed.rule.to_string())
            }
        }
    }

    /// Where nothing comes after what was no reply, whoever waits is told.
    fn reply(&self, told: bool, via: Via, bytes: usize, why: &str) -> Use {
        match via {
            Via::Whole(id) if !told => {
                let failed = Failed::Unreadable(why.to_owned());
                Use::reply(self.waiting.settle(id, Told::Failed(failed)), bytes)
            }
            Via::Whole(_) | Via::Request(_) | Via::Shared => Use::reply(told, bytes),
        }
    }

    fn told(&self, told: bool, via: Via, bytes: usize) -> Use {
        match via {
            Via::Whole(_) => self.reply(false, via, bytes, "it is no reply"),
            Via::Request(_) | Via::Shared if told => Use::Told,
            Via::Request(_) | Via::Shared => Use::None { bytes },
        }
    }

    /// Over HTTP a reply comes on its request's own stream and on no other.
    fn may_answer(&self, id: u64, via: Via) -> bool {
        match via {
            Via::Request(request) | Via::Whole(request) => {
                request == id || longhaul_core::fault!("any-stream-replies")
            }
            Via::Shared => self.outlet.carrier() == Carrier::Pipe,
        }
    }

    /// The request that something without an id belongs to, if it can be no other.
    fn only(&self, via: Via) -> Option<u64> {
        match via {
            Via::Request(request) | Via::Whole(request) => Some(request),
            Via::Shared => self.waiting.only(),
        }
    }

    /// The task that the server made of a call, where a reply says so. One that is larger holds a result.
    fn task_in(&self, outcome: &Result<Raw, Raw>) -> Option<String> {
        let result = outcome.as_ref().ok()?;
        if result.text().len() > CREATED_BYTES_MAX || !result.text().contains("taskId") {
            return None;
        }
        match result::read(result.clone(), self.spoken.era) {
            Ok(Came::Task { task, .. }) => Some(task),
            Ok(Came::Complete(_) | Came::InputRequired { .. }) | Err(_) => None,
        }
    }

    fn notice(&self, notice: Notice, place: &Belongs) -> bool {
        let &Belongs {
            via, subscription, ..
        } = place;
        match notice {
            Notice::Progress { token, progress } => {
                let id = number(&token);
                let belongs = matches!(via, Via::Shared) || via == Via::Request(id);
                if belongs && self.waiting.listens(Some(id)) {
                    return self.waiting.event(Some(id), Event::Progress(progress));
                }
                // it goes on after the reply, on whichever stream there is.
                self.waiting.event_of_tasks_call(id, Event::Progress(progress))
            }
            Notice::Log { level, logger, data } => {
                if let Some(task) = &place.task {
                    return self
                        .waiting
                        .event_of_task(task, Event::Log { level, logger, data });
                }
                let id = self.call_of(via);
                if self.waiting.listens(id) {
                    return self.waiting.event(id, Event::Log { level, logger, data });
                }
                (self.notices)(Notice::Log { level, logger, data });
                true
            }
            Notice::ToolsChanged
            | Notice::PromptsChanged
            | Notice::ResourcesChanged
            | Notice::ResourceUpdated { .. }
            | Notice::LinkDone { .. } => {
                (self.notices)(notice);
                true
            }
            Notice::Task { task, params } => {
                let status: String = params.get("status").unwrap_or_default();
                self.waiting.task_is(&task, &status, params.get("statusMessage"));
                self.waiting.event_of_task(&task, Event::Task(params))
            }
            Notice::Cancelled { request, .. } => {
                self.questions.withdraw(&request);
                true
            }
            Notice::Acknowledged { notifications } => {
                let id = subscription.or_else(|| self.only(via));
                self.waiting.acknowledge(id, notifications);
                true
            }
            Notice::Other { .. } => false,
        }
    }

    /// B-33: a stateless server asks nothing.
    fn asked(&self, ask: Ask, via: Via, bytes: usize) -> bool {
        let Era::Session(version) = self.spoken.era else {
            return false;
        };
        if bytes > ASK_BYTES_MAX {
            self.questions
                .refuse(&ask.id, "The request is too large", version, &self.outlet);
            return false;
        }
        let task = ask.params.as_ref().and_then(task::related);
        let task = task.filter(|task| self.waiting.follows(task));
        let message: Option<String> = ask.params.as_ref().and_then(|params| params.get("message"));
        let Some(question) = self.questions.take(ask, version, &self.outlet) else {
            return false;
        };
        match (question.kind, &self.ours.roots) {
            (AskKind::Ping, _) => question.answer(&Obj::default()),
            (AskKind::Roots, Some(roots)) => question.answer(roots),
            // D-29: it was not told that it may.
            (AskKind::Roots, None) | (AskKind::Sampling | AskKind::Elicitation, _)
                if !question.is_among(self.may_ask) && !longhaul_core::fault!("asks-undeclared") =>
            {
                question.refuse_undeclared();
            }
            (AskKind::Other, _) => drop(question),
            (AskKind::Roots, None) | (AskKind::Sampling | AskKind::Elicitation, _) => {
                self.give(Event::Ask(question), task, message.as_deref(), via);
            }
        }
        true
    }

    /// Gives a question to the task that it names, or the call or task that it can belong to. One that nobody takes is
    /// dropped, and so refused.
    fn give(&self, question: Event, task: Option<String>, message: Option<&str>, via: Via) {
        if let Some(task) = task {
            self.waiting.task_has_asked(&task);
            self.waiting.event_of_task(&task, question);
            return;
        }
        let call = self.call_of(via);
        let question = match via {
            // Some servers do not say that it is their task which asks.
            Via::Shared => match self.waiting.ask_of_task(question, message, call.is_some()) {
                None => return,
                Some(question) => question,
            },
            Via::Request(_) | Via::Whole(_) => question,
        };
        self.waiting.event(call, question);
    }

    /// The call that something belongs to which names no request, a question or a log message: the one whose stream
    /// carried it, or the only one that is open. Where all calls are of one owner, it is the last of several.
    fn call_of(&self, via: Via) -> Option<u64> {
        match via {
            Via::Request(id) | Via::Whole(id) => Some(id),
            Via::Shared if self.ours.one_owner => self.waiting.last_call(),
            Via::Shared => self.waiting.only_call(),
        }
    }
}

/// Where a notification came, and what it says that it belongs to.
struct Belongs {
    via: Via,
    subscription: Option<u64>,
    /// A task of the server that somebody follows.
    task: Option<String>,
}

/// What was heard was of use for.
enum Use {
    /// A request that waited.
    Reply,
    /// Something that the server says of its own accord.
    Told,
    /// Nothing.
    None {
        bytes: usize,
    },
    Last(Lost),
}

impl Use {
    fn reply(told: bool, bytes: usize) -> Use {
        if told { Use::Reply } else { Use::None { bytes } }
    }
}

/// A notification that may be kept until somebody reads it. A long log message or line of status text is cut; any other
/// long one is dropped.
fn shortened(notice: Notice, bytes: usize) -> Option<Notice> {
    if bytes <= NOTICE_BYTES_MAX {
        return Some(notice);
    }
    let cut = |text: &str| text[..text.floor_char_boundary(NOTICE_BYTES_MAX / 2)].to_owned();
    match notice {
        Notice::Log { level, logger, data } => {
            let text = data.read::<String>().unwrap_or_else(|_| data.text().to_owned());
            let text = format!("{}… ({} bytes)", cut(&text), text.len());
            let data = Raw::string(&text);
            Some(Notice::Log {
                level,
                logger: logger.as_deref().map(cut),
                data,
            })
        }
        Notice::Progress { token, mut progress } => {
            progress.message = progress.message.as_deref().map(cut);
            Some(Notice::Progress { token, progress })
        }
        Notice::ToolsChanged
        | Notice::PromptsChanged
        | Notice::ResourcesChanged
        | Notice::ResourceUpdated { .. }
        | Notice::Cancelled { .. }
        | Notice::Task { .. }
        | Notice::LinkDone { .. }
        | Notice::Acknowledged { .. }
        | Notice::Other { .. } => None,
    }
}

async fn closed(closing: &mut watch::Receiver<Option<Why>>) -> Why {
    match closing.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or(Why::Closed),
        Err(_dropped) => Why::Closed,
    }
}
