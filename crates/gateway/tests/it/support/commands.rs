//! The commands of a configuration, as the catalog has them.

use std::{path::Path, sync::Arc};

use longhaul_core::Span;
use longhaul_engine::process::Shim;
use longhaul_gateway::{
    catalog::Entry,
    command::{self, Host},
    config::Config,
};

/// Their entries; what they write goes to this folder.
pub(crate) fn entries(config: &Config, shim: Shim, spool: &Path) -> Vec<Entry> {
    let host = Arc::new(Host {
        shim,
        runner: "runner".to_owned(),
        spool: spool.to_owned(),
        env: std::env::vars_os().collect(),
        limits: config.limits.clone(),
        grace: Span(300),
        questions_max: config.tasks.questions_max,
    });
    let entries = config.tools.values();
    entries
        .map(|tool| command::entry(tool, &config.tasks, &host).expect("an entry"))
        .collect()
}
