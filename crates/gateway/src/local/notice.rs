//! Tells the user of this machine, outside of any client, that a question waits.
//!
//! `dispatch` says who asks. A notice holds the names of tool, server and task and the commands that answer, and neither
//! what is asked nor a link to the page: other users of the machine can read the arguments of a program, and the link
//! is a secret.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use longhaul_engine::process::{self, Exit, Input, Limits, Lines, Reason, Spec};
use tokio::time::Instant;

use crate::{config::Notify, question::Asker, upstream::stdio::Host};

/// The most notices in [`WINDOW`]; the last of them says that there are more.
pub const NOTICES_MAX: u32 = 5;
/// See [`NOTICES_MAX`].
pub const WINDOW: Duration = Duration::from_secs(60);
/// How long a program may take to show one.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// The title of each.
const TITLE: &str = "Longhaul: a question waits for you";

/// The program that shows notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file.
    pub file: PathBuf,
    /// Its arguments, its own name included; a title and a text come after them.
    pub argv: Vec<OsString>,
}

/// Why there are no notices; in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNotices {
    /// The user wants none.
    #[error("`local.notify` is `never`")]
    Never,
    /// Nobody sits at a screen of this environment.
    #[error("this environment has no desktop ({0} is not set)")]
    NoDesktop(&'static str),
    /// The desktop's own program is missing.
    #[error("`{0}` is not in the PATH")]
    NoProgram(&'static str),
    /// The configured program cannot be started.
    #[error("cannot {0}")]
    Unstartable(String),
}

impl Program {
    /// What shows notices in this environment. `folder` is where a relative program starts.
    ///
    /// # Errors
    /// Why nothing does.
    pub fn find(notify: &Notify, env: &[(OsString, OsString)], folder: &Path) -> Result<Program, NoNotices> {
        let variable = |name: &str| {
            let found = env.iter().find(|(own, _)| own == name);
            found
                .map(|(_, value)| value.as_os_str())
                .filter(|value| !value.is_empty())
        };
        let path = variable("PATH").unwrap_or_default();
        match notify {
            Notify::Never => Err(NoNotices::Never),
            Notify::Program(words) => {
                let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
                let program = argv.first().map(OsString::as_os_str).unwrap_or_default();
                let file = process::resolve(program, path, folder);
                let file = file.map_err(|error| NoNotices::Unstartable(error.to_string()))?;
                Ok(Program { file, argv })
            }
            Notify::Auto if cfg!(target_os = "macos") => {
                let found = |program| process::resolve(OsStr::new(program), path, folder).ok();
                let file = found("osascript").ok_or(NoNotices::NoProgram("osascript"))?;
                // The texts are arguments of the script and no part of it.
                let script =
                    "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run";
                let argv = ["osascript", "-e", script].map(OsString::from).to_vec();
                Ok(Program { file, argv })
            }
            Notify::Auto => {
                if variable("DISPLAY").is_none() && variable("WAYLAND_DISPLAY").is_none() {
                    return Err(NoNotices::NoDesktop("DISPLAY or WAYLAND_DISPLAY"));
                }
                if variable("DBUS_SESSION_BUS_ADDRESS").is_none() && variable("XDG_RUNTIME_DIR").is_none() {
                    return Err(NoNotices::NoDesktop("DBUS_SESSION_BUS_ADDRESS"));
                }
                let file = process::resolve(OsStr::new("notify-send"), path, folder);
                let file = file.map_err(|_| NoNotices::NoProgram("notify-send"))?;
                let argv = ["notify-send", "--app-name=Longhaul", "--"];
                Ok(Program {
                    file,
                    argv: argv.map(OsString::from).to_vec(),
                })
            }
        }
    }
}

/// Shows notices, not too many. Cheap to clone.
#[derive(Clone)]
pub struct Notifier {
    program: Arc<Program>,
    env: Arc<[(OsString, OsString)]>,
    folder: PathBuf,
    host: Host,
    has_page: bool,
    window: Arc<Mutex<Option<Window>>>,
}

struct Window {
    began: Instant,
    notices: u32,
}

impl Notifier {
    /// A notifier over this program. `has_page`: the server serves the local page.
    pub fn new(
        program: Program,
        env: Vec<(OsString, OsString)>,
        folder: PathBuf,
        host: Host,
        has_page: bool,
    ) -> Notifier {
        Notifier {
            program: Arc::new(program),
            env: env.into(),
            folder,
            host,
            has_page,
            window: Arc::default(),
        }
    }

    /// The program that shows them, for people.
    pub(crate) fn program(&self) -> String {
        self.program.file.display().to_string()
    }

    /// Tells that this tool asks, unless too much was told lately. Returns at once.
    pub(crate) fn tell(&self, asker: &Asker) {
        let text = match self.room() {
            0 => return tracing::debug!("too many notices; one of a question is left out"),
            1 => "More questions wait. See them with: longhaul tasks".to_owned(),
            _ => text(asker, self.has_page),
        };
        let own = self.clone();
        tokio::spawn(async move {
            if let Err(why) = own.show(text).await {
                tracing::warn!("a notice of a question could not be shown: {why}");
            }
        });
    }

    /// How many notices there is room for, this one included.
    fn room(&self) -> u32 {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let current = window
            .take()
            .filter(|window| now.duration_since(window.began) < WINDOW);
        let (began, notices) = current.map_or((now, 0), |window| (window.began, window.notices));
        *window = Some(Window {
            began,
            notices: (notices + 1).min(NOTICES_MAX),
        });
        NOTICES_MAX - notices
    }

    async fn show(&self, text: String) -> Result<(), String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut argv = self.program.argv.clone();
        argv.extend([TITLE.into(), text.into()]);
        let spec = Spec {
            program: self.program.file.clone(),
            argv,
            cwd: self.folder.clone(),
            env: self.env.to_vec(),
            input: Input::Nothing,
            timeout: Some(SHOWN_WITHIN),
            idle_timeout: None,
            memory_max: None,
            nice: 0,
            grace: self.host.grace,
            limits: Limits {
                output_max: 4 << 10,
                spill_max: 0,
                ..Limits::default()
            },
            lines: Lines::Neither,
            mark: format!("notice {}", COUNT.fetch_add(1, Ordering::Relaxed)),
            runner: self.host.runner.clone(),
            attempt: 1,
            idempotency_key: None,
            spool: self.host.spool.clone(),
            shim: self.host.shim.clone(),
        };
        let (facts, _orders) = process::start(spec).await.map_err(|error| error.to_string())?;
        let ended = facts.ended().await.ok_or("its program was lost")?;
        match (ended.reason, ended.exit) {
            (Reason::Exited, Some(Exit::Code(0))) => Ok(()),
            (Reason::Exited, Some(Exit::Code(code))) => Err(format!("its program exited with code {code}")),
            (Reason::TimedOut, _) => Err("its program took longer than 10 s".to_owned()),
            (Reason::Exited | Reason::Idle | Reason::Stopped | Reason::OutOfMemory | Reason::ShimLost, _) => {
                Err("its program was ended".to_owned())
            }
        }
    }
}

/// Who asks, and how to answer. Desktops read markup in it, so of names only plain characters are kept.
fn text(asker: &Asker, has_page: bool) -> String {
    let plain = |name: &str| -> String {
        let is_plain = |c: char| c.is_alphanumeric() || " _-.:/".contains(c);
        name.chars()
            .map(|c| if is_plain(c) { c } else { '_' })
            .take(NAME_CHARS_MAX)
            .collect()
    };
    let (tool, task) = (plain(&asker.tool), plain(&asker.task));
    let server = asker.server.as_deref().map(plain);
    let server = server
        .map(|server| format!(" of the server {server}"))
        .unwrap_or_default();
    let page = match has_page {
        true => format!(", or: longhaul page {task}"),
        false => String::new(),
    };
    format!("{tool}{server} asks, in task {task}. Answer with: longhaul answer {task}{page}")
}

/// The most characters of a name in a notice.
const NAME_CHARS_MAX: usize = 60;
