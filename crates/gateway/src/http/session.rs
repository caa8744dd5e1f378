//! What only clients with a session send: frames with a session id, GET for a stream, DELETE.

use std::sync::Arc;

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use longhaul_mcp::{RequestId, RpcError, edge, edge::Opening, rpc_error};

use super::{
    Shared, accepts_stream,
    event_id::{self, EventIds},
    json, read,
    sse::{self, Begins},
    text,
};
use crate::{dispatch::Line, identity::Caller, session::Session};

/// The header with the session's id.
pub(super) const SESSION_ID: &str = "mcp-session-id";
/// The code of a session that is not there, as clients know it.
const SESSION_NOT_FOUND: i64 = -32_001;

/// The session that the headers name, or the answer to a request without one.
pub(super) async fn find(
    shared: &Shared,
    caller: &Caller,
    headers: &HeaderMap,
    id: Option<&RequestId>,
) -> Result<Arc<Session>, Box<Response>> {
    let Some(named) = headers.get(SESSION_ID) else {
        return Err(Box::new(missing(id)));
    };
    //
    if let Err(rule) = edge::check_version_header(&read(headers)) {
        return Err(Box::new(json(400, edge::error(&rule.error(), id))));
    }
    let found = match named.to_str() {
        Ok(named) => shared.dispatch.find_session(caller, named).await,
        Err(_) => Ok(None),
    };
    match found {
        Ok(Some(session)) => Ok(session),
        // unknown, ended and foreign ones are the same to the client.
        Ok(None) => {
            let error = RpcError::plain(SESSION_NOT_FOUND, "Session not found: begin a new one");
            Err(Box::new(json(404, edge::error(&error, id))))
        }
        Err(error) => Err(Box::new(json(503, edge::error(&error, id)))),
    }
}

/// a session's request without its id.
pub(super) fn missing(id: Option<&RequestId>) -> Response {
    let error = RpcError::plain(
        rpc_error::INVALID_REQUEST,
        "`Mcp-Session-Id` is missing: send `initialize` first, then repeat the id that its reply has",
    );
    json(400, edge::error(&error, id))
}

/// The reply to `initialize`, with the id of the new session.
pub(super) fn open(shared: &Shared, caller: &Caller, opening: &Opening) -> Response {
    let (id, _) = shared.dispatch.open_session(caller, opening.peer.clone());
    let mut response = json(
        200,
        edge::opened(&shared.dispatch.discovery(&caller.selection), opening),
    );
    if let Ok(id) = id.parse() {
        response.headers_mut().insert(SESSION_ID, id);
    }
    response
}

/// GET: the session's shared stream, or the rest of a stream that was cut.
pub(super) async fn get(shared: Shared, headers: &HeaderMap) -> Response {
    if !accepts_stream(headers) {
        return text(
            StatusCode::NOT_ACCEPTABLE,
            "a stream needs `Accept: text/event-stream`",
        );
    }
    let caller = shared.caller();
    let session = match find(&shared, &caller, headers, None).await {
        Ok(session) => session,
        Err(response) => return *response,
    };
    let last = headers
        .get("last-event-id")
        .and_then(|last| event_id::parse(last.to_str().ok()?));
    let Some((stream, from)) = last else {
        return match shared.dispatch.shared_stream(&caller, &session) {
            Ok(stream) => sse::shared(shared, session, stream),
            Err(error) => json(429, edge::error(&error, None)),
        };
    };
    let line = Line {
        session: &session,
        send: stream.send.clone(),
        seen: from.seen,
    };
    let resumed = shared
        .dispatch
        .resume_stream(&caller, &stream.name, stream.reply, line)
        .await;
    match resumed {
        Ok(waiting) => {
            let ids = EventIds::of(&stream, from);
            sse::steps(shared, session, stream.request, waiting, ids, Begins::Again)
        }
        Err(error) => json(404, edge::error(&error, None)),
    }
}

/// DELETE: the session is over; its tasks are not.
pub(super) async fn delete(shared: &Shared, headers: &HeaderMap) -> Response {
    let caller = shared.caller();
    let session = match find(shared, &caller, headers, None).await {
        Ok(session) => session,
        Err(response) => return *response,
    };
    match shared.dispatch.end_session(&caller, &session).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => json(503, edge::error(&error, None)),
    }
}
