//! `subscriptions/listen`: one stream for many tasks, for changed lists, and for changed resources.
//!
//! Made by `dispatch`, read by the transports. The order is fixed: what is followed, then each task as it is, then each
//! change, then the end (G-37, Q-14). Nothing queues here but the names of tasks: a reader that falls behind learns the
//! newest state of each task and misses only states in between. Every tick passes the gate.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
};

use longhaul_core::TaskId;
use longhaul_engine::watch::Watcher;
use longhaul_mcp::{
    Push, Reply, RpcError,
    request::{Client, Filter},
    rpc_error::{Refusal, RefusalCode, Who},
};

use crate::{
    changes::Changes,
    dispatch::Dispatch,
    gate::Action,
    identity::Caller,
    quota::{Caps, Place},
    updates::Updates,
};

/// What one owner's streams are limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most tasks that one stream follows (`server.stream_tasks_max`).
    pub tasks_max: usize,
    /// The most streams that one owner has open (`server.streams_max`).
    pub streams_max: usize,
    /// The most streams of all owners (`server.streams_total_max`).
    pub streams_total_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            tasks_max: 16,
            streams_max: 64,
            streams_total_max: 1_024,
        }
    }
}

impl Limits {
    pub(crate) fn caps(self) -> Caps {
        Caps::places(self.streams_max, self.streams_total_max)
    }

    /// What an owner is told who has too many streams.
    pub(crate) fn refusal(self) -> RpcError {
        let most = self.streams_max;
        RpcError::refused(
            RefusalCode::OverLimit,
            format!(
                "{most} streams of yours are open, or as many as the server has, which is the most \
                 (`server.streams_max`, `server.streams_total_max`): close one"
            ),
            Refusal {
                reason: "stream_limit".into(),
                who: Who::Caller,
                retry_after_ms: None,
            },
        )
    }
}

/// One stream.
pub struct Listener {
    _place: Place,
    dispatch: Dispatch,
    caller: Caller,
    watcher: Watcher,
    /// The sealed ids of the tasks that are followed and whose end was not told.
    followed: BTreeMap<TaskId, String>,
    /// Tasks were asked for: the stream ends when none is left.
    ends: bool,
    acknowledges: Option<Filter>,
    changes: Changes,
    updates: Updates,
    /// Servers are asked to tell of resources.
    subscribing: Option<Pin<Box<dyn Future<Output = Updates> + Send>>>,
    /// The tasks to be looked at, each once: a state is read when the stream has room for it.
    due: VecDeque<TaskId>,
    /// What was told last.
    last: Option<(TaskId, String)>,
}

/// The next thing on a stream.
pub enum Tick {
    /// Something to tell.
    Push(Push),
    /// The orderly end.
    End(Reply),
}

impl Listener {
    pub(crate) async fn new(
        dispatch: Dispatch,
        caller: Caller,
        client: &Client,
        filter: Filter,
        place: Place,
    ) -> Listener {
        let watcher = dispatch.watcher();
        let wanted = dispatch.tells_of(&caller.selection, &filter);
        let changes = Changes::of(dispatch.catalog(), &caller.selection, wanted);
        // Waited for by the stream: a silent server does not keep it from opening.
        let subscribing = (!filter.resources.is_empty())
            .then(|| Box::pin(dispatch.subscribed(&caller, client, filter.resources)) as Pin<Box<_>>);
        let mut listener = Listener {
            _place: place,
            ends: filter.tasks.is_some(),
            dispatch,
            caller,
            watcher,
            followed: BTreeMap::new(),
            acknowledges: None,
            changes,
            updates: Updates::default(),
            subscribing,
            due: VecDeque::new(),
            last: None,
        };
        let mut named = Vec::new();
        let tasks_max = listener.dispatch.settings().listen.tasks_max;
        for sealed in filter.tasks.iter().flatten() {
            if named.len() == tasks_max {
                break;
            }
            if named.contains(sealed) {
                continue;
            }
            // Unknown, foreign and expired ones are left out, and nobody is told which.
            if let Ok((row, _)) = listener
                .dispatch
                .own(&listener.caller, Action::Listen, sealed)
                .await
            {
                named.push(sealed.clone());
                if !row.task.is_finished() {
                    listener.watcher.follow(row.id, row.version);
                }
                listener.followed.insert(row.id, sealed.clone());
                listener.due.push_back(row.id);
            }
        }
        listener.acknowledges = Some(Filter {
            tools_list_changed: wanted.tools,
            prompts_list_changed: wanted.prompts,
            resources_list_changed: wanted.resources,
            resources: Vec::new(),
            tasks: filter.tasks.is_some().then_some(named),
        });
        listener
    }

    /// The next thing; waits until there is one. Safe to drop and call again.
    pub async fn next(&mut self) -> Tick {
        if let Some(subscribing) = &mut self.subscribing {
            self.updates = subscribing.await;
            self.subscribing = None;
        }
        if let Some(mut honoured) = self.acknowledges.take() {
            honoured.resources = self.updates.uris();
            // A resource changes as long as its server lives.
            self.ends &= honoured.resources.is_empty();
            return Tick::Push(Push::Acknowledged(honoured));
        }
        loop {
            while let Some(task) = self.due.front().copied() {
                let push = self.look(task).await;
                self.due.pop_front();
                if let Some(push) = push {
                    return Tick::Push(push);
                }
            }
            if self.ends && self.followed.is_empty() {
                return Tick::End(Reply::ListenEnded);
            }
            let changes = tokio::select! {
                push = self.changes.next() => return Tick::Push(push),
                push = self.updates.next() => return Tick::Push(push),
                changes = self.watcher.next() => changes,
            };
            for (task, _) in changes {
                if !self.due.contains(&task) {
                    self.due.push_back(task);
                }
            }
        }
    }

    /// What was told last found no room: it is told again, as it is then.
    pub(crate) fn again(&mut self) {
        if let Some((task, sealed)) = self.last.take() {
            self.followed.insert(task, sealed);
            self.due.push_front(task);
        }
    }

    async fn look(&mut self, task: TaskId) -> Option<Push> {
        let sealed = self.followed.get(&task).cloned()?;
        match self.dispatch.own(&self.caller, Action::Listen, &sealed).await {
            Ok((row, now)) => {
                if row.task.is_finished() {
                    self.unfollow(task);
                    self.dispatch.was_fetched(&row).await;
                } else {
                    self.watcher.follow(task, row.version);
                }
                self.last = Some((task, sealed));
                let view = self.dispatch.view(&row, now);
                self.dispatch
                    .shows(task, view.questions.iter().map(|question| question.key));
                Some(Push::Task(view))
            }
            Err(_) => {
                self.unfollow(task);
                None
            }
        }
    }

    fn unfollow(&mut self, task: TaskId) {
        self.followed.remove(&task);
        self.watcher.unfollow(task);
    }
}
