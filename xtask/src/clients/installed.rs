//! The clients of `clients.json`, and what they need: packages of npm, Python environments, a build.
//!
//! Called by `clients` and `pairings`. It installs below the target folder, and starts nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use serde_json::Value;

use crate::{
    Outcome,
    pinned::{self, Npm},
    program::Program,
    workspace::{items, json, root, text},
};

use super::{EVERY, RIG, side_by_side};

/// The client that is a page.
const PAGE: &str = "inspector-web.mjs";

/// How a client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// The one server of all.
    Http,
    /// A server that the client starts, for itself.
    Stdio,
    /// A pipe that the client starts, into a server in the background.
    Pipe,
}

impl Transport {
    fn named(name: &str) -> Result<Transport, String> {
        match name {
            "http" => Ok(Transport::Http),
            "stdio" => Ok(Transport::Stdio),
            "pipe" => Ok(Transport::Pipe),
            _ => Err(format!("`clients.json`: unknown transport `{name}`")),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
            Transport::Pipe => "pipe",
        }
    }
}

/// One client of `clients.json`.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) name: String,
    script: String,
    pub(crate) generation: String,
    pub(super) transports: Vec<Transport>,
    pub(super) steps: Vec<String>,
    /// Why it has no step of this name.
    pub(crate) without: BTreeMap<String, String>,
}

impl Client {
    /// All of them.
    ///
    /// # Errors
    /// When the file is not as expected.
    pub(crate) fn all() -> Result<Vec<Client>, String> {
        let file: Value = json(&format!("{RIG}/clients.json"))?;
        items(&file).map(Client::new).collect()
    }

    /// Whether it is a page in a browser.
    pub(crate) fn is_page(&self) -> bool {
        self.script == PAGE
    }

    pub(super) fn new(value: &Value) -> Result<Client, String> {
        let name = text(&value["name"]).to_owned();
        let steps: Vec<String> = items(&value["steps"]).map(|step| text(step).to_owned()).collect();
        let silent = EVERY
            .iter()
            .find(|step| !steps.iter().any(|known| known == *step) && value["without"].get(**step).is_none());
        if let Some(step) = silent {
            return Err(format!(
                "`clients.json`: `{name}` neither has the step `{step}` nor says why not"
            ));
        }
        Ok(Client {
            name,
            script: text(&value["script"]).to_owned(),
            generation: text(&value["generation"]).to_owned(),
            transports: items(&value["transports"])
                .map(|transport| Transport::named(text(transport)))
                .collect::<Result<_, _>>()?,
            steps,
            without: items_by_name(&value["without"]),
        })
    }
}

fn items_by_name(value: &Value) -> BTreeMap<String, String> {
    let members = value.as_object().into_iter().flatten();
    members
        .map(|(name, why)| (name.clone(), text(why).to_owned()))
        .collect()
}

/// What the wanted clients need.
pub(crate) struct Installed {
    node: Option<PathBuf>,
    /// The folder with the scripts in JavaScript, beside their packages.
    modules: Option<PathBuf>,
    /// The interpreter of each script in Python, and the program of each crate.
    programs: BTreeMap<String, PathBuf>,
}

/// A client that needs an interpreter or a build of its own.
struct Part<'a> {
    script: &'a str,
    program: Option<PathBuf>,
}

impl Part<'_> {
    fn install(&mut self) -> Outcome {
        println!("installing what {} needs", self.script);
        let program = match self.script.strip_suffix(".py") {
            Some(stem) => pinned::python(
                &format!("{RIG}/requirements-{stem}.txt"),
                &format!("clients/{stem}"),
            )?,
            None => pinned::built(&format!("{RIG}/{}", self.script), "clients/cargo")?,
        };
        self.program = Some(program);
        Ok(())
    }
}

impl Installed {
    /// Installs it.
    ///
    /// # Errors
    /// When something cannot be fetched or built.
    pub(crate) fn for_clients(clients: &[Client]) -> Result<Installed, String> {
        let scripts: BTreeSet<&str> = clients.iter().map(|client| client.script.as_str()).collect();
        let is_module = |script: &&str| script.ends_with(".mjs");
        let mut parts: Vec<Part<'_>> = scripts
            .iter()
            .filter(|script| !is_module(script))
            .map(|script| Part {
                script,
                program: None,
            })
            .collect();
        let modules = scripts.iter().any(is_module);
        let npm = std::thread::scope(|scope| {
            let npm = scope.spawn(|| modules.then(|| Npm::install(RIG, "clients/npm")).transpose());
            side_by_side(&mut parts, Part::install)?;
            npm.join()
                .unwrap_or_else(|_| Err("installing the packages panicked".to_owned()))
        })?;
        let modules = npm.as_ref().map(scripts_beside_modules).transpose()?;
        Ok(Installed {
            node: npm.as_ref().map(Npm::node),
            modules,
            programs: parts
                .into_iter()
                .filter_map(|part| Some((part.script.to_owned(), part.program?)))
                .collect(),
        })
    }

    /// The program that runs a client's script.
    ///
    /// # Errors
    /// When it was not installed.
    pub(crate) fn program(&self, client: &Client) -> Result<Program, String> {
        let script = client.script.as_str();
        match (self.programs.get(script), &self.node, &self.modules) {
            (Some(program), _, _) if script.ends_with(".py") => {
                let path = root().join(RIG).join(script);
                Ok(Program::new(program).args(["-B"]).args([path]))
            }
            (Some(program), _, _) => Ok(Program::new(program)),
            (None, Some(node), Some(modules)) => Ok(Program::new(node).args([modules.join(script)])),
            (None, _, _) => Err(format!("`{script}` needs what is not installed")),
        }
    }
}

/// The clients in JavaScript, copied to where their packages are: modules are looked for beside the script.
fn scripts_beside_modules(npm: &Npm) -> Result<PathBuf, String> {
    for entry in fs::read_dir(root().join(RIG)).map_err(|error| format!("cannot list `{RIG}`: {error}"))? {
        let path = entry
            .map_err(|error| format!("cannot list `{RIG}`: {error}"))?
            .path();
        let Some(name) = path.file_name() else { continue };
        if path.extension().is_some_and(|ending| ending == "mjs") {
            fs::copy(&path, npm.folder().join(name))
                .map_err(|error| format!("cannot copy `{}`: {error}", path.display()))?;
        }
    }
    Ok(npm.folder().to_path_buf())
}
