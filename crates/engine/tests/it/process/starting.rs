//! What a program is started with, and why it is not.

use std::{collections::BTreeMap, ffi::OsStr, os::unix::fs::PermissionsExt, path::PathBuf};

use longhaul_engine::process::{Unstartable, resolve};

use super::*;

#[tokio::test]
async fn the_environment_is_what_was_given_and_nothing_else() {
    let directory = directory();
    let mut spec = command(&directory, &["/usr/bin/env", "-0"]);
    spec.idempotency_key = Some("key-1".into());
    spec.env.push(("LONGHAUL_TASK".into(), "forged".into()));
    spec.env.push(("LONGHAUL_SHIM".into(), "1".into()));
    let mark = spec.mark.clone();
    let output = run(spec).await.output.bytes;
    let text = String::from_utf8(output).expect("UTF-8");
    let found: BTreeMap<&str, &str> = text
        .split_terminator('\0')
        .filter_map(|line| line.split_once('='))
        .collect();
    let expected = [
        ("LONGHAUL_ATTEMPT", "1"),
        ("LONGHAUL_FD", "3"),
        ("LONGHAUL_IDEMPOTENCY_KEY", "key-1"),
        ("LONGHAUL_RUNNER", "a-runner"),
        ("LONGHAUL_TASK", mark.as_str()),
        ("PATH", "/usr/bin:/bin"),
    ];
    assert_eq!(found, expected.into());
}

#[tokio::test]
async fn no_core_is_dumped_and_no_terminal_is_there() {
    let directory = directory();
    let output = run(script(
        &directory,
        "ulimit -c; (exec </dev/tty) 2>/dev/null || echo none",
    ))
    .await
    .output
    .bytes;
    assert_eq!(output, b"0\nnone\n");
}

#[tokio::test]
async fn a_program_starts_with_no_signal_blocked_and_dies_of_a_broken_pipe() {
    let directory = directory();
    let output = run(script(&directory, "exec cat /proc/self/status"))
        .await
        .output
        .bytes;
    let status = String::from_utf8(output).expect("UTF-8");
    let mask = |name: &str| {
        let value = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect("the line");
        u64::from_str_radix(value.trim(), 16).expect("a mask")
    };
    let pipe = 1 << (nix::libc::SIGPIPE - 1);
    assert_eq!((mask("SigBlk:"), mask("SigIgn:") & pipe), (0, 0));
}

#[test]
fn a_program_that_is_not_found_is_told_with_the_path_that_was_searched() {
    let error = resolve(
        OsStr::new("no-such-program"),
        OsStr::new("/bin:/sbin"),
        &PathBuf::from("/"),
    );
    assert_eq!(
        error.expect_err("not there").to_string(),
        "start `no-such-program`: not found in PATH `/bin:/sbin`; \
         install it, write the full path, or add its directory to PATH"
    );
    let error =
        resolve(OsStr::new("sh"), OsStr::new("/nowhere"), &PathBuf::from("/")).expect_err("not there");
    assert!(error.to_string().contains("there is `/"), "{error}");
}

#[test]
fn a_program_is_found_in_the_order_of_the_path_and_relative_to_the_directory() {
    let directory = directory();
    let file = directory.path().join("tool");
    std::fs::write(&file, "#!/bin/sh\n").expect("written");
    let resolved = |name: &str, path: &OsStr| resolve(OsStr::new(name), path, directory.path());
    assert!(matches!(
        resolved("tool", directory.path().as_os_str()),
        Err(Unstartable::NotExecutable { .. })
    ));

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("made executable");
    assert_eq!(
        resolved("tool", directory.path().as_os_str()).expect("found"),
        file
    );
    assert_eq!(
        resolved("./tool", OsStr::new("")).expect("found"),
        directory.path().join("./tool")
    );
    assert!(matches!(
        resolved("tool", OsStr::new("::")),
        Err(Unstartable::NotFound { .. })
    ));
    assert!(matches!(
        resolved("./missing", OsStr::new("")),
        Err(Unstartable::NotFound { .. })
    ));
    assert!(matches!(
        resolved("", OsStr::new("/bin")),
        Err(Unstartable::Empty)
    ));
}

#[tokio::test]
async fn what_cannot_start_is_told_by_its_cause() {
    let directory = directory();
    let file = directory.path().join("tool");
    std::fs::write(&file, "#!/no/such/interpreter\n").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("made executable");
    let path = file.to_str().expect("UTF-8");
    let refused = |spec: Spec| async {
        process::start(spec)
            .await
            .map(|_| ())
            .expect_err("it cannot start")
    };

    assert!(
        matches!(refused(command(&directory, &[path])).await, Unstartable::Refused { source, .. }
        if source.kind() == std::io::ErrorKind::NotFound)
    );
    let mut spec = script(&directory, "exit 0");
    spec.cwd = directory.path().join("missing");
    assert!(matches!(refused(spec).await, Unstartable::NoDirectory { .. }));
    assert!(matches!(
        refused(script(&directory, "exit \0 0")).await,
        Unstartable::Nul { .. }
    ));
    assert!(matches!(
        refused(command(&directory, &["/no/such"])).await,
        Unstartable::NotFound { .. }
    ));
    assert!(matches!(
        refused(script(&directory, &"x".repeat(2 << 20))).await,
        Unstartable::TooLarge { .. }
    ));
    let mut spec = script(&directory, "exit 0");
    spec.shim.program = "/no/such/shim".into();
    assert!(matches!(refused(spec).await, Unstartable::Shim { .. }));
    let mut spec = script(&directory, "exit 0");
    spec.shim.program = "/bin/true".into();
    assert!(matches!(refused(spec).await, Unstartable::Shim { .. }));
}
