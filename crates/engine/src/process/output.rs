//! Output within bounds: what is kept in memory, what goes to the spool, what is only counted.
//!
//! Called by the keeper for each chunk that it reads. It never interprets bytes and never holds more than the
//! limits say, whatever the program writes.

use std::{
    collections::VecDeque,
    fs, io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{fs::File, io::AsyncWriteExt};

/// Standard output of a program that ended.
#[derive(Debug, Default)]
pub struct Output {
    /// The first bytes, at most [`Limits::output_max`](super::Limits::output_max).
    pub bytes: Vec<u8>,
    /// How many bytes were written in all.
    pub total: u64,
    /// The file with the output from its first byte on, where memory was not enough.
    pub spilled: Option<Spill>,
    /// How many bytes at the end were dropped: past the hard limit, or because the spool could not be written.
    pub dropped: u64,
}

/// A file without a name: its space is free as soon as no process has it open, however that process ended.
#[derive(Debug)]
pub struct Spill {
    file: fs::File,
}

impl Spill {
    /// The file, open for reading and writing. Its offset is at the end of what was written.
    pub fn file(&self) -> &fs::File {
        &self.file
    }
}

/// Collects standard output.
pub(super) struct Collector {
    output: Output,
    output_max: usize,
    spill_max: u64,
    file: Option<File>,
    path: PathBuf,
}

impl Collector {
    pub(super) fn new(output_max: usize, spill_max: u64, path: PathBuf) -> Collector {
        Collector {
            output: Output::default(),
            output_max,
            spill_max,
            file: None,
            path,
        }
    }

    pub(super) async fn push(&mut self, chunk: &[u8]) {
        let room = self.output_max - self.output.bytes.len();
        let had = self.output.total;
        self.output.total += chunk.len() as u64;
        self.output
            .bytes
            .extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() <= room {
            return;
        }
        let kept = usize::try_from(self.spill_max.saturating_sub(had))
            .unwrap_or(usize::MAX)
            .min(chunk.len());
        let written = if self.output.dropped > 0 || kept <= room {
            kept.min(room)
        } else {
            self.spill(&chunk[..kept], room).await
        };
        self.output.dropped += (chunk.len() - written) as u64;
    }

    /// Returns how many bytes of the chunk are kept.
    async fn spill(&mut self, chunk: &[u8], room: usize) -> usize {
        match self.append(chunk, room).await {
            Ok(()) => chunk.len(),
            Err(error) => {
                tracing::warn!(%error, "cannot write to the spool; output is cut off");
                room
            }
        }
    }

    async fn append(&mut self, chunk: &[u8], room: usize) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut file = File::options()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&self.path)
                    .await?;
                // Before anything is written: no kill leaves a tool's output on the disk.
                tokio::fs::remove_file(&self.path).await?;
                let before = self.output.bytes.len() - room;
                file.write_all(&self.output.bytes[..before]).await?;
                self.file.insert(file)
            }
        };
        file.write_all(chunk).await
    }

    pub(super) async fn finish(mut self) -> Output {
        if let Some(mut file) = self.file.take() {
            if let Err(error) = file.flush().await {
                tracing::warn!(%error, "cannot write to the spool; output is cut off");
            }
            self.output.spilled = Some(Spill {
                file: file.into_std().await,
            });
        }
        self.output
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    max: usize,
    pub(super) total: u64,
}

impl Tail {
    pub(super) fn new(max: usize) -> Tail {
        Tail {
            bytes: VecDeque::new(),
            max,
            total: 0,
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.total += chunk.len() as u64;
        let chunk = &chunk[chunk.len().saturating_sub(self.max)..];
        let excess = (self.bytes.len() + chunk.len()).saturating_sub(self.max);
        self.bytes.drain(..excess);
        self.bytes.extend(chunk);
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

/// No holder of the lock can leave half a tail behind, not even one that panicked.
pub(super) fn lock(tail: &Mutex<Tail>) -> MutexGuard<'_, Tail> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One piece of a line.
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// The line goes on.
    pub(super) more: bool,
}

/// Cuts a stream into lines, and lines that are too long into pieces.
pub(super) struct Cutter {
    held: Vec<u8>,
    max: usize,
}

impl Cutter {
    /// `max` below 1 counts as 1.
    pub(super) fn new(max: usize) -> Cutter {
        Cutter {
            held: Vec::new(),
            max: max.max(1),
        }
    }

    /// Takes the front of `chunk`, as much as makes one piece; `None` when the chunk is used up.
    pub(super) fn next(&mut self, chunk: &mut &[u8]) -> Option<Piece> {
        let room = self.max - self.held.len();
        let end = chunk.iter().take(room + 1).position(|byte| *byte == b'\n');
        let (taken, skipped, whole) = match end {
            Some(end) => (end, 1, true),
            None => (chunk.len().min(room), 0, false),
        };
        let (front, rest) = chunk.split_at(taken);
        self.held.extend_from_slice(front);
        *chunk = &rest[skipped..];
        // A full buffer is told only when more of the line is there, so that a line of exactly `max` is whole.
        (whole || !chunk.is_empty()).then(|| Piece {
            bytes: std::mem::take(&mut self.held),
            more: !whole,
        })
    }

    /// What is left at the end of the stream.
    pub(super) fn last(&mut self) -> Option<Piece> {
        (!self.held.is_empty()).then(|| Piece {
            bytes: std::mem::take(&mut self.held),
            more: false,
        })
    }
}
