//! Servers that speak MCP, behind this one.
//!
//! ```text
//! a call ─> link ─ stdio: a program under the shim | HTTP ─> the server
//! a call <─ link <─ frames in the order in which the server wrote them
//! ```
//!
//! A server is taken for hostile: whatever it sends or withholds, each request ends in a stated way, and what is
//! kept of it is bounded. Its programs are started through `engine::process` alone, so nothing of them outlives
//! this process.

pub mod http;
pub mod link;
pub mod stdio;
