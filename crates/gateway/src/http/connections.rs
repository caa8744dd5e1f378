//! A listener with a cap: past it, new connections wait until one ends (`server.connections_max`).

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// The listener.
pub struct Limited {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection that holds one of the listener's places.
pub struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Limited {
    /// A listener that serves at most `connections_max` at once.
    pub fn new(listener: TcpListener, connections_max: usize) -> Limited {
        Limited {
            listener,
            places: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
        }
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // A frame is one write: waiting for more of it only delays the reply.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "could not switch off the delay of small packets");
        }
        (
            Connection {
                stream,
                _place: place,
            },
            address,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
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
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
