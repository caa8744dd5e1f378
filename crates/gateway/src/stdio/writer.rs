//! Frames to lines: one task writes what all others queue, and gives up on a reader that takes nothing.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinHandle,
};

/// The way to the other end; cheap to clone. When the last clone is dropped, what was queued is written and the
/// connection is closed.
#[derive(Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Vec<u8>>,
}

impl Writer {
    /// Begins to write. The second value resolves when all was written, and says whether the other end took it.
    pub(super) fn begin(
        writer: impl AsyncWrite + Unpin + Send + 'static,
        queue_max: usize,
        reader_time: Duration,
    ) -> (Writer, JoinHandle<bool>) {
        let (queue, frames) = mpsc::channel(queue_max);
        let written = tokio::spawn(write(writer, frames, reader_time));
        (Writer { queue }, written)
    }

    /// Queues a frame, once there is room. One that nobody can read any more is dropped.
    pub(super) async fn send(&self, mut frame: Vec<u8>) {
        // What is relayed as it was written may have line ends between its tokens; inside strings they are escaped.
        for byte in frame.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        frame.push(b'\n');
        let _ = self.queue.send(frame).await;
    }

    /// Resolves when the other end takes nothing any more.
    pub(super) async fn broken(&self) {
        self.queue.closed().await;
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Vec<u8>>,
    reader_time: Duration,
) -> bool {
    while let Some(frame) = frames.recv().await {
        if let Err(error) = line(&mut writer, &frame, reader_time).await {
            tracing::debug!(%error, "the other end of a connection takes nothing");
            return false;
        }
    }
    // One that is closed already has all.
    let _ = tokio::time::timeout(reader_time, writer.shutdown()).await;
    true
}

/// Writes one line. Each part of it has the whole time.
async fn line(
    writer: &mut (impl AsyncWrite + Unpin),
    mut frame: &[u8],
    reader_time: Duration,
) -> io::Result<()> {
    let slow = |_| io::Error::from(io::ErrorKind::TimedOut);
    while !frame.is_empty() {
        let part = tokio::time::timeout(reader_time, writer.write(frame)).await;
        match part.map_err(slow)?? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            taken => frame = &frame[taken..],
        }
    }
    let flushed = tokio::time::timeout(reader_time, writer.flush()).await;
    flushed.map_err(slow)?
}
