//! How long one server may take for what it does, and how long it is kept.
//!
//! Made by `fleet` from the configuration, read by the pool, by `definitions` and by `server`.

use std::time::Duration;

/// How long things may take. The defaults are those of `[servers.NAME]`.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long a process or session may serve nobody before it is ended.
    pub idle_stop: Duration,
    /// The same, where another caller waits for one.
    pub keep_idle: Duration,
    /// How long a caller waits for one: to be opened, or to become free.
    pub wait: Duration,
    /// How long a request may take that is no call of a tool.
    pub request: Duration,
    /// How long all lists may take together.
    pub lists: Duration,
}
