//! `install` and `uninstall`: what becomes of the files of each client, in the client's own format.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{LONGHAUL, Ran, Rig, longhaul};

mod refused;
mod started;
mod undone;

/// A client, where its file is in a home, and a real one.
const CLIENTS: [(&str, &str, &str); 7] = [
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        include_str!("samples/clients/claude-desktop.json"),
    ),
    (
        "claude-code",
        ".claude.json",
        include_str!("samples/clients/claude-code.json"),
    ),
    (
        "cursor",
        ".cursor/mcp.json",
        include_str!("samples/clients/cursor.json"),
    ),
    (
        "vscode",
        ".config/Code/User/mcp.json",
        include_str!("samples/clients/vscode.json"),
    ),
    (
        "codex",
        ".codex/config.toml",
        include_str!("samples/clients/codex.toml"),
    ),
    (
        "gemini",
        ".gemini/settings.json",
        include_str!("samples/clients/gemini.json"),
    ),
    (
        "windsurf",
        ".codeium/windsurf/mcp_config.json",
        include_str!("samples/clients/windsurf.json"),
    ),
];

/// A user with clients, whose programs only the login shell finds.
struct Desktop {
    rig: Rig,
}

impl Desktop {
    fn new() -> Desktop {
        let rig = Rig::new("");
        let bin = rig.path("shellbin");
        fs::create_dir(&bin).unwrap();
        for (name, text) in [
            ("lh-npx", "#!/usr/bin/env lh-node\n"),
            ("lh-node", "#!/bin/sh\necho started \"$2\"\n"),
            ("lh-server", "#!/usr/bin/true\n"),
        ] {
            fs::write(bin.join(name), text).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        // What a shell's own files print is in nobody's way.
        let profile = "echo hello\nexport PATH=\"$HOME/shellbin:/usr/bin:/bin\"\n";
        fs::write(rig.path(".bash_profile"), profile).unwrap();
        Desktop { rig }
    }

    /// One with the file of every client.
    fn with_clients() -> Desktop {
        let desktop = Desktop::new();
        for (_, file, text) in CLIENTS {
            desktop.write(file, text);
        }
        desktop
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.rig.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.rig.path(file)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = longhaul();
        command
            .env("HOME", self.rig.home.path())
            .env("SHELL", "/bin/bash")
            .env("PATH", "/usr/bin:/bin")
            .args(arguments)
            .arg("--state")
            .arg(self.rig.path("state"))
            .current_dir(self.rig.home.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    fn done(&self, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    }

    fn bin(&self, name: &str) -> String {
        self.rig.path("shellbin").join(name).display().to_string()
    }

    fn state(&self) -> String {
        self.rig.path("state").display().to_string()
    }

    /// The words of `wrap` in an entry of this user.
    fn wrap(&self, hold: Option<u32>, rest: &[&str]) -> Value {
        let mut words = vec!["wrap".to_owned(), "--state".to_owned(), self.state()];
        if let Some(hold) = hold {
            words.extend(["--hold".to_owned(), hold.to_string()]);
        }
        words.extend(rest.iter().map(|word| (*word).to_owned()));
        json!(words)
    }
}

/// What a client reads in a text.
fn parsed(file: &str, text: &str) -> Value {
    let text = text.trim_start_matches('\u{feff}');
    match file.ends_with(".toml") {
        true => serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap(),
        false => {
            serde_json::from_str(&strict(text)).unwrap_or_else(|error| panic!("{file}: {error}\n{text}"))
        }
    }
}

/// JSON without comments and trailing commas, as the clients that take those read it.
fn strict(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = letters.next() {
        match (quoted, c, letters.peek()) {
            (true, '\\', _) => {
                out.push(c);
                out.extend(letters.next());
                continue;
            }
            (_, '"', _) => quoted = !quoted,
            (false, '/', Some('/')) => {
                while letters.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            (false, '/', Some('*')) => {
                let mut last = ' ';
                for c in letters.by_ref() {
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    last = c;
                }
                continue;
            }
            (false, '}' | ']', _) => {
                let kept = out.trim_end().trim_end_matches(',').len();
                out.truncate(kept);
            }
            (_, _, _) => {}
        }
        out.push(c);
    }
    out
}

#[test]
fn every_clients_servers_run_through_longhaul_and_nothing_else_changes() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "all", "--yes"]);
    let npx = desktop.bin("lh-npx");
    let server = desktop.bin("lh-server");
    let path = format!("{}:/usr/bin:/bin", desktop.rig.path("shellbin").display());
    for (client, file, text) in CLIENTS {
        let mut meant = parsed(file, text);
        let hold = match client {
            "claude-desktop" | "cursor" | "codex" => Some(45),
            "vscode" => Some(225),
            "gemini" => Some(450),
            _ => None,
        };
        let wrap = |rest: &[&str]| desktop.wrap(hold, rest);
        match client {
            "claude-desktop" => {
                let servers = &mut meant["mcpServers"];
                let everything = ["--", &npx, "-y", "@modelcontextprotocol/server-everything"];
                servers["everything"]["args"] = wrap(&everything);
                servers["everything"]["env"] = json!({ "PATH": path });
                let files = [
                    "--",
                    &npx,
                    "-y",
                    "@modelcontextprotocol/server-filesystem",
                    "/home/you/Documents",
                ];
                servers["filesystem"]["args"] = wrap(&files);
                servers["filesystem"]["env"]["PATH"] = json!(path);
                servers["git"]["args"] = wrap(&["--", &server, "mcp-server-git"]);
            }
            "claude-code" => {
                meant["mcpServers"]["github"] = json!({
                    "type": "stdio", "command": LONGHAUL,
                    "args": wrap(&[
                        "--header", "Authorization=env:LONGHAUL_HEADER_1",
                        "--header", "X-Region=env:LONGHAUL_HEADER_2",
                        "https://api.example.com/mcp/",
                    ]),
                    "env": { "LONGHAUL_HEADER_1": "Bearer canary-code-secret-2", "LONGHAUL_HEADER_2": "eu" },
                });
                // Its own time-out of 20 minutes.
                meant["mcpServers"]["slow"]["args"] = desktop.wrap(Some(900), &["--", &server]);
                let local = &mut meant["projects"]["/home/you/work"]["mcpServers"]["local"];
                local["args"] = wrap(&["--", &npx, "-y", "x"]);
                local["env"] = json!({ "PATH": path });
            }
            "cursor" => {
                let servers = &mut meant["mcpServers"];
                servers["playwright"]["args"] = wrap(&["--", &npx, "@playwright/mcp@latest"]);
                servers["playwright"]["env"] = json!({ "PATH": path });
                servers["linear"] =
                    json!({ "command": LONGHAUL, "args": wrap(&["https://mcp.example.com/mcp"]) });
            }
            "vscode" => {
                let servers = &mut meant["servers"];
                servers["issues"] = json!({
                    "type": "stdio", "command": LONGHAUL,
                    "args": wrap(&["--header", "Authorization=env:LONGHAUL_HEADER_1", "https://issues.example.com/mcp"]),
                    "env": { "LONGHAUL_HEADER_1": "Bearer ${input:token}" },
                });
                let here = [
                    "--",
                    "${workspaceFolder}/bin/server",
                    "--root",
                    "${workspaceFolder}",
                ];
                servers["here"]["args"] = wrap(&here);
                servers["db"]["args"] = wrap(&["--", &server, "--port", "5"]);
            }
            "codex" => {
                let servers = &mut meant["mcp_servers"];
                servers["docs"]["args"] = wrap(&["--", &npx, "-y", "docs-mcp"]);
                servers["docs"]["env"]["PATH"] = json!(path);
                let words = [
                    "--header",
                    "X-Key=env:LONGHAUL_HEADER_1",
                    "https://remote.example.com/mcp",
                ];
                servers["remote one"] = json!({
                    "command": LONGHAUL, "args": desktop.wrap(Some(90), &words), "tool_timeout_sec": 120.0,
                    "env": { "LONGHAUL_HEADER_1": "canary-codex-secret-4" },
                });
                servers["inline"]["args"] = wrap(&["--", &server]);
                // Codex passes another `PATH` on at each start.
                servers["inline"]["env"]["PATH"] = json!(path);
            }
            "gemini" => {
                let servers = &mut meant["mcpServers"];
                servers["web"] = json!({
                    "command": LONGHAUL, "args": desktop.wrap(Some(3), &["http://localhost:3000/mcp"]),
                    "timeout": 5000, "trust": false,
                });
                servers["python"]["args"] = wrap(&["--", &server]);
            }
            _ => {
                let servers = &mut meant["mcpServers"];
                let figma = ["https://mcp.example.com/figma/mcp"];
                servers["figma"] = json!({ "command": LONGHAUL, "args": wrap(&figma) });
                // A key in its path.
                servers["zap"] = json!({
                    "command": LONGHAUL, "args": wrap(&["env:LONGHAUL_URL"]),
                    "env": { "LONGHAUL_URL": "https://mcp.example.com/s/3f9c1d2e8b7a4f60a1b2c3d4/mcp" },
                });
                servers["gh"]["args"] = wrap(&["--", &npx, "-y", "gh"]);
                servers["gh"]["env"] = json!({ "PATH": path });
            }
        }
        for list in ["mcpServers", "servers", "mcp_servers"] {
            through(&mut meant[list]);
        }
        through(&mut meant["projects"]["/home/you/work"]["mcpServers"]);
        let now = desktop.read(file);
        assert_eq!(
            without_null(parsed(file, &now)),
            without_null(meant),
            "{client}:\n{now}"
        );
    }
}

/// Sets the program of every entry that is wrapped.
fn through(servers: &mut Value) {
    for entry in servers
        .as_object_mut()
        .into_iter()
        .flat_map(|servers| servers.values_mut())
    {
        if entry["args"][0] == "wrap" {
            entry["command"] = json!(LONGHAUL);
        }
    }
}

/// Without what indexing has made.
fn without_null(value: Value) -> Value {
    let Value::Object(members) = value else {
        return value;
    };
    let members = members.into_iter().map(|(key, value)| (key, without_null(value)));
    let is_empty =
        |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
}

#[test]
fn comments_order_line_ends_and_unknown_keys_stay() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "all", "--yes"]);
    let cursor = desktop.read(".cursor/mcp.json");
    assert!(
        cursor.starts_with("\u{feff}// My servers\r\n{\r\n\t\"mcpServers\""),
        "{cursor:?}"
    );
    assert!(!cursor.replace("\r\n", "").contains('\n'), "{cursor:?}");
    assert!(
        cursor.contains("/* the browser */") && cursor.contains("// from npm") && !cursor.ends_with('\n')
    );
    assert!(cursor.contains("\"@playwright/mcp@latest\",]"), "{cursor}");
    let codex = desktop.read(".codex/config.toml");
    for kept in [
        "# Codex\n",
        "# the usual one",
        "'on-request'",
        "# no key needed",
        "  DOCS_TOKEN",
        "\"A\" = \"1\"",
    ] {
        assert!(codex.contains(kept), "{kept}: {codex}");
    }
    let code = desktop.read(".claude.json");
    let (was, _) = CLIENTS[1].2.split_once("\"mcpServers\"").unwrap();
    assert!(code.starts_with(was), "{code}");
    assert!(
        code.contains("[ { \"display\": \"hello\", \"pastedContents\": {} } ]"),
        "{code}"
    );
    assert!(desktop.read(CLIENTS[0].1).contains("\"ratio\": 1.50e0"));
}

#[test]
fn secrets_are_in_no_argument_and_not_shown() {
    let desktop = Desktop::with_clients();
    let shown = desktop.done(&["install", "all", "--yes"]);
    let undone = desktop.done(&["uninstall", "all", "--dry-run"]);
    let json = desktop.done(&["--json", "install", "all"]);
    for ran in [&shown, &undone, &json] {
        assert!(
            !ran.out.contains("canary") && !ran.err.contains("canary"),
            "{ran:?}"
        );
    }
    assert!(
        shown.out.contains("\"…\"") && shown.out.contains("${input:token}"),
        "{shown:?}"
    );
    // An address with a key in its path is one, too.
    assert!(!shown.out.contains("3f9c1d2e8b7a4f60a1b2c3d4"), "{shown:?}");
    for (_, file, _) in CLIENTS {
        for line in desktop
            .read(file)
            .lines()
            .filter(|line| line.contains("\"wrap\""))
        {
            let (_, arguments) = line.split_once("\"wrap\"").unwrap();
            let arguments = arguments.split(']').next().unwrap();
            assert!(!arguments.contains("canary"), "{line}");
        }
    }
    let folder = desktop.rig.path("state/install");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the program is started as the server that was written would"
)]
fn what_is_written_starts_without_the_path_of_a_shell() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "claude-desktop", "--yes"]);
    let servers = parsed("x.json", &desktop.read(CLIENTS[0].1));
    let entry = &servers["mcpServers"]["everything"];
    let words: Vec<&str> = entry["args"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let behind = words.iter().position(|word| *word == "--").unwrap() + 1;
    let ran = Command::new(words[behind])
        .args(&words[behind + 1..])
        .env_clear()
        .env("PATH", entry["env"]["PATH"].as_str().unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "started -y\n", "{ran:?}");
}

#[test]
fn an_entry_of_its_own_is_added_where_there_are_tools_or_no_servers() {
    let desktop = Desktop::new();
    fs::create_dir_all(desktop.rig.path(".cursor")).unwrap();
    desktop.write(".gemini/settings.json", "{\n\t\"theme\": \"Dark\"\n}\n");
    desktop.write(".codex/config.toml", "model = \"x\"");
    desktop.write(".config/Code/User/mcp.json", "");
    desktop.write(".codeium/windsurf/mcp_config.json", "{\"mcpServers\":{}}\n");
    desktop.done(&["install", "all", "--yes"]);
    let state = desktop.state();
    let stdio = |hold: &[&str]| {
        let words = [&["stdio", "--state", state.as_str()], hold].concat();
        json!({ "command": LONGHAUL, "args": words })
    };
    let cursor = parsed("x.json", &desktop.read(".cursor/mcp.json"));
    assert_eq!(
        cursor,
        json!({ "mcpServers": { "longhaul": stdio(&["--hold", "45"]) } })
    );
    let gemini = desktop.read(".gemini/settings.json");
    assert!(
        gemini.starts_with(
            "{\n\t\"theme\": \"Dark\",\n\t\"mcpServers\": {\n\t\t\"longhaul\": {\n\t\t\t\"command\""
        ),
        "{gemini}"
    );
    assert_eq!(
        parsed("x.json", &gemini)["mcpServers"]["longhaul"],
        stdio(&["--hold", "450"])
    );
    let codex = desktop.read(".codex/config.toml");
    assert_eq!(
        parsed("x.toml", &codex)["mcp_servers"]["longhaul"],
        stdio(&["--hold", "45"]),
        "{codex}"
    );
    let code = parsed("x.json", &desktop.read(".config/Code/User/mcp.json"));
    assert_eq!(code["servers"]["longhaul"]["type"], "stdio");
    let windsurf = parsed("x.json", &desktop.read(".codeium/windsurf/mcp_config.json"));
    assert_eq!(windsurf["mcpServers"]["longhaul"], stdio(&[]));
    desktop.done(&["uninstall", "all"]);
    assert!(!desktop.rig.path(".cursor/mcp.json").exists());
    assert_eq!(
        desktop.read(".gemini/settings.json"),
        "{\n\t\"theme\": \"Dark\"\n}\n"
    );
    assert_eq!(desktop.read(".codex/config.toml"), "model = \"x\"");
    assert_eq!(desktop.read(".config/Code/User/mcp.json"), "");
    // With a configuration of Longhaul's there is something to offer beside the servers.
    desktop.write(
        ".config/longhaul/longhaul.toml",
        "[tools.hello]\ncommand = [\"true\"]\n",
    );
    desktop.write(".gemini/settings.json", CLIENTS[5].2);
    desktop.done(&["install", "gemini", "--yes"]);
    let gemini = parsed("x.json", &desktop.read(".gemini/settings.json"));
    assert_eq!(gemini["mcpServers"]["longhaul"], stdio(&["--hold", "450"]));
}

#[test]
fn a_program_that_has_moved_is_found_again() {
    let desktop = Desktop::with_clients();
    desktop.done(&["install", "claude-desktop", "--yes"]);
    let elsewhere = desktop.rig.path("shellbin2");
    fs::rename(desktop.rig.path("shellbin"), &elsewhere).unwrap();
    fs::write(
        desktop.rig.path(".bash_profile"),
        "export PATH=\"$HOME/shellbin2:/usr/bin:/bin\"\n",
    )
    .unwrap();
    let doctor = desktop.run(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(
        doctor.out.contains("for server `everything`: not found"),
        "{doctor:?}"
    );
    assert!(
        doctor
            .out
            .contains("longhaul install claude-desktop   (writes full paths)"),
        "{doctor:?}"
    );
    desktop.done(&["install", "claude-desktop", "--yes"]);
    let servers = parsed("x.json", &desktop.read(CLIENTS[0].1));
    let words = servers["mcpServers"]["everything"]["args"].to_string();
    assert!(words.contains("/shellbin2/lh-npx"), "{words}");
    desktop.done(&["uninstall", "claude-desktop"]);
    assert_eq!(desktop.read(CLIENTS[0].1), CLIENTS[0].2);
}

#[test]
fn an_entry_that_names_longhaul_alone_gets_full_paths() {
    let desktop = Desktop::new();
    let text = r#"{"mcpServers":{"longhaul":{"command":"longhaul","args":["stdio"]},"x":{"command":"longhaul","args":["wrap","--","lh-npx","-y"]}}}"#;
    desktop.write(".cursor/mcp.json", text);
    desktop.done(&["install", "cursor", "--yes"]);
    let servers = &parsed("x.json", &desktop.read(".cursor/mcp.json"))["mcpServers"];
    assert_eq!(
        servers["longhaul"],
        json!({ "command": LONGHAUL, "args": ["stdio"] })
    );
    let path = format!("{}:/usr/bin:/bin", desktop.rig.path("shellbin").display());
    let x = json!({
        "command": LONGHAUL, "args": ["wrap", "--", desktop.bin("lh-npx"), "-y"], "env": { "PATH": path },
    });
    assert_eq!(servers["x"], x);
    desktop.done(&["uninstall", "cursor"]);
    assert_eq!(desktop.read(".cursor/mcp.json"), text);
}

#[test]
fn every_place_of_vs_code_is_found() {
    let desktop = Desktop::new();
    let user = ".config/Code - Insiders/User";
    let settings = "{\n\t\"editor.tabSize\": 4,\n\t\"mcp\": { \"servers\": { \"a\": { \"command\": \"lh-server\" } }, },\n}\n";
    desktop.write(&format!("{user}/settings.json"), settings);
    let profile = "{ \"servers\": { \"b\": { \"command\": \"lh-server\" } } }";
    desktop.write(&format!("{user}/profiles/7f/mcp.json"), profile);
    desktop.done(&["install", "vscode", "--yes"]);
    for file in ["settings.json", "profiles/7f/mcp.json"] {
        assert!(
            desktop.read(&format!("{user}/{file}")).contains("\"wrap\""),
            "{file}"
        );
    }
    assert!(desktop.read(&format!("{user}/mcp.json")).contains("\"stdio\""));
    desktop.done(&["uninstall", "vscode"]);
    assert_eq!(desktop.read(&format!("{user}/settings.json")), settings);
    assert_eq!(desktop.read(&format!("{user}/profiles/7f/mcp.json")), profile);
    assert!(!desktop.rig.path(&format!("{user}/mcp.json")).exists());
}

#[test]
fn a_shell_that_says_nothing_is_not_waited_for() {
    let desktop = Desktop::new();
    desktop.write(
        ".cursor/mcp.json",
        "{ \"mcpServers\": { \"a\": { \"command\": \"true\" } } }",
    );
    // It prints, and never ends.
    fs::write(desktop.rig.path(".bash_profile"), "echo hello\nexec sleep 600\n").unwrap();
    let ran = desktop.done(&["install", "cursor", "--yes"]);
    assert!(ran.out.contains("through Longhaul: /usr/bin/true"), "{ran:?}");
}

#[test]
fn doctor_says_of_each_client_what_it_could_not_start() {
    let desktop = Desktop::with_clients();
    let before = desktop.run(&["doctor"]).out;
    assert!(
        before.contains("claude-desktop: none of 4 servers through Longhaul"),
        "{before}"
    );
    assert!(
        before.contains("cannot start `lh-npx` for server `playwright`: not found"),
        "{before}"
    );
    assert!(
        before.contains("PATH here       /usr/local/bin:/usr/bin:/bin"),
        "{before}"
    );
    assert!(
        before.contains(&format!("your shell has  {}", desktop.bin("lh-npx"))),
        "{before}"
    );
    desktop.done(&["install", "all", "--yes"]);
    let after = desktop.run(&["doctor"]).out;
    assert!(
        after.contains("claude-desktop: 3 of 4 servers through Longhaul"),
        "{after}"
    );
    assert!(
        after.contains("no-such-program-anywhere") && !after.contains("lh-npx"),
        "{after}"
    );
}

#[test]
fn a_file_of_a_project_is_changed_when_it_is_named() {
    let desktop = Desktop::with_clients();
    let text = "{ \"mcpServers\": { \"x\": { \"command\": \"lh-server\" } } }\n";
    desktop.write(".mcp.json", text);
    let ran = desktop.done(&["install", "claude-code", "--yes"]);
    assert!(ran.out.contains("--file .mcp.json changes it"), "{ran:?}");
    assert_eq!(desktop.read(".mcp.json"), text);
    desktop.done(&["install", "claude-code", "--file", ".mcp.json", "--yes"]);
    assert!(desktop.read(".mcp.json").contains("\"wrap\""));
    desktop.done(&["uninstall", "claude-code", "--file", ".mcp.json"]);
    assert_eq!(desktop.read(".mcp.json"), text);
    assert_ne!(desktop.read(".claude.json"), CLIENTS[1].2);
}
