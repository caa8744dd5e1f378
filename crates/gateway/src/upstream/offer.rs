//! What this server offers of the tools of a server behind it: a definition and the settings, as a catalog's entry.
//!
//! Called each time that the list of a server's tools was read. It changes nothing in a definition: the edges make
//! the few edits that docs/reference/relay.md lists.

use std::sync::Arc;

use longhaul_core::{
    Span,
    task::{OnCrash, OnSilence, Rules},
};
use longhaul_engine::tool::Tool;
use longhaul_mcp::{
    client::tools::Definition,
    frame::Raw,
    reply::TaskSupport,
    request::{Answers, ToolRule},
};

use crate::{
    catalog::{Arguments, Entry, Holding},
    config::{self, Adoption, Isolation, TaskUse, Tasks, Upstream, UpstreamTool},
};

/// The settings of one tool: what is said of it, else what is said of its server.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    server: &'a Upstream,
    tool: Option<&'a UpstreamTool>,
}

impl<'a> Settings<'a> {
    /// Those of the tool of this name.
    pub fn of(server: &'a Upstream, tool: &str) -> Settings<'a> {
        Settings {
            server,
            tool: server.tools.get(tool),
        }
    }

    /// It is neither listed nor called.
    pub fn is_hidden(&self) -> bool {
        self.tool.is_some_and(|tool| tool.hidden)
    }

    /// How long one call may take.
    pub fn timeout(&self) -> Option<Span> {
        self.said(|tool| tool.timeout).or(self.server.timeout)
    }

    /// The most calls at once.
    pub fn concurrency(&self) -> usize {
        self.said(|tool| tool.concurrency)
            .unwrap_or(self.server.concurrency) as usize
    }

    fn asks_first(&self) -> bool {
        self.tool.is_some_and(|tool| tool.asks_first)
    }

    fn said<T>(&self, what: impl FnOnce(&'a UpstreamTool) -> Option<T>) -> Option<T> {
        self.tool.and_then(what)
    }

    /// Whether a call becomes a task of ours.
    fn support(&self) -> TaskSupport {
        let adoption = self.said(|tool| tool.tasks).unwrap_or(self.server.tasks);
        match (adoption, self.said(|tool| tool.task)) {
            (Adoption::Never, _) | (_, Some(TaskUse::Forbidden)) => TaskSupport::Forbidden,
            (_, Some(TaskUse::Required)) => TaskSupport::Required,
            (Adoption::Relay, None) => TaskSupport::Forbidden,
            (Adoption::Adopt | Adoption::Relay, Some(TaskUse::Optional)) | (Adoption::Adopt, None) => {
                TaskSupport::Optional
            }
        }
    }

    fn rules(&self, tasks: &Tasks) -> Rules {
        Rules {
            on_crash: match self.said(|tool| tool.on_crash).unwrap_or(self.server.on_crash) {
                config::OnCrash::Fail => OnCrash::Fail,
                config::OnCrash::Rerun { starts_max, backoff } => OnCrash::Rerun { starts_max, backoff },
            },
            on_silence: OnSilence::Decline,
            fail_when_nobody_can_answer: false,
            question_deadline: tasks.input_timeout.unwrap_or(tasks.ttl_max),
            // No tool of this version is held for an approval.
            approval_lasts: Span(0),
            questions_max: tasks.questions_max,
        }
    }

    fn holding(&self, tasks: &Tasks) -> Holding {
        let server = self.server;
        Holding {
            hold: self.said(|tool| tool.hold).unwrap_or(server.hold),
            join: self.said(|tool| tool.join).unwrap_or(server.join),
            on_abandon: self.said(|tool| tool.on_abandon).unwrap_or(server.on_abandon),
            show_schema: self
                .said(|tool| tool.show_output_schema)
                .or(server.show_output_schema)
                .unwrap_or(tasks.show_output_schema),
        }
    }
}

/// The catalog's entry for a tool, which `work` calls.
pub fn entry(definition: &Definition, settings: Settings<'_>, tasks: &Tasks, work: Arc<dyn Tool>) -> Entry {
    let support = settings.support();
    Entry {
        listing: definition.listing(&definition.name, support, true),
        rule: ToolRule {
            requires_task: support == TaskSupport::Required && !settings.asks_first(),
            ..definition.rule(support)
        },
        rules: settings.rules(tasks),
        ttl: settings
            .said(|tool| tool.ttl)
            .or(settings.server.ttl)
            .unwrap_or(tasks.ttl),
        promote_after: settings
            .said(|tool| tool.promote_after)
            .or(settings.server.promote_after)
            .unwrap_or(tasks.promote_after),
        asks_first: settings.asks_first(),
        asks_again: false,
        needs: Answers::default(),
        holding: settings.holding(tasks),
        arguments: Arc::new(AsSent),
        is_relayed: true,
        is_of_session: settings.server.isolation == Isolation::Session,
        work,
    }
}

/// The server behind checks its arguments itself, and says what does not fit in its own words.
struct AsSent;

impl Arguments for AsSent {
    fn misfits(&self, _: &Raw) -> Vec<String> {
        Vec::new()
    }
}
