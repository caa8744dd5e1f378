//! `cargo xtask conformance --through [SCENARIO..]`: the official suite at servers of others, directly and through Longhaul.
//!
//! The server of the Python SDK on which its own makers run the suite stands behind, and for the tasks extension a
//! plain server that knows nothing of tasks. What passes directly must pass through Longhaul, too: what does not yet
//! stands in `behind/baseline.json` with its reason, and a line of it that passes fails the run.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    Outcome, packages,
    program::Program,
    server::{Server, binary, empty_folder},
    workspace::root,
};

use super::{
    RIG, Reasons, Verdicts, judged, listed, official,
    suite::{EXTENSION, Revision, Suite},
    tell, unexpected, wanted,
};

/// Where the server is that the SDK's makers run the suite on, in the SDK's source package.
const EVERYTHING: &str = "examples/servers/everything-server";
/// The SDK's client for the suite, in the same package.
const CLIENT: &str = ".github/actions/conformance/client.py";
/// The scenarios that judge a client. Those of authorization do not apply: credentials are static.
const CLIENT_SCENARIOS: [(Revision, &[&str]); 2] = [
    (
        Revision::V2025_11_25,
        &[
            "initialize",
            "tools_call",
            "elicitation-sep1034-client-defaults",
            "sse-retry",
            "json-schema-2020-12-preservation",
        ],
    ),
    (
        Revision::V2026_07_28,
        &[
            "tools_call",
            "sep-2322-client-request-state",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
            "json-schema-2020-12-preservation",
        ],
    ),
];
/// Skipped by the suite itself.
const SKIPPED: &str = "tasks-status-notifications";

pub(super) fn run(arguments: &[String]) -> Outcome {
    let suite = Suite::install()?;
    let binary = binary()?;
    let results = empty_folder("conformance/through")?;
    let python = packages::python(&format!("{RIG}/behind/requirements.txt"), "conformance/behind")?;
    let source = packages::python_source("mcp", "2.3.0", "conformance/behind-source")?;
    let everything = everything(&python, &source.join(EVERYTHING), &results)?;
    let plain = Server::script(
        &python,
        &format!("{RIG}/behind/plain.py"),
        results.join("plain.log"),
    )?;
    let mut table = BTreeMap::new();
    let mut through = Verdicts::new();
    for revision in Revision::ALL {
        let all = wanted(suite.scenarios(revision)?, revision.name(), arguments);
        let (tasks, others): (Vec<String>, Vec<String>) =
            all.into_iter().partition(|name| name.starts_with(EXTENSION));
        let judge = |place: &str, url: &str, names: &[String]| {
            println!("-- {place}, {}", revision.name());
            official(
                &suite,
                revision,
                names,
                url,
                &results.join(place),
                &Reasons::new(),
            )
        };
        let direct = judge("direct", &everything.url(), &others)?;
        let gateway = gateway(&binary, &results, revision, &everything, "")?;
        let behind = judge("through", &gateway.url(), &others)?;
        drop(gateway);
        for (name, direct) in &direct {
            let passes = direct.wrong.is_empty();
            table.insert(name.clone(), if passes { "passes" } else { "fails" });
        }
        let passes = |name: &String| direct.get(name).is_some_and(|direct| direct.wrong.is_empty());
        through.extend(behind.into_iter().filter(|(name, _)| passes(name)));
        if revision == Revision::V2026_07_28 {
            let own = fs::read_to_string(root().join(RIG).join("behind/plain.toml"))
                .map_err(|error| format!("cannot read `plain.toml`: {error}"))?;
            let gateway = self::gateway(&binary, &results, revision, &plain, &own)?;
            let tasks: Vec<String> = tasks.into_iter().filter(|name| name != SKIPPED).collect();
            through.extend(judge("plain", &gateway.url(), &tasks)?);
        }
    }
    through.extend(client_half(
        &suite, &binary, &python, &source, &results, arguments,
    )?);
    report(&table, &through);
    let baseline: Reasons = listed("behind/baseline.json")?;
    let wrong = unexpected(&through, &baseline, !arguments.is_empty());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("conformance through Longhaul:\n  {}", wrong.join("\n  "))),
    }
}

/// Longhaul as the client of the suite's servers; what it asks of them is asked of it by the SDK's client.
fn client_half(
    suite: &Suite,
    binary: &Path,
    python: &Path,
    source: &Path,
    results: &Path,
    arguments: &[String],
) -> Result<Verdicts, String> {
    let script = root().join(RIG).join("behind/client.py");
    let command = format!("{} {}", python.display(), script.display());
    let client = source.join(CLIENT);
    let env = [("LONGHAUL_BINARY", binary), ("CLIENT", client.as_path())];
    let mut verdicts = Verdicts::new();
    for (revision, names) in CLIENT_SCENARIOS {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let place = format!("client-{}", revision.name());
        for scenario in wanted(names, &place, arguments) {
            let start = Instant::now();
            let checks = suite.client(revision, &scenario, &command, &env, &results.join("client"))?;
            let verdict = judged(checks.as_deref(), &Reasons::new())?;
            let name = format!("{place}/{scenario}");
            tell(&name, &verdict, start);
            verdicts.insert(name, verdict);
        }
    }
    Ok(verdicts)
}

fn everything(python: &Path, folder: &Path, results: &Path) -> Result<Server, String> {
    let (python, folder) = (python.to_path_buf(), folder.to_path_buf());
    let program = move |port: u16| {
        Program::new(&python)
            .args(["-m", "mcp_everything_server.server", "--port"])
            .args([port.to_string()])
            .env("PYTHONPATH", &folder)
    };
    Server::of(Box::new(program), results.join("everything.log"))
}

/// Longhaul in front of a server, which it speaks to in the generation of the suite.
fn gateway(
    binary: &Path,
    results: &Path,
    revision: Revision,
    behind: &Server,
    more: &str,
) -> Result<Server, String> {
    let year = revision.name().split('-').next().unwrap_or_default();
    let folder: PathBuf = results.join(format!("gateway-{year}-{}", behind.pid()));
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make `{}`: {error}", folder.display()))?;
    let toml = format!(
        "[server]\nstrict_headers = true\npage = false\n\n[servers.behind]\nurl = \"{}\"\nprotocol = \"{year}\"\n\
         required = true\n{more}",
        behind.url()
    );
    fs::write(folder.join("longhaul.toml"), toml)
        .map_err(|error| format!("cannot write a configuration: {error}"))?;
    let rig = folder
        .to_str()
        .ok_or("the target directory has no name in UTF-8")?;
    Server::start(binary, rig, &folder)
}

fn report(direct: &BTreeMap<String, &str>, through: &Verdicts) {
    println!("\n{:<64} {:>8} {:>8}", "scenario", "directly", "through");
    let mut names: Vec<&String> = direct.keys().chain(through.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let directly = direct.get(name).copied().unwrap_or("-");
        let verdict = through.get(name);
        let word = verdict.map_or("-", |verdict| match verdict.wrong.is_empty() {
            true => "passes",
            false => "fails",
        });
        println!("{name:<64} {directly:>8} {word:>8}");
        for line in verdict.into_iter().flat_map(|verdict| &verdict.wrong) {
            println!("    {line}");
        }
    }
}
