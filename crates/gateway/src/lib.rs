//! Placeholder.

pub mod admin;
pub mod local;
pub mod config;
