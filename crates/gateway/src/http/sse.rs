//! Streams of events: what belongs to one call, or to one subscription.
//!
//! A task writes frames into a channel of one; the connection takes them out. So nothing queues: a source is
//! asked for its next frame when the last one was taken, and a reader that takes none for `reader_time` loses
//! its stream.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use longhaul_mcp::{Reply, RequestId, v2026_07_28 as edge};
use tokio::sync::mpsc;

use super::Shared;
use crate::{
    dispatch::{Held, Step},
    listen::{Listener, Tick},
};

/// The frames of one call: progress, then its reply.
pub(super) fn call(shared: Shared, id: RequestId, mut held: Held) -> Response {
    stream(move |sender| async move {
        loop {
            let next = tokio::time::timeout(shared.limits.keep_alive, held.next());
            let (frame, last) = tokio::select! {
                // The client left: dropping the call leaves its work going on.
                () = sender.gone() => return,
                next = next => match next {
                    Err(_) => (comment(), false),
                    Ok(Step::Push(push)) => (event(&edge::push(&push, &id)), false),
                    Ok(Step::Reply(reply)) => (event(&edge::render(&reply, &id)), true),
                },
            };
            if !sender.send(frame, shared.limits.reader_time).await {
                return;
            }
            if last {
                if sender.taken(shared.limits.reader_time).await {
                    held.delivered().await;
                }
                return;
            }
        }
    })
}

/// The frames of one subscription, until all that it follows has ended or the server drains.
pub(super) fn listen(shared: Shared, id: RequestId, mut listener: Listener) -> Response {
    stream(move |sender| async move {
        loop {
            let next = tokio::time::timeout(shared.limits.keep_alive, listener.next());
            let (frame, last) = tokio::select! {
                () = sender.gone() => return,
                () = shared.dispatch.draining() => (event(&edge::render(&Reply::ListenEnded, &id)), true),
                next = next => match next {
                    Err(_) => (comment(), false),
                    Ok(Tick::Push(push)) => (event(&edge::push(&push, &id)), false),
                    Ok(Tick::End(reply)) => (event(&edge::render(&reply, &id)), true),
                },
            };
            if !sender.send(frame, shared.limits.reader_time).await || last {
                return;
            }
        }
    })
}

/// The writing end of a stream.
struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// Whether the frame was taken in time.
    async fn send(&self, frame: Bytes, reader_time: Duration) -> bool {
        matches!(
            tokio::time::timeout(reader_time, self.0.send(frame)).await,
            Ok(Ok(()))
        )
    }

    /// Whether the connection has taken every frame out in time.
    async fn taken(&self, reader_time: Duration) -> bool {
        matches!(
            tokio::time::timeout(reader_time, self.0.reserve()).await,
            Ok(Ok(_))
        )
    }

    /// Resolves when the client has left.
    async fn gone(&self) {
        self.0.closed().await;
    }
}

fn stream<F>(source: impl FnOnce(Sender) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    tokio::spawn(source(Sender(sender)));
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let frame = receiver.recv().await?;
        Some((Ok::<Bytes, Infallible>(frame), receiver))
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
fn event(frame: &[u8]) -> Bytes {
    [b"data: ", frame, b"\n\n"].concat().into()
}

fn comment() -> Bytes {
    Bytes::from_static(b": still here\n\n")
}
