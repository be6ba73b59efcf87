//! Operator ports: listeners for operators, in addition to those of the protocols. Each runs on a
//! separate thread, so that it cannot slow down connections of protocols, and accesses the queue
//! through [`Clients`].

use std::any::Any;
use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use windlass_config::ListenAddress;
pub use windlass_history as history;
use windlass_history::Book;
use windlass_session::protocol::{Daemon, Page, Protocol};

use crate::control::requests::Control;
use crate::export::Exports;
use crate::figures::Figures;
pub use crate::masks::Masks;
use windlass_hub::warn_limited;
pub use windlass_net::Admitted;
pub use windlass_net::Pulse;
use windlass_net::{Acceptor, Bound, Clients, KeepAlive, Places, SocketFile};

/// A configured listener for operators.
pub trait OperatorPort: Send + Sync + fmt::Debug {
    /// The name of its section.
    fn name(&self) -> &'static str;

    /// All addresses.
    fn listen(&self) -> &[ListenAddress];

    /// The name of a Unix socket in the data directory that only the directory's owner can use.
    fn private_socket(&self) -> &'static str;

    /// Starts a thread that serves these sockets until the daemon stops, and exits when all its
    /// connections are closed. Sockets may be added at any time.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    fn open(&self, sockets: UnboundedReceiver<Socket>, inside: Inside) -> io::Result<OpenPort>;

    /// The keys of its section that [`OperatorPort::renew`] applies.
    fn renewable(&self) -> &'static [&'static str];

    /// Applies their values to an open port: `shared` is the field of [`OpenPort`].
    fn renew(&self, shared: &(dyn Any + Send + Sync));
}

/// An open port.
pub struct OpenPort {
    /// The serving thread.
    pub thread: JoinHandle<()>,
    /// The state that its connections share.
    pub shared: Arc<dyn Any + Send + Sync>,
}

/// A listening, non-blocking socket.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// The parts of the daemon that a port can use.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The queue.
    pub clients: Clients,
    /// The clocks, the bridge between the protocols, and the machine's name.
    pub daemon: Daemon,
    /// All protocols, as configured at startup.
    pub protocols: Vec<Arc<dyn Protocol>>,
    /// Pages of the protocols' original servers.
    pub pages: Vec<Arc<dyn Page>>,
    /// Requests concerning the whole daemon.
    pub control: Control,
    /// The daemon's own figures.
    pub figures: Figures,
    /// Exports of the store.
    pub exports: Exports,
    /// The history of ended jobs, unless the daemon has no place for one.
    pub history: Option<Book>,
    /// What is hidden from readers without the right to see it.
    pub masks: Masks,
    /// Whether the daemon's threads are responsive.
    pub pulse: Arc<Pulse>,
    /// Limits shared by the connections of all listeners.
    pub connects: Connects,
    /// Cancelled when the daemon stops.
    pub stop: CancellationToken,
}

/// Limits shared by the connections of all listeners.
#[derive(Clone, Debug)]
pub struct Connects {
    pub(crate) places: Arc<Places>,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) most: usize,
}

impl Connects {
    /// Counts a new connection towards the limit of its address until the result is dropped.
    /// `None`: the connection must be closed, and the reason is in the log.
    #[must_use]
    pub fn admit(&self, address: IpAddr) -> Option<Admitted> {
        self.places.admit(address)
    }

    /// The number of connections that a port with this configured limit may have: the system may
    /// allow fewer open files.
    pub fn most(&self, configured: usize) -> usize {
        configured.min(self.most)
    }

    /// Logs how a port has enforced its own limit on connections, at most once a second.
    pub fn warn_full(&self, limit: &'static str, peer: &str, done: &'static str) {
        warn_limited!(done, peer, limit, "too many connections: {done}");
    }

    /// Sets TCP keep-alive of a new connection, if the setting has changed since the socket was
    /// bound.
    pub fn keep_alive(&self, stream: &impl AsFd) {
        self.keep_alive.apply(stream);
    }
}

/// An open port, to which new values of its section can be applied.
#[derive(Debug)]
pub(crate) struct Renewable {
    name: &'static str,
    keys: &'static [&'static str],
    shared: Arc<dyn Any + Send + Sync>,
    entrance: Entrance,
}

/// Passes sockets to an open port.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    name: &'static str,
    sockets: UnboundedSender<Socket>,
}

impl Entrance {
    /// The name of the port's section.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a socket to the port. The file of a Unix socket lives as long as the result.
    pub(crate) fn add(&self, bound: Bound) -> io::Result<Option<SocketFile>> {
        let address = bound
            .address()
            .map_or_else(|_| "?".to_owned(), |address| address.to_string());
        tracing::info!(protocol = self.name, %address, tls = false, "listening");
        let (socket, file) = match bound {
            Bound::Tcp(listener) => (Socket::Tcp(listener.into_std()?), None),
            Bound::Unix(listener, file) => (Socket::Unix(listener.into_std()?), Some(file)),
        };
        // A closed port needs no sockets.
        let _ = self.sockets.send(socket);
        Ok(file)
    }
}

impl Renewable {
    /// The name of the port's section.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// The sender of its sockets.
    pub(crate) const fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// Whether a key of the section can be applied while the port is open.
    pub(crate) fn applies(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    /// Applies new values if the section belongs to this port.
    pub(crate) fn renew(&self, section: &dyn OperatorPort) {
        if section.name() == self.name {
            section.renew(&*self.shared);
        }
    }
}

/// A port whose addresses are bound.
#[derive(Debug)]
pub(crate) struct BoundPort {
    port: Arc<dyn OperatorPort>,
    bound: Vec<Bound>,
}

impl BoundPort {
    pub(crate) fn name(&self) -> &'static str {
        self.port.name()
    }

    pub(crate) const fn new(port: Arc<dyn OperatorPort>, bound: Vec<Bound>) -> Self {
        Self { port, bound }
    }

    pub(crate) fn private_socket(&self) -> &'static str {
        self.port.private_socket()
    }

    pub(crate) fn add(&mut self, bound: Vec<Bound>) {
        self.bound.extend(bound);
    }

    pub(crate) fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// Opens the port. The daemon waits for its thread when it stops. The files of Unix sockets
    /// live as long as the result.
    pub(crate) fn open(
        self,
        inside: Inside,
        acceptor: &Acceptor,
    ) -> io::Result<(Vec<SocketFile>, Renewable)> {
        let Self { port, bound } = self;
        let (sender, receiver) = unbounded_channel();
        let OpenPort { thread, shared } = port.open(receiver, inside)?;
        // A panic in the thread was already logged by its hook.
        acceptor.tasks.spawn_blocking(move || drop(thread.join()));
        let entrance = Entrance {
            name: port.name(),
            sockets: sender,
        };
        let files: io::Result<Vec<_>> = bound
            .into_iter()
            .filter_map(|it| entrance.add(it).transpose())
            .collect();
        Ok((
            files?,
            Renewable {
                name: port.name(),
                keys: port.renewable(),
                shared,
                entrance,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A port with this name, whose `shared` counts its values.
    #[derive(Debug)]
    struct Named(&'static str);

    impl OperatorPort for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn listen(&self) -> &[ListenAddress] {
            &[]
        }

        fn private_socket(&self) -> &'static str {
            "socket"
        }

        fn open(&self, _: UnboundedReceiver<Socket>, _: Inside) -> io::Result<OpenPort> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn renewable(&self) -> &'static [&'static str] {
            &["key"]
        }

        fn renew(&self, shared: &(dyn Any + Send + Sync)) {
            shared
                .downcast_ref::<AtomicUsize>()
                .unwrap()
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_door_takes_new_values_of_its_own_section() {
        let renewed = Arc::new(AtomicUsize::new(0));
        let entrance = Entrance {
            name: "http",
            sockets: unbounded_channel().0,
        };
        let shared = Arc::<AtomicUsize>::clone(&renewed);
        let port = Renewable {
            name: "http",
            keys: Named("http").renewable(),
            shared,
            entrance,
        };
        for (section, times) in [("metrics", 0), ("http", 1)] {
            port.renew(&Named(section));
            assert_eq!(renewed.load(Ordering::Relaxed), times, "{section}");
        }
        assert_eq!(["key", "other"].map(|key| port.applies(key)), [true, false]);
    }
}
