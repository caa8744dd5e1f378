//! Replies that are one JSON object.
//!
//! A large one waits for room, and is made again when it has some: see [`crate::replies`].

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use longhaul_mcp::{
    Incoming, Reply, RequestId, RpcError, edge::Edge, malformed::Malformed, rpc_error, rpc_error::Data,
};

use super::{Shared, body};
use crate::{
    dispatch::{Conversation, Handled, Held, Relaying, Step, Steps, Waiting},
    identity::Caller,
    listen::Listener,
    replies::{self, Full, Share},
};

/// What a request leads to when its reply is still to come.
pub(super) enum Later {
    Call(Box<Held>),
    Wait(Box<Waiting>),
    Relay(Box<Relaying>),
    Listen(Box<Listener>),
}

/// Serves a request whose reply is there at once, or says what is to be waited for. The body's share of the memory is
/// given back as soon as nothing of the body is needed.
pub(super) async fn at_once(
    shared: &Shared,
    edge: Edge,
    caller: &Caller,
    place: Option<&Conversation>,
    incoming: Incoming,
    body: body::Share,
) -> Result<Response, Later> {
    let id = incoming.id.clone();
    let again = incoming.request.repeats().then(|| incoming.clone());
    let room = shared.dispatch.replies();
    let looked_at = again.as_ref().and_then(|again| again.request.looks_at());
    let mut share = None;
    if let Some(full) = looked_at.and_then(|sealed| room.known(&caller.owner, sealed)) {
        share = room.wait(full).await;
        if share.is_none() {
            return Ok(single(edge, &id, &Reply::Error(replies::refusal())));
        }
    }
    let mut handled = shared.dispatch.handle(caller, place, incoming).await;
    drop(body);
    loop {
        let reply = match handled {
            Handled::Reply(reply) => reply,
            Handled::Call(held) => return Err(Later::Call(held)),
            Handled::Wait(waiting) => return Err(Later::Wait(waiting)),
            Handled::Relay(relaying) => return Err(Later::Relay(relaying)),
            Handled::Listen(listener) => return Err(Later::Listen(listener)),
        };
        let full = match fitted(shared, edge, &id, &reply, &mut share) {
            Ok(response) => return Ok(response),
            Err(full) => full,
        };
        drop(reply);
        if let Some(sealed) = looked_at {
            room.learn(&caller.owner, sealed, full);
        }
        share = room.wait(full).await;
        let (Some(_), Some(again)) = (&share, &again) else {
            return Ok(single(edge, &id, &Reply::Error(replies::refusal())));
        };
        handled = shared.dispatch.handle(caller, place, again.clone()).await;
    }
}

/// Makes a response of a reply, when there is room for it.
type Make = fn(&Shared, Edge, &RequestId, &Reply, &mut Option<Share>) -> Result<Response, Full>;

/// Waits for the last reply of a call or a wait; what else it has to tell is dropped.
pub(super) async fn at_end(
    shared: &Shared,
    edge: Edge,
    id: &RequestId,
    mut source: impl Steps,
    make: Make,
) -> Response {
    let mut share = None;
    loop {
        let Step::Reply(reply) = source.next().await else {
            continue;
        };
        let full = match make(shared, edge, id, &reply, &mut share) {
            Ok(response) => {
                source.delivered().await;
                return response;
            }
            Err(full) => full,
        };
        drop(reply);
        share = shared.dispatch.replies().wait(full).await;
        if share.is_none() {
            return single(edge, id, &Reply::Error(replies::refusal()));
        }
    }
}

/// What `tasks/result` says to a client that takes no stream and has waited long enough.
pub(super) fn still_running() -> Reply {
    Reply::Error(RpcError::internal(
        "still_running",
        "The task has not ended yet: ask again, or accept `text/event-stream`",
    ))
}

/// One JSON object with the status that its outcome has; a small one.
pub(super) fn single(edge: Edge, id: &RequestId, reply: &Reply) -> Response {
    with_retry(json(edge.status(reply), edge.render(reply, id)), reply)
}

/// As [`single`], when there is room for it.
pub(super) fn fitted(
    shared: &Shared,
    edge: Edge,
    id: &RequestId,
    reply: &Reply,
    share: &mut Option<Share>,
) -> Result<Response, Full> {
    let frame = shared.dispatch.replies().fit(edge.render(reply, id), share)?;
    Ok(with_retry(json(edge.status(reply), frame), reply))
}

/// As [`fitted`], for a call that was taken: an error is then the tool's own, and its code says nothing about
/// this exchange. A tool's `-32601` must not look like a missing method of this server (D-9).
pub(super) fn taken(
    shared: &Shared,
    edge: Edge,
    id: &RequestId,
    reply: &Reply,
    share: &mut Option<Share>,
) -> Result<Response, Full> {
    let is_the_tools_own = reply
        .error()
        .is_some_and(|error| matches!(error.data, Data::None | Data::Raw(_) | Data::Whole(_)))
        && !lacks(reply);
    if !is_the_tools_own {
        return fitted(shared, edge, id, reply, share);
    }
    let frame = shared.dispatch.replies().fit(edge.render(reply, id), share)?;
    Ok(json(200, frame))
}

/// Whether the reply says that the client did not declare what its request needs: its status is part of that (B-6).
pub(super) fn lacks(reply: &Reply) -> bool {
    reply
        .error()
        .is_some_and(|error| error.code == rpc_error::MISSING_CAPABILITY)
}

fn with_retry(mut response: Response, reply: &Reply) -> Response {
    if let Some(seconds) = retry_after(reply) {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

pub(super) fn refused(edge: Edge, malformed: &Malformed) -> Response {
    json(edge.malformed_status(malformed), edge.malformed(malformed))
}

pub(super) fn json(status: u16, frame: impl Into<Body>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (
        status,
        [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "no-store"),
        ],
        frame.into(),
    )
        .into_response()
}

pub(super) fn text(status: StatusCode, line: &str) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        format!("{line}\n"),
    )
        .into_response()
}

fn retry_after(reply: &Reply) -> Option<u64> {
    match &reply.error()?.data {
        Data::Refusal(refusal) => refusal
            .retry_after_ms
            .map(|milliseconds| milliseconds.div_ceil(1000)),
        Data::None | Data::Raw(_) | Data::Whole(_) => None,
    }
}
