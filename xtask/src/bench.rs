//! `cargo xtask bench [--gateways] [--quick] [--only NAME..] [--render]`: Longhaul beside its peers, in one run, on one machine.
//!
//! Builds Longhaul in release (`LONGHAUL_BINARY` names another binary), the load driver of `rigs/bench/driver` and the
//! peers of `rigs/bench/peers`. Every round starts a server afresh on an empty folder and measures it alone; the rounds
//! of all servers take turns, so that a machine that slows down slows everybody. A whole run writes
//! `docs/reference/performance.json`, and the page beside it is rendered from that file and nothing else; a run that is
//! quick or leaves servers out writes both under the target directory. `--gateways` measures what `gateways` does, and
//! keeps the rest of the figures. `--render` only renders.

mod figures;
mod gateways;
mod page;

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    Outcome,
    program::Program,
    server::{Server, empty_folder},
    workspace::{items, json, read, root, target, text, write},
};

const RIG: &str = "rigs/bench";
const FIGURES: &str = "docs/reference/performance.json";
/// The page, from the workspace's root.
pub(crate) const PAGE: &str = "docs/reference/performance.md";
/// How Longhaul is named among the servers.
const OURS: &str = "longhaul";
/// A peer that does no work: what HTTP and the driver cost by themselves.
const ECHO: &str = "echo";
/// What a file's size on the disk is counted in, everywhere on Unix.
const BLOCK: u64 = 512;
/// What a server is given to come to rest before its memory is read.
const REST: Duration = Duration::from_secs(2);

/// How much is measured.
struct Plan {
    rounds: usize,
    seconds: &'static str,
    cancels: usize,
    open: usize,
    /// Streams of `subscriptions/listen`.
    streams: usize,
    grow: usize,
    /// How often the smallest points of the growth are taken, each on a server of its own.
    grow_small: usize,
}

const WHOLE: Plan = Plan {
    rounds: 3,
    seconds: "3",
    cancels: 10,
    open: 10_000,
    streams: 1_000,
    grow: 1_000_000,
    grow_small: 3,
};
const QUICK: Plan = Plan {
    rounds: 2,
    seconds: "1",
    cancels: 3,
    open: 2_000,
    streams: 200,
    grow: 10_000,
    grow_small: 2,
};

/// What a command line asks for.
struct Asked {
    quick: bool,
    render: bool,
    gateways: bool,
    only: Vec<String>,
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let asked = Asked::new(arguments)?;
    if asked.render {
        return write(&root().join(PAGE), &rendered()?);
    }
    let begun = Instant::now();
    let plan = if asked.quick { QUICK } else { WHOLE };
    if asked.gateways {
        return gateways::run(&asked, plan);
    }
    let bench = Bench::new(&asked, plan)?;
    println!("installed in {} s", begun.elapsed().as_secs());
    let mut figures = bench.facts()?;
    let begun = Instant::now();
    figures["runs"] = Value::from(bench.all()?);
    figures["minutes"] = json!(begun.elapsed().as_secs() / 60);
    figures["gateways"] = committed()?["gateways"].take();
    keep(&asked, &figures)
}

/// Writes the figures and their page: of a whole run where they belong, of any other below the target folder.
fn keep(asked: &Asked, figures: &Value) -> Outcome {
    let folder = if asked.quick || !asked.only.is_empty() {
        target()?.join("bench")
    } else {
        root().join("docs/reference")
    };
    let raw = format!("{figures:#}\n");
    write(&folder.join("performance.json"), &raw)?;
    let page = page::render(figures, &causes()?);
    write(&folder.join("performance.md"), &page)?;
    println!("\n{}\n", page::aims::table(figures));
    println!("the page is `{}`", folder.join("performance.md").display());
    Ok(())
}

/// Why aims are missed: written by a person, with the profile that shows it. Empty while all are met.
fn causes() -> Result<String, String> {
    read(&format!("{RIG}/causes.md"))
}

/// The page as the committed figures give it.
///
/// # Errors
/// When there are none, or they are no JSON.
pub(crate) fn rendered() -> Result<String, String> {
    Ok(page::render(&committed()?, &causes()?))
}

fn committed() -> Result<Value, String> {
    json(FIGURES)
}

impl Asked {
    fn new(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked {
            quick: false,
            render: false,
            gateways: false,
            only: Vec::new(),
        };
        let mut naming = false;
        for argument in arguments {
            match argument.as_str() {
                "--quick" => asked.quick = true,
                "--render" => asked.render = true,
                "--gateways" => asked.gateways = true,
                "--only" => naming = true,
                name if naming && !name.starts_with('-') => asked.only.push(name.to_owned()),
                other => return Err(format!("`bench` does not know `{other}`")),
            }
        }
        Ok(asked)
    }

    /// What the page says that it was measured by.
    fn command(&self) -> &'static str {
        match (self.gateways, self.quick) {
            (false, false) => "cargo xtask bench",
            (false, true) => "cargo xtask bench --quick",
            (true, false) => "cargo xtask bench --gateways",
            (true, true) => "cargo xtask bench --gateways --quick",
        }
    }
}

/// A server that is measured.
struct Subject {
    name: String,
    era: String,
    path: String,
    facts: Value,
}

/// What all measurements share.
struct Bench {
    plan: Plan,
    command: &'static str,
    quick: bool,
    binary: PathBuf,
    driver: PathBuf,
    peers: PathBuf,
    results: PathBuf,
    subjects: Vec<Subject>,
}

impl Bench {
    fn new(asked: &Asked, plan: Plan) -> Result<Bench, String> {
        let subjects = if asked.gateways {
            Vec::new()
        } else {
            subjects(&asked.only)?
        };
        let peers = target()?.join("bench/peers");
        if subjects.iter().any(|subject| subject.name != OURS) {
            Program::new(root().join(RIG).join("peers/install"))
                .args([&peers])
                .run()?;
        }
        Ok(Bench {
            plan,
            command: asked.command(),
            quick: asked.quick,
            binary: binary()?,
            driver: driver()?,
            peers,
            results: empty_folder("bench/results")?,
            subjects,
        })
    }

    /// When, where and of what.
    fn facts(&self) -> Result<Value, String> {
        let said = |program: &str, arguments: &[&str]| {
            let said = Program::new(program).args(arguments).folder(&root()).output();
            said.map(|text| text.trim().to_owned())
        };
        let sync = self.drive(
            &["--url", "http://127.0.0.1:1/", "--data"],
            &self.results,
            &["sync"],
        )?;
        Ok(json!({
            "date": said("date", &["-u", "+%Y-%m-%d %H:%M"])?,
            "commit": said("git", &["rev-parse", "--short=12", "HEAD"])?,
            "changed": !said("git", &["status", "--porcelain"])?.is_empty(),
            "version": said(&self.binary.to_string_lossy(), &["--version"])?,
            "compiler": said("rustc", &["--version"])?,
            "command": self.command,
            "quick": self.quick,
            "rounds": self.plan.rounds,
            "seconds": self.plan.seconds,
            "open": self.plan.open,
            "machine": {
                "processor": fact("/proc/cpuinfo", "model name"),
                "processors": std::thread::available_parallelism().map_or(0, usize::from),
                "memory_kib": fact("/proc/meminfo", "MemTotal"),
                "kernel": released(&said("uname", &["-sr"])?),
                "file_system": said("stat", &["-f", "-c", "%T", &self.results.to_string_lossy()])?,
                "niceness": said("nice", &[])?,
                "load_before": fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
                "sync": sync["measurements"][0]["rounds"][0],
            },
            "servers": self.subjects.iter().map(|subject| &subject.facts).collect::<Vec<_>>(),
        }))
    }

    fn all(&self) -> Result<Vec<Value>, String> {
        let mut runs = Vec::new();
        for round in 1..=self.plan.rounds {
            for subject in &self.subjects {
                let phases = [
                    "memory",
                    "echo@1",
                    "echo@32",
                    "finish@1",
                    "create@1",
                    "create@32",
                    "get@1",
                    "get@32",
                    "memory",
                ];
                runs.push(self.fresh(subject, "load", round, &phases)?);
            }
        }
        let cancels = format!("cancel={}", self.plan.cancels);
        let open = format!("open={}@32", self.plan.open);
        for subject in &self.subjects {
            if subject.name == ECHO {
                continue;
            }
            let naps: &[&str] = if subject.name == OURS {
                &["nap=500@4", "nap-held=500@4", "finish-hint@4", &cancels]
            } else {
                &["nap=500@4", "finish-hint@4", &cancels]
            };
            runs.push(self.fresh(subject, "work", 1, naps)?);
            let lasting: &[&str] = if subject.name == OURS {
                &[&open, "memory", "mixed=50@200/400", "memory"]
            } else {
                &[&open, "memory"]
            };
            runs.push(self.sized(subject, "open", lasting)?);
        }
        if let Some(ours) = self.subjects.iter().find(|subject| subject.name == OURS) {
            self.of_ours(ours, &mut runs)?;
        }
        Ok(runs)
    }

    /// What only Longhaul is asked: its other ways in, and how it grows.
    fn of_ours(&self, ours: &Subject, runs: &mut Vec<Value>) -> Outcome {
        let phases = ["create@1", "create@32", "get@1", "get@32"];
        let sessions = Subject {
            name: OURS.to_owned(),
            era: "2025-11-25".to_owned(),
            path: ours.path.clone(),
            facts: Value::Null,
        };
        for round in 1..=self.plan.rounds {
            runs.push(self.fresh(&sessions, "sessions", round, &phases)?);
            runs.push(self.stdio(round, &phases)?);
        }
        for round in 1..=self.plan.grow_small {
            runs.push(self.fresh(ours, "growth-small", round, &["echo@1", "grow=1000@32"])?);
        }
        let grow = format!("grow={}@32", self.plan.grow);
        let listen = format!("listen={}/100", self.plan.streams);
        runs.push(self.fresh(ours, "listen", 1, &["get@32", &listen])?);
        runs.push(self.fresh(ours, "growth", 1, &["echo@1", &grow])?);
        Ok(())
    }

    /// One server from its start on an empty folder to its end.
    fn fresh(&self, subject: &Subject, part: &str, round: usize, phases: &[&str]) -> Result<Value, String> {
        let folder = empty_folder("bench/results/server")?;
        let report = self.once(subject, part, round, &folder, phases)?;
        Ok(json!({"server": subject.name, "part": part, "round": round, "report": report}))
    }

    /// The same with the size of the folder: of a server that began nothing and ended, and of the same after the phases.
    fn sized(&self, subject: &Subject, part: &str, phases: &[&str]) -> Result<Value, String> {
        let folder = empty_folder("bench/results/server")?;
        let data = folder.join("data");
        drop(self.start(subject, &folder, &data)?);
        let empty = bytes(&data);
        let report = self.once(subject, part, 1, &folder, phases)?;
        Ok(json!({
            "server": subject.name, "part": part, "round": 1, "report": report,
            "bytes_empty": empty, "bytes": bytes(&data),
        }))
    }

    fn once(
        &self,
        subject: &Subject,
        part: &str,
        round: usize,
        folder: &Path,
        phases: &[&str],
    ) -> Result<Value, String> {
        let begun = Instant::now();
        let data = folder.join("data");
        let server = self.start(subject, folder, &data)?;
        std::thread::sleep(REST);
        let url = server.url().replace("/mcp", &subject.path);
        let pid = server.pid().to_string();
        let first = ["--url", &url, "--era", &subject.era, "--pid", &pid, "--data"];
        let report = self.drive(&first, &data, phases)?;
        drop(server);
        let seconds = begun.elapsed().as_secs();
        println!("{:<16} {part:<12} {round}  {seconds:>3} s", subject.name);
        Ok(report)
    }

    /// `longhaul serve --stdio`, which the driver starts itself.
    fn stdio(&self, round: usize, phases: &[&str]) -> Result<Value, String> {
        let data = empty_folder("bench/results/server")?.join("data");
        let command = format!(
            "{} serve --stdio --config {} --state {}",
            self.binary.display(),
            root().join(RIG).join("longhaul.toml").display(),
            data.display()
        );
        let report = self.drive(&["--stdio", &command, "--data"], &data, phases)?;
        println!("{OURS:<16} {:<12} {round}", "stdio");
        Ok(json!({"server": OURS, "part": "stdio", "round": round, "report": report}))
    }

    fn start(&self, subject: &Subject, folder: &Path, data: &Path) -> Result<Server, String> {
        let (rig, log) = (root().join(RIG), folder.join("server.log"));
        if subject.name == OURS {
            return Server::on(&self.binary, &rig, data, log);
        }
        let (name, data, peers) = (subject.name.clone(), data.to_path_buf(), self.peers.clone());
        let program = move |port: u16| {
            Program::new(rig.join("peers/start"))
                .args([&name])
                .args([&peers])
                .args([port.to_string()])
                .args([&data])
        };
        Server::of(Box::new(program), log)
    }

    fn drive(&self, first: &[&str], data: &Path, phases: &[&str]) -> Result<Value, String> {
        let said = Program::new(&self.driver)
            .args(first)
            .args([data])
            .args(["--seconds", self.plan.seconds])
            .args(phases)
            .output()?;
        serde_json::from_str(&said).map_err(|error| format!("the driver printed no JSON: {error}"))
    }
}

/// Longhaul and the peers, or those that are asked for.
fn subjects(only: &[String]) -> Result<Vec<Subject>, String> {
    let listed: Value = json(&format!("{RIG}/peers/peers.json"))?;
    let ours = json!({
        "name": OURS, "title": "Longhaul", "version": "of this commit", "era": "2026-07-28",
        "keeps": "sqlite", "path": "/mcp",
        "notes": "Every create is synced to the disk before its reply. The tools are programs: each attempt starts one.",
    });
    // It is a subject of the attack suite only.
    let measured = |peer: &&Value| text(&peer["name"]) != "rmcp";
    let all = std::iter::once(&ours).chain(items(&listed).filter(measured));
    let chosen = chosen("server", all.collect(), only)?.into_iter();
    Ok(chosen
        .map(|facts| Subject {
            name: text(&facts["name"]).to_owned(),
            era: text(&facts["era"]).to_owned(),
            path: text(&facts["path"]).to_owned(),
            facts: facts.clone(),
        })
        .collect())
}

/// All, or those whose names are asked for.
fn chosen<'a>(what: &str, mut all: Vec<&'a Value>, only: &[String]) -> Result<Vec<&'a Value>, String> {
    let is_named = |facts: &Value, name: &String| text(&facts["name"]) == name;
    if let Some(stranger) = only
        .iter()
        .find(|name| !all.iter().any(|facts| is_named(facts, name)))
    {
        return Err(format!("no {what} is named `{stranger}`"));
    }
    all.retain(|facts| only.is_empty() || only.iter().any(|name| is_named(facts, name)));
    Ok(all)
}

/// The release binary, built now, unless `LONGHAUL_BINARY` names one.
fn binary() -> Result<PathBuf, String> {
    if let Some(binary) = std::env::var_os("LONGHAUL_BINARY") {
        return Ok(PathBuf::from(binary));
    }
    Program::cargo()
        .args(["build", "--locked", "--release", "-p", "longhaul"])
        .run()?;
    Ok(target()?.join("release/longhaul"))
}

fn driver() -> Result<PathBuf, String> {
    let target = target()?.join("bench/driver");
    Program::cargo()
        .args(["build", "--locked", "--quiet", "--release", "--manifest-path"])
        .args([root().join(RIG).join("driver/Cargo.toml")])
        .env("CARGO_TARGET_DIR", &target)
        .run()?;
    Ok(target.join("release/driver"))
}

/// A kernel's name and version, without what its builder added: that tells of the host, not of its speed.
fn released(kernel: &str) -> String {
    kernel.split('-').next().unwrap_or_default().to_owned()
}

/// What a file of `NAME: VALUE` lines says first.
fn fact(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_default();
    let value = line.split_once(':').map_or("", |(_, value)| value);
    value.trim().trim_end_matches(" kB").to_owned()
}

/// What all files below a folder take on the disk, in bytes.
fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let facts = entry.metadata().ok()?;
            Some(if facts.is_dir() {
                bytes(&entry.path())
            } else {
                facts.blocks() * BLOCK
            })
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::Asked;

    #[test]
    fn names_follow_only_and_anything_else_is_refused() {
        let asked = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Asked::new(&words)
        };
        assert_eq!(
            asked(&["--quick", "--only", "echo", "longhaul"]).unwrap().only,
            ["echo", "longhaul"]
        );
        assert!(asked(&["--render"]).unwrap().render);
        assert!(asked(&["--gateways"]).unwrap().gateways);
        assert!(asked(&["echo"]).is_err());
        assert!(asked(&["--only", "echo", "--slow"]).is_err());
    }
}
