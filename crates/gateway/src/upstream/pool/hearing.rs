//! What a server says of its own accord, and who hears it: changes of lists and of resources, and log messages of no
//! call.
//!
//! Each connection of the pool calls it with what it reads; nothing here waits.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use longhaul_mcp::{client::incoming::Notice, reply::InputRequest};
use tokio::sync::{broadcast, mpsc};

use super::{
    super::{connection::Notices, definitions::Versions, outcome::Event},
    Key, Pool, Told,
};

impl Pool {
    pub(super) fn notices(self: &Arc<Self>, id: u64) -> Notices {
        let pool = Arc::downgrade(self);
        Arc::new(move |notice| {
            let Some(pool) = pool.upgrade() else { return };
            match notice {
                Notice::ToolsChanged => pool.says(|said| &mut said.tools),
                Notice::PromptsChanged => pool.says(|said| &mut said.prompts),
                Notice::ResourcesChanged => pool.says(|said| &mut said.resources),
                Notice::ResourceUpdated { uri } => {
                    if let Some(key) = pool.key(id) {
                        pool.subscriptions.tell(&key, &uri);
                    }
                }
                Notice::Log { level, logger, data } => {
                    if let Some(key) = pool.key(id) {
                        pool.say(&key, || Event::Log {
                            level,
                            logger: logger.clone(),
                            data: data.clone(),
                        });
                    }
                }
                Notice::LinkDone { elicitation } => {
                    let _nobody_waits = pool.links.send(elicitation);
                }
                Notice::Progress { .. }
                | Notice::Cancelled { .. }
                | Notice::Task { .. }
                | Notice::Acknowledged { .. }
                | Notice::Other { .. } => {}
            }
        })
    }

    /// Whose connection this is now.
    fn key(&self, id: u64) -> Option<Key> {
        self.slots().key(id)
    }

    /// The links that the server says are done with, from now on.
    pub(in crate::upstream) fn links_done(&self) -> LinksDone {
        LinksDone(self.links.subscribe())
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

    /// It says that a list changed.
    fn says(&self, list: fn(&mut Versions) -> &mut u64) {
        *list(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner)) += 1;
        self.tell(Told::Changed);
    }
}

/// The links that a server says are done with. Their names are the server's own, and differ from each other.
pub(crate) struct LinksDone(broadcast::Receiver<String>);

impl LinksDone {
    /// Waits until one of these is. Cancel-safe.
    pub(in crate::upstream) async fn any_of(&mut self, links: &[InputRequest]) {
        loop {
            match self.0.recv().await {
                Ok(done) if links.iter().any(|link| link.key == done) => return,
                // Whoever missed one has the question still.
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}
