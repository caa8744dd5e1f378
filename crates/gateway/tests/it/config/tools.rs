//! What the configuration may say of a tool.

use longhaul_gateway::config::{Hold, Need, OnAbandon, ShowSchema, Stdin};

use super::{loaded, read, tool, wrong};

// B-53
#[test]
fn tools_keep_the_order_of_their_files() {
    let tool = |name: &str| format!("[tools.{name}]\ndescription = \"d\"\ncommand = [\"true\"]\n");
    let first = format!("include = [\"a.toml\"]\n{}{}", tool("zeta"), tool("beta"));
    let second = format!("{}{}", tool("gamma"), tool("alpha"));
    let files = [("longhaul.toml", first.as_str()), ("a.toml", second.as_str())];
    let config = read(&files, &[]).expect("good").config;
    let names: Vec<&str> = config.in_order().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["zeta", "beta", "gamma", "alpha"]);
}

#[test]
fn a_tool_says_what_it_needs_of_a_client() {
    let config = loaded(&tool(
        "command = [\"true\"]\nneeds = [\"sampling\", \"elicitation.url\"]",
    ));
    assert_eq!(config.tools["t"].needs, [Need::Sampling, Need::Url]);
    wrong(
        &tool("command = [\"true\"]\nneeds = [\"samplings\"]"),
        "longhaul.toml:4:10: each item must be one of `elicitation`, `elicitation.url`, `sampling`, `roots`, not the text `samplings`",
    );
}

#[test]
fn a_placeholder_inside_program_text_is_refused_and_the_safe_way_is_shown() {
    wrong(
        &tool("command = [\"sh\", \"-c\", \"wc -l {path} | sort\"]\nargs.path = \"string\""),
        "longhaul.toml:3:24: `{path}` stands inside the program text of `sh -c`, where a value would run as code; \
         pass it beside the text: [\"sh\", \"-c\", \"… \\\"$1\\\" …\", \"sh\", \"{path}\"], \
         or say `allow_program_text = true` where that is what the tool is for",
    );
    wrong(
        &tool("command = [\"python3\", \"-c\", \"print({n})\"]\nargs.n = \"integer\""),
        "longhaul.toml:3:29: `{n}` stands inside the program text of `python3 -c`, where a value would run as code; \
         pass it beside the text: [\"python3\", \"-c\", \"… sys.argv[1] …\", \"{n}\"], \
         or say `allow_program_text = true` where that is what the tool is for",
    );
    let refused = [
        r#"["/usr/bin/env", "A=1", "bash", "-lc", "echo {a}"]"#,
        r#"["bash", "-o", "pipefail", "-c", "echo {a}"]"#,
        r#"["bash", "-c", "-e", "echo {a}"]"#,
        r#"["sh", "-c", "{a}"]"#,
        r#"["sh", "-cecho {a}"]"#,
        r#"["sh", "-ce", "echo {a}"]"#,
        r#"["nice", "python3.11", "-c", "{a}"]"#,
        r#"["find", ".", "-exec", "sh", "-c", "rm {a}", ";"]"#,
        r#"["perl", "-ne", "print {a}"]"#,
        r#"["node", "--eval={a}"]"#,
        r#"["node", "-e", "{a}"]"#,
        r#"["ruby", "-e", "puts {a}"]"#,
        r#"["php", "-r", "echo {a};"]"#,
    ];
    for command in refused {
        let problems = read(
            &[(
                "l.toml",
                &tool(&format!("command = {command}\nargs.a = \"string\"")),
            )],
            &[],
        );
        let problems = problems.err().unwrap_or_default();
        assert!(
            problems.contains("stands inside the program text"),
            "{command}: {problems}"
        );
    }
    let fine = [
        r#"["sh", "-c", "wc -l \"$1\"", "sh", "{a}"]"#,
        r#"["sh", "script.sh", "-c", "{a}"]"#,
        r#"["python3", "tool.py", "-c", "{a}"]"#,
        r#"["node", "tool.js", "-e", "{a}"]"#,
        r#"["grep", "-c", "{a}"]"#,
    ];
    for command in fine {
        loaded(&tool(&format!("command = {command}\nargs.a = \"string\"")));
    }
}

// S23
#[test]
fn a_secret_never_goes_into_the_arguments() {
    wrong(
        &tool("command = [\"login\", \"{key}\"]\nargs.key = { type = \"string\", secret = true }"),
        "longhaul.toml:3:21: `key` is secret, and a program's arguments can be read by every user of the machine; \
         it is given on stdin (`stdin = \"secrets\"`)",
    );
    let config = loaded(&tool(
        "command = [\"login\"]\nargs.key = { type = \"string\", secret = true }",
    ));
    assert_eq!(config.tools["t"].stdin(), Stdin::Secrets);
}

#[test]
fn a_placeholder_must_name_an_argument_of_the_right_kind() {
    wrong(
        &tool(
            "command = [\"x\", \"{pth}\", \"{list}\", \"{path...}\", \"{path?--p}\", \"{opt}\"]\nargs.path = \"string\"\nargs.list = \"string[]\"\nargs.opt = \"string?\"\nargs.unused = \"string\"",
        ),
        "longhaul.toml:3:17: `{pth}` is not a declared argument; did you mean `path`?\n\
         longhaul.toml:3:26: `list` is a list; write \"{list...}\" as an item of its own\n\
         longhaul.toml:3:36: `{path...}` needs a list, such as args.path = \"string[]\"\n\
         longhaul.toml:3:49: `{path?…}` needs args.path = \"boolean\"\n\
         longhaul.toml:3:63: `opt` may be absent; put what depends on it in a list of its own, [\"{opt}\"], or give it a default\n\
         longhaul.toml:7:6: argument `unused` is used nowhere: neither in `command` nor in `stdin`",
    );
    wrong(
        &tool("command = [\"{x}\"]\nargs.x = \"string\""),
        "longhaul.toml:3:12: the program must be written out: a value may not choose what runs",
    );
    wrong(
        &tool("command = [\"a\", \"{\", \"{a b}\", \"-{x...}\"]"),
        "longhaul.toml:3:17: `{` has a single brace; write `{{` or `}}` for a brace\n\
         longhaul.toml:3:22: `{a b}` in `{a b}` is not an argument's name; write `{{` and `}}` for braces\n\
         longhaul.toml:3:31: `{x...}` must be an item of its own, not a part of `-{x...}`",
    );
}

#[test]
fn an_argument_declared_wrongly_is_reported() {
    wrong(
        &tool(
            "command = [\"x\", \"{a}\", \"{b}\"]\nargs.a = \"strng\"\nargs.b = { type = \"integer\", default = \"x\", secrt = true }",
        ),
        "longhaul.toml:3:17: `{a}` is not a declared argument; did you mean `b`?\n\
         longhaul.toml:4:10: argument `a` has the unknown type `strng`; did you mean `string`?\n\
         longhaul.toml:5:40: the default `\"x\"` of argument `b` does not fit its own type\n\
         longhaul.toml:5:45: unknown key `secrt` of argument `b`; did you mean `secret`?",
    );
}

#[test]
fn a_schema_comes_from_a_file_and_never_from_elsewhere() {
    let toml = tool("command = [\"x\", \"{path}\"]\nargs = \"a.json\"");
    let good = r#"{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer","default":1}},"required":["path"]}"#;
    let files = |schema| [("longhaul.toml", toml.as_str()), ("a.json", schema)];
    let problems = read(&files(good), &[]).expect_err("`n` is used nowhere");
    assert_eq!(
        problems,
        "longhaul.toml:4:8: argument `n` is used nowhere: neither in `command` nor in `stdin`"
    );
    let remote = r##"{"type":"object","properties":{"path":{"$ref":"https://example.org/s"}}}"##;
    let problems = read(&files(remote), &[]).expect_err("remote");
    assert!(
        problems
            .contains("refers to `https://example.org/s`; only references that begin with `#` are followed"),
        "{problems}"
    );
    let problems = read(&files(r#"{"type":"array"}"#), &[]).expect_err("no object");
    assert!(
        problems.contains("the schema's root must have `\"type\": \"object\"`"),
        "{problems}"
    );
    let problems = read(&[("longhaul.toml", &toml)], &[]).expect_err("missing");
    assert_eq!(problems, "longhaul.toml:4:8: cannot read `a.json`: no such file");
}

#[test]
fn what_a_tool_cannot_do_in_this_version_is_said() {
    wrong(
        &tool("command = [\"x\"]\non_crash = \"resume\""),
        "longhaul.toml:4:12: `on_crash` must be `fail` or `rerun` in this version; a command has no checkpoint to resume from, not the text `resume`",
    );
}

#[test]
fn output_settings_must_go_together() {
    wrong(
        &tool("command = [\"x\"]\noutput_schema = { type = \"object\" }"),
        "longhaul.toml:4:17: `output_schema` needs `result = \"json\"` or `result = \"mcp\"`",
    );
    wrong(
        &tool("command = [\"x\"]\nresult = \"files\""),
        "longhaul.toml:4:10: `result = \"files\"` needs `files`, such as [\"out/*.pdf\"]",
    );
    wrong(
        &tool("command = [\"x\"]\nresult = \"files\"\nfiles = [\"../*\", \"/etc/*\"]"),
        "longhaul.toml:5:9: `../*` leaves the tool's folder; patterns stay below `cwd`\n\
         longhaul.toml:5:9: `/etc/*` leaves the tool's folder; patterns stay below `cwd`",
    );
    wrong(
        &tool("command = [\"x\"]\nprogress = \"done\""),
        "longhaul.toml:4:12: `progress` needs a group `(?<n>…)` or `(?<message>…)`",
    );
}

#[test]
fn the_name_of_the_helper_tool_is_taken() {
    let problems = read(
        &[("l.toml", "[tools.longhaul_wait]\ncommand = [\"true\"]\n")],
        &[],
    )
    .expect_err("taken");
    assert_eq!(
        problems.trim_end(),
        "l.toml:1:8: `longhaul_wait` is a tool of Longhaul's own; give this one another name"
    );
}

#[test]
fn a_tool_says_how_its_calls_without_a_task_are_held() {
    let text = "[tools.t]\ndescription = \"t\"\ncommand = [\"true\"]\nhold = \"exact\"\njoin = false\n\
                on_abandon = \"finish\"\nshow_output_schema = \"always\"\n";
    let loaded = read(&[("l.toml", text)], &[]).expect("good");
    let tool = &loaded.config.tools["t"];
    assert_eq!(tool.hold, Hold::Exact);
    assert!(!tool.join);
    assert_eq!(tool.on_abandon, OnAbandon::Finish);
    assert_eq!(tool.show_output_schema, Some(ShowSchema::Always));
    let wrong = read(&[("l.toml", &text.replace("exact", "long"))], &[]).expect_err("no such word");
    assert!(wrong.contains("one of `auto`, `exact`"), "{wrong}");
}

#[test]
fn a_tool_without_a_description_is_warned_about() {
    let loaded = read(&[("l.toml", "[tools.t]\ncommand = [\"true\"]\n")], &[]).expect("good");
    assert_eq!(
        loaded.warnings[0].to_string(),
        "l.toml:1:8: tool `t` has no `description`; a model cannot know when to use it"
    );
}

#[test]
fn an_empty_command_is_a_missing_one() {
    wrong(
        &tool("command = []"),
        "longhaul.toml:1:8: tool `t` needs a `command`",
    );
}

#[test]
fn what_the_call_would_refuse_later_is_found_when_the_file_is_read() {
    let argument = |more: &str| {
        tool(&format!(
            "command = [\"x\", \"{{p}}\"]\nargs.p = {{ type = {more} }}"
        ))
    };
    let problems = read(
        &[("longhaul.toml", &argument("\"string\", pattern = \"(\""))],
        &[],
    )
    .expect_err("wrong");
    assert!(
        problems.starts_with("longhaul.toml:4:39: the `pattern` of argument `p` is not a regular expression"),
        "{problems}"
    );
    wrong(
        &argument("\"integer\", minimum = 5, maximum = 1"),
        "longhaul.toml:4:40: argument `p` has a `minimum` (5) above its `maximum` (1)",
    );
    wrong(
        &argument("\"integer\", minimum = 5, default = 1"),
        "longhaul.toml:4:53: the default `1` of argument `p` does not fit its own type",
    );
    wrong(
        &argument("\"string\", pattern = \"^a\", default = \"b\""),
        "longhaul.toml:4:55: the default `\"b\"` of argument `p` does not fit its own type",
    );
    wrong(
        &argument("\"integer\", enum = [1, \"b\"]"),
        "longhaul.toml:4:37: the value `\"b\"` in the `enum` of argument `p` does not fit its own type",
    );
    wrong(
        &tool(
            "command = [\"x\", \"a\\u0000\"]\ncwd = \"a\\u0000\"\nenv = { \"A=B\" = \"c\", X = \"a\\u0000b\", \"\" = \"\" }",
        ),
        "longhaul.toml:3:17: `command` holds a NUL character, which no program can be given\n\
         longhaul.toml:4:7: `cwd` holds a NUL character, which no program can be given\n\
         longhaul.toml:5:9: `A=B` cannot name a variable: it must not be empty or hold `=`\n\
         longhaul.toml:5:26: the variable `X` holds a NUL character, which no program can be given\n\
         longhaul.toml:5:38: `` cannot name a variable: it must not be empty or hold `=`",
    );
    let toml = tool("command = [\"x\", \"{p}\"]\nargs = \"a.json\"");
    for schema in [
        r#"{"type":"object","properties":{"p":{"type":"string","pattern":"("}}}"#,
        r#"{"type":"object","properties":{"p":{"type":"integer","minimum":5,"default":1}}}"#,
    ] {
        let files = [("longhaul.toml", toml.as_str()), ("a.json", schema)];
        let problems = read(&files, &[]).expect_err("wrong");
        assert!(problems.contains("longhaul.toml:4:8: the "), "{problems}");
    }
}
