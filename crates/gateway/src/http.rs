//! Streamable HTTP: bytes to frames, frames to bytes.
//!
//! One endpoint, `/mcp`, and `/mcp/NAME` for each toolset. HTTP types stop here. This module checks what only a
//! listener can check (Host, Origin, content type, sizes, slow senders), hands the frame to the edge of its generation,
//! and sends what dispatch gives back, as one JSON object or as a stream of events. It decides nothing about tasks.

pub mod connections;

mod body;
mod event_id;
mod guard;
mod reply;
mod session;
mod sse;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, Request as HttpRequest, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::any,
};
use longhaul_mcp::{
    Incoming, Message, Notice, Reply, Request, RpcError,
    edge::{self, Belongs, Edge, Offer, Received},
    frame::Frame,
    header::Headers,
    meta::KEY_BYTES_MAX,
    scan,
};

pub use guard::Allowed;

use crate::{
    catalog::Catalog,
    dispatch::{As, Conversation, Dispatch, Step},
    http::{
        body::{Share, Whole},
        event_id::{EventIds, StreamId},
        reply::{Later, json, refused, single, text},
        sse::Begins,
    },
    identity::{Caller, Origin},
    parse::Parser,
    session::Session,
    toolset::Selection,
};

/// What a listener is limited to.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes (`server.body_max`).
    pub body_max: usize,
    /// The most bytes of all bodies in memory at once; further ones wait for room
    /// (`server.bodies_max`).
    pub bodies_max: usize,
    /// How long a request may take to arrive, where its connection does not say by when it must
    /// (`server.read_timeout`).
    pub request_time: Duration,
    /// How often an idle stream gets a comment, so that nobody on the way cuts it (B-28).
    pub keep_alive: Duration,
    /// How long a reader may leave a frame unread before its stream is cut.
    pub reader_time: Duration,
    /// How long `tasks/result` waits for a client that takes no stream (`tasks.result_wait`).
    pub result_wait: Duration,
    /// A missing `Mcp-Name` on task methods is refused.
    pub strict_headers: bool,
    /// What a frame may hold.
    pub scan: scan::Limits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_max: 4 * 1024 * 1024,
            bodies_max: 64 * 1024 * 1024,
            request_time: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            reader_time: Duration::from_secs(30),
            result_wait: Duration::from_secs(30),
            strict_headers: false,
            scan: scan::Limits::default(),
        }
    }
}

/// How long the stream of a call that a server behind runs is not opened: the status of what is refused at once is
/// fixed then.
const REFUSED_WITHIN: Duration = Duration::from_millis(100);

#[derive(Clone)]
struct Shared {
    dispatch: Dispatch,
    catalog: Arc<Catalog>,
    limits: Arc<Limits>,
    allowed: Arc<Allowed>,
    bodies: body::Budget,
    parser: Parser,
    /// What the endpoint shows that the request came to.
    selection: Selection,
}

impl Shared {
    /// Who calls: whoever reaches this address is the local user.
    fn caller(&self) -> Caller {
        Caller {
            selection: self.selection.clone(),
            ..Caller::local(Origin::Client)
        }
    }

    fn offer<T>(&self, then: impl FnOnce(&Offer<'_>) -> T) -> T {
        let Limits {
            strict_headers, scan, ..
        } = *self.limits;
        self.catalog
            .read_against(&self.selection, strict_headers, scan, then)
    }
}

/// The router of the MCP endpoint, and of one for each toolset.
pub fn router(dispatch: Dispatch, catalog: Arc<Catalog>, limits: Limits, allowed: Allowed) -> Router {
    let bodies = body::Budget::new(limits.bodies_max, limits.body_max);
    let parser = Parser::new(limits.scan);
    let shared = Shared {
        dispatch,
        catalog,
        limits: Arc::new(limits),
        allowed: Arc::new(allowed),
        bodies,
        parser,
        selection: Selection::all(),
    };
    Router::new()
        .route("/mcp", any(endpoint))
        .route("/mcp/{toolset}", any(part))
        .with_state(shared)
}

/// The endpoint of a toolset.
async fn part(State(shared): State<Shared>, Path(toolset): Path<String>, request: HttpRequest) -> Response {
    if let Err(refusal) = shared.allowed.check(request.headers(), request.uri()) {
        return refusal.into_response();
    }
    match shared.catalog.selection(&toolset) {
        Some(selection) => served(Shared { selection, ..shared }, request).await,
        None => json(404, edge::error(&RpcError::unknown_toolset(&toolset), None)),
    }
}

async fn endpoint(State(shared): State<Shared>, request: HttpRequest) -> Response {
    match shared.allowed.check(request.headers(), request.uri()) {
        Ok(()) => served(shared, request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// A request that may come from where it comes from.
async fn served(shared: Shared, request: HttpRequest) -> Response {
    if request.method() == Method::GET && request.headers().contains_key(session::SESSION_ID) {
        return session::get(shared, request.headers()).await;
    }
    if request.method() == Method::DELETE && request.headers().contains_key(session::SESSION_ID) {
        return session::delete(&shared, request.headers()).await;
    }
    if request.method() != Method::POST {
        return not_allowed();
    }
    if !is_json(request.headers()) {
        return text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send `Content-Type: application/json`",
        );
    }
    let (parts, Whole { bytes, share }) = match body::read(request, &shared.limits, &shared.bodies).await {
        Ok(read) => read,
        Err(refusal) => return refusal.into_response(),
    };
    match shared.parser.frame(bytes).await {
        Ok(frame) => received(shared, &parts.headers, frame, share).await,
        Err(malformed) => refused(Edge::Stateless, &malformed),
    }
}

/// One frame, on the edge of its generation.
async fn received(shared: Shared, http_headers: &HeaderMap, frame: Frame, share: Share) -> Response {
    let headers = read(http_headers);
    let caller = shared.caller();
    let belongs = edge::of(Some(&headers), &frame, None);
    let session = match belongs {
        Belongs::Stateless | Belongs::Opens => None,
        Belongs::SessionMissing => return session::missing(frame.id()),
        Belongs::Session => match session::find(&shared, &caller, http_headers, frame.id()).await {
            Ok(session) => Some(session),
            Err(response) => return *response,
        },
    };
    let peer = session.as_ref().map(|session| session.peer());
    let edge = peer.map_or(Edge::Stateless, |peer| Edge::Session(peer.version));
    let received = shared.offer(|offer| edge::receive(Some(&headers), frame, belongs, peer, offer));
    match (received, session) {
        (Err(malformed), _) => refused(edge, &malformed),
        (Ok(Received::Open(opening)), _) => session::open(&shared, &caller, &opening),
        (Ok(Received::Message(Message::Notice(notice))), session) => {
            if let (Notice::Cancelled { request, reason }, Some(session)) = (notice, session) {
                session.give_up(&request, reason);
            }
            StatusCode::ACCEPTED.into_response()
        }
        (Ok(Received::Message(Message::Answer(answer))), Some(session)) => {
            match shared.dispatch.take_answer(&caller, &session, answer).await {
                Ok(()) => StatusCode::ACCEPTED.into_response(),
                Err(error) => json(503, edge::error(&error, None)),
            }
        }
        // nobody asked.
        (Ok(Received::Message(Message::Answer(_))), None) => StatusCode::ACCEPTED.into_response(),
        (Ok(Received::Message(Message::Request(mut incoming))), session) => {
            let streams = accepts_stream(http_headers);
            match (name_call(&mut incoming, http_headers), session) {
                (Err(error), _) => single(edge, &incoming.id, &Reply::Error(error)),
                (Ok(()), Some(session)) => {
                    serve_session(shared, &caller, session, *incoming, streams, share).await
                }
                (Ok(()), None) => serve(shared, &caller, *incoming, streams, share).await,
            }
        }
    }
}

/// The headers as the edges read them.
fn read(headers: &HeaderMap) -> Headers {
    let all = headers.iter();
    Headers::new(all.map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// `Idempotency-Key` means what `dev.longhaul/idempotencyKey` in `_meta` means, for callers that set headers more
/// easily.
fn name_call(incoming: &mut Incoming, headers: &HeaderMap) -> Result<(), RpcError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(());
    };
    let Request::CallTool(call) = &mut incoming.request else {
        return Ok(());
    };
    let key = value
        .to_str()
        .ok()
        .filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    let Some(key) = key else {
        return Err(RpcError::invalid_params(format!(
            "`Idempotency-Key` must be 1 to {KEY_BYTES_MAX} visible ASCII characters"
        )));
    };
    match &call.idempotency_key {
        Some(other) if other != key => Err(RpcError::invalid_params(
            "`Idempotency-Key` and the key in `_meta` are not the same",
        )),
        Some(_) => Ok(()),
        None => {
            call.idempotency_key = Some(key.to_owned());
            Ok(())
        }
    }
}

async fn serve(shared: Shared, caller: &Caller, incoming: Incoming, streams: bool, share: Share) -> Response {
    let edge = Edge::Stateless;
    let id = incoming.id.clone();
    let handled = match reply::at_once(&shared, edge, caller, None, incoming, share).await {
        Ok(response) => return response,
        Err(handled) => handled,
    };
    match handled {
        Later::Call(mut held) if streams && held.wants_stream() => {
            let first = match held.is_relayed() {
                true => tokio::time::timeout(REFUSED_WITHIN, held.next()).await.ok(),
                false => None,
            };
            match first {
                Some(Step::Reply(reply)) if reply::lacks(&reply) => {
                    reply::at_end(&shared, edge, &id, *held, reply::taken).await
                }
                first => sse::call(shared, id, *held, first),
            }
        }
        Later::Call(held) => reply::at_end(&shared, edge, &id, *held, reply::taken).await,
        Later::Wait(waiting) => reply::at_end(&shared, edge, &id, *waiting, reply::fitted).await,
        Later::Relay(relaying) if streams && relaying.wants_stream() => {
            sse::call(shared, id, *relaying, None)
        }
        Later::Relay(relaying) => reply::at_end(&shared, edge, &id, *relaying, reply::fitted).await,
        Later::Listen(listener) if streams => sse::listen(shared, id, *listener),
        Later::Listen(_) => text(
            StatusCode::NOT_ACCEPTABLE,
            "a subscription needs `Accept: text/event-stream`",
        ),
    }
}

async fn serve_session(
    shared: Shared,
    caller: &Caller,
    session: Arc<Session>,
    incoming: Incoming,
    streams: bool,
    share: Share,
) -> Response {
    let version = session.peer().version;
    let edge = Edge::Session(version);
    let id = incoming.id.clone();
    let place = Conversation {
        session: Arc::clone(&session),
        has_stream: streams,
    };
    let handled = match reply::at_once(&shared, edge, caller, Some(&place), incoming, share).await {
        Ok(response) => return response,
        Err(handled) => handled,
    };
    match handled {
        Later::Call(mut held) if streams && held.wants_stream() => {
            let stream = match version.has_tasks() {
                true => held.stream_name().await,
                false => None,
            };
            let stream = stream.map(|(name, send)| StreamId {
                name,
                send,
                request: id.clone(),
                reply: As::Result,
            });
            let ids = stream.and_then(|stream| EventIds::of(&stream, event_id::From::default()));
            sse::steps(shared, session, id, *held, ids, Begins::Anew)
        }
        Later::Call(held) => reply::at_end(&shared, edge, &id, *held, reply::taken).await,
        Later::Wait(waiting) if streams => {
            let stream = waiting.stream_name().map(|(name, send)| StreamId {
                name,
                send,
                request: id.clone(),
                reply: As::Outcome,
            });
            let ids = stream.and_then(|stream| EventIds::of(&stream, event_id::From::default()));
            sse::steps(shared, session, id, *waiting, ids, Begins::Anew)
        }
        Later::Wait(waiting) => {
            let ended = reply::at_end(&shared, edge, &id, *waiting, reply::fitted);
            let ended = tokio::time::timeout(shared.limits.result_wait, ended).await;
            ended.unwrap_or_else(|_| single(edge, &id, &reply::still_running()))
        }
        Later::Relay(relaying) if streams && relaying.wants_stream() => {
            sse::steps(shared, session, id, *relaying, None, Begins::Anew)
        }
        Later::Relay(relaying) => {
            let mut wait = session.waiting(&id);
            tokio::select! {
                response = reply::at_end(&shared, edge, &id, *relaying, reply::fitted) => response,
                // no reply to what nobody waits for.
                _ = wait.given_up() => StatusCode::ACCEPTED.into_response(),
            }
        }
        Later::Listen(_) => single(
            edge,
            &id,
            &Reply::Error(RpcError::method_not_found("subscriptions/listen")),
        ),
    }
}

/// Without a session there is nothing but requests (A-20, B-18).
fn not_allowed() -> Response {
    let mut response = text(
        StatusCode::METHOD_NOT_ALLOWED,
        "send requests by POST; a stream and its end need an `Mcp-Session-Id`",
    );
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = value.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| {
            value.split(',').any(|item| {
                let media = item.split(';').next().unwrap_or_default().trim();
                media.eq_ignore_ascii_case("text/event-stream") || media == "*/*" || media == "text/*"
            })
        })
}
