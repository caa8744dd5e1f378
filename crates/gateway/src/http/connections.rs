//! Connections of the listener: how many there are, and how long one may keep us waiting.
//!
//! A sender has a time for its headers and a reader has a time to take what it asked for; whoever needs longer
//! loses the connection and gives its place back (DOS-6, DOS-7). What a request may hold is the router's.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};

use crate::activity::Activity;

/// What the connections of a listener are limited to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most at once; past it, new ones wait until one ends (`server.connections_max`).
    pub connections_max: usize,
    /// How long the headers of a request may take, counted from the end of the reply before
    /// (`server.read_timeout`).
    pub header_time: Duration,
    /// How long a reader may take nothing of what waits for it (`server.slow_reader`).
    pub reader_time: Duration,
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
    let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
    let open = GracefulShutdown::new();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => break,
            (stream, place) = accept(&listener, &places) => {
                let io = TokioIo::new(Connection::new(stream, limits.reader_time));
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(limits.header_time)
                    .serve_connection(io, TowerToHyperService::new(router.clone()));
                let served = open.watch(served);
                let guest = activity.enter();
                tokio::spawn(async move {
                    let _open = (place, guest);
                    if let Err(error) = served.await {
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

/// The next connection, once there is a place for it.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A frame is one write: waiting for more of it only delays the reply.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not switch off the delay of small packets");
                }
                return (stream, place);
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

/// A connection that breaks when its reader takes nothing for too long.
struct Connection {
    stream: TcpStream,
    reader_time: Duration,
    waits: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn new(stream: TcpStream, reader_time: Duration) -> Connection {
        Connection {
            stream,
            reader_time,
            waits: None,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if polled.is_ready() {
            self.waits = None;
            return polled;
        }
        let reader_time = self.reader_time;
        let waits = self
            .waits
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(reader_time)));
        waits
            .as_mut()
            .poll(context)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
