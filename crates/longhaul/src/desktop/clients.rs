//! The clients: their names, where each keeps its servers, how it reads them, and how long it waits for a call.
//!
//! What is said of a client here is said with its source in docs/guide/clients.md.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::tree::Format;

/// A client that can be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Vscode,
    Codex,
    Gemini,
    Windsurf,
}

/// A file in which a client keeps its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) format: Format,
    /// The keys that lead to the servers; `*` stands for every key. The first is where a new server goes.
    pub(crate) lists: &'static [&'static [&'static str]],
    /// Whether a file that is not there is made.
    pub(crate) is_made: bool,
}

/// Where a client looks for programs when it is started from the desktop.
const DESKTOP_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
/// VS Code and its kin, by the name of their folder.
const CODES: [&str; 3] = ["Code", "Code - Insiders", "VSCodium"];

/// Where this user's files are, as the environment says.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) home: PathBuf,
    /// Where desktop programs keep their settings.
    pub(crate) settings: PathBuf,
    pub(crate) claude: Option<PathBuf>,
    pub(crate) codex: Option<PathBuf>,
}

impl Home {
    /// From the environment; `None` when `HOME` is not set.
    pub(crate) fn find() -> Option<Home> {
        let path = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let home = path("HOME")?;
        let settings = match std::env::consts::OS {
            "macos" => home.join("Library/Application Support"),
            _ => path("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
        };
        Some(Home {
            claude: path("CLAUDE_CONFIG_DIR"),
            codex: path("CODEX_HOME"),
            home,
            settings,
        })
    }
}

impl Client {
    pub(crate) const ALL: [Client; 7] = [
        Client::ClaudeDesktop,
        Client::ClaudeCode,
        Client::Cursor,
        Client::Vscode,
        Client::Codex,
        Client::Gemini,
        Client::Windsurf,
    ];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "claude-desktop",
            Client::ClaudeCode => "claude-code",
            Client::Cursor => "cursor",
            Client::Vscode => "vscode",
            Client::Codex => "codex",
            Client::Gemini => "gemini",
            Client::Windsurf => "windsurf",
        }
    }

    /// How long it waits for a call unless its entry says otherwise, in seconds; `None` when that is not known, or
    /// for ever.
    pub(super) fn waits(self) -> Option<u32> {
        match self {
            Client::ClaudeDesktop | Client::Cursor | Client::Codex => Some(60),
            Client::Vscode => Some(300),
            Client::Gemini => Some(600),
            Client::ClaudeCode | Client::Windsurf => None,
        }
    }

    /// The key of an entry that says how long this client waits for its calls, and how many of its units are a second.
    pub(super) fn waits_key(self) -> Option<(&'static str, f64)> {
        match self {
            Client::ClaudeCode | Client::Gemini => Some(("timeout", 1_000.0)),
            Client::Codex => Some(("tool_timeout_sec", 1.0)),
            Client::ClaudeDesktop | Client::Cursor | Client::Vscode | Client::Windsurf => None,
        }
    }

    /// What this client calls a server that is a program, where it reads such a word.
    pub(super) fn program_type(self) -> Option<&'static str> {
        match self {
            Client::ClaudeDesktop
            | Client::ClaudeCode
            | Client::Cursor
            | Client::Vscode
            | Client::Windsurf => Some("stdio"),
            // Their `type` is about servers with an address only.
            Client::Codex | Client::Gemini => None,
        }
    }

    /// Where it looks for the programs of its servers; `None` when it is started in a shell and has the shell's.
    pub(crate) fn looks_in(self) -> Option<&'static str> {
        match self {
            Client::ClaudeDesktop | Client::Cursor | Client::Vscode | Client::Windsurf => Some(DESKTOP_PATH),
            Client::ClaudeCode | Client::Codex | Client::Gemini => None,
        }
    }

    /// Whether the `PATH` that it passes on has a folder of that one start in it: a server would be another one each
    /// time, to which nobody comes back.
    pub(super) fn changes_path(self) -> bool {
        match self {
            Client::Codex => true,
            Client::ClaudeDesktop
            | Client::ClaudeCode
            | Client::Cursor
            | Client::Vscode
            | Client::Gemini
            | Client::Windsurf => false,
        }
    }

    /// How its files are written, and where in them the servers are.
    pub(crate) fn reads(self) -> (Format, &'static [&'static [&'static str]]) {
        match self {
            Client::ClaudeDesktop | Client::Cursor | Client::Gemini | Client::Windsurf => {
                (Format::Json, &[&["mcpServers"]])
            }
            Client::ClaudeCode => (Format::Json, &[&["mcpServers"], &["projects", "*", "mcpServers"]]),
            Client::Vscode => (Format::Json, &[&["servers"]]),
            Client::Codex => (Format::Toml, &[&["mcp_servers"]]),
        }
    }

    /// The folder or file that shows that this client is on the machine, and the files of its servers, the first
    /// one first.
    pub(crate) fn places(self, home: &Home) -> Vec<Place> {
        let (format, lists) = self.reads();
        let place = |signs: &Path, file: PathBuf| {
            let is_made = signs.is_dir();
            (is_made || file.exists() || file.is_symlink()).then_some(Place {
                file,
                format,
                lists,
                is_made,
            })
        };
        let in_home = |folder: &str, file: &str| {
            let folder = home.home.join(folder);
            place(&folder, folder.join(file)).into_iter().collect()
        };
        match self {
            Client::ClaudeDesktop => {
                let folder = home.settings.join("Claude");
                place(&folder, folder.join("claude_desktop_config.json"))
                    .into_iter()
                    .collect()
            }
            Client::ClaudeCode => {
                let folder = home.claude.clone().unwrap_or_else(|| home.home.join(".claude"));
                let file = home.claude.as_ref().unwrap_or(&home.home).join(".claude.json");
                place(&folder, file).into_iter().collect()
            }
            Client::Codex => {
                let folder = home.codex.clone().unwrap_or_else(|| home.home.join(".codex"));
                place(&folder, folder.join("config.toml")).into_iter().collect()
            }
            Client::Cursor => in_home(".cursor", "mcp.json"),
            Client::Gemini => in_home(".gemini", "settings.json"),
            Client::Windsurf => in_home(".codeium/windsurf", "mcp_config.json"),
            Client::Vscode => CODES
                .iter()
                .flat_map(|code| codes(&home.settings.join(code).join("User"), lists))
                .collect(),
        }
    }

    /// Where it was looked for.
    pub(crate) fn looked_for(self, home: &Home) -> PathBuf {
        match self {
            Client::ClaudeDesktop => home.settings.join("Claude"),
            Client::ClaudeCode => home.claude.as_ref().unwrap_or(&home.home).join(".claude.json"),
            Client::Cursor => home.home.join(".cursor"),
            Client::Vscode => home.settings.join("Code/User"),
            Client::Codex => home.codex.clone().unwrap_or_else(|| home.home.join(".codex")),
            Client::Gemini => home.home.join(".gemini"),
            Client::Windsurf => home.home.join(".codeium/windsurf"),
        }
    }
}

/// The files of VS Code, or of a kin of it, in its folder of the user.
fn codes(user: &Path, lists: &'static [&'static [&'static str]]) -> Vec<Place> {
    if !user.is_dir() {
        return Vec::new();
    }
    let is_there = |file: &PathBuf| file.exists() || file.is_symlink();
    let place = |file, lists, is_made| Place {
        file,
        format: Format::Json,
        lists,
        is_made,
    };
    let mut places = vec![place(user.join("mcp.json"), lists, true)];
    let mut profiles: Vec<PathBuf> = fs::read_dir(user.join("profiles"))
        .into_iter()
        .flatten()
        .filter_map(|profile| Some(profile.ok()?.path().join("mcp.json")))
        .collect();
    profiles.sort();
    places.extend(
        profiles
            .into_iter()
            .filter(is_there)
            .map(|file| place(file, lists, false)),
    );
    // Where servers were before 1.102.
    let settings = user.join("settings.json");
    if is_there(&settings) {
        places.push(place(settings, &[&["mcp", "servers"]], false));
    }
    places
}
