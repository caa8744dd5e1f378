//! Servers that speak MCP, behind this one.
//!
//! ```text
//! a call ─> Server ─> pool: which process or session ─> connection: an id, a place to wait ─> link: stdio | HTTP ─> the server
//! a call <─ events, outcome ────────────────────────── connection: one ordered reader <────── link <─────────────── the server
//! ```
//!
//! [`Server`] is the entrance; the catalog and dispatch hold one for each that is configured. `dial` opens a
//! connection, `definitions` fetches what a server defines; `fleet` opens all that are configured, `offer` puts their
//! tools into the catalog, `relayed` is such a tool at work, and
//! `asked` passes on what a server asks meanwhile. What frames mean is said by `longhaul_mcp::client`.
//!
//! A server is taken for hostile: whatever it sends or withholds, each request ends in a stated way, a request is
//! sent once, and what is kept of a server is bounded. Its programs are started through `engine::process` alone, so
//! nothing of them outlives this process.

pub(crate) mod asked;
pub mod connection;
pub mod credentials;
pub mod definitions;
pub mod dial;
pub mod fleet;
pub mod http;
pub mod link;
pub mod offer;
pub mod outcome;
pub mod pool;
pub mod question;
pub mod relayed;
pub mod server;
pub mod stdio;
pub mod subscription;

pub use definitions::Definitions;
pub use outcome::{Event, Failed, Outcome, Request, Unsent};
pub use question::Question;
pub use server::{Caller, Isolation, Server, Spec, State};
