//! Keeps a server asked to tell of one resource on one connection, by the means of its generation.
//!
//! Begun by the first who subscribes. It keeps its connection from being ended for being idle, asks again whenever the
//! connection was lost, and ends with the last who hears.

use std::{sync::Arc, time::Duration};

use longhaul_mcp::{
    RpcError,
    client::{self, Kind},
    frame::Obj,
    request::Answers,
};
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

use super::{
    super::{
        back_off::Pause,
        connection::Connection,
        outcome::{Failed, Outcome, Request},
        pool::{Key, Lease, Pool, Taker, Untaken},
    },
    ACKNOWLEDGED_WITHIN, AGAIN, UNSUBSCRIBED_WITHIN,
};

/// Keeps one resource subscribed to for as long as somebody hears of it. There is one for each, so that the server
/// is asked to begin and to end in that order.
pub(super) struct Keeper {
    pub(super) pool: Arc<Pool>,
    pub(super) key: Key,
    /// What can be asked of whoever subscribed first.
    pub(super) answers: Answers,
    pub(super) uri: String,
    pub(super) count: watch::Receiver<usize>,
    /// The server told of it once.
    pub(super) stood: bool,
    /// Credentials were looked up again, since the server told of it.
    pub(super) is_renewed: bool,
}

/// How a subscription ended.
enum Ended {
    /// Nobody hears of it any more.
    Left,
    /// With its connection, or because the server ended it.
    Lost,
    /// It did not begin.
    Failed(Outcome),
    /// Everybody's connection is nobody's any more.
    Unshared,
    /// It is to be tried again, with other credentials.
    Renewed,
}

impl Keeper {
    pub(super) fn begin(self) {
        tokio::spawn(self.run());
    }

    async fn run(mut self) {
        let mut pause = Pause::new(AGAIN);
        loop {
            let ended = self.stand().await;
            let subscriptions = self.pool.subscriptions();
            match ended {
                Ended::Left if subscriptions.is_over(&self.key, &self.uri) => return,
                Ended::Left | Ended::Renewed => continue,
                Ended::Lost => pause.reset(),
                Ended::Unshared => {
                    let keepers = subscriptions.move_on(&self.pool, &self.key, &self.uri, self.stood);
                    for keeper in keepers {
                        keeper.begin();
                    }
                    if subscriptions.is_over(&self.key, &self.uri) {
                        return;
                    }
                    if !self.stood {
                        let unshared = Outcome::Unsent(Untaken::Unshared.unsent());
                        return subscriptions.refused(&self.key, &self.uri, unshared);
                    }
                    pause.lengthen();
                }
                Ended::Failed(outcome) if !self.stood || self.pool.is_shut() => {
                    return subscriptions.refused(&self.key, &self.uri, outcome);
                }
                Ended::Failed(outcome) => {
                    subscriptions.fails(&self.key, &self.uri, outcome);
                    pause.lengthen();
                }
            }
            tokio::select! {
                () = sleep(pause.now()) => {}
                () = left(self.count.clone()) => {}
                () = self.pool.closed() => {}
            }
        }
    }

    /// Once: from its beginning to its end.
    async fn stand(&mut self) -> Ended {
        let taker = Taker {
            key: self.key.clone(),
            answers: self.answers,
        };
        let lease = tokio::select! {
            lease = self.pool.take(&taker) => lease,
            () = left(self.count.clone()) => return Ended::Left,
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(Untaken::Unshared) => return Ended::Unshared,
            Err(untaken) => return Ended::Failed(Outcome::Unsent(untaken.unsent())),
        };
        let connection = lease.connection.clone();
        let credentials = connection.credentials();
        let ended = match connection.spoken().era.kind() {
            Kind::Sessions => self.in_session(lease).await,
            Kind::Stateless => self.on_stream(lease).await,
        };
        let is_refused = matches!(ended, Ended::Failed(Outcome::Failed(Failed::Status(401 | 403))));
        if is_refused && !self.is_renewed && self.pool.renew(&connection, &credentials).await {
            self.is_renewed = true;
            return Ended::Renewed;
        }
        ended
    }

    async fn in_session(&mut self, lease: Lease) -> Ended {
        let connection = &lease.connection;
        let wait = self.pool.times().request;
        let left_meanwhile = left(self.count.clone());
        let outcome = request(connection, "resources/subscribe", &self.uri, wait, left_meanwhile).await;
        match outcome {
            Outcome::Came(_) => self.stands(),
            // It may have begun all the same.
            Outcome::Stopped { .. } => {
                self.unsubscribe(connection).await;
                return Ended::Left;
            }
            outcome @ (Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut) => return Ended::Failed(outcome),
        }
        tokio::select! {
            _ = connection.ended() => Ended::Lost,
            () = left(self.count.clone()) => {
                self.unsubscribe(connection).await;
                Ended::Left
            }
        }
    }

    async fn unsubscribe(&self, connection: &Connection) {
        let (wait, never) = (UNSUBSCRIBED_WITHIN, std::future::pending());
        request(connection, "resources/unsubscribe", &self.uri, wait, never).await;
    }

    async fn on_stream(&mut self, lease: Lease) -> Ended {
        let params = client::listen(false, false, false, std::slice::from_ref(&self.uri));
        let (acknowledge, acknowledged) = oneshot::channel();
        let request = Request {
            method: "subscriptions/listen",
            params: Some(&params),
            ..Request::default()
        };
        let listening = lease
            .connection
            .subscribe(request, acknowledge, left(self.count.clone()));
        tokio::pin!(listening);
        let wait = ACKNOWLEDGED_WITHIN.min(self.pool.times().request);
        let acknowledged = tokio::select! {
            biased;
            outcome = &mut listening => return not_begun(outcome),
            acknowledged = timeout(wait, acknowledged) => acknowledged,
        };
        match acknowledged {
            Ok(Ok(honoured)) if is_honoured(&honoured, &self.uri) => self.stands(),
            // It is over: how, the server has said.
            Ok(Err(_)) => return not_begun(listening.await),
            Ok(Ok(_)) => {
                let refused =
                    RpcError::invalid_params("The server does not tell of changes of this resource");
                return Ended::Failed(Outcome::Errored(refused.object().to_raw()));
            }
            Err(_) => return Ended::Failed(Outcome::TimedOut),
        }
        match listening.await {
            Outcome::Stopped { .. } => Ended::Left,
            Outcome::Came(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::Unsent(_)
            | Outcome::Failed(_)
            | Outcome::TimedOut => Ended::Lost,
        }
    }

    fn stands(&mut self) {
        self.pool.subscriptions().stands(&self.key, &self.uri, self.stood);
        self.stood = true;
        self.is_renewed = false;
    }
}

fn not_begun(outcome: Outcome) -> Ended {
    match outcome {
        Outcome::Stopped { .. } => Ended::Left,
        outcome @ (Outcome::Came(_)
        | Outcome::Errored(_)
        | Outcome::Unusable(_)
        | Outcome::Unsent(_)
        | Outcome::Failed(_)
        | Outcome::TimedOut) => Ended::Failed(outcome),
    }
}

/// Resolves when nobody hears of it.
async fn left(mut count: watch::Receiver<usize>) {
    // What was taken out is heard by nobody.
    let _gone = count.wait_for(|count| *count == 0).await;
}

/// Whether an acknowledgement names the resource (B-46).
fn is_honoured(honoured: &Obj, uri: &str) -> bool {
    let uris = honoured.get::<Vec<String>>("resourceSubscriptions");
    uris.is_some_and(|uris| uris.iter().any(|honoured| honoured == uri))
}

async fn request(
    connection: &Connection,
    method: &str,
    uri: &str,
    wait: Duration,
    stop: impl Future<Output = ()>,
) -> Outcome {
    let params = client::about_resource(uri);
    let request = Request {
        method,
        params: Some(&params),
        timeout: Some(wait),
        ..Request::default()
    };
    connection.request(request, None, stop).await
}
