//! The installed package on a machine of its own, as its administrator uses it, from the installation to the purge.
//!
//! Called by `debian`.

use std::{fs, path::Path};

use crate::{
    Outcome,
    packages::{
        contents::copy,
        first_task::{ENDLESS, counted, tools, tree, until},
        machine::Machine,
    },
    workspace::write,
};

const UNIT: &str = "longhaul.service";
const CONFIG: &str = "/etc/longhaul/longhaul.toml";
/// A tool that nobody may run again, and that runs as long as there is a file.
const WAITS: &str = "\n[tools.waits]\ndescription = \"Waits\"\ncommand = [\"sh\", \"-c\", \"while test -e /srv/tree/file; do sleep 0.1; done; echo over\"]\n";
/// A folder whose sum nobody waits for, until its file is cut.
const TREE: &str = "/srv/tree";

/// Installs the first package, and everything after that.
///
/// # Errors
/// The first thing that is not as it should be.
pub(super) fn used(first: &Path, next: &Path, folder: &Path) -> Outcome {
    let mut machine = Machine::boot(folder)?;
    copy(first, &machine.file("/root/first.deb"))?;
    copy(next, &machine.file("/root/next.deb"))?;
    installed(&machine)?;
    served(&machine)?;
    used_by_a_person(&machine)?;
    killed(&mut machine)?;
    upgraded(&mut machine)?;
    refused(&mut machine)?;
    stopped(&mut machine)?;
    removed(&machine)
}

/// After the installation there is the command, and nothing that runs.
fn installed(machine: &Machine) -> Outcome {
    machine.run(&["dpkg", "-i", "/root/first.deb"])?;
    for file in [
        "usr/share/man/man1/longhaul-serve.1.gz",
        "usr/share/doc/longhaul/THIRD-PARTY.md.gz",
    ] {
        if !machine.file(file).exists() {
            return Err(format!("the package has no `{file}`"));
        }
    }
    if state(machine, "ActiveState")? != "inactive" {
        return Err("the installation has started a server".to_owned());
    }
    machine.run(&["systemd-analyze", "--man=no", "verify", UNIT])?;
    machine.run(&[
        "env",
        "XDG_RUNTIME_DIR=/run",
        "systemd-analyze",
        "--man=no",
        "--user",
        "verify",
        "/usr/lib/systemd/user/longhaul.service",
    ])
}

/// The quickstart, a client, and a result.
fn served(machine: &Machine) -> Outcome {
    let config = machine.file(CONFIG);
    let text = fs::read_to_string(&config).map_err(|error| format!("no configuration: {error}"))?;
    write(&config, &(text.replace("#include", "include") + WAITS))?;
    machine.run(&["systemctl", "enable", "--now", UNIT])?;
    machine.run(&["longhaul", "doctor"])?;
    let offered = tools(machine.command(&["longhaul", "stdio"]))?;
    if !offered.iter().any(|tool| tool == "checksum_tree") {
        return Err(format!("a client sees no tool of the quickstart: {offered:?}"));
    }
    tree(&machine.file(TREE), 1 << 20)?;
    counted(&machine.says(&["longhaul", "run", "checksum_tree", &format!("path={TREE}")])?)
}

/// Somebody who logs in has a server of their own beside it, started by their client.
fn used_by_a_person(machine: &Machine) -> Outcome {
    machine.run(&["useradd", "--create-home", "alice"])?;
    let alice = [
        "runuser",
        "-u",
        "alice",
        "--",
        "env",
        "HOME=/home/alice",
        "LONGHAUL_SERVER__IDLE_EXIT=1s",
        "longhaul",
    ];
    let offered = tools(machine.command(&[&alice[..], &["stdio"]].concat()))?;
    if !offered.iter().any(|tool| tool == "checksum_tree") {
        return Err(format!(
            "a person's client sees no tool of the quickstart: {offered:?}"
        ));
    }
    let path = format!("path={TREE}");
    counted(&machine.says(&[&alice[..], &["run", "checksum_tree", &path]].concat())?)?;
    match machine
        .file("/home/alice/.local/state/longhaul/longhaul.db")
        .exists()
    {
        true => Ok(()),
        false => Err("a person's tasks are not in their home".to_owned()),
    }
}

/// A server that is killed comes back, what it ran is ended, and its task is finished by the next.
fn killed(machine: &mut Machine) -> Outcome {
    let name = begun(machine)?;
    machine.run(&["systemctl", "kill", "--kill-whom=main", "--signal=KILL", UNIT])?;
    tree(&machine.file(TREE), 1 << 20)?;
    machine.until("the unit does not come back", |machine| {
        state(machine, "NRestarts").is_ok_and(|count| count == "1")
            && state(machine, "ActiveState").is_ok_and(|now| now == "active")
    })?;
    ended(machine, &name, 2)
}

/// An upgrade hands over: the task goes on in the process that began it, and the next one has it to show.
fn upgraded(machine: &mut Machine) -> Outcome {
    let name = begun(machine)?;
    let before = state(machine, "MainPID")?;
    machine.run(&["dpkg", "-i", "/root/next.deb"])?;
    let after = state(machine, "MainPID")?;
    if before == after {
        return Err("the upgrade left the old server in its place".to_owned());
    }
    let is_there =
        |machine: &Machine, pid: &str| machine.run(&["test", "-d", &format!("/proc/{pid}")]).is_ok();
    if !is_there(machine, &before) {
        return Err("the upgrade ended the server that had work".to_owned());
    }
    if !fs::read_to_string(machine.file(CONFIG))
        .unwrap_or_default()
        .contains("\ninclude")
    {
        return Err("the upgrade lost the configuration".to_owned());
    }
    tree(&machine.file(TREE), 1 << 20)?;
    ended(machine, &name, 1)?;
    machine.until("the server that made way does not end", |machine| {
        !is_there(machine, &before)
    })?;
    match state(machine, "MainPID")? == after && state(machine, "ActiveState")? == "active" {
        true => Ok(()),
        false => Err("the unit ended with the server that made way".to_owned()),
    }
}

/// A configuration that is wrong is no reason for the server that runs to make way.
fn refused(machine: &mut Machine) -> Outcome {
    let config = machine.file(CONFIG);
    let right = fs::read_to_string(&config).map_err(|error| error.to_string())?;
    let before = state(machine, "MainPID")?;
    write(&config, "[sevrer]\n")?;
    if machine.run(&["systemctl", "reload", UNIT]).is_ok() {
        return Err("a wrong configuration was taken".to_owned());
    }
    write(&config, &right)?;
    machine.run(&["systemctl", "reload", UNIT])?;
    match state(machine, "MainPID")? != before {
        true => Ok(()),
        false => Err("a reload starts no next server".to_owned()),
    }
}

/// The order to stop leaves a running tool its time, and nothing runs afterwards.
fn stopped(machine: &mut Machine) -> Outcome {
    let name = machine.says(&["longhaul", "run", "--no-wait", "waits"])?;
    let look = |machine: &Machine| machine.says(&["longhaul", "--json", "tasks", "get", &name]);
    machine.until("the tool does not run", |machine| {
        look(machine).is_ok_and(|task| task.contains("\"running\""))
    })?;
    machine.run(&["systemctl", "stop", "--no-block", UNIT])?;
    machine.until("the unit does not begin to stop", |machine| {
        state(machine, "ActiveState").is_ok_and(|now| now == "deactivating")
    })?;
    fs::remove_file(machine.file(TREE).join("file"))
        .map_err(|error| format!("cannot let it end: {error}"))?;
    machine.until("the unit does not stop", |machine| {
        state(machine, "ActiveState").is_ok_and(|now| now == "inactive")
    })?;
    // It fails where it finds none.
    if let Ok(left) = machine.says(&["sh", "-c", "grep -ls longhaul /proc/[0-9]*/comm"]) {
        return Err(format!("these are left: {left}"));
    }
    machine.run(&["systemctl", "start", UNIT])?;
    until(&name, "done", 1, || look(machine))
}

/// What is removed comes back with its tasks; what is purged does not.
fn removed(machine: &Machine) -> Outcome {
    machine.run(&["dpkg", "-r", "longhaul"])?;
    if machine.file("/usr/bin/longhaul").exists() || !machine.file("/var/lib/longhaul/longhaul.db").exists() {
        return Err("a removal takes the program and leaves the state".to_owned());
    }
    machine.run(&["dpkg", "-i", "/root/next.deb"])?;
    machine.run(&["systemctl", "start", UNIT])?;
    if !machine.says(&["longhaul", "tasks"])?.contains("checksum_tree") {
        return Err("the tasks of the package that was removed are gone".to_owned());
    }
    machine.run(&["dpkg", "--purge", "longhaul"])?;
    match ["/var/lib/longhaul", "/etc/longhaul", "/usr/lib/longhaul"]
        .into_iter()
        .find(|left| machine.file(left).exists())
    {
        Some(left) => Err(format!("the purge left `{left}`")),
        None => Ok(()),
    }
}

/// A property of the unit.
fn state(machine: &Machine, property: &str) -> Result<String, String> {
    machine.says(&["systemctl", "show", "--value", "--property", property, UNIT])
}

/// The name of a task that runs, and does not end.
fn begun(machine: &Machine) -> Result<String, String> {
    tree(&machine.file(TREE), ENDLESS)?;
    let name = machine.says(&[
        "longhaul",
        "run",
        "--no-wait",
        "checksum_tree",
        &format!("path={TREE}"),
    ])?;
    until(&name, "running", 1, || {
        machine.says(&["longhaul", "--json", "tasks", "get", &name])
    })?;
    Ok(name)
}

/// The task has ended in this attempt, with the right result.
fn ended(machine: &Machine, name: &str, attempts: u64) -> Outcome {
    until(name, "done", attempts, || {
        machine.says(&["longhaul", "--json", "tasks", "get", name])
    })?;
    counted(&machine.says(&["longhaul", "tasks", "result", name])?)
}
