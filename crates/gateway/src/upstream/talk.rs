//! What a server says of one call while it is at work, and what becomes of it: notes and log messages of the call's task,
//! and questions to whoever called. The time of the call is counted here, too.
//!
//! Begun by `relayed` for each attempt, and handed on to `followed` where the server makes a task of the call: nothing
//! that is said between the two is missed.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt as _},
};
use longhaul_core::{Body, Span};
use longhaul_engine::tool::{Context, Earlier, Ended};
use longhaul_mcp::{frame::Obj, reply::InputRequest};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{
    asked::{Asker, NobodyAnswers, ToCome},
    connection::Kept,
    link::at,
    outcome::{EVENTS_MAX, Event, Outcome},
    question::{Question, Remembered},
    streamed::Whose,
};
use crate::{
    outbound::{Log, Note},
    question::Kind,
};

/// A call that takes longer is kept, where it can be gone on with after a restart; a shorter one is over by then.
const KEPT_AFTER: Duration = Duration::from_secs(1);

/// What is said of one call.
pub(super) struct Talk {
    pub(super) asker: Asker,
    pub(super) clock: Clock,
    context: Context,
    /// The task's short name.
    name: String,
    events: mpsc::Sender<Event>,
    told: mpsc::Receiver<Event>,
    /// The questions that are open.
    open: FuturesUnordered<BoxFuture<'static, Result<(), NobodyAnswers>>>,
    /// The call has ended for us, and what is open of it is to end at the server, too.
    is_over: Arc<AtomicBool>,
    /// A question was open that nobody can answer, and the call is to fail for it.
    is_nobody: bool,
    /// Those of them that a server may send again, and on how many streams it could ask before.
    remembered: Vec<Remembered>,
    streams: u32,
    /// What the task shows.
    shown: Note,
    /// What the server said last of its own task.
    status: Option<String>,
    /// Whose call it is; `None` of one that is never gone on with.
    whose: Option<Whose>,
    /// It can be gone on with, and is not kept yet.
    unkept: Option<Unkept>,
    /// It is being kept.
    keeping: Option<BoxFuture<'static, ()>>,
    /// It was kept, or is gone on with.
    goes_on: bool,
}

/// A call that can be gone on with.
struct Unkept {
    handle: Body,
    kept: Kept,
    /// When it is to be kept, unless it asks before.
    due: Instant,
}

/// What whoever waits for the call has to know.
pub(super) enum Said {
    /// Its time is over. It is said once.
    Over,
    /// It asks what nobody can answer, and the call is to fail for it.
    Nobody,
    /// How far the server's own task is, as it wrote it.
    Task(Obj),
}

impl Talk {
    /// Of a call that may take this long.
    pub(super) fn begin(asker: Asker, context: Context, name: String, limit: Option<Span>) -> Talk {
        let (events, told) = mpsc::channel(EVENTS_MAX);
        Talk {
            asker,
            clock: Clock::start(limit),
            context,
            name,
            events,
            told,
            open: FuturesUnordered::new(),
            is_over: Arc::default(),
            is_nobody: false,
            remembered: Vec::new(),
            streams: 0,
            shown: Note::default(),
            status: None,
            whose: None,
            unkept: None,
            keeping: None,
            goes_on: false,
        }
    }

    /// It is gone on with after a restart, where its server lets it.
    pub(super) fn keep_for(&mut self, whose: Whose) {
        self.whose = Some(whose);
    }

    /// What asks goes on without this process: what is open when that ends is not answered for it.
    pub(super) fn goes_on(&mut self) {
        self.goes_on = true;
        // It has a handle, or is to have another.
        self.unkept = None;
    }

    pub(super) fn context(&self) -> Context {
        self.context.clone()
    }

    /// What came of the call, without what may not be shown to whoever called (D-28).
    pub(super) fn fit_to_show(&self, outcome: Outcome) -> Outcome {
        outcome.fit_to_show(self.asker.reach, &self.name)
    }

    /// Asks these of the task, and returns as soon as that is stored.
    ///
    /// # Errors
    /// The task ended first.
    pub(super) async fn ask_each(&mut self, requests: &[InputRequest]) -> Result<Vec<ToCome>, Ended> {
        self.asker.ask_each(&self.context, requests).await
    }

    /// Where the server's words go.
    pub(super) fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }

    /// Takes care of what is said, until something has to be known outside. Cancel-safe.
    pub(super) async fn next(&mut self) -> Said {
        loop {
            if std::mem::take(&mut self.is_nobody) {
                // A server that waits for another answer as well would not hear that it is to stop.
                self.is_over.store(true, Ordering::SeqCst);
                self.open = FuturesUnordered::new();
                return Said::Nobody;
            }
            tokio::select! {
                biased;
                // This holds a sender, so it never ends.
                Some(event) = self.told.recv() => if let Some(said) = self.take(event) {
                    return said;
                },
                Some(replied) = self.open.next(), if !self.open.is_empty() => {
                    self.clock.wait(!self.open.is_empty());
                    self.is_nobody |= replied.is_err();
                }
                () = at(self.unkept.as_ref().map(|unkept| unkept.due)) => self.keeping = self.keep(),
                () = until_kept(&mut self.keeping) => self.keeping = None,
                () = self.clock.over() => {
                    self.clock.ends = None;
                    return Said::Over;
                }
            }
        }
    }

    /// It is said again that nobody can answer.
    pub(super) fn nobody_answers(&mut self) {
        self.is_nobody = true;
    }

    fn take(&mut self, event: Event) -> Option<Said> {
        match event {
            Event::Progress(progress) => {
                let message = progress.message.as_deref().or(self.status.as_deref());
                self.show(Note::new(Some(progress.progress), progress.total, message));
            }
            Event::Waits(processes) => {
                let text = processes.map(|processes| match processes {
                    1 => "waiting for the server's one process".to_owned(),
                    several => format!("waiting for one of the server's {several} processes"),
                });
                self.show(Note::new(None, None, text.as_deref()));
            }
            Event::Runs(program) => self.context.runs(program),
            Event::Log { level, logger, data } => {
                let log = Log { level, logger, data }.cleaned();
                self.context.tell(log.encode());
            }
            Event::Ask(question) => self.ask(question),
            Event::Placed(stream, kept) => {
                self.unkept = self.whose.as_ref().map(|whose| Unkept {
                    handle: whose.handle(stream).encode(),
                    kept,
                    due: Instant::now() + KEPT_AFTER,
                });
            }
            Event::Task(task) => return Some(Said::Task(task)),
        }
        None
    }

    fn ask(&mut self, mut question: Question) {
        if self.is_over.load(Ordering::SeqCst) {
            // Dropped, it is answered with the word for that nobody chose.
            return;
        }
        let keeping = self.keep();
        if self.goes_on || question.is_of_task() {
            question.open_until(&self.is_over);
        }
        self.remembered.retain(Remembered::is_open);
        for remembered in &self.remembered {
            question = match remembered.take(question, self.streams) {
                Some(other) => other,
                None => return,
            };
        }
        self.remembered.push(question.remembered(self.streams));
        let asker = self.asker.clone();
        self.open.push(Box::pin(async move {
            if let Some(keeping) = keeping {
                keeping.await;
            }
            asker.reply(question).await
        }));
        self.clock.wait(true);
    }

    /// Goes on with a question from before a restart: it is asked again, or answered again.
    pub(super) fn ask_again(&mut self, mut question: Question, kind: Kind, earlier: Earlier) {
        question.open_until(&self.is_over);
        self.open
            .push(Box::pin(self.asker.clone().reply_again(question, kind, earlier)));
        self.clock.wait(true);
    }

    /// Writes down how the call can be gone on with, if that is to be done. It is not told to stop with this process then.
    fn keep(&mut self) -> Option<BoxFuture<'static, ()>> {
        let Unkept { handle, kept, .. } = self.unkept.take()?;
        let context = self.context();
        self.goes_on();
        kept.keep();
        Some(Box::pin(async move {
            // One that has ended meanwhile is stopped by whoever waits for it.
            let _ended = context.attach(handle).await;
        }))
    }

    /// The server has a new stream to ask on, and may ask there again what it asked on the last one.
    pub(super) fn another_stream(&mut self) {
        self.streams += 1;
    }

    fn show(&mut self, note: Note) {
        self.shown = note;
        self.context.note(self.shown.encode());
    }

    /// The server says this of its own task, or it is to be said of it. What was said before is not said again.
    pub(super) fn say(&mut self, status: &str) {
        if self.status.as_deref() != Some(status) {
            self.status = Some(status.to_owned());
            let message = Note::new(None, None, Some(status)).message;
            self.show(Note {
                message,
                ..self.shown.clone()
            });
        }
    }

    /// The request has ended, and no task follows it: what it said at last is passed on, what it asked is not answered
    /// any more.
    pub(super) fn end_request(&mut self) {
        while let Ok(event) = self.told.try_recv() {
            match event {
                // Dropped, it is refused.
                Event::Ask(question) => drop(question),
                // It is over.
                Event::Placed(..) | Event::Runs(_) => {}
                event @ (Event::Progress(_) | Event::Log { .. } | Event::Waits(_) | Event::Task(_)) => {
                    // Of what is no question nobody outside has to know.
                    drop(self.take(event));
                }
            }
        }
        self.is_over.store(true, Ordering::SeqCst);
        self.open = FuturesUnordered::new();
        self.is_over.store(false, Ordering::SeqCst);
        (self.unkept, self.keeping) = (None, None);
        self.clock.wait(false);
    }

    /// The task has ended, and so its questions will be settled at once: the server is told of each.
    pub(super) async fn settle(&mut self, within: Duration) {
        self.is_over.store(true, Ordering::SeqCst);
        // One that cannot be told by then does not read.
        let _late = timeout(within, async { while self.open.next().await.is_some() {} }).await;
    }
}

/// Waits until a call is kept, where it is being kept. Cancel-safe.
async fn until_kept(keeping: &mut Option<BoxFuture<'static, ()>>) {
    match keeping {
        Some(keeping) => keeping.await,
        None => pending().await,
    }
}

/// The time of one call, which stands still while its caller is asked.
pub(super) struct Clock {
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
    pub(super) fn wait(&mut self, waits: bool) {
        match (waits, self.waits_since) {
            (true, None) => self.waits_since = Some(Instant::now()),
            (false, Some(since)) => {
                self.ends = self.ends.map(|ends| ends + since.elapsed());
                self.waits_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// The time is over, whatever is open.
    pub(super) fn end(&mut self) {
        self.waits_since = None;
        self.ends = Some(Instant::now());
    }

    /// Resolves when the time is over. Cancel-safe.
    pub(super) async fn over(&self) {
        at(self.ends.filter(|_| self.waits_since.is_none())).await;
    }
}
