//! Where a configured server is: the program to start with its environment, or the address with its headers.
//!
//! `fleet` makes one for each server, and the server looks it up before each dial, so that a renewed secret is found.
//! Nothing is started here but the programs of `cmd:` values.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::Arc,
};

use longhaul_engine::process::{self, Unstartable};

use super::{
    credentials::{Elsewhere, Unreadable},
    dial::Place,
    http::Remote,
    stdio::{Host, Program},
};
use crate::{command, config::Upstream};

/// How a server is reached, as far as the configuration says it.
#[derive(Clone)]
pub(super) struct Where {
    /// The settings.
    pub config: Arc<Upstream>,
    /// What runs programs.
    pub host: Arc<Host>,
    /// Longhaul's own environment.
    pub env: Arc<[(OsString, OsString)]>,
}

impl Where {
    /// The place, with the secrets that it needs now.
    ///
    /// # Errors
    /// A value that stands elsewhere cannot be read.
    pub(super) async fn look_up(&self) -> Result<Place, Unreadable> {
        let config = &self.config;
        let folder = command::absolute(&config.folder);
        let elsewhere = Elsewhere {
            env: &self.env,
            folder: &folder,
            host: &self.host,
        };
        if let Some(url) = &config.url {
            let mut headers = Vec::new();
            for (name, written) in &config.headers.0 {
                headers.push((name.clone(), elsewhere.value(written).await?));
            }
            return Ok(Place::Remote(Remote {
                url: url.clone(),
                headers,
            }));
        }
        let mut env = command::passed(&self.env, &config.env_pass);
        for (name, written) in &config.env.0 {
            let value = elsewhere.value(written).await?;
            env.retain(|(own, _)| own.as_os_str() != name.as_str());
            env.push((name.into(), value.into()));
        }
        let words = config.command.0.iter().chain(&config.args);
        let program = Program {
            server: config.name.clone(),
            command: words.map(OsString::from).collect(),
            cwd: command::absolute(config.cwd.as_ref().unwrap_or(&config.folder)),
            folder,
            env,
            memory_max: config.memory_max.map(|bytes| bytes.0),
            nice: u8::try_from(config.nice).unwrap_or(0),
        };
        Ok(Place::Program(program, Arc::clone(&self.host)))
    }
}

/// Where the program of a server is, which is none at a URL.
///
/// # Errors
/// Why it cannot be started.
pub fn program(server: &Upstream, path: &OsStr) -> Result<PathBuf, Unstartable> {
    let program = server.command.0.first().ok_or(Unstartable::Empty)?;
    process::resolve(OsStr::new(program), path, &command::absolute(&server.folder))
}
