//! The reserved names of `_meta`, and what a client says there about itself.

/// The tasks extension.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
