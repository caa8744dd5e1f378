//! Reads a body: no more than the limit, and no slower than the time that a sender has.
//!
//! A body takes its share of the memory for bodies as it grows, so a sender that stops holds no more than it sent.

use std::{error::Error as _, sync::Arc};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{
    Limits,
    connections::{Deadline, TooSlow},
};

/// A body that is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    TooLarge { body_max: usize },
    TooSlow,
    Busy,
    Broken,
}

/// How many bytes of bodies this listener holds at once.
///
/// Most of it is for whoever comes first. A part is kept for what is small, so that a cancel or an answer finds
/// room among large calls. And there is room for one whole body more, for one at a time: where all others are half
/// read and wait for each other, that one ends, and the next one has its turn.
#[derive(Clone)]
pub(super) struct Budget {
    all: Arc<Semaphore>,
    small: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

/// The memory that one body takes; given back when it is dropped. It is kept for as long as what was parsed from
/// the body is.
#[derive(Debug, Default)]
pub(super) struct Share {
    units: usize,
    parts: Vec<OwnedSemaphorePermit>,
    has_turn: bool,
}

/// A body in memory.
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    pub(super) share: Share,
}

/// The budget is counted in units of this many bytes.
const UNIT: usize = 1024;
/// What counts as small.
pub(super) const SMALL: usize = 64 * 1024;

impl Budget {
    /// Room for `bytes`, and for one body of `body_max` in any case.
    pub(super) fn new(bytes: usize, body_max: usize) -> Budget {
        let small = (bytes / 4).max(SMALL);
        let all = bytes.saturating_sub(small).saturating_sub(body_max);
        let pool = |bytes: usize| Arc::new(Semaphore::new(bytes.div_ceil(UNIT).min(Semaphore::MAX_PERMITS)));
        Budget {
            all: pool(all),
            small: pool(small),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Makes the share large enough for `bytes`, once there is room.
    async fn grow(&self, share: &mut Share, bytes: usize) {
        let units = bytes.div_ceil(UNIT);
        if share.has_turn || units <= share.units {
            return;
        }
        let more = u32::try_from(units - share.units).unwrap_or(u32::MAX);
        let taken = match Arc::clone(&self.all).try_acquire_many_owned(more) {
            Ok(taken) => taken,
            Err(_) if bytes <= SMALL => some(&self.small, more).await,
            Err(_) => tokio::select! {
                biased;
                taken = some(&self.all, more) => taken,
                turn = some(&self.turn, 1) => {
                    share.has_turn = true;
                    turn
                }
            },
        };
        share.units = units;
        share.parts.push(taken);
    }
}

async fn some(pool: &Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    let taken = Arc::clone(pool).acquire_many_owned(units).await;
    taken.expect("the semaphore is never closed")
}

/// Reads the body of a request.
pub(super) async fn read(
    request: Request,
    limits: &Limits,
    budget: &Budget,
) -> Result<(Parts, Whole), Refusal> {
    let (parts, body) = request.into_parts();
    let body_max = limits.body_max;
    let announced: Option<usize> = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length| length > body_max) {
        return Err(Refusal::TooLarge { body_max });
    }
    // One time for all: for the headers, the wait for room, and the body.
    let deadline = parts.extensions.get::<Deadline>();
    let deadline = deadline.map_or_else(|| Instant::now() + limits.request_time, |deadline| deadline.0);
    let whole = read_all(body, announced, body_max, deadline, budget).await?;
    Ok((parts, whole))
}

async fn read_all(
    body: Body,
    announced: Option<usize>,
    body_max: usize,
    deadline: Instant,
    budget: &Budget,
) -> Result<Whole, Refusal> {
    let mut stream = body.into_data_stream();
    let mut share = Share::default();
    let mut bytes = BytesMut::new();
    loop {
        let next = timeout_at(deadline, stream.next()).await;
        let Some(chunk) = next.map_err(|_| Refusal::TooSlow)? else {
            return Ok(Whole {
                bytes: bytes.freeze(),
                share,
            });
        };
        let chunk = chunk.map_err(|error| broken(&error))?;
        let length = bytes.len() + chunk.len();
        if length > body_max {
            return Err(Refusal::TooLarge { body_max });
        }
        let grown = timeout_at(deadline, budget.grow(&mut share, length)).await;
        grown.map_err(|_| Refusal::Busy)?;
        if length > bytes.capacity() {
            // Address space, not memory: a page that is not written to costs nothing, and no copy is made of a body
            // that grows.
            let room = match announced {
                Some(announced) => announced,
                None if length <= SMALL => length,
                None => body_max,
            };
            bytes.reserve(room.max(length) - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// Why a body ended early.
fn broken(error: &axum::Error) -> Refusal {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<TooSlow>() {
            return Refusal::TooSlow;
        }
        cause = error.source();
    }
    Refusal::Broken
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
                "the request took too long to arrive (`server.read_timeout`)\n".to_owned(),
            ),
            Refusal::Broken => (StatusCode::BAD_REQUEST, "the body broke off\n".to_owned()),
        };
        let mut response = (
            status,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            line,
        )
            .into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if self == Refusal::Busy {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        response
    }
}

/// When a sender that found no room should try again, in seconds.
const RETRY_AFTER: &str = "1";
