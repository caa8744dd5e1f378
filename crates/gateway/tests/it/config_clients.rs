//! The files in which MCP clients keep their servers, read as those clients read them.

use std::path::Path;

use longhaul_gateway::config::Loaded;

use crate::config::read;

fn file(json: &str) -> Loaded {
    read(
        &[(".mcp.json", json)],
        &[("TOKEN", "t-1"), ("HOST", "example.org")],
    )
    .expect("a client's file")
}

fn warnings(read: &Loaded) -> Vec<String> {
    read.warnings.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn wrong(json: &str, expected: &str) {
    let problems = read(&[(".mcp.json", json)], &[]).expect_err("something is wrong");
    assert_eq!(problems, expected);
}

#[test]
fn a_client_s_file_is_read_in_its_order() {
    let read = file(
        r#"{
      "mcpServers": {
        "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"], "env": {"A": "1", "B": null}},
        "My Server!": {"type": "http", "url": "https://example.org/mcp", "headers": {"X-Key": "k"}},
        "old": {"type": "sse", "url": "https://example.org/sse", "autoApprove": ["x"]},
        "always": {"command": "true"},
        "off": {"command": "false", "disabled": true}
      },
      "theme": "dark"
    }"#,
    );
    let config = &read.config;
    let memory = &config.servers["memory"];
    assert_eq!(memory.command.0, ["npx"]);
    assert_eq!(memory.args, ["-y", "@modelcontextprotocol/server-memory"]);
    assert_eq!(memory.env.0["A"], "1");
    let names: Vec<&str> = config
        .servers_in_order()
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(names, ["memory", "My-Server-", "old", "always"]);
    assert_eq!(
        config.servers["My-Server-"].url.as_deref(),
        Some("https://example.org/mcp")
    );
    assert_eq!(
        warnings(&read),
        [
            ".mcp.json:5:25: server `old` is of the type `sse`, a transport of 2024 that is not spoken here; its address \
             is tried with Streamable HTTP",
            ".mcp.json:5:81: `autoApprove` of server `old` means nothing here and is passed over",
        ]
    );
}

#[test]
fn a_client_s_file_can_be_included() {
    let files = [
        (
            "longhaul.toml",
            "include = [\"mcp.json\"]\n[tools.t]\ndescription = \"d\"\ncommand = [\"true\"]\n",
        ),
        (
            "mcp.json",
            r#"{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}"#,
        ),
    ];
    let config = read(&files, &[]).expect("a good configuration").config;
    assert!(config.tools.contains_key("t") && config.servers.contains_key("time"));
}

#[test]
fn comments_and_last_commas_of_an_editor_are_passed_over() {
    let read = file(
        r#"{
  // What VS Code asks for.
  "inputs": [],
  "servers": {
    "docs": { /* here: */ "url": "https://example.org//mcp", "headers": { "X": "a // b, ]", }, }, // the last
    "path": { "command": "a\"/*b", "args": ["x", /* none */ ], },
  },
}"#,
    );
    let docs = &read.config.servers["docs"];
    assert_eq!(docs.url.as_deref(), Some("https://example.org//mcp"));
    assert_eq!(docs.headers.0["X"], "a // b, ]");
    let path = &read.config.servers["path"];
    assert_eq!(
        (path.command.0[0].as_str(), path.args.as_slice()),
        ("a\"/*b", ["x".to_owned()].as_slice())
    );
    assert!(warnings(&read).is_empty());
}

#[test]
fn variables_stay_as_they_are_written_until_the_server_is_started() {
    let read = file(
        r#"{"mcpServers": {
          "a": {"command": "${workspaceFolder}/run", "args": ["${TOKEN}", "${NONE:-x}"], "env": {"DB": "file:./dev.db", "K": "${env:OTHER}"}},
          "b": {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
        }}"#,
    );
    let a = &read.config.servers["a"];
    assert_eq!(
        (a.command.0[0].as_str(), a.args[0].as_str()),
        ("${workspaceFolder}/run", "${TOKEN}")
    );
    assert!(a.is_of_client);
    assert_eq!(
        read.config.servers["b"].headers.0["Authorization"],
        "Bearer ${TOKEN}"
    );
    assert_eq!(
        warnings(&read),
        [".mcp.json:2:16: server `a` needs the variable `OTHER`, which is not set"]
    );
}

#[test]
fn what_only_the_client_can_replace_is_refused() {
    wrong(
        r#"{"servers": {"a": {"command": "x", "env": {"KEY": "${input:key}"}},
           "b": {"url": "https://example.org/${config:path}"}}}"#,
        ".mcp.json:1:43: `${input:key}` in `env` of server `a`: VS Code asks its user for it, and Longhaul cannot; write \
         `${NAME}` there, and set that variable where Longhaul runs\n\
         .mcp.json:2:25: `${config:path}` in `url` of server `b`: it is a setting of VS Code, and Longhaul cannot; write \
         `${NAME}` there, and set that variable where Longhaul runs",
    );
}

#[test]
fn two_servers_that_would_have_one_name_are_named() {
    wrong(
        r#"{"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "y"}, "c": {"command": "x"}, "c": {"command": "y"}}}"#,
        ".mcp.json:1:49: the servers `a b` and `a-b` would both be `a-b` here: give one another name\n\
         .mcp.json:1:95: two servers are named `c`",
    );
}

#[test]
fn what_may_be_secret_is_in_no_message() {
    for json in [
        r#"{"mcpServers": {"a": {"command": "x", "env": "hunter2"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "env": {"K": ["hunter2"]}}}}"#,
        r#"{"mcpServers": {"a": {"url": "x://y/z?key=hunter2"}}}"#,
        r#"{"mcpServers": {"a": {"url": "https://me:hunter2@example org/"}}}"#,
        r#"{"mcpServers": {"a": {"url": "https://${ME}:hunter2@example.org/"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "hunter2"}},,}}"#,
        r#"["hunter2"]"#,
        r#""hunter2"#,
    ] {
        let problems = read(&[(".mcp.json", json)], &[]).expect_err("something is wrong");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
    wrong("[]", ".mcp.json:1:1: not a JSON object");
    wrong(
        "{\n  \"mcpServers\": ",
        ".mcp.json:2:16: not valid JSON: it ends too early",
    );
    wrong("{}", ".mcp.json: no `mcpServers` and no `servers` in it");
}

#[test]
fn longhaul_s_own_entry_is_left_out() {
    let read = file(
        r#"{"mcpServers": {
          "one": {"command": "/home/ada/.cargo/bin/longhaul", "args": ["stdio"]},
          "two": {"type": "http", "url": "http://localhost:7410/mcp"},
          "three": {"url": "http://[::1]:7410/mcp/review"},
          "near": {"url": "http://localhost:7411/mcp"},
          "time": {"command": "uvx"}
        }}"#,
    );
    let names: Vec<&String> = read.config.servers.keys().collect();
    assert_eq!(names, ["near", "time"]);
    let expected =
        ["one", "two", "three"].map(|name| format!("server `{name}` is Longhaul itself, and is left out"));
    let found: Vec<&str> = read
        .warnings
        .iter()
        .map(|warning| warning.text.as_str())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_workspace_holds_the_folder_of_the_client() {
    let json = r#"{"servers": {
      "a": {"command": "x"},
      "b": {"command": "x", "cwd": "${workspaceFolder}/sub"},
      "c": {"command": "x", "cwd": "sub"},
      "d": {"command": "x", "cwd": "/abs"}
    }}"#;
    for (file, folder, sub) in [
        ("/site/.vscode/mcp.json", "/site", "/site/.vscode/../sub"),
        ("/site/.cursor/mcp.json", "/site", "/site/.cursor/../sub"),
        ("/site/mcp.json", "/site", "/site/sub"),
    ] {
        let servers = read(&[(file, json)], &[])
            .expect("a client's file")
            .config
            .servers;
        assert_eq!(servers["a"].folder, Path::new(folder));
        assert_eq!(servers["a"].cwd, None);
        for name in ["b", "c"] {
            assert_eq!(
                servers[name].cwd.as_deref(),
                Some(Path::new(sub)),
                "{file} {name}"
            );
        }
        assert_eq!(servers["d"].cwd.as_deref(), Some(Path::new("/abs")));
    }
    wrong(
        r#"{"servers": {"a": {"command": "x", "cwd": "${userHome}/x"}}}"#,
        ".mcp.json:1:43: `cwd` of server `a` may begin with `${workspaceFolder}` and have no other variable here",
    );
}

#[test]
fn a_file_that_ends_too_early_is_said_with_a_place_that_there_is() {
    wrong(
        "{\"mcpServers\": {\n  \"a\": {\"command\": \"x\"}\n",
        ".mcp.json:3:1: not valid JSON: it ends too early",
    );
}

#[test]
fn a_client_s_file_of_another_name_is_known_by_what_is_in_it() {
    let json = "{\"mcpServers\": {}}";
    let problems = read(&[("servers.txt", json)], &[]).expect_err("it is read as TOML");
    assert_eq!(
        problems,
        "servers.txt: not TOML: this looks like JSON; the name of a client's file must end in `.json`"
    );
}
