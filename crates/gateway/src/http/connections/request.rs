//! A request between its connection and the router: how much of it has come, by when the rest must, and when its
//! reply is made.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use hyper::{
    Request,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
};
use tokio::time::{Instant, Sleep};

use super::{Arrived, place::Pulse};

/// By when all of a request must have come. Every request of a connection carries it.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Deadline(pub(in crate::http) Instant);

/// The body did not come in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body took too long to arrive")]
pub(in crate::http) struct TooSlow;

/// The request as the router gets it.
pub(super) fn arrived(request: Request<Incoming>, pulse: &Arc<Pulse>, time: Duration) -> Arrived {
    let deadline = pulse.begun() + time;
    let mut request = request.map(|body| {
        let ended = body.is_end_stream();
        if ended {
            pulse.arrived();
        }
        Body::new(Arriving {
            body,
            pulse: Arc::clone(pulse),
            ended,
            deadline,
            late: None,
        })
    });
    request.extensions_mut().insert(Deadline(deadline));
    request
}

/// The reply as the connection gets it.
pub(super) fn answered(response: Response, pulse: Arc<Pulse>) -> hyper::Response<Answered> {
    response.map(|body| Answered { body, pulse })
}

/// The body of a request.
struct Arriving {
    body: Incoming,
    pulse: Arc<Pulse>,
    ended: bool,
    deadline: Instant,
    late: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // One byte a second is too slow, too.
        if Instant::now() >= self.deadline {
            return Poll::Ready(Some(Err(axum::Error::new(TooSlow))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            let deadline = self.deadline;
            let late = self
                .late
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            ready!(late.as_mut().poll(context));
            return Poll::Ready(Some(Err(axum::Error::new(TooSlow))));
        };
        self.ended = frame.is_none() || self.body.is_end_stream();
        if self.ended && !self.pulse.arrived() {
            let gone = io::Error::from(io::ErrorKind::ConnectionAborted);
            return Poll::Ready(Some(Err(axum::Error::new(gone))));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.ended {
            self.pulse.left_unread();
        }
    }
}

/// The body of a reply.
pub(super) struct Answered {
    body: Body,
    pulse: Arc<Pulse>,
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.pulse.replied();
    }
}
