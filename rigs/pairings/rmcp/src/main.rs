//! A server on rmcp with its tasks, for clients of 2026-07-28: `rmcp-tasks [PORT]`, on its standard streams without a port.
//!
//! A call of who takes tasks becomes one. All others are answered at their end, or with what they ask.

mod work;

use std::{env, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CreateTaskResult,
        GetTaskParams, GetTaskResult, Implementation, InputRequiredResult, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
    },
    service::RequestContext,
    task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions},
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The only question, by its key.
const PERSON: &str = "person";

/// The wire's JSON as a value of rmcp.
fn of<T: DeserializeOwned>(json: Value) -> Result<T, ErrorData> {
    serde_json::from_value(json).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn text(words: &str) -> Result<CallToolResult, ErrorData> {
    of(json!({"content": [{"type": "text", "text": words}], "resultType": "complete"}))
}

fn form() -> Value {
    let fields = json!({"name": {"type": "string", "title": "Name"}});
    let schema = json!({"type": "object", "properties": fields, "required": ["name"]});
    let params = json!({"mode": "form", "message": "Whom shall I greet?", "requestedSchema": schema});
    json!({"method": "elicitation/create", "params": params})
}

fn greeting(answer: &Value) -> String {
    let name = answer["content"]["name"].as_str().or(answer["action"].as_str());
    format!("Hello, {}!", name.unwrap_or("nobody"))
}

#[derive(Clone)]
struct Server {
    tasks: TaskManager,
}

impl Server {
    fn tools() -> Value {
        let tool = |name: &str, arguments: Value| {
            let schema = json!({"type": "object", "properties": arguments});
            json!({"name": name, "description": format!("The tool {name}"), "inputSchema": schema})
        };
        json!([
            tool("hello", json!({"name": {"type": "string"}})),
            tool("works", json!({"seconds": {"type": "number"}})),
            tool("asks", json!({})),
            tool("waits", json!({"label": {"type": "string"}})),
        ])
    }
}

/// One call: what it is told, and what it has to do with that.
struct Call {
    tool: String,
    arguments: Value,
}

impl Call {
    /// The work of a task.
    async fn as_task(self, task: TaskContext) -> Result<CallToolResult, TaskExit> {
        if self.tool == "asks" {
            let answer = task.request_input(PERSON, of(form())?).await?;
            return Ok(text(&greeting(&answer))?);
        }
        tokio::select! {
            () = task.cancelled() => Err(TaskExit::Cancelled),
            words = self.words(|part| task.set_status_message(part)) => Ok(text(&words?)?),
        }
    }

    async fn words(&self, note: impl Fn(String)) -> Result<String, ErrorData> {
        match self.tool.as_str() {
            "hello" => Ok(format!(
                "Hello, {}!",
                self.arguments["name"].as_str().unwrap_or("nobody")
            )),
            "works" => {
                let seconds = self.arguments["seconds"].as_f64().unwrap_or(1.0);
                for step in 1..=4 {
                    note(format!("part {step} of 4"));
                    tokio::time::sleep(Duration::from_secs_f64(seconds / 4.0)).await;
                }
                Ok(format!("worked for {seconds} s"))
            }
            "waits" => {
                let label = self.arguments["label"].as_str().unwrap_or("nobody");
                let done = work::waits(label).await;
                done.map_err(|error| ErrorData::internal_error(error.to_string(), None))
            }
            _ => Err(ErrorData::invalid_params("there is no such tool", None)),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tasks()
                .build(),
        )
        .with_server_info(Implementation::new("rmcp-tasks", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        of(json!({"tools": Server::tools(), "resultType": "complete"}))
    }

    /// rmcp checks the headers of a call by this.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools = Server::tools();
        let tool = tools.as_array()?.iter().find(|tool| tool["name"] == name)?;
        of(tool.clone()).ok()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = Call {
            tool: request.name.to_string(),
            arguments: request.arguments.map(Value::from).unwrap_or_default(),
        };
        let takes_tasks = context
            .client_capabilities()
            .is_some_and(|all| all.supports_tasks());
        if takes_tasks && call.tool != "hello" {
            let options = TaskOptions::new().with_poll_interval_ms(500);
            let task = self.tasks.spawn(options, |task| Box::pin(call.as_task(task)));
            return Ok(CallToolResponse::Task(CreateTaskResult::new(task)));
        }
        if call.tool == "asks" {
            let answer = request
                .input_responses
                .as_ref()
                .and_then(|answers| answers.get(PERSON));
            return match answer {
                Some(answer) => Ok(text(&greeting(answer))?.into()),
                None => Ok(InputRequiredResult::new(Some(of(json!({PERSON: form()}))?), None).into()),
            };
        }
        tokio::select! {
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
            words = call.words(|_| ()) => Ok(text(&words?)?.into()),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

#[tokio::main]
async fn main() {
    let server = Server {
        tasks: TaskManager::new(),
    };
    let Some(port) = env::args().nth(1) else {
        let streams = (tokio::io::stdin(), tokio::io::stdout());
        let running = server
            .serve(streams)
            .await
            .expect("the client says what it speaks");
        running
            .waiting()
            .await
            .expect("the server runs until its input ends");
        return;
    };
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::<LocalSessionManager>::default(),
        StreamableHttpServerConfig::default(),
    );
    let port: u16 = port.parse().expect("the port is a number");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("the port is free");
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service))
        .await
        .expect("the server serves");
}
