//! The gateway at its public entries.
//!
//! With the feature `faults` the environment variable `LONGHAUL_FAULT` names a guard to take away; a test of this
//! binary must then fail.

mod abandon;
mod authorization;
mod behind;
mod calls;
mod catalog;
mod command;
mod config;
mod config_clients;
mod config_servers;
mod hold;
mod join;
mod limits;
mod lossless;
mod passed_on;
mod program_text;
mod questions_apart;
mod questions_seen;
mod reasons;
mod secret_forms;
mod servers_shown;
mod session_client;
mod sessions;
mod streams;
mod subscriptions;
mod support;
mod toolsets;
mod upstream;
mod url_questions;
mod wait;
mod wrapped;
