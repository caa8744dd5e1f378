//! Lets the tests see at build time whether a PostgreSQL server, a small disk, a browser and a network of one's own are at
//! hand, so that the cases that need them are shown as ignored where there are none.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (variable, name) in [
        ("LONGHAUL_TEST_POSTGRES", "postgres_at_hand"),
        ("LONGHAUL_TEST_SMALL_DISK", "small_disk_at_hand"),
    ] {
        println!("cargo::rerun-if-env-changed={variable}");
        at_hand(name, std::env::var_os(variable).is_some());
    }
    let browser = Path::new("/usr/bin/chromium");
    println!("cargo::rerun-if-changed={}", browser.display());
    at_hand("chromium_at_hand", browser.exists());
    at_hand("namespaces_at_hand", has_namespaces());
}

/// Whether a process of this user may have a network and mounts of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "what the build asks the system is no task's work"
)]
fn has_namespaces() -> bool {
    let mut tried = Command::new("unshare");
    let tried = tried.args(["-rmn", "python3", "-c", ""]).status();
    tried.is_ok_and(|status| status.success())
}

fn at_hand(name: &str, is: bool) {
    println!("cargo::rustc-check-cfg=cfg({name})");
    if is {
        println!("cargo::rustc-cfg={name}");
    }
}
