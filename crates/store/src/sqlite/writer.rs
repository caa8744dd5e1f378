//! The writer thread: takes what waits, writes it in one transaction, and answers after the commit.
//!
//! Births of tasks wait in a lane of their own, the owners in turn, and leave room in each transaction for all
//! else: however many calls flood in, a cancel, an answer or a report waits for one transaction at most (S21).
//!
//! A work that fails or panics is rolled back to its own savepoint and harms no other. When a commit fails for
//! any reason but a full disk, what is on the disk is unknown: the thread answers that, and every write after it
//! fails until the database is opened anew, by a process that reads what is really there.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use longhaul_core::fault;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    Error, Fault,
    sqlite::{
        connection::{execute, failed},
        wal::Wal,
    },
};

/// The most works in one transaction.
pub const BATCH_MAX: usize = 64;

/// The most works that wait in each lane. Beyond it callers wait to hand theirs in.
const QUEUE_MAX: usize = 1_024;

/// How many works of a transaction may be births while other works wait, and so the most that births take away.
const BIRTHS_BESIDE_OTHERS: usize = BATCH_MAX / 4;

/// Which works a work waits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The birth of a task of this owner.
    Birth([u8; 32]),
    /// Everything else.
    Other,
}

/// Something to be done inside the transaction, on the writer thread.
pub(super) trait Work: Send + 'static {
    /// What it answers.
    type Reply: Send + 'static;

    /// Where it waits.
    fn lane(&self) -> Lane {
        Lane::Other
    }

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
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, mut wal: Wal) -> Result<Writer, Error> {
        let queue = Arc::new(Queue::new());
        let waiting = Arc::clone(&queue);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_all(&connection, &waiting, &mut wal))
            .map_err(|cause| Error::broken("start the writer thread").caused_by(cause))?;
        Ok(Writer {
            queue,
            thread: Some(thread),
        })
    }

    /// Hands the work to the thread and waits for its answer.
    pub(super) fn run<W: Work>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<W::Reply, Error>> + Send + use<W> {
        let queue = Arc::clone(&self.queue);
        async move {
            let gone = || Error::broken("write to the database: its writer thread is gone");
            let (sender, receiver) = oneshot::channel();
            let lane = work.lane();
            let place = queue.place(lane).await;
            let job = Box::new(Task {
                work,
                result: None,
                reply: sender,
            });
            queue.push(lane, place, job);
            receiver.await.map_err(|_| gone().ambiguous())?
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // The thread catches the panics of its works; there is nobody left to tell of another.
            let _ = thread.join();
        }
    }
}

/// What waits for the writer thread.
struct Queue {
    lanes: Mutex<Lanes>,
    filled: Condvar,
    births: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

#[derive(Default)]
struct Lanes {
    others: VecDeque<Waiting>,
    births: BTreeMap<[u8; 32], VecDeque<Waiting>>,
    /// The owners with births that wait, the next one first.
    turns: VecDeque<[u8; 32]>,
    closed: bool,
}

/// A work and its place in the queue, which is free once the work is taken out.
struct Waiting {
    job: Box<dyn Job>,
    _place: OwnedSemaphorePermit,
}

impl Queue {
    fn new() -> Queue {
        Queue {
            lanes: Mutex::default(),
            filled: Condvar::new(),
            births: Arc::new(Semaphore::new(QUEUE_MAX)),
            others: Arc::new(Semaphore::new(QUEUE_MAX)),
        }
    }

    async fn place(&self, lane: Lane) -> OwnedSemaphorePermit {
        let places = match lane {
            Lane::Birth(_) => &self.births,
            Lane::Other => &self.others,
        };
        let place = Arc::clone(places).acquire_owned().await;
        place.expect("the semaphore is never closed")
    }

    fn push(&self, lane: Lane, place: OwnedSemaphorePermit, job: Box<dyn Job>) {
        self.lock().push(lane, Waiting { job, _place: place });
        self.filled.notify_one();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// The works of the next transaction; `None` when no more will come.
    fn next(&self) -> Option<Vec<Box<dyn Job>>> {
        let mut lanes = self.lock();
        loop {
            let batch = lanes.take();
            if !batch.is_empty() {
                return Some(batch);
            }
            if lanes.closed {
                return None;
            }
            lanes = self.filled.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lanes {
    fn push(&mut self, lane: Lane, waiting: Waiting) {
        match lane {
            Lane::Other => self.others.push_back(waiting),
            Lane::Birth(owner) => {
                let births = self.births.entry(owner).or_default();
                if births.is_empty() {
                    self.turns.push_back(owner);
                }
                births.push_back(waiting);
            }
        }
    }

    /// Takes out one transaction's works: first what is no birth, then births, the owners in turn.
    fn take(&mut self) -> Vec<Box<dyn Job>> {
        let mut batch = Vec::new();
        let births_wait = !self.turns.is_empty();
        let others_max = if births_wait {
            BATCH_MAX - BIRTHS_BESIDE_OTHERS
        } else {
            BATCH_MAX
        };
        while batch.len() < others_max
            && let Some(waiting) = self.others.pop_front()
        {
            batch.push(waiting.job);
        }
        while batch.len() < BATCH_MAX
            && let Some(waiting) = self.next_birth()
        {
            batch.push(waiting.job);
        }
        batch
    }

    fn next_birth(&mut self) -> Option<Waiting> {
        let owner = self.turns.pop_front()?;
        let births = self.births.get_mut(&owner)?;
        let next = births.pop_front();
        if births.is_empty() {
            self.births.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        next
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

fn write_all(connection: &Connection, queue: &Queue, wal: &mut Wal) {
    let mut broken = None;
    while let Some(batch) = queue.next() {
        match &broken {
            None => broken = write_batch(connection, batch, wal),
            Some(error) => answer(batch, error),
        }
    }
}

/// Writes a batch and answers it. Returns what is wrong when the store must not be written to again.
fn write_batch(connection: &Connection, batch: Vec<Box<dyn Job>>, wal: &mut Wal) -> Option<Error> {
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
    let broken = end(connection, wrote, done);
    if wrote && broken.is_none() {
        wal.committed(connection);
    }
    broken
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that only says its name.
    struct Named(&'static str, std::sync::mpsc::SyncSender<&'static str>);

    impl Job for Named {
        fn prepare(&mut self, _: &Connection) -> Result<(), Error> {
            Ok(())
        }

        fn run(&mut self, _: &Connection) -> Result<bool, Error> {
            Ok(false)
        }

        fn reply(self: Box<Self>, _: Option<Error>) {
            self.1.send(self.0).expect("the test listens");
        }
    }

    async fn push(
        queue: &Queue,
        lane: Lane,
        name: &'static str,
        said: &std::sync::mpsc::SyncSender<&'static str>,
    ) {
        let place = queue.place(lane).await;
        queue.push(lane, place, Box::new(Named(name, said.clone())));
    }

    fn names(batch: Vec<Box<dyn Job>>, said: &std::sync::mpsc::Receiver<&'static str>) -> Vec<&'static str> {
        batch.into_iter().for_each(|job| job.reply(None));
        said.try_iter().collect()
    }

    // S21
    #[tokio::test]
    async fn births_wait_in_turn_and_leave_room_for_all_else() {
        let (queue, (say, said)) = (Queue::new(), std::sync::mpsc::sync_channel(256));
        for _ in 0..100 {
            push(&queue, Lane::Birth([1; 32]), "flood", &say).await;
        }
        push(&queue, Lane::Birth([2; 32]), "modest", &say).await;
        for _ in 0..60 {
            push(&queue, Lane::Other, "other", &say).await;
        }
        let first = names(queue.next().expect("a batch waits"), &said);
        assert_eq!(first.len(), BATCH_MAX);
        assert_eq!(first[..48], ["other"; 48]);
        assert_eq!(first[48..51], ["flood", "modest", "flood"]);
        let second = names(queue.next().expect("a batch waits"), &said);
        assert_eq!(second[..12], ["other"; 12]);
        assert_eq!(second[12..], ["flood"; 52]);
        queue.close();
        assert_eq!(
            names(queue.next().expect("what waits is still written"), &said).len(),
            33
        );
        assert!(queue.next().is_none());
    }
}
