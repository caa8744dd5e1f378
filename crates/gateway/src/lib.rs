//! Governs who may do what, and serves it.
//!
//! Transports make frames into requests, [`dispatch`] takes each request from start to end, and the gate stands
//! before everything that acts. Nothing here knows SQL; HTTP types stop at [`http`] and the local entrances.
#![forbid(unsafe_code)]

pub mod activity;
pub mod admin;
pub mod catalog;
mod changes;
pub mod command;
pub mod config;
pub mod dispatch;
pub mod gate;
pub mod http;
pub mod identity;
pub mod listen;
pub mod local;
pub mod outbound;
pub mod question;
pub mod request_state;
pub mod sealed_id;
pub mod server;
pub mod session;
pub mod stdio;
pub mod toolset;
pub mod upstream;
pub mod view;

mod parse;
mod quota;
mod replies;
pub mod updates;
