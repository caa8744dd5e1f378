//! Reads a body: no more than the limit, and no slower than the time that a sender has.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;

use super::Limits;

/// A body that is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    TooLarge { body_max: usize },
    TooSlow,
    Broken,
}

pub(super) async fn read(body: Body, headers: &HeaderMap, limits: &Limits) -> Result<Bytes, Refusal> {
    let body_max = limits.body_max;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > body_max as u64) {
        return Err(Refusal::TooLarge { body_max });
    }
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
        Ok(bytes.freeze())
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
