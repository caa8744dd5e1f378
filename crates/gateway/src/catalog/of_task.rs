//! Which tool a task runs: the one that it was born with, whatever has its name by now.
//!
//! The catalog makes one for each name, and the worker runs it. A task of a server's tool says which (`view::Context`),
//! so a name that a command or another server has taken since leads nowhere: the task fails, and nothing is called.

use std::{future::ready, sync::Arc};

use longhaul_core::Body;
use longhaul_engine::tool::{Call, Context, Finish, Running, Slots, Tool as Work};
use longhaul_mcp::{RpcError, request::Answers};

use crate::{
    identity,
    upstream::{
        reason::{Asked, Reason},
        relayed::errored,
    },
    view::{self, ServerTool},
};

/// All that tasks under one name may run.
#[derive(Clone, Default)]
pub(super) struct OfTask {
    pub(super) command: Option<Arc<dyn Work>>,
    pub(super) of_servers: Vec<(ServerTool, Arc<dyn Work>)>,
}

impl OfTask {
    /// What tasks under this name count against, one for each tool that has had it.
    pub(super) fn slots(&self, name: &str) -> Vec<Slots> {
        let command = self.command.iter().map(|work| command_slots(name, &**work));
        let of_servers = self
            .of_servers
            .iter()
            .map(|(tool, work)| server_slots(tool, &**work));
        command.chain(of_servers).collect()
    }

    /// What the task of this name and context counts against. One whose tool is gone ends at once.
    pub(super) fn slots_of(&self, name: &str, context: &Body) -> Slots {
        let tool = view::Context::decode(context).server_tool;
        match (&tool, self.of(tool.as_ref())) {
            (Some(tool), Some(work)) => server_slots(tool, &**work),
            (None, Some(work)) => command_slots(name, &**work),
            (_, None) => Slots {
                of: format!("{name} gone"),
                max: 1,
            },
        }
    }

    fn of(&self, tool: Option<&ServerTool>) -> Option<&Arc<dyn Work>> {
        match tool {
            None => self.command.as_ref(),
            Some(_) if longhaul_core::fault!("a-task-runs-another-server-s-tool") => {
                self.of_servers.first().map(|(_, work)| work)
            }
            Some(tool) => {
                let mut tools = self.of_servers.iter();
                tools.find(|(own, _)| own == tool).map(|(_, work)| work)
            }
        }
    }
}

impl Work for OfTask {
    fn run(&self, call: Call, context: Context) -> Running {
        let tool = view::Context::decode(&call.context).server_tool;
        match self.of(tool.as_ref()) {
            Some(work) => work.run(call, context),
            None => gone(&call, tool.as_ref(), context),
        }
    }

    fn concurrency_max(&self) -> usize {
        self.slots("").iter().map(|slots| slots.max).sum()
    }
}

fn command_slots(name: &str, work: &dyn Work) -> Slots {
    Slots {
        of: name.to_owned(),
        max: work.concurrency_max(),
    }
}

/// A command's name has no space.
fn server_slots(tool: &ServerTool, work: &dyn Work) -> Slots {
    Slots {
        of: format!("{} {}", tool.server, tool.tool),
        max: work.concurrency_max(),
    }
}

fn gone(call: &Call, tool: Option<&ServerTool>, context: Context) -> Running {
    let error = match tool {
        Some(tool) => {
            let asked = Asked {
                server: &tool.server,
                runs_longhaul: identity::is_local(&call.owner),
                declared: Answers::ALL,
            };
            Reason::ToolGone.error(asked, longhaul_mcp::clean(&tool.tool, 200))
        }
        None => RpcError::internal(
            Reason::ToolGone.word(),
            format!(
                "The tool of this task is gone: another has its name, `{}`",
                call.tool
            ),
        ),
    };
    let errored = errored(&error);
    Box::pin(async move {
        tokio::select! {
            biased;
            // Only the stop is owed: nothing of it runs.
            () = context.stop() => Finish::Stopped { confirmed: true },
            finish = ready(errored) => finish,
        }
    })
}
