//! Listeners: binding, accepting, and limits on connections. Of a protocol, only the name is used.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use mio::net::{TcpStream, UnixStream};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use windlass_config::{Address, ListenAddress};
use windlass_engine::{ClientId, ClientInfo, Rights};
use windlass_session::Listen;
use windlass_session::protocol::{Endpoint, SessionFactory};

use crate::client::Clients;
use crate::connection::{Bounds, Newcomer, Shared};
use crate::inherited::Inherited;
use crate::places::{Admission, FAILED_LOGINS, Full, PlaceLimits, Places};
use crate::serving::{Arrival, Debt, Label, ThreadSlots};
use crate::settings::Server;
use crate::stops::StopRequests;
use crate::stream::Stream;
use crate::tls::Handshaker;
use crate::traffic::{Counts, NO_PLACE, Traffic};
use windlass_hub::{Broker, Budget, Hub, ProtocolNames, warn_limited};

#[cfg(test)]
mod tests;

/// Pause after a failed accept, and between checks for a free place.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum unsent bytes that the kernel buffers for a peer.
const UNSENT_BYTES_MAX: u32 = 256 * 1024;

/// A bound endpoint of a protocol with its TLS, as listeners serve it.
#[derive(Clone)]
pub struct Served {
    /// As at the start.
    pub endpoint: Endpoint,
    /// Makes the sessions of new connections.
    pub sessions: Arc<ArcSwap<SessionFactory>>,
    /// For TCP sockets; Unix sockets are never encrypted.
    pub tls: Option<Arc<Handshaker>>,
}

/// A socket that is bound and does not accept yet.
#[derive(Debug)]
pub enum Bound {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket. Removed when its listener is dropped, unless another process has the
/// socket too.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    is_ours: bool,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Accepts connections, and passes them to the serving threads.
#[derive(Debug)]
pub struct Acceptor {
    /// The hub, if the engine room is in this daemon.
    hub: ArcSwapOption<Hub>,
    /// The protocols' names.
    pub names: ProtocolNames,
    thread_slots: ThreadSlots,
    shared: Shared,
    /// The limits on connections.
    pub places: Arc<Places>,
    /// Keep-alive settings, which detect unreachable peers.
    pub keep_alive: KeepAlive,
    /// Open connections.
    pub tasks: TaskTracker,
    /// Cancelled when the daemon stops accepting connections.
    pub closed: CancellationToken,
    next_client: Arc<AtomicU64>,
}

impl Acceptor {
    /// Creates an acceptor for these threads.
    pub fn new(
        names: ProtocolNames,
        thread_slots: ThreadSlots,
        shared: Shared,
        places: PlaceLimits,
    ) -> Self {
        Self {
            hub: ArcSwapOption::empty(),
            names,
            thread_slots,
            shared,
            closed: CancellationToken::new(),
            places: Places::new(places),
            keep_alive: KeepAlive::default(),
            tasks: TaskTracker::new(),
            next_client: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The broker that connections use.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.shared.broker
    }

    /// The hub, if the engine room is in this daemon.
    pub fn hub(&self) -> Option<Arc<Hub>> {
        self.hub.load_full()
    }

    /// Sets the hub when the engine room is in this daemon.
    pub fn enter_room(&self, hub: &Arc<Hub>) {
        self.hub.store(Some(Arc::clone(hub)));
    }

    /// Clears the hub when the engine room is in another daemon.
    pub fn leave_room(&self) {
        self.hub.store(None);
    }

    /// The memory budget of all connections.
    pub const fn budget(&self) -> &Arc<Budget> {
        &self.shared.budget
    }

    /// Creates clients inside the daemon.
    pub fn clients(&self) -> Clients {
        Clients::new(
            self.shared.clone(),
            Arc::clone(&self.next_client),
            self.closed.clone(),
        )
    }

    /// Counters of connections.
    pub const fn traffic(&self) -> &Arc<Traffic> {
        &self.shared.traffic
    }

    /// Clients' requests to stop the daemon.
    pub fn stops(&self) -> &StopRequests {
        &self.shared.stops
    }

    /// Sets the limits for new connections.
    pub fn limit(&self, bounds: Bounds, places: PlaceLimits) {
        self.shared.limit(bounds);
        self.places.limit(places);
    }

    /// The serving threads.
    pub const fn thread_slots(&self) -> &ThreadSlots {
        &self.thread_slots
    }

    /// Waits for a place for a connection. Returns `None` if the connection must be closed.
    async fn place(
        &self,
        info: &ClientInfo,
        endpoint: &Endpoint,
        counts: &Counts,
    ) -> Option<Admission> {
        let (protocol, peer) = (endpoint.name, &*info.address);
        loop {
            match self.places.take(protocol, peer, endpoint.is_admin) {
                Ok(admission) => return Some(admission),
                Err(Full::Yet) => {
                    warn_limited!(
                        "wait",
                        protocol,
                        peer,
                        "too many connections: new ones wait"
                    );
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Err(Full::Limit(limit)) => {
                    let what = if limit == FAILED_LOGINS {
                        "failed logins"
                    } else {
                        "connections"
                    };
                    warn_limited!(
                        limit,
                        protocol,
                        peer,
                        limit,
                        "too many {what}: closed the new connection"
                    );
                    counts.opened();
                    counts.closed(NO_PLACE);
                    return None;
                }
            }
        }
    }

    /// Passes a connection to one of the threads.
    fn enter(
        &self,
        socket: Accepted,
        info: ClientInfo,
        Served {
            endpoint,
            sessions,
            tls,
        }: &Served,
        Terms {
            admission,
            rights,
            debt,
        }: Terms,
    ) -> io::Result<()> {
        let (stream, handshake_max): (Box<dyn Stream>, _) = match (socket, tls) {
            (Accepted::Tcp(socket), None) => {
                (Box::new(TcpStream::from_std(socket)), Duration::ZERO)
            }
            (Accepted::Tcp(socket), Some(tls)) => (
                Box::new(tls.wrap(TcpStream::from_std(socket))?),
                tls.handshake_max(),
            ),
            (Accepted::Unix(socket), _) => (Box::new(UnixStream::from_std(socket)), Duration::ZERO),
        };
        let client = ClientId(self.next_client.fetch_add(1, Ordering::Relaxed));
        let (protocol, peer) = (endpoint.name, Arc::<str>::from(&*info.address));
        let span = tracing::debug_span!("connection", protocol, %peer, client = client.0);
        let sessions = Arc::clone(&sessions.load());
        self.thread_slots.serve(Arrival {
            newcomer: Newcomer {
                stream,
                handshake_max,
                // The address has precedence over the certificate.
                greet: Box::new(move |post, namespace| {
                    let namespace = info.namespace.clone().or(namespace);
                    sessions(ClientInfo { namespace, ..info }, post)
                }),
                admission,
                rights,
            },
            client,
            label: Label {
                span,
                protocol,
                peer,
            },
            debt,
            token: self.tasks.token(),
        });
        Ok(())
    }
}

/// Binds every socket address of `listen` that was not inherited. Addresses that this machine does
/// not have are skipped, unless that leaves none. For `localhost` one address suffices: there may
/// be no IPv6, or another process may use the port there.
pub fn bind(
    listen: &ListenAddress,
    server: &Server,
    inherited: &mut Inherited,
) -> io::Result<Vec<Bound>> {
    bind_all(listen, listen.resolve()?, server, inherited)
}

fn bind_all(
    listen: &ListenAddress,
    addresses: Vec<Address>,
    server: &Server,
    inherited: &mut Inherited,
) -> io::Result<Vec<Bound>> {
    let (mut bound, mut missing) = (Vec::new(), None);
    let tries_once = server.in_use_timeout.is_zero();
    for address in addresses {
        let address = with_port_of(bound.first(), address);
        match inherited
            .take(&address)
            .map_or_else(|| bind_one(&address, server), Ok)
        {
            Ok(listener) => bound.push(listener),
            Err(error) if is_not_ours(&error) && listen.is_localhost() => missing = Some(error),
            Err(error)
                if is_in_use(&error)
                    && listen.is_localhost()
                    && !bound.is_empty()
                    && tries_once =>
            {
                tracing::warn!(%listen, %address, %error, "clients that use this address of localhost reach another process");
            }
            Err(error) if is_not_ours(&error) => {
                tracing::warn!(%listen, %address, %error, "skipped an address that this machine does not have");
                missing = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    missing.filter(|_| bound.is_empty()).map_or(Ok(bound), Err)
}

/// If the system chooses the port, all addresses of one name get the same.
fn with_port_of(first: Option<&Bound>, address: Address) -> Address {
    match (first.and_then(|first| first.address().ok()), address) {
        (Some(Address::Tcp(first)), Address::Tcp(mut address))
            if address.port() == 0 && first.ip() != address.ip() =>
        {
            address.set_port(first.port());
            Address::Tcp(address)
        }
        (_, address) => address,
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn is_not_ours(error: &io::Error) -> bool {
    let no_family = error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    no_family || error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Binds an address, replacing a stale Unix socket.
fn bind_one(address: &Address, server: &Server) -> io::Result<Bound> {
    match address {
        Address::Tcp(address) => {
            let socket = if address.is_ipv4() {
                TcpSocket::new_v4()
            } else {
                TcpSocket::new_v6()
            }?;
            socket.set_reuseaddr(true)?;
            keep_alive(&socket, server)?;
            socket.bind(*address)?;
            socket.listen(server.backlog).map(Bound::Tcp)
        }
        Address::Unix(path) => {
            clear_stale(path)?;
            bind_unix(path, server.unix_mode.0, server.backlog)
        }
    }
}

/// Binds a Unix socket for the daemon's user and its group, if they can enter the directory.
pub fn bind_private(path: &Path, server: &Server) -> io::Result<Bound> {
    clear_stale(path)?;
    bind_unix(path, Some(0o660), server.backlog)
}

/// Sets the permissions before any client can connect.
fn bind_unix(path: &Path, mode: Option<u32>, backlog: u32) -> io::Result<Bound> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile {
        path: path.to_owned(),
        is_ours: true,
    };
    if let Some(mode) = mode {
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    Ok(Bound::Unix(UnixListener::from_std(socket.into())?, file))
}

/// Sets keep-alive on a listener, which accepted sockets inherit, so that a peer that vanished
/// without closing is noticed eventually.
pub fn keep_alive<'a>(socket: impl Into<SockRef<'a>>, server: &Server) -> io::Result<()> {
    watch(
        &socket.into(),
        &with_configured(TcpKeepalive::new(), server),
        is_configured(server),
    )
}

/// Keep-alive sends no probes while sent bytes are unacknowledged, so the same timeout is set for
/// those.
fn watch(socket: &SockRef<'_>, keepalive: &TcpKeepalive, is_configured: bool) -> io::Result<()> {
    socket.set_tcp_keepalive(keepalive)?;
    let probes = socket
        .tcp_keepalive_interval()?
        .saturating_mul(socket.tcp_keepalive_retries()?);
    let patience = socket.tcp_keepalive_time()?.saturating_add(probes);
    socket.set_tcp_user_timeout(is_configured.then_some(patience))
}

const fn is_configured(server: &Server) -> bool {
    !server.keepalive_idle.is_zero()
        || !server.keepalive_interval.is_zero()
        || server.keepalive_count > 0
}

fn with_configured(mut keepalive: TcpKeepalive, server: &Server) -> TcpKeepalive {
    if !server.keepalive_idle.is_zero() {
        keepalive = keepalive.with_time(server.keepalive_idle.into());
    }
    if !server.keepalive_interval.is_zero() {
        keepalive = keepalive.with_interval(server.keepalive_interval.into());
    }
    match server.keepalive_count {
        0 => keepalive,
        count => keepalive.with_retries(count),
    }
}

/// Keep-alive settings for new connections, if they have changed since the sockets were bound:
/// listeners keep the original ones.
#[derive(Clone, Debug, Default)]
pub struct KeepAlive(Arc<ArcSwapOption<(TcpKeepalive, bool)>>);

impl KeepAlive {
    /// Changes the settings.
    pub fn renew(&self, server: &Server) {
        match complete(server) {
            Ok(keepalive) => self
                .0
                .store(Some(Arc::new((keepalive, is_configured(server))))),
            Err(error) => tracing::warn!(%error, "server.keepalive: the old values stay in use"),
        }
    }

    /// Applies the settings to a new connection.
    pub fn apply(&self, stream: &impl AsFd) {
        if let Some(changed) = &*self.0.load() {
            // The connection works without it.
            let _ = watch(&SockRef::from(stream), &changed.0, changed.1);
        }
    }
}

/// Fills in the system's values for settings that are not configured.
fn complete(server: &Server) -> io::Result<TcpKeepalive> {
    let system = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let keepalive = TcpKeepalive::new()
        .with_time(system.tcp_keepalive_time()?)
        .with_interval(system.tcp_keepalive_interval()?)
        .with_retries(system.tcp_keepalive_retries()?);
    Ok(with_configured(keepalive, server))
}

/// Removes a Unix socket on which no process accepts. Other files are never removed, because a
/// mistyped path may belong to something else.
fn clear_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::other("the file there is not a socket"));
        }
        Ok(_) => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The listening process may have a full backlog, so do not block.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl Bound {
    /// A Unix socket that another process has too.
    pub const fn handed_over(listener: UnixListener, path: PathBuf) -> Self {
        Self::Unix(
            listener,
            SocketFile {
                path,
                is_ours: false,
            },
        )
    }

    /// The bound address, with the port chosen by the kernel if the configured one is 0.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
        }
    }

    /// The address, if other machines can reach it and clients need neither a password nor a
    /// certificate.
    pub fn open_to_all(&self, protocol: &Endpoint) -> Option<Address> {
        self.address()
            .ok()
            .filter(|address| !protocol.guarded && !address.is_local())
    }

    /// Accepts until the daemon stops, on the terms of the address. The protocol's counters exist before the first
    /// connection.
    pub fn accept(
        self,
        acceptor: Arc<Acceptor>,
        served: Served,
        terms: Listen,
    ) -> impl Future<Output = ()> + Send + 'static {
        let counts = acceptor.shared.traffic.counts(served.endpoint.name);
        let debt = Debt::default();
        async move {
            loop {
                let let_in = async {
                    let pause = debt.pay();
                    if terms.namespace.is_some() && !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                    let (socket, info) = self.next(&acceptor.keep_alive).await?;
                    let info = ClientInfo {
                        namespace: terms.namespace.clone(),
                        ..info
                    };
                    let Some(admission) = acceptor.place(&info, &served.endpoint, &counts).await
                    else {
                        return Ok(());
                    };
                    let terms = Terms {
                        admission,
                        rights: terms.rights,
                        debt: debt.clone(),
                    };
                    acceptor.enter(socket, info, &served, terms)
                };
                let let_in = tokio::select! {
                    () = acceptor.closed.cancelled() => return,
                    let_in = let_in => let_in,
                };
                if let Err(error) = let_in {
                    warn_limited!("accept", %error, protocol = served.endpoint.name, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn next(&self, keep_alive: &KeepAlive) -> io::Result<(Accepted, ClientInfo)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Small replies must not wait for each other.
                let _ = stream.set_nodelay(true);
                keep_alive.apply(&stream);
                // Bytes that a peer does not read must stay here, where they are counted, and not
                // in the kernel.
                let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
                let info = client_info(stream.as_raw_fd(), peer.ip().to_canonical().to_string());
                Ok((Accepted::Tcp(stream.into_std()?), info))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let info = client_info(stream.as_raw_fd(), String::new());
                Ok((Accepted::Unix(stream.into_std()?), info))
            }
        }
    }
}

/// What a connection may do, and who pays for it.
struct Terms {
    admission: Admission,
    rights: Rights,
    debt: Debt,
}

/// A socket that no thread waits for yet.
enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

fn client_info(fd: i32, address: String) -> ClientInfo {
    ClientInfo {
        namespace: None,
        address: address.into(),
        protocol: None,
        number: u32::try_from(fd).unwrap_or_default(),
    }
}
