//! What one user on one machine has: the socket that the command line uses, and the local page.
//!
//! `serve` binds the socket and mounts the page beside the MCP endpoint. Both enter at [`crate::admin::Backend`].

pub mod form;
pub mod links;
pub mod notice;
pub mod page;
pub mod pipe;
pub mod socket;
