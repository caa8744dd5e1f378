//! How a server ends: told to, left by its client, needed by nobody, fenced, or making way for another.
//!
//! Called by `serve`, once everything is put together.

use std::time::Duration;

use longhaul_engine::Engine;
use longhaul_gateway::{
    server::{Control, End, Server},
    stdio::{self, Stdio},
    upstream::fleet::Fleet,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

use super::fault;
use crate::{
    exit::{Exit, Failure, Outcome},
    service,
};

/// How long open requests may take to finish once the work has ended.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// How long after that everything has ended, as a service manager is told: what still runs gets its grace, and is killed.
const LAST_WORK: Duration = Duration::from_secs(60);

/// When a server ends.
pub(super) struct Life {
    /// How long its work may go on then.
    pub(super) drain: Duration,
    /// After how long without anybody who needs it; `None` for never.
    pub(super) idle_exit: Option<Duration>,
    /// With standard input, whose client is served by this.
    pub(super) stdio: Option<Stdio>,
}

/// Serves and waits for the end.
pub(super) async fn run(engine: Engine, server: Server, life: Life, told: Option<Told>) -> Outcome {
    let mut told = told.map_or_else(Told::listen, Ok)?;
    let control = server.control();
    let mut serving = tokio::spawn(server.serve(LAST_REQUESTS));
    let broken =
        |error: &dyn std::fmt::Display| Failure::fault(format!("the server stopped serving: {error}"));
    let mut client = life
        .stdio
        .map(|stdio| tokio::spawn(standard_streams(stdio, control.end.subscribe())));
    let mut make_way = control.asked_to_make_way.clone();
    let mut fenced = false;
    // Only now is the order to stop heard.
    service::ready();
    tokio::select! {
        served = &mut serving => {
            engine.drain(Duration::ZERO).await;
            return match served {
                Ok(Ok(())) => Err(broken(&"its listener ended")),
                Ok(Err(error)) => Err(broken(&error)),
                Err(error) => Err(broken(&error)),
            };
        }
        () = told.stop() => {
            tracing::info!("told to stop; finishing what runs");
            drain(&engine, &mut told, life.drain).await;
        }
        () = engine.draining() => {
            fenced = engine.load().fenced;
            drain(&engine, &mut told, life.drain).await;
        }
        () = client_left(&mut client) => {
            tracing::info!("standard input has ended; finishing what runs");
            drain(&engine, &mut told, life.drain).await;
        }
        () = unneeded(&engine, &control, life.idle_exit) => {
            tracing::info!("nobody was connected and no task was open for long");
            drain(&engine, &mut told, life.drain).await;
        }
        // Without a socket there is nobody who could ask.
        Ok(_) = make_way.wait_for(|asked| *asked) => {
            tracing::info!("making way for another server; finishing what runs");
            control.end.send_replace(End::MadeWay);
            tokio::select! {
                () = engine.hand_over() => {}
                () = told.stop() => {
                    tracing::info!("told to stop; ending what runs");
                    engine.drain(Duration::ZERO).await;
                }
            }
        }
    }
    control.end.send_replace(End::Now);
    if client.is_some() {
        client_left(&mut client).await;
    }
    if let Ok(Err(error)) = serving.await {
        tracing::warn!(%error, "a listener ended with an error");
    }
    match fenced {
        true => Err(
            Failure::fault("this server lost its place in the store and stopped all its work")
                .fix("start it again; longhaul logs has the cause"),
        ),
        false => {
            tracing::info!("ended");
            Ok(Exit::Done)
        }
    }
}

async fn drain(engine: &Engine, told: &mut Told, wait: Duration) {
    service::stopping(wait + LAST_WORK);
    let draining = engine.drain(wait);
    tokio::pin!(draining);
    tokio::select! {
        () = &mut draining => {}
        () = told.stop() => {
            tracing::info!("told again; ending what runs");
            engine.drain(Duration::ZERO).await;
        }
    }
}

/// Waits for the servers without which this one is not ready. False when it was told to stop meanwhile.
pub(super) async fn required(fleet: &Fleet, told: &mut Told) -> bool {
    tokio::select! {
        () = fleet.required() => true,
        () = told.stop() => {
            fleet.close().await;
            false
        }
    }
}

/// Serves the standard streams until their client has left.
async fn standard_streams(stdio: Stdio, mut end: watch::Receiver<End>) {
    let closing = async move {
        // A sender that is gone is an end, too.
        let _ = end.wait_for(|end| *end != End::No).await;
    };
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let client = stdio::Peer::Client;
    let ended = stdio.serve(input, output, client, closing, LAST_REQUESTS).await;
    tracing::debug!(?ended, "the client at the standard streams is served no more");
}

/// Resolves when the client at the standard streams has left; never when there is none.
async fn client_left(client: &mut Option<JoinHandle<()>>) {
    match client {
        Some(serving) => {
            if let Err(error) = serving.await {
                tracing::error!(%error, "serving the standard streams failed");
            }
            *client = None;
        }
        None => std::future::pending().await,
    }
}

/// Resolves when nobody was connected and no task was open for this long; never without a time.
async fn unneeded(engine: &Engine, control: &Control, time: Option<Duration>) {
    let Some(time) = time else {
        return std::future::pending().await;
    };
    loop {
        control.activity.idle(time).await;
        match engine.store().stats().await {
            Ok(stats) if stats.open == 0 => return,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "could not look for open tasks"),
        }
    }
}

/// The signals that end a server.
pub(super) struct Told {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Told {
    pub(super) fn listen() -> Result<Told, Failure> {
        let listen = |kind| signal(kind).map_err(|error| fault("listen for signals", &error));
        Ok(Told {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
