//! The text of a configuration: reading it never panics, and whatever is wrong with it has a place in it.
//!
//! An input is the first file. `more.toml` and `args.json`, which it may name, are there; no other file is.

use std::{io, path::Path};

use longhaul_gateway::config::{self, Problem, Source};

const MORE: &str = "[tools.more]\ncommand = [\"true\"]\n";
const ARGS: &str = r#"{"type":"object","properties":{"path":{"type":"string"},"count":{"type":"integer"}}}"#;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match read(text) {
        Ok(loaded) => {
            let again = read(text).unwrap_or_else(|_| panic!("it reads the same twice"));
            assert_eq!(format!("{loaded:?}"), format!("{again:?}"));
            for warning in &loaded.warnings {
                check_problem(text, warning);
            }
        }
        Err(problems) => {
            assert!(!problems.0.is_empty(), "it failed, and nothing is wrong");
            for problem in &problems.0 {
                check_problem(text, problem);
            }
        }
    }
}

fn read(text: &str) -> Result<config::Loaded, config::Problems> {
    let open = |path: &Path| {
        let text = match path.to_str() {
            Some("longhaul.toml") => text,
            Some("more.toml") => MORE,
            Some("args.json") => ARGS,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Source {
            text: text.to_owned(),
            mode: 0o600,
        })
    };
    config::read(Path::new("longhaul.toml"), &[], &open)
}

/// A problem says what is wrong, and where: a line of a file, or a file or setting as a whole.
fn check_problem(text: &str, problem: &Problem) {
    assert!(!problem.text.trim().is_empty(), "{problem:?}");
    assert!(!problem.at.file.is_empty(), "{problem:?}");
    match (problem.at.line, problem.at.column) {
        (0, 0) => {}
        (line, column) if &*problem.at.file == "longhaul.toml" => {
            let found = text.split('\n').nth(line.wrapping_sub(1));
            let found = found.unwrap_or_else(|| panic!("no such line: {problem:?}"));
            assert!(
                (1..=found.chars().count() + 1).contains(&column),
                "no such column: {problem:?}"
            );
        }
        (_, _) => {}
    }
}
