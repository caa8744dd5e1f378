//! Streams of events: what belongs to one call, or to one subscription.
//!
//! A task writes frames into a channel of one; the connection takes them out. So nothing queues: a source is
//! asked for its next frame when the last one was taken, and a reader that takes none for `reader_time` loses
//! its stream.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use longhaul_mcp::{Push, Reply, RequestId, edge::Edge};
use tokio::sync::mpsc;

use super::{Shared, event_id::EventIds};
use crate::{
    dispatch::{Left, Step, Steps},
    listen::{Listener, Tick},
    replies::{self, Full, Share},
    session::{Session, feed, shared::Shared as SharedStream},
};

/// The frames of one request: progress, then its reply. `first` is what it had for its client before there was a stream.
pub(super) fn call(shared: Shared, id: RequestId, source: impl Steps, first: Option<Step>) -> Response {
    stream(move |sender| async move {
        let frames = Frames {
            shared: &shared,
            edge: Edge::Stateless,
            id: &id,
            ids: None,
        };
        // A client that leaves closes its stream: dropping the call leaves its work going on.
        frames.send(source, first, &sender, pending()).await;
    })
}

/// The frames of one request of a session: what belongs to it, then its reply. With a stream id each event
/// has one, so that the client can go on after a cut.
pub(super) fn steps(
    shared: Shared,
    session: Arc<Session>,
    id: RequestId,
    source: impl Steps,
    mut ids: Option<EventIds>,
    begins: Begins,
) -> Response {
    let mut wait = session.waiting(&id);
    stream(move |sender| async move {
        if let Some(ids) = &mut ids
            && !sender.send(begins.with(ids), shared.limits.reader_time).await
        {
            return;
        }
        let over = async {
            tokio::select! {
                // no reply to what nobody waits for.
                reason = wait.given_up() => Some(Left::because(reason.as_deref())),
                () = session.ended() => None,
            }
        };
        let frames = Frames {
            shared: &shared,
            edge: Edge::Session(session.peer().version),
            id: &id,
            ids,
        };
        frames.send(source, None, &sender, over).await;
    })
}

/// The frames of one request, on the edge of its generation.
struct Frames<'a> {
    shared: &'a Shared,
    edge: Edge,
    id: &'a RequestId,
    ids: Option<EventIds>,
}

impl Frames<'_> {
    /// Sends them, until the reply is sent, or the client is gone, or the request is `over`: how its client left it, if
    /// it did.
    async fn send(
        mut self,
        mut source: impl Steps,
        mut first: Option<Step>,
        sender: &Sender,
        over: impl Future<Output = Option<Left>>,
    ) {
        let reader_time = self.shared.limits.reader_time;
        let mut room = Waited::new(self.shared, self.edge, self.id);
        tokio::pin!(over);
        loop {
            let first = first.take();
            let next = async {
                match first {
                    Some(first) => Ok(first),
                    None => tokio::time::timeout(self.shared.limits.keep_alive, source.next()).await,
                }
            };
            let (frame, last) = tokio::select! {
                () = sender.gone() => return,
                left = &mut over => {
                    if let Some(left) = left {
                        source.leave(left);
                    }
                    return;
                }
                next = next => match next {
                    Err(_) => (comment(), false),
                    Ok(Step::Push(push)) => {
                        let asked = asked_by(&push);
                        let frame = self.edge.push(&push, self.id);
                        let version = source.seen().version;
                        (numbered(self.ids.as_mut(), version, asked, &frame).into(), false)
                    }
                    Ok(Step::Reply(reply)) => {
                        let version = source.seen().version;
                        match room.fit(&reply, |frame| numbered(self.ids.as_mut(), version, None, frame)) {
                            Ok(frame) => (frame, true),
                            Err(full) => {
                                drop(reply);
                                if room.wait(full, sender).await {
                                    continue;
                                }
                                return;
                            }
                        }
                    }
                },
            };
            if !sender.send(frame, reader_time).await {
                return;
            }
            if last {
                if sender.taken(reader_time).await {
                    source.delivered().await;
                }
                return;
            }
        }
    }
}

/// The frames of a session's shared stream, until a newer one takes its place or the server drains.
pub(super) fn shared(shared: Shared, session: Arc<Session>, source: SharedStream) -> Response {
    let edge = Edge::Session(session.peer().version);
    // No request is answered here; the id is for streams that have one.
    let id = RequestId::Integer(0);
    stream(move |sender| async move {
        // Dropped in this order, last first: the stream forgets a session that nobody else has.
        let mut source = source;
        let session = session;
        let reader_time = shared.limits.reader_time;
        // So that the client knows at once that the stream is open.
        if !sender.send(comment(), reader_time).await {
            return;
        }
        // The resource of which the frame tells that was sent last.
        let mut last = None;
        loop {
            let next = tokio::time::timeout(shared.limits.keep_alive, source.next());
            let (frame, told) = tokio::select! {
                () = sender.gone() => break,
                () = shared.dispatch.draining() => break,
                () = session.ended() => break,
                next = next => match next {
                    Err(_) => (comment(), None),
                    Ok(Some(push)) => (event(&edge.push(&push, &id)).into(), updated(push)),
                    Ok(None) => break,
                },
            };
            if !sender.send(frame, reader_time).await {
                told.iter().for_each(|uri| session.updates().again(uri));
                break;
            }
            last = told;
        }
        if let Some(uri) = last.filter(|_| !sender.all_taken()) {
            session.updates().again(&uri);
        }
    })
}

/// The resource that a message says has changed.
fn updated(push: Push) -> Option<String> {
    match push {
        Push::ResourceUpdated { uri } => Some(uri),
        Push::Acknowledged(_)
        | Push::Task(_)
        | Push::ToolsChanged
        | Push::PromptsChanged
        | Push::ResourcesChanged
        | Push::Progress { .. }
        | Push::Question { .. }
        | Push::Withdrawn { .. }
        | Push::Log { .. } => None,
    }
}

/// The frames of one subscription, until all that it follows has ended or the server drains.
pub(super) fn listen(shared: Shared, id: RequestId, mut listener: Listener) -> Response {
    let edge = Edge::Stateless;
    stream(move |sender| async move {
        let mut room = Waited::new(&shared, edge, &id);
        loop {
            let next = tokio::time::timeout(shared.limits.keep_alive, listener.next());
            let (frame, last) = tokio::select! {
                () = sender.gone() => return,
                () = shared.dispatch.draining() => (event(&edge.render(&Reply::ListenEnded, &id)).into(), true),
                next = next => match next {
                    Err(_) => (comment(), false),
                    Ok(Tick::Push(push)) => match room.fit_frame(event(&edge.push(&push, &id))) {
                        Ok(frame) => (frame, false),
                        Err(full) => {
                            drop(push);
                            if !room.wait(full, &sender).await {
                                return;
                            }
                            listener.again();
                            continue;
                        }
                    },
                    Ok(Tick::End(reply)) => (event(&edge.render(&reply, &id)).into(), true),
                },
            };
            if !sender.send(frame, shared.limits.reader_time).await || last {
                return;
            }
        }
    })
}

/// What a stream has waited for, so that its next large frame finds room.
struct Waited<'a> {
    shared: &'a Shared,
    edge: Edge,
    id: &'a RequestId,
    share: Option<Share>,
}

impl<'a> Waited<'a> {
    fn new(shared: &'a Shared, edge: Edge, id: &'a RequestId) -> Waited<'a> {
        Waited {
            shared,
            edge,
            id,
            share: None,
        }
    }

    /// The reply as a frame, when there is room for it.
    fn fit(&mut self, reply: &Reply, frame: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<Bytes, Full> {
        self.fit_frame(frame(&self.edge.render(reply, self.id)))
    }

    fn fit_frame(&mut self, frame: Vec<u8>) -> Result<Bytes, Full> {
        self.shared.dispatch.replies().fit(frame, &mut self.share)
    }

    /// Waits for room. False when the stream is over: its client has left, or was told that there is none.
    async fn wait(&mut self, full: Full, sender: &Sender) -> bool {
        self.share = tokio::select! {
            () = sender.gone() => return false,
            share = self.shared.dispatch.replies().wait(full) => share,
        };
        if self.share.is_none() {
            let refused = self.edge.render(&Reply::Error(replies::refusal()), self.id);
            sender
                .send(event(&refused).into(), self.shared.limits.reader_time)
                .await;
        }
        self.share.is_some()
    }
}

/// The writing end of a stream.
struct Sender {
    frames: mpsc::Sender<Bytes>,
    sent: AtomicUsize,
    /// How many frames the connection has taken out.
    taken: Arc<AtomicUsize>,
}

impl Sender {
    /// Whether the frame was taken in time.
    async fn send(&self, frame: Bytes, reader_time: Duration) -> bool {
        let sent = matches!(
            tokio::time::timeout(reader_time, self.frames.send(frame)).await,
            Ok(Ok(()))
        );
        self.sent.fetch_add(usize::from(sent), Ordering::Relaxed);
        sent
    }

    /// Whether the connection has taken every frame out in time.
    async fn taken(&self, reader_time: Duration) -> bool {
        match tokio::time::timeout(reader_time, self.frames.reserve()).await {
            Ok(Ok(_)) => true,
            // A client that has its reply may close the stream at once, before this end was woken.
            Ok(Err(_)) => self.all_taken(),
            Err(_) => false,
        }
    }

    /// Whether the connection has taken every frame out by now.
    fn all_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire) == self.sent.load(Ordering::Relaxed)
    }

    /// Resolves when the client has left.
    async fn gone(&self) {
        self.frames.closed().await;
    }
}

fn stream<F>(source: impl FnOnce(Sender) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (frames, receiver) = mpsc::channel::<Bytes>(1);
    let taken = Arc::new(AtomicUsize::new(0));
    tokio::spawn(source(Sender {
        frames,
        sent: AtomicUsize::new(0),
        taken: Arc::clone(&taken),
    }));
    let frames = futures_util::stream::unfold((receiver, taken), |(mut receiver, taken)| async move {
        let frame = receiver.recv().await?;
        taken.fetch_add(1, Ordering::AcqRel);
        Some((Ok::<Bytes, Infallible>(frame), (receiver, taken)))
    });
    let mut response = (StatusCode::OK, Body::from_stream(frames)).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // B-28
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A frame is JSON on one line, so that it needs one `data:` field only.
fn event(frame: &[u8]) -> Vec<u8> {
    [b"data: ", frame, b"\n\n"].concat()
}

/// As [`event`], with an id when the stream has some.
fn numbered(ids: Option<&mut EventIds>, version: u64, asked: Option<u32>, frame: &[u8]) -> Vec<u8> {
    match ids {
        Some(ids) => {
            let id = ids.next(version, asked);
            [b"id: ", id.as_bytes(), b"\ndata: ", frame, b"\n\n"].concat()
        }
        None => event(frame),
    }
}

/// The number of the question that a message asks.
fn asked_by(push: &Push) -> Option<u32> {
    match push {
        Push::Question { id, .. } => feed::question_of(id).map(|(_, key)| key.0),
        Push::Acknowledged(_)
        | Push::Task(_)
        | Push::ToolsChanged
        | Push::PromptsChanged
        | Push::ResourcesChanged
        | Push::ResourceUpdated { .. }
        | Push::Progress { .. }
        | Push::Withdrawn { .. }
        | Push::Log { .. } => None,
    }
}

/// What a stream with ids begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// An id and no data, so that a stream that is cut before its first message can be resumed.
    Anew,
    /// Nothing that its client has read before.
    Again,
}

impl Begins {
    fn with(self, ids: &mut EventIds) -> Bytes {
        match self {
            Begins::Anew => format!("id: {}\nretry: {RETRY_MS}\ndata: \n\n", ids.next(0, None)).into(),
            Begins::Again => format!("retry: {RETRY_MS}\n\n").into(),
        }
    }
}

/// How long a client waits before it resumes a stream, in milliseconds.
const RETRY_MS: u32 = 1_000;

fn comment() -> Bytes {
    Bytes::from_static(b": still here\n\n")
}
