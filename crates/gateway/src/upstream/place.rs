//! Where a configured server is: the program to start with its environment, or the address with its headers.
//!
//! `fleet` makes one for each server, and the server looks it up before each dial, so that a renewed secret is found.
//! Nothing is started here but the programs of `cmd:` values.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use longhaul_engine::process::{self, Unstartable};

use super::{
    credentials::{Elsewhere, Unreadable, variable, with_variables},
    dial::Place,
    http::{Credentials, Remote},
    login::{Logins, Target},
    stdio::{Host, Program},
    wrapped::Brought,
};
use crate::{
    command,
    config::{self, Login, Upstream},
};

/// How a server is reached, as far as the configuration says it.
#[derive(Clone)]
pub(super) struct Where {
    /// The settings.
    pub config: Arc<Upstream>,
    /// What runs programs.
    pub host: Arc<Host>,
    /// Longhaul's own environment.
    pub env: Arc<[(OsString, OsString)]>,
    /// What was brought last, of a wrapped server.
    pub brought: Option<Arc<Mutex<Brought>>>,
    /// Who is logged in where.
    pub logins: Logins,
}

impl Where {
    /// The place, with the secrets that it needs now.
    ///
    /// # Errors
    /// A value that stands elsewhere cannot be read.
    pub(super) async fn look_up(&self, refused: Option<Credentials>) -> Result<Place, Unreadable> {
        let config = &self.config;
        if let Some(brought) = &self.brought {
            let brought = brought.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = brought.place(config, &self.host) {
                return Ok(place);
            }
        }
        let folder = command::absolute(&config.folder);
        let elsewhere = self.elsewhere(&folder);
        if let Some(url) = &config.url {
            let url = elsewhere.text(url)?;
            config::address(&url).map_err(|_| Unreadable::NoAddress)?;
            let mut headers = Vec::new();
            for (name, written) in &config.headers.0 {
                let value = match config.is_wrapped {
                    true => written.clone(),
                    false => elsewhere.value(written).await?,
                };
                headers.push((name.clone(), value));
            }
            let has_own = headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            if !has_own && let Some(token) = self.token(&elsewhere, &url, refused.as_ref()).await? {
                headers.push(("authorization".to_owned(), format!("Bearer {token}")));
            }
            return Ok(Place::Remote(Remote { url, headers }));
        }
        let mut env = command::passed(&self.env, &config.env_pass);
        for (name, written) in &config.env.0 {
            let value = elsewhere.value(written).await?;
            env.retain(|(own, _)| own.as_os_str() != name.as_str());
            env.push((name.into(), value.into()));
        }
        let mut command = Vec::new();
        for word in config.command.0.iter().chain(&config.args) {
            command.push(OsString::from(elsewhere.text(word)?));
        }
        let program = Program {
            server: config.name.clone(),
            command,
            cwd: command::absolute(config.cwd.as_ref().unwrap_or(&config.folder)),
            folder,
            env,
            memory_max: config.memory_max.map(|bytes| bytes.0),
            nice: u8::try_from(config.nice).unwrap_or(0),
        };
        Ok(Place::Program(program, Arc::clone(&self.host)))
    }
}

impl Where {
    fn elsewhere<'a>(&'a self, folder: &'a Path) -> Elsewhere<'a> {
        Elsewhere {
            env: &self.env,
            folder,
            host: &self.host,
            is_of_client: self.config.is_of_client,
        }
    }

    /// The token of whoever logged in at this address (G-5).
    async fn token(
        &self,
        elsewhere: &Elsewhere<'_>,
        url: &str,
        refused: Option<&Credentials>,
    ) -> Result<Option<String>, Unreadable> {
        let Ok(url) = url::Url::parse(url) else {
            return Ok(None);
        };
        let login = &self.config.login;
        let secret = secret(login, elsewhere).await?;
        let refused = refused.and_then(Credentials::bearer);
        Ok(self.logins.token(&url, login, secret, refused).await)
    }

    /// The server as somebody logs in at it; `None` where it is a program.
    ///
    /// # Errors
    /// A value that stands elsewhere cannot be read.
    pub(super) async fn target(&self) -> Result<Option<Target>, Unreadable> {
        let folder = command::absolute(&self.config.folder);
        let elsewhere = self.elsewhere(&folder);
        let Some(url) = &self.config.url else {
            return Ok(None);
        };
        let url = url::Url::parse(&elsewhere.text(url)?).map_err(|_| Unreadable::NoAddress)?;
        let settings = self.config.login.clone();
        let client_secret = secret(&settings, &elsewhere).await?;
        Ok(Some(Target {
            url,
            settings,
            client_secret,
        }))
    }
}

async fn secret(login: &Login, elsewhere: &Elsewhere<'_>) -> Result<Option<String>, Unreadable> {
    match &login.client_secret {
        Some(written) => elsewhere.value(written).await.map(Some),
        None => Ok(None),
    }
}

/// What of a server's settings leads nowhere now, each in words. Nothing is started, and no value is told.
pub fn faults(server: &Upstream, env: &[(OsString, OsString)]) -> Vec<String> {
    let mut faults = Vec::new();
    let folder = command::absolute(&server.folder);
    if let Some(written) = server.command.0.first() {
        if let Err(error) = program(server, env) {
            faults.push(format!("cannot start `{written}`: {error}"));
        }
        let cwd = command::absolute(server.cwd.as_ref().unwrap_or(&server.folder));
        if !cwd.is_dir() {
            faults.push(format!(
                "cannot start it in `{}`: there is no such folder",
                cwd.display()
            ));
        }
    }
    // The variables of a client's file are looked at when it is read.
    let values = server.env.0.iter().chain(&server.headers.0);
    for (key, written) in values.filter(|_| !server.is_of_client) {
        faults.extend(nowhere(written, &folder, env).map(|why| format!("`{key}`: {why}")));
    }
    faults
}

/// Why a value that stands elsewhere is not there; `None` where it may be.
fn nowhere(written: &str, folder: &Path, env: &[(OsString, OsString)]) -> Option<String> {
    if let Some(name) = written.strip_prefix("env:") {
        let is_set = variable(env, name).is_some();
        return (!is_set).then(|| format!("the variable `{name}` is not set"));
    }
    if let Some(path) = written.strip_prefix("file:") {
        let path = folder.join(path);
        return (!path.is_file()).then(|| format!("there is no file `{}`", path.display()));
    }
    let program = written
        .strip_prefix("cmd:")?
        .split_whitespace()
        .next()
        .unwrap_or_default();
    let path = variable(env, "PATH").unwrap_or_default();
    let found = process::resolve(OsStr::new(program), path, folder);
    found
        .err()
        .map(|error| format!("cannot start `{program}`: {error}"))
}

/// Where the program of a server is, which is none at a URL.
///
/// # Errors
/// Why it cannot be started.
pub fn program(server: &Upstream, env: &[(OsString, OsString)]) -> Result<PathBuf, Unstartable> {
    let written = server.command.0.first().ok_or(Unstartable::Empty)?;
    let folder = command::absolute(&server.folder);
    let program = match server.is_of_client {
        // One whose variable is not set is shown as it is written.
        true => with_variables(written, &folder, env).unwrap_or_else(|_| written.clone()),
        false => written.clone(),
    };
    let path = variable(env, "PATH").unwrap_or_default();
    process::resolve(OsStr::new(&program), path, &folder)
}
