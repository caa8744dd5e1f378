//! `/admin/v1` as HTTP: routes to [`Backend`] calls, [`Error`]s to replies.
//!
//! Mounted on the user's socket. It reads who the peer is from the connection and never from the request.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::{get, post},
};
use futures_util::StreamExt;
use serde::{Deserialize, de::DeserializeOwned};

use super::{Backend, Error, Peer, Who, api};
use crate::local::links::Links;

/// The most bytes of a request body: the arguments of a call are the largest.
pub const BODY_MAX: usize = 4 * 1024 * 1024;

/// What the routes share.
#[derive(Clone)]
struct Shared {
    backend: Arc<dyn Backend>,
    links: Option<Links>,
}

/// The routes of the local API. Each request must carry its [`Peer`] as an extension; the entrance sets it.
///
/// `links` hands out links to the local page; `None` where there is no page.
pub fn router(backend: Arc<dyn Backend>, links: Option<Links>) -> Router {
    Router::new()
        .route("/admin/v1/tasks", get(list))
        .route("/admin/v1/tasks/{name}", get(task))
        .route("/admin/v1/tasks/{name}/result", get(result))
        .route("/admin/v1/tasks/{name}/watch", get(watch))
        .route("/admin/v1/tasks/{name}/cancel", post(cancel))
        .route("/admin/v1/tasks/{name}/answer", post(answer))
        .route("/admin/v1/run", post(run))
        .route("/admin/v1/page", post(page))
        .route("/admin/v1/tools", get(tools))
        .route("/admin/v1/servers", get(servers))
        .route("/admin/v1/servers/{name}/restart", post(restart_server))
        .route("/admin/v1/login", post(begin_login))
        .route("/admin/v1/login/{id}", get(login_progress))
        .route("/admin/v1/logout", post(log_out))
        .route("/admin/v1/health", get(health))
        .fallback(|| async { Error::new(404, -32601, "no_such_route", "no such route", Who::Caller) })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(Shared { backend, links })
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry = self
            .retry_after_ms
            .map(|ms| [("retry-after", ms.div_ceil(1_000).max(1).to_string())]);
        (status, retry, Json(api::Failure { error: self })).into_response()
    }
}

async fn list(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    filter: Result<Query<api::Filter>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<api::Tasks>, Error> {
    let Query(filter) = filter.map_err(|rejection| Error::invalid(rejection.body_text()))?;
    Ok(Json(shared.backend.list(peer, filter).await?))
}

async fn task(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Result<Json<api::Task>, Error> {
    Ok(Json(shared.backend.get(peer, name).await?))
}

async fn result(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Result<Json<api::Outcome>, Error> {
    Ok(Json(shared.backend.result(peer, name).await?))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Since {
    since: u64,
}

async fn watch(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    since: Result<Query<Since>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Error> {
    let Query(Since { since }) = since.map_err(|rejection| Error::invalid(rejection.body_text()))?;
    let versions = shared.backend.watch(peer, name, since).await?;
    let events = versions.filter_map(|task| async move {
        let event = Event::default()
            .event("task")
            .id(task.version.to_string())
            .json_data(&task)
            .ok()?;
        Some(Ok::<Event, Infallible>(event))
    });
    Ok(Sse::new(events)
        .keep_alive(axum::response::sse::KeepAlive::default())
        .into_response())
}

async fn cancel(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Result<Json<api::Task>, Error> {
    Ok(Json(shared.backend.cancel(peer, name).await?))
}

async fn answer(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<api::Task>, Error> {
    Ok(Json(shared.backend.answer(peer, name, parse(&body)?).await?))
}

async fn run(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Bytes,
) -> Result<Json<api::Started>, Error> {
    Ok(Json(shared.backend.run(peer, parse(&body)?).await?))
}

async fn page(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Bytes,
) -> Result<Json<api::Link>, Error> {
    let api::Open { task } = parse(&body)?;
    let links = shared.links.ok_or_else(|| {
        Error::new(
            404,
            -32601,
            "no_page",
            "this server has no local page",
            Who::Operator,
        )
    })?;
    Ok(Json(links.hand_out(peer, task)))
}

async fn tools(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Result<Json<api::Tools>, Error> {
    Ok(Json(shared.backend.tools(peer).await?))
}

async fn servers(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Result<Json<api::Servers>, Error> {
    Ok(Json(shared.backend.servers(peer).await?))
}

async fn restart_server(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
) -> Result<Json<api::Server>, Error> {
    Ok(Json(shared.backend.restart_server(peer, name).await?))
}

async fn begin_login(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Bytes,
) -> Result<Json<api::Login>, Error> {
    let api::At { server } = parse(&body)?;
    Ok(Json(shared.backend.begin_login(peer, server).await?))
}

async fn login_progress(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Result<Json<api::LoginProgress>, Error> {
    Ok(Json(shared.backend.login_progress(peer, id).await?))
}

async fn log_out(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Bytes,
) -> Result<Json<api::LoggedOut>, Error> {
    let api::At { server } = parse(&body)?;
    Ok(Json(shared.backend.log_out(peer, server).await?))
}

async fn health(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Result<Json<api::Health>, Error> {
    Ok(Json(shared.backend.health(peer).await?))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::invalid(error.to_string()))
}
