//! `cargo xtask conformance --through [SCENARIO..]`: the official suite at two servers, directly and through Longhaul.
//!
//! What passes directly must pass through Longhaul, too: what does not yet stands in `behind/baseline.json` with its
//! reason, and a line of it that passes fails the run. One server is also spoken to in the other generation. For the
//! tasks extension a plain server stands behind; the half of the suite that judges clients judges Longhaul as the
//! client of the suite's servers.

use std::{collections::BTreeSet, path::Path, time::Instant};

use crate::{
    Outcome,
    server::{binary, empty_folder},
    workspace::{make_folder, read},
};

use super::{
    RIG, Reasons, Verdicts, behind, client_half, judged, listed, mcpcheck, not_applicable, note, official,
    scores::{self, Half},
    suite::{EXTENSION, Revision, Suite},
    unexpected, wanted,
};

const RMCP: &str = "rmcp";
/// The server on rmcp behind a Longhaul that speaks the other generation to it.
const ACROSS: &str = "across";

pub(super) fn run(write: bool, arguments: &[String]) -> Outcome {
    let suite = Suite::install()?;
    let binary = binary()?;
    let results = empty_folder("conformance/through")?;
    let python = behind::interpreter()?;
    let source = behind::source()?;
    let everything = behind::python(&python, &source, &results)?;
    let rmcp = behind::rmcp(&results)?;
    let (mut direct, mut through) = (Verdicts::new(), Verdicts::new());
    for revision in Revision::ALL {
        for (name, server) in [("python", &everything), (RMCP, &rmcp)] {
            let judge = |way: &str, url: &str| judge(&suite, revision, name, way, url, &results, arguments);
            direct.extend(judge("direct", &server.url())?);
            let gateway = behind::gateway(&binary, &results, revision, server, "")?;
            through.extend(judge("through", &gateway.url())?);
        }
        let gateway = behind::gateway(&binary, &results, revision.other(), &rmcp, "")?;
        let url = gateway.url();
        through.extend(judge(
            &suite, revision, ACROSS, "through", &url, &results, arguments,
        )?);
    }
    let passes = |name: &str| direct.get(name).is_some_and(|verdict| verdict.wrong.is_empty());
    through.retain(|name, _| passes(&name.replacen(ACROSS, RMCP, 1)));
    through.extend(tasks(&suite, &binary, &python, &results, arguments)?);
    through.extend(client_half::run(
        &suite, &binary, &python, &source, &results, arguments,
    )?);
    report(&direct, &through);
    let partial = !arguments.is_empty();
    let mut wrong = unexpected(&through, &listed("behind/baseline.json")?, partial);
    if !partial {
        let directly = |(name, verdict)| (format!("direct-{name}"), verdict);
        through.extend(direct.into_iter().map(directly));
        wrong.extend(scores::settle(Half::Through, &through, write)?);
        wrong.extend(client_half::stale(&suite, &through)?);
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("conformance through Longhaul:\n  {}", wrong.join("\n  "))),
    }
}

/// What applies at a revision, and the checks of `mcpcheck` at 2026-07-28, at a server or at Longhaul in front of it.
fn judge(
    suite: &Suite,
    revision: Revision,
    server: &str,
    way: &str,
    url: &str,
    results: &Path,
    arguments: &[String],
) -> Result<Verdicts, String> {
    let place = format!("{server}-{}", revision.name());
    let folder = results.join(format!("{way}-{server}"));
    make_folder(&folder)?;
    println!("-- {way}, {place}");
    let mut names = suite.scenarios(revision)?;
    names.retain(|name| !name.starts_with(EXTENSION));
    let start = Instant::now();
    let mut verdicts = Verdicts::new();
    if arguments.is_empty() {
        let checks = suite.required(revision, url, &folder)?;
        for scenario in names {
            let verdict = judged(checks.get(&scenario).map(String::as_str), &Reasons::new())?;
            note(&mut verdicts, &place, &scenario, verdict, start);
        }
    } else {
        let wanted = wanted(names, &place, arguments);
        verdicts = official(suite, &place, revision, &wanted, url, &folder, &Reasons::new())?;
    }
    if revision == Revision::V2026_07_28 {
        let place = format!("{server}-mcpcheck");
        verdicts.extend(mcpcheck::run(&place, url, &folder, arguments)?);
    }
    Ok(verdicts)
}

/// The tasks extension, with a server behind that knows nothing of it.
fn tasks(
    suite: &Suite,
    binary: &Path,
    python: &Path,
    results: &Path,
    arguments: &[String],
) -> Result<Verdicts, String> {
    let revision = Revision::V2026_07_28;
    let mut names = suite.scenarios(revision)?;
    let apart = not_applicable()?;
    let applies = |name: &String| {
        let mut apart = apart.iter().filter(|(of, _)| *of == revision);
        !apart.any(|(_, apart)| apart.scenarios.contains_key(name))
    };
    names.retain(|name| name.starts_with(EXTENSION) && applies(name));
    let wanted = wanted(names, "plain", arguments);
    if wanted.is_empty() {
        return Ok(Verdicts::new());
    }
    println!("-- through, plain");
    let settings = read(&format!("{RIG}/behind/plain.toml"))?;
    let server = behind::plain(python, results)?;
    let gateway = behind::gateway(binary, results, revision, &server, &settings)?;
    let (url, folder) = (gateway.url(), results.join("plain"));
    official(suite, "plain", revision, &wanted, &url, &folder, &Reasons::new())
}

fn report(direct: &Verdicts, through: &Verdicts) {
    println!("\n{:<64} {:>8} {:>8}", "scenario", "directly", "through");
    let names: BTreeSet<&String> = direct.keys().chain(through.keys()).collect();
    for name in names {
        let word = |verdicts: &Verdicts| {
            let verdict = verdicts.get(name);
            verdict.map_or("-", |verdict| match verdict.wrong.is_empty() {
                true => "passes",
                false => "fails",
            })
        };
        println!("{name:<64} {:>8} {:>8}", word(direct), word(through));
        let verdict = through.get(name).or_else(|| direct.get(name));
        for line in verdict.into_iter().flat_map(|verdict| &verdict.wrong) {
            println!("    {line}");
        }
    }
}
