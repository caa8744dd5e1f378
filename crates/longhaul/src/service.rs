//! Tells the service manager how this server is, where one started it and asked for that (`NOTIFY_SOCKET`, as
//! systemd's `Type=notify` does).
//!
//! Called by `serve`. What cannot be told is logged and changes nothing: the server is the same without a manager.

use std::{env, os::unix::net::UnixDatagram, time::Duration};

/// It serves.
pub(crate) fn ready() {
    tell("READY=1");
}

/// This is the main process of the unit from now on, whose end is the unit's.
pub(crate) fn main_process(pid: u32) {
    tell(&format!("MAINPID={pid}"));
}

/// It ends, and asks for this long until it has.
pub(crate) fn stopping(within: Duration) {
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", within.as_micros()));
}

fn tell(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else {
        return;
    };
    let told = UnixDatagram::unbound().and_then(|from| from.send_to(state.as_bytes(), socket));
    if let Err(error) = told {
        tracing::warn!(%error, "the service manager cannot be told how this server is");
    }
}
