//! Configured commands as tools: real programs under the real shim, run by a real engine on a store in memory.

mod asking;
mod output;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use longhaul_core::{
    Body, Event, Millis, Outcome, Phase, Span, TaskId,
    decide::Birth,
    task::{CanAsk, CancelledBy, Stop},
};
use longhaul_engine::{
    Engine, Options, clock,
    process::Shim,
    transact::{Done, Opening, Proposal, Trail, Verdict},
};
use longhaul_gateway::{
    catalog::{Arguments, Catalog},
    command::{self, Host, arguments::Checker},
    config::{self, Config, Source},
    outbound::{self, Note},
};
use longhaul_mcp::frame::Raw;
use longhaul_store::{Owner, Query, Row, Runner, Scope, Slot, memory::Memory};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// An engine with the tools of a configuration, in a folder of their own.
struct Rig {
    engine: Engine,
    config: Config,
    folder: TempDir,
    /// Who vouches for the callers.
    issuer: &'static str,
}

impl Rig {
    async fn new(toml: &str) -> Rig {
        Rig::with(toml, |_| {}).await
    }

    async fn with(toml: &str, change: impl FnOnce(&mut Host)) -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let config = parsed(&folder.path().join("longhaul.toml"), toml);
        let mut host = Host {
            shim: Shim {
                program: env!("CARGO_BIN_EXE_gateway-rig").into(),
                args: Vec::new(),
            },
            runner: "runner".to_owned(),
            spool: folder.path().to_owned(),
            env: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HIDDEN".into(), "x".into()),
            ],
            limits: config.limits.clone(),
            grace: Span(500),
            questions_max: config.tasks.questions_max,
        };
        change(&mut host);
        let host = Arc::new(host);
        let entries = config
            .tools
            .values()
            .map(|tool| command::entry(tool, &config.tasks, &host).expect("an entry"));
        let catalog = Catalog::new(entries.collect());
        let runner = Runner {
            id: clock::runner_id(),
            host: "here".to_owned(),
            boot: "boot".to_owned(),
            pid: std::process::id(),
            pid_start: 0,
        };
        let mut options = Options::new(
            runner,
            Arc::new(|id| id.to_string()),
            Arc::new(|_, tasks| tasks.iter().copied().collect()),
        );
        options.claim_interval = Duration::from_millis(20);
        options.sweep_interval = Duration::from_millis(20);
        options.watch_interval = Duration::from_millis(20);
        options.note_interval = Duration::from_millis(1);
        let engine = Engine::new(
            Arc::new(Memory::new(Arc::new(clock::now))),
            options,
            Arc::new(catalog),
        );
        engine.start().await.expect("the engine starts");
        Rig {
            engine,
            config,
            folder,
            issuer: "local",
        }
    }

    async fn call(&self, tool: &str, args: Json) -> TaskId {
        self.call_declaring(tool, args, json!({})).await
    }

    /// A call whose client declared that it can be asked these kinds.
    async fn call_declaring(&self, tool: &str, args: Json, answers: Json) -> TaskId {
        self.call_with(tool, args.to_string(), answers).await
    }

    /// A call whose arguments are spelled so.
    async fn call_written(&self, tool: &str, args: String) -> TaskId {
        self.call_with(tool, args, json!({})).await
    }

    async fn call_with(&self, tool: &str, args: String, answers: Json) -> TaskId {
        let kinds = ["form", "url", "sampling", "roots"];
        let declared = kinds.map(|kind| (kind.to_owned(), Json::from(answers[kind] == true)));
        let context = json!({ "answers": serde_json::Map::from_iter(declared) });
        let id = self.engine.task_id();
        let owner = Owner {
            tenant: "default".into(),
            issuer: self.issuer.into(),
            subject: "uid:1".into(),
            app: String::new(),
        };
        let opening = Opening {
            id,
            owner: owner.clone(),
            kid: 1,
            name: id.to_string(),
            tool: tool.to_owned(),
            session: String::new(),
            origin: "test".to_owned(),
            idem: None,
            digest: [0; 32],
            hidden: false,
            args: Body::new(args.as_bytes()),
            context: Body::new(context.to_string().as_bytes()),
            note: Vec::new(),
            purge_after: Millis(u64::MAX),
            birth: Birth {
                rules: command::rules(&self.config.tools[tool], &self.config.tasks),
                can_ask: CanAsk {
                    client: true,
                    operator: false,
                },
                expires_at: self.engine.now() + Span::seconds(3_600),
                approval: None,
            },
            records: BTreeMap::new(),
            counters: BTreeMap::new(),
            trail: Trail::default(),
        };
        let slot = Slot::Birth {
            owner,
            idem: None,
            names: vec![id.to_string()],
        };
        let judge = move |_: &longhaul_store::Snapshot| Verdict::Open(Box::new(opening.clone()), opening.id);
        match self
            .engine
            .transact(
                Scope {
                    task: slot,
                    ..Scope::default()
                },
                Box::new(judge),
            )
            .await
            .expect("a birth")
        {
            Done::Committed(_, id) | Done::Refused(id) => id,
            Done::NotNow(why, _) => panic!("{why:?}"),
        }
    }

    async fn happen(&self, id: TaskId, event: Event) {
        let judge = move |_: &longhaul_store::Snapshot| {
            Verdict::Apply(
                Proposal {
                    events: vec![event.clone()],
                    actor: "owner",
                    ..Proposal::default()
                },
                (),
            )
        };
        let scope = Scope {
            task: Slot::Task(id),
            ..Scope::default()
        };
        self.engine
            .transact(scope, Box::new(judge))
            .await
            .expect("a transaction");
    }

    async fn until(&self, id: TaskId, so: impl Fn(&Row) -> bool) -> Row {
        let wait = async {
            loop {
                let row = self
                    .engine
                    .read(Query::Task(id))
                    .await
                    .expect("a read")
                    .rows
                    .remove(0);
                if so(&row) {
                    return row;
                }
                self.engine.changed(id, row.version).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("this should have happened by now")
    }

    async fn outcome(&self, id: TaskId) -> Outcome {
        match self.until(id, |row| !row.task.is_open()).await.task.phase {
            Phase::Finished(outcome) => outcome,
            Phase::Working | Phase::Asking => unreachable!("it is not open"),
        }
    }

    /// The result of a call, and whether it is an error.
    async fn result(&self, tool: &str, args: Json) -> (Json, bool) {
        let id = self.call(tool, args).await;
        self.result_of(id).await
    }

    async fn result_of(&self, id: TaskId) -> (Json, bool) {
        match self.outcome(id).await {
            Outcome::Returned { body, is_error } => {
                let result: Json = serde_json::from_slice(body.bytes().expect("read")).expect("JSON");
                assert_eq!(result["isError"].as_bool().unwrap_or(false), is_error);
                assert_eq!(result.get("resultType"), None);
                (result, is_error)
            }
            Outcome::Errored { body } => (
                serde_json::from_slice(body.bytes().expect("read")).expect("JSON"),
                true,
            ),
            other @ (Outcome::Cancelled { .. } | Outcome::Failed(_)) => panic!("{other:?}"),
        }
    }

    async fn text_of(&self, id: TaskId) -> String {
        let (result, is_error) = self.result_of(id).await;
        assert!(!is_error, "{result}");
        text(&result)
    }

    /// The text of a good result.
    async fn text(&self, tool: &str, args: Json) -> String {
        let (result, is_error) = self.result(tool, args).await;
        assert!(!is_error, "{result}");
        text(&result)
    }

    /// The text of an error result.
    async fn error(&self, tool: &str, args: Json) -> String {
        let (result, is_error) = self.result(tool, args).await;
        assert!(is_error, "{result}");
        text(&result)
    }
}

fn parsed(path: &Path, toml: &str) -> Config {
    let open = |_: &Path| {
        Ok(Source {
            text: toml.to_owned(),
            mode: 0o100_644,
        })
    };
    config::read(path, &[], &open)
        .unwrap_or_else(|problems| panic!("{problems}"))
        .config
}

fn text(result: &Json) -> String {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"))
        .to_owned()
}

/// A tool `t` that runs a shell script with the value of `a` as `$1`.
fn script(text: &str, more: &str) -> String {
    let text = text.replace('{', "{{").replace('}', "}}");
    format!(
        "[tools.t]\ncommand = [\"sh\", \"-c\", '''{text}''', \"sh\", [\"{{a}}\"]]\nargs.a = \"string?\"\n{more}\n"
    )
}

// S6
#[tokio::test(flavor = "multi_thread")]
async fn a_value_arrives_as_one_argument_whatever_it_holds() {
    let rig = Rig::new(&script("printf '%s|' \"$#\" \"$@\"", "")).await;
    for value in [
        "a b",
        "; rm -rf /",
        "$(id)",
        "`id`",
        "\"quoted\"",
        "new\nline",
        "*",
        "ü €",
        "'",
    ] {
        assert_eq!(rig.text("t", json!({ "a": value })).await, format!("1|{value}|"));
    }
    assert_eq!(rig.text("t", json!({})).await, "0|");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_flags_groups_and_defaults_expand_as_declared() {
    let rig = Rig::new(
        r#"
[tools.t]
command = ["printf", "%s|", "--", ["-p", "{crate}"], "{verbose?--verbose}", "{filter...}", "n={n}", "{{x}}"]
args.crate = "string?"
args.verbose = "boolean"
args.filter = "string[]"
args.n = "integer = 5"
"#,
    )
    .await;
    assert_eq!(rig.text("t", json!({})).await, "--|n=5|{x}|");
    let all = json!({ "crate": "core", "verbose": true, "filter": ["a", "b c"], "n": 7 });
    assert_eq!(rig.text("t", all).await, "--|-p|core|--verbose|a|b c|n=7|{x}|");
}

fn misfits(toml: &str, args: &str) -> Vec<String> {
    let config = parsed(Path::new("longhaul.toml"), toml);
    Checker::new(&config.tools["t"])
        .expect("a checker")
        .misfits(&Raw::parse(args).expect("JSON"))
}

// S6
#[test]
fn a_value_that_begins_with_a_dash_is_refused_unless_declared() {
    let tool = |item: &str, more: &str| {
        format!("[tools.t]\ncommand = [\"x\", {item}]\nargs.a = {{ type = \"string\", {more} }}\n")
    };
    let args = r#"{"a":"--help"}"#;
    assert_eq!(
        misfits(&tool("\"{a}\"", ""), args),
        ["`a`: a value that begins with `-` would be read as an option; `--help` is refused"]
    );
    assert_eq!(misfits(&tool("\"{a}.txt\"", ""), args).len(), 1);
    assert_eq!(misfits(&tool("\"--name={a}\"", ""), args), [""; 0]);
    assert_eq!(misfits(&tool("\"--\", \"{a}\"", ""), args), [""; 0]);
    assert_eq!(misfits(&tool("\"{a}\"", "dash = true"), args), [""; 0]);
    let list = "[tools.t]\ncommand = [\"x\", \"{a...}\"]\nargs.a = \"string[]\"\n";
    assert_eq!(misfits(list, r#"{"a":["ok","-rf"]}"#).len(), 1);
    let number = "[tools.t]\ncommand = [\"kill\", \"{n}\"]\nargs.n = \"integer\"\n";
    assert_eq!(misfits(number, r#"{"n":-9}"#).len(), 1);
}

// B-54
#[test]
fn every_argument_that_does_not_fit_is_named() {
    let toml = "[tools.t]\ncommand = [\"x\", \"{path}\", \"{n}\"]\nargs.path = \"string\"\nargs.n = { type = \"integer\", maximum = 5 }\n";
    assert_eq!(
        misfits(toml, r#"{"pth":"x","n":9}"#),
        [
            "`n`: 9 is greater than the maximum of 5",
            "`path` is missing",
            "there is no argument `pth`; did you mean `path`?",
        ]
    );
    assert_eq!(misfits(toml, r#"{"path":"a\u0000b","n":1}"#).len(), 1);
    assert_eq!(misfits(toml, "[]"), ["the arguments must be a JSON object"]);
    assert!(misfits(toml, r#"{"path":"a","path":"b","n":1}"#)[0].contains("duplicate member"));
}

// S23
#[test]
fn the_value_of_a_secret_is_not_repeated() {
    let toml =
        "[tools.t]\ncommand = [\"x\"]\nargs.key = { type = \"string\", secret = true, pattern = \"^k\" }\n";
    let lines = misfits(toml, r#"{"key":"hunter2"}"#);
    assert_eq!(lines.len(), 1);
    assert!(!lines[0].contains("hunter2"), "{lines:?}");
}

// S23
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_by_standard_input_and_is_kept_out_of_errors() {
    let rig = Rig::new(
        "[tools.t]\ncommand = [\"sh\", \"-c\", 'cat; cat /proc/$$/cmdline >&2; echo got hunter2 >&2; exit 3']\nargs.key = { type = \"string\", secret = true }\n",
    )
    .await;
    let (result, _) = rig.result("t", json!({ "key": "hunter2" })).await;
    assert!(
        !result
            .to_string()
            .replace("echo got hunter2", "")
            .contains("hunter2"),
        "{result}"
    );
    assert_eq!(result["content"][1]["text"], "{\"key\":\"[secret]\"}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_a_few_variables_and_those_declared() {
    let rig = Rig::new(&script("env", "env = { OWN = \"1\" }\nenv_pass = [\"ABSENT\"]")).await;
    let env = rig.text("t", json!({})).await;
    let names: Vec<&str> = env
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    assert!(
        names.contains(&"OWN") && names.contains(&"LONGHAUL_TASK") && names.contains(&"LONGHAUL_FD"),
        "{names:?}"
    );
    assert!(
        names.contains(&"LONGHAUL_IDEMPOTENCY_KEY") && names.contains(&"LONGHAUL_ATTEMPT"),
        "{names:?}"
    );
    assert!(!names.contains(&"HIDDEN"), "{names:?}");
    let own = Path::new(env!("CARGO_BIN_EXE_gateway-rig"))
        .parent()
        .expect("a folder")
        .display()
        .to_string();
    assert!(
        env.lines()
            .any(|line| line.starts_with("PATH=") && line.ends_with(&own)),
        "{env}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_shows_the_code_the_end_of_standard_error_and_the_output() {
    let rig = Rig::new(&script(
        "echo partial; printf 'first\\n\\033[31mred\\033[0m\\n' >&2; exit 4",
        "",
    ))
    .await;
    let (result, is_error) = rig.result("t", json!({})).await;
    assert!(is_error);
    assert_eq!(
        text(&result),
        "`sh` exited with code 4.\nstandard error:\nfirst\nred"
    );
    assert_eq!(result["content"][1]["text"], "partial");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_ends_are_told_apart() {
    let rig = Rig::new(&script("kill -SEGV $$", "")).await;
    assert_eq!(
        rig.error("t", json!({})).await,
        "`sh` was ended by signal 11 (SIGSEGV)."
    );
    let rig = Rig::new(&script("sleep 60", "timeout = \"200ms\"")).await;
    assert_eq!(
        rig.error("t", json!({})).await,
        "`sh` did not end within 200ms (`timeout`); it was stopped."
    );
    let rig = Rig::new(&script("sleep 60", "idle_timeout = \"200ms\"")).await;
    assert_eq!(
        rig.error("t", json!({})).await,
        "`sh` wrote nothing for 200ms (`idle_timeout`); it was stopped."
    );
    let rig = Rig::new(&script("exit 3", "success_exit_codes = [0, 3]")).await;
    assert_eq!(rig.text("t", json!({})).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_end_was_not_seen_is_interrupted_or_run_again() {
    let lost = "[ $LONGHAUL_ATTEMPT = 2 ] && exec printf again; kill -9 $PPID; sleep 60";
    let rig = Rig::new(&script(lost, "")).await;
    let id = rig.call("t", json!({})).await;
    let row = rig.until(id, |row| !row.task.is_open()).await;
    // This process is no subreaper: nobody can tell whether a child of it hid.
    assert_eq!(
        (row.task.phase, row.task.stop),
        (
            Phase::Finished(Outcome::Failed(longhaul_core::Reason::Interrupted)),
            Stop::Unknown
        )
    );
    let rig = Rig::new(&script(lost, "on_crash = \"rerun\"")).await;
    assert_eq!(rig.text("t", json!({})).await, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_names_the_path_that_was_searched() {
    let rig = Rig::new("[tools.t]\ncommand = [\"no-such-program-here\"]\n").await;
    let why = rig.error("t", json!({})).await;
    assert!(
        why.starts_with(
            "cannot start `no-such-program-here`: not found in PATH `/usr/local/bin:/usr/bin:/bin"
        ),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_and_a_directory_are_told_by_their_full_path() {
    let rig = Rig::new("[tools.t]\ncommand = [\"./nope\"]\n[tools.d]\ncommand = [\"./\"]\n").await;
    let folder = rig.folder.path().display().to_string();
    assert_eq!(
        rig.error("t", json!({})).await,
        format!("cannot start `{folder}/nope`: there is no such file")
    );
    assert_eq!(
        rig.error("d", json!({})).await,
        format!("cannot start `{folder}`: it is a directory, not a program")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn integers_arrive_as_their_digits_and_numbers_as_they_were_written() {
    let rig = Rig::new(
        r#"
[tools.i]
command = ["printf", "%s|", "--", ["{i}"], "{l...}"]
args.i = "integer?"
args.l = "integer[]"
[tools.n]
command = ["printf", "%s|", "--", "{n}"]
args.n = "number"
[tools.s]
command = ["cat"]
stdin = "arguments"
args.i = "integer"
args.n = "number"
"#,
    )
    .await;
    let id = |tool: &'static str, args: &str| rig.call_written(tool, args.to_owned());
    for (given, digits) in [
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("9007199254740993", "9007199254740993"),
        ("1.0", "1"),
        ("1e2", "100"),
        ("1.5e1", "15"),
        ("1200E-2", "12"),
        ("-0", "0"),
        ("0.000e5", "0"),
    ] {
        let text = rig.text_of(id("i", &format!("{{\"i\":{given}}}")).await).await;
        assert_eq!(text, format!("--|{digits}|"), "{given}");
        let text = rig.text_of(id("i", &format!("{{\"l\":[{given}]}}")).await).await;
        assert_eq!(text, format!("--|{digits}|"), "{given}");
    }
    for written in [
        "1.10",
        "1e2",
        "9007199254740993",
        "123456789012345678901234567890.5",
        "0.1e-400",
    ] {
        let text = rig.text_of(id("n", &format!("{{\"n\":{written}}}")).await).await;
        assert_eq!(text, format!("--|{written}|"));
    }
    let id = id("s", "{\"n\":1.10,\"i\":1e30}").await;
    assert_eq!(
        rig.text_of(id).await,
        "{\"i\":1000000000000000000000000000000,\"n\":1.10}"
    );
}

#[test]
fn what_is_no_integer_is_a_misfit_even_where_a_double_would_round_it() {
    let tool = "[tools.t]\ncommand = [\"x\", \"{i}\"]\nargs.i = \"integer\"\n";
    for number in ["1.5", "1e-400", "9007199254740993.5", "0.5e0", "15e-1"] {
        assert_eq!(misfits(tool, &format!("{{\"i\":{number}}}")).len(), 1, "{number}");
    }
    let secret = "[tools.t]\ncommand = [\"x\"]\nargs.i = { type = \"integer\", secret = true }\n";
    assert_eq!(
        misfits(secret, "{\"i\":9007199254740993.5}"),
        ["`i`: the value is not of type \"integer\""]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_and_its_folder_start_at_the_configuration() {
    let rig = Rig::new("[tools.t]\ncommand = [\"./run\"]\ncwd = \"work\"\n").await;
    let program = rig.folder.path().join("run");
    std::fs::write(&program, "#!/bin/sh\npwd\n").expect("a script");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("its mode");
    std::fs::create_dir(rig.folder.path().join("work")).expect("a folder");
    assert!(rig.text("t", json!({})).await.ends_with("/work"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_and_messages_are_progress() {
    for (line, expected) in [
        (
            "echo '3/10 copying' >&2",
            Note::new(Some(3.0), Some(10.0), Some("copying")),
        ),
        (
            "echo '40% done'",
            Note::new(Some(40.0), Some(100.0), Some("done")),
        ),
        (
            "python3 -c 'import os; os.write(int(os.environ[\"LONGHAUL_FD\"]), b\"{\\\"progress\\\":{\\\"n\\\":7,\\\"message\\\":\\\"x\\\"}}\\n\")'",
            Note::new(Some(7.0), None, Some("x")),
        ),
    ] {
        let rig = Rig::new(&script(&format!("{line}; sleep 60"), "")).await;
        let id = rig.call("t", json!({})).await;
        rig.until(id, |row| Note::decode(&row.note) == expected).await;
        rig.happen(
            id,
            Event::Cancel {
                by: CancelledBy::Owner,
            },
        )
        .await;
        rig.outcome(id).await;
    }
}

#[test]
fn a_note_is_clean_bounded_and_reads_back() {
    let hostile = format!("\u{1b}[31mred\u{202e}{}\n\u{200b}", "€".repeat(5000));
    let note = Note::new(Some(f64::NAN), Some(-1.0), Some(&hostile));
    assert_eq!((note.progress, note.total), (None, None));
    let encoded = note.encode();
    assert!(encoded.len() <= outbound::NOTE_BYTES_MAX);
    assert_eq!(Note::decode(&encoded), note);
    let message = note.message.expect("a message");
    assert!(!message.contains(['\u{1b}', '\u{202e}', '\n', '\u{200b}']));
    assert_eq!(Note::decode(b"not a note"), Note::default());
    assert_eq!(
        Note::decode(br#"{"progress":1,"later":true}"#).progress,
        Some(1.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_leaves_nothing_alive_and_says_so() {
    let rig = Rig::new(&script(
        "trap '' TERM; echo '1/2 on' >&2; while :; do sleep 1; done",
        "",
    ))
    .await;
    let id = rig.call("t", json!({})).await;
    rig.until(id, |row| !Note::decode(&row.note).is_empty()).await;
    rig.happen(
        id,
        Event::Cancel {
            by: CancelledBy::Owner,
        },
    )
    .await;
    let row = rig.until(id, |row| !row.task.is_open()).await;
    assert_eq!(row.task.stop, Stop::Stopped);
    assert!(matches!(
        row.task.phase,
        Phase::Finished(Outcome::Cancelled { .. })
    ));
}

#[test]
fn the_quickstart_file_is_good() {
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/quickstart/longhaul.toml"
    ));
    // Which mode a working copy has is not the file's doing.
    let open = |path: &Path| {
        let text = std::fs::read_to_string(path)?;
        Ok(config::Source {
            text,
            mode: 0o100_644,
        })
    };
    let loaded = config::read(path, &[], &open).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings, []);
    let names: Vec<_> = loaded.config.tools.keys().collect();
    assert_eq!(
        names,
        ["checksum_tree", "confirm_delete", "find_large_files", "run_tests"]
    );
}
