//! Reaches the user's server, and starts one in the background where there is none.
//!
//! A server of an older version is asked to make way. Whoever starts a server holds a lock meanwhile, so that several
//! commands that find none start one.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use longhaul_gateway::{admin::api::Health, local::socket};
use tokio::time::{Instant, sleep};

use crate::{
    client::Client,
    exit::{Exit, Failure},
    flags::Common,
    places::{self, State},
    screen::tell,
    version::is_newer,
};

/// How long a server that is started may take until it answers, and how long one that makes way may take to free
/// its socket.
const START_MAX: Duration = Duration::from_secs(15);
/// How often it is asked.
const START_EVERY: Duration = Duration::from_millis(50);
/// The reason of a failure to start a server that says on its own why.
pub(crate) const NOT_STARTED: &str = "not_started";

/// The server of this state directory, whether or not it runs.
pub(crate) fn client(common: &Common) -> Result<Client, Failure> {
    Ok(Client::new(State::find(common)?.socket()))
}

/// The server of this state directory; started when nobody answers.
pub(crate) async fn reach(common: &Common) -> Result<Client, Failure> {
    reach_as(common, true, Env::Whole).await
}

/// As [`reach`], for a program that has no person at its terminal.
pub(crate) async fn reach_quietly(common: &Common, env: Env) -> Result<Client, Failure> {
    reach_as(common, false, env).await
}

/// What of this environment a server gets that is started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Env {
    /// All of it: it is the user's.
    Whole,
    /// What is any program's of this user: the rest was set for one server alone.
    Plain,
}

async fn reach_as(common: &Common, tells: bool, env: Env) -> Result<Client, Failure> {
    let state = State::find(common)?;
    let client = Client::new(state.socket());
    match look(&client).await? {
        Found::Server => {}
        Found::Older | Found::Nobody => start(common, &state, &client, tells, env).await?,
    }
    Ok(client)
}

/// Who answers on the socket.
enum Found {
    Server,
    Older,
    Nobody,
}

async fn look(client: &Client) -> Result<Found, Failure> {
    match client.health().await {
        // One that drains already makes way by itself.
        Ok(Health {
            version,
            draining: false,
            ..
        }) if is_newer(env!("CARGO_PKG_VERSION"), &version) => Ok(Found::Older),
        Ok(_) => Ok(Found::Server),
        Err(failure) if failure.exit == Exit::Unreachable => Ok(Found::Nobody),
        Err(failure) => Err(failure),
    }
}

/// Starts a server, unless somebody else just did.
async fn start(
    common: &Common,
    state: &State,
    client: &Client,
    tells: bool,
    env: Env,
) -> Result<(), Failure> {
    let socket = state.socket();
    // The folder in which a command is typed is not trusted with a configuration; saying so beats a server
    // without tools.
    let config = places::config(common, false)?;
    if let (None, Some(file)) = (&config, places::unread_config()) {
        return Err(Failure::new(
            Exit::Unreachable,
            NOT_STARTED,
            "no server runs, and this command starts none here",
        )
        .fix(format!(
            "longhaul serve, or longhaul --config {} run …",
            file.display()
        )));
    }
    directory(state)?;
    let _starting = Starting::take(&socket).await?;
    match look(client).await? {
        Found::Server => return Ok(()),
        Found::Older => match client.hand_over(false).await {
            Ok(()) => made_way(&socket).await?,
            // It serves, if not with what is new.
            Err(failure) if failure.exit == Exit::Refused || failure.exit == Exit::NotFound => return Ok(()),
            Err(failure) => return Err(failure),
        },
        Found::Nobody => {}
    }
    // One that has the socket and does not answer yet was just started, or is about to end.
    let held_by_another = socket::is_held(&socket);
    if tells && !held_by_another {
        let with = config
            .as_deref()
            .map_or("no tools: there is no configuration".to_owned(), |path| {
                path.display().to_string()
            });
        tell(format!("no server runs; starting one in the background ({with})"));
    }
    let mut started = match held_by_another {
        true => None,
        false => Some(spawn(common, state, env)?),
    };
    let deadline = Instant::now() + START_MAX;
    loop {
        if let Found::Server | Found::Older = look(client).await? {
            if let Some((server, _)) = started {
                reap(server);
            }
            return Ok(());
        }
        match &mut started {
            None if !socket::is_held(&socket) => started = Some(spawn(common, state, env)?),
            None => {}
            Some((server, complaints)) => {
                let ended = server
                    .try_wait()
                    .map_err(|error| Failure::fault(error.to_string()))?;
                match ended {
                    None => {}
                    // One that found another in its place ends without a complaint: the other answers soon, or has
                    // ended meanwhile. One that was killed says nothing about the next.
                    Some(ended) if ended.success() || ended.code().is_none() => started = None,
                    Some(_) => return Err(not_started(complaints)),
                }
            }
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                Exit::Unreachable,
                "unreachable",
                "the server that was started does not answer",
            )
            .fix("longhaul serve, to see why"));
        }
        sleep(START_EVERY).await;
    }
}

fn not_started(complaints: &Path) -> Failure {
    let said = fs::read_to_string(complaints).unwrap_or_default();
    let said = said.trim().trim_start_matches("longhaul: ");
    let message = match said.is_empty() {
        true => "the server did not start".to_owned(),
        false => format!("the server did not start: {}", crate::screen::block(said)),
    };
    Failure::new(Exit::Unreachable, NOT_STARTED, message).fix("longhaul serve, to see why")
}

/// Waits until a server that was asked to has freed its socket.
pub(crate) async fn made_way(socket: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + START_MAX;
    while socket::is_held(socket) {
        if Instant::now() > deadline {
            return Err(Failure::new(
                Exit::Unreachable,
                "unreachable",
                "the server that runs does not make way",
            )
            .fix("longhaul logs"));
        }
        sleep(START_EVERY).await;
    }
    Ok(())
}

/// The right to start a server on a socket. The kernel gives it back when its holder is killed.
pub(crate) struct Starting {
    _lock: fs::File,
}

impl Starting {
    /// Waits until nobody else starts a server.
    pub(crate) async fn take(socket: &Path) -> Result<Starting, Failure> {
        let path = socket.with_extension("starting");
        let failed = |error: &dyn std::fmt::Display| {
            Failure::fault(format!("cannot lock `{}`: {error}", path.display()))
        };
        if let Some(directory) = socket.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(|error| failed(&error))?;
        }
        let lock = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failed(&error))?;
        let deadline = Instant::now() + START_MAX;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Starting { _lock: lock }),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => sleep(START_EVERY).await,
                Err(fs::TryLockError::WouldBlock) => {
                    return Err(Failure::new(
                        Exit::Unreachable,
                        "unreachable",
                        "another command has been starting the server for too long",
                    )
                    .fix("longhaul logs"));
                }
                Err(fs::TryLockError::Error(error)) => return Err(failed(&error)),
            }
        }
    }
}

fn directory(state: &State) -> Result<(), Failure> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state.log())
        .map_err(|error| Failure::fault(format!("cannot start the server: {error}")))
}

/// Starts `longhaul serve` away from this terminal.
#[expect(
    clippy::disallowed_methods,
    reason = "the server is no task's work: it is to outlive the command that starts it"
)]
fn spawn(common: &Common, state: &State, env: Env) -> Result<(Child, PathBuf), Failure> {
    let broken = |error: std::io::Error| Failure::fault(format!("cannot start the server: {error}"));
    let complaints = state.log().join("start.log");
    let said = fs::File::create(&complaints).map_err(broken)?;
    let mut command = std::process::Command::new(places::program().map_err(broken)?);
    command.arg("serve").arg("--background");
    if env == Env::Plain {
        command.env_clear();
        command.envs(std::env::vars_os().filter(|(name, _)| is_plain(name)));
    }
    if state.chosen {
        command.arg("--state").arg(&state.dir);
    }
    if let Some(config) = places::config(common, false)? {
        command
            .arg("--config")
            .arg(std::path::absolute(config).map_err(broken)?);
    }
    let server = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .map_err(broken)?;
    Ok((server, complaints))
}

/// Variables of any program of this user.
const PLAIN: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "STATE_DIRECTORY",
    "LONGHAUL_CONFIG",
    "LONGHAUL_STATE_DIR",
    "LONGHAUL_LOG",
];

/// Whether a variable is none that was set for one server. Settings of Longhaul have two `_` in their names.
fn is_plain(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    PLAIN.contains(&name)
        || name.to_ascii_lowercase().ends_with("_proxy")
        || name.starts_with("LC_")
        || name.starts_with("XDG_")
        || (name.starts_with("LONGHAUL_") && name.contains("__"))
}

/// Takes note of the server's end whenever it comes: this process may live longer.
fn reap(mut server: Child) {
    std::thread::spawn(move || {
        // Its end is of no matter here.
        let _ = server.wait();
    });
}
