//! Servers that speak MCP, behind this one.
//!
//! ```text
//! a call ─> Server ─> pool: which process or session ─> connection: an id, a place to wait ─> link: stdio | HTTP ─> the server
//! a call <─ events, outcome ────────────────────────── connection: one ordered reader <────── link <─────────────── the server
//! ```
//!
//! [`Server`] is the entrance to one of them. `dial` opens a connection, `definitions` fetches what a server defines.
//! These know neither the catalog nor dispatch. Above them stand `fleet`, which opens all that are configured and is
//! held by dispatch; `wrapped`, what `longhaul wrap` brought; `place`, which looks up where a server is; `offer`, which puts its tools into the catalog;
//! `relayed`, such a tool at work; and `asked`, which passes on what a server asks meanwhile. What frames mean is said
//! by `longhaul_mcp::client`.
//!
//! A server is taken for hostile: whatever it sends or withholds, each request ends in a stated way, a request is
//! sent once, and what is kept of a server is bounded. Its programs are started through `engine::process` alone, so
//! nothing of them outlives this process.

pub(crate) mod asked;
pub mod back_off;
pub mod connection;
pub mod credentials;
pub mod definitions;
pub mod dial;
pub mod fleet;
mod followed;
mod handle;
pub mod http;
pub mod level;
pub mod link;
pub mod login;
pub mod offer;
pub mod outcome;
pub mod place;
pub mod pool;
pub mod question;
pub mod reason;
pub mod relayed;
pub mod server;
pub mod stdio;
mod streamed;
pub mod subscription;
mod talk;
pub mod times;
pub mod wrapped;

pub use definitions::Definitions;
pub use outcome::{Event, Failed, Outcome, Request, Unsent};
pub use question::Question;
pub use reason::Reason;
pub use server::{Caller, Server, Spec, State};
pub use times::Times;

pub use crate::config::Isolation;
