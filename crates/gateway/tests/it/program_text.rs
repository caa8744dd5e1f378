//! Which commands are refused because a value would be run, or would choose what runs (S6).

use longhaul_gateway::config;

use crate::config::{read, tool};

/// What is wrong with this command, in which `a` is a text.
fn problems(command: &str, more: &str) -> String {
    let lines = format!("command = {command}\nargs.a = {{ type = \"string\", dash = true }}\n{more}");
    match read(&[("l.toml", &tool(&lines))], &[]) {
        Ok(_) => String::new(),
        Err(problems) => problems,
    }
}

#[track_caller]
fn refused(commands: &[&str], because: &str) {
    for command in commands {
        let problems = problems(command, "");
        assert!(problems.contains(because), "{command}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{command}: {problems}");
    }
}

#[track_caller]
fn fine(commands: &[&str]) {
    for command in commands {
        assert_eq!(problems(command, ""), "", "{command}");
    }
}

#[test]
fn an_option_that_takes_program_text_takes_no_value() {
    refused(
        &[
            r#"["bash", "-c{a}"]"#,
            r#"["bash", "-c", "--", "{a}"]"#,
            r#"["fish", "--command={a}"]"#,
            r#"["perl", "-E{a}"]"#,
            r#"["perl", "-e", "1", "-e", "{a}"]"#,
            r#"["perl", "-M{a}", "x.pl"]"#,
            r#"["python3", "-Ic", "{a}"]"#,
            r#"["python3", "-m", "{a}"]"#,
            r#"["node", "--require", "{a}", "x.js"]"#,
            r#"["ruby", "-e{a}"]"#,
            r#"["pwsh", "-NoProfile", "-Command", "{a}"]"#,
            r#"["deno", "eval", "{a}"]"#,
            r#"["Rscript", "-e", "{a}"]"#,
            r#"["osascript", "-e", "{a}"]"#,
            r#"["su", "-c", "{a}"]"#,
            r#"["su", "ada", "-c", "{a}"]"#,
            r#"["script", "-c", "{a}"]"#,
            r#"["flock", "/tmp/x", "-c", "{a}"]"#,
            r#"["psql", "-c", "{a}"]"#,
            r#"["psql", "--command={a}"]"#,
            r#"["mysql", "-e", "{a}"]"#,
            r#"["git", "-c", "alias.x=!{a}", "x"]"#,
            r#"["git", "rebase", "--exec", "{a}"]"#,
            r#"["git", "clone", "--upload-pack={a}", "x"]"#,
            r#"["tar", "-xf", "x", "--to-command={a}"]"#,
            r#"["sed", "-i", "-e", "{a}", "f"]"#,
            r#"["ssh", "-o", "{a}", "host"]"#,
            r#"["env", "-S", "sh -c {a}"]"#,
            r#"["env", "-Ssh -c {a}"]"#,
            r#"["env", "--split-string=sh -c {a}"]"#,
        ],
        "stands inside the program text of",
    );
}

#[test]
fn a_wrapper_hides_no_language() {
    let inner = [
        r#""sh", "-c", "{a}""#,
        r#""python3", "-c", "{a}""#,
        r#""awk", "{a}""#,
        r#""sh", "{a}""#,
    ];
    let wrappers = [
        r#""env", "A=1""#,
        r#""env", "-i", "-u", "X""#,
        r#""env", "-", "A=1""#,
        r#""env", "-S", "nice""#,
        r#""nice", "-n", "5""#,
        r#""timeout", "-k", "1", "5""#,
        r#""setsid", "-w""#,
        r#""nohup""#,
        r#""stdbuf", "-o0""#,
        r#""sudo", "-u", "ada""#,
        r#""doas""#,
        r#""xargs", "-n", "1""#,
        r#""flock", "-w", "3", "/tmp/x""#,
        r#""busybox""#,
        r#""ionice", "-c", "2""#,
        r#""chroot", "/""#,
        r#""find", ".", "-name", "x", "-exec""#,
        r#""sudo", "env", "timeout", "5""#,
    ];
    for wrapper in wrappers {
        for inner in inner {
            let command = format!("[{wrapper}, {inner}]");
            assert_eq!(problems(&command, "").lines().count(), 1, "{command}");
        }
    }
    refused(&[r#"["unknown-wrapper", "sh", "-c", "{a}"]"#], "program text");
}

#[test]
fn a_value_chooses_neither_a_script_nor_what_a_wrapper_starts() {
    refused(
        &[
            r#"["sh", "{a}"]"#,
            r#"["bash", "-x", "{a}"]"#,
            r#"["python3", "tools/{a}.py"]"#,
            r#"["python3", "-X", "dev", "{a}"]"#,
            r#"["node", "{a}"]"#,
            r#"["deno", "run", "{a}"]"#,
            r#"["venv/bin/python", "{a}"]"#,
            r#"["/usr/local/bin/python3.11", "{a}"]"#,
            r#"["lua", "-e", "x = 1", "{a}"]"#,
        ],
        "chooses the script that",
    );
    refused(
        &[
            r#"["env", "{a}"]"#,
            r#"["env", "A=1", "{a}", "x"]"#,
            r#"["timeout", "5", "{a}"]"#,
            r#"["xargs", "{a}"]"#,
            r#"["find", ".", "-exec", "{a}", ";"]"#,
            r#"["sudo", "-u", "ada", "{a}"]"#,
            r#"["flock", "x", "{a}"]"#,
        ],
        "chooses the program that",
    );
}

#[test]
fn an_operand_that_is_program_text_is_no_value() {
    refused(
        &[
            r#"["awk", "{a}", "f"]"#,
            r#"["awk", "-F", ",", "{a}"]"#,
            r#"["sed", "{a}"]"#,
            r#"["sed", "-n", "s/{a}/x/", "f"]"#,
            r#"["sed", "-i", "{a}", "f"]"#,
            r#"["ssh", "host", "{a}"]"#,
            r#"["ssh", "-p", "22", "host", "ls", "{a}"]"#,
            r#"["watch", "-n", "1", "{a}"]"#,
            r#"["sqlite3", "x.db", "{a}"]"#,
            r#"["eval", "{a}"]"#,
            r#"["parallel", "{a}"]"#,
            r#"["make", "A={a}"]"#,
            r#"["git", "{a}"]"#,
        ],
        "is program text of",
    );
}

#[test]
fn a_value_that_is_only_data_passes() {
    fine(&[
        r#"["sh", "-c", "echo \"$1\"", "sh", "{a}"]"#,
        r#"["sh", "-ec", "echo \"$1\"", "sh", "{a}"]"#,
        r#"["bash", "-s", "{a}"]"#,
        r#"["sh", "script.sh", "-c", "{a}"]"#,
        r#"["env", "X={a}", "prog", "{a}"]"#,
        r#"["env", "sh", "script.sh", "{a}"]"#,
        r#"["timeout", "{a}", "prog"]"#,
        r#"["python3", "-m", "http.server", "{a}"]"#,
        r#"["perl", "-ne", "print if /x/", "{a}"]"#,
        r#"["awk", "-v", "x={a}", "{{ print x }}", "{a}"]"#,
        r#"["awk", "-f", "p.awk", "{a}"]"#,
        r#"["sed", "-e", "s/x/y/", "{a}"]"#,
        r#"["sed", "s/x/y/", "{a}"]"#,
        r#"["jq", "{a}", "f.json"]"#,
        r#"["ssh", "{a}", "uptime"]"#,
        r#"["sqlite3", "{a}", ".tables"]"#,
        r#"["psql", "-v", "x={a}", "-f", "q.sql"]"#,
        r#"["git", "-C", "{a}", "log", "--grep={a}"]"#,
        r#"["git", "commit", "-m", "{a}"]"#,
        r#"["tar", "-cf", "{a}", "x"]"#,
        r#"["find", "{a}", "-exec", "wc", "{a}", ";"]"#,
        r#"["rsync", "-av", "{a}", "x"]"#,
        r#"["cargo", "test", "{a}"]"#,
        r#"["grep", "sh", "{a}"]"#,
        r#"["./script", "x", "{a}"]"#,
    ]);
}

#[test]
fn what_a_language_reads_on_standard_input_is_program_text_without_a_script() {
    for command in [
        r#"["sh"]"#,
        r#"["bash", "-s"]"#,
        r#"["python3", "-"]"#,
        r#"["env", "perl"]"#,
    ] {
        let problems = problems(command, "stdin = \"{a}\"\n");
        assert!(
            problems.contains("would run what it reads on standard input"),
            "{command}: {problems}"
        );
    }
    assert_eq!(problems(r#"["sh", "script.sh"]"#, "stdin = \"{a}\"\n"), "");
    assert_eq!(problems(r#"["python3", "-c", "1"]"#, "stdin = \"{a}\"\n"), "");
}

#[test]
fn a_value_that_the_configuration_lists_or_that_the_tool_is_for_passes() {
    let listed = "command = [\"make\", \"{t}\"]\nargs.t = { type = \"string\", enum = [\"all\", \"check\"] }";
    assert!(read(&[("l.toml", &tool(listed))], &[]).is_ok());
    let meant = "allow_program_text = true\n";
    assert_eq!(problems(r#"["sh", "-c", "{a}"]"#, meant), "");
    assert_eq!(
        problems(r#"["{a}"]"#, meant),
        "l.toml:3:12: the program must be written out: a value may not choose what runs"
    );
    let setting = config::reference()
        .into_iter()
        .find(|setting| setting.key == "allow_program_text");
    assert_eq!(setting.expect("declared").default, "false");
}

#[test]
fn the_complaint_shows_the_safe_way() {
    assert_eq!(
        problems(r#"["sh", "{a}"]"#, ""),
        "l.toml:3:18: `{a}` chooses the script that `sh` runs; write the script out and pass the value after it: \
         [\"sh\", \"SCRIPT\", \"{a}\"], or say `allow_program_text = true` where that is what the tool is for"
    );
    assert_eq!(
        problems(r#"["awk", "{a}"]"#, ""),
        "l.toml:3:19: `{a}` is program text of `awk`, where a value would run as code; pass it as a variable: \
         [\"awk\", \"-v\", \"x={a}\", \"… x …\"], or say `allow_program_text = true` where that is what the tool is for"
    );
}
