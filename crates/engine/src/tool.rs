//! What can be run: the trait through which a worker runs a tool. The gateway's command-line programs are the
//! only implementation outside of tests.
//!
//! Called by the worker only, after the start was committed.

use std::{future::Future, pin::Pin, sync::Arc};

use longhaul_core::{Body, QuestionKey, Reason, TaskId, event::Ask};
use longhaul_store::Owner;

use crate::process::View;

/// A future that a tool returns.
pub type Running = Pin<Box<dyn Future<Output = Finish> + Send>>;

/// One tool.
///
/// Promises:
/// - `run` returns only when nothing that it started is left alive, or says so with
///   [`Finish::Stopped`] or [`Finish::Lost`] and `confirmed: false`. A tool that returns earlier makes "stopped" a lie.
/// - `run` watches [`Context::stop`] and ends soon after it resolves.
/// - Dropping the future is a crash: whatever it started must end by itself.
pub trait Tool: Send + Sync {
    /// Runs one attempt.
    fn run(&self, call: Call, context: Context) -> Running;

    /// The most attempts of this tool that this process runs at once; more wait in the queue.
    fn concurrency_max(&self) -> usize;

    /// Whether work that has a handle goes on without this process. What does not is seen through when the process
    /// drains, as work without a handle is.
    fn outlives_us(&self) -> bool {
        true
    }
}

/// What attempts are counted against: each tool has one, whatever name its tasks are stored under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Whose they are, in words that are the same for the same tool only.
    pub of: String,
    /// How many.
    pub max: usize,
}

/// The tools that this process can run. A task whose tool is not here is left for another process.
pub trait Tools: Send + Sync {
    /// The tool of this name.
    fn find(&self, name: &str) -> Option<Arc<dyn Tool>>;

    /// The names of all of them.
    fn names(&self) -> Vec<String>;

    /// What tasks stored under this name may count against: more than one where the name has been several tools'.
    fn slots(&self, name: &str) -> Vec<Slots>;

    /// What the task of this name counts against, beside whose arguments this is stored. Asked only where
    /// [`Tools::slots`] gave more than one.
    fn slots_of(&self, name: &str, context: &Body) -> Option<Slots>;
}

/// One attempt.
#[derive(Clone, Debug)]
pub struct Call {
    /// The task.
    pub task: TaskId,
    /// The task's short name.
    pub name: String,
    /// Whose task it is.
    pub owner: Owner,
    /// The tool's name.
    pub tool: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The arguments as they were sent.
    pub args: Body,
    /// What the gateway stored beside them.
    pub context: Body,
    /// What an earlier leg saved.
    pub checkpoint: Option<Body>,
    /// The handle by which the work is followed: it lives already and must not be begun again. When
    /// [`Context::stop`] has resolved before the first poll, only the stop is owed.
    pub upstream: Option<Body>,
    /// The questions of earlier legs, oldest first.
    pub asked: Vec<Earlier>,
}

/// A question that an earlier leg asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// What was asked.
    pub ask: Ask,
    /// How it was settled; `None` when it was taken back, because its leg was over.
    pub settled: Option<Settled>,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub enum Finish {
    /// A result.
    Returned {
        /// The result.
        body: Body,
        /// The tool itself calls it an error.
        is_error: bool,
    },
    /// A JSON-RPC error.
    Errored {
        /// The error object.
        body: Body,
    },
    /// Longhaul's own reason.
    Failed(Reason),
    /// The server that ran the work cancelled it, without an order of ours (T27).
    Cancelled,
    /// The leg ended with a checkpoint; the next leg starts when every question is settled.
    Parked {
        /// What to go on from.
        checkpoint: Body,
    },
    /// The work ended, and how was not seen: the task goes on as after a lost runner, by its rules.
    Lost {
        /// Nothing of it is left.
        confirmed: bool,
    },
    /// The work was told to stop and has ended.
    Stopped {
        /// Nothing of it is left.
        confirmed: bool,
    },
}

/// How one question was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Accepted, with the answer.
    Accepted(Body),
    /// Declined.
    Declined,
    /// Dismissed, or nobody could answer.
    Dismissed,
}

/// What a running attempt may do besides its work. Implemented by the worker; cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<dyn Attempt>,
}

/// Resolves when nobody waits for an answer any more.
pub(crate) type Gone<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// How the questions were settled; `None` when they were taken back.
pub(crate) type Asking<'a> = Pin<Box<dyn Future<Output = Result<Option<Vec<Settled>>, Ended>> + Send + 'a>>;

/// The keys of questions that were asked; `None` when they were more than may be open.
pub(crate) type Putting<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Vec<QuestionKey>>, Ended>> + Send + 'a>>;

/// The worker's side of [`Context`].
pub(crate) trait Attempt: Send + Sync {
    fn put(&self, asks: Vec<Ask>) -> Putting<'_>;
    fn settled<'a>(&'a self, keys: Vec<QuestionKey>, gone: Gone<'a>) -> Asking<'a>;
    fn attach(&self, upstream: Body) -> Pin<Box<dyn Future<Output = Result<(), Ended>> + Send + '_>>;
    fn note(&self, note: Vec<u8>);
    fn tell(&self, line: Vec<u8>);
    fn runs(&self, program: View);
    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn is_over(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}

/// The task ended, or the attempt was fenced: whatever the tool still reports changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

impl Context {
    /// Asks, and waits until every question is settled: seconds, or days.
    ///
    /// # Errors
    /// [`Ended`] when the task ended first.
    pub async fn ask(&self, asks: Vec<Ask>) -> Result<Vec<Settled>, Ended> {
        let settled = self.ask_until(asks, std::future::pending()).await?;
        Ok(settled.unwrap_or_default())
    }

    /// As [`Context::ask`], until `gone` resolves: the questions that are still open then are taken back (T26), and
    /// there is nothing to return.
    ///
    /// # Errors
    /// [`Ended`] when the task ended first.
    pub async fn ask_until(
        &self,
        asks: Vec<Ask>,
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Option<Vec<Settled>>, Ended> {
        let count = asks.len();
        match self.inner.put(asks).await? {
            Some(keys) => self.inner.settled(keys, Box::pin(gone)).await,
            None => Ok(Some(vec![Settled::Dismissed; count])),
        }
    }

    /// Asks these at once, as [`Context::ask`] does, and returns as soon as they are stored: each is waited for by
    /// itself. In the order in which they were given.
    ///
    /// # Errors
    /// [`Ended`] when the task ended first.
    pub async fn ask_each(&self, asks: Vec<Ask>) -> Result<Vec<Asked>, Ended> {
        let count = asks.len();
        let keys = self.inner.put(asks).await?;
        let keys = keys.map_or_else(|| vec![None; count], |keys| keys.into_iter().map(Some).collect());
        let asked = keys.into_iter().map(|key| Asked {
            inner: Arc::clone(&self.inner),
            key,
        });
        Ok(asked.collect())
    }

    /// Saves the handle of work that lives outside this process, so that it can be followed again after a crash.
    /// Returns when it is durable; only then may anything depend on it.
    ///
    /// # Errors
    /// [`Ended`] when the task ended first.
    pub async fn attach(&self, upstream: Body) -> Result<(), Ended> {
        self.inner.attach(upstream).await
    }

    /// Replaces the task's progress and status text. At most one a second is stored, always the newest; at most
    /// 8 KiB (T4).
    pub fn note(&self, note: Vec<u8>) {
        self.inner.note(note);
    }

    /// Tells whoever follows the task right now, and nobody else: it is not kept. At most 8 KiB.
    pub fn tell(&self, line: Vec<u8>) {
        self.inner.tell(line);
    }

    /// Shows the program that does the work to whoever looks at the task, until the attempt ends. Of several, the last one.
    pub fn runs(&self, program: View) {
        self.inner.runs(program);
    }

    /// Resolves when the attempt must stop: cancelled, expired, fenced or draining.
    pub async fn stop(&self) {
        self.inner.stop().await;
    }

    /// Whether the task has ended, so that its work must end wherever it lives. After [`Context::stop`] it may not be so:
    /// then the task is another runner's, or nobody's for now, and work that lives elsewhere goes on for it.
    pub async fn is_over(&self) -> bool {
        self.inner.is_over().await
    }
}

/// A question that was asked. Dropped, it stays open until the task ends.
pub struct Asked {
    inner: Arc<dyn Attempt>,
    /// `None` when nobody was asked: it counts as dismissed.
    key: Option<QuestionKey>,
}

impl Asked {
    /// How it is settled: after seconds, or days. `None` when `gone` resolves first: it is taken back then (T26).
    ///
    /// # Errors
    /// [`Ended`] when the task ended first.
    pub async fn settled_until(
        self,
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Option<Settled>, Ended> {
        let Some(key) = self.key else {
            return Ok(Some(Settled::Dismissed));
        };
        let settled = self.inner.settled(vec![key], Box::pin(gone)).await?;
        Ok(settled.and_then(|mut settled| settled.pop()))
    }
}
