//! Placeholder.

pub mod admin;
