//! The configuration as its users meet it: what a file means, and the exact words when it is wrong.

mod tools;

use std::{collections::BTreeMap, io, path::Path};

use longhaul_core::Span;
use longhaul_gateway::config::{self, Bytes, Item, Loaded, OnCrash, Place, Source};

/// Files by path.
pub(crate) fn read(files: &[(&str, &str)], env: &[(&str, &str)]) -> Result<Loaded, String> {
    let open = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        let (_, text) = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))?;
        Ok(Source {
            text: (*text).to_owned(),
            mode: 0o100_644,
        })
    };
    let env: Vec<_> = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    config::read(Path::new(files[0].0), &env, &open).map_err(|problems| problems.to_string())
}

fn loaded(text: &str) -> config::Config {
    read(&[("longhaul.toml", text)], &[])
        .expect("a good configuration")
        .config
}

#[track_caller]
fn wrong(text: &str, expected: &str) {
    let problems = read(&[("longhaul.toml", text)], &[]).expect_err("something is wrong");
    assert_eq!(problems, expected);
}

/// A tool of two lines, its name on line 1.
pub(crate) fn tool(lines: &str) -> String {
    format!("[tools.t]\ndescription = \"d\"\n{lines}")
}

#[test]
fn every_declared_default_reads_and_is_within_its_range() {
    let config = config::defaults(&[]).expect("the defaults are good").config;
    assert_eq!(config.server.bind.to_string(), "127.0.0.1:7410");
    assert_eq!(config.tasks.ttl, Span(7 * 86_400_000));
    assert_eq!(config.limits.result_max, Bytes(8 << 20));
    loaded(&tool("command = [\"true\"]"));
}

#[test]
fn every_setting_has_a_text_a_kind_and_a_first_version() {
    let settings = config::reference();
    assert!(settings.len() > 60, "{}", settings.len());
    let mut names = BTreeMap::new();
    for setting in &settings {
        assert!(
            setting.text.ends_with('.'),
            "{}.{}: {}",
            setting.section,
            setting.key,
            setting.text
        );
        assert!(!setting.kind.is_empty() && setting.since == "0.1.0");
        let twice = names.insert((setting.section, setting.key), ());
        assert_eq!(twice, None, "{}.{}", setting.section, setting.key);
    }
}

#[test]
fn the_schema_knows_every_setting_and_the_first_file_fits_it() {
    let schema = config::schema();
    for setting in config::reference() {
        let mut at = &schema["properties"];
        for part in setting.section.split('.') {
            at = if matches!(part, "NAME" | "TOOL") {
                &at["additionalProperties"]["properties"]
            } else if at.get(part).is_some_and(|s| s.get("properties").is_some()) {
                &at[part]["properties"]
            } else {
                &at[part]
            };
        }
        assert!(
            at.get(setting.key).is_some(),
            "{}.{}",
            setting.section,
            setting.key
        );
    }
    let init = read(&[("longhaul.toml", config::init())], &[]).expect("the first file is good");
    assert!(init.warnings.is_empty(), "{:?}", init.warnings);
    let json: serde_json::Value = toml::from_str(config::init()).expect("TOML");
    let validator = jsonschema::options().build(&schema).expect("a schema");
    assert!(validator.is_valid(&json));
}

#[test]
fn the_example_of_the_documentation_reads() {
    let config = loaded(
        r#"
[tools.run_tests]
description = "Run the tests, of one crate or of all"
command = ["cargo", "test", ["-p", "{crate}"], "{filter...}"]
args.crate  = "string?"
args.filter = "string[]"
timeout  = "30m"
on_crash = "rerun"
"#,
    );
    let tool = &config.tools["run_tests"];
    assert_eq!(tool.timeout, Some(Span(30 * 60_000)));
    assert_eq!(
        tool.on_crash,
        OnCrash::Rerun {
            starts_max: 3,
            backoff: Span(1000)
        }
    );
    assert_eq!(tool.command.items[3].1, Item::Each("filter".into()));
    assert_eq!(
        tool.args.schema,
        serde_json::json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "crate": { "type": "string" },
                "filter": { "type": "array", "items": { "type": "string" } },
            },
        })
    );
}

#[test]
fn durations_and_sizes_read_in_every_form() {
    for (text, ms) in [
        ("90s", 90_000),
        ("15m", 900_000),
        ("PT12H", 43_200_000),
        ("30d", 2_592_000_000),
        ("1h30m", 5_400_000),
        ("P1DT1S", 86_401_000),
    ] {
        assert_eq!(
            loaded(&format!("[tasks]\nttl = \"{text}\"")).tasks.ttl,
            Span(ms),
            "{text}"
        );
    }
    for (text, bytes) in [
        ("512KiB", 512 << 10),
        ("1MB", 1_000_000),
        ("2 MiB", 2 << 20),
        ("4096B", 4096),
    ] {
        assert_eq!(
            loaded(&format!("[server]\nbody_max = \"{text}\""))
                .server
                .body_max,
            Bytes(bytes),
            "{text}"
        );
    }
}

#[test]
fn a_misspelt_key_is_named_with_its_place_and_the_nearest() {
    wrong(
        "[tasks]\nttl = \"1d\"\npromote_afer = \"2s\"\n",
        "longhaul.toml:3:1: unknown key `promote_afer` in [tasks]; did you mean `promote_after`?",
    );
    wrong(
        "[sever]\nbind = \"127.0.0.1:1\"\n",
        "longhaul.toml:1:2: unknown section or key `sever`; did you mean `server`?",
    );
    wrong(
        &tool("comand = [\"true\"]"),
        "longhaul.toml:1:8: tool `t` needs a `command`\n\
         longhaul.toml:3:1: unknown key `comand` in [tools.t]; did you mean `command`?",
    );
    wrong(
        &tool("command = [\"true\"]\nannotations = { readOnly = true }"),
        "longhaul.toml:4:17: unknown key `readOnly` in [tools.NAME.annotations]; known here: `destructiveHint`, `idempotentHint`, `openWorldHint`, `readOnlyHint`",
    );
}

#[test]
fn a_section_of_a_later_version_says_so() {
    wrong(
        "[tls]\ncert = \"x\"\n[policy]\n",
        "longhaul.toml:1:2: `tls` is not in this version (0.1.0)\n\
         longhaul.toml:3:2: `policy` is not in this version (0.1.0)",
    );
}

#[test]
fn a_wrong_type_duration_or_size_says_what_was_expected() {
    wrong(
        "[tasks]\nttl = 7\nopen_max = \"many\"\nenabled = 1\n[server]\nbody_max = \"4 megs\"\nbind = \"localhost\"\nallowed_hosts = \"a\"\n",
        "longhaul.toml:2:7: `ttl` must be a duration such as `90s`, `15m`, `30d` or `PT12H`, not the integer `7`\n\
         longhaul.toml:3:12: `open_max` must be a whole number, not the text `many`\n\
         longhaul.toml:4:11: `enabled` must be `true` or `false`, not the integer `1`\n\
         longhaul.toml:6:12: `body_max` must be a size such as `512KiB`, `4MiB` or `2GiB`, not the text `4 megs`\n\
         longhaul.toml:7:8: `bind` must be an address and port such as `127.0.0.1:7410`, not the text `localhost`\n\
         longhaul.toml:8:17: `allowed_hosts` must be a list, each item text, not the text `a`",
    );
    wrong(
        "[tasks]\nttl = \"90 seconds\"\n",
        "longhaul.toml:2:7: `ttl` must be a duration such as `90s`, `15m`, `30d` or `PT12H`, not the text `90 seconds`",
    );
    wrong(
        "tasks = 3\n",
        "longhaul.toml:1:9: `tasks` must be a section, [tasks], not the integer `3`",
    );
}

#[test]
fn a_value_outside_its_range_says_the_range() {
    wrong(
        "[tasks]\nopen_max = 0\npromote_after = \"1h\"\n[server]\nbody_max = \"1GiB\"\n",
        "longhaul.toml:2:12: `open_max` must be from 1 to 10000000, not 0\n\
         longhaul.toml:3:17: `promote_after` must be from 0s to 10m, not 1h\n\
         longhaul.toml:5:12: `body_max` must be from 1KiB to 64MiB, not 1GiB",
    );
}

#[test]
fn text_that_is_no_toml_is_reported_with_its_place_and_the_rest_is_still_checked() {
    let problems =
        read(&[("longhaul.toml", "[tasks\nttl = 7\n[server]\nbnd = 1\n")], &[]).expect_err("wrong");
    assert!(
        problems.starts_with("longhaul.toml:1:7: not valid TOML: "),
        "{problems}"
    );
    assert!(
        problems.contains("unknown key `bnd` in [server]; did you mean `bind`?"),
        "{problems}"
    );
    assert_eq!(problems.lines().count(), 2, "{problems}");
    let broken = read(&[("longhaul.toml", "[server\nbind = 7")], &[]).expect_err("wrong");
    assert_eq!(broken.lines().count(), 1, "{broken}");
}

#[test]
fn settings_that_contradict_each_other_are_reported_where_they_stand() {
    wrong(
        "[tasks]\nttl = \"40d\"\n[limits]\nresult_max = \"8MiB\"\noutput_max = \"1MiB\"\n[server]\nbind = \"0.0.0.0:7410\"\n",
        "longhaul.toml:2:7: `ttl` (40d) is longer than `ttl_max` (30d)\n\
         longhaul.toml:4:14: `result_max` (8MiB) is larger than `output_max` (1MiB)\n\
         longhaul.toml:7:8: `0.0.0.0:7410` can be reached from other machines, and this version serves plain HTTP without keys; bind a loopback address",
    );
    wrong(
        &tool("command = [\"true\"]\nttl = \"60d\""),
        "longhaul.toml:4:7: `ttl` of tool `t` (60d) is longer than `tasks.ttl_max` (30d)",
    );
}

#[test]
fn an_include_is_joined_and_its_paths_start_at_its_own_folder() {
    let files = [
        (
            "etc/longhaul.toml",
            "include = [\"more/tools.toml\"]\n[tasks]\nttl = \"1d\"\n",
        ),
        (
            "etc/more/tools.toml",
            "[tasks]\nopen_max = 5\n[tools.t]\ndescription = \"d\"\ncommand = [\"./run\"]\ncwd = \"work\"\n",
        ),
    ];
    let loaded = read(&files, &[]).expect("good");
    assert_eq!(loaded.config.tasks.ttl, Span(86_400_000));
    assert_eq!(loaded.config.tasks.open_max, 5);
    assert_eq!(
        loaded.config.tools["t"].cwd.as_deref(),
        Some(Path::new("etc/more/work"))
    );
    assert_eq!(loaded.config.tools["t"].folder, Path::new("etc/more"));
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn an_include_that_repeats_or_is_missing_is_reported() {
    let files = [
        (
            "a.toml",
            "include = [\"b.toml\", \"c.toml\"]\n[tasks]\nttl = \"1d\"\n",
        ),
        ("b.toml", "include = [\"a.toml\"]\n[tasks]\nttl = \"2d\"\n"),
    ];
    assert_eq!(
        read(&files, &[]).expect_err("wrong"),
        "a.toml:1:11: cannot read `c.toml`: no such file\n\
         b.toml:1:11: `a.toml` is included twice\n\
         b.toml:3:1: `tasks.ttl` is set before at a.toml:3:1"
    );
    let twice = [
        ("a.toml", "include = [\"b.toml\"]\n[tools.t]\ncommand = [\"x\"]\n"),
        ("b.toml", "[tools.t]\ncommand = [\"y\"]\n"),
    ];
    assert_eq!(
        read(&twice, &[]).expect_err("wrong"),
        "b.toml:1:8: `tools.t` is set before at a.toml:2:8"
    );
}

#[test]
fn the_environment_overrides_a_file_and_has_the_type_of_the_setting() {
    let file = [("longhaul.toml", "[tasks]\nttl = \"1d\"\n")];
    let env = [
        ("LONGHAUL_TASKS__TTL", "2d"),
        ("LONGHAUL_TASKS__OPEN_MAX", "7"),
        ("LONGHAUL_SERVER__STRICT_HEADERS", "true"),
        ("LONGHAUL_SERVER__ALLOWED_HOSTS", "a.example, b.example"),
        ("LONGHAUL_KEY", "not a setting"),
    ];
    let config = read(&file, &env).expect("good").config;
    assert_eq!(config.tasks.ttl, Span(2 * 86_400_000));
    assert_eq!(config.tasks.open_max, 7);
    assert!(config.server.strict_headers);
    assert_eq!(config.server.allowed_hosts, ["a.example", "b.example"]);
}

#[test]
fn a_wrong_variable_is_named() {
    let file = [("longhaul.toml", "")];
    let env = [
        ("LONGHAUL_TASKS__OPENMAX", "7"),
        ("LONGHAUL_TASKS__TTL", "soon"),
        ("LONGHAUL_TASKS__HELD_MAX", "x"),
        ("LONGHAUL_TOOLS__T__COMMAND", "[\"sh\"]"),
    ];
    assert_eq!(
        read(&file, &env).expect_err("wrong"),
        "LONGHAUL_TASKS__HELD_MAX: must be a whole number, not the text `x`\n\
         LONGHAUL_TASKS__OPENMAX: no setting has this name; did you mean `LONGHAUL_TASKS__OPEN_MAX`?\n\
         LONGHAUL_TASKS__TTL: `ttl` must be a duration such as `90s`, `15m`, `30d` or `PT12H`, not the text `soon`\n\
         LONGHAUL_TOOLS__T__COMMAND: tools, servers and toolsets are declared in the configuration file only, never in the environment"
    );
}

// S6
#[test]
fn a_file_that_everybody_can_write_is_refused_and_one_of_a_group_is_warned_about() {
    let with_mode = |mode| {
        config::read(Path::new("longhaul.toml"), &[], &move |_| {
            Ok(Source {
                text: String::new(),
                mode,
            })
        })
    };
    assert_eq!(
        with_mode(0o100_666).expect_err("refused").to_string(),
        "longhaul.toml: everybody can write this file, and so start any program as you; `chmod o-w longhaul.toml`"
    );
    let warnings = with_mode(0o100_664).expect("accepted").warnings;
    assert_eq!(
        warnings[0].to_string(),
        "longhaul.toml: its group can write this file, and so start any program; `chmod g-w longhaul.toml`"
    );
    assert!(with_mode(0o100_644).expect("accepted").warnings.is_empty());
}

#[test]
fn the_places_are_looked_at_in_their_order() {
    let places = |flag: Option<&str>, env: &[(&str, &str)], here| {
        let env = |name: &str| {
            env.iter()
                .find(|(own, _)| *own == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let places: Vec<Place> = config::places(flag.map(Path::new), &env, here);
        places
            .into_iter()
            .map(|place| (place.path.display().to_string(), place.named))
            .collect::<Vec<_>>()
    };
    let env = [
        ("LONGHAUL_CONFIG", "/e.toml"),
        ("XDG_CONFIG_HOME", "/x"),
        ("HOME", "/h"),
    ];
    assert_eq!(places(Some("f.toml"), &env, true), [("f.toml".to_owned(), true)]);
    assert_eq!(places(None, &env, true), [("/e.toml".to_owned(), true)]);
    let rest = |first: &str| {
        [
            (first.to_owned(), false),
            ("/etc/longhaul/longhaul.toml".to_owned(), false),
        ]
    };
    assert_eq!(places(None, &env[1..], false), rest("/x/longhaul/longhaul.toml"));
    assert_eq!(
        places(None, &env[2..], false),
        rest("/h/.config/longhaul/longhaul.toml")
    );
    assert_eq!(
        places(None, &env[2..], true)[0],
        ("longhaul.toml".to_owned(), false)
    );
}

#[test]
fn the_url_of_the_store_may_stand_elsewhere() {
    let url = |value: &str, env: &[(&str, &str)]| {
        let toml = format!("[store]\nurl = \"{value}\"\n");
        let files = [("longhaul.toml", toml.as_str()), ("/run/url", "postgres://b/c\n")];
        read(&files, env).map(|loaded| loaded.config.store.url)
    };
    assert_eq!(
        url("env:DB", &[("DB", "postgres://a/b")]),
        Ok("postgres://a/b".into())
    );
    assert_eq!(url("file:/run/url", &[]), Ok("postgres://b/c".into()));
    assert_eq!(
        url("env:DB", &[]),
        Err("longhaul.toml:2:7: the variable `DB` is not set".into())
    );
}

#[test]
fn the_schema_and_the_reader_agree_on_sizes_and_durations() {
    let schema = config::schema();
    let agree = |section: &str, key: &str, text: &str| {
        let property = &schema["properties"][section]["properties"][key];
        let by_schema = jsonschema::options()
            .build(property)
            .expect("a schema")
            .is_valid(&text.into());
        let problems = read(&[("l.toml", &format!("[{section}]\n{key} = {text:?}\n"))], &[]).err();
        // A value out of its range was read.
        let by_reader = problems.is_none_or(|problems| problems.contains("must be from"));
        assert_eq!(by_schema, by_reader, "{key} = {text}");
        by_reader
    };
    let read = |texts: &[&str], section, key, good| {
        for text in texts {
            assert_eq!(agree(section, key, text), good, "{text}");
        }
    };
    let good = [
        "5s", "1s2s", "1h30m", "2w", "500ms", "PT1H30M", "P1D", "P1W", "P1W2D", "PT0.5S", "P1DT1S", "PT90M",
    ];
    read(&good, "tasks", "grace", true);
    let bad = [
        "", "5", "1.5s", "P1Y", "P1M", "-5s", "1h 30m", "P", "PT", "P1DT", "5S", "٣s", "1µs", "PT1.S",
        "PT1,5S", "P-1D", "PT1S1M", "PT1.5H", "p1d", "P1", "PT5", " 5s",
    ];
    read(&bad, "tasks", "grace", false);
    let good = ["4MiB", "4 MiB", "4MB", "0B", "7KB", "1TiB"];
    read(&good, "server", "body_max", true);
    let bad = [
        "", "4", "4m", "4k", "4   MiB", "4\tMiB", "1.5MiB", "4mib", "4M", "MiB", "4 MiB ",
    ];
    read(&bad, "server", "body_max", false);
}

#[test]
fn a_configuration_that_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("a fifo");
    let problems = config::load(&fifo, &[]).expect_err("refused").to_string();
    assert!(problems.ends_with(": not a regular file"), "{problems}");
    let file = folder.path().join("longhaul.toml");
    for include in ["fifo", "/dev/zero"] {
        std::fs::write(&file, format!("include = [\"{include}\"]\n")).expect("written");
        let problems = config::load(&file, &[]).expect_err("refused").to_string();
        assert!(problems.ends_with(": not a regular file"), "{problems}");
    }
}
