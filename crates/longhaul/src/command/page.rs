//! `longhaul page`: a link to the local page that works once.

use crate::{
    background,
    exit::{Exit, Outcome},
    flags::{Common, Page},
    screen::{say, say_json, tell},
};

/// Runs the command.
pub(crate) async fn page(common: &Common, flags: &Page) -> Outcome {
    let link = background::client(common)?.page(flags.name.as_deref()).await?;
    match common.json {
        true => say_json(&link)?,
        false => {
            say(&link.url);
            tell(format!("works once, for {} minutes", link.valid_ms / 60_000));
        }
    }
    Ok(Exit::Done)
}
