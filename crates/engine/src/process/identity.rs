//! Who this process is, so that a later one can tell it from a stranger with the same number.
//!
//! Called by the engine when it registers its runner. It never looks at other processes.

use std::{collections::BTreeSet, io, sync::OnceLock};

/// What names one process for ever: process ids are used again, boots and start times are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The boot of this machine.
    pub boot: String,
    /// The process id.
    pub pid: i32,
    /// When it started, in clock ticks since the boot.
    pub started: u64,
}

/// This process.
///
/// # Errors
/// When `/proc` cannot be read.
#[cfg(target_os = "linux")]
pub fn identity() -> io::Result<Identity> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned();
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let entry = super::tree::read(pid)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "this process is not in /proc"))?;
    Ok(Identity {
        boot,
        pid,
        started: entry.started,
    })
}

/// This process. Without `/proc` the boot and the start time are not known, and sweeps confirm nothing.
///
/// # Errors
/// None on this platform.
#[cfg(not(target_os = "linux"))]
pub fn identity() -> io::Result<Identity> {
    Ok(Identity {
        boot: String::new(),
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        started: 0,
    })
}

/// The children that this process had, with their start times, when it became a subreaper.
static EARLIER: OnceLock<BTreeSet<(i32, u64)>> = OnceLock::new();

/// The children from before [`become_subreaper`]: whatever they do, no shim left them. `None` before it.
pub(super) fn earlier() -> Option<&'static BTreeSet<(i32, u64)>> {
    EARLIER.get()
}

pub(super) fn is_subreaper() -> bool {
    earlier().is_some()
}

/// Makes this process the parent of whatever a killed shim leaves behind. Call once, before the first
/// [`start`](super::start); without it a killed shim's tree is found by its mark only, and never confirmed ended.
///
/// When a shim was killed, every child of this process that is in another session, is no shim and began after
/// that shim is ended, and reaped, as what the shim left. So a program that calls this starts its other children
/// before, or keeps them in its own session.
///
/// # Errors
/// When the kernel refuses, or on a platform that knows no subreapers.
#[cfg(target_os = "linux")]
pub fn become_subreaper() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    EARLIER.get_or_init(|| {
        let children = super::tree::all().into_iter().filter(|entry| entry.parent == own);
        children.map(|entry| (entry.pid, entry.started)).collect()
    });
    Ok(())
}

/// Makes this process the parent of whatever a killed shim leaves behind.
///
/// # Errors
/// Always, on this platform: it knows no subreapers.
#[cfg(not(target_os = "linux"))]
pub fn become_subreaper() -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
