//! The descriptor on which a command speaks with Longhaul, seen from inside the command.
//!
//! Called by `longhaul ask` and `longhaul progress`, which run as children of a tool's process. It never parses
//! what is said there.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// The environment variable that names the descriptor: JSON lines, both ways, on one socket.
pub const DESCRIPTOR: &str = "LONGHAUL_FD";

/// A duplicate of the descriptor named in [`DESCRIPTOR`], with close-on-exec.
///
/// # Errors
/// `NotFound` when the variable is not there or names no number: not inside a command that Longhaul runs.
/// `EBADF` when an ancestor closed the descriptor, as `subprocess.run` of Python does without `pass_fds`.
/// `PermissionDenied` in a container whose filter forbids `pidfd_getfd`; the caller can then start itself again
/// with the descriptor as standard input (`LONGHAUL_FD=0 longhaul ask … <&3`), which needs no such call.
pub fn descriptor() -> io::Result<OwnedFd> {
    let number = std::env::var(DESCRIPTOR)
        .ok()
        .and_then(|text| text.parse::<u16>().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "LONGHAUL_FD is not set"))?;
    match number {
        0 => io::stdin().as_fd().try_clone_to_owned(),
        1 => io::stdout().as_fd().try_clone_to_owned(),
        2 => io::stderr().as_fd().try_clone_to_owned(),
        number => duplicate(number),
    }
}

/// A process may duplicate its own descriptor by number through its pidfd; that needs no unsafe code and, unlike
/// `/proc/self/fd`, works for sockets.
#[cfg(target_os = "linux")]
fn duplicate(number: u16) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, i32::from(number), PidfdGetfdFlags::empty())?)
}

#[cfg(not(target_os = "linux"))]
fn duplicate(number: u16) -> io::Result<OwnedFd> {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/dev/fd/{number}"))?;
    Ok(file.into())
}
