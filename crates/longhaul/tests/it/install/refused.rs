//! What is not written: without a word of somebody, into what is no configuration, and what would steer a terminal.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use super::{CLIENTS, Desktop};

#[test]
fn nothing_is_written_unless_somebody_says_so() {
    let desktop = Desktop::with_clients();
    for arguments in [
        &["install", "all", "--dry-run"][..],
        &["install", "all"],
        &["--json", "install", "all"],
    ] {
        let ran = desktop.run(arguments);
        assert_eq!(
            ran.code,
            if arguments.contains(&"--dry-run") { 0 } else { 2 },
            "{ran:?}"
        );
        for (client, file, text) in CLIENTS {
            assert_eq!(desktop.read(file), text, "{client}");
        }
    }
}

#[test]
fn a_file_that_is_no_configuration_is_left_with_a_word_of_why() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let entry = "{\"mcpServers\":{\"a\":{\"command\":\"lh-server\"";
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (
            b"{\n  \"mcpServers\": {\n    \"a\": oops\n".to_vec(),
            "line 3, column 10",
        ),
        (
            b"{ \"mcpServers\": [] }".to_vec(),
            "`mcpServers` does not hold servers",
        ),
        (b"[]".to_vec(), "it is no object"),
        (b"{ 'mcpServers': {} }".to_vec(), "line 1, column 3"),
        (
            b"{ \"mcpServers\": {}, \"mcpServers\": {} }".to_vec(),
            "`mcpServers` is there twice",
        ),
        (
            b"{ \"mcpServers\": { \"a\": {}, \"a\": {} } }".to_vec(),
            "`a` is there twice",
        ),
        (b"{ \"a\": \"\0\" }".to_vec(), "line 1, column 9: it holds a NUL"),
        (b"{ \"a\": \"\xff\" }".to_vec(), "it is not UTF-8 after byte 8"),
        (b"\xff\xfe{\x00}\x00".to_vec(), "it is not UTF-8"),
        (format!("{{\"a\": {deep}}}").into_bytes(), "line 1"),
        (format!("{entry}}}}}").into_bytes(), "line 1"),
    ];
    for (bytes, why) in cases {
        let desktop = Desktop::new();
        fs::create_dir_all(desktop.rig.path(".cursor")).unwrap();
        let file = desktop.rig.path(".cursor/mcp.json");
        fs::write(&file, &bytes).unwrap();
        let ran = desktop.run(&["install", "cursor", "--yes"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(why), "{why}: {ran:?}");
        assert_eq!(fs::read(&file).unwrap(), bytes);
    }
    // An entry that is not understood is left; the others are not.
    let desktop = Desktop::new();
    let twice = "{\"mcpServers\":{\"a\":{\"command\":\"x\",\"command\":\"y\"},\"b\":{\"command\":\"lh-server\"},\"c\":7}}";
    desktop.write(".cursor/mcp.json", twice);
    let ran = desktop.done(&["install", "cursor", "--yes"]);
    assert!(
        ran.out.contains("`command` is there twice") && ran.out.contains("not an entry"),
        "{ran:?}"
    );
    assert!(
        desktop
            .read(".cursor/mcp.json")
            .starts_with("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"command\":\"y\"}")
    );
}

#[test]
fn what_is_no_file_is_left_with_a_word_of_why() {
    type Make = fn(&Path);
    let cases: [(Make, &str); 6] = [
        (
            // Its length is all that is looked at.
            |file| fs::File::create(file).unwrap().set_len(65 << 20).unwrap(),
            "it has 68157440 bytes, more than",
        ),
        (|file| fs::create_dir(file).unwrap(), "it is a folder"),
        (
            |file| nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            "a pipe",
        ),
        (
            |file| symlink("nowhere.json", file).unwrap(),
            "`nowhere.json`, which is not there",
        ),
        (|file| symlink(file, file).unwrap(), "cannot change"),
        (
            |file| {
                fs::write(file, CLIENTS[2].2).unwrap();
                fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
            },
            "it is read-only",
        ),
    ];
    for (make, why) in cases {
        let desktop = Desktop::new();
        fs::create_dir_all(desktop.rig.path(".cursor")).unwrap();
        make(&desktop.rig.path(".cursor/mcp.json"));
        let ran = desktop.run(&["install", "cursor", "--yes"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(why), "{why}: {ran:?}");
        // Nothing was done, so nothing is left to undo.
        assert_eq!(desktop.run(&["uninstall", "cursor"]).code, 3);
    }
    let desktop = Desktop::new();
    let ran = desktop.run(&["install", "cursor", "--yes"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("not found; looked for"), "{ran:?}");
}

#[test]
fn what_steers_a_terminal_is_not_shown_as_it_is() {
    let desktop = Desktop::new();
    let text =
        "{\"mcpServers\":{\"\\u001b[31mred\":{\"command\":\"lh-server\",\"note\":\"\u{202e}gnp\u{9b}2J\"}}}";
    desktop.write(".cursor/mcp.json", text);
    let ran = desktop.done(&["install", "cursor", "--yes"]);
    let harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!ran.out.contains(harmful), "{ran:?}");
    assert!(desktop.read(".cursor/mcp.json").contains("\u{202e}gnp\u{9b}2J"));
}
