//! `cargo xtask packages [crate | npm | wheel | deb ..]`: packages built from the binary, installed from the built file
//! where nothing else of Longhaul is, and used for a first task.
//!
//! The files are in `target/packages/out`. Each is built twice, and both must have the same bytes. `packaging/README.md`
//! says what each is made of. `LONGHAUL_BINARY` names another binary, such as a release build. Nothing is published.

mod contents;
mod debian;
mod first_task;
mod from_source;
mod machine;
mod npm;
mod wheel;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Instant,
};

use self::contents::Contents;
use crate::{
    Outcome,
    server::binary,
    workspace::{make_empty, make_folder, target},
};

/// One kind of package.
struct Kind {
    name: &'static str,
    /// Builds its files into the second folder, with the first for what is in between.
    build: fn(&Contents, work: &Path, out: &Path) -> Outcome,
    /// Installs them in a folder that is empty, uses them, and says what was done.
    tried: fn(&Contents, out: &Path, folder: &Path) -> Result<Tried, String>,
}

/// What became of a try.
enum Tried {
    /// In these words.
    Well(String),
    /// This machine lacks something that only a developer's may lack.
    LeftOut(String),
}

const KINDS: &[Kind] = &[
    Kind {
        name: "crate",
        build: |_, _, _| Ok(()),
        tried: from_source::tried,
    },
    Kind {
        name: "npm",
        build: npm::build,
        tried: npm::tried,
    },
    Kind {
        name: "wheel",
        build: wheel::build,
        tried: wheel::tried,
    },
    Kind {
        name: "deb",
        build: debian::build,
        tried: debian::tried,
    },
];

pub(crate) fn run(arguments: &[String]) -> Outcome {
    if let Some(unknown) = arguments
        .iter()
        .find(|name| KINDS.iter().all(|kind| kind.name != name.as_str()))
    {
        return Err(format!("no package is called `{unknown}`"));
    }
    let wanted = |kind: &&Kind| arguments.is_empty() || arguments.iter().any(|name| name == kind.name);
    let folder = target()?.join("packages");
    make_folder(&folder)?;
    let contents = Contents::gather(&binary()?, &folder.join("contents"))?;
    let mut failed = Vec::new();
    for kind in KINDS.iter().filter(wanted) {
        let start = Instant::now();
        let line = match one(kind, &contents, &folder) {
            Ok(Tried::Well(what)) => what,
            Ok(Tried::LeftOut(why)) if env::var_os("CI").is_none() => format!("LEFT OUT: {why}"),
            Ok(Tried::LeftOut(why)) | Err(why) => {
                failed.push(kind.name);
                format!("FAILED: {why}")
            }
        };
        println!("{:<6}{line} ({} s)", kind.name, start.elapsed().as_secs());
    }
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(format!("these packages failed: {}", failed.join(", "))),
    }
}

/// Builds it twice, and tries the first.
fn one(kind: &Kind, contents: &Contents, folder: &Path) -> Result<Tried, String> {
    let (out, again) = (
        folder.join("out").join(kind.name),
        folder.join("again").join(kind.name),
    );
    for out in [&out, &again] {
        make_empty(out)?;
        let work = folder.join("work");
        make_empty(&work)?;
        (kind.build)(contents, &work, out)?;
        make_empty(&work)?;
    }
    for (first, second) in listed(&out)?.iter().zip(listed(&again)?) {
        if !same(first, &second)? {
            return Err(format!(
                "`{}` has other bytes when it is built again",
                first.display()
            ));
        }
    }
    let files = listed(&out)?.len();
    make_empty(&again)?;
    let place = folder.join("tried").join(kind.name);
    make_empty(&place)?;
    let tried = (kind.tried)(contents, &out, &place)?;
    Ok(match (tried, files) {
        (Tried::Well(what), 1..) => Tried::Well(format!("built twice with the same bytes; {what}")),
        (tried, _) => tried,
    })
}

/// The files of a folder, by name.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

fn same(first: &Path, second: &Path) -> Result<bool, String> {
    let bytes =
        |path: &Path| fs::read(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()));
    Ok(first.file_name() == second.file_name() && bytes(first)? == bytes(second)?)
}

/// The one file of a folder whose name ends so.
fn file(folder: &Path, ending: &str) -> Result<PathBuf, String> {
    let found = listed(folder)?;
    let found = found
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(ending));
    found.ok_or_else(|| format!("no file `*{ending}` was built"))
}
