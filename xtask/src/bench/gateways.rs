//! Longhaul beside other gateways, each in front of the same server, on standard streams and over HTTP.
//!
//! Called by `bench`, with whose plan and driver it measures. The server behind has no part in a gateway's processor
//! time and memory. A caller that does not get its own text back counts as an error.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Asked, Bench, Plan, REST, RIG, chosen, committed, keep};
use crate::{
    Outcome,
    program::Program,
    server::{Server, empty_folder},
    workspace::{items, json, root, target, text},
};

/// Calls that no gateway relays: what the server behind takes by itself.
pub(super) const DIRECT: &str = "direct";
/// Where the server behind is.
pub(super) const WAYS: [&str; 2] = ["stdio", "http"];
/// The generation of the server behind, and of the callers of every gateway.
pub(super) const ERA: &str = "2025-11-25";
/// What the system calls the server behind.
const BEHIND: &str = "peer-behind";
const PHASES: [&str; 3] = ["relay@1", "relay@32", "memory"];
/// One of them makes a database of many tables when it starts.
const START_MAX: Duration = Duration::from_secs(90);

pub(super) fn run(asked: &Asked, mut plan: Plan) -> Outcome {
    if asked.quick {
        plan.rounds = 1;
    }
    let begun = Instant::now();
    let listed: Value = json(&format!("{RIG}/gateways/gateways.json"))?;
    let chosen = chosen("gateway", items(&listed).collect(), &asked.only)?;
    let bench = Bench::new(asked, plan)?;
    let gateways = Gateways {
        rig: root().join(RIG).join("gateways"),
        target: target()?.join("bench/gateways"),
        bench: &bench,
    };
    Program::new(gateways.rig.join("install"))
        .args([&gateways.target])
        .run()?;
    println!("installed in {} s", begun.elapsed().as_secs());
    let mut figures = bench.facts()?;
    figures["servers"] = json!(chosen);
    let begun = Instant::now();
    figures["runs"] = Value::from(gateways.all(&chosen)?);
    figures["minutes"] = json!(begun.elapsed().as_secs() / 60);
    let mut all = committed()?;
    all["gateways"] = figures;
    keep(asked, &all)
}

struct Gateways<'a> {
    rig: PathBuf,
    target: PathBuf,
    bench: &'a Bench,
}

impl Gateways<'_> {
    fn all(&self, chosen: &[&Value]) -> Result<Vec<Value>, String> {
        let mut runs = Vec::new();
        for round in 1..=self.bench.plan.rounds {
            for way in WAYS {
                runs.push(self.direct(way, round)?);
                for gateway in chosen {
                    for era in items(&gateway["eras"]) {
                        runs.push(self.through(gateway, way, text(era), round)?);
                    }
                }
            }
        }
        Ok(runs)
    }

    fn direct(&self, way: &str, round: usize) -> Result<Value, String> {
        let folder = empty_folder("bench/results/server")?;
        let report = if way == "stdio" {
            let program = self.behind().to_string_lossy().into_owned();
            let first = ["--stdio", &program, "--era", ERA, "--data"];
            self.bench.drive(&first, &folder, &PHASES)?
        } else {
            let server = self.server_behind(&folder)?;
            let (url, pid) = (server.url(), server.pid().to_string());
            let first = ["--url", &url, "--pid", &pid, "--era", ERA, "--data"];
            self.bench.drive(&first, &folder, &PHASES)?
        };
        Ok(told(DIRECT, way, ERA, round, report))
    }

    /// One gateway from its start on an empty folder to its end.
    fn through(&self, gateway: &Value, way: &str, era: &str, round: usize) -> Result<Value, String> {
        let begun = Instant::now();
        let name = text(&gateway["name"]);
        let folder = empty_folder("bench/results/server")?;
        let data = folder.join("data");
        let server_behind = (way == "http").then(|| self.server_behind(&folder)).transpose()?;
        let address = server_behind.as_ref().map_or("stdio".to_owned(), Server::url);
        let log = folder.join("server.log");
        let server = self.start(name, address, &data, log.clone())?;
        let headers = ready(&data.join("ready")).map_err(|why| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            format!("{name}, {way}: {why}:\n{said}")
        })?;
        std::thread::sleep(REST);
        let (url, pid) = (server.url(), server.pid().to_string());
        let mut first = vec!["--url", &url, "--pid", &pid, "--era", era, "--behind", BEHIND];
        first.extend(["--tool", text(&gateway["tool"])]);
        let arguments = gateway["arguments"].to_string();
        if gateway["arguments"].is_object() {
            first.extend(["--arguments", &arguments]);
        }
        for header in headers.lines() {
            first.extend(["--header", header]);
        }
        first.push("--data");
        let report = self.bench.drive(&first, &data, &PHASES)?;
        drop(server);
        let seconds = begun.elapsed().as_secs();
        println!("{name:<20} {way:<6} {era} {round}  {seconds:>3} s");
        Ok(told(name, way, era, round, report))
    }

    fn start(&self, name: &str, address: String, data: &Path, log: PathBuf) -> Result<Server, String> {
        let script = self.rig.join("start");
        let (name, data) = (name.to_owned(), data.to_path_buf());
        let (binary, target) = (self.bench.binary.clone(), self.target.clone());
        let program = move |port: u16| {
            Program::new(&script)
                .args([&name, &address])
                .args([&target])
                .args([port.to_string()])
                .args([&data])
                .env("LONGHAUL_BINARY", &binary)
        };
        Server::within(START_MAX, Box::new(program), log)
    }

    /// The server behind, over HTTP.
    fn server_behind(&self, folder: &Path) -> Result<Server, String> {
        let program = self.behind();
        let program = move |port: u16| Program::new(&program).args([port.to_string()]);
        Server::of(Box::new(program), folder.join("behind.log"))
    }

    fn behind(&self) -> PathBuf {
        self.target.join("rust/release").join(BEHIND)
    }
}

fn told(name: &str, way: &str, era: &str, round: usize, report: Value) -> Value {
    json!({"server": name, "part": part(way, era), "round": round, "report": report})
}

/// What the figures call one kind of callers with one way to the server behind.
pub(super) fn part(way: &str, era: &str) -> String {
    format!("{way} {era}")
}

/// The headers that a gateway's requests need, once it relays.
fn ready(file: &Path) -> Result<String, String> {
    let begun = Instant::now();
    while begun.elapsed() < START_MAX {
        if let Ok(headers) = fs::read_to_string(file) {
            return Ok(headers);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("does not relay after {} s", START_MAX.as_secs()))
}
