//! Reads tasks: from the server, or where none runs from the database that it left.
//!
//! Called by `tasks`, `tasks list|get|result`. Without a server the engine is not started, so that nothing is run,
//! settled or swept, and the tasks go through the same gate and the same words as over the socket.

use std::{collections::BTreeSet, sync::Arc};

use longhaul_engine::{Engine, Options, clock, process};
use longhaul_gateway::{
    admin::{Backend, Entrance, Peer, api},
    catalog::Catalog,
    dispatch::{Dispatch, Settings},
};
use longhaul_store::Runner;

use crate::{
    background,
    client::Client,
    database,
    exit::{Exit, Failure},
    flags::Common,
    places::{self, State},
    screen::tell,
};

/// Where tasks are read.
pub(crate) enum Reader {
    /// A server that answers.
    Server(Client),
    /// The database itself.
    Stored(Box<Dispatch>),
}

/// The server of this state directory, or the database in it when no server answers.
///
/// # Errors
/// When there is neither, or the database cannot be opened.
pub(crate) async fn reader(common: &Common) -> Result<Reader, Failure> {
    let client = background::client(common)?;
    match client.health().await {
        Err(failure) if failure.exit == Exit::Unreachable => match open(common).await? {
            Some(dispatch) => {
                tell("no server answers; tasks at work are shown as they were last written");
                Ok(Reader::Stored(Box::new(dispatch)))
            }
            None => Err(failure),
        },
        Ok(_) | Err(_) => Ok(Reader::Server(client)),
    }
}

impl Reader {
    /// The tasks that fit.
    pub(crate) async fn list(&self, filter: &api::Filter) -> Result<api::Tasks, Failure> {
        match self {
            Reader::Server(client) => client.list(filter).await,
            Reader::Stored(dispatch) => Ok(dispatch.list(peer(), filter.clone()).await?),
        }
    }

    /// One task.
    pub(crate) async fn task(&self, name: &str) -> Result<api::Task, Failure> {
        match self {
            Reader::Server(client) => client.task(name).await,
            Reader::Stored(dispatch) => Ok(dispatch.get(peer(), name.to_owned()).await?),
        }
    }

    /// How a task ended.
    pub(crate) async fn result(&self, name: &str) -> Result<api::Outcome, Failure> {
        match self {
            Reader::Server(client) => client.result(name).await,
            Reader::Stored(dispatch) => Ok(dispatch.result(peer(), name.to_owned()).await?),
        }
    }
}

/// Whoever may open the file is its user.
fn peer() -> Peer {
    Peer {
        uid: nix::unistd::geteuid().as_raw(),
        entrance: Entrance::Socket,
    }
}

/// The SQLite database of this state directory; `None` when there is none, which makes nothing.
#[cfg(feature = "sqlite")]
async fn open(common: &Common) -> Result<Option<Dispatch>, Failure> {
    let state = State::find(common)?;
    let config = places::load(common, false)?.config;
    let file = database::database_directory(&state, &config)?.join("longhaul.db");
    if config.store.url != "sqlite" || !file.exists() {
        return Ok(None);
    }
    let (store, keys) = database::open(&state, &config).await?;
    let identity = process::identity()
        .map_err(|error| Failure::fault(format!("cannot find this process in /proc: {error}")))?;
    let runner = Runner {
        id: clock::runner_id(),
        host: String::new(),
        boot: identity.boot,
        pid: identity.pid.unsigned_abs(),
        pid_start: identity.started,
    };
    let references = keys.clone();
    let options = Options::new(
        runner,
        Arc::new(move |task| references.reference(task)),
        Arc::new(|_, _| BTreeSet::new()),
    );
    let catalog = Arc::new(Catalog::default());
    let engine = Engine::new(store, options, Arc::clone(&catalog) as _);
    Ok(Some(Dispatch::new(engine, catalog, keys, Settings::default())))
}

#[cfg(not(feature = "sqlite"))]
async fn open(_: &Common) -> Result<Option<Dispatch>, Failure> {
    Ok(None)
}
