//! The command's streams: read, bounded, cut into facts; answered and fed.
//!
//! Called by the keeper, once per program. Each stream is a task of its own, so that a full one never holds up
//! another, nor an order to stop. It never decides when a program ends.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Duration, Instant, sleep},
};

use super::{
    Fact, Input, Lines, Output, Spec, Stream,
    keeper::Ends,
    output::{self, Collector, Cutter, Tail},
};

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// After the tree has ended, a stream can only be held open by a process outside of it: how long that is awaited.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// No pipe holds more than this; what is read beyond it after the tree has ended was written by a stranger.
const PIPE_MAX: usize = 1 << 20;

/// The tasks that follow a program's streams.
pub(super) struct Followed {
    /// When something was last read.
    pub(super) activity: watch::Receiver<Instant>,
    /// Set it to stop waiting for whoever reads the facts: lines and messages that do not fit are dropped.
    pub(super) hurry: watch::Sender<bool>,
    /// Set it when the tree has ended.
    pub(super) end: watch::Sender<bool>,
    pub(super) output: JoinHandle<Output>,
    pub(super) errors: JoinHandle<()>,
    pub(super) error_tail: Arc<Mutex<Tail>>,
    pub(super) output_tail: Arc<Mutex<Tail>>,
    pub(super) others: [JoinHandle<()>; 3],
}

pub(super) fn follow(
    spec: &Spec,
    ends: Ends,
    facts: mpsc::Sender<Fact>,
    answers: mpsc::Receiver<Vec<u8>>,
    writes: mpsc::Receiver<Option<Vec<u8>>>,
) -> io::Result<Followed> {
    let (activity, active) = watch::channel(Instant::now());
    let (hurry, hurried) = watch::channel(false);
    let (end, ended) = watch::channel(false);
    let post = Post { facts, hurried };
    let (messages, replies) = UnixStream::into_split(ends.descriptor);
    let output_lines = matches!(spec.lines, Lines::Output | Lines::Both);
    let error_lines = matches!(spec.lines, Lines::Errors | Lines::Both);
    let name: String = spec
        .mark
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(64)
        .collect();
    let path = spec.spool.join(format!("{name}-{}.out", spec.attempt));
    let collector = Collector::new(spec.limits.output_max, spec.limits.spill_max, path);
    let tail = |max| Arc::new(Mutex::new(Tail::new(max)));
    let (error_tail, output_tail) = (
        tail(spec.limits.error_tail_max),
        tail(spec.limits.output_tail_max),
    );
    let line = |stream| Telling {
        stream,
        post: post.clone(),
        cutter: Cutter::new(spec.limits.line_max),
    };
    let output_telling = output_lines.then(|| line(Stream::Output));
    let error_telling = error_lines.then(|| line(Stream::Errors));
    let source = |ended: &watch::Receiver<bool>| Source {
        ended: ended.clone(),
        activity: activity.clone(),
        read_after_end: 0,
    };
    Ok(Followed {
        output: tokio::spawn(read_output(
            ends.output,
            source(&ended),
            collector,
            Arc::clone(&output_tail),
            output_telling,
        )),
        errors: tokio::spawn(read_errors(
            ends.errors,
            source(&ended),
            Arc::clone(&error_tail),
            error_telling,
        )),
        error_tail,
        output_tail,
        others: [
            tokio::spawn(read_messages(
                messages,
                source(&ended),
                Cutter::new(spec.limits.message_max),
                post.clone(),
            )),
            tokio::spawn(until_end(ended.clone(), send_answers(replies, answers))),
            tokio::spawn(until_end(
                ended.clone(),
                feed(ends.input, spec.input.clone(), writes),
            )),
        ],
        activity: active,
        hurry,
        end,
    })
}

/// Where facts go.
#[derive(Clone)]
struct Post {
    facts: mpsc::Sender<Fact>,
    hurried: watch::Receiver<bool>,
}

impl Post {
    async fn tell(&mut self, fact: Fact) {
        if *self.hurried.borrow() {
            // Whoever ordered the stop wants the end, not every line before it.
            let _full = self.facts.try_send(fact);
            return;
        }
        tokio::select! {
            _ = self.facts.send(fact) => {}
            _ = self.hurried.wait_for(|hurry| *hurry) => {}
        }
    }
}

/// A stream that ends with the tree, even when a stranger holds it open.
struct Source {
    ended: watch::Receiver<bool>,
    activity: watch::Sender<Instant>,
    read_after_end: usize,
}

impl Source {
    /// Zero at the end.
    async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin), chunk: &mut [u8]) -> usize {
        if self.read_after_end > PIPE_MAX {
            return 0;
        }
        let over = async {
            // When the keeper is gone, nobody waits for the rest either.
            drop(self.ended.wait_for(|ended| *ended).await);
            sleep(DRAIN_MAX).await;
        };
        let count = tokio::select! {
            biased;
            count = stream.read(chunk) => count.unwrap_or(0),
            () = over => 0,
        };
        if count > 0 {
            self.activity.send_replace(Instant::now());
        }
        if *self.ended.borrow() {
            self.read_after_end += count;
        }
        count
    }
}

/// Tells a stream line by line.
struct Telling {
    stream: Stream,
    post: Post,
    cutter: Cutter,
}

impl Telling {
    async fn push(&mut self, mut chunk: &[u8]) {
        while let Some(piece) = self.cutter.next(&mut chunk) {
            self.post
                .tell(Fact::Line {
                    stream: self.stream,
                    bytes: piece.bytes,
                    more: piece.more,
                    cut: false,
                })
                .await;
        }
    }

    async fn finish(mut self) {
        if let Some(piece) = self.cutter.last() {
            self.post
                .tell(Fact::Line {
                    stream: self.stream,
                    bytes: piece.bytes,
                    more: false,
                    cut: true,
                })
                .await;
        }
        self.post.tell(Fact::Closed(self.stream)).await;
    }
}

async fn read_output(
    mut stream: pipe::Receiver,
    mut source: Source,
    mut collector: Collector,
    tail: Arc<Mutex<Tail>>,
    mut telling: Option<Telling>,
) -> Output {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = source.read(&mut stream, &mut chunk).await;
        if count == 0 {
            break;
        }
        output::lock(&tail).push(&chunk[..count]);
        collector.push(&chunk[..count]).await;
        if let Some(telling) = &mut telling {
            telling.push(&chunk[..count]).await;
        }
    }
    if let Some(telling) = telling {
        telling.finish().await;
    }
    collector.finish().await
}

async fn read_errors(
    mut stream: pipe::Receiver,
    mut source: Source,
    tail: Arc<Mutex<Tail>>,
    mut telling: Option<Telling>,
) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = source.read(&mut stream, &mut chunk).await;
        if count == 0 {
            break;
        }
        output::lock(&tail).push(&chunk[..count]);
        if let Some(telling) = &mut telling {
            telling.push(&chunk[..count]).await;
        }
    }
    if let Some(telling) = telling {
        telling.finish().await;
    }
}

async fn read_messages(mut stream: OwnedReadHalf, mut source: Source, mut cutter: Cutter, mut post: Post) {
    let mut chunk = vec![0; CHUNK];
    let mut too_long = false;
    loop {
        let count = source.read(&mut stream, &mut chunk).await;
        let mut rest = &chunk[..count];
        let pieces = std::iter::from_fn(|| cutter.next(&mut rest));
        let pieces: Vec<_> = if count > 0 {
            pieces.collect()
        } else {
            cutter.last().into_iter().collect()
        };
        for piece in pieces {
            let whole = !piece.more && !too_long;
            if piece.more && too_long || piece.bytes.iter().all(u8::is_ascii_whitespace) && whole {
                continue;
            }
            let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(&piece.bytes).is_ok();
            let more = piece.more;
            if more {
                post.tell(Fact::TooLong { start: piece.bytes }).await;
            } else if whole && is_json() {
                post.tell(Fact::Message(piece.bytes)).await;
            } else if whole {
                post.tell(Fact::Garbled).await;
            }
            too_long = more;
        }
        if count == 0 {
            return;
        }
    }
}

async fn until_end(mut ended: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
}

async fn send_answers(mut stream: OwnedWriteHalf, mut answers: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut answer) = answers.recv().await {
        // JSON has line feeds only between its tokens, where a space means the same.
        answer
            .iter_mut()
            .filter(|byte| **byte == b'\n')
            .for_each(|byte| *byte = b' ');
        answer.push(b'\n');
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn feed(mut stream: pipe::Sender, input: Input, mut writes: mpsc::Receiver<Option<Vec<u8>>>) {
    match input {
        Input::Nothing => {}
        Input::Bytes(bytes) => {
            writes.close();
            // A program need not read its input.
            let _unread = stream.write_all(&bytes).await;
        }
        Input::Open => {
            while let Some(Some(bytes)) = writes.recv().await {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}
