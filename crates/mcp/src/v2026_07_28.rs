//! The edge of generation 2026-07-28: frame to request, reply to frame.
//!
//! Every request stands for itself, and tasks are the extension `io.modelcontextprotocol/tasks`. The gateway's
//! transports call [`parse`] and [`render`]; nothing else in the project knows this generation's shapes.

mod parse;
mod render;
mod task;

pub use parse::parse;
pub use render::{push, render, render_error, render_malformed, status};

/// The version of the protocol.
pub const VERSION: &str = "2026-07-28";

/// Every version that is served request by request.
pub const SUPPORTED: &[&str] = &[VERSION];
