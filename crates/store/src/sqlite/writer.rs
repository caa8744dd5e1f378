//! The writer thread: takes what waits, writes it in one transaction, and answers after the commit.
//!
//! A work that fails or panics is rolled back to its own savepoint and harms no other. When a commit fails for
//! any reason but a full disk, what is on the disk is unknown: the thread answers that, and every write after it
//! fails until the database is opened anew, by a process that reads what is really there.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{self, JoinHandle},
};

use longhaul_core::fault;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::{
    Error, Fault,
    sqlite::connection::{execute, failed},
};

/// The most works in one transaction.
pub const BATCH_MAX: usize = 64;

/// The most works that wait. Beyond it callers wait to hand theirs in.
const QUEUE_MAX: usize = 1_024;

/// Something to be done inside the transaction, on the writer thread.
pub(super) trait Work: Send + 'static {
    /// What it answers.
    type Reply: Send + 'static;

    /// Makes what must outlive a rollback of the transaction, such as a new data key. Outside any transaction.
    fn prepare(&mut self, connection: &Connection) -> Result<(), Error> {
        let _ = connection;
        Ok(())
    }

    /// Does the work, once. Returns whether it wrote, with its answer.
    fn run(&mut self, connection: &Connection) -> Result<(bool, Self::Reply), Error>;
}

/// Work that is a closure.
pub(super) struct Closure<F>(pub(super) F);

impl<F, T> Work for Closure<F>
where
    F: FnMut(&Connection) -> Result<(bool, T), Error> + Send + 'static,
    T: Send + 'static,
{
    type Reply = T;

    fn run(&mut self, connection: &Connection) -> Result<(bool, T), Error> {
        (self.0)(connection)
    }
}

/// The handle of the writer thread. Dropping it ends the thread and closes the connection.
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Writer, Error> {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_all(&connection, receiver))
            .map_err(|cause| Error::broken("start the writer thread").caused_by(cause))?;
        Ok(Writer {
            queue: Some(sender),
            thread: Some(thread),
        })
    }

    /// Hands the work to the thread and waits for its answer.
    pub(super) fn run<W: Work>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<W::Reply, Error>> + Send + use<W> {
        let queue = self.queue.clone();
        async move {
            let gone = || Error::broken("write to the database: its writer thread is gone");
            let (sender, receiver) = oneshot::channel();
            let job = Box::new(Task {
                work,
                result: None,
                reply: sender,
            });
            queue.ok_or_else(gone)?.send(job).await.map_err(|_| gone())?;
            receiver.await.map_err(|_| gone().ambiguous())?
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // The thread catches the panics of its works; there is nobody left to tell of another.
            let _ = thread.join();
        }
    }
}

trait Job: Send {
    fn prepare(&mut self, connection: &Connection) -> Result<(), Error>;
    fn run(&mut self, connection: &Connection) -> Result<bool, Error>;
    fn reply(self: Box<Self>, failed: Option<Error>);
}

struct Task<W: Work> {
    work: W,
    result: Option<W::Reply>,
    reply: oneshot::Sender<Result<W::Reply, Error>>,
}

impl<W: Work> Job for Task<W> {
    fn prepare(&mut self, connection: &Connection) -> Result<(), Error> {
        self.work.prepare(connection)
    }

    fn run(&mut self, connection: &Connection) -> Result<bool, Error> {
        let (wrote, result) = self.work.run(connection)?;
        self.result = Some(result);
        Ok(wrote)
    }

    fn reply(self: Box<Self>, failed: Option<Error>) {
        let Task { result, reply, .. } = *self;
        let answer = match (failed, result) {
            (Some(failed), _) => Err(failed),
            (None, Some(result)) => Ok(result),
            (None, None) => Err(Error::broken("write to the database: the work did not run")),
        };
        // A caller that went away needs no answer.
        let _ = reply.send(answer);
    }
}

fn write_all(connection: &Connection, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    let mut broken = None;
    while let Some(first) = queue.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(next) = queue.try_recv()
        {
            batch.push(next);
        }
        match &broken {
            None => broken = write_batch(connection, batch),
            Some(error) => answer(batch, error),
        }
    }
}

/// Writes a batch and answers it. Returns what is wrong when the store must not be written to again.
fn write_batch(connection: &Connection, batch: Vec<Box<dyn Job>>) -> Option<Error> {
    let mut ready = Vec::new();
    for mut job in batch {
        match caught(|| job.prepare(connection)) {
            Ok(()) => ready.push(job),
            Err(error) => job.reply(Some(error)),
        }
    }
    if let Err(error) = execute(connection, "BEGIN IMMEDIATE", &[]) {
        answer(ready, &error);
        return None;
    }
    let mut wrote = false;
    let mut done = Vec::new();
    let mut left = ready.into_iter();
    while let Some(mut job) = left.next() {
        match run(connection, &mut *job) {
            Ok(writes) => {
                wrote |= writes;
                done.push(job);
            }
            Err(error) if connection.is_autocommit() => {
                // SQLite took the whole transaction back, and with it the works before this one.
                job.reply(Some(error.clone()));
                answer(done, &error);
                answer(left.collect(), &error);
                return None;
            }
            Err(error) => job.reply(Some(error)),
        }
    }
    if fault!("store-ack-before-commit") {
        done.drain(..).for_each(|job| job.reply(None));
    }
    end(connection, wrote, done)
}

fn end(connection: &Connection, wrote: bool, done: Vec<Box<dyn Job>>) -> Option<Error> {
    let ended = connection.execute_batch(if wrote { "COMMIT" } else { "ROLLBACK" });
    let Err(cause) = ended else {
        done.into_iter().for_each(|job| job.reply(None));
        return None;
    };
    let error = failed("commit a transaction", cause);
    let rolled_back = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
    if rolled_back && matches!(error.fault, Fault::Full | Fault::Unavailable) {
        answer(done, &error);
        return None;
    }
    let mut error = error;
    error.fault = Fault::Broken;
    tracing::error!(%error, "a commit failed and what is on the disk is unknown; this process must end");
    answer(done, &error.clone().ambiguous());
    Some(error)
}

/// Runs one work under a savepoint of its own.
fn run(connection: &Connection, job: &mut dyn Job) -> Result<bool, Error> {
    let savepoint = |sql: &str| execute(connection, sql, &[]).map(|_| ());
    savepoint("SAVEPOINT work")?;
    let done = caught(|| job.run(connection));
    if done.is_err() && !connection.is_autocommit() {
        savepoint("ROLLBACK TO work")?;
    }
    if !connection.is_autocommit() {
        savepoint("RELEASE work")?;
    }
    done
}

fn caught<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::broken("judge a step: the judge panicked")))
}

fn answer(jobs: Vec<Box<dyn Job>>, error: &Error) {
    jobs.into_iter().for_each(|job| job.reply(Some(error.clone())));
}
