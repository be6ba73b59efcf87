//! Listeners: binding, accepting, and the limit on how many may connect. Knows addresses, no protocol.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use windlass_engine::{ClientId, ClientInfo};
use windlass_session::Session;

use crate::budget::Budget;
use crate::config::Address;
use crate::connection::{Bounds, Connection, Stream};
use crate::hub::Hub;

/// Connections the kernel may hold for us before we accept them.
const BACKLOG: u32 = 1024;

/// How long to leave the kernel alone when it cannot give us a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Makes the session of a new connection.
pub(crate) type Greeter = Arc<dyn Fn(ClientInfo) -> Box<dyn Session> + Send + Sync>;

/// A socket that is bound and not yet served.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A Unix socket's file: gone when its listener is.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What all connections of the daemon share.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) hub: Arc<Hub>,
    budget: Arc<Budget>,
    bounds: Bounds,
    connections_max: usize,
    pub(crate) tasks: TaskTracker,
    open: AtomicUsize,
    next_client: AtomicU64,
}

impl Door {
    pub(crate) fn new(hub: Arc<Hub>, bounds: Bounds, connections_max: usize, buffer_bytes_max: usize) -> Self {
        Self {
            hub,
            budget: Arc::new(Budget::new(buffer_bytes_max)),
            bounds,
            connections_max,
            tasks: TaskTracker::new(),
            open: AtomicUsize::new(0),
            next_client: AtomicU64::new(1),
        }
    }

    /// Serves a connection in a task of its own, or closes it if there are too many.
    fn enter(
        self: &Arc<Self>,
        stream: impl Stream + 'static,
        info: ClientInfo,
        protocol: &'static str,
        greet: &Greeter,
    ) {
        let place = Place::take(self);
        let Some(place) = place else {
            return tracing::warn!(connections_max = self.connections_max, "too many connections: closed one");
        };
        let client = ClientId(self.next_client.fetch_add(1, Ordering::Relaxed));
        let span = tracing::debug_span!("connection", protocol, peer = %info.address, client = client.0);
        let session = greet(info);
        let connection =
            Connection::new(stream, session, client, (Arc::clone(&self.hub), Arc::clone(&self.budget)), self.bounds);
        let task = async move {
            tracing::debug!("open");
            let reason = connection.serve().await;
            tracing::debug!(%reason, "closed");
            drop(place);
        };
        self.tasks.spawn(task.instrument(span));
    }
}

/// One of the connections there may be.
struct Place(Arc<Door>);

impl Place {
    fn take(door: &Arc<Door>) -> Option<Self> {
        let free = |open: usize| (open < door.connections_max).then_some(open + 1);
        door.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(Self(Arc::clone(door)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Binds an address. A Unix socket nobody listens at any more is replaced.
pub(crate) fn bind(address: &Address) -> io::Result<Bound> {
    match address {
        Address::Tcp(address) => {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(*address)?;
            socket.listen(BACKLOG).map(Bound::Tcp)
        }
        Address::Unix(path) => {
            clear_stale(path)?;
            Ok(Bound::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
        }
    }
}

fn clear_stale(path: &Path) -> io::Result<()> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

impl Bound {
    /// Where it really is: the port is the kernel's choice if none was given.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, file) => Ok(Address::Unix(file.0.clone())),
        }
    }

    /// Accepts until told to stop.
    pub(crate) async fn accept(self, door: Arc<Door>, protocol: &'static str, greet: Greeter, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.next() => accepted,
            };
            match accepted {
                Ok(Accepted::Tcp(stream, info)) => door.enter(stream, info, protocol, &greet),
                Ok(Accepted::Unix(stream, info)) => door.enter(stream, info, protocol, &greet),
                Err(error) => {
                    tracing::warn!(%error, protocol, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn next(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                prepare(&stream);
                let info = client_info(stream.as_raw_fd(), peer.ip().to_canonical().to_string());
                Ok(Accepted::Tcp(stream, info))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let info = client_info(stream.as_raw_fd(), String::new());
                Ok(Accepted::Unix(stream, info))
            }
        }
    }
}

enum Accepted {
    Tcp(TcpStream, ClientInfo),
    Unix(UnixStream, ClientInfo),
}

/// Small replies must not wait for each other, and a peer that vanished without a word must be noticed some day.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(stream).set_keepalive(true);
}

fn client_info(fd: i32, address: String) -> ClientInfo {
    ClientInfo { address: address.into(), origin: None, number: u32::try_from(fd).unwrap_or_default() }
}
