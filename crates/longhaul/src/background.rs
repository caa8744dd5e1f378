//! Reaches the user's server, and starts one in the background where there is none.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    process::{Child, Stdio},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    client::Client,
    exit::{Exit, Failure},
    flags::Common,
    places::{self, State},
    screen::tell,
};

/// How long a server that was started here may take until it answers.
const START_MAX: Duration = Duration::from_secs(15);
/// How often it is asked.
const START_EVERY: Duration = Duration::from_millis(50);

/// The server of this state directory, whether or not it runs.
pub(crate) fn client(common: &Common) -> Result<Client, Failure> {
    Ok(Client::new(State::find(common)?.socket()))
}

/// The server of this state directory; started when nobody answers.
pub(crate) async fn reach(common: &Common) -> Result<Client, Failure> {
    let state = State::find(common)?;
    let client = Client::new(state.socket());
    match client.health().await {
        Ok(_) => Ok(client),
        Err(failure) if failure.exit == Exit::Unreachable => {
            start(common, &state, &client).await?;
            Ok(client)
        }
        Err(failure) => Err(failure),
    }
}

async fn start(common: &Common, state: &State, client: &Client) -> Result<(), Failure> {
    // The folder in which a command is typed is not trusted with a configuration; saying so beats a server
    // without tools.
    let config = places::config(common, false)?;
    if let (None, Some(file)) = (&config, places::unread_config()) {
        return Err(Failure::new(
            Exit::Unreachable,
            "unreachable",
            "no server runs, and this command starts none here",
        )
        .fix(format!(
            "longhaul serve, or longhaul --config {} run …",
            file.display()
        )));
    }
    let with = config
        .as_deref()
        .map_or("no tools: there is no configuration".to_owned(), |path| {
            path.display().to_string()
        });
    tell(format!("no server runs; starting one in the background ({with})"));
    let (mut server, complaints) = spawn(common, state)?;
    let deadline = Instant::now() + START_MAX;
    loop {
        if client.health().await.is_ok() {
            return Ok(());
        }
        let ended = server
            .try_wait()
            .map_err(|error| Failure::fault(error.to_string()))?;
        if ended.is_some() || Instant::now() > deadline {
            let said = fs::read_to_string(&complaints).unwrap_or_default();
            let said = said.trim().trim_start_matches("longhaul: ");
            let message = match said.is_empty() {
                true => "the server that was started does not answer".to_owned(),
                false => format!("the server did not start: {}", crate::screen::block(said)),
            };
            return Err(
                Failure::new(Exit::Unreachable, "unreachable", message).fix("longhaul serve, to see why")
            );
        }
        sleep(START_EVERY).await;
    }
}

/// Starts `longhaul serve` away from this terminal.
#[expect(
    clippy::disallowed_methods,
    reason = "the server is no task's work: it is to outlive the command that starts it"
)]
fn spawn(common: &Common, state: &State) -> Result<(Child, std::path::PathBuf), Failure> {
    let broken = |error: std::io::Error| Failure::fault(format!("cannot start the server: {error}"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state.log())
        .map_err(broken)?;
    let complaints = state.log().join("start.log");
    let said = fs::File::create(&complaints).map_err(broken)?;
    let mut command = std::process::Command::new(std::env::current_exe().map_err(broken)?);
    command.arg("serve").arg("--background");
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
