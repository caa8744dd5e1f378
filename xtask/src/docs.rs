//! `cargo xtask docs --check | --write`: generated pages against their generators.
//!
//! A page whose text lives in code is printed by that code. Each page is one row of [`PAGES`].

use std::fs;

use crate::{Outcome, program::Program, workspace::root};

/// One generated page.
struct Page {
    /// Where it is, from the root.
    path: &'static str,
    /// What makes it.
    from: Maker,
}

/// What makes a page.
enum Maker {
    /// The binary prints it, given these arguments.
    Binary(&'static [&'static str]),
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
            test: "the_picture_of_the_states_is_up_to_date",
        },
    },
    Page {
        path: "docs/reference/settings.md",
        from: Maker::Binary(&["config", "schema", "--markdown"]),
    },
];

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let write = match arguments {
        [one] if one == "--check" => false,
        [one] if one == "--write" => true,
        _ => return Err("say `docs --check` or `docs --write`".to_owned()),
    };
    let mut stale = Vec::new();
    for page in PAGES {
        match page.from {
            Maker::Binary(binary_arguments) => {
                if !binary_page(page.path, binary_arguments, write)? {
                    stale.push(page.path);
                }
            }
            Maker::Test { package, test } => {
                if test_page(package, test, write).is_err() {
                    stale.push(page.path);
                }
            }
        }
    }
    if stale.is_empty() {
        println!("docs: {} pages agree with their generators", PAGES.len());
        return Ok(());
    }
    Err(format!(
        "stale: {}; run `cargo xtask docs --write`",
        stale.join(", ")
    ))
}

/// Compares or writes one page that the binary prints; says whether it agrees.
fn binary_page(path: &str, binary_arguments: &[&str], write: bool) -> Result<bool, String> {
    let made = Program::cargo()
        .args(["run", "--quiet", "--locked", "-p", "longhaul", "--"])
        .args(binary_arguments)
        .output()?;
    let file = root().join(path);
    if write {
        fs::write(&file, made).map_err(|error| format!("cannot write `{path}`: {error}"))?;
        println!("docs: wrote {path}");
        return Ok(true);
    }
    Ok(fs::read_to_string(&file).is_ok_and(|present| present == made))
}

fn test_page(package: &str, test: &str, write: bool) -> Outcome {
    let mut program = Program::cargo().args(["test", "--quiet", "--locked", "-p", package, test]);
    if write {
        program = program.env("LONGHAUL_BLESS", "1");
    }
    program.run()
}
