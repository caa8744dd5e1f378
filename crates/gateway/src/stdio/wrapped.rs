//! Connections that are shown one wrapped server: how it is taken in, waited for, and kept.
//!
//! Called by the pipes, and by the binary for a wrapped server of its own process.

use std::{convert::Infallible, time::Duration};

use super::Stdio;
use crate::{admin, dispatch::Dispatch, upstream::wrapped::Brought};

/// How often the use of a wrapped server is stored while a pipe is open.
const USED_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

impl Stdio {
    /// Takes in what `longhaul wrap` brought; the name of the server that it is from now on.
    ///
    /// # Errors
    /// Why it cannot be kept.
    pub async fn wrap(&self, brought: &Brought) -> Result<String, admin::Error> {
        self.dispatch.wrap(brought).await
    }

    /// The same, of connections that are shown one wrapped server; `None` where none of this name is kept.
    #[must_use]
    pub fn of_wrapped(&self, name: &str) -> Option<Stdio> {
        let (selection, in_use) = self.dispatch.wrapped_selection(name)?;
        Some(Stdio {
            selection,
            _in_use: Some(in_use),
            ..self.clone()
        })
    }

    /// Waits until it is known what a wrapped server offers, or that it cannot be reached now.
    pub async fn reached(&self) {
        let Some(member) = self.selection.wrapped() else {
            return;
        };
        member.known().await;
        let server = member.server.as_ref();
        if server.is_some_and(|server| server.definitions().is_some()) {
            let name = &member.config.name;
            let mut changes = self.catalog.changes();
            let _gone = changes.wait_for(|offered| offered.knows_wrapped(name)).await;
        }
    }

    /// Keeps the wrapped server as long as it may be needed, where there is one.
    pub(crate) fn keeper(&self) -> Option<Keeper> {
        let member = self.selection.wrapped()?;
        Some(Keeper {
            dispatch: self.dispatch.clone(),
            server: member.config.name.clone(),
        })
    }
}

/// Takes note of the use of a wrapped server by one connection.
pub(crate) struct Keeper {
    dispatch: Dispatch,
    server: String,
}

impl Keeper {
    /// While the connection is open. Never resolves.
    pub(crate) async fn keep(&self) -> Infallible {
        loop {
            tokio::time::sleep(USED_EVERY).await;
            self.dispatch.wrapped_is_used(&self.server).await;
        }
    }

    /// The connection has ended, and is in use of the server no more.
    pub(crate) async fn left(self) {
        self.dispatch.wrapped_is_left(&self.server).await;
    }
}
