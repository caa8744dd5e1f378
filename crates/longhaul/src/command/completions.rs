//! `longhaul completions`: the completions of a shell, made from the flags.

use clap::CommandFactory;

use crate::{
    exit::{Exit, Outcome},
    flags::{Completions, Flags},
    screen::say,
};

/// Runs the command.
pub(crate) fn completions(flags: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(flags.shell, &mut Flags::command(), "longhaul", &mut text);
    say(String::from_utf8_lossy(&text).trim_end());
    Ok(Exit::Done)
}
