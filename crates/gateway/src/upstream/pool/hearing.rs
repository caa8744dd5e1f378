//! What a server says of its own accord, and who hears it: changes of lists and of resources, and log messages of no
//! call.
//!
//! Each connection of the pool calls it with what it reads; nothing here waits.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use longhaul_mcp::client::incoming::Notice;
use tokio::sync::mpsc;

use super::{
    super::{connection::Notices, definitions::Versions, outcome::Event},
    Key, Pool, Told,
};

impl Pool {
    pub(super) fn notices(self: &Arc<Self>, id: u64) -> Notices {
        let pool = Arc::downgrade(self);
        Arc::new(move |notice| {
            if let Some(pool) = pool.upgrade() {
                let is_change = pool.says(&notice);
                if let Notice::ResourceUpdated { uri } = &notice
                    && let Some(key) = pool.slots().key(id)
                {
                    pool.subscriptions.tell(&key, uri);
                }
                if is_change {
                    pool.tell(Told::Changed);
                }
                if let Notice::Log { level, logger, data } = notice
                    && let Some(key) = pool.slots().key(id)
                {
                    pool.say(&key, || Event::Log {
                        level,
                        logger: logger.clone(),
                        data: data.clone(),
                    });
                }
            }
        })
    }

    /// What the server says to nobody in particular on this connection goes to `hears`, until its other end is dropped.
    pub(in crate::upstream) fn hear(&self, key: Key, hears: mpsc::Sender<Event>) {
        let mut hearers = self.hearers();
        hearers.retain(|_, of| {
            of.retain(|hearer| !hearer.is_closed());
            !of.is_empty()
        });
        hearers.entry(key).or_default().push(hears);
    }

    fn say(&self, key: &Key, event: impl Fn() -> Event) {
        for hearer in self.hearers().get(key).into_iter().flatten() {
            // Whoever does not keep up misses some of it.
            let _full = hearer.try_send(event());
        }
    }

    fn hearers(&self) -> MutexGuard<'_, HashMap<Key, Vec<mpsc::Sender<Event>>>> {
        self.hearers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the server has said that a list of its changed.
    pub(in crate::upstream) fn said(&self) -> Versions {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it says that a list changed.
    fn says(&self, notice: &Notice) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let list = match notice {
            Notice::ToolsChanged => &mut said.tools,
            Notice::PromptsChanged => &mut said.prompts,
            Notice::ResourcesChanged => &mut said.resources,
            Notice::Progress { .. }
            | Notice::Log { .. }
            | Notice::ResourceUpdated { .. }
            | Notice::Cancelled { .. }
            | Notice::Task { .. }
            | Notice::LinkDone { .. }
            | Notice::Acknowledged { .. }
            | Notice::Other { .. } => return false,
        };
        *list += 1;
        true
    }
}
