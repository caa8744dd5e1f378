//! The gateway at its public entries.

mod authorization;
mod calls;
mod command;
mod config;
mod streams;
mod support;
