//! A task belongs to whoever began it. Another's task is no task at all (G-3, C-44).

use super::{Action, Refusal, View};

pub(super) fn check(view: &View<'_>) -> Result<(), Refusal> {
    match view.action {
        Action::Call | Action::List | Action::Relay | Action::Operate => Ok(()),
        Action::Get | Action::Update | Action::Cancel | Action::Listen => {
            if view.task_owner == Some(view.caller) || longhaul_core::fault!("passes-another-owner") {
                Ok(())
            } else {
                Err(Refusal::NotFound)
            }
        }
    }
}
