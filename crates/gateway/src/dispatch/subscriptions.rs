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
    Reply, RpcError, clean, client,
    request::{Answers, Client, RelayMethod},
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    Conversation, Dispatch,
    relay::{Candidate, Rank},
};
use crate::{
    identity::{self, Caller},
    session::{Beginning, Session},
    updates::{Held, Updates},
    upstream::{
        Outcome, Request, Server,
        back_off::Pause,
        fleet::Member,
        reason::Asked,
        server,
        subscription::{self, Due},
    },
};

/// How long subscribing may take in all. A server has its `request_timeout` where that is less.
const SUBSCRIBE_TIME: Duration = Duration::from_secs(60);
/// How long a stream waits for the servers that it subscribes to, before its first message.
const STREAM_WAITS: Duration = Duration::from_secs(20);
/// How long servers are asked whether they have a resource that none of them lists.
const FIND_TIME: Duration = Duration::from_secs(10);

/// A subscription that stands and is not yet its session's.
struct Begun {
    held: Held,
    _counted: Beginning,
}

impl Dispatch {
    /// `resources/subscribe` and `resources/unsubscribe` of a session. Dropped, it subscribes to nothing, or it is done
    /// to its end.
    pub(super) async fn subscription(
        &self,
        caller: &Caller,
        session: &Conversation,
        whose: &server::Caller,
        method: RelayMethod,
        uri: &str,
    ) -> Result<Reply, RpcError> {
        let session = &session.session;
        if method == RelayMethod::Unsubscribe {
            self.set_subscription(caller, session, uri, None).await?;
            return Ok(Reply::Ack);
        }
        if session.updates().has(uri) {
            return Ok(Reply::Ack);
        }
        let limits = self.inner.settings.subscriptions;
        let counted = session.begin_subscribing(uri, limits.each_max);
        let counted = counted.ok_or_else(|| limits.refusal())?;
        let (due, until) = (session.updates().due(), Instant::now() + SUBSCRIBE_TIME);
        let begun = Begun {
            held: self.watch(caller, whose, uri, due, until).await?,
            _counted: counted,
        };
        self.set_subscription(caller, session, uri, Some(begun)).await?;
        Ok(Reply::Ack)
    }

    /// Gives a session a subscription, or ends the one it has: in its record, then here. It is done to its end,
    /// whoever waits, and one after the other, so that both say the same.
    async fn set_subscription(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
        uri: &str,
        begun: Option<Begun>,
    ) -> Result<(), RpcError> {
        let (dispatch, caller) = (self.clone(), caller.clone());
        let (session, uri) = (Arc::clone(session), uri.to_owned());
        let setting = tokio::spawn(async move {
            let _turn = session.subscribing().lock().await;
            let kept = dispatch.keep_subscription(&caller, &session, &uri, begun.is_some());
            kept.await?;
            match begun {
                Some(begun) => {
                    session.updates().hold(&uri, begun.held);
                    session.made_again(&uri);
                    dispatch.tend(&caller, &session);
                }
                None => session.unsubscribed(&uri),
            }
            Ok(())
        });
        setting.await.unwrap_or_else(|_| Err(not_begun()))
    }

    async fn keep_subscription(
        &self,
        caller: &Caller,
        session: &Session,
        uri: &str,
        stands: bool,
    ) -> Result<(), RpcError> {
        if !session.is_kept() {
            return Ok(());
        }
        let uri = uri.to_owned();
        let (what, each_max) = ("session_resources", self.inner.settings.subscriptions.each_max);
        self.keep_session(caller, session, what, move |kept| {
            kept.resources.retain(|kept| *kept != uri);
            if stands && kept.resources.len() < each_max {
                kept.resources.push(uri.clone());
            }
        })
        .await
    }

    /// What a stream subscribes to; servers that refuse, or do not answer in time, are left out (B-46).
    pub(crate) fn subscribed(
        &self,
        caller: &Caller,
        client: &Client,
        uris: Vec<String>,
    ) -> impl Future<Output = Updates> + Send + use<> {
        let (dispatch, caller) = (self.clone(), caller.clone());
        let whose = super::relay::whose(&caller, None, client);
        async move {
            let updates = Updates::default();
            let mut wanted: Vec<&String> = Vec::new();
            for uri in &uris {
                if wanted.len() < dispatch.inner.settings.subscriptions.each_max && !wanted.contains(&uri) {
                    wanted.push(uri);
                }
            }
            let until = Instant::now() + STREAM_WAITS;
            let each = wanted.into_iter().map(async |uri| {
                if let Ok(held) = dispatch.watch(&caller, &whose, uri, updates.due(), until).await {
                    updates.hold(uri, held);
                }
            });
            join_all(each).await;
            updates
        }
    }

    /// Subscribes to a resource at the server that has it. What that one says is the answer.
    async fn watch(
        &self,
        caller: &Caller,
        whose: &server::Caller,
        uri: &str,
        due: &Arc<Due>,
        until: Instant,
    ) -> Result<Held, RpcError> {
        if uri.len() > subscription::URI_BYTES_MAX {
            let most = subscription::URI_BYTES_MAX;
            return Err(RpcError::invalid_params(format!(
                "The URI of a subscription has {most} bytes at most"
            )));
        }
        let limits = self.inner.settings.subscriptions;
        let place = self.inner.subscriptions.take(&caller.owner, 0, limits.caps());
        let place = place.ok_or_else(|| limits.refusal())?;
        let found = self.having(caller, whose, uri, until).await;
        let Candidate {
            member,
            server,
            offers,
            ..
        } = found
            .ok_or_else(|| RpcError::invalid_params(format!("Resource not found: {}", clean(uri, 200))))?;
        if !offers.subscribe {
            return Err(RpcError::invalid_params(format!(
                "The server `{}` does not tell of changes of its resources",
                server.name()
            )));
        }
        if !server.lasts(whose) {
            return Err(RpcError::invalid_params(format!(
                "The server `{}` has a process for each call, which ends with it (`isolation = \"call\"`): none is \
                 left that could tell of changes",
                server.name()
            )));
        }
        let limit = until.min(Instant::now() + request_timeout(member));
        match timeout_at(limit, server.subscribe(whose, uri, due)).await {
            Ok(Ok(subscription)) => Ok(Held {
                _subscription: subscription,
                _place: place,
            }),
            Ok(Err(outcome)) => Err(refused(caller, server, &outcome)),
            Err(_) => Err(refused(caller, server, &Outcome::TimedOut)),
        }
    }

    /// The server that has a resource: the first that lists it, else the one that may have it. Where several may, the
    /// first of those that give it to whoever reads it; one that is silent is passed over.
    async fn having<'a>(
        &'a self,
        caller: &'a Caller,
        whose: &server::Caller,
        uri: &str,
        until: Instant,
    ) -> Option<Candidate<'a>> {
        let ranked = self.ranked(&caller.selection, whose, uri, RelayMethod::ReadResource);
        let rank = ranked.first()?.rank;
        let mut likeliest: Vec<_> = ranked.into_iter().filter(|other| other.rank == rank).collect();
        if rank == Rank::Listed || likeliest.len() == 1 {
            return Some(likeliest.swap_remove(0));
        }
        let half = until.duration_since(Instant::now()) / 2;
        let each = likeliest.into_iter().map(async |candidate| {
            let limit = half.min(FIND_TIME).min(request_timeout(candidate.member));
            gives(candidate.server, whose, uri, limit)
                .await
                .then_some(candidate)
        });
        join_all(each).await.into_iter().flatten().next()
    }

    /// Looks after what a session subscribed to, as long as there is something: makes again what an earlier process
    /// had, and lets it rest while nobody reads the session's stream.
    pub(crate) fn tend(&self, caller: &Caller, session: &Arc<Session>) {
        if session.begins_tending() {
            let tending = Tending {
                dispatch: self.clone(),
                caller: caller.clone(),
                session: Arc::downgrade(session),
            };
            tokio::spawn(tending.run());
        }
    }
}

fn request_timeout(member: &Member) -> Duration {
    Duration::from_millis(member.config.request_timeout.0)
}

/// Whether a server gives a resource to this caller within a time.
async fn gives(server: &Server, whose: &server::Caller, uri: &str, limit: Duration) -> bool {
    let params = client::about_resource(uri);
    let request = Request {
        method: "resources/read",
        params: Some(&params),
        timeout: Some(limit),
        ..Request::default()
    };
    let read = server.call(whose, request, None, std::future::pending());
    matches!(tokio::time::timeout(limit, read).await, Ok(Outcome::Came(_)))
}

fn not_begun() -> RpcError {
    RpcError::internal("not_begun", "The subscription could not begin; try again")
}

/// Why there is no subscription, as its client may know it.
fn refused(caller: &Caller, server: &Server, outcome: &Outcome) -> RpcError {
    let asked = Asked {
        server: server.name(),
        runs_longhaul: identity::is_local(&caller.owner),
        declared: Answers::ALL,
    };
    match outcome.clone().result(asked) {
        Err(error) => error,
        Ok(_) => not_begun(),
    }
}

struct Tending {
    dispatch: Dispatch,
    caller: Caller,
    session: Weak<Session>,
}

impl Tending {
    async fn run(self) {
        let idle = self.dispatch.inner.settings.sessions.idle;
        let mut pause = Pause::new(subscription::AGAIN);
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
                        pause.lengthen();
                        pause.now()
                    }
                    false => {
                        pause.reset();
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
        let whose = super::relay::in_session(&self.caller, session);
        let (updates, until) = (session.updates(), Instant::now() + SUBSCRIBE_TIME);
        let each = session.owed().into_iter().map(async |uri| {
            let made = self
                .dispatch
                .watch(&self.caller, &whose, &uri, updates.due(), until);
            let Ok(held) = made.await else { return };
            let _turn = session.subscribing().lock().await;
            // It may have been unsubscribed from meanwhile.
            if session.made_again(&uri) {
                updates.hold(&uri, held);
                updates.due().add(&uri, &uri);
            }
        });
        join_all(each).await;
    }
}
