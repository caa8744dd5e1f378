//! Subscriptions to resources of servers behind this one.
//!
//! In a session a client subscribes by a request, and the session's shared stream tells it; what it subscribed to is
//! in the session's record, so that a server that takes over makes it again. In the stateless generation it
//! subscribes by a stream, and both end together. Which server has a resource is found as for `resources/read`.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use longhaul_mcp::{
    Reply, RpcError, clean,
    request::{Answers, Client, RelayMethod},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Conversation, Dispatch,
    relay::{Candidate, Rank},
};
use crate::{
    identity::{self, Caller},
    session::Session,
    updates::{Held, Updates},
    upstream::{Outcome, Server, reason::Asked, server, subscription},
};

/// How long a stream waits for the servers that it subscribes to, before its first message.
const STREAM_WAITS: Duration = Duration::from_secs(20);

impl Dispatch {
    /// `resources/subscribe` and `resources/unsubscribe` of a session.
    pub(super) async fn subscription(
        &self,
        owner: &Caller,
        session: &Conversation,
        whose: &server::Caller,
        method: RelayMethod,
        uri: &str,
    ) -> Result<Reply, RpcError> {
        let session = &session.session;
        if method == RelayMethod::Unsubscribe {
            session.unsubscribed(uri);
            self.keep_subscription(owner, session, uri, false).await?;
            return Ok(Reply::Ack);
        }
        let updates = session.updates();
        if updates.has(uri) {
            return Ok(Reply::Ack);
        }
        if session.subscribed().len() >= self.inner.settings.subscriptions.each_max {
            return Err(self.inner.settings.subscriptions.refusal());
        }
        self.watch(owner, whose, uri, updates).await?;
        if let Err(error) = self.keep_subscription(owner, session, uri, true).await {
            updates.end(uri);
            return Err(error);
        }
        session.made_again(uri);
        self.tend(owner, session);
        Ok(Reply::Ack)
    }

    async fn keep_subscription(
        &self,
        owner: &Caller,
        session: &Session,
        uri: &str,
        stands: bool,
    ) -> Result<(), RpcError> {
        if !session.is_kept() {
            return Ok(());
        }
        let uri = uri.to_owned();
        let (what, each_max) = ("session_resources", self.inner.settings.subscriptions.each_max);
        self.keep_session(owner, session, what, move |kept| {
            kept.resources.retain(|kept| *kept != uri);
            if stands && kept.resources.len() < each_max {
                kept.resources.push(uri.clone());
            }
        })
        .await
    }

    /// What a stream subscribes to; servers that refuse, or do not answer in time, are left out (B-46).
    pub(crate) async fn subscribed(&self, owner: &Caller, client: &Client, uris: &[String]) -> Updates {
        let updates = Updates::default();
        let whose = super::relay::caller(owner, None, client);
        let mut wanted: Vec<&String> = Vec::new();
        for uri in uris {
            if wanted.len() < self.inner.settings.subscriptions.each_max && !wanted.contains(&uri) {
                wanted.push(uri);
            }
        }
        let each = wanted
            .into_iter()
            .map(|uri| timeout(STREAM_WAITS, self.watch(owner, &whose, uri, &updates)));
        join_all(each).await;
        updates
    }

    /// Subscribes to a resource: at the server that lists it, else at the first whose template fits, else at each that
    /// takes the subscription, for any of those may have it.
    async fn watch(
        &self,
        owner: &Caller,
        whose: &server::Caller,
        uri: &str,
        updates: &Updates,
    ) -> Result<(), RpcError> {
        if uri.len() > subscription::URI_BYTES_MAX {
            let most = subscription::URI_BYTES_MAX;
            return Err(RpcError::invalid_params(format!(
                "The URI of a subscription has {most} bytes at most"
            )));
        }
        let limits = self.inner.settings.subscriptions;
        let place = self.inner.subscriptions.take(&owner.owner, 0, limits.caps());
        let place = place.ok_or_else(|| limits.refusal())?;
        let mut subscriptions = Vec::new();
        let mut error = RpcError::invalid_params(format!("Resource not found: {}", clean(uri, 200)));
        for Candidate {
            rank,
            member,
            server,
            offers,
        } in self.ranked(&owner.selection, whose, uri, RelayMethod::ReadResource)
        {
            let is_the_one = rank < Rank::Unknown;
            if !offers.subscribe {
                if is_the_one {
                    error = RpcError::invalid_params(format!(
                        "The server `{}` does not tell of changes of its resources",
                        server.name()
                    ));
                    break;
                }
                continue;
            }
            let limit = Duration::from_millis(member.config.request_timeout.0);
            let subscribed = timeout(limit, server.subscribe(whose, uri, updates.due()));
            match subscribed.await {
                Ok(Ok(subscription)) => {
                    subscriptions.push(subscription);
                    if is_the_one {
                        break;
                    }
                }
                Ok(Err(outcome)) => error = refused(owner, server, &outcome),
                Err(_) => error = refused(owner, server, &Outcome::TimedOut),
            }
        }
        if subscriptions.is_empty() {
            return Err(error);
        }
        let held = Held {
            _subscriptions: subscriptions,
            _place: place,
        };
        updates.hold(uri, held);
        Ok(())
    }

    /// Looks after what a session subscribed to, as long as there is something: makes again what an earlier process
    /// had, and lets it rest while nobody reads the session's stream.
    pub(crate) fn tend(&self, owner: &Caller, session: &Arc<Session>) {
        if session.begins_tending() {
            let tending = Tending {
                dispatch: self.clone(),
                owner: owner.clone(),
                session: Arc::downgrade(session),
            };
            tokio::spawn(tending.run());
        }
    }
}

/// Why there is no subscription, as its client may know it.
fn refused(owner: &Caller, server: &Server, outcome: &Outcome) -> RpcError {
    let asked = Asked {
        server: server.name(),
        runs_longhaul: identity::is_local(&owner.owner),
        declared: Answers::ALL,
    };
    match outcome.clone().result(asked) {
        Err(error) => error,
        Ok(_) => RpcError::internal("not_begun", "The subscription could not begin; try again"),
    }
}

struct Tending {
    dispatch: Dispatch,
    owner: Caller,
    session: Weak<Session>,
}

impl Tending {
    async fn run(self) {
        let (first, longest) = subscription::AGAIN;
        let idle = self.dispatch.inner.settings.sessions.idle;
        let mut pause = first;
        let mut unread_since: Option<Instant> = None;
        loop {
            let (wait, mut changed) = {
                let Some(session) = self.session.upgrade() else {
                    return;
                };
                let changed = session.watch();
                if session.has_shared_stream() {
                    unread_since = None;
                    self.make_again(&session).await;
                } else if unread_since.get_or_insert_with(Instant::now).elapsed() >= idle {
                    session.rest();
                }
                if session.ends_tending() {
                    return;
                }
                let wait = match unread_since.is_none() && session.owes() {
                    true => {
                        pause = (pause * 2).min(longest);
                        pause
                    }
                    false => {
                        pause = first;
                        idle
                    }
                };
                (wait, changed)
            };
            tokio::select! {
                () = sleep(wait) => {}
                // A stream may have opened. With the session its sender goes.
                _ = changed.changed(), if unread_since.is_some() => {}
            }
        }
    }

    /// Something may have changed meanwhile, so the client is told once.
    async fn make_again(&self, session: &Session) {
        let whose = super::relay::in_session(&self.owner, session);
        for uri in session.owed() {
            let updates = session.updates();
            let made = self.dispatch.watch(&self.owner, &whose, &uri, updates).await;
            if made.is_ok() && session.made_again(&uri) {
                updates.due().add(&uri, &uri);
            } else if made.is_ok() {
                // It was unsubscribed from meanwhile.
                updates.end(&uri);
            }
        }
    }
}
