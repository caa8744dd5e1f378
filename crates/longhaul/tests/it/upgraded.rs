//! A package puts another version in the place of a program that runs.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Stdio},
};

use crate::support::{LONGHAUL, Rig};

const TOOLS: &str = "[tools.says]\ndescription = \"Says hello.\"\ncommand = [\"echo\", \"hello\"]\n";

/// The binary, installed where it can be replaced.
fn installed(rig: &Rig) -> PathBuf {
    let file = rig.path("longhaul");
    fs::hard_link(LONGHAUL, &file)
        .or_else(|_| fs::copy(LONGHAUL, &file).map(|_| ()))
        .unwrap();
    file
}

/// Puts a script in its place, as a package does: a new file under the old name.
fn replace(rig: &Rig, script: &str) {
    let next = rig.path("next");
    fs::write(&next, script).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(next, rig.path("longhaul")).unwrap();
}

/// Ended when the test is.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_whose_file_was_replaced_goes_on_running_tools() {
    let rig = Rig::new(TOOLS);
    let mut server = Running(
        rig.command_of(&installed(&rig), &["serve", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut ready = String::new();
    BufReader::new(server.0.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    // The next version understands nothing of this one's orders to its shims.
    replace(&rig, "#!/bin/sh\nexit 9\n");
    for _ in 0..2 {
        let ran = rig.run(&["run", "says"]);
        assert_eq!((ran.code, ran.out.trim()), (0, "hello"), "{ran:?}");
    }
}

#[test]
fn a_pipe_whose_file_was_replaced_starts_the_version_in_its_place() {
    let rig = Rig::new(&format!("idle_exit = \"1s\"\n{TOOLS}"));
    let mut pipe = Running(
        rig.command_of(&installed(&rig), &["stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut input = pipe.0.stdin.take().unwrap();
    let mut output = BufReader::new(pipe.0.stdout.take().unwrap()).lines();
    let mut initialize = |id: u32| {
        let frame = serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
        }});
        writeln!(input, "{frame}").unwrap();
        output.next().unwrap().unwrap()
    };
    assert!(initialize(1).contains("serverInfo"));
    replace(
        &rig,
        &format!(
            "#!/bin/sh\necho \"$1\" >> {}/next-ran\nexec {LONGHAUL} \"$@\"\n",
            rig.path("").display()
        ),
    );
    let health = rig.run(&["--json", "doctor"]).out;
    let pid = health.split("pid ").nth(1).unwrap().split(',').next().unwrap();
    let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(initialize(2).contains("\"id\":2"));
    assert_eq!(fs::read_to_string(rig.path("next-ran")).unwrap(), "serve\n");
}
