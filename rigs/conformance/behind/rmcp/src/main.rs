//! A server on rmcp with what the official suite calls, at 2025-11-25 and at 2026-07-28: `rmcp-behind PORT`.
//!
//! What it has is defined in `definitions.json`. It keeps nothing between two requests, but whether one more tool is there.

#![expect(
    deprecated,
    reason = "logs, sampling and single subscriptions are of 2025-11-25, which is judged, too"
)]

mod asks;
mod tools;

use std::{
    env,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
        GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, ServerConfig, SetLevelRequestParams,
        SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use asks::{Asker, Halt};

static DEFINITIONS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../definitions.json")).expect("the definitions are JSON")
});

/// The wire's JSON as a value of rmcp.
fn of<T: DeserializeOwned>(json: Value) -> Result<T, ErrorData> {
    serde_json::from_value(json).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A result; rmcp takes its type away for clients that do not know one.
fn result<T: DeserializeOwned>(mut json: Value) -> Result<T, ErrorData> {
    json["resultType"] = "complete".into();
    of(json)
}

/// A list that changed.
#[derive(Clone, Copy)]
enum Changed {
    Tools,
    Prompts,
}

#[derive(Clone)]
struct Behind {
    /// Whether the tool that comes and goes is there.
    one_more: Arc<AtomicBool>,
    changes: broadcast::Sender<Changed>,
}

impl Behind {
    fn tools(&self) -> Value {
        let mut tools = DEFINITIONS["tools"].as_array().cloned().unwrap_or_default();
        if self.one_more.load(Ordering::Relaxed) {
            tools.push(json!({"name": "test_dynamic_tool", "description": "Comes and goes", "inputSchema": {"type": "object"}}));
        }
        tools.into()
    }

    /// Whoever listens is told.
    fn changed(&self, what: Changed) {
        if let Changed::Tools = what {
            self.one_more.fetch_xor(true, Ordering::Relaxed);
        }
        let _ = self.changes.send(what);
    }
}

impl ServerHandler for Behind {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true},
            "completions": {},
            "logging": {},
        });
        ServerConfig::new(of(capabilities).expect("the capabilities are as rmcp has them"))
            .with_server_info(Implementation::new("rmcp-behind", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        result(json!({"tools": self.tools()}))
    }

    /// rmcp checks the headers of a call by this.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools = self.tools();
        let tool = tools.as_array()?.iter().find(|tool| tool["name"] == name)?;
        of(tool.clone()).ok()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        asks::settled(tools::call(self, &request, &context).await)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        result(json!({"prompts": DEFINITIONS["prompts"]}))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        asks::settled(prompt(&request, &context).await)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        result(json!({"resources": DEFINITIONS["resources"]}))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        result(json!({"resourceTemplates": DEFINITIONS["resourceTemplates"]}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri, id) {
            ("test://static-text", _) => {
                json!({"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."})
            }
            ("test://static-binary", _) => json!({"uri": uri, "mimeType": "image/png", "blob": tools::IMAGE}),
            ("test://watched-resource", _) => {
                json!({"uri": uri, "mimeType": "text/plain", "text": "Watched"})
            }
            (_, Some(id)) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
            }
            (_, None) => {
                return Err(ErrorData::resource_not_found(
                    "there is no such resource",
                    Some(json!({"uri": uri})),
                ));
            }
        };
        result(json!({"contents": [contents]})).map(ReadResourceResponse::Complete)
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let value = format!("{}...", request.argument.value);
        result(json!({"completion": {"values": [value], "total": 1, "hasMore": false}}))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    /// A session hears of changes as long as it lasts.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.changes.subscribe();
        tokio::spawn(async move {
            while let Ok(change) = changes.recv().await {
                let told = match change {
                    Changed::Tools => context.peer.notify_tool_list_changed().await,
                    Changed::Prompts => context.peer.notify_prompt_list_changed().await,
                };
                if told.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        let (sink, wanted) = (context.sink(), context.accepted());
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let told = match change {
                Ok(Changed::Tools) if wanted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Ok(Changed::Prompts) if wanted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Ok(Changed::Tools | Changed::Prompts) => Ok(()),
                Err(_) => return Ok(()),
            };
            told.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
    }
}

async fn prompt(
    request: &GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, Halt> {
    let argument = |name: &str| {
        let arguments = request.arguments.as_ref();
        arguments
            .and_then(|all| all.get(name)?.as_str())
            .unwrap_or_default()
    };
    let content = match request.name.as_str() {
        "test_simple_prompt" => vec![tools::text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => vec![tools::text(&format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2")
        ))],
        "test_prompt_with_embedded_resource" => vec![
            tools::resource(
                argument("resourceUri"),
                "text/plain",
                "Embedded resource content for testing.",
            ),
            tools::text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![tools::image(), tools::text("Please analyze the image above.")],
        "test_input_required_result_prompt" => {
            let (answers, state) = (request.input_responses.as_ref(), request.request_state.as_ref());
            let form = asks::form("What context should the prompt use?", "context");
            let asker = Asker::of(context, answers, state)?;
            let answers = asker.ask(json!({"user_context": form}), None).await?;
            vec![tools::text(&format!(
                "Use this: {}",
                answers["user_context"]["content"]["context"]
            ))]
        }
        _ => return Err(ErrorData::invalid_params("there is no such prompt", None).into()),
    };
    let messages: Vec<Value> = content
        .into_iter()
        .map(|content| json!({"role": "user", "content": content}))
        .collect();
    Ok(GetPromptResponse::Complete(result(
        json!({"messages": messages}),
    )?))
}

#[tokio::main]
async fn main() {
    let port = env::args()
        .nth(1)
        .and_then(|port| port.parse().ok())
        .expect("say `rmcp-behind PORT`");
    let behind = Behind {
        one_more: Arc::default(),
        changes: broadcast::channel(16).0,
    };
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(["http://127.0.0.1:*", "http://localhost:*"])
        .enforce_origin_validation();
    let service = StreamableHttpService::new(
        move || Ok(behind.clone()),
        Arc::<LocalSessionManager>::default(),
        config,
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("the port is free");
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service))
        .await
        .expect("the server serves");
}
