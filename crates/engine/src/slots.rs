//! How many attempts of each tool may run at once, and which of them are free.
//!
//! Asked by `worker` before it claims, and after each commit that owes a start.

use std::collections::BTreeMap;

use longhaul_store::{Query, Row, Wanted};

use crate::{engine::Inner, tool::Slots};

impl Inner {
    /// What this task counts against; `None` when its tool is not here.
    pub(crate) async fn slots_of(&self, row: &Row) -> Result<Option<Slots>, longhaul_store::Error> {
        let mut slots = self.tools.slots(&row.tool);
        if slots.len() <= 1 {
            return Ok(slots.pop());
        }
        // Only the whole row says which of the tools it is of.
        let found = self.store.read(Query::Task(row.id)).await?;
        let whole = found.rows.first();
        Ok(whole.and_then(|row| self.tools.slots_of(&row.tool, &row.context)))
    }

    /// What this process would take now.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let taken = self.taken();
        let wanted = |name: String| {
            let slots = self.tools.slots(&name);
            let most = slots.iter().map(|slots| slots.max).sum::<usize>();
            let starts = slots.iter().any(|slots| taken.leaves(slots));
            // An attempt that has begun may not have claimed its task yet, so a page of the free slots alone could
            // be full of such tasks.
            let limit = u32::try_from(most)
                .unwrap_or(u32::MAX)
                .min(self.options.claim_batch);
            Wanted {
                tool: name,
                starts,
                // Where several tools share the name, those of a full one may stand before those of another.
                limit: if starts && slots.len() == 1 {
                    limit
                } else {
                    self.options.claim_batch
                },
            }
        };
        self.tools.names().into_iter().map(wanted).collect()
    }

    /// Whether a new start of this tool would find a slot. When it would not, the end of an attempt looks for it.
    pub(crate) fn has_slot(&self, tool: &str) -> bool {
        let taken = self.taken();
        self.tools.slots(tool).iter().any(|slots| taken.leaves(slots))
    }

    /// Whether a start that counts against these would find one.
    pub(crate) fn is_free(&self, slots: &Slots) -> bool {
        self.taken().leaves(slots)
    }

    fn taken(&self) -> Taken {
        let by = self.attempts.taken(self.options.waiting_max);
        Taken {
            all: by.values().sum::<usize>() >= self.options.running_max,
            by,
        }
    }
}

/// What the attempts of this moment take.
struct Taken {
    /// By whose slots they are.
    by: BTreeMap<String, usize>,
    /// As many run as this process runs at once.
    all: bool,
}

impl Taken {
    fn leaves(&self, slots: &Slots) -> bool {
        !self.all && self.by.get(&slots.of).copied().unwrap_or(0) < slots.max
    }
}
