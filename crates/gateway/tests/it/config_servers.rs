//! The servers and toolsets of a configuration, as their users declare them in our own file.

use longhaul_core::Span;
use longhaul_gateway::config::{Adoption, Config, Isolation, OnCrash, Prefix, Protocol};

use crate::config::read;

fn loaded(files: &[(&str, &str)]) -> Config {
    read(files, &[]).expect("a good configuration").config
}

#[track_caller]
fn wrong(text: &str, expected: &str) {
    let problems = read(&[("longhaul.toml", text)], &[]).expect_err("something is wrong");
    assert_eq!(problems, expected);
}

#[test]
fn a_server_is_a_program_or_an_address_and_the_rest_has_a_default() {
    let config = loaded(&[(
        "longhaul.toml",
        r#"
[servers.playwright]
command = ["npx", "-y", "@playwright/mcp"]
[servers.linear]
url = "https://mcp.linear.app/mcp"
headers.Authorization = "env:LINEAR"
"#,
    )]);
    let names: Vec<&str> = config
        .servers_in_order()
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(names, ["playwright", "linear"]);
    let playwright = &config.servers["playwright"];
    assert_eq!(playwright.command.0, ["npx", "-y", "@playwright/mcp"]);
    assert_eq!(playwright.protocol, Protocol::Auto);
    assert_eq!(playwright.isolation, Isolation::Session);
    assert_eq!(playwright.prefix, Prefix::Auto);
    assert_eq!(playwright.tasks, Adoption::Adopt);
    assert_eq!(playwright.on_crash, OnCrash::Fail);
    assert_eq!(playwright.processes_max, 16);
    assert_eq!(playwright.idle_stop, Span(600_000));
    let linear = &config.servers["linear"];
    assert_eq!(linear.url.as_deref(), Some("https://mcp.linear.app/mcp"));
    assert_eq!(linear.headers.0["Authorization"], "env:LINEAR");
}

#[test]
fn what_may_be_secret_is_not_in_debug_output() {
    let config = loaded(&[(
        "longhaul.toml",
        "[servers.x]\ncommand = [\"x\"]\nenv.TOKEN = \"hunter2\"\n[servers.y]\nurl = \"http://127.0.0.1:1/\"\nheaders.X-Key = \"hunter2\"\n",
    )]);
    let shown = format!("{config:?}");
    assert!(shown.contains("TOKEN") && shown.contains("X-Key"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_tool_of_a_server_can_be_told_apart() {
    let config = loaded(&[(
        "longhaul.toml",
        r#"
[servers.git]
command = ["mcp-server-git"]
on_crash = "rerun"
[servers.git.tools.git_reset]
hidden = true
[servers.git.tools.git_log]
promote_after = "0s"
"#,
    )]);
    let tools = &config.servers["git"].tools;
    assert!(tools["git_reset"].hidden);
    assert_eq!(tools["git_log"].promote_after, Some(Span(0)));
    assert_eq!(tools["git_log"].hold, None);
}

#[test]
fn what_is_wrong_with_a_server_is_said_with_its_place() {
    wrong(
        "[servers.a]\n",
        "longhaul.toml:1:10: a server needs a `command` to start, or a `url` where it is",
    );
    wrong(
        "[servers.a]\ncommand = [\"x\"]\nurl = \"https://example.org/\"\nheaders.A = \"b\"\n",
        "longhaul.toml:3:7: give `command` or `url`, not both",
    );
    wrong(
        "[servers.a]\nurl = \"ftp://example.org/\"\n[servers.b]\nurl = \"https://me:pw@example.org/\"\n",
        "longhaul.toml:2:7: `ftp://example.org/` is not an address such as `https://example.org/mcp`\n\
         longhaul.toml:4:7: the address has a name or a password in it; put it into `headers` as `env:NAME`",
    );
    wrong(
        "[servers.a]\ncommand = \"python3 -c 1\"\n[servers.b]\nurl = \"https://example.org/\"\nheaders.A = \"b\\n\"\n",
        "longhaul.toml:2:11: `python3 -c 1` is taken for the name of one program; write a list: [\"python3\", \"-c\", \"1\"]\n\
         longhaul.toml:5:13: `headers.A` holds a line end or another character that no header may have",
    );
    loaded(&[("longhaul.toml", "[servers.a]\ncommand = \"/opt/My Server/run\"\n")]);
    wrong(
        "[servers.a]\nurl = \"https//me:pw@example.org/\"\n",
        "longhaul.toml:2:7: the address is not one such as `https://example.org/mcp`",
    );
    wrong(
        "[servers.a__b]\ncommand = [\"x\"]\n",
        "longhaul.toml:1:10: `a__b` cannot name a server: use 1 to 32 letters, digits, `_` and `-`, without two `_` in a row",
    );
    wrong(
        "[servers.a]\ncommand = [\"x\"]\nheaders.A = \"b\"\nisolation = \"none\"\n[servers.b]\nurl = \"https://example.org/\"\nnice = 3\n",
        "longhaul.toml:3:1: `headers` are for a server at a `url`\n\
         longhaul.toml:4:13: `isolation` must be one of `session`, `principal`, `shared`, `call`, not the text `none`\n\
         longhaul.toml:7:8: `nice` is for a server that is started with `command`",
    );
}

#[test]
fn servers_are_declared_in_files_only() {
    let problems = read(
        &[("longhaul.toml", "")],
        &[("LONGHAUL_SERVERS__X__COMMAND", "sh")],
    )
    .expect_err("not from the environment");
    assert_eq!(
        problems,
        "LONGHAUL_SERVERS__X__COMMAND: tools, servers and toolsets are declared in the configuration file only, never in the environment"
    );
}

#[test]
fn a_toolset_names_what_there_is() {
    let files = [(
        "longhaul.toml",
        r#"
[tools.lint]
description = "d"
command = ["true"]
[servers.git]
command = ["x"]
[toolsets.review]
tools = ["lint", "git__*", "log", "hub__log"]
servers = ["git"]
exclude = ["*reset*"]
description = "For reviewers."
instructions = "Change nothing."
"#,
    )];
    let read = read(&files, &[]).expect("a good configuration");
    let review = &read.config.toolsets["review"];
    assert_eq!(
        (review.name.as_str(), review.servers.as_slice()),
        ("review", ["git".to_owned()].as_slice())
    );
    assert_eq!(review.instructions.as_deref(), Some("Change nothing."));
    // What `log` is may be known once `git` was reached.
    let warnings: Vec<String> = read.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["longhaul.toml:7:11: `hub__log` of toolset `review` fits no tool: no server is named `hub`"]
    );
}

#[test]
fn what_is_wrong_with_a_toolset_is_said_with_its_place() {
    wrong(
        "[servers.git]\ncommand = [\"x\"]\n[toolsets.a]\nservers = [\"gti\"]\n[toolsets.b]\n[toolsets.c__d]\ntools = [\"x\"]\n",
        "longhaul.toml:3:11: toolset `a` names the server `gti`, which is not configured; did you mean `git`?\n\
         longhaul.toml:5:11: toolset `b` is empty: name `tools` or `servers` of it\n\
         longhaul.toml:6:11: `c__d` cannot name a toolset: use 1 to 32 letters, digits, `_` and `-`, without two `_` in a row",
    );
    let files = [(
        "longhaul.toml",
        "[tools.lint]\ndescription = \"d\"\ncommand = [\"true\"]\n[toolsets.a]\ntools = [\"lin\"]\n",
    )];
    let read = read(&files, &[]).expect("a good configuration");
    assert_eq!(
        read.warnings[0].to_string(),
        "longhaul.toml:4:11: `lin` of toolset `a` fits no tool: no command has such a name; did you mean `lint`?"
    );
}

#[test]
fn longhaul_is_no_server_behind_itself() {
    for itself in [
        "command = [\"longhaul\", \"stdio\"]",
        "command = \"/usr/bin/longhaul\"\nargs = [\"serve\", \"--stdio\"]",
        "url = \"http://localhost:7410/mcp/review\"",
    ] {
        wrong(
            &format!("[servers.own]\n{itself}\n"),
            "longhaul.toml:1:10: server `own` is this Longhaul itself: each of its tools would call itself",
        );
    }
    for another in [
        "command = [\"longhaul\", \"stdio\", \"--state\", \"/srv/other\"]",
        "command = [\"longhaul\", \"stdio\"]\nenv.LONGHAUL_STATE_DIR = \"/srv/other\"",
        "command = [\"longhaul\", \"stdio\"]\ndisabled = true",
        "url = \"http://localhost:7411/mcp\"",
    ] {
        let config = loaded(&[("longhaul.toml", &format!("[servers.own]\n{another}\n"))]);
        assert!(config.servers.contains_key("own"), "{another}");
    }
}
