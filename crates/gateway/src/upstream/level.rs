//! Tells a server with sessions which log messages are wanted of it.
//!
//! Called by `server` before the request of a client that said what it wants, and when such a client says so. A
//! stateless server reads it in each request. Nobody waits long for it, and what a server sends is sorted out where
//! its clients are.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longhaul_mcp::{
    client::{self, Kind},
    request::LogLevel,
};
use tokio::time::timeout;

use super::{
    connection::Connection,
    outcome::Request,
    pool::{Key, Pool, Taker},
};

/// How long a server may take to say that it has heard, before the request goes on without that.
pub const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// Whose wish it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Of the one client that the connection serves: it counts as it is.
    Own,
    /// Of one of several: the server keeps the least grave level that any of them wants.
    OneOfSeveral,
}

/// The wishes that a server is to be told of. Of one connection they are told in their order, one at a time: those that
/// come meanwhile are told as one.
#[derive(Default)]
pub(super) struct Wishes {
    by_key: Mutex<HashMap<Key, (LogLevel, Wish)>>,
}

impl Wishes {
    /// Sees to it that the server is told, and returns at once.
    pub(super) fn add(self: &Arc<Self>, pool: &Arc<Pool>, taker: Taker, wanted: LogLevel, wish: Wish) {
        let is_told = {
            let mut by_key = self.by_key();
            let due = by_key.get(&taker.key).copied();
            let wanted = match (due, wish) {
                (Some((due, _)), Wish::OneOfSeveral) => due.min(wanted),
                (Some(_) | None, Wish::Own | Wish::OneOfSeveral) => wanted,
            };
            by_key.insert(taker.key.clone(), (wanted, wish));
            due.is_some()
        };
        if is_told {
            // Whoever tells the server of the one before goes on with this one.
            return;
        }
        let (wishes, pool) = (Arc::clone(self), Arc::clone(pool));
        tokio::spawn(async move {
            let lease = pool.take(&taker).await;
            while let Some((wanted, wish)) = wishes.due(&taker.key) {
                if let Ok(lease) = &lease {
                    tell(&lease.connection, wanted, wish).await;
                }
                wishes.told(&taker.key, (wanted, wish));
            }
        });
    }

    fn due(&self, key: &Key) -> Option<(LogLevel, Wish)> {
        self.by_key().get(key).copied()
    }

    fn told(&self, key: &Key, told: (LogLevel, Wish)) {
        let mut by_key = self.by_key();
        if by_key.get(key) == Some(&told) {
            by_key.remove(key);
        }
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<Key, (LogLevel, Wish)>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the server, unless it knows; for [`HEARD_WITHIN`] at most, whoever else tells it meanwhile.
pub(super) async fn tell(connection: &Connection, wanted: LogLevel, wish: Wish) {
    // What was not heard in time is given up, and not waited for.
    let _late = timeout(HEARD_WITHIN, tell_at_last(connection, wanted, wish)).await;
}

/// A server that sends no log messages is told nothing.
async fn tell_at_last(connection: &Connection, wanted: LogLevel, wish: Wish) {
    let spoken = connection.spoken();
    if spoken.era.kind() != Kind::Sessions || !spoken.offers().logging {
        return;
    }
    let mut told = connection.level().lock().await;
    let is_known = told.is_some_and(|told| match wish {
        Wish::Own => told == wanted,
        Wish::OneOfSeveral => told <= wanted,
    });
    if is_known {
        return;
    }
    // One that refuses is not asked again.
    *told = Some(wanted);
    let params = client::set_level(wanted);
    let request = Request {
        method: "logging/setLevel",
        params: Some(&params),
        ..Request::default()
    };
    let _refused = connection.request(request, None, pending()).await;
}
