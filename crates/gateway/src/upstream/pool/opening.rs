//! How a pool opens a connection: in a task of its own, until it is there, fails, or is given up.
//!
//! Called by the pool. A connection that is given up keeps its place until nothing of it is left.

use std::sync::Arc;

use longhaul_mcp::{
    client::{self, Hello, Kind, dial::Choice},
    request::Answers,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    super::{
        connection::Connection,
        dial::{self, Ours, Unopened},
        link::Why,
        subscription,
    },
    Key, Pool, SETTLED_AFTER, Slot, Slots, Taker, Told,
};
use crate::command::causes;

/// A connection that is being opened.
pub(super) struct Opening {
    /// Why it failed. Its end without that means that the connection is there, or was given up.
    pub(super) failed: watch::Receiver<Option<Arc<Unopened>>>,
    /// It is to be given up.
    pub(super) stopped: watch::Sender<bool>,
    /// What the server is told that it may ask.
    pub(super) answers: Answers,
}

impl Opening {
    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}

impl Pool {
    pub(super) fn open(
        self: &Arc<Self>,
        slots: &mut Slots,
        taker: Taker,
    ) -> watch::Receiver<Option<Arc<Unopened>>> {
        let (done, failed) = watch::channel(None);
        let (stopped, stop) = watch::channel(false);
        let opening = Opening {
            failed: failed.clone(),
            stopped,
            answers: taker.answers,
        };
        slots.opening.insert(taker.key.clone(), opening);
        slots.next_id += 1;
        let (id, until) = (slots.next_id, slots.back_off.until());
        let choice = match (self.plan.choice, slots.kind) {
            (Choice::Find { .. }, Some(first)) => Choice::Find { first },
            (choice @ (Choice::Find { .. } | Choice::Only(_)), _) => choice,
        };
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            match pool.dial(id, &taker, choice, until, stop).await {
                Ok(connection) => pool.opened(id, &taker, connection).await,
                Err(Unopened::Stopped) => drop(pool.slots().opening.remove(&taker.key)),
                Err(unopened) => {
                    let unopened = Arc::new(unopened);
                    pool.slots().opening.remove(&taker.key);
                    pool.failed(&causes(&*unopened));
                    pool.tell(Told::Unopened(Arc::clone(&unopened)));
                    done.send_replace(Some(unopened));
                }
            }
            pool.change();
        });
        failed
    }

    async fn dial(
        self: &Arc<Self>,
        id: u64,
        taker: &Taker,
        choice: Choice,
        until: Option<Instant>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Connection, Unopened> {
        let ours = Ours {
            hello: Hello {
                capabilities: client::capabilities(taker.answers),
                ..self.plan.ours.hello.clone()
            },
            one_owner: taker.key != Key::Shared,
            ..self.plan.ours.clone()
        };
        let stopped = async {
            tokio::select! {
                // Who gives it up holds the other end until it is over.
                _ = stop.wait_for(|stop| *stop) => {}
                () = self.closed() => {}
            }
        };
        tokio::pin!(stopped);
        if let Some(until) = until {
            tokio::select! {
                biased;
                () = &mut stopped => return Err(Unopened::Stopped),
                () = sleep_until(until) => {}
            }
        }
        if let Key::Resumed(resumed) = &taker.key {
            return tokio::select! {
                biased;
                () = &mut stopped => Err(Unopened::Stopped),
                opened = dial::resume(&self.plan.place, &ours, resumed, self.notices(id)) => opened,
            };
        }
        dial::open(&self.plan.place, &ours, choice, self.notices(id), stopped).await
    }

    async fn opened(self: &Arc<Self>, id: u64, taker: &Taker, connection: Connection) {
        let (key, now) = (&taker.key, Instant::now());
        let is_given_up = {
            let mut slots = self.slots();
            let is_stopped = slots.opening.get(key).is_some_and(Opening::is_stopped);
            let is_given_up = self.is_shut() || is_stopped;
            if !is_given_up {
                slots.opening.remove(key);
                // One that is gone on with was not asked.
                if !matches!(key, Key::Resumed(_)) {
                    slots.kind = Some(connection.spoken().era.kind());
                }
                // A session that was opened for everybody is nobody's: it was not told whose it would be.
                if *key == Key::Shared && !self.may_share(slots.kind) {
                    connection.shut();
                } else {
                    slots
                        .live
                        .insert(key.clone(), Slot::new(id, taker.answers, &connection, now));
                }
            }
            is_given_up
        };
        if is_given_up {
            connection.close().await;
            self.slots().opening.remove(key);
            return;
        }
        self.change();
        if !matches!(key, Key::Resumed(_)) {
            self.tell(Told::Opened);
        }
        tokio::spawn(Arc::clone(self).follow(id, now, connection.clone()));
        let pool = Arc::downgrade(self);
        tokio::spawn(subscription::to_lists(connection, move || {
            if let Some(pool) = pool.upgrade() {
                pool.tell(Told::Changed);
            }
        }));
    }

    /// Waits for a connection's end, and says when it was not ours.
    async fn follow(self: Arc<Self>, id: u64, opened: Instant, connection: Connection) {
        let lost = connection.ended().await;
        self.slots().remove(id);
        self.change();
        if lost.why == Why::Closed {
            return;
        }
        let soon = opened.elapsed() < SETTLED_AFTER;
        if soon {
            self.failed(&lost.to_string());
        }
        self.tell(Told::Lost { lost, soon });
    }

    /// Whether a connection to a server of this generation may serve everybody: a session is one caller's.
    pub(super) fn may_share(&self, kind: Option<Kind>) -> bool {
        self.plan.is_shared || kind != Some(Kind::Sessions)
    }
}
