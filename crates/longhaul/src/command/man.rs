//! `longhaul man`: the manual pages, made from the flags.
//!
//! Asked by packages when they are built, and by people who installed without one. It is the help in another form.

use std::{fs, path::Path};

use clap::CommandFactory;

use crate::{
    exit::{Exit, Failure, Outcome},
    flags::{Flags, Man},
    screen::say,
};

/// Runs the command.
pub(crate) fn man(flags: &Man) -> Outcome {
    match &flags.to {
        Some(folder) => pages(folder)?,
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Flags::command()).render(&mut page);
            rendered.map_err(|error| Failure::fault(format!("cannot make the page: {error}")))?;
            say(String::from_utf8_lossy(&page).trim_end());
        }
    }
    Ok(Exit::Done)
}

/// Writes a page for every command, `longhaul-tasks-get.1` and the like.
fn pages(folder: &Path) -> Result<(), Failure> {
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Flags::command(), folder));
    written.map_err(|error| {
        Failure::usage(format!(
            "cannot write the pages to `{}`: {error}",
            folder.display()
        ))
    })
}
