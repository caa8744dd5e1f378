//! `cargo xtask docs --check | --write`: generated pages against their generators.
//!
//! A page whose text lives in code is made from that code. Each page is one row of [`PAGES`].

use std::{collections::BTreeSet, fmt::Write as _, fs};

use serde_json::Value;

use crate::{
    Outcome, attacks, bench, conformance, pairings,
    program::Program,
    workspace::{self, files, items, read, root, target, text},
};

/// One generated page.
struct Page {
    /// Where it is, from the root.
    path: &'static str,
    /// What makes it.
    from: Maker,
}

/// What makes a page.
enum Maker {
    /// A function of this file, from what the binary prints.
    Binary(fn() -> Result<String, String>),
    /// A function of another command, from figures that were committed with the page.
    Figures(fn() -> Result<String, String>),
    /// A test of this package compares it, and writes it when `LONGHAUL_BLESS=1`.
    Test {
        package: &'static str,
        test: &'static str,
    },
}

const PAGES: &[Page] = &[
    Page {
        path: "docs/reference/states.md",
        from: Maker::Test {
            package: "longhaul-core",
            test: "the_picture_of_the_states_is_the_committed_one",
        },
    },
    Page {
        path: "docs/reference/relay.md",
        from: Maker::Test {
            package: "longhaul-mcp",
            test: "the_page_of_the_edits_is_the_committed_one",
        },
    },
    Page {
        path: "docs/reference/lossless.md",
        from: Maker::Test {
            package: "longhaul-gateway",
            test: "what_real_servers_said_arrives_as_it_was_sent",
        },
    },
    Page {
        path: "docs/reference/questions.md",
        from: Maker::Test {
            package: "longhaul-gateway",
            test: "every_question_is_seen_where_somebody_can_answer_it",
        },
    },
    Page {
        path: "docs/reference/settings.md",
        from: Maker::Binary(settings),
    },
    Page {
        path: "docs/reference/commands.md",
        from: Maker::Binary(commands),
    },
    Page {
        path: bench::PAGE,
        from: Maker::Figures(bench::rendered),
    },
    Page {
        path: attacks::PAGE,
        from: Maker::Figures(attacks::rendered),
    },
    Page {
        path: conformance::PAGE,
        from: Maker::Figures(conformance::rendered),
    },
    Page {
        path: pairings::PAGE,
        from: Maker::Figures(pairings::rendered),
    },
];

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let write = match arguments {
        [one] if one == "--check" => false,
        [one] if one == "--write" => true,
        _ => return Err("say `docs --check` or `docs --write`".to_owned()),
    };
    Program::cargo()
        .args(["build", "--quiet", "--locked", "-p", "longhaul"])
        .run()?;
    let mut stale = Vec::new();
    for page in PAGES {
        let agrees = match page.from {
            Maker::Binary(make) | Maker::Figures(make) => compare(page.path, &make()?, write)?,
            Maker::Test { package, test } => test_page(package, test, write),
        };
        if !agrees {
            stale.push(page.path);
        }
    }
    reasons()?;
    if stale.is_empty() {
        println!("docs: {} pages agree with their generators", PAGES.len());
        return Ok(());
    }
    Err(format!(
        "stale: {}; run `cargo xtask docs --write`",
        stale.join(", ")
    ))
}

/// Every reason word that a client can read is on its page.
fn reasons() -> Outcome {
    const PAGE: &str = "docs/reference/errors.md";
    let page = read(PAGE)?;
    let mut missing = BTreeSet::new();
    for part in ["crates/mcp/src", "crates/gateway/src"] {
        for path in files(&root().join(part), ".rs")? {
            let source = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            missing.extend(
                reason_words(&source)
                    .into_iter()
                    .filter(|word| !page.contains(&format!("`{word}`"))),
            );
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("{PAGE} does not list {missing:?}"))
    }
}

/// The words in `reason: "word"`, `_because("word"` and `RpcError::internal("word"`.
fn reason_words(source: &str) -> Vec<String> {
    let mut words = Vec::new();
    for needle in ["reason: \"", "_because(", "RpcError::internal("] {
        for (at, found) in source.match_indices(needle) {
            let after = source[at + found.len()..].trim_start().trim_start_matches('"');
            let word: String = after
                .chars()
                .take_while(|letter| letter.is_ascii_lowercase() || *letter == '_')
                .collect();
            if word.len() > 2 && after[word.len()..].starts_with('"') {
                words.push(word);
            }
        }
    }
    words
}

/// Compares or writes one page; says whether it agrees.
fn compare(path: &str, made: &str, write: bool) -> Result<bool, String> {
    let file = root().join(path);
    if write {
        workspace::write(&file, made)?;
        return Ok(true);
    }
    Ok(fs::read_to_string(&file).is_ok_and(|present| present == made))
}

fn test_page(package: &str, test: &str, write: bool) -> bool {
    let mut program =
        Program::cargo().args(["test", "--quiet", "--locked", "-p", package, "--test", "it", test]);
    if write {
        program = program.env("LONGHAUL_BLESS", "1");
    }
    program.run().is_ok()
}

fn longhaul(arguments: &[&str]) -> Result<String, String> {
    Program::new(target()?.join("debug/longhaul"))
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
}

/// Every setting, from the schema that the configuration prints about itself.
fn settings() -> Result<String, String> {
    let schema: Value = serde_json::from_str(&longhaul(&["config", "schema"])?)
        .map_err(|error| format!("`longhaul config schema` printed no JSON: {error}"))?;
    let mut page = String::from(
        "# Settings\n\nGenerated from the declarations in `longhaul-gateway`; do not edit.\n\
         The same text is in the JSON Schema that `longhaul config schema` prints, for editors.\n\n\
         A setting outside of tools, servers and toolsets can be overridden by the environment: `LONGHAUL_SECTION__KEY`.\n",
    );
    for (name, section) in members(&schema["properties"]) {
        let (title, table) = match name {
            "tools" | "servers" | "toolsets" => (
                format!("[{name}.NAME]"),
                &section["additionalProperties"]["properties"],
            ),
            _ => (format!("[{name}]"), &section["properties"]),
        };
        if name == "include" {
            section_of(
                &mut page,
                "at the top of the file",
                &serde_json::json!({ name: section }),
            );
        }
        if table.is_object() {
            section_of(&mut page, &title, table);
        }
        let single = &table["tools"]["additionalProperties"]["properties"];
        if name == "servers" && single.is_object() {
            section_of(&mut page, "[servers.NAME.tools.TOOL]", single);
        }
    }
    Ok(page)
}

fn section_of(page: &mut String, title: &str, table: &Value) {
    page.push_str(&format!(
        "\n## `{title}`\n\n| key | default | what it does |\n|---|---|---|\n"
    ));
    for (key, setting) in members(table) {
        let default = match &setting["default"] {
            Value::Null => String::new(),
            Value::String(words) => format!("`{words}`"),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                format!("`{other}`")
            }
        };
        let words = text(&setting["description"]).replace(['\n', '|'], " ");
        let values: Vec<String> = items(&setting["enum"])
            .map(|value| format!("`{}`", text(value)))
            .collect();
        let values = if values.is_empty() {
            String::new()
        } else {
            format!(" One of {}.", values.join(", "))
        };
        if writeln!(page, "| `{key}` | {default} | {words}{values} |").is_err() {
            return;
        }
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, member)| (name.as_str(), member))
}

/// Every command with its help, as the binary prints it, each before the commands below it.
fn commands() -> Result<String, String> {
    let mut page =
        String::from("# Commands\n\nGenerated from the declarations in the binary; do not edit.\n");
    let mut open = vec![String::new()];
    while let Some(command) = open.pop() {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = longhaul(&words)?;
        if !command.is_empty() {
            page.push_str(&format!("\n## `longhaul{command}`\n"));
        }
        page.push_str(&format!("\n```\n{}\n```\n", help.trim_end()));
        let below = listed(&help);
        open.extend(below.iter().rev().map(|name| format!("{command} {name}")));
    }
    Ok(page)
}

/// The commands that a help lists.
fn listed(help: &str) -> Vec<&str> {
    help.lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{listed, reason_words};

    #[test]
    fn the_commands_of_a_help_are_its_indented_first_words() {
        let help =
            "Title\n\nCommands:\n  run    Call\n  tasks  Show\n         more\n\nOptions:\n  -h  Help\n";
        assert_eq!(listed(help), ["run", "tasks"]);
    }

    #[test]
    fn reason_words_are_found_wherever_they_are_given() {
        let source = "Refusal { reason: \"task_limit\".into() } invalid_params_because(\n    \"bad_state\", x) RpcError::internal(reason, text)";
        assert_eq!(reason_words(source), ["task_limit", "bad_state"]);
    }
}
