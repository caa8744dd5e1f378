//! What Longhaul offers of a server behind it: definitions and settings, as entries of the catalog, kept as the server
//! defines its tools.
//!
//! `fleet` starts one [`Offering`] for each server. It changes nothing in a definition: the edges make the few edits that
//! docs/reference/relay.md lists.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use longhaul_core::{
    Span,
    task::{OnCrash, Rules},
};
use longhaul_engine::tool::Tool;
use longhaul_mcp::{
    canon,
    client::{
        list::Item,
        tools::{Definition, LISTED_MAX, listable},
    },
    frame::Raw,
    reply::{Relays, TaskSupport},
    request::{Answers, ToolRule},
};
use tokio::sync::{mpsc, watch};

use super::{
    definitions::{Definitions, Versions},
    relayed::{Relayed, TaskWish},
    server::Server,
};
use crate::{
    catalog::{Arguments, Beside, Catalog, Entry, Holding, Offer},
    config::{self, Adoption, Isolation, OnMisfit, OnNobody, TaskUse, Tasks, Upstream, UpstreamTool},
    view::ServerTool,
};

/// The most characters of the number that tells two listed names apart, with its `_`.
const NUMBER_MAX: usize = 8;

/// What a server newly defines, to be kept until the next start.
pub struct Changed {
    /// The server.
    pub server: String,
    /// What it defines now.
    pub definitions: Arc<Definitions>,
}

/// Keeps the catalog as a server defines its tools.
pub(super) struct Offering {
    /// The server.
    pub server: Server,
    /// Its settings.
    pub config: Arc<Upstream>,
    /// What holds for every task.
    pub tasks: Tasks,
    /// The largest result that is kept, in bytes.
    pub result_max: u64,
    /// The largest question that is passed on, in bytes.
    pub question_max: u64,
    /// Where the tools are offered.
    pub catalog: Arc<Catalog>,
}

impl Offering {
    /// What is offered by what the server defined when it was last seen; `None` when it never was.
    pub(super) fn known(&self) -> Option<Offer> {
        let definitions = self.server.definitions()?;
        Some(self.offer(&definitions, Versions::default()))
    }

    /// Offers what the server newly defines, or says that it does, and tells of it, for as long as the server is there.
    pub(super) async fn follow(
        self,
        mut defined: watch::Receiver<Option<Arc<Definitions>>>,
        changes: mpsc::Sender<Changed>,
    ) {
        let mut said = self.server.watch_said();
        // What was known from the last run is stored already.
        let mut stored = defined.borrow().as_ref().map(|known| known.digest);
        loop {
            let changed = tokio::select! {
                changed = defined.changed() => changed,
                changed = said.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            let lists = *said.borrow_and_update();
            let Some(definitions) = defined.borrow_and_update().clone() else {
                continue;
            };
            self.catalog.offer_all([self.offer(&definitions, lists)]);
            if stored == Some(definitions.digest) {
                continue;
            }
            stored = Some(definitions.digest);
            let changed = Changed {
                server: self.server.name().to_owned(),
                definitions,
            };
            let _nobody_stores_it = changes.send(changed).await;
        }
    }

    fn offer(&self, definitions: &Definitions, said: Versions) -> Offer {
        Offer {
            server: self.server.name().to_owned(),
            tools: self.entries(definitions),
            beside: beside(definitions, said),
        }
    }

    fn entries(&self, definitions: &Definitions) -> Vec<Entry> {
        let tools = definitions.tools.iter().zip(listed_names(&definitions.tools));
        tools
            .filter_map(|(definition, listed)| {
                let settings = Settings::of(&self.config, &definition.name);
                if settings.is_hidden() {
                    return None;
                }
                let work = Relayed {
                    server: self.server.clone(),
                    name: definition.name.clone(),
                    mirrors: definition.mirrors.clone().into(),
                    timeout: settings.timeout(),
                    tasks: settings.task_wish(definition),
                    ttl: settings.ttl(&self.tasks),
                    strict: self.config.strict_tasks,
                    concurrency: settings.concurrency(),
                    result_max: self.result_max,
                    question_max: self.question_max,
                    on_nobody: settings.on_nobody(),
                    is_rerun: settings.is_rerun(),
                };
                Some(entry(definition, &listed, settings, &self.tasks, Arc::new(work)))
            })
            .collect()
    }
}

/// The names by which a server's tools are listed, in their order: their own, or the nearest that no other has.
fn listed_names(tools: &[Definition]) -> Vec<String> {
    let own = tools.iter().map(|tool| tool.name.clone());
    let mut taken: BTreeSet<String> = own.collect();
    let free = |near: Cow<'_, str>| match near {
        Cow::Borrowed(own) => own.to_owned(),
        Cow::Owned(near) => {
            let stem: String = near.chars().take(LISTED_MAX - NUMBER_MAX).collect();
            let numbered = (2_u32..).map(|number| format!("{stem}_{number}"));
            let mut names = std::iter::once(near).chain(numbered);
            let free = names.find(|name| taken.insert(name.clone()));
            free.expect("there are more numbers than tools")
        }
    };
    tools.iter().map(|tool| listable(&tool.name)).map(free).collect()
}

/// What there is of a server beside tools.
fn beside(definitions: &Definitions, said: Versions) -> Beside {
    let offers = definitions.spoken.offers();
    let digest = |lists: &[&[Item]]| {
        let items = lists.iter().flat_map(|list| list.iter());
        let texts: Vec<Raw> = items.map(|item| item.raw.to_raw()).collect();
        Raw::of(&texts)
            .ok()
            .and_then(|texts| canon::digest(&texts).ok())
            .unwrap_or_default()
    };
    Beside {
        relays: Relays {
            prompts: offers.prompts,
            // Lists are fetched again when a server comes back, whether it tells of changes or not.
            prompts_change: offers.prompts,
            resources: offers.resources,
            resources_change: offers.resources,
            subscribe: offers.subscribe,
            completions: offers.completions,
        },
        prompts: digest(&[&definitions.prompts]),
        resources: digest(&[&definitions.resources, &definitions.templates]),
        said,
    }
}

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

    /// What a question that nobody can answer turns into.
    pub fn on_nobody(&self) -> OnNobody {
        self.said(|tool| tool.on_nobody).unwrap_or(self.server.on_nobody)
    }

    /// Whether a client with a session is asked again whose answer did not fit.
    fn asks_again(&self) -> bool {
        let on_misfit = self.said(|tool| tool.on_misfit).unwrap_or(self.server.on_misfit);
        on_misfit == OnMisfit::AskAgain
    }

    fn asks_first(&self) -> bool {
        self.tool.is_some_and(|tool| tool.asks_first)
    }

    fn said<T>(&self, what: impl FnOnce(&'a UpstreamTool) -> Option<T>) -> Option<T> {
        self.tool.and_then(what)
    }

    fn adoption(&self) -> Adoption {
        self.said(|tool| tool.tasks).unwrap_or(self.server.tasks)
    }

    fn ttl(&self, tasks: &Tasks) -> Span {
        let own = self.said(|tool| tool.ttl).or(self.server.ttl);
        own.unwrap_or(tasks.ttl)
    }

    /// Which calls of this tool the server is to make tasks of its own.
    fn task_wish(&self, definition: &Definition) -> TaskWish {
        match (self.adoption(), definition.task_support) {
            (Adoption::Never, _) => TaskWish::Never,
            (Adoption::Adopt | Adoption::Relay, TaskSupport::Forbidden) => TaskWish::Stateless,
            (Adoption::Adopt | Adoption::Relay, TaskSupport::Optional | TaskSupport::Required) => {
                TaskWish::Always
            }
        }
    }

    /// Whether a call becomes a task of ours.
    fn support(&self, definition: &Definition) -> TaskSupport {
        match (self.adoption(), self.said(|tool| tool.task)) {
            (Adoption::Never, _) | (_, Some(TaskUse::Forbidden)) => TaskSupport::Forbidden,
            // Which calls a stateless server makes tasks shows with each call only.
            (Adoption::Relay, _) => definition.task_support,
            (Adoption::Adopt, Some(TaskUse::Required)) => TaskSupport::Required,
            (Adoption::Adopt, Some(TaskUse::Optional) | None) => TaskSupport::Optional,
        }
    }

    fn on_crash(&self) -> config::OnCrash {
        self.said(|tool| tool.on_crash).unwrap_or(self.server.on_crash)
    }

    /// Whether a call may be made again when it was lost.
    pub fn is_rerun(&self) -> bool {
        matches!(self.on_crash(), config::OnCrash::Rerun { .. })
    }

    fn rules(&self, tasks: &Tasks) -> Rules {
        Rules {
            on_crash: match self.on_crash() {
                config::OnCrash::Fail => OnCrash::Fail,
                config::OnCrash::Rerun { starts_max, backoff } => OnCrash::Rerun { starts_max, backoff },
            },
            on_silence: self
                .said(|tool| tool.on_silence)
                .unwrap_or(self.server.on_silence)
                .rule(),
            fail_when_nobody_can_answer: self.on_nobody() == OnNobody::Fail,
            // A question never outlives its task, so the longest time to live stands for none.
            question_deadline: self
                .said(|tool| tool.question_deadline)
                .or(self.server.question_deadline)
                .or(tasks.input_timeout)
                .unwrap_or(tasks.ttl_max),
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

/// The catalog's entry for a tool that is listed by this name, which `work` calls.
pub fn entry(
    definition: &Definition,
    listed: &str,
    settings: Settings<'_>,
    tasks: &Tasks,
    work: Arc<dyn Tool>,
) -> Entry {
    let support = settings.support(definition);
    Entry {
        listing: definition.listing(listed, support, true),
        rule: ToolRule {
            requires_task: support == TaskSupport::Required && !settings.asks_first(),
            ..definition.rule(support)
        },
        rules: settings.rules(tasks),
        ttl: settings.ttl(tasks),
        promote_after: settings
            .said(|tool| tool.promote_after)
            .or(settings.server.promote_after)
            .unwrap_or(tasks.promote_after),
        asks_first: settings.asks_first(),
        asks_again: settings.asks_again(),
        needs: Answers::default(),
        holding: settings.holding(tasks),
        arguments: Arc::new(AsSent),
        server_tool: Some(ServerTool {
            server: settings.server.name.clone(),
            tool: definition.name.clone(),
        }),
        is_of_session: settings.server.isolation == Isolation::Session,
        is_wrapped: settings.server.is_wrapped,
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
