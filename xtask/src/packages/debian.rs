//! The Debian package: the binary, manual pages, completions, units for systemd, and what its scripts promise.
//!
//! Called by `packages`. It is tried on a machine of its own, where the unit is killed and comes back, and the package is
//! upgraded under a running task, removed and purged.

mod service;

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Tried,
    contents::{Contents, THIRD_PARTY, copy, executable, plain_modes},
    machine,
};
use crate::{
    Outcome,
    program::Program,
    workspace::{files, make_folder, root, write},
};

/// Where the files of `packaging/debian` and of the repository go.
const PLACES: &[(&str, &str)] = &[
    (
        "packaging/debian/longhaul.service",
        "usr/lib/systemd/system/longhaul.service",
    ),
    (
        "packaging/debian/longhaul.user.service",
        "usr/lib/systemd/user/longhaul.service",
    ),
    ("packaging/debian/hand-over", "usr/lib/longhaul/hand-over"),
    ("packaging/debian/longhaul.toml", "etc/longhaul/longhaul.toml"),
    ("packaging/debian/copyright", "usr/share/doc/longhaul/copyright"),
    ("CHANGELOG.md", "usr/share/doc/longhaul/changelog"),
    ("packaging/debian/postinst", "DEBIAN/postinst"),
    ("packaging/debian/prerm", "DEBIAN/prerm"),
    ("packaging/debian/postrm", "DEBIAN/postrm"),
];
const PROGRAMS: &[&str] = &[
    "usr/lib/longhaul/hand-over",
    "DEBIAN/postinst",
    "DEBIAN/prerm",
    "DEBIAN/postrm",
];
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/longhaul"),
    ("zsh", "usr/share/zsh/vendor-completions/_longhaul"),
    ("fish", "usr/share/fish/vendor_completions.d/longhaul.fish"),
];
const DOC: &str = "usr/share/doc/longhaul";
const MANUAL: &str = "usr/share/man/man1";
const MAINTAINER: &str = "The Longhaul contributors <longhaul@example.org>";

pub(super) fn build(contents: &Contents, work: &Path, out: &Path) -> Outcome {
    packed(contents, 1, "xz", work, out)
}

/// Builds a revision of the package.
fn packed(contents: &Contents, revision: u32, compression: &str, work: &Path, out: &Path) -> Outcome {
    let tree = work.join(format!("tree-{revision}"));
    filled(contents, revision, &tree)?;
    plain_modes(&tree)?;
    for program in PROGRAMS {
        executable(&tree.join(program))?;
    }
    executable(&tree.join("usr/bin/longhaul"))?;
    let file = format!(
        "longhaul_{}-{revision}_{}.deb",
        contents.version, contents.platform.deb
    );
    contents
        .dated(Program::new("dpkg-deb"))
        .args([
            "--root-owner-group",
            "-z1",
            &format!("-Z{compression}"),
            "--build",
        ])
        .args([&tree, &out.join(file)])
        .quiet()
        .run()
}

fn filled(contents: &Contents, revision: u32, tree: &Path) -> Outcome {
    contents.put_program(&tree.join("usr/bin/longhaul"))?;
    for (from, to) in PLACES {
        copy(&root().join(from), &tree.join(to))?;
    }
    copy(&contents.third_party(), &tree.join(DOC).join(THIRD_PARTY))?;
    for (folder, ending) in [
        ("examples/quickstart", ""),
        ("docs/guide", ".md"),
        ("docs/concepts", ".md"),
    ] {
        for file in files(&root().join(folder), ending)? {
            let name = file.strip_prefix(root()).unwrap_or(&file);
            let name = name.strip_prefix("docs").unwrap_or(name);
            copy(&file, &tree.join(DOC).join(name))?;
        }
    }
    write(
        &tree.join(DOC).join("changelog.Debian"),
        &changelog(contents, revision)?,
    )?;

    let longhaul = || Program::new(contents.program()).clean().env("COLUMNS", "100");
    let manual = tree.join(MANUAL);
    longhaul().args(["man", "--to"]).args([&manual]).run()?;
    for (shell, place) in COMPLETIONS {
        let place = tree.join(place);
        make_folder(place.parent().unwrap_or(tree))?;
        write(&place, &longhaul().args(["completions", shell]).output()?)?;
    }
    let documents = ["changelog", "changelog.Debian", THIRD_PARTY].map(|name| tree.join(DOC).join(name));
    Program::new("gzip")
        .args(["-9", "--no-name"])
        .args(files(&manual, ".1")?)
        .args(documents)
        .run()?;

    write(&tree.join("DEBIAN/conffiles"), "/etc/longhaul/longhaul.toml\n")?;
    write(&tree.join("DEBIAN/control"), &control(contents, revision, tree)?)?;
    let named: Vec<PathBuf> = files(tree, "")?
        .into_iter()
        .filter_map(|path| path.strip_prefix(tree).map(Path::to_path_buf).ok())
        .filter(|path| !path.starts_with("DEBIAN") && !path.starts_with("etc"))
        .collect();
    let sums = Program::new("md5sum").args(named).folder(tree).output()?;
    write(&tree.join("DEBIAN/md5sums"), &sums)
}

fn control(contents: &Contents, revision: u32, tree: &Path) -> Result<String, String> {
    let (major, minor) = contents.glibc;
    let mut bytes = 0;
    for path in files(tree, "")? {
        bytes += fs::metadata(path).map_or(0, |found| found.len());
    }
    Ok(format!(
        "Package: longhaul\nVersion: {}-{revision}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nInstalled-Size: {}\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1, adduser\nSection: net\nPriority: optional\nHomepage: {}\n\
         Description: durable MCP tool calls\n \
         Longhaul stands in front of MCP servers, and runs command-line programs as\n \
         MCP tools. Every slow call becomes a task, which survives client disconnects,\n \
         time-outs, crashes and restarts, can ask its user a question and wait for\n \
         days, and is stopped with every process it started when it is cancelled.\n",
        contents.version,
        contents.platform.deb,
        bytes.div_ceil(1024),
        contents.repository,
    ))
}

fn changelog(contents: &Contents, revision: u32) -> Result<String, String> {
    let date = Program::new("date")
        .args(["--utc", "--rfc-email", &format!("--date=@{}", contents.epoch)])
        .env("LC_ALL", "C")
        .output()?;
    Ok(format!(
        "longhaul ({}-{revision}) unstable; urgency=medium\n\n  * What changed is in changelog.gz.\n\n -- {MAINTAINER}  {date}",
        contents.version
    ))
}

pub(super) fn tried(contents: &Contents, out: &Path, folder: &Path) -> Result<Tried, String> {
    if let Some(lack) = machine::lacks() {
        return Ok(Tried::LeftOut(lack));
    }
    let first = super::file(out, ".deb")?;
    let checked = match Program::new("lintian").args(["--version"]).works() {
        true => {
            Program::new("lintian")
                .args(["--fail-on", "error", "--tag-display-limit", "0"])
                .args([&first])
                .run()?;
            "lintian finds no error; "
        }
        false => "",
    };
    packed(contents, 2, "none", &folder.join("work"), folder)?;
    let next = super::file(folder, ".deb")?;
    service::used(&first, &next, folder)?;
    Ok(Tried::Well(format!(
        "dpkg -i FILE; {checked}used by a person; the unit killed with -9 and its task found and finished; upgraded under a task, which was \
         not interrupted; stopped, removed, installed again, purged"
    )))
}
