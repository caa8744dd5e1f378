//! The Python wheel `longhaul-mcp`: the binary as a script, and no Python.
//!
//! Called by `packages`. `wheel pack` writes the archive and its `RECORD`, so that every package has the same binary;
//! maturin would build one of its own.

use std::path::Path;

use super::{
    Tried,
    contents::{Contents, THIRD_PARTY, executable, plain_modes},
    file,
    first_task::{Installed, first_task},
};
use crate::{
    Outcome, pinned,
    program::Program,
    workspace::{make_folder, read, write},
};

const PINS: &str = "packaging/python/requirements.txt";
const NAME: &str = "longhaul_mcp";

pub(super) fn build(contents: &Contents, work: &Path, out: &Path) -> Outcome {
    let name = format!("{NAME}-{}", contents.version);
    let folder = work.join(&name);
    let scripts = folder.join(format!("{name}.data/scripts"));
    contents.put_program(&scripts.join("longhaul"))?;
    let called = scripts.join("longhaul-mcp");
    write(&called, &read("packaging/python/longhaul-mcp")?)?;
    let about = folder.join(format!("{name}.dist-info"));
    contents.put_licences(&about.join("licenses"), true)?;
    let metadata = format!(
        "Metadata-Version: 2.4\nName: longhaul-mcp\nVersion: {}\nSummary: Longhaul makes long MCP tool calls durable.\n\
         Keywords: mcp,model-context-protocol,tasks\nLicense-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-APACHE\n\
         License-File: LICENSE-MIT\nLicense-File: {THIRD_PARTY}\nProject-URL: Repository, {}\n\
         Classifier: Operating System :: POSIX :: Linux\nClassifier: Programming Language :: Rust\n\
         Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{}",
        contents.version,
        contents.repository,
        read("packaging/python/README.md")?
    );
    write(&about.join("METADATA"), &metadata)?;
    let (major, minor) = contents.glibc;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{}", contents.platform.wheel);
    write(
        &about.join("WHEEL"),
        &format!("Wheel-Version: 1.0\nGenerator: longhaul xtask\nRoot-Is-Purelib: false\nTag: {tag}\n"),
    )?;
    plain_modes(&folder)?;
    for script in ["longhaul", "longhaul-mcp"] {
        executable(&scripts.join(script))?;
    }
    let python = pinned::python(PINS, "packages/python")?;
    contents
        .dated(Program::new(python))
        .args(["-m", "wheel", "pack", "--dest-dir"])
        .args([out])
        .args([&folder])
        .quiet()
        .run()
}

pub(super) fn tried(_: &Contents, out: &Path, folder: &Path) -> Result<Tried, String> {
    let wheel = file(out, ".whl")?;
    let environment = folder.join("environment");
    Program::new("python3")
        .args(["-m", "venv"])
        .args([&environment])
        .run()?;
    Program::new(environment.join("bin/python"))
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-index",
        ])
        .args([&wheel])
        .run()?;
    let installed = Installed::new(&environment.join("bin/longhaul"), &[], folder)?;
    let done = first_task(&installed)?;
    let called = Installed::new(&environment.join("bin/longhaul-mcp"), &[], folder)?;
    called.says(&["--version"])?;

    let uv = pinned::python(PINS, "packages/python")?.with_file_name("uvx");
    let place = folder.join("uv");
    make_folder(&place)?;
    let from = wheel.to_string_lossy();
    for command in ["longhaul", "longhaul-mcp"] {
        let words = [
            "--offline",
            "--no-index",
            "--no-config",
            "--quiet",
            "--from",
            &from,
            command,
        ];
        let run = Installed::new(&uv, &words, &place)?;
        run.speaks_mcp()?;
    }
    let tag = wheel.file_stem().unwrap_or_default().to_string_lossy();
    let tag = tag.rsplit('-').next().unwrap_or_default();
    Ok(Tried::Well(format!(
        "pip install FILE ({tag}); uvx --from FILE; {done}"
    )))
}
