//! MCP on the wire, without IO: bytes to requests, replies to bytes.
//!
//! The path of a frame is [`scan`] (strict, over raw bytes), [`frame`] (members kept in order), [`edge`] (which
//! generation), and then the edge of that generation, which makes a [`Request`]. A [`Reply`] goes back through
//! the same edge. [`client`] is the other half: it speaks to servers behind Longhaul. A protocol year is named only in the edges. This crate reads no clock, opens nothing and
//! knows no store.
#![forbid(unsafe_code)]

pub mod canon;
pub mod client;
pub mod edge;
pub mod form;
pub mod frame;
pub mod header;
pub mod malformed;
pub mod meta;
pub mod reply;
pub mod request;
pub mod rpc_error;
pub mod scan;
pub mod url_rule;
pub mod v2025_11_25;
pub mod v2026_07_28;

mod hygiene;
mod params;
mod shape;
mod token;

pub use hygiene::clean;
pub use malformed::Malformed;
pub use reply::{Push, Reply, TaskView, Tool};
pub use request::{Client, Incoming, Message, Notice, Relay, Request, RequestId, ToolRule};
pub use rpc_error::RpcError;
