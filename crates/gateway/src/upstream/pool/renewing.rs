//! Credentials that a server refuses: they are looked up again, once for all its connections.
//!
//! Called with what a server refused, by whoever asked it.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{connection::Connection, dial::Place, http::Credentials},
    Pool,
};
use crate::command::causes;

/// Credentials that were refused are looked up again no sooner than this after the last time.
pub const RENEW_MIN: Duration = Duration::from_secs(10);

impl Pool {
    /// Looks refused credentials up again, not more often than [`RENEW_MIN`], and uses what is found from here on.
    /// Returns whether those of this connection are others than `refused` now.
    pub(in crate::upstream) async fn renew(&self, connection: &Connection, refused: &Credentials) -> bool {
        let Place::LookedUp(look_up) = &self.plan.place else {
            return false;
        };
        let mut last = self.renewed.lock().await;
        let is_new = || connection.credentials() != *refused;
        if is_new() || last.is_some_and(|last| last.elapsed() < RENEW_MIN) {
            return is_new();
        }
        *last = Some(Instant::now());
        match (look_up.find)(Some(refused.clone())).await {
            Ok(Place::Remote(remote)) => {
                let live: Vec<Connection> = {
                    let slots = self.slots();
                    slots.live.values().map(|slot| slot.connection.clone()).collect()
                };
                for connection in live.iter().chain([connection]) {
                    connection.renew(&remote);
                }
            }
            Ok(Place::Program(..) | Place::LookedUp(_)) => {}
            Err(error) => {
                let why = causes(&error);
                tracing::warn!(
                    server = self.plan.name,
                    why,
                    "refused credentials cannot be looked up again"
                );
            }
        }
        is_new()
    }
}
