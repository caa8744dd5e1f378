//! Puts the entrances together: the MCP endpoint and the local page on one address, the local API and the pipes on
//! the user's socket.
//!
//! Made by the binary after the engine was started, so that the first request already reads what is true.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use longhaul_core::Span;
use longhaul_engine::Engine;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{mpsc, watch},
};

use crate::{
    activity::Activity,
    admin,
    catalog::Catalog,
    config::Config,
    dispatch::{self, Dispatch},
    http::{self, Allowed, connections},
    listen,
    local::{
        links::Links,
        notice::{NoNotices, Notifier},
        page, pipe, socket,
    },
    sealed_id::Keys,
    stdio::{self, Stdio},
    updates,
    upstream::{fleet::Fleet, login, offer::Changed},
    view,
};

/// What a server is made of.
pub struct Setup<'a> {
    /// A started engine.
    pub engine: Engine,
    /// The tools.
    pub catalog: Arc<Catalog>,
    /// The servers behind this one, and what changes in what they define.
    pub servers: (Fleet, mpsc::Receiver<Changed>),
    /// The keys of this server.
    pub keys: Keys,
    /// Its settings.
    pub config: &'a Config,
    /// The files that they stand in, for people.
    pub config_files: &'a [PathBuf],
    /// The user's socket; `None` to serve none.
    pub socket: Option<socket::Claim>,
    /// What is done about the configuration's address.
    pub listen: Listen,
    /// It makes way for a newer one that asks.
    pub makes_way: bool,
    /// What tells the user of questions that no client shows, or why nothing does.
    pub notices: Result<Notifier, NoNotices>,
}

/// What a server does about its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// It listens there, or does not begin.
    There,
    /// It listens there, or on a free port where another program is there.
    ThereOrNear,
    /// It listens on no address.
    Nowhere,
}

/// How far a server is from its end. It only moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It serves.
    No,
    /// Its entrances are free for another server. What is open goes on.
    MadeWay,
    /// What is open has a last moment to finish.
    Now,
}

/// A server whose entrances are bound and not yet served.
pub struct Server {
    tcp: Option<Tcp>,
    connections: connections::Limits,
    socket: Option<socket::Socket>,
    local: Router,
    links: Option<Links>,
    pipes_closed: pipe::Closed,
    end: watch::Receiver<End>,
    control: Control,
}

/// The address on which MCP and the page are served.
struct Tcp {
    address: SocketAddr,
    listener: TcpListener,
    router: Router,
}

/// What is known of a server while it serves, and how it is told to end.
#[derive(Clone)]
pub struct Control {
    /// Tells it to end. When the last sender is dropped, it ends.
    pub end: watch::Sender<End>,
    /// Somebody asked it to make way for another server.
    pub asked_to_make_way: watch::Receiver<bool>,
    /// Who is connected.
    pub activity: Activity,
    /// Serves further connections.
    pub stdio: Stdio,
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
        let tcp = listen(config.server.bind, setup.listen).await?;
        let activity = Activity::new();
        let socket = setup
            .socket
            .map(|claim| claim.bind(activity.clone()))
            .transpose()?;

        let base = tcp.as_ref().map(|(address, _)| format!("http://{address}"));
        let mcp_url = base.as_ref().map(|base| format!("{base}/mcp"));
        let catalog = setup.catalog;
        let (fleet, changed) = setup.servers;
        let dispatch = Dispatch::before(
            setup.engine,
            Arc::clone(&catalog),
            fleet,
            setup.keys,
            dispatch::Settings {
                config_files: setup.config_files.iter().map(|file| shown(file)).collect(),
                notices: setup
                    .notices
                    .as_ref()
                    .map(Notifier::program)
                    .map_err(ToString::to_string),
                ..dispatch_settings(config, mcp_url)
            },
        );
        tokio::spawn(dispatch.clone().keep_definitions(changed));
        let logins = dispatch.logins().clone();
        if let Some((address, _)) = &tcp {
            logins.served_at(*address);
        }
        let links = base.filter(|_| config.server.page).map(|base| Links::new(&base));
        let tcp = tcp.map(|(address, listener)| {
            let server = &config.server;
            let allowed = Allowed::new(address, &server.allowed_hosts, &server.allowed_origins);
            let hosts = allowed.hosts().to_vec();
            let (dispatch, catalog) = (dispatch.clone(), Arc::clone(&catalog));
            let mut router = http::router(dispatch.clone(), catalog, http_limits(config), allowed);
            router = router.merge(login::router(logins));
            if let Some(links) = &links {
                router = router.merge(page::router(Arc::new(dispatch), links.clone(), hosts));
            }
            Tcp {
                address,
                listener,
                router,
            }
        });
        let (end, ended) = watch::channel(End::No);
        if let Ok(notifier) = setup.notices {
            let (dispatch, mut ended) = (dispatch.clone(), ended.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = dispatch.tell_of_questions(notifier) => {}
                    // A sender that is gone is an end, too.
                    _ = ended.wait_for(|end| *end == End::Now) => {}
                }
            });
        }
        let (ask, asked_to_make_way) = watch::channel(false);
        let make_way = pipe::MakeWay {
            ask,
            freely: setup.makes_way,
        };
        let stdio = Stdio::new(dispatch.clone(), catalog, stdio_limits(config));
        let (pipes, pipes_closed) = pipe::Pipes::new(stdio.clone(), ended.clone(), make_way);
        let local = admin::http::router(Arc::new(dispatch), links.clone()).merge(pipe::router(pipes));
        Ok(Server {
            tcp,
            connections: connections::Limits {
                connections_max: config.server.connections_max as usize,
                request_time: duration(config.server.read_timeout),
                idle_time: duration(config.server.idle_timeout),
                reader_time: duration(config.server.slow_reader),
                refused_bytes_max: http_limits(config).body_max.saturating_add(REFUSED_EXTRA),
            },
            socket,
            local,
            links,
            pipes_closed,
            end: ended,
            control: Control {
                end,
                asked_to_make_way,
                activity,
                stdio,
            },
        })
    }

    /// The address that is really bound: the port is never 0. `None` when the server listens on none.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|tcp| tcp.address)
    }

    /// Hands out links to the local page, when it is served.
    pub fn links(&self) -> Option<&Links> {
        self.links.as_ref()
    }

    /// What is known of the server while it serves.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Serves until it is told to end, then lets open requests finish: without a limit while it only makes way, for
    /// at most `last` once it ends. The address is free before the socket is, so whoever gets the socket can have
    /// the address.
    ///
    /// # Errors
    /// The system's, when it no longer accepts connections.
    pub async fn serve(self, last: Duration) -> io::Result<()> {
        let Server {
            tcp,
            connections,
            socket,
            local,
            pipes_closed,
            end,
            control,
            ..
        } = self;
        let activity = control.activity.clone();
        drop(control);
        let until = |least: End| {
            let mut end = end.clone();
            async move {
                // A sender that is gone is an end, too.
                let _ = end.wait_for(|end| *end >= least).await;
            }
        };
        let (release, mut released) = watch::channel(false);
        let tcp = async {
            match tcp {
                Some(Tcp { listener, router, .. }) => {
                    let release = || {
                        release.send_replace(true);
                    };
                    connections::serve(
                        listener,
                        router,
                        connections,
                        &activity,
                        until(End::MadeWay),
                        release,
                    )
                    .await
                }
                None => {
                    until(End::MadeWay).await;
                    release.send_replace(true);
                    Ok(())
                }
            }
        };
        let local = async {
            match socket {
                Some(socket) => {
                    let released = async move {
                        let _ = released.wait_for(|released| *released).await;
                    };
                    socket.serve(local, released).await
                }
                None => {
                    drop(local);
                    Ok(())
                }
            }
        };
        let pipes = async {
            pipes_closed.wait().await;
            Ok(())
        };
        let serving = async { tokio::try_join!(tcp, local, pipes).map(|_| ()) };
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served,
            () = until(End::Now) => tokio::time::timeout(last, serving).await.unwrap_or(Ok(())),
        }
    }
}

/// Binds the address, as far as it is to be bound.
async fn listen(bind: SocketAddr, listen: Listen) -> Result<Option<(SocketAddr, TcpListener)>, BindError> {
    if listen == Listen::Nowhere {
        return Ok(None);
    }
    // G-2
    if !bind.ip().is_loopback() {
        return Err(BindError::NotLoopback(bind));
    }
    let system = |source| BindError::System {
        address: bind,
        source,
    };
    let listener = match bound(bind) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && listen == Listen::ThereOrNear => {
            let listener = bound((bind.ip(), 0).into()).map_err(system)?;
            tracing::warn!(wanted = %bind, "the address is in use by another program; a free port is used");
            listener
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(BindError::AddressInUse(bind)),
        listener => listener.map_err(system)?,
    };
    let address = listener.local_addr().map_err(system)?;
    Ok(Some((address, listener)))
}

fn bound(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that comes right after another one gets its address.
    socket.set_reuseaddr(true)?;
    // Its connections have it, too. Left to itself the system would hold megabytes for a reader that stops.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How many bytes the system holds for a reader of one connection.
const SEND_BUFFER: u32 = 256 * 1024;
/// How many connections wait to be accepted.
const BACKLOG: u32 = 1024;
/// How many bytes beyond the largest body are read of a request that is refused.
const REFUSED_EXTRA: usize = 64 * 1024;

fn shown(file: &Path) -> String {
    std::path::absolute(file)
        .as_deref()
        .unwrap_or(file)
        .display()
        .to_string()
}

fn dispatch_settings(config: &Config, mcp_url: Option<String>) -> dispatch::Settings {
    let tasks = &config.tasks;
    dispatch::Settings {
        tasks_enabled: tasks.enabled,
        open_max: u64::from(tasks.open_max),
        held_max: tasks.held_max as usize,
        held_total_max: tasks.held_total_max as usize,
        held_bytes_max: usize::try_from(tasks.held_bytes_max.0).unwrap_or(usize::MAX),
        replies_max: usize::try_from(config.server.replies_max.0).unwrap_or(usize::MAX),
        hold: dispatch::HoldLimits {
            plain: tasks.hold,
            with_progress: tasks.hold_with_progress,
            fixed: tasks.hold_max,
            quiet: duration(config.server.keep_alive),
        },
        kept_for_join: tasks.kept_for_join,
        wait_tool: tasks.wait_tool,
        rounds_max: tasks.questions_before_max as usize,
        config_files: Vec::new(),
        mcp_url,
        list_cache_ms: dispatch::Settings::default().list_cache_ms,
        listen: listen::Limits {
            tasks_max: config.server.stream_tasks_max as usize,
            streams_max: config.server.streams_max as usize,
            streams_total_max: config.server.streams_total_max as usize,
        },
        subscriptions: updates::Limits {
            each_max: config.server.subscriptions_max as usize,
            owner_max: config.server.subscriptions_owner_max as usize,
            total_max: config.server.subscriptions_total_max as usize,
        },
        poll: view::Poll {
            min: tasks.poll_min,
            max: tasks.poll_max,
            slow: tasks.poll_slow,
        },
        poll_burst: tasks.poll_burst,
        sessions: dispatch::SessionLimits {
            sessions_max: config.server.sessions_max as usize,
            idle: duration(config.server.session_idle),
        },
        ttl_max: tasks.ttl_max,
        expired_kept: tasks.expired_kept,
        ..dispatch::Settings::default()
    }
}

fn stdio_limits(config: &Config) -> stdio::Limits {
    let server = &config.server;
    stdio::Limits {
        line_max: usize::try_from(server.body_max.0).unwrap_or(usize::MAX),
        reader_time: duration(server.slow_reader),
        scan: scan_limits(config),
        ..stdio::Limits::default()
    }
}

fn scan_limits(config: &Config) -> longhaul_mcp::scan::Limits {
    longhaul_mcp::scan::Limits {
        depth_max: config.server.depth_max as usize,
        values_max: config.server.values_max as usize,
        ..longhaul_mcp::scan::Limits::default()
    }
}

fn http_limits(config: &Config) -> http::Limits {
    let server = &config.server;
    http::Limits {
        body_max: usize::try_from(server.body_max.0).unwrap_or(usize::MAX),
        bodies_max: usize::try_from(server.bodies_max.0).unwrap_or(usize::MAX),
        request_time: duration(server.read_timeout),
        keep_alive: duration(server.keep_alive),
        reader_time: duration(server.slow_reader),
        result_wait: duration(config.tasks.result_wait),
        strict_headers: server.strict_headers,
        scan: scan_limits(config),
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_millis(span.0)
}
