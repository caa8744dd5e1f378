//! Frames to lines: one task writes what all others queue, and gives up on a reader that takes nothing.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// The way to the other end; cheap to clone. When the last clone is dropped, what was queued is written and the
/// connection is closed.
#[derive(Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Queued>,
}

struct Queued {
    line: Bytes,
    /// Told when the other end has it, as far as this system knows.
    written: Option<oneshot::Sender<()>>,
}

impl Writer {
    /// Begins to write. The second value resolves when all was written, and says whether the other end took it.
    pub(super) fn begin(
        writer: impl AsyncWrite + Unpin + Send + 'static,
        queue_max: usize,
        reader_time: Duration,
    ) -> (Writer, JoinHandle<bool>) {
        let (queue, queued) = mpsc::channel(queue_max);
        let written = tokio::spawn(write(writer, queued, reader_time));
        (Writer { queue }, written)
    }

    /// Queues a small frame, once there is a place. An empty one, and one that nobody can read any more, is dropped.
    pub(super) async fn send(&self, mut frame: Vec<u8>) {
        if !frame.is_empty() {
            frame.push(b'\n');
            self.queue(frame.into(), None).await;
        }
    }

    /// As [`Writer::send`], for a whole line.
    pub(super) async fn send_line(&self, line: Bytes) {
        self.queue(line, None).await;
    }

    /// As [`Writer::send_line`]; waits until the line is written. Whether it was.
    pub(super) async fn hand_over(&self, line: Bytes) -> bool {
        let (written, is_written) = oneshot::channel();
        self.queue(line, Some(written)).await;
        is_written.await.is_ok()
    }

    async fn queue(&self, line: Bytes, written: Option<oneshot::Sender<()>>) {
        // Nobody reads any more when this fails.
        let _ = self.queue.send(Queued { line, written }).await;
    }

    /// Resolves when the other end takes nothing any more.
    pub(super) async fn broken(&self) {
        self.queue.closed().await;
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Queued>,
    reader_time: Duration,
) -> bool {
    while let Some(Queued { line, written }) = queue.recv().await {
        if let Err(error) = write_line(&mut writer, &line, reader_time).await {
            tracing::debug!(%error, "the other end of a connection takes nothing");
            return false;
        }
        if let Some(written) = written {
            // Who asked may have been dropped.
            let _ = written.send(());
        }
    }
    // One that is closed already has all.
    let _ = tokio::time::timeout(reader_time, writer.shutdown()).await;
    true
}

/// Writes one line. Each part of it has the whole time.
async fn write_line(
    writer: &mut (impl AsyncWrite + Unpin),
    mut line: &[u8],
    reader_time: Duration,
) -> io::Result<()> {
    let slow = |_| io::Error::from(io::ErrorKind::TimedOut);
    while !line.is_empty() {
        let part = tokio::time::timeout(reader_time, writer.write(line)).await;
        match part.map_err(slow)?? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            taken => line = &line[taken..],
        }
    }
    let flushed = tokio::time::timeout(reader_time, writer.flush()).await;
    flushed.map_err(slow)?
}
