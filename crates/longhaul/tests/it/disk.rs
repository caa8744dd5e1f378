//! A real server whose disk is full.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
};

use serde_json::Value;

use crate::support::Rig;

const TOOLS: &str = r#"
[tools.echo]
description = "Prints its text"
command = ["echo", "{text}"]
args.text = "string"

[tools.sleeps]
description = "Sleeps"
command = ["sleep", "600"]
"#;

#[test]
#[cfg_attr(
    not(small_disk_at_hand),
    ignore = "set LONGHAUL_TEST_SMALL_DISK (rigs/small-disk.sh)"
)]
fn on_a_full_disk_calls_are_refused_and_cancels_are_taken() {
    let disk = std::env::var("LONGHAUL_TEST_SMALL_DISK").expect("LONGHAUL_TEST_SMALL_DISK names a folder");
    let alone = fs::File::open(&disk).unwrap();
    alone.lock().unwrap();
    let rig = Rig::new(TOOLS);
    let directory = tempfile::TempDir::new_in(disk).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(directory.path(), rig.path("state")).unwrap();
    let (ballast, reserve) = (directory.path().join("ballast"), directory.path().join("reserve"));
    let mut server = rig.serve();
    assert!(reserve.exists());
    let done = rig.start(&["echo", "text=kept"]);
    rig.until_state(&done, "done");
    let open = rig.start(&["sleeps"]);
    rig.until_state(&open, "running");

    let mut weight = fs::File::create(&ballast).unwrap();
    while weight.write_all(&[0; 4096]).is_ok() {}
    // What the write-ahead log has taken already is still used up.
    let refused = (0..2_000)
        .map(|_| rig.run(&["--json", "run", "--no-wait", "echo", "text=x"]))
        .find(|ran| ran.code != 0)
        .expect("the disk is full at last");
    let error: Value = serde_json::from_str(&refused.err).unwrap();
    assert_eq!(error["error"]["reason"], "store_full", "{refused:?}");
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("disk is full"), "{refused:?}");
    let listed = rig.run(&["tasks", "--limit", "1000"]);
    assert!(
        listed.out.contains(&done) && listed.out.contains(&open),
        "{listed:?}"
    );
    assert_eq!(rig.run(&["tasks", "result", &done]).out.trim(), "kept");

    let cancelled = rig.run(&["cancel", &open]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    rig.until_state(&open, "cancelled");
    assert!(!reserve.exists(), "the space that was held back is given up");

    drop(weight);
    fs::remove_file(ballast).unwrap();
    let ran = rig.run(&["run", "echo", "text=again"]);
    assert_eq!((ran.code, ran.out.trim()), (0, "again"), "{ran:?}");
    server.kill();
    let _server = rig.serve();
    assert!(reserve.exists(), "it is held back again");
    assert_eq!(rig.run(&["tasks", "result", &done]).out.trim(), "kept");
}
