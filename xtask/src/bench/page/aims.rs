//! What was aimed at, and what was seen of it.
//!
//! Called by `page`.

use serde_json::Value;

use super::{ABSENT, KIB_PER_MB, callers_text, count, gateways, idle, megabytes, swing, time};
use crate::{
    bench::{ECHO, OURS, figures::Figures},
    workspace::text,
};

/// What was aimed at, what was seen, and whether it was met.
pub(super) type Aim = (String, (String, Option<bool>));

/// The aims, each with what was seen.
pub(in crate::bench) fn table(raw: &Value) -> String {
    let figures = Figures { raw };
    let mut rows = creates(&figures);
    rows.extend(gets(&figures));
    rows.extend(one_process(&figures));
    rows.extend(growth(&figures));
    rows.extend(gateways::aims(&raw["gateways"]));
    let mut table = String::from("## Aims\n\n| aim | seen | |\n|---|---|---|");
    for (aim, (seen, met)) in rows {
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        table.push_str(&format!("\n| {aim} | {seen} | {verdict} |"));
    }
    table
}

fn creates(figures: &Figures<'_>) -> Vec<Aim> {
    let mut rows = Vec::new();
    for callers in [1, 32] {
        let phase = format!("create@{callers}");
        let ours = figures.median(OURS, "load", &phase, "per_second");
        let kept = |wanted: &'static [&'static str]| {
            figures
                .peers()
                .filter(move |peer| wanted.contains(&text(&peer["keeps"])))
        };
        let against = |best: Option<(&str, f64)>, times: f64| {
            let ratio = ours.zip(best).map(|(ours, (_, best))| ours / best);
            let seen = match (ratio, best) {
                (Some(ratio), Some((title, best))) => {
                    format!("{ratio:.1}× ({title}: {} /s)", count(Some(best)))
                }
                (_, None) | (None, _) => ABSENT.to_owned(),
            };
            (seen, ratio.map(|ratio| ratio >= times))
        };
        let durable = against(
            figures.best(kept(&["redis", "sqlite"]), &phase, "per_second"),
            5.0,
        );
        let quick = against(figures.best(kept(&["memory", "file"]), &phase, "per_second"), 1.0);
        let who = callers_text(callers);
        rows.push((
            format!("creates, {who}: ≥ 5× the best peer that syncs before it answers"),
            durable,
        ));
        rows.push((format!("creates, {who}: ≥ 1× the best peer that does not"), quick));
    }
    rows
}

fn gets(figures: &Figures<'_>) -> Vec<Aim> {
    let mut rows = Vec::new();
    for callers in [1, 32] {
        let phase = format!("get@{callers}");
        let ours = figures.median(OURS, "load", &phase, "per_second");
        let echo = figures.median(ECHO, "load", &phase, "per_second");
        let ratio = ours.zip(echo).map(|(ours, echo)| ours / echo);
        let seen = ratio.map_or(ABSENT.to_owned(), |ratio| format!("{:.0} %", ratio * 100.0));
        let who = callers_text(callers);
        rows.push((
            format!("gets, {who}: ≥ 50 % of a bare echo"),
            (seen, ratio.map(|ratio| ratio >= 0.5)),
        ));
    }
    rows
}

fn one_process(figures: &Figures<'_>) -> Vec<Aim> {
    let mut rows = Vec::new();
    let held = figures.median(OURS, "work", "nap-held=500@4", "p50_us");
    rows.push((
        "a tool of 500 ms, default settings: ≤ 600 ms".to_owned(),
        (time(held), held.map(|micros| micros <= 600_000.0)),
    ));
    let idle = idle(figures, OURS);
    rows.push((
        "memory of the idle process: ≤ 25 MB".to_owned(),
        (megabytes(idle), idle.map(|kib| kib <= 25.0 * KIB_PER_MB)),
    ));
    rows
}

fn growth(figures: &Figures<'_>) -> Vec<Aim> {
    let mut rows = Vec::new();
    for (what, name) in [("create", "creates"), ("get", "gets")] {
        let swing = swing(figures, what);
        let seen = swing.map_or(ABSENT.to_owned(), |swing| format!("±{:.0} %", swing * 100.0));
        rows.push((
            format!("{name} a second from 1,000 stored tasks on: within ±20 %"),
            (seen, swing.map(|swing| swing <= 0.2)),
        ));
    }
    rows
}
