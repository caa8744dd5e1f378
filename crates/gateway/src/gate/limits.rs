//! Caps. Reaching one refuses the call that would go over it and never ends a task (G-11, T0).

use super::{Action, Refusal, View};

pub(super) fn check(view: &View<'_>) -> Result<(), Refusal> {
    match view.action {
        Action::Call if view.draining => Err(Refusal::Draining),
        Action::Call
            if view.open_tasks >= view.open_max && !longhaul_core::fault!("open-tasks-without-limit") =>
        {
            Err(Refusal::TaskLimit {
                open_max: view.open_max,
            })
        }
        Action::Call
        | Action::Get
        | Action::Update
        | Action::Cancel
        | Action::List
        | Action::Listen
        | Action::Relay
        | Action::Operate => Ok(()),
    }
}
