//! What stands around Longhaul: the programs that the servers need, the servers over HTTP, and the configuration.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Outcome,
    pinned::{self, Npm},
    program::Program,
    server::{Server, empty_folder},
    servers,
    workspace::{make_folder, read, root, target, write},
};

use super::{RIG, rows::Row};

/// The longest that a server over HTTP may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a child takes to see that it is over.
const CHILD_MAX: Duration = Duration::from_millis(500);
const RESULTS: &str = "pairings/results";
/// The folder of the servers' work.
const WORK: &str = "work";
/// Where the work of the servers leaves its marks.
const MARKS: &str = "LONGHAUL_PAIRINGS";

/// What `${NAME}` stands for in the files of the rig.
type Values = BTreeMap<String, String>;

/// What stands around Longhaul; it goes when this is dropped.
pub(super) struct Place {
    servers: Vec<Server>,
    /// Where the servers work.
    pub(super) work: PathBuf,
    values: Values,
    /// Where what was started beside Longhaul answers, by the row.
    urls: BTreeMap<String, String>,
}

impl Place {
    /// The folder of the run's results, empty now.
    pub(super) fn results() -> Result<PathBuf, String> {
        over(&target()?.join(RESULTS).join(WORK))?;
        empty_folder(RESULTS)
    }

    /// Installs and starts what these servers need, and writes the configuration of Longhaul into the folder.
    pub(super) fn prepare(rows: &[&Row], results: &Path) -> Result<Place, String> {
        let work = results.join(WORK);
        make_folder(&work)?;
        servers::repository_with_a_commit(&work.join("repository"))?;
        write(&work.join("page.txt"), "a page\n")?;
        let config = sections(&read(&format!("{RIG}/longhaul.toml"))?, rows);
        let starts: Vec<String> = rows.iter().flat_map(|row| row.start.clone()).collect();
        let mut place = Place {
            servers: Vec::new(),
            urls: BTreeMap::new(),
            values: values(&format!("{config} {}", starts.join(" ")), &work)?,
            work,
        };
        let mut filled = String::new();
        for section in config.split("\n\n") {
            let row = rows
                .iter()
                .find(|row| section.starts_with(&format!("[servers.{}]", row.name)));
            let mut section = place.fill(section);
            if let Some(row) = row.filter(|row| !row.start.is_empty()) {
                section = section.replace("${URL}", &place.start(row, results)?);
            }
            filled.push_str(&section);
            filled.push_str("\n\n");
        }
        write(&results.join("longhaul.toml"), &filled)?;
        Ok(place)
    }

    /// Starts a server over HTTP; returns its URL.
    fn start(&mut self, row: &Row, results: &Path) -> Result<String, String> {
        let command: Vec<String> = row.start.iter().map(|word| self.fill(word)).collect();
        let (name, work) = (row.name.clone(), self.work.clone());
        let (head, rest) = command
            .split_first()
            .map(|(head, rest)| (head.clone(), rest.to_vec()))
            .ok_or_else(|| format!("nothing starts {name}"))?;
        let program = move |port: u16| {
            let arguments = rest.iter().map(|word| word.replace("${PORT}", &port.to_string()));
            Program::new(&head)
                .args(arguments)
                .env(MARKS, &work)
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .folder(&work)
        };
        let log = results.join(format!("{}.log", row.name));
        let server = Server::within(START_MAX, Box::new(program), log)?;
        let url = server.url();
        self.servers.push(server);
        self.urls.insert(row.name.clone(), url.clone());
        Ok(url)
    }

    /// A page that this row can fetch.
    pub(super) fn page(&self, row: &Row) -> String {
        let url = self.urls.get(&row.name).map(String::as_str).unwrap_or_default();
        url.replace("/mcp", "/page.txt")
    }

    /// The text with what the names in it stand for.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in &self.values {
            filled = filled.replace(&format!("${{{name}}}"), value);
        }
        filled
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left of a folder that cannot be written goes by itself after some minutes.
        let _ = over(&self.work);
    }
}

/// Ends the children that servers left behind, which would write into the folder.
fn over(work: &Path) -> Outcome {
    if work.exists() {
        write(&work.join("over"), "")?;
        std::thread::sleep(CHILD_MAX);
    }
    Ok(())
}

/// The sections that are about these servers, or about none.
fn sections(config: &str, rows: &[&Row]) -> String {
    let wanted = |section: &&str| {
        let of = section
            .strip_prefix("[servers.")
            .or(section.strip_prefix("[toolsets."));
        let name = of.and_then(|rest| rest.split([']', '.']).next());
        name.is_none_or(|name| rows.iter().any(|row| row.name == name))
    };
    config
        .split("\n\n")
        .filter(wanted)
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Installs something, and says where it is.
type Make<'a> = &'a dyn Fn() -> Result<PathBuf, String>;

/// What the names in a text stand for; only that is installed.
fn values(text: &str, work: &Path) -> Result<Values, String> {
    let npm = || Npm::install("rigs/servers", "servers/npm");
    let python = |stem: &str| {
        pinned::python(
            &format!("rigs/clients/requirements-{stem}.txt"),
            &format!("clients/{stem}"),
        )
    };
    let made: [(&str, Make<'_>); 9] = [
        ("NODE", &|| Ok(npm()?.node())),
        ("MODULES", &|| Ok(npm()?.modules())),
        ("PYTHON", &|| {
            pinned::python("rigs/servers/requirements.txt", "servers/python")
        }),
        ("PYTHON_1", &|| python("python-mcp-1")),
        ("FASTMCP_3", &|| python("fastmcp-3")),
        ("FASTMCP_4", &|| python("fastmcp-4")),
        ("RMCP", &|| pinned::built(&format!("{RIG}/rmcp"), "clients/cargo")),
        ("CHROMIUM", &servers::browser),
        ("WORK", &|| Ok(work.to_path_buf())),
    ];
    let mut values = Values::from([("RIGS".to_owned(), root().join("rigs").display().to_string())]);
    for (name, make) in made {
        if text.contains(&format!("${{{name}}}")) || name == "WORK" {
            values.insert(name.to_owned(), make()?.display().to_string());
        }
    }
    Ok(values)
}
