//! `cargo xtask layers`: who may import whom.
//!
//! The table below is the one of ARCHITECTURE.md. It is compared with `cargo metadata`, so a forbidden arrow
//! fails before anyone has to notice it in a review.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    Outcome, no_arguments,
    workspace::{items, metadata, read, text},
};

/// Each crate of ours and the crates of ours that it may import.
const OURS: &[(&str, &[&str])] = &[
    ("longhaul-core", &[]),
    ("longhaul-mcp", &["longhaul-core"]),
    ("longhaul-store", &["longhaul-core"]),
    ("longhaul-engine", &["longhaul-core", "longhaul-store"]),
    (
        "longhaul-gateway",
        &[
            "longhaul-core",
            "longhaul-mcp",
            "longhaul-store",
            "longhaul-engine",
        ],
    ),
    (
        "longhaul",
        &[
            "longhaul-core",
            "longhaul-mcp",
            "longhaul-store",
            "longhaul-engine",
            "longhaul-gateway",
        ],
    ),
    ("xtask", &[]),
];

/// Libraries that only some of our crates may import directly.
const GUARDED: &[(&str, &[&str])] = &[
    ("axum", &["longhaul-gateway"]),
    ("clap", &["longhaul"]),
    ("deadpool-postgres", &["longhaul-store"]),
    ("hyper", &["longhaul-gateway", "longhaul"]),
    ("reqwest", &["longhaul-gateway"]),
    ("rmcp", &[]),
    ("rusqlite", &["longhaul-store"]),
    (
        "tokio",
        &[
            "longhaul-store",
            "longhaul-engine",
            "longhaul-gateway",
            "longhaul",
        ],
    ),
    ("tokio-postgres", &["longhaul-store"]),
];

/// Crates of ours in whose whole tree none of these may be.
const PURE: &[(&str, &[&str])] = &[("longhaul-core", IO), ("longhaul-mcp", IO)];

const IO: &[&str] = &[
    "async-std",
    "axum",
    "hyper",
    "mio",
    "nix",
    "reqwest",
    "rmcp",
    "rusqlite",
    "rustix",
    "smol",
    "socket2",
    "tokio",
    "tokio-postgres",
];

/// Why each library is there.
const REASONS: &str = "docs/decisions/dependencies.md";

pub(crate) fn run(arguments: &[String]) -> Outcome {
    no_arguments("layers", arguments)?;
    let metadata = metadata(true)?;
    let mut wrong = Vec::new();
    let mut arrows = 0;
    let reasons = read(REASONS)?;
    for package in members(&metadata) {
        arrows += check_imports(package, &mut wrong);
        check_reasons(package, &reasons, &mut wrong);
    }
    for (name, banned) in PURE {
        check_tree(&metadata, name, banned, &mut wrong);
    }
    if wrong.is_empty() {
        println!("layers: {arrows} arrows, all allowed");
        return Ok(());
    }
    Err(format!("layers:\n  {}", wrong.join("\n  ")))
}

fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let ids: BTreeSet<&str> = items(&metadata["workspace_members"]).map(text).collect();
    items(&metadata["packages"]).filter(move |package| ids.contains(text(&package["id"])))
}

/// Compares the direct imports of one of our crates with the tables; returns how many it saw.
fn check_imports(package: &Value, wrong: &mut Vec<String>) -> usize {
    let name = text(&package["name"]);
    let Some((_, allowed)) = OURS.iter().find(|(crate_name, _)| *crate_name == name) else {
        wrong.push(format!("`{name}` has no row in the table of xtask/src/layers.rs"));
        return 0;
    };
    let mut arrows = 0;
    for import in items(&package["dependencies"]).filter(|import| text(&import["kind"]) != "dev") {
        let imported = text(&import["name"]);
        arrows += 1;
        let ours = OURS.iter().any(|(crate_name, _)| *crate_name == imported);
        if ours && !allowed.contains(&imported) {
            wrong.push(format!("`{name}` may not import `{imported}`: arrows point down"));
        }
        let guard = GUARDED.iter().find(|(library, _)| *library == imported);
        if let Some((_, importers)) = guard
            && !importers.contains(&name)
        {
            wrong.push(format!(
                "`{name}` may not import `{imported}`: allowed are {importers:?}"
            ));
        }
    }
    arrows
}

/// Every library of somebody else has a row that says why it is there.
fn check_reasons(package: &Value, reasons: &str, wrong: &mut Vec<String>) {
    for import in items(&package["dependencies"]) {
        let imported = text(&import["name"]);
        let ours = OURS.iter().any(|(crate_name, _)| *crate_name == imported);
        if !ours && !reasons.contains(&format!("\n| `{imported}` |")) {
            wrong.push(format!(
                "`{imported}` of `{}` has no row in {REASONS}",
                text(&package["name"])
            ));
        }
    }
}

/// Looks for banned libraries in the whole tree of one of our crates, development dependencies left out.
fn check_tree(metadata: &Value, name: &str, banned: &[&str], wrong: &mut Vec<String>) {
    let names: BTreeMap<&str, &str> = items(&metadata["packages"])
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let nodes: BTreeMap<&str, &Value> = items(&metadata["resolve"]["nodes"])
        .map(|node| (text(&node["id"]), node))
        .collect();
    let Some(start) = members(metadata).find(|package| text(&package["name"]) == name) else {
        wrong.push(format!("`{name}` is not in the workspace"));
        return;
    };
    let mut seen = BTreeSet::new();
    let mut open = vec![text(&start["id"])];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let imported = names.get(id).copied().unwrap_or_default();
        if banned.contains(&imported) {
            wrong.push(format!(
                "`{imported}` is in the tree of `{name}`, which does no IO"
            ));
        }
        let imports = nodes.get(id).map(|node| &node["deps"]);
        for import in imports.into_iter().flat_map(items) {
            if items(&import["dep_kinds"]).any(|kind| kind["kind"].is_null()) {
                open.push(text(&import["pkg"]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{check_imports, check_reasons, check_tree};

    fn wrong(package: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        check_imports(package, &mut wrong);
        wrong
    }

    fn package(name: &str, import: &str) -> Value {
        json!({ "name": name, "dependencies": [{ "name": import, "kind": null }] })
    }

    #[test]
    fn an_arrow_that_points_up_is_refused() {
        assert!(wrong(&package("longhaul-engine", "longhaul-store")).is_empty());
        assert!(wrong(&package("longhaul-store", "longhaul-engine"))[0].contains("arrows point down"));
        assert!(wrong(&package("longhaul-engine", "longhaul-mcp"))[0].contains("arrows point down"));
    }

    #[test]
    fn a_guarded_library_is_refused_to_others() {
        assert!(wrong(&package("longhaul-store", "rusqlite")).is_empty());
        assert!(wrong(&package("longhaul-gateway", "rusqlite"))[0].contains("rusqlite"));
        assert!(wrong(&package("longhaul-gateway", "rmcp"))[0].contains("rmcp"));
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        assert!(wrong(&package("longhaul-new", "serde"))[0].contains("has no row"));
    }

    #[test]
    fn io_deep_in_a_pure_tree_is_found_and_a_development_arrow_is_not() {
        let tree = |kind: Value| {
            json!({
                "workspace_members": ["core"],
                "packages": [{ "id": "core", "name": "longhaul-core" }, { "id": "a", "name": "a" }, { "id": "t", "name": "tokio" }],
                "resolve": { "nodes": [
                    { "id": "core", "deps": [{ "pkg": "a", "dep_kinds": [{ "kind": kind }] }] },
                    { "id": "a", "deps": [{ "pkg": "t", "dep_kinds": [{ "kind": null }] }] },
                ] },
            })
        };
        let found = |kind: Value| {
            let mut wrong = Vec::new();
            check_tree(&tree(kind), "longhaul-core", &["tokio"], &mut wrong);
            wrong.len()
        };
        assert_eq!(found(Value::Null), 1);
        assert_eq!(found(json!("dev")), 0);
    }

    #[test]
    fn a_library_without_a_reason_is_refused() {
        let mut wrong = Vec::new();
        check_reasons(
            &package("longhaul-core", "serde"),
            "x\n| `serde` | why |\n",
            &mut wrong,
        );
        assert!(wrong.is_empty());
        check_reasons(
            &package("longhaul-core", "serde_json"),
            "x\n| `serde` | why |\n",
            &mut wrong,
        );
        assert_eq!(wrong.len(), 1);
    }
}
