//! The picture of the states, drawn from the table that the walk has proved.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use crate::table::{Kind, Known, On, ROWS, Row};

#[test]
fn the_picture_of_the_states_is_the_committed_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/states.md");
    let drawn = render();
    if std::env::var_os("LONGHAUL_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("the file is in a folder")).expect("make the folder");
        fs::write(&path, &drawn).expect("write the picture");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        committed, drawn,
        "draw it anew: LONGHAUL_BLESS=1 cargo test -p longhaul-core --test it states"
    );
}

/// The whole page.
fn render() -> String {
    let mut page = String::from(HEAD);
    page.push_str(
        "```mermaid\nstateDiagram-v2\n    [*] --> Held: an approval is asked\n    [*] --> Queued\n",
    );
    for ((from, to), rules) in edges() {
        writeln!(page, "    {} --> {}: {}", word(from), word(to), rules.join(", ")).expect("write");
    }
    page.push_str("    Idle --> [*]: T20\n```\n\n## Every transition\n\n");
    page.push_str("| rule | state | what happens | if | then | `stop` |\n|---|---|---|---|---|---|\n");
    for row in ROWS {
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            row.rule,
            word(row.from),
            row.on.text(),
            row.when.text(),
            word(row.to),
            known(row.stop)
        )
        .expect("write");
    }
    page.push_str(TAIL);
    for kind in Kind::ALL {
        writeln!(page, "| {} | {} |", word(kind), meaning(kind)).expect("write");
    }
    page
}

/// What leads from one state to another; what leaves the state as it is is in the table only.
fn edges() -> BTreeMap<(Kind, Kind), Vec<String>> {
    let mut edges: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for row in ROWS.iter().filter(|row| row.from != row.to) {
        let label = label(row);
        let labels = edges.entry((row.from, row.to)).or_default();
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    edges
}

fn label(row: &Row) -> String {
    let verb = match row.on {
        On::Claimed => "claimed",
        On::Started => "started",
        On::Noted => "noted",
        On::Attached => "attached",
        On::Asked => "asked",
        On::Settled => "settled",
        On::Misfit => "misfit",
        On::TakenBack => "taken back",
        On::Approved => "approved",
        On::Parked => "parked",
        On::Released => "released",
        On::Lost | On::Interrupted => "lost",
        On::Returned => "returned",
        On::Errored => "errored",
        On::Failed => "failed",
        On::CancelledElsewhere => "cancelled elsewhere",
        On::Ended => "ended",
        On::StopReported => "stopped",
    };
    format!("{verb} {}", row.rule)
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Held => "Held",
        Kind::Queued => "Queued",
        Kind::Reattach => "QueuedToReattach",
        Kind::Leased => "Leased",
        Kind::Running => "Running",
        Kind::Parked => "Parked",
        Kind::Stopping => "Stopping",
        Kind::StopOwed => "StopOwed",
        Kind::Idle => "Idle",
    }
}

fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::Held => "An approval is open. Nobody may claim.",
        Kind::Queued => "A start is owed.",
        Kind::Reattach => "The work lives elsewhere; somebody must follow it again.",
        Kind::Leased => "Claimed. The work has not begun.",
        Kind::Running => "The work has begun, or is followed.",
        Kind::Parked => "A leg ended with a checkpoint and its questions are open. Nothing is held.",
        Kind::Stopping => "Finished for the client. The holder of the lease owes the stop.",
        Kind::StopOwed => "Finished for the client. The work lives elsewhere, and a stop may be claimed.",
        Kind::Idle => "Finished. Nothing is owed.",
    }
}

fn known(known: Known) -> &'static str {
    match known {
        Known::Same => "",
        Known::Stopping => "`stopping`",
        Known::Left => "what is left",
    }
}

const HEAD: &str = "# States of a task

Generated from `crates/core/tests/it/table.rs`; do not edit.
The same table is compared with the code at every step of every reachable state.

A client sees `working`, `input_required` or an end.
The picture shows what a runner owes (`Run`).
*Ended from outside* is a cancel by the owner (T10) or by an operator, a kill, a loop rule or a denied approval (T11), the end of the time to live (T19) or of the approval (T25), a question that met silence (T18) or nobody (T5) where the tool's rule is to fail.
It is taken at once in every live state.

";

const TAIL: &str = "
What is not in the table is refused and changes nothing.
*What is left* is `not_started` if no attempt began, `unknown` if an attempt is out of sight (its runner was lost and nobody looked for its processes, or its stop was not confirmed), else `stopped`.
A report counts only with the fence of the present claim.

## What each state means

| state | meaning |
|---|---|
";
