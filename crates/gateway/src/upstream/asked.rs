//! What a server behind this one asks in the middle of a request, and its answer in the words of the server's
//! generation.
//!
//! Called by `relayed`, whose questions are those of a task, and by `dispatch::relay`, whose questions are its client's
//! alone. It asks through the engine or an inquiry, and sends nothing itself.

use std::{
    future::{Future, pending},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures_util::future::try_join_all;
use longhaul_core::event::Ask;
use longhaul_engine::tool::{Asked, Context, Earlier, Ended, Settled};
use longhaul_mcp::{
    RpcError,
    client::incoming::Mode,
    frame::{Obj, Raw},
    reply::InputRequest,
    request::{Answers, RequestId},
    url_rule::Reach,
};

use tokio::sync::{mpsc, oneshot};

use super::{pool::LinksDone, question::Repeats};
use crate::{
    outbound::{self, Question, Unasked},
    question::{Kind, Stored},
};

/// The most questions of one request that wait until its client can be told.
const INQUIRIES_MAX: usize = 64;

/// Where it is asked.
#[derive(Clone)]
pub(crate) enum Whom {
    /// A task, whose questions are durable.
    Task(Context),
    /// The client of one request, for as long as that waits.
    Client {
        /// Takes the questions.
        inquiries: mpsc::Sender<Inquiry>,
        /// The line that says who asks (G-31).
        who: String,
    },
}

/// A question to the client of one request that is no task.
#[derive(Debug)]
pub(crate) struct Inquiry {
    /// What is asked.
    pub question: Stored,
    /// The line that says who asks.
    pub who: String,
    /// Takes the answer. It is closed when nobody waits for one any more; dropped, the request ends unanswered.
    pub settled: oneshot::Sender<Settled>,
}

impl Inquiry {
    /// The way of the questions of one request to its client.
    pub(crate) fn channel() -> (mpsc::Sender<Inquiry>, mpsc::Receiver<Inquiry>) {
        mpsc::channel(INQUIRIES_MAX)
    }

    /// What the client is to be asked, as it is sent it.
    pub(crate) fn told(&self) -> Raw {
        self.question.clone().told_by(&self.who)
    }
}

impl Whom {
    /// Whether what asks has ended for good.
    async fn is_over(&self) -> bool {
        match self {
            Whom::Task(context) => context.is_over().await,
            Whom::Client { .. } => true,
        }
    }

    async fn ask_until(
        &self,
        asks: Vec<Ask>,
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Option<Vec<Settled>>, Ended> {
        match self {
            Whom::Task(context) => context.ask_until(asks, gone).await,
            Whom::Client { inquiries, who } => {
                let mut settled = Vec::new();
                for ask in asks {
                    let question = Stored::decode(&ask.body).ok_or(Ended)?;
                    let (answer, answered) = oneshot::channel();
                    let inquiry = Inquiry {
                        question,
                        who: who.clone(),
                        settled: answer,
                    };
                    inquiries.send(inquiry).await.map_err(|_| Ended)?;
                    settled.push(answered);
                }
                tokio::select! {
                    settled = try_join_all(settled) => settled.map(Some).map_err(|_| Ended),
                    () = gone => Ok(None),
                }
            }
        }
    }
}

/// What one request may ask, and of whom.
#[derive(Clone)]
pub(crate) struct Asker {
    /// Where it is asked.
    pub whom: Whom,
    /// What the caller can be asked, and the server may ask.
    pub answers: Answers,
    /// What is answered in the caller's place, where the server's settings say the roots.
    pub roots: Option<Obj>,
    /// How far a link may lead them.
    pub reach: Reach,
    /// The largest question, in bytes (`limits.question_max`).
    pub bytes_max: u64,
    /// A question that nobody can answer ends the call (`on_nobody`).
    pub fails_when_nobody: bool,
    /// What was asked before a call was gone on with whose server asks all of it again: what was answered is not asked
    /// again.
    pub earlier: Arc<Vec<Earlier>>,
    /// What is asked again since a restart, and open: its server may send it, too.
    pub again: Arc<Mutex<Vec<Again>>>,
}

/// The digest of a question, and where it is put when its server sends it, too.
type Again = ([u8; 32], Weak<Repeats>);

/// Why a server gets no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The task, or the request, ended first.
    Ended,
    /// Nobody can answer, or the server may not ask this.
    Nobody,
    /// It was asked and not answered, and the server's generation has no word for that.
    Declined,
    /// It cannot be asked.
    Cannot(String),
}

impl Unanswered {
    /// For whoever reads why the call failed.
    pub(crate) fn why(self) -> String {
        match self {
            Unanswered::Ended => "the call ended".to_owned(),
            Unanswered::Nobody => Unasked::Nobody.to_string(),
            Unanswered::Declined => "the client did not answer".to_owned(),
            Unanswered::Cannot(why) => why,
        }
    }
}

/// What became of links that were to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// They are open, or one of them is done with: the request is made again.
    All,
    /// Not all of them.
    NotAll,
}

/// Nobody can answer, and the call is to fail for it.
pub(crate) struct NobodyAnswers;

/// The answer to one question, which is to come.
pub(super) enum ToCome {
    /// It was asked.
    Open(Kind, Asked),
    /// It is known.
    Known(Result<Raw, Unanswered>),
}

impl ToCome {
    /// Waits for it: seconds, or days. `None` when `gone` resolves first: the question is taken back then.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub(super) async fn until(
        self,
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Option<Raw>, Unanswered> {
        match self {
            ToCome::Open(kind, asked) => {
                let settled = asked.settled_until(gone).await;
                let settled = settled.map_err(|_| Unanswered::Ended)?;
                settled.map(|settled| answer(kind, &settled)).transpose()
            }
            ToCome::Known(answer) => answer.map(Some),
        }
    }
}

impl Asker {
    /// Asks these together, and waits until all are settled: seconds, or days. Returns the answers by their keys.
    ///
    /// # Errors
    /// [`Unanswered`]; nothing is to be sent then.
    pub(crate) async fn ask(&self, requests: &[InputRequest]) -> Result<Obj, Unanswered> {
        let answers = self.ask_until(requests, None, pending()).await?;
        Ok(answers.unwrap_or_default())
    }

    /// Asks to open the links without which a request is refused, until the server says that one of them is done
    /// with.
    ///
    /// # Errors
    /// As [`Asker::ask`].
    pub(crate) async fn open(
        &self,
        links: &[InputRequest],
        done: &mut LinksDone,
    ) -> Result<Opened, Unanswered> {
        let Some(answers) = self.ask_until(links, None, done.any_of(links)).await? else {
            return Ok(Opened::All);
        };
        let is_accepted = |answer: &Raw| {
            let answer = answer.read::<Obj>().unwrap_or_default();
            answer.get::<String>("action").as_deref() == Some("accept")
        };
        match answers.0.iter().all(|(_, answer)| is_accepted(answer)) {
            true => Ok(Opened::All),
            false => Ok(Opened::NotAll),
        }
    }

    /// As [`Asker::ask`], until `gone` resolves: what is still open then is taken back.
    /// `server_id` is that of a session's server's own request.
    pub(super) async fn ask_until(
        &self,
        requests: &[InputRequest],
        server_id: Option<&RequestId>,
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Option<Obj>, Unanswered> {
        let mut answers = Obj::default();
        let (mut asked, mut asks) = (Vec::new(), Vec::new());
        for request in requests {
            match self.known(request)? {
                Ok(answer) => answers.set(&request.key, &answer),
                Err((kind, ask)) => match server_id.and_then(|id| self.earlier(&ask, id)) {
                    Some(settled) => answers.set(&request.key, &answer(kind, &settled)?),
                    None => {
                        asked.push((&request.key, kind));
                        asks.push(under(ask, server_id));
                    }
                },
            }
        }
        if asks.is_empty() {
            return Ok(Some(answers));
        }
        let settled = self.whom.ask_until(asks, gone).await;
        let Some(settled) = settled.map_err(|_| Unanswered::Ended)? else {
            return Ok(None);
        };
        for ((key, kind), settled) in asked.into_iter().zip(&settled) {
            answers.set(key, &answer(kind, settled)?);
        }
        Ok(Some(answers))
    }

    /// Asks these together of the task of this context, and returns as soon as they are stored, with the answer to each
    /// that is to come, in their order.
    ///
    /// # Errors
    /// The task ended first.
    pub(super) async fn ask_each(
        &self,
        context: &Context,
        requests: &[InputRequest],
    ) -> Result<Vec<ToCome>, Ended> {
        let (mut known, mut asks) = (Vec::new(), Vec::new());
        for request in requests {
            known.push(match self.known(request) {
                Ok(Ok(answer)) => Ok(Ok(answer)),
                Ok(Err((kind, ask))) => {
                    asks.push(ask);
                    Err(kind)
                }
                Err(unanswered) => Ok(Err(unanswered)),
            });
        }
        let mut asked = context.ask_each(asks).await?.into_iter();
        let to_come = known.into_iter().filter_map(|known| match known {
            Ok(answer) => Some(ToCome::Known(answer)),
            Err(kind) => asked.next().map(|asked| ToCome::Open(kind, asked)),
        });
        Ok(to_come.collect())
    }

    /// The answer that is known without asking; else what is to be asked.
    fn known(&self, request: &InputRequest) -> Result<Result<Raw, (Kind, Ask)>, Unanswered> {
        Ok(match (self.checked(request), &self.roots) {
            (Ok((Kind::Roots, _)), Some(roots)) => Ok(roots.to_raw()),
            (Ok((kind, ask)), _) => Err((kind, ask)),
            (Err((_, Unasked::Nobody)), _) if self.fails_when_nobody => return Err(Unanswered::Nobody),
            // D-29: nobody chose.
            (Err((Some(Kind::Form | Kind::Url), Unasked::Nobody)), _) => Ok(plain("cancel")),
            // A form or a link that is not shown counts as declined.
            (Err((Some(Kind::Form | Kind::Url), _)), _) => Ok(plain("decline")),
            (Err((_, Unasked::Nobody)), _) => return Err(Unanswered::Nobody),
            (Err((_, why)), _) => return Err(Unanswered::Cannot(why.to_string())),
        })
    }

    /// Whether these may pass to a client as they came: it can be asked them all, and none of them would be declined
    /// unseen.
    pub(crate) fn lets_pass(&self, requests: &[InputRequest]) -> bool {
        requests.iter().all(|request| match self.checked(request) {
            Ok(_) => true,
            Err((_, Unasked::Nobody | Unasked::Secret { .. } | Unasked::Link(_))) | Err((None, _)) => false,
            Err((Some(_), _)) => true,
        })
    }

    /// Asks what a session's server asks in the middle of a request, and answers it. What cannot be asked is refused, and
    /// what the server takes back is taken back here.
    ///
    /// # Errors
    /// Nobody can answer, and the request is to fail for it.
    pub(crate) async fn reply(self, mut asked: super::Question) -> Result<(), NobodyAnswers> {
        let mut ask = Obj::default();
        ask.set("method", &asked.method);
        if let Some(params) = &asked.params {
            ask.put("params", params.to_raw());
        }
        let request = InputRequest {
            key: String::new(),
            ask: ask.to_raw(),
        };
        if let Some(first) = self.open_again(&request) {
            asked = match asked.put_beside(&first) {
                Some(question) => question,
                None => return Ok(()),
            };
        }
        let id = asked.id().clone();
        let answers = self.ask_until(&[request], Some(&id), asked.withdrawn()).await;
        let answered = answers.map(|answers| answers.and_then(|answers| answers.obj("")));
        self.pass_on(asked, answered).await
    }

    /// Goes on with a question from before a restart of ours: what was answered is answered again, in case that did not
    /// arrive, and all else is asked again.
    ///
    /// # Errors
    /// Nobody can answer, and the request is to fail for it.
    pub(super) async fn reply_again(
        self,
        mut asked: super::Question,
        kind: Kind,
        earlier: Earlier,
    ) -> Result<(), NobodyAnswers> {
        let settled = match earlier.settled {
            Some(settled) => Ok(Some(settled)),
            None => {
                self.again().push((earlier.ask.bind, asked.place_of_repeats()));
                let settled = self.whom.ask_until(vec![earlier.ask], asked.withdrawn()).await;
                settled
                    .map(|settled| settled.and_then(|mut settled| settled.pop()))
                    .map_err(|_| Unanswered::Ended)
            }
        };
        let answered = settled.and_then(|settled| {
            let answer = settled.map(|settled| answer(kind, &settled)).transpose()?;
            Ok(answer.and_then(|answer| answer.read().ok()))
        });
        self.pass_on(asked, answered).await
    }

    async fn pass_on(
        &self,
        mut asked: super::Question,
        answered: Result<Option<Obj>, Unanswered>,
    ) -> Result<(), NobodyAnswers> {
        match answered {
            Ok(Some(answer)) => asked.answer(&answer),
            // One that was taken back is not answered.
            Ok(None) => {}
            Err(Unanswered::Nobody) if self.fails_when_nobody => return Err(NobodyAnswers),
            Err(why @ (Unanswered::Nobody | Unanswered::Cannot(_))) => {
                asked.refuse(&RpcError::invalid_params(why.why()));
            }
            // Dropped, it is answered with the word for that nobody chose.
            Err(Unanswered::Declined) => asked.end(),
            Err(Unanswered::Ended) => {
                if self.whom.is_over().await {
                    asked.end();
                }
            }
        }
        Ok(())
    }

    /// How the same request of the server was settled before.
    fn earlier(&self, ask: &Ask, id: &RequestId) -> Option<Settled> {
        let mut earlier = self.earlier.iter().filter(|earlier| earlier.ask.bind == ask.bind);
        let same = earlier.find(|earlier| {
            Stored::decode(&earlier.ask.body).is_some_and(|stored| stored.server_id.as_ref() == Some(id))
        });
        same?.settled.clone()
    }

    /// The same question, which was asked before a restart and is asked again.
    fn open_again(&self, request: &InputRequest) -> Option<Weak<Repeats>> {
        let mut again = self.again();
        again.retain(|(_, repeats)| repeats.strong_count() > 0);
        if again.is_empty() {
            return None;
        }
        let Ok(Err((_, ask))) = self.known(request) else {
            return None;
        };
        let (_, first) = again.iter().find(|(bind, _)| *bind == ask.bind)?;
        Some(Weak::clone(first))
    }

    fn again(&self) -> MutexGuard<'_, Vec<Again>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checked(&self, request: &InputRequest) -> Result<(Kind, Ask), (Option<Kind>, Unasked)> {
        let question = question(request);
        let kind = question.kind().map_err(|why| (None, why))?;
        if !kind.declared_by(self.answers) {
            return Err((Some(kind), Unasked::Nobody));
        }
        let ask = outbound::question(&question, self.reach, self.bytes_max);
        ask.map(|ask| (kind, ask)).map_err(|why| (Some(kind), why))
    }
}

/// The same, asked as this request of a session's server.
fn under(ask: Ask, server_id: Option<&RequestId>) -> Ask {
    let Some(mut stored) = server_id.and_then(|_| Stored::decode(&ask.body)) else {
        return ask;
    };
    stored.server_id = server_id.cloned();
    Ask {
        body: stored.encode(),
        ..ask
    }
}

/// The question in a request, in our own terms.
fn question(request: &InputRequest) -> Question {
    let request_of: Obj = request.ask.read().unwrap_or_default();
    let method: String = request_of.get("method").unwrap_or_default();
    let mut params = request_of.obj("params").unwrap_or_default();
    // They are of one hop: a library's own progress token, mostly (D-39), and its wish for a task (D-33).
    drop(params.take("_meta"));
    drop(params.take("task"));
    let label = Some(request.key.clone()).filter(|key| !key.is_empty());
    let mode = Mode::of(Some(&params)).filter(|_| method == "elicitation/create");
    let Some(mode) = mode else {
        return Question {
            label,
            method: Some(method),
            params: Some(params.to_raw()),
            ..Question::default()
        };
    };
    let is_link = mode == Mode::Url;
    Question {
        label,
        message: params.get("message").unwrap_or_default(),
        form: params.raw("requestedSchema").filter(|_| !is_link).map(bare),
        url: is_link.then(|| params.get("url").unwrap_or_default()),
        ..Question::default()
    }
}

/// A form without what libraries write about it as a whole; the form of A-71 has no place for that.
fn bare(schema: &Raw) -> Raw {
    match schema.read::<Obj>() {
        Ok(mut schema) => {
            for about in ["title", "description", "additionalProperties"] {
                drop(schema.take(about));
            }
            schema.to_raw()
        }
        Err(_) => schema.clone(),
    }
}

/// The answer as a server reads it.
fn answer(kind: Kind, settled: &Settled) -> Result<Raw, Unanswered> {
    let content = |body: &longhaul_core::Body| body.bytes().and_then(|bytes| Raw::parse_bytes(bytes).ok());
    match (kind, settled) {
        (Kind::Form, Settled::Accepted(body)) => {
            let mut answer = Obj::default();
            answer.set("action", "accept");
            if let Some(content) = content(body) {
                answer.put("content", content);
            }
            Ok(answer.to_raw())
        }
        (Kind::Url, Settled::Accepted(_)) => Ok(plain("accept")),
        (Kind::Sampling | Kind::Roots, Settled::Accepted(body)) => {
            content(body).ok_or_else(|| Unanswered::Cannot("the answer cannot be read".to_owned()))
        }
        (Kind::Form | Kind::Url, Settled::Declined) => Ok(plain("decline")),
        (Kind::Form | Kind::Url, Settled::Dismissed) => Ok(plain("cancel")),
        (Kind::Sampling | Kind::Roots, Settled::Declined | Settled::Dismissed) => Err(Unanswered::Declined),
    }
}

fn plain(action: &str) -> Raw {
    let mut answer = Obj::default();
    answer.set("action", action);
    answer.to_raw()
}
