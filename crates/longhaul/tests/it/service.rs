//! What a service manager is told.

use std::{
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{PATIENCE, Rig};

fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 512];
    let length = socket.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

fn serve(rig: &Rig, socket: &Path, arguments: &[&str]) -> Child {
    rig.command(arguments)
        .env("NOTIFY_SOCKET", socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_service_manager_hears_when_the_server_serves_and_how_long_it_needs_to_end() {
    let rig = Rig::new("drain = \"90s\"\n");
    let path = rig.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut server = serve(&rig, &path, &["serve"]);
    assert_eq!(told(&socket), "READY=1");
    kill(Pid::from_raw(server.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(told(&socket), "STOPPING=1\nEXTEND_TIMEOUT_USEC=150000000");
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_service_manager_hears_of_the_next_server_before_the_one_that_makes_way_ends() {
    let rig = Rig::new("");
    let path = rig.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut before = serve(&rig, &path, &["serve"]);
    assert_eq!(told(&socket), "READY=1");
    let mut next = serve(&rig, &path, &["serve", "--replace"]);
    assert_eq!(told(&socket), format!("MAINPID={}", next.id()));
    assert!(before.wait().unwrap().success());
    assert_eq!(told(&socket), "READY=1");
    next.kill().unwrap();
    next.wait().unwrap();
}
