//! The tools that this server offers: what is listed, what is checked before a call, and what is run.
//!
//! Made once from the config; read by `dispatch` and, through [`longhaul_engine::tool::Tools`], by the worker.

use std::{collections::BTreeMap, sync::Arc};

use longhaul_core::{Span, task::Rules};
use longhaul_engine::tool::{Tool as Work, Tools};
use longhaul_mcp::{
    ToolRule,
    frame::Raw,
    reply::Tool as Listing,
    request::{Answers, Takes},
};

use crate::config::{Hold, OnAbandon, ShowSchema};

/// Every tool of this server, in the order in which the config names them (B-53).
#[derive(Clone, Default)]
pub struct Catalog {
    order: Vec<Arc<Entry>>,
    by_name: BTreeMap<String, Arc<Entry>>,
}

/// One tool.
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

impl Catalog {
    /// A catalog of these tools, whose names are known to differ.
    pub fn new(entries: Vec<Entry>) -> Catalog {
        let order: Vec<_> = entries.into_iter().map(Arc::new).collect();
        let by_name = order
            .iter()
            .map(|entry| (entry.listing.name.clone(), Arc::clone(entry)))
            .collect();
        Catalog { order, by_name }
    }

    /// The tool of this name.
    pub fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name)
    }

    /// Every tool, in the order of the config.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.order
    }
}

impl Tools for Catalog {
    fn find(&self, name: &str) -> Option<Arc<dyn Work>> {
        self.entry(name).map(|entry| Arc::clone(&entry.work))
    }

    fn names(&self) -> Vec<String> {
        self.order
            .iter()
            .map(|entry| entry.listing.name.clone())
            .collect()
    }
}
