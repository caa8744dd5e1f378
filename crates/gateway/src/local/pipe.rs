//! What `longhaul stdio`, `longhaul wrap` and a newer server ask of this one over the user's socket: a connection that speaks MCP,
//! and to make way.
//!
//! A connection begins as an HTTP request and is a stream of lines from the reply on. It decides nothing.

use std::{future::Future, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use hyper_util::rt::TokioIo;
use longhaul_core::Span;
use longhaul_mcp::RpcError;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::{
    admin::{Error, Who},
    server::End,
    stdio::{Peer, Stdio},
    upstream::wrapped::Brought,
};

/// The route of a connection; below it, that of one which is shown a toolset.
pub const STDIO: &str = "/admin/v1/stdio";
/// The route that takes what `longhaul wrap` brought; below it, that of a connection which is shown it.
pub const WRAPPED: &str = "/admin/v1/wrapped";
/// The route on which this server is told to make way.
pub const HAND_OVER: &str = "/admin/v1/hand-over";
/// What a connection upgrades to.
pub const PROTOCOL: &str = "longhaul-stdio";

/// The query of a hand-over that the server does in any case. Without it only a server that was started in the
/// background makes way.
pub const IN_ANY_CASE: &str = "in_any_case";
/// The header in which a pipe says how long its calls may be held, in seconds.
pub const HOLD: &str = "longhaul-hold";

/// The header in which a pipe says which one it is, so that its session goes on at the next server.
pub const KEY: &str = "longhaul-pipe";

/// The longest that a call may be held by [`HOLD`], in seconds.
pub const HOLD_MAX_S: u64 = 86_400;

/// The reason of a refusal: no toolset has this name.
pub const UNKNOWN_TOOLSET: &str = "unknown_toolset";

/// The reason of a refusal: no wrapped server of this name is kept.
pub const UNKNOWN_WRAPPED: &str = "unknown_wrapped";

/// The largest body that brings a server, in bytes: what a program can be given, as base64 in JSON.
pub const BROUGHT_MAX: usize = 4 * 1024 * 1024;

/// The name under which a server was taken in.
#[derive(Debug, Serialize, Deserialize)]
pub struct TakenIn {
    /// The name.
    pub name: String,
}

/// How long open requests of a connection may take to get their reply when this server makes way.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// The connections of `longhaul stdio`.
#[derive(Clone)]
pub(crate) struct Pipes {
    stdio: Stdio,
    end: watch::Receiver<End>,
    make_way: MakeWay,
    /// Held by every connection, so that their end can be waited for.
    open: mpsc::Sender<()>,
}

/// How this server is told to make way.
#[derive(Clone)]
pub(crate) struct MakeWay {
    /// Asks it to.
    pub(crate) ask: watch::Sender<bool>,
    /// It was started in the background, so nobody minds which server it is.
    pub(crate) freely: bool,
}

/// Resolves when no connection is open any more and no router is left that could begin one.
pub(crate) struct Closed(mpsc::Receiver<()>);

impl Closed {
    pub(crate) async fn wait(mut self) {
        // Nobody ever sends.
        let _ = self.0.recv().await;
    }
}

impl Pipes {
    /// Pipes that close when `end` says so, and that ask for it by `make_way`.
    pub(crate) fn new(stdio: Stdio, end: watch::Receiver<End>, make_way: MakeWay) -> (Pipes, Closed) {
        let (open, closed) = mpsc::channel(1);
        let pipes = Pipes {
            stdio,
            end,
            make_way,
            open,
        };
        (pipes, Closed(closed))
    }

    /// Resolves when this server takes no more connections.
    fn ending(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.end.clone();
        async move {
            // A sender that is gone is an end, too.
            let _ = end.wait_for(|end| *end != End::No).await;
        }
    }
}

/// The routes of the pipes.
pub(crate) fn router(pipes: Pipes) -> Router {
    Router::new()
        .route(STDIO, post(connect))
        .route(&format!("{STDIO}/{{toolset}}"), post(connect_part))
        .route(WRAPPED, post(wrap).layer(DefaultBodyLimit::max(BROUGHT_MAX)))
        .route(&format!("{WRAPPED}/{{name}}"), post(connect_wrapped))
        .route(HAND_OVER, post(hand_over))
        .with_state(pipes)
}

async fn connect_part(State(pipes): State<Pipes>, Path(toolset): Path<String>, request: Request) -> Response {
    match pipes.stdio.of_toolset(&toolset) {
        Some(stdio) => connect(State(Pipes { stdio, ..pipes }), request).await,
        None => {
            let message = RpcError::unknown_toolset(&toolset).message;
            Error::new(404, -32600, UNKNOWN_TOOLSET, message, Who::Caller).into_response()
        }
    }
}

/// Takes a server in. What the body holds may be secret, so no error repeats any of it.
async fn wrap(State(pipes): State<Pipes>, body: Bytes) -> Response {
    let brought = match Brought::decode(&body) {
        Ok(brought) => brought,
        Err(unusable) => return Error::invalid(unusable.to_string()).into_response(),
    };
    match pipes.stdio.wrap(&brought).await {
        Ok(name) => Json(TakenIn { name }).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn connect_wrapped(State(pipes): State<Pipes>, Path(name): Path<String>, request: Request) -> Response {
    match pipes.stdio.of_wrapped(&name) {
        Some(stdio) => connect(State(Pipes { stdio, ..pipes }), request).await,
        None => {
            let message = format!("no wrapped server is named `{}`", longhaul_mcp::clean(&name, 60));
            Error::new(404, -32602, UNKNOWN_WRAPPED, message, Who::Caller).into_response()
        }
    }
}

async fn connect(State(pipes): State<Pipes>, mut request: Request) -> Response {
    if !upgrades(request.headers()) {
        let message = format!("this route needs `Connection: upgrade` and `Upgrade: {PROTOCOL}`");
        return Error::new(426, -32600, "upgrade_required", message, Who::Caller).into_response();
    }
    let hold = match hold(request.headers()) {
        Ok(hold) => hold,
        Err(error) => return error.into_response(),
    };
    let key = key(request.headers());
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
                // What its client says meanwhile waits in the socket.
                tokio::select! {
                    () = pipes.stdio.reached() => {}
                    () = pipes.ending() => {}
                }
                let peer = Peer::Pipe { hold, key };
                let ending = pipes.ending();
                let Pipes { stdio, open, .. } = pipes;
                let keeper = stdio.keeper();
                let served = stdio.serve(reader, writer, peer, ending, LAST_REPLIES);
                let ended = match &keeper {
                    None => served.await,
                    Some(keeper) => tokio::select! {
                        ended = served => ended,
                        never = keeper.keep() => match never {},
                    },
                };
                drop(stdio);
                if let Some(keeper) = keeper {
                    keeper.left().await;
                }
                drop(open);
                tracing::debug!(?ended, "a pipe ended");
            }
            Err(error) => tracing::debug!(%error, "a pipe ended before it began"),
        }
    });
    let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// How long the pipe's calls may be held, when it says so.
fn hold(headers: &HeaderMap) -> Result<Option<Span>, Error> {
    let Some(value) = headers.get(HOLD) else {
        return Ok(None);
    };
    let seconds = value.to_str().ok().and_then(|value| value.parse().ok());
    match seconds {
        Some(seconds @ 1..=HOLD_MAX_S) => Ok(Some(Span::seconds(seconds))),
        Some(_) | None => Err(Error::invalid(format!("`{HOLD}` must be 1 to {HOLD_MAX_S}"))),
    }
}

/// Which pipe it is; `None` for one that does not say.
fn key(headers: &HeaderMap) -> Option<u128> {
    let text = headers.get(KEY)?.to_str().ok()?;
    u128::from_str_radix(text, 16).ok()
}

fn upgrades(headers: &HeaderMap) -> bool {
    let has = |name, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    has(header::CONNECTION, "upgrade") && has(header::UPGRADE, PROTOCOL)
}

/// The reply goes out before the socket is given up, so whoever asked waits for the socket's lock.
async fn hand_over(State(pipes): State<Pipes>, uri: Uri) -> Response {
    if !pipes.make_way.freely && uri.query() != Some(IN_ANY_CASE) {
        let message = "this server was started by hand and is not replaced by itself";
        return Error::new(409, 7401, "started_by_hand", message, Who::Operator).into_response();
    }
    pipes.make_way.ask.send_replace(true);
    (StatusCode::ACCEPTED, Json(serde_json::json!({}))).into_response()
}
