//! The page of the figures, from the raw figures and nothing else.
//!
//! Called by `bench` and by `docs`. Equal figures give equal pages.

pub(super) mod aims;
mod gateways;

use serde_json::Value;

use super::{
    ECHO, OURS,
    figures::{Figures, Spread},
};
use crate::workspace::{items, text};

/// A megabyte here has a million bytes, the stricter of the two.
const KIB_PER_MB: f64 = 1_000_000.0 / 1024.0;
/// A load average above this is that of a machine with other things to do.
const BUSY: f64 = 1.0;
const ABSENT: &str = "–";

/// The whole page.
pub(super) fn render(raw: &Value, causes: &str) -> String {
    let figures = Figures { raw };
    let parts = [
        head(&figures),
        aims::table(raw),
        causes.trim().to_owned(),
        how(&figures),
        creates(&figures),
        gets(&figures),
        plain_calls(&figures),
        finish(&figures),
        tool_of_500_ms(&figures),
        cancel(&figures),
        memory(&figures),
        under_load(&figures),
        streams(&figures),
        ways(&figures),
        growth(&figures),
        gateways::section(&raw["gateways"]),
        servers(&figures),
        limits(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let mut page = parts.join("\n\n");
    page.push('\n');
    page
}

fn head(figures: &Figures<'_>) -> String {
    format!(
        "# Performance\n\nGenerated from `performance.json` beside it; do not edit.\n{}",
        circumstances(figures.raw)
    )
}

/// When, where and of what the figures of a run are.
fn circumstances(raw: &Value) -> String {
    let machine = &raw["machine"];
    let changed = if raw["changed"].as_bool() == Some(true) {
        ", with changes that were not committed"
    } else {
        ""
    };
    let load = text(&machine["load_before"]);
    let others: f64 = load
        .split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap_or(0.0);
    let busy = if others > BUSY {
        "\n**The machine had been busy with other programs just before: if it still was, the figures vary more, and are lower, than those of a quiet one.**"
    } else {
        ""
    };
    let memory = text(&machine["memory_kib"]).parse::<f64>().unwrap_or(0.0) / (1024.0 * 1024.0);
    format!(
        "Measured by `{}` on {} UTC, commit `{}`{changed}, {}, {}.\n\
         Machine: {}, {} processors, {memory:.0} GiB, {}, files on {}; \
         one synced write of 4 KiB takes {} (p50), {} (p99).\n\
         Everything ran at niceness {}; the load average before the run was `{load}`.{busy}",
        text(&raw["command"]),
        text(&raw["date"]),
        text(&raw["commit"]),
        text(&raw["version"]),
        text(&raw["compiler"]),
        text(&machine["processor"]),
        machine["processors"],
        text(&machine["kernel"]),
        text(&machine["file_system"]),
        time(machine["sync"]["p50_us"].as_f64()),
        time(machine["sync"]["p99_us"].as_f64()),
        text(&machine["niceness"]),
    )
}

fn how(figures: &Figures<'_>) -> String {
    let raw = figures.raw;
    format!(
        "## How it was measured\n\n\
         - One load driver, `rigs/bench/driver`, speaks to every server: raw HTTP/1.1 on kept connections. \
         It shares no code with Longhaul, and runs on the same processors as the server; its own processor time is in the raw figures.\n\
         - Every server has the same three tools: `echo`, `nap` (sleeps) and `child` (starts a process and waits for it). \
         A peer's tools are functions in its process. Longhaul's are programs, as its users write them: each attempt starts a process, under a shim, at a lower priority.\n\
         - Load: {} rounds of {} s for each cell, after a warm-up of 0.5 s. \
         Each round starts the server afresh on an empty folder, alone on the machine; the servers take turns. \
         A cell is the median of the rounds, with the least and the most in parentheses.\n\
         - Callers run in a closed loop: each begins its next call when the last has ended. \
         Where a rate is given, calls arrive at that rate, and a call's time counts from the moment it was due.\n\
         - A reply that is not what was asked for is an error; errors are counted and shown. Processor time is user and system time of the server and all its children.\n\
         - A create is a `tools/call` of `nap` with an hour to sleep, until the reply that names the task. \
         Longhaul runs 8 of them (`concurrency = 8`), and the rest wait in its queue: \
         what is measured is that a task is durable before its reply, not that its work has begun. Peers begin the work at once, or queue it as they do by default.\n\
         - Longhaul's settings are its defaults, except that one owner may have more open tasks, streams and connections, and may look at its tasks as often as it can, and for what each tool says (`rigs/bench/longhaul.toml`).",
        raw["rounds"],
        text(&raw["seconds"]),
    )
}

/// One row for each server and one group of columns for each number of callers.
fn load_table(figures: &Figures<'_>, what: &str) -> String {
    let mut table = String::from(
        "| server | tasks in | /s, 1 caller | p50 | p99 | /s, 32 callers | p50 | p99 | CPU a call | errors |\n\
         |---|---|---|---|---|---|---|---|---|---|",
    );
    for server in figures.servers() {
        let name = text(&server["name"]);
        let mut cells = vec![text(&server["title"]).to_owned(), keeps(server).to_owned()];
        let mut wrong = (0, 0);
        for callers in [1, 32] {
            let phase = format!("{what}@{callers}");
            cells.push(with_spread(figures.spread(name, "load", &phase, "per_second")));
            cells.push(time(figures.median(name, "load", &phase, "p50_us")));
            cells.push(time(figures.median(name, "load", &phase, "p99_us")));
            let errors = figures.errors(name, "load", &phase);
            wrong = (wrong.0 + errors.0, wrong.1 + errors.1);
        }
        let cpu = figures.median(name, "load", &format!("{what}@32"), "server_cpu_us_per_call");
        cells.push(time(cpu));
        cells.push(if wrong.0 == 0 {
            "0".to_owned()
        } else {
            format!("{} of {}", wrong.0, wrong.1)
        });
        table.push_str(&format!("\n| {} |", cells.join(" | ")));
    }
    table
}

fn creates(figures: &Figures<'_>) -> String {
    format!(
        "## How many tasks can be created?\n\n{}\n\n\
         The last column but one is processor time at 32 callers. \
         The echo keeps nothing: it is what HTTP, JSON and the driver cost.",
        load_table(figures, "create")
    )
}

fn gets(figures: &Figures<'_>) -> String {
    let cpu = |server| figures.median(server, "load", "get@32", "server_cpu_us_per_call");
    let ratio = cpu(OURS).zip(cpu(ECHO)).map(|(ours, echo)| ours / echo);
    format!(
        "## How often can tasks be polled?\n\n\
         `tasks/get`, spread evenly over all tasks that the round created. Those of Longhaul are read from the database each time.\n\n{}\n\n\
         A get of Longhaul takes {} the processor time of a bare echo, at 32 callers.",
        load_table(figures, "get"),
        ratio.map_or(ABSENT.to_owned(), |ratio| format!("{ratio:.1} times")),
    )
}

fn plain_calls(figures: &Figures<'_>) -> String {
    format!(
        "## And a plain call of a quick tool?\n\n\
         `tools/call` of `echo`, without a task. Here Longhaul is the slow one by design: \
         it writes the call down, starts a program, and ends its process tree. It is made for calls that are slow in themselves.\n\n{}",
        load_table(figures, "echo")
    )
}

fn finish(figures: &Figures<'_>) -> String {
    let mut table = String::from(
        "## How long from a call to its seen end?\n\n\
         A `nap` of 0 ms as a task, from the call until `tasks/get` says `completed`: \
         once by a client that polls every 2 ms, once by clients that wait as the server hints.\n\n\
         | server | p50, polls every 2 ms | p99 | CPU a task | p50, at the server's hint |\n|---|---|---|---|---|",
    );
    for server in figures.servers() {
        let name = text(&server["name"]);
        table.push_str(&format!(
            "\n| {} | {} | {} | {} | {} |",
            text(&server["title"]),
            time(figures.median(name, "load", "finish@1", "p50_us")),
            time(figures.median(name, "load", "finish@1", "p99_us")),
            time(figures.median(name, "load", "finish@1", "server_cpu_us_per_call")),
            time(figures.median(name, "work", "finish-hint@4", "p50_us")),
        ));
    }
    table
        .push_str("\n\nThe processor time includes that of the polls, and for Longhaul that of the program.");
    table
}

fn tool_of_500_ms(figures: &Figures<'_>) -> String {
    let mut table = String::from(
        "## How long does a tool of 500 ms feel?\n\n\
         Four clients of 2026-07-28 that follow the server's hint, two calls each.\n\n\
         | server | p50 | slowest |\n|---|---|---|",
    );
    let row = |title: &str, name: &str, phase: &str| {
        format!(
            "\n| {title} | {} | {} |",
            time(figures.median(name, "work", phase, "p50_us")),
            time(figures.median(name, "work", phase, "max_us")),
        )
    };
    table.push_str(&row(
        "Longhaul, default (answered in the call, if it ends within 2 s)",
        OURS,
        "nap-held=500@4",
    ));
    table.push_str(&row(
        "Longhaul, a task at once (`promote_after = \"0s\"`)",
        OURS,
        "nap=500@4",
    ));
    for peer in figures.peers() {
        table.push_str(&row(text(&peer["title"]), text(&peer["name"]), "nap=500@4"));
    }
    table
}

fn cancel(figures: &Figures<'_>) -> String {
    let mut table = String::from(
        "## Does a cancel end the work?\n\n\
         From `tasks/cancel` until the child process that the tool started runs no more, looked for every millisecond. \
         After 10 s it counts as never, and the driver ends it.\n\n\
         | server | samples | p50 | slowest | never |\n|---|---|---|---|---|",
    );
    for server in figures.servers().filter(|server| text(&server["name"]) != ECHO) {
        let name = text(&server["name"]);
        let rounds: Vec<&Value> = figures
            .runs(name, "work")
            .flat_map(|run| items(&run["report"]["measurements"]))
            .filter(|measured| text(&measured["name"]) == "cancel")
            .flat_map(|measured| items(&measured["rounds"]))
            .collect();
        let gone: Vec<f64> = rounds
            .iter()
            .flat_map(|round| items(&round["gone_ms"]))
            .filter_map(Value::as_f64)
            .collect();
        let never: u64 = rounds.iter().filter_map(|round| round["never"].as_u64()).sum();
        let samples = gone.len() as u64 + never;
        let spread = Spread::of(gone);
        table.push_str(&format!(
            "\n| {} | {samples} | {} | {} | {never} |",
            text(&server["title"]),
            time(spread.map(|spread| spread.median * 1000.0)),
            time(spread.map(|spread| spread.most * 1000.0)),
        ));
    }
    table
}

fn memory(figures: &Figures<'_>) -> String {
    let open = count(figures.raw["open"].as_f64());
    let mut table = format!(
        "## How much memory, and how much disk?\n\n\
         | server | idle | with {open} open tasks | all its processes then | open tasks reached | bytes on disk a task |\n|---|---|---|---|---|---|"
    );
    for server in figures.servers().filter(|server| text(&server["name"]) != ECHO) {
        let name = text(&server["name"]);
        let full = figures.rounds(name, "open", "memory");
        let kib = |field: &str| full.first().and_then(|memory| memory[field].as_f64());
        let run = figures.runs(name, "open").next();
        let begun = run.and_then(|run| {
            items(&run["report"]["measurements"])
                .find(|measured| text(&measured["name"]) == "open")
                .and_then(|measured| measured["rounds"][0]["tasks"].as_f64())
        });
        let disk = run.zip(run.and_then(|run| run["report"]["tasks"].as_f64()));
        let disk = disk.and_then(|(run, tasks)| {
            let grown = run["bytes"].as_f64()? - run["bytes_empty"].as_f64()?;
            (text(&server["keeps"]) != "memory").then(|| grown / tasks)
        });
        table.push_str(&format!(
            "\n| {} | {} | {} | {} | {} | {} |",
            text(&server["title"]),
            megabytes(idle(figures, name)),
            megabytes(kib("rss_kib")),
            megabytes(kib("tree_pss_kib")),
            count(begun),
            count(disk),
        ));
    }
    table.push_str(
        "\n\nResident memory of the server's process; the fourth column adds its children, with what they share counted once. \
         The bytes are what the server's folder grew by until after the server ended. A server that did not reach the number within half a minute shows how far it came.",
    );
    table
}

/// Longhaul with many open tasks and many pollers.
fn under_load(figures: &Figures<'_>) -> String {
    let mixed = figures.rounds(OURS, "open", "mixed=50@200/400");
    let row = |what: &str, name: &str| {
        let seen = mixed.first().map(|mixed| &mixed[what]);
        let field = |field: &str| seen.and_then(|seen| seen[field].as_f64());
        format!(
            "| {name} | {} | {} | {} | {} | {} |",
            count(field("per_second")),
            time(field("p50_us")),
            time(field("p99_us")),
            time(field("max_us")),
            count(field("errors")),
        )
    };
    format!(
        "## Does it stay quick with many open tasks?\n\n\
         Longhaul with {} open tasks, 200 callers that poll, and beside them creates, both at a fixed rate.\n\n\
         | | /s | p50 | p99 | slowest | errors |\n|---|---|---|---|---|---|\n{}\n{}",
        count(figures.raw["open"].as_f64()),
        row("get", "tasks/get"),
        row("create", "create"),
    )
}

/// Longhaul with many streams.
fn streams(figures: &Figures<'_>) -> String {
    let mut table = String::from(
        "## How soon is a stream told?\n\n\
         Longhaul, with so many `subscriptions/listen` streams, each on a task of its own; 100 tasks a second are cancelled. \
         From the cancel's sending until the stream has said so.\n\n\
         | streams | p50 | p99 | slowest | final states missed | memory a stream |\n|---|---|---|---|---|---|",
    );
    let seen = figures
        .runs(OURS, "listen")
        .flat_map(|run| items(&run["report"]["measurements"]))
        .filter(|measured| text(&measured["name"]) == "listen")
        .flat_map(|measured| items(&measured["rounds"]));
    for seen in seen {
        let field = |field: &str| seen[field].as_f64();
        table.push_str(&format!(
            "\n| {} | {} | {} | {} | {} | {} KiB |",
            count(field("streams")),
            time(field("p50_us")),
            time(field("p99_us")),
            time(field("max_us")),
            count(field("missed")),
            count(field("kib_per_stream")),
        ));
    }
    table
}

fn ways(figures: &Figures<'_>) -> String {
    let mut table = String::from(
        "## Do the other ways in cost more?\n\n\
         Longhaul alone. With standard streams, all callers share one pipe.\n\n\
         | way | creates /s, 1 caller | 32 callers | gets /s, 1 caller | 32 callers |\n|---|---|---|---|---|",
    );
    for (part, title) in [
        ("load", "2026-07-28, HTTP"),
        ("sessions", "2025-11-25, HTTP"),
        ("stdio", "2026-07-28, `serve --stdio`"),
    ] {
        let cell = |phase: &str| with_spread(figures.spread(OURS, part, phase, "per_second"));
        table.push_str(&format!(
            "\n| {title} | {} | {} | {} | {} |",
            cell("create@1"),
            cell("create@32"),
            cell("get@1"),
            cell("get@32"),
        ));
    }
    table
}

/// One point of the growth: how many tasks are stored, and what was measured there on each server.
struct Point<'a> {
    stored: u64,
    seen: Vec<&'a Value>,
}

impl Point<'_> {
    fn median(&self, what: &str, field: &str) -> Option<f64> {
        let values = self.seen.iter().filter_map(|seen| seen[what][field].as_f64());
        Some(Spread::of(values.collect())?.median)
    }
}

fn points<'a>(figures: &Figures<'a>) -> Vec<Point<'a>> {
    let mut points: Vec<Point<'a>> = Vec::new();
    let parts = ["growth-small", "growth"];
    let all = parts
        .iter()
        .flat_map(|part| figures.runs(OURS, part))
        .flat_map(|run| items(&run["report"]["measurements"]))
        .flat_map(|measured| items(&measured["rounds"]))
        .flat_map(|round| items(&round["points"]));
    for seen in all {
        let Some(stored) = seen["stored"].as_u64() else {
            continue;
        };
        match points.iter_mut().find(|point| point.stored == stored) {
            Some(point) => point.seen.push(seen),
            None => points.push(Point {
                stored,
                seen: vec![seen],
            }),
        }
    }
    points
}

/// How far the figures of all points lie from their middle. The first point has too few creates to be a measure.
fn swing(figures: &Figures<'_>, what: &str) -> Option<f64> {
    let rates: Vec<f64> = points(figures)
        .iter()
        .filter(|point| point.stored >= 1000)
        .filter_map(|point| point.median(what, "per_second"))
        .collect();
    let spread = Spread::of(rates)?;
    Some((spread.most - spread.least) / (spread.most + spread.least))
}

fn growth(figures: &Figures<'_>) -> String {
    let mut table = String::from(
        "## Does it slow down as it fills?\n\n\
         Longhaul alone, 32 callers. At each point, gets spread over all stored tasks for a window, then creates: as many as are stored, 100 at least and 20,000 at most. \
         The points up to 1,000 are medians over several servers, since they are over in milliseconds. \
         All tasks are open.\n\n\
         | stored tasks | creates /s | p50 | p99 | CPU | gets /s | p50 | p99 | CPU | memory |\n|---|---|---|---|---|---|---|---|---|---|",
    );
    for point in points(figures) {
        #[expect(clippy::cast_precision_loss, reason = "at most a million")]
        let stored = point.stored as f64;
        table.push_str(&format!(
            "\n| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            count(Some(stored)),
            count(point.median("create", "per_second")),
            time(point.median("create", "p50_us")),
            time(point.median("create", "p99_us")),
            time(point.median("create", "server_cpu_us_per_call")),
            count(point.median("get", "per_second")),
            time(point.median("get", "p50_us")),
            time(point.median("get", "p99_us")),
            time(point.median("get", "server_cpu_us_per_call")),
            megabytes(point.median("memory", "rss_kib")),
        ));
    }
    table
}

fn servers(figures: &Figures<'_>) -> String {
    let mut list = String::from("## The servers\n");
    for server in figures.servers() {
        list.push_str(&format!(
            "\n- **{}**, {}, {}, keeps tasks in: {}. {}{}",
            text(&server["title"]),
            text(&server["version"]),
            text(&server["era"]),
            keeps(server),
            text(&server["notes"]),
            errors_seen(figures, server),
        ));
    }
    list
}

/// What went wrong with a server, after what is said of it; nothing where nothing did.
fn errors_seen(figures: &Figures<'_>, server: &Value) -> String {
    let why = figures.why(text(&server["name"]));
    let why: Vec<String> = why
        .iter()
        .map(|why| format!("`{}`", why.replace('`', "'")))
        .collect();
    match why.is_empty() {
        true => String::new(),
        false => format!(" Errors seen: {}.", why.join(", ")),
    }
}

fn limits() -> String {
    "## What these figures do not say\n\n\
     - They are of one small machine, where driver and server share the processors. Ratios carry over better than figures, and neither carries over to a network.\n\
     - The disk of a virtual machine may acknowledge a sync before it is safe. What a sync costs decides creates with one caller; on slower disks every durable server is slower.\n\
     - The peers are libraries with their default settings, with the tools of this rig. Somebody who tunes one gets other figures.\n\
     - Peers that keep tasks in memory lose them with the process. The table shows what durability costs beside them, not that they are worse at what they do.\n\
     - A create says nothing about when the work begins; the table of seen ends does.\n\
     - Three rounds show whether a figure is steady, not how it is distributed over days."
        .to_owned()
}

/// Where a server keeps its tasks, in words.
fn keeps(server: &Value) -> &str {
    match (text(&server["name"]), text(&server["keeps"])) {
        (ECHO, _) => "nothing",
        (_, "sqlite") => "SQLite, synced",
        (_, "redis") => "Redis, synced",
        (_, "file") => "files, not synced",
        (_, other) => other,
    }
}

fn callers_text(callers: u32) -> String {
    if callers == 1 {
        "1 caller".to_owned()
    } else {
        format!("{callers} callers")
    }
}

/// The idle process's memory in KiB.
fn idle(figures: &Figures<'_>, server: &str) -> Option<f64> {
    let first = |run: &Value| {
        items(&run["report"]["measurements"])
            .find(|measured| text(&measured["name"]) == "memory")
            .and_then(|measured| measured["rounds"][0]["rss_kib"].as_f64())
    };
    let idle = Spread::of(figures.runs(server, "load").filter_map(first).collect())?;
    Some(idle.median)
}

fn with_spread(spread: Option<Spread>) -> String {
    spread.map_or(ABSENT.to_owned(), |spread| {
        format!(
            "{} ({}–{})",
            count(Some(spread.median)),
            count(Some(spread.least)),
            count(Some(spread.most))
        )
    })
}

/// A count with thousands apart; small ones to a tenth.
fn count(value: Option<f64>) -> String {
    let Some(value) = value else {
        return ABSENT.to_owned();
    };
    if value < 100.0 {
        let text = format!("{value:.1}");
        return text.strip_suffix(".0").map_or(text.clone(), str::to_owned);
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds, in a unit that suits them.
fn time(micros: Option<f64>) -> String {
    match micros {
        None => ABSENT.to_owned(),
        Some(micros) if micros < 1000.0 => format!("{micros:.0} µs"),
        Some(micros) if micros < 100_000.0 => format!("{:.1} ms", micros / 1000.0),
        Some(micros) if micros < 10_000_000.0 => format!("{:.0} ms", micros / 1000.0),
        Some(micros) => format!("{:.1} s", micros / 1_000_000.0),
    }
}

fn megabytes(kib: Option<f64>) -> String {
    kib.map_or(ABSENT.to_owned(), |kib| format!("{:.1} MB", kib / KIB_PER_MB))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{aims, count, megabytes, render, time};

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(count(Some(1_234_567.0)), "1,234,567");
        assert_eq!(count(Some(7.0)), "7");
        assert_eq!(count(None), "–");
        assert_eq!(time(Some(1500.0)), "1.5 ms");
        assert_eq!(time(Some(600_000.0)), "600 ms");
        assert_eq!(megabytes(Some(1000.0)), "1.0 MB");
    }

    #[test]
    fn an_aim_is_met_missed_or_not_measured() {
        let run = |server: &str, rate: f64| {
            json!({"server": server, "part": "load", "report": {"measurements": [
                {"phase": "get@1", "rounds": [{"per_second": rate}]}]}})
        };
        let page = aims::table(&json!({"runs": [run("longhaul", 40.0), run("echo", 100.0)]}));
        assert!(page.contains("| gets, 1 caller: ≥ 50 % of a bare echo | 40 % | **missed** |"));
        assert!(page.contains("| gets, 32 callers: ≥ 50 % of a bare echo | – | not measured |"));
        let page = aims::table(&json!({"runs": [run("longhaul", 60.0), run("echo", 100.0)]}));
        assert!(page.contains("| 60 % | met |"));
    }

    #[test]
    fn a_page_without_figures_says_nothing_that_was_not_seen() {
        assert!(!render(&json!({}), "").contains("| met |"));
    }
}
