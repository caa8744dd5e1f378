//! Where the browser comes back to after a login: `/oauth/callback` on the loopback, a plain page without a script.
//!
//! `server` mounts it where it listens; where it listens on no address, one listener serves it for as long as a login may
//! take. Whoever comes without the state of a login that waits changes nothing.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use maud::{DOCTYPE, html};
use serde::Deserialize;

use super::{Failed, Logins, TIME};
use crate::local::page::HEADERS;

/// The path.
pub(super) const PATH: &str = "/oauth/callback";

/// Where a browser is started.
pub(super) const ENTRANCE: &str = "/oauth/begin";

/// What a browser is started with.
#[derive(Deserialize)]
struct Start {
    login: String,
}

/// What the browser brings.
#[derive(Deserialize)]
pub(crate) struct Came {
    pub(super) state: Option<String>,
    pub(super) code: Option<String>,
    pub(super) iss: Option<String>,
    pub(super) error: Option<String>,
}

/// The route. It answers to names of the loopback alone (S4).
pub fn router(logins: Logins) -> Router {
    Router::new()
        .route(PATH, get(callback))
        .route(ENTRANCE, get(begin))
        .with_state(logins)
}

/// Serves the route on a port of its own, until no login can come back to it.
pub(super) async fn serve_once(logins: Logins) -> Result<SocketAddr, Failed> {
    let unheard = |error: std::io::Error| Failed::NoListener(error.to_string());
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(unheard)?;
    let address = listener.local_addr().map_err(unheard)?;
    tokio::spawn(async move {
        let served = axum::serve(listener, router(logins)).into_future();
        let _over = tokio::time::timeout(TIME, served).await;
    });
    Ok(address)
}

async fn callback(
    State(logins): State<Logins>,
    headers: HeaderMap,
    came: Result<Query<Came>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let told = match came {
        Ok(Query(came)) if is_loopback(&headers) => logins.come_back(came).await,
        Ok(_) | Err(_) => Err("This is no reply to a login. Nothing was changed.".to_owned()),
    };
    page(told)
}

async fn begin(
    State(logins): State<Logins>,
    headers: HeaderMap,
    start: Result<Query<Start>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let start = start.ok().filter(|_| is_loopback(&headers));
    match start.and_then(|Query(start)| logins.entrance(&start.login)) {
        Some(link) => {
            let no_store = [
                (header::CACHE_CONTROL, "no-store"),
                (header::REFERRER_POLICY, "no-referrer"),
            ];
            (no_store, Redirect::to(&link)).into_response()
        }
        None => {
            let why = "This link was opened already, or is too old. Run `longhaul login` again.";
            page(Err(why.to_owned()))
        }
    }
}

fn page(told: Result<(), String>) -> Response {
    let (status, title, text) = match told {
        Ok(()) => (
            StatusCode::OK,
            "You are logged in",
            "You can close this window and go back to where you came from.".to_owned(),
        ),
        Err(why) => (StatusCode::BAD_REQUEST, "Not logged in", why),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { (title) } }
            body { main { h1 { (title) } p { (text) } } }
        }
    };
    let mut response = (status, page).into_response();
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    // The address holds a code.
    let referrer = HeaderValue::from_static("no-referrer");
    response.headers_mut().insert(header::REFERRER_POLICY, referrer);
    response
}

fn is_loopback(headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return false;
    };
    let host = host.to_str().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    ["localhost", "127.0.0.1", "[::1]"].contains(&name)
}
