//! The requests to one URL: their headers, the session that they belong to, and where what is heard goes.
//!
//! Used by the link and by each exchange. Nothing here waits for a reply to a request.

use std::{
    error::Error as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use longhaul_mcp::client::Sent;
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};

use super::{
    super::link::{Heard, Lost, Why},
    LARGE_MAX, SMALL_MAX, TELL_MAX,
};
use crate::command;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// The longest id of a session, in bytes.
const SESSION_ID_MAX: usize = 1024;

pub(super) struct Wire {
    client: Client,
    url: Url,
    headers: Mutex<HeaderMap>,
    session: Mutex<Session>,
    /// Streams carry ids to go on from.
    resumable: AtomicBool,
    /// For how many reasons the session is not to be ended.
    kept: AtomicUsize,
    heard: mpsc::Sender<Told>,
    large: Arc<Semaphore>,
}

/// Something that was heard, and the room that it takes until it is read.
pub(super) type Told = (Heard, Option<OwnedSemaphorePermit>);

/// What one reply may take of the memory for all of them: the start of it always, all of it when its turn has come.
pub(super) struct Room<'a> {
    wire: &'a Wire,
    permit: Option<OwnedSemaphorePermit>,
}

impl<'a> Room<'a> {
    pub(super) fn of(wire: &'a Wire) -> Room<'a> {
        Room { wire, permit: None }
    }

    /// Waits for the turn of a reply that has grown to so many bytes.
    pub(super) async fn take(&mut self, bytes: usize) {
        if bytes > SMALL_MAX && self.permit.is_none() {
            // Never closed.
            self.permit = Arc::clone(&self.wire.large).acquire_owned().await.ok();
        }
    }

    pub(super) fn is_large(&self) -> bool {
        self.permit.is_some()
    }

    /// The room of what is complete; what comes next takes its own.
    pub(super) fn leave(&mut self) -> Room<'a> {
        Room {
            wire: self.wire,
            permit: self.permit.take(),
        }
    }
}

#[derive(Default)]
struct Session {
    id: Option<HeaderValue>,
    /// What goes with requests that carry no frame.
    headers: Vec<(String, String)>,
}

/// A notification or an answer did not arrive.
#[derive(Debug, thiserror::Error)]
#[error("the server did not take it: {0}")]
pub struct Untaken(String);

impl Wire {
    pub(super) fn new(client: Client, url: Url, headers: HeaderMap, heard: mpsc::Sender<Told>) -> Wire {
        Wire {
            client,
            url,
            headers: Mutex::new(headers),
            session: Mutex::default(),
            resumable: AtomicBool::new(false),
            kept: AtomicUsize::new(0),
            heard,
            large: Arc::new(Semaphore::new(LARGE_MAX)),
        }
    }

    /// The configured headers, as they are now.
    pub(super) fn headers(&self) -> HeaderMap {
        self.headers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn renew(&self, headers: HeaderMap) {
        *self.headers.lock().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request that carries a frame, and whether it names a session.
    pub(super) fn post(&self, sent: Sent) -> Result<(RequestBuilder, bool), String> {
        let mut request = self
            .client
            .post(self.url.clone())
            .headers(self.headers())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(sent.frame);
        for (name, value) in sent.headers {
            request = request.header(header(&name)?, value);
        }
        let session = self.session().id.clone();
        let named = session.is_some();
        if let Some(id) = session {
            request = request.header(SESSION, id);
        }
        Ok((request, named))
    }

    /// A request without a frame.
    fn bare(&self, method: Method) -> RequestBuilder {
        let request = self.client.request(method, self.url.clone());
        let mut headers = self.headers();
        for (name, value) in &self.session().headers {
            let pair = header(name).ok().zip(HeaderValue::try_from(value).ok());
            headers.extend(pair);
        }
        request.headers(headers)
    }

    pub(super) fn stream(&self, after: Option<&str>) -> RequestBuilder {
        let mut request = self.bare(Method::GET).header(ACCEPT, "text/event-stream");
        if let Some(id) = self.session().id.clone() {
            request = request.header(SESSION, id);
        }
        match after {
            Some(id) => request.header(LAST_EVENT, id),
            None => request,
        }
    }

    /// Sends a notification or an answer.
    pub(super) async fn tell(&self, sent: Sent) -> Result<(), Untaken> {
        let (request, session) = self.post(sent).map_err(Untaken)?;
        let response = timeout(TELL_MAX, request.send()).await;
        let response = response
            .map_err(|_late| Untaken("no answer in time".to_owned()))?
            .map_err(|error| Untaken(causes(&error)))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND if session => {
                self.session_ended().await;
                Err(Untaken("its session has ended".to_owned()))
            }
            status => Err(Untaken(format!("HTTP status {status}"))),
        }
    }

    /// From here on these headers go with requests that carry no frame, and a stream that breaks is resumed.
    pub(super) fn in_session(&self, headers: Vec<(String, String)>) {
        self.session().headers = headers;
        self.resumable.store(true, Ordering::Relaxed);
    }

    /// A stream that breaks may be resumed.
    pub(super) fn is_resumable(&self) -> bool {
        self.resumable.load(Ordering::Relaxed)
    }

    /// the id in a response, visible characters only.
    pub(super) fn begin_session(&self, response: &Response) {
        let id = response.headers().get(SESSION).cloned();
        let id = id.filter(|id| {
            (1..=SESSION_ID_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
        });
        if id.is_some() {
            self.session().id = id;
        }
    }

    pub(super) fn has_session(&self) -> bool {
        self.session().id.is_some()
    }

    /// The session's id.
    pub(super) fn session_id(&self) -> Option<String> {
        let session = self.session();
        session.id.as_ref()?.to_str().ok().map(str::to_owned)
    }

    /// The session was begun on another connection, and has this id. Nothing is changed where none can be so called.
    pub(super) fn go_on_with(&self, session: &str) {
        if let Ok(mut id) = HeaderValue::try_from(session) {
            id.set_sensitive(true);
            self.session().id = Some(id);
        }
    }

    /// The session is not to be ended with the connection, until [`Wire::let_go`].
    pub(super) fn keep(&self) {
        self.kept.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn let_go(&self) {
        self.kept.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends the session, if there is one, and nobody goes on with it.
    pub(super) async fn end_session(&self) {
        if self.kept.load(Ordering::SeqCst) > 0 && !longhaul_core::fault!("ends-a-session-that-works") {
            return;
        }
        let session = self.session().id.take();
        if let Some(id) = session {
            let request = self.bare(Method::DELETE).header(SESSION, id);
            // A server may refuse to end it, and it may be gone.
            let _unended = timeout(TELL_MAX, request.send()).await;
        }
    }

    pub(super) async fn hear(&self, heard: Heard) {
        self.hear_in(Room::of(self), heard).await;
    }

    /// Tells what was heard; it takes its room until it is read.
    pub(super) async fn hear_in(&self, room: Room<'_>, heard: Heard) {
        // Whoever listened is gone.
        let _closed = self.heard.send((heard, room.permit)).await;
    }

    pub(super) async fn session_ended(&self) {
        self.hear(Heard::Lost(Lost {
            why: Why::SessionEnded,
            stderr: String::new(),
            confirmed: true,
        }))
        .await;
    }
}

fn header(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name).map_err(|_| format!("the header `{name}` cannot be sent"))
}

pub(super) fn is_stream(response: &Response) -> bool {
    response.status().is_success() && has_type(response, "text/event-stream")
}

pub(super) fn has_type(response: &Response, wanted: &str) -> bool {
    let value = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = value
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(wanted)
}

/// What went wrong, without the URL: it may hold a secret.
pub(in crate::upstream) fn causes(error: &reqwest::Error) -> String {
    match error.source() {
        Some(cause) => command::causes(cause),
        None => "the connection failed".to_owned(),
    }
}
