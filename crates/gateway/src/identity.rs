//! Who calls: a key, a token or the local user becomes a [`Caller`].
//!
//! Called by the transports, once for each request; everything behind them takes the caller as given. This
//! version knows the local user only: whoever reaches the loopback address or the user's own socket.

use longhaul_core::Span;
use longhaul_store::Owner;

use crate::toolset::Selection;

/// The program or person behind one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose tasks these are.
    pub owner: Owner,
    /// How the request came in.
    pub origin: Origin,
    /// How long its client waits for a call, where somebody wrote that down (`longhaul stdio --hold`).
    pub hold: Option<Span>,
    /// What the endpoint that it came to shows.
    pub selection: Selection,
    /// The pipe that it came on, if that has a key. A client without a session is told from others by it.
    pub pipe: Option<String>,
}

/// How a request came in; shown to people beside a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An MCP client.
    Client,
    /// The command line.
    Cli,
    /// The local page.
    Page,
}

impl Origin {
    /// The word that is stored with a task.
    pub fn word(self) -> &'static str {
        match self {
            Origin::Client => "client",
            Origin::Cli => "cli",
            Origin::Page => "page",
        }
    }
}

/// The issuer of the users of this machine.
const LOCAL: &str = "local";

/// Whether this is a user of this machine, at whose screen a link to it leads to the machine itself.
pub fn is_local(owner: &Owner) -> bool {
    owner.issuer == LOCAL
}

impl Caller {
    /// The user that this process runs as. The client's own name is no part of it: two clients of one user see
    /// the same tasks.
    pub fn local(origin: Origin) -> Caller {
        Caller {
            owner: Owner {
                tenant: "default".to_owned(),
                issuer: LOCAL.to_owned(),
                subject: format!("uid:{}", nix::unistd::Uid::effective()),
                app: String::new(),
            },
            origin,
            hold: None,
            selection: Selection::all(),
            pipe: None,
        }
    }
}
