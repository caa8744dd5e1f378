//! The page of errors lists every reason word that somebody can read.

use std::{collections::BTreeSet, path::Path};

use longhaul_gateway::upstream::Reason;

/// A file of the project, by its path.
fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The words in quotes right after each `before`.
fn words(source: &str, before: &str) -> BTreeSet<String> {
    source
        .split(before)
        .skip(1)
        .filter_map(|after| after.trim_start().strip_prefix('"')?.split('"').next())
        .filter(|word| is_word(word))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_reason_word_is_on_the_page_of_errors() {
    let malformed = file("crates/mcp/src/malformed.rs");
    let of_rules = malformed
        .split("pub fn reason(")
        .nth(1)
        .and_then(|after| after.split("pub fn ").next());
    let mut reasons = words(of_rules.expect("the words of the rules"), "=>");
    assert!(reasons.len() >= 25, "{reasons:?}");
    let errors = file("crates/mcp/src/rpc_error.rs");
    let tasks = file("crates/core/src/task.rs");
    let of_tasks = tasks
        .split("impl Reason {")
        .nth(1)
        .and_then(|after| after.split("\nimpl ").next());
    let of_tasks = words(of_tasks.expect("the words of tasks"), "=>");
    assert!(of_tasks.len() >= 6, "{of_tasks:?}");
    reasons.extend(of_tasks);
    reasons.extend(Reason::ALL.map(|reason| reason.word().to_owned()));
    let mut sources = vec![malformed, errors];
    let mut folders = vec![
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../mcp/src"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                sources.push(std::fs::read_to_string(path).expect("a source"));
            }
        }
    }
    for source in &sources {
        for before in ["reason:", "_because(", "RpcError::internal("] {
            reasons.extend(words(source, before));
        }
        // `Error::new(status, code, "word", …)` of the local interface.
        for after in source
            .split(" Error::new(")
            .skip(1)
            .chain(source.split("::Error::new(").skip(1))
        {
            let word = after.split('"').nth(1).filter(|word| is_word(word));
            reasons.extend(word.map(str::to_owned));
        }
    }
    let page = file("docs/reference/errors.md");
    let missing: Vec<_> = reasons
        .iter()
        .filter(|word| !page.contains(&format!("`{word}`")))
        .collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}
