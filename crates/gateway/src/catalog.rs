//! The tools that this server offers: what is listed, what is checked before a call, and what is run.
//!
//! The commands of the config are there from the start; the tools of a server behind this one come, change and go
//! with it ([`Catalog::offer`]). Read by `dispatch` and, through [`longhaul_engine::tool::Tools`], by the worker, each
//! time as one [`Offered`], which does not change.

mod of_task;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use longhaul_core::{Span, task::Rules};
use longhaul_engine::tool::{Tool as Work, Tools};
use longhaul_mcp::{
    ToolRule,
    canon::Digest,
    frame::Raw,
    reply::{Relays, Tool as Listing},
    request::{Answers, Takes},
};
use tokio::sync::watch;

use self::of_task::OfTask;
use crate::{
    config::{Hold, OnAbandon, Prefix, ShowSchema, WAIT_TOOL},
    view::ServerTool,
};

/// What stands between the name of a server and that of its tool.
const BETWEEN: &str = "__";

/// The name of a server's tool or prompt that begins with the server's own.
pub fn full_name(server: &str, name: &str) -> String {
    format!("{server}{BETWEEN}{name}")
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
}

/// One server behind this one, and what it offers.
struct Part {
    server: String,
    prefix: Prefix,
    tools: Vec<Arc<Entry>>,
    beside: Beside,
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

/// How often each list has changed. Two that are equal are of the same lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// That of tools.
    pub tools: u64,
    /// That of prompts.
    pub prompts: u64,
    /// Those of resources and templates.
    pub resources: u64,
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
        let tools = self.order.iter();
        let tools = tools.filter_map(|entry| Some((&**entry, entry.server_tool.as_ref()?)));
        tools.filter(move |(_, tool)| tool.server == server)
    }

    /// The tools of this server that are not listed because their names are taken.
    pub fn refused_of(&self, server: &str) -> &[String] {
        self.refused.get(server).map_or(&[], Vec::as_slice)
    }

    /// What there is besides tools.
    pub fn relays(&self) -> Relays {
        self.relays
    }

    /// How often each list has changed until now.
    pub fn versions(&self) -> Versions {
        self.versions
    }
}

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
            }));
        self
    }

    /// What is offered now.
    pub fn now(&self) -> Arc<Offered> {
        self.offered.borrow().clone()
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
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_any = false;
        for offer in offers {
            is_any |= parts.take(offer);
        }
        if is_any {
            self.offered.send_replace(Arc::new(parts.offered()));
        }
    }
}

impl Parts {
    /// False when there is no such server.
    fn take(&mut self, offer: Offer) -> bool {
        let Parts {
            servers, versions, ..
        } = self;
        let Some(part) = servers.iter_mut().find(|part| part.server == offer.server) else {
            return false;
        };
        let Offer {
            server,
            mut tools,
            beside,
        } = offer;
        let same = part.tools.len() == tools.len()
            && part
                .tools
                .iter()
                .zip(&tools)
                .all(|(old, new)| old.listing == new.listing);
        let (was, is) = (part.beside, beside);
        versions.tools += u64::from(!same || was.said.tools != is.said.tools);
        versions.prompts += u64::from(was.prompts != is.prompts || was.said.prompts != is.said.prompts);
        versions.resources +=
            u64::from(was.resources != is.resources || was.said.resources != is.said.resources);
        for tool in &mut tools {
            let name = &tool.listing.name;
            tool.server_tool.get_or_insert_with(|| ServerTool {
                server: server.clone(),
                tool: name.clone(),
            });
        }
        part.tools = tools.into_iter().map(Arc::new).collect();
        part.beside = beside;
        true
    }

    /// All tools under the names that they are listed by.
    fn offered(&self) -> Offered {
        let mut offered = Offered {
            versions: self.versions,
            ..Offered::default()
        };
        for command in &self.commands {
            offered.add(Arc::clone(command));
            let name = command.listing.name.clone();
            offered.of_task(name).command = Some(Arc::clone(&command.work));
        }
        let shared = self.shared_names();
        for part in &self.servers {
            offered.relays = offered.relays.or(part.beside.relays);
            for tool in &part.tools {
                offered.add_of_server(part, tool, self.begins(part, tool, &shared));
            }
        }
        offered
    }

    /// Whether the name of a server's tool begins with the server's.
    fn begins(&self, part: &Part, tool: &Entry, shared: &BTreeSet<&str>) -> bool {
        let name = tool.listing.name.as_str();
        self.belongs_to_another(name, &part.server) || part.prefix.begins(shared.contains(name))
    }

    /// Whether a server's tool is named as if it were another server's.
    fn belongs_to_another(&self, name: &str, server: &str) -> bool {
        let named = name.split_once(BETWEEN).map(|(named, _)| named);
        let others = self.servers.iter().filter(|part| part.server != server);
        named.is_some_and(|named| others.into_iter().any(|part| part.server == named))
    }

    /// The names that tell no tool from another.
    fn shared_names(&self) -> BTreeSet<&str> {
        let commands = self.commands.iter();
        let mut seen: BTreeSet<&str> = commands.map(|command| command.listing.name.as_str()).collect();
        seen.insert(WAIT_TOOL);
        let mut shared = BTreeSet::new();
        let plain = self.servers.iter().filter(|part| part.prefix != Prefix::Always);
        for tool in plain.flat_map(|part| &part.tools) {
            let name = tool.listing.name.as_str();
            if !seen.insert(name) {
                shared.insert(name);
            }
        }
        shared
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
        let bare = &tool.listing.name;
        let full = full_name(&part.server, bare);
        if let Some(own) = &tool.server_tool {
            for name in [bare, &full] {
                let works = self.of_task(name.clone());
                works.of_servers.push((own.clone(), Arc::clone(&tool.work)));
            }
        }
        let entry = match begins {
            true => Arc::new(tool.named(full)),
            false => Arc::clone(tool),
        };
        if !self.add(entry) {
            let server = &part.server;
            tracing::warn!(server, tool = %bare, "a tool of this name is there already; this one is not offered");
            self.refused.entry(server.clone()).or_default().push(bare.clone());
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
}
