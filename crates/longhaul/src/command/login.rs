//! `longhaul login` and `logout`: access to servers behind this one that want to know who comes.
//!
//! The running server does all of it and keeps what comes of it; this opens a browser and waits. No token passes through
//! here.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use longhaul_gateway::admin::api;
use tokio::time::Instant;

use crate::{
    background,
    client::Client,
    exit::{Exit, Failure, Outcome},
    flags::{Common, Login, Logout},
    screen::{age, line, say, say_json, tell},
};

/// How often the server is asked whether the browser came back.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// What opens a link in the browser of a desktop.
const OPENER: &str = "xdg-open";

/// Logs in.
pub(crate) async fn login(common: &Common, flags: &Login) -> Outcome {
    let client = background::reach(common).await?;
    let begun = client.begin_login(&flags.server).await?;
    let is_open = !flags.no_browser && open(&begun.opened);
    let where_to = line(&begun.issuer);
    match (common.json, is_open) {
        // A program reads the link as the first line.
        (true, _) => say_json(&begun)?,
        (false, true) => {
            tell(format!(
                "log in at {where_to} in the browser that opens, or open this link:"
            ));
            tell(&begun.url);
        }
        (false, false) => {
            tell(format!(
                "open this link in a browser of this machine, to log in at {where_to}:"
            ));
            say(&begun.url);
        }
    }
    let done = wait(&client, &begun).await?;
    if common.json {
        say_json(&done)?;
        return Ok(Exit::Done);
    }
    let until = match (done.expires_in_ms, done.is_refreshed) {
        (_, true) => "it is renewed by itself".to_owned(),
        (Some(ms), false) => format!("for {}", age(ms)),
        (None, false) => "until you log out".to_owned(),
    };
    say(format!(
        "logged in to {} at {}; {until}",
        line(&flags.server),
        line(done.issuer.as_deref().unwrap_or_default())
    ));
    Ok(Exit::Done)
}

async fn wait(client: &Client, begun: &api::Login) -> Result<api::LoginProgress, Failure> {
    let until = Instant::now() + Duration::from_millis(begun.valid_ms);
    loop {
        let now = client.login_progress(&begun.id).await?;
        if let Some(why) = &now.failed {
            return Err(Failure::new(Exit::Failed, "login_failed", line(why)).fix("longhaul login"));
        }
        if now.issuer.is_some() {
            return Ok(now);
        }
        if Instant::now() >= until {
            let message = "the browser did not come back within 10 minutes";
            return Err(Failure::new(Exit::Failed, "login_failed", message).fix("longhaul login"));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Logs out.
pub(crate) async fn logout(common: &Common, flags: &Logout) -> Outcome {
    let client = background::reach(common).await?;
    let done = client.log_out(&flags.server).await?;
    if common.json {
        say_json(&done)?;
        return Ok(Exit::Done);
    }
    let server = line(&flags.server);
    say(match (done.was_logged_in, done.is_revoked) {
        (false, _) => format!("nobody was logged in to {server}"),
        (true, true) => format!("logged out of {server}; the tokens are revoked"),
        (true, false) => {
            format!(
                "logged out of {server}; its authorization server revokes no tokens, so they end by themselves"
            )
        }
    });
    Ok(Exit::Done)
}

/// Opens a link where there is a desktop; whether somebody was told to. Arguments of programs are no secret: the link works
/// once.
fn open(link: &str) -> bool {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let Some(opener) = has_desktop.then(opener).flatten() else {
        return false;
    };
    start(&opener, link)
}

fn opener() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(OPENER))
        .find(|program| program.is_file())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a browser is no work of a task: it outlives this command"
)]
fn start(opener: &Path, link: &str) -> bool {
    let started = std::process::Command::new(opener)
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started.is_ok()
}
