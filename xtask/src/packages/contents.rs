//! What every package holds: the stripped binary, both licences, and what there is to say of the software of others.
//!
//! Called by `packages`, once for all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    Outcome,
    program::Program,
    workspace::{items, make_empty, make_folder, metadata, read, root, text, write},
};

/// The file that names the software of others.
pub(super) const THIRD_PARTY: &str = "THIRD-PARTY.md";
const LICENCES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];
/// How the names of files with a licence begin.
const LICENCE_NAMES: &[&str] = &["license", "licence", "copying", "notice", "unlicense"];
/// How far below a crate's folder such a file may be: sources in C bring theirs.
const DEPTH_MAX: usize = 2;

/// What every package holds.
pub(super) struct Contents {
    folder: PathBuf,
    /// The version of the workspace.
    pub(super) version: String,
    /// The repository, as the workspace names it.
    pub(super) repository: String,
    /// The newest version of the C library that the binary asks for.
    pub(super) glibc: (u32, u32),
    /// When it was made, in seconds since 1970: nothing in a package is newer.
    pub(super) epoch: u64,
    /// The platform.
    pub(super) platform: &'static Platform,
}

/// A platform, by the names that each kind of package gives it.
pub(super) struct Platform {
    rust: &'static str,
    pub(super) npm: &'static str,
    pub(super) wheel: &'static str,
    pub(super) deb: &'static str,
}

const PLATFORMS: &[Platform] = &[
    Platform {
        rust: "x86_64",
        npm: "x64",
        wheel: "x86_64",
        deb: "amd64",
    },
    Platform {
        rust: "aarch64",
        npm: "arm64",
        wheel: "aarch64",
        deb: "arm64",
    },
];

/// The processors of all platforms, as npm calls them.
pub(super) fn processors() -> impl Iterator<Item = &'static str> {
    PLATFORMS.iter().map(|platform| platform.npm)
}

impl Contents {
    /// Gathers it in a folder.
    ///
    /// # Errors
    /// When the binary is of no platform that there are packages for, needs a library that they do not ask for, or a
    /// crate in it names no licence.
    pub(super) fn gather(binary: &Path, folder: &Path) -> Result<Contents, String> {
        make_empty(folder)?;
        let platform = PLATFORMS
            .iter()
            .find(|platform| platform.rust == env::consts::ARCH);
        let platform = platform
            .filter(|_| env::consts::OS == "linux")
            .ok_or("there are packages for Linux on x86-64 and arm64 only")?;
        let program = folder.join("longhaul");
        copy(binary, &program)?;
        Program::new("strip").args([&program]).run()?;
        executable(&program)?;
        let metadata = metadata(true)?;
        let ours = items(&metadata["packages"]).find(|package| text(&package["name"]) == "longhaul");
        let ours = ours.ok_or("the workspace has no crate `longhaul`")?;
        let contents = Contents {
            folder: folder.to_path_buf(),
            version: text(&ours["version"]).to_owned(),
            repository: text(&ours["repository"]).to_owned(),
            glibc: glibc(&program)?,
            epoch: epoch()?,
            platform,
        };
        for name in LICENCES {
            write(&folder.join(name), &read(name)?)?;
        }
        write(
            &contents.third_party(),
            &third_party(&metadata, &contents.version)?,
        )?;
        Ok(contents)
    }

    /// The binary.
    pub(super) fn program(&self) -> PathBuf {
        self.folder.join("longhaul")
    }

    /// Copies the binary.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn put_program(&self, path: &Path) -> Outcome {
        copy(&self.program(), path)?;
        executable(path)
    }

    /// What there is to say of the software of others.
    pub(super) fn third_party(&self) -> PathBuf {
        self.folder.join(THIRD_PARTY)
    }

    /// Copies the licences, and with the binary what there is to say of the software of others.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn put_licences(&self, folder: &Path, with_third_party: bool) -> Outcome {
        make_folder(folder)?;
        let third_party = with_third_party.then_some(&THIRD_PARTY);
        LICENCES
            .iter()
            .chain(third_party)
            .try_for_each(|name| copy(&self.folder.join(name), &folder.join(name)))
    }

    /// The moment that archives are to name, for programs that ask the environment.
    pub(super) fn dated(&self, program: Program) -> Program {
        program.env("SOURCE_DATE_EPOCH", self.epoch.to_string())
    }
}

/// Copies a file; the folders above it are made.
///
/// # Errors
/// When it cannot be written.
pub(super) fn copy(from: &Path, to: &Path) -> Outcome {
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
    }
    fs::copy(from, to)
        .map(|_| ())
        .map_err(|error| format!("cannot copy `{}` to `{}`: {error}", from.display(), to.display()))
}

/// Everybody may run it, and only its owner change it.
///
/// # Errors
/// When the system refuses.
pub(super) fn executable(path: &Path) -> Outcome {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("cannot change `{}`: {error}", path.display()))
}

/// Folders and files as everybody may read them, whatever this machine's mask is.
///
/// # Errors
/// When the system refuses.
pub(super) fn plain_modes(folder: &Path) -> Outcome {
    let refused = |error: std::io::Error| format!("cannot change `{}`: {error}", folder.display());
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(refused)?;
    for entry in fs::read_dir(folder).map_err(refused)?.flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => plain_modes(&path)?,
            false => fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(refused)?,
        }
    }
    Ok(())
}

/// `SOURCE_DATE_EPOCH`, else the time of the last commit.
fn epoch() -> Result<u64, String> {
    let said = match env::var("SOURCE_DATE_EPOCH") {
        Ok(said) => said,
        Err(_) => Program::new("git")
            .args(["log", "-1", "--format=%ct"])
            .folder(&root())
            .output()?,
    };
    said.trim()
        .parse()
        .map_err(|_| format!("`{}` is no time in seconds since 1970", said.trim()))
}

/// The newest version of the C library that the binary names. It may need no other library than those that come with it.
fn glibc(program: &Path) -> Result<(u32, u32), String> {
    let needed = Program::new("readelf")
        .args(["--dynamic", "--wide"])
        .args([program])
        .output()?;
    let needed = needed.lines().filter(|line| line.contains("(NEEDED)"));
    for library in needed.filter_map(|line| line.split(['[', ']']).nth(1)) {
        let known = ["libc.so.", "libm.so.", "libgcc_s.so.", "ld-linux"];
        if !known.iter().any(|known| library.starts_with(known)) {
            return Err(format!(
                "the binary needs `{library}`, which the packages do not ask for"
            ));
        }
    }
    let versions = Program::new("readelf")
        .args(["--version-info", "--wide"])
        .args([program])
        .output()?;
    newest(&versions).ok_or_else(|| "the binary names no version of the C library".to_owned())
}

/// The highest `GLIBC_2.N` in a text.
fn newest(versions: &str) -> Option<(u32, u32)> {
    let named = versions.split("GLIBC_").skip(1);
    let numbers = named.filter_map(|after| {
        let mut numbers = after.split(|letter: char| !letter.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    numbers.max()
}

/// One crate of others that is in the binary.
struct Other {
    name: String,
    licence: String,
    texts: Vec<String>,
}

/// Every crate in the binary, its licence, and the texts that come with it.
fn third_party(metadata: &serde_json::Value, version: &str) -> Result<String, String> {
    let inside = inside()?;
    let mut others = Vec::new();
    for package in items(&metadata["packages"]) {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        if !inside.contains(&name) || package["source"].is_null() {
            continue;
        }
        let licence = text(&package["license"]).to_owned();
        if licence.is_empty() {
            return Err(format!("the crate {name} names no licence"));
        }
        let folder = Path::new(text(&package["manifest_path"]))
            .parent()
            .unwrap_or(Path::new("/"));
        let texts = licence_texts(folder, DEPTH_MAX)?;
        others.push(Other { name, licence, texts });
    }
    others.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(page(&others, version))
}

fn page(others: &[Other], version: &str) -> String {
    let mut page = format!(
        "# Software of others in Longhaul {version}\n\n\
         Longhaul itself is licensed under MIT or Apache 2.0, at your choice. Its binary holds these {} crates, under the\n\
         licences that they name. `libsqlite3-sys` brings SQLite, which is in the public domain.\n\n\
         | crate | licence |\n|---|---|\n",
        others.len()
    );
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for other in others {
        // Writing to a string does not fail.
        let _ = writeln!(page, "| {} | {} |", other.name, other.licence);
        for text in &other.texts {
            texts.entry(text).or_default().push(&other.name);
        }
    }
    let without: Vec<&str> = others
        .iter()
        .filter(|other| other.texts.is_empty())
        .map(|other| other.name.as_str())
        .collect();
    let _ = writeln!(
        page,
        "\nThese bring no text of their licence: {}.",
        without.join(", ")
    );
    for (text, names) in texts {
        let _ = write!(page, "\n## {}\n\n````\n{text}\n````\n", names.join(", "));
    }
    page
}

/// The crates of the binary, as `name version`.
fn inside() -> Result<BTreeSet<String>, String> {
    let tree = Program::cargo()
        .args([
            "tree", "--locked", "-p", "longhaul", "-e", "normal", "--prefix", "none", "--format", "{p}",
        ])
        .output()?;
    let names = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name} {}", rest.split_whitespace().next()?))
    });
    Ok(names.collect())
}

/// The texts of the files below a folder whose names say that they hold a licence.
fn licence_texts(folder: &Path, depth: usize) -> Result<Vec<String>, String> {
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot list `{}`: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut texts = Vec::new();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if path.is_dir() && depth > 1 {
            texts.extend(licence_texts(&path, depth - 1)?);
        } else if path.is_file() && LICENCE_NAMES.iter().any(|start| name.starts_with(start)) {
            let bytes =
                fs::read(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
            texts.push(text.trim_matches('\n').to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_version_is_the_highest_by_number() {
        let said = "Name: GLIBC_2.9  Flags: none\nName: GLIBC_2.34  x\nName: GLIBC_2.3.4\nName: GCC_3.0";
        assert_eq!(newest(said), Some((2, 34)));
        assert_eq!(newest("Name: GCC_3.0"), None);
    }
}
