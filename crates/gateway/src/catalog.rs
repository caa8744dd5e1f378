//! The tools that this server offers: what is listed, what is checked before a call, and what is run.
//!
//! The commands of the config are there from the start; the tools of a server behind this one come, change and go
//! with it ([`Catalog::offer`]). Read by `dispatch` and, through [`longhaul_engine::tool::Tools`], by the worker, each
//! time as one [`Offered`], which does not change. What a toolset has is a part of it ([`Offered::of`]).

mod apart;
mod of_task;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use longhaul_core::{Body, Span, task::Rules};
use longhaul_engine::tool::{Slots, Tool as Work, Tools};
use longhaul_mcp::{
    ToolRule,
    canon::Digest,
    edge,
    frame::Raw,
    reply::{Relays, Tool as Listing},
    request::{Answers, Takes},
    scan,
};
use tokio::sync::watch;

use self::of_task::OfTask;
use crate::{
    admin::api,
    config::{Hold, OnAbandon, Prefix, ShowSchema, Toolset, WAIT_TOOL},
    toolset::Selection,
    upstream::definitions::Versions,
    view::ServerTool,
};

/// What stands between the name of a server and that of its tool.
pub(crate) const BETWEEN: &str = "__";

/// The name of a server's tool or prompt that begins with the server's own.
pub fn full_name(server: &str, name: &str) -> String {
    format!("{server}{BETWEEN}{name}")
}

/// Those of these names that come more than once.
pub(crate) fn repeated<T: Ord + Clone>(names: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    let again = |name: &T| !seen.insert(name.clone());
    names.into_iter().filter(again).collect()
}

/// Every tool, as it is now and as it changes.
pub struct Catalog {
    parts: Mutex<Parts>,
    offered: watch::Sender<Arc<Offered>>,
}

struct Parts {
    commands: Vec<Arc<Entry>>,
    servers: Vec<Part>,
    versions: Versions,
    toolsets: Vec<(Arc<Toolset>, Versions)>,
}

/// What an offer has changed, besides tools that differ.
struct Changed {
    server: String,
    /// The server said that its tools changed.
    said_tools: bool,
    prompts: bool,
    resources: bool,
}

/// One server behind this one, and what it offers.
struct Part {
    server: String,
    prefix: Prefix,
    tools: Vec<Arc<Entry>>,
    beside: Beside,
    /// Those of a server that is shown to nobody but whoever wrapped it. It has no part in what all others see.
    apart: Option<Versions>,
    /// It has offered something, or said that it has nothing.
    is_known: bool,
}

/// What one server offers from now on.
pub struct Offer {
    /// The server.
    pub server: String,
    /// Its tools, under the names that it gives them, as far as a tool can have such a name.
    pub tools: Vec<Entry>,
    /// All else.
    pub beside: Beside,
}

/// What a server offers besides tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The kinds of it.
    pub relays: Relays,
    /// Changes with the list of prompts.
    pub prompts: Digest,
    /// Changes with the list of resources, or that of templates.
    pub resources: Digest,
    /// How often the server has said that a list changed: its clients are told so even where nothing is seen of it.
    pub said: Versions,
}

/// Every tool at one moment, in the order in which the config names commands and servers (B-53).
#[derive(Default)]
pub struct Offered {
    order: Vec<Arc<Entry>>,
    by_name: BTreeMap<String, Arc<Entry>>,
    /// Every name under which a task may be stored: a tool's name was perhaps shared at its birth, and is not now.
    of_tasks: BTreeMap<String, Arc<OfTask>>,
    /// The tools that are not listed because another has the name, with those of each server.
    refused: BTreeMap<String, Vec<String>>,
    relays: Relays,
    versions: Versions,
    /// What each toolset has of it.
    toolsets: BTreeMap<String, Offered>,
    /// What each wrapped server has, which is nowhere else.
    wrapped: BTreeMap<String, Offered>,
}

/// One tool.
#[derive(Clone)]
pub struct Entry {
    /// As clients see it listed.
    pub listing: Listing,
    /// What the tool demands of the frame that calls it.
    pub rule: ToolRule,
    /// The rules that its tasks are born with.
    pub rules: Rules,
    /// How long a task is kept, from its birth.
    pub ttl: Span,
    /// How long a call may take before it becomes a task; 0 for at once.
    pub promote_after: Span,
    /// Questions before the work has shown anything are asked before there is a task.
    pub asks_first: bool,
    /// A question to a session's client that was answered with what does not fit is asked again, not declined
    /// (`on_misfit`).
    pub asks_again: bool,
    /// What a client must declare, or the call is refused before it begins (B-6).
    pub needs: Answers,
    /// How its calls without a task are held.
    pub holding: Holding,
    /// The server behind this one that runs it, and is sent the call whole; `None` for a command.
    pub server_tool: Option<ServerTool>,
    /// What it returns depends on what its session did before.
    pub is_of_session: bool,
    /// It is of a server that `longhaul wrap` brought: whoever comes back does so from another pipe.
    pub is_wrapped: bool,
    /// Looks at the arguments.
    pub arguments: Arc<dyn Arguments>,
    /// Runs one attempt.
    pub work: Arc<dyn Work>,
}

/// How calls of a tool are held whose caller takes no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// For how long.
    pub hold: Hold,
    /// An equal call waits for one whose caller left.
    pub join: bool,
    /// What becomes of the work when the caller leaves.
    pub on_abandon: OnAbandon,
    /// Whom the tool's output schema is listed to.
    pub show_schema: ShowSchema,
}

impl Default for Holding {
    fn default() -> Holding {
        Holding {
            hold: Hold::Auto,
            join: true,
            on_abandon: OnAbandon::Auto,
            show_schema: ShowSchema::Auto,
        }
    }
}

impl Entry {
    fn named(&self, name: String) -> Entry {
        let mut entry = self.clone();
        entry.listing.name = name;
        entry
    }

    /// The tool as it is listed to a caller. Whoever may be told that the work goes on does not see the output
    /// schema, which that reply does not fit: clients hold every result against it (D-44).
    pub fn listed(&self, takes: Takes) -> Listing {
        let may_be_held = takes == Takes::Never && self.holding.hold == Hold::Auto;
        let shown = match self.holding.show_schema {
            ShowSchema::Always => true,
            ShowSchema::Never => false,
            ShowSchema::Auto => !may_be_held,
        };
        let mut listing = self.listing.clone();
        if !shown {
            listing.output_schema = None;
        }
        listing
    }
}

/// Checks the arguments of a call against the tool's own schema.
pub trait Arguments: Send + Sync {
    /// What does not fit, one line for each argument, for the model to mend; empty when all fits.
    fn misfits(&self, arguments: &Raw) -> Vec<String>;
}

impl Offered {
    /// The tool of this listed name.
    pub fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name)
    }

    /// Every tool: the commands, then those of each server.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.order
    }

    /// The tools of this server that are listed.
    pub fn of_server(&self, server: &str) -> impl Iterator<Item = (&Entry, &ServerTool)> {
        let tools = self.wrapped.get(server).unwrap_or(self).order.iter();
        let tools = tools.filter_map(|entry| Some((&**entry, entry.server_tool.as_ref()?)));
        tools.filter(move |(_, tool)| tool.server == server)
    }

    /// Whether it is known what this wrapped server offers.
    pub fn knows_wrapped(&self, server: &str) -> bool {
        self.wrapped.contains_key(server)
    }

    /// The tools of this server that are not listed because their names are taken.
    pub fn refused_of(&self, server: &str) -> &[String] {
        self.refused.get(server).map_or(&[], Vec::as_slice)
    }

    /// The tools, each with its server, that are not listed now because of their names, and were before or not known.
    fn newly_refused<'a>(&'a self, before: &'a Offered) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.refused.iter().flat_map(|(server, tools)| {
            let known = before.refused_of(server);
            let new = tools.iter().filter(|tool| !known.contains(tool));
            new.map(|tool| (server.as_str(), tool.as_str()))
        })
    }

    /// What there is besides tools.
    pub fn relays(&self) -> Relays {
        self.relays
    }

    /// How often each list has changed until now.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// The part of it that an endpoint shows.
    pub fn of(&self, selection: &Selection) -> &Offered {
        if let Some(wrapped) = selection.wrapped() {
            // One that is not kept any more, or whose tools are not known yet, offers nothing.
            return self.wrapped.get(&wrapped.config.name).unwrap_or(&NOTHING);
        }
        match selection.toolset() {
            None => self,
            // Invariant: only the catalog makes selections, of the toolsets that it was made with.
            Some(toolset) => &self.toolsets[&toolset.name],
        }
    }
}

static NOTHING: LazyLock<Offered> = LazyLock::new(Offered::default);

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog::new(Vec::new())
    }
}

impl Catalog {
    /// A catalog of these commands, whose names are known to differ.
    pub fn new(commands: Vec<Entry>) -> Catalog {
        let parts = Parts {
            commands: commands.into_iter().map(Arc::new).collect(),
            servers: Vec::new(),
            versions: Versions::default(),
            toolsets: Vec::new(),
        };
        let offered = watch::Sender::new(Arc::new(parts.offered()));
        Catalog {
            parts: Mutex::new(parts),
            offered,
        }
    }

    /// The catalog with a place for each of these servers, in this order, which offer nothing yet.
    #[must_use]
    pub fn with_servers(mut self, servers: impl IntoIterator<Item = (String, Prefix)>) -> Catalog {
        let parts = self.parts.get_mut().unwrap_or_else(PoisonError::into_inner);
        parts
            .servers
            .extend(servers.into_iter().map(|(server, prefix)| Part {
                server,
                prefix,
                tools: Vec::new(),
                beside: Beside::default(),
                apart: None,
                is_known: false,
            }));
        self
    }

    /// The catalog with these toolsets, each of another name.
    #[must_use]
    pub fn with_toolsets(mut self, toolsets: impl IntoIterator<Item = Toolset>) -> Catalog {
        let parts = self.parts.get_mut().unwrap_or_else(PoisonError::into_inner);
        let toolsets = toolsets.into_iter().map(Arc::new);
        parts
            .toolsets
            .extend(toolsets.map(|toolset| (toolset, Versions::default())));
        self.offered.send_replace(Arc::new(parts.offered()));
        self
    }

    /// What the endpoint of this toolset shows; `None` where there is no such toolset.
    pub fn selection(&self, toolset: &str) -> Option<Selection> {
        let parts = self.lock();
        let mut toolsets = parts.toolsets.iter();
        let found = toolsets.find(|(known, _)| known.name == toolset);
        found.map(|(toolset, _)| Selection::of(toolset))
    }

    /// What each toolset has now, for the person who configured it.
    pub fn toolsets(&self) -> Vec<api::Toolset> {
        let offered = self.now();
        let parts = self.lock();
        let toolsets = parts.toolsets.iter().map(|(toolset, _)| toolset);
        toolsets
            .map(|toolset| {
                let own = offered.of(&Selection::of(toolset)).entries();
                let servers = own.iter().filter_map(|entry| entry.server_tool.as_ref());
                let servers = servers.map(|tool| tool.server.clone());
                let servers: BTreeSet<String> = servers.chain(toolset.servers.iter().cloned()).collect();
                api::Toolset {
                    name: toolset.name.clone(),
                    description: toolset.description.clone(),
                    tools: u32::try_from(own.len()).unwrap_or(u32::MAX),
                    servers: servers.into_iter().collect(),
                    unmatched: toolset.unmatched(offered.entries()),
                }
            })
            .collect()
    }

    /// What is offered now.
    pub fn now(&self) -> Arc<Offered> {
        self.offered.borrow().clone()
    }

    /// What a frame is read against that came to an endpoint which shows this.
    pub(crate) fn read_against<T>(
        &self,
        selection: &Selection,
        strict_headers: bool,
        limits: scan::Limits,
        read: impl FnOnce(&edge::Offer<'_>) -> T,
    ) -> T {
        let offered = self.now();
        let offered = offered.of(selection);
        read(&edge::Offer {
            tasks: true,
            tasks_list: true,
            relays: offered.relays(),
            strict_headers,
            limits,
            tool: &|name| offered.entry(name).map(|entry| &entry.rule),
        })
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> watch::Receiver<Arc<Offered>> {
        self.offered.subscribe()
    }

    /// What a server offers from now on. A server that the catalog was not told of offers nothing.
    pub fn offer(&self, server: &str, tools: Vec<Entry>, beside: Beside) {
        self.offer_all([Offer {
            server: server.to_owned(),
            tools,
            beside,
        }]);
    }

    /// What several servers offer from now on, as one change.
    pub fn offer_all(&self, offers: impl IntoIterator<Item = Offer>) {
        // Made before the lock is taken, under which nothing may panic.
        let offers: Vec<Offer> = offers.into_iter().collect();
        let mut parts = self.lock();
        let mut changed = Vec::new();
        for offer in offers {
            changed.extend(parts.take(offer));
        }
        if changed.is_empty() {
            return;
        }
        let before = self.now();
        let offered = Arc::new(parts.offered_after(&before, &changed));
        self.offered.send_replace(Arc::clone(&offered));
        drop(parts);
        for (server, tool) in offered.newly_refused(&before) {
            tracing::warn!(
                server,
                tool,
                "a tool of this name is there already; this one is not offered"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn same_listing<'a>(
    then: impl ExactSizeIterator<Item = &'a Entry>,
    now: impl ExactSizeIterator<Item = &'a Entry>,
) -> bool {
    then.len() == now.len() && then.zip(now).all(|(then, now)| then.listing == now.listing)
}

impl Parts {
    /// What the offer changes; `None` when there is no such server.
    fn take(&mut self, offer: Offer) -> Option<Changed> {
        let Parts {
            servers, versions, ..
        } = self;
        let part = servers.iter_mut().find(|part| part.server == offer.server)?;
        let Offer {
            server,
            mut tools,
            beside,
        } = offer;
        let same = same_listing(part.tools.iter().map(|tool| &**tool), tools.iter());
        let (was, is) = (part.beside, beside);
        let changed = Changed {
            said_tools: was.said.tools != is.said.tools,
            prompts: was.prompts != is.prompts || was.said.prompts != is.said.prompts,
            resources: was.resources != is.resources || was.said.resources != is.said.resources,
            server: server.clone(),
        };
        let versions = part.apart.as_mut().unwrap_or(versions);
        versions.tools += u64::from(!same || changed.said_tools);
        versions.prompts += u64::from(changed.prompts);
        versions.resources += u64::from(changed.resources);
        for tool in &mut tools {
            let name = &tool.listing.name;
            tool.server_tool.get_or_insert_with(|| ServerTool {
                server: server.clone(),
                tool: name.clone(),
            });
        }
        part.tools = tools.into_iter().map(Arc::new).collect();
        part.beside = beside;
        part.is_known = true;
        Some(changed)
    }

    /// What is offered now, with the changes counted for each toolset whose lists they are.
    fn offered_after(&mut self, before: &Offered, changed: &[Changed]) -> Offered {
        let mut offered = self.offered();
        for (toolset, versions) in &mut self.toolsets {
            let Some(now) = offered.toolsets.get_mut(&toolset.name) else {
                continue;
            };
            let then = before.of(&Selection::of(toolset));
            let had = |server: &str| then.of_server(server).next().is_some();
            let (were, own) = (then.order.iter(), now.order.iter());
            let said = changed.iter().any(|changed| {
                changed.said_tools
                    && (now.of_server(&changed.server).next().is_some() || had(&changed.server))
            });
            let same = same_listing(were.map(|tool| &**tool), own.map(|tool| &**tool));
            versions.tools += u64::from(!same || said);
            // A prompt of one server may have another name once another server has it, too.
            let has_prompts = then.relays.prompts || now.relays.prompts;
            let prompts = has_prompts && changed.iter().any(|changed| changed.prompts);
            versions.prompts += u64::from(prompts);
            let mut of_resources = changed.iter().filter(|changed| changed.resources);
            let resources = of_resources.any(|changed| toolset.has_server(&changed.server));
            versions.resources += u64::from(resources);
            now.versions = *versions;
        }
        offered
    }

    /// All tools under the names that they are listed by, and what each toolset has of it.
    fn offered(&self) -> Offered {
        let mut offered = Offered {
            versions: self.versions,
            relays: self.relays(|part| part.apart.is_none()),
            ..Offered::default()
        };
        for command in &self.commands {
            offered.add(Arc::clone(command));
            let name = command.listing.name.clone();
            offered.of_task(name).command = Some(Arc::clone(&command.work));
        }
        let shared = self.shared_names();
        for part in &self.servers {
            let Some(versions) = part.apart else {
                for tool in &part.tools {
                    offered.add_of_server(part, tool, self.begins(part, tool, &shared));
                }
                continue;
            };
            let mut own = Offered {
                versions,
                relays: part.beside.relays,
                ..Offered::default()
            };
            for tool in &part.tools {
                offered.add_of_tasks(part, tool);
                own.list(part, &tool.listing.name, Arc::clone(tool));
                if longhaul_core::fault!("a-wrapped-server-is-shown-to-all") {
                    offered.list(part, &tool.listing.name, Arc::clone(tool));
                }
            }
            offered.refused.append(&mut own.refused);
            if part.is_known {
                offered.wrapped.insert(part.server.clone(), own);
            }
        }
        for (toolset, versions) in &self.toolsets {
            let mut part = Offered {
                versions: *versions,
                relays: self.relays(|part| part.apart.is_none() && toolset.has_server(&part.server)),
                ..Offered::default()
            };
            for entry in offered.order.iter().filter(|entry| toolset.has(entry)) {
                part.add(Arc::clone(entry));
            }
            offered.toolsets.insert(toolset.name.clone(), part);
        }
        offered
    }

    /// What these servers offer besides tools.
    fn relays(&self, of: impl Fn(&Part) -> bool) -> Relays {
        let parts = self.servers.iter().filter(|part| of(part));
        parts.fold(Relays::default(), |relays, part| relays.or(part.beside.relays))
    }

    /// Whether the name of a server's tool begins with the server's.
    fn begins(&self, part: &Part, tool: &Entry, shared: &BTreeSet<&str>) -> bool {
        let name = tool.listing.name.as_str();
        self.belongs_to_another(name, &part.server) || part.prefix.begins(shared.contains(name))
    }

    /// Whether a server's tool is named as if it were another server's.
    fn belongs_to_another(&self, name: &str, server: &str) -> bool {
        let named = name.split_once(BETWEEN).map(|(named, _)| named);
        let others = self
            .servers
            .iter()
            .filter(|part| part.apart.is_none() && part.server != server);
        named.is_some_and(|named| others.into_iter().any(|part| part.server == named))
    }

    /// The names that tell no tool from another.
    fn shared_names(&self) -> BTreeSet<&str> {
        let plain = self
            .servers
            .iter()
            .filter(|part| part.apart.is_none() && part.prefix != Prefix::Always);
        let tools = self.commands.iter().chain(plain.flat_map(|part| &part.tools));
        let names = tools.map(|tool| tool.listing.name.as_str());
        repeated([WAIT_TOOL].into_iter().chain(names))
    }
}

impl Offered {
    /// False when there is a tool of this name.
    fn add(&mut self, entry: Arc<Entry>) -> bool {
        let name = &entry.listing.name;
        if name == WAIT_TOOL || self.by_name.contains_key(name) {
            return false;
        }
        self.by_name.insert(name.clone(), Arc::clone(&entry));
        self.order.push(entry);
        true
    }

    fn add_of_server(&mut self, part: &Part, tool: &Arc<Entry>, begins: bool) {
        self.add_of_tasks(part, tool);
        let entry = match begins {
            true => Arc::new(tool.named(full_name(&part.server, &tool.listing.name))),
            false => Arc::clone(tool),
        };
        self.list(part, &tool.listing.name, entry);
    }

    /// Lists a server's tool, or says that its name is taken.
    fn list(&mut self, part: &Part, bare: &str, entry: Arc<Entry>) {
        if !self.add(entry) {
            self.refused
                .entry(part.server.clone())
                .or_default()
                .push(bare.to_owned());
        }
    }

    /// The names under which a task of this tool may be stored.
    fn add_of_tasks(&mut self, part: &Part, tool: &Arc<Entry>) {
        let bare = &tool.listing.name;
        if let Some(own) = &tool.server_tool {
            for name in [bare.clone(), full_name(&part.server, bare)] {
                let works = self.of_task(name);
                works.of_servers.push((own.clone(), Arc::clone(&tool.work)));
            }
        }
    }

    /// Only while this is made: nobody else has it yet.
    fn of_task(&mut self, name: String) -> &mut OfTask {
        Arc::make_mut(self.of_tasks.entry(name).or_default())
    }
}

impl Tools for Catalog {
    fn find(&self, name: &str) -> Option<Arc<dyn Work>> {
        let works = Arc::clone(self.now().of_tasks.get(name)?);
        Some(works)
    }

    fn names(&self) -> Vec<String> {
        self.now().of_tasks.keys().cloned().collect()
    }

    fn slots(&self, name: &str) -> Vec<Slots> {
        let offered = self.now();
        offered
            .of_tasks
            .get(name)
            .map_or_else(Vec::new, |works| works.slots(name))
    }

    fn slots_of(&self, name: &str, context: &Body) -> Option<Slots> {
        Some(self.now().of_tasks.get(name)?.slots_of(name, context))
    }
}
