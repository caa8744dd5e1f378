//! `longhaul cancel`: ends a task and says what is known of its work.

use std::time::Duration;

use longhaul_gateway::admin::api::{State, Stop, Task};

use crate::{
    background,
    exit::{Exit, Outcome},
    flags::{Common, Name},
    screen::{self, Ticker, say, say_json},
};

/// How long the end of the work is waited for: the default grace of 5 s and the time to kill what ignores it.
const STOP_WAIT: Duration = Duration::from_secs(8);

/// How often it is looked at how many processes are left.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Runs the command.
pub(crate) async fn cancel(common: &Common, flags: &Name) -> Outcome {
    let client = background::client(common)?;
    let mut task = client.cancel(&flags.name).await?;
    if task.state == State::Stopping {
        let name = task.name.clone();
        let since = task.version;
        let mut ticker = Ticker::new();
        let shown = async {
            loop {
                let task = client.task(&name).await;
                if let Ok(Task { left: Some(left), .. }) = task {
                    ticker.show(&left.words());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let followed = tokio::time::timeout(STOP_WAIT, async {
            let mut versions = client.watch(&name, since).await?;
            let mut last = None;
            while let Some(newer) = versions.next().await {
                last = Some(newer);
            }
            Ok(last)
        });
        let followed = tokio::select! {
            followed = followed => followed,
            never = shown => never,
        };
        ticker.clear();
        match followed {
            Ok(Ok(Some(newest))) => task = newest,
            Ok(Err(failure)) => return Err(failure),
            Ok(Ok(None)) | Err(_) => {}
        }
    }
    if common.json {
        say_json(&task)?;
        return Ok(Exit::Done);
    }
    match (task.state, task.stop) {
        (State::Cancelled | State::Stopping, Some(stop)) => {
            say(format!("{} is cancelled: {}", task.name, screen::stop(stop)));
        }
        (State::Cancelled | State::Stopping, None) => say(format!("{} is cancelled", task.name)),
        (state, _) => say(format!("{} had ended before: {}", task.name, state.word())),
    }
    Ok(match task.stop {
        Some(Stop::Unknown) => Exit::Failed,
        Some(Stop::NotStarted | Stop::Stopping | Stop::Stopped) | None => Exit::Done,
    })
}
