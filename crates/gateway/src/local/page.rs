//! The local page: what runs, what asks, Cancel, and a place to answer, for the one user of this machine.
//!
//! A router that `serve` mounts beside the MCP endpoint on loopback. Whoever comes needs a session, which a
//! one-time link starts ([`super::links`]). There is no script on it; every text is escaped by construction.
//! It holds neither the engine nor the store and decides nothing: each action is a [`Backend`] call.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Form, Router,
    extract::{DefaultBodyLimit, Path, Query, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use maud::Markup;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    form::{self, Field, Kind},
    links::{Links, SESSION_VALID, Visit, is_name},
};
use crate::admin::{Backend, Error, api};

mod asked;
mod show;

/// The most bytes of a form that a browser sends.
pub const FORM_MAX: usize = 256 * 1024;
/// The most tasks on the overview.
pub const SHOWN_MAX: u32 = 100;

/// Sent with every reply (S12). `same-origin` and not `no-referrer`: browsers send `Origin: null` with a form
/// of a page that sends no referrer, and the origin is checked.
pub(crate) const HEADERS: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
];

/// What the routes share.
#[derive(Clone)]
struct Shared {
    backend: Arc<dyn Backend>,
    links: Links,
    hosts: Arc<[String]>,
}

/// The page. `hosts` are the authorities under which it may be reached, such as `127.0.0.1:7410` and
/// `localhost:7410`; a request for any other is refused (S4).
pub fn router(backend: Arc<dyn Backend>, links: Links, hosts: Vec<String>) -> Router {
    let shared = Shared {
        backend,
        links,
        hosts: hosts.into(),
    };
    Router::new()
        .route("/", get(overview))
        .route("/open", get(open))
        .route("/tasks/{name}", get(task))
        .route("/tasks/{name}/cancel", post(cancel))
        .route("/ask/{name}", get(ask).post(answer))
        .route("/style.css", get(style))
        .layer(DefaultBodyLimit::max(FORM_MAX))
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// Why the page does not show what was asked for.
enum Refused {
    /// No session: the browser was not let in by a link, or the server was restarted since.
    NoSession,
    /// The link was used before, or is too old.
    LinkSpent,
    /// The request comes from elsewhere than a form of this page.
    Elsewhere,
    /// What the backend says.
    Backend(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Backend(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, title, text) = match self {
            Refused::NoSession => (
                StatusCode::UNAUTHORIZED,
                "This page needs a link",
                "Run `longhaul page` in a terminal and open the link that it prints.".to_owned(),
            ),
            Refused::LinkSpent => (
                StatusCode::UNAUTHORIZED,
                "This link no longer works",
                "A link works once, for ten minutes. Run `longhaul page` for a new one.".to_owned(),
            ),
            Refused::Elsewhere => (
                StatusCode::FORBIDDEN,
                "Not done",
                "The request did not come from a form of this page, or the page is older than the server. Go \
                 back, load the page again, and repeat it."
                    .to_owned(),
            ),
            Refused::Backend(error) => {
                let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                (status, "Not done", error.message)
            }
        };
        (status, show::refused(title, &text)).into_response()
    }
}

type Shown = Result<Markup, Refused>;

async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = if reached_rightly(&shared.hosts, request.headers()) {
        next.run(request).await
    } else {
        (
            StatusCode::FORBIDDEN,
            "this address is not the local page's: see the setting `server.allowed_hosts`\n",
        )
            .into_response()
    };
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether the request names this page as its host: a name that was rebound to loopback does not.
fn reached_rightly(hosts: &[String], headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return false;
    };
    host.to_str()
        .is_ok_and(|host| hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)))
}

#[derive(Deserialize)]
struct Opening {
    link: String,
    task: Option<String>,
}

async fn open(
    State(shared): State<Shared>,
    opening: Result<Query<Opening>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refused> {
    let Ok(Query(opening)) = opening else {
        return Err(Refused::LinkSpent);
    };
    let cookie = shared.links.spend(&opening.link).ok_or(Refused::LinkSpent)?;
    let to = match opening.task.filter(|name| is_name(name)) {
        Some(name) => format!("/ask/{name}"),
        None => "/".to_owned(),
    };
    let cookie = format!(
        "{}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}",
        shared.links.cookie(),
        SESSION_VALID.as_secs()
    );
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&to)).into_response())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct View {
    still: Option<String>,
    said: Option<String>,
}

async fn overview(State(shared): State<Shared>, headers: HeaderMap, Query(view): Query<View>) -> Shown {
    let visit = visit(&shared, &headers)?;
    let filter = api::Filter {
        limit: Some(SHOWN_MAX),
        ..api::Filter::default()
    };
    let listed = shared.backend.list(visit.peer, filter).await?;
    let servers = shared.backend.servers(visit.peer).await?;
    let health = shared.backend.health(visit.peer).await?;
    Ok(show::overview(
        &visit,
        &listed,
        &servers,
        &health,
        view.still.is_some(),
        said(&view),
    ))
}

async fn task(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(view): Query<View>,
) -> Shown {
    let visit = visit(&shared, &headers)?;
    let task = shared.backend.get(visit.peer, name.clone()).await?;
    let outcome = match task.state.is_finished() {
        true => shared.backend.result(visit.peer, name).await.ok(),
        false => None,
    };
    Ok(show::task(
        &visit,
        &task,
        outcome.as_ref(),
        view.still.is_some(),
        said(&view),
    ))
}

async fn ask(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(view): Query<View>,
) -> Shown {
    let visit = visit(&shared, &headers)?;
    let task = shared.backend.get(visit.peer, name).await?;
    Ok(asked::page(&visit, &task, &asked::Page::said(said(&view))))
}

async fn cancel(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Form(sent): Form<Vec<(String, String)>>,
) -> Result<Redirect, Refused> {
    let visit = acting(&shared, &headers, &sent)?;
    let task = shared.backend.cancel(visit.peer, name).await?;
    Ok(Redirect::to(&format!("/tasks/{}?said=cancelled", task.name)))
}

async fn answer(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Form(sent): Form<Vec<(String, String)>>,
) -> Result<Response, Refused> {
    let visit = acting(&shared, &headers, &sent)?;
    let task = shared.backend.get(visit.peer, name.clone()).await?;
    let typed = typed(sent);
    let key = typed
        .get("question")
        .and_then(|values| values.first())
        .cloned()
        .unwrap_or_default();
    let Some(question) = task.questions.iter().find(|question| question.key == key) else {
        return Ok(late(&visit, &task, &key));
    };
    let misfit = |task: &api::Task, field: Option<String>, message: String| {
        let wrong = asked::Wrong {
            question: key.clone(),
            field,
            message,
        };
        let page = asked::Page {
            wrong: Some((&wrong, &typed)),
            ..asked::Page::default()
        };
        (StatusCode::UNPROCESSABLE_ENTITY, asked::page(&visit, task, &page)).into_response()
    };
    let action = match typed
        .get("action")
        .and_then(|values| values.first())
        .map(String::as_str)
    {
        Some("accept") => api::Action::Accept,
        Some("decline") => api::Action::Decline,
        Some("dismiss") => api::Action::Dismiss,
        Some(_) | None => return Err(Refused::Elsewhere),
    };
    let content = match (action, &question.form) {
        (api::Action::Accept, Some(form)) => match content(&form::fields(form), &typed) {
            Ok(content) => Some(content),
            Err((field, error)) => return Ok(misfit(&task, Some(field), error.to_string())),
        },
        (api::Action::Accept, None) | (api::Action::Decline | api::Action::Dismiss, _) => None,
    };
    let answer = api::Answer {
        question: Some(key.clone()),
        action,
        content,
    };
    match shared.backend.answer(visit.peer, name.clone(), answer).await {
        Ok(task) => {
            let place = if task.questions.is_empty() { "tasks" } else { "ask" };
            let said = match action {
                api::Action::Accept => "answered",
                api::Action::Decline => "declined",
                api::Action::Dismiss => "dismissed",
            };
            Ok(Redirect::to(&format!("/{place}/{}?said={said}", task.name)).into_response())
        }
        Err(error) if error.status == 422 => {
            let task = shared.backend.get(visit.peer, name).await?;
            match task.questions.iter().any(|question| question.key == key) {
                true => Ok(misfit(&task, error.field, error.message)),
                false => {
                    let page = asked::Page::warned(DECLINED);
                    Ok((
                        StatusCode::UNPROCESSABLE_ENTITY,
                        asked::page(&visit, &task, &page),
                    )
                        .into_response())
                }
            }
        }
        Err(error) if error.reason == "question_closed" => {
            let task = shared.backend.get(visit.peer, name).await?;
            Ok(late(&visit, &task, &key))
        }
        Err(error) => Err(error.into()),
    }
}

/// What somebody sees whose third answer did not fit.
const DECLINED: &str = "Three answers did not fit, and the question counts as declined.";

/// What somebody sees whose answer comes too late: why, and what is asked now.
fn late(visit: &Visit, task: &api::Task, key: &str) -> Response {
    let settled = task.settled.iter().find(|settled| settled.key == key);
    let said = settled.map_or(
        "Your answer changed nothing: the question is no longer open.",
        |settled| match settled.how {
            api::How::Given => "Your answer changed nothing: the question was answered already, and the first answer counts.",
            api::How::Declined => {
                "Your answer changed nothing: the question was declined already, by somebody or because its time was over."
            }
            api::How::Dismissed => {
                "Your answer changed nothing: the question was closed already, by somebody or because its time was over."
            }
            api::How::Withdrawn => {
                "Your answer changed nothing: the question was taken back, and nobody waits for an answer any more."
            }
        },
    );
    let page = asked::Page::warned(said);
    (StatusCode::CONFLICT, asked::page(visit, task, &page)).into_response()
}

async fn style() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/css; charset=utf-8")],
        include_str!("page/style.css"),
    )
}

/// The visit that the request's cookie stands for.
fn visit(shared: &Shared, headers: &HeaderMap) -> Result<Visit, Refused> {
    let name = shared.links.cookie();
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(found, _)| *found == name)
        .find_map(|(_, value)| shared.links.visit(value))
        .ok_or(Refused::NoSession)
}

/// The visit behind a form, once everything says that the form is this page's own.
fn acting(shared: &Shared, headers: &HeaderMap, sent: &[(String, String)]) -> Result<Visit, Refused> {
    let visit = visit(shared, headers)?;
    let one = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let origin_fits = match (one(header::ORIGIN), one(header::HOST)) {
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(scheme, authority)| {
            matches!(scheme, "http" | "https") && authority.eq_ignore_ascii_case(host)
        }),
        (None, _) | (_, None) => false,
    };
    let site_fits = one(HeaderName::from_static("sec-fetch-site")).is_none_or(|site| site == "same-origin");
    let token = sent
        .iter()
        .find(|(name, _)| name == "form_token")
        .map_or("", |(_, value)| value);
    match origin_fits && site_fits && visit.sent(token) {
        true => Ok(visit),
        false => Err(Refused::Elsewhere),
    }
}

fn typed(sent: Vec<(String, String)>) -> BTreeMap<String, Vec<String>> {
    let mut typed = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in sent {
        // Browsers send line ends as CR LF.
        typed.entry(name).or_default().push(value.replace("\r\n", "\n"));
    }
    typed
}

fn content(
    fields: &[Field],
    typed: &BTreeMap<String, Vec<String>>,
) -> Result<Box<RawValue>, (String, form::TypeError)> {
    let mut members = BTreeMap::new();
    for field in fields {
        let values = typed.get(&asked::input_name(field)).cloned().unwrap_or_default();
        let values = match &field.kind {
            // A box that is not ticked is not sent at all.
            Kind::Check if values.is_empty() => vec!["false".to_owned()],
            Kind::List(_) => values
                .iter()
                .flat_map(|text| text.lines().map(str::to_owned))
                .collect(),
            Kind::Text { .. }
            | Kind::Number { .. }
            | Kind::Check
            | Kind::One(_)
            | Kind::Several(_)
            | Kind::Json => values,
        };
        if let Some(value) = field.read(&values).map_err(|error| (field.name.clone(), error))? {
            members.insert(field.name.clone(), value);
        }
    }
    Ok(form::object(&members))
}

fn said(view: &View) -> Option<&'static str> {
    match view.said.as_deref() {
        Some("answered") => Some("The answer was given."),
        Some("declined") => Some("The question was declined. The tool decides what it does now."),
        Some("dismissed") => {
            Some("The question was closed without an answer. The tool decides what it does now.")
        }
        Some("cancelled") => Some("The task was cancelled. Its work is being stopped."),
        Some(_) | None => None,
    }
}
