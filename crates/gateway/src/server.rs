//! Puts the entrances together: the MCP endpoint and the local page on one address, the local API on the user's
//! socket.
//!
//! Made by the binary after the engine was started, so that the first request already reads what is true.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use longhaul_core::Span;
use longhaul_engine::Engine;
use tokio::{net::TcpListener, sync::watch};

use crate::{
    admin,
    catalog::Catalog,
    config::Config,
    dispatch::{self, Dispatch},
    http::{self, Allowed, connections},
    listen,
    local::{links::Links, page, socket},
    sealed_id::Keys,
    view,
};

/// What a server is made of.
pub struct Setup<'a> {
    /// A started engine.
    pub engine: Engine,
    /// The tools.
    pub catalog: Arc<Catalog>,
    /// The keys of this server.
    pub keys: Keys,
    /// Its settings.
    pub config: &'a Config,
    /// Where the user's socket is; `None` to serve none.
    pub socket: Option<PathBuf>,
}

/// A server whose entrances are bound and not yet served.
pub struct Server {
    address: SocketAddr,
    tcp: TcpListener,
    connections: connections::Limits,
    socket: Option<socket::Socket>,
    mcp: Router,
    local: Router,
    links: Option<Links>,
}

/// Why a server cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is taken.
    #[error(
        "`{0}` is in use by another program; stop it, or choose another address with `--bind` or `server.bind`"
    )]
    AddressInUse(SocketAddr),
    /// An address that others can reach, without a way to know who calls.
    #[error(
        "`{0}` is reachable from other machines, and this version serves the loopback only; set `server.bind` to 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    /// The system refuses the address.
    #[error("cannot listen on `{address}`")]
    System {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The socket cannot be bound.
    #[error(transparent)]
    Socket(#[from] socket::BindError),
}

impl Server {
    /// Binds every entrance.
    ///
    /// # Errors
    /// [`BindError`]; nothing is bound then.
    pub async fn bind(setup: Setup<'_>) -> Result<Server, BindError> {
        let config = setup.config;
        let bind = config.server.bind;
        // G-2
        if !bind.ip().is_loopback() {
            return Err(BindError::NotLoopback(bind));
        }
        let tcp = TcpListener::bind(bind).await.map_err(|source| {
            if source.kind() == io::ErrorKind::AddrInUse {
                return BindError::AddressInUse(bind);
            }
            BindError::System {
                address: bind,
                source,
            }
        })?;
        let address = tcp.local_addr().map_err(|source| BindError::System {
            address: bind,
            source,
        })?;
        let socket = setup.socket.as_deref().map(socket::Socket::bind).transpose()?;

        let base = format!("http://{address}");
        let dispatch = Dispatch::new(
            setup.engine,
            Arc::clone(&setup.catalog),
            setup.keys,
            dispatch_settings(config, format!("{base}/mcp")),
        );
        let allowed = Allowed::new(
            address,
            &config.server.allowed_hosts,
            &config.server.allowed_origins,
        );
        let hosts = allowed.hosts().to_vec();
        let links = config.server.page.then(|| Links::new(&base));
        let mut mcp = http::router(dispatch.clone(), setup.catalog, http_limits(config), allowed);
        if let Some(links) = &links {
            mcp = mcp.merge(page::router(Arc::new(dispatch.clone()), links.clone(), hosts));
        }
        let local = admin::http::router(Arc::new(dispatch), links.clone());
        Ok(Server {
            address,
            tcp,
            connections: connections::Limits {
                connections_max: config.server.connections_max as usize,
                header_time: duration(config.server.read_timeout),
                reader_time: duration(config.server.slow_reader),
            },
            socket,
            mcp,
            local,
            links,
        })
    }

    /// The address that is really bound: the port is never 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Hands out links to the local page, when it is served.
    pub fn links(&self) -> Option<&Links> {
        self.links.as_ref()
    }

    /// Serves until `ended` says so, then lets open requests finish for at most `last`.
    ///
    /// # Errors
    /// The system's, when it no longer accepts connections.
    pub async fn serve(self, ended: watch::Receiver<bool>, last: Duration) -> io::Result<()> {
        let until = |mut ended: watch::Receiver<bool>| async move {
            // A sender that is gone is an end, too.
            let _ = ended.wait_for(|ended| *ended).await;
        };
        let tcp = connections::serve(self.tcp, self.mcp, self.connections, until(ended.clone()));
        let stopping = until(ended.clone());
        let serving = async {
            match self.socket {
                Some(socket) => tokio::try_join!(tcp, socket.serve(self.local, until(ended))).map(|_| ()),
                None => tcp.await,
            }
        };
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served,
            () = stopping => tokio::time::timeout(last, serving).await.unwrap_or(Ok(())),
        }
    }
}

fn dispatch_settings(config: &Config, mcp_url: String) -> dispatch::Settings {
    let tasks = &config.tasks;
    dispatch::Settings {
        tasks_enabled: tasks.enabled,
        open_max: u64::from(tasks.open_max),
        held_max: tasks.held_max as usize,
        hold: dispatch::HoldLimits {
            plain: tasks.hold,
            with_progress: tasks.hold_with_progress,
            fixed: tasks.hold_max,
            quiet: duration(config.server.keep_alive),
        },
        kept_for_join: tasks.kept_for_join,
        wait_tool: tasks.wait_tool,
        rounds_max: tasks.questions_before_max as usize,
        mcp_url: Some(mcp_url),
        list_cache_ms: dispatch::Settings::default().list_cache_ms,
        listen: listen::Limits {
            tasks_max: config.server.stream_tasks_max as usize,
            streams_max: config.server.streams_max as usize,
        },
        poll: view::Poll {
            min: tasks.poll_min,
            max: tasks.poll_max,
            slow: tasks.poll_slow,
        },
        expired_kept: tasks.expired_kept,
        ..dispatch::Settings::default()
    }
}

fn http_limits(config: &Config) -> http::Limits {
    let server = &config.server;
    http::Limits {
        body_max: usize::try_from(server.body_max.0).unwrap_or(usize::MAX),
        bodies_max: usize::try_from(server.bodies_max.0).unwrap_or(usize::MAX),
        body_time: duration(server.read_timeout),
        keep_alive: duration(server.keep_alive),
        reader_time: duration(server.slow_reader),
        strict_headers: server.strict_headers,
        scan: longhaul_mcp::scan::Limits {
            depth_max: server.depth_max as usize,
            values_max: server.values_max as usize,
            ..longhaul_mcp::scan::Limits::default()
        },
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_millis(span.0)
}
