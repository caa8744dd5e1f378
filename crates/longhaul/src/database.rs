//! Opens the store that the configuration names, with the keys that belong to it.
//!
//! Called by `serve`, and by the commands that read tasks where no server runs. It reads no task itself.

use std::{fs, path::PathBuf, sync::Arc};

use longhaul_engine::clock;
use longhaul_gateway::{config::Config, sealed_id::Keys};
use longhaul_store::{Shared, crypt::KeyRing, memory::Memory};

use crate::{
    exit::{Exit, Failure},
    places::State,
    screen::line,
};

/// The most connections to PostgreSQL.
#[cfg(feature = "postgres")]
const CONNECTIONS_MAX: usize = 16;
/// What the root of the keys for ids and states is derived for. Another text would make every id unknown.
const ROOT: &str = "longhaul gateway root 1";

/// The store that the configuration names, and this server's keys for ids and states.
///
/// # Errors
/// When the store cannot be opened, or is of a newer program; nothing in it was changed then.
pub(crate) async fn open(state: &State, config: &Config) -> Result<(Shared, Keys), Failure> {
    key_file_is_there(state, config)?;
    let keys = KeyRing::open(&state.dir.join("keys")).map_err(unopened)?;
    let root = keys.derive(ROOT).map_err(unopened)?;
    let url = secret("store.url", &config.store.url)?;
    let store: Shared = match url.split_once(':').map_or(url.as_str(), |(scheme, _)| scheme) {
        "memory" => Arc::new(Memory::new(Arc::new(clock::now))),
        "sqlite" => open_sqlite(state, config, keys)?,
        "postgres" | "postgresql" => open_postgres(url, keys).await?,
        other => {
            return Err(Failure::usage(format!(
                "`store.url` names no store that exists: `{}`",
                line(other)
            ))
            .fix("store.url = \"sqlite\", or postgres://user@host/name"));
        }
    };
    Ok((store, Keys::derive(1, &root)))
}

/// A database whose key file was lost is left alone: a new key could read nothing of it, and would stand in the
/// place of the old one.
#[cfg(feature = "sqlite")]
fn key_file_is_there(state: &State, config: &Config) -> Result<(), Failure> {
    let key = state.dir.join("keys").join("master");
    let database = database_directory(state, config)?.join("longhaul.db");
    if key.exists() || !database.exists() || config.store.url != "sqlite" {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the key file `{}` is missing, and `{}` was written with it",
        key.display(),
        database.display()
    ))
    .fix("put the key file back; or, to begin anew without these tasks, move the database away"))
}

#[cfg(not(feature = "sqlite"))]
fn key_file_is_there(_: &State, _: &Config) -> Result<(), Failure> {
    Ok(())
}

/// A value, or what `env:NAME` or `file:PATH` point to.
fn secret(setting: &str, value: &str) -> Result<String, Failure> {
    if let Some(name) = value.strip_prefix("env:") {
        return std::env::var(name).map_err(|_| {
            Failure::usage(format!(
                "`{setting}` is to be read from `{name}`, which is not set"
            ))
        });
    }
    if let Some(path) = value.strip_prefix("file:") {
        let read = fs::read_to_string(path);
        return read
            .map(|text| text.trim().to_owned())
            .map_err(|error| Failure::usage(format!("`{setting}` is to be read from `{path}`: {error}")));
    }
    Ok(value.to_owned())
}

#[cfg(feature = "sqlite")]
fn open_sqlite(state: &State, config: &Config, keys: KeyRing) -> Result<Shared, Failure> {
    use longhaul_store::sqlite;

    let options = sqlite::Options {
        directory: database_directory(state, config)?,
        keys,
        clock: Arc::new(clock::now),
        allow_network_file_system: config.store.allow_network_file_system,
    };
    Ok(Arc::new(sqlite::Sqlite::open(options).map_err(unopened)?))
}

/// Where `longhaul.db` is: `store.path` may move it, not rename it.
#[cfg(feature = "sqlite")]
pub(crate) fn database_directory(state: &State, config: &Config) -> Result<PathBuf, Failure> {
    let Some(path) = &config.store.path else {
        return Ok(state.dir.clone());
    };
    match (path.file_name(), path.parent()) {
        (Some(name), Some(directory)) if name == "longhaul.db" => Ok(directory.to_owned()),
        (Some(_) | None, _) => {
            let message = format!(
                "`store.path` must end in `longhaul.db`, and is `{}`",
                path.display()
            );
            Err(Failure::usage(message))
        }
    }
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &State, _: &Config, _: KeyRing) -> Result<Shared, Failure> {
    Err(Failure::usage("this build has no SQLite").fix("build it with the feature `sqlite`"))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: String, keys: KeyRing) -> Result<Shared, Failure> {
    use longhaul_store::postgres;

    let options = postgres::Options {
        url,
        keys,
        connections_max: CONNECTIONS_MAX,
        allow_unsafe_settings: false,
    };
    Ok(Arc::new(
        postgres::Postgres::connect(options).await.map_err(unopened)?,
    ))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: String, _: KeyRing) -> Result<Shared, Failure> {
    Err(Failure::usage("this build has no PostgreSQL").fix("build it with the feature `postgres`"))
}

fn unopened(error: longhaul_store::Error) -> Failure {
    Failure::caused(Exit::Usage, "store", &error).fix("longhaul doctor")
}
