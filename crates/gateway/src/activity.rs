//! Whether anybody is connected. Every connection of every entrance holds a [`Guest`] while it is open.
//!
//! Asked by a background server, which ends when nobody needs it. An idle connection over HTTP is closed soon by
//! its own limits, so an open one is in use.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

/// Counts the open connections; cheap to clone.
#[derive(Clone, Debug)]
pub struct Activity {
    open: watch::Sender<usize>,
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Guest {
    open: watch::Sender<usize>,
}

impl Activity {
    pub(crate) fn new() -> Activity {
        Activity {
            open: watch::Sender::new(0),
        }
    }

    pub(crate) fn enter(&self) -> Guest {
        self.open.send_modify(|open| *open += 1);
        Guest {
            open: self.open.clone(),
        }
    }

    /// Resolves when nobody was connected for this long.
    pub async fn idle(&self, time: Duration) {
        let mut open = self.open.subscribe();
        loop {
            // The sender lives as long as this borrow, so no wait can fail.
            let _ = open.wait_for(|open| *open == 0).await;
            tokio::select! {
                () = tokio::time::sleep(time) => return,
                _ = open.changed() => {}
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.open.send_modify(|open| *open -= 1);
    }
}

/// A stream that is counted as long as it lives.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    _guest: Guest,
}

impl<S> Counted<S> {
    pub(crate) fn new(stream: S, guest: Guest) -> Counted<S> {
        Counted {
            stream,
            _guest: guest,
        }
    }

    pub(crate) fn get(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_time_counts_from_the_end_of_the_last_connection() {
        let activity = Activity::new();
        let (first, second) = (activity.enter(), activity.enter());
        let idle = activity.idle(Duration::from_secs(60));
        tokio::pin!(idle);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, &mut idle).await.is_err());
        drop(first);
        assert!(tokio::time::timeout(hour, &mut idle).await.is_err());
        drop(second);
        let most = Duration::from_secs(59);
        assert!(tokio::time::timeout(most, &mut idle).await.is_err());
        drop(activity.enter());
        assert!(tokio::time::timeout(most, &mut idle).await.is_err());
        assert!(
            tokio::time::timeout(Duration::from_secs(2), &mut idle)
                .await
                .is_ok()
        );
    }
}
