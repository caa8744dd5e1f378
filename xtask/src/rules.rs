//! `cargo xtask rules [--shrink]`: rule ids in comments resolve, and must-rules in force have a test.
//!
//! `docs/reference/rules.md` lists every rule. An id in a comment that is not in it fails. A must-rule in force
//! that no test names is allowed only while it is in `xtask/rules-untested.txt`, which may only shrink: a rule
//! there that has a test by now fails too, and `--shrink` takes such lines out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    Outcome,
    workspace::{files, read, root, write},
};

const PAGE: &str = "docs/reference/rules.md";
const UNTESTED: &str = "xtask/rules-untested.txt";

/// One row of the page.
struct Rule {
    must: bool,
    in_force: bool,
}

/// Where an id is named.
#[derive(Default)]
struct Named {
    places: BTreeMap<String, String>,
    in_tests: BTreeSet<String>,
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let shrink = match arguments {
        [] => false,
        [one] if one == "--shrink" => true,
        _ => return Err("say `rules` or `rules --shrink`".to_owned()),
    };
    let rules = rules(&read(PAGE)?);
    let named = named()?;
    let unknown: Vec<String> = named
        .places
        .iter()
        .filter(|(id, _)| resolve(&rules, id).is_none())
        .map(|(id, place)| format!("`{id}` ({place}) is not in {PAGE}"))
        .collect();
    if !unknown.is_empty() {
        return Err(format!("rules:\n  {}", unknown.join("\n  ")));
    }
    let tested: BTreeSet<&str> = named
        .in_tests
        .iter()
        .filter_map(|id| resolve(&rules, id))
        .collect();
    let untested: BTreeSet<&str> = rules
        .iter()
        .filter(|(id, rule)| rule.must && rule.in_force && !tested.contains(id.as_str()))
        .map(|(id, _)| id.as_str())
        .collect();
    println!(
        "rules: {} listed, {} named in code, {} must-rules in force without a test",
        rules.len(),
        named.places.len(),
        untested.len()
    );
    compare(&untested, shrink)
}

/// Compares the untested rules with the list that may only shrink.
fn compare(untested: &BTreeSet<&str>, shrink: bool) -> Outcome {
    let list = read(UNTESTED)?;
    let is_id = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let allowed: BTreeSet<&str> = list.lines().filter(is_id).collect();
    let new: Vec<&str> = untested.difference(&allowed).copied().collect();
    let stale: Vec<&str> = allowed.difference(untested).copied().collect();
    if shrink && !stale.is_empty() {
        let kept: String = list
            .lines()
            .filter(|line| !stale.contains(line))
            .map(|line| format!("{line}\n"))
            .collect();
        write(&root().join(UNTESTED), &kept)?;
        println!("rules: took out {}", stale.join(" "));
    } else if !stale.is_empty() {
        return Err(format!(
            "these have a test by now, or are gone: {}; run `cargo xtask rules --shrink`",
            stale.join(" ")
        ));
    }
    if new.is_empty() {
        Ok(())
    } else {
        Err(format!("must-rules in force without a test: {}", new.join(" ")))
    }
}

/// The rules of the page: rows whose first cell is an id, second cell a level, third cell `now` or `later`.
fn rules(page: &str) -> BTreeMap<String, Rule> {
    let mut rules = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, id, level, force, ..] = cells[..]
            && is_id(id)
        {
            let rule = Rule {
                must: matches!(level, "must" | "must not"),
                in_force: force == "now",
            };
            rules.insert(id.to_owned(), rule);
        }
    }
    rules
}

/// The id of the page that this id means: itself, without the letter of its clause (`A-13a`), or with the letter
/// of its first clause (`T6`).
fn resolve<'a>(rules: &'a BTreeMap<String, Rule>, id: &str) -> Option<&'a str> {
    let whole = id.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let first = format!("{id}a");
    let found = [id, whole, &first]
        .into_iter()
        .find_map(|id| rules.get_key_value(id));
    found.map(|(id, _)| id.as_str())
}

/// Every id that a comment under `crates/` names, and those that tests name.
fn named() -> Result<Named, String> {
    let root = root();
    let mut named = Named::default();
    for path in files(&root.join("crates"), ".rs")? {
        let source = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        let shown = path.strip_prefix(&root).unwrap_or(&path);
        scan(shown, &source, &mut named);
    }
    Ok(named)
}

fn scan(path: &Path, source: &str, named: &mut Named) {
    let mut in_tests = path.components().any(|part| part.as_os_str() == "tests");
    for (number, line) in source.lines().enumerate() {
        in_tests |= line.contains("#[cfg(test)]");
        let Some((_, comment)) = line.split_once("//") else {
            continue;
        };
        for id in comment
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
            .filter(|id| is_id(id))
        {
            named
                .places
                .entry(id.to_owned())
                .or_insert_with(|| format!("{}:{}", path.display(), number + 1));
            if in_tests {
                named.in_tests.insert(id.to_owned());
            }
        }
    }
}

/// `A-12`, `C-27a`, `DOS-3`, `S9`, `T6a`.
fn is_id(word: &str) -> bool {
    let (letters, rest) = word.split_at(
        word.find(|letter: char| !letter.is_ascii_uppercase())
            .unwrap_or(word.len()),
    );
    let digits = match letters {
        "A" | "B" | "C" | "D" | "E" | "G" | "K" | "Q" | "DOS" => match rest.strip_prefix('-') {
            Some(digits) => digits,
            None => return false,
        },
        "S" | "T" => rest,
        _ => return false,
    };
    let number = digits
        .strip_suffix(|letter: char| letter.is_ascii_lowercase())
        .unwrap_or(digits);
    (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Named, is_id, resolve, rules, scan};

    #[test]
    fn ids_are_told_from_words() {
        for id in ["A-12", "C-27a", "DOS-3", "S9", "T6a", "G-46"] {
            assert!(is_id(id), "{id}");
        }
        for word in [
            "A-", "T", "TERM", "UTF-8", "SHA-256", "X-1", "T1234", "A-b", "S-9",
        ] {
            assert!(!is_id(word), "{word}");
        }
    }

    #[test]
    fn a_clause_resolves_to_its_rule_and_an_unlisted_id_to_nothing() {
        let page = "| id | level | in force | rule | source |\n| A-13 | must | later | text | link |\n| T6a | must | now | text | |\n";
        let rules = rules(page);
        assert_eq!(resolve(&rules, "A-13b"), Some("A-13"));
        assert_eq!(resolve(&rules, "T6a"), Some("T6a"));
        assert_eq!(resolve(&rules, "T6"), Some("T6a"));
        assert_eq!(resolve(&rules, "A-14"), None);
        assert!(rules["A-13"].must && !rules["A-13"].in_force);
    }

    #[test]
    fn comments_are_read_and_code_is_not() {
        let mut named = Named::default();
        let source = "let t = T1; // C-27, T13–T17\n#[cfg(test)]\n// S9\n";
        scan(Path::new("crates/x/src/lib.rs"), source, &mut named);
        let ids: Vec<&str> = named.places.keys().map(String::as_str).collect();
        assert_eq!(ids, ["C-27", "S9", "T13", "T17"]);
        assert_eq!(named.in_tests.len(), 1);
    }
}
