//! `result = "files"`: the files that a program left, as blocks of its result.
//!
//! Called after the program ended. It follows no symbolic link and never leaves the tool's folder.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde_json::{Value as Json, json};

use super::Command;
use crate::config::Bytes;

/// The most folder entries that are looked at.
const ENTRIES_MAX: usize = 100_000;
/// How deep folders are looked into.
const DEPTH_MAX: usize = 32;

/// One block for each file that matches, and a line that says how many.
pub(super) fn blocks(command: &Command) -> Result<Vec<Json>, String> {
    let root = command.cwd();
    let mut walk = Walk {
        patterns: &command.tool.files,
        root: &root,
        found: Vec::new(),
        entries: 0,
    };
    walk.folder(&root, 0);
    let mut found = walk.found;
    found.sort();
    if found.is_empty() {
        return Err(format!(
            "`{}` left no file that matches {}.",
            command.shown,
            command.tool.files.join(", ")
        ));
    }
    let total = found.len();
    found.truncate(command.host.limits.files_max as usize);
    let mut blocks = vec![summary(total, found.len())];
    let mut room = command.room() / 2;
    for path in found {
        blocks.push(block(command, &root, &path, &mut room));
    }
    Ok(blocks)
}

fn summary(total: usize, named: usize) -> Json {
    let rest = if total > named {
        format!("; {} more are not named here", total - named)
    } else {
        String::new()
    };
    let files = if named == 1 {
        "1 file".to_owned()
    } else {
        format!("{named} files")
    };
    json!({ "type": "text", "text": format!("{files}{rest}") })
}

fn block(command: &Command, root: &Path, path: &Path, room: &mut u64) -> Json {
    let name = path
        .strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned();
    let size = path.metadata().map_or(0, |metadata| metadata.len());
    let uri = format!("file://{}", escaped(path));
    let mime = mime_of(path);
    // Base64 makes a third more of it.
    let cost = size / 3 * 4 + 4;
    if size <= command.host.limits.file_max.0
        && cost <= *room
        && let Ok(bytes) = std::fs::read(path)
        && bytes.len() as u64 <= size
    {
        *room -= cost;
        let mut resource = json!({ "uri": uri, "mimeType": mime });
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => resource["text"] = text.into(),
            Ok(text) => resource["blob"] = base64::engine::general_purpose::STANDARD.encode(text).into(),
            Err(error) => {
                resource["blob"] = base64::engine::general_purpose::STANDARD
                    .encode(error.as_bytes())
                    .into();
            }
        }
        return json!({ "type": "resource", "resource": resource });
    }
    let description = format!("{} on the machine that ran the tool", Bytes(size));
    json!({ "type": "resource_link", "uri": uri, "name": name, "mimeType": mime, "size": size, "description": description })
}

fn mime_of(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("txt" | "log" | "toml" | "rs" | "py" | "sh") => "text/plain",
        Some("md") => "text/markdown",
        Some("csv") => "text/csv",
        Some("html") => "text/html",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        Some("pdf") => "application/pdf",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("svg") => "image/svg+xml",
        Some("zip") => "application/zip",
        Some(_) | None => "application/octet-stream",
    }
}

fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut escaped = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(*byte))
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

struct Walk<'a> {
    patterns: &'a [String],
    root: &'a Path,
    found: Vec<PathBuf>,
    entries: usize,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) {
        let Ok(entries) = folder.read_dir() else { return };
        for entry in entries.flatten() {
            self.entries += 1;
            let Ok(kind) = entry.file_type() else { continue };
            if self.entries > ENTRIES_MAX {
                return;
            }
            if kind.is_dir() && depth < DEPTH_MAX {
                self.folder(&entry.path(), depth + 1);
            } else if kind.is_file() && self.matches(&entry.path()) {
                self.found.push(entry.path());
            }
        }
    }

    fn matches(&self, path: &Path) -> bool {
        let Some(name) = path.strip_prefix(self.root).ok().and_then(Path::to_str) else {
            return false;
        };
        let name: Vec<&str> = name.split('/').collect();
        self.patterns
            .iter()
            .any(|pattern| matches(&pattern.split('/').collect::<Vec<_>>(), &name))
    }
}

/// `**` is any number of folders, `*` any text and `?` any character within one name.
fn matches(pattern: &[&str], name: &[&str]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), _) => matches(rest, name) || (!name.is_empty() && matches(pattern, &name[1..])),
        (Some((&".", rest)), _) => matches(rest, name),
        (Some((first, rest)), Some((own, names))) => {
            let (first, own): (Vec<char>, Vec<char>) = (first.chars().collect(), own.chars().collect());
            one(&first, &own) && matches(rest, names)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// One name, in time proportional to its length times the pattern's.
fn one(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            Some(_) | None => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}
