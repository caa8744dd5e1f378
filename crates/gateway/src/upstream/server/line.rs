//! What carries the requests about one task of a server, from the call to the task's end: a process, a session, or all
//! callers' connection to a stateless one.
//!
//! Held by `followed`. As long as it is held, what it stands for is not idle: it is not ended, and nobody else takes it.

use longhaul_mcp::client::Version;

use super::{
    super::{
        connection::Connection,
        dial::Resumed,
        http::Credentials,
        pool::{Key, Lease, Taker, Untaken},
    },
    Caller, Server,
};

/// One of them. Dropped, it is given back.
pub(in crate::upstream) struct Line {
    key: Key,
    lease: Lease,
}

impl Line {
    pub(super) fn new(key: Key, lease: Lease) -> Line {
        Line { key, lease }
    }

    pub(in crate::upstream) fn connection(&self) -> &Connection {
        &self.lease.connection
    }

    /// Ends the program that served this one call alone. Whether nothing of it is left; `false` too where there is no such
    /// program.
    pub(in crate::upstream) async fn end_own_program(&self) -> bool {
        let connection = self.connection();
        match self.key {
            Key::Call(_) if connection.pid().is_some() => connection.close().await.confirmed,
            Key::Call(_)
            | Key::Resumed(_)
            | Key::Spare
            | Key::Shared
            | Key::Session(_)
            | Key::Principal(_) => false,
        }
    }
}

impl Server {
    /// Whether it is no program of ours: what it works at goes on without us.
    pub(in crate::upstream) fn is_remote(&self) -> bool {
        self.inner.is_remote
    }

    /// A way to what serves this caller; with the id of a session behind a URL, a way back into that session.
    pub(in crate::upstream) async fn line(
        &self,
        caller: &Caller,
        session: Option<(&str, Version)>,
    ) -> Result<Line, Untaken> {
        let Some((session, version)) = session.filter(|_| self.inner.is_remote) else {
            let (key, lease) = self.inner.take(caller, &mut |_| ()).await?;
            return Ok(Line::new(key, lease));
        };
        let taker = Taker {
            key: Key::Resumed(Resumed {
                session: session.to_owned(),
                version,
            }),
            answers: self.inner.may_be_asked(caller.answers()),
        };
        let lease = self.inner.pool.take(&taker).await?;
        Ok(Line::new(taker.key, lease))
    }

    /// Looks refused credentials up again; whether there are others now.
    pub(in crate::upstream) async fn renew(&self, line: &Line, refused: &Credentials) -> bool {
        self.inner.pool.renew(line.connection(), refused).await
    }

    /// How long a request may take that is no call of a tool.
    pub(in crate::upstream) fn request_timeout(&self) -> std::time::Duration {
        self.inner.times.request
    }
}
