//! `cargo xtask fuzz [TARGET..] [--quick] [--replay | --seconds N | --runs N | --keep]`: the targets of `rigs/fuzz`.
//!
//! Builds them once with the coverage that libFuzzer needs, on the stable toolchain; with `--quick` without
//! optimisation, which takes half as long. `--replay` gives each target the inputs that are kept in
//! `rigs/fuzz/corpus` and nothing else. `--seconds` and `--runs` look for new ones, so much of
//! it for each target; what is found stays under the target folder, and a failing input beside it. `--keep` makes of
//! both the smallest set that reaches as much, and writes it to `rigs/fuzz/corpus`. Inputs of failures that are mended
//! have a name there and stay.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use crate::{
    Outcome,
    program::Program,
    workspace::{make_folder, root, target},
};

const RIG: &str = "rigs/fuzz";

/// One target: its name, its dictionary, and the longest input that is tried, in bytes.
struct Target {
    name: &'static str,
    dictionary: Option<&'static str>,
    len_max: u32,
}

const TARGETS: &[Target] = &[
    Target::new("scan", Some("json"), 2048),
    Target::new("frame", Some("json"), 2048),
    Target::new("differential", Some("json"), 2048),
    Target::new("headers", Some("headers"), 2048),
    Target::new("form", Some("form"), 2048),
    Target::new("url", Some("url"), 256),
    Target::new("sealed", None, 400),
    Target::new("config", Some("config"), 1024),
    Target::new("lines", None, 1024),
    Target::new("events", Some("events"), 1024),
    Target::new("server", Some("json"), 2048),
];

/// What `cargo fuzz` hands to the compiler, without what needs a nightly one: the sanitizers.
const RUSTFLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-sanitizer-coverage-stack-depth \
    --cfg fuzzing";

/// The longest that one input may take, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;
/// The most inputs of one target that are kept.
const FILES_MAX: usize = 500;
/// The most that the inputs of one target may take, in bytes.
const BYTES_MAX: u64 = 300 * 1024;

/// How the programs are built.
#[derive(Clone, Copy)]
enum Profile {
    /// Quick to build.
    Quick,
    /// Quick to run.
    Fast,
}

/// What is to be done with each target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Replay,
    Seconds(u32),
    Runs(u64),
    Keep,
}

/// What CI does: all that is kept, and a minute of looking for more.
pub(crate) fn in_ci() -> Outcome {
    let arguments = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    run(&arguments("--quick --replay"))?;
    run(&arguments("--quick --seconds 7"))
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let is_quick = |argument: &&String| *argument == "--quick";
    let profile = if arguments.iter().any(|argument| is_quick(&argument)) {
        Profile::Quick
    } else {
        Profile::Fast
    };
    let rest: Vec<String> = arguments
        .iter()
        .filter(|argument| !is_quick(argument))
        .cloned()
        .collect();
    let (work, names) = parse(&rest)?;
    let wanted: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| names.is_empty() || names.contains(&target.name))
        .collect();
    let start = Instant::now();
    let rig = Rig::build(profile)?;
    println!("fuzz: built in {} s", start.elapsed().as_secs());
    let mut failed = Vec::new();
    for target in wanted {
        let outcome = match work {
            Work::Replay => rig.replay(target),
            Work::Seconds(seconds) => rig.look(target, &format!("-max_total_time={seconds}")),
            Work::Runs(runs) => rig.look(target, &format!("-runs={runs}")),
            Work::Keep => rig.keep(target),
        };
        if let Err(why) = outcome {
            println!("{:<13} FAILED\n{why}", target.name);
            failed.push(target.name);
        }
    }
    println!("fuzz: {} s", start.elapsed().as_secs());
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}

/// What is to be done, and with which targets; none named means all.
fn parse(arguments: &[String]) -> Result<(Work, Vec<&str>), String> {
    let mut work = None;
    let mut names = Vec::new();
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|value| value.parse::<u32>().ok());
            value.ok_or_else(|| format!("`{argument}` needs a number"))
        };
        let said = match argument {
            "--replay" => Work::Replay,
            "--keep" => Work::Keep,
            "--seconds" => Work::Seconds(number()?),
            "--runs" => Work::Runs(number()?.into()),
            name if TARGETS.iter().any(|target| target.name == name) => {
                names.push(name);
                continue;
            }
            other => return Err(format!("no fuzz target `{other}`")),
        };
        if work.replace(said).is_some() {
            return Err("one of `--replay`, `--seconds`, `--runs` and `--keep`".to_owned());
        }
    }
    Ok((work.unwrap_or(Work::Seconds(60)), names))
}

impl Target {
    const fn new(name: &'static str, dictionary: Option<&'static str>, len_max: u32) -> Target {
        Target {
            name,
            dictionary,
            len_max,
        }
    }

    /// The inputs that are kept.
    fn corpus(&self) -> PathBuf {
        root().join(RIG).join("corpus").join(self.name)
    }
}

/// The programs, and where they leave what they find.
struct Rig {
    programs: PathBuf,
    found: PathBuf,
}

impl Rig {
    fn build(profile: Profile) -> Result<Rig, String> {
        let target = target()?.join("fuzz");
        let machine = machine()?;
        let (profile, folder) = match profile {
            Profile::Quick => ("dev", "debug"),
            Profile::Fast => ("release", "release"),
        };
        // With an explicit target the flags are not for build scripts and macros.
        Program::cargo()
            .args(["build", "--profile", profile, "--locked", "--quiet"])
            .args(["--target", &machine])
            .args([
                "--manifest-path".as_ref(),
                root().join(RIG).join("Cargo.toml").as_os_str(),
            ])
            .env("CARGO_TARGET_DIR", target.join("cargo"))
            .env("RUSTFLAGS", RUSTFLAGS)
            .run()?;
        Ok(Rig {
            programs: target.join("cargo").join(machine).join(folder),
            found: target,
        })
    }

    fn program(&self, target: &Target) -> Program {
        Program::new(self.programs.join(target.name))
            .args([
                format!("-max_len={}", target.len_max),
                format!("-timeout={INPUT_SECONDS_MAX}"),
                format!(
                    "-artifact_prefix={}/failed/{}-",
                    self.found.display(),
                    target.name
                ),
                "-print_final_stats=1".to_owned(),
            ])
            // The place of the panic is enough, and its input is kept.
            .env("RUST_BACKTRACE", "0")
    }

    /// Each kept input once.
    fn replay(&self, target: &Target) -> Outcome {
        let kept = Kept::of(&target.corpus())?;
        kept.check_size()?;
        make_folder(&self.found.join("failed"))?;
        let start = Instant::now();
        said(
            self.program(target)
                .args(["-runs=0".as_ref(), target.corpus().as_os_str()]),
        )?;
        println!(
            "{:<13} {:>4} kept inputs, {:>6} bytes, {:>5.1} s",
            target.name,
            kept.files.len(),
            kept.bytes,
            start.elapsed().as_secs_f32()
        );
        Ok(())
    }

    /// Looks for new inputs, from the kept ones and those that were found before.
    fn look(&self, target: &Target, limit: &str) -> Outcome {
        let found = self.found.join("found").join(target.name);
        make_folder(&found)?;
        make_folder(&self.found.join("failed"))?;
        let start = Instant::now();
        let mut program = self.program(target).args([limit]);
        if let Some(dictionary) = target.dictionary {
            let path = root().join(RIG).join("dictionaries").join(dictionary);
            program = program.args([format!("-dict={}.dict", path.display())]);
        }
        let report = said(program.args([found, target.corpus()]))?;
        println!(
            "{:<13} {:>10} runs, {:>7} in a second, {:>5} inputs found, {:>6.1} s",
            target.name,
            stat(&report, "number_of_executed_units"),
            stat(&report, "average_exec_per_sec"),
            stat(&report, "new_units_added"),
            start.elapsed().as_secs_f32()
        );
        Ok(())
    }

    /// Keeps the smallest inputs that together reach what all of them reach.
    fn keep(&self, target: &Target) -> Outcome {
        let found = self.found.join("found").join(target.name);
        let least = self.found.join("least").join(target.name);
        if least.exists() {
            fs::remove_dir_all(&least)
                .map_err(|error| format!("cannot empty `{}`: {error}", least.display()))?;
        }
        for folder in [&found, &least, &target.corpus()] {
            make_folder(folder)?;
        }
        // Without counters: how often a place is reached does not matter for what is kept.
        let merge = self.program(target).args(["-merge=1", "-use_counters=0"]);
        said(merge.args([&least, &target.corpus(), &found]))?;
        for file in Kept::of(&target.corpus())?
            .files
            .iter()
            .filter(|file| is_hash(file))
        {
            fs::remove_file(file).map_err(|error| format!("cannot remove `{}`: {error}", file.display()))?;
        }
        let named = Kept::of(&target.corpus())?;
        let mut files = Kept::of(&least)?.files;
        // The shortest first, where not all have room.
        files.sort_by_key(|file| fs::metadata(file).map_or(u64::MAX, |data| data.len()));
        let (mut count, mut bytes) = (named.files.len(), named.bytes);
        for file in files {
            let len = fs::metadata(&file).map_or(u64::MAX, |data| data.len());
            if count == FILES_MAX || bytes.saturating_add(len) > BYTES_MAX {
                break;
            }
            let name = file.file_name().unwrap_or_default();
            fs::copy(&file, target.corpus().join(name))
                .map_err(|error| format!("cannot keep `{}`: {error}", file.display()))?;
            (count, bytes) = (count + 1, bytes + len);
        }
        println!("{:<13} {count:>4} inputs kept, {bytes:>6} bytes", target.name);
        Ok(())
    }
}

/// The machine that the compiler builds for.
fn machine() -> Result<String, String> {
    let said = Program::new("rustc").args(["-vV"]).output()?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "`rustc -vV` names no host".to_owned())
}

/// The inputs in a folder.
struct Kept {
    files: Vec<PathBuf>,
    bytes: u64,
}

impl Kept {
    fn of(folder: &Path) -> Result<Kept, String> {
        let entries =
            fs::read_dir(folder).map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
        let mut kept = Kept {
            files: Vec::new(),
            bytes: 0,
        };
        for entry in entries.flatten() {
            kept.bytes += entry.metadata().map_or(0, |data| data.len());
            kept.files.push(entry.path());
        }
        kept.files.sort();
        Ok(kept)
    }

    fn check_size(&self) -> Outcome {
        if self.files.is_empty() || self.files.len() > FILES_MAX || self.bytes > BYTES_MAX {
            return Err(format!(
                "{} inputs of {} bytes are kept; it must be 1 to {FILES_MAX} of at most {BYTES_MAX} bytes",
                self.files.len(),
                self.bytes
            ));
        }
        Ok(())
    }
}

/// libFuzzer names what it finds by a hash; what a person put there has another name.
fn is_hash(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Runs a target and returns what it said; its last words when it failed.
fn said(program: Program) -> Result<String, String> {
    let output = program
        .into_command()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start a fuzz target: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let is_told = |line: &&str| {
        let noise = [
            "#", "stat::", "INFO:", "NOTE:", "note:", "0x", "Base64:", "==", "MS:",
        ];
        !line.trim().is_empty() && noise.iter().all(|start| !line.starts_with(start))
    };
    let words: Vec<&str> = said.lines().filter(is_told).collect();
    let last = &words[words.len().saturating_sub(20)..];
    Err(last.join("\n"))
}

/// A number of libFuzzer's last report.
fn stat<'a>(report: &'a str, name: &str) -> &'a str {
    let value = report
        .lines()
        .find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name)?.strip_prefix(':'));
    value.map_or("?", str::trim)
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, Work, parse, stat};
    use crate::workspace::read;

    #[test]
    fn one_kind_of_work_is_done_with_the_targets_that_are_named() {
        let parsed = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&arguments).map(|(work, names)| (work, names.join(" ")))
        };
        assert_eq!(parsed(""), Ok((Work::Seconds(60), String::new())));
        assert_eq!(
            parsed("url --runs 5 scan"),
            Ok((Work::Runs(5), "url scan".to_owned()))
        );
        assert!(parsed("--seconds").is_err());
        assert!(parsed("--seconds 5 --replay").is_err());
        assert!(parsed("urls").is_err());
    }

    #[test]
    fn every_target_of_the_rig_is_run() {
        let manifest = read("rigs/fuzz/Cargo.toml").unwrap();
        let mut built: Vec<&str> = manifest
            .split("[[bin]]\nname = \"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let mut run: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        built.sort_unstable();
        run.sort_unstable();
        assert_eq!(built, run);
    }

    #[test]
    fn a_number_is_found_in_the_last_report() {
        let report = "#2 INITED\nstat::number_of_executed_units: 17\nstat::new_units_added:          3\n";
        assert_eq!(stat(report, "number_of_executed_units"), "17");
        assert_eq!(stat(report, "new_units_added"), "3");
        assert_eq!(stat(report, "peak_rss_mb"), "?");
    }
}
