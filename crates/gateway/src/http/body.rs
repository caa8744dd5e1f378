//! Reads a body: no more than the limit, and no slower than the time that a sender has.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;

/// A body that is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    TooLarge { body_max: usize },
    TooSlow,
    Busy,
    Broken,
}

/// How many bytes of bodies this listener holds at once.
#[derive(Clone)]
pub(super) struct Budget(Arc<Semaphore>);

/// A body in memory; it gives its share of the budget back when it is dropped.
pub(super) struct Held {
    bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

/// The budget is counted in units of this many bytes.
const UNIT: usize = 1024;

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget(Arc::new(Semaphore::new(
            (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS),
        )))
    }

    /// A share for a body of this size, when there is room for it.
    async fn share(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX);
        Arc::clone(&self.0)
            .acquire_many_owned(units)
            .await
            .expect("the semaphore is never closed")
    }
}

impl Held {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) async fn read(
    body: Body,
    headers: &HeaderMap,
    limits: &Limits,
    budget: &Budget,
) -> Result<Held, Refusal> {
    let body_max = limits.body_max;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > body_max) {
        return Err(Refusal::TooLarge { body_max });
    }
    // A body of unknown length may become as large as any. Waiting for room is not the sender's slowness.
    let bytes_max = announced.unwrap_or(body_max).min(limits.bodies_max);
    let share = tokio::time::timeout(limits.body_time, budget.share(bytes_max)).await;
    let share = share.map_err(|_| Refusal::Busy)?;
    let reading = async {
        let mut stream = body.into_data_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|_| Refusal::Broken)?;
            if bytes.len() + chunk.len() > body_max {
                return Err(Refusal::TooLarge { body_max });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Held {
            bytes: bytes.freeze(),
            _share: share,
        })
    };
    tokio::time::timeout(limits.body_time, reading)
        .await
        .unwrap_or(Err(Refusal::TooSlow))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, line) = match self {
            Refusal::TooLarge { body_max } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {body_max} bytes (`server.body_max`)\n"),
            ),
            Refusal::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the server holds as many request bodies as it may (`server.bodies_max`); try again\n"
                    .to_owned(),
            ),
            Refusal::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "the body took too long to arrive\n".to_owned(),
            ),
            Refusal::Broken => (StatusCode::BAD_REQUEST, "the body broke off\n".to_owned()),
        };
        let mut response = (
            status,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            line,
        )
            .into_response();
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}
