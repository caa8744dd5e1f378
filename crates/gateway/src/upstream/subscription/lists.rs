//! Stays subscribed to the lists of a stateless server; one with sessions tells of them unasked.
//!
//! Begun by the pool with each connection.

use longhaul_mcp::{
    client::{self, Kind},
    frame::Obj,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use super::{
    super::{
        back_off::Pause,
        connection::Connection,
        outcome::{Outcome, Request},
        pool::SETTLED_AFTER,
    },
    ACKNOWLEDGED_WITHIN, AGAIN,
};

/// Stays subscribed to the lists of a server for as long as the connection lives. After each gap, when it is subscribed
/// again, `missed` is called: something may have changed meanwhile.
pub(in crate::upstream) async fn to_lists(connection: Connection, missed: impl Fn()) {
    let offers = connection.spoken().offers();
    let (tools, prompts, resources) = (
        offers.tools_change,
        offers.prompts_change,
        offers.resources_change,
    );
    if connection.spoken().era.kind() == Kind::Stateless && (tools || prompts || resources) {
        let params = client::listen(tools, prompts, resources, &[]);
        listen(&connection, &params, missed).await;
    }
}

/// Subscribes again and again, until the connection is over or the server does not do it.
async fn listen(connection: &Connection, params: &Obj, missed: impl Fn()) {
    let mut pause = Pause::new(AGAIN);
    let mut is_again = false;
    loop {
        let request = Request {
            method: "subscriptions/listen",
            params: Some(params),
            ..Request::default()
        };
        let ended = async { drop(connection.ended().await) };
        let (acknowledges, acknowledged) = oneshot::channel();
        let begun = Instant::now();
        let listening = connection.subscribe(request, acknowledges, ended);
        tokio::pin!(listening);
        let early = tokio::select! {
            biased;
            outcome = &mut listening => Some(outcome),
            // Of one that does not say that the subscription stands, it is taken to stand.
            _ = timeout(ACKNOWLEDGED_WITHIN, acknowledged), if is_again => None,
        };
        let outcome = match early {
            Some(outcome) => outcome,
            None => {
                missed();
                listening.await
            }
        };
        match outcome {
            // B-49: it ended it.
            Outcome::Came(_) => pause.reset(),
            Outcome::Failed(_) | Outcome::Unsent(_) if connection.lost().is_none() => {
                if begun.elapsed() >= SETTLED_AFTER {
                    pause.reset();
                } else {
                    pause.lengthen();
                }
            }
            Outcome::Failed(_)
            | Outcome::Unsent(_)
            | Outcome::Errored(_)
            | Outcome::Unusable(_)
            | Outcome::TimedOut
            | Outcome::Stopped { .. } => return,
        }
        is_again = true;
        sleep(pause.now()).await;
    }
}
