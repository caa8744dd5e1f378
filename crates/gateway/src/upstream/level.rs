//! Tells a server with sessions which log messages are wanted of it.
//!
//! Called by `server` before the request of a client that said what it wants, and when such a client says so. A
//! stateless server reads it in each request. Nobody waits long for it, and what a server sends is sorted out where
//! its clients are.

use std::{future::pending, time::Duration};

use longhaul_mcp::{
    client::{self, Kind},
    request::LogLevel,
};

use super::{connection::Connection, outcome::Request};

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

/// Tells the server, unless it knows. A server that sends no log messages is told nothing.
pub(super) async fn tell(connection: &Connection, wanted: LogLevel, wish: Wish) {
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
        timeout: Some(HEARD_WITHIN),
        ..Request::default()
    };
    let _refused = connection.request(request, None, pending()).await;
}
