//! What is said to a server of either generation, and whether its reply is what was asked for.

use std::{borrow::Cow, fmt::Write as _, rc::Rc};

use serde::{Deserialize, de::IgnoredAny};

use crate::{
    http::{Connection, Target, beginning},
    pipe::Pipe,
};

const META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"driver","version":"0"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#
);
/// The pause before the next poll where a server gives no hint.
const HINT_DEFAULT_MS: f64 = 1000.0;

/// A generation of MCP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Stateless2026,
    Sessions2025,
}

impl Era {
    /// # Errors
    /// When it is neither.
    pub fn of(version: &str) -> Result<Era, String> {
        match version {
            "2026-07-28" => Ok(Era::Stateless2026),
            "2025-11-25" => Ok(Era::Sessions2025),
            other => Err(format!("no generation `{other}`")),
        }
    }

    pub fn version(self) -> &'static str {
        match self {
            Era::Stateless2026 => "2026-07-28",
            Era::Sessions2025 => "2025-11-25",
        }
    }
}

/// How callers reach the server.
#[derive(Clone)]
pub enum Way {
    Http(Target),
    Pipe(Rc<Pipe>),
}

enum Link {
    Http(Box<Connection>),
    Pipe(Rc<Pipe>),
}

/// One caller: it has one call open at a time.
pub struct Caller {
    era: Era,
    link: Link,
    body: Vec<u8>,
    text: String,
    reply: Vec<u8>,
    next: u64,
}

/// A reply's part that is of use here, in both generations.
#[derive(Deserialize)]
struct Envelope<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<Body<'a>>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    task_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    poll_interval_ms: Option<f64>,
    poll_interval: Option<f64>,
    #[serde(borrow)]
    task: Option<Task<'a>>,
    content: Option<Vec<Content>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task<'a> {
    #[serde(borrow)]
    task_id: Cow<'a, str>,
    poll_interval: Option<f64>,
}

#[derive(Deserialize)]
struct Content {
    text: Option<String>,
}

/// What a call of a tool gave.
pub enum Begun {
    Task {
        id: String,
        hint_ms: f64,
    },
    /// The result itself.
    Plain(String),
}

/// What `tasks/get` said. The hint is a number of any form: some write `500.0`.
pub struct Seen {
    pub ended: bool,
    pub status: String,
    pub hint_ms: f64,
}

/// Opens a session where the generation has one; the way then carries it, and no other.
///
/// # Errors
/// When the server does not agree.
pub async fn open(era: Era, way: &mut Way) -> Result<(), String> {
    if era == Era::Stateless2026 {
        return Ok(());
    }
    if let Way::Http(target) = &mut *way {
        target.session = None;
    }
    let mut caller = Caller::new(era, way.clone());
    let params = concat!(
        r#"{"protocolVersion":"2025-11-25","capabilities":{"tasks":{}},"#,
        r#""clientInfo":{"name":"driver","version":"0"}}"#
    );
    caller.exchange("initialize", "", params).await?;
    if let (Way::Http(target), Link::Http(connection)) = (&mut *way, &caller.link) {
        target.session.clone_from(&connection.session);
    }
    let mut caller = Caller::new(era, way.clone());
    caller.notify("notifications/initialized").await
}

/// The message that opens a stream on one task.
pub fn listen(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"taskIds":["{id}"]}}{META}}}}}"#
    )
}

impl Caller {
    pub fn new(era: Era, way: Way) -> Caller {
        Caller {
            era,
            link: match way {
                Way::Http(target) => Link::Http(Box::new(Connection::new(target))),
                Way::Pipe(pipe) => Link::Pipe(pipe),
            },
            body: Vec::with_capacity(1024),
            text: String::new(),
            reply: Vec::new(),
            next: 0,
        }
    }

    pub fn reconnects(&self) -> u64 {
        match &self.link {
            Link::Http(connection) => connection.reconnects,
            Link::Pipe(_) => 0,
        }
    }

    /// Calls a tool as a task.
    ///
    /// # Errors
    /// What is wrong with the reply.
    pub async fn begin(&mut self, tool: &str, arguments: &str) -> Result<Begun, String> {
        let task = match self.era {
            Era::Stateless2026 => "",
            Era::Sessions2025 => r#","task":{}"#,
        };
        self.call(tool, arguments, task).await?;
        let body = self.body()?;
        let (id, hint) = match (body.task_id, body.task) {
            (Some(id), _) => (id, body.poll_interval_ms.or(body.poll_interval)),
            (None, Some(task)) => (task.task_id, task.poll_interval),
            (None, None) => return plain(body.content).map(Begun::Plain),
        };
        Ok(Begun::Task {
            id: id.into_owned(),
            hint_ms: hint.unwrap_or(HINT_DEFAULT_MS),
        })
    }

    /// Calls a tool for its result.
    ///
    /// # Errors
    /// What is wrong with the reply.
    pub async fn plain(&mut self, tool: &str, arguments: &str) -> Result<String, String> {
        self.call(tool, arguments, "").await?;
        plain(self.body()?.content)
    }

    /// # Errors
    /// What is wrong with the reply; that it is of another task, too.
    pub async fn get(&mut self, id: &str) -> Result<Seen, String> {
        self.of_task("tasks/get", id).await?;
        let body = self.body()?;
        if body.task_id.as_deref() != Some(id) {
            return Err("tasks/get answered for another task".to_owned());
        }
        let status = body.status.ok_or("tasks/get without a status")?.into_owned();
        let ended = match status.as_str() {
            "working" | "input_required" => false,
            "completed" | "failed" | "cancelled" => true,
            other => return Err(format!("tasks/get with the status `{other}`")),
        };
        Ok(Seen {
            ended,
            status,
            hint_ms: body
                .poll_interval_ms
                .or(body.poll_interval)
                .unwrap_or(HINT_DEFAULT_MS),
        })
    }

    /// # Errors
    /// What is wrong with the reply.
    pub async fn cancel(&mut self, id: &str) -> Result<(), String> {
        self.of_task("tasks/cancel", id).await?;
        self.body().map(|_| ())
    }

    async fn call(&mut self, tool: &str, arguments: &str, more: &str) -> Result<(), String> {
        let mut params = std::mem::take(&mut self.text);
        params.clear();
        let meta = self.meta();
        let written = write!(
            params,
            r#"{{"name":"{tool}","arguments":{arguments}{more}{meta}}}"#
        );
        let outcome = match written {
            Ok(()) => self.exchange("tools/call", tool, &params).await,
            Err(error) => Err(error.to_string()),
        };
        self.text = params;
        outcome
    }

    async fn of_task(&mut self, method: &str, id: &str) -> Result<(), String> {
        let mut params = std::mem::take(&mut self.text);
        params.clear();
        let written = write!(params, r#"{{"taskId":"{id}"{}}}"#, self.meta());
        let outcome = match written {
            Ok(()) => self.exchange(method, id, &params).await,
            Err(error) => Err(error.to_string()),
        };
        self.text = params;
        outcome
    }

    fn meta(&self) -> &'static str {
        match self.era {
            Era::Stateless2026 => META,
            Era::Sessions2025 => "",
        }
    }

    async fn exchange(&mut self, method: &str, name: &str, params: &str) -> Result<(), String> {
        self.next = match &self.link {
            Link::Http(_) => self.next + 1,
            Link::Pipe(pipe) => pipe.id(),
        };
        self.body.clear();
        let head = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":"#,
            self.next
        );
        self.body.extend_from_slice(head.as_bytes());
        self.body.extend_from_slice(params.as_bytes());
        self.body.push(b'}');
        self.reply.clear();
        match &mut self.link {
            Link::Http(connection) => {
                let reply = connection.exchange(method, name, &self.body).await?;
                self.reply.extend_from_slice(reply);
            }
            Link::Pipe(pipe) => self.reply = pipe.exchange(self.next, &mut self.body).await?,
        }
        Ok(())
    }

    async fn notify(&mut self, method: &str) -> Result<(), String> {
        self.body.clear();
        let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
        self.body.extend_from_slice(message.as_bytes());
        match &mut self.link {
            Link::Http(connection) => connection.exchange(method, "", &self.body).await.map(|_| ()),
            Link::Pipe(pipe) => pipe.notify(&mut self.body).await,
        }
    }

    fn body(&self) -> Result<Body<'_>, String> {
        let reply: Envelope<'_> = serde_json::from_slice(&self.reply)
            .map_err(|error| format!("no reply ({error}): {}", beginning(&self.reply)))?;
        if reply.id != Some(self.next) {
            return Err("a reply to another call".to_owned());
        }
        match (reply.result, reply.error) {
            (Some(body), None) => Ok(body),
            (_, Some(_)) => Err(format!("an error: {}", without_id(&self.reply))),
            (None, None) => Err("a reply without a result".to_owned()),
        }
    }
}

/// Equal errors are to have equal texts.
fn without_id(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    let from = text.find("\"error\"").unwrap_or(0);
    beginning(&text.as_bytes()[from..])
}

fn plain(content: Option<Vec<Content>>) -> Result<String, String> {
    let content = content.ok_or("a result without content")?;
    Ok(content.into_iter().filter_map(|item| item.text).collect())
}
