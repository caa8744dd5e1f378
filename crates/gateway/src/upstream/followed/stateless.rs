//! A task of a stateless server: it is asked how far the task is (`tasks/get`), and says so by itself where it takes a
//! subscription (D-37). Its questions stand in what it says, and each is answered as soon as its answer is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt as _},
};
use longhaul_engine::tool::Finish;
use longhaul_mcp::{
    client::{
        self,
        result::Came,
        task::{self, State, Task},
    },
    frame::{Obj, Raw},
    reply::InputRequest,
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    super::{
        asked::Unanswered,
        back_off::{BACK_OFF, Pause},
        link::at,
        outcome::{Outcome, Request},
        reason::Reason,
        relayed::errored,
        server::Line,
        talk::Said,
    },
    Ended, Following, Polls, Sent, is_unknown, lost, outcome_of,
};

/// How often a server is asked that says by itself how far a task is (D-37).
const POLL_BESIDE: Duration = Duration::from_secs(30);

/// A question of the server, its key there, and its answer; `None` when it was taken back.
type Open = BoxFuture<'static, (String, Result<Option<Raw>, Unanswered>)>;

/// What is under way on one line.
struct Watch {
    poll: Option<Sent>,
    polls: Polls,
    /// The subscription, until it ends.
    listening: Option<Sent>,
    /// It stands for this task.
    stands: Option<oneshot::Receiver<Obj>>,
    is_told: bool,
    /// The keys of all questions that were ever asked (C-26).
    seen: BTreeSet<String>,
    open: FuturesUnordered<Open>,
    /// Takes a question back.
    waits: BTreeMap<String, oneshot::Sender<()>>,
    /// What the server is to be told, and what it is being told.
    answers: Obj,
    sending: Obj,
    update: Option<Sent>,
    update_due: Option<Instant>,
    update_pause: Pause,
}

/// What comes next.
enum Next {
    Poll(Outcome),
    Told(Obj),
    Stands(Option<Obj>),
    Unheard,
    Answered(String, Result<Option<Raw>, Unanswered>),
    Updated(Outcome),
    Update,
    Ask,
}

impl Following<'_> {
    pub(super) async fn stateless(&mut self, line: &Line) -> Ended {
        let connection = line.connection();
        let context = self.talk.context();
        let is_known = self.hear(connection);
        let (listening, stands) = self.listen(line);
        let mut watch = Watch {
            poll: None,
            polls: Polls::begin(is_known, self.hint),
            listening: Some(listening),
            stands: Some(stands),
            is_told: false,
            seen: BTreeSet::new(),
            open: FuturesUnordered::new(),
            waits: BTreeMap::new(),
            answers: Obj::default(),
            sending: Obj::default(),
            update: None,
            update_due: None,
            update_pause: Pause::new(BACK_OFF),
        };
        loop {
            let next = tokio::select! {
                biased;
                () = context.stop() => return Ended::Stop,
                said = self.talk.next() => match said {
                    Said::Over => return Ended::Late,
                    Said::Nobody => return Ended::Nobody,
                    Said::Task(task) => Next::Told(task),
                },
                Some((key, answer)) = watch.open.next(), if !watch.open.is_empty() => Next::Answered(key, answer),
                outcome = outcome_of(&mut watch.update) => Next::Updated(outcome),
                outcome = outcome_of(&mut watch.poll) => Next::Poll(outcome),
                honoured = acknowledged(&mut watch.stands) => Next::Stands(honoured),
                _ = outcome_of(&mut watch.listening) => Next::Unheard,
                () = at(watch.update_due) => Next::Update,
                () = at(watch.polls.due) => Next::Ask,
            };
            if let Some(ended) = self.follow_up(&mut watch, next, line).await {
                return ended;
            }
        }
    }

    async fn follow_up(&mut self, watch: &mut Watch, next: Next, line: &Line) -> Option<Ended> {
        let connection = line.connection();
        match next {
            Next::Poll(outcome) => return self.answered(watch, outcome, line).await,
            Next::Told(task) => {
                if let Ok(task) = task::read(&task, connection.spoken().era) {
                    return self.seen_so(watch, task).await;
                }
            }
            Next::Stands(honoured) => {
                let tasks = honoured.and_then(|honoured| honoured.get::<Vec<String>>("taskIds"));
                watch.is_told = tasks.is_some_and(|tasks| tasks.contains(&self.handle.task));
                if !watch.is_told {
                    watch.listening = None;
                }
            }
            Next::Unheard => {
                if std::mem::take(&mut watch.is_told) {
                    watch.polls.hurry();
                }
            }
            Next::Answered(key, answer) => {
                watch.waits.remove(&key);
                self.talk.clock.wait(!watch.open.is_empty());
                match answer {
                    Ok(Some(answer)) => {
                        watch.answers.put(&key, answer);
                        if watch.update.is_none() {
                            watch.update_due = Some(Instant::now());
                        }
                    }
                    Ok(None) => {}
                    // Ours has ended, and this is told that by itself.
                    Err(Unanswered::Ended) => {}
                    Err(Unanswered::Nobody) if self.talk.asker.fails_when_nobody => {
                        return Some(Ended::Nobody);
                    }
                    // C-29: its generation has no word for that.
                    Err(why @ (Unanswered::Nobody | Unanswered::Declined | Unanswered::Cannot(_))) => {
                        self.stop(line).await;
                        return Some(Ended::With(errored(&Reason::Asked.error(self.asked, why.why()))));
                    }
                }
            }
            Next::Update => {
                watch.update_due = None;
                watch.sending = std::mem::take(&mut watch.answers);
                let update = task::update(&self.handle.task, &watch.sending);
                let wait = Some(self.tool.server.request_timeout());
                watch.update = Some(self.send(connection, "tasks/update", update, wait, None));
            }
            Next::Updated(outcome) => return self.updated(watch, outcome, line).await,
            Next::Ask => {
                watch.polls.ask();
                watch.poll = Some(self.get(connection));
            }
        }
        None
    }

    /// C-38. One that the server does not take ends at once, and is not tried again.
    fn listen(&self, line: &Line) -> (Sent, oneshot::Receiver<Obj>) {
        let (acknowledges, acknowledged) = oneshot::channel();
        let params = client::listen_to_tasks(std::slice::from_ref(&self.handle.task));
        let (connection, capabilities) = (line.connection().clone(), self.capabilities.clone());
        let listening = Box::pin(async move {
            let request = Request {
                method: "subscriptions/listen",
                params: Some(&params),
                capabilities: Some(&capabilities),
                ..Request::default()
            };
            connection
                .subscribe(request, acknowledges, std::future::pending())
                .await
        });
        (listening, acknowledged)
    }

    async fn updated(&mut self, watch: &mut Watch, outcome: Outcome, line: &Line) -> Option<Ended> {
        let sent = std::mem::take(&mut watch.sending);
        let is_taken = match &outcome {
            Outcome::Came(_) | Outcome::Errored(_) | Outcome::Unusable(_) => true,
            Outcome::Unsent(_) | Outcome::Failed(_) | Outcome::TimedOut | Outcome::Stopped { .. } => false,
        };
        if is_taken {
            watch.update_pause.reset();
            watch.polls.hurry();
        } else {
            // An answer that arrives twice is ignored the second time (C-25).
            for (name, answer) in sent.0 {
                watch.answers.put(&name.unescaped(), answer);
            }
        }
        if !watch.answers.0.is_empty() {
            let pause = if is_taken {
                Duration::ZERO
            } else {
                watch.update_pause.now()
            };
            watch.update_due = Some(Instant::now() + pause);
            watch.update_pause.lengthen();
        }
        self.missed(&outcome, line).await
    }

    async fn answered(&mut self, watch: &mut Watch, outcome: Outcome, line: &Line) -> Option<Ended> {
        match outcome {
            Outcome::Came(Came::Complete(result)) => {
                let task = match self.read_poll(&mut watch.polls, &result, line) {
                    Ok(task) => task,
                    Err(ended) => return ended,
                };
                let ended = self.seen_so(watch, task).await;
                let hint = if watch.is_told {
                    self.hint.max(POLL_BESIDE)
                } else {
                    self.hint
                };
                watch.polls.answered(hint);
                ended
            }
            // D-15
            Outcome::Errored(error) if is_unknown(&error) => Some(lost()),
            outcome @ (Outcome::Came(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut
            | Outcome::Stopped { .. }) => {
                watch.polls.missed(self.hint);
                self.unsaid(&outcome, line).await
            }
        }
    }

    async fn seen_so(&mut self, watch: &mut Watch, task: Task) -> Option<Ended> {
        self.heed(&task);
        match task.state {
            State::Working => {
                self.ask(watch, &[]).await;
                None
            }
            State::Asking(requests) => {
                self.ask(watch, &requests).await;
                None
            }
            State::Came(result) => Some(self.with(Outcome::Came(Came::Complete(result)))),
            State::Errored(error) => Some(self.with(Outcome::Errored(error))),
            State::Cancelled => Some(Ended::With(Finish::Cancelled)),
            // No stateless server says so little.
            State::Settled { .. } => None,
        }
    }

    /// Asks what was not asked before, all at once, and takes back what the server does not ask any more (C-20).
    async fn ask(&mut self, watch: &mut Watch, requests: &[InputRequest]) {
        let is_asked = |key: &String| requests.iter().any(|request| request.key == *key);
        let gone: Vec<String> = watch.waits.keys().filter(|key| !is_asked(key)).cloned().collect();
        for key in gone {
            drop(watch.waits.remove(&key));
        }
        let new = requests
            .iter()
            .filter(|request| watch.seen.insert(request.key.clone()));
        let new: Vec<InputRequest> = new.cloned().collect();
        if new.is_empty() {
            return;
        }
        let answers = match self.talk.ask_each(&new).await {
            Ok(answers) => answers,
            // Ours has ended, and this is told that by itself.
            Err(_ended) => return,
        };
        for (request, answer) in new.into_iter().zip(answers) {
            let (wait, gone) = oneshot::channel::<()>();
            watch.waits.insert(request.key.clone(), wait);
            watch.open.push(Box::pin(async move {
                let gone = async { drop(gone.await) };
                (request.key, answer.until(gone).await)
            }));
        }
        self.talk.clock.wait(true);
    }
}

/// Waits until the server says for what a subscription stands; `None` when it does not begin. Cancel-safe.
async fn acknowledged(stands: &mut Option<oneshot::Receiver<Obj>>) -> Option<Obj> {
    match stands {
        Some(acknowledged) => {
            let honoured = acknowledged.await.ok();
            *stands = None;
            honoured
        }
        None => std::future::pending().await,
    }
}
