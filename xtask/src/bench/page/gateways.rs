//! The part of the page about gateways in front of one server.
//!
//! Called by `page`. Empty where none were measured.

use serde_json::Value;

use super::{
    ABSENT, KIB_PER_MB, aims::Aim, callers_text, circumstances, count, errors_seen, megabytes, time,
    with_spread,
};
use crate::{
    bench::{
        OURS,
        figures::Figures,
        gateways::{DIRECT, ERA, WAYS, part},
    },
    workspace::{items, text},
};

/// The gateway whose processor time ours is held against.
const BESIDE: &str = "hangar";
const SHARE_MAX: f64 = 0.05;
const MEMORY_MAX_MB: f64 = 40.0;
const CALLERS: [u32; 2] = [1, 32];

/// Nothing where no gateways were measured.
pub(super) fn aims(raw: &Value) -> Vec<Aim> {
    if raw.is_null() {
        return Vec::new();
    }
    let figures = Figures { raw };
    let mut rows = Vec::new();
    for way in WAYS {
        for callers in CALLERS {
            let cpu = |server| cpu(&figures, server, way, ERA, callers);
            let seen = cpu(OURS).zip(cpu(BESIDE)).map(|(ours, theirs)| {
                let share = ours / theirs;
                let said = format!(
                    "{:.1} % ({} of {})",
                    share * 100.0,
                    time(Some(ours)),
                    time(Some(theirs))
                );
                (said, share <= SHARE_MAX)
            });
            rows.push((
                format!(
                    "processor time of a relayed call, {}, {}: ≤ {:.0} % of mcp-hangar's",
                    callers_text(callers),
                    behind(way),
                    SHARE_MAX * 100.0
                ),
                seen.map_or((ABSENT.to_owned(), None), |(said, met)| (said, Some(met))),
            ));
        }
    }
    let most = WAYS
        .iter()
        .filter_map(|way| memory(&figures, OURS, way, ERA, "rss_kib"))
        .reduce(f64::max);
    rows.push((
        format!("memory of the process that has relayed for 32 callers: ≤ {MEMORY_MAX_MB:.0} MB"),
        (megabytes(most), most.map(|kib| kib <= MEMORY_MAX_MB * KIB_PER_MB)),
    ));
    rows
}

pub(super) fn section(raw: &Value) -> String {
    if raw.is_null() {
        return String::new();
    }
    let figures = Figures { raw };
    let tables = WAYS.map(|way| format!("### {}\n\n{}", behind(way), table(&figures, way)));
    format!(
        "## What does it cost to stand in front of a server?\n\n\
         {}\n\n\
         The same small server stands behind each gateway: a plain one of 2025-11-25, without tasks, which answers at once (`rigs/bench/peers/rust/behind`). \
         Its own processor time and memory are left out. \
         A call is a `tools/call` of its tool `echo`, by a client over HTTP; each has a text of its own, and a caller that gets no reply with it counts as an error. \
         Each of the 32 callers is a client with a session of its own, where its generation has sessions. \
         {} rounds of {} s for each cell, each on a gateway that was started afresh; before, a call by another client has shown that the server behind is reached. \
         Added is what a call takes longer than the same call without a gateway. \
         Processor time is that of all the gateway's processes; memory is read after the load, of its process, and of all its processes with what they share counted once.\n\n\
         {}\n\n{}",
        circumstances(raw),
        raw["rounds"],
        text(&raw["seconds"]),
        tables.join("\n\n"),
        about(&figures),
    )
}

fn table(figures: &Figures<'_>, way: &str) -> String {
    let mut table = String::from(
        "| gateway | clients of | CPU a call, 1 caller | of mcp-hangar's | added, p50 | p99 | /s, 32 callers | CPU a call | of mcp-hangar's | added, p50 | p99 | memory | of all its processes | errors |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    );
    table.push_str(&row(
        figures,
        DIRECT,
        "none: p50 and p99 of the call itself",
        way,
        ERA,
    ));
    for server in figures.servers() {
        for era in items(&server["eras"]).map(text) {
            table.push_str(&row(
                figures,
                text(&server["name"]),
                text(&server["title"]),
                way,
                era,
            ));
        }
    }
    table
}

fn row(figures: &Figures<'_>, name: &str, title: &str, way: &str, era: &str) -> String {
    let part = part(way, era);
    let mut cells = vec![title.to_owned(), era.to_owned()];
    let mut wrong = (0, 0);
    for callers in CALLERS {
        let phase = phase(callers);
        if callers > 1 {
            cells.push(with_spread(figures.spread(name, &part, &phase, "per_second")));
        }
        let own = cpu(figures, name, way, era, callers);
        cells.push(time(own));
        cells.push(if name == DIRECT {
            ABSENT.to_owned()
        } else {
            share(own, cpu(figures, BESIDE, way, ERA, callers))
        });
        for field in ["p50_us", "p99_us"] {
            let whole = figures.median(name, &part, &phase, field);
            cells.push(if name == DIRECT {
                time(whole)
            } else {
                let direct = figures.median(DIRECT, &self::part(way, ERA), &phase, field);
                time(whole.zip(direct).map(|(whole, direct)| whole - direct))
            });
        }
        let errors = figures.errors(name, &part, &phase);
        wrong = (wrong.0 + errors.0, wrong.1 + errors.1);
    }
    for field in ["rss_kib", "tree_pss_kib"] {
        cells.push(if name == DIRECT {
            ABSENT.to_owned()
        } else {
            megabytes(memory(figures, name, way, era, field))
        });
    }
    cells.push(match wrong {
        (0, _) => "0".to_owned(),
        (errors, calls) => format!("{} of {}", count(whole(errors)), count(whole(calls))),
    });
    format!("\n| {} |", cells.join(" | "))
}

#[expect(clippy::cast_precision_loss, reason = "a number of calls in some seconds")]
fn whole(number: u64) -> Option<f64> {
    Some(number as f64)
}

fn share(own: Option<f64>, other: Option<f64>) -> String {
    own.zip(other).map_or(ABSENT.to_owned(), |(own, other)| {
        format!("{:.1} %", 100.0 * own / other)
    })
}

/// What each gateway was told, and what went wrong with it.
fn about(figures: &Figures<'_>) -> String {
    let list: Vec<String> = figures
        .servers()
        .map(|server| {
            format!(
                "- **{}**, {}. {}{}",
                text(&server["title"]),
                text(&server["version"]),
                text(&server["notes"]),
                errors_seen(figures, server),
            )
        })
        .collect();
    list.join("\n")
}

fn cpu(figures: &Figures<'_>, server: &str, way: &str, era: &str, callers: u32) -> Option<f64> {
    figures.median(server, &part(way, era), &phase(callers), "server_cpu_us_per_call")
}

fn memory(figures: &Figures<'_>, server: &str, way: &str, era: &str, field: &str) -> Option<f64> {
    figures.median(server, &part(way, era), "memory", field)
}

fn phase(callers: u32) -> String {
    format!("relay@{callers}")
}

fn behind(way: &str) -> &'static str {
    if way == "stdio" {
        "a server on standard streams"
    } else {
        "a server over HTTP"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{aims, section};

    fn seen(cpu_of_ours: f64) -> Value {
        let run = |server: &str, micros: f64| {
            json!({"server": server, "part": "stdio 2025-11-25", "report": {"measurements": [
                {"phase": "relay@1", "rounds": [{"server_cpu_us_per_call": micros}]},
                {"phase": "memory", "rounds": [{"rss_kib": 1000}]}]}})
        };
        json!({"runs": [run("longhaul", cpu_of_ours), run("hangar", 10_000.0)]})
    }

    #[test]
    fn processor_time_is_held_against_that_of_the_other_gateway() {
        let verdicts = |micros: f64| -> Vec<Option<bool>> {
            aims(&seen(micros)).into_iter().map(|(_, (_, met))| met).collect()
        };
        assert_eq!(verdicts(500.0), [Some(true), None, None, None, Some(true)]);
        assert_eq!(verdicts(501.0), [Some(false), None, None, None, Some(true)]);
    }

    #[test]
    fn where_no_gateway_was_measured_nothing_is_said() {
        assert!(aims(&Value::Null).is_empty());
        assert!(section(&Value::Null).is_empty());
    }
}
