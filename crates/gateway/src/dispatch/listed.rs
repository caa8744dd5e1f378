//! `tasks/list`: the caller's own tasks, the newest first, a page at a time (A-54, D-17).

use longhaul_core::Phase;
use longhaul_mcp::{Reply, RpcError, reply::TaskPage};
use longhaul_store::{List, Query};

use super::{Dispatch, store_reply};
use crate::{
    gate::{self, Action, View},
    identity::Caller,
};

impl Dispatch {
    pub(super) async fn list_tasks(&self, caller: &Caller, cursor: Option<&str>) -> Result<Reply, RpcError> {
        gate::judge(&View::of_task(Action::List, &caller.owner, None)).map_err(gate::Refusal::reply)?;
        let before = match cursor {
            Some(cursor) => {
                let opened = self.inner.keys.open_cursor(cursor, &caller.owner);
                Some(opened.ok_or_else(|| {
                    RpcError::invalid_params("Unknown cursor: begin the list anew without one")
                })?)
            }
            None => None,
        };
        let list = List {
            owner: Some(caller.owner.clone()),
            before,
            // One more than a page, to know whether another follows.
            limit: PAGE + 1,
            ..List::default()
        };
        let found = self.inner.engine.read(Query::List(list)).await;
        let found = found.map_err(|error| store_reply(&error))?;
        let has_more = found.rows.len() > PAGE as usize;
        let mut tasks = Vec::with_capacity(PAGE as usize);
        let mut next_cursor = None;
        for row in found.rows.into_iter().take(PAGE as usize) {
            next_cursor = Some(self.inner.keys.seal_cursor(row.id, &caller.owner, row.created_at));
            // What a task asks, and why it failed, stand in its bodies, which the list does not have.
            let needs_bodies = match &row.task.phase {
                Phase::Asking => true,
                Phase::Working | Phase::Finished(_) => false,
            };
            let whole = match needs_bodies {
                true => self.row(row.id).await?.unwrap_or(row),
                false => row,
            };
            tasks.push(self.view(&whole, found.now));
        }
        Ok(Reply::Tasks(TaskPage {
            tasks,
            next_cursor: next_cursor.filter(|_| has_more),
        }))
    }
}

/// How many tasks a page has.
const PAGE: u32 = 50;
