//! The packages of npm: `longhaul`, a launcher, which asks for the package of its platform, which has the binary.
//!
//! Called by `packages`. No script runs when they are installed, and nothing is fetched.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    Tried,
    contents::{Contents, executable, processors},
    file,
    first_task::{Installed, first_task},
};
use crate::{
    Outcome,
    program::Program,
    workspace::{make_folder, read, write},
};

const ABOUT: &str = "Longhaul makes long MCP tool calls durable.";

pub(super) fn build(contents: &Contents, work: &Path, out: &Path) -> Outcome {
    let platform = format!("linux-{}", contents.platform.npm);
    let folder = work.join(&platform);
    let package = json!({
        "name": format!("@longhaul/{platform}"),
        "version": contents.version,
        "description": format!("{ABOUT} The binary for {platform}."),
        "license": "MIT OR Apache-2.0",
        "repository": contents.repository,
        "os": ["linux"],
        "cpu": [contents.platform.npm],
        "libc": ["glibc"],
        "preferUnplugged": true,
        "files": ["bin", "LICENSE-*", "THIRD-PARTY.md"],
    });
    contents.put_program(&folder.join("bin/longhaul"))?;
    contents.put_licences(&folder, true)?;
    write(
        &folder.join("README.md"),
        &format!("# @longhaul/{platform}\n\nThe binary of Longhaul for this platform; install `longhaul`.\n"),
    )?;
    packed(&folder, &package, work, out)?;

    let folder = work.join("longhaul");
    let platforms: Vec<String> = processors()
        .map(|processor| format!("linux-{processor}"))
        .collect();
    let binaries: serde_json::Map<String, Value> = platforms
        .iter()
        .map(|platform| (format!("@longhaul/{platform}"), json!(contents.version)))
        .collect();
    let package = json!({
        "name": "longhaul",
        "version": contents.version,
        "description": ABOUT,
        "keywords": ["mcp", "model-context-protocol", "tasks"],
        "license": "MIT OR Apache-2.0",
        "repository": contents.repository,
        "bin": { "longhaul": "bin/longhaul.js" },
        "engines": { "node": ">=18" },
        "files": ["bin", "LICENSE-*"],
        "optionalDependencies": binaries,
    });
    make_folder(&folder.join("bin"))?;
    let launcher = read("packaging/npm/longhaul.js")?.replace("PLATFORMS", &platforms.join(" and "));
    write(&folder.join("bin/longhaul.js"), &launcher)?;
    executable(&folder.join("bin/longhaul.js"))?;
    contents.put_licences(&folder, false)?;
    write(&folder.join("README.md"), &read("packaging/npm/README.md")?)?;
    packed(&folder, &package, work, out)
}

fn packed(folder: &Path, package: &Value, work: &Path, out: &Path) -> Outcome {
    write(&folder.join("package.json"), &format!("{package:#}\n"))?;
    npm(&work.join("cache"))
        .args(["pack", "--silent", "--pack-destination"])
        .args([out])
        .folder(folder)
        .quiet()
        .run()
}

/// npm without a network, and with an empty cache of its own.
fn npm(cache: &Path) -> Program {
    Program::new("npm")
        .env("npm_config_cache", cache)
        .env("npm_config_offline", "true")
        .env("npm_config_update_notifier", "false")
}

pub(super) fn tried(contents: &Contents, out: &Path, folder: &Path) -> Result<Tried, String> {
    let cache = folder.join("cache");
    let main = file(out, &format!("/longhaul-{}.tgz", contents.version))?;
    let binary = file(
        out,
        &format!("-linux-{}-{}.tgz", contents.platform.npm, contents.version),
    )?;
    let install = |folder: &Path, files: &[&Path]| {
        make_folder(folder)?;
        write(&folder.join("package.json"), "{ \"private\": true }\n")?;
        npm(&cache)
            .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
            .args(files)
            .folder(folder)
            .quiet()
            .run()
    };
    let alone = folder.join("without-the-binary");
    install(&alone, &[&main])?;
    let launched = Installed::new(Path::new("npx"), &["longhaul"], &alone)?;
    let refused = launched.fails(&["--version"])?;
    if !refused.contains("is not installed") {
        return Err(format!(
            "without the platform's package the launcher says: {refused}"
        ));
    }
    let project = folder.join("project");
    install(&project, &[&main, &binary])?;
    Installed::new(Path::new("npx"), &["longhaul"], &project)?.speaks_mcp()?;
    // Not through npx, which ends at a signal and leaves what it has started.
    let launcher = project.join("node_modules/.bin/longhaul");
    let done = first_task(&Installed::new(&launcher, &[], &project)?)?;
    Ok(Tried::Well(format!("npm install FILES; npx longhaul; {done}")))
}
