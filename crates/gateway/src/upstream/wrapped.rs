//! What `longhaul wrap` brings: a command with its folder and its environment, or an address with its headers.
//!
//! Its name is the same in every run, and says nothing that may be secret. `fleet` opens it, `dispatch::wrapping` keeps
//! it as a record. Nothing here starts or stores anything.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use longhaul_engine::process;
use reqwest::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{credentials::variable, dial::Place, stdio::Host};
use crate::config::{Secrets, Upstream, WRAPPED_BYTES_MAX, Words, address};

/// A server as somebody brought it. `Debug` shows neither arguments nor values.
#[derive(Clone, PartialEq, Eq)]
pub enum Brought {
    /// A program.
    Program(Program),
    /// A server at an address.
    Remote(Remote),
}

/// A program as it is to be started.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The command, its own name included.
    pub argv: Vec<OsString>,
    /// The folder to run in. Absolute.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
}

/// An address as it is to be reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// The address.
    pub url: String,
    /// The headers of every request, in the order of their names.
    pub headers: Vec<(String, String)>,
}

/// Why something cannot be wrapped.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("what is to be wrapped cannot be read")]
    Garbled,
    /// There is no program.
    #[error("there is no program to start")]
    Empty,
    /// The folder is a relative one.
    #[error("the folder to run in is not an absolute path")]
    Relative,
    /// It is too large.
    #[error("the command and its environment have {0} bytes, and {WRAPPED_BYTES_MAX} is the most")]
    TooLarge(usize),
    /// The address is none.
    #[error("{0}")]
    Address(String),
    /// A header that no request may have.
    #[error("the header `{0}` cannot be sent: its name or its value holds what no header may")]
    Header(String),
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Brought").field(&self.called()).finish()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    argv: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cwd: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

impl Brought {
    /// As JSON; bytes that need not be text are base64.
    pub fn encode(&self) -> Vec<u8> {
        let coded = |text: &OsStr| STANDARD.encode(text.as_bytes());
        let stored = match self {
            Brought::Program(Program { argv, cwd, env }) => Stored {
                argv: argv.iter().map(|word| coded(word)).collect(),
                cwd: coded(cwd.as_os_str()),
                env: env
                    .iter()
                    .map(|(name, value)| (coded(name), coded(value)))
                    .collect(),
                url: None,
                headers: Vec::new(),
            },
            Brought::Remote(Remote { url, headers }) => Stored {
                argv: Vec::new(),
                cwd: String::new(),
                env: Vec::new(),
                url: Some(url.clone()),
                headers: headers.clone(),
            },
        };
        serde_json::to_vec(&stored).expect("texts always serialize")
    }

    /// What [`Brought::encode`] wrote.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn decode(encoded: &[u8]) -> Result<Brought, Unusable> {
        let stored: Stored = serde_json::from_slice(encoded).map_err(|_| Unusable::Garbled)?;
        let raw = |text: &str| {
            let bytes = STANDARD.decode(text).map_err(|_| Unusable::Garbled)?;
            Ok::<_, Unusable>(OsString::from_vec(bytes))
        };
        let brought = match stored.url {
            Some(url) => Brought::Remote(Remote {
                url,
                headers: stored.headers,
            }),
            None => Brought::Program(Program {
                argv: stored
                    .argv
                    .iter()
                    .map(|word| raw(word))
                    .collect::<Result<_, _>>()?,
                cwd: raw(&stored.cwd)?.into(),
                env: stored
                    .env
                    .iter()
                    .map(|(name, value)| Ok((raw(name)?, raw(value)?)))
                    .collect::<Result<_, Unusable>>()?,
            }),
        };
        brought.check()?;
        Ok(brought)
    }

    /// Whether it may be wrapped.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn check(&self) -> Result<(), Unusable> {
        let bytes = match self {
            Brought::Program(Program { argv, cwd, env }) => {
                if argv.first().is_none_or(|program| program.is_empty()) {
                    return Err(Unusable::Empty);
                }
                if !cwd.is_absolute() {
                    return Err(Unusable::Relative);
                }
                let texts = argv
                    .iter()
                    .chain(env.iter().flat_map(|(name, value)| [name, value]));
                texts.map(|text| text.len() + 1).sum::<usize>()
            }
            Brought::Remote(Remote { url, headers }) => {
                address(url).map_err(Unusable::Address)?;
                for (name, value) in headers {
                    let fits = HeaderName::from_bytes(name.as_bytes()).is_ok()
                        && HeaderValue::from_str(value).is_ok();
                    if !fits {
                        return Err(Unusable::Header(longhaul_mcp::clean(name, 60)));
                    }
                }
                let headers = headers.iter().map(|(name, value)| name.len() + value.len());
                url.len() + headers.sum::<usize>()
            }
        };
        match bytes > WRAPPED_BYTES_MAX {
            true => Err(Unusable::TooLarge(bytes)),
            false => Ok(()),
        }
    }

    /// Its name: what it is called, and a digest of all that makes it another server. The digest is keyed, so nobody
    /// can try out from the name what a secret in the environment is.
    pub fn name(&self, key: &[u8; 32]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key fits");
        let mut part = |bytes: &[u8]| {
            mac.update(&(bytes.len() as u64).to_be_bytes());
            mac.update(bytes);
        };
        match self {
            Brought::Program(Program { argv, cwd, env }) => {
                part(b"program");
                argv.iter().for_each(|word| part(word.as_bytes()));
                part(b"\0folder");
                part(cwd.as_os_str().as_bytes());
                let mut lasting: Vec<_> = env.iter().filter(|(name, _)| !is_of_window(name)).collect();
                lasting.sort();
                for (name, value) in lasting {
                    part(name.as_bytes());
                    part(value.as_bytes());
                }
            }
            Brought::Remote(Remote { url, headers }) => {
                part(b"remote");
                part(url.as_bytes());
                for (name, value) in headers {
                    part(name.to_ascii_lowercase().as_bytes());
                    part(value.as_bytes());
                }
            }
        }
        let digest = mac.finalize().into_bytes();
        let letters = digest.iter().take(DIGEST_LETTERS).map(|byte| {
            let at = usize::from(byte % 32);
            char::from(CROCKFORD[at])
        });
        format!("{}-{}", self.called(), letters.collect::<String>())
    }

    /// Whether both are the same command, or the same address: what one defined, the other most likely does, too.
    pub(super) fn is_like(&self, other: &Brought) -> bool {
        match (self, other) {
            (Brought::Program(own), Brought::Program(other)) => own.argv == other.argv,
            (Brought::Remote(own), Brought::Remote(other)) => own.url == other.url,
            (Brought::Program(_), Brought::Remote(_)) | (Brought::Remote(_), Brought::Program(_)) => false,
        }
    }

    /// The settings of such a server: all are the defaults.
    pub(super) fn settings(&self, name: &str) -> Upstream {
        let mut settings = Upstream::wrapped(name.to_owned());
        match self {
            Brought::Program(Program { argv, cwd, .. }) => {
                let words = argv.iter().map(|word| word.to_string_lossy().into_owned());
                settings.command = Words(words.collect());
                settings.folder.clone_from(cwd);
            }
            Brought::Remote(Remote { url, headers }) => {
                settings.url = Some(url.clone());
                settings.headers = Secrets(headers.iter().cloned().collect());
            }
        }
        settings
    }

    /// Where a program is; `None` for one at an address.
    pub(super) fn place(&self, settings: &Upstream, host: &Arc<Host>) -> Option<Place> {
        let Brought::Program(Program { argv, cwd, env }) = self else {
            return None;
        };
        let program = super::stdio::Program {
            server: settings.name.clone(),
            command: argv.clone(),
            folder: cwd.clone(),
            cwd: cwd.clone(),
            env: env.clone(),
            memory_max: None,
            nice: u8::try_from(settings.nice).unwrap_or(0),
        };
        Some(Place::Program(program, Arc::clone(host)))
    }

    /// What else its user should know where it cannot be started: what is searched for it, and where it is.
    pub fn hint(&self) -> Option<String> {
        let Brought::Program(Program { argv, cwd, env }) = self else {
            return None;
        };
        let program = argv.first()?;
        let path = variable(env, "PATH").unwrap_or_default();
        process::resolve(program, path, cwd).err()?;
        let mut lines = vec![format!("PATH here: {}", path.display())];
        let home = variable(env, "HOME").map(PathBuf::from);
        let found = home.as_deref().and_then(|home| found_in_home(home, program));
        lines.push(match found {
            Some(found) => format!(
                "It is in `{}`: write that full path after `longhaul wrap --`, or let `longhaul install` write it",
                found.display()
            ),
            None => "A client that was started from the desktop does not have the PATH of your shell: write the full \
                     path of the program after `longhaul wrap --`, or let `longhaul install` write it"
                .to_owned(),
        });
        Some(lines.join("\n"))
    }

    /// What people call it: the package or the script rather than what runs it.
    fn called(&self) -> String {
        let word = match self {
            Brought::Program(Program { argv, .. }) => package(argv),
            Brought::Remote(Remote { url, .. }) => url::Url::parse(url)
                .ok()
                .and_then(|url| url.host_str().map(str::to_owned)),
        };
        let mut called = String::new();
        for c in word.unwrap_or_default().chars() {
            match c {
                c if c.is_ascii_alphanumeric() => called.push(c),
                _ if called.is_empty() || called.ends_with(['-', '_']) => {}
                '_' => called.push('_'),
                _ => called.push('-'),
            }
        }
        called.truncate(CALLED_MAX);
        match called.trim_end_matches(['-', '_']) {
            "" => "server".to_owned(),
            called => called.to_owned(),
        }
    }
}

/// The longest name of what is wrapped, in characters; with the digest it is as long as a server's name may be.
const CALLED_MAX: usize = 32 - 1 - DIGEST_LETTERS;
/// The letters of the digest, five bits each.
const DIGEST_LETTERS: usize = 8;
const CROCKFORD: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Programs that run another one, whose name says more.
const RUNNERS: &[&str] = &[
    "npx", "bunx", "uvx", "pipx", "node", "bun", "deno", "python", "python3", "uv", "pnpm", "yarn", "npm",
    "docker", "podman", "sh", "bash", "env",
];
/// What a runner is told to do.
const ORDERS: &[&str] = &["run", "dlx", "exec", "x", "tool"];
/// The ends of scripts.
const SCRIPTS: &[&str] = &[".js", ".mjs", ".cjs", ".ts", ".py", ".sh"];

/// The word of a command that names the server. Words that may hold a secret are passed over.
fn package(argv: &[OsString]) -> Option<String> {
    let mut words = argv.iter().map(|word| word.to_string_lossy());
    let program = words.next()?;
    let program = Path::new(&*program).file_name()?.to_string_lossy().into_owned();
    if !RUNNERS.contains(&&*program) {
        return Some(program);
    }
    let says_it = |word: &str| {
        !word.starts_with('-')
            && !word.contains(['=', ' ', '\n'])
            && !word.contains("://")
            && !ORDERS.contains(&word)
    };
    let Some(word) = words.find(|word| says_it(word)) else {
        return Some(program);
    };
    let word = match word.rsplit_once('/') {
        Some((_, name)) if !word.starts_with('@') => name,
        Some(_) | None => &word,
    };
    // `@scope/name@version`
    let at = word.char_indices().skip(1).find(|(_, c)| *c == '@');
    let word = at.map_or(word, |(at, _)| &word[..at]);
    let stem = SCRIPTS.iter().find_map(|end| word.strip_suffix(end));
    Some(stem.unwrap_or(word).to_owned())
}

/// Variables that differ from window to window of one desktop, and say nothing of the server.
const OF_WINDOW: &[&str] = &[
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "COLORTERM",
    "WINDOWID",
    "COLUMNS",
    "LINES",
    "STY",
    "WT_SESSION",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "GPG_TTY",
    "NVIM",
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_PROJECT_DIR",
    "COREPACK_ENABLE_AUTO_PIN",
    "NoDefaultCurrentDirectoryInExePath",
    "CURSOR_TRACE_ID",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
];
const OF_WINDOW_BEGIN: &[&str] = &[
    "TERM",
    "SSH_",
    "TMUX",
    "VSCODE_",
    "KITTY_",
    "WEZTERM_",
    "ALACRITTY_",
    "GNOME_TERMINAL_",
    "ITERM_",
    "XDG_SESSION_",
    "CLAUDE_CODE_",
    "GEMINI_CLI",
    "ELECTRON_",
];
const OF_WINDOW_END: &[&str] = &["_PID", "_SOCK"];

fn is_of_window(name: &OsStr) -> bool {
    let name = name.as_bytes();
    OF_WINDOW.iter().any(|own| own.as_bytes() == name)
        || OF_WINDOW_BEGIN
            .iter()
            .any(|begin| name.starts_with(begin.as_bytes()))
        || OF_WINDOW_END.iter().any(|end| name.ends_with(end.as_bytes()))
}

/// Where users' own programs are, below their home.
const IN_HOME: &[&str] = &[
    ".local/bin",
    ".cargo/bin",
    ".bun/bin",
    ".volta/bin",
    ".deno/bin",
    ".asdf/shims",
    ".local/share/mise/shims",
    "bin",
];
/// The folder of the versions of Node.
const NODES: &str = ".nvm/versions/node";
/// The most versions that are looked at.
const NODES_MAX: usize = 100;

fn found_in_home(home: &Path, program: &OsStr) -> Option<PathBuf> {
    let nodes = std::fs::read_dir(home.join(NODES)).into_iter().flatten();
    let nodes = nodes.take(NODES_MAX).filter_map(Result::ok);
    let mut nodes: Vec<PathBuf> = nodes.map(|node| node.path().join("bin")).collect();
    nodes.sort();
    let others = IN_HOME.iter().map(|folder| home.join(folder));
    let mut folders = nodes.into_iter().rev().chain(others);
    folders.find_map(|folder| process::resolve(program, folder.as_os_str(), home).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(argv: &[&str], env: &[(&str, &str)]) -> Brought {
        Brought::Program(Program {
            argv: argv.iter().map(OsString::from).collect(),
            cwd: "/home/ada".into(),
            env: env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        })
    }

    fn called(argv: &[&str]) -> String {
        program(argv, &[]).called()
    }

    #[test]
    fn a_wrapped_server_is_called_as_people_call_it_and_by_no_secret() {
        for (argv, expected) in [
            (&["npx", "-y", "@playwright/mcp@latest"][..], "playwright-mcp"),
            (
                &["/usr/bin/npx", "@modelcontextprotocol/server-everything"],
                "modelcontextprotocol-se",
            ),
            (&["uvx", "mcp-server-git", "--repository", "."], "mcp-server-git"),
            (&["python3", "-m", "mcp_server_git"], "mcp_server_git"),
            (&["node", "/srv/my server/dist/index.js"], "node"),
            (&["node", "/srv/it/index.js"], "index"),
            (&["/opt/tool/bin/serve__it!", "secret"], "serve_it"),
            (
                &["docker", "run", "-i", "--rm", "ghcr.io/github/server"],
                "server",
            ),
            (
                &["uvx", "--from", "git+https://user:token@host/x", "fetch"],
                "fetch",
            ),
            (&["sh", "-c", "TOKEN=abc exec it"], "sh"),
            (&["..."], "server"),
        ] {
            let called = called(argv);
            assert!(called.starts_with(expected), "{argv:?} {called}");
            let name = program(argv, &[]).name(&[7; 32]);
            assert!(crate::config::is_section_name(&name), "{name}");
        }
    }

    #[test]
    fn the_name_is_that_of_the_command_its_folder_and_what_lasts_of_its_environment() {
        let key = [7; 32];
        let one = program(
            &["it"],
            &[("KEY", "1"), ("TERM", "a"), ("SSH_AUTH_SOCK", "/tmp/a")],
        );
        let same = program(&["it"], &[("SHLVL", "3"), ("KEY", "1"), ("VSCODE_PID", "9")]);
        assert_eq!(one.name(&key), same.name(&key));
        for other in [
            program(&["it", ""], &[("KEY", "1")]),
            program(&["it"], &[("KEY", "2")]),
            program(&["it"], &[("KEY1", "")]),
        ] {
            assert_ne!(one.name(&key), other.name(&key), "{other:?}");
        }
        assert_ne!(one.name(&key), one.name(&[8; 32]), "it is keyed");
    }

    #[test]
    fn what_was_brought_is_read_as_it_was_written_and_nothing_else_is() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'\n', b'"']);
        let brought = Brought::Program(Program {
            argv: vec![odd.clone(), "".into()],
            cwd: "/".into(),
            env: vec![(odd.clone(), odd)],
        });
        assert!(Brought::decode(&brought.encode()).is_ok_and(|read| read == brought));
        let remote = Brought::Remote(Remote {
            url: "https://example.org/mcp".to_owned(),
            headers: vec![("authorization".to_owned(), "Bearer x".to_owned())],
        });
        assert!(Brought::decode(&remote.encode()).is_ok_and(|read| read == remote));
        for bad in [
            &b"{}"[..],
            b"[]",
            br#"{"argv":["aXQ="],"cwd":"aXQ="}"#,
            br#"{"argv":["?"],"cwd":"Lw=="}"#,
            br#"{"url":"https://user:key@example.org"}"#,
            br#"{"url":"https://example.org","headers":[["a b","c"]]}"#,
            br#"{"url":"https://example.org","headers":[["a","b\r\nc"]]}"#,
        ] {
            assert!(Brought::decode(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        let large = program(&["it"], &[("KEY", &"x".repeat(WRAPPED_BYTES_MAX))]);
        assert!(matches!(large.check(), Err(Unusable::TooLarge(_))));
    }
}
