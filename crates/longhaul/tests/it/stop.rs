//! Nothing of a tool outlives its task: children that ignore TERM, that left the session, that were forked twice
//! (R13, P1).

use std::{fs, time::Duration};

use longhaul_engine::clock;
use serde_json::Value;

use crate::support::{PATIENCE, Rig};

const GRACE: Duration = Duration::from_secs(1);
/// What the kill may take beyond the grace.
const SLACK: Duration = Duration::from_secs(1);

/// Four stubborn processes, each with `mark` among its arguments, then the word that says they are there.
fn rig(mark: &str) -> Rig {
    let script = format!(
        "trap '' TERM\n\
         (trap '' TERM; while :; do sleep 7; done) {mark} &\n\
         setsid sh -c \"trap '' TERM; while :; do sleep 7; done\" {mark} &\n\
         ( (trap '' TERM; exec sh -c \"trap '' TERM; while :; do sleep 7; done\" {mark}) & )\n\
         echo 1/2 all are there\n\
         while :; do sleep 7; done\n"
    )
    .replace(&format!(") {mark} &\n"), ") &\n");
    let rig = Rig::new("");
    let path = rig.file("stubborn.sh", &script);
    fs::write(
        rig.path("longhaul.toml"),
        format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[tasks]\ngrace = \"1s\"\n\
             [tools.fails]\ndescription = \"Stubborn.\"\ncommand = [\"sh\", \"{path}\", \"{mark}\"]\n\
             [tools.reruns]\ndescription = \"Stubborn.\"\ncommand = [\"sh\", \"{path}\", \"{mark}\"]\non_crash = \"rerun\"\n"
        ),
    )
    .unwrap();
    rig
}

/// How many live processes were started for this rig's tasks.
fn alive(rig: &Rig) -> usize {
    let home = rig.home.path().display().to_string();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    processes
        .filter(|pid| {
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let environment = read("environ");
            let zombie = String::from_utf8_lossy(&read("stat")).contains(") Z ");
            let marked = |text: &str| {
                environment
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            };
            !zombie && marked("LONGHAUL_TASK=") && marked(&home)
        })
        .count()
}

#[track_caller]
fn all_gone_within(rig: &Rig, limit: Duration) {
    let begun = clock::monotonic();
    while alive(rig) > 0 {
        assert!(begun.elapsed() < limit, "{} still live", alive(rig));
        std::thread::yield_now();
    }
}

fn running(rig: &Rig, tool: &str) -> String {
    let name = rig.start(&[tool]);
    rig.until(&name, |task| task["progress"]["done"] == 1.0);
    assert!(alive(rig) >= 4, "{} live", alive(rig));
    name
}

#[test]
fn cancel_empties_the_tree_and_says_stopped_only_then() {
    let rig = rig("cancel");
    let _server = rig.serve();
    let name = running(&rig, "fails");
    let told = rig.run(&["--json", "tasks", "cancel", &name]);
    let task: Value = serde_json::from_str(&told.out).unwrap();
    assert!(
        ["stopping", "cancelled"].contains(&task["state"].as_str().unwrap()),
        "{task}"
    );
    rig.until(&name, |task| task["stop"] == "stopped");
    assert_eq!(alive(&rig), 0, "stopped was said too early");
}

#[test]
fn kill_9_of_the_server_leaves_nothing_and_the_next_one_tells_the_truth() {
    let rig = rig("kill");
    let mut server = rig.serve();
    let fails = running(&rig, "fails");
    let reruns = running(&rig, "reruns");
    server.kill();
    all_gone_within(&rig, GRACE + SLACK + PATIENCE / 6);
    let _next = rig.serve();
    let lost: Value = serde_json::from_str(&rig.run(&["--json", "tasks", "get", &fails]).out).unwrap();
    assert_eq!(
        (&lost["state"], &lost["reason"]),
        (&"lost".into(), &"interrupted".into()),
        "{lost}"
    );
    let again = rig.until(&reruns, |task| {
        task["attempts"] == 2 && task["state"] == "running"
    });
    assert_eq!(again["reason"], Value::Null);
    rig.run(&["cancel", &reruns]);
}
