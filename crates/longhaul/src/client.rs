//! Speaks the local API over the user's socket. The commands that need a server reach it through this.

use std::path::PathBuf;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header,
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use longhaul_gateway::{
    admin::api,
    config::is_section_name,
    local::{links::is_name, pipe},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use crate::exit::{Exit, Failure};

/// The largest reply that is read, in bytes: the largest stored result, escaped as JSON, and some room.
const REPLY_MAX: usize = 256 * 1024 * 1024;
/// The longest event of a watched task, in bytes.
const EVENT_MAX: usize = 4 * 1024 * 1024;

/// The server behind one socket.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    /// The server that listens, or will listen, on this socket.
    pub(crate) fn new(socket: PathBuf) -> Client {
        Client { socket }
    }

    /// The tasks that fit.
    pub(crate) async fn list(&self, filter: &api::Filter) -> Result<api::Tasks, Failure> {
        self.get(&format!("/admin/v1/tasks?{}", query(filter))).await
    }

    /// One task.
    pub(crate) async fn task(&self, name: &str) -> Result<api::Task, Failure> {
        self.get(&task_path(name, "")?).await
    }

    /// How a task ended.
    pub(crate) async fn result(&self, name: &str) -> Result<api::Outcome, Failure> {
        self.get(&task_path(name, "/result")?).await
    }

    /// Cancels a task.
    pub(crate) async fn cancel(&self, name: &str) -> Result<api::Task, Failure> {
        self.post(&task_path(name, "/cancel")?, &serde_json::json!({}))
            .await
    }

    /// Answers a question.
    pub(crate) async fn answer(&self, name: &str, answer: &api::Answer) -> Result<api::Task, Failure> {
        self.post(&task_path(name, "/answer")?, answer).await
    }

    /// Calls a tool.
    pub(crate) async fn run(&self, call: &api::Call) -> Result<api::Started, Failure> {
        self.post("/admin/v1/run", call).await
    }

    /// The tools.
    pub(crate) async fn tools(&self) -> Result<api::Tools, Failure> {
        self.get("/admin/v1/tools").await
    }

    /// The servers behind it.
    pub(crate) async fn servers(&self) -> Result<api::Servers, Failure> {
        self.get("/admin/v1/servers").await
    }

    /// Starts one of them anew.
    pub(crate) async fn restart_server(&self, name: &str) -> Result<api::Server, Failure> {
        if !is_section_name(name) {
            return Err(Failure::new(
                Exit::NotFound,
                "not_found",
                format!("no server is named `{name}`"),
            )
            .fix("longhaul servers"));
        }
        self.post(
            &format!("/admin/v1/servers/{name}/restart"),
            &serde_json::json!({}),
        )
        .await
    }

    /// Begins a login at a server behind it.
    pub(crate) async fn begin_login(&self, server: &str) -> Result<api::Login, Failure> {
        self.post("/admin/v1/login", &at(server)).await
    }

    /// How far a login is.
    pub(crate) async fn login_progress(&self, id: &str) -> Result<api::LoginProgress, Failure> {
        self.get(&format!("/admin/v1/login/{id}")).await
    }

    /// Logs out at a server behind it.
    pub(crate) async fn log_out(&self, server: &str) -> Result<api::LoggedOut, Failure> {
        self.post("/admin/v1/logout", &at(server)).await
    }

    /// The server's state.
    pub(crate) async fn health(&self) -> Result<api::Health, Failure> {
        self.get("/admin/v1/health").await
    }

    /// Asks the server to make way for another one; `in_any_case` also one that a person started. It has not yet
    /// done so when this returns.
    pub(crate) async fn hand_over(&self, in_any_case: bool) -> Result<(), Failure> {
        let query = if in_any_case { pipe::IN_ANY_CASE } else { "" };
        let path = format!("{}?{query}", pipe::HAND_OVER);
        let response = self.send(Method::POST, &path, Bytes::new()).await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(refused(status, &whole(response).await?)),
        }
    }

    /// A connection that speaks MCP. `key` is the same on every connection of one pipe.
    pub(crate) async fn pipe(&self, way: &Way<'_>, key: &str) -> Result<TokioIo<Upgraded>, Failure> {
        let route = match way.shown {
            Shown::All => pipe::STDIO.to_owned(),
            Shown::Toolset(toolset) => format!("{}/{}", pipe::STDIO, toolset_name(toolset)?),
            Shown::Wrapped(brought) => format!("{}/{}", pipe::WRAPPED, self.take_in(brought).await?),
        };
        let mut sender = self.connect().await?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(route)
            .header(header::HOST, "longhaul")
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, pipe::PROTOCOL)
            .header(pipe::KEY, key);
        if let Some(hold) = way.hold {
            request = request.header(pipe::HOLD, hold);
        }
        let request = request
            .body(Full::new(Bytes::new()))
            .map_err(|error| Failure::fault(error.to_string()))?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| broken(&error))?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => hyper::upgrade::on(response)
                .await
                .map(TokioIo::new)
                .map_err(|error| broken(&error)),
            // Ours say what is not there.
            StatusCode::NOT_FOUND => Err(not_there(&whole(response).await?)),
            status => Err(refused(status, &whole(response).await?)),
        }
    }

    /// The name under which the server takes in what is to be wrapped.
    async fn take_in(&self, brought: &Bytes) -> Result<String, Failure> {
        let response = self.send(Method::POST, pipe::WRAPPED, brought.clone()).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(not_there(&whole(response).await?));
        }
        let taken: pipe::TakenIn = read(response).await?;
        match is_section_name(&taken.name) {
            true => Ok(taken.name),
            false => Err(Failure::fault("the server's reply names no server")),
        }
    }

    /// A link to the local page.
    pub(crate) async fn page(&self, task: Option<&str>) -> Result<api::Link, Failure> {
        self.post(
            "/admin/v1/page",
            &api::Open {
                task: task.map(str::to_owned),
            },
        )
        .await
    }

    /// The task as it is, unless its version is at most `since`, then each newer version.
    pub(crate) async fn watch(&self, name: &str, since: u64) -> Result<Watch, Failure> {
        let path = format!("{}?since={since}", task_path(name, "/watch")?);
        let response = self.send(Method::GET, &path, Bytes::new()).await?;
        match response.status() {
            StatusCode::OK => Ok(Watch {
                body: response.into_body(),
                read: Vec::new(),
            }),
            status => Err(refused(status, &whole(response).await?)),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        read(self.send(Method::GET, path, Bytes::new()).await?).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::fault(error.to_string()))?;
        read(self.send(Method::POST, path, body.into()).await?).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, Failure> {
        let mut sender = self.connect().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "longhaul")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| Failure::fault(error.to_string()))?;
        sender.send_request(request).await.map_err(|error| broken(&error))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
            let message = format!("cannot reach the server on `{}`: {error}", self.socket.display());
            Failure::new(Exit::Unreachable, "unreachable", message).fix("longhaul serve")
        })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        // Ends with the sender and the response's body.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }
}

/// The versions of one task.
pub(crate) struct Watch {
    body: Incoming,
    read: Vec<u8>,
}

impl Watch {
    /// The next version; `None` when the server ended the stream or went away.
    pub(crate) async fn next(&mut self) -> Option<api::Task> {
        loop {
            if let Some(task) = self.event() {
                return Some(task);
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.read.extend_from_slice(&data);
            }
            if self.read.len() > EVENT_MAX {
                return None;
            }
        }
    }

    /// The next whole event already read. Our server writes one `data` line for each event.
    fn event(&mut self) -> Option<api::Task> {
        while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.read.drain(..=end).collect();
            let task = line
                .strip_prefix(b"data:")
                .and_then(|data| serde_json::from_slice(data).ok());
            if task.is_some() {
                return task;
            }
        }
        None
    }
}

/// How a pipe is connected.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    /// How long its calls may be held, in seconds.
    pub hold: Option<u32>,
    /// What its client is shown.
    pub shown: Shown<'a>,
}

/// What the client of a pipe is shown.
#[derive(Clone, Copy)]
pub(crate) enum Shown<'a> {
    /// All that is configured.
    All,
    /// A toolset.
    Toolset(&'a str),
    /// What is wrapped, as it is brought.
    Wrapped(&'a Bytes),
}

/// A route of the pipes is not there, or what it names.
fn not_there(body: &[u8]) -> Failure {
    match serde_json::from_slice::<api::Failure>(body) {
        Ok(failure) => Failure::from(failure.error).fix("longhaul doctor"),
        Err(_) => Failure::new(
            Exit::Refused,
            "too_old",
            "the server that runs is too old for this: it serves no such pipe",
        )
        .fix("longhaul serve --replace, or end that server"),
    }
}

fn at(server: &str) -> api::At {
    api::At {
        server: server.to_owned(),
    }
}

fn task_path(name: &str, rest: &str) -> Result<String, Failure> {
    Ok(format!("/admin/v1/tasks/{}{rest}", task_name(name)?))
}

/// A task's name as it was typed, made sure to be one.
///
/// # Errors
/// What is no name is no task either.
pub(crate) fn task_name(typed: &str) -> Result<String, Failure> {
    let name = typed.trim().to_ascii_lowercase();
    match is_name(&name) {
        true => Ok(name),
        false => Err(
            Failure::new(Exit::NotFound, "not_found", format!("no task is named `{name}`"))
                .fix("longhaul tasks"),
        ),
    }
}

/// A toolset's name, made sure to be one.
fn toolset_name(typed: &str) -> Result<&str, Failure> {
    match is_section_name(typed) {
        true => Ok(typed),
        false => Err(Failure::new(
            Exit::NotFound,
            "unknown_toolset",
            format!("no toolset is named `{typed}`"),
        )
        .fix("longhaul doctor")),
    }
}

fn query(filter: &api::Filter) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let limit = filter.limit.map(|limit| limit.to_string());
    for (name, value) in [
        ("status", filter.status.map(api::State::word)),
        ("tool", filter.tool.as_deref()),
        ("session", filter.session.as_deref()),
        ("before", filter.before.as_deref()),
        ("limit", limit.as_deref()),
    ] {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

async fn read<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Failure> {
    let status = response.status();
    let body = whole(response).await?;
    match status.is_success() {
        true => serde_json::from_reader(body.reader()).map_err(|error| {
            Failure::fault(format!("the server's reply cannot be read: {error}"))
                .fix("restart the server: it may be of another version")
        }),
        false => Err(refused(status, &body)),
    }
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, Failure> {
    match Limited::new(response.into_body(), REPLY_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(broken(&*error)),
    }
}

fn refused(status: StatusCode, body: &[u8]) -> Failure {
    match serde_json::from_slice::<api::Failure>(body) {
        Ok(failure) => failure.error.into(),
        Err(_) => Failure::fault(format!("the server replied {status}")),
    }
}

fn broken(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::caused(Exit::Unreachable, "unreachable", error).fix("longhaul logs")
}
