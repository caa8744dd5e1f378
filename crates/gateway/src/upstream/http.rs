//! A server behind a URL: one POST a request, answered with JSON or with a stream of events.
//!
//! Called by `dial`. A request is sent once: what breaks after that is told, never repeated.
//! A stream that broke is resumed where the server gave an id to go on from. No redirect is followed, no cookie
//! kept.

mod exchange;
mod wire;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longhaul_mcp::client::Sent;
use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

pub use self::wire::Untaken;
pub(super) use self::wire::causes;
use self::{
    exchange::Exchange,
    wire::{Told, Wire},
};
use super::link::{Heard, Lost, Why};

/// How long a connection may take to be made.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a reply that has begun may stand still. Streams of events may be silent for longer.
pub const BODY_IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a notification, or the end of a session, may take.
pub const TELL_MAX: Duration = Duration::from_secs(10);
/// How long the first request of a session waits until its stream is open.
pub const LISTEN_MAX: Duration = Duration::from_secs(1);
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
/// What is read of every reply of one server at the same time, in bytes. A longer one is read when its turn has come.
pub const SMALL_MAX: usize = 64 << 10;
/// How many longer replies of one server are read at the same time. With [`SMALL_MAX`] of each of
/// [`PENDING_MAX`](super::connection::PENDING_MAX) requests, one connection holds 128 MiB at most.
pub const LARGE_MAX: usize = 4;

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
    /// It is no URL, or none of HTTP. It may hold a secret, so it is not repeated.
    #[error("its address is no http or https URL")]
    Url,
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
        .ok_or(Unusable::Url)?;
    let headers = headers(remote)?;
    let client = client(&url).map_err(Unusable::Client)?;
    let (heard, hearing) = mpsc::channel(HEARD_MAX);
    let outlet = Outlet {
        inner: Arc::new(Inner {
            wire: Arc::new(Wire::new(client, url, headers, heard)),
            exchanges: Mutex::default(),
        }),
    };
    Ok((outlet.clone(), Inlet { outlet, hearing }))
}

fn headers(remote: &Remote) -> Result<HeaderMap, Unusable> {
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        let pair = HeaderName::try_from(name)
            .ok()
            .zip(HeaderValue::try_from(value).ok());
        let (name, mut value) = pair.ok_or_else(|| Unusable::Header(name.clone()))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
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

/// The configured headers that go with every request, to be compared.
#[derive(Clone, Default, PartialEq)]
pub struct Credentials(HeaderMap);

impl Credentials {
    /// The token among them.
    pub(super) fn bearer(&self) -> Option<&str> {
        let value = self.0.get(reqwest::header::AUTHORIZATION)?.to_str().ok()?;
        value.strip_prefix("Bearer ")
    }
}

/// The way to the server. Cheap to clone.
#[derive(Clone)]
pub struct Outlet {
    inner: Arc<Inner>,
}

struct Inner {
    wire: Arc<Wire>,
    exchanges: Mutex<Exchanges>,
}

#[derive(Default)]
struct Exchanges {
    tasks: JoinSet<()>,
    by_request: BTreeMap<u64, AbortHandle>,
    closed: bool,
}

impl Outlet {
    /// Sends the request with this id. What comes of it is heard at the [`Inlet`]: frames, and at last
    /// [`Heard::Over`] or [`Heard::Refused`] when there is no reply among them.
    ///
    /// `begins_session` says that its reply may bring the id of a session.
    pub fn request(&self, id: u64, sent: Sent, begins_session: bool) {
        let exchange = self.exchange(id, begins_session);
        self.begin(id, async move { exchange.run(sent).await });
    }

    /// Goes on with the stream of a request that was sent before, perhaps on another connection, behind the event of
    /// this id. What comes of it is heard as of one that is sent.
    pub(super) fn go_on(&self, id: u64, after: String) {
        let exchange = self.exchange(id, false);
        self.begin(id, async move { exchange.go_on(after).await });
    }

    fn exchange(&self, id: u64, begins_session: bool) -> Exchange {
        Exchange {
            wire: Arc::clone(&self.inner.wire),
            id,
            begins_session,
        }
    }

    fn begin(&self, id: u64, exchange: impl Future<Output = ()> + Send + 'static) {
        let inner = Arc::clone(&self.inner);
        let mut exchanges = self.inner.exchanges();
        while exchanges.tasks.try_join_next().is_some() {}
        if exchanges.closed {
            return;
        }
        let task = exchanges.tasks.spawn(async move {
            exchange.await;
            inner.exchanges().by_request.remove(&id);
        });
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
        self.inner.wire.tell(sent).await
    }

    /// The configured headers as they go with every request now.
    pub(super) fn credentials(&self) -> Credentials {
        Credentials(self.inner.wire.headers())
    }

    /// From here on the headers of `remote` go with every request; one that cannot be sent changes nothing.
    pub(super) fn renew(&self, remote: &Remote) {
        if let Ok(headers) = headers(remote) {
            self.inner.wire.renew(headers);
        }
    }

    /// From here on these headers go with requests that carry no frame, and a stream that breaks is resumed.
    pub fn in_session(&self, headers: Vec<(String, String)>) {
        self.inner.wire.in_session(headers);
    }

    /// The id of its session.
    pub(super) fn session_id(&self) -> Option<String> {
        self.inner.wire.session_id()
    }

    /// Goes on with a session that was begun on another connection.
    pub(super) fn go_on_with(&self, session: &str) {
        self.inner.wire.go_on_with(session);
    }

    /// The session is not to be ended with the connection, until [`Outlet::let_go`].
    pub(super) fn keep(&self) {
        self.inner.wire.keep();
    }

    /// One reason less not to end the session.
    pub(super) fn let_go(&self) {
        self.inner.wire.let_go();
    }

    /// Listens to what belongs to no request, where the server offers that, until the end. Returns once it listens, or
    /// will not, or after [`LISTEN_MAX`]: many servers ask there, and what they say while nobody listens is lost.
    pub async fn listen(&self) {
        let (open, opened) = oneshot::channel();
        {
            let mut exchanges = self.inner.exchanges();
            if exchanges.closed {
                return;
            }
            exchanges
                .tasks
                .spawn(exchange::listen(Arc::clone(&self.inner.wire), open));
        }
        let _never = timeout(LISTEN_MAX, opened).await;
    }
}

/// What comes from the server. Dropping it closes every stream.
pub struct Inlet {
    outlet: Outlet,
    hearing: mpsc::Receiver<Told>,
}

impl Inlet {
    /// What comes next. Cancel-safe.
    pub async fn next(&mut self) -> Heard {
        match self.hearing.recv().await {
            Some((heard, _room)) => heard,
            // Never: this end keeps a sender.
            None => std::future::pending().await,
        }
    }

    /// Closes every stream and ends the session.
    pub async fn close(self, why: Why) -> Lost {
        let inner = &self.outlet.inner;
        inner.shut();
        inner.wire.end_session().await;
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

    fn shut(&self) {
        let mut exchanges = self.exchanges();
        exchanges.closed = true;
        exchanges.tasks.abort_all();
        exchanges.by_request.clear();
    }
}
