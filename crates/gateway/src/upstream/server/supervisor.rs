//! The one task that keeps a server's state and definitions true: it dials, fetches the definitions, fetches them again
//! when they change, and tries for ever when it fails.
//!
//! Begun with the server, and over when the pool is closed. It sends nothing of a caller.

use std::{sync::Arc, time::Duration};

use longhaul_engine::clock;
use longhaul_mcp::client::Kind;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    super::{
        definitions::{Definitions, Fetched},
        dial::Unopened,
        link::at,
        pool::{Told, Untaken},
    },
    Failure, Inner, Order, State,
};
use crate::command::causes;

/// How long a change of a list is waited for to be the last of many.
pub const SETTLE: Duration = Duration::from_millis(200);
/// Lists are fetched again no sooner than this after the last time.
pub const REFRESH_MIN: Duration = Duration::from_secs(1);
/// Definitions that are older than this are fetched again when a process or session begins; where a list was not
/// fetched whole, without that, too.
pub const STALE_AFTER: Duration = Duration::from_secs(60);

/// Keeps one server's state and definitions true.
pub(super) struct Supervisor {
    inner: Arc<Inner>,
    tells: mpsc::Receiver<Told>,
    ordered: mpsc::Receiver<Order>,
    /// When the definitions were fetched last, or this began.
    fetched: Instant,
    /// They were fetched at all.
    is_fresh: bool,
}

/// What is done next.
enum Next {
    Fetch,
    /// When no more changes come.
    FetchSoon,
    Restart,
    Nothing,
    Close,
}

impl Supervisor {
    pub(super) fn of(
        inner: &Arc<Inner>,
        tells: mpsc::Receiver<Told>,
        ordered: mpsc::Receiver<Order>,
    ) -> Supervisor {
        Supervisor {
            inner: Arc::clone(inner),
            tells,
            ordered,
            fetched: Instant::now(),
            is_fresh: false,
        }
    }

    /// `sleeps`: nothing is fetched before somebody needs the server.
    pub(super) async fn run(mut self, sleeps: bool) {
        let mut next = match sleeps {
            true => Next::Nothing,
            false => Next::Fetch,
        };
        loop {
            next = match next {
                Next::Fetch => self.fetch().await,
                Next::FetchSoon => {
                    // One change seldom comes alone.
                    sleep_until((Instant::now() + SETTLE).max(self.fetched + REFRESH_MIN)).await;
                    self.fetch().await
                }
                Next::Restart => {
                    self.inner.state.send_replace(State::Starting);
                    self.inner.pool.end_all().await;
                    Next::Fetch
                }
                Next::Nothing => self.next().await,
                Next::Close => break,
            };
        }
        self.inner.state.send_replace(State::Closed);
    }

    /// Fetches once, after the pause that failures demand.
    async fn fetch(&mut self) -> Next {
        if let Some(until) = self.inner.pool.next_try() {
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.inner.pool.closed() => return Next::Close,
                Some(order) = self.ordered.recv() => return match order {
                    Order::Refresh => Next::Fetch,
                    Order::Restart => Next::Restart,
                },
            }
        }
        // What was told before is old: everything is looked at now.
        while self.tells.try_recv().is_ok() {}
        let inner = Arc::clone(&self.inner);
        let fetching = inner.fetch();
        tokio::pin!(fetching);
        let mut again = Next::Nothing;
        let fetched = loop {
            tokio::select! {
                fetched = &mut fetching => break fetched,
                () = inner.pool.closed() => return Next::Close,
                Some(order) = self.ordered.recv() => match order {
                    Order::Refresh => again = Next::FetchSoon,
                    Order::Restart => return Next::Restart,
                },
            }
        };
        self.fetched = Instant::now();
        match fetched {
            Ok(()) => {
                self.is_fresh = true;
                inner.ready();
                again
            }
            Err((why, stderr)) => {
                inner.degraded(why, stderr);
                Next::Fetch
            }
        }
    }

    /// Waits for something to do.
    async fn next(&mut self) -> Next {
        let is_cut = !self.inner.cut().is_empty();
        let again = is_cut.then(|| self.fetched + STALE_AFTER);
        tokio::select! {
            () = at(again) => Next::Fetch,
            Some(told) = self.tells.recv() => self.told(told),
            Some(order) = self.ordered.recv() => match order {
                Order::Refresh => Next::FetchSoon,
                Order::Restart => Next::Restart,
            },
            () = self.inner.pool.closed() => Next::Close,
        }
    }

    fn told(&self, told: Told) -> Next {
        match told {
            Told::Unopened(unopened) => {
                let (why, stderr) = unreached(&unopened);
                self.inner.degraded(why, stderr);
                Next::Fetch
            }
            Told::Lost { lost, soon } => {
                if soon {
                    self.inner.degraded(lost.to_string(), lost.stderr.clone());
                } else {
                    self.inner.failed(&lost.to_string(), &lost.stderr);
                    let server = self.inner.pool.name();
                    tracing::info!(server, why = %lost, stderr = lost.stderr, "a server's process is lost");
                }
                Next::Fetch
            }
            Told::Changed => Next::FetchSoon,
            Told::Opened if !self.is_fresh || self.fetched.elapsed() >= STALE_AFTER => Next::FetchSoon,
            Told::Opened => Next::Nothing,
        }
    }
}

impl Inner {
    fn failed(&self, why: &str, stderr: &str) {
        *self.last_failure() = Some(Failure {
            at: clock::now(),
            why: why.to_owned(),
            stderr: stderr.to_owned(),
        });
    }

    fn degraded(&self, why: String, stderr: String) {
        self.failed(&why, &stderr);
        self.state.send_modify(|state| {
            let since = match state {
                State::Degraded { since, .. } => *since,
                State::Starting | State::Ready | State::Closed => {
                    tracing::warn!(
                        server = self.pool.name(),
                        why,
                        "a server is down; it is tried again"
                    );
                    clock::now()
                }
            };
            *state = State::Degraded { since, why, stderr };
        });
    }

    fn ready(&self) {
        self.pool.succeeded();
        self.state.send_if_modified(|state| {
            let changed = *state != State::Ready;
            match state {
                State::Starting => tracing::info!(server = self.pool.name(), "a server is ready"),
                State::Degraded { .. } => tracing::info!(server = self.pool.name(), "a server is back"),
                State::Ready | State::Closed => {}
            }
            *state = State::Ready;
            changed
        });
    }

    /// Fetches the definitions on any connection, or on a new one.
    async fn fetch(&self) -> Result<(), (String, String)> {
        let said = self.pool.said();
        let lease = match self.pool.take_any(&self.own_taker()).await {
            Ok(lease) => lease,
            Err(untaken) => {
                return Err(match &untaken {
                    Untaken::Unopened(unopened) => unreached(unopened),
                    Untaken::Closed | Untaken::Later(_) | Untaken::Late(_) | Untaken::Unshared => {
                        (untaken.to_string(), String::new())
                    }
                });
            }
        };
        let credentials = lease.connection.credentials();
        let known = self.definitions.borrow().clone();
        match Definitions::fetch(&lease.connection, &self.times, known.as_deref()).await {
            Ok(Fetched {
                definitions,
                ages,
                cut,
            }) => {
                *self.ages() = ages;
                *self.cut() = cut;
                self.definitions.send_if_modified(|known| {
                    let changed = known
                        .as_ref()
                        .is_none_or(|known| known.digest != definitions.digest);
                    if changed {
                        *known = Some(Arc::new(definitions));
                    }
                    changed
                });
                self.said.send_if_modified(|known| {
                    let changed = *known != said;
                    *known = said;
                    changed
                });
                Ok(())
            }
            Err(unlisted) => {
                let why = format!("it does not list what it offers: {unlisted}");
                self.pool.failed(&why);
                let stderr = lease.connection.stderr();
                if unlisted.is_refused {
                    self.pool.renew(&lease.connection, &credentials).await;
                }
                // A stateless server behind a URL may be of another generation by now, unless it just wants other
                // credentials.
                let is_stateless = lease.connection.spoken().era.kind() == Kind::Stateless;
                let is_another = self.is_remote && is_stateless && !unlisted.is_refused;
                // What else runs at a silent one may still be answered.
                if is_another || (unlisted.is_silent && self.pool.is_alone(&lease)) {
                    lease.connection.shut();
                }
                Err((why, stderr))
            }
        }
    }
}

/// Why a server could not be reached, and the end of its standard error.
fn unreached(unopened: &Unopened) -> (String, String) {
    (causes(unopened), unopened.stderr().to_owned())
}
