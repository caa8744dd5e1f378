//! One connection's bytes, and the times that both sides have for them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

use super::{
    Limits,
    place::{Phase, Pulse},
};

/// A connection that breaks when its sender or its reader needs too long.
pub(super) struct Connection {
    stream: TcpStream,
    pulse: Arc<Pulse>,
    limits: Limits,
    /// The bytes of this request that were read.
    taken: usize,
    /// Waits for a sender.
    late: Option<Pin<Box<Sleep>>>,
    reader: Reader,
    /// Ends the wait for a sender that is to see a refusal.
    lingers: Option<Pin<Box<Sleep>>>,
}

/// How a reader takes what waits for it.
#[derive(Default)]
struct Reader {
    /// Ends when the reader has to have taken enough.
    waits: Option<Pin<Box<Sleep>>>,
    taken: usize,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, pulse: Arc<Pulse>, limits: Limits) -> Connection {
        Connection {
            stream,
            pulse,
            limits,
            taken: 0,
            late: None,
            reader: Reader::default(),
            lingers: None,
        }
    }

    /// Whether a sender that sends nothing has had its time.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (phase, since) = self.pulse.phase();
        let time = match phase {
            Phase::New | Phase::Arriving => self.limits.request_time,
            // Whoever reads the body says first that it is late.
            Phase::Body => self.limits.request_time + LINGER,
            Phase::Idle => self.limits.idle_time,
            Phase::Serving | Phase::Replied | Phase::GivenUp => return Poll::Pending,
        };
        let due = since + time;
        let late = self
            .late
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        // One that rings too early is set again then, and not at each request.
        if late.deadline() > due {
            late.as_mut().reset(due);
        }
        ready!(late.as_mut().poll(context));
        if Instant::now() < due {
            late.as_mut().reset(due);
            return late.as_mut().poll(context);
        }
        Poll::Ready(())
    }

    /// Whether a sender that sends a little now and then has had its time.
    fn is_late(&self) -> bool {
        let (phase, since) = self.pulse.phase();
        match phase {
            Phase::Arriving => since.elapsed() >= self.limits.request_time,
            Phase::Body => since.elapsed() >= self.limits.request_time + LINGER,
            Phase::New | Phase::Idle | Phase::Serving | Phase::Replied | Phase::GivenUp => false,
        }
    }

    /// What a write led to, and whether the reader has had its time.
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(bytes)) => {
                self.reader.took(bytes);
                self.pulse.stuck(false);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.pulse.stuck(true);
                self.reader
                    .poll_slow(context, self.limits.reader_time)
                    .map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl Reader {
    fn took(&mut self, bytes: usize) {
        self.taken += bytes;
        // Taking a little now and then is not enough while more waits.
        if self.taken >= TAKEN_LEAST {
            *self = Reader::default();
        }
    }

    fn poll_slow(&mut self, context: &mut Context<'_>, time: Duration) -> Poll<()> {
        if self.waits.is_none() {
            self.taken = 0;
        }
        let waits = self
            .waits
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        waits.as_mut().poll(context)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.pulse.phase().0 == Phase::GivenUp {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let came = buffer.filled().len() - before;
        if came > 0 {
            if self.pulse.heard() {
                self.taken = 0;
            }
            self.taken += came;
        }
        let is_late = match polled.is_pending() {
            true => self.poll_late(context).is_ready(),
            false => self.is_late(),
        };
        match is_late {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => polled,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.wrote(context, polled)
    }

    /// A large reply is then written from where it is, and not copied first.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        self.reader = Reader::default();
        self.pulse.written();
        Poll::Ready(flushed)
    }

    /// A sender whose request was refused before all of it came reads the refusal only if we go on taking what it
    /// sends, for a while.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        if !self.pulse.is_unread() {
            return Poll::Ready(Ok(()));
        }
        let lingers = self
            .lingers
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if lingers.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut part = [0; 8 * 1024];
        while self.taken < self.limits.refused_bytes_max {
            let mut part = ReadBuf::new(&mut part);
            match Pin::new(&mut self.stream).poll_read(context, &mut part) {
                Poll::Ready(Ok(())) if !part.filled().is_empty() => self.taken += part.filled().len(),
                Poll::Ready(Ok(()) | Err(_)) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }
}

/// How long the sender of a refused request has to read the refusal.
const LINGER: Duration = Duration::from_secs(1);
/// How many bytes a reader must take within its time while more waits.
const TAKEN_LEAST: usize = 1024 * 1024;
