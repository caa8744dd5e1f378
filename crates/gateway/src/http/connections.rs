//! Connections of the listener: how many there are, and how long one may keep us waiting.
//!
//! A sender has one time for a whole request, and a reader has a time to take what it asked for; whoever needs
//! longer loses the connection and gives its place back (DOS-6, DOS-7). Where every place is taken, a newcomer gets
//! the one of whoever keeps us waiting longest. What a request may hold is the router's.

mod place;
mod request;
mod stream;

use std::{io, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown, service::TowerToHyperService};
use tokio::net::{TcpListener, TcpStream};

pub(super) use self::request::{Deadline, TooSlow};
use self::{place::Places, stream::Connection};
use crate::activity::Activity;

/// What the connections of a listener are limited to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most at once; past it, a new one takes the place of one that keeps us waiting
    /// (`server.connections_max`).
    pub connections_max: usize,
    /// How long a request may take to arrive, from its first byte to the end of its body (`server.read_timeout`).
    pub request_time: Duration,
    /// How long a connection may stay without a request (`server.idle_timeout`).
    pub idle_time: Duration,
    /// How long a reader may take nothing of what waits for it (`server.slow_reader`).
    pub reader_time: Duration,
    /// The most bytes of a refused request that are read, so that its sender sees the refusal.
    pub refused_bytes_max: usize,
}

/// Serves `router` until `ended` resolves, then gives up the address, says so by `released`, and lets open requests
/// finish.
///
/// # Errors
/// None today: a connection that cannot be accepted is logged, and the next one is waited for.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    activity: &Activity,
    ended: impl Future<Output = ()>,
    released: impl FnOnce(),
) -> io::Result<()> {
    let places = Places::new(limits.connections_max);
    let open = GracefulShutdown::new();
    tokio::pin!(ended);
    loop {
        let next = async {
            let stream = accept(&listener).await;
            (stream, places.take().await)
        };
        tokio::select! {
            () = &mut ended => break,
            (stream, place) = next => {
                let pulse = Arc::clone(place.pulse());
                let io = TokioIo::new(Connection::new(stream, Arc::clone(&pulse), limits));
                let service = TowerToHyperService::new(router.clone());
                let told = Arc::clone(&pulse);
                let service = service_fn(move |request: Request<Incoming>| {
                    let pulse = Arc::clone(&told);
                    let answered = service.call(request::arrived(request, &pulse, limits.request_time));
                    async move { Ok::<_, std::convert::Infallible>(request::answered(answered.await?, pulse)) }
                });
                let served = http1::Builder::new()
                    // The connection keeps its own times.
                    .header_read_timeout(None)
                    .max_buf_size(BUFFER_MAX)
                    .serve_connection(io, service);
                let served = open.watch(served);
                let guest = activity.enter();
                tokio::spawn(async move {
                    let _open = (place, guest);
                    let served = tokio::select! {
                        () = pulse.given_up() => return,
                        served = served => served,
                    };
                    if let Err(error) = served {
                        tracing::debug!(%error, "a connection ended early");
                    }
                });
            }
        }
    }
    drop(listener);
    released();
    open.shutdown().await;
    Ok(())
}

/// The next connection.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A frame is one write: waiting for more of it only delays the reply.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not switch off the delay of small packets");
                }
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The wait after a connection could not be accepted: most often this process has no descriptor left, and one
/// must be closed first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of headers, and of small frames that wait for a reader, on one connection. A larger frame is taken
/// whole and nothing follows it until it is written.
const BUFFER_MAX: usize = 64 * 1024;

/// A body as the router takes it.
type Arrived = Request<Body>;
