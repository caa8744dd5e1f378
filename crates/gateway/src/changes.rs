//! Tells a stream which lists have changed: of tools, of prompts, of resources.
//!
//! Used by the streams of both generations. Many changes at once are told as one: what a client does then is to fetch
//! the list.

use std::{collections::VecDeque, sync::Arc};

use longhaul_mcp::Push;
use tokio::sync::watch;

use crate::{
    catalog::{Catalog, Offered},
    toolset::Selection,
    upstream::definitions::Versions,
};

/// The changes that one stream tells.
pub(crate) struct Changes {
    offered: watch::Receiver<Arc<Offered>>,
    selection: Selection,
    seen: Versions,
    wanted: Wanted,
    due: VecDeque<Push>,
}

/// The lists that a stream tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
}

impl Wanted {
    /// Every list that there is.
    pub(crate) const ALL: Wanted = Wanted {
        tools: true,
        prompts: true,
        resources: true,
    };
}

impl Changes {
    /// From now on, of what this selection shows.
    pub(crate) fn of(catalog: &Catalog, selection: &Selection, wanted: Wanted) -> Changes {
        let mut offered = catalog.changes();
        let seen = offered.borrow_and_update().of(selection).versions();
        Changes {
            offered,
            selection: selection.clone(),
            seen,
            wanted,
            due: VecDeque::new(),
        }
    }

    /// The next change; waits until there is one. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Push {
        loop {
            if let Some(push) = self.due.pop_front() {
                return push;
            }
            if self.offered.changed().await.is_err() {
                // The server ends, and so does the stream.
                std::future::pending::<()>().await;
            }
            let now = self.offered.borrow_and_update().of(&self.selection).versions();
            let then = std::mem::replace(&mut self.seen, now);
            let changed = [
                (self.wanted.tools && then.tools != now.tools, Push::ToolsChanged),
                (
                    self.wanted.prompts && then.prompts != now.prompts,
                    Push::PromptsChanged,
                ),
                (
                    self.wanted.resources && then.resources != now.resources,
                    Push::ResourcesChanged,
                ),
            ];
            let changed = changed.into_iter().filter(|(is_due, _)| *is_due);
            self.due.extend(changed.map(|(_, push)| push));
        }
    }
}
