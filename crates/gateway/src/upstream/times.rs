//! How long one server may take for what it does, and how long it is kept.
//!
//! Made by `fleet` from the configuration, read by the pool, by `definitions` and by `server`. The time of a request
//! stands still while its caller is asked.

use std::{future::pending, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// How long things may take. The defaults are those of `[servers.NAME]`.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long a process or session may serve nobody before it is ended.
    pub idle_stop: Duration,
    /// The same, where another caller waits for one.
    pub keep_idle: Duration,
    /// How long a caller waits for one: to be opened, or to become free.
    pub wait: Duration,
    /// How long a request may take that is no call of a tool.
    pub request: Duration,
    /// How long all lists may take together.
    pub lists: Duration,
}

/// Resolves when this time is over; while `asked` says so, it stands still. Never without a time.
pub(crate) async fn over(time: Option<Duration>, asked: Option<&watch::Receiver<bool>>) {
    let Some(mut left) = time else {
        return pending().await;
    };
    // Without one nobody is ever asked.
    let (_, never) = watch::channel(false);
    let mut asked = asked.cloned().unwrap_or(never);
    loop {
        let is_answered = asked.wait_for(|asked| !asked).await.is_ok();
        let begun = Instant::now();
        if !is_answered {
            return sleep(left).await;
        }
        tokio::select! {
            () = sleep(left) => return,
            Ok(_) = asked.wait_for(|asked| *asked) => left = left.saturating_sub(begun.elapsed()),
        }
    }
}
