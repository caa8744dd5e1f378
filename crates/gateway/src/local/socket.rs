//! The user's socket: where it is, who may hold it, who may speak on it.
//!
//! `serve` binds it; the command line connects to it. A socket that nobody answers on is left over from a
//! process that was killed, and is replaced; one that somebody answers on never is.

use std::{
    fs, io,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream as StdStream,
    },
    path::{Path, PathBuf},
};

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    serve::Listener,
};
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};

use crate::{
    activity::{Activity, Counted},
    admin::{Entrance, Peer},
};

/// The file name of the socket.
pub const NAME: &str = "longhaul.sock";

/// The longest path that every supported system accepts for a socket, in bytes.
pub const PATH_MAX: usize = 103;

/// Where the socket is: in the user's runtime directory, else in the state directory.
///
/// A server with a state directory of its own (`state_chosen`) has its socket there, so that it never takes the
/// place of the user's server.
pub fn path(runtime: Option<&Path>, state: &Path, state_chosen: bool) -> PathBuf {
    match runtime {
        Some(runtime) if !state_chosen => runtime.join("longhaul").join(NAME),
        Some(_) | None => state.join(NAME),
    }
}

/// Whether a living server holds this socket.
pub fn is_held(path: &Path) -> bool {
    let lock = fs::File::open(path.with_extension("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

/// Why the socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another server answers on it.
    #[error("another longhaul serves on `{}`", .0.display())]
    InUse(PathBuf),
    /// Its path is longer than the system accepts.
    #[error("the socket's path `{}` is longer than {PATH_MAX} bytes", .0.display())]
    TooLong(PathBuf),
    /// Something that is not a socket of ours is in its place.
    #[error("`{}` is in the way: it is not a socket of this user", .0.display())]
    InTheWay(PathBuf),
    /// Its directory belongs to somebody else or lets others write.
    #[error("the directory `{}` is not this user's alone", .0.display())]
    Directory(PathBuf),
    /// The system refuses.
    #[error("cannot bind `{}`", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// The right to be the server on a socket, before anybody can connect to it.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// Held until the socket is given up, so that two servers that start at once cannot both replace a left-over
    /// socket.
    lock: fs::File,
}

/// The bound socket. Dropping it removes the file, unless another has taken its place.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
    activity: Activity,
    _lock: fs::File,
}

impl Claim {
    /// Takes the socket's lock; its directory is made with mode 0700.
    ///
    /// # Errors
    /// [`BindError`]; [`BindError::InUse`] when a server that lives has it.
    pub fn take(path: &Path) -> Result<Claim, BindError> {
        if path.as_os_str().len() > PATH_MAX {
            return Err(BindError::TooLong(path.to_owned()));
        }
        let system = |source| BindError::System {
            path: path.to_owned(),
            source,
        };
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(system)?;
        private(directory)
            .map_err(system)?
            .then_some(())
            .ok_or(BindError::Directory(directory.to_owned()))?;
        let lock = fs::File::create(path.with_extension("lock")).map_err(system)?;
        match lock.try_lock() {
            Ok(()) => Ok(Claim {
                path: path.to_owned(),
                lock,
            }),
            Err(fs::TryLockError::WouldBlock) => Err(BindError::InUse(path.to_owned())),
            Err(fs::TryLockError::Error(source)) => Err(system(source)),
        }
    }

    /// Binds the socket with mode 0600.
    ///
    /// # Errors
    /// [`BindError`], one variant for each reason.
    pub(crate) fn bind(self, activity: Activity) -> Result<Socket, BindError> {
        let Claim { path, lock } = self;
        let path = path.as_path();
        let system = |source| BindError::System {
            path: path.to_owned(),
            source,
        };
        clear(path)?;
        // The socket appears under its name only when its mode is right: nobody can connect in between.
        let unborn = path.with_extension(format!("{}", std::process::id()));
        remove(&unborn).map_err(system)?;
        let listener = UnixListener::bind(&unborn).map_err(system)?;
        fs::set_permissions(&unborn, fs::Permissions::from_mode(0o600)).map_err(system)?;
        fs::rename(&unborn, path).map_err(system)?;
        let inode = fs::metadata(path).map_err(system)?.ino();
        Ok(Socket {
            listener,
            path: path.to_owned(),
            inode,
            activity,
            _lock: lock,
        })
    }
}

impl Socket {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves `router` to this user and to root until `ended` resolves, then lets open requests finish.
    ///
    /// # Errors
    /// The system's, when it no longer accepts connections.
    pub async fn serve(
        self,
        router: Router,
        ended: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let app = router.layer(middleware::from_fn(name_peer));
        axum::serve(self, app.into_make_service_with_connect_info::<Connection>())
            .with_graceful_shutdown(ended)
            .await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // Nothing depends on it: the next server replaces a socket on which nobody answers.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener for Socket {
    type Io = Counted<UnixStream>;
    type Addr = SocketAddr;

    /// Connections of this user and of root; others are closed without a byte (S4).
    async fn accept(&mut self) -> (Counted<UnixStream>, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            match stream.peer_cred() {
                Ok(peer) if may_enter(peer.uid()) => {
                    return (Counted::new(stream, self.activity.enter()), address);
                }
                Ok(peer) => tracing::warn!(uid = peer.uid(), "refused a connection of another user"),
                Err(error) => tracing::warn!(%error, "refused a connection without a name"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The peer of one connection, as the kernel names it.
#[derive(Clone, Copy, Debug)]
struct Connection {
    uid: Option<u32>,
}

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, Socket>> for Connection {
    fn connect_info(stream: axum::serve::IncomingStream<'_, Socket>) -> Connection {
        Connection {
            uid: stream.io().get().peer_cred().ok().map(|peer| peer.uid()),
        }
    }
}

async fn name_peer(mut request: Request, next: Next) -> axum::response::Response {
    let connection = request
        .extensions()
        .get::<axum::extract::ConnectInfo<Connection>>()
        .copied();
    match connection
        .and_then(|info| info.0.uid)
        .filter(|uid| may_enter(*uid))
    {
        Some(_) => {
            // Root acts for the user whose server this is: tasks have one owner, whoever types.
            let uid = nix::unistd::geteuid().as_raw();
            request.extensions_mut().insert(Peer {
                uid,
                entrance: Entrance::Socket,
            });
            next.run(request).await
        }
        None => axum::response::IntoResponse::into_response(crate::admin::Error::new(
            403,
            7401,
            "not_allowed",
            "this socket is another user's",
            crate::admin::Who::Caller,
        )),
    }
}

fn may_enter(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// Whether the directory is this user's, or root's, and nobody else may write in it.
fn private(directory: &Path) -> io::Result<bool> {
    let found = fs::metadata(directory)?;
    Ok(may_enter(found.uid()) && found.mode() & 0o022 == 0)
}

/// Removes a socket on which nobody answers.
fn clear(path: &Path) -> Result<(), BindError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(BindError::System {
                path: path.to_owned(),
                source,
            });
        }
    };
    if !found.file_type().is_socket() || !may_enter(found.uid()) {
        return Err(BindError::InTheWay(path.to_owned()));
    }
    match StdStream::connect(path) {
        Ok(_) => Err(BindError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            remove(path).map_err(|source| BindError::System {
                path: path.to_owned(),
                source,
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(BindError::System {
            path: path.to_owned(),
            source,
        }),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
