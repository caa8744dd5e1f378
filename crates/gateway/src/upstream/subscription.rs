//! Hears of a server's changes where it must be asked for them: in the stateless generation.
//!
//! Called by the pool for each connection, for the changes of lists, and by `server` for a resource. In the older
//! generation a server tells of its lists without being asked.

use std::{sync::Arc, time::Duration};

use longhaul_mcp::{
    client::{self, Kind},
    frame::Obj,
};
use tokio::time::sleep;

use super::{
    connection::Connection,
    outcome::{Outcome, Request},
    pool::Lease,
};

/// The pause before a subscription that ended is made again: the first, and the longest.
pub const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Stays subscribed to the lists of a server for as long as the connection lives.
pub(super) async fn to_lists(connection: Connection) {
    let offers = connection.spoken().offers();
    let (tools, prompts, resources) = (
        offers.tools_change,
        offers.prompts_change,
        offers.resources_change,
    );
    if connection.spoken().era.kind() == Kind::Stateless && (tools || prompts || resources) {
        listen(&connection, &client::listen(tools, prompts, resources, &[])).await;
    }
}

/// Subscribes again and again, until the connection is over or the server does not do it.
async fn listen(connection: &Connection, params: &Obj) {
    let (first, longest) = AGAIN;
    let mut pause = first;
    loop {
        let request = Request {
            method: "subscriptions/listen",
            params: Some(params),
            ..Request::default()
        };
        let ended = async { drop(connection.ended().await) };
        match connection.request(request, None, ended).await {
            // B-49: it ended it.
            Outcome::Came(_) => pause = first,
            Outcome::Failed(_) | Outcome::Unsent(_) if connection.lost().is_none() => {
                pause = (pause * 2).min(longest);
            }
            Outcome::Failed(_)
            | Outcome::Unsent(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::TimedOut
            | Outcome::Stopped { .. } => return,
        }
        sleep(pause).await;
    }
}

/// A subscription to a resource. Dropping it ends it.
pub struct Subscription {
    lease: Arc<Lease>,
    uri: String,
    listening: Option<tokio::task::AbortHandle>,
}

impl Subscription {
    /// Subscribes, by the means of the server's generation.
    pub(super) async fn begin(lease: Lease, uri: &str) -> Result<Subscription, Outcome> {
        let lease = Arc::new(lease);
        let listening = match lease.connection.spoken().era.kind() {
            Kind::Stateless => {
                let (connection, uri) = (lease.connection.clone(), uri.to_owned());
                let task = tokio::spawn(async move {
                    listen(&connection, &client::listen(false, false, false, &[uri])).await;
                });
                Some(task.abort_handle())
            }
            Kind::Sessions => {
                let outcome = request(&lease.connection, "resources/subscribe", uri).await;
                if !matches!(outcome, Outcome::Came(_)) {
                    return Err(outcome);
                }
                None
            }
        };
        Ok(Subscription {
            lease,
            uri: uri.to_owned(),
            listening,
        })
    }

    /// Waits until the server was lost, and the subscription with it.
    pub async fn ended(&self) {
        self.lease.connection.ended().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening {
            return listening.abort();
        }
        let (lease, uri) = (Arc::clone(&self.lease), std::mem::take(&mut self.uri));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { request(&lease.connection, "resources/unsubscribe", &uri).await });
        }
    }
}

async fn request(connection: &Connection, method: &str, uri: &str) -> Outcome {
    let mut params = Obj::default();
    params.set("uri", uri);
    let request = Request {
        method,
        params: Some(&params),
        timeout: Some(super::definitions::PAGE_TIME_MAX),
        ..Request::default()
    };
    connection.request(request, None, std::future::pending()).await
}
