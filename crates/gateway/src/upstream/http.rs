//! A server behind a URL: one POST a request, answered with JSON or with a stream of events.
//!
//! Called by whoever opens a connection. A request is sent once: what breaks after that is told, never repeated.
//! A stream that broke is resumed where the server gave an id to go on from. No redirect is followed, no cookie
//! kept.

mod exchange;

use std::{
    collections::BTreeMap,
    error::Error as _,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use longhaul_mcp::client::Sent;
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use self::exchange::{Events, Exchange, Place, frame};
use super::link::{Heard, Lost, Via, Why};

/// How long a connection may take to be made.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a reply that has begun may stand still. Streams of events may be silent for longer.
pub const BODY_IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a notification, or the end of a session, may take.
pub const TELL_MAX: Duration = Duration::from_secs(10);
/// How much of the body of a refusal is read, in bytes.
pub const REFUSAL_MAX: usize = 64 << 10;
/// How often the stream of a request is resumed in a row without anything new on it.
pub const RESUMES_MAX: u32 = 5;
/// How long to wait before a stream is resumed: by default, and at most, whatever the server says.
pub const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A peer that is gone without a word is noticed after about so long, three times over.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How many frames wait for the reader.
const HEARD_MAX: usize = 8;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A server behind a URL.
#[derive(Clone)]
pub struct Remote {
    /// `http` or `https`.
    pub url: String,
    /// Headers that go with every request, such as `Authorization`. They hold secrets.
    pub headers: Vec<(String, String)>,
}

/// Why a server cannot be spoken to at all.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It is no URL, or none of HTTP.
    #[error("`{0}` is no http or https URL")]
    Url(String),
    /// A header cannot be sent.
    #[error(
        "the header `{0}` cannot be sent: its name or its value holds a character that no header may hold"
    )]
    Header(String),
    /// TLS cannot be set up.
    #[error("set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// Makes both ends. Nothing is sent yet.
///
/// # Errors
/// What must be changed in the configuration.
pub fn open(remote: &Remote) -> Result<(Outlet, Inlet), Unusable> {
    let url = Url::parse(&remote.url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| Unusable::Url(remote.url.clone()))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        let pair = HeaderName::try_from(name)
            .ok()
            .zip(HeaderValue::try_from(value).ok());
        let (name, mut value) = pair.ok_or_else(|| Unusable::Header(name.clone()))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    let client = client(&url).map_err(Unusable::Client)?;
    let (heard, hearing) = mpsc::channel(HEARD_MAX);
    let outlet = Outlet {
        inner: Arc::new(Inner {
            client,
            url,
            headers,
            session: Mutex::default(),
            resumable: AtomicBool::new(false),
            heard,
            exchanges: Mutex::default(),
        }),
    };
    Ok((outlet.clone(), Inlet { outlet, hearing }))
}

fn client(url: &Url) -> Result<Client, reqwest::Error> {
    // Another part of the process may have chosen one before.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_MAX)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE)
        .tcp_keepalive_retries(2);
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    if is_here { builder.no_proxy() } else { builder }.build()
}

/// The way to the server. Cheap to clone.
#[derive(Clone)]
pub struct Outlet {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    url: Url,
    headers: HeaderMap,
    session: Mutex<Session>,
    /// Streams carry ids to go on from.
    resumable: AtomicBool,
    heard: mpsc::Sender<Heard>,
    exchanges: Mutex<Exchanges>,
}

#[derive(Default)]
struct Session {
    id: Option<HeaderValue>,
    /// What goes with requests that carry no frame.
    headers: Vec<(String, String)>,
}

#[derive(Default)]
struct Exchanges {
    tasks: JoinSet<()>,
    by_request: BTreeMap<u64, AbortHandle>,
    closed: bool,
}

/// A notification or an answer did not arrive.
#[derive(Debug, thiserror::Error)]
#[error("the server did not take it: {0}")]
pub struct Untaken(String);

impl Outlet {
    /// Sends the request with this id. What comes of it is heard at the [`Inlet`]: frames, and at last
    /// [`Heard::Over`] or [`Heard::Refused`] when there is no reply among them.
    ///
    /// `begins_session` says that its reply may bring the id of a session.
    pub fn request(&self, id: u64, sent: Sent, begins_session: bool) {
        let exchange = Exchange {
            inner: Arc::clone(&self.inner),
            id,
            begins_session,
        };
        let mut exchanges = self.inner.exchanges();
        while exchanges.tasks.try_join_next().is_some() {}
        if exchanges.closed {
            return;
        }
        let task = exchanges.tasks.spawn(exchange.run(sent));
        exchanges.by_request.insert(id, task);
    }

    /// Gives a request up: its stream is closed.
    pub fn abandon(&self, id: u64) {
        if let Some(task) = self.inner.exchanges().by_request.remove(&id) {
            task.abort();
        }
    }

    /// Sends a notification or an answer, [`TELL_MAX`] long at most.
    ///
    /// # Errors
    /// It did not arrive, as far as can be seen.
    pub async fn tell(&self, sent: Sent) -> Result<(), Untaken> {
        let (request, session) = self.inner.post(sent).map_err(Untaken)?;
        let response = timeout(TELL_MAX, request.send()).await;
        let response = response
            .map_err(|_late| Untaken("no answer in time".to_owned()))?
            .map_err(|error| Untaken(causes(&error)))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND if session => {
                self.inner.session_ended().await;
                Err(Untaken("its session has ended".to_owned()))
            }
            status => Err(Untaken(format!("HTTP status {status}"))),
        }
    }

    /// From here on these headers go with requests that carry no frame, and a stream that breaks is resumed.
    pub fn in_session(&self, headers: Vec<(String, String)>) {
        self.inner.session().headers = headers;
        self.inner.resumable.store(true, Ordering::Relaxed);
    }

    /// Listens to what belongs to no request, where the server offers that, until the end.
    pub fn listen(&self) {
        let mut exchanges = self.inner.exchanges();
        if !exchanges.closed {
            exchanges.tasks.spawn(Arc::clone(&self.inner).listen());
        }
    }
}

/// What comes from the server. Dropping it closes every stream.
pub struct Inlet {
    outlet: Outlet,
    hearing: mpsc::Receiver<Heard>,
}

impl Inlet {
    /// What comes next. Cancel-safe.
    pub async fn next(&mut self) -> Heard {
        match self.hearing.recv().await {
            Some(heard) => heard,
            // Never: this end keeps a sender.
            None => std::future::pending().await,
        }
    }

    /// Closes every stream and ends the session.
    pub async fn close(self, why: Why) -> Lost {
        let inner = &self.outlet.inner;
        inner.shut();
        let session = inner.session().id.take();
        if let Some(id) = session {
            let request = inner.bare(Method::DELETE).header(SESSION, id);
            // A server may refuse to end it, and it may be gone.
            let _unended = timeout(TELL_MAX, request.send()).await;
        }
        Lost {
            why,
            stderr: String::new(),
            confirmed: true,
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.outlet.inner.shut();
    }
}

impl Inner {
    fn exchanges(&self) -> MutexGuard<'_, Exchanges> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self) {
        let mut exchanges = self.exchanges();
        exchanges.closed = true;
        exchanges.tasks.abort_all();
        exchanges.by_request.clear();
    }

    /// The request that carries a frame, and whether it names a session.
    fn post(&self, sent: Sent) -> Result<(RequestBuilder, bool), String> {
        let mut request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
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
        let mut headers = self.headers.clone();
        for (name, value) in &self.session().headers {
            let pair = header(name).ok().zip(HeaderValue::try_from(value).ok());
            headers.extend(pair);
        }
        request.headers(headers)
    }

    fn stream(&self, after: Option<&str>) -> RequestBuilder {
        let mut request = self.bare(Method::GET).header(ACCEPT, "text/event-stream");
        if let Some(id) = self.session().id.clone() {
            request = request.header(SESSION, id);
        }
        match after {
            Some(id) => request.header(LAST_EVENT, id),
            None => request,
        }
    }

    async fn tell(&self, heard: Heard) {
        // Whoever listened is gone.
        let _closed = self.heard.send(heard).await;
    }

    async fn session_ended(&self) {
        self.tell(Heard::Lost(Lost {
            why: Why::SessionEnded,
            stderr: String::new(),
            confirmed: true,
        }))
        .await;
    }

    /// The stream of the session, again and again.
    async fn listen(self: Arc<Inner>) {
        let mut place = Place::default();
        let mut was_open = false;
        loop {
            let response = self.stream(place.id.as_deref()).send().await;
            match response {
                Ok(response) if is_stream(&response) => {
                    was_open = true;
                    let mut events = Events::new(response);
                    while let Some(event) = events.next().await.unwrap_or(None) {
                        place.take(&event);
                        if let Some(bytes) = frame(event) {
                            self.tell(Heard::Frame {
                                bytes,
                                via: Via::Shared,
                            })
                            .await;
                        }
                    }
                }
                // Before a stream was open this may be all that the server says to a GET.
                Ok(response) if response.status() == StatusCode::NOT_FOUND && was_open => {
                    return self.session_ended().await;
                }
                Ok(response) if response.status().is_server_error() => {}
                Ok(_not_offered) => return,
                Err(_unreachable) => {}
            }
            sleep(place.pause()).await;
        }
    }
}

fn header(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name).map_err(|_| format!("the header `{name}` cannot be sent"))
}

fn is_stream(response: &Response) -> bool {
    response.status().is_success() && has_type(response, "text/event-stream")
}

fn has_type(response: &Response, wanted: &str) -> bool {
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
fn causes(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source = error.source();
    while let Some(cause) = source {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    if text.is_empty() {
        "the connection failed".to_owned()
    } else {
        text
    }
}
